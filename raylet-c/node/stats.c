/* Figures for others: the resource view (sync stream), GetResourceLoad, GetNodeStats and its kin, debug_state.txt, metrics.
 *
 * GetNodeStats, GetObjectsInfo and GetTasksInfo ask every worker and driver of this node and answer when all have, or after
 * their time limit with what came. FormatGlobalMemoryInfo does the same with every node's GetNodeStats; its text is not
 * looked at by `ray memory` (2.35.0 and 2.60.0 format on the client), its store figures are. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raylet-c/base/log.h"
#include "raylet-c/node/node.h"

enum { WORKER_TIMEOUT_MS = 5000, NODE_TIMEOUT_MS = 10000 };

/* ---- resources ---- */

void rc_stats_with_resources(rc_daemon *n, void (*fn)(void *arg, Rw__ResourcesData *m), void *arg)
{
	Rw__ResourcesData m = RW__RESOURCES_DATA__INIT;
	rc_amounts total = { 0 }, available = { 0 };
	rc_resources_totals(n->resources, &total);
	rc_resources_available(n->resources, &available);
	rc_amount_map total_map = rc_amount_map_make(&total), available_map = rc_amount_map_make(&available);
	rc_label_map labels = rc_label_map_make(&n->labels);
	rc_load load;
	rc_leases_load(n->leases, &load);
	RC_SET_ID(m, node_id, &n->node_id);
	m.node_manager_address = (char *)n->options.node_ip_address;
	m.resources_total = total_map.v;
	m.n_resources_total = total_map.n;
	m.resources_available = available_map.v;
	m.n_resources_available = available_map.n;
	m.resource_load = load.total.v;
	m.n_resource_load = load.total.n;
	m.resource_load_by_shape = &load.by_shape;
	m.labels = labels.v;
	m.n_labels = labels.n;
	RC_SET(m, object_pulls_queued, rc_objects_pulls_queued(n->objects));
	RC_SET(m, idle_duration_ms, (int64_t)rc_resources_idle_ms(n->resources));
	RC_SET(m, is_draining, n->drain.draining);
	RC_SET(m, draining_deadline_timestamp_ms, n->drain.draining ? n->drain.deadline_ms : -1);
	fn(arg, &m);
	rc_load_free(&load);
	rc_label_map_free(&labels);
	rc_amount_map_free(&total_map);
	rc_amount_map_free(&available_map);
	rc_amounts_free(&total);
	rc_amounts_free(&available);
}

typedef struct load_reply {
	rc_daemon *node;
	rc_request *request;
} load_reply;

static void reply_load(void *arg, Rw__ResourcesData *data)
{
	load_reply *l = arg;
	Rw__GetResourceLoadReply m = RW__GET_RESOURCE_LOAD_REPLY__INIT;
	m.resources = data;
	rc_reply_message(l->node, l->request, &m);
}

static void on_resource_load(rc_daemon *n, rc_request *r, rc_view bytes)
{
	(void)bytes;
	rc_stats_with_resources(n, reply_load, &(load_reply){ n, r });
}

void rc_stats_push_view(rc_daemon *n)
{
	if (rc_daemon_ending(n) || !n->leases)
		return;
	Rw__SyncerResourceViewSyncMessage m = RW__SYNCER__RESOURCE_VIEW_SYNC_MESSAGE__INIT;
	rc_amounts total = { 0 }, available = { 0 };
	rc_resources_totals(n->resources, &total);
	rc_resources_available(n->resources, &available);
	rc_amount_map total_map = rc_amount_map_make(&total), available_map = rc_amount_map_make(&available);
	rc_label_map labels = rc_label_map_make(&n->labels);
	const char *const *activity;
	m.n_node_activity = rc_resources_activity(n->resources, &activity);
	m.node_activity = (char **)activity;
	m.resources_total = total_map.v;
	m.n_resources_total = total_map.n;
	m.resources_available = available_map.v;
	m.n_resources_available = available_map.n;
	m.labels = labels.v;
	m.n_labels = labels.n;
	RC_SET(m, object_pulls_queued, rc_objects_pulls_queued(n->objects));
	RC_SET(m, idle_duration_ms, (int64_t)rc_resources_idle_ms(n->resources));
	RC_SET(m, is_draining, n->drain.draining);
	RC_SET(m, draining_deadline_timestamp_ms, n->drain.draining ? n->drain.deadline_ms : -1);
	rc_gcs_set_view(n->gcs, &m);
	rc_label_map_free(&labels);
	rc_amount_map_free(&total_map);
	rc_amount_map_free(&available_map);
	rc_amounts_free(&total);
	rc_amounts_free(&available);
}

/* ---- asking all workers ---- */

