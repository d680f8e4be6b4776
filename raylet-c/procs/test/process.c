/* Children are started as asked, their end is told once with all descendants gone, and nothing survives the daemon. */
#define _GNU_SOURCE
#include "raylet-c/procs/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sys/resource.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/test.h"
#include "raylet-c/procs/lineage.h"

static rc_loop *loop;
static rc_procs *procs;
static char dir[] = "/tmp/rc_process_test.XXXXXX";
static const char *const plain_env[] = { "PATH=/usr/bin:/bin", "COLOUR=red", NULL };

typedef struct end {
	int count, status;
	bool stop;
} end;

static void exited(void *arg, rc_process *p, int status)
{
	(void)p;
	end *e = arg;
	e->count++;
	e->status = status;
	if (e->stop)
		rc_loop_stop(loop);
}

static void stop_loop(void *arg)
{
	(void)arg;
	rc_loop_stop(loop);
}

static void run_for(unsigned ms)
{
	rc_timer *t = rc_timer_start(loop, ms, 0, stop_loop, NULL);
	rc_loop_run(loop);
	rc_timer_stop(t);
}

static rc_process *shell(const char *script, rc_spawn *base, end *e)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	rc_spawn sp = base ? *base : (rc_spawn){ 0 };
	sp.name = "test child";
	sp.argv = argv;
	if (!sp.env)
		sp.env = plain_env;
	rc_error error;
	rc_process *p = rc_process_spawn(procs, &sp, exited, e, &error);
	if (!p)
		printf("# %s\n", error.text);
	CHECK(p != NULL);
	return p;
}

static char *slurp(const char *name)
{
	static char text[4096];
	char *path = rc_sprintf("%s/%s", dir, name);
	int fd = open(path, O_RDONLY);
	free(path);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return text;
}

static pid_t pid_in(const char *name)
{
	for (int i = 0; i < 200; i++) {
		int pid = atoi(slurp(name));
		if (pid > 0 && strchr(slurp(name), '\n'))
			return pid;
		usleep(10000);
	}
	return 0;
}

static void tells_status(void)
{
	end a = { .stop = true }, b = { .stop = true };
	char text[80];
	CHECK(shell("exit 7", NULL, &a) != NULL);
	rc_loop_run(loop);
	CHECK_EQ_INT(1, a.count);
	CHECK_STR("exit status 7", rc_exit_text(a.status, text));
	CHECK(shell("kill -9 $$", NULL, &b) != NULL);
	rc_loop_run(loop);
	CHECK_STR("signal 9 (Killed)", rc_exit_text(b.status, text));
}

static void gets_what_was_asked(void)
{
	char *out = rc_sprintf("%s/out", dir), *err = rc_sprintf("%s/err", dir);
	rc_spawn sp = { .cwd = "/usr", .stdout_path = out, .stderr_path = err, .own_group = true, .nice = 3, .set_oom_score = true, .oom_score_adj = 1000 };
	end e = { .stop = true };
	int leak = open("/dev/null", O_RDONLY); /* not close-on-exec */
	signal(SIGTERM, SIG_IGN);
	shell("pwd; echo $COLOUR $HOME; nice; cat /proc/self/oom_score_adj; ls /proc/self/fd | tr '\\n' ' '; echo; grep SigIgn /proc/self/status | sed s/180000000$/000000000/; "
	      "grep SigBlk /proc/self/status; test $(ps -o pgid= -p $$) = $$ && echo leader; echo cry >&2; cat",
	      &sp, &e);
	signal(SIGTERM, SIG_DFL);
	close(leak);
	rc_loop_run(loop);
	/* Signals 32 and 33 are the C library's own: nobody can set them, and some starters leave them ignored. */
	int nice = getpriority(PRIO_PROCESS, 0) + 3;
	char *want = rc_sprintf("/usr\nred\n%d\n1000\n0 1 2 3 \nSigIgn:\t0000000000000000\nSigBlk:\t0000000000000000\nleader\n", nice > 19 ? 19 : nice);
	CHECK_STR(want, slurp("out"));
	free(want);
	CHECK_STR("cry\n", slurp("err"));
	free(out);
	free(err);
}

