/* The daemon's life.
 *
 *   state        begins with                       ends with
 *   CONNECTING   the loop runs                     rc_gcs_ops.connected: release, config and session are known
 *   REGISTERING  parts built, RegisterNode sent    the head's answer
 *   ALIVE        helpers and prefork start         a drain, or the end
 *   DRAINING     DrainRaylet accepted              idle
 *   ENDING       rc_daemon_end                     the head knows (at most 5 s), helpers are gone (at most 3 s): loop stops
 *
 * Nothing of Python runs before ALIVE: the helper processes' ports are chosen by the daemon. main() builds the parts in order
 * and takes them down in the reverse one. A failure before ALIVE leaves nothing behind: no socket, process, or memory file.
 *
 * Exit status: 0 after a wanted end (SIGTERM, drain, shutdown by the head), 1 otherwise. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/choices.h"
#include "raylet-c/base/log.h"
#include "raylet-c/base/version.h"
#include "raylet-c/cli/versions.h"
#include "raylet-c/node/node.h"
#include "raylet-c/node/preload.h"
#include "raylet-c/node/stock.h"
#include "raylet-c/rpc/security.h"

enum { TICK_MS = 100, DEBUG_MS = 10000, HELPERS_GRACE_MS = 3000, CHILDREN_WAIT_MS = 3000, JOBS_WAIT_MS = 2000,
       END_LIMIT_S = 20 /* more than the waits of an end together */ };

/* The mark by which `raylet-c` knows an installed daemon from Ray's own. */
const char rc_daemon_mark[] __attribute__((used)) = RC_DAEMON_MARK;

/* ---- the end ---- */

static void stop_loop(void *arg)
{
	rc_loop_stop(((rc_daemon *)arg)->loop);
}

static void unregistered(void *arg, const rc_error *error, const void *reply)
{
	rc_daemon *n = arg;
	(void)reply;
	if (error)
		rc_warn("the head was not told of the end: %s", error->text);
	if (n->agents)
		rc_agents_stop(n->agents, HELPERS_GRACE_MS, stop_loop, n);
	else
		stop_loop(n);
}

static void unregister(void *arg)
{
	rc_daemon *n = arg;
	rc_timer_stop(n->jobs_timer);
	n->jobs_timer = NULL;
	rc_gcs_unregister(n->gcs, n->end_reason, n->end_text, unregistered, n);
}

static void job_finished(void *arg, const rc_error *error, const void *reply)
{
	rc_daemon *n = arg;
	(void)reply;
	if (error)
		rc_warn("the head was not told of the end of a driver's job: %s", error->text);
	n->jobs_ending--;
	if (n->jobs_timer && !n->jobs_ending)
		unregister(n);
}

void rc_daemon_end_job(rc_daemon *n, const rc_id *job)
{
	if (rc_daemon_ending(n))
		return;
	n->jobs_ending++;
	rc_gcs_mark_job_finished(n->gcs, job, job_finished, n);
}

/* Whatever keeps the loop: an end must not hang. The guardian ends workers and helpers. */
static void overdue(int signum)
{
	static const char text[] = "(raylet) the node's end took more than 20 s: it is cut short\n";
	(void)signum;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(2);
	_exit(1);
}

void rc_daemon_end(rc_daemon *n, int exit_status, rc_enum reason, const char *format, ...)
{
	char text[1024];
	va_list args;
	if (rc_daemon_ending(n))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	rc_log_write(exit_status ? RC_ERROR : RC_INFO, __FILE__, __LINE__, "the node ends: %s", text);
	bool known_to_head = n->state >= RC_REGISTERING;
	n->state = RC_ENDING;
	n->exit_status = exit_status;
	signal(SIGALRM, overdue);
	alarm(END_LIMIT_S);
	if (n->procs)
		rc_procs_terminate_all(n->procs);
	n->end_reason = reason;
	snprintf(n->end_text, sizeof(n->end_text), "%s", text);
	if (!known_to_head || exit_status != 0) {
		unregistered(n, NULL, NULL);
		return;
	}
	n->jobs_timer = rc_timer_start(n->loop, n->jobs_ending ? JOBS_WAIT_MS : 0, 0, unregister, n);
}

