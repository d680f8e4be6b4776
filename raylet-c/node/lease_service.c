/* Leases and placement-group bundles: the RPCs about them, and the operations that the lease manager asks for (arguments,
 * workers, answers). The rules are in sched/; here is only the wiring. */
#define _GNU_SOURCE /* memmem */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/node/node.h"

/* ---- operations of the lease manager ---- */

typedef struct lease_note { /* rc_lease.user, as long as there is a fetch or a pop */
	rc_daemon *node;
	rc_lease *lease;
	uint64_t fetch, pop;
	bool popping;  /* inside or waiting for rc_pool_pop's callback */
	bool waiting;  /* the lease manager waits for the arguments */
} lease_note;

static lease_note *note_of(rc_daemon *n, rc_lease *lease)
{
	if (!lease->user) {
		lease_note *note = rc_alloc(sizeof(*note));
		note->node = n;
		note->lease = lease;
		lease->user = note;
	}
	return lease->user;
}

static void note_tidy(lease_note *note)
{
	if (note->fetch || note->popping)
		return;
	note->lease->user = NULL;
	free(note);
}

static void args_ready(void *arg)
{
	lease_note *note = arg;
	if (!note->waiting)
		return;
	note->waiting = false;
	rc_leases_args_ready(note->node->leases, note->lease);
}

static bool fetch_args(void *ctx, rc_lease *lease)
{
	rc_daemon *n = ctx;
	lease_note *note = note_of(n, lease);
	if (!note->fetch) {
		size_t count = lease->spec.n_dependencies;
		rc_object_ref *refs = rc_alloc(count * sizeof(*refs));
		for (size_t i = 0; i < count; i++) {
			const rc_dependency *d = &lease->spec.dependencies[i];
			refs[i].id = d->object_id;
			refs[i].owner.node_id = d->owner.node_id;
			refs[i].owner.worker_id = d->owner.worker_id;
			refs[i].owner.port = d->owner.port;
			snprintf(refs[i].owner.ip, sizeof(refs[i].owner.ip), "%s", d->owner.ip);
		}
		note->fetch = rc_objects_fetch(n->objects, refs, count, args_ready, note);
		free(refs);
	}
	note->waiting = !rc_objects_fetch_local(n->objects, note->fetch);
	return !note->waiting;
}

static void release_args(void *ctx, rc_lease *lease)
{
	rc_daemon *n = ctx;
	lease_note *note = lease->user;
	if (!note)
		return;
	rc_objects_fetch_end(n->objects, note->fetch);
	note->fetch = 0;
	note->waiting = false;
	note_tidy(note);
}

static rc_pin pin_args(void *ctx, rc_lease *lease)
{
	rc_daemon *n = ctx;
	lease_note *note = lease->user;
	rc_error e;
	if (!note || !note->fetch || !rc_objects_fetch_hold(n->objects, note->fetch, &e))
		return RC_PIN_OK;
	return e.code == RC_E_FULL ? RC_PIN_NO_ROOM : RC_PIN_MISSING;
}

static void popped(void *arg, rc_worker *w, rc_pop_status status, const char *text)
{
	lease_note *note = arg;
	rc_daemon *n = note->node;
	rc_lease *lease = note->lease;
	note->pop = 0;
	note->popping = false;
	note_tidy(note);
	switch (status) {
	case RC_POP_OK:
		rc_worker_note_of(w)->lease = lease;
		rc_leases_worker_ready(n->leases, lease, &w->id);
		break;
	case RC_POP_CANCELLED: /* we asked for it, or the daemon ends */
		break;
	case RC_POP_JOB_FINISHED:
		rc_leases_worker_failed(n->leases, lease, RC_WORKER_FAIL_JOB_DEAD, text);
		break;
	case RC_POP_RUNTIME_ENV_FAILED:
		rc_leases_worker_failed(n->leases, lease, RC_WORKER_FAIL_RUNTIME_ENV, text);
		break;
	case RC_POP_START_FAILED:
		rc_leases_worker_failed(n->leases, lease, RC_WORKER_FAIL_START, text);
		break;
	}
}

