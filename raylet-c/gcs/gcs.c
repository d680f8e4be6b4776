/* The head as seen from a node: creation, the connect sequence, registration, the self check, and the plain calls.
 *
 * Connecting: GetClusterId (unless the flags gave it) -> key-value CLUSTER_METADATA, which names the release ->
 * GetInternalConfig. The first two go out before the release is known, in the numbers of any release that we know: a unit
 * test holds them equal in all. The cluster id is left out of the calls until it is known (a wrong or nil one is refused).
 * Traps: right after a head has started CLUSTER_METADATA may not be there yet. CheckAlive takes "ip:port" strings in 2.35.0
 * and node ids in 2.60.0. */
#include "raylet-c/gcs/gcs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/gcs/internal.h"

enum { CONNECT_TIMEOUT_MS = 60000, CONNECT_CALL_TIMEOUT_MS = 20000, METADATA_PAUSE_MS = 200, LEAVE_TIMEOUT_MS = 5000 };

/* Any release will do for the first two calls: see the top. */
static const char bootstrap_release[] = "2.60.0";

static void ask_head(rc_gcs *g, rc_method method, const void *request, const ProtobufCMessageDescriptor *reply, rc_gcs_fn fn)
{
	rc__gcs_send(g, method, request, reply, 0, CONNECT_CALL_TIMEOUT_MS, fn, g);
}

/* ---- connecting ---- */

static void ask_metadata(void *arg);

static void on_config(void *arg, const rc_error *error, const void *reply)
{
	const Rw__GetInternalConfigReply *r = reply;
	rc_gcs *g = arg;
	json_error_t where;

	if (error) {
		rc__gcs_tell_failed(g, error->code, "GCS %s: %s", g->address, error->text);
		return;
	}
	g->config_text = rc_strdup(RC_GET_STR(r, config));
	g->config = json_loads(*g->config_text ? g->config_text : "{}", 0, &where);
	if (!json_is_object(g->config)) {
		rc__gcs_tell_failed(g, RC_E_INVALID, "GCS %s: the internal config is no JSON object (line %d: %s)", g->address, where.line,
		                    where.text);
		return;
	}
	rc_timer_stop(g->deadline);
	g->deadline = NULL;
	g->connected = true;
	g->ops.connected(g->ctx);
}

static void ask_config(rc_gcs *g)
{
	ask_head(g, RC_M_GET_INTERNAL_CONFIG, NULL, &rw__get_internal_config_reply__descriptor, on_config);
}

static int read_metadata(rc_gcs *g, rc_view value, rc_error *error)
{
	json_error_t where;
	json_t *metadata = json_loadb((const char *)value.p, value.n, 0, &where);
	const char *release = json_string_value(json_object_get(metadata, "ray_version"));
	const char *python = json_string_value(json_object_get(metadata, "python_version"));
	const rc_dialect *dialect = NULL;

	if (!metadata)
		rc_fail(error, RC_E_INVALID, "CLUSTER_METADATA is no JSON: line %d: %s", where.line, where.text);
	else if (!release)
		rc_fail(error, RC_E_INVALID, "CLUSTER_METADATA does not name the Ray release");
	else
		dialect = rc_dialect_find(release, error);
	if (dialect) {
		g->dialect = dialect;
		g->python_version = rc_strdup(python ? python : "");
	}
	json_decref(metadata);
	return dialect ? 0 : -1;
}

static void on_metadata(void *arg, const rc_error *error, const void *reply)
{
	const Rw__InternalKVGetReply *r = reply;
	rc_gcs *g = arg;
	rc_error bad;

	if (error && error->code == RC_E_NOT_FOUND) {
		snprintf(g->why_down, sizeof g->why_down, "it is up but has not said yet which Ray release it is (no CLUSTER_METADATA)");
		rc_timer_stop(g->check);
		g->check = rc_timer_start(g->loop, METADATA_PAUSE_MS, 0, ask_metadata, g);
	} else if (error) {
		rc__gcs_tell_failed(g, error->code, "GCS %s: %s", g->address, error->text);
	} else if (read_metadata(g, RC_GET_VIEW(r, value), &bad) < 0) {
		rc__gcs_tell_failed(g, bad.code, "GCS %s: %s", g->address, bad.text);
	} else {
		ask_config(g);
	}
}

