/* The schedule of a sharded model: units of parameters, gathered into slots of fixed addresses before they are used, and their
 * gradients reduced into the shard.
 *
 * A slot holds one unit at a time. Units that can never be in use at the same moment share slots in turn; what a slot holds stays
 * valid until another unit is gathered into it or a step with other shards begins, so the last units of a forward pass need no second gather.
 *
 * Ranks on several nodes may be told apart: then a gather goes between nodes first and within them after, a reduction the other way, and
 * messages between nodes may be quantised. All ranks have the same configuration.
 *
 * On a GPU nothing here waits on the host: gathers run on a stream of their own, reductions on another, events order them with the
 * compute stream that each call names. On the CPU (device -1) every call returns when its work is done.
 *
 * Thread rule: one thread at a time. Buffers belong to the caller and must outlive the engine. */
#ifndef RC_FSDP_ENGINE_H
#define RC_FSDP_ENGINE_H

#include <stdbool.h>

#include "raylet-c/base/status.h"
#include "train_backend/comm/comm.h"
#include "train_backend/device/dtype.h"
#include "train_backend/kernels/kernels.h"

typedef struct rc_engine rc_engine;

enum { RC_ENGINE_BLOCK = 128 }; /* elements that share a scale in quantised messages */

/* What is quantised between nodes. Gathered parameters are the same numbers on all ranks; sums of gradients are made in f32. */
typedef struct rc_engine_quant {
	bool gather, reduce;
	rc_quant gather_kind, reduce_kind;
} rc_engine_quant;

typedef struct rc_engine_config {
	int device;         /* CUDA device, or -1 */
	rc_comm *gather;    /* over the ranks that shard; borrowed. Two levels: over those of this node; NULL: every rank is alone in its node */
	rc_comm *reduce;    /* the same ranks; on a GPU a communicator of its own, so that both run at once; borrowed */
	rc_comm *replicate; /* NULL, or over the ranks that hold the same shard (hybrid sharding); borrowed */
	rc_comm *gather_between; /* NULL, or two levels: over the ranks of this one's place in all nodes, see comm/two_level.h; borrowed */
	rc_comm *reduce_between;
	rc_engine_quant quant;   /* two levels only */
	bool secondary;          /* two levels only: every unit gets memory by rc_engine_set_secondary */
	void *staging;      /* GPU: room for the largest [ranks][chunk] of a unit that is gathered through it; else NULL */
	size_t staging_bytes;
	bool host;          /* GPU, one level: shards and their gradients lie in pinned memory of the host (CPU offload) */
} rc_engine_config;

typedef struct rc_unit_spec {
	const char *name;       /* copied; for errors */
	const rc_piece *pieces; /* copied */
	size_t count;
	size_t chunk;           /* elements of one rank's chunk */
	rc_dtype shard_type;    /* of the shard and its gradient */
	rc_dtype gather_type;   /* of the gathered parameters */
	void *shard;            /* [chunk] of shard_type; CPU, one level: in a window of `gather` */
	void *cast;             /* CPU, one level, and the types differ: room for [chunk] of gather_type in a window, units may share it; else NULL */
	void *full;             /* where the gathered unit lies, for ever: inside its slot */
	int slot;               /* of rc_engine_add_slot */
	int first_bucket, bucket_count; /* of rc_engine_add_bucket: its gradients are packed into these in turn */
} rc_unit_spec;

/* How gradients become the shard's: packed = gradient / before; reduced = sum over ranks (mean: divided by their number); the shard's
 * gradient is reduced / after. */
typedef struct rc_reduce_rule {
	rc_dtype type;  /* of the message */
	bool mean;
	float before, after; /* 1: no division */
	bool replicate; /* also over `replicate`, where there is one */
} rc_reduce_rule;

int rc_engine_create(const rc_engine_config *config, rc_engine **engine, rc_error *error) RC_WARN_UNUSED;
void rc_engine_destroy(rc_engine *engine);

/* Returns the index, or -1. */
int rc_engine_add_slot(rc_engine *engine, rc_error *error) RC_WARN_UNUSED;
int rc_engine_add_unit(rc_engine *engine, const rc_unit_spec *spec, rc_error *error) RC_WARN_UNUSED;
/* Two levels: bytes of scratch memory that gathers and reductions of a unit want, and the memory, as much as the most of all units wants. On
 * the CPU the gathers' lies in a window of `gather`. */
