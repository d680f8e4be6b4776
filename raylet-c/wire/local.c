/* Messages of the raylet socket. Type numbers and slots of a message are data: one `layout` a line of releases. A release's
 * layout is a fact seen on its socket, not to be had from its binaries; a new release needs a look (README.md). */
#include "raylet-c/wire/local_internal.h"

#include <string.h>

enum { NONE = -1 };

typedef struct layout {
	const char *release;
	int8_t types[RC_L_COUNT];
	struct { /* slots; NONE: the release has no such field */
		int8_t startup_token, job_id, runtime_env_hash, language, ip, port, job_config;
	} reg;
	struct {
		int8_t fetch_only, task_id;
	} get;
	struct {
		int8_t get;
	} cancel;
	struct {
		int8_t release_resources;
	} blocked;
	struct {
		int8_t task_id;
	} wait;
	struct {
		int8_t tag, task_id, attempt;
	} args;
} layout;

static const layout layouts[] = {
	{
	    .release = "2.35.0",
	    .types = {
	        [RC_L_ACTOR_CREATION_DONE] = 2,
	        [RC_L_REGISTER_CLIENT] = 4,
	        [RC_L_REGISTER_CLIENT_REPLY] = 5,
	        [RC_L_ANNOUNCE_PORT] = 6,
	        [RC_L_ANNOUNCE_PORT_REPLY] = 7,
	        [RC_L_DISCONNECT] = 8,
	        [RC_L_DISCONNECT_REPLY] = NONE,
	        [RC_L_GET_OBJECTS] = 10,
	        [RC_L_CANCEL_GET] = 11,
	        [RC_L_BLOCKED] = 12,
	        [RC_L_UNBLOCKED] = 13,
	        [RC_L_WAIT] = 14,
	        [RC_L_WAIT_REPLY] = 15,
	        [RC_L_WAIT_ACTOR_ARGS] = 16,
	        [RC_L_PUSH_ERROR] = 17,
	        [RC_L_FREE_OBJECTS] = 18,
	        [RC_L_SUBSCRIBE_PLASMA_READY] = 20,
	    },
	    .reg = { 3, 4, 5, 6, 7, 8, 9 },
	    .get = { 2, 3 },
	    .cancel = { NONE },
	    .blocked = { 0 },
	    .wait = { 4 },
	    .args = { 2, NONE, NONE },
	},
	{
	    .release = "2.60.0",
	    .types = {
	        [RC_L_ACTOR_CREATION_DONE] = 0,
	        [RC_L_REGISTER_CLIENT] = 1,
	        [RC_L_REGISTER_CLIENT_REPLY] = 2,
	        [RC_L_ANNOUNCE_PORT] = 3,
	        [RC_L_ANNOUNCE_PORT_REPLY] = 4,
	        [RC_L_DISCONNECT] = 5,
	        [RC_L_DISCONNECT_REPLY] = 6,
	        [RC_L_GET_OBJECTS] = 7,
	        [RC_L_CANCEL_GET] = 8,
	        [RC_L_BLOCKED] = 9,
	        [RC_L_UNBLOCKED] = 10,
	        [RC_L_WAIT] = 11,
	        [RC_L_WAIT_REPLY] = 12,
	        [RC_L_WAIT_ACTOR_ARGS] = 13,
	        [RC_L_PUSH_ERROR] = 14,
	        [RC_L_FREE_OBJECTS] = 15,
	        [RC_L_SUBSCRIBE_PLASMA_READY] = 16,
	    },
	    .reg = { NONE, 3, 4, 5, 6, 7, 8 },
	    .get = { NONE, NONE },
	    .cancel = { 0 },
	    .blocked = { NONE },
	    .wait = { NONE },
	    .args = { NONE, 2, 3 },
	},
};

