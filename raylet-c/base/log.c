/* Log lines in the shape of Ray's own raylet log: "[date time,ms LEVEL pid tid] (raylet) file:line: text".
 *
 * All lines go to stdout (raylet.out). Errors go to stderr (raylet.err) as well, unless both are one file: Ray's log monitor
 * tails raylet*.err and shows its lines to every driver, so nothing below an error may go there. Control characters in the
 * text become spaces: one cause is one line, and a peer cannot forge lines. Nor can it fill the disk: one place in the source
 * logs at most LINES_A_MINUTE, and tells later how many were left out. */
#include "raylet-c/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096, LINES_A_MINUTE = 1000, PLACES = 1024 };

typedef struct place { /* of the source; two that share one share the limit, which does no harm */
	_Atomic uint64_t minute, lines;
} place;

static place places[PLACES];

static _Atomic int least_level = RC_INFO;

void rc_log_level(rc_level least)
{
	least_level = (int)least;
}

static int redirect(int fd, const char *path, rc_error *error)
{
	int file;

	if (!path || !*path)
		return 0;
	file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (file < 0)
		return rc_fail_errno(error, "cannot open the log file %s", path);
	if (dup2(file, fd) < 0) {
		rc_fail_errno(error, "cannot send descriptor %d to the log file %s", fd, path);
		close(file);
		return -1;
	}
	if (file != fd)
		close(file);
	return 0;
}

int rc_log_redirect(const char *stdout_path, const char *stderr_path, rc_error *error)
{
	fflush(NULL);
	return redirect(STDOUT_FILENO, stdout_path, error) || redirect(STDERR_FILENO, stderr_path, error) ? -1 : 0;
}

static bool one_file(int a, int b)
{
	struct stat sa, sb;

	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

static void put(int fd, const char *line, size_t n)
{
	while (n) {
		ssize_t done = write(fd, line, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return; /* a full disk or a closed pipe: there is nowhere to say it */
		line += done;
		n -= (size_t)done;
	}
}

/* False: the line is one too many. *left_out: how many were in an earlier minute, told once. */
static bool may_log(const char *file, int line, uint64_t minute, uint64_t *left_out)
{
	place *p = &places[((uintptr_t)file / 8 + (unsigned)line) % PLACES];
	uint64_t before = atomic_exchange(&p->minute, minute);

	*left_out = 0;
	if (before != minute) {
		uint64_t lines = atomic_exchange(&p->lines, 0);

		*left_out = lines > LINES_A_MINUTE ? lines - LINES_A_MINUTE : 0;
	}
	return atomic_fetch_add(&p->lines, 1) < LINES_A_MINUTE;
}

void rc_log_write(rc_level level, const char *file, int line, const char *format, ...)
{
	char text[LINE_MAX_BYTES];
	const char *slash = strrchr(file, '/');
	int saved = errno, n, head;
	struct timespec now;
	struct tm day;
	va_list args;
	uint64_t left_out;

	if ((int)level < least_level)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	if (!may_log(file, line, (uint64_t)now.tv_sec / 60, &left_out))
		return;
	if (left_out)
		rc_log_write(level, __FILE__, __LINE__, "%llu lines of %s:%d were left out: it logs at most %d a minute", (unsigned long long)left_out,
		             slash ? slash + 1 : file, line, LINES_A_MINUTE);
	localtime_r(&now.tv_sec, &day);
	head = snprintf(text, sizeof text, "[%04d-%02d-%02d %02d:%02d:%02d,%03d %c %d %ld] (raylet) %s:%d: ", day.tm_year + 1900,
	                day.tm_mon + 1, day.tm_mday, day.tm_hour, day.tm_min, day.tm_sec, (int)(now.tv_nsec / 1000000), "DIWE"[level],
	                (int)getpid(), syscall(SYS_gettid), slash ? slash + 1 : file, line);
	if (head < 0 || (size_t)head >= sizeof text - 2)
		return;
	va_start(args, format);
	errno = saved; /* for %m */
	n = vsnprintf(text + head, sizeof text - (size_t)head - 1, format, args);
	va_end(args);
	n = n < 0 ? head : head + n;
	if (n > LINE_MAX_BYTES - 2) {
		n = LINE_MAX_BYTES - 2;
		memcpy(text + n - 3, "...", 3);
	}
	for (int i = head; i < n; i++)
		if ((unsigned char)text[i] < ' ' && text[i] != '\t')
			text[i] = ' ';
	text[n++] = '\n';
	put(STDOUT_FILENO, text, (size_t)n);
	if (level == RC_ERROR && !one_file(STDOUT_FILENO, STDERR_FILENO))
		put(STDERR_FILENO, text, (size_t)n);
	errno = saved;
}