typedef struct pop_parts {
	rc_pop pop;
	Rw__RuntimeEnvInfo env;
	Rw__RuntimeEnvConfig config;
} pop_parts;

static bool asks_for_gpu(const rc_amounts *a)
{
	for (size_t i = 0; i < a->n; i++) {
		rc_group_name g;
		const char *name = a->v[i].name;
		if (a->v[i].q > 0 && (!strcmp(name, "GPU") || (rc_group_name_parse(name, &g) && rc_view_eq(g.base, rc_view_str("GPU")))))
			return true;
	}
	return false;
}

static void pop_fill(const rc_lease_spec *s, pop_parts *p)
{
	memset(p, 0, sizeof(*p));
	p->env = (Rw__RuntimeEnvInfo)RW__RUNTIME_ENV_INFO__INIT;
	p->config = (Rw__RuntimeEnvConfig)RW__RUNTIME_ENV_CONFIG__INIT;
	p->pop.job_id = s->job_id;
	p->pop.root_detached_actor_id = s->root_detached_actor_id;
	p->pop.language = s->language;
	p->pop.is_actor = s->is_actor;
	p->pop.is_gpu = asks_for_gpu(&s->required);
	/* the class key ends with the function descriptor */
	p->pop.is_train = s->is_actor && (memmem(s->class_key, s->class_key_n, "ray.train", 9) || memmem(s->class_key, s->class_key_n, "ray.tune", 8));
	p->pop.dynamic_options = s->worker_options;
	p->pop.n_dynamic_options = s->n_worker_options;
	if (*s->runtime_env) {
		p->env.serialized_runtime_env = s->runtime_env;
		if (s->runtime_env_timeout_s)
			RC_SET(p->config, setup_timeout_seconds, s->runtime_env_timeout_s);
		if (s->runtime_env_eager)
			RC_SET(p->config, eager_install, true);
		p->env.runtime_env_config = &p->config;
		p->pop.runtime_env = &p->env;
	}
}

static void pop_worker(void *ctx, rc_lease *lease)
{
	rc_daemon *n = ctx;
	lease_note *note = note_of(n, lease);
	pop_parts p;
	pop_fill(&lease->spec, &p);
	note->popping = true;
	uint64_t pop = rc_pool_pop(n->pool, &p.pop, popped, note);
	if (pop) /* not called back yet, so note lives */
		note->pop = pop;
}

static void cancel_pop(void *ctx, rc_lease *lease)
{
	rc_daemon *n = ctx;
	lease_note *note = lease->user;
	if (note && note->pop)
		rc_pool_pop_cancel(n->pool, note->pop);
}

static void granted_reply(rc_daemon *n, rc_lease *lease, rc_request *r)
{
	rc_worker *w = rc_pool_find(n->pool, &lease->worker_id);
	Rw__RequestWorkerLeaseReply m = RW__REQUEST_WORKER_LEASE_REPLY__INIT;
	Rw__Address address = RW__ADDRESS__INIT;
	if (!w) { /* died in this very turn: its end is on the way, the owner asks again */
		rc_reply_error(r, RC_RPC_UNAVAILABLE, "the worker of lease %s died at once", rc_id_to_hex(&lease->spec.lease_id).s);
		return;
	}
	RC_SET_ID(address, node_id, &n->node_id);
	RC_SET_ID(address, worker_id, &w->id);
	address.ip_address = w->ip;
	RC_SET(address, port, w->port);
	m.worker_address = &address;
	RC_SET(m, worker_pid, (uint32_t)w->pid);
	rc_lease_mapping map = rc_lease_mapping_make(lease->allocation);
	m.resource_mapping = map.v;
	m.n_resource_mapping = map.n;
	rc_reply_message(n, r, &m);
	rc_lease_mapping_free(&map);
}

typedef struct rejection {
	rc_daemon *node;
	rc_request *request;
} rejection;