static void ask_metadata(void *arg)
{
	static const char space[] = "cluster", key[] = "CLUSTER_METADATA";
	Rw__InternalKVGetRequest request = RW__INTERNAL_KVGET_REQUEST__INIT;
	rc_gcs *g = arg;

	if (g->told)
		return;
	RC_SET_BYTES(request, namespace_, space, sizeof space - 1);
	RC_SET_BYTES(request, key, key, sizeof key - 1);
	ask_head(g, RC_M_KV_GET, &request, &rw__internal_kvget_reply__descriptor, on_metadata);
}

static void set_cluster_id(rc_gcs *g, const char *hex)
{
	snprintf(g->cluster_hex, sizeof g->cluster_hex, "%s", hex);
	rc_rpc_set_cluster_id(g->rpc, g->cluster_hex);
}

static void on_cluster_id(void *arg, const rc_error *error, const void *reply)
{
	const Rw__GetClusterIdReply *r = reply;
	rc_gcs *g = arg;
	rc_id id;

	if (error) {
		rc__gcs_tell_failed(g, error->code, "GCS %s: %s", g->address, error->text);
		return;
	}
	id = RC_GET_ID(r, cluster_id);
	if (id.n != RC_CLUSTER_ID) {
		rc__gcs_tell_failed(g, RC_E_INVALID, "GCS %s gives a cluster id of %d bytes instead of %d", g->address, id.n, RC_CLUSTER_ID);
		return;
	}
	set_cluster_id(g, rc_id_to_hex(&id).s);
	ask_metadata(g);
}

static void begin(void *arg)
{
	rc_gcs *g = arg;
	rc_error error;

	if (!g->ended && !(g->dialect = rc_dialect_find(bootstrap_release, &error)))
		rc__gcs_tell_failed(g, error.code, "%s", error.text);
	else if (!g->ended && *g->cluster_hex)
		ask_metadata(g);
	else if (!g->ended)
		ask_head(g, RC_M_GET_CLUSTER_ID, NULL, &rw__get_cluster_id_reply__descriptor, on_cluster_id);
	rc__gcs_release(g);
}

rc_gcs *rc_gcs_create(rc_loop *loop, rc_rpc *rpc, const rc_gcs_options *options, const rc_gcs_ops *ops, void *ctx)
{
	rc_gcs *g = rc_alloc(sizeof *g);

	*g = (rc_gcs){ .loop = loop, .rpc = rpc, .ops = *ops, .ctx = ctx, .refs = 2, .node_id = options->node_id };
	g->address = rc_strdup(options->address);
	g->connect_timeout_ms = options->connect_timeout_ms ? options->connect_timeout_ms : CONNECT_TIMEOUT_MS;
	if (options->cluster_id && *options->cluster_id)
		set_cluster_id(g, options->cluster_id);
	rc__gcs_calls_init(g);
	rc__gcs_nodes_init(g);
	rc__gcs_jobs_init(g);
	rc_loop_post(loop, begin, g); /* has the second reference */
	return g;
}

void rc_gcs_destroy(rc_gcs *g)
{
	if (!g)
		return;
	g->ended = true;
	rc__gcs_pubsub_end(g);
	rc__gcs_sync_end(g);
	rc__gcs_calls_end(g);
	rc__gcs_nodes_end(g);
	rc__gcs_jobs_end(g);
	rc__gcs_release(g);
}

/* ---- registration and the self check ---- */

static void on_check(void *arg, const rc_error *error, const void *reply)
{
	const Rw__CheckAliveReply *r = reply;
	rc_gcs *g = arg;

	if (error)
		rc_warn("the check whether the head holds this node for alive failed: %s", error->text);
	else if (r->n_raylet_alive > 0 && !r->raylet_alive[0])
		rc__gcs_tell_buried(g, "the head does not hold this node for alive: it was restarted without its data, or this node did not "
		                       "answer its health checks in time");
}

