/* Chunks coming in (ObjectManagerService/Push): from gRPC's pieces straight into the arena.
 *
 * Taken are chunks of objects that this node is pulling now; others are answered and dropped, as stock does (the sender
 * cannot know, and its answer is not read). The first chunk asks the store for memory, which may take a while: chunks that
 * come meanwhile are kept unanswered, up to a limit, which holds the sender back. Large chunks are copied by the pool, so
 * that the loop is free and first touches of the arena's pages run in parallel. A chunk that is here, or on its way, is not
 * copied again, whoever sends it: a new place after a node's death completes what has come from the first.
 *
 * Chunks also come without a message: read over the fabric straight into the buffer, or cut from an answer's bytes (fetch.c). What
 * was read over the fabric counts only when the lender has confirmed it: the last chunk then asks rc__om_loan_confirm.
 *
 * A receive belongs to its want. When the want ends while copies or reads run, the receive ends with the last of them. */
#include "raylet-c/objects/internal.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum { POOL_BYTES = 256 << 10 }; /* smaller chunks are copied at once */
#define MAX_QUEUED (512ull << 20) /* bytes of chunks that wait for their memory, all objects together */
#define MAX_OBJECT (1ull << 44)

typedef struct job { /* one chunk */
	rc_link link; /* receive->waiting, or o->jobs while it is copied */
	rc_objects *o; /* NULL: the module has ended */
	rc__om_receive *receive;
	rc_request *request; /* NULL: the bytes are `owned` */
	uint8_t *owned;
	rc_view *pieces;
	size_t n_pieces;
	rc__om_chunk chunk;
	uint8_t *to;
} job;

/* ---- life ---- */

static void answer(job *j, bool ok)
{
	if (j->request && ok)
		rc_reply(j->request, (rc_view){ 0 });
	else if (j->request)
		rc_reply_error(j->request, RC_RPC_UNAVAILABLE, "this node is ending");
	free(j->owned);
	free(j->pieces);
	free(j);
}

static void drop_waiting(rc__om_receive *v, bool ok)
{
	RC_LIST_FOREACH(l, &v->waiting) {
		job *j = RC_CONTAINER(l, job, link);

		rc_list_remove(l);
		v->o->queued_bytes -= j->chunk.n;
		v->o->stats.chunks_dropped++;
		answer(j, ok);
	}
}

/* Of a receive that has no want any more and no copy running. */
static void receive_free(rc__om_receive *v)
{
	if (v->buffer)
		rc_store_abort(v->o->store, v->buffer);
	rc__om_loan_free(v);
	free(v->have);
	free(v);
}

void rc__om_receive_end(rc__om_want *w)
{
	rc__om_receive *v = w->receive;

	if (!v)
		return;
	w->receive = NULL;
	v->want = NULL;
	if (v->create)
		rc_store_create_cancel(v->o->store, v->create);
	v->create = 0;
	drop_waiting(v, !v->o->destroying);
	if (v->copying == 0)
		receive_free(v);
}

bool rc__om_receive_started(const rc__om_want *w)
{
	return w->receive && w->receive->buffer;
}

uint64_t rc__om_receive_idle_ms(const rc__om_want *w)
{
	return w->receive ? rc_now_ms() - w->receive->last_ms : 0;
}

/* ---- copying ---- */

static void copy(void *arg)
{
	job *j = arg;
	uint8_t *to = j->to;
	size_t left = j->chunk.n, offset = j->chunk.offset;

	for (size_t i = j->chunk.piece; left > 0; i++, offset = 0) {
		size_t n = j->pieces[i].n - offset;

		n = n < left ? n : left;
		memcpy(to, j->pieces[i].p + offset, n);
		to += n;
		left -= n;
	}
}

static bool have(const rc__om_receive *v, uint32_t index)
{
	return v->have[index / 8] & 1 << index % 8;
}

void rc__om_receive_seal(rc__om_receive *v)
{
	rc_store_buffer *buffer = v->buffer;
	rc_store *store = v->o->store;

	v->want->receive = NULL;
	v->buffer = NULL;
	receive_free(v);
	rc_store_seal(store, buffer); /* tells the want */
}

