/* Lineage marks by RLIMIT_RTTIME. Raw system calls where libc allocates (readdir) or where Debian's glibc floor has no
 * wrapper (pidfd_open). prlimit() on another process needs the same user or CAP_SYS_RESOURCE: a descendant that changed its
 * user cannot be seen, and could not be killed either. */
#define _GNU_SOURCE
#include "raylet-c/procs/lineage.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define MARK_BIT (1ULL << 62)

uint64_t rc__mark_new_daemon(void)
{
	uint32_t r;
	if (getrandom(&r, sizeof(r), 0) != (ssize_t)sizeof(r)) {
		struct timespec t;
		clock_gettime(CLOCK_REALTIME, &t);
		r = (uint32_t)t.tv_nsec ^ (uint32_t)getpid() << 12;
	}
	return MARK_BIT | (uint64_t)(r & 0x3fffffff) << 32;
}

int rc__mark_set_self(uint64_t mark)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_RTTIME, &limit) != 0)
		return errno;
	limit.rlim_cur = mark;
	return setrlimit(RLIMIT_RTTIME, &limit) == 0 ? 0 : errno;
}

uint64_t rc__mark_of(pid_t pid)
{
	struct rlimit limit;
	if (prlimit(pid, RLIMIT_RTTIME, NULL, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !(limit.rlim_cur & MARK_BIT))
		return 0;
	return limit.rlim_cur;
}

static char *put_number(char *end, unsigned n) /* writes backwards, returns the start */
{
	do
		*--end = (char)('0' + n % 10);
	while (n /= 10);
	return end;
}

bool rc__pid_running(pid_t pid)
{
	char path[40], number[16], text[512];
	char *digits = put_number(number + sizeof(number), (unsigned)pid);
	size_t n = (size_t)(number + sizeof(number) - digits);
	memcpy(path, "/proc/", 6);
	memcpy(path + 6, digits, n);
	memcpy(path + 6 + n, "/stat", 6);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return false;
	text[got] = 0;
	char *p = strrchr(text, ')'); /* the name may hold anything */
	if (!p || p[1] != ' ')
		return false;
	char state = p[2];
	if (state != 'Z' && state != 'X')
		return true;
	/* A dead main thread looks like a zombie while others run: num_threads is the 18th field after the name. */
	p += 2;
	for (int i = 0; i < 17 && p; i++)
		p = strchr(p + 1, ' ');
	return p && atoi(p + 1) > 1;
}

void rc__each_pid(void (*fn)(void *arg, pid_t pid), void *arg)
{
	struct entry { /* linux_dirent64 */
		uint64_t ino;
		int64_t off;
		unsigned short reclen;
		unsigned char type;
		char name[];
	};
	_Alignas(8) char block[8192];
	int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	for (;;) {
		long n = syscall(SYS_getdents64, fd, block, sizeof(block));
		if (n <= 0)
			break;
		for (long at = 0; at < n;) {
			struct entry *e = (struct entry *)(void *)(block + at);
			at += e->reclen;
			pid_t pid = 0;
			for (const char *c = e->name; *c; c++) {
				if (*c < '0' || *c > '9') {
					pid = 0;
					break;
				}
				pid = pid * 10 + (*c - '0');
			}
			if (pid > 0)
				fn(arg, pid);
		}
	}
	close(fd);
}

bool rc__mark_kill(pid_t pid, uint64_t mark, uint64_t bits)
{
	if ((rc__mark_of(pid) & bits) != mark || !mark)
		return false;
	int fd = rc__pidfd_open(pid);
	if (fd < 0)
		return false;
	/* Looked at again through a pid that the descriptor now pins: a reused pid would show here. */
	bool running = (rc__mark_of(pid) & bits) == mark && rc__pid_running(pid);
	if (running)
		running = syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
	close(fd);
	return running;
}

struct kill_all {
	uint64_t mark, bits;
	size_t running;
};

static void kill_one(void *arg, pid_t pid)
{
	struct kill_all *k = arg;
	k->running += rc__mark_kill(pid, k->mark, k->bits);
}

size_t rc__mark_kill_all(uint64_t mark, uint64_t bits)
{
	struct kill_all k = { mark, bits, 0 };
	rc__each_pid(kill_one, &k);
	return k.running;
}

int rc__pidfd_open(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by itself */
}

int rc__close_from(int first)
{
	if (syscall(SYS_close_range, (unsigned)first, ~0U, 0) == 0)
		return 0;
	struct rlimit limit; /* before Linux 5.9 */
	rlim_t end = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 65536 ? limit.rlim_cur : 65536;
	for (int fd = first; (rlim_t)fd < end; fd++)
		close(fd);
	return 0;
}
