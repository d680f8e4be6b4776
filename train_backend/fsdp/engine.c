/* The schedule: see engine.h. Order of work for one unit on a GPU, with three streams:
 *
 *   gather    wait for the slot's last reader, cast the shard, all-gather, place the pieces, record `ready`
 *   compute   wait for `ready`; forward or backward; record the slot's `free`; pack gradients, record the bucket's `packed`
 *   reduce    wait for `packed`, reduce-scatter, add to the shard's gradient, record the bucket's `done`
 *
 * All ranks see the same calls in the same order, so what is prefetched is the same everywhere. */
#include "train_backend/fsdp/engine.h"

#include <stdlib.h>
#include <string.h>

#include "train_backend/device/cuda.h"
#include "train_backend/fsdp/levels.h"
#include "train_backend/fsdp/unit.h"

enum { MAX_ORDER = 65536 }; /* forward calls of units in one step that are remembered */

typedef struct slot {
	int holds;       /* unit, or -1 */
	bool valid;      /* what it holds is of this step */
	bool in_use;
	rc_event free;   /* its last reader */
	bool has_free;
} slot;

typedef struct bucket {
	void *packed, *reduced;
	size_t packed_bytes, reduced_bytes;
	rc_event filled, done;
	bool has_done;
	unsigned next;   /* of a row that begins here: how many were used */
} bucket;

struct rc_engine {
	rc_engine_config config;
	int ranks;
	bool gpu;
	rc_kernels *kernels;
	rc__levels levels;
	bool two_levels;
	rc_stream gather_stream, reduce_stream;
	rc_event started, gathered, reduced;
	bool has_gathered, has_reduced;
	rc__unit *units;
	slot *slots;
	bucket *buckets;
	int unit_count, slot_count, bucket_count;
	int *order[2];   /* units in the order of their forward calls: of this step, of the one before */
	int order_count[2], order_room[2];
	int cursor;      /* in order[0]: where the backward pass is */
	rc_engine_stats stats;
};

static void *grow(void *array, int count, size_t element, rc_error *error)
{
	void *bigger = realloc(array, (size_t)(count + 1) * element);

	if (!bigger) {
		rc_fail(error, RC_E_NO_MEMORY, "no memory for a list of %d entries", count + 1);
		return NULL;
	}
	memset((char *)bigger + (size_t)count * element, 0, element);
	return bigger;
}

int rc_engine_create(const rc_engine_config *config, rc_engine **ret, rc_error *error)
{
	rc_engine *e = calloc(1, sizeof *e);

	if (!e)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for an engine");
	e->config = *config;
	e->gpu = config->device >= 0;
	e->two_levels = config->gather_between != NULL;
	if (!config->reduce != !config->gather || !config->reduce_between != !config->gather_between ||
	    (!e->two_levels && (!config->gather || config->secondary || config->quant.gather || config->quant.reduce))) {
		rc_fail(error, RC_E_INVALID, "an engine has communicators for gathers and reductions; what is quantised or kept in a node has two levels");
		goto fail;
	}
	if (config->host && (!e->gpu || e->two_levels)) {
		rc_fail(error, RC_E_INVALID, "shards on the host are for a GPU and one level");
		goto fail;
	}
	if (config->quant.reduce && config->replicate) {
		rc_fail(error, RC_E_INVALID, "quantised sums are not replicated");
		goto fail;
	}
	e->ranks = (config->gather ? rc_comm_size(config->gather) : 1) * (e->two_levels ? rc_comm_size(config->gather_between) : 1);
	if (e->gpu && (rc_cuda_open(config->device, error) || rc_cuda_enter(config->device, error)))
		goto fail;
	if (rc_kernels_create(config->device, &e->kernels, error))
		goto fail;
	if (e->two_levels)
		rc__levels_init(&e->levels, config, e->kernels);
	if (e->gpu && (rc_cuda_stream_create(-1, &e->gather_stream, error) || rc_cuda_stream_create(-1, &e->reduce_stream, error) ||
	               rc_cuda_event_create(&e->started, error) || rc_cuda_event_create(&e->gathered, error) ||
	               rc_cuda_event_create(&e->reduced, error)))
		goto fail;
	*ret = e;
	return 0;
fail:
	rc_engine_destroy(e);
	return -1;
}

