/* The plasma socket: what clients (core workers, Ray's IO workers) ask for.
 *
 * Rules of the stock client (2.35.0 and 2.60.0, src/ray/object_manager/plasma/client.cc) that show here:
 * - One client counts once for an object however often it got it; it sends one Release when its own count is 0.
 * - Its lock is held while it waits for an answer, so a Create that has to wait is answered at once with a number to ask
 *   again with (every object_store_full_delay_ms): its other threads must be able to release what would make room.
 * - A descriptor is read from the socket exactly when its (descriptor number, unique id) is not in the client's table. The
 *   client forgets a pair when it is told to unmap it, in the answer to a Release with may_unmap.
 * - The creator's reference stays after Seal until its Release. A creation that is neither sealed nor aborted ends with the
 *   connection.
 * - Get takes its references when the objects are seen, not when the answer is sent. */
#include "raylet-c/store/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum {
	MAX_FRAME = 64 << 20,
	MAX_WAITING = 4096,   /* gets and creations that one client may have waiting */
	MAX_WAITS = 4 << 20 /* objects that all waiting gets together name */
};

struct rc__client {
	rc_link link;
	rc_conn *conn;
	rc_map *has;  /* id -> rc__object */
	rc_map *sent; /* unique ids of segments whose descriptor it has */
	rc_link gets;
	size_t n_gets, n_creates;
};

typedef struct get get;

typedef struct wait {
	rc_link link; /* in a wait_list */
	get *by;
	rc_id id;
} wait;

struct get {
	rc_link link; /* of its client */
	rc_store *s;
	rc__client *client;
	rc_id *ids;
	wait *waits;
	size_t n, n_waits, missing;
	rc_timer *timer;
};

typedef struct wait_list {
	rc_link head;
} wait_list;

static bool already; /* something to point at: the map `sent` has no values */

/* ---- references ---- */

void rc__client_has(rc_store *s, rc__client *client, rc__object *o)
{
	if (rc_map_get_id(client->has, &o->id))
		return;
	rc_map_put_id(client->has, &o->id, o);
	o->clients++;
	rc__update(s, o);
}

static void let_go(rc_store *s, rc__client *client, rc__object *o) /* may free o */
{
	o->clients--;
	if (o->state == RC__CREATED && o->creator == client)
		rc__aborted(s, o);
	else
		rc__update(s, o);
}

void rc__segment_gone(rc_store *s, int64_t unique_id)
{
	RC_LIST_FOREACH(l, &s->clients) {
		rc_map_del(RC_CONTAINER(l, rc__client, link)->sent, rc_view_of(&unique_id, sizeof unique_id));
	}
}

/* ---- answers ---- */

static const rc_segment *segment_of(const rc_store *s, const rc__object *o)
{
	return o->fallback ? o->fallback : s->arena;
}

static rc_plasma_spec spec_of(const rc_store *s, const rc__object *o)
{
	const rc_segment *segment = segment_of(s, o);
	uint64_t start = o->block ? o->block->offset : 0, data = (uint64_t)(o->data - segment->base);

	return (rc_plasma_spec){
		.segment_index = segment->fd, /* not an index: the descriptor's number in the store */
		.unique_fd_id = segment->unique_id,
		.header_offset = start,
		.data_offset = data,
		.data_size = o->data_size,
		.metadata_offset = data + o->data_size,
		.metadata_size = o->metadata_size,
		.allocated_size = o->data_size + o->metadata_size,
		.fallback = segment->fallback,
		.is_mutable = o->is_mutable,
	};
}

static void answer(rc__client *client, rc_plasma type, rc_buf *body)
{
	rc_conn_send(client->conn, type, body->p, body->n);
	rc_buf_free(body);
}

static void send_segment(rc__client *client, const rc_segment *segment)
{
	rc_view key = rc_view_of(&segment->unique_id, sizeof segment->unique_id);

	if (rc_map_put(client->sent, key, &already))
		return;
	rc_conn_send_fd(client->conn, segment->fd);
}

