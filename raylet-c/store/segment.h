/* Memory that clients map: an unlinked file and its mapping. The arena is one (in the plasma directory), each object that was
 * allocated on disk another (in the fallback directory).
 *
 * Pages of a file are promised by its size but taken only when touched; when the file system is full by then, whoever touches
 * dies by SIGBUS. So nothing of a segment is handed out before rc_segment_reserve has made its pages (fallocate). A fallback
 * segment is reserved when it is made. */
#ifndef RC_STORE_SEGMENT_H
#define RC_STORE_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/status.h"

typedef struct rc_segment {
	int fd;
	uint8_t *base;
	uint64_t size;     /* of the file and the mapping */
	uint64_t reserved; /* bytes from the start that are there */
	uint64_t step;     /* page size, or huge page size: reserve in multiples of it */
	int64_t unique_id; /* names it to clients for ever, while descriptor numbers come back */
	bool fallback;
} rc_segment;

/* Makes dir/plasmaXXXXXX, unlinks it and maps it whole. huge_pages: dir must be a hugetlbfs mount. NULL: nothing is left. */
rc_segment *rc_segment_open(const char *dir, uint64_t size, bool huge_pages, int64_t unique_id, rc_error *e);
void rc_segment_close(rc_segment *s); /* NULL is fine */

/* Makes the pages from `reserved` up to `to` (rounded up to a step, at most size) and moves `reserved`. -1: the file system
 * is full or would have less than keep_free bytes left. Any thread, one at a time for a segment. *stop (may be NULL) set by
 * another thread ends it early with RC_E_CANCELLED; what was made stays. */
int rc_segment_reserve(rc_segment *s, uint64_t to, uint64_t keep_free, const bool *stop, rc_error *e) RC_WARN_UNUSED;

/* The file system of a path: bytes that may be used, and bytes of all. -1 with an errno text. */
int rc_disk_space(const char *path, uint64_t *ret_free, uint64_t *ret_total, rc_error *e) RC_WARN_UNUSED;

#endif
