/* The agent's life, its addresses at the head, and the table of its gRPC methods. */
#include "raylet-c/agent/agent.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/agent/ingest.h"
#include "raylet-c/agent/internal.h"
#include "raylet-c/base/log.h"

/* Paths that no table of methods has: OpenTelemetry's own, and services that Ray keeps out of its main package. */
#define OC_METRICS_PATH "/ray.rpc.ReporterService/ReportOCMetrics"
#define ADD_EVENTS_PATH "/ray.rpc.events.EventAggregatorService/AddEvents"

/* A gauge is kept for two reports. Stock takes 10 s for the interval whatever the head says, since its agent is not told. */
enum { COUNTER_TTL_MS = 3600 * 1000, OC_TTL_MS = 120 * 1000, LEAST_REPORT_MS = 10 * 1000, MAX_PIDS = 10000 };

/* ---- addresses ---- */

static void put_address(rc_agent *a, const char *prefix, const char *name, const char *value)
{
	char *key = rc_sprintf("%s%s", prefix, name);
	rc_gcs_kv_put(a->o.gcs, "dashboard", key, rc_view_str(value), true, NULL, NULL);
	free(key);
}

static void put_addresses(rc_agent *a)
{
	rc_id_hex hex = rc_id_to_hex(&a->o.node_id);
	const rc_agent_ports *p = &a->o.ports;
	if (a->v235) {
		char *value = rc_sprintf("[%d, %d]", p->dashboard_agent_listen_port, p->metrics_agent_port);
		put_address(a, "DASHBOARD_AGENT_PORT_PREFIX:", hex.s, value);
		free(value);
		return;
	}
	char *by_id = rc_sprintf("[\"%s\", %d, %d]", a->o.node_ip, p->dashboard_agent_listen_port, p->metrics_agent_port);
	char *by_ip = rc_sprintf("[\"%s\", %d, %d]", hex.s, p->dashboard_agent_listen_port, p->metrics_agent_port);
	put_address(a, "DASHBOARD_AGENT_ADDR_NODE_ID_PREFIX:", hex.s, by_id);
	put_address(a, "DASHBOARD_AGENT_ADDR_IP_PREFIX:", a->o.node_ip, by_ip);
	free(by_id);
	free(by_ip);
}

/* ---- gRPC ---- */

static void took_metrics(rc_agent *a, rc_request *r, bool ok, const char *what)
{
	(void)a;
	if (ok)
		rc_reply(r, (rc_view){ 0 }); /* all of these have an answer without fields */
	else
		rc_reply_error(r, RC_RPC_INVALID, "%s: malformed", what);
}

static void opencensus(rc_agent *a, rc_request *r, rc_view bytes)
{
	took_metrics(a, r, rc_ingest_opencensus(a->series, bytes, OC_TTL_MS), "ReportOCMetricsRequest");
}

static void opentelemetry(rc_agent *a, rc_request *r, rc_view bytes)
{
	took_metrics(a, r, rc_ingest_opentelemetry(a->series, bytes, a->metrics_ttl_ms, COUNTER_TTL_MS), "ExportMetricsServiceRequest");
}

/* Events of tasks and actors for export: taken and dropped, since nobody has asked this node to export them. */
static void empty_answer(rc_agent *a, rc_request *r, rc_view bytes)
{
	(void)a, (void)bytes;
	rc_reply(r, (rc_view){ 0 });
}

static void list_logs(rc_agent *a, rc_request *r, rc_view bytes)
{
	rc_log_service_list(a->logs, r, bytes);
}

static void stream_log(rc_agent *a, rc_request *r, rc_view bytes)
{
	rc_log_service_stream(a->logs, r, bytes);
}

static void traceback(rc_agent *a, rc_request *r, rc_view bytes)
{
	rc_profiler_traceback(a->profiler, r, bytes);
}

static void cpu_profile(rc_agent *a, rc_request *r, rc_view bytes)
{
	rc_profiler_cpu(a->profiler, r, bytes);
}

static void memory_profile(rc_agent *a, rc_request *r, rc_view bytes)
{
	rc_profiler_memory(a->profiler, r, bytes);
}

/* GpuProfilingReply and JaxProfilingReply have the same two fields. */
static void no_gpu_profile(rc_agent *a, rc_request *r, rc_view bytes)
{
	Rw__GpuProfilingReply m = RW__GPU_PROFILING_REPLY__INIT;
	rc_buf out = { 0 };
	(void)bytes;
	RC_SET(m, success, false);
	m.output = (char *)"Failed to execute: GPU and JAX profiles are not taken by this node's agent; RAYLET_C_AGENT=stock in the node's "
	                   "environment starts the one that does";
	rc_pack(a->o.dialect, &m, &out);
	rc_reply(r, rc_view_of(out.p, out.n));
	rc_buf_free(&out);
}