bool rc__om_receive_take(rc__om_receive *v, uint32_t index)
{
	if (have(v, index))
		return false;
	v->have[index / 8] |= (uint8_t)(1 << index % 8);
	v->copying++;
	return true;
}

bool rc__om_receive_put(rc__om_receive *v, uint32_t index, bool ok)
{
	v->copying--;
	v->last_ms = rc_now_ms();
	if (ok) {
		v->n_done++;
		v->o->stats.chunks_in++;
		v->o->stats.bytes_in += rc__om_chunk_length(v->total, v->o->options.chunk_size, index);
	} else {
		v->have[index / 8] &= (uint8_t)~(1 << index % 8);
	}
	if (!v->want) {
		if (v->copying == 0)
			receive_free(v);
		return false;
	}
	if (v->n_done < v->n_chunks)
		return true;
	if (rc__om_loan_confirm(v))
		return true;
	rc__om_receive_seal(v);
	return false;
}

void rc__om_receive_forget(rc__om_receive *v)
{
	memset(v->have, 0, v->n_chunks / 8 + 1);
	v->n_done = 0;
}

static void copied(job *j)
{
	rc__om_receive *v = j->receive;
	uint32_t index = j->chunk.index;

	answer(j, true);
	rc__om_receive_put(v, index, true);
}

static void copy_in_pool(void *arg)
{
	job *j = arg;
	rc_objects *o = j->o;

	copy(j);
	pthread_mutex_lock(&o->job_lock);
	o->jobs_running--;
	pthread_cond_signal(&o->job_done);
	pthread_mutex_unlock(&o->job_lock);
}

static void copied_in_pool(void *arg)
{
	job *j = arg;

	if (!j->o) {
		free(j->owned);
		free(j->pieces);
		free(j);
		return;
	}
	rc_list_remove(&j->link);
	copied(j);
}

static void start_copy(job *j)
{
	rc__om_receive *v = j->receive;
	rc_objects *o = v->o;

	j->to = v->buffer->data + (uint64_t)j->chunk.index * o->options.chunk_size;
	if (j->chunk.n < POOL_BYTES) {
		copy(j);
		copied(j);
		return;
	}
	rc_list_append(&o->jobs, &j->link);
	pthread_mutex_lock(&o->job_lock);
	o->jobs_running++;
	pthread_mutex_unlock(&o->job_lock);
	rc_loop_work(o->loop, copy_in_pool, copied_in_pool, j);
}

/* ---- memory ---- */

/* May end the receive. */
static void copy_waiting(rc__om_receive *v)
{
	rc_link ready;

	rc_list_init(&ready);
	RC_LIST_FOREACH(l, &v->waiting) { /* counted before the first copy ends, which else would be taken for the last */
		rc_list_remove(l);
		rc_list_append(&ready, l);
		v->o->queued_bytes -= RC_CONTAINER(l, job, link)->chunk.n;
		v->copying++;
	}
	RC_LIST_FOREACH(k, &ready) {
		rc_list_remove(k);
		start_copy(RC_CONTAINER(k, job, link));
	}
}

static void on_created(void *arg, rc_store_buffer *b, rc_plasma_error why)
{
	rc__om_receive *v = arg;
	rc__om_want *w = v->want;

	v->create = 0;
	if (why == RC_PE_OK) {
		v->buffer = b;
		rc__om_loan_run(v);
		copy_waiting(v); /* may end v, and w with it */
		return;
	}
	if (why == RC_PE_NO_DISK) { /* no room will come by itself: who wants it is told, as with stock */
		rc_warn("no memory and no disk space for object %s of %llu bytes: it fails", rc_id_to_hex(&v->id).s, (unsigned long long)v->total);
		rc__om_receive_end(w);
		rc__om_want_fail(w, RC_V_ERROR_OUT_OF_DISK);
		return;
	}
	if (why != RC_PE_EXISTS) /* then it is being made here: its seal is told */
		rc_warn("no memory for object %s of %llu bytes (plasma error %d): its pull is repeated", rc_id_to_hex(&v->id).s,
		        (unsigned long long)v->total, (int)why);
	rc__om_receive_end(w);
	if (!w->local)
		rc__om_want_retry(w, "no memory for it in the store");
}

