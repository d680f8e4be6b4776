/* A job is a row of commands, run one after the other; the first that fails ends it. Their output goes to files of the session's
 * log folder that are removed at the end (a child's streams can only be files here). At most 8 jobs at a time. */
#define _GNU_SOURCE
#include "raylet-c/agent/profiler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/base/list.h"
#include "raylet-c/base/log.h"

enum { MAX_JOBS = 8, MAX_STEPS = 3, MAX_WORDS = 20, MAX_OUTPUT = 64 << 20, MAX_ERROR_TEXT = 64 * 1024, MAX_SECONDS = 600, STEP_EXTRA_MS = 60 * 1000 };

typedef enum kind { TRACEBACK, CPU, MEMORY } kind;

typedef struct step {
	char *words[MAX_WORDS + 1];
	int n;
	unsigned pause_ms; /* before it */
	bool may_fail;     /* its failure is a warning */
} step;

typedef struct job {
	rc_profiler *owner; /* NULL: gone */
	rc_link link;
	rc_request *request;
	kind kind;
	step steps[MAX_STEPS];
	int n_steps, at;
	char *tool;
	char *out_path, *err_path; /* of the step that runs */
	char *result_path;         /* NULL: the last step's standard output */
	char *scratch;             /* another file to remove; may be NULL */
	char *warning;
	rc_process *process;
	rc_timer *timer;
	unsigned seconds;
} job;

struct rc_profiler {
	rc_profiler_options o;
	char *log_dir, *tools_dir;
	rc_link jobs;
	size_t n_jobs;
	unsigned number;
};

/* ---- answers ---- */

static void job_free(job *j)
{
	rc_timer_stop(j->timer);
	rc_list_remove(&j->link);
	j->owner->n_jobs--;
	for (int i = 0; i < j->n_steps; i++)
		for (int k = 0; k < j->steps[i].n; k++)
			free(j->steps[i].words[k]);
	char *const files[] = { j->out_path, j->err_path, j->result_path, j->scratch };
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (files[i])
			unlink(files[i]);
		free(files[i]);
	}
	free(j->tool);
	free(j->warning);
	free(j);
}

static void reply(const rc_profiler *p, rc_request *r, kind k, bool success, const char *text, const char *warning)
{
	rc_buf out = { 0 };
	if (k == TRACEBACK) {
		Rw__GetTracebackReply m = RW__GET_TRACEBACK_REPLY__INIT;
		RC_SET(m, success, success);
		m.output = (char *)text;
		rc_pack(p->o.dialect, &m, &out);
	} else if (k == CPU) {
		Rw__CpuProfilingReply m = RW__CPU_PROFILING_REPLY__INIT;
		RC_SET(m, success, success);
		m.output = (char *)text;
		rc_pack(p->o.dialect, &m, &out);
	} else {
		Rw__MemoryProfilingReply m = RW__MEMORY_PROFILING_REPLY__INIT;
		RC_SET(m, success, success);
		m.output = (char *)text;
		m.warning = (char *)warning;
		rc_pack(p->o.dialect, &m, &out);
	}
	rc_reply(r, rc_view_of(out.p, out.n));
	rc_buf_free(&out);
}

static void finish(job *j, bool success, const char *text)
{
	reply(j->owner, j->request, j->kind, success, text, j->warning);
	job_free(j);
}

static void read_file(const char *path, size_t most, rc_buf *out)
{
	int fd = path ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
	ssize_t n = 1;
	while (fd >= 0 && n > 0 && out->n < most) {
		uint8_t *to = rc_buf_grow(out, 65536);
		n = read(fd, to, 65536);
		out->n -= 65536 - (n > 0 ? (size_t)n : 0);
	}
	if (fd >= 0)
		close(fd);
	rc_buf_cstr(out);
}

