/* Collectives of the ranks of one host over shared memory.
 *
 * Every rank has a segment with bounce memory (two halves, used in turn); rank 0's holds the control block too (control.h). A rank
 * reads what it needs from the others' memory and writes only its own, so a rank that is stopped or late can harm nobody.
 * Memory inside a window is read where it lies; other memory comes in rounds through the bounce halves:
 *
 *     copy the next part into a half; meet; read the others' halves
 *
 * One meeting a round is enough: who writes a half again has passed the meeting of the round between, to which everyone came after
 * reading it. Only who lends a window needs a last meeting, after which its memory is its own again. Every rank turns the halves at
 * the same calls, whether it uses them or not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train_backend/comm/comm_ops.h"
#include "train_backend/comm/shm/control.h"
#include "train_backend/comm/shm/segment.h"
#include "train_backend/comm/sum.h"

enum {
	HALF = 2 << 20,  /* bytes of half a bounce memory: stays in the caches */
	SMALL = 4096,    /* an all-reduce up to here is summed whole by every rank: one meeting */
	ALIGN = 64,
	MAX_RANKS = 512,
	VERSION = 1,
};

typedef struct blob {
	char magic[8];
	uint32_t version;
	int32_t rank, size;
	uint32_t unused;
	rc__process process;
	rc__segment_name segment;
} blob;

static const char magic[8] = "rc_shm";

typedef struct window {
	rc__segment own;
	char **bases; /* [size], bases[rank] is own's */
} window;

typedef struct shm {
	rc_comm comm;
	blob blob;
	rc__segment own;   /* control block (used of rank 0's), then two bounce halves */
	char **segments;   /* [size]; NULL before connect */
	rc__control control;
	unsigned round;    /* of the bounce memories: its lowest bit says which half */
	window *windows;
	int window_count;
} shm;

static shm *shm_of(rc_comm *comm)
{
	return (shm *)comm;
}

static size_t align_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static char *half_of(const shm *s, int rank)
{
	return s->segments[rank] + align_up(rc__block_bytes(s->comm.size), 4096) + (s->round % 2 ? HALF : 0);
}

/* Fills where the memory lies when that is inside a window. */
static void locate(const shm *s, const void *memory, size_t bytes, rc__arrival *arrival)
{
	const char *at = memory;

	arrival->window = -1;
	for (int i = 0; i < s->window_count && bytes; i++) {
		const rc__segment *own = &s->windows[i].own;

		if (at >= own->base && at < own->base + own->name.bytes && bytes <= (size_t)(own->base + own->name.bytes - at)) {
			arrival->window = i;
			arrival->offset = (uint64_t)(at - own->base);
			return;
		}
	}
}

/* Where a rank's memory lies for this one: NULL when it comes through the bounce. */
static const char *lent(const shm *s, int rank)
{
	const rc__arrival *arrival = rc__control_arrival(&s->control, rank);

	return arrival->window < 0 ? NULL : s->windows[arrival->window].bases[rank] + arrival->offset;
}

static bool any(const shm *s, bool bounced)
{
	for (int q = 0; q < s->comm.size; q++)
		if ((rc__control_arrival(&s->control, q)->window < 0) == bounced)
			return true;
	return false;
}

/* The last meeting, where a rank has lent its memory. */
static int finish(shm *s, rc_error *error)
{
	return rc__control_leave(&s->control, any(s, false) ? rc__control_meet(&s->control, error) : 0);
}

static double factor(const shm *s, rc_redop op)
{
	return op == RC_AVG ? 1.0 / s->comm.size : 1.0;
}

/* ---- operations ---- */

