/* The way of a unit's messages in two levels: between nodes, where links are slow, every byte goes once and may be quantised; within a
 * node the rest is copied. For this folder.
 *
 * `rows` is what the ranks of one place in all nodes hold together: [nodes][chunk]. It is this rank's part of a copy of the whole unit
 * within its node, so a unit that keeps its rows is gathered again without a byte between nodes.
 *
 * Where every rank is alone in its node there is no level within: rows are the whole unit.
 *
 * Thread rule as in engine.h. After a failed call every communicator is broken, so that ranks of other nodes are told the reason too. */
#ifndef RC_FSDP_LEVELS_H
#define RC_FSDP_LEVELS_H

#include "train_backend/fsdp/engine.h"
#include "train_backend/fsdp/unit.h"

typedef struct rc__levels {
	rc_comm *gather, *reduce;                 /* over the ranks of this node, or NULL */
	rc_comm *gather_between, *reduce_between; /* over the ranks of the same place; NULL: there is one level, and nothing here is used */
	size_t local, nodes, node;
	bool gpu;
	bool secondary;                           /* all units have rows of their own */
	rc_engine_quant quant;
	rc_kernels *kernels;                      /* borrowed */
	char *gather_room, *reduce_room;
	size_t gather_bytes, reduce_bytes;
} rc__levels;

void rc__levels_init(rc__levels *levels, const rc_engine_config *config, rc_kernels *kernels);
/* Fills node_pieces and layout, as the way wants them; the caller frees both. */
int rc__levels_plan_unit(const rc__levels *levels, rc__unit *unit, rc_error *error) RC_WARN_UNUSED;

/* Bytes of scratch memory for a unit. */
size_t rc__levels_gather_room(const rc__levels *levels, size_t chunk, rc_dtype type);
size_t rc__levels_reduce_room(const rc__levels *levels, size_t chunk, rc_dtype type);

/* The whole unit at its place. staging: GPU, [ranks][chunk]. *bytes: what came to this rank for it. */
int rc__levels_gather(const rc__levels *levels, rc__unit *unit, bool backward, void *staging, rc_stream stream, size_t *bytes,
                      rc_error *error) RC_WARN_UNUSED;
/* packed: [ranks][unit's grad_chunk] of type. out: [grad_chunk] of rc__levels_sum_type; NULL: in the scratch memory, from where *out tells. */
int rc__levels_reduce(const rc__levels *levels, const rc__unit *unit, const void *packed, rc_dtype type, rc_redop op, void **out,
                      rc_stream stream, size_t *bytes, rc_error *error) RC_WARN_UNUSED;
/* The type of what rc__levels_reduce gives for messages of a type: f32 where they are quantised. */
rc_dtype rc__levels_sum_type(const rc__levels *levels, rc_dtype type);

#endif