static void destroy_event(rc_event event)
{
	if (event)
		(void)rc_cuda_event_destroy(event, NULL);
}

void rc_engine_destroy(rc_engine *e)
{
	if (!e)
		return;
	if (e->gpu && rc_cuda_enter(e->config.device, NULL) == 0) {
		if (e->gather_stream)
			(void)rc_cuda_stream_destroy(e->gather_stream, NULL);
		if (e->reduce_stream)
			(void)rc_cuda_stream_destroy(e->reduce_stream, NULL);
		destroy_event(e->started);
		destroy_event(e->gathered);
		destroy_event(e->reduced);
		for (int i = 0; i < e->unit_count; i++)
			destroy_event(e->units[i].ready);
		for (int i = 0; i < e->slot_count; i++)
			destroy_event(e->slots[i].free);
		for (int i = 0; i < e->bucket_count; i++) {
			destroy_event(e->buckets[i].filled);
			destroy_event(e->buckets[i].done);
		}
	}
	for (int i = 0; i < e->unit_count; i++) {
		free(e->units[i].name);
		free(e->units[i].pieces);
		free(e->units[i].node_pieces);
		rc_layout_destroy(e->units[i].layout);
		rc_layout_destroy(e->units[i].grad_layout);
	}
	rc_kernels_destroy(e->kernels);
	free(e->units);
	free(e->slots);
	free(e->buckets);
	free(e->order[0]);
	free(e->order[1]);
	free(e);
}

static int enter(const rc_engine *e, rc_error *error)
{
	return e->gpu ? rc_cuda_enter(e->config.device, error) : 0;
}

int rc_engine_add_slot(rc_engine *e, rc_error *error)
{
	slot *slots = grow(e->slots, e->slot_count, sizeof *slots, error);

	if (!slots)
		return -1;
	e->slots = slots;
	slots[e->slot_count].holds = -1;
	if (e->gpu && (enter(e, error) || rc_cuda_event_create(&slots[e->slot_count].free, error)))
		return -1;
	return e->slot_count++;
}

static int check_pieces(const char *name, const rc_piece *pieces, size_t count, size_t chunk, int ranks, rc_error *error)
{
	for (size_t i = 0; i < count; i++)
		if (pieces[i].count > chunk || pieces[i].chunk > chunk - pieces[i].count || pieces[i].total > pieces[i].count * (size_t)ranks)
			return rc_fail(error, RC_E_INVALID,
			               "piece %zu of unit %s: %zu elements at %zu of a chunk of %zu, %zu in all of %d ranks, do not fit", i, name,
			               pieces[i].count, pieces[i].chunk, chunk, pieces[i].total, ranks);
	return 0;
}