static int shm_all_gather(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error)
{
	shm *s = shm_of(comm);
	rc__arrival arrival = { .call.kind = RC__ALL_GATHER, .call.bytes = bytes };
	char *own = (char *)recv + (size_t)comm->rank * bytes;
	size_t step;

	(void)stream;
	locate(s, send, bytes, &arrival);
	if (arrival.window < 0 && bytes)
		memcpy(half_of(s, comm->rank), send, min(bytes, HALF));
	if (rc__control_enter(&s->control, tag, &arrival, error))
		return rc__control_leave(&s->control, -1);
	if (own != send && bytes)
		memcpy(own, send, bytes);
	step = any(s, true) ? HALF : bytes;
	for (size_t begin = 0; begin < bytes; begin += step) {
		size_t n = min(step, bytes - begin);

		if (begin) {
			if (arrival.window < 0)
				memcpy(half_of(s, comm->rank), (const char *)send + begin, n);
			if (rc__control_meet(&s->control, error))
				return rc__control_leave(&s->control, -1);
		}
		for (int i = 1; i < comm->size; i++) { /* each rank starts at another one */
			int q = (comm->rank + i) % comm->size;
			const char *from = lent(s, q);

			memcpy((char *)recv + (size_t)q * bytes + begin, from ? from + begin : half_of(s, q), n);
			rc__comm_took(comm, q, n);
		}
		s->round++;
	}
	return finish(s, error);
}

static int shm_gather_pieces(rc_comm *comm, rc_tag tag, const void *send, size_t chunk, size_t element, const rc_piece *pieces,
                             size_t count, void *full, rc_error *error)
{
	shm *s = shm_of(comm);
	rc__arrival arrival = { .call.kind = RC__GATHER_PIECES, .call.bytes = chunk * element };

	locate(s, send, chunk * element, &arrival);
	if (arrival.window < 0 && arrival.call.bytes)
		return rc_fail(error, RC_E_INVALID, "gather of pieces: %llu bytes to send are not inside a window",
		               (unsigned long long)arrival.call.bytes);
	if (rc__control_enter(&s->control, tag, &arrival, error))
		return rc__control_leave(&s->control, -1);
	for (int i = 0; i < comm->size && arrival.call.bytes; i++) {
		size_t q = (size_t)((comm->rank + i) % comm->size);
		const char *from = lent(s, (int)q);

		for (size_t p = 0; p < count; p++) {
			const rc_piece *piece = &pieces[p];
			size_t begin = min(q * piece->count, piece->total), n = min(piece->count, piece->total - begin);

			memcpy((char *)full + (piece->full + begin) * element, from + piece->chunk * element, n * element);
			rc__comm_took(comm, (int)q, i ? n * element : 0);
		}
	}
	return finish(s, error);
}

static int shm_reduce_scatter(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t count, rc_dtype dtype, rc_redop op,
                              rc_stream stream, rc_error *error)
{
	shm *s = shm_of(comm);
	size_t element = rc_dtype_size(dtype), ranks = (size_t)comm->size, rank = (size_t)comm->rank;
	size_t share = HALF / ranks / ALIGN * ALIGN / element; /* of a half, for each rank that reads it */
	rc__arrival arrival = { .call.kind = RC__REDUCE_SCATTER, .call.dtype = dtype, .call.op = op, .call.bytes = count * element };
	const void *from[comm->size];
	size_t step;

	(void)stream;
	locate(s, send, count * element * ranks, &arrival);
	step = count; /* for the first part before it is known what the others do: a rank that bounces goes by shares */
	for (size_t begin = 0; begin == 0 || begin < count; begin += step) {
		size_t n = min(share, count - begin);

		for (size_t q = 0; q < ranks && arrival.window < 0; q++)
			if (q != rank && n)
				memcpy(half_of(s, comm->rank) + q * share * element, (const char *)send + (q * count + begin) * element, n * element);
		if (begin == 0 ? rc__control_enter(&s->control, tag, &arrival, error) : rc__control_meet(&s->control, error))
			return rc__control_leave(&s->control, -1);
		if (count == 0)
			break;
		step = any(s, true) ? share : count;
		n = min(step, count - begin);
		for (size_t q = 0; q < ranks; q++) {
			const char *base = q == rank ? send : lent(s, (int)q);

			from[q] = base ? base + (rank * count + begin) * element : half_of(s, (int)q) + rank * share * element;
			rc__comm_took(comm, (int)q, q == rank ? 0 : n * element);
		}
		rc__sum((char *)recv + begin * element, from, comm->size, n, dtype, factor(s, op));
		s->round++;
	}
	return finish(s, error);
}