typedef enum asked_for { NODE_STATS, OBJECTS_INFO, TASKS_INFO } asked_for;

typedef struct survey {
	rc_daemon *node;
	rc_request *request;
	asked_for what;
	size_t open;
	int64_t limit;
	Rw__GetCoreWorkerStatsReply **replies; /* what came */
	size_t n_replies;
} survey;

/* The workers' own figures among the answers, borrowed; free the array. */
static Rw__CoreWorkerStats **survey_workers(const survey *s, size_t *ret_n)
{
	Rw__CoreWorkerStats **list = rc_alloc((s->n_replies + 1) * sizeof(*list));
	*ret_n = 0;
	for (size_t i = 0; i < s->n_replies; i++)
		if (s->replies[i]->core_worker_stats)
			list[(*ret_n)++] = s->replies[i]->core_worker_stats;
	return list;
}

static void survey_node_stats(survey *s)
{
	Rw__GetNodeStatsReply m = RW__GET_NODE_STATS_REPLY__INIT;
	Rw__ObjectStoreStats store = RW__OBJECT_STORE_STATS__INIT;
	m.core_workers_stats = survey_workers(s, &m.n_core_workers_stats);
	RC_SET(m, num_workers, (uint32_t)m.n_core_workers_stats);
	rc_store_stats_proto(s->node->store, &store);
	RC_SET(store, object_pulls_queued, rc_objects_pulls_queued(s->node->objects));
	m.store_stats = &store;
	rc_reply_message(s->node, s->request, &m);
	free(m.core_workers_stats);
}

static void survey_objects(survey *s)
{
	Rw__GetObjectsInfoReply m = RW__GET_OBJECTS_INFO_REPLY__INIT;
	int64_t total = 0;
	m.core_workers_stats = survey_workers(s, &m.n_core_workers_stats);
	for (size_t i = 0; i < m.n_core_workers_stats; i++)
		total += RC_GET(m.core_workers_stats[i], objects_total);
	RC_SET(m, total, total);
	rc_reply_message(s->node, s->request, &m);
	free(m.core_workers_stats);
}

static void survey_tasks(survey *s)
{
	Rw__GetTasksInfoReply m = RW__GET_TASKS_INFO_REPLY__INIT;
	int64_t total = 0;
	size_t owned = 0, running = 0;
	for (size_t i = 0; i < s->n_replies; i++) {
		owned += s->replies[i]->n_owned_task_info_entries;
		running += s->replies[i]->n_running_task_ids;
		total += RC_GET(s->replies[i], tasks_total);
	}
	m.owned_task_info_entries = rc_alloc((owned + 1) * sizeof(*m.owned_task_info_entries));
	m.running_task_ids = rc_alloc((running + 1) * sizeof(*m.running_task_ids));
	for (size_t i = 0; i < s->n_replies; i++) {
		const Rw__GetCoreWorkerStatsReply *from = s->replies[i];
		for (size_t k = 0; k < from->n_owned_task_info_entries && (s->limit <= 0 || (int64_t)m.n_owned_task_info_entries < s->limit); k++)
			m.owned_task_info_entries[m.n_owned_task_info_entries++] = from->owned_task_info_entries[k];
		for (size_t k = 0; k < from->n_running_task_ids; k++)
			m.running_task_ids[m.n_running_task_ids++] = from->running_task_ids[k];
	}
	RC_SET(m, total, total);
	rc_reply_message(s->node, s->request, &m);
	free(m.owned_task_info_entries);
	free(m.running_task_ids);
}

static void survey_done(survey *s)
{
	if (s->what == NODE_STATS)
		survey_node_stats(s);
	else if (s->what == OBJECTS_INFO)
		survey_objects(s);
	else
		survey_tasks(s);
	for (size_t i = 0; i < s->n_replies; i++)
		rc_free_message(s->replies[i]);
	free(s->replies);
	free(s);
}

static void survey_answer(void *arg, int status, rc_view reply, const char *detail)
{
	survey *s = arg;
	(void)detail;
	Rw__GetCoreWorkerStatsReply *m =
	        status == RC_RPC_OK ? rc_unpack(s->node->dialect, &rw__get_core_worker_stats_reply__descriptor, reply) : NULL;
	if (m)
		s->replies[s->n_replies++] = m;
	if (--s->open == 0)
		survey_done(s);
}

