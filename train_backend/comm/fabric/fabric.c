/* Collectives of ranks of several hosts over libfabric, CPU memory. mesh.h moves the data; here is what goes where.
 *
 * Every rank sends straight to the one that needs it: as many bytes as a ring moves, in one step, and sums can be made in the order of
 * ranks, so that they have the bits that shared memory gives. A broadcast of much data to more than one rank goes in shares, which
 * the ranks then hand to each other, so that the root sends each byte about twice and not to everyone.
 *
 * A blob holds the addresses of an endpoint of each provider that this machine has; connect takes the first one of rank 0's that all ranks
 * have, and closes the others. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "train_backend/comm/comm_ops.h"
#include "train_backend/comm/fabric/mesh.h"
#include "train_backend/comm/sum.h"

enum {
	PIECE = 1 << 20,        /* bytes of a message at most */
	SUM_PIECE = 256 << 10,  /* where it is summed: stays in the caches */
	SUM_DEPTH = 4,
	SUM_ROOM = 16 << 20,    /* bytes of bounce memory at most, where pieces of MIN_PIECE allow */
	MIN_PIECE = 16 << 10,
	SMALL = 4096,           /* an all-reduce up to here is summed whole by every rank: one exchange */
	SHARED = 256 << 10,     /* a broadcast from here on goes in shares */
	ALIGN = 64,
	MAX_RANKS = 512,
	VERSION = 1,
	MAX_BLOB = 2048,
};

_Static_assert((int)SUM_DEPTH <= (int)RC__MESH_DEPTH, "the mesh counts so many pieces");

/* A blob: this, then `offers` times an offer. Ranks are of one machine type and one build, as for shm. */
typedef struct blob {
	char magic[8];
	uint32_t version;
	int32_t rank, size, offers;
	unsigned char key[RC__MESH_ID]; /* random */
	rc__process process;
	char host[64];
} blob;

typedef struct offer {
	char provider[RC_FABRIC_PROVIDER], place[RC_FABRIC_PLACE];
	uint8_t address_n;
	uint32_t protocol, protocol_version;
	uint8_t address[96];
} offer;

static const char magic[8] = "rc_fab";

typedef struct window {
	void *base;
	size_t bytes;
} window;

typedef struct fabric {
	rc_comm comm;
	_Alignas(blob) char bytes[MAX_BLOB]; /* the blob */
	rc_endpoint *endpoints[RC_FABRIC_MAX_OFFERS]; /* of the blob's offers; NULL once connected */
	rc__mesh mesh;
	bool tried; /* connect was called */
	char *bounce;
	size_t bounce_bytes;
	window *windows;
	int window_count;
} fabric;

static fabric *fabric_of(rc_comm *comm)
{
	return (fabric *)comm;
}

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t align_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static double factor(const fabric *f, rc_redop op)
{
	return op == RC_AVG ? 1.0 / f->comm.size : 1.0;
}

/* ---- moves ---- */

/* The arrays of a move, for `size` ranks, all zero. */
typedef struct tables {
	const char *send[MAX_RANKS];
	char *recv[MAX_RANKS];
	size_t send_bytes[MAX_RANKS], recv_bytes[MAX_RANKS];
} tables;

static rc__move move_of(const fabric *f, tables *t, size_t piece)
{
	size_t size = (size_t)f->comm.size, most = (size_t)rc_endpoint_offer(f->mesh.endpoint)->max_message;

	memset(t->send_bytes, 0, size * sizeof *t->send_bytes);
	memset(t->recv_bytes, 0, size * sizeof *t->recv_bytes);
	return (rc__move){ .send = t->send, .recv = t->recv, .send_bytes = t->send_bytes, .recv_bytes = t->recv_bytes,
	                   .piece = min(piece, most / ALIGN * ALIGN) };
}

static bool over(const fabric *f)
{
	return atomic_load(&f->mesh.broken);
}