static void send_one(rc_store *s, rc__client *client, rc_plasma type, const rc_id *id, rc_plasma_error error, bool flag)
{
	rc_buf body = { 0 };

	rc_encode_plasma_one_reply(s->dialect, type, id, error, flag, &body);
	answer(client, type, &body);
}

static void send_create_retry(rc_store *s, rc__client *client, const rc_id *id, uint64_t number)
{
	rc_buf body = { 0 };

	rc_encode_plasma_create_reply(s->dialect, id, number, NULL, RC_PE_OK, -1, -1, 0, &body);
	answer(client, RC_P_CREATE_REPLY, &body);
}

/* o is NULL unless error is RC_PE_OK. */
static void send_created(rc_store *s, rc__client *client, const rc_id *id, rc__object *o, rc_plasma_error error)
{
	rc_buf body = { 0 };

	if (o) {
		const rc_segment *segment = segment_of(s, o);
		rc_plasma_spec spec = spec_of(s, o);

		rc_encode_plasma_create_reply(s->dialect, id, 0, &spec, RC_PE_OK, segment->fd, segment->unique_id, (int64_t)segment->size, &body);
		answer(client, RC_P_CREATE_REPLY, &body);
		send_segment(client, segment);
		return;
	}
	rc_encode_plasma_create_reply(s->dialect, id, 0, NULL, error, -1, -1, 0, &body);
	answer(client, RC_P_CREATE_REPLY, &body);
}

/* ---- get ---- */

static void answer_get(get *g)
{
	rc_store *s = g->s;
	rc_plasma_spec *specs = rc_alloc((g->n + 1) * sizeof *specs);
	const rc_segment **segments = rc_alloc((g->n + 1) * sizeof(rc_segment *));
	int *fds = rc_alloc((g->n + 1) * sizeof *fds);
	int64_t *unique = rc_alloc((g->n + 1) * sizeof *unique), *sizes = rc_alloc((g->n + 1) * sizeof *sizes);
	bool with_arena = false;
	size_t n = 0;
	rc_buf body = { 0 };

	for (size_t i = 0; i < g->n; i++) {
		rc__object *o = rc__find(s, &g->ids[i]);
		const rc_segment *segment;

		specs[i].data_size = UINT64_MAX;
		if (!o || o->state != RC__SEALED)
			continue;
		rc__client_has(s, g->client, o);
		specs[i] = spec_of(s, o);
		s->stats.consumed_bytes_total += rc__size(o);
		segment = segment_of(s, o);
		if (!o->fallback && with_arena)
			continue;
		with_arena |= !o->fallback; /* a segment on disk has one object, and naming one twice does no harm */
		segments[n] = segment;
		fds[n] = segment->fd;
		unique[n] = segment->unique_id;
		sizes[n++] = (int64_t)segment->size;
	}
	rc_encode_plasma_get_reply(s->dialect, g->ids, specs, g->n, fds, unique, sizes, n, &body);
	answer(g->client, RC_P_GET_REPLY, &body);
	for (size_t i = 0; i < n; i++)
		send_segment(g->client, segments[i]);
	free(specs);
	free(segments);
	free(fds);
	free(unique);
	free(sizes);
}

static void stop_waiting(rc_store *s, wait *w)
{
	wait_list *list;

	if (rc_list_empty(&w->link)) /* not in a list any more */
		return;
	rc_list_remove(&w->link);
	s->n_waits--;
	list = rc_map_get_id(s->waits, &w->id);
	if (list && rc_list_empty(&list->head)) {
		rc_map_del_id(s->waits, &w->id);
		free(list);
	}
}

static void end_get(get *g)
{
	for (size_t i = 0; i < g->n_waits; i++)
		stop_waiting(g->s, &g->waits[i]);
	rc_timer_stop(g->timer);
	rc_list_remove(&g->link);
	g->client->n_gets--;
	g->s->stats.waiting_gets--;
	free(g->ids);
	free(g->waits);
	free(g);
}

static void get_timed_out(void *arg)
{
	get *g = arg;
	rc_store *s = g->s;

	rc__enter(s);
	answer_get(g);
	end_get(g);
	rc__leave(s);
}