static void on_signal(void *arg, int signum)
{
	rc_daemon *n = arg;
	/* Ray's dashboard agent looks for these words in raylet.out to tell a wanted end from a crash. */
	rc_info("Raylet received SIGTERM%s: shutting down", signum == SIGTERM ? "" : " (by SIGINT)");
	/* A drain whose deadline has passed: the end is what was announced, and actors' callers are told of a preemption. */
	bool announced = rc_drain_expired(&n->drain, n->dialect, rc_wall_ms());
	rc_daemon_end(n, 0, announced ? rc_drain_death_reason(&n->drain, n->dialect) : RC_V_DEATH_EXPECTED, "%s",
	              announced ? n->drain.message : "received SIGTERM");
}

/* ---- from the store ---- */

static void store_changed(rc_daemon *n)
{
	rc_store_stats s;
	rc_store_get_stats(n->store, &s);
	rc_resources_set_store_used(n->resources, s.used_bytes);
	rc_resources_mark(n->resources, RC_BUSY_STORE, s.primary_objects + s.spilled_objects_now > 0);
}

static void store_sealed(void *ctx, const rc_id *id, const rc_owner *owner, uint64_t data_size, uint64_t metadata_size, rc_source source,
                         bool by_client)
{
	rc_daemon *n = ctx;
	rc_objects_sealed(n->objects, id, owner, data_size, metadata_size, source, by_client);
	store_changed(n);
}

static void store_gone(void *ctx, const rc_id *id, const rc_owner *owner, bool spilled)
{
	rc_daemon *n = ctx;
	rc_objects_gone(n->objects, id, owner, spilled);
	store_changed(n);
}

static void store_spilled(void *ctx, const rc_id *id, const rc_owner *owner, const char *url)
{
	rc_daemon *n = ctx;
	rc_objects_spilled(n->objects, id, owner, url);
	store_changed(n);
}

static void store_full(void *ctx)
{
	rc_gc_everywhere(ctx, true);
}

static const rc_store_ops store_ops = {
	.sealed = store_sealed,
	.gone = store_gone,
	.spilled = store_spilled,
	.full = store_full,
	.spill_external = rc_io_spill,
	.restore_external = rc_io_restore,
	.delete_external = rc_io_delete,
};

/* ---- for objects/ ---- */

static bool objects_node_address(void *ctx, const rc_id *node, char ret[80])
{
	const rc_gcs_node *found = rc_gcs_node_find(((rc_daemon *)ctx)->gcs, node);
	if (!found || !found->alive)
		return false;
	snprintf(ret, 80, "%s", found->object_address);
	return true;
}

static bool objects_node_dead(void *ctx, const rc_id *node)
{
	const rc_gcs_node *found = rc_gcs_node_find(((rc_daemon *)ctx)->gcs, node);
	return found && !found->alive;
}

static void objects_each_node(void *ctx, void (*fn)(void *arg, const rc_id *node, const char *address), void *arg)
{
	rc_daemon *n = ctx;
	rc_gcs_node *node;
	for (size_t i = 0; (node = rc_gcs_node_next(n->gcs, &i));)
		if (!rc_id_eq(&node->id, &n->node_id))
			fn(arg, &node->id, node->object_address);
}

static void objects_queued(void *ctx, bool queued)
{
	(void)queued;
	rc_daemon_view_changed(ctx);
}

static const rc_objects_ops objects_ops = { objects_node_address, objects_node_dead, objects_each_node, objects_queued };

/* ---- the view ---- */

static void push_view(void *arg)
{
	rc_daemon *n = arg;
	n->view_posted = false;
	rc_stats_push_view(n);
}

void rc_daemon_view_changed(void *arg)
{
	rc_daemon *n = arg;
	if (n->view_posted || rc_daemon_ending(n) || n->state < RC_REGISTERING)
		return;
	n->view_posted = true;
	rc_loop_post(n->loop, push_view, n);
}

static void tick(void *arg)
{
	rc_daemon *n = arg;
	if (rc_leases_waiting(n->leases))
		rc_leases_run(n->leases);
	rc_drain_check(n);
	if (rc_trim_due(&n->trim, rc_objects_bytes_in(n->objects)))
		rc_trim_start(n->loop);
}

/* ---- from the head ---- */

static void node_added(void *ctx, rc_gcs_node *node)
{
	rc_daemon *n = ctx;
	rc_labels labels = { 0 };
	for (size_t i = 0; i < node->n_labels; i++)
		rc_labels_set(&labels, node->labels[i].key, node->labels[i].value);
	rc_cluster_alive(n->cluster, &node->id, &labels);
	rc_labels_free(&labels);
	if (!rc_id_eq(&node->id, &n->node_id))
		rc_objects_node_added(n->objects, &node->id);
}

