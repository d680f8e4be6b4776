/* Chunks going out: what another node's Pull asks for (src/ray/object_manager/push_manager.cc).
 *
 * The object is held in the store while it is sent, and gRPC sends from the arena without a copy; a spilled object is read
 * from its file chunk by chunk. The requester's address is the one the head knows. One push per (node, object): asked again
 * meanwhile, all chunks are sent again from where it is, since the receiver may have dropped earlier ones. A push has a
 * window of chunks in flight, and all together have object_manager_max_bytes_in_flight. What is not here is ignored: the
 * requester asks elsewhere after a while. The first failed chunk, or the node's death, ends a push; the receiver asks again.
 * A pull by a node that the head has not told of yet (it has just joined) is kept until it does. */
#include "raylet-c/objects/internal.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum {
	WINDOW = 8,        /* chunks in flight of one push */
	SPILLED_WINDOW = 3,
	MAX_PUSHES = 100000,
	CHUNK_TIMEOUT_MS = 300000, /* a receiver may be waiting for memory */
	MAX_SPILLED_CHUNK = 64 << 20, /* rc_store_read_spilled */
	MAX_UNKNOWN = 1000,           /* pulls by nodes not known yet */
	UNKNOWN_MS = 10000,
};

typedef struct unknown_pull {
	rc_link link; /* o->unknown_pulls, oldest first */
	rc_id node, object;
	uint64_t since;
} unknown_pull;

typedef struct lent { /* outlives the push until gRPC has let go of the bytes */
	rc_store *store;
	const rc_hold *hold;
	unsigned refs;
} lent;

struct rc__om_push {
	rc_link order;
	rc_objects *o;
	uint8_t key[RC_NODE_ID + RC_OBJECT_ID];
	rc_id node, push_id;
	char target[RC__OM_ADDRESS];
	rc__om_chunk chunk; /* what all chunks have in common */
	lent *lent;         /* NULL: spilled */
	uint32_t n_chunks, next, left;
	unsigned in_flight;
	rc_link calls; /* of flight */
};

typedef struct flight { /* one chunk on its way */
	rc_link link; /* push->calls, or o->reads while its bytes are read */
	rc_objects *o;
	rc__om_push *push; /* NULL while reading: the push has ended */
	rc__om_call *call;
	uint32_t index;
	size_t n;
} flight;

static void pump(rc_objects *o);

/* ---- life ---- */

static void lent_unref(void *arg)
{
	lent *l = arg;

	if (--l->refs > 0)
		return;
	rc_store_release(l->store, l->hold);
	free(l);
}

static void push_free(rc__om_push *p)
{
	rc_objects *o = p->o;

	RC_LIST_FOREACH(l, &p->calls) {
		flight *f = RC_CONTAINER(l, flight, link);

		rc__om_drop(f->call);
		o->bytes_in_flight -= f->n;
		rc_list_remove(l);
		free(f);
	}
	RC_LIST_FOREACH(l, &o->reads) {
		flight *f = RC_CONTAINER(l, flight, link);

		if (f->push == p)
			f->push = NULL;
	}
	rc_map_del(o->pushes, rc_view_of(p->key, sizeof p->key));
	rc_list_remove(&p->order);
	if (p->lent)
		lent_unref(p->lent);
	free(p);
}

static void push_failed(rc__om_push *p, const char *why)
{
	rc_info("sending object %s to %s ended early: %s", rc_id_to_hex(&p->chunk.object).s, p->target, why);
	p->o->stats.pushes_failed++;
	push_free(p);
}

/* ---- chunks ---- */

static void on_chunk_sent(void *arg, int status, rc_view reply, const char *detail)
{
	flight *f = arg;
	rc__om_push *p = f->push;
	rc_objects *o = p->o;

	(void)reply;
	rc_list_remove(&f->link);
	o->bytes_in_flight -= f->n;
	p->in_flight--;
	if (status == RC_RPC_OK) {
		o->stats.chunks_out++;
		o->stats.bytes_out += f->n;
		if (p->left == 0 && p->in_flight == 0)
			push_free(p);
	} else {
		push_failed(p, detail);
	}
	free(f);
	pump(o);
}

/* f is on no list. */
static void send_chunk(flight *f, const uint8_t *bytes, rc_task_fn unref, void *unref_arg)
{
	rc__om_push *p = f->push;
	rc__om_chunk chunk = p->chunk;
	rc_buf head = { 0 };

	chunk.index = f->index;
	chunk.n = f->n;
	rc__om_chunk_head(p->o->dialect, &p->o->push_fields, &p->push_id, &chunk, &head);
	rc_list_append(&p->calls, &f->link);
	f->call = rc__om_send_chunk(p->o, p->target, rc_view_of(head.p, head.n), rc_view_of(bytes, f->n), unref, unref_arg, CHUNK_TIMEOUT_MS,
	                            on_chunk_sent, f);
	rc_buf_free(&head);
}