/* Bounce memory for every rank, depth pieces each, of at most `bytes`; the size of a piece depends on the number of ranks alone. */
static int bounce(fabric *f, size_t piece, tables *t, rc__move *move, rc_error *error)
{
	size_t size = (size_t)f->comm.size, room = SUM_ROOM / SUM_DEPTH / size / ALIGN * ALIGN, bytes;

	*move = move_of(f, t, min(piece, room < MIN_PIECE ? MIN_PIECE : room));
	move->depth = SUM_DEPTH;
	bytes = size * SUM_DEPTH * move->piece;
	if (bytes > f->bounce_bytes) {
		char *memory = aligned_alloc(4096, align_up(bytes, 4096));

		if (!memory)
			return rc_fail(error, RC_E_NO_MEMORY, "no memory for %zu bytes that come from other ranks", bytes);
		free(f->bounce);
		f->bounce = memory;
		f->bounce_bytes = bytes;
	}
	for (size_t q = 0; q < size; q++)
		t->recv[q] = f->bounce + q * SUM_DEPTH * move->piece;
	return 0;
}

static int run(fabric *f, rc_tag tag, const rc__call *call, rc__move *move, rc_error *error)
{
	return rc__mesh_leave(&f->mesh, rc__mesh_enter(&f->mesh, tag, call, NULL, move, error));
}

/* What a broken communicator says, before anything of it is used. */
static int usable(fabric *f, rc_error *error)
{
	return over(f) ? rc__mesh_check(&f->mesh, error) : 0;
}

static int fabric_all_gather(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error)
{
	fabric *f = fabric_of(comm);
	char *own = (char *)recv + (size_t)comm->rank * bytes;
	tables t;
	rc__move move;

	(void)stream;
	if (usable(f, error))
		return -1;
	move = move_of(f, &t, PIECE);
	for (int q = 0; q < comm->size; q++) {
		t.send[q] = send;
		t.recv[q] = (char *)recv + (size_t)q * bytes;
		t.send_bytes[q] = t.recv_bytes[q] = bytes;
	}
	if (run(f, tag, &(rc__call){ .kind = RC__ALL_GATHER, .bytes = bytes }, &move, error))
		return -1;
	if (own != send && bytes)
		memcpy(own, send, bytes);
	return 0;
}

static int fabric_all_to_all(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error)
{
	fabric *f = fabric_of(comm);
	size_t own = (size_t)comm->rank * bytes;
	tables t;
	rc__move move;

	(void)stream;
	if (usable(f, error))
		return -1;
	move = move_of(f, &t, PIECE);
	for (int q = 0; q < comm->size; q++) {
		t.send[q] = (const char *)send + (size_t)q * bytes;
		t.recv[q] = (char *)recv + (size_t)q * bytes;
		t.send_bytes[q] = t.recv_bytes[q] = bytes;
	}
	if (run(f, tag, &(rc__call){ .kind = RC__ALL_TO_ALL, .bytes = bytes }, &move, error))
		return -1;
	if (bytes)
		memmove((char *)recv + own, (const char *)send + own, bytes);
	return 0;
}

/* ---- pieces that are laid out in between ---- */

typedef struct spread {
	const fabric *f;
	const rc__move *move;
	size_t element, count;
	const rc_piece *pieces;
	char *full;
} spread;

/* Bytes [begin, begin + n) of rank q's chunk, which lie at `from`, to where they belong. */
static void lay_out(const spread *s, size_t q, const char *from, size_t begin, size_t n)
{
	for (size_t i = 0; i < s->count; i++) {
		const rc_piece *p = &s->pieces[i];
		size_t first = min(q * p->count, p->total), there = min(p->count, p->total - first) * s->element, at = p->chunk * s->element;
		size_t low = at > begin ? at : begin, high = min(at + there, begin + n);

		if (low < high)
			memcpy(s->full + (p->full + first) * s->element + (low - at), from + (low - begin), high - low);
	}
}

static void spread_come(void *arg, size_t k, size_t n)
{
	const spread *s = arg;

	for (int q = 0; q < s->f->comm.size; q++)
		if (q != s->f->comm.rank)
			lay_out(s, (size_t)q, s->move->recv[q] + k % s->move->depth * s->move->piece, k * s->move->piece, n);
}

