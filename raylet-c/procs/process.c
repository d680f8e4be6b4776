/* Children: spawn by vfork (a node with a mapped object store has large page tables, and gRPC's fork handlers must not run),
 * reap on SIGCHLD, then sweep what the dead child left behind before its end is told.
 *
 * Traps. A zombie is looked at with WNOWAIT first: while it is not reaped, its pid, and with it its process group, cannot be
 * anybody else's. A child forked for us by the prefork server may die before we are told of it: the last strangers that were
 * reaped are remembered. vfork: the child shares our memory, so all signals are blocked until it has reset the handlers. */
#define _GNU_SOURCE
#include "raylet-c/procs/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/base/list.h"
#include "raylet-c/base/log.h"
#include "raylet-c/base/map.h"
#include "raylet-c/procs/guardian.h"
#include "raylet-c/procs/lineage.h"

enum { SWEEP_FIRST_MS = 1, SWEEP_MOST_MS = 50, SWEEP_LIMIT_MS = 2000, STRANGERS = 64, GUARDIAN_RESTARTS = 5 };

struct rc_process {
	rc_procs *procs;
	rc_link link; /* procs->living or procs->dying */
	pid_t pid;
	uint64_t mark;
	char *name;
	bool own_group, alive, seen_in_sweep;
	int status, stdin_fd;
	uint64_t started, died;
	rc_timer *stop_timer;
	rc_exited_fn fn;
	void *arg;
};

typedef struct stranger {
	pid_t pid;
	int status;
} stranger;

struct rc_procs {
	rc_loop *loop;
	rc_map *by_pid; /* pid_t -> living rc_process */
	rc_link living, dying;
	uint64_t mark; /* the daemon's */
	uint32_t next_child;
	stranger strangers[STRANGERS]; /* reaped without being known, a ring */
	unsigned next_stranger;
	rc_timer *sweep_timer;
	uint64_t sweep_delay;
	int guardian_restarts;
	bool warned_mark, ending;
};

static rc_procs *the_procs; /* rc_signal_start cannot be stopped: its callback looks here */

static rc_view pid_key(const pid_t *pid)
{
	return rc_view_of(pid, sizeof(*pid));
}

const char *rc_exit_text(int status, char *text)
{
	if (WIFEXITED(status))
		snprintf(text, 80, "exit status %d", WEXITSTATUS(status));
	else if (WIFSIGNALED(status))
		snprintf(text, 80, "signal %d (%s)%s", WTERMSIG(status), strsignal(WTERMSIG(status)), WCOREDUMP(status) ? ", core dumped" : "");
	else
		snprintf(text, 80, "wait status 0x%x", status);
	return text;
}

/* ---- ends ---- */

static void free_process(rc_process *p)
{
	rc_timer_stop(p->stop_timer);
	if (p->stdin_fd >= 0)
		close(p->stdin_fd);
	rc_list_remove(&p->link);
	free(p->name);
	free(p);
}

static void finish(rc_process *p)
{
	rc_exited_fn fn = p->fn;
	if (fn)
		fn(p->arg, p, p->status);
	free_process(p);
}

static void look_for_marks(void *arg, pid_t pid)
{
	rc_procs *s = arg;
	uint64_t mark = rc__mark_of(pid);
	if ((mark & RC__MARK_DAEMON_BITS) != s->mark)
		return;
	RC_LIST_FOREACH (l, &s->dying) {
		rc_process *p = RC_CONTAINER(l, rc_process, link);
		if (p->mark == mark && rc__mark_kill(pid, mark, ~0ULL))
			p->seen_in_sweep = true;
	}
}

