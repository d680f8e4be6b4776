/* A node that is nothing but a member, against a real head; a tool, not a unit test: without an address it says so and ends.
 *   live HEAD:PORT [ip [seconds]]
 * Registers, keeps the sync stream, prints what comes, tries each plain call once, unregisters. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "raylet-c/base/test.h"
#include "raylet-c/gcs/gcs.h"

static rc_loop *loop;
static rc_rpc *rpc;
static rc_gcs *gcs;
static const char *ip = "127.0.0.1";
static uint64_t began, seconds = 5;
static int port;

static void on_left(void *arg, const rc_error *error, const void *reply)
{
	(void)arg;
	(void)reply;
	printf("left: %s\n", error ? error->text : "ok");
	rc_loop_stop(loop);
}

static void leave(void *arg)
{
	(void)arg;
	rc_gcs_unregister(gcs, RC_V_DEATH_EXPECTED, "the live test is over", on_left, NULL);
}

static void ask_gc(void *arg)
{
	(void)arg;
	rc_gcs_send_global_gc(gcs);
}

static void say(void *arg, const rc_error *error, const void *reply)
{
	(void)reply;
	printf("%s: %s\n", (const char *)arg, error ? error->text : "ok");
}

static void on_value(void *arg, const rc_error *error, rc_view value)
{
	printf("%s: %s %.*s\n", (const char *)arg, error ? error->text : "", (int)value.n, (const char *)value.p);
}

static void on_session(void *arg, const rc_error *error, const rc_gcs_session *s)
{
	(void)arg;
	printf("session: %s name %s dir %s temp %s\n", error ? error->text : "ok", s ? s->session_name : "", s ? s->session_dir : "",
	       s ? s->temp_dir : "");
}

static void try_calls(void)
{
	Rw__WorkerTableData worker = RW__WORKER_TABLE_DATA__INIT;
	Rw__Address address = RW__ADDRESS__INIT;
	Rw__JobTableData job = RW__JOB_TABLE_DATA__INIT;
	Rw__JobConfig config = RW__JOB_CONFIG__INIT;
	rc_id worker_id = rc_id_random(RC_WORKER_ID), job_id = rc_id_from("\x77\x01\0\0", 4);
	rc_id driver = rc_id_nil(RC_WORKER_ID), nil = rc_id_nil(RC_JOB_ID);

	RC_SET_ID(address, node_id, rc_gcs_node_id(gcs));
	address.ip_address = (char *)ip;
	RC_SET(address, port, 1);
	RC_SET_ID(address, worker_id, &worker_id);
	worker.worker_address = &address;
	RC_SET(worker, pid, (uint32_t)getpid());
	RC_SET(worker, is_alive, 0);
	RC_SET(worker, exit_type, rc_enum_value(rc_gcs_dialect(gcs), RC_V_EXIT_SYSTEM_ERROR));
	worker.exit_detail = "live test";
	rc_gcs_report_worker_failure(gcs, &worker, say, "report worker failure");
	rc_gcs_kv_put(gcs, "live", "key", rc_view_str("value"), true, say, "put");
	rc_gcs_kv_get(gcs, "live", "key", on_value, "get");
	rc_gcs_kv_get(gcs, "live", "no such key", on_value, "get nothing");
	memcpy(driver.b, job_id.b, 4);
	RC_SET_ID(address, worker_id, &driver);
	RC_SET_ID(job, job_id, &job_id);
	job.driver_ip_address = (char *)ip;
	job.driver_address = &address;
	job.config = &config;
	job.entrypoint = "live";
	rc_gcs_add_job(gcs, &job, say, "add job");
	rc_gcs_mark_job_finished(gcs, &job_id, say, "finish job");
	rc_gcs_report_job_error(gcs, &nil, "live_test", "nothing is wrong", say, "report error");
	rc_gcs_get_session(gcs, on_session, NULL);
}

static void on_registered(void *arg, const rc_error *error, const void *reply)
{
	(void)arg;
	(void)reply;
	printf("registered: %s after %llu ms\n", error ? error->text : "ok", (unsigned long long)(rc_now_ms() - began));
	if (error)
		rc_loop_stop(loop);
	try_calls();
	rc_loop_after(loop, seconds * 700, ask_gc, NULL); /* the other nodes hear it */
	rc_loop_after(loop, seconds * 1000, leave, NULL);
}