static rc__om_receive *receive_new(rc__om_want *w, const rc__om_chunk *c)
{
	rc__om_receive *v = rc_alloc(sizeof *v);

	v->o = w->o;
	v->want = w;
	v->id = w->id;
	v->total = c->data_size;
	v->metadata_size = c->metadata_size;
	v->n_chunks = rc__om_chunk_count(c->data_size, w->o->options.chunk_size);
	v->have = rc_alloc(v->n_chunks / 8 + 1);
	rc_list_init(&v->waiting);
	w->receive = v;
	return v;
}

/* May end the receive. */
static void ask_memory(rc__om_receive *v, const rc_owner *owner)
{
	rc_store_new object = { .id = v->id, .owner = *owner, .data_size = v->total - v->metadata_size, .metadata_size = v->metadata_size,
	                        .source = RC_RECEIVED };
	rc__om_want *w = v->want;
	uint64_t request = rc_store_create_object(v->o->store, &object, on_created, v);

	if (request && w->receive == v)
		v->create = request;
}

/* ---- the service ---- */

static void refuse(job *j, const char *text)
{
	rc_warn("Push from %s: %s", rc_request_peer(j->request), text);
	rc_reply_error(j->request, RC_RPC_INVALID, "%s", text);
	free(j->pieces);
	free(j);
}

static bool check(rc_objects *o, const rc__om_chunk *c, const rc__om_receive *v, rc_error *e)
{
	uint32_t n_chunks;

	if (c->data_size > MAX_OBJECT) {
		rc_fail(e, RC_E_INVALID, "Push of object %s: data_size %llu is more than an object can have", rc_id_to_hex(&c->object).s,
		        (unsigned long long)c->data_size);
		return false;
	}
	n_chunks = rc__om_chunk_count(c->data_size, o->options.chunk_size);
	if (c->index >= n_chunks || c->n != rc__om_chunk_length(c->data_size, o->options.chunk_size, c->index)) {
		rc_fail(e, RC_E_INVALID, "Push of object %s: chunk %u of %u with %zu bytes does not fit data_size %llu and chunks of %llu bytes",
		        rc_id_to_hex(&c->object).s, c->index, n_chunks, c->n, (unsigned long long)c->data_size,
		        (unsigned long long)o->options.chunk_size);
		return false;
	}
	if (v && (v->total != c->data_size || v->metadata_size != c->metadata_size)) {
		rc_fail(e, RC_E_INVALID, "Push of object %s: data_size %llu and metadata_size %llu differ from %llu and %llu of earlier chunks",
		        rc_id_to_hex(&c->object).s, (unsigned long long)c->data_size, (unsigned long long)c->metadata_size,
		        (unsigned long long)v->total, (unsigned long long)v->metadata_size);
		return false;
	}
	return true;
}

static void drop(job *j)
{
	j->o->stats.chunks_dropped++;
	answer(j, true);
}

void rc__om_receive_serve(rc_objects *o, rc_request *r, rc_view bytes)
{
	job *j = rc_alloc(sizeof *j);
	size_t n = rc_request_slices(r);
	rc__om_receive *v;
	rc__om_want *w;
	rc_error e;

	j->o = o;
	j->request = r;
	j->n_pieces = bytes.n ? 1 : n;
	j->pieces = rc_alloc((j->n_pieces + 1) * sizeof *j->pieces);
	for (size_t i = 0; i < j->n_pieces; i++)
		j->pieces[i] = bytes.n ? bytes : rc_request_slice(r, i);
	if (rc__om_chunk_parse(o->dialect, &o->push_fields, j->pieces, j->n_pieces, &j->chunk, &e) < 0) {
		refuse(j, e.text);
		return;
	}
	w = rc_map_get_id(o->wants, &j->chunk.object);
	v = w ? w->receive : NULL;
	if (!check(o, &j->chunk, v, &e)) {
		refuse(j, e.text);
		return;
	}
	if (!w || !w->active || w->local || w->state == RC__OM_RESTORING) {
		drop(j);
		return;
	}
	if (!v)
		v = receive_new(w, &j->chunk);
	v->last_ms = rc_now_ms();
	rc__om_want_chunk(w);
	if (have(v, j->chunk.index) || (!v->buffer && o->queued_bytes + j->chunk.n > MAX_QUEUED)) {
		drop(j);
		return;
	}
	v->have[j->chunk.index / 8] |= (uint8_t)(1 << j->chunk.index % 8);
	j->receive = v;
	if (v->buffer) {
		v->copying++;
		start_copy(j);
		return;
	}
	rc_list_append(&v->waiting, &j->link);
	o->queued_bytes += j->chunk.n;
	if (!v->create)
		ask_memory(v, j->chunk.owner.worker_id.n ? &j->chunk.owner : &w->owner);
}