static void survey_start(rc_daemon *n, rc_request *r, asked_for what, bool memory, bool tasks, int64_t limit)
{
	survey *s = rc_alloc(sizeof(*s));
	size_t workers = 0;
	s->node = n;
	s->request = r;
	s->what = what;
	s->limit = limit;
	for (const rc_worker *w = NULL; (w = rc_pool_next(n->pool, w));)
		workers += w->port != 0 && w->state != RC_WS_EXITING;
	s->replies = rc_alloc((workers + 1) * sizeof(*s->replies));
	s->open = 1; /* ours, so that it does not end while calls are made */
	for (const rc_worker *w = NULL; (w = rc_pool_next(n->pool, w));) {
		if (!w->port || w->state == RC_WS_EXITING)
			continue;
		Rw__GetCoreWorkerStatsRequest m = RW__GET_CORE_WORKER_STATS_REQUEST__INIT;
		RC_SET_ID(m, intended_worker_id, &w->id);
		RC_SET(m, include_memory_info, memory);
		RC_SET(m, include_task_info, tasks);
		RC_SET(m, limit, limit);
		s->open++;
		rc_worker_call(n, w, RC_M_CW_GET_STATS, &m, WORKER_TIMEOUT_MS, survey_answer, s);
	}
	if (--s->open == 0)
		survey_done(s);
}

static void on_node_stats(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__GetNodeStatsRequest *m = rc_take_message(n, r, &rw__get_node_stats_request__descriptor, bytes);
	if (!m)
		return;
	survey_start(n, r, NODE_STATS, RC_GET(m, include_memory_info), false, -1);
	rc_free_message(m);
}

static void on_objects_info(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__GetObjectsInfoRequest *m = rc_take_message(n, r, &rw__get_objects_info_request__descriptor, bytes);
	if (!m)
		return;
	survey_start(n, r, OBJECTS_INFO, true, false, m->has_limit ? m->limit : -1);
	rc_free_message(m);
}

static void on_tasks_info(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__GetTasksInfoRequest *m = rc_take_message(n, r, &rw__get_tasks_info_request__descriptor, bytes);
	if (!m)
		return;
	survey_start(n, r, TASKS_INFO, false, true, m->has_limit ? m->limit : -1);
	rc_free_message(m);
}

/* ---- asking all nodes ---- */

typedef struct census {
	rc_daemon *node;
	rc_request *request;
	size_t open;
	Rw__ObjectStoreStats sum;
	rc_buf text;
} census;

static void store_add(Rw__ObjectStoreStats *to, const Rw__ObjectStoreStats *m)
{
#define ADD(f) RC_SET(*to, f, to->f + RC_GET(m, f))
	ADD(spill_time_total_s);
	ADD(spilled_bytes_total);
	ADD(spilled_objects_total);
	ADD(restore_time_total_s);
	ADD(restored_bytes_total);
	ADD(restored_objects_total);
	ADD(object_store_bytes_used);
	ADD(object_store_bytes_avail);
	ADD(object_store_bytes_primary_copy);
	ADD(object_store_bytes_fallback);
	ADD(num_local_objects);
	ADD(num_object_store_primary_copies);
	ADD(cumulative_created_objects);
	ADD(cumulative_created_bytes);
	ADD(consumed_bytes);
#undef ADD
	if (RC_GET(m, object_pulls_queued))
		RC_SET(*to, object_pulls_queued, true);
}

static void census_done(census *c)
{
	Rw__FormatGlobalMemoryInfoReply m = RW__FORMAT_GLOBAL_MEMORY_INFO_REPLY__INIT;
	m.memory_summary = (char *)rc_buf_cstr(&c->text);
	m.store_stats = &c->sum;
	rc_reply_message(c->node, c->request, &m);
	rc_buf_free(&c->text);
	free(c);
}

static void census_answer(void *arg, int status, rc_view reply, const char *detail)
{
	census *c = arg;
	Rw__GetNodeStatsReply *m = status == RC_RPC_OK ? rc_unpack(c->node->dialect, &rw__get_node_stats_reply__descriptor, reply) : NULL;
	if (m && m->store_stats)
		store_add(&c->sum, m->store_stats);
	else
		rc_buf_printf(&c->text, "a node did not answer: %s\n", m ? "no store_stats" : detail);
	rc_free_message(m);
	if (--c->open == 0)
		census_done(c);
}

static void on_global_memory(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__FormatGlobalMemoryInfoRequest *m = rc_take_message(n, r, &rw__format_global_memory_info_request__descriptor, bytes);
	if (!m)
		return;
	census *c = rc_alloc(sizeof(*c));
	Rw__GetNodeStatsRequest ask = RW__GET_NODE_STATS_REQUEST__INIT;
	rc_buf out = { 0 };
	c->node = n;
	c->request = r;
	c->sum = (Rw__ObjectStoreStats)RW__OBJECT_STORE_STATS__INIT;
	c->open = 1;
	RC_SET(ask, include_memory_info, RC_GET(m, include_memory_info));
	rc_pack(n->dialect, &ask, &out);
	rc_gcs_node *node;
	for (size_t i = 0; (node = rc_gcs_node_next(n->gcs, &i));) {
		c->open++; /* our own node is asked like any other */
		rc_call(n->rpc, node->address, rc_method_path(n->dialect, RC_M_GET_NODE_STATS), rc_view_of(out.p, out.n), NODE_TIMEOUT_MS,
		        RC_META_NONE, census_answer, c);
	}
	rc_buf_free(&out);
	rc_free_message(m);
	if (--c->open == 0)
		census_done(c);
}