static int fabric_gather_pieces(rc_comm *comm, rc_tag tag, const void *send, size_t chunk, size_t element, const rc_piece *pieces,
                                size_t count, void *full, rc_error *error)
{
	fabric *f = fabric_of(comm);
	size_t bytes = chunk * element;
	spread s = { .f = f, .element = element, .count = count, .pieces = pieces, .full = full };
	tables t;
	rc__move move;

	if (usable(f, error) || bounce(f, SUM_PIECE, &t, &move, error))
		return -1;
	for (int q = 0; q < comm->size; q++) {
		t.send[q] = send;
		t.send_bytes[q] = t.recv_bytes[q] = bytes;
	}
	s.move = &move;
	move.come = spread_come;
	move.arg = &s;
	if (run(f, tag, &(rc__call){ .kind = RC__GATHER_PIECES, .bytes = bytes }, &move, error))
		return -1;
	lay_out(&s, (size_t)comm->rank, send, 0, bytes);
	return 0;
}

/* ---- sums ---- */

typedef struct sum {
	const fabric *f;
	const rc__move *move;
	const char *own; /* this rank's terms */
	char *to;
	rc_dtype dtype;
	double scale;
} sum;

static void sum_come(void *arg, size_t k, size_t n)
{
	const sum *s = arg;
	const void *from[s->f->comm.size];
	size_t begin = k * s->move->piece;

	for (int q = 0; q < s->f->comm.size; q++)
		from[q] = q == s->f->comm.rank ? s->own + begin : s->move->recv[q] + k % s->move->depth * s->move->piece;
	rc__sum(s->to + begin, from, s->f->comm.size, n / rc_dtype_size(s->dtype), s->dtype, s->scale);
}

static int fabric_reduce_scatter(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t count, rc_dtype dtype, rc_redop op,
                                 rc_stream stream, rc_error *error)
{
	fabric *f = fabric_of(comm);
	size_t bytes = count * rc_dtype_size(dtype);
	sum s = { .f = f, .own = (const char *)send + (size_t)comm->rank * bytes, .to = recv, .dtype = dtype, .scale = factor(f, op) };
	const void *alone[1] = { send };
	tables t;
	rc__move move;

	(void)stream;
	if (usable(f, error) || bounce(f, SUM_PIECE, &t, &move, error))
		return -1;
	for (int q = 0; q < comm->size; q++) {
		t.send[q] = (const char *)send + (size_t)q * bytes;
		t.send_bytes[q] = t.recv_bytes[q] = bytes;
	}
	s.move = &move;
	move.come = sum_come;
	move.arg = &s;
	if (run(f, tag, &(rc__call){ .kind = RC__REDUCE_SCATTER, .dtype = dtype, .op = op, .bytes = bytes }, &move, error))
		return -1;
	if (comm->size == 1)
		rc__sum(recv, alone, 1, count, dtype, s.scale);
	return 0;
}

/* Every rank sums all; what is sent must stay until it has gone, so that the sum is made last. */
static int reduce_small(fabric *f, rc_tag tag, const rc__call *call, void *data, size_t count, rc_error *error)
{
	const void *from[f->comm.size];
	tables t;
	rc__move move;

	if (bounce(f, SUM_PIECE, &t, &move, error))
		return -1;
	move.depth = 0; /* one piece of each rank, which stays where it came */
	for (int q = 0; q < f->comm.size; q++) {
		t.send[q] = data;
		t.send_bytes[q] = t.recv_bytes[q] = call->bytes;
		from[q] = q == f->comm.rank ? data : t.recv[q];
	}
	if (run(f, tag, call, &move, error))
		return -1;
	if (count)
		rc__sum(data, from, f->comm.size, count, call->dtype, factor(f, call->op));
	return 0;
}

/* Slice q of the data: where rank q sums. */
static size_t slice_of(const fabric *f, size_t bytes, int q, size_t *begin)
{
	size_t slice = align_up((bytes + (size_t)f->comm.size - 1) / (size_t)f->comm.size, ALIGN);

	*begin = min(slice * (size_t)q, bytes);
	return min(slice, bytes - *begin);
}

/* Every rank hands its slice to all who lack it. complete: a rank that has all already, or -1. */
static void hand_round(const fabric *f, tables *t, rc__move *move, char *data, size_t bytes, int complete)
{
	int rank = f->comm.rank;
	size_t begin, own = slice_of(f, bytes, rank, &begin);

	*move = move_of(f, t, PIECE);
	for (int q = 0; q < f->comm.size; q++) {
		size_t at, n = slice_of(f, bytes, q, &at);

		t->send[q] = data + begin;
		t->recv[q] = data + at;
		t->send_bytes[q] = q == complete ? 0 : own;
		t->recv_bytes[q] = rank == complete ? 0 : n;
	}
}