static const char *const names[RC_L_COUNT] = {
	[RC_L_ACTOR_CREATION_DONE] = "ActorCreationTaskDone",
	[RC_L_REGISTER_CLIENT] = "RegisterClientRequest",
	[RC_L_REGISTER_CLIENT_REPLY] = "RegisterClientReply",
	[RC_L_ANNOUNCE_PORT] = "AnnounceWorkerPort",
	[RC_L_ANNOUNCE_PORT_REPLY] = "AnnounceWorkerPortReply",
	[RC_L_DISCONNECT] = "DisconnectClientRequest",
	[RC_L_DISCONNECT_REPLY] = "DisconnectClientReply",
	[RC_L_GET_OBJECTS] = "AsyncGetObjectsRequest",
	[RC_L_CANCEL_GET] = "CancelGetRequest",
	[RC_L_BLOCKED] = "NotifyWorkerBlocked",
	[RC_L_UNBLOCKED] = "NotifyWorkerUnblocked",
	[RC_L_WAIT] = "WaitRequest",
	[RC_L_WAIT_REPLY] = "WaitReply",
	[RC_L_WAIT_ACTOR_ARGS] = "WaitForActorCallArgsRequest",
	[RC_L_PUSH_ERROR] = "PushErrorRequest",
	[RC_L_FREE_OBJECTS] = "FreeObjectsInObjectStoreRequest",
	[RC_L_SUBSCRIBE_PLASMA_READY] = "SubscribePlasmaReady",
};

/* The layout of a release; NULL when it has a dialect but nobody looked at its sockets (a test excludes that). */
static const layout *layout_of(const rc_dialect *d)
{
	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
		if (strcmp(layouts[i].release, rc_dialect_release(d)) == 0)
			return &layouts[i];
	return NULL;
}

int64_t rc_local_type(const rc_dialect *d, rc_local kind)
{
	const layout *l = layout_of(d);

	return l && kind >= 0 && kind < RC_L_COUNT ? l->types[kind] : NONE;
}

rc_local rc_local_kind(const rc_dialect *d, int64_t type)
{
	const layout *l = layout_of(d);

	for (int kind = 0; l && type >= 0 && kind < RC_L_COUNT; kind++)
		if (l->types[kind] == type)
			return (rc_local)kind;
	return RC_L_UNKNOWN;
}

const char *rc_local_name(rc_local kind)
{
	return kind >= 0 && kind < RC_L_COUNT ? names[kind] : "unknown message";
}

/* ---- reading ---- */

/* Opens the root table; the layout comes with it. */
static const layout *begin(const rc_dialect *d, rc_local kind, rc_view body, rc_error *e, rc__flat_reader *r, rc__flat_table *t)
{
	const layout *l = layout_of(d);

	*r = (rc__flat_reader){ .body = body, .message = names[kind], .error = e };
	if (!l) {
		rc__flat_fail(r, "layout", "of Ray %s is not known", rc_dialect_release(d));
		return NULL;
	}
	return rc__flat_root(r, t) == 0 ? l : NULL;
}

static int64_t opt_int(rc__flat_reader *r, const rc__flat_table *t, int slot, unsigned size, const char *field)
{
	return slot == NONE ? 0 : rc__flat_int(r, t, (unsigned)slot, size, field);
}

static rc_view opt_bytes(rc__flat_reader *r, const rc__flat_table *t, int slot, const char *field)
{
	return slot == NONE ? (rc_view){ 0 } : rc__flat_bytes(r, t, (unsigned)slot, field);
}

static rc_local_address address(rc__flat_reader *r, const rc__flat_table *t)
{
	return (rc_local_address){
		.node_id = rc__flat_id(r, t, 0, RC_NODE_ID, true, "owner address: node id"),
		.ip = rc__flat_bytes(r, t, 1, "owner address: ip"),
		.port = (int)rc__flat_int(r, t, 2, 4, "owner address: port"),
		.worker_id = rc__flat_id(r, t, 3, RC_WORKER_ID, true, "owner address: worker id"),
	};
}