int rc_engine_add_unit(rc_engine *e, const rc_unit_spec *spec, rc_error *error)
{
	rc__unit *units, *u;

	if (spec->slot < 0 || spec->slot >= e->slot_count)
		return rc_fail(error, RC_E_INVALID, "unit %s wants slot %d of %d", spec->name, spec->slot, e->slot_count);
	if (spec->first_bucket < 0 || spec->bucket_count < 1 || spec->bucket_count > e->bucket_count - spec->first_bucket)
		return rc_fail(error, RC_E_INVALID, "unit %s wants %d buckets from %d on, there are %d", spec->name,
		               spec->bucket_count, spec->first_bucket, e->bucket_count);
	if (!e->gpu && !e->two_levels && !spec->cast && spec->shard_type != spec->gather_type)
		return rc_fail(error, RC_E_INVALID, "unit %s: its types differ, and there is no room for the cast shard", spec->name);
	if (check_pieces(spec->name, spec->pieces, spec->count, spec->chunk, e->ranks, error))
		return -1;
	units = grow(e->units, e->unit_count, sizeof *units, error);
	if (!units)
		return -1;
	e->units = units;
	u = &units[e->unit_count];
	u->name = strdup(spec->name);
	u->pieces = malloc(spec->count * sizeof *u->pieces + 1);
	if (!u->name || !u->pieces) {
		rc_fail(error, RC_E_NO_MEMORY, "no memory for unit %s", spec->name);
		goto fail;
	}
	memcpy(u->pieces, spec->pieces, spec->count * sizeof *u->pieces);
	u->count = spec->count;
	u->chunk = spec->chunk;
	u->shard_type = spec->shard_type;
	u->gather_type = spec->gather_type;
	u->shard = spec->shard;
	u->cast = spec->cast;
	u->full = spec->full;
	u->slot = spec->slot;
	u->first_bucket = spec->first_bucket;
	u->bucket_count = spec->bucket_count;
	if (e->gpu) {
		size_t bytes = (size_t)e->ranks * spec->chunk * rc_dtype_size(spec->gather_type);

		if (enter(e, error) || rc_cuda_event_create(&u->ready, error))
			goto fail;
		if (spec->count > RC__DIRECT_PIECES && e->config.gather) {
			if (bytes > e->config.staging_bytes) {
				rc_fail(error, RC_E_INVALID, "unit %s needs %zu bytes of staging, there are %zu", spec->name, bytes,
				        e->config.staging_bytes);
				goto fail;
			}
			if (!e->two_levels && rc_layout_create(e->kernels, spec->pieces, spec->count, e->ranks, spec->chunk, &u->layout, error))
				goto fail;
		}
	}
	if (e->two_levels && rc__levels_plan_unit(&e->levels, u, error))
		goto fail;
	return e->unit_count++;
fail:
	destroy_event(u->ready);
	free(u->name);
	free(u->pieces);
	free(u->node_pieces);
	memset(u, 0, sizeof *u);
	return -1;
}

int rc_engine_add_bucket(rc_engine *e, rc_error *error)
{
	bucket *buckets = grow(e->buckets, e->bucket_count, sizeof *buckets, error), *b;

	if (!buckets)
		return -1;
	e->buckets = buckets;
	b = &buckets[e->bucket_count];
	if (e->gpu && (enter(e, error) || rc_cuda_event_create(&b->filled, error) || rc_cuda_event_create(&b->done, error)))
		return -1;
	return e->bucket_count++;
}

int rc_engine_set_bucket(rc_engine *e, int index, void *packed, size_t packed_bytes, void *reduced, size_t reduced_bytes, rc_error *error)
{
	bucket *b;

	if (index < 0 || index >= e->bucket_count)
		return rc_fail(error, RC_E_INVALID, "there is no bucket %d, only %d", index, e->bucket_count);
	b = &e->buckets[index];
	b->packed = packed;
	b->packed_bytes = packed_bytes;
	b->reduced = reduced;
	b->reduced_bytes = reduced_bytes;
	return 0;
}

static rc__unit *unit_at(rc_engine *e, int index, rc_error *error)
{
	if (index >= 0 && index < e->unit_count)
		return &e->units[index];
	rc_fail(error, RC_E_INVALID, "there is no unit %d, only %d", index, e->unit_count);
	return NULL;
}

int rc_engine_move(rc_engine *e, int index, int to, void *full, rc_error *error)
{
	rc__unit *u = unit_at(e, index, error);
	slot *s;

	if (!u)
		return -1;
	if (to < 0 || to >= e->slot_count)
		return rc_fail(error, RC_E_INVALID, "unit %s shall move to slot %d of %d", u->name, to, e->slot_count);
	s = &e->slots[u->slot];
	if (s->holds == index && s->in_use)
		return rc_fail(error, RC_E_INVALID, "unit %s cannot move while it is in use", u->name);
	if (s->holds == index) {
		s->holds = -1;
		s->valid = false;
	}
	u->slot = to;
	u->full = full;
	return 0;
}

