/* The raylet socket: what workers and drivers of this node say. One table of messages, a handler for each: decode, act, answer.
 *
 * A client that sends what it may not (malformed, unknown, out of order) is closed with a line in the log; its process is
 * then treated as any worker whose connection broke. Limits: 64 MiB a frame, 10,000 open waits and as many open gets a client,
 * and the objects that all of them wait for (rc_objects_room).
 *
 * 2.35.0 sends UNBLOCKED after almost every step, also when nothing was blocked: it is idempotent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/node/node.h"

enum { MAX_FRAME = 64 << 20, MAX_WAITS = 10000 };

typedef struct client_wait { /* a WAIT or WAIT_ACTOR_ARGS that is open */
	rc_link link;
	rc_client *client;
	uint64_t wait, fetch; /* one of them */
	int64_t tag;
	rc_id task_id;
	int attempt;
} client_wait;

typedef struct client_get { /* GET_OBJECTS of 2.60.0 that is open: each ends by itself, for the threads of one worker */
	rc_link link;
	int64_t number; /* counted from 0 on the connection: what CANCEL_GET names */
} client_get;

static void get_free(rc_client *c, client_get *g)
{
	rc_objects_client_gone(c->node->objects, g);
	rc_list_remove(&g->link);
	c->n_gets--;
	free(g);
}

static void wait_free(client_wait *w)
{
	rc_list_remove(&w->link);
	w->client->n_waits--;
	free(w);
}

static void send_local(rc_client *c, rc_local kind, const rc_buf *body)
{
	int64_t type = rc_local_type(c->node->dialect, kind);
	if (type >= 0 && c->conn)
		rc_conn_send(c->conn, type, body->p, body->n);
}

static int refs_of(rc_client *c, const rc_local_objects *o, rc_object_ref **ret, rc_error *e)
{
	if (rc_objects_room(c->node->objects, o->n, e))
		return -1;
	rc_object_ref *refs = rc_alloc((o->n ? o->n : 1) * sizeof(*refs));
	for (size_t i = 0; i < o->n; i++)
		if (!rc_object_ref_from_local(o, i, &refs[i], e)) {
			free(refs);
			return -1;
		}
	*ret = refs;
	return 0;
}

/* ---- registration ---- */

static void registered(void *arg, rc_worker *w, int port, const char *failure)
{
	rc_client *c = arg;
	rc_buf out = { 0 };
	c->registering = false;
	if (w)
		rc_worker_registered(c, w);
	rc_encode_register_reply(c->node->dialect, w != NULL, failure ? failure : "", &c->node->node_id, port, &out);
	send_local(c, RC_L_REGISTER_CLIENT_REPLY, &out);
	rc_buf_free(&out);
	if (!w) {
		rc_warn("process %d was refused as a worker: %s", (int)rc_conn_peer_pid(c->conn), failure);
		rc_conn_close(c->conn, "registration refused");
	}
}

static int on_register(rc_client *c, rc_view body, rc_error *e)
{
	rc_register_client m;
	if (rc_decode_register_client(c->node->dialect, body, &m, e))
		return -1;
	if (c->worker || c->registering)
		return rc_fail(e, RC_E_INVALID, "registered twice");
	if (c->node->state > RC_DRAINING)
		return rc_fail(e, RC_E_UNAVAILABLE, "the node is ending");
	c->registering = true;
	rc_buf_add(&c->job_config, m.serialized_job_config.p, m.serialized_job_config.n);
	rc_pool_register(c->node->pool, &m, rc_conn_peer_pid(c->conn), c, registered, c);
	return 0;
}

static int on_announce(rc_client *c, rc_view body, rc_error *e)
{
	int port;
	rc_view entrypoint;
	if (rc_decode_announce_port(c->node->dialect, body, &port, &entrypoint, e))
		return -1;
	if (port <= 0 || port > 65535)
		return rc_fail(e, RC_E_INVALID, "port %d", port);
	if (c->announced)
		return rc_fail(e, RC_E_INVALID, "announced twice");
	c->announced = true;
	rc_pool_announced(c->node->pool, c->worker, port);
	if (c->worker && c->worker->type == RC_DRIVER)
		rc_driver_announced(c, entrypoint);
	return 0;
}