static int shm_all_reduce(rc_comm *comm, rc_tag tag, void *data, size_t count, rc_dtype dtype, rc_redop op, rc_stream stream,
                          rc_error *error)
{
	shm *s = shm_of(comm);
	size_t element = rc_dtype_size(dtype), ranks = (size_t)comm->size, step = HALF / element;
	bool small = count * element <= SMALL;
	rc__arrival arrival = { .call.kind = RC__ALL_REDUCE, .call.dtype = dtype, .call.op = op, .call.bytes = count * element };
	const void *from[comm->size];

	(void)stream;
	if (small)
		arrival.window = -1; /* every rank sums into its own data: the others read a copy */
	else
		locate(s, data, count * element, &arrival);
	for (size_t begin = 0; begin == 0 || begin < count; begin += step) {
		size_t n = min(HALF / element, count - begin), slice;

		if (arrival.window < 0 && n)
			memcpy(half_of(s, comm->rank), (char *)data + begin * element, n * element);
		if (begin == 0 ? rc__control_enter(&s->control, tag, &arrival, error) : rc__control_meet(&s->control, error))
			return rc__control_leave(&s->control, -1);
		if (count == 0)
			break;
		step = any(s, true) ? HALF / element : count;
		n = min(step, count - begin);
		slice = small ? n : align_up((n + ranks - 1) / ranks, ALIGN / element);
		for (int pass = 0; pass < (small ? 1 : 2); pass++) { /* sum the own slice, then fetch the others' */
			if (pass == 1 && rc__control_meet(&s->control, error))
				return rc__control_leave(&s->control, -1);
			for (size_t q = 0; q < ranks; q++) {
				const char *base = lent(s, (int)q);
				size_t mine = small ? 0 : min(slice * (size_t)comm->rank, n), theirs = min(slice * q, n);

				base = base ? base + begin * element : half_of(s, (int)q);
				if (q != (size_t)comm->rank)
					rc__comm_took(comm, (int)q, min(slice, n - (pass ? theirs : mine)) * element);
				if (pass == 0)
					from[q] = base + mine * element;
				else if (base + theirs * element != (char *)data + (begin + theirs) * element)
					memcpy((char *)data + (begin + theirs) * element, base + theirs * element, min(slice, n - theirs) * element);
			}
			if (pass == 0) {
				size_t mine = small ? 0 : min(slice * (size_t)comm->rank, n);
				void *to = small ? (char *)data + begin * element : (char *)from[comm->rank];

				rc__sum(to, from, comm->size, min(slice, n - mine), dtype, factor(s, op));
			}
		}
		s->round++;
	}
	return finish(s, error);
}

static int shm_all_to_all(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error)
{
	shm *s = shm_of(comm);
	size_t ranks = (size_t)comm->size, rank = (size_t)comm->rank, step = bytes;
	size_t share = HALF / ranks / ALIGN * ALIGN; /* of a half, for each rank that reads it */
	rc__arrival arrival = { .call.kind = RC__ALL_TO_ALL, .call.bytes = bytes };

	(void)stream;
	locate(s, send, bytes * ranks, &arrival);
	for (size_t begin = 0; begin == 0 || begin < bytes; begin += step) {
		size_t n = min(share, bytes - begin);

		for (size_t q = 0; q < ranks && arrival.window < 0 && n; q++)
			if (q != rank)
				memcpy(half_of(s, comm->rank) + q * share, (const char *)send + q * bytes + begin, n);
		if (begin == 0 ? rc__control_enter(&s->control, tag, &arrival, error) : rc__control_meet(&s->control, error))
			return rc__control_leave(&s->control, -1);
		if (bytes == 0)
			break;
		step = any(s, true) ? share : bytes;
		n = min(step, bytes - begin);
		for (size_t i = 0; i < ranks; i++) { /* each rank starts at its own */
			size_t q = (rank + i) % ranks;
			const char *base = q == rank ? send : lent(s, (int)q);

			memcpy((char *)recv + q * bytes + begin, base ? base + rank * bytes + begin : half_of(s, (int)q) + rank * share, n);
			rc__comm_took(comm, (int)q, q == rank ? 0 : n);
		}
		s->round++;
	}
	return finish(s, error);
}

