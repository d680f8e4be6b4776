/* The daemon's side of the prefork server. python/raylet_c/prefork.py says what the messages are; its text is in
 * gen/prefork_py.h and reaches the interpreter through a memory file, so a daemon that was copied elsewhere needs no file.
 *
 * Whether a worker may be forked is decided by what differs between its environment and the server's. Forbidden are the
 * variables that the server's imports looked at (it names them), and those that C libraries and the interpreter read while
 * they are loaded, which nobody can watch: the prefixes below.
 *
 * A server that ends, or does not answer for ANSWER_MS, is started again, at most RESTARTS times in a row; what it owed is
 * executed instead. A worker forked for a request that we gave up on cannot be: the server was killed then. */
#define _GNU_SOURCE
#include "raylet-c/procs/prefork.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/id.h"
#include "raylet-c/base/list.h"
#include "raylet-c/base/log.h"
#include "raylet-c/procs/command.h"
#include "raylet-c/procs/gen/prefork_py.h"

enum { ANSWER_MS = 10000, RESTARTS = 5, RESTART_MS = 1000, START_MS = 10000, MESSAGE_MAX = 128 * 1024, ENV_PAD = 4096, ARGV_PAD = 1024, LONG_LIFE_MS = 60000 };

#define SETUP_WORKER "setup_worker.py"
#define DEFAULT_WORKER "default_worker.py"
#define PAD_VARIABLE "RAYLET_C_PAD"

static const char *const forbidden[] = {
	"LD_", "PYTHON", "MALLOC_", "GLIBC_", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "NUMEXPR_", "VECLIB_", "BLIS_", "CUDA_", "NVIDIA_", "NCCL_",
	"CUBLAS_", "CUDNN_", "TORCH_", "PYTORCH_", "TF_", "XLA_", "GRPC_", "ABSL_", "GLOG_", "SSL_", "OPENSSL_", "LC_", "LANG", "TZ", "LOCPATH", "NLSPATH",
	"RES_OPTIONS", "NPY_", "NUMPY_", "ARROW_", "JE_", "GOTO_", "ASAN_", "LSAN_", "UBSAN_", "TSAN_", "FI_", "RDMAV_", "IBV_", "SPT_", "JEMALLOC_", "UV_",
};
/* RAY_<name> is a forbidden prefix too (the core reads configuration from it), but for these. */
static const char *const allowed_ray[] = { "RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_TRAIN_", "RAY_TUNE_", "RAY_DATA_", "RAY_AIR_", "RAY_SERVE_",
	                                       "RAY_WARN_BLOCKING_GET_INSIDE_ASYNC", "RAY_CHDIR_TO_TRIAL_DIR", "RAY_OVERRIDE_JOB_RUNTIME_ENV" };

typedef struct pending {
	rc_link link;
	uint64_t id, mark, sent_ms;
	char *name;
	bool own_group;
	rc_exited_fn exited;
	void *exited_arg;
	rc_prefork_fn fn;
	void *arg;
} pending;

struct rc_prefork {
	rc_loop *loop;
	rc_procs *procs;
	rc_words command;  /* interpreter, its flags, the worker's script */
	rc_words env;      /* what the server was started with */
	rc_words read_by_imports;
	char *log_path, *warm;
	size_t room;       /* for a worker's command line */
	rc_process *server;
	int socket;
	rc_watch *watch;
	bool ready, off, light, was_light;
	int restarts;
	uint64_t next_id;
	rc_link pending;
	rc_timer *answer_timer, *restart_timer, *start_timer;
	bool starting;
	rc_task_fn changed;
	void *changed_arg;
};

static void start_server(void *arg);
static void read_answers(void *arg, int events);

static void starting_ended(void *arg)
{
	rc_prefork *f = arg;
	if (!f->starting)
		return;
	f->starting = false;
	if (f->changed)
		f->changed(f->changed_arg);
}

bool rc_prefork_starting(const rc_prefork *f)
{
	return f && f->starting;
}

void rc_prefork_on_change(rc_prefork *f, rc_task_fn fn, void *arg)
{
	f->changed = fn;
	f->changed_arg = arg;
}