static void node_removed(void *ctx, rc_gcs_node *node)
{
	rc_daemon *n = ctx;
	rc_info("node %s (%s) is dead: %s", rc_id_to_hex(&node->id).s, node->ip, node->death_text);
	rc_cluster_dead(n->cluster, &node->id);
	rc_objects_node_removed(n->objects, &node->id);
	rc_leases_node_dead(n->leases, &node->id);
	rc_rpc_forget(n->rpc, node->address);
	rc_rpc_forget(n->rpc, node->object_address);
}

static void job_event(void *ctx, const rc_id *job, bool dead, const Rw__JobTableData *data)
{
	rc_daemon *n = ctx;
	if (!dead) {
		rc_pool_job_started(n->pool, job, data ? data->config : NULL);
		return;
	}
	rc_leases_job_dead(n->leases, job);
	rc_pool_job_finished(n->pool, job);
}

static void any_worker_died(void *ctx, const rc_id *worker, const rc_id *node)
{
	rc_daemon *n = ctx;
	(void)node;
	rc_objects_worker_died(n->objects, worker);
	rc_leases_owner_dead(n->leases, worker);
}

static void node_view(void *ctx, const rc_id *node, const Rw__SyncerResourceViewSyncMessage *view)
{
	rc_daemon *n = ctx;
	rc_error e;
	if (rc_cluster_view(n->cluster, node, view, &e))
		rc_warn("resource view of node %s is passed over: %s", rc_id_to_hex(node).s, e.text);
	else if (rc_leases_waiting(n->leases))
		rc_leases_run(n->leases);
}

static void global_gc(void *ctx)
{
	rc_gc_everywhere(ctx, false);
}

static void buried(void *ctx, const char *text)
{
	rc_daemon_end(ctx, 1, RC_V_DEATH_UNEXPECTED, "the head has declared this node dead: %s", text);
}

static void lost(void *ctx, const char *text)
{
	rc_daemon_end(ctx, 1, RC_V_DEATH_UNEXPECTED, "the head is lost: %s", text);
}

static void failed(void *ctx, const rc_error *error)
{
	rc_daemon_end(ctx, 1, RC_V_DEATH_UNEXPECTED, "%s", error->text);
}

/* ---- building ---- */

static int build_resources(rc_daemon *n, rc_error *e)
{
	rc_amounts total = { 0 };
	if (rc_amounts_parse_list(n->options.static_resource_list, &total, e))
		return -1;
	const char *custom = rc_gcs_config_str(n->gcs, "custom_unit_instance_resources", "neuron_cores,TPU,NPU,HPU");
	const char *predefined = rc_gcs_config_str(n->gcs, "predefined_unit_instance_resources", "GPU");
	char *units = rc_sprintf("%s,%s", predefined, custom);
	n->resources = rc_resources_create(&total, &(rc_resources_options){ .unit_instances = units, .changed = rc_daemon_view_changed, .ctx = n }, e);
	free(units);
	rc_amounts_free(&total);
	if (!n->resources)
		return -1;
	if (rc_labels_parse(n->options.labels, &n->labels, e))
		return -1;
	rc_train_label(&n->train, &n->labels);
	rc_labels_set(&n->labels, n->v235 ? "ray.io/node_id" : "ray.io/node-id", rc_id_to_hex(&n->node_id).s);
	n->bundles = rc_bundles_create(n->resources);
	n->cluster = rc_cluster_create(&n->node_id);
	rc_leases_config c;
	rc_leases_config_defaults(&c);
	c.dialect = n->dialect;
	c.self = n->node_id;
	c.labels = &n->labels;
	c.resources = n->resources;
	c.bundles = n->bundles;
	c.cluster = n->cluster;
	c.ops = &rc_daemon_lease_ops;
	c.ctx = n;
	c.spread_threshold = rc_gcs_config_double(n->gcs, "scheduler_spread_threshold", c.spread_threshold);
	c.top_k_fraction = rc_gcs_config_double(n->gcs, "scheduler_top_k_fraction", c.top_k_fraction);
	c.avoid_gpu_nodes = rc_gcs_config_bool(n->gcs, "scheduler_avoid_gpu_nodes", c.avoid_gpu_nodes);
	c.worker_cap = rc_gcs_config_bool(n->gcs, "worker_cap_enabled", c.worker_cap);
	c.cap_first_ms = (uint64_t)rc_gcs_config_int(n->gcs, "worker_cap_initial_backoff_delay_ms", (int64_t)c.cap_first_ms);
	c.cap_max_ms = (uint64_t)rc_gcs_config_int(n->gcs, "worker_cap_max_backoff_delay_ms", (int64_t)c.cap_max_ms);
	c.worker_retries = (int)rc_gcs_config_int(n->gcs, "pop_worker_max_retries", c.worker_retries);
	int64_t shapes = rc_gcs_config_int(n->gcs, "max_resource_shapes_per_load_report", (int64_t)c.max_shapes);
	c.max_shapes = shapes >= 0 ? (size_t)shapes : c.max_shapes;
	n->leases = rc_leases_create(&c);
	rc_bundles_on_removed(n->bundles, rc_leases_bundle_removed, n->leases);
	return 0;
}