static char *failure_text(const job *j, const char *how)
{
	rc_buf text = { 0 }, out = { 0 }, err = { 0 };
	const step *s = &j->steps[j->at];
	read_file(j->out_path, MAX_ERROR_TEXT, &out);
	read_file(j->err_path, MAX_ERROR_TEXT, &err);
	rc_buf_str(&text, "Failed to execute `");
	for (int i = 0; i < s->n; i++)
		rc_buf_printf(&text, "%s%s", i ? " " : "", s->words[i]);
	rc_buf_printf(&text, "`: %s\n", how);
	if (strcasestr((char *)err.p, "permission"))
		rc_buf_printf(&text,
		              "%s needs the right to look into other processes: run the node as root or where `sudo -n` works, or make %s belong to "
		              "root with the set-uid bit (sudo chown root:root `which %s`; sudo chmod u+s `which %s`).\n",
		              j->tool, j->tool, j->tool, j->tool);
	rc_buf_printf(&text, "=== stderr ===\n%s\n=== stdout ===\n%s\n", (char *)err.p, (char *)out.p);
	rc_buf_free(&out);
	rc_buf_free(&err);
	rc_buf_cstr(&text);
	return (char *)text.p;
}

/* ---- running ---- */

static void start_step(void *arg);

static void step_ended(void *arg, rc_process *process, int status)
{
	job *j = arg;
	char how[80];
	(void)process;
	j->process = NULL;
	rc_timer_stop(j->timer);
	j->timer = NULL;
	bool ok = status == 0;
	if (!ok) {
		char *text = failure_text(j, rc_exit_text(status, how));
		if (!j->steps[j->at].may_fail) {
			finish(j, false, text);
			free(text);
			return;
		}
		free(j->warning);
		j->warning = text;
	}
	if (++j->at < j->n_steps) {
		start_step(j);
		return;
	}
	rc_buf result = { 0 };
	read_file(j->result_path ? j->result_path : j->out_path, MAX_OUTPUT, &result);
	finish(j, true, (char *)result.p);
	rc_buf_free(&result);
}

static void overdue(void *arg)
{
	job *j = arg;
	if (j->process)
		rc_process_kill(j->process);
}

static void run_step(void *arg)
{
	job *j = arg;
	/* As root at once, elsewhere by sudo where that asks for no password: tracing another process wants the right. */
	static const char with_sudo[] = "if [ \"$(id -u)\" != 0 ] && sudo -n true 2>/dev/null; then exec sudo -n \"$@\"; fi; exec \"$@\"";
	const char *argv[MAX_WORDS + 5] = { "/bin/sh", "-c", with_sudo, "sh" };
	step *s = &j->steps[j->at];
	extern char **environ;
	rc_error error;
	rc_timer_stop(j->timer);
	j->timer = NULL;
	for (int i = 0; i <= s->n; i++)
		argv[4 + i] = s->words[i];
	if (j->out_path)
		unlink(j->out_path);
	if (j->err_path)
		unlink(j->err_path);
	rc_spawn spawn = { .name = j->tool, .argv = argv, .env = (const char *const *)environ, .stdout_path = j->out_path, .stderr_path = j->err_path };
	j->process = rc_process_spawn(j->owner->o.procs, &spawn, step_ended, j, &error);
	if (j->process)
		j->timer = rc_timer_start(j->owner->o.loop, j->seconds * 1000ull + STEP_EXTRA_MS, 0, overdue, j);
	else
		finish(j, false, error.text);
}

static void start_step(void *arg)
{
	job *j = arg;
	if (j->steps[j->at].pause_ms)
		j->timer = rc_timer_start(j->owner->o.loop, j->steps[j->at].pause_ms, 0, run_step, j);
	else
		run_step(j);
}

/* ---- making a job ---- */

static char *find_tool(const rc_profiler *p, const char *name)
{
	const char *path = getenv("PATH");
	char *all = rc_sprintf("%s:%s", path ? path : "", p->tools_dir), *save = NULL, *found = NULL;
	for (char *dir = strtok_r(all, ":", &save); dir && !found; dir = strtok_r(NULL, ":", &save)) {
		found = rc_sprintf("%s/%s", dir, name);
		if (access(found, X_OK) != 0) {
			free(found);
			found = NULL;
		}
	}
	free(all);
	return found;
}