/* ---- what comes without a Push message ---- */

rc__om_receive *rc__om_receive_begin(rc__om_want *w, uint64_t data_size, uint64_t metadata_size, rc_error *e)
{
	rc__om_chunk c = { .object = w->id, .data_size = data_size + metadata_size, .metadata_size = metadata_size };
	rc__om_receive *v = w->receive;

	c.n = (size_t)rc__om_chunk_length(c.data_size, w->o->options.chunk_size, 0);
	if (!check(w->o, &c, v, e))
		return NULL;
	v = v ? v : receive_new(w, &c);
	v->last_ms = rc_now_ms();
	return v;
}

void rc__om_receive_memory(rc__om_receive *v, const rc_owner *owner)
{
	if (v->buffer)
		rc__om_loan_run(v);
	else if (!v->create)
		ask_memory(v, owner->worker_id.n ? owner : &v->want->owner);
}

void rc__om_receive_bytes(rc__om_want *w, rc_view bytes, uint64_t metadata_size, const rc_owner *owner)
{
	rc_objects *o = w->o;
	rc__om_receive *v;
	rc_error e;

	v = rc__om_receive_begin(w, bytes.n - metadata_size, metadata_size, &e);
	if (!v || o->queued_bytes + bytes.n > MAX_QUEUED) {
		rc__om_want_retry(w, v ? "too much waits for memory" : e.text);
		return;
	}
	for (uint32_t i = 0; i < v->n_chunks; i++) {
		job *j = rc_alloc(sizeof *j);
		size_t n = (size_t)rc__om_chunk_length(bytes.n, o->options.chunk_size, i);

		if (have(v, i)) {
			free(j);
			continue;
		}
		v->have[i / 8] |= (uint8_t)(1 << i % 8);
		j->o = o;
		j->receive = v;
		j->owned = rc_alloc(n + 1);
		if (n)
			memcpy(j->owned, bytes.p + (uint64_t)i * o->options.chunk_size, n);
		j->n_pieces = 1;
		j->pieces = rc_alloc(sizeof *j->pieces);
		j->pieces[0] = rc_view_of(j->owned, n);
		j->chunk = (rc__om_chunk){ .object = w->id, .index = i, .n = n };
		rc_list_append(&v->waiting, &j->link);
		o->queued_bytes += n;
	}
	if (v->buffer)
		copy_waiting(v);
	else
		rc__om_receive_memory(v, owner);
}

void rc__om_receives_destroy(rc_objects *o)
{
	pthread_mutex_lock(&o->job_lock);
	while (o->jobs_running > 0)
		pthread_cond_wait(&o->job_done, &o->job_lock);
	pthread_mutex_unlock(&o->job_lock);
	RC_LIST_FOREACH(l, &o->jobs) { /* their `copied_in_pool` comes yet, and only frees them */
		job *j = RC_CONTAINER(l, job, link);
		rc__om_receive *v = j->receive;

		rc_list_remove(l);
		if (j->request)
			rc_reply_error(j->request, RC_RPC_UNAVAILABLE, "this node is ending");
		j->o = NULL;
		if (--v->copying == 0 && !v->want)
			receive_free(v);
	}
}