static int build_store(rc_daemon *n, rc_error *e)
{
	const rc_options *o = &n->options;
	rc_store_options s = {
		.socket_path = o->store_socket_name,
		.capacity = (uint64_t)o->object_store_memory,
		.plasma_dir = *o->plasma_directory ? o->plasma_directory : "/dev/shm",
		.fallback_dir = *o->fallback_directory ? o->fallback_directory : o->temp_dir,
		.spill_dir = *o->fallback_directory ? o->fallback_directory : NULL,
		.session_dir = o->session_dir,
		.node_id = n->node_id,
		.huge_pages = o->huge_pages,
		.system_config = rc_gcs_config_json(n->gcs),
	};
	n->store = rc_store_create(n->loop, n->dialect, &s, &store_ops, n, e);
	return n->store ? 0 : -1;
}

static int build_server(rc_daemon *n, rc_error *e)
{
	rc_id_hex hex = rc_id_to_hex(&n->node_id);
	/* Workers report their metrics to 127.0.0.1, others ask at the node's address. */
	const char *ip = n->options.node_ip_address;
	const int agent_port = n->native_agent ? n->ports.metrics_agent_port : 0;
	const rc_server_port more[] = {
		{ ip, (int)n->options.object_manager_port, "--object_manager_port" },
		{ ip, agent_port, "--dashboard-agent-grpc-port" },
		{ "127.0.0.1", strcmp(ip, "127.0.0.1") ? agent_port : 0, "--dashboard-agent-grpc-port" },
	};
	rc_server_options s = {
		.ip = n->options.node_ip_address,
		.port = (int)(n->options.node_manager_port > 0 ? n->options.node_manager_port : 0),
		.port_option = "--node_manager_port",
		.more = more,
		.n_more = sizeof(more) / sizeof(more[0]),
		.sliced = rc_method_path(n->dialect, RC_M_OM_PUSH),
		.health_service = hex.s,
		.serve = rc_services_serve,
		.ctx = n,
	};
	n->port = rc_server_start(n->rpc, &s, e);
	return n->port > 0 ? 0 : -1;
}

/* Which providers may carry objects between nodes of ours: RAYLET_C_FABRIC. No provider encrypts or asks for tokens, so where the
 * cluster does, only the operator's word opens one. */
static const char *fabric_setting(const rc_daemon *n)
{
	const char *providers = getenv("RAYLET_C_FABRIC"), *plaintext = getenv("RAYLET_C_FABRIC_PLAINTEXT");
	bool guarded = n->tls || n->token;
	if (guarded && !(plaintext && strcmp(plaintext, "1") == 0)) {
		if (providers && *providers && strcmp(providers, "off") != 0)
			rc_warn("RAYLET_C_FABRIC=%s has no effect: the cluster uses %s, and a fabric is neither encrypted nor authenticated "
			        "(RAYLET_C_FABRIC_PLAINTEXT=1 allows it)",
			        providers, n->tls ? "TLS" : "tokens");
		return "off";
	}
	return providers && *providers ? providers : "auto";
}

