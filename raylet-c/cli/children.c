/* Starting and ending processes; see children.h. Between fork and exec only calls that are safe in a process with threads. */
#define _GNU_SOURCE
#include "raylet-c/cli/children.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"

extern char **environ;

/* environ with the additions; the array is the caller's, the strings are borrowed. */
static char **merged_env(const char *const *extra)
{
	size_t n = 0, added = 0, k = 0;

	while (environ[n] != NULL)
		n++;
	while (extra != NULL && extra[added] != NULL)
		added++;
	char **all = rc_alloc((n + added + 1) * sizeof *all);
	for (size_t i = 0; i < n; i++) {
		bool replaced = false;

		for (size_t a = 0; a < added; a++) {
			size_t name = strcspn(extra[a], "=") + 1;

			replaced = replaced || strncmp(environ[i], extra[a], name) == 0;
		}
		if (!replaced)
			all[k++] = environ[i];
	}
	for (size_t a = 0; a < added; a++)
		all[k++] = (char *)extra[a];
	return all;
}

static int open_output(const char *path, rc_error *error)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	return fd >= 0 ? fd : rc_fail_errno(error, "cannot write %s", path);
}

static void run_child(const rc_child_spec *spec, char **env, int null, int out, int err, int report, pid_t parent)
{
	sigset_t set;

	for (int s = 1; s < NSIG; s++)
		if (s != SIGKILL && s != SIGSTOP)
			signal(s, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_SETMASK, &set, NULL);
	if (spec->die_with_us && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
		_exit(127);
	if (dup2(null, 0) >= 0 && (out < 0 || dup2(out, 1) >= 0) && (err < 0 || dup2(err, 2) >= 0) && dup2(report, 3) >= 0 &&
	    fcntl(3, F_SETFD, FD_CLOEXEC) == 0) {
		syscall(SYS_close_range, 4U, ~0U, 0U); /* kernels before 5.9 lack it: what is open there is close-on-exec anyway */
		execve(spec->words[0], spec->words, env);
	}
	int why = errno;
	if (write(3, &why, sizeof why) != (ssize_t)sizeof why)
		_exit(126);
	_exit(127);
}

pid_t rc_child_start(const rc_child_spec *spec, rc_error *error)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), out = -1, err = -1, report[2] = { -1, -1 }, why = 0;
	pid_t pid = -1, parent = getpid();
	char **env = merged_env(spec->env);
	ssize_t n;

	if (null < 0)
		rc_fail_errno(error, "cannot open /dev/null");
	else if (pipe2(report, O_CLOEXEC) != 0)
		rc_fail_errno(error, "cannot make a pipe");
	else if ((spec->out == NULL || (out = open_output(spec->out, error)) >= 0) &&
	         (spec->err == NULL || (err = open_output(spec->err, error)) >= 0)) {
		pid = fork();
		if (pid == 0)
			run_child(spec, env, null, out, err, report[1], parent);
		if (pid < 0)
			rc_fail_errno(error, "cannot start %s", spec->words[0]);
		close(report[1]);
		report[1] = -1;
		do
			n = pid > 0 ? read(report[0], &why, sizeof why) : 0;
		while (n < 0 && errno == EINTR);
		if (pid > 0 && n != 0) { /* the end of the pipe without a word means that exec worked */
			errno = n == (ssize_t)sizeof why ? why : EIO;
			rc_fail_errno(error, "cannot execute %s", spec->words[0]);
			while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
				;
			pid = -1;
		}
	}
	const int fds[] = { null, out, err, report[0], report[1] };
	for (size_t i = 0; i < 5; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(env);
	return pid;
}

int rc_child_ended(pid_t pid, int *ret_status)
{
	pid_t got;

	do
		got = waitpid(pid, ret_status, WNOHANG);
	while (got < 0 && errno == EINTR);
	return got == pid;
}

void rc_child_stop(pid_t pid, int grace_ms)
{
	const struct timespec step = { .tv_nsec = 10 * 1000 * 1000 };
	int status;

	kill(pid, SIGTERM);
	for (int waited = 0; waited < grace_ms; waited += 10) {
		if (rc_child_ended(pid, &status))
			return;
		nanosleep(&step, NULL);
	}
	kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
}