static int shm_broadcast(rc_comm *comm, rc_tag tag, void *data, size_t bytes, int root, rc_stream stream, rc_error *error)
{
	shm *s = shm_of(comm);
	rc__arrival arrival = { .call.kind = RC__BROADCAST, .call.bytes = bytes, .call.root = root };
	bool sends = comm->rank == root;
	size_t step;

	(void)stream;
	arrival.window = -1;
	if (sends)
		locate(s, data, bytes, &arrival);
	if (sends && arrival.window < 0 && bytes)
		memcpy(half_of(s, root), data, min(bytes, HALF));
	if (rc__control_enter(&s->control, tag, &arrival, error))
		return rc__control_leave(&s->control, -1);
	step = lent(s, root) ? bytes : HALF;
	for (size_t begin = 0; begin < bytes; begin += step) {
		const char *from = lent(s, root);
		size_t n = min(step, bytes - begin);

		if (begin) {
			if (sends)
				memcpy(half_of(s, root), (char *)data + begin, n);
			if (rc__control_meet(&s->control, error))
				return rc__control_leave(&s->control, -1);
		}
		if (!sends)
			memcpy((char *)data + begin, from ? from + begin : half_of(s, root), n);
		rc__comm_took(comm, root, sends ? 0 : n);
		s->round++;
	}
	return finish(s, error);
}

static int shm_barrier(rc_comm *comm, rc_tag tag, rc_error *error)
{
	shm *s = shm_of(comm);
	rc__arrival arrival = { .call.kind = RC__BARRIER, .window = -1 };

	return rc__control_leave(&s->control, rc__control_enter(&s->control, tag, &arrival, error));
}

/* Nothing is queued here. */
static int shm_group(rc_comm *comm, rc_error *error)
{
	return rc__control_check(&shm_of(comm)->control, error);
}

static int shm_watch(rc_comm *comm, rc_tag tag, rc_stream stream, rc_error *error)
{
	(void)tag, (void)stream;
	return rc__control_check(&shm_of(comm)->control, error);
}

static int shm_check(rc_comm *comm, rc_error *error)
{
	return rc__control_check(&shm_of(comm)->control, error);
}

static void shm_abort(rc_comm *comm, const char *reason)
{
	shm *s = shm_of(comm);
	rc_error text;

	rc_fail(&text, RC_E_CANCELLED, "aborted by rank %d (pid %lld): %s", comm->rank, (long long)s->blob.process.pid, reason ? reason : "");
	rc__control_break(&s->control, RC_E_CANCELLED, text.text, NULL);
}

/* ---- windows ---- */

static void window_destroy(window *w, int size)
{
	for (int q = 0; w->bases && q < size; q++)
		if (w->bases[q] != w->own.base)
			rc__segment_unmap(w->bases[q], w->own.name.bytes);
	free(w->bases);
	rc__segment_destroy(&w->own);
}

/* Opens every peer's; -1 with why in *error. */
static int window_open(shm *s, window *w, rc_error *error)
{
	w->bases[s->comm.rank] = w->own.base;
	for (int q = 0; q < s->comm.size; q++) {
		rc_error cause;

		if (q != s->comm.rank &&
		    rc__segment_open(&s->control.peers[q].process, &rc__control_arrival(&s->control, q)->segment, &w->bases[q], &cause))
			return rc_fail(error, cause.code, "rank %d cannot open that of rank %d: %s", s->comm.rank, q, cause.text);
	}
	return 0;
}