int rc_engine_set_gradient(rc_engine *e, int index, const rc_piece *pieces, size_t count, size_t chunk, bool flat, rc_error *error)
{
	rc__unit *u = unit_at(e, index, error);
	int ranks = flat ? 1 : e->ranks;
	size_t room = flat ? chunk * (size_t)e->ranks : chunk;
	rc_layout *layout = NULL;

	if (!u || check_pieces(u->name, pieces, count, room, ranks, error) || enter(e, error))
		return -1;
	if (count > 0 && rc_layout_create(e->kernels, pieces, count, ranks, room, &layout, error))
		return -1;
	rc_layout_destroy(u->grad_layout);
	u->grad_layout = layout;
	u->grad_count = count;
	u->grad_chunk = chunk;
	u->residual = NULL;
	return 0;
}

size_t rc_engine_gather_room(const rc_engine *e, size_t chunk, rc_dtype type)
{
	return e->two_levels ? rc__levels_gather_room(&e->levels, chunk, type) : 0;
}

size_t rc_engine_reduce_room(const rc_engine *e, size_t chunk, rc_dtype type)
{
	return e->two_levels ? rc__levels_reduce_room(&e->levels, chunk, type) : 0;
}

void rc_engine_set_rooms(rc_engine *e, void *gather, size_t gather_bytes, void *reduce, size_t reduce_bytes)
{
	e->levels.gather_room = gather;
	e->levels.gather_bytes = gather_bytes;
	e->levels.reduce_room = reduce;
	e->levels.reduce_bytes = reduce_bytes;
}

int rc_engine_set_secondary(rc_engine *e, int index, void *memory, rc_error *error)
{
	rc__unit *u = unit_at(e, index, error);

	if (!u)
		return -1;
	if (!e->config.secondary)
		return rc_fail(error, RC_E_INVALID, "unit %s: the engine keeps no copies within nodes", u->name);
	u->secondary = memory;
	u->secondary_valid = false;
	return 0;
}

int rc_engine_set_residual(rc_engine *e, int index, float *memory, rc_error *error)
{
	rc__unit *u = unit_at(e, index, error);

	if (!u)
		return -1;
	u->residual = memory;
	return 0;
}

/* The copies within nodes are of an earlier step. */
static void forget_secondary(rc_engine *e)
{
	for (int i = 0; i < e->unit_count; i++)
		e->units[i].secondary_valid = false;
}

static int check_comms(const rc_engine *e, rc_error *error)
{
	rc_comm *const comms[] = { e->config.gather, e->config.reduce, e->config.gather_between, e->config.reduce_between };

	for (size_t i = 0; i < sizeof comms / sizeof *comms; i++)
		if (comms[i] && rc_comm_check(comms[i], error))
			return -1;
	return 0;
}

int rc_engine_begin(rc_engine *e, bool same, rc_stream compute, rc_error *error)
{
	int *last = e->order[1];
	int room = e->order_room[1];

	if (check_comms(e, error) || enter(e, error))
		return -1;
	if (!same)
		forget_secondary(e);
	for (int i = 0; i < e->slot_count && !same; i++)
		if (!e->slots[i].in_use)
			e->slots[i].valid = false;
	if (e->order_count[0] > 0) {
		e->order[1] = e->order[0];
		e->order_room[1] = e->order_room[0];
		e->order_count[1] = e->order_count[0];
		e->order[0] = last;
		e->order_room[0] = room;
		e->order_count[0] = 0;
	}
	e->cursor = 0;
	if (e->gpu && (rc_cuda_event_record(e->started, compute, error) || rc_cuda_event_wait(e->gather_stream, e->started, error)))
		return -1;
	return 0;
}

