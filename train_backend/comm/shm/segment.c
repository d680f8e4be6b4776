/* See segment.h. */
#define _GNU_SOURCE
#include "train_backend/comm/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
	PAGE = 4096,        /* the header's, before the memory itself */
	PIECE = 64 << 20,   /* fallocate is undone whole when a signal comes, so large memory is made in pieces */
	FD_NONE = -1,
};

/* ---- processes ---- */

/* Reads a small file of /proc or /sys as text; -1 with errno. */
static int read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, text, size - 1);
	close(fd);
	if (n < 0)
		return -1;
	text[n] = 0;
	return 0;
}

/* State and start time of a pid; -1: there is none. */
static int process_stat(int64_t pid, char *state, uint64_t *start)
{
	char path[64], text[1024], *field;

	snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
	if (read_text(path, text, sizeof text) || !(field = strrchr(text, ')'))) /* the name may hold anything, parentheses too */
		return -1;
	return sscanf(field + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64, state, start) == 2
	           ? 0 : -1;
}

int rc__process_self(rc__process *self, rc_error *error)
{
	rc__process p = { .pid = getpid() };
	ssize_t n;
	char state;

	if (read_text("/proc/sys/kernel/random/boot_id", p.boot, sizeof p.boot))
		return rc_fail_errno(error, "cannot read this host's boot id");
	p.boot[strcspn(p.boot, "\n")] = 0;
	n = readlink("/proc/self/ns/pid", p.pids, sizeof p.pids - 1);
	if (n < 0)
		return rc_fail_errno(error, "cannot read this process' pid namespace");
	p.pids[n] = 0;
	if (process_stat(p.pid, &state, &p.start))
		return rc_fail(error, RC_E_UNSUPPORTED, "/proc does not show this process (pid %d)", (int)p.pid);
	*self = p;
	return 0;
}

int rc__process_reachable(const rc__process *self, const rc__process *other, rc_error *error)
{
	if (strncmp(self->boot, other->boot, sizeof self->boot))
		return rc_fail(error, RC_E_UNSUPPORTED, "it runs on another host (boot id %.39s, here %.39s)", other->boot, self->boot);
	if (strncmp(self->pids, other->pids, sizeof self->pids))
		return rc_fail(error, RC_E_UNSUPPORTED, "it runs in another process namespace (%.39s, here %.39s)", other->pids, self->pids);
	return 0;
}

bool rc__process_lives(const rc__process *process, int fd)
{
	struct pollfd ended = { .fd = fd, .events = POLLIN };
	uint64_t start;
	char state;

	if (fd >= 0)
		return poll(&ended, 1, 0) <= 0;
	return process_stat(process->pid, &state, &start) == 0 && start == process->start && state != 'Z' && state != 'X';
}

/* ---- memory ---- */

/* The number after name in a text of lines "name number", or `otherwise`. */
static uint64_t number_of(const char *text, const char *name, uint64_t otherwise)
{
	const char *at = strstr(text, name);
	uint64_t n;

	return at && sscanf(at + strlen(name), " %" SCNu64, &n) == 1 ? n : otherwise;
}

/* Bytes that can be had before somebody is killed for memory, as far as the kernel tells: a memfd has no limit of its own. */
static uint64_t room(void)
{
	char text[8192];
	uint64_t free = UINT64_MAX, limit, used;

	if (read_text("/proc/meminfo", text, sizeof text) == 0)
		free = number_of(text, "MemAvailable:", UINT64_MAX >> 10) << 10;
	if (read_text("/sys/fs/cgroup/memory.max", text, sizeof text) == 0 && sscanf(text, "%" SCNu64, &limit) == 1 &&
	    read_text("/sys/fs/cgroup/memory.current", text, sizeof text) == 0 && sscanf(text, "%" SCNu64, &used) == 1) {
		/* File pages that nobody uses at the moment are counted, but go when room is wanted. */
		uint64_t idle = read_text("/sys/fs/cgroup/memory.stat", text, sizeof text) == 0 ? number_of(text, "\ninactive_file", 0) : 0;

		used = used > idle ? used - idle : 0;
		limit = limit > used ? limit - used : 0;
		free = free < limit ? free : limit;
	}
	return free;
}