size_t rc_engine_gather_room(const rc_engine *engine, size_t chunk, rc_dtype gather_type);
size_t rc_engine_reduce_room(const rc_engine *engine, size_t chunk, rc_dtype reduce_type);
void rc_engine_set_rooms(rc_engine *engine, void *gather, size_t gather_bytes, void *reduce, size_t reduce_bytes);
/* Two levels: the unit's [nodes][chunk] of gather_type, a part of a copy of it within the node: only its first gather of a step goes between
 * nodes. On the CPU in a window of `gather`. */
int rc_engine_set_secondary(rc_engine *engine, int unit, void *memory, rc_error *error) RC_WARN_UNUSED;
/* Quantised reductions: [nodes][chunk of the gradient] f32, zero at first: what rounding has lost, added to the next message. NULL: none.
 * rc_engine_set_gradient takes it away. */
int rc_engine_set_residual(rc_engine *engine, int unit, float *memory, rc_error *error) RC_WARN_UNUSED;
/* Memory for packed gradients. Two or more in turn let the next unit pack while the last is reduced. Returns the index, or -1. */
int rc_engine_add_bucket(rc_engine *engine, rc_error *error) RC_WARN_UNUSED;
/* packed: room for the largest [ranks][chunk] of the message type (CPU: in a window of `reduce`); reduced: for [chunk] of it, wanted only
 * where a message is not of the shard's type or is added. Before the first use, and again when what lay there is reduced. */
int rc_engine_set_bucket(rc_engine *engine, int bucket, void *packed, size_t packed_bytes, void *reduced, size_t reduced_bytes,
                         rc_error *error) RC_WARN_UNUSED;
/* From now on the unit, which is not in use, lies at `full` in another slot: for a unit that turns out to be used together with those that
 * share its slot. Prefetched work is lost. */
int rc_engine_move(rc_engine *engine, int unit, int slot, void *full, rc_error *error) RC_WARN_UNUSED;
/* The pieces that have gradients, and the size of the shard's gradient: [chunk] of shard_type. flat: the pieces lie one after the other in
 * the concatenation of all ranks' chunks (a flat parameter), piece.chunk counts from its start. Called again when what is trained changes. */
int rc_engine_set_gradient(rc_engine *engine, int unit, const rc_piece *pieces, size_t count, size_t chunk, bool flat, rc_error *error)
	RC_WARN_UNUSED;

/* A step begins. Gathers wait for what is queued on the compute stream. same: no shard has changed on any rank since the step before, so what
 * that gathered and is still there need not be gathered again. */
int rc_engine_begin(rc_engine *engine, bool same, rc_stream compute, rc_error *error) RC_WARN_UNUSED;
/* The unit's parameters are there for what follows on the compute stream, until rc_engine_release. Recorded as forward order. */
int rc_engine_unshard(rc_engine *engine, int unit, bool backward, rc_stream compute, rc_error *error) RC_WARN_UNUSED;
/* Starts gathering what will be wanted next, by the order of the last forward pass: its successor, or in backward its predecessor.
 * GPU only; a slot in use is left alone. */
int rc_engine_prefetch(rc_engine *engine, int unit, bool backward, rc_stream compute, rc_error *error) RC_WARN_UNUSED;
int rc_engine_release(rc_engine *engine, int unit, rc_stream compute, rc_error *error) RC_WARN_UNUSED;
/* grads[i]: the whole gradient of gradient piece i, contiguous, of type `type`; NULL counts as zeros. The memory may be used again by
 * what follows on the compute stream. into: the shard's gradient, [chunk] of shard_type; add: onto what it holds. */
int rc_engine_reduce(rc_engine *engine, int unit, const void *const *grads, rc_dtype type, const rc_reduce_rule *rule, void *into, bool add,
                     rc_stream compute, rc_error *error) RC_WARN_UNUSED;
/* What follows on the compute stream sees all gradients. */
int rc_engine_finish(rc_engine *engine, rc_stream compute, rc_error *error) RC_WARN_UNUSED;
/* Forgets events of work that is known to be done: around the capture of a CUDA graph, whose work must not wait for what is outside. */
void rc_engine_forget_events(rc_engine *engine);
/* After an exception in the middle of a step: nothing is in use any more, orders are forgotten. */
void rc_engine_reset(rc_engine *engine);

/* Since the start. Bytes are those that came to this rank by plan: in one level (ranks - 1) / ranks of each message. */
typedef struct rc_engine_stats {
	unsigned long long gathers;
	unsigned long long secondary_gathers; /* of them: within the node alone */
	unsigned long long reductions, gathered_bytes, reduced_bytes;
} rc_engine_stats;
rc_engine_stats rc_engine_get_stats(const rc_engine *engine);

#endif