static void reject_with(void *arg, Rw__ResourcesData *data)
{
	rejection *j = arg;
	Rw__RequestWorkerLeaseReply m = RW__REQUEST_WORKER_LEASE_REPLY__INIT;
	RC_SET(m, rejected, true);
	m.resources_data = data;
	rc_reply_message(j->node, j->request, &m);
}

static void lease_reply(void *ctx, rc_lease *lease, void *handle, const rc_outcome *o)
{
	rc_daemon *n = ctx;
	Rw__RequestWorkerLeaseReply m = RW__REQUEST_WORKER_LEASE_REPLY__INIT;
	Rw__Address address = RW__ADDRESS__INIT;
	switch (o->kind) {
	case RC_OUTCOME_GRANTED:
		granted_reply(n, lease, handle);
		return;
	case RC_OUTCOME_REJECTED:
		rc_stats_with_resources(n, reject_with, &(rejection){ n, handle });
		return;
	case RC_OUTCOME_CANCELED: {
		int failure = rc_enum_value(n->dialect, o->failure);
		RC_SET(m, canceled, true);
		RC_SET(m, failure_type, failure >= 0 ? failure : rc_enum_value(n->dialect, RC_V_FAILURE_FAILED));
		m.scheduling_failure_message = (char *)(o->text ? o->text : "");
		rc_reply_message(n, handle, &m);
		return;
	}
	case RC_OUTCOME_SPILLED: {
		const rc_gcs_node *node = rc_gcs_node_find(n->gcs, &o->node_id);
		if (!node) {
			rc_reply_error(handle, RC_RPC_UNAVAILABLE, "node %s is gone", rc_id_to_hex(&o->node_id).s);
			return;
		}
		RC_SET_ID(address, node_id, &o->node_id);
		address.ip_address = node->ip;
		RC_SET(address, port, node->node_manager_port);
		m.retry_at_raylet_address = &address;
		rc_reply_message(n, handle, &m);
		return;
	}
	}
}

static void lease_kill(void *ctx, rc_lease *lease, const char *reason)
{
	rc_daemon *n = ctx;
	rc_worker *w = rc_pool_find(n->pool, &lease->worker_id);
	if (w)
		rc_worker_end(n, w, true, RC_V_EXIT_INTENDED_SYSTEM, "%s", reason);
}

const rc_lease_ops rc_daemon_lease_ops = {
	.fetch_args = fetch_args,
	.release_args = release_args,
	.pin_args = pin_args,
	.pop_worker = pop_worker,
	.cancel_pop = cancel_pop,
	.reply = lease_reply,
	.kill = lease_kill,
};

void rc_worker_lease_finished(rc_daemon *n, rc_worker *w, bool again)
{
	rc_worker_note *note = rc_worker_note_of(w);
	rc_lease *lease = note->lease;
	note->lease = NULL;
	if (lease)
		rc_leases_worker_left(n->leases, lease);
	if (again) /* before the resources: what waits for them finds the worker idle */
		rc_pool_push(n->pool, w);
	if (lease)
		rc_leases_finished(n->leases, lease);
}

/* ---- leases ---- */

static void on_request_lease(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__RequestWorkerLeaseRequest *m = rc_take_message(n, r, &rw__request_worker_lease_request__descriptor, bytes);
	if (!m)
		return;
	rc_lease_spec spec = { 0 };
	rc_error e;
	if (!m->lease_spec)
		rc_reply_error(r, RC_RPC_INVALID, "RequestWorkerLease: no lease_spec");
	else if (rc_lease_spec_from(n->dialect, m->lease_spec, &spec, &e))
		rc_reply_error(r, RC_RPC_INVALID, "RequestWorkerLease: %s", e.text);
	else {
		int64_t backlog = RC_GET(m, backlog_size);
		if (backlog > 0) {
			pop_parts p;
			pop_fill(&spec, &p);
			rc_pool_backlog(n->pool, &p.pop, backlog);
		}
		if (rc_leases_request(n->leases, &spec, RC_GET(m, grant_or_reject), RC_GET(m, is_selected_based_on_locality), backlog, r, &e))
			rc_reply_error(r, RC_RPC_EXHAUSTED, "RequestWorkerLease: %s", e.text);
	}
	rc_free_message(m);
}