static void build_objects(rc_daemon *n)
{
	rc_objects_options o = {
		.loop = n->loop,
		.rpc = n->rpc,
		.dialect = n->dialect,
		.store = n->store,
		.node_id = n->node_id,
		.ip = n->options.node_ip_address,
		.port = n->port,
		.chunk_size = (uint64_t)rc_gcs_config_int(n->gcs, "object_manager_default_chunk_size", 0),
		.max_bytes_in_flight = (uint64_t)rc_gcs_config_int(n->gcs, "object_manager_max_bytes_in_flight", 0),
		.pull_timeout_ms = (unsigned)rc_gcs_config_int(n->gcs, "object_manager_pull_timeout_ms", 0),
		.report_batch = (unsigned)rc_gcs_config_int(n->gcs, "max_object_report_batch_size", 0),
		.args_memory_fraction = rc_gcs_config_double(n->gcs, "max_task_args_memory_fraction", 0),
		.fetch_fail_timeout_ms = (unsigned)rc_gcs_config_int(n->gcs, "fetch_fail_timeout_milliseconds", 0),
		.cluster_id = rc_gcs_cluster_id(n->gcs),
		.fabric = fabric_setting(n),
	};
	int64_t free_period_ms = rc_gcs_config_int(n->gcs, "free_objects_period_milliseconds", 0);
	if (free_period_ms > 0)
		o.free_period_ms = (unsigned)free_period_ms;
	n->objects = rc_objects_create(&o, &objects_ops, n);
}

static bool prefork_starting(void *arg)
{
	return rc_prefork_starting(((const rc_daemon *)arg)->prefork, RC_WARM_PLAIN);
}

static bool runtime_env_busy(void *arg)
{
	return rc_runtime_envs_busy(((const rc_daemon *)arg)->runtime_envs);
}

static void runtime_env_wanted(void *arg)
{
	rc_daemon *n = arg;
	if (n->agents) /* it comes with ALIVE; the request is tried again until then */
		rc_agents_want_runtime_env(n->agents);
}

static void runtime_env_answered(void *arg)
{
	rc_daemon *n = arg;
	if (n->agents)
		rc_agents_runtime_env_answered(n->agents);
}

static rc_agents_options agents_options(rc_daemon *n)
{
	return (rc_agents_options){
		.dialect = n->dialect,
		.procs = n->procs,
		.dashboard_agent_command = n->options.dashboard_agent_command,
		.runtime_env_agent_command = n->options.runtime_env_agent_command,
		.native = n->native_agent,
		.session_name = n->options.session_name,
		.gcs_address = n->options.gcs_address,
		.cluster_id = n->options.cluster_id,
		.runtime_env_busy = runtime_env_busy,
		.session_dir = n->options.session_dir,
		.log_dir = n->options.log_dir,
		.node_ip = n->options.node_ip_address,
		.node_id = n->node_id,
		.node_manager_port = n->port,
		.busy = prefork_starting,
		.busy_arg = n,
	};
}

static int build_pool(rc_daemon *n, rc_error *e)
{
	const rc_options *o = &n->options;
	rc_gcs *g = n->gcs;
	char *log = rc_sprintf("%s/prefork.log", o->log_dir);
	rc_error off;
	rc_prefork_options prefork = {
		.worker_command = o->python_worker_command,
		.log_path = log,
		.trainers_expected = rc_resources_total(n->resources, "GPU") > 0,
	};
	n->prefork = rc_prefork_create(n->loop, n->procs, &prefork, &off);
	if (!n->prefork)
		rc_info("workers are started without prefork: %s", off.text);
	free(log);
	n->runtime_envs = rc_runtime_envs_create(n->loop, &(rc_runtime_envs_options){
	                                                          .dialect = n->dialect,
	                                                          .ip = o->node_ip_address,
	                                                          .port = n->ports.runtime_env_helper_port,
	                                                          .token = n->token,
	                                                          .start_timeout_ms = (unsigned)rc_gcs_config_int(g, "agent_register_timeout_ms", 0),
	                                                          .wanted = n->native_agent ? runtime_env_wanted : NULL,
	                                                          .answered = n->native_agent ? runtime_env_answered : NULL,
	                                                          .ctx = n,
	                                                  });
	rc_pool_options p = {
		.dialect = n->dialect,
		.procs = n->procs,
		.prefork = n->prefork,
		.runtime_envs = n->runtime_envs,
		.commands = { o->python_worker_command, o->java_worker_command, o->cpp_worker_command },
		.native_library_path = o->native_library_path,
		.node_id = n->node_id,
		.node_manager_port = n->port,
		.min_port = (int)o->min_worker_port,
		.max_port = (int)o->max_worker_port,
		.port_list = o->worker_port_list,
		.startup_concurrency = (int)o->maximum_startup_concurrency,
		.prestart = (int)o->num_prestart_python_workers,
		.enable_prestart = rc_gcs_config_bool(g, "enable_worker_prestart", true),
		.soft_limit = (int)rc_gcs_config_int(g, "num_workers_soft_limit", -1),
		.register_timeout_ms = (unsigned)rc_gcs_config_int(g, "worker_register_timeout_seconds", 60) * 1000,
		.idle_threshold_ms = (unsigned)rc_gcs_config_int(g, "idle_worker_killing_time_threshold_ms", 1000),
		.reap_interval_ms = (unsigned)rc_gcs_config_int(g, "kill_idle_workers_interval_ms", 200),
		.kill_grace_ms = (unsigned)rc_gcs_config_int(g, "kill_worker_timeout_milliseconds", 100),
		.oom_score_adj = (int)rc_gcs_config_int(g, "worker_oom_score_adjustment", 1000),
		.max_io_workers = (int)rc_gcs_config_int(g, "max_io_workers", 4),
		.spilling_config = rc_gcs_config_str(g, "object_spilling_config", ""),
		.debugger_external = o->ray_debugger_external != 0,
		.train_env = n->train.env,
		.preload_modules = rc_gcs_config_str(g, "preload_python_modules", ""),
	};
	n->pool = rc_pool_create(n->loop, &p, &rc_daemon_pool_ops, n, e);
	return n->pool ? 0 : -1;
}