/* The first rank's reason why its part failed, as every rank finds it in the descriptions; 0 when none did. */
static int window_failed(shm *s, size_t bytes, rc_error *error)
{
	for (int q = 0; q < s->comm.size; q++) {
		const rc__arrival *arrival = rc__control_arrival(&s->control, q);

		if (arrival->code)
			return rc_fail(error, arrival->code, "window of %zu bytes: rank %d: %.*s", bytes, q, (int)sizeof arrival->failed, arrival->failed);
	}
	return 0;
}

/* Two calls: all make their memory, then all open the others'. What fails on one rank fails on all, and harms nothing else. */
static int shm_window(rc_comm *comm, size_t bytes, void **base, rc_error *error)
{
	shm *s = shm_of(comm);
	window w = { 0 }, *windows = realloc(s->windows, (size_t)(s->window_count + 1) * sizeof *windows);
	rc_error cause = { 0 };

	if (windows)
		s->windows = windows;
	w.bases = calloc((size_t)comm->size, sizeof *w.bases);
	if (!windows || !w.bases)
		rc_fail(&cause, RC_E_NO_MEMORY, "no memory for its table");
	else if (rc__segment_create(bytes, &w.own, &cause) == 0)
		cause.code = RC_OK;
	for (int pass = 0; pass < 2; pass++) {
		rc__arrival arrival = { .call.kind = RC__WINDOW, .call.bytes = bytes, .window = -1, .segment = w.own.name };

		snprintf(arrival.failed, sizeof arrival.failed, "%.199s", cause.code ? cause.text : "");
		arrival.code = cause.code;
		if (rc__control_enter(&s->control, (rc_tag){ 0 }, &arrival, error) || window_failed(s, bytes, error))
			goto fail;
		if (pass == 0 && window_open(s, &w, &cause) == 0)
			cause.code = RC_OK;
	}
	rc__segment_close_fd(&w.own);
	s->windows[s->window_count++] = w;
	*base = w.own.base;
	return rc__control_leave(&s->control, 0);
fail:
	window_destroy(&w, comm->size);
	return rc__control_leave(&s->control, -1);
}

/* ---- start and end ---- */

static void shm_destroy(rc_comm *comm)
{
	shm *s = shm_of(comm);

	rc__control_close(&s->control);
	for (int i = 0; i < s->window_count; i++)
		window_destroy(&s->windows[i], comm->size);
	free(s->windows);
	for (int q = 0; s->segments && q < comm->size; q++)
		if (s->segments[q] != s->own.base)
			rc__segment_unmap(s->segments[q], s->own.name.bytes);
	free(s->segments);
	rc__segment_destroy(&s->own);
	free(s);
}

static int check_blob(const shm *s, int rank, const void *bytes, size_t size, blob *b, rc_error *error)
{
	rc_error cause;

	if (size != sizeof *b)
		return rc_fail(error, RC_E_UNSUPPORTED, "rank %d has no shared memory to offer (its blob has %zu bytes, not %zu)", rank, size, sizeof *b);
	memcpy(b, bytes, size);
	if (memcmp(b->magic, magic, sizeof magic) || b->version != VERSION)
		return rc_fail(error, RC_E_UNSUPPORTED, "rank %d has no shared memory to offer, or of another version", rank);
	if (b->rank != rank || b->size != s->comm.size)
		return rc_fail(error, RC_E_INVALID, "the blob at place %d of %d is of rank %d of %d", rank, s->comm.size, b->rank, b->size);
	if (b->segment.bytes != s->own.name.bytes)
		return rc_fail(error, RC_E_INVALID, "rank %d offers %llu bytes of shared memory, rank %d %llu", rank,
		               (unsigned long long)b->segment.bytes, s->comm.rank, (unsigned long long)s->own.name.bytes);
	if (rc__process_reachable(&s->blob.process, &b->process, &cause))
		return rc_fail(error, cause.code, "rank %d cannot be reached through shared memory: %s", rank, cause.text);
	return 0;
}