static void return_worker(rc_daemon *n, rc_request *r, rc_worker *w, bool disconnect, bool exiting, const char *detail)
{
	if (w && disconnect)
		rc_worker_end(n, w, true, RC_V_EXIT_SYSTEM_ERROR,
		              "The leased worker has unrecoverable failure. Worker is requested to be destroyed when it is returned. %s", detail);
	else if (w)
		rc_worker_lease_finished(n, w, !exiting);
	rc_reply(r, (rc_view){ 0 });
}

static void on_return_worker(rc_daemon *n, rc_request *r, rc_view bytes)
{
	if (n->v235) {
		Rw__ReturnWorkerRequest *m = rc_take_message(n, r, &rw__return_worker_request__descriptor, bytes);
		if (!m)
			return;
		rc_id id = RC_GET_ID(m, worker_id);
		rc_worker *w = rc_pool_find(n->pool, &id);
		if (w && !rc_worker_note_of(w)->lease)
			w = NULL; /* returned before */
		return_worker(n, r, w, RC_GET(m, disconnect_worker), RC_GET(m, worker_exiting), RC_GET_STR(m, disconnect_worker_error_detail));
		rc_free_message(m);
	} else {
		Rw__ReturnWorkerLeaseRequest *m = rc_take_message(n, r, &rw__return_worker_lease_request__descriptor, bytes);
		if (!m)
			return;
		rc_id id = RC_GET_ID(m, lease_id);
		rc_lease *lease = rc_leases_find(n->leases, &id);
		rc_worker *w = lease && lease->state == RC_LEASE_GRANTED ? rc_pool_find(n->pool, &lease->worker_id) : NULL;
		return_worker(n, r, w, RC_GET(m, disconnect_worker), RC_GET(m, worker_exiting), RC_GET_STR(m, disconnect_worker_error_detail));
		rc_free_message(m);
	}
}

static void on_cancel_lease(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__CancelWorkerLeaseRequest *m = rc_take_message(n, r, &rw__cancel_worker_lease_request__descriptor, bytes);
	if (!m)
		return;
	rc_id id = RC_GET_ID(m, lease_id);
	Rw__CancelWorkerLeaseReply reply = RW__CANCEL_WORKER_LEASE_REPLY__INIT;
	RC_SET(reply, success, rc_leases_cancel(n->leases, &id, RC_V_FAILURE_INTENDED, ""));
	rc_reply_message(n, r, &reply);
	rc_free_message(m);
}

static void on_cancel_shapes(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__CancelLeasesWithResourceShapesRequest *m = rc_take_message(n, r, &rw__cancel_leases_with_resource_shapes_request__descriptor, bytes);
	if (!m)
		return;
	rc_amounts *shapes = rc_alloc((m->n_resource_shapes + 1) * sizeof(*shapes));
	rc_error e;
	size_t count = 0;
	bool good = true;
	for (size_t i = 0; good && i < m->n_resource_shapes; i++) {
		Rw__CancelLeasesWithResourceShapesRequestResourceShape *s = m->resource_shapes[i];
		good = !rc_amounts_from_map((const Rw__MapStringDouble *const *)s->resource_shape, s->n_resource_shape, "resource_shape", &shapes[i], &e);
		count += good;
	}
	if (good) {
		rc_leases_cancel_shapes(n->leases, shapes, count);
		rc_reply(r, (rc_view){ 0 });
	} else {
		rc_reply_error(r, RC_RPC_INVALID, "CancelLeasesWithResourceShapes: %s", e.text);
	}
	for (size_t i = 0; i < count; i++)
		rc_amounts_free(&shapes[i]);
	free(shapes);
	rc_free_message(m);
}