static void registered(void *arg, const rc_error *error, const void *reply)
{
	rc_daemon *n = arg;
	(void)reply;
	if (rc_daemon_ending(n))
		return;
	if (error) {
		rc_daemon_end(n, 1, RC_V_DEATH_UNEXPECTED, "the head refused this node: %s", error->text);
		return;
	}
	n->state = RC_ALIVE;
	rc_info("node %s is alive %llu ms after its start: %s, port %d, Ray %s", rc_id_to_hex(&n->node_id).s,
	        (unsigned long long)(rc_now_ms() - n->started_ms), n->options.node_ip_address, n->port, rc_dialect_release(n->dialect));
	rc_agents_options a = agents_options(n);
	n->agents = rc_agents_start(n->loop, &a, &n->ports);
	n->tick_timer = rc_timer_start(n->loop, TICK_MS, TICK_MS, tick, n);
	n->debug_timer = rc_timer_start(n->loop, 1000, DEBUG_MS, rc_stats_write_debug, n);
	if (n->agent) {
		rc_agent_alive(n->agent);
	} else {
		uint64_t metrics_ms = (uint64_t)rc_gcs_config_int(n->gcs, "metrics_report_interval_ms", 10000);
		n->metrics_timer = rc_timer_start(n->loop, metrics_ms, metrics_ms, rc_metrics_report, n);
	}
	uint64_t memory_ms = (uint64_t)rc_gcs_config_int(n->gcs, "memory_monitor_refresh_ms", 250);
	if (memory_ms)
		n->memory_timer = rc_timer_start(n->loop, memory_ms, memory_ms, rc_memory_check, n);
}

/* Workers and helpers keep their files there: without it each of them would fail by itself, later. */
static int check_folder(const char *option, const char *path, rc_error *e)
{
	struct stat st;
	if (stat(path, &st))
		return rc_fail_errno(e, "--%s=%s cannot be used", option, path);
	if (!S_ISDIR(st.st_mode))
		return rc_fail(e, RC_E_INVALID, "--%s=%s is no folder", option, path);
	if (access(path, R_OK | W_OK | X_OK))
		return rc_fail_errno(e, "--%s=%s cannot be used", option, path);
	return 0;
}

