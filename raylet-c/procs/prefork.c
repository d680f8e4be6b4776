/* The daemon's side of the prefork servers. python/raylet_c/prefork.py says what the messages are; its text is in
 * gen/prefork_py.h and reaches the interpreter through a memory file, so a daemon that was copied elsewhere needs no file.
 *
 * Whether a worker may be forked is decided by what differs between its environment and the server's. Forbidden are the
 * variables that the server's imports looked at (it names them), and those that C libraries and the interpreter read while
 * they are loaded, which nobody can watch: the prefixes below.
 *
 * A server that ends, or does not answer for ANSWER_MS, is started again, at most RESTARTS times in a row; what it owed is
 * executed instead. A worker forked for a request that we gave up on cannot be: the server was killed then. A server whose
 * imports make threads is started again in light mode, without the modules that might. */
#define _GNU_SOURCE
#include "raylet-c/procs/prefork.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/id.h"
#include "raylet-c/base/list.h"
#include "raylet-c/base/log.h"
#include "raylet-c/base/memory.h"
#include "raylet-c/procs/gen/prefork_py.h"

enum { ANSWER_MS = 10000, RESTARTS = 5, RESTART_MS = 1000, START_MS = 10000, START_TRAIN_MS = 30000, LONG_LIFE_MS = 60000, NEVER_MS = 1 << 30 };
enum { TRAIN_DELAY_MS = 2000, TRAIN_IDLE_MS = 600000, MEMORY_LOOK_MS = 10000 };
enum { MESSAGE_MAX = 128 * 1024, ENV_PAD = 4096, ARGV_PAD = 1024, TRAIN_MEMORY_MB = 3000 };

#define SETUP_WORKER "setup_worker.py"
#define DEFAULT_WORKER "default_worker.py"
#define PAD_VARIABLE "RAYLET_C_PAD"
#define TRAIN_MODULES "torch,pandas,ray.train,ray.train.torch,ray.tune,torch._dynamo,torch.nn.parallel,torch.distributed,raylet_c.train.warm"