static void add_words(step *s, ...)
{
	va_list args;
	va_start(args, s);
	for (const char *word; s->n < MAX_WORDS && (word = va_arg(args, const char *));)
		s->words[s->n++] = rc_strdup(word);
	va_end(args);
}

/* NULL: the request has been answered. */
static job *new_job(rc_profiler *p, rc_request *r, kind k, const char *tool, pid_t pid, unsigned seconds)
{
	char text[200];
	char *path = find_tool(p, tool);
	if (p->n_jobs >= MAX_JOBS)
		snprintf(text, sizeof(text), "Failed to execute: %d profiles are being taken already", MAX_JOBS);
	else if (!p->o.is_ours(p->o.ctx, pid))
		snprintf(text, sizeof(text), "Failed to execute: process %d is no worker or driver of this node", (int)pid);
	else if (!path)
		snprintf(text, sizeof(text), "Failed to execute: %s is not installed", tool);
	else
		*text = '\0';
	if (*text) {
		reply(p, r, k, false, text, NULL);
		free(path);
		return NULL;
	}
	job *j = rc_alloc(sizeof(*j));
	*j = (job){ .owner = p, .request = r, .kind = k, .tool = rc_strdup(tool), .seconds = seconds };
	unsigned number = ++p->number;
	j->out_path = rc_sprintf("%s/.profile-%d-%u.out", p->log_dir, (int)getpid(), number);
	j->err_path = rc_sprintf("%s/.profile-%d-%u.err", p->log_dir, (int)getpid(), number);
	rc_list_append(&p->jobs, &j->link);
	p->n_jobs++;
	free(path);
	return j;
}

static bool one_of(const char *word, const char *const *words)
{
	for (; *words; words++)
		if (!strcmp(word, *words))
			return true;
	return false;
}