static void sweep(void *arg)
{
	rc_procs *s = arg;
	if (rc_list_empty(&s->dying))
		return;
	RC_LIST_FOREACH (l, &s->dying)
		RC_CONTAINER(l, rc_process, link)->seen_in_sweep = false;
	rc__each_pid(look_for_marks, s);

	uint64_t now = rc_now_ms();
	rc_link done;
	rc_list_init(&done);
	RC_LIST_FOREACH (l, &s->dying) {
		rc_process *p = RC_CONTAINER(l, rc_process, link);
		if (p->seen_in_sweep && now - p->died < SWEEP_LIMIT_MS)
			continue;
		if (p->seen_in_sweep)
			rc_warn("%s %d has ended, but a process that it started still runs after %d ms of SIGKILL (stuck in a driver?)", p->name, (int)p->pid,
			        SWEEP_LIMIT_MS);
		rc_list_remove(&p->link);
		rc_list_append(&done, &p->link);
	}
	while (!rc_list_empty(&done))
		finish(RC_CONTAINER(done.next, rc_process, link));
	if (rc_list_empty(&s->dying))
		return;
	s->sweep_delay = s->sweep_delay * 2 < SWEEP_MOST_MS ? s->sweep_delay * 2 : SWEEP_MOST_MS;
	rc_timer_again(s->sweep_timer, s->sweep_delay);
}

static void sweep_soon(rc_procs *s)
{
	s->sweep_delay = SWEEP_FIRST_MS;
	rc_timer_again(s->sweep_timer, 0); /* deaths of the same moment share one pass */
}

static void died(rc_process *p, int status)
{
	rc_procs *s = p->procs;
	rc_map_del(s->by_pid, pid_key(&p->pid));
	rc_timer_stop(p->stop_timer);
	p->stop_timer = NULL;
	p->alive = false;
	p->status = status;
	p->died = rc_now_ms();
	rc_list_remove(&p->link);
	rc_list_append(&s->dying, &p->link);
	sweep_soon(s);
}

static void guardian_died(rc_procs *s, int status)
{
	char text[80];
	rc_error error;
	if (++s->guardian_restarts > GUARDIAN_RESTARTS) {
		rc_error_log("the guardian process ended again (%s); going on without: a killed daemon may leave processes behind",
		             rc_exit_text(status, text));
		return;
	}
	if (rc__guardian_restart(&error) != 0)
		rc_error_log("the guardian process ended (%s) and cannot be started again: %s", rc_exit_text(status, text), error.text);
	else
		rc_warn("the guardian process ended (%s), started again", rc_exit_text(status, text));
}

static void reap(rc_procs *s)
{
	for (;;) {
		siginfo_t info = { 0 };
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
			return;
		pid_t pid = info.si_pid;
		rc_process *p = rc_map_get(s->by_pid, pid_key(&pid));
		if (p && p->own_group)
			kill(-pid, SIGKILL); /* what reset its limits is at least found here */
		int status = 0;
		if (waitpid(pid, &status, WNOHANG) != pid)
			return;
		if (p)
			died(p, status);
		else if (rc__guardian_ended(pid))
			guardian_died(s, status);
		else
			s->strangers[s->next_stranger++ % STRANGERS] = (stranger){ pid, status };
	}
}

static void on_sigchld(void *arg, int signum)
{
	(void)arg;
	(void)signum;
	if (the_procs)
		reap(the_procs);
}

/* ---- spawn ---- */

typedef struct plan { /* all that the child needs, made before vfork */
	const rc_spawn *spawn;
	const char *path;
	int in, out, err, oom;
	uint64_t mark;
	pid_t daemon;
	/* errno and name of the step that failed. Volatile: the child writes them in our memory, unseen by the compiler. */
	volatile int failed;
	const char *volatile step;
} plan;

#define STEP(what, call)            \
	do {                            \
		if (!(call)) {              \
			plan_->failed = errno;  \
			plan_->step = (what);   \
			_exit(127);             \
		}                           \
	} while (0)