static void check(void *arg)
{
	Rw__CheckAliveRequest request = RW__CHECK_ALIVE_REQUEST__INIT;
	rc_gcs *g = arg;
	ProtobufCBinaryData id = { g->node_id.n, g->node_id.b };

	if (g->leaving || g->down)
		return;
	request.n_node_ids = 1;
	request.node_ids = &id;
	request.n_raylet_address = 1;
	request.raylet_address = &g->own_address;
	rc_gcs_call(g, RC_M_CHECK_ALIVE, &request, &rw__check_alive_reply__descriptor, on_check, g);
}

typedef struct asked { /* a user's callback behind one of ours */
	rc_gcs *g;
	rc_gcs_fn fn;
	rc_gcs_kv_fn kv_fn;
	void *arg;
} asked;

static asked *ask(rc_gcs *g, rc_gcs_fn fn, rc_gcs_kv_fn kv_fn, void *arg)
{
	asked *a = rc_alloc(sizeof *a);

	*a = (asked){ g, fn, kv_fn, arg };
	return a;
}

static void on_registered(void *arg, const rc_error *error, const void *reply)
{
	asked *a = arg;
	rc_gcs *g = a->g;

	if (!error && !g->ended && !g->leaving) {
		uint64_t every = (uint64_t)rc_gcs_config_int(g, "raylet_liveness_self_check_interval_ms", RC__GCS_CHECK_MS);

		g->registered = true;
		rc__gcs_sync_start(g);
		rc__gcs_subscribe(g);
		rc_timer_stop(g->check);
		g->check = rc_timer_start(g->loop, every, every, check, g);
	}
	if (!g->ended && a->fn)
		a->fn(a->arg, error, reply);
	free(a);
}

void rc_gcs_register(rc_gcs *g, const Rw__GcsNodeInfo *info, rc_gcs_fn fn, void *arg)
{
	Rw__RegisterNodeRequest request = RW__REGISTER_NODE_REQUEST__INIT;

	request.node_info = (Rw__GcsNodeInfo *)info;
	free(g->own_address);
	g->own_address = rc_sprintf("%s:%d", RC_GET_STR(info, node_manager_address), RC_GET(info, node_manager_port));
	rc__gcs_send(g, RC_M_REGISTER_NODE, &request, &rw__register_node_reply__descriptor, RC__GCS_OWN, rc__gcs_timeout(g), on_registered,
	             ask(g, fn, NULL, arg));
}

void rc_gcs_unregister(rc_gcs *g, rc_enum reason, const char *text, rc_gcs_fn fn, void *arg)
{
	Rw__UnregisterNodeRequest request = RW__UNREGISTER_NODE_REQUEST__INIT;
	Rw__NodeDeathInfo death = RW__NODE_DEATH_INFO__INIT;

	g->leaving = true;
	RC_SET(death, reason, rc_enum_value(g->dialect, reason));
	death.reason_message = (char *)text;
	RC_SET_ID(request, node_id, &g->node_id);
	request.node_death_info = &death;
	rc__gcs_send(g, RC_M_UNREGISTER_NODE, &request, &rw__unregister_node_reply__descriptor, RC__GCS_ONCE, LEAVE_TIMEOUT_MS, fn, arg);
}

void rc_gcs_on_restart(rc_gcs *g)
{
	if (!g->registered || g->leaving)
		return;
	rc__gcs_subscribe(g); /* the sync stream has broken with the old head and opens again by itself */
}

/* ---- plain calls ---- */

static void on_kv(void *arg, const rc_error *error, const void *reply)
{
	const Rw__InternalKVGetReply *r = reply;
	asked *a = arg;

	if (!a->g->ended)
		a->kv_fn(a->arg, error, r ? RC_GET_VIEW(r, value) : (rc_view){ 0 });
	free(a);
}

void rc_gcs_kv_get(rc_gcs *g, const char *space, const char *key, rc_gcs_kv_fn fn, void *arg)
{
	Rw__InternalKVGetRequest request = RW__INTERNAL_KVGET_REQUEST__INIT;

	RC_SET_BYTES(request, namespace_, space, strlen(space));
	RC_SET_BYTES(request, key, key, strlen(key));
	rc__gcs_send(g, RC_M_KV_GET, &request, &rw__internal_kvget_reply__descriptor, RC__GCS_OWN, rc__gcs_timeout(g), on_kv,
	             ask(g, NULL, fn, arg));
}