static void failed_exec_is_an_error(void)
{
	const char *const missing[] = { "/no/such/program", NULL }, *const unknown[] = { "no-such-program", NULL };
	rc_error error = { 0 };
	rc_spawn sp = { .name = "helper", .argv = missing, .env = plain_env };
	CHECK(rc_process_spawn(procs, &sp, exited, NULL, &error) == NULL);
	CHECK_STR("cannot start helper: exec of '/no/such/program': No such file or directory", error.text);
	sp.argv = unknown;
	CHECK(rc_process_spawn(procs, &sp, exited, NULL, &error) == NULL);
	CHECK_STR("cannot start helper: no program 'no-such-program' in its PATH", error.text);
	const char *const good[] = { "true", NULL };
	sp.argv = good;
	sp.cwd = "/no/such/dir";
	CHECK(rc_process_spawn(procs, &sp, exited, NULL, &error) == NULL);
	CHECK_STR("cannot start helper: working directory of '/usr/bin/true': No such file or directory", error.text);
	sp.cwd = NULL;
	sp.stdout_path = "/no/such/dir/out";
	CHECK(rc_process_spawn(procs, &sp, exited, NULL, &error) == NULL);
	CHECK_STR("cannot start helper: output file '/no/such/dir/out': No such file or directory", error.text);
}

static void descendants_die_first(void)
{
	rc_spawn sp = { .cwd = dir, .own_group = true };
	end e = { .stop = true };
	/* one plain child, one in a session of its own with an empty environment, one orphan of an orphan */
	shell("sleep 100 & echo $! >a; setsid env -i /bin/sh -c 'echo $$ >b; exec /bin/sleep 100' & "
	      "(setsid sh -c '(sleep 100 & echo $! >c) ; exit 0' &) ; while ! [ -s b ] || ! [ -s c ]; do sleep 0.01; done; kill -9 $$",
	      &sp, &e);
	pid_t a, b, c;
	rc_loop_run(loop);
	a = pid_in("a"), b = pid_in("b"), c = pid_in("c");
	CHECK(a && b && c);
	CHECK(!rc__pid_running(a));
	CHECK(!rc__pid_running(b));
	CHECK(!rc__pid_running(c));
	CHECK_EQ_INT(1, e.count);
}

static void others_are_left_alone(void)
{
	rc_spawn sp = { .cwd = dir };
	end stays = { 0 }, goes = { .stop = true };
	rc_process *p = shell("(setsid sleep 100 & echo $! >d); sleep 100", &sp, &stays);
	pid_t d = pid_in("d");
	shell("exit 0", &sp, &goes);
	rc_loop_run(loop);
	CHECK(rc__pid_running(d));
	CHECK_EQ_INT(0, stays.count);
	stays.stop = true;
	rc_process_kill(p);
	rc_loop_run(loop);
	CHECK(!rc__pid_running(d));
}

static int zombies(void)
{
	int n = 0;
	FILE *f = popen("ps -o stat= --ppid $PPID", "r"); /* the test's children */
	char line[64];
	while (f && fgets(line, sizeof(line), f))
		n += line[0] == 'Z';
	if (f)
		pclose(f);
	return n;
}

static void no_zombies_stay(void)
{
	end ends[20] = { 0 };
	for (int i = 0; i < 20; i++)
		shell(i % 2 ? "sh -c 'sleep 0.01 & exit 0'; exit 0" : "(sleep 0.05 &) ; kill -9 $$", NULL, &ends[i]);
	run_for(500);
	for (int i = 0; i < 20; i++)
		CHECK_EQ_INT(1, ends[i].count);
	CHECK_EQ_INT(0, zombies());
}

static void stop_is_gentle_then_not(void)
{
	rc_spawn sp = { .cwd = dir, .own_group = true };
	end polite = { .stop = true }, stubborn = { .stop = true };
	rc_process *p = shell("trap 'exit 15' TERM; echo $$ >e; while :; do sleep 0.01; done", &sp, &polite);
	pid_in("e");
	rc_process_stop(p, 5000);
	rc_loop_run(loop);
	CHECK(WIFEXITED(polite.status) && WEXITSTATUS(polite.status) == 15);
	p = shell("trap '' TERM; echo $$ >f; while :; do sleep 0.01; done", &sp, &stubborn);
	pid_in("f");
	uint64_t start = rc_now_ms();
	rc_process_stop(p, 100);
	rc_loop_run(loop);
	CHECK(WIFSIGNALED(stubborn.status) && WTERMSIG(stubborn.status) == SIGKILL);
	CHECK(rc_now_ms() - start >= 95);
}