int rc__local_objects(rc__flat_reader *r, const rc__flat_table *t, unsigned ids_slot, unsigned owners_slot, rc_local_objects *ret)
{
	rc__flat_vector ids = rc__flat_offsets(r, t, ids_slot, "object_ids"), owners = { 0 };

	/* Entries may share their bytes, so a frame can name far more objects than it has room for. */
	if (ids.n > RC_LOCAL_MAX_OBJECTS)
		rc__flat_fail(r, "object_ids", "has %zu entries, the limit is %d", ids.n, RC_LOCAL_MAX_OBJECTS);
	for (size_t i = 0; i < ids.n && !r->failed; i++) {
		rc_view id = rc__flat_element_bytes(r, &ids, i, "object_ids");
		if (!r->failed && id.n != RC_OBJECT_ID)
			rc__flat_fail(r, "object_ids", "has an id of %zu bytes at %zu, not %d", id.n, i, RC_OBJECT_ID);
	}
	if (owners_slot != RC__NO_OWNERS) {
		owners = rc__flat_offsets(r, t, owners_slot, "owner_addresses");
		if (!r->failed && owners.at && owners.n != ids.n)
			rc__flat_fail(r, "owner_addresses", "has %zu entries for %zu objects", owners.n, ids.n);
		for (size_t i = 0; i < owners.n && !r->failed; i++) {
			rc__flat_table owner;
			if (rc__flat_element_table(r, &owners, i, &owner, "owner_addresses") == 0)
				address(r, &owner);
		}
	}
	if (r->failed)
		return -1;
	*ret = (rc_local_objects){ .n = ids.n, .begin_ = r->body.p, .end_ = r->body.p + r->body.n };
	ret->ids_ = ids.at ? r->body.p + ids.at : NULL;
	ret->owners_ = owners.at ? r->body.p + owners.at : NULL;
	return 0;
}

static rc__flat_reader reader_of(const rc_local_objects *o)
{
	const uint8_t *begin_at = o->begin_, *end = o->end_;

	return (rc__flat_reader){ .body = { begin_at, (size_t)(end - begin_at) }, .message = "objects" };
}

rc_view rc_local_object(const rc_local_objects *o, size_t i)
{
	rc__flat_reader r = reader_of(o);

	if (i >= o->n)
		return (rc_view){ 0 };
	rc__flat_vector ids = { (size_t)((const uint8_t *)o->ids_ - r.body.p), o->n };
	return rc__flat_element_bytes(&r, &ids, i, "object_ids");
}

int rc_local_owner(const rc_local_objects *o, size_t i, rc_local_address *ret_owner)
{
	rc__flat_reader r = reader_of(o);
	rc__flat_table t;

	if (i >= o->n || !o->owners_)
		return -1;
	rc__flat_vector owners = { (size_t)((const uint8_t *)o->owners_ - r.body.p), o->n };
	if (rc__flat_element_table(&r, &owners, i, &t, "owner_addresses") != 0)
		return -1;
	rc_local_address owner = address(&r, &t);
	if (r.failed)
		return -1;
	*ret_owner = owner;
	return 0;
}

int rc_decode_register_client(const rc_dialect *d, rc_view body, rc_register_client *ret, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	const layout *l = begin(d, RC_L_REGISTER_CLIENT, body, e, &r, &t);

	if (!l)
		return -1;
	rc_register_client m = {
		.worker_type = (int)rc__flat_int(&r, &t, 0, 4, "worker_type"),
		.worker_id = rc__flat_id(&r, &t, 1, RC_WORKER_ID, false, "worker_id"),
		.pid = rc__flat_int(&r, &t, 2, 8, "worker_pid"),
		.startup_token = l->reg.startup_token == NONE ? -1 : opt_int(&r, &t, l->reg.startup_token, 8, "startup_token"),
		.job_id = rc__flat_id(&r, &t, (unsigned)l->reg.job_id, RC_JOB_ID, false, "job_id"),
		.runtime_env_hash = (int)opt_int(&r, &t, l->reg.runtime_env_hash, 4, "runtime_env_hash"),
		.language = (int)opt_int(&r, &t, l->reg.language, 4, "language"),
		.ip = opt_bytes(&r, &t, l->reg.ip, "ip_address"),
		.port = (int)opt_int(&r, &t, l->reg.port, 4, "port"),
		.serialized_job_config = opt_bytes(&r, &t, l->reg.job_config, "serialized_job_config"),
	};
	if (r.failed)
		return -1;
	*ret = m;
	return 0;
}