static void on_system_config(rc_daemon *n, rc_request *r, rc_view bytes)
{
	(void)bytes;
	Rw__GetSystemConfigReply m = RW__GET_SYSTEM_CONFIG_REPLY__INIT;
	m.system_config = (char *)rc_gcs_config_json(n->gcs);
	rc_reply_message(n, r, &m);
}

/* ---- debug_state.txt ---- */

const char *rc_daemon_state_name(rc_daemon_state s)
{
	static const char *const names[] = { "connecting", "registering", "alive", "draining", "ending" };
	return names[s];
}

typedef struct debug_write {
	rc_daemon *node;
	char *path;
	rc_buf text;
} debug_write;

static void debug_to_disk(void *arg) /* pool thread */
{
	debug_write *d = arg;
	char *temporary = rc_sprintf("%s.new", d->path);
	int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	bool good = fd >= 0 && write(fd, d->text.p, d->text.n) == (ssize_t)d->text.n;
	if (fd >= 0)
		close(fd);
	if (!good || rename(temporary, d->path))
		unlink(temporary);
	free(temporary);
}

static void debug_written(void *arg)
{
	debug_write *d = arg;
	d->node->debug_writing = false;
	free(d->path);
	rc_buf_free(&d->text);
	free(d);
}

void rc_stats_write_debug(void *arg)
{
	rc_daemon *n = arg;
	if (n->debug_writing || rc_daemon_ending(n))
		return;
	debug_write *d = rc_alloc(sizeof(*d));
	rc_pool_stats p;
	rc_pool_get_stats(n->pool, &p);
	d->node = n;
	d->path = rc_sprintf("%s/debug_state.txt", n->options.log_dir);
	rc_buf_printf(&d->text, "NodeManager:\nNode ID: %s\nNode name: %s\nstate: %s\nup for: %llu s\nnodes alive: %zu\n", rc_id_to_hex(&n->node_id).s,
	              *n->options.node_name ? n->options.node_name : n->options.node_ip_address, rc_daemon_state_name(n->state),
	              (unsigned long long)(rc_now_ms() - n->started_ms) / 1000, rc_gcs_nodes_alive(n->gcs));
	rc_buf_str(&d->text, "\nResources:\n");
	rc_resources_print(n->resources, &d->text);
	rc_buf_str(&d->text, "\nClusterLeaseManager:\n");
	rc_leases_print(n->leases, &d->text);
	rc_buf_str(&d->text, "\nBundles:\n");
	rc_bundles_print(n->bundles, &d->text);
	rc_buf_str(&d->text, "\nClusterResources:\n");
	rc_cluster_print(n->cluster, &d->text);
	rc_buf_printf(&d->text,
	              "\nWorkerPool:\n- starting: %u\n- registered: %u\n- idle: %u\n- leased: %u\n- exiting: %u\n- drivers: %u\n"
	              "- waiting requests: %u\n- waiting for a port: %u\n- started in all: %llu, of these forked: %llu\n"
	              "- registration timeouts: %llu\n- failed starts: %llu\n",
	              p.starting, p.registered, p.idle, p.leased, p.exiting, p.drivers, p.waiting_pops, p.waiting_ports,
	              (unsigned long long)p.started, (unsigned long long)p.forked, (unsigned long long)p.register_timeouts,
	              (unsigned long long)p.start_failures);
	rc_buf_str(&d->text, "\nObjectManager:\n");
	rc_objects_debug(n->objects, &d->text);
	rc_buf_str(&d->text, "\nPlasmaStore:\n");
	rc_store_debug(n->store, &d->text);
	n->debug_writing = true;
	rc_loop_work(n->loop, debug_to_disk, debug_written, d);
}

const rc_service rc_stats_services[] = {
	{ RC_M_GET_RESOURCE_LOAD, on_resource_load },
	{ RC_M_GET_NODE_STATS, on_node_stats },
	{ RC_M_GET_OBJECTS_INFO, on_objects_info },
	{ RC_M_GET_TASKS_INFO, on_tasks_info },
	{ RC_M_FORMAT_GLOBAL_MEMORY_INFO, on_global_memory },
	{ RC_M_GET_SYSTEM_CONFIG, on_system_config },
	{ RC_M_COUNT, NULL },
};