static void register_node(rc_daemon *n)
{
	const rc_options *o = &n->options;
	Rw__GcsNodeInfo m = RW__GCS_NODE_INFO__INIT;
	Rw__NodeSnapshot snapshot = RW__NODE_SNAPSHOT__INIT;
	char host[256] = "";
	rc_amounts total = { 0 };
	gethostname(host, sizeof(host) - 1);
	rc_resources_totals(n->resources, &total);
	rc_amount_map map = rc_amount_map_make(&total);
	rc_label_map labels = rc_label_map_make(&n->labels);
	RC_SET_ID(m, node_id, &n->node_id);
	m.node_manager_address = (char *)o->node_ip_address;
	m.raylet_socket_name = (char *)o->raylet_socket_name;
	m.object_store_socket_name = (char *)o->store_socket_name;
	RC_SET(m, node_manager_port, n->port);
	RC_SET(m, object_manager_port, o->object_manager_port > 0 ? (int32_t)o->object_manager_port : n->port);
	m.node_manager_hostname = host;
	RC_SET(m, metrics_export_port, n->ports.metrics_export_port);
	RC_SET(m, runtime_env_agent_port, n->ports.runtime_env_agent_port);
	RC_SET(m, metrics_agent_port, n->ports.metrics_agent_port);
	RC_SET(m, dashboard_agent_listen_port, n->ports.dashboard_agent_listen_port);
	m.resources_total = map.v;
	m.n_resources_total = map.n;
	m.node_name = (char *)(*o->node_name ? o->node_name : o->node_ip_address);
	m.instance_id = getenv("RAY_CLOUD_INSTANCE_ID");
	m.node_type_name = getenv("RAY_NODE_TYPE_NAME");
	m.instance_type_name = getenv("RAY_CLOUD_INSTANCE_TYPE_NAME");
	RC_SET(m, start_time_ms, n->started_wall_ms);
	m.labels = labels.v;
	m.n_labels = labels.n;
	RC_SET(snapshot, state, rc_enum_value(n->dialect, RC_V_SNAPSHOT_ACTIVE));
	m.state_snapshot = &snapshot;
	m.temp_dir = (char *)o->temp_dir;
	m.session_dir = (char *)o->session_dir;
	rc_gcs_register(n->gcs, &m, registered, n);
	rc_label_map_free(&labels);
	rc_amount_map_free(&map);
	rc_amounts_free(&total);
}

/* `ray start` of 2.35.0 looks at the versions when the node is up already, and leaves it there. */
static int check_versions(const rc_daemon *n, rc_error *e)
{
	const char *release = rc_dialect_release(n->dialect), *head_python = rc_gcs_python_version(n->gcs);
	rc_package package;
	char python[32];
	if (!rc_package_of_command(n->options.python_worker_command, &package))
		return 0;
	rc_fit fit = rc_versions_fit(&package, release, head_python, python);
	if (fit == RC_FIT_NONE)
		return rc_fail(e, RC_E_INVALID,
		               "Version mismatch: the cluster was started with Ray %s and Python %s, this node's workers would have Ray %s and "
		               "Python %s",
		               release, head_python, package.release, python);
	if (fit == RC_FIT_PATCH)
		rc_warn("the cluster was started with Python %s, the workers of this node have %s: another patch level only", head_python, python);
	return 0;
}

static void connected(void *ctx)
{
	rc_daemon *n = ctx;
	rc_error e;
	if (rc_daemon_ending(n))
		return;
	n->dialect = rc_gcs_dialect(n->gcs);
	n->v235 = rc_method_path(n->dialect, RC_M_GET_AGENT_PIDS) == NULL;
	n->state = RC_REGISTERING;
	rc_agents_options a = agents_options(n);
	if (check_versions(n, &e) || check_folder("session_dir", n->options.session_dir, &e) || check_folder("log_dir", n->options.log_dir, &e) ||
	    rc_agents_choose_ports(&a, &n->ports, &e) || build_resources(n, &e) ||
	    build_store(n, &e) || build_server(n, &e) || (n->native_agent && rc_daemon_agent_create(n, &e))) {
		rc_daemon_end(n, 1, RC_V_DEATH_UNEXPECTED, "%s", e.text);
		return;
	}
	build_objects(n);
	if (build_pool(n, &e) || rc_worker_socket_open(n, &e)) {
		rc_daemon_end(n, 1, RC_V_DEATH_UNEXPECTED, "%s", e.text);
		return;
	}
	rc_stats_push_view(n);
	register_node(n);
}

static const rc_gcs_ops gcs_ops = {
	.connected = connected,
	.failed = failed,
	.node_added = node_added,
	.node_removed = node_removed,
	.job = job_event,
	.worker_died = any_worker_died,
	.view = node_view,
	.global_gc = global_gc,
	.buried = buried,
	.lost = lost,
};