/* In the child, in the parent's memory: system calls only. */
static _Noreturn void child(plan *plan_)
{
	const rc_spawn *sp = plan_->spawn;
	struct sigaction act;
	memset(&act, 0, sizeof(act));
	act.sa_handler = SIG_DFL;
	for (int i = 1; i < NSIG; i++)
		sigaction(i, &act, NULL); /* fails for SIGKILL, SIGSTOP and libc's own: fine */
	STEP("death signal", prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0);
	if (getppid() != plan_->daemon)
		_exit(127);
	if (sp->own_group)
		STEP("process group", setpgid(0, 0) == 0);
	STEP("stdin", dup2(plan_->in, 0) == 0);
	if (plan_->out >= 0)
		STEP("stdout", dup2(plan_->out, 1) == 1);
	if (plan_->err >= 0)
		STEP("stderr", dup2(plan_->err, 2) == 2);
	if (sp->set_oom_score && plan_->oom >= 0) {
		char text[16];
		unsigned v = (unsigned)(sp->oom_score_adj < 0 ? -sp->oom_score_adj : sp->oom_score_adj);
		char *at = text + sizeof(text);
		do
			*--at = (char)('0' + v % 10);
		while (v /= 10);
		if (sp->oom_score_adj < 0)
			*--at = '-';
		int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
		if (fd >= 0 && write(fd, at, (size_t)(text + sizeof(text) - at)) < 0)
			errno = 0; /* lowering it needs a privilege: then it stays */
	}
	int high[4]; /* above their places first, so that none overwrites another */
	for (int i = 0; i < sp->n_keep_fds && i < 4; i++)
		STEP("descriptor", (high[i] = fcntl(sp->keep_fds[i], F_DUPFD, 20)) >= 0);
	for (int i = 0; i < sp->n_keep_fds && i < 4; i++)
		STEP("descriptor", dup2(high[i], 3 + i) == 3 + i);
	rc__close_from(3 + (sp->n_keep_fds < 4 ? sp->n_keep_fds : 4));
	if (plan_->mark)
		STEP("lineage mark", rc__mark_set_self(plan_->mark) == 0);
	if (sp->nice)
		STEP("niceness", setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + sp->nice) == 0);
	if (sp->cwd)
		STEP("working directory", chdir(sp->cwd) == 0);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(plan_->path, (char *const *)sp->argv, (char *const *)sp->env);
	plan_->failed = errno;
	plan_->step = "exec";
	_exit(127);
}