#define TAKE(p, r, m, Type, type)                                                                     \
	Rw__##Type *m = rc_unpack((p)->o.dialect, &rw__##type##__descriptor, bytes);                  \
	if (!m) {                                                                                     \
		rc_reply_error(r, RC_RPC_INVALID, #Type ": malformed");                               \
		return;                                                                               \
	}

void rc_profiler_traceback(rc_profiler *p, rc_request *r, rc_view bytes)
{
	TAKE(p, r, m, GetTracebackRequest, get_traceback_request)
	char pid[16];
	snprintf(pid, sizeof(pid), "%u", RC_GET(m, pid));
	job *j = new_job(p, r, TRACEBACK, "py-spy", (pid_t)RC_GET(m, pid), 30);
	if (j) {
		step *s = &j->steps[j->n_steps++];
		char *tool = find_tool(p, "py-spy");
		add_words(s, tool, "dump", "-p", pid, RC_GET(m, native) ? "--native" : NULL, NULL);
		if (RC_GET(m, subprocesses))
			add_words(s, "--subprocesses", NULL);
		free(tool);
		start_step(j);
	}
	rc_free_message(m);
}

void rc_profiler_cpu(rc_profiler *p, rc_request *r, rc_view bytes)
{
	TAKE(p, r, m, CpuProfilingRequest, cpu_profiling_request)
	static const char *const formats[] = { "flamegraph", "raw", "speedscope", NULL };
	const char *format = *RC_GET_STR(m, format) ? m->format : "flamegraph";
	char pid[16], seconds[16], text[200];
	unsigned duration = RC_GET(m, duration) ? RC_GET(m, duration) : 5;
	snprintf(pid, sizeof(pid), "%u", RC_GET(m, pid));
	snprintf(seconds, sizeof(seconds), "%u", duration);
	if (!one_of(format, formats) || duration > MAX_SECONDS) {
		snprintf(text, sizeof(text), "Failed to execute: Invalid format %.40s, must be [flamegraph, raw, speedscope], for at most %d seconds", format,
		         MAX_SECONDS);
		reply(p, r, CPU, false, text, NULL);
		rc_free_message(m);
		return;
	}
	job *j = new_job(p, r, CPU, "py-spy", (pid_t)RC_GET(m, pid), duration);
	if (j) {
		step *s = &j->steps[j->n_steps++];
		char *tool = find_tool(p, "py-spy");
		j->result_path = rc_sprintf("%s/%s_%s_cpu_profiling_%u.%s", p->log_dir, format, pid, p->number, strcmp(format, "flamegraph") ? "txt" : "svg");
		add_words(s, tool, "record", "-o", j->result_path, "-p", pid, "-d", seconds, "-f", format, RC_GET(m, native) ? "--native" : NULL, NULL);
		if (RC_GET(m, idle))
			add_words(s, "--idle", NULL);
		if (RC_GET(m, subprocesses))
			add_words(s, "--subprocesses", NULL);
		free(tool);
		start_step(j);
	}
	rc_free_message(m);
}

void rc_profiler_memory(rc_profiler *p, rc_request *r, rc_view bytes)
{
	TAKE(p, r, m, MemoryProfilingRequest, memory_profiling_request)
	static const char *const formats[] = { "flamegraph", "table", NULL };
	const char *format = *RC_GET_STR(m, format) ? m->format : "flamegraph";
	char pid[16], text[200];
	unsigned duration = RC_GET(m, duration) ? RC_GET(m, duration) : 5;
	snprintf(pid, sizeof(pid), "%u", RC_GET(m, pid));
	if (!one_of(format, formats) || duration > MAX_SECONDS) {
		snprintf(text, sizeof(text), "Failed to execute: Report with format: %.40s is not supported, or lasts more than %d seconds", format, MAX_SECONDS);
		reply(p, r, MEMORY, false, text, NULL);
		rc_free_message(m);
		return;
	}
	job *j = new_job(p, r, MEMORY, "memray", (pid_t)RC_GET(m, pid), duration);
	if (j) {
		char *tool = find_tool(p, "memray");
		j->scratch = rc_sprintf("%s/%s_memory_profiling_%u.bin", p->log_dir, pid, p->number);
		j->result_path = rc_sprintf("%s/%s_memory_profiling_%u.html", p->log_dir, pid, p->number);
		step *attach = &j->steps[j->n_steps++], *detach = &j->steps[j->n_steps++], *report = &j->steps[j->n_steps++];
		add_words(attach, tool, "attach", pid, "-o", j->scratch, RC_GET(m, native) ? "--native" : NULL, NULL);
		if (RC_GET(m, trace_python_allocators))
			add_words(attach, "--trace-python-allocators", NULL);
		add_words(detach, tool, "detach", pid, NULL);
		detach->pause_ms = duration * 1000 + 1000; /* a second for the tool itself, as stock has it */
		detach->may_fail = true;
		add_words(report, tool, format, "-o", j->result_path, "-f", RC_GET(m, leaks) ? "--leaks" : j->scratch, NULL);
		if (RC_GET(m, leaks))
			add_words(report, j->scratch, NULL);
		free(tool);
		start_step(j);
	}
	rc_free_message(m);
}

/* ---- life ---- */

rc_profiler *rc_profiler_create(const rc_profiler_options *o)
{
	rc_profiler *p = rc_alloc(sizeof(*p));
	p->o = *o;
	p->log_dir = rc_strdup(o->log_dir);
	size_t n = strcspn(o->python_command, " ");
	p->tools_dir = rc_strndup(o->python_command, n);
	char *slash = strrchr(p->tools_dir, '/');
	*(slash ? slash : p->tools_dir) = '\0';
	rc_list_init(&p->jobs);
	return p;
}

void rc_profiler_destroy(rc_profiler *p)
{
	if (!p)
		return;
	RC_LIST_FOREACH(l, &p->jobs) {
		job *j = RC_CONTAINER(l, job, link);
		if (j->process) {
			rc_process_set_exited(j->process, NULL, NULL);
			rc_process_kill(j->process);
		}
		rc_reply_error(j->request, RC_RPC_UNAVAILABLE, "the node is stopping");
		job_free(j);
	}
	free(p->log_dir);
	free(p->tools_dir);
	free(p);
}