void rc__gets_sealed(rc_store *s, rc__object *o)
{
	wait_list *list = rc_map_del_id(s->waits, &o->id);

	if (!list)
		return;
	while (!rc_list_empty(&list->head)) {
		wait *w = RC_CONTAINER(list->head.next, wait, link);
		get *g = w->by;

		rc_list_remove(&w->link);
		s->n_waits--;
		rc__client_has(s, g->client, o);
		if (--g->missing)
			continue;
		answer_get(g);
		end_get(g);
	}
	free(list);
}

static void wait_for(rc_store *s, get *g, const rc_id *id)
{
	wait *w = &g->waits[g->n_waits++];
	wait_list *list = rc_map_get_id(s->waits, id);

	if (!list) {
		list = rc_alloc(sizeof *list);
		rc_list_init(&list->head);
		rc_map_put_id(s->waits, id, list);
	}
	w->by = g;
	w->id = *id;
	rc_list_append(&list->head, &w->link);
	s->n_waits++;
	g->missing++;
}

static int on_get(rc_store *s, rc__client *client, rc_view body, rc_error *e)
{
	rc_local_objects objects;
	int64_t timeout_ms;
	get *g;

	if (rc_decode_plasma_many(s->dialect, RC_P_GET, body, &objects, &timeout_ms, e) < 0)
		return -1;
	if (client->n_gets >= MAX_WAITING)
		return rc_fail(e, RC_E_FULL, "PlasmaGetRequest: the client has %zu of them waiting already", client->n_gets);
	if (timeout_ms && s->n_waits + objects.n > MAX_WAITS)
		return rc_fail(e, RC_E_FULL, "PlasmaGetRequest: %zu objects are waited for already, the limit is %d", s->n_waits, MAX_WAITS);
	g = rc_alloc(sizeof *g);
	g->s = s;
	g->client = client;
	g->n = objects.n;
	g->ids = rc_alloc((g->n + 1) * sizeof *g->ids);
	g->waits = timeout_ms ? rc_alloc((g->n + 1) * sizeof *g->waits) : NULL;
	rc_list_append(&client->gets, &g->link);
	client->n_gets++;
	s->stats.waiting_gets++;
	for (size_t i = 0; i < g->n; i++) {
		rc_view id = rc_local_object(&objects, i);
		rc__object *o;

		if (id.n != RC_OBJECT_ID) {
			end_get(g);
			return rc_fail(e, RC_E_INVALID, "PlasmaGetRequest: object id %zu is malformed", i);
		}
		g->ids[i] = rc_id_from(id.p, id.n);
		o = rc__find(s, &g->ids[i]);
		if (o && o->state == RC__SEALED)
			rc__client_has(s, client, o);
		else if (timeout_ms)
			wait_for(s, g, &g->ids[i]);
	}
	if (g->missing == 0) {
		answer_get(g);
		end_get(g);
	} else if (timeout_ms > 0) {
		g->timer = rc_timer_start(s->loop, (uint64_t)timeout_ms, 0, get_timed_out, g);
	}
	return 0;
}

/* ---- create, seal, abort ---- */

static void finish_create(rc_store *s, rc__client *client, rc__create *c)
{
	rc__object *o = rc__find(s, &c->object.id);
	rc_plasma_error error = c->error;

	if (error == RC_PE_OK && (!o || o->state != RC__CREATED || o->creator != client))
		error = RC_PE_UNEXPECTED; /* it gave up what it has not seen yet */
	send_created(s, client, &c->object.id, error == RC_PE_OK ? o : NULL, error);
	rc__create_forget(s, c);
	client->n_creates--;
	free(c);
}

static void create_at_once(rc_store *s, rc__client *client, const rc_store_new *what, bool is_mutable)
{
	rc__object *o = NULL;
	rc_plasma_error error = rc__create_now(s, what, is_mutable, &o);

	if (o) {
		o->by_client = true;
		o->creator = client;
		rc__client_has(s, client, o);
	}
	send_created(s, client, &what->id, o, error);
}

static void owner_from(const rc_local_address *a, rc_owner *ret)
{
	size_t n = a->ip.n < sizeof ret->ip ? a->ip.n : sizeof ret->ip - 1;

	*ret = (rc_owner){ .port = a->port };
	ret->node_id = rc_id_from(a->node_id.p, a->node_id.n);
	ret->worker_id = rc_id_from(a->worker_id.p, a->worker_id.n);
	if (n)
		memcpy(ret->ip, a->ip.p, n);
}