static int fabric_all_reduce(rc_comm *comm, rc_tag tag, void *data, size_t count, rc_dtype dtype, rc_redop op, rc_stream stream,
                             rc_error *error)
{
	fabric *f = fabric_of(comm);
	size_t bytes = count * rc_dtype_size(dtype), begin, own = slice_of(f, bytes, comm->rank, &begin);
	rc__call call = { .kind = RC__ALL_REDUCE, .dtype = dtype, .op = op, .bytes = bytes };
	sum s = { .f = f, .own = (const char *)data + begin, .to = (char *)data + begin, .dtype = dtype, .scale = factor(f, op) };
	tables t;
	rc__move move;

	(void)stream;
	if (usable(f, error))
		return -1;
	if (bytes <= SMALL || comm->size == 1)
		return reduce_small(f, tag, &call, data, count, error);
	if (bounce(f, SUM_PIECE, &t, &move, error))
		return -1;
	for (int q = 0; q < comm->size; q++) {
		size_t at;

		t.send_bytes[q] = slice_of(f, bytes, q, &at);
		t.send[q] = (const char *)data + at;
		t.recv_bytes[q] = own;
	}
	s.move = &move;
	move.come = sum_come;
	move.arg = &s;
	if (rc__mesh_enter(&f->mesh, tag, &call, NULL, &move, error))
		return rc__mesh_leave(&f->mesh, -1);
	hand_round(f, &t, &move, data, bytes, -1);
	return rc__mesh_leave(&f->mesh, rc__mesh_move(&f->mesh, &move, error));
}

static int fabric_broadcast(rc_comm *comm, rc_tag tag, void *data, size_t bytes, int root, rc_stream stream, rc_error *error)
{
	fabric *f = fabric_of(comm);
	bool shares = bytes >= SHARED && comm->size > 2;
	rc__call call = { .kind = RC__BROADCAST, .bytes = bytes, .root = root };
	tables t;
	rc__move move;

	(void)stream;
	if (usable(f, error))
		return -1;
	move = move_of(f, &t, PIECE);
	for (int q = 0; q < comm->size; q++) {
		size_t at = 0, n = shares ? slice_of(f, bytes, comm->rank == root ? q : comm->rank, &at) : bytes;

		t.send[q] = t.recv[q] = (char *)data + at;
		t.send_bytes[q] = comm->rank == root ? n : 0;
		t.recv_bytes[q] = q == root ? n : 0;
	}
	if (!shares)
		return run(f, tag, &call, &move, error);
	if (rc__mesh_enter(&f->mesh, tag, &call, NULL, &move, error))
		return rc__mesh_leave(&f->mesh, -1);
	hand_round(f, &t, &move, data, bytes, root);
	return rc__mesh_leave(&f->mesh, rc__mesh_move(&f->mesh, &move, error));
}

static int fabric_barrier(rc_comm *comm, rc_tag tag, rc_error *error)
{
	return run(fabric_of(comm), tag, &(rc__call){ .kind = RC__BARRIER }, NULL, error);
}

/* Nothing is queued here. */
static int fabric_group(rc_comm *comm, rc_error *error)
{
	return usable(fabric_of(comm), error);
}

static int fabric_watch(rc_comm *comm, rc_tag tag, rc_stream stream, rc_error *error)
{
	(void)tag, (void)stream;
	return rc__mesh_check(&fabric_of(comm)->mesh, error);
}

static int fabric_check(rc_comm *comm, rc_error *error)
{
	return rc__mesh_check(&fabric_of(comm)->mesh, error);
}

static void fabric_abort(rc_comm *comm, const char *reason)
{
	rc__mesh_abort(&fabric_of(comm)->mesh, reason);
}

/* ---- windows: memory of this rank, which every rank has or none ---- */