static void on_read(void *arg, uint8_t *bytes, size_t n, const char *error)
{
	flight *f = arg;
	rc__om_push *p = f->push;
	rc_objects *o = f->o;

	rc_list_remove(&f->link);
	if (!o) { /* the module has ended */
		free(bytes);
		free(f);
		return;
	}
	if (p && bytes && n == f->n) {
		send_chunk(f, bytes, free, bytes);
		return;
	}
	o->bytes_in_flight -= f->n;
	free(bytes);
	free(f);
	if (p) {
		p->in_flight--;
		push_failed(p, bytes ? "its spill file is shorter than the object" : error);
	}
	pump(o);
}

static void next_chunk(rc__om_push *p)
{
	rc_objects *o = p->o;
	flight *f = rc_alloc(sizeof *f);
	uint64_t offset = (uint64_t)p->next * o->options.chunk_size;

	f->o = o;
	f->push = p;
	f->index = p->next;
	f->n = (size_t)rc__om_chunk_length(p->chunk.data_size, o->options.chunk_size, p->next);
	p->next = (p->next + 1) % p->n_chunks;
	p->left--;
	p->in_flight++;
	o->bytes_in_flight += f->n;
	if (p->lent) {
		p->lent->refs++;
		send_chunk(f, p->lent->hold->data + offset, lent_unref, p->lent);
		return;
	}
	rc_list_append(&o->reads, &f->link);
	rc_store_read_spilled(o->store, &p->chunk.object, offset, f->n, on_read, f);
}

/* Each push in turn gets a chunk more, as long as limits allow. */
static void pump(rc_objects *o)
{
	for (bool more = true; more;) {
		more = false;
		RC_LIST_FOREACH(l, &o->push_order) {
			rc__om_push *p = RC_CONTAINER(l, rc__om_push, order);

			if (o->bytes_in_flight > 0 && o->bytes_in_flight + o->options.chunk_size > o->options.max_bytes_in_flight)
				return;
			if (p->left == 0 || p->in_flight >= (p->lent ? WINDOW : SPILLED_WINDOW))
				continue;
			next_chunk(p);
			more = true;
		}
	}
}

/* ---- the service ---- */

static void start_push(rc_objects *o, const rc_id *node, const char *target, const rc_id *object)
{
	uint8_t key[RC_NODE_ID + RC_OBJECT_ID];
	const rc_hold *hold;
	rc__om_push *p;
	rc__om_chunk chunk = { .object = *object, .node = o->options.node_id };

	memcpy(key, node->b, RC_NODE_ID);
	memcpy(key + RC_NODE_ID, object->b, RC_OBJECT_ID);
	p = rc_map_get(o->pushes, rc_view_of(key, sizeof key));
	if (p) {
		p->left = p->n_chunks;
		return;
	}
	if (rc_map_count(o->pushes) >= MAX_PUSHES) {
		rc_warn("a pull of object %s by %s is ignored: %d transfers are in progress", rc_id_to_hex(object).s, target, MAX_PUSHES);
		return;
	}
	hold = rc_store_hold(o->store, object);
	if (hold) {
		chunk.data_size = hold->data_size + hold->metadata_size;
		chunk.metadata_size = hold->metadata_size;
		chunk.owner = hold->owner;
	} else {
		if (!rc_store_spilled_url(o->store, object) ||
		    !rc_store_sizes(o->store, object, &chunk.data_size, &chunk.metadata_size, &chunk.owner)) {
			rc_debug("object %s is not here for %s", rc_id_to_hex(object).s, target);
			return;
		}
		if (o->options.chunk_size > MAX_SPILLED_CHUNK) {
			rc_error_log("spilled object %s cannot be sent: object_manager_default_chunk_size is %llu, at most %d is supported",
			             rc_id_to_hex(object).s, (unsigned long long)o->options.chunk_size, MAX_SPILLED_CHUNK);
			return;
		}
		chunk.data_size += chunk.metadata_size;
	}
	p = rc_alloc(sizeof *p);
	p->o = o;
	p->node = *node;
	p->chunk = chunk;
	p->push_id = rc_id_random(RC_NODE_ID);
	memcpy(p->key, key, sizeof key);
	memcpy(p->target, target, strlen(target) + 1);
	p->n_chunks = p->left = rc__om_chunk_count(chunk.data_size, o->options.chunk_size);
	rc_list_init(&p->calls);
	if (hold) {
		p->lent = rc_alloc(sizeof *p->lent);
		*p->lent = (lent){ .store = o->store, .hold = hold, .refs = 1 };
	}
	rc_map_put(o->pushes, rc_view_of(key, sizeof key), p);
	rc_list_append(&o->push_order, &p->order);
}