static void on_backlog(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__ReportWorkerBacklogRequest *m = rc_take_message(n, r, &rw__report_worker_backlog_request__descriptor, bytes);
	if (!m)
		return;
	rc_id worker = RC_GET_ID(m, worker_id);
	rc_leases_backlog_clear(n->leases, &worker);
	for (size_t i = 0; i < m->n_backlog_reports; i++) {
		rc_lease_spec spec = { 0 };
		rc_error e;
		Rw__WorkerBacklogReport *report = m->backlog_reports[i];
		if (!report->lease_spec || rc_lease_spec_from(n->dialect, report->lease_spec, &spec, &e)) {
			rc_debug("backlog report of worker %s passed over: %s", rc_id_to_hex(&worker).s, report->lease_spec ? e.text : "no lease_spec");
			continue;
		}
		rc_leases_backlog_set(n->leases, &worker, &spec, RC_GET(report, backlog_size));
	}
	rc_reply(r, (rc_view){ 0 });
	rc_free_message(m);
}

static void on_prestart(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__PrestartWorkersRequest *m = rc_take_message(n, r, &rw__prestart_workers_request__descriptor, bytes);
	if (!m)
		return;
	rc_id job = RC_GET_ID(m, job_id);
	uint64_t count = RC_GET(m, num_workers);
	rc_pool_prestart(n->pool, &job, RC_GET(m, language), m->runtime_env_info, count > 1000 ? 1000 : (unsigned)count,
	                 RC_GET(m, keep_alive_duration_secs) * 1000);
	rc_reply(r, (rc_view){ 0 });
	rc_free_message(m);
}

/* After a restart the head names the actor workers that it still knows; the others it has forgotten. */
static void on_release_unused_actors(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__ReleaseUnusedActorWorkersRequest *m = rc_take_message(n, r, &rw__release_unused_actor_workers_request__descriptor, bytes);
	if (!m)
		return;
	for (rc_worker *w = rc_pool_next(n->pool, NULL), *next; w; w = next) {
		next = rc_pool_next(n->pool, w);
		rc_lease *lease = w->type == RC_WORKER ? rc_worker_note_of(w)->lease : NULL;
		bool used = !lease || !lease->spec.is_actor;
		for (size_t i = 0; !used && i < m->n_worker_ids_in_use; i++)
			used = rc_view_eq(rc_id_view(&w->id), rc_view_of(m->worker_ids_in_use[i].data, m->worker_ids_in_use[i].len));
		if (!used)
			rc_worker_end(n, w, true, RC_V_EXIT_INTENDED_SYSTEM, "the head does not know the actor of this worker any more");
	}
	rc_reply(r, (rc_view){ 0 });
	rc_free_message(m);
}

/* ---- bundles ---- */

static void bundles_changed(rc_daemon *n)
{
	rc_leases_run(n->leases);
	rc_stats_push_view(n); /* at once: the group's tasks wait for it */
}

static void on_prepare(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__PrepareBundleResourcesRequest *m = rc_take_message(n, r, &rw__prepare_bundle_resources_request__descriptor, bytes);
	if (!m)
		return;
	Rw__PrepareBundleResourcesReply reply = RW__PREPARE_BUNDLE_RESOURCES_REPLY__INIT;
	rc_error e;
	bool good = n->state == RC_ALIVE && !rc_bundles_prepare(n->bundles, m->bundle_specs, m->n_bundle_specs, &e);
	if (!good && n->state == RC_ALIVE && e.code == RC_E_INVALID) {
		rc_reply_error(r, RC_RPC_INVALID, "PrepareBundleResources: %s", e.text);
	} else {
		RC_SET(reply, success, good);
		rc_reply_message(n, r, &reply);
	}
	rc_free_message(m);
}