static int fabric_window(rc_comm *comm, size_t bytes, void **base, rc_error *error)
{
	fabric *f = fabric_of(comm);
	window *windows = realloc(f->windows, (size_t)(f->window_count + 1) * sizeof *windows);
	window w = { MAP_FAILED, align_up(bytes ? bytes : 1, 4096) };
	rc_error cause = { 0 };

	if (windows)
		f->windows = windows;
	/* MAP_POPULATE: room that is not there is found now. */
	w.base = mmap(NULL, w.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (!windows || w.base == MAP_FAILED)
		rc_fail(&cause, RC_E_NO_MEMORY, "%s", windows ? strerror(errno) : "no memory for its table");
	if (rc__mesh_enter(&f->mesh, (rc_tag){ 0 }, &(rc__call){ .kind = RC__WINDOW, .bytes = bytes }, &cause, NULL, error))
		goto fail;
	for (int q = 0; q < comm->size; q++) {
		const rc__mesh_message *said = rc__mesh_come(&f->mesh, q);

		if (said->code) {
			rc_fail(error, (rc_code)said->code, "window of %zu bytes: rank %d: %.*s", bytes, q, 300, said->text);
			goto fail;
		}
	}
	f->windows[f->window_count++] = w;
	*base = w.base;
	return rc__mesh_leave(&f->mesh, 0);
fail:
	if (w.base != MAP_FAILED)
		munmap(w.base, w.bytes);
	return rc__mesh_leave(&f->mesh, -1);
}

/* ---- start and end ---- */

static void close_endpoints(fabric *f)
{
	for (int i = 0; i < RC_FABRIC_MAX_OFFERS; i++) {
		rc_endpoint_close(f->endpoints[i]);
		f->endpoints[i] = NULL;
	}
}

static void fabric_destroy(rc_comm *comm)
{
	fabric *f = fabric_of(comm);

	rc__mesh_close(&f->mesh);
	close_endpoints(f);
	for (int i = 0; i < f->window_count; i++)
		munmap(f->windows[i].base, f->windows[i].bytes);
	free(f->windows);
	free(f->bounce);
	free(f);
}

/* A rank's blob, taken apart. */
typedef struct known {
	blob head;
	offer offers[RC_FABRIC_MAX_OFFERS];
	rc_fabric_offer plain[RC_FABRIC_MAX_OFFERS]; /* the same, as the choice wants them */
} known;

static int read_blob(const fabric *f, int rank, const void *bytes, size_t size, known *k, rc_error *error)
{
	const blob *h = &k->head;

	if (size < sizeof *h)
		return rc_fail(error, RC_E_UNSUPPORTED, "rank %d has no fabric to offer (its blob has %zu bytes)", rank, size);
	memcpy(&k->head, bytes, sizeof *h);
	if (memcmp(h->magic, magic, sizeof magic) || h->version != VERSION || h->offers < 1 || h->offers > RC_FABRIC_MAX_OFFERS ||
	    size != sizeof *h + (size_t)h->offers * sizeof(offer))
		return rc_fail(error, RC_E_UNSUPPORTED, "rank %d has no fabric to offer, or of another version", rank);
	if (h->rank != rank || h->size != f->comm.size)
		return rc_fail(error, RC_E_INVALID, "the blob at place %d of %d is of rank %d of %d", rank, f->comm.size, h->rank, h->size);
	memcpy(k->offers, (const char *)bytes + sizeof *h, (size_t)h->offers * sizeof(offer));
	k->head.host[sizeof k->head.host - 1] = k->head.process.boot[sizeof k->head.process.boot - 1] =
	        k->head.process.pids[sizeof k->head.process.pids - 1] = '\0';
	for (int i = 0; i < h->offers; i++) {
		const offer *o = &k->offers[i];

		if (o->address_n == 0 || o->address_n > sizeof o->address || memchr(o->provider, 0, sizeof o->provider) == NULL ||
		    memchr(o->place, 0, sizeof o->place) == NULL)
			return rc_fail(error, RC_E_INVALID, "the blob of rank %d is not whole", rank);
		k->plain[i] = (rc_fabric_offer){ .protocol = o->protocol, .protocol_version = o->protocol_version, .read = true };
		memcpy(k->plain[i].provider, o->provider, sizeof o->provider);
		memcpy(k->plain[i].place, o->place, sizeof o->place);
	}
	return 0;
}

static void name_offers(const known *k, char *text, size_t room)
{
	size_t n = 0;

	for (int i = 0; i < k->head.offers && n < room; i++)
		n += (size_t)snprintf(text + n, room - n, "%s%s", i ? ", " : "", k->plain[i].provider);
}

/* The place in rank 0's offers of the first that all ranks have. */
static int choose(const known *all, int size, rc_error *error)
{
	char first[120], other[120];
	int lacks = 0; /* the rank that had none of those left */

	for (int i = 0; i < all[0].head.offers; i++) {
		int q = 1;

		while (q < size && rc_fabric_choose(&all[0].plain[i], 1, all[q].plain, (size_t)all[q].head.offers) == 0)
			q++;
		if (q == size)
			return i;
		lacks = q;
	}
	name_offers(&all[0], first, sizeof first);
	name_offers(&all[lacks], other, sizeof other);
	return rc_fail(error, RC_E_UNSUPPORTED, "the ranks have no fabric provider in common: rank 0 (on %s) has %s, rank %d (on %s) has %s",
	               all[0].head.host, first, lacks, all[lacks].head.host, other);
}

/* Where rank q's offer is that is the same as rank 0's chosen one. */
static const offer *same_offer(const known *all, int chosen, int q)
{
	for (int i = 0; i < all[q].head.offers; i++)
		if (rc_fabric_same(&all[0].plain[chosen], &all[q].plain[i]))
			return &all[q].offers[i];
	return NULL;
}

static int meet(fabric *f, const known *all, int chosen, rc_error *error)
{
	const offer *own = same_offer(all, chosen, f->comm.rank);
	rc__mesh *m = &f->mesh;
	int place = (int)(own - all[f->comm.rank].offers);
	unsigned turn = 0;

	m->comm = &f->comm;
	m->peers = calloc((size_t)f->comm.size, sizeof *m->peers);
	if (!m->peers)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for %d ranks", f->comm.size);
	m->endpoint = f->endpoints[place];
	f->endpoints[place] = NULL;
	close_endpoints(f);
	snprintf(f->comm.transport, sizeof f->comm.transport, "fabric %.20s", own->provider);
	for (int q = 0; q < f->comm.size; q++) {
		const offer *o = same_offer(all, chosen, q);
		rc_error cause;

		m->peers[q].fd = -1;
		m->peers[q].process = all[q].head.process;
		memcpy(m->peers[q].host, all[q].head.host, sizeof m->peers[q].host);
		for (int i = 0; i < RC__MESH_ID; i++, turn += 7)
			m->id[i] = (unsigned char)((m->id[i] << 1 | m->id[i] >> 7) + (all[q].head.key[i] ^ turn));
		if (q != f->comm.rank && rc_endpoint_peer(m->endpoint, rc_view_of(o->address, o->address_n), &m->peers[q].address, &cause))
			return rc_fail(error, cause.code, "rank %d: %s", q, cause.text);
	}
	if (rc__mesh_open(m, error))
		return -1;
	return rc__mesh_leave(m, rc__mesh_enter(m, (rc_tag){ 0 }, &(rc__call){ .kind = RC__CONNECT }, NULL, NULL, error));
}

static int fabric_connect(rc_comm *comm, const void *const *blobs, const size_t *sizes, rc_error *error)
{
	fabric *f = fabric_of(comm);
	known *all = calloc((size_t)comm->size, sizeof *all);
	int result = 0, chosen;

	if (!all) {
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for %d ranks", comm->size);
	} else if (f->tried) {
		result = rc_fail(error, RC_E_INVALID, "a communicator whose connect failed cannot connect again");
	} else {
		f->tried = true;
		for (int q = 0; q < comm->size && result == 0; q++)
			result = read_blob(f, q, blobs[q], sizes[q], &all[q], error);
		if (result == 0 && memcmp(all[comm->rank].head.key, ((const blob *)(const void *)f->bytes)->key, RC__MESH_ID))
			result = rc_fail(error, RC_E_INVALID, "the blob at place %d is not the one that rank %d made", comm->rank, comm->rank);
		chosen = result ? -1 : choose(all, comm->size, error);
		result = chosen < 0 ? -1 : meet(f, all, chosen, error);
	}
	free(all);
	return result;
}

static const rc__comm_ops ops = {
	.connect = fabric_connect,
	.destroy = fabric_destroy,
	.window = fabric_window,
	.all_gather = fabric_all_gather,
	.gather_pieces = fabric_gather_pieces,
	.reduce_scatter = fabric_reduce_scatter,
	.all_reduce = fabric_all_reduce,
	.all_to_all = fabric_all_to_all,
	.broadcast = fabric_broadcast,
	.barrier = fabric_barrier,
	.group_begin = fabric_group,
	.group_end = fabric_group,
	.watch = fabric_watch,
	.check = fabric_check,
	.abort = fabric_abort,
};

/* libfabric stays in the process once it was opened, so it is opened once. */
static const rc_fabric_library *library(rc_error *error)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static rc_fabric_library *opened;

	pthread_mutex_lock(&lock);
	if (!opened)
		opened = rc_fabric_library_open(NULL, error);
	pthread_mutex_unlock(&lock);
	return opened;
}