static int on_disconnect(rc_client *c, rc_view body, rc_error *e)
{
	int type;
	rc_view detail, exception;
	if (rc_decode_disconnect(c->node->dialect, body, &type, &detail, &exception, e))
		return -1;
	if (c->said_goodbye)
		return 0;
	c->said_goodbye = true;
	rc_buf out = { 0 };
	rc_encode_disconnect_reply(c->node->dialect, &out);
	send_local(c, RC_L_DISCONNECT_REPLY, &out);
	rc_buf_free(&out);
	rc_worker_goodbye(c, type, detail, exception);
	return 0;
}

/* ---- objects ---- */

static int on_get(rc_client *c, rc_view body, rc_error *e)
{
	rc_get_objects m;
	rc_object_ref *refs;
	if (rc_decode_get_objects(c->node->dialect, body, &m, e) || refs_of(c, &m.objects, &refs, e))
		return -1;
	void *key = c;
	if (!c->node->v235) {
		if (c->n_gets >= MAX_WAITS) {
			free(refs);
			return rc_fail(e, RC_E_FULL, "more than %d open gets", MAX_WAITS);
		}
		client_get *g = rc_alloc(sizeof(*g));
		g->number = c->next_get++;
		rc_list_append(&c->gets, &g->link);
		c->n_gets++;
		key = g;
	}
	rc_objects_get(c->node->objects, key, refs, m.objects.n, m.fetch_only);
	free(refs);
	return 0;
}

static int on_cancel_get(rc_client *c, rc_view body, rc_error *e)
{
	int64_t number;
	if (rc_decode_cancel_get(c->node->dialect, body, &number, e))
		return -1;
	rc_objects_get_cancel(c->node->objects, c);
	RC_LIST_FOREACH(l, &c->gets) {
		client_get *g = RC_CONTAINER(l, client_get, link);
		if (number < 0 || g->number == number)
			get_free(c, g);
	}
	return 0;
}

static void set_blocked(rc_client *c, bool blocked)
{
	rc_lease *lease = rc_worker_note_of(c->worker)->lease;
	if (lease)
		blocked ? rc_leases_blocked(c->node->leases, lease) : rc_leases_unblocked(c->node->leases, lease);
}

static int on_blocked(rc_client *c, rc_view body, rc_error *e)
{
	bool release;
	if (rc_decode_blocked(c->node->dialect, body, &release, e))
		return -1;
	if (release)
		set_blocked(c, true);
	return 0;
}

static int on_unblocked(rc_client *c, rc_view body, rc_error *e)
{
	(void)body, (void)e;
	rc_objects_get_cancel(c->node->objects, c); /* 2.35.0; in 2.60.0 gets are cancelled one by one */
	set_blocked(c, false);
	return 0;
}

static void wait_done(void *arg, const rc_id *found, size_t n_found, const rc_id *remaining, size_t n_remaining)
{
	client_wait *w = arg;
	rc_buf out = { 0 };
	rc_encode_wait_reply(w->client->node->dialect, found, n_found, remaining, n_remaining, &out);
	send_local(w->client, RC_L_WAIT_REPLY, &out);
	rc_buf_free(&out);
	wait_free(w);
}

static client_wait *wait_new(rc_client *c, rc_error *e)
{
	if (c->n_waits >= MAX_WAITS) {
		rc_fail(e, RC_E_FULL, "more than %d open waits", MAX_WAITS);
		return NULL;
	}
	client_wait *w = rc_alloc(sizeof(*w));
	w->client = c;
	rc_list_append(&c->waits, &w->link);
	c->n_waits++;
	return w;
}

static int on_wait(rc_client *c, rc_view body, rc_error *e)
{
	rc_wait m;
	rc_object_ref *refs;
	if (rc_decode_wait(c->node->dialect, body, &m, e) || refs_of(c, &m.objects, &refs, e))
		return -1;
	if (m.needed < 0)
		m.needed = 0;
	client_wait *w = wait_new(c, e);
	if (w)
		w->wait = rc_objects_wait(c->node->objects, refs, m.objects.n, (size_t)m.needed, m.timeout_ms, wait_done, w);
	free(refs);
	return w ? 0 : -1;
}