/* After rank 0's segment a failure is told to the others through its control block. */
static int shm_connect(rc_comm *comm, const void *const *blobs, const size_t *sizes, rc_error *error)
{
	shm *s = shm_of(comm);
	size_t size = (size_t)comm->size;
	rc__arrival arrival = { .call.kind = RC__CONNECT, .window = -1 };
	blob *of = calloc(size, sizeof *of);
	rc__process *processes = calloc(size, sizeof *processes);
	rc_error cause;

	if (s->segments) {
		rc_fail(error, RC_E_INVALID, "a communicator whose connect failed cannot connect again");
		goto fail;
	}
	s->segments = calloc(size, sizeof *s->segments);
	if (!of || !processes || !s->segments) {
		rc_fail(error, RC_E_NO_MEMORY, "no memory for %zu ranks", size);
		goto fail;
	}
	for (int q = 0; q < comm->size; q++) {
		if (check_blob(s, q, blobs[q], sizes[q], &of[q], error))
			goto fail;
		processes[q] = of[q].process;
	}
	for (int q = 0; q < comm->size; q++) {
		if (q == comm->rank) {
			s->segments[q] = s->own.base;
		} else if (rc__segment_open(&of[q].process, &of[q].segment, &s->segments[q], &cause)) {
			rc_fail(&cause, cause.code, "rank %d cannot open the memory of rank %d: %s", comm->rank, q, cause.text);
			if (s->control.block)
				rc__control_break(&s->control, cause.code, cause.text, NULL);
			rc_fail(error, cause.code, "%s", cause.text);
			goto fail;
		}
		if (q == 0 && rc__control_open(&s->control, (rc__block *)s->segments[0], processes, comm->rank, comm->size, comm->timeout, error))
			goto fail;
	}
	if (rc__control_leave(&s->control, rc__control_enter(&s->control, (rc_tag){ 0 }, &arrival, error)))
		goto fail;
	rc__segment_close_fd(&s->own); /* everyone has it */
	free(processes);
	free(of);
	return 0;
fail:
	free(processes);
	free(of);
	return -1;
}

static const rc__comm_ops ops = {
	.connect = shm_connect,
	.destroy = shm_destroy,
	.window = shm_window,
	.all_gather = shm_all_gather,
	.gather_pieces = shm_gather_pieces,
	.reduce_scatter = shm_reduce_scatter,
	.all_reduce = shm_all_reduce,
	.all_to_all = shm_all_to_all,
	.broadcast = shm_broadcast,
	.barrier = shm_barrier,
	.group_begin = shm_group,
	.group_end = shm_group,
	.watch = shm_watch,
	.check = shm_check,
	.abort = shm_abort,
};

int rc_comm_shm_prepare(int rank, int size, double timeout, rc_comm **comm, rc_error *error)
{
	shm *s;

	if (size < 1 || size > MAX_RANKS || rank < 0 || rank >= size)
		return rc_fail(error, RC_E_INVALID, "rank %d of %d: shared memory serves 1 to %d ranks", rank, size, MAX_RANKS);
	if (!(timeout > 0 && timeout < 1e9))
		return rc_fail(error, RC_E_INVALID, "a timeout of %g s is not a positive number of seconds", timeout);
	s = calloc(1, sizeof *s);
	if (!s)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for a communicator");
	s->comm = (rc_comm){ .ops = &ops, .rank = rank, .size = size, .timeout = timeout, .owner = getpid(), .transport = "shm",
	                     .blob = &s->blob, .blob_size = sizeof s->blob };
	memcpy(s->blob.magic, magic, sizeof magic);
	s->blob.version = VERSION;
	s->blob.rank = rank;
	s->blob.size = size;
	if (rc__process_self(&s->blob.process, error) ||
	    rc__segment_create(align_up(rc__block_bytes(size), 4096) + 2 * HALF, &s->own, error)) {
		shm_destroy(&s->comm);
		return -1;
	}
	s->blob.segment = s->own.name;
	*comm = &s->comm;
	return 0;
}