/* Few pieces: each straight to its place, all in one launch. In place where the shard must be cast first. */
static int gather_direct(rc_engine *e, rc__unit *u, rc_tag tag, rc_error *error)
{
	size_t element = rc_dtype_size(u->gather_type), shard_element = rc_dtype_size(u->shard_type);
	bool cast = u->shard_type != u->gather_type || e->config.host; /* first to its place, sent from there */
	size_t rank = (size_t)rc_comm_rank(e->config.gather);

	for (size_t i = 0; cast && i < u->count; i++) {
		const rc_piece *p = &u->pieces[i];

		if (rc_cast(e->kernels, (const char *)u->shard + p->chunk * shard_element, u->shard_type,
		            (char *)u->full + (p->full + rank * p->count) * element, u->gather_type, p->count, e->gather_stream, error))
			return -1;
	}
	if (rc_comm_group_begin(e->config.gather, error))
		return -1;
	for (size_t i = 0; i < u->count; i++) {
		const rc_piece *p = &u->pieces[i];
		char *full = (char *)u->full + p->full * element;
		const char *send = cast ? full + rank * p->count * element : (const char *)u->shard + p->chunk * element;

		if (p->count > 0 && rc_comm_all_gather(e->config.gather, tag, send, full, p->count * element, e->gather_stream, error))
			return -1;
	}
	return rc_comm_group_end(e->config.gather, error);
}

/* Many pieces: one message for all, then a kernel brings the pieces to their places. */
static int gather_staged(rc_engine *e, rc__unit *u, rc_tag tag, rc_error *error)
{
	size_t element = rc_dtype_size(u->gather_type);
	const void *send = u->shard;

	if (u->shard_type != u->gather_type || e->config.host) {
		char *own = (char *)e->config.staging + (size_t)rc_comm_rank(e->config.gather) * u->chunk * element;

		if (rc_cast(e->kernels, u->shard, u->shard_type, own, u->gather_type, u->chunk, e->gather_stream, error))
			return -1;
		send = own;
	}
	return rc_comm_all_gather(e->config.gather, tag, send, e->config.staging, u->chunk * element, e->gather_stream, error) ||
	       rc_unshuffle(e->kernels, u->layout, e->config.staging, u->full, element, e->gather_stream, error) ? -1 : 0;
}

static int gather_on_cpu(rc_engine *e, rc__unit *u, rc_tag tag, rc_error *error)
{
	const void *send = u->shard;

	if (u->shard_type != u->gather_type) {
		if (rc_cast(e->kernels, u->shard, u->shard_type, u->cast, u->gather_type, u->chunk, NULL, error))
			return -1;
		send = u->cast;
	}
	return rc_comm_gather_pieces(e->config.gather, tag, send, u->chunk, rc_dtype_size(u->gather_type), u->pieces, u->count, u->full, error);
}

static int gather_in_one_level(rc_engine *e, rc__unit *u, bool backward, rc_error *error)
{
	rc_tag tag = {u->name, backward ? "backward" : "forward"};

	if (!e->gpu)
		return gather_on_cpu(e, u, tag, error);
	if (u->layout && !rc_cuda_stream_capturing(e->gather_stream, NULL))
		return gather_staged(e, u, tag, error);
	return gather_direct(e, u, tag, error);
}

static int gather(rc_engine *e, int index, bool backward, rc_error *error)
{
	rc__unit *u = &e->units[index];
	slot *s = &e->slots[u->slot];
	bool inside = u->secondary_valid;
	size_t bytes = u->chunk * rc_dtype_size(u->gather_type) * (size_t)(e->ranks - 1);

	if (s->in_use && s->holds != index)
		return rc_fail(error, RC_E_UNSUPPORTED, "unit %s is used while unit %s, whose memory it shares, still is", u->name,
		               e->units[s->holds].name);
	s->valid = false;
	if (e->gpu && s->has_free && rc_cuda_event_wait(e->gather_stream, s->free, error))
		return -1;
	if (e->two_levels ? rc__levels_gather(&e->levels, u, backward, e->config.staging, e->gather_stream, &bytes, error)
	                  : gather_in_one_level(e, u, backward, error))
		return -1;
	if (e->gpu) {
		if (rc_cuda_event_record(u->ready, e->gather_stream, error))
			return -1;
		e->has_gathered = true;
	}
	s->holds = index;
	s->valid = true;
	e->stats.gathers++;
	e->stats.secondary_gathers += inside;
	e->stats.gathered_bytes += bytes;
	return 0;
}