/* ---- what may be forked ---- */

static bool starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* word is KEY=value */
static bool is_sensitive(const rc_prefork *f, const char *word)
{
	size_t n = strcspn(word, "=");
	if (starts_with(word, "RAY_JOB_ID=") || starts_with(word, PAD_VARIABLE "="))
		return false; /* imports ask only whether the first is there (ray/data/context.py), and it always is; the second is ours */
	for (size_t i = 0; i < f->read_by_imports.n; i++)
		if (strlen(f->read_by_imports.v[i]) == n && strncmp(f->read_by_imports.v[i], word, n) == 0)
			return true;
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++)
		if (starts_with(word, forbidden[i]))
			return true;
	if (!starts_with(word, "RAY_"))
		return false;
	for (size_t i = 0; i < sizeof(allowed_ray) / sizeof(allowed_ray[0]); i++)
		if (starts_with(word, allowed_ray[i]))
			return false;
	return true;
}

static bool has_word(const char *const *list, const char *word)
{
	for (; *list; list++)
		if (strcmp(*list, word) == 0)
			return true;
	return false;
}

static bool same_for_imports(const rc_prefork *f, const char *const *env)
{
	for (const char *const *e = env; *e; e++)
		if (!has_word((const char *const *)f->env.v, *e) && is_sensitive(f, *e)) {
			rc_debug("a worker is executed, not forked: it has %.*s", (int)strcspn(*e, "="), *e);
			return false;
		}
	for (size_t i = 0; i < f->env.n; i++)
		if (!has_word(env, f->env.v[i]) && is_sensitive(f, f->env.v[i])) {
			rc_debug("a worker is executed, not forked: it lacks %.*s", (int)strcspn(f->env.v[i], "="), f->env.v[i]);
			return false;
		}
	return true;
}

bool rc_prefork_can(const rc_prefork *f, const rc_spawn *sp)
{
	size_t size = 0, i = 0;
	bool has_job = false; /* eight characters: what the server can put in the core's place for it */
	for (const char *const *e = sp->env; *e; e++)
		has_job = has_job || (starts_with(*e, "RAY_JOB_ID=") && strlen(*e) == 11 + 8);
	if (!f || !f->ready || !has_job || sp->stdin_pipe || sp->stdout_path || sp->stderr_path || sp->n_keep_fds)
		return false;
	for (; i < f->command.n; i++)
		if (!sp->argv[i] || strcmp(sp->argv[i], f->command.v[i]) != 0)
			return false;
	for (const char *const *a = sp->argv; *a; a++)
		size += strlen(*a) + 1;
	if (size >= f->room)
		return false;
	for (const char *const *e = sp->env; *e; e++)
		size += strlen(*e) + 1;
	return size < MESSAGE_MAX - 1024 && same_for_imports(f, sp->env);
}

/* ---- requests ---- */

static void finish(pending *q, rc_process *p, const rc_error *error)
{
	rc_list_remove(&q->link);
	q->fn(q->arg, p, error);
	free(q->name);
	free(q);
}

static void fail_all(rc_prefork *f, const char *why)
{
	rc_error error;
	rc_fail(&error, RC_E_UNAVAILABLE, "%s", why);
	while (!rc_list_empty(&f->pending))
		finish(RC_CONTAINER(f->pending.next, pending, link), NULL, &error);
}

static void answer_late(void *arg)
{
	rc_prefork *f = arg;
	if (rc_list_empty(&f->pending))
		return;
	uint64_t waited = rc_now_ms() - RC_CONTAINER(f->pending.next, pending, link)->sent_ms;
	if (waited < ANSWER_MS) {
		rc_timer_again(f->answer_timer, ANSWER_MS - waited);
		return;
	}
	rc_warn("the prefork server did not answer for %d s and is ended", ANSWER_MS / 1000);
	f->ready = false;
	if (f->server)
		rc_process_kill(f->server);
	fail_all(f, "the prefork server did not answer");
}

static void add_field(rc_buf *b, const char *s)
{
	rc_buf_add(b, s, strlen(s) + 1);
}