static const struct {
	rc_method method;
	void (*serve)(rc_agent *a, rc_request *r, rc_view bytes);
} services[] = {
	{ RC_M_AGENT_REPORT_METRICS, opencensus },
	{ RC_M_AGENT_LIST_LOGS, list_logs },
	{ RC_M_AGENT_STREAM_LOG, stream_log },
	{ RC_M_AGENT_TRACEBACK, traceback },
	{ RC_M_AGENT_CPU_PROFILE, cpu_profile },
	{ RC_M_AGENT_MEMORY_PROFILE, memory_profile },
	{ RC_M_AGENT_GPU_PROFILE, no_gpu_profile },
	{ RC_M_AGENT_JAX_PROFILE, no_gpu_profile },
	{ RC_M_AGENT_HEALTH_CHECK, empty_answer },
};

static const struct {
	const char *path;
	void (*serve)(rc_agent *a, rc_request *r, rc_view bytes);
} by_path[] = {
	{ RC_METRICS_OTLP_PATH, opentelemetry },
	{ OC_METRICS_PATH, opencensus }, /* of 2.60.0, when RAY_enable_open_telemetry is off */
	{ ADD_EVENTS_PATH, empty_answer },
};

bool rc_agent_serve(rc_agent *a, rc_request *r, int method, const char *path, size_t path_n, rc_view bytes)
{
	for (size_t i = 0; method >= 0 && i < sizeof(services) / sizeof(services[0]); i++)
		if ((int)services[i].method == method) {
			services[i].serve(a, r, bytes);
			return true;
		}
	for (size_t i = 0; method < 0 && i < sizeof(by_path) / sizeof(by_path[0]); i++)
		if (rc_view_eq(rc_view_of(path, path_n), rc_view_str(by_path[i].path))) {
			by_path[i].serve(a, r, bytes);
			return true;
		}
	return false;
}

/* ---- life ---- */

static bool is_ours(void *ctx, pid_t pid)
{
	rc_agent *a = ctx;
	pid_t *pids = rc_alloc(MAX_PIDS * sizeof(*pids));
	size_t n = a->o.ops->pids(a->o.ctx, pids, MAX_PIDS);
	bool found = false;
	for (size_t i = 0; i < n && i < MAX_PIDS && !found; i++)
		found = pids[i] == pid;
	free(pids);
	return found;
}

static uint64_t interval_from_env(void)
{
	const char *text = getenv("REPORTER_UPDATE_INTERVAL_MS"); /* Ray's own name for it */
	long ms = text ? strtol(text, NULL, 10) : 0;
	return ms >= 100 ? (uint64_t)ms : 5000;
}

/* Which labels 2.60.0 leaves out of the metrics that have the most of them. */
static void set_cardinality(rc_agent *a)
{
	const char *level = getenv("RAY_metric_cardinality_level");
	if (a->v235 || (level && !strcmp(level, "legacy")))
		return;
	static const char *const names[] = { "tasks", "actors" };
	for (size_t i = 0; i < 2; i++) {
		rc_series_drop_label(a->series, names[i], "WorkerId");
		if (level && !strcmp(level, "low"))
			rc_series_drop_label(a->series, names[i], "Name");
	}
}

rc_agent *rc_agent_create(const rc_agent_options *o, rc_error *error)
{
	rc_agent *a = rc_alloc(sizeof(*a));
	int64_t report_ms = rc_gcs_config_int(o->gcs, "metrics_report_interval_ms", 10000);
	a->o = *o;
	a->v235 = !strcmp(rc_dialect_release(o->dialect), "2.35.0");
	a->interval_ms = interval_from_env();
	a->metrics_ttl_ms = 2 * (uint64_t)(report_ms > LEAST_REPORT_MS ? report_ms : LEAST_REPORT_MS);
	a->series = rc_series_create();
	set_cardinality(a);
	a->logs = rc_log_service_create(o->loop, o->dialect, o->log_dir);
	a->profiler = rc_profiler_create(&(rc_profiler_options){ .loop = o->loop, .procs = o->procs, .dialect = o->dialect, .log_dir = o->log_dir,
	                                                         .python_command = o->python_command, .is_ours = is_ours, .ctx = a });
	a->relays = rc_relays_create(o->loop, o->node_ip, o->ports.job_helper_port, o->ops->want_jobs, o->ctx);
	if (rc__agent_pages_open(a, error)) {
		rc_agent_destroy(a);
		return NULL;
	}
	return a;
}

void rc_agent_alive(rc_agent *a)
{
	put_addresses(a);
	rc__agent_logs_start(a);
	rc__agent_statistics_start(a);
}

void rc_agent_destroy(rc_agent *a)
{
	if (!a)
		return;
	rc__agent_statistics_end(a);
	rc_http_server_destroy(a->pages);
	rc_http_server_destroy(a->metrics);
	rc_http_server_destroy(a->runtime_envs);
	rc_relays_destroy(a->relays);
	rc_log_tail_destroy(a->tail);
	a->tail = NULL;
	rc_profiler_destroy(a->profiler);
	rc_log_service_destroy(a->logs);
	rc_series_destroy(a->series);
	free(a);
}