static const char *env_value(const char *const *env, const char *name)
{
	size_t n = strlen(name);
	for (; env && *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

static char *find_program(const rc_spawn *spawn, rc_error *error)
{
	const char *file = spawn->argv[0];
	if (strchr(file, '/'))
		return rc_strdup(file);
	const char *path = env_value(spawn->env, "PATH");
	if (!path)
		path = "/usr/local/bin:/usr/bin:/bin";
	while (*path) {
		size_t n = strcspn(path, ":");
		char *full = n ? rc_sprintf("%.*s/%s", (int)n, path, file) : rc_strdup(file);
		if (access(full, X_OK) == 0)
			return full;
		free(full);
		path += n + (path[n] == ':');
	}
	rc_fail(error, RC_E_NOT_FOUND, "cannot start %s: no program '%s' in its PATH", spawn->name, file);
	return NULL;
}

static int open_output(const char *path, const rc_spawn *spawn, int *ret_fd, rc_error *error)
{
	if (!path)
		return 0;
	*ret_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	return *ret_fd >= 0 ? 0 : rc_fail_errno(error, "cannot start %s: output file '%s'", spawn->name, path);
}

static rc_process *new_process(rc_procs *s, pid_t pid, uint64_t mark, bool own_group, const char *name, rc_exited_fn fn, void *arg)
{
	rc_process *p = rc_alloc(sizeof(*p));
	*p = (rc_process){ .procs = s, .pid = pid, .mark = mark, .own_group = own_group, .alive = true, .stdin_fd = -1, .fn = fn, .arg = arg };
	p->name = rc_strdup(name);
	p->started = rc_now_ms();
	rc_list_append(&s->living, &p->link);
	rc_map_put(s->by_pid, pid_key(&pid), p);
	return p;
}

static pid_t vfork_child(plan *plan_)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid_t pid = vfork();
	if (pid == 0)
		child(plan_);
	int saved = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = saved;
	return pid;
}

static int fork_with(rc_procs *s, plan *plan_, pid_t *ret_pid, rc_error *error)
{
	const rc_spawn *spawn = plan_->spawn;
	*ret_pid = vfork_child(plan_);
	if (*ret_pid < 0)
		return rc_fail_errno(error, "cannot start %s: fork", spawn->name);
	if (!plan_->step)
		return 0;
	waitpid(*ret_pid, NULL, 0);
	if (strcmp(plan_->step, "lineage mark") == 0 && plan_->mark) { /* a lower hard limit: go on without */
		if (!s->warned_mark)
			rc_warn("processes cannot be marked (a hard limit of RLIMIT_RTTIME is set): descendants of dead workers are only found by "
			        "their process group");
		s->warned_mark = true;
		plan_->mark = 0;
		plan_->step = NULL;
		return fork_with(s, plan_, ret_pid, error);
	}
	errno = plan_->failed;
	return rc_fail_errno(error, "cannot start %s: %s of '%s'", spawn->name, plan_->step, plan_->path);
}

rc_process *rc_process_spawn(rc_procs *s, const rc_spawn *spawn, rc_exited_fn fn, void *arg, rc_error *error)
{
	char *path = find_program(spawn, error);
	if (!path)
		return NULL;
	plan pl = { .spawn = spawn, .path = path, .in = -1, .out = -1, .err = -1, .oom = 0, .mark = rc_process_new_mark(s), .daemon = getpid() };
	int hold = -1;
	pid_t pid = -1;
	int rc = 0;
	if (spawn->stdin_pipe) {
		int ends[2];
		rc = pipe2(ends, O_CLOEXEC) == 0 ? 0 : rc_fail_errno(error, "cannot start %s: pipe", spawn->name);
		if (rc == 0) {
			pl.in = ends[0];
			hold = ends[1];
		}
	} else {
		pl.in = open("/dev/null", O_RDONLY | O_CLOEXEC);
		rc = pl.in >= 0 ? 0 : rc_fail_errno(error, "cannot start %s: /dev/null", spawn->name);
	}
	if (rc == 0)
		rc = open_output(spawn->stdout_path, spawn, &pl.out, error);
	if (rc == 0 && spawn->stderr_path && spawn->stdout_path && strcmp(spawn->stderr_path, spawn->stdout_path) == 0)
		pl.err = dup(pl.out);
	else if (rc == 0)
		rc = open_output(spawn->stderr_path, spawn, &pl.err, error);
	if (rc == 0)
		rc = fork_with(s, &pl, &pid, error);
	free(path);
	for (int *fd = (int[]){ pl.in, pl.out, pl.err, -2 }; *fd != -2; fd++)
		if (*fd >= 0)
			close(*fd);
	if (rc != 0) {
		if (hold >= 0)
			close(hold);
		return NULL;
	}
	rc_process *p = new_process(s, pid, pl.mark, spawn->own_group, spawn->name, fn, arg);
	p->stdin_fd = hold;
	return p;
}

uint64_t rc_process_new_mark(rc_procs *s)
{
	if (++s->next_child == 0)
		s->next_child = 1;
	return s->mark | s->next_child;
}

rc_process *rc_process_adopt(rc_procs *s, pid_t pid, uint64_t mark, bool own_group, const char *name, rc_exited_fn fn, void *arg)
{
	rc_process *p = new_process(s, pid, mark, own_group, name, fn, arg);
	for (unsigned i = 0; i < STRANGERS; i++)
		if (s->strangers[i].pid == pid) {
			s->strangers[i].pid = 0;
			died(p, s->strangers[i].status);
			break;
		}
	return p;
}

/* ---- one process ---- */

pid_t rc_process_pid(const rc_process *p)
{
	return p->pid;
}

uint64_t rc_process_age_ms(const rc_process *p)
{
	return rc_now_ms() - p->started;
}

void rc_process_signal(rc_process *p, int signum)
{
	/* Not reaped yet, so the number is still its own; ESRCH means that its end is on the way to us. */
	if (p->alive && (!p->own_group || kill(-p->pid, signum) != 0))
		kill(p->pid, signum);
}

void rc_process_kill(rc_process *p)
{
	rc_process_signal(p, SIGKILL); /* its descendants follow when it is reaped */
}

static void stop_timed_out(void *arg)
{
	rc_process_kill(arg);
}

void rc_process_stop(rc_process *p, unsigned grace_ms)
{
	if (!p->alive)
		return;
	rc_process_signal(p, SIGTERM);
	rc_timer_stop(p->stop_timer);
	p->stop_timer = rc_timer_start(p->procs->loop, grace_ms, 0, stop_timed_out, p);
}

void rc_process_set_exited(rc_process *p, rc_exited_fn fn, void *arg)
{
	p->fn = fn;
	p->arg = arg;
}

/* ---- all ---- */

rc_procs *rc_procs_create(rc_loop *loop, rc_error *error)
{
	static bool watching;
	if (the_procs) {
		rc_fail(error, RC_E_EXISTS, "a process has one table of children");
		return NULL;
	}
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
		rc_fail_errno(error, "cannot become the reaper of orphans");
		return NULL;
	}
	int fd = rc__pidfd_open(getpid());
	if (fd < 0) {
		rc_fail_errno(error, "this kernel has no pidfd_open (Linux 5.4 or newer is needed)");
		return NULL;
	}
	close(fd);
	rc_procs *s = rc_alloc(sizeof(*s));
	s->loop = loop;
	s->by_pid = rc_map_create();
	rc_list_init(&s->living);
	rc_list_init(&s->dying);
	s->mark = rc__guardian_mark();
	s->sweep_timer = rc_timer_start(loop, 0, 0, sweep, s);
	the_procs = s;
	if (!watching)
		rc_signal_start(loop, SIGCHLD, on_sigchld, NULL);
	watching = true;
	return s;
}

