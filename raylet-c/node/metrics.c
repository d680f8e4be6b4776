/* The node's figures for Prometheus: taken by the native agent when it is asked, or sent to Ray's own agent every
 * metrics_report_interval_ms (10 s). Names, label keys
 * and units are the stock raylet's, so that Ray's Grafana panels find them (2.35.0 and 2.60.0: src/ray/stats/metric_defs.cc,
 * scraped). A report that the agent does not take is dropped: the next one has the newer figures. */
#include <stdio.h>

#include "raylet-c/agent/metrics.h"
#include "raylet-c/base/log.h"
#include "raylet-c/node/node.h"

enum { TIMEOUT_MS = 5000 };

static void gauge(rc_metrics *m, const char *name, double value)
{
	rc_metrics_gauge(m, name, name, value, NULL);
}

static void resources(rc_daemon *n, rc_metrics *m)
{
	rc_amounts total = { 0 }, available = { 0 };
	rc_resources_totals(n->resources, &total);
	rc_resources_available(n->resources, &available);
	for (size_t i = 0; i < total.n; i++) {
		const char *name = total.v[i].name;
		rc_group_name group;
		if (rc_group_name_parse(name, &group)) /* one series a placement group would never end */
			continue;
		double all = rc_q_double(total.v[i].q), left = rc_q_double(rc_amounts_get(&available, name));
		const char *text = "Logical Ray resources broken per state {AVAILABLE, USED}";
		rc_metrics_gauge(m, "resources", text, left, (const char *[]){ "Name", name, "State", "AVAILABLE", NULL });
		rc_metrics_gauge(m, "resources", text, all - left, (const char *[]){ "Name", name, "State", "USED", NULL });
	}
	rc_amounts_free(&total);
	rc_amounts_free(&available);
}

static void store(rc_daemon *n, rc_metrics *m)
{
	rc_store_stats s;
	rc_store_get_stats(n->store, &s);
	const struct {
		const char *location, *state;
		double bytes;
	} parts[] = {
		{ "MMAP_SHM", "SEALED", (double)(s.used_bytes > s.fallback_bytes ? s.used_bytes - s.fallback_bytes : 0) },
		{ "MMAP_SHM", "UNSEALED", (double)s.unsealed_bytes },
		{ "MMAP_DISK", "SEALED", (double)s.fallback_bytes },
		{ "SPILLED", "", (double)s.spilled_bytes_now },
	};
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		rc_metrics_gauge(m, "object_store_memory", "Bytes of objects by where they are", parts[i].bytes,
		                 (const char *[]){ "Location", parts[i].location, "ObjectState", parts[i].state, NULL });
	gauge(m, "object_store_available_memory", (double)(s.capacity > s.used_bytes ? s.capacity - s.used_bytes : 0));
	gauge(m, "object_store_used_memory", (double)s.used_bytes);
	gauge(m, "object_store_fallback_memory", (double)s.fallback_bytes);
	gauge(m, "object_store_num_local_objects", (double)s.local_objects);
	gauge(m, "spill_manager_objects_bytes", (double)s.spilled_bytes_now);
	gauge(m, "spill_manager_request_total", (double)s.spilled_objects_total);
}

static void rest(rc_daemon *n, rc_metrics *m)
{
	rc_objects_stats o;
	rc_pool_stats p;
	rc_objects_get_stats(n->objects, &o);
	rc_pool_get_stats(n->pool, &p);
	gauge(m, "object_manager_num_pull_requests", (double)o.pulls_wanted);
	gauge(m, "pull_manager_active_bundles", (double)o.pulls_active);
	gauge(m, "push_manager_num_pushes_remaining", (double)o.sending);
	gauge(m, "object_manager_bytes", (double)o.bytes_in);
	gauge(m, "scheduler_unscheduleable_tasks", (double)rc_leases_waiting(n->leases));
	gauge(m, "internal_num_processes_started", (double)p.started);
	gauge(m, "internal_num_processes_started_from_cache", (double)p.forked);
}

static void answered(void *arg, int status, rc_view reply, const char *detail)
{
	(void)arg, (void)reply;
	if (status != RC_RPC_OK)
		rc_debug("the agent did not take the metrics: %s", detail);
}

void rc_metrics_add(void *arg, rc_metrics *m)
{
	resources(arg, m);
	store(arg, m);
	rest(arg, m);
	rc_train_metrics(&((rc_daemon *)arg)->train, m);
}

void rc_metrics_report(void *arg)
{
	rc_daemon *n = arg;
	if (rc_daemon_ending(n) || n->ports.metrics_agent_port <= 0 || n->ports.metrics_export_port <= 0)
		return;
	const char *const common[] = { "Component",   "raylet", "NodeAddress", n->options.node_ip_address,
		                       "SessionName", n->options.session_name, "Version", rc_dialect_release(n->dialect),
		                       "WorkerId",    "", NULL };
	rc_metrics *m = rc_metrics_create(common);
	rc_metrics_add(n, m);
	rc_buf out = { 0 };
	char address[80];
	const char *path = rc_method_path(n->dialect, RC_M_AGENT_REPORT_METRICS);
	if (path)
		rc_metrics_encode_opencensus(m, rc_wall_ms(), &out);
	else
		rc_metrics_encode_opentelemetry(m, rc_wall_ms(), &out);
	snprintf(address, sizeof(address), "%s:%d", n->options.node_ip_address, n->ports.metrics_agent_port);
	rc_call(n->rpc, address, path ? path : RC_METRICS_OTLP_PATH, rc_view_of(out.p, out.n), TIMEOUT_MS, RC_META_NONE, answered, n);
	rc_buf_free(&out);
	rc_metrics_destroy(m);
}