static int reserve(int fd, uint64_t bytes, rc_error *error)
{
	uint64_t free = room();

	if (bytes > free)
		return rc_fail(error, RC_E_NO_MEMORY, "shared memory of %" PRIu64 " bytes: only %" PRIu64 " are free", bytes, free);
	if (ftruncate(fd, (off_t)bytes))
		return rc_fail_errno(error, "cannot size shared memory of %" PRIu64 " bytes", bytes);
	for (uint64_t done = 0; done < bytes;) {
		uint64_t piece = bytes - done < PIECE ? bytes - done : PIECE;

		if (fallocate(fd, 0, (off_t)done, (off_t)piece) == 0)
			done += piece;
		else if (errno == ENOSPC || errno == ENOMEM)
			return rc_fail(error, RC_E_NO_MEMORY, "shared memory of %" PRIu64 " bytes: the host has room for %" PRIu64, bytes, done);
		else if (errno != EINTR)
			return rc_fail_errno(error, "cannot reserve shared memory of %" PRIu64 " bytes", bytes);
	}
	return 0;
}

static char *map(int fd, uint64_t bytes, bool populate, rc_error *error)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED) {
		rc_fail_errno(error, "cannot map shared memory of %" PRIu64 " bytes", bytes);
		return NULL;
	}
	/* Only for speed: larger pages where the host allows them, and page tables made now, not in the first operation. */
	madvise(memory, bytes, MADV_HUGEPAGE);
	if (populate)
		madvise(memory, bytes, MADV_POPULATE_WRITE);
	return memory;
}

int rc__segment_create(size_t bytes, rc__segment *segment, rc_error *error)
{
	rc__segment s = { .name = { .bytes = bytes, .fd = FD_NONE } };
	uint64_t all = (uint64_t)bytes + PAGE;
	char *memory;

	if (getrandom(s.name.key, sizeof s.name.key, 0) != sizeof s.name.key)
		return rc_fail_errno(error, "cannot make a key for shared memory");
	s.name.fd = memfd_create("raylet_c", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
	if (s.name.fd < 0 && errno == EINVAL) /* kernels before 6.3 */
		s.name.fd = memfd_create("raylet_c", MFD_CLOEXEC);
	if (s.name.fd < 0)
		return rc_fail_errno(error, "cannot make a memory file");
	if (reserve(s.name.fd, all, error) || !(memory = map(s.name.fd, all, true, error))) {
		close(s.name.fd);
		return -1;
	}
	memcpy(memory, s.name.key, sizeof s.name.key);
	s.base = memory + PAGE;
	*segment = s;
	return 0;
}

void rc__segment_close_fd(rc__segment *segment)
{
	if (segment->base && segment->name.fd >= 0)
		close(segment->name.fd);
	segment->name.fd = FD_NONE;
}

void rc__segment_destroy(rc__segment *segment)
{
	rc__segment_close_fd(segment);
	rc__segment_unmap(segment->base, segment->name.bytes);
	segment->base = NULL;
}

int rc__segment_open(const rc__process *owner, const rc__segment_name *name, char **base, rc_error *error)
{
	uint64_t start, all = name->bytes + PAGE;
	struct stat info;
	char path[64], state, *memory = NULL;
	int fd;

	if (process_stat(owner->pid, &state, &start) || start != owner->start)
		return rc_fail(error, RC_E_UNAVAILABLE, "process %" PRId64 " has ended", owner->pid);
	snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%d", owner->pid, (int)name->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return rc_fail(error, errno == ENOENT ? RC_E_UNAVAILABLE : RC_E_UNSUPPORTED, "cannot open %s: %s", path, strerror(errno));
	if (fstat(fd, &info))
		rc_fail_errno(error, "cannot look at %s", path);
	else if (name->bytes > INT64_MAX - PAGE || (uint64_t)info.st_size != all)
		rc_fail(error, RC_E_INVALID, "%s has %lld bytes, not %" PRIu64, path, (long long)info.st_size, all);
	else
		memory = map(fd, all, true, error);
	close(fd);
	if (!memory)
		return -1;
	if (memcmp(memory, name->key, sizeof name->key)) {
		munmap(memory, all);
		return rc_fail(error, RC_E_INVALID, "%s is not the memory that its owner named", path);
	}
	*base = memory + PAGE;
	return 0;
}

void rc__segment_unmap(char *base, size_t bytes)
{
	if (base)
		munmap(base - PAGE, bytes + PAGE);
}