static void add_number(rc_buf *b, uint64_t v)
{
	rc_buf_printf(b, "%llu", (unsigned long long)v);
	rc_buf_add(b, "", 1);
}

void rc_prefork_spawn(rc_prefork *f, const rc_spawn *sp, rc_exited_fn exited, void *exited_arg, rc_prefork_fn fn, void *arg)
{
	pending *q = rc_alloc(sizeof(*q));
	*q = (pending){ .id = ++f->next_id, .mark = rc_process_new_mark(f->procs), .sent_ms = rc_now_ms(), .own_group = sp->own_group };
	q->name = rc_strdup(sp->name);
	q->exited = exited;
	q->exited_arg = exited_arg;
	q->fn = fn;
	q->arg = arg;

	rc_buf b = { 0 };
	size_t n = 0;
	while (sp->argv[n])
		n++;
	add_number(&b, q->id);
	add_number(&b, q->mark);
	add_field(&b, sp->own_group ? "1" : "0");
	char score[16] = "";
	if (sp->set_oom_score)
		snprintf(score, sizeof(score), "%d", sp->oom_score_adj);
	add_field(&b, score);
	snprintf(score, sizeof(score), "%d", sp->nice);
	add_field(&b, score);
	add_field(&b, sp->cwd ? sp->cwd : "");
	add_number(&b, n);
	for (size_t i = 0; i < n; i++)
		add_field(&b, sp->argv[i]);
	for (const char *const *e = sp->env; *e; e++)
		add_field(&b, *e);

	bool first = rc_list_empty(&f->pending);
	rc_list_append(&f->pending, &q->link);
	if (send(f->socket, b.p, b.n - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		/* told from the loop, as promised: the timer finds it late at once */
		rc_warn("the prefork server cannot be asked: %s", strerror(errno));
		q->sent_ms = 0;
		rc_timer_again(f->answer_timer, 0);
	} else if (first) {
		rc_timer_again(f->answer_timer, ANSWER_MS);
	}
	rc_buf_free(&b);
}

void rc_prefork_disable(rc_prefork *f, const char *why)
{
	if (!f->off)
		rc_warn("prefork is off, workers are executed: %s", why);
	f->off = true;
	f->ready = false;
	if (f->server)
		rc_process_kill(f->server);
	starting_ended(f);
}

static pending *find_pending(rc_prefork *f, uint64_t id)
{
	RC_LIST_FOREACH (l, &f->pending)
		if (RC_CONTAINER(l, pending, link)->id == id)
			return RC_CONTAINER(l, pending, link);
	return NULL;
}

/* ---- answers ---- */

static const char *field(const char **at, const char *end)
{
	const char *start = *at;
	if (start >= end)
		return NULL;
	*at = start + strlen(start) + 1; /* the message is NUL-terminated beyond its end */
	return start;
}

static void server_ready(rc_prefork *f, const char *at, const char *end)
{
	const char *threads = field(&at, end), *name;
	rc_words_free(&f->read_by_imports);
	while ((name = field(&at, end)) != NULL)
		rc_words_add_copy(&f->read_by_imports, name);
	f->ready = threads && atoi(threads) == 1;
	if (f->ready) {
		rc_info("prefork server %d is ready after %llu ms", (int)rc_process_pid(f->server), (unsigned long long)rc_process_age_ms(f->server));
		starting_ended(f);
		return;
	}
	char text[80];
	snprintf(text, sizeof(text), "the imports of a worker left %.8s threads", threads ? threads : "?");
	if (f->light) {
		rc_prefork_disable(f, text);
		return;
	}
	rc_info("prefork server: %s, trying with fewer imports", text);
	f->light = true;
	rc_process_kill(f->server);
}

static void take_answer(rc_prefork *f, const char *text, size_t n)
{
	const char *at = text, *end = text + n, *kind = field(&at, end);
	if (kind && strcmp(kind, "ready") == 0) {
		server_ready(f, at, end);
		return;
	}
	if (kind && strcmp(kind, "unfit") == 0) {
		const char *why = field(&at, end);
		rc_prefork_disable(f, why ? why : "no reason given");
		return;
	}
	const char *id = field(&at, end), *value = field(&at, end);
	pending *q = id && value ? find_pending(f, strtoull(id, NULL, 10)) : NULL;
	if (!q)
		return;
	if (strcmp(kind, "forked") == 0 && atoi(value) > 0) {
		rc_process *p = rc_process_adopt(f->procs, (pid_t)atoi(value), q->mark, q->own_group, q->name, q->exited, q->exited_arg);
		finish(q, p, NULL);
		return;
	}
	rc_error error;
	rc_fail(&error, RC_E_SYSTEM, "prefork server: %s", value);
	finish(q, NULL, &error);
}

static void close_socket(rc_prefork *f)
{
	if (f->watch)
		rc_watch_stop(f->watch);
	f->watch = NULL;
	if (f->socket >= 0)
		close(f->socket);
	f->socket = -1;
	f->ready = false;
}

static void read_answers(void *arg, int events)
{
	(void)events;
	rc_prefork *f = arg;
	char text[65536 + 1];
	while (f->socket >= 0) {
		ssize_t n = recv(f->socket, text, sizeof(text) - 1, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			close_socket(f); /* its end is told by process.c */
			return;
		}
		text[n] = 0;
		take_answer(f, text, (size_t)n);
	}
}

/* ---- the server ---- */

static void server_ended(void *arg, rc_process *p, int status)
{
	rc_prefork *f = arg;
	char text[80];
	if (f->socket >= 0)
		read_answers(f, RC_READABLE); /* what it said before it ended */
	bool long_lived = rc_process_age_ms(p) > LONG_LIFE_MS;
	f->server = NULL;
	close_socket(f);
	fail_all(f, "the prefork server ended");
	if (f->off || rc_procs_ending(f->procs)) {
		starting_ended(f);
		return;
	}
	if (f->light && !f->was_light) { /* ours: started again with fewer imports */
		f->was_light = true;
		rc_timer_again(f->restart_timer, 0);
		return;
	}
	f->restarts = long_lived ? 0 : f->restarts + 1;
	if (f->restarts > RESTARTS) {
		rc_warn("the prefork server ended again (%s): workers are executed from now on", rc_exit_text(status, text));
		starting_ended(f);
		return;
	}
	rc_warn("the prefork server ended (%s) and is started again", rc_exit_text(status, text));
	rc_timer_again(f->restart_timer, (uint64_t)RESTART_MS * (uint64_t)f->restarts);
}

static int source_file(rc_error *error)
{
	int fd = memfd_create("prefork.py", MFD_CLOEXEC);
	size_t n = sizeof(rc_prefork_source) - 1;
	if (fd < 0 || write(fd, rc_prefork_source, n) != (ssize_t)n) {
		rc_fail_errno(error, "no memory file for the prefork server");
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

static int spawn_server(rc_prefork *f, rc_error *error)
{
	int ends[2] = { -1, -1 }, source = source_file(error);
	if (source < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
		close(source);
		return rc_fail_errno(error, "no socket for the prefork server");
	}
	rc_words argv = { 0 };
	for (size_t i = 0; i + 1 < f->command.n; i++)
		rc_words_add_copy(&argv, f->command.v[i]);
	rc_words_add_copy(&argv, "/proc/self/fd/6");
	rc_words_add_copy(&argv, f->light ? "light" : "full");
	rc_words_add_copy(&argv, f->warm);
	rc_words_add_copy(&argv, "--");
	for (size_t i = 0; i < f->command.n; i++)
		rc_words_add_copy(&argv, f->command.v[i]);
	rc_words_add_copy(&argv, "--");
	char *pad = rc_alloc(f->room + 1);
	memset(pad, '.', f->room);
	rc_words_add(&argv, pad);

	rc_words_free(&f->env);
	rc_env_inherit(&f->env);
	char text[16];
	snprintf(text, sizeof(text), "%d", (int)getpid());
	rc_env_set(&f->env, "RAY_RAYLET_PID", text);
	rc_env_set(&f->env, "SPT_NOENV", "1");
	rc_id placeholder = rc_id_random(RC_JOB_ID);
	rc_env_set(&f->env, "RAY_JOB_ID", rc_id_to_hex(&placeholder).s);
	char *env_pad = rc_alloc(ENV_PAD + 1);
	memset(env_pad, '.', ENV_PAD);
	rc_env_set(&f->env, PAD_VARIABLE, env_pad);
	free(env_pad);

	int keep[] = { ends[1], STDOUT_FILENO, STDERR_FILENO, source };
	rc_spawn sp = {
		.name = "prefork server",
		.argv = (const char *const *)argv.v,
		.env = (const char *const *)f->env.v,
		.stdout_path = f->log_path,
		.stderr_path = f->log_path,
		.keep_fds = keep,
		.n_keep_fds = 4,
	};
	f->server = rc_process_spawn(f->procs, &sp, server_ended, f, error);
	rc_words_free(&argv);
	close(ends[1]);
	close(source);
	if (!f->server) {
		close(ends[0]);
		return -1;
	}
	f->socket = ends[0];
	f->starting = true;
	rc_timer_again(f->start_timer, START_MS);
	f->watch = rc_watch_start(f->loop, f->socket, RC_READABLE, read_answers, f);
	return 0;
}

static void start_server(void *arg)
{
	rc_prefork *f = arg;
	rc_error error;
	if (!f->off && !f->server && spawn_server(f, &error) != 0)
		rc_warn("%s: workers are executed", error.text);
}

/* The words up to the worker's script, without setup_worker.py. */
static int take_command(rc_prefork *f, const char *worker_command, rc_error *error)
{
	rc_words words = { 0 };
	rc_words_split(worker_command, &words);
	for (size_t i = 0; i < words.n; i++) {
		f->room += strlen(words.v[i]) + 1;
		bool done = f->command.n && strstr(f->command.v[f->command.n - 1], DEFAULT_WORKER);
		if (!done && !strstr(words.v[i], SETUP_WORKER))
			rc_words_add_copy(&f->command, words.v[i]);
	}
	rc_words_free(&words);
	f->room += ARGV_PAD;
	if (f->command.n < 2 || !strstr(f->command.v[f->command.n - 1], DEFAULT_WORKER))
		return rc_fail(error, RC_E_UNSUPPORTED, "the worker command names no %s", DEFAULT_WORKER);
	return 0;
}

rc_prefork *rc_prefork_create(rc_loop *loop, rc_procs *procs, const rc_prefork_options *o, rc_error *error)
{
	const char *wish = getenv("RAYLET_C_PREFORK");
	if (wish && strcmp(wish, "0") == 0) {
		rc_fail(error, RC_E_UNSUPPORTED, "RAYLET_C_PREFORK=0");
		return NULL;
	}
	rc_prefork *f = rc_alloc(sizeof(*f));
	f->loop = loop;
	f->procs = procs;
	f->socket = -1;
	f->log_path = rc_strdup(o->log_path);
	f->warm = rc_strdup(o->warm ? o->warm : "");
	rc_list_init(&f->pending);
	f->answer_timer = rc_timer_start(loop, ANSWER_MS, 0, answer_late, f);
	f->start_timer = rc_timer_start(loop, START_MS, 0, starting_ended, f);
	f->restart_timer = rc_timer_start(loop, 24 * 3600 * 1000, 0, start_server, f);
	if (take_command(f, o->worker_command, error) != 0 || spawn_server(f, error) != 0) {
		rc_prefork_destroy(f);
		return NULL;
	}
	return f;
}

void rc_prefork_destroy(rc_prefork *f)
{
	if (!f)
		return;
	f->off = true;
	rc_timer_stop(f->answer_timer);
	rc_timer_stop(f->restart_timer);
	rc_timer_stop(f->start_timer);
	f->changed = NULL;
	close_socket(f); /* it ends at the end of file */
	fail_all(f, "the node is shutting down");
	if (f->server)
		rc_process_set_exited(f->server, NULL, NULL);
	rc_words_free(&f->command);
	rc_words_free(&f->env);
	rc_words_free(&f->read_by_imports);
	free(f->log_path);
	free(f->warm);
	free(f);
}

pid_t rc_prefork_pid(const rc_prefork *f)
{
	return f && f->server ? rc_process_pid(f->server) : 0;
}
