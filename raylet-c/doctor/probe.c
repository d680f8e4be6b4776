#define _GNU_SOURCE /* pipe2, strchrnul */
#include "raylet-c/doctor/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Ends the child with `failed` in case it is not over by then. */
static int reap(pid_t child, bool kill_it)
{
	int status = 0;
	if (kill_it)
		kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static int take(const char *name, int fd, pid_t child, int seconds, rc_buf *out, rc_error *error)
{
	int64_t end = now_ms() + seconds * INT64_C(1000);
	size_t before = out->n;
	for (;;) {
		int64_t left = end - now_ms();
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0) {
			reap(child, true);
			return rc_fail(error, RC_E_TIMEOUT, "%s did not answer within %d s", name, seconds);
		}
		char block[4096];
		ssize_t n = read(fd, block, sizeof(block));
		if (n <= 0)
			break;
		if (out->n - before + (size_t)n > RC__PROBE_LIMIT) {
			reap(child, true);
			return rc_fail(error, RC_E_FULL, "%s told more than %d bytes", name, RC__PROBE_LIMIT);
		}
		rc_buf_add(out, block, (size_t)n);
	}
	int status = reap(child, false);
	if (WIFSIGNALED(status))
		return rc_fail(error, RC_E_UNAVAILABLE, "%s crashed: %s", name, strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status) != 0)
		return rc_fail(error, RC_E_UNAVAILABLE, "%s ended the process with status %d", name, WEXITSTATUS(status));
	return 0;
}

static int from_file(const char *root, const char *name, rc_buf *out, rc_error *error)
{
	char *path = rc_sprintf("%s/probe/%s", root, name);
	FILE *f = fopen(path, "re");
	free(path);
	if (!f)
		return rc_fail(error, RC_E_NOT_FOUND, "%s: not described", name);
	uint8_t *p = rc_buf_grow(out, RC__PROBE_LIMIT);
	size_t n = fread(p, 1, RC__PROBE_LIMIT, f);
	fclose(f);
	out->n -= RC__PROBE_LIMIT - n;
	return 0;
}

int rc__probe(const char *root, const char *name, rc__probe_fn fn, int seconds, rc_buf *out, rc_error *error)
{
	int ends[2];
	if (*root)
		return from_file(root, name, out, error);
	if (pipe2(ends, O_CLOEXEC) != 0)
		return rc_fail_errno(error, "no pipe for %s", name);
	pid_t child = fork();
	if (child == 0) {
		int nowhere = open("/dev/null", O_RDWR);
		for (int fd = 0; fd <= 2; fd++)
			dup2(nowhere, fd);
		signal(SIGPIPE, SIG_DFL);
		fn(ends[1]);
		_exit(0);
	}
	close(ends[1]);
	int rc = child < 0 ? rc_fail_errno(error, "no process for %s", name) : take(name, ends[0], child, seconds, out, error);
	close(ends[0]);
	return rc;
}

bool rc__probe_line(const char **at, char key[32], char value[256])
{
	while (**at) {
		const char *line = *at, *end = strchrnul(line, '\n'), *colon = memchr(line, ':', (size_t)(end - line));
		*at = *end ? end + 1 : end;
		if (!colon || colon - line >= 32)
			continue;
		snprintf(key, 32, "%.*s", (int)(colon - line), line);
		for (colon++; *colon == ' '; colon++)
			;
		snprintf(value, 256, "%.*s", (int)(end - colon), colon);
		return true;
	}
	return false;
}
