/* Two levels: see levels.h. Scratch memory of a gather: rows, then the nodes' quantised messages. Of a reduction: rows, then quantised
 * messages to and from the nodes, then the sum in f32. */
#include "train_backend/fsdp/levels.h"

#include <stdlib.h>
#include <string.h>

#include "train_backend/comm/two_level.h"

static size_t up(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

void rc__levels_init(rc__levels *l, const rc_engine_config *config, rc_kernels *kernels)
{
	*l = (rc__levels){ .gather = config->gather, .reduce = config->reduce, .gather_between = config->gather_between,
	                   .reduce_between = config->reduce_between, .gpu = config->device >= 0, .secondary = config->secondary,
	                   .quant = config->quant, .kernels = kernels };
	l->local = l->gather ? (size_t)rc_comm_size(l->gather) : 1;
	l->nodes = (size_t)rc_comm_size(l->gather_between);
	l->node = (size_t)rc_comm_rank(l->gather_between);
}

int rc__levels_plan_unit(const rc__levels *l, rc__unit *u, rc_error *error)
{
	if (!l->gather || (l->gpu && u->count > RC__DIRECT_PIECES))
		return rc_layout_create(l->kernels, u->pieces, u->count, (int)(l->nodes * l->local), u->chunk, &u->layout, error);
	if (l->gpu)
		return 0;
	u->node_pieces = calloc(l->nodes * u->count + 1, sizeof *u->node_pieces);
	if (!u->node_pieces)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for the pieces of unit %s on %zu nodes", u->name, l->nodes);
	for (size_t n = 0; n < l->nodes; n++)
		for (size_t i = 0; i < u->count; i++) {
			rc_piece p = u->pieces[i];
			size_t before = min(n * l->local * p.count, p.total);

			p.full += before;
			p.total = min(l->local * p.count, p.total - before);
			u->node_pieces[n * u->count + i] = p;
		}
	return 0;
}

/* ---- scratch memory ---- */

static size_t rows_bytes(const rc__levels *l, size_t chunk, rc_dtype type)
{
	return up(l->nodes * chunk * rc_dtype_size(type));
}

static size_t message_bytes(rc_quant kind, size_t chunk)
{
	return rc_quant_bytes(kind, chunk, RC_ENGINE_BLOCK);
}

size_t rc__levels_gather_room(const rc__levels *l, size_t chunk, rc_dtype type)
{
	return (l->secondary ? 0 : rows_bytes(l, chunk, type)) + (l->quant.gather ? l->nodes * message_bytes(l->quant.gather_kind, chunk) : 0);
}

size_t rc__levels_reduce_room(const rc__levels *l, size_t chunk, rc_dtype type)
{
	return (l->reduce ? rows_bytes(l, chunk, type) : 0) +
	       (l->quant.reduce ? up(2 * l->nodes * message_bytes(l->quant.reduce_kind, chunk)) + chunk * sizeof(float) : 0);
}

static int fits(const char *what, const rc__unit *u, size_t wanted, size_t room, rc_error *error)
{
	if (wanted <= room)
		return 0;
	return rc_fail(error, RC_E_INVALID, "the %s of unit %s needs %zu bytes of scratch memory, there are %zu", what, u->name, wanted, room);
}

/* ---- failing ---- */

/* A level that failed leaves ranks waiting in the other: they get its reason at once. Its text has the level's own numbers of ranks, so it is
 * told which these are. */
static int break_all(const rc__levels *l, bool between, rc_error *error)
{
	static const char which[] = " of all)";
	rc_comm *const comms[] = { l->gather, l->reduce, l->gather_between, l->reduce_between };
	rc_error told = *error;

	if (l->gather && !strstr(told.text, which))
		rc_fail(error, told.code, "%.*s (here rank q is rank %zu + q * %zu%s", (int)(sizeof told.text - 64), told.text,
		        between ? (size_t)rc_comm_rank(l->gather) : l->node * l->local, between ? l->local : 1, which);

	for (size_t i = 0; i < sizeof comms / sizeof *comms; i++)
		if (comms[i])
			rc_comm_abort(comms[i], error->text);
	return -1;
}

/* ---- gathering ---- */

/* Between nodes: this rank's chunk and those of its like make the rows. */
static int fetch(const rc__levels *l, const rc__unit *u, bool backward, char *rows, char *messages, rc_stream stream, rc_error *error)
{
	rc_tag tag = { u->name, backward ? "backward, between nodes" : "forward, between nodes" };
	size_t row = u->chunk * rc_dtype_size(u->gather_type), bytes = message_bytes(l->quant.gather_kind, u->chunk);
	const void *own = u->shard;

	if (!l->quant.gather) {
		if (u->shard_type != u->gather_type) {
			own = rows + l->node * row;
			if (rc_cast(l->kernels, u->shard, u->shard_type, rows + l->node * row, u->gather_type, u->chunk, stream, error))
				return -1;
		}
		return rc_comm_all_gather(l->gather_between, tag, own, rows, row, stream, error);
	}
	if (rc_quantize(l->kernels, l->quant.gather_kind, RC_ENGINE_BLOCK, u->shard, u->shard_type, u->chunk, NULL, messages + l->node * bytes,
	                stream, error) ||
	    rc_comm_all_gather(l->gather_between, tag, messages + l->node * bytes, messages, bytes, stream, error))
		return -1;
	for (size_t n = 0; n < l->nodes; n++) /* the own one too: all ranks compute with the same numbers */
		if (rc_dequantize(l->kernels, l->quant.gather_kind, RC_ENGINE_BLOCK, messages + n * bytes, rows + n * row, u->gather_type, u->chunk,
		                  false, 1, stream, error))
			return -1;
	return 0;
}

/* Few pieces on a GPU: from the ranks' rows straight to their places. */
static int spread_direct(const rc__levels *l, const rc__unit *u, rc_tag tag, const char *rows, rc_stream stream, rc_error *error)
{
	size_t element = rc_dtype_size(u->gather_type);
	int result = 0;
	rc_error of_end;

	if (rc_comm_group_begin(l->gather, error))
		return -1;
	for (size_t n = 0; n < l->nodes; n++)
		for (size_t i = 0; i < u->count && result == 0; i++) {
			const rc_piece *p = &u->pieces[i];

			if (p->count > 0)
				result = rc_comm_all_gather(l->gather, tag, rows + (n * u->chunk + p->chunk) * element,
				                            (char *)u->full + (p->full + n * l->local * p->count) * element, p->count * element, stream, error);
		}
	if (rc_comm_group_end(l->gather, &of_end) && result == 0)
		result = rc_fail(error, of_end.code, "%s", of_end.text);
	return result;
}

/* Within the node: the ranks' rows make the whole unit. */
static int spread(const rc__levels *l, const rc__unit *u, bool backward, const char *rows, void *staging, rc_stream stream, rc_error *error)
{
	rc_tag tag = { u->name, backward ? "backward, within the node" : "forward, within the node" };
	size_t element = rc_dtype_size(u->gather_type), row = u->chunk * element;

	if (!l->gather)
		return rc_unshuffle(l->kernels, u->layout, rows, u->full, element, stream, error);
	if (l->gpu && !u->layout)
		return spread_direct(l, u, tag, rows, stream, error);
	if (l->gpu)
		return rc_two_level_spread(l->gather, l->nodes, tag, rows, staging, row, stream, error) ||
		       rc_unshuffle(l->kernels, u->layout, staging, u->full, element, stream, error) ? -1 : 0;
	for (size_t n = 0; n < l->nodes; n++)
		if (rc_comm_gather_pieces(l->gather, tag, rows + n * row, u->chunk, element, u->node_pieces + n * u->count, u->count, u->full, error))
			return -1;
	return 0;
}

int rc__levels_gather(const rc__levels *l, rc__unit *u, bool backward, void *staging, rc_stream stream, size_t *bytes, rc_error *error)
{
	size_t element = rc_dtype_size(u->gather_type);
	char *rows = u->secondary ? u->secondary : l->gather_room;
	char *messages = u->secondary ? l->gather_room : l->gather_room + rows_bytes(l, u->chunk, u->gather_type);
	bool fetched = u->secondary && u->secondary_valid;

	if (fits("gather", u, rc__levels_gather_room(l, u->chunk, u->gather_type), l->gather_bytes, error))
		return -1;
	if (!fetched && fetch(l, u, backward, rows, messages, stream, error))
		return break_all(l, true, error);
	if (spread(l, u, backward, rows, staging, stream, error))
		return break_all(l, false, error);
	u->secondary_valid = u->secondary != NULL;
	*bytes = l->nodes * (l->local - 1) * u->chunk * element;
	if (!fetched)
		*bytes += (l->nodes - 1) * (l->quant.gather ? message_bytes(l->quant.gather_kind, u->chunk) : u->chunk * element);
	return 0;
}

/* ---- reducing ---- */

rc_dtype rc__levels_sum_type(const rc__levels *l, rc_dtype type)
{
	return l->quant.reduce ? RC_F32 : type;
}

/* The nodes' quantised sums, added in f32 in the order of nodes; this node's own as it is. rows: [nodes][grad_chunk]. */
static int exchange(const rc__levels *l, const rc__unit *u, rc_tag tag, const char *rows, rc_dtype type, char *send, float *sum,
                    rc_stream stream, rc_error *error)
{
	size_t count = u->grad_chunk, bytes = message_bytes(l->quant.reduce_kind, count), row = count * rc_dtype_size(type);
	char *recv = send + l->nodes * bytes;
	const char *own = rows + l->node * row;

	for (size_t n = 0; n < l->nodes; n++)
		if (n != l->node && rc_quantize(l->kernels, l->quant.reduce_kind, RC_ENGINE_BLOCK, rows + n * row, type, count,
		                                u->residual ? u->residual + n * count : NULL, send + n * bytes, stream, error))
			return -1;
	if (rc_comm_all_to_all(l->reduce_between, tag, send, recv, bytes, stream, error))
		return -1;
	for (size_t n = 0; n < l->nodes; n++) {
		int result;

		if (n != l->node)
			result = rc_dequantize(l->kernels, l->quant.reduce_kind, RC_ENGINE_BLOCK, recv + n * bytes, sum, RC_F32, count, n > 0, 1, stream,
			                       error);
		else if (n > 0)
			result = rc_accumulate(l->kernels, sum, RC_F32, own, type, count, 1, stream, error);
		else
			result = rc_cast(l->kernels, own, type, sum, RC_F32, count, stream, error);
		if (result)
			return -1;
	}
	return 0;
}

int rc__levels_reduce(const rc__levels *l, const rc__unit *u, const void *packed, rc_dtype type, rc_redop op, void **out, rc_stream stream,
                      size_t *bytes, rc_error *error)
{
	rc_tag within = { u->name, "reduce, within the node" }, between = { u->name, "reduce, between nodes" };
	size_t count = u->grad_chunk, element = rc_dtype_size(type), message = message_bytes(l->quant.reduce_kind, count);
	char *rows = l->reduce_room, *messages = rows + (l->reduce ? rows_bytes(l, count, type) : 0);
	int result;

	if (fits("reduction", u, rc__levels_reduce_room(l, count, type), l->reduce_bytes, error))
		return -1;
	if (l->reduce && rc_two_level_collect(l->reduce, l->nodes, within, packed, rows, count, type, op, stream, error))
		return break_all(l, false, error);
	if (l->quant.reduce) {
		if (!*out)
			*out = messages + up(2 * l->nodes * message);
		result = exchange(l, u, between, l->reduce ? rows : packed, type, messages, *out, stream, error);
	} else {
		result = rc_comm_reduce_scatter(l->reduce_between, between, l->reduce ? rows : packed, *out, count, type, op, stream, error);
	}
	if (result)
		return break_all(l, true, error);
	*bytes = l->nodes * (l->local - 1) * count * element + (l->nodes - 1) * (l->quant.reduce ? message : count * element);
	return 0;
}
