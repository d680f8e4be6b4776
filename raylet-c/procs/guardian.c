/* The guardian (process.h): what is left to do when the daemon was killed outright. A fork without exec, made before the
 * daemon has grown, so it costs a few private pages. It must not look like a node: tools find nodes by the process name
 * "raylet" and by words in the command line, so both are overwritten here.
 *
 * Direct children of the daemon have a death signal and are gone at once; their descendants have not, and are found by
 * their mark. All signals are blocked: group signals, Ctrl-C and `ray stop` are for the daemon, whose end is ours too. */
#define _GNU_SOURCE
#include "raylet-c/procs/guardian.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/procs/lineage.h"
#include "raylet-c/procs/process.h"

static int guardian_pipe = -1; /* the write end, in the daemon */
static pid_t guardian_pid;
static uint64_t daemon_mark;
static char *title_start, *title_end; /* the argv area */

static void set_title(const char *title)
{
	prctl(PR_SET_NAME, title, 0, 0, 0);
	size_t room = (size_t)(title_end - title_start), n = strlen(title);
	if (room < n + 2)
		return;
	memset(title_start, 0, room);
	memcpy(title_start, title, n);
	title_end[-1] = '.'; /* not NUL: then the kernel shows the text up to the first NUL only */
}

/* What libfabric's shm provider leaves of a process that was killed: 16 MiB an endpoint, named pid:uid:number. */
static void remove_shared_memory(pid_t daemon)
{
	char prefix[64], path[300];
	int n = snprintf(prefix, sizeof prefix, "%d:%u:", (int)daemon, (unsigned)geteuid());
	DIR *d = opendir("/dev/shm");
	struct dirent *entry;

	while (d && (entry = readdir(d)) != NULL) {
		if (strncmp(entry->d_name, prefix, (size_t)n) != 0)
			continue;
		snprintf(path, sizeof path, "/dev/shm/%s", entry->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
}

static _Noreturn void guard(int pipe_end, pid_t daemon)
{
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	setsid();
	if (dup2(pipe_end, 0) < 0)
		_exit(1);
	rc__close_from(1);
	if (chdir("/") != 0)
		_exit(1);
	if (title_start)
		set_title("rc-guard");

	char byte;
	ssize_t n;
	while ((n = read(0, &byte, 1)) > 0 || (n < 0 && errno == EINTR))
		;
	const struct timespec pause = { 0, 20 * 1000 * 1000 };
	for (int pass = 0, quiet = 0; pass < 500 && quiet < 3; pass++) {
		quiet = rc__mark_kill_all(daemon_mark, RC__MARK_DAEMON_BITS) ? 0 : quiet + 1;
		nanosleep(&pause, NULL);
	}
	remove_shared_memory(daemon);
	_exit(0);
}

static int start(rc_error *error)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) != 0)
		return rc_fail_errno(error, "guardian: no pipe");
	const pid_t daemon = getpid();
	pid_t pid = fork();
	if (pid < 0) {
		close(ends[0]);
		close(ends[1]);
		return rc_fail_errno(error, "guardian: fork failed");
	}
	if (pid == 0) {
		close(ends[1]);
		guard(ends[0], daemon);
	}
	close(ends[0]);
	guardian_pipe = ends[1];
	guardian_pid = pid;
	return 0;
}

int rc_guardian_start(int argc, char **argv, rc_error *error)
{
	if (argc > 0) {
		title_start = argv[0];
		title_end = argv[0];
		for (int i = 0; i < argc && argv[i] == title_end; i++) /* they lie one behind the other */
			title_end += strlen(argv[i]) + 1;
	}
	rc__guardian_mark();
	return start(error);
}

uint64_t rc__guardian_mark(void)
{
	if (!daemon_mark)
		daemon_mark = rc__mark_new_daemon();
	return daemon_mark;
}

bool rc__guardian_ended(pid_t pid)
{
	if (pid != guardian_pid || !pid)
		return false;
	close(guardian_pipe);
	guardian_pipe = -1;
	guardian_pid = 0;
	return true;
}

int rc__guardian_restart(rc_error *error)
{
	return start(error);
}

void rc__guardian_stop(void)
{
	if (guardian_pipe >= 0)
		close(guardian_pipe);
	guardian_pipe = -1;
	guardian_pid = 0;
}