/* An endpoint of every offer that can be opened; their descriptions behind the blob's head. */
static int open_offers(fabric *f, const char *providers, const char *ip, rc_error *error)
{
	const rc_fabric_library *l = library(error);
	rc_fabric_settings settings = { .providers = providers, .ip = ip };
	rc_fabric_offer found[RC_FABRIC_MAX_OFFERS];
	blob *head = (blob *)(void *)f->bytes;
	size_t n = l ? rc_fabric_offers(l, &settings, found, error) : 0;
	rc_error why = { 0 };

	if (n == 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		rc_endpoint *endpoint = rc_endpoint_open(l, &found[i], ip, &why);
		rc_view address = endpoint ? rc_endpoint_address(endpoint) : (rc_view){ 0 };
		offer o = { .address_n = (uint8_t)address.n, .protocol = found[i].protocol, .protocol_version = found[i].protocol_version };

		if (!endpoint || address.n > sizeof o.address) {
			rc_endpoint_close(endpoint);
			continue;
		}
		memcpy(o.provider, found[i].provider, sizeof o.provider);
		memcpy(o.place, found[i].place, sizeof o.place);
		memcpy(o.address, address.p, address.n);
		memcpy(f->bytes + sizeof *head + (size_t)head->offers * sizeof o, &o, sizeof o);
		f->endpoints[head->offers++] = endpoint;
	}
	return head->offers ? 0 : rc_fail(error, why.code ? why.code : RC_E_UNAVAILABLE, "no endpoint can be opened: %s", why.text);
}

