/* See segment.h. Trap: fallocate on tmpfs is undone whole when a signal comes, so large ranges are made in pieces. */
#define _GNU_SOURCE
#include "raylet-c/store/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"

enum { PIECE = 64 << 20 };
#define HUGETLBFS 0x958458f6

static uint64_t round_up(uint64_t n, uint64_t step)
{
	return (n + step - 1) / step * step;
}

static int open_unlinked(const char *dir, rc_error *e)
{
	char *path = rc_sprintf("%s/plasmaXXXXXX", dir);
	int fd = mkostemp(path, O_CLOEXEC);

	if (fd < 0)
		rc_fail_errno(e, "cannot make a memory file in %s", dir);
	else
		unlink(path);
	free(path);
	return fd;
}

static int page_size_of(int fd, const char *dir, bool huge_pages, uint64_t *ret, rc_error *e)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return rc_fail_errno(e, "cannot ask for the file system of %s", dir);
	if (huge_pages && (uint32_t)fs.f_type != HUGETLBFS)
		return rc_fail(e, RC_E_INVALID, "huge pages are asked for, but the plasma directory %s is not on a hugetlbfs mount", dir);
	*ret = (uint32_t)fs.f_type == HUGETLBFS ? (uint64_t)fs.f_bsize : (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
}

rc_segment *rc_segment_open(const char *dir, uint64_t size, bool huge_pages, int64_t unique_id, rc_error *e)
{
	uint64_t step = 0;
	int fd = open_unlinked(dir, e);
	rc_segment *s;
	void *base;

	if (fd < 0)
		return NULL;
	if (page_size_of(fd, dir, huge_pages, &step, e) < 0)
		goto fail;
	size = round_up(size, step);
	if (ftruncate(fd, (off_t)size) < 0) {
		rc_fail_errno(e, "cannot make a memory file of %llu bytes in %s", (unsigned long long)size, dir);
		goto fail;
	}
	base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		rc_fail_errno(e, "cannot map %llu bytes of a file in %s", (unsigned long long)size, dir);
		goto fail;
	}
	madvise(base, size, MADV_DONTDUMP); /* only keeps core files small */
	s = rc_alloc(sizeof *s);
	*s = (rc_segment){ .fd = fd, .base = base, .size = size, .step = step, .unique_id = unique_id };
	return s;
fail:
	close(fd);
	return NULL;
}

void rc_segment_close(rc_segment *s)
{
	if (!s)
		return;
	munmap(s->base, s->size);
	close(s->fd);
	free(s);
}

static int make_pages(rc_segment *s, uint64_t n, rc_error *e)
{
	while (fallocate(s->fd, 0, (off_t)s->reserved, (off_t)n) < 0) {
		if (errno == EINTR)
			continue;
		if (errno == EOPNOTSUPP) { /* the slow way: a byte in every block */
			int error = posix_fallocate(s->fd, (off_t)s->reserved, (off_t)n);

			if (!error)
				break;
			errno = error;
		}
		return rc_fail_errno(e, "cannot get %llu bytes more for a memory file", (unsigned long long)n);
	}
	s->reserved += n;
	return 0;
}

int rc_segment_reserve(rc_segment *s, uint64_t to, uint64_t keep_free, const bool *stop, rc_error *e)
{
	to = round_up(to, s->step);
	to = to > s->size ? s->size : to;
	while (s->reserved < to) {
		uint64_t piece = to - s->reserved, step = round_up(PIECE, s->step);
		struct statvfs fs;

		piece = piece > step ? step : piece;
		if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED))
			return rc_fail(e, RC_E_CANCELLED, "reserving memory was stopped");
		if (fstatvfs(s->fd, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < piece + keep_free)
			return rc_fail(e, RC_E_FULL, "only %llu bytes are free for a memory file that needs %llu more (%llu are kept free)",
			               (unsigned long long)fs.f_bavail * fs.f_frsize, (unsigned long long)piece, (unsigned long long)keep_free);
		if (make_pages(s, piece, e) < 0)
			return -1;
	}
	return 0;
}

int rc_disk_space(const char *path, uint64_t *ret_free, uint64_t *ret_total, rc_error *e)
{
	struct statvfs fs;

	if (statvfs(path, &fs) < 0)
		return rc_fail_errno(e, "cannot ask for the free space of %s", path);
	*ret_free = (uint64_t)fs.f_bavail * fs.f_frsize;
	*ret_total = (uint64_t)fs.f_blocks * fs.f_frsize;
	return 0;
}
