/* A unit of the engine, as its schedule (engine.c) and the way of its messages (levels.c) see it. For this folder. */
#ifndef RC_FSDP_UNIT_H
#define RC_FSDP_UNIT_H

#include <stdbool.h>

#include "train_backend/device/dtype.h"
#include "train_backend/kernels/kernels.h"

/* So few pieces are gathered one by one, straight to their places, in one launch. It saves a pass over memory, but costs the host some
 * microseconds a piece: more pieces go through the staging buffer, except in a graph, whose replays cost the host nothing. */
enum { RC__DIRECT_PIECES = 4 };

typedef struct rc__unit {
	char *name;
	rc_piece *pieces;
	rc_piece *node_pieces;  /* two levels on the CPU: [nodes][count], the pieces as each node's ranks have them; else NULL */
	size_t count, chunk;
	rc_dtype shard_type, gather_type;
	void *shard, *cast, *full;
	int slot;
	rc_layout *layout;      /* NULL: no message of this unit comes through staging */
	int first_bucket, bucket_count;
	rc_event ready;
	size_t grad_count, grad_chunk;
	rc_layout *grad_layout;
	void *secondary;        /* see rc_engine_set_secondary, or NULL */
	bool secondary_valid;   /* holds what this step gathers */
	float *residual;        /* see rc_engine_set_residual, or NULL */
} rc__unit;

#endif