int rc_decode_announce_port(const rc_dialect *d, rc_view body, int *ret_port, rc_view *ret_entrypoint, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;

	if (!begin(d, RC_L_ANNOUNCE_PORT, body, e, &r, &t))
		return -1;
	int port = (int)rc__flat_int(&r, &t, 0, 4, "port");
	rc_view entrypoint = rc__flat_bytes(&r, &t, 1, "entrypoint");
	if (!r.failed && (port < 0 || port > 65535))
		rc__flat_fail(&r, "port", "is %d, not 0..65535", port);
	if (r.failed)
		return -1;
	*ret_port = port;
	*ret_entrypoint = entrypoint;
	return 0;
}

int rc_decode_disconnect(const rc_dialect *d, rc_view body, int *ret_exit_type, rc_view *ret_detail, rc_view *ret_exception, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;

	if (!begin(d, RC_L_DISCONNECT, body, e, &r, &t))
		return -1;
	int exit_type = (int)rc__flat_int(&r, &t, 0, 4, "disconnect_type");
	rc_view detail = rc__flat_bytes(&r, &t, 1, "disconnect_detail");
	rc_view exception = rc__flat_bytes(&r, &t, 2, "creation_task_exception");
	if (r.failed)
		return -1;
	*ret_exit_type = exit_type;
	*ret_detail = detail;
	*ret_exception = exception;
	return 0;
}

int rc_decode_get_objects(const rc_dialect *d, rc_view body, rc_get_objects *ret, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	const layout *l = begin(d, RC_L_GET_OBJECTS, body, e, &r, &t);
	rc_get_objects m = { 0 };

	if (!l || rc__local_objects(&r, &t, 0, 1, &m.objects) != 0)
		return -1;
	m.fetch_only = opt_int(&r, &t, l->get.fetch_only, 1, "fetch_only") != 0;
	m.task_id = opt_bytes(&r, &t, l->get.task_id, "task_id");
	if (r.failed)
		return -1;
	*ret = m;
	return 0;
}

int rc_decode_cancel_get(const rc_dialect *d, rc_view body, int64_t *ret_get, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	const layout *l = begin(d, RC_L_CANCEL_GET, body, e, &r, &t);

	if (!l)
		return -1;
	int64_t get = l->cancel.get == NONE ? -1 : opt_int(&r, &t, l->cancel.get, 8, "request id");
	if (r.failed)
		return -1;
	*ret_get = get;
	return 0;
}

int rc_decode_blocked(const rc_dialect *d, rc_view body, bool *ret_release_resources, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	const layout *l = begin(d, RC_L_BLOCKED, body, e, &r, &t);

	if (!l)
		return -1;
	bool release = l->blocked.release_resources == NONE || opt_int(&r, &t, l->blocked.release_resources, 1, "release_resources") != 0;
	if (r.failed)
		return -1;
	*ret_release_resources = release;
	return 0;
}

int rc_decode_wait(const rc_dialect *d, rc_view body, rc_wait *ret, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	const layout *l = begin(d, RC_L_WAIT, body, e, &r, &t);
	rc_wait m = { 0 };

	if (!l || rc__local_objects(&r, &t, 0, 1, &m.objects) != 0)
		return -1;
	m.needed = (int)rc__flat_int(&r, &t, 2, 4, "num_required_objects");
	m.timeout_ms = rc__flat_int(&r, &t, 3, 8, "timeout");
	m.task_id = opt_bytes(&r, &t, l->wait.task_id, "task_id");
	if (r.failed)
		return -1;
	*ret = m;
	return 0;
}

int rc_decode_wait_actor_args(const rc_dialect *d, rc_view body, rc_wait_actor_args *ret, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	const layout *l = begin(d, RC_L_WAIT_ACTOR_ARGS, body, e, &r, &t);
	rc_wait_actor_args m = { 0 };

	if (!l || rc__local_objects(&r, &t, 0, 1, &m.objects) != 0)
		return -1;
	m.tag = opt_int(&r, &t, l->args.tag, 4, "tag");
	m.task_id = opt_bytes(&r, &t, l->args.task_id, "task_id");
	m.attempt_number = (int)opt_int(&r, &t, l->args.attempt, 4, "attempt_number");
	if (r.failed)
		return -1;
	*ret = m;
	return 0;
}

