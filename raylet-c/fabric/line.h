/* An endpoint and the thread that drives it; this folder only.
 *
 * Jobs go to the thread (run), and come back to the loop (finish) when they are done. Everything that the loop owns is touched
 * by finish only, everything of the endpoint by run only. */
#ifndef RC_FABRIC_LINE_H
#define RC_FABRIC_LINE_H

#include "raylet-c/base/loop.h"
#include "raylet-c/fabric/endpoint.h"

typedef struct rc__line rc__line;
typedef struct rc__job rc__job;

struct rc__job { /* first member of a job's struct */
	rc_link link;
	void (*run)(rc__line *l, rc__job *j);         /* on the thread: ends with rc__line_back, now or later */
	void (*finish)(rc__job *j, const rc_error *e); /* on the loop; frees the job */
	bool failed;
	rc_error error;
};

typedef struct rc__line_options {
	rc_loop *loop;
	const rc_fabric_library *library; /* outlives the line */
	rc_fabric_offer offer;
	const char *ip; /* outlives the line */
	void *arena;
	uint64_t arena_size;
	unsigned stall_ms;
	/* The endpoint could not be opened, or is closed for this reason: later jobs fail. Once, on the loop. */
	void (*broken)(void *arg, rc__line *l, const rc_error *e);
	void *arg;
} rc__line_options;

rc__line *rc__line_create(const rc__line_options *o);
void rc__line_destroy(rc__line *l); /* waits for the thread; all jobs finish inside */
void rc__line_do(rc__line *l, rc__job *j);

/* For jobs, on the thread. */
rc_endpoint *rc__line_endpoint(rc__line *l);
void rc__line_back(rc__line *l, rc__job *j, const rc_error *e); /* e NULL: well */

/* A read as a job: fill it, rc__line_do(l, &r->job). */
typedef struct rc__read {
	rc__job job; /* job.run = rc__read_run */
	uint8_t address[RC_FABRIC_ADDRESS];
	size_t address_n;
	uint8_t *to;
	uint64_t n, offset;
	rc_remote from;
	/* The thread's. */
	rc_link all, turn; /* of the line: all reads; those with pieces to post */
	struct rc__peer *peer;
	rc_region *local; /* made for this read */
	const rc_region *use;
	uint64_t next;
	unsigned under_way;
	rc_error why;
} rc__read;
void rc__read_run(rc__line *l, rc__job *j);

/* Counts what peers were granted: while there is any, a provider without a descriptor is polled. On the thread. */
void rc__line_granted(rc__line *l, int change);

#endif