static int on_create(rc_store *s, rc__client *client, rc_view body, rc_error *e)
{
	rc_plasma_create m;
	rc_store_new what;
	rc__create *c;

	if (rc_decode_plasma_create(s->dialect, body, &m, e) < 0)
		return -1;
	if (client->n_creates >= MAX_WAITING)
		return rc_fail(e, RC_E_FULL, "PlasmaCreateRequest: the client has %zu of them waiting already", client->n_creates);
	what = (rc_store_new){ .id = rc_id_from(m.object_id.p, m.object_id.n), .data_size = m.data_size, .metadata_size = m.metadata_size,
		               .source = m.source >= RC_BY_WORKER && m.source <= RC_ERROR_STORED ? (rc_source)m.source : RC_BY_WORKER };
	owner_from(&m.owner, &what.owner);
	if (m.device_num) {
		rc_warn("object %s is wanted on device %d: the store has host memory only", rc_id_to_hex(&what.id).s, m.device_num);
		send_created(s, client, &what.id, NULL, RC_PE_NO_MEMORY);
		return 0;
	}
	if (m.try_immediately) {
		create_at_once(s, client, &what, m.is_mutable);
		return 0;
	}
	c = rc__create_add(s, &what, client, m.is_mutable);
	client->n_creates++;
	rc__process_creates(s);
	if (c->done)
		finish_create(s, client, c);
	else
		send_create_retry(s, client, &what.id, c->number);
	return 0;
}

static int on_create_retry(rc_store *s, rc__client *client, rc_view body, rc_error *e)
{
	rc_view object;
	uint64_t number;
	rc__create *c;
	rc_id id;

	if (rc_decode_plasma_create_retry(s->dialect, body, &object, &number, e) < 0)
		return -1;
	id = rc_id_from(object.p, object.n);
	c = rc__create_find(s, number);
	if (!c || c->client != client || !rc_id_eq(&c->object.id, &id))
		send_created(s, client, &id, NULL, RC_PE_UNEXPECTED);
	else if (c->done)
		finish_create(s, client, c);
	else
		send_create_retry(s, client, &id, number);
	return 0;
}

static void on_seal(rc_store *s, rc__client *client, const rc_id *id)
{
	rc__object *o = rc__find(s, id);
	rc_plasma_error error = !o || o->state == RC__ABSENT ? RC_PE_NOT_FOUND : o->state == RC__SEALED ? RC_PE_SEALED : RC_PE_OK;

	if (error == RC_PE_OK && o->creator != client)
		error = RC_PE_UNEXPECTED;
	send_one(s, client, RC_P_SEAL_REPLY, id, error, false);
	if (error == RC_PE_OK)
		rc__sealed(s, o);
	else
		rc_warn("object %s cannot be sealed by the client of process %d (plasma error %d)", rc_id_to_hex(id).s,
		        (int)rc_conn_peer_pid(client->conn), (int)error);
}

static void on_abort(rc_store *s, rc__client *client, const rc_id *id)
{
	rc__object *o = rc_map_get_id(client->has, id);

	if (o && o->state == RC__CREATED && o->creator == client) {
		rc_map_del_id(client->has, id);
		let_go(s, client, o);
	} else {
		rc_warn("object %s is not being created by the client of process %d that aborts it", rc_id_to_hex(id).s,
		        (int)rc_conn_peer_pid(client->conn));
	}
	send_one(s, client, RC_P_ABORT_REPLY, id, RC_PE_OK, false);
}

/* ---- release, delete, contains, figures ---- */

static void on_release(rc_store *s, rc__client *client, const rc_id *id, bool may_unmap)
{
	rc__object *o = rc_map_del_id(client->has, id);
	bool unmap = o && o->fallback && may_unmap;

	if (o) {
		if (unmap)
			rc_map_del(client->sent, rc_view_of(&o->fallback->unique_id, sizeof o->fallback->unique_id));
		if (o->state == RC__CREATED)
			rc_warn("object %s was released by the client of process %d before it was sealed: it is given up", rc_id_to_hex(id).s,
			        (int)rc_conn_peer_pid(client->conn));
		let_go(s, client, o);
	}
	if (may_unmap)
		send_one(s, client, RC_P_RELEASE_REPLY, id, RC_PE_OK, unmap);
}