bool rc_procs_ending(const rc_procs *s)
{
	return s->ending;
}

void rc_procs_terminate_all(rc_procs *s)
{
	s->ending = true;
	RC_LIST_FOREACH (l, &s->living)
		rc_process_signal(RC_CONTAINER(l, rc_process, link), SIGTERM);
}

void rc_procs_destroy(rc_procs *s, unsigned wait_ms)
{
	if (!s)
		return;
	const struct timespec pause = { 0, 2 * 1000 * 1000 };
	uint64_t end = rc_now_ms() + wait_ms;
	RC_LIST_FOREACH (l, &s->living)
		rc_process_kill(RC_CONTAINER(l, rc_process, link));
	for (;;) {
		size_t marked = rc__mark_kill_all(s->mark, RC__MARK_DAEMON_BITS);
		reap(s);
		if ((marked == 0 && rc_list_empty(&s->living)) || rc_now_ms() >= end)
			break;
		nanosleep(&pause, NULL);
	}
	RC_LIST_FOREACH (l, &s->living) {
		rc_warn("%s %d does not end", RC_CONTAINER(l, rc_process, link)->name, (int)RC_CONTAINER(l, rc_process, link)->pid);
		free_process(RC_CONTAINER(l, rc_process, link));
	}
	RC_LIST_FOREACH (l, &s->dying)
		free_process(RC_CONTAINER(l, rc_process, link));
	rc__guardian_stop();
	rc_timer_stop(s->sweep_timer);
	rc_map_destroy(s->by_pid);
	free(s);
	the_procs = NULL;
}