static void on_connected(void *ctx)
{
	Rw__GcsNodeInfo info = RW__GCS_NODE_INFO__INIT;
	Rw__MapStringDouble cpu = RW__MAP_STRING_DOUBLE__INIT, *list = &cpu;
	Rw__MapStringString label = RW__MAP_STRING_STRING__INIT, *labels = &label;
	Rw__SyncerResourceViewSyncMessage view = RW__SYNCER__RESOURCE_VIEW_SYNC_MESSAGE__INIT;

	(void)ctx;
	printf("connected: Ray %s, Python %s, cluster %s after %llu ms; config %.60s...\n", rc_dialect_release(rc_gcs_dialect(gcs)),
	       rc_gcs_python_version(gcs), rc_gcs_cluster_id(gcs), (unsigned long long)(rc_now_ms() - began), rc_gcs_config_json(gcs));
	cpu.key = "live";
	RC_SET(cpu, value, 3);
	label.key = "made-by";
	label.value = "live";
	RC_SET_ID(info, node_id, rc_gcs_node_id(gcs));
	info.node_manager_address = (char *)ip;
	info.raylet_socket_name = info.object_store_socket_name = "/nonexistent";
	RC_SET(info, node_manager_port, port);
	RC_SET(info, object_manager_port, port);
	info.n_resources_total = 1;
	info.resources_total = &list;
	info.n_labels = 1;
	info.labels = &labels;
	info.node_manager_hostname = "live";
	info.node_name = (char *)ip;
	view.n_resources_available = view.n_resources_total = 1;
	view.resources_available = view.resources_total = &list;
	rc_gcs_set_view(gcs, &view);
	rc_gcs_register(gcs, &info, on_registered, NULL);
}

static void on_failed(void *ctx, const rc_error *error)
{
	(void)ctx;
	printf("failed (%s) after %llu ms: %s\n", rc_code_name(error->code), (unsigned long long)(rc_now_ms() - began), error->text);
	rc_loop_stop(loop);
}

static void on_added(void *ctx, rc_gcs_node *node)
{
	(void)ctx;
	printf("node added: %s at %s, objects %s, %zu labels\n", rc_id_to_hex(&node->id).s, node->address, node->object_address,
	       node->n_labels);
}

static void on_removed(void *ctx, rc_gcs_node *node)
{
	(void)ctx;
	printf("node removed: %s reason %d: %s\n", rc_id_to_hex(&node->id).s, node->death_reason, node->death_text);
}

static void on_job(void *ctx, const rc_id *job, bool dead, const Rw__JobTableData *data)
{
	(void)ctx;
	printf("job %s %s: %s\n", rc_id_to_hex(job).s, dead ? "dead" : "runs", RC_GET_STR(data, entrypoint));
}

static void on_worker_died(void *ctx, const rc_id *worker, const rc_id *node)
{
	(void)ctx;
	printf("worker died: %s on %s\n", rc_id_to_hex(worker).s, rc_id_to_hex(node).s);
}

static void on_view(void *ctx, const rc_id *node, const Rw__SyncerResourceViewSyncMessage *view)
{
	(void)ctx;
	printf("view of %s: %zu totals, %zu labels\n", rc_id_to_hex(node).s, view->n_resources_total, view->n_labels);
}

static void on_gc(void *ctx)
{
	(void)ctx;
	printf("global gc\n");
}

static void on_end(void *ctx, const char *text)
{
	(void)ctx;
	printf("end: %s\n", text);
	rc_loop_stop(loop);
}

static void serve(void *ctx, rc_request *request, const char *path, size_t n, rc_view bytes)
{
	(void)ctx;
	(void)bytes;
	if (memmem(path, n, "NotifyGCSRestart", 16)) {
		printf("the head says that it was restarted\n");
		rc_gcs_on_restart(gcs);
	}
	rc_reply(request, (rc_view){ 0 });
}

int main(int argc, char **argv)
{
	static const rc_gcs_ops ops = { .connected = on_connected, .failed = on_failed, .node_added = on_added, .node_removed = on_removed,
	                                .job = on_job,
		                        .worker_died = on_worker_died, .view = on_view, .global_gc = on_gc, .buried = on_end, .lost = on_end };
	rc_gcs_options options = { .node_id = rc_id_random(RC_NODE_ID), .connect_timeout_ms = 5000 };
	rc_rpc_options rpc_options = { 0 };
	rc_server_options server = { .ip = "0.0.0.0", .serve = serve };
	rc_error error = { 0 };
	rc_id_hex hex = rc_id_to_hex(&options.node_id);

	if (argc < 2) {
		printf("1..0 # skipped: no head was named\n");
		return 0;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	options.address = argv[1];
	options.cluster_id = getenv("CLUSTER_ID");
	ip = argc > 2 ? argv[2] : ip;
	seconds = argc > 3 ? (uint64_t)atoi(argv[3]) : seconds;
	loop = rc_loop_create();
	rpc_options.token = getenv("TOKEN");
	rpc = rc_rpc_create(loop, &rpc_options, &error);
	server.health_service = hex.s;
	port = rpc ? rc_server_start(rpc, &server, &error) : -1;
	if (port < 0) {
		printf("%s\n", error.text);
		return 1;
	}
	rc_server_set_serving(rpc, true);
	began = rc_now_ms();
	gcs = rc_gcs_create(loop, rpc, &options, &ops, NULL);
	rc_loop_run(loop);
	rc_gcs_destroy(gcs);
	rc_rpc_destroy(rpc);
	rc_loop_destroy(loop);
	return 0;
}