static int remember(rc_engine *e, int index, rc_error *error)
{
	if (e->order_count[0] == MAX_ORDER)
		return 0;
	if (e->order_count[0] == e->order_room[0]) {
		int room = e->order_room[0] ? 2 * e->order_room[0] : 64;
		int *bigger = realloc(e->order[0], (size_t)room * sizeof *bigger);

		if (!bigger)
			return rc_fail(error, RC_E_NO_MEMORY, "no memory for the order of %d units", room);
		e->order[0] = bigger;
		e->order_room[0] = room;
	}
	e->order[0][e->order_count[0]++] = index;
	e->cursor = e->order_count[0];
	return 0;
}

int rc_engine_unshard(rc_engine *e, int index, bool backward, rc_stream compute, rc_error *error)
{
	rc__unit *u = unit_at(e, index, error);
	slot *s;

	if (!u || enter(e, error))
		return -1;
	s = &e->slots[u->slot];
	if (!(s->valid && s->holds == index) && gather(e, index, backward, error))
		return -1;
	if (e->gpu && rc_cuda_event_wait(compute, u->ready, error))
		return -1;
	s->in_use = true;
	return backward ? 0 : remember(e, index, error);
}

/* The unit that will be wanted after this one, or -1. */
static int next_unit(rc_engine *e, int index, bool backward)
{
	if (!backward) {
		int at = e->order_count[0] - 1; /* where this call stands; the step before is asked what came then */

		if (at >= 0 && at + 1 < e->order_count[1] && e->order[1][at] == index)
			return e->order[1][at + 1];
		return -1;
	}
	for (int i = e->cursor - 1; i >= 0; i--)
		if (e->order[0][i] == index) {
			e->cursor = i;
			return i > 0 ? e->order[0][i - 1] : -1;
		}
	return -1;
}

int rc_engine_prefetch(rc_engine *e, int index, bool backward, rc_stream compute, rc_error *error)
{
	int next = next_unit(e, index, backward);
	slot *s;

	(void)compute;
	if (!e->gpu || next < 0)
		return 0;
	s = &e->slots[e->units[next].slot];
	if (s->in_use || (s->valid && s->holds == next))
		return 0;
	return enter(e, error) || gather(e, next, backward, error) ? -1 : 0;
}

int rc_engine_release(rc_engine *e, int index, rc_stream compute, rc_error *error)
{
	rc__unit *u = unit_at(e, index, error);
	slot *s;

	if (!u || enter(e, error))
		return -1;
	s = &e->slots[u->slot];
	if (s->holds != index)
		return 0;
	s->in_use = false;
	if (e->gpu) {
		if (rc_cuda_event_record(s->free, compute, error))
			return -1;
		s->has_free = true;
	}
	return 0;
}

/* Rounds as torch's division does where that is not a multiplication by an exact reciprocal. */
static int divide(rc_engine *e, void *data, rc_dtype type, size_t count, float by, rc_stream stream, rc_error *error)
{
	float *values = data;

	if (e->gpu || type != RC_F32)
		return rc_scale(e->kernels, data, type, count, 1 / by, stream, error);
	for (size_t i = 0; i < count; i++)
		values[i] /= by;
	return 0;
}

