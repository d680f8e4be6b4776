/* How the ranks of one host meet: a block of shared memory with one record a rank, each on cache lines of its own.
 *
 * Every rank counts the meetings it has come to (`step`); a meeting is over for a rank when it has seen every other rank's count
 * reach its own. What a rank wrote before it came, the others see after. A call starts with a meeting at which every rank has
 * described the call; the descriptions are compared before any data moves. Descriptions have two places, used in turn: nobody is
 * two calls ahead, so what one still reads is not overwritten.
 *
 * Who finds that something is wrong (a rank too late, dead, in another call) breaks the communicator: the first text stays, and
 * all ranks, waiting or not yet come, fail with it.
 *
 * Thread rule: one thread at a time; rc__control_break and rc__control_check from any. */
#ifndef RC_COMM_SHM_CONTROL_H
#define RC_COMM_SHM_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/status.h"
#include "train_backend/comm/call.h"
#include "train_backend/comm/shm/segment.h"

/* What a rank brings to a meeting at which a call starts. */
typedef struct rc__arrival {
	rc__call call;
	int32_t window;   /* where its data lies: the window, or -1: it comes through the bounce memory */
	uint64_t offset;  /* inside the window */
	rc__segment_name segment; /* RC__WINDOW: the memory that it made */
	rc_code code;     /* RC__WINDOW: RC_OK, or why this rank could not do its part */
	char failed[200];
} rc__arrival;

typedef struct rc__record {
	_Alignas(64) atomic_uint step;  /* 2 x meetings; bit 0: something is wrong or it has left, look */
	atomic_uint sleepers;           /* ranks that may sleep on step */
	atomic_ullong number;           /* of the last call that it came to */
	atomic_bool inside;             /* it has not returned from that */
	atomic_bool left;               /* it has destroyed its communicator */
	_Alignas(64) rc__arrival arrivals[2]; /* by number % 2 */
} rc__record;

typedef struct rc__block {
	_Alignas(64) atomic_uint state; /* whole, being broken, broken */
	rc_error reason;                /* once broken */
	rc__record records[];           /* [size] */
} rc__block;

static inline size_t rc__block_bytes(int size)
{
	return sizeof(rc__block) + (size_t)size * sizeof(rc__record);
}

typedef struct rc__peer {
	rc__process process;
	int fd; /* a pidfd, or -1 */
} rc__peer;

/* One rank's view. */
typedef struct rc__control {
	rc__block *block;
	rc__peer *peers;   /* [size], this rank's own too */
	int rank, size;
	double timeout;    /* seconds, for each meeting */
	unsigned step;     /* as in the own record */
	unsigned spins;    /* looks before sleeping */
	uint64_t number;   /* of the last call */
} rc__control;

/* block: at first all zero. processes: [size], copied. */
int rc__control_open(rc__control *control, rc__block *block, const rc__process *processes, int rank, int size, double timeout,
                     rc_error *error);
/* Tells the others that this rank has left. Accepts one that is all zero or not open. */
void rc__control_close(rc__control *control);

/* Comes to a call and meets; then rc__control_arrival(q) holds what rank q brought. Number and tag of the call are set here. */
int rc__control_enter(rc__control *control, rc_tag tag, rc__arrival *arrival, rc_error *error);
int rc__control_meet(rc__control *control, rc_error *error);
/* The call is over for this rank. Returns result. */
int rc__control_leave(rc__control *control, int result);
const rc__arrival *rc__control_arrival(const rc__control *control, int rank);

/* Breaks it with this text unless it is broken already; fills error with the text that stands. Returns -1. */
int rc__control_break(rc__control *control, rc_code code, const char *text, rc_error *error);
int rc__control_check(const rc__control *control, rc_error *error);

#endif
