/* How far every rank is, for those of one host: each keeps a page of shared memory with the calls that it queued last and how many have
 * ended; the others read it. So a call with other sizes is found when it is queued, and a call that does not end can be laid to the rank
 * that is behind. Ranks of other hosts are not seen.
 *
 * Thread rule: rc__progress_queue by one thread at a time, rc__progress_done and rc__progress_look by another; the rest by the owner
 * alone. */
#ifndef RC_COMM_NCCL_PROGRESS_H
#define RC_COMM_NCCL_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/status.h"
#include "train_backend/comm/call.h"
#include "train_backend/comm/shm/segment.h"

enum { RC__PROGRESS_CALLS = 64 }; /* remembered: a rank that is further ahead is not compared */

typedef struct rc__progress_page {
	atomic_ullong queued, done;  /* calls */
	atomic_bool broken, left;
	rc_error reason;             /* once broken */
	struct {
		atomic_ullong number;    /* 0 while it is written */
		rc__call call;
	} calls[RC__PROGRESS_CALLS]; /* by number */
} rc__progress_page;

typedef struct rc__progress {
	int rank, size;
	rc__segment own;
	struct {
		rc__process process;
		bool near;               /* on this host */
		rc__progress_page *page; /* NULL: not near, or it has ended already */
		int fd;                  /* a pidfd or -1 */
	} *peers; /* [size]; NULL before connect */
} rc__progress;

/* What peers need; brought to them like the rest of the blob. */
typedef struct rc__progress_name {
	rc__process process;
	rc__segment_name segment; /* bytes 0: none */
} rc__progress_name;

/* Where shared memory is not to be had, nothing is watched, and that is no error. */
void rc__progress_create(rc__progress *progress, int rank, int size, rc__progress_name *name);
int rc__progress_connect(rc__progress *progress, const rc__progress_name *names, rc_error *error);
/* All peers have opened it. */
void rc__progress_close_fd(rc__progress *progress);
/* Accepts one that is all zero. */
void rc__progress_destroy(rc__progress *progress);

/* This rank queues a call (its number and tag are set); -1 when a peer's call of that number is another. */
int rc__progress_queue(rc__progress *progress, const rc__call *call, rc_error *error);
void rc__progress_done(rc__progress *progress, uint64_t number);
/* Tells the peers why this rank has given up. */
void rc__progress_break(rc__progress *progress, const rc_error *reason);
/* -1: a peer has given up (with its reason), or `gone`: a peer has died before it ended call `number`. */
int rc__progress_look(const rc__progress *progress, const rc__call *call, bool *gone, rc_error *error);
/* Why a call may not have ended within the timeout. Returns -1. */
int rc__progress_late(const rc__progress *progress, const rc__call *call, double timeout, rc_error *error);

#endif