void rc_gcs_kv_put(rc_gcs *g, const char *space, const char *key, rc_view value, bool overwrite, rc_gcs_fn fn, void *arg)
{
	Rw__InternalKVPutRequest request = RW__INTERNAL_KVPUT_REQUEST__INIT;

	RC_SET_BYTES(request, namespace_, space, strlen(space));
	RC_SET_BYTES(request, key, key, strlen(key));
	RC_SET_BYTES(request, value, value.p, value.n);
	RC_SET(request, overwrite, overwrite);
	rc_gcs_call(g, RC_M_KV_PUT, &request, &rw__internal_kvput_reply__descriptor, fn, arg);
}

void rc_gcs_report_worker_failure(rc_gcs *g, const Rw__WorkerTableData *worker, rc_gcs_fn fn, void *arg)
{
	Rw__ReportWorkerFailureRequest request = RW__REPORT_WORKER_FAILURE_REQUEST__INIT;

	request.worker_failure = (Rw__WorkerTableData *)worker;
	rc_gcs_call(g, RC_M_REPORT_WORKER_FAILURE, &request, &rw__report_worker_failure_reply__descriptor, fn, arg);
}

void rc_gcs_add_job(rc_gcs *g, const Rw__JobTableData *job, rc_gcs_fn fn, void *arg)
{
	Rw__AddJobRequest request = RW__ADD_JOB_REQUEST__INIT;

	request.data = (Rw__JobTableData *)job;
	rc_gcs_call(g, RC_M_ADD_JOB, &request, &rw__add_job_reply__descriptor, fn, arg);
}

void rc_gcs_mark_job_finished(rc_gcs *g, const rc_id *job, rc_gcs_fn fn, void *arg)
{
	Rw__MarkJobFinishedRequest request = RW__MARK_JOB_FINISHED_REQUEST__INIT;

	RC_SET_ID(request, job_id, job);
	rc_gcs_call(g, RC_M_MARK_JOB_FINISHED, &request, &rw__mark_job_finished_reply__descriptor, fn, arg);
}

void rc_gcs_report_job_error(rc_gcs *g, const rc_id *job, const char *type, const char *text, rc_gcs_fn fn, void *arg)
{
	Rw__ReportJobErrorRequest request = RW__REPORT_JOB_ERROR_REQUEST__INIT;
	Rw__ErrorTableData data = RW__ERROR_TABLE_DATA__INIT;

	RC_SET_ID(data, job_id, job);
	data.type = (char *)type;
	data.error_message = (char *)text;
	RC_SET(data, timestamp, (double)rc_wall_ms());
	request.job_error = &data;
	rc_gcs_call(g, RC_M_REPORT_JOB_ERROR, &request, &rw__report_job_error_reply__descriptor, fn, arg);
}

void rc_gcs_drain_node(rc_gcs *g, const rc_id *node, rc_enum reason, const char *text, int64_t deadline_wall_ms, rc_gcs_fn fn, void *arg)
{
	Rw__AutoscalerDrainNodeRequest request = RW__AUTOSCALER__DRAIN_NODE_REQUEST__INIT;

	RC_SET_ID(request, node_id, node);
	RC_SET(request, reason, rc_enum_value(g->dialect, reason));
	request.reason_message = (char *)text;
	RC_SET(request, deadline_timestamp_ms, deadline_wall_ms);
	rc_gcs_call(g, RC_M_AUTOSCALER_DRAIN_NODE, &request, &rw__autoscaler__drain_node_reply__descriptor, fn, arg);
}

/* ---- what is known ---- */

const rc_dialect *rc_gcs_dialect(const rc_gcs *g)
{
	return g->dialect;
}

const rc_id *rc_gcs_node_id(const rc_gcs *g)
{
	return &g->node_id;
}

const char *rc_gcs_cluster_id(const rc_gcs *g)
{
	return g->cluster_hex;
}

const char *rc_gcs_python_version(const rc_gcs *g)
{
	return g->python_version ? g->python_version : "";
}

const char *rc_gcs_config_json(const rc_gcs *g)
{
	return g->config_text ? g->config_text : "";
}