static rc_plasma_error delete_one(rc_store *s, const rc_id *id)
{
	rc__object *o = rc__find(s, id);
	rc_plasma_error result;

	if (!o || o->state == RC__ABSENT)
		return RC_PE_NOT_FOUND;
	if (o->pinned) /* its owner still wants it: it goes when the owner frees it */
		return RC_PE_IN_USE;
	result = o->state == RC__CREATED ? RC_PE_NOT_SEALED : o->clients || o->holds ? RC_PE_IN_USE : RC_PE_OK;
	rc__delete(s, o);
	return result;
}

static int on_delete(rc_store *s, rc__client *client, rc_view body, rc_error *e)
{
	rc_local_objects objects;
	rc_id *ids;
	rc_plasma_error *errors;
	rc_buf reply = { 0 };

	if (rc_decode_plasma_many(s->dialect, RC_P_DELETE, body, &objects, NULL, e) < 0)
		return -1;
	ids = rc_alloc((objects.n + 1) * sizeof *ids);
	errors = rc_alloc((objects.n + 1) * sizeof *errors);
	for (size_t i = 0; i < objects.n; i++) {
		rc_view id = rc_local_object(&objects, i);

		ids[i] = rc_id_from(id.p, id.n);
		errors[i] = delete_one(s, &ids[i]);
	}
	rc_encode_plasma_delete_reply(s->dialect, ids, errors, objects.n, &reply);
	answer(client, RC_P_DELETE_REPLY, &reply);
	free(ids);
	free(errors);
	return 0;
}

/* 2.35.0 has 18 for Evict and 20 for the figures that a worker shows when it finds the store full; later releases 18 for these. */
enum { EVICT_235 = 18, EVICT_REPLY_235 = 19, DEBUG_235 = 20, DEBUG = 18 };

static bool is_235(const rc_store *s)
{
	return strcmp(rc_dialect_release(s->dialect), "2.35.0") == 0;
}

static int64_t debug_string_type(const rc_store *s)
{
	return is_235(s) ? DEBUG_235 : DEBUG;
}

static int on_evict(rc_store *s, rc__client *client, rc_view body, rc_error *e)
{
	rc_buf reply = { 0 };
	uint64_t bytes;

	if (rc_decode_plasma_evict(body, &bytes, e) < 0)
		return -1;
	rc_encode_plasma_evict_reply(rc__evict_bytes(s, bytes), &reply);
	answer(client, (rc_plasma)EVICT_REPLY_235, &reply);
	return 0;
}

/* A table with one text in slot 0: root offset, vtable of one slot (and 2 bytes of padding), table, text. */
static void send_debug_string(rc_store *s, rc__client *client)
{
	static const uint8_t head[20] = { 12, 0, 0, 0, 6, 0, 8, 0, 4, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0 };
	rc_buf text = { 0 }, body = { 0 };
	uint32_t n;

	rc_store_debug(s, &text);
	n = (uint32_t)text.n;
	rc_buf_add(&body, head, sizeof head);
	rc_buf_add(&body, &n, 4);
	rc_buf_add(&body, rc_buf_cstr(&text), text.n + 1);
	rc_buf_free(&text);
	answer(client, (rc_plasma)(debug_string_type(s) + 1), &body);
}

/* Messages that have one object id. */
static int on_one(rc_store *s, rc__client *client, rc_plasma type, rc_view body, rc_error *e)
{
	rc_view object;
	bool flag = false;
	rc__object *o;
	rc_id id;

	if (rc_decode_plasma_one(s->dialect, type, body, &object, &flag, e) < 0)
		return -1;
	id = rc_id_from(object.p, object.n);
	if (type == RC_P_SEAL) {
		on_seal(s, client, &id);
	} else if (type == RC_P_ABORT) {
		on_abort(s, client, &id);
	} else if (type == RC_P_RELEASE) {
		on_release(s, client, &id, flag);
	} else {
		o = rc__find(s, &id);
		send_one(s, client, RC_P_CONTAINS_REPLY, &id, RC_PE_OK, o && o->state == RC__SEALED);
	}
	return 0;
}

