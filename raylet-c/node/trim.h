/* When memory goes back to the system. Chunks of objects are received into memory of gRPC's that malloc keeps, so that the next
 * chunk finds its pages made; once no more come, what was kept is given back. With it the program's code goes from its memory map,
 * to come again page by page as it is run: most of it is run at the start only, so that is done once in any case. */
#ifndef RC_NODE_TRIM_H
#define RC_NODE_TRIM_H

#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/loop.h"

typedef struct rc_trim {
	uint64_t seen, given_back; /* bytes received until the last look, and when memory was given back */
	unsigned quiet;            /* looks since more came */
} rc_trim;

enum { RC_TRIM_LOOKS = 20 };
#define RC_TRIM_NEVER UINT64_MAX /* given_back at the start: what was needed for it is given back too */

/* Pure but for t: true when memory is to be given back now. bytes: received so far. */
bool rc_trim_due(rc_trim *t, uint64_t bytes);

/* Gives it back, in the loop's pool. */
void rc_trim_start(rc_loop *loop);

#endif