static void tell_worker(rc_client *c, rc_method method, const void *message)
{
	if (c->worker && c->worker->port)
		rc_worker_call(c->node, c->worker, method, message, 0, NULL, NULL);
}

static void actor_args_ready(void *arg)
{
	client_wait *w = arg;
	rc_client *c = w->client;
	rc_objects_fetch_end(c->node->objects, w->fetch);
	if (c->worker && c->worker->id.n) {
		if (c->node->v235) {
			Rw__DirectActorCallArgWaitCompleteRequest m = RW__DIRECT_ACTOR_CALL_ARG_WAIT_COMPLETE_REQUEST__INIT;
			RC_SET_ID(m, intended_worker_id, &c->worker->id);
			RC_SET(m, tag, w->tag);
			tell_worker(c, RC_M_CW_ACTOR_ARGS_READY, &m);
		} else {
			Rw__ActorCallArgWaitCompleteRequest m = RW__ACTOR_CALL_ARG_WAIT_COMPLETE_REQUEST__INIT;
			RC_SET_ID(m, intended_worker_id, &c->worker->id);
			RC_SET_ID(m, task_id, &w->task_id);
			RC_SET(m, attempt_number, w->attempt);
			tell_worker(c, RC_M_CW_ACTOR_ARGS_READY, &m);
		}
	}
	wait_free(w);
}

static int on_wait_actor_args(rc_client *c, rc_view body, rc_error *e)
{
	rc_wait_actor_args m;
	rc_object_ref *refs;
	if (rc_decode_wait_actor_args(c->node->dialect, body, &m, e) || refs_of(c, &m.objects, &refs, e))
		return -1;
	client_wait *w = wait_new(c, e);
	if (w) {
		w->tag = m.tag;
		w->task_id = rc_id_from(m.task_id.p, m.task_id.n);
		w->attempt = m.attempt_number;
		w->fetch = rc_objects_fetch(c->node->objects, refs, m.objects.n, actor_args_ready, w);
	}
	free(refs);
	return w ? 0 : -1;
}

static int on_free(rc_client *c, rc_view body, rc_error *e)
{
	bool local_only;
	rc_local_objects o;
	if (rc_decode_free_objects(c->node->dialect, body, &local_only, &o, e))
		return -1;
	rc_id *ids = rc_alloc((o.n ? o.n : 1) * sizeof(*ids));
	for (size_t i = 0; i < o.n; i++) {
		rc_view v = rc_local_object(&o, i);
		ids[i] = rc_id_from(v.p, v.n);
	}
	rc_objects_free(c->node->objects, ids, o.n, local_only);
	free(ids);
	return 0;
}

static void plasma_ready(void *arg, const rc_id *id)
{
	Rw__PlasmaObjectReadyRequest m = RW__PLASMA_OBJECT_READY_REQUEST__INIT;
	RC_SET_ID(m, object_id, id);
	tell_worker(arg, RC_M_CW_PLASMA_OBJECT_READY, &m);
}

static int on_subscribe_ready(rc_client *c, rc_view body, rc_error *e)
{
	rc_view object;
	rc_local_address owner;
	if (rc_decode_subscribe_ready(c->node->dialect, body, &object, &owner, e))
		return -1;
	if (rc_objects_room(c->node->objects, 1, e))
		return -1;
	rc_object_ref ref = { .id = rc_id_from(object.p, object.n) };
	rc_owner_from_local(&owner, &ref.owner);
	rc_objects_subscribe_ready(c->node->objects, c, &ref, plasma_ready, c);
	return 0;
}

/* ---- the rest ---- */

static int on_push_error(rc_client *c, rc_view body, rc_error *e)
{
	rc_view job, type, text;
	double when;
	if (rc_decode_push_error(c->node->dialect, body, &job, &type, &text, &when, e))
		return -1;
	rc_id id = rc_id_from(job.p, job.n);
	char *type_text = rc_strndup(type.p, type.n), *message = rc_strndup(text.p, text.n);
	rc_gcs_report_job_error(c->node->gcs, &id, type_text, message, NULL, NULL);
	free(type_text);
	free(message);
	return 0;
}