static void take_down(rc_daemon *n)
{
	rc_timer_stop(n->tick_timer);
	rc_timer_stop(n->debug_timer);
	rc_timer_stop(n->metrics_timer);
	rc_timer_stop(n->memory_timer);
	rc_timer_stop(n->jobs_timer);
	rc_timer_stop(n->restart_timer);
	if (n->listener)
		rc_listener_destroy(n->listener, true);
	rc_agents_destroy(n->agents);
	n->agents = NULL;
	rc_agent_destroy(n->agent);
	n->agent = NULL;
	if (n->pool) {
		rc_worker_notes_free(n);
		rc_pool_destroy(n->pool);
		n->pool = NULL; /* calls to workers that are still open end in rc_rpc_destroy: what they touch must know */
	}
	rc_prefork_destroy(n->prefork);
	rc_runtime_envs_destroy(n->runtime_envs);
	if (n->procs)
		rc_procs_destroy(n->procs, CHILDREN_WAIT_MS);
	rc_gcs_destroy(n->gcs);
	rc_objects_destroy(n->objects);
	n->gcs = NULL;
	n->objects = NULL;
	rc_rpc_destroy(n->rpc);
	rc_leases_destroy(n->leases);
	rc_store_destroy(n->store);
	rc_bundles_destroy(n->bundles);
	if (n->cluster)
		rc_cluster_destroy(n->cluster);
	rc_resources_destroy(n->resources);
	rc_labels_free(&n->labels);
	rc_train_free(&n->train);
	rc_drain_free(&n->drain);
	rc_failures_free(n);
	rc_io_free(n);
	rc_loop_destroy(n->loop);
	free(n->token);
}

static void set_log_level(void)
{
	static const char *const names[] = { "debug", "info", "warning", "error" }; /* in the order of rc_level */
	const char *want = getenv("RAY_BACKEND_LOG_LEVEL");
	for (size_t i = 0; want && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcasecmp(want, names[i]))
			rc_log_level((rc_level)i);
}

int main(int argc, char **argv)
{
	rc_exec_stock_if_asked(argc, argv);
	rc_leave_preload(argv);
	mallopt(M_ARENA_MAX, 1); /* few threads, little contention: an arena for each would cost memory, not save time */
	rc_daemon n = { .exit_status = 1, .started_ms = rc_now_ms(), .started_wall_ms = rc_wall_ms(), .trim = { .given_back = RC_TRIM_NEVER } };
	rc_error e = { 0 };
	if (rc_options_parse(argc, argv, &n.options, &e)) {
		fprintf(stderr, "raylet: %s\n", e.text);
		return 1;
	}
	const rc_options *o = &n.options;
	rc_list_init(&n.failure_list);
	n.failures = rc_map_create();
	n.node_id = rc_id_from_hex(o->node_id);
	n.native_agent = rc_choice_native_agent();
	if (rc_log_redirect(*o->stdout_filepath ? o->stdout_filepath : NULL, *o->stderr_filepath ? o->stderr_filepath : NULL, &e) ||
	    (n.node_id.n != RC_NODE_ID && rc_fail(&e, RC_E_INVALID, "--node_id=%s: 56 hex digits are needed", o->node_id)) ||
	    rc_guardian_start(argc, argv, &e)) {
		rc_error_log("%s", e.text);
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	set_log_level();
	if (rc_train_look(o, &n.train, &e)) {
		rc_error_log("the node ends: %s", e.text);
		return 1;
	}
	if (o->enable_resource_isolation)
		rc_warn("--enable_resource_isolation has no effect: this daemon puts no process into a control group (Ray's own does: RAYLET_C=0)");
	rc_security security = { 0 };
	rc_rpc_options rpc_options = { 0 };
	n.loop = rc_loop_create();
	rc_signal_start(n.loop, SIGTERM, on_signal, &n);
	rc_signal_start(n.loop, SIGINT, on_signal, &n);
	if (!(n.procs = rc_procs_create(n.loop, &e)) || rc_security_from_env(&security, &e)) {
		rc_error_log("%s", e.text);
		take_down(&n);
		return 1;
	}
	rc_security_apply(&security, &rpc_options);
	if (!(n.rpc = rc_rpc_create(n.loop, &rpc_options, &e))) {
		rc_error_log("%s", e.text);
		take_down(&n);
		return 1;
	}
	if (rc_tls_check_address(n.rpc, o->node_ip_address, &e)) {
		rc_error_log("%s", e.text);
		take_down(&n);
		return 1;
	}
	n.token = rc_strdup(security.token);
	n.tls = security.tls_cert != NULL;
	n.gcs = rc_gcs_create(n.loop, n.rpc, &(rc_gcs_options){ .address = o->gcs_address, .node_id = n.node_id, .cluster_id = o->cluster_id }, &gcs_ops,
	                      &n);
	rc_loop_run(n.loop);
	take_down(&n);
	rc_security_free(&security);
	return n.exit_status;
}