int rc_decode_push_error(const rc_dialect *d, rc_view body, rc_view *ret_job, rc_view *ret_type, rc_view *ret_text, double *ret_time,
                         rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;

	if (!begin(d, RC_L_PUSH_ERROR, body, e, &r, &t))
		return -1;
	rc_view job = rc__flat_id(&r, &t, 0, RC_JOB_ID, true, "job_id");
	rc_view type = rc__flat_bytes(&r, &t, 1, "type");
	rc_view text = rc__flat_bytes(&r, &t, 2, "error_message");
	double when = rc__flat_double(&r, &t, 3, "timestamp");
	if (r.failed)
		return -1;
	*ret_job = job;
	*ret_type = type;
	*ret_text = text;
	*ret_time = when;
	return 0;
}

int rc_decode_free_objects(const rc_dialect *d, rc_view body, bool *ret_local_only, rc_local_objects *ret, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	rc_local_objects objects;

	if (!begin(d, RC_L_FREE_OBJECTS, body, e, &r, &t))
		return -1;
	bool local_only = rc__flat_int(&r, &t, 0, 1, "local_only") != 0;
	if (rc__local_objects(&r, &t, 1, RC__NO_OWNERS, &objects) != 0)
		return -1;
	*ret_local_only = local_only;
	*ret = objects;
	return 0;
}

int rc_decode_subscribe_ready(const rc_dialect *d, rc_view body, rc_view *ret_object, rc_local_address *ret_owner, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t, owner_table;

	if (!begin(d, RC_L_SUBSCRIBE_PLASMA_READY, body, e, &r, &t))
		return -1;
	rc_view object = rc__flat_id(&r, &t, 0, RC_OBJECT_ID, false, "object_id");
	rc_local_address owner = { 0 };
	if (rc__flat_table_at(&r, &t, 1, &owner_table, "owner_address"))
		owner = address(&r, &owner_table);
	if (r.failed)
		return -1;
	*ret_object = object;
	*ret_owner = owner;
	return 0;
}

/* ---- writing; the replies have the same slots in all releases ---- */

void rc__flat_ids(rc__flat_writer *w, size_t place, const rc_id *ids, size_t n)
{
	size_t at = rc__flat_vector_of(w, place, n, 4, 4);

	for (size_t i = 0; i < n; i++)
		rc__flat_string(w, at + 4 * i, rc_id_view(&ids[i]));
}

void rc_encode_register_reply(const rc_dialect *d, bool success, const char *failure, const rc_id *node_id, int port, rc_buf *out)
{
	rc__flat_writer w = rc__flat_start(out, 4);
	(void)d;

	rc__flat_put_int(&w, 3, 4, port);
	size_t text = rc__flat_put_offset(&w, 1), node = rc__flat_put_offset(&w, 2);
	rc__flat_put_int(&w, 0, 1, success);
	rc__flat_finish(&w);
	rc__flat_string(&w, text, rc_view_str(failure));
	rc__flat_string(&w, node, rc_id_view(node_id));
}

void rc_encode_announce_reply(const rc_dialect *d, bool success, const char *failure, rc_buf *out)
{
	rc__flat_writer w = rc__flat_start(out, 2);
	(void)d;

	size_t text = rc__flat_put_offset(&w, 1);
	rc__flat_put_int(&w, 0, 1, success);
	rc__flat_finish(&w);
	rc__flat_string(&w, text, rc_view_str(failure));
}

void rc_encode_disconnect_reply(const rc_dialect *d, rc_buf *out)
{
	rc__flat_writer w = rc__flat_start(out, 0);
	(void)d;

	rc__flat_finish(&w);
}

void rc_encode_wait_reply(const rc_dialect *d, const rc_id *found, size_t n_found, const rc_id *remaining, size_t n_remaining, rc_buf *out)
{
	rc__flat_writer w = rc__flat_start(out, 2);
	(void)d;

	size_t yes = rc__flat_put_offset(&w, 0), no = rc__flat_put_offset(&w, 1);
	rc__flat_finish(&w);
	rc__flat_ids(&w, yes, found, n_found);
	rc__flat_ids(&w, no, remaining, n_remaining);
}