/* ---- connections ---- */

static int dispatch(rc_store *s, rc__client *client, int64_t type, rc_view body, rc_error *e)
{
	rc_buf reply = { 0 };

	switch (type) {
	case RC_P_CREATE:
		return on_create(s, client, body, e);
	case RC_P_CREATE_RETRY:
		return on_create_retry(s, client, body, e);
	case RC_P_GET:
		return on_get(s, client, body, e);
	case RC_P_DELETE:
		return on_delete(s, client, body, e);
	case RC_P_SEAL:
	case RC_P_ABORT:
	case RC_P_RELEASE:
	case RC_P_CONTAINS:
		return on_one(s, client, (rc_plasma)type, body, e);
	case RC_P_CONNECT:
		rc_encode_plasma_connect_reply(s->dialect, (int64_t)s->capacity, &reply);
		answer(client, RC_P_CONNECT_REPLY, &reply);
		return 0;
	case RC_P_DISCONNECT:
		rc_conn_close(client->conn, "the client said goodbye");
		return 0;
	default:
		if (is_235(s) && type == EVICT_235)
			return on_evict(s, client, body, e);
		if (type != debug_string_type(s))
			return rc_fail(e, RC_E_INVALID, "message type %lld is not known on the plasma socket", (long long)type);
		send_debug_string(s, client);
		return 0;
	}
}

static void on_frame(void *ctx, rc_conn *conn, int64_t type, const uint8_t *body, size_t n)
{
	rc_store *s = ctx;
	rc__client *client = rc_conn_user(conn);
	rc_error e;

	rc__enter(s);
	if (dispatch(s, client, type, rc_view_of(body, n), &e) < 0) {
		rc_warn("plasma client of process %d is closed: %s", (int)rc_conn_peer_pid(conn), e.text);
		rc_conn_close(conn, e.text);
	}
	rc__leave(s);
}

static void on_accepted(void *ctx, rc_conn *conn)
{
	rc_store *s = ctx;
	rc__client *client = rc_alloc(sizeof *client);

	client->conn = conn;
	client->has = rc_map_create();
	client->sent = rc_map_create();
	rc_list_init(&client->gets);
	rc_list_append(&s->clients, &client->link);
	s->stats.clients++;
	rc_conn_set_user(conn, client);
}

static void drop_creates(rc_store *s, rc__client *client)
{
	rc_view key;
	void *value;

	for (size_t i = 0; client->n_creates && rc_map_next(s->create_numbers, &i, &key, &value);) {
		rc__create *c = value;

		if (c->client != client)
			continue;
		rc__create_forget(s, c);
		client->n_creates--;
		free(c);
	}
}

static void on_closed(void *ctx, rc_conn *conn, const char *reason)
{
	rc_store *s = ctx;
	rc__client *client = rc_conn_user(conn);
	rc_view key;
	void *o;

	(void)reason;
	rc__enter(s);
	while (!rc_list_empty(&client->gets))
		end_get(RC_CONTAINER(client->gets.next, get, link));
	drop_creates(s, client);
	rc_list_remove(&client->link);
	for (size_t i = 0; rc_map_next(client->has, &i, &key, &o);)
		let_go(s, client, o);
	rc_map_destroy(client->has);
	rc_map_destroy(client->sent);
	free(client);
	s->stats.clients--;
	rc__leave(s);
}

int rc__serve(rc_store *s, const char *path, rc_error *e)
{
	static const rc_conn_ops ops = { .accepted = on_accepted, .frame = on_frame, .closed = on_closed };

	s->listener = rc_listener_create(s->loop, path, MAX_FRAME, &ops, s, e);
	return s->listener ? 0 : -1;
}

void rc__serve_end(rc_store *s)
{
	rc_listener_destroy(s->listener, true); /* `closed` comes for each client, inside */
	s->listener = NULL;
}