static int on_actor_created(rc_client *c, rc_view body, rc_error *e)
{
	(void)body, (void)e;
	rc_debug("worker %s has made its actor", rc_id_to_hex(&c->worker->id).s);
	return 0;
}

typedef struct message {
	rc_local kind;
	bool needs_worker; /* only after a registration */
	int (*handle)(rc_client *c, rc_view body, rc_error *e);
} message;

static const message messages[] = {
	{ RC_L_REGISTER_CLIENT, false, on_register },
	{ RC_L_ANNOUNCE_PORT, true, on_announce },
	{ RC_L_DISCONNECT, true, on_disconnect },
	{ RC_L_ACTOR_CREATION_DONE, true, on_actor_created },
	{ RC_L_GET_OBJECTS, true, on_get },
	{ RC_L_CANCEL_GET, true, on_cancel_get },
	{ RC_L_BLOCKED, true, on_blocked },
	{ RC_L_UNBLOCKED, true, on_unblocked },
	{ RC_L_WAIT, true, on_wait },
	{ RC_L_WAIT_ACTOR_ARGS, true, on_wait_actor_args },
	{ RC_L_FREE_OBJECTS, true, on_free },
	{ RC_L_SUBSCRIBE_PLASMA_READY, true, on_subscribe_ready },
	{ RC_L_PUSH_ERROR, true, on_push_error },
};

static void client_accepted(void *ctx, rc_conn *conn)
{
	rc_client *c = rc_alloc(sizeof(*c));
	c->node = ctx;
	c->conn = conn;
	rc_list_init(&c->waits);
	rc_list_init(&c->gets);
	rc_conn_set_user(conn, c);
}

static void client_frame(void *ctx, rc_conn *conn, int64_t type, const uint8_t *body, size_t n)
{
	rc_daemon *node = ctx;
	rc_client *c = rc_conn_user(conn);
	rc_local kind = rc_local_kind(node->dialect, type);
	rc_error e = { 0 };
	const message *m = NULL;
	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
		if (messages[i].kind == kind)
			m = &messages[i];
	if (!m)
		rc_fail(&e, RC_E_INVALID, "message type %lld is not one of Ray %s", (long long)type, rc_dialect_release(node->dialect));
	else if (m->needs_worker && !c->worker)
		rc_fail(&e, RC_E_INVALID, "not registered");
	else if (!m->handle(c, rc_view_of(body, n), &e))
		return;
	char reason[512];
	snprintf(reason, sizeof(reason), "%s from process %d: %s", m ? rc_local_name(kind) : "message", (int)rc_conn_peer_pid(conn), e.text);
	rc_warn("%s; connection closed", reason);
	rc_conn_close(conn, reason);
}

static void client_closed(void *ctx, rc_conn *conn, const char *reason)
{
	rc_daemon *node = ctx;
	rc_client *c = rc_conn_user(conn);
	c->conn = NULL;
	RC_LIST_FOREACH(l, &c->waits) {
		client_wait *w = RC_CONTAINER(l, client_wait, link);
		if (w->wait)
			rc_objects_wait_cancel(node->objects, w->wait);
		if (w->fetch)
			rc_objects_fetch_end(node->objects, w->fetch);
		wait_free(w);
	}
	RC_LIST_FOREACH(l, &c->gets)
		get_free(c, RC_CONTAINER(l, client_get, link));
	rc_objects_client_gone(node->objects, c);
	if (c->registering)
		rc_pool_register_cancel(node->pool, c);
	if (c->worker)
		rc_worker_connection_closed(c, reason);
	rc_buf_free(&c->job_config);
	free(c);
}

static const rc_conn_ops socket_ops = { client_accepted, client_frame, client_closed };

int rc_worker_socket_open(rc_daemon *n, rc_error *error)
{
	n->listener = rc_listener_create(n->loop, n->options.raylet_socket_name, MAX_FRAME, &socket_ops, n, error);
	return n->listener ? 0 : -1;
}