int rc_engine_reduce(rc_engine *e, int index, const void *const *grads, rc_dtype type, const rc_reduce_rule *rule, void *into,
                     bool add, rc_stream compute, rc_error *error)
{
	rc__unit *u = unit_at(e, index, error);
	rc_comm *replicate = rule->replicate ? e->config.replicate : NULL;
	size_t element = rc_dtype_size(rule->type), bytes;
	rc_dtype sum_type = e->two_levels ? rc__levels_sum_type(&e->levels, rule->type) : rule->type;
	bool quantised = e->two_levels && e->config.quant.reduce;
	/* In f32 on the CPU a mean is the sum, divided, as torch has it with gloo; elsewhere the transport's own, which quantised sums have not. */
	bool divided = rule->mean && !replicate && (quantised || (!e->gpu && rule->type == RC_F32));
	rc_redop op = rule->mean && !divided ? RC_AVG : RC_SUM;
	float after = divided ? rule->after * (float)e->ranks : rule->after;
	rc_stream stream = e->reduce_stream;
	bool direct;
	bucket *b;
	void *out;

	if (!u || enter(e, error))
		return -1;
	if (u->grad_count == 0)
		return 0;
	b = &e->buckets[u->first_bucket];
	b = &e->buckets[u->first_bucket + (int)(b->next++ % (unsigned)u->bucket_count)];
	direct = !add && sum_type == u->shard_type && !e->config.host;
	if ((size_t)e->ranks * u->grad_chunk * element > b->packed_bytes ||
	    (!direct && !quantised && u->grad_chunk * element > b->reduced_bytes))
		return rc_fail(error, RC_E_INVALID, "the gradients of unit %s, %zu bytes for each of %d ranks, do not fit a bucket of %zu", u->name,
		               u->grad_chunk * element, e->ranks, b->packed_bytes);
	out = direct ? into : quantised ? NULL : b->reduced;
	bytes = u->grad_chunk * element * (size_t)(e->ranks - 1);
	if (e->gpu && b->has_done && rc_cuda_event_wait(compute, b->done, error))
		return -1;
	if (rc_pack(e->kernels, u->grad_layout, grads, type, b->packed, rule->type, 1 / rule->before, compute, error))
		return -1;
	if (e->gpu && (rc_cuda_event_record(b->filled, compute, error) || rc_cuda_event_wait(stream, b->filled, error)))
		return -1;
	if (e->two_levels ? rc__levels_reduce(&e->levels, u, b->packed, rule->type, op, &out, stream, &bytes, error)
	                  : rc_comm_reduce_scatter(e->config.reduce, (rc_tag){u->name, "reduce"}, b->packed, out, u->grad_chunk, rule->type, op,
	                                           stream, error))
		return -1;
	if (replicate && rc_comm_all_reduce(replicate, (rc_tag){u->name, "replicate"}, out, u->grad_chunk, sum_type, op, stream, error))
		return -1;
	if (after != 1 && divide(e, out, sum_type, u->grad_chunk, after, stream, error))
		return -1;
	if (!direct) {
		if (add ? rc_accumulate(e->kernels, into, u->shard_type, out, sum_type, u->grad_chunk, 1, stream, error)
		        : rc_cast(e->kernels, out, sum_type, into, u->shard_type, u->grad_chunk, stream, error))
			return -1;
	}
	if (e->gpu) {
		if (rc_cuda_event_record(b->done, stream, error))
			return -1;
		b->has_done = true;
		e->has_reduced = true;
	}
	e->stats.reductions++;
	e->stats.reduced_bytes += bytes;
	return 0;
}

int rc_engine_finish(rc_engine *e, rc_stream compute, rc_error *error)
{
	if (!e->gpu)
		return 0;
	if (enter(e, error))
		return -1;
	if (e->has_reduced && (rc_cuda_event_record(e->reduced, e->reduce_stream, error) || rc_cuda_event_wait(compute, e->reduced, error)))
		return -1;
	/* What was prefetched and not wanted must be joined too, or a graph that is being captured would have loose ends. */
	if (e->has_gathered && (rc_cuda_event_record(e->gathered, e->gather_stream, error) || rc_cuda_event_wait(compute, e->gathered, error)))
		return -1;
	e->has_reduced = e->has_gathered = false;
	return 0;
}

void rc_engine_forget_events(rc_engine *e)
{
	forget_secondary(e);
	for (int i = 0; i < e->slot_count; i++) {
		e->slots[i].has_free = false;
		if (!e->slots[i].in_use)
			e->slots[i].valid = false;
	}
	for (int i = 0; i < e->bucket_count; i++)
		e->buckets[i].has_done = false;
	e->has_reduced = e->has_gathered = false;
}

void rc_engine_reset(rc_engine *e)
{
	forget_secondary(e);
	for (int i = 0; i < e->slot_count; i++) {
		e->slots[i].in_use = e->slots[i].valid = false;
		e->slots[i].holds = -1;
	}
	e->order_count[0] = e->order_count[1] = e->cursor = 0;
}

rc_engine_stats rc_engine_get_stats(const rc_engine *e)
{
	return e->stats;
}