static void forget_unknown(rc_objects *o, unknown_pull *u)
{
	rc_list_remove(&u->link);
	o->n_unknown_pulls--;
	free(u);
}

static void keep_unknown(rc_objects *o, const rc_id *node, const rc_id *object)
{
	unknown_pull *u;

	if (o->n_unknown_pulls >= MAX_UNKNOWN || rc__om_node_dead(o, node))
		return;
	u = rc_alloc(sizeof *u);
	u->node = *node;
	u->object = *object;
	u->since = rc_now_ms();
	rc_list_append(&o->unknown_pulls, &u->link);
	o->n_unknown_pulls++;
}

void rc__om_pushes_tick(rc_objects *o)
{
	uint64_t now = rc_now_ms();

	while (!rc_list_empty(&o->unknown_pulls)) {
		unknown_pull *u = RC_CONTAINER(o->unknown_pulls.next, unknown_pull, link);

		if (now - u->since < UNKNOWN_MS)
			return;
		rc_info("a pull by node %s is ignored: the head does not know it", rc_id_to_hex(&u->node).s);
		forget_unknown(o, u);
	}
}

void rc__om_pushes_node_added(rc_objects *o, const rc_id *node)
{
	char target[RC__OM_ADDRESS];

	if (!rc__om_node_address(o, node, target))
		return;
	RC_LIST_FOREACH(l, &o->unknown_pulls) {
		unknown_pull *u = RC_CONTAINER(l, unknown_pull, link);

		if (!rc_id_eq(&u->node, node))
			continue;
		start_push(o, node, target, &u->object);
		forget_unknown(o, u);
	}
	pump(o);
}

static void pull_one(rc_objects *o, const rc_id *node, const char *target, rc_id object)
{
	if (object.n != RC_OBJECT_ID)
		return;
	if (target)
		start_push(o, node, target, &object);
	else
		keep_unknown(o, node, &object);
}

void rc__om_push_object(rc_objects *o, const rc_id *node, const rc_id *object)
{
	char address[RC__OM_ADDRESS];

	pull_one(o, node, rc__om_node_address(o, node, address) ? address : NULL, *object);
	pump(o);
}

void rc__om_push_serve(rc_objects *o, rc_request *r, rc_view bytes)
{
	Rw__PullRequest *m = rc_unpack(o->dialect, &rw__pull_request__descriptor, bytes);
	char address[RC__OM_ADDRESS];
	const char *target;
	rc_id node;

	node = m ? RC_GET_ID(m, node_id) : (rc_id){ 0 };
	if (node.n != RC_NODE_ID) {
		rc_warn("Pull from %s: %s", rc_request_peer(r), m ? "node_id is not an id of 28 bytes" : "malformed request");
		rc_reply_error(r, RC_RPC_INVALID, "Pull: %s", m ? "node_id is not an id of 28 bytes" : "malformed request");
		rc_free_message(m);
		return;
	}
	target = rc__om_node_address(o, &node, address) ? address : NULL;
	pull_one(o, &node, target, RC_GET_ID(m, object_id)); /* 2.35.0 */
	for (size_t i = 0; i < m->n_object_ids; i++)         /* 2.60.0 */
		pull_one(o, &node, target, rc_id_from(m->object_ids[i].data, m->object_ids[i].len));
	rc_free_message(m);
	rc_reply(r, (rc_view){ 0 });
	pump(o);
}

void rc__om_pushes_died(rc_objects *o, const rc_id *node)
{
	RC_LIST_FOREACH(l, &o->push_order) {
		rc__om_push *p = RC_CONTAINER(l, rc__om_push, order);

		if (rc_id_eq(&p->node, node))
			push_failed(p, "the node has died");
	}
	RC_LIST_FOREACH(k, &o->unknown_pulls) {
		if (rc_id_eq(&RC_CONTAINER(k, unknown_pull, link)->node, node))
			forget_unknown(o, RC_CONTAINER(k, unknown_pull, link));
	}
	pump(o);
}

void rc__om_pushes_destroy(rc_objects *o)
{
	RC_LIST_FOREACH(l, &o->push_order) {
		push_free(RC_CONTAINER(l, rc__om_push, order));
	}
	while (!rc_list_empty(&o->unknown_pulls))
		forget_unknown(o, RC_CONTAINER(o->unknown_pulls.next, unknown_pull, link));
	RC_LIST_FOREACH(l, &o->reads) { /* the store may answer yet */
		flight *f = RC_CONTAINER(l, flight, link);

		rc_list_remove(l);
		rc_list_init(l);
		f->o = NULL;
	}
}