int rc_comm_fabric_prepare(int rank, int size, const char *providers, const char *ip, double timeout, rc_comm **comm, rc_error *error)
{
	_Static_assert(sizeof(blob) + RC_FABRIC_MAX_OFFERS * sizeof(offer) <= MAX_BLOB, "every offer has room");
	blob *head;
	fabric *f;

	if (size < 1 || size > MAX_RANKS || rank < 0 || rank >= size)
		return rc_fail(error, RC_E_INVALID, "rank %d of %d: fabric serves 1 to %d ranks", rank, size, MAX_RANKS);
	if (!(timeout > 0 && timeout < 1e9))
		return rc_fail(error, RC_E_INVALID, "a timeout of %g s is not a positive number of seconds", timeout);
	f = calloc(1, sizeof *f);
	if (!f)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for a communicator");
	f->comm = (rc_comm){ .ops = &ops, .rank = rank, .size = size, .timeout = timeout, .owner = getpid(), .transport = "fabric",
	                     .blob = f->bytes };
	head = (blob *)(void *)f->bytes;
	memcpy(head->magic, magic, sizeof magic);
	head->version = VERSION;
	head->rank = rank;
	head->size = size;
	gethostname(head->host, sizeof head->host - 1);
	if (getrandom(head->key, sizeof head->key, 0) != sizeof head->key)
		rc_fail(error, RC_E_SYSTEM, "no random numbers: %s", strerror(errno));
	else if (rc__process_self(&head->process, error) == 0 &&
	         open_offers(f, providers && *providers ? providers : "efa,tcp,net,sockets", ip, error) == 0) {
		f->comm.blob_size = sizeof *head + (size_t)head->offers * sizeof(offer);
		*comm = &f->comm;
		return 0;
	}
	fabric_destroy(&f->comm);
	return -1;
}