static void adopted_child_that_is_dead_already(void)
{
	end e = { .stop = true };
	pid_t pid = fork(); /* as the prefork server would */
	if (pid == 0)
		_exit(9);
	run_for(50); /* reaped as a stranger */
	rc_process_adopt(procs, pid, rc_process_new_mark(procs), false, "forked worker", exited, &e);
	rc_loop_run(loop);
	CHECK(WIFEXITED(e.status) && WEXITSTATUS(e.status) == 9);
}

/* A daemon of its own below another subreaper is killed by SIGKILL: children, grandchildren in other sessions and the
 * guardian itself must go. */
static void daemon_killed(const char *self)
{
	char *command = rc_sprintf("cd %s; %s daemon & echo $! >daemon; wait", dir, self);
	pid_t shell_pid = fork();
	if (shell_pid == 0) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	free(command);
	pid_t daemon_pid = pid_in("daemon"), child = pid_in("g"), far = pid_in("h");
	CHECK(daemon_pid && child && far);
	char guard[64] = "";
	char *look = rc_sprintf("pgrep -P %d -x rc-guard | head -1; tr '\\0' '|' </proc/$(pgrep -P %d -x rc-guard)/cmdline", (int)daemon_pid, (int)daemon_pid);
	FILE *f = popen(look, "r");
	int guardian = 0;
	CHECK(f && fscanf(f, "%d %63s", &guardian, guard) == 2);
	pclose(f);
	free(look);
	CHECK_STR("rc-guard|", guard);
	CHECK(rc__pid_running(child) && rc__pid_running(far) && rc__pid_running(guardian));
	kill(daemon_pid, SIGKILL);
	int i = 0;
	for (; i < 300 && (rc__pid_running(child) || rc__pid_running(far) || rc__pid_running(guardian)); i++)
		usleep(10000);
	printf("# all gone after %d ms\n", i * 10);
	CHECK(!rc__pid_running(child));
	CHECK(!rc__pid_running(far));
	CHECK(!rc__pid_running(guardian));
	waitpid(shell_pid, NULL, 0);
}

static const char *self_path;
static void nothing_survives_a_killed_daemon(void)
{
	daemon_killed(self_path);
}

static void destroy_kills_all(void)
{
	rc_spawn sp = { .cwd = dir };
	end e = { 0 };
	shell("setsid sleep 100 & echo $! >i; exec sleep 100", &sp, &e);
	pid_t i = pid_in("i");
	rc_procs_destroy(procs, 2000);
	CHECK(!rc__pid_running(i));
	CHECK_EQ_INT(0, e.count);
}

static int be_daemon(int argc, char **argv)
{
	rc_error error;
	if (rc_guardian_start(argc, argv, &error) != 0)
		return 1;
	loop = rc_loop_create();
	procs = rc_procs_create(loop, &error);
	rc_spawn sp = { .cwd = "." };
	end e = { 0 };
	shell("echo $$ >g; setsid env -i /bin/sh -c 'echo $$ >h; exec /bin/sleep 100' & sleep 100", &sp, &e);
	rc_loop_run(loop);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "daemon") == 0)
		return be_daemon(argc, argv);
	rc_error error;
	char path[4096];
	self_path = realpath(argv[0], path);
	if (!mkdtemp(dir))
		return 1;
	RUN(nothing_survives_a_killed_daemon, "nothing survives a daemon that was killed, in whatever session, and the guardian goes last");
	loop = rc_loop_create();
	procs = rc_procs_create(loop, &error);
	RUN(tells_status, "the end of a child is told once, with its status");
	RUN(gets_what_was_asked, "a child gets directory, environment, files, group, niceness, OOM score, and no descriptor or signal setting of ours");
	RUN(failed_exec_is_an_error, "a program that cannot be executed is an error that names it");
	RUN(descendants_die_first, "descendants are gone when the end of a child is told, also in other sessions and without environment");
	RUN(others_are_left_alone, "the end of one child does no harm to another's family");
	RUN(no_zombies_stay, "adopted orphans are reaped");
	RUN(stop_is_gentle_then_not, "stop asks first and kills after the grace");
	RUN(adopted_child_that_is_dead_already, "a forked child that died before we heard of it is told dead");
	RUN(destroy_kills_all, "the end of the table kills all families");
	rc_loop_destroy(loop);
	char *clean = rc_sprintf("rm -r %s", dir);
	int rc = system(clean);
	free(clean);
	return rc ? rc : test_end();
}