static const char *const forbidden[] = {
	"LD_", "PYTHON", "MALLOC_", "GLIBC_", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "NUMEXPR_", "VECLIB_", "BLIS_", "CUDA_", "NVIDIA_", "NCCL_",
	"CUBLAS_", "CUDNN_", "TORCH_", "PYTORCH_", "TF_", "XLA_", "GRPC_", "ABSL_", "GLOG_", "SSL_", "OPENSSL_", "LC_", "LANG", "TZ", "LOCPATH", "NLSPATH",
	"RES_OPTIONS", "NPY_", "NUMPY_", "ARROW_", "PYDANTIC_", "FSSPEC_", "JE_", "GOTO_", "ASAN_", "LSAN_", "UBSAN_", "TSAN_", "FI_", "RDMAV_", "IBV_", "SPT_",
	"JEMALLOC_", "UV_",
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

typedef struct server {
	rc_prefork *owner;
	const char *name, *modules; /* for the log; more to import */
	rc_words env;               /* what it was started with */
	rc_words read_by_imports;   /* names of variables */
	rc_process *process;
	int socket;
	rc_watch *watch;
	bool starting, ready, all_imported, off, light, was_light, unused;
	int restarts;
	rc_link pending; /* oldest first */
	rc_timer *answer_timer, *restart_timer, *start_timer;
} server;

struct rc_prefork {
	rc_loop *loop;
	rc_procs *procs;
	rc_words command; /* interpreter, its flags, the worker's script */
	char *log_path, *warm;
	size_t room;      /* for a worker's command line */
	uint64_t next_id;
	server servers[2]; /* by rc_warmth */
	bool train_soon, train_next; /* start the trainer server when the plain one has imported everything: and keep it; once */
	uint64_t train_used_ms, memory_looked_ms;
	bool memory_short; /* the last time it was looked at */
	rc_timer *train_timer;
	rc_task_fn changed;
	void *changed_arg;
};

static void changed(const server *s)
{
	if (s->owner->changed)
		s->owner->changed(s->owner->changed_arg);
}

static void starting_ended(void *arg)
{
	server *s = arg;
	if (!s->starting)
		return;
	s->starting = false;
	changed(s);
}

bool rc_prefork_starting(const rc_prefork *f, rc_warmth warmth)
{
	return f && f->servers[warmth].starting;
}

bool rc_prefork_importing(const rc_prefork *f)
{
	const server *s = f ? &f->servers[RC_WARM_PLAIN] : NULL;
	return s && (s->starting || (s->ready && !s->all_imported));
}

bool rc_prefork_serves(const rc_prefork *f, rc_warmth warmth)
{
	return f && (f->servers[warmth].starting || f->servers[warmth].ready);
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
static bool is_sensitive(const server *s, const char *word)
{
	size_t n = strcspn(word, "=");
	for (size_t i = 0; i < s->read_by_imports.n; i++)
		if (strlen(s->read_by_imports.v[i]) == n && strncmp(s->read_by_imports.v[i], word, n) == 0)
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

/* The first word of `some` that is not in `others` and that the server's imports depend on. */
static const char *sensitive_difference(const server *s, const char *const *some, const char *const *others)
{
	for (; *some; some++)
		if (!has_word(others, *some) && is_sensitive(s, *some))
			return *some;
	return NULL;
}

static bool same_for_imports(const server *s, const char *const *env)
{
	const char *const *own = (const char *const *)s->env.v, *word = sensitive_difference(s, env, own);
	if (!word)
		word = sensitive_difference(s, own, env);
	if (word)
		rc_debug("the %s cannot fork this worker: its environment differs in %.*s", s->name, (int)strcspn(word, "="), word);
	return !word;
}

bool rc_prefork_allows(const rc_prefork *f, const rc_words *variables)
{
	const server *s = f ? &f->servers[RC_WARM_PLAIN] : NULL;
	for (size_t i = 0; s && i < variables->n; i++)
		if (!has_word((const char *const *)s->env.v, variables->v[i]) && is_sensitive(s, variables->v[i]))
			return false;
	return s != NULL;
}

bool rc_prefork_can(const rc_prefork *f, const rc_spawn *sp, rc_warmth warmth)
{
	size_t size = 0, i = 0;
	bool has_job = false; /* eight characters: what the server can put in the core's place for it */
	if (!f || !f->servers[warmth].ready || sp->stdin_pipe || sp->stdout_path || sp->stderr_path || sp->n_keep_fds)
		return false;
	for (; i < f->command.n; i++)
		if (!sp->argv[i] || strcmp(sp->argv[i], f->command.v[i]) != 0)
			return false;
	for (const char *const *a = sp->argv; *a; a++)
		size += strlen(*a) + 1;
	if (size >= f->room)
		return false;
	for (const char *const *e = sp->env; *e; e++) {
		size += strlen(*e) + 1;
		has_job = has_job || (starts_with(*e, "RAY_JOB_ID=") && strlen(*e) == 11 + 8);
	}
	return has_job && size < MESSAGE_MAX - 1024 && same_for_imports(&f->servers[warmth], sp->env);
}

/* ---- requests ---- */

static void finish(pending *q, rc_process *p, const rc_error *error)
{
	rc_list_remove(&q->link);
	q->fn(q->arg, p, error);
	free(q->name);
	free(q);
}

static void fail_all(server *s, const char *why)
{
	rc_error error;
	rc_fail(&error, RC_E_UNAVAILABLE, "%s", why);
	while (!rc_list_empty(&s->pending))
		finish(RC_CONTAINER(s->pending.next, pending, link), NULL, &error);
}

static void answer_late(void *arg)
{
	server *s = arg;
	if (rc_list_empty(&s->pending))
		return;
	uint64_t waited = rc_now_ms() - RC_CONTAINER(s->pending.next, pending, link)->sent_ms;
	if (waited < ANSWER_MS) {
		rc_timer_again(s->answer_timer, ANSWER_MS - waited);
		return;
	}
	rc_warn("the %s did not answer for %d s and is ended", s->name, ANSWER_MS / 1000);
	s->ready = false;
	if (s->process)
		rc_process_kill(s->process);
	fail_all(s, "the prefork server did not answer");
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

static void write_request(const pending *q, const rc_spawn *sp, rc_buf *b)
{
	char number[16] = "";
	size_t n = 0;
	while (sp->argv[n])
		n++;
	add_number(b, q->id);
	add_number(b, q->mark);
	add_field(b, sp->own_group ? "1" : "0");
	if (sp->set_oom_score)
		snprintf(number, sizeof(number), "%d", sp->oom_score_adj);
	add_field(b, number);
	snprintf(number, sizeof(number), "%d", sp->nice);
	add_field(b, number);
	add_field(b, sp->cwd ? sp->cwd : "");
	add_number(b, n);
	for (size_t i = 0; i < n; i++)
		add_field(b, sp->argv[i]);
	for (const char *const *e = sp->env; *e; e++)
		add_field(b, *e);
}

void rc_prefork_spawn(rc_prefork *f, const rc_spawn *sp, rc_warmth warmth, rc_exited_fn exited, void *exited_arg, rc_prefork_fn fn, void *arg)
{
	server *s = &f->servers[warmth];
	pending *q = rc_alloc(sizeof(*q));
	*q = (pending){ .id = ++f->next_id, .mark = rc_process_new_mark(f->procs), .sent_ms = rc_now_ms(), .own_group = sp->own_group };
	q->name = rc_strdup(sp->name);
	q->exited = exited;
	q->exited_arg = exited_arg;
	q->fn = fn;
	q->arg = arg;
	rc_buf b = { 0 };
	write_request(q, sp, &b);
	bool first = rc_list_empty(&s->pending);
	rc_list_append(&s->pending, &q->link);
	if (send(s->socket, b.p, b.n - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		/* told from the loop, as promised: the timer finds it late at once */
		rc_warn("the %s cannot be asked: %s", s->name, strerror(errno));
		q->sent_ms = 0;
		rc_list_remove(&q->link);
		q->link.next = s->pending.next;
		q->link.prev = &s->pending;
		s->pending.next->prev = &q->link;
		s->pending.next = &q->link;
		rc_timer_again(s->answer_timer, 0);
	} else if (first) {
		rc_timer_again(s->answer_timer, ANSWER_MS);
	}
	rc_buf_free(&b);
}

static pending *find_pending(server *s, uint64_t id)
{
	RC_LIST_FOREACH (l, &s->pending)
		if (RC_CONTAINER(l, pending, link)->id == id)
			return RC_CONTAINER(l, pending, link);
	return NULL;
}

/* ---- answers ---- */

static void turn_off(server *s, const char *why)
{
	if (!s->off && s == &s->owner->servers[RC_WARM_PLAIN])
		rc_warn("the %s is off, workers are executed: %s", s->name, why);
	else if (!s->off)
		rc_info("the %s is off: %s", s->name, why);
	s->off = true;
	s->ready = false;
	if (s->process)
		rc_process_kill(s->process);
	starting_ended(s);
}

void rc_prefork_disable(rc_prefork *f, const char *why)
{
	for (int i = 0; i < 2; i++)
		turn_off(&f->servers[i], why);
}

static const char *field(const char **at, const char *end)
{
	const char *start = *at;
	if (start >= end)
		return NULL;
	*at = start + strlen(start) + 1; /* the message is NUL-terminated beyond its end */
	return start;
}

static void take_unfit(server *s, const char *why)
{
	if (s->light || s == &s->owner->servers[RC_WARM_TRAIN]) {
		turn_off(s, why);
		return;
	}
	rc_info("%s: %s; trying with fewer imports", s->name, why);
	s->light = true;
	s->ready = false;
	rc_process_kill(s->process);
}

/* "ready" and "warm" */
static void take_state(server *s, bool all_imported, const char *at, const char *end)
{
	const char *threads = field(&at, end), *name;
	rc_words_free(&s->read_by_imports);
	while ((name = field(&at, end)) != NULL)
		rc_words_add_copy(&s->read_by_imports, name);
	if (!threads || atoi(threads) != 1) {
		char text[80];
		snprintf(text, sizeof(text), "its imports left %.8s threads", threads ? threads : "?");
		take_unfit(s, text);
		return;
	}
	/* The trainer server is worth nothing before it has imported torch. */
	s->all_imported = all_imported;
	s->ready = all_imported || s == &s->owner->servers[RC_WARM_PLAIN];
	rc_info("%s %d %s after %llu ms", s->name, (int)rc_process_pid(s->process), all_imported ? "has imported everything" : "is ready",
	        (unsigned long long)rc_process_age_ms(s->process));
	if (s->ready)
		starting_ended(s);
	rc_prefork *f = s->owner;
	server *train = &f->servers[RC_WARM_TRAIN];
	if (all_imported && s != train && (f->train_soon || f->train_next) && !train->process)
		rc_timer_again(train->restart_timer, TRAIN_DELAY_MS);
	f->train_next = f->train_next && !all_imported;
	if (all_imported)
		changed(s);
}

static void take_answer(server *s, const char *text, size_t n)
{
	const char *at = text, *end = text + n, *kind = field(&at, end);
	if (!kind)
		return;
	if (strcmp(kind, "ready") == 0 || strcmp(kind, "warm") == 0) {
		take_state(s, *kind == 'w', at, end);
		return;
	}
	if (strcmp(kind, "unfit") == 0) {
		const char *why = field(&at, end);
		take_unfit(s, why ? why : "no reason given");
		return;
	}
	const char *id = field(&at, end), *value = field(&at, end);
	pending *q = id && value ? find_pending(s, strtoull(id, NULL, 10)) : NULL;
	if (!q)
		return;
	if (strcmp(kind, "forked") == 0 && atoi(value) > 0) {
		rc_process *p = rc_process_adopt(s->owner->procs, (pid_t)atoi(value), q->mark, q->own_group, q->name, q->exited, q->exited_arg);
		finish(q, p, NULL);
		return;
	}
	rc_error error;
	rc_fail(&error, RC_E_SYSTEM, "%s: %s", s->name, value);
	finish(q, NULL, &error);
}

static void close_socket(server *s)
{
	if (s->watch)
		rc_watch_stop(s->watch);
	s->watch = NULL;
	if (s->socket >= 0)
		close(s->socket);
	s->socket = -1;
	s->ready = s->all_imported = false;
}

static void read_answers(void *arg, int events)
{
	(void)events;
	server *s = arg;
	char text[65536 + 1];
	while (s->socket >= 0) {
		ssize_t n = recv(s->socket, text, sizeof(text) - 1, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			close_socket(s); /* its end is told by process.c */
			return;
		}
		text[n] = 0;
		take_answer(s, text, (size_t)n);
	}
}

/* ---- the server ---- */

static void server_ended(void *arg, rc_process *p, int status)
{
	server *s = arg;
	char text[80];
	if (s->socket >= 0)
		read_answers(s, RC_READABLE); /* what it said before it ended */
	bool long_lived = rc_process_age_ms(p) > LONG_LIFE_MS;
	s->process = NULL;
	close_socket(s);
	fail_all(s, "the prefork server ended");
	if (s->off || rc_procs_ending(s->owner->procs)) {
		starting_ended(s);
		return;
	}
	if (s->unused) {
		s->unused = false;
		return;
	}
	if (s->light && !s->was_light) { /* ours: started again with fewer imports */
		s->was_light = true;
		rc_timer_again(s->restart_timer, 0);
		return;
	}
	s->restarts = long_lived ? 0 : s->restarts + 1;
	if (s->restarts > RESTARTS) {
		turn_off(s, rc_exit_text(status, text));
		return;
	}
	rc_warn("the %s ended (%s) and is started again", s->name, rc_exit_text(status, text));
	rc_timer_again(s->restart_timer, (uint64_t)RESTART_MS * (uint64_t)s->restarts);
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

static char *padding(size_t n)
{
	char *pad = rc_alloc(n + 1);
	memset(pad, '.', n);
	return pad;
}

static void make_argv(const server *s, rc_words *argv)
{
	const rc_prefork *f = s->owner;
	for (size_t i = 0; i + 1 < f->command.n; i++)
		rc_words_add_copy(argv, f->command.v[i]);
	rc_words_add_copy(argv, "/proc/self/fd/6");
	rc_words_add_copy(argv, s->light ? "light" : "full");
	rc_words_add_copy(argv, s->modules);
	rc_words_add_copy(argv, "--");
	for (size_t i = 0; i < f->command.n; i++)
		rc_words_add_copy(argv, f->command.v[i]);
	rc_words_add_copy(argv, "--");
	rc_words_add(argv, padding(f->room));
}

static void make_env(server *s)
{
	char pid[16];
	rc_id placeholder = rc_id_random(RC_JOB_ID);
	rc_words_free(&s->env);
	rc_env_inherit(&s->env);
	rc_env_unset(&s->env, RC_TRAIN_ENV);
	rc_env_unset(&s->env, RC_PARTS); /* each worker takes them into use for itself */
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	rc_env_set(&s->env, "RAY_RAYLET_PID", pid);
	rc_env_set(&s->env, "SPT_NOENV", "1");
	rc_env_set(&s->env, "RAY_JOB_ID", rc_id_to_hex(&placeholder).s);
	char *pad = padding(ENV_PAD);
	rc_env_set(&s->env, PAD_VARIABLE, pad);
	free(pad);
}

static int spawn_server(server *s, rc_error *error)
{
	rc_prefork *f = s->owner;
	int ends[2] = { -1, -1 }, source = source_file(error);
	if (source < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
		close(source);
		return rc_fail_errno(error, "no socket for the prefork server");
	}
	rc_words argv = { 0 };
	make_argv(s, &argv);
	make_env(s);
	int keep[] = { ends[1], STDOUT_FILENO, STDERR_FILENO, source };
	rc_spawn sp = {
		.name = s->name,
		.argv = (const char *const *)argv.v,
		.env = (const char *const *)s->env.v,
		.stdout_path = f->log_path,
		.stderr_path = f->log_path,
		.keep_fds = keep,
		.n_keep_fds = 4,
	};
	s->process = rc_process_spawn(f->procs, &sp, server_ended, s, error);
	rc_words_free(&argv);
	close(ends[1]);
	close(source);
	if (!s->process) {
		close(ends[0]);
		return -1;
	}
	s->socket = ends[0];
	s->starting = true;
	rc_timer_again(s->start_timer, s == &f->servers[RC_WARM_TRAIN] ? START_TRAIN_MS : START_MS);
	s->watch = rc_watch_start(f->loop, s->socket, RC_READABLE, read_answers, s);
	return 0;
}

/* Leases of trainers come in crowds: not looked at for each of them, and told when it changes. */
static bool has_memory_for_train(rc_prefork *f)
{
	int64_t used, total;
	uint64_t now = rc_now_ms();
	if (f->memory_looked_ms && now - f->memory_looked_ms < MEMORY_LOOK_MS)
		return !f->memory_short;
	f->memory_looked_ms = now;
	bool is_short = !rc_memory_read(&used, &total) || (total - used) >> 20 < TRAIN_MEMORY_MB;
	if (is_short && !f->memory_short)
		rc_info("the %s is not started: less than %d MB of memory are available", f->servers[RC_WARM_TRAIN].name, TRAIN_MEMORY_MB);
	f->memory_short = is_short;
	return !is_short;
}

static void start_server(void *arg)
{
	server *s = arg;
	rc_error error;
	if (s->off || s->process || rc_procs_ending(s->owner->procs))
		return;
	if (s == &s->owner->servers[RC_WARM_TRAIN] && !has_memory_for_train(s->owner))
		return;
	if (spawn_server(s, &error) != 0)
		rc_warn("%s: workers are executed", error.text);
}

void rc_prefork_want_train(rc_prefork *f)
{
	if (!f)
		return;
	f->train_used_ms = rc_now_ms();
	start_server(&f->servers[RC_WARM_TRAIN]);
}

void rc_prefork_expect_train(rc_prefork *f)
{
	if (!f)
		return;
	f->train_used_ms = rc_now_ms();
	f->train_next = !f->servers[RC_WARM_PLAIN].all_imported;
	if (!f->train_next && !f->servers[RC_WARM_TRAIN].process)
		rc_timer_again(f->servers[RC_WARM_TRAIN].restart_timer, TRAIN_DELAY_MS);
}

/* Its memory is worth something only while trainers come. */
static void end_unused_train(void *arg)
{
	rc_prefork *f = arg;
	server *s = &f->servers[RC_WARM_TRAIN];
	if (f->train_soon || !s->process || rc_now_ms() - f->train_used_ms < TRAIN_IDLE_MS)
		return;
	rc_info("the %s was not used for %d s and is ended", s->name, TRAIN_IDLE_MS / 1000);
	s->unused = true;
	close_socket(s);
	rc_process_stop(s->process, 1000);
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

static void init_server(rc_prefork *f, rc_warmth warmth, const char *name, const char *modules)
{
	server *s = &f->servers[warmth];
	s->owner = f;
	s->name = name;
	s->modules = modules;
	s->socket = -1;
	rc_list_init(&s->pending);
	s->answer_timer = rc_timer_start(f->loop, NEVER_MS, 0, answer_late, s);
	s->start_timer = rc_timer_start(f->loop, NEVER_MS, 0, starting_ended, s);
	s->restart_timer = rc_timer_start(f->loop, NEVER_MS, 0, start_server, s);
}

rc_prefork *rc_prefork_create(rc_loop *loop, rc_procs *procs, const rc_prefork_options *o, rc_error *error)
{
	const char *wish = getenv("RAYLET_C_PREFORK"), *train = getenv("RAYLET_C_PREFORK_TRAIN");
	if (wish && strcmp(wish, "0") == 0) {
		rc_fail(error, RC_E_UNSUPPORTED, "RAYLET_C_PREFORK=0");
		return NULL;
	}
	rc_prefork *f = rc_alloc(sizeof(*f));
	f->loop = loop;
	f->procs = procs;
	f->log_path = rc_strdup(o->log_path);
	f->warm = rc_strdup(o->warm ? o->warm : "");
	f->train_soon = o->trainers_expected || (train && strcmp(train, "1") == 0);
	f->train_timer = rc_timer_start(loop, TRAIN_IDLE_MS / 10, TRAIN_IDLE_MS / 10, end_unused_train, f);
	init_server(f, RC_WARM_PLAIN, "prefork server", f->warm);
	init_server(f, RC_WARM_TRAIN, "prefork server for trainers", TRAIN_MODULES);
	f->servers[RC_WARM_TRAIN].off = train && strcmp(train, "0") == 0;
	if (take_command(f, o->worker_command, error) != 0 || spawn_server(&f->servers[RC_WARM_PLAIN], error) != 0) {
		rc_prefork_destroy(f);
		return NULL;
	}
	return f;
}

static void free_server(server *s)
{
	s->off = true;
	rc_timer_stop(s->answer_timer);
	rc_timer_stop(s->restart_timer);
	rc_timer_stop(s->start_timer);
	close_socket(s); /* it ends at the end of file */
	fail_all(s, "the node is shutting down");
	if (s->process)
		rc_process_set_exited(s->process, NULL, NULL);
	rc_words_free(&s->env);
	rc_words_free(&s->read_by_imports);
}

void rc_prefork_destroy(rc_prefork *f)
{
	if (!f)
		return;
	f->changed = NULL;
	rc_timer_stop(f->train_timer);
	free_server(&f->servers[RC_WARM_PLAIN]);
	free_server(&f->servers[RC_WARM_TRAIN]);
	rc_words_free(&f->command);
	free(f->log_path);
	free(f->warm);
	free(f);
}

pid_t rc_prefork_pid(const rc_prefork *f, rc_warmth warmth)
{
	return f && f->servers[warmth].process ? rc_process_pid(f->servers[warmth].process) : 0;
}