static void on_commit(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__CommitBundleResourcesRequest *m = rc_take_message(n, r, &rw__commit_bundle_resources_request__descriptor, bytes);
	if (!m)
		return;
	rc_bundles_commit(n->bundles, m->bundle_specs, m->n_bundle_specs);
	rc_reply(r, (rc_view){ 0 });
	rc_free_message(m);
	bundles_changed(n);
}

static void on_cancel_reserve(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__CancelResourceReserveRequest *m = rc_take_message(n, r, &rw__cancel_resource_reserve_request__descriptor, bytes);
	if (!m)
		return;
	if (m->bundle_spec)
		rc_bundles_remove(n->bundles, &m->bundle_spec, 1);
	rc_reply(r, (rc_view){ 0 });
	rc_free_message(m);
	bundles_changed(n);
}

static void on_remove_bundles(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__RemovePlacementGroupBundlesRequest *m = rc_take_message(n, r, &rw__remove_placement_group_bundles_request__descriptor, bytes);
	if (!m)
		return;
	rc_bundles_remove(n->bundles, m->bundle_specs, m->n_bundle_specs);
	rc_reply(r, (rc_view){ 0 });
	rc_free_message(m);
	bundles_changed(n);
}

static void on_keep_bundles(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__ReleaseUnusedBundlesRequest *m = rc_take_message(n, r, &rw__release_unused_bundles_request__descriptor, bytes);
	if (!m)
		return;
	rc_bundles_keep_only(n->bundles, m->bundles_in_use, m->n_bundles_in_use);
	rc_reply(r, (rc_view){ 0 });
	rc_free_message(m);
	bundles_changed(n);
}

static void on_resize(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__ResizeLocalResourceInstancesRequest *m = rc_take_message(n, r, &rw__resize_local_resource_instances_request__descriptor, bytes);
	if (!m)
		return;
	rc_amounts wanted = { 0 };
	rc_error e;
	bool good = !rc_amounts_from_map((const Rw__MapStringDouble *const *)m->resources, m->n_resources, "resources", &wanted, &e);
	for (size_t i = 0; good && i < wanted.n; i++)
		good = !rc_resources_resize(n->resources, wanted.v[i].name, wanted.v[i].q, &e);
	if (good) {
		Rw__ResizeLocalResourceInstancesReply reply = RW__RESIZE_LOCAL_RESOURCE_INSTANCES_REPLY__INIT;
		rc_amounts totals = { 0 };
		rc_resources_totals(n->resources, &totals);
		rc_amount_map map = rc_amount_map_make(&totals);
		reply.total_resources = map.v;
		reply.n_total_resources = map.n;
		rc_reply_message(n, r, &reply);
		rc_amount_map_free(&map);
		rc_amounts_free(&totals);
	} else {
		rc_reply_error(r, RC_RPC_INVALID, "%s", e.text);
	}
	rc_amounts_free(&wanted);
	rc_free_message(m);
	bundles_changed(n);
}

const rc_service rc_lease_services[] = {
	{ RC_M_REQUEST_WORKER_LEASE, on_request_lease },
	{ RC_M_RETURN_WORKER, on_return_worker },
	{ RC_M_CANCEL_WORKER_LEASE, on_cancel_lease },
	{ RC_M_CANCEL_LEASES_WITH_SHAPES, on_cancel_shapes },
	{ RC_M_REPORT_WORKER_BACKLOG, on_backlog },
	{ RC_M_PRESTART_WORKERS, on_prestart },
	{ RC_M_RELEASE_UNUSED_ACTOR_WORKERS, on_release_unused_actors },
	{ RC_M_PREPARE_BUNDLES, on_prepare },
	{ RC_M_COMMIT_BUNDLES, on_commit },
	{ RC_M_CANCEL_RESOURCE_RESERVE, on_cancel_reserve },
	{ RC_M_REMOVE_PG_BUNDLES, on_remove_bundles },
	{ RC_M_RELEASE_UNUSED_BUNDLES, on_keep_bundles },
	{ RC_M_RESIZE_LOCAL_RESOURCES, on_resize },
	{ RC_M_COUNT, NULL },
};
