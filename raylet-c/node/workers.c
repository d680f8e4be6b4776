/* What happens to workers: their end and what the head and owners are told of it, calls that go through the node to a worker,
 * jobs and drivers, garbage collection.
 *
 * A worker's end is told to the head once, with the first of these that applies: its good-bye message, a reason of ours
 * (rc_worker_end), the way its process ended. Without the first two the report waits for the process, so that the text has
 * the signal or exit status. A lease with devices ends when the process and all its descendants are gone; any other at the
 * end of the connection.
 *
 * The texts of an unexpected end begin as in Ray (2.35.0 and 2.60.0): users and tools search logs for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/node/node.h"

enum { MAX_FAILURES = 1000, GOODBYE_GRACE_MS = 10000, CALL_TIMEOUT_MS = 30000, MIN_GC_INTERVAL_MS = 1000, RESTART_INTERVAL_MS = 1000 };

void rc_worker_call(rc_daemon *n, const rc_worker *w, rc_method method, const void *message, uint64_t timeout_ms, rc_reply_fn fn, void *arg)
{
	char address[80];
	rc_buf out = { 0 };
	snprintf(address, sizeof(address), "%s:%d", w->ip, w->port);
	if (message)
		rc_pack(n->dialect, message, &out);
	rc_call(n->rpc, address, rc_method_path(n->dialect, method), rc_view_of(out.p, out.n), timeout_ms, RC_META_NONE, fn, arg);
	rc_buf_free(&out);
}

rc_worker_note *rc_worker_note_of(rc_worker *w)
{
	if (!w->user)
		w->user = rc_alloc(sizeof(rc_worker_note));
	return w->user;
}

static void note_free(rc_worker *w)
{
	rc_worker_note *note = w->user;
	w->user = NULL;
	if (!note)
		return;
	free(note->end.detail);
	rc_buf_free(&note->end.exception);
	free(note);
}

void rc_worker_notes_free(rc_daemon *n)
{
	for (rc_worker *w = NULL; (w = rc_pool_next(n->pool, w));)
		note_free(w);
}

/* ---- why a leased worker ended, for its owner ---- */

typedef struct failure {
	rc_link link;
	rc_id lease;
	int error_type;
	bool fail_at_once;
	char *text;
} failure;

static void failure_drop(rc_daemon *n, failure *f)
{
	rc_map_del_id(n->failures, &f->lease);
	rc_list_remove(&f->link);
	n->n_failures--;
	free(f->text);
	free(f);
}

void rc_failure_record(rc_daemon *n, const rc_id *lease, int error_type, bool fail_at_once, const char *text)
{
	failure *f = rc_map_get_id(n->failures, lease);
	if (f)
		failure_drop(n, f);
	if (n->n_failures == MAX_FAILURES)
		failure_drop(n, RC_CONTAINER(n->failure_list.next, failure, link));
	f = rc_alloc(sizeof(*f));
	f->lease = *lease;
	f->error_type = error_type;
	f->fail_at_once = fail_at_once;
	f->text = rc_strdup(text);
	rc_map_put_id(n->failures, lease, f);
	rc_list_append(&n->failure_list, &f->link);
	n->n_failures++;
}

void rc_failures_free(rc_daemon *n)
{
	while (n->n_failures)
		failure_drop(n, RC_CONTAINER(n->failure_list.next, failure, link));
	rc_map_destroy(n->failures);
}

static void on_failure_cause(rc_daemon *n, rc_request *r, rc_view bytes)
{
	rc_id id;
	if (n->v235) {
		Rw__GetTaskFailureCauseRequest *m = rc_take_message(n, r, &rw__get_task_failure_cause_request__descriptor, bytes);
		if (!m)
			return;
		id = RC_GET_ID(m, task_id);
		rc_free_message(m);
	} else {
		Rw__GetWorkerFailureCauseRequest *m = rc_take_message(n, r, &rw__get_worker_failure_cause_request__descriptor, bytes);
		if (!m)
			return;
		id = RC_GET_ID(m, lease_id);
		rc_free_message(m);
	}
	const failure *f = rc_map_get_id(n->failures, &id);
	rc_buf cause = { 0 };
	if (f) {
		Rw__RayErrorInfo info = RW__RAY_ERROR_INFO__INIT;
		RC_SET(info, error_type, f->error_type);
		info.error_message = f->text;
		rc_pack(n->dialect, &info, &cause);
	}
	/* The two replies have the same shape in both releases. */
	Rw__GetWorkerFailureCauseReply reply = RW__GET_WORKER_FAILURE_CAUSE_REPLY__INIT;
	Rw__GetTaskFailureCauseReply reply235 = RW__GET_TASK_FAILURE_CAUSE_REPLY__INIT;
	if (f) {
		RC_SET_BYTES(reply, failure_cause, cause.p, cause.n);
		RC_SET_BYTES(reply235, failure_cause, cause.p, cause.n);
	}
	RC_SET(reply, fail_task_immediately, f && f->fail_at_once);
	RC_SET(reply235, fail_task_immediately, f && f->fail_at_once);
	rc_reply_message(n, r, n->v235 ? (void *)&reply235 : (void *)&reply);
	rc_buf_free(&cause);
}

/* ---- the end of a worker ---- */

static void set_end(rc_worker *w, rc_enum type, const char *detail)
{
	rc_worker_note *note = rc_worker_note_of(w);
	if (note->end.known)
		return;
	note->end.known = true;
	note->end.type = type;
	note->end.detail = rc_strdup(detail);
}

static void report_end(rc_daemon *n, rc_worker *w)
{
	rc_worker_note *note = rc_worker_note_of(w);
	if (note->end.reported || !w->id.n || rc_daemon_ending(n))
		return;
	note->end.reported = true;
	Rw__WorkerTableData m = RW__WORKER_TABLE_DATA__INIT;
	Rw__Address address = RW__ADDRESS__INIT;
	RC_SET_ID(address, node_id, &n->node_id);
	RC_SET_ID(address, worker_id, &w->id);
	address.ip_address = w->ip;
	RC_SET(address, port, w->port);
	m.worker_address = &address;
	RC_SET(m, timestamp, (int64_t)(rc_wall_ms() / 1000));
	RC_SET(m, exit_type, rc_enum_value(n->dialect, note->end.type));
	m.exit_detail = note->end.detail;
	RC_SET(m, worker_type, w->type);
	RC_SET(m, pid, (uint32_t)w->pid);
	if (note->end.exception.n)
		RC_SET_BYTES(m, creation_task_exception, note->end.exception.p, note->end.exception.n);
	rc_gcs_report_worker_failure(n->gcs, &m, NULL, NULL);
	if (w->type == RC_WORKER && note->end.type == RC_V_EXIT_SYSTEM_ERROR)
		rc_warn("worker %s (pid %d) ended: %s", rc_id_to_hex(&w->id).s, (int)w->pid, note->end.detail);
}

static bool has_devices(const rc_lease *lease)
{
	for (size_t i = 0; lease && lease->allocation && i < lease->allocation->n; i++)
		if (!strncmp(lease->allocation->v[i].name, "GPU", 3))
			return true;
	return false;
}

static void connection_over(rc_daemon *n, rc_worker *w, unsigned grace_ms)
{
	rc_worker_note *note = rc_worker_note_of(w);
	rc_leases_backlog_clear(n->leases, &w->id);
	if (note->lease && !has_devices(note->lease))
		rc_worker_lease_finished(n, w, false);
	if (w->type == RC_DRIVER) {
		rc_daemon_end_job(n, &w->job_id);
		rc_info("driver of job %s (pid %d) left", rc_id_to_hex(&w->job_id).s, (int)w->pid);
		note_free(w);
	}
	rc_pool_disconnected(n->pool, w, grace_ms);
}

void rc_worker_registered(rc_client *c, rc_worker *w)
{
	c->worker = w;
	rc_worker_note_of(w);
	if (c->node->agent && w->pid > 0)
		rc_agent_worker(c->node->agent, w->pid);
}

void rc_worker_goodbye(rc_client *c, int type, rc_view detail, rc_view exception)
{
	rc_worker *w = c->worker;
	static const rc_enum types[] = { RC_V_EXIT_SYSTEM_ERROR, RC_V_EXIT_INTENDED_SYSTEM, RC_V_EXIT_USER_ERROR, RC_V_EXIT_INTENDED_USER,
		                         RC_V_EXIT_NODE_OUT_OF_MEMORY };
	rc_enum said = RC_V_EXIT_SYSTEM_ERROR;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (rc_enum_value(c->node->dialect, types[i]) == type)
			said = types[i];
	char *text = rc_strndup(detail.p, detail.n);
	set_end(w, said, text);
	free(text);
	rc_buf_add(&rc_worker_note_of(w)->end.exception, exception.p, exception.n);
	report_end(c->node, w);
	c->worker = NULL; /* what still comes on this connection is of no interest */
	connection_over(c->node, w, GOODBYE_GRACE_MS);
}

void rc_worker_connection_closed(rc_client *c, const char *reason)
{
	rc_daemon *n = c->node;
	rc_worker *w = c->worker;
	if (w->type == RC_DRIVER) {
		set_end(w, RC_V_EXIT_SYSTEM_ERROR, "The driver's connection closed without a good-bye: it crashed or was killed.");
		report_end(n, w);
	} else {
		rc_debug("worker %s: connection over: %s", rc_id_to_hex(&w->id).s, reason);
	}
	connection_over(n, w, 0);
}

void rc_worker_end(rc_daemon *n, rc_worker *w, bool force, rc_enum exit_type, const char *format, ...)
{
	char text[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	set_end(w, exit_type, text);
	rc_info("worker %s (pid %d) is ended: %s", rc_id_to_hex(&w->id).s, (int)w->pid, text);
	rc_pool_kill(n->pool, w, force, text);
}

static void worker_died(void *ctx, rc_worker *w, const char *text)
{
	rc_daemon *n = ctx;
	rc_train_worker_gone(&n->train, w->pid);
	rc_client *c = w->conn;
	if (!rc_worker_note_of(w)->end.known) {
		char *detail = rc_sprintf("Worker unexpectedly exits with a connection error code 2. End of file. Its process ended with %s. There "
		                          "are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory "
		                          "usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other "
		                          "unexpected errors.",
		                          text);
		set_end(w, RC_V_EXIT_SYSTEM_ERROR, detail);
		free(detail);
	}
	report_end(n, w);
	if (c) /* the connection's end is still on its way through the loop */
		c->worker = NULL;
	rc_worker_lease_finished(n, w, false);
	note_free(w);
	rc_drain_check(n);
}

typedef struct exit_call {
	rc_daemon *node;
	rc_id worker;
} exit_call;

static void exit_answered(void *arg, int status, rc_view reply, const char *detail)
{
	exit_call *call = arg;
	rc_worker *w = rc_pool_find(call->node->pool, &call->worker);
	(void)detail;
	if (w) {
		Rw__ExitReply *m = status == RC_RPC_OK ? rc_unpack(call->node->dialect, &rw__exit_reply__descriptor, reply) : NULL;
		rc_pool_exit_answered(call->node->pool, w, m != NULL, m && RC_GET(m, success));
		rc_free_message(m);
	}
	free(call);
}

static void exit_worker(void *ctx, rc_worker *w, bool force)
{
	rc_daemon *n = ctx;
	exit_call *call = rc_alloc(sizeof(*call));
	call->node = n;
	call->worker = w->id;
	Rw__ExitRequest m = RW__EXIT_REQUEST__INIT;
	RC_SET(m, force_exit, force);
	rc_worker_call(n, w, RC_M_CW_EXIT, &m, CALL_TIMEOUT_MS, exit_answered, call);
}

static int free_cpus(void *ctx)
{
	rc_daemon *n = ctx;
	rc_q q = rc_resources_available_of(n->resources, "CPU");
	return q > 0 ? (int)(q / RC_Q_ONE) : 0;
}

static void warn_job(void *ctx, const rc_id *job, const char *type, const char *text)
{
	rc_daemon *n = ctx;
	rc_gcs_report_job_error(n->gcs, job, type, text, NULL, NULL);
}

const rc_pool_ops rc_daemon_pool_ops = { exit_worker, worker_died, free_cpus, warn_job };

/* ---- drivers ---- */

typedef struct driver_start {
	rc_daemon *node;
	rc_id worker;
} driver_start;

static void job_added(void *arg, const rc_error *error, const void *reply)
{
	driver_start *s = arg;
	(void)reply;
	rc_worker *w = rc_pool_find(s->node->pool, &s->worker);
	rc_client *c = w ? w->conn : NULL;
	if (c && c->conn) {
		rc_buf out = { 0 };
		rc_encode_announce_reply(s->node->dialect, error == NULL, error ? error->text : "", &out);
		rc_conn_send(c->conn, rc_local_type(s->node->dialect, RC_L_ANNOUNCE_PORT_REPLY), out.p, out.n);
		rc_buf_free(&out);
	}
	free(s);
}

void rc_driver_announced(rc_client *c, rc_view entrypoint)
{
	rc_daemon *n = c->node;
	rc_worker *w = c->worker;
	Rw__JobTableData m = RW__JOB_TABLE_DATA__INIT;
	Rw__Address address = RW__ADDRESS__INIT;
	Rw__JobConfig *config =
	        rc_unpack(n->dialect, &rw__job_config__descriptor, rc_view_of(c->job_config.p, c->job_config.n));
	char *entry = rc_strndup(entrypoint.p, entrypoint.n);
	driver_start *s = rc_alloc(sizeof(*s));
	s->node = n;
	s->worker = w->id;
	RC_SET_ID(m, job_id, &w->job_id);
	RC_SET(m, is_dead, false);
	RC_SET(m, timestamp, (int64_t)(rc_wall_ms() / 1000));
	RC_SET(m, start_time, rc_wall_ms());
	m.driver_ip_address = w->ip;
	RC_SET(m, driver_pid, w->pid);
	m.config = config;
	m.entrypoint = entry;
	RC_SET_ID(address, node_id, &n->node_id);
	RC_SET_ID(address, worker_id, &w->id);
	address.ip_address = w->ip;
	RC_SET(address, port, w->port);
	m.driver_address = &address;
	rc_info("driver of job %s (pid %d) came: %s", rc_id_to_hex(&w->job_id).s, (int)w->pid, entry);
	rc_gcs_add_job(n->gcs, &m, job_added, s);
	free(entry);
	rc_free_message(config);
}

/* ---- calls through the node to a worker (2.60.0) ---- */

typedef struct forwarded {
	rc_daemon *node;
	rc_request *request;
	rc_id worker;
	bool kill_after; /* the worker must not outlive the call */
} forwarded;

static forwarded *forward_new(rc_daemon *n, rc_request *r, const rc_worker *w, bool kill_after)
{
	forwarded *f = rc_alloc(sizeof(*f));
	f->node = n;
	f->request = r;
	f->worker = w->id;
	f->kill_after = kill_after;
	return f;
}

static void kill_forwarded(void *arg, int status, rc_view reply, const char *detail)
{
	forwarded *f = arg;
	(void)status, (void)reply, (void)detail;
	rc_worker *w = rc_pool_find(f->node->pool, &f->worker);
	if (w && f->kill_after) /* a forced kill ends the process without an answer; make sure of it */
		rc_worker_end(f->node, w, true, RC_V_EXIT_INTENDED_SYSTEM, "Worker exits because it was killed by ray.kill.");
	rc_reply(f->request, (rc_view){ 0 });
	free(f);
}

static void on_kill_actor(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__KillLocalActorRequest *m = rc_take_message(n, r, &rw__kill_local_actor_request__descriptor, bytes);
	if (!m)
		return;
	rc_id id = RC_GET_ID(m, worker_id);
	rc_worker *w = rc_pool_find(n->pool, &id);
	if (!w || !w->port) {
		rc_reply(r, (rc_view){ 0 }); /* gone already */
	} else {
		Rw__KillActorRequest k = RW__KILL_ACTOR_REQUEST__INIT;
		if (m->has_intended_actor_id)
			RC_SET_BYTES(k, intended_actor_id, m->intended_actor_id.data, m->intended_actor_id.len);
		RC_SET(k, force_kill, RC_GET(m, force_kill));
		k.death_cause = m->death_cause;
		rc_worker_call(n, w, RC_M_CW_KILL_ACTOR, &k, CALL_TIMEOUT_MS, kill_forwarded, forward_new(n, r, w, RC_GET(m, force_kill)));
	}
	rc_free_message(m);
}

static void cancel_forwarded(void *arg, int status, rc_view reply, const char *detail)
{
	forwarded *f = arg;
	(void)detail;
	Rw__CancelTaskReply *got = status == RC_RPC_OK ? rc_unpack(f->node->dialect, &rw__cancel_task_reply__descriptor, reply) : NULL;
	Rw__CancelLocalTaskReply m = RW__CANCEL_LOCAL_TASK_REPLY__INIT;
	RC_SET(m, requested_task_running, got && RC_GET(got, requested_task_running));
	RC_SET(m, attempt_succeeded, got ? RC_GET(got, attempt_succeeded) : true);
	rc_worker *w = rc_pool_find(f->node->pool, &f->worker);
	if (w && f->kill_after && !got)
		rc_worker_end(f->node, w, true, RC_V_EXIT_INTENDED_USER, "Worker exits because its task was cancelled by force.");
	rc_reply_message(f->node, f->request, &m);
	rc_free_message(got);
	free(f);
}

static void on_cancel_task(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__CancelLocalTaskRequest *m = rc_take_message(n, r, &rw__cancel_local_task_request__descriptor, bytes);
	if (!m)
		return;
	rc_id id = RC_GET_ID(m, executor_worker_id);
	rc_worker *w = rc_pool_find(n->pool, &id);
	if (!w || !w->port) {
		Rw__CancelLocalTaskReply reply = RW__CANCEL_LOCAL_TASK_REPLY__INIT;
		RC_SET(reply, attempt_succeeded, true);
		rc_reply_message(n, r, &reply);
	} else {
		Rw__CancelTaskRequest k = RW__CANCEL_TASK_REQUEST__INIT;
		if (m->has_intended_task_id)
			RC_SET_BYTES(k, intended_task_id, m->intended_task_id.data, m->intended_task_id.len);
		if (m->has_caller_worker_id)
			RC_SET_BYTES(k, caller_worker_id, m->caller_worker_id.data, m->caller_worker_id.len);
		RC_SET(k, force_kill, RC_GET(m, force_kill));
		RC_SET(k, recursive, RC_GET(m, recursive));
		rc_worker_call(n, w, RC_M_CW_CANCEL_TASK, &k, CALL_TIMEOUT_MS, cancel_forwarded, forward_new(n, r, w, RC_GET(m, force_kill)));
	}
	rc_free_message(m);
}

static void on_is_dead(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__IsLocalWorkerDeadRequest *m = rc_take_message(n, r, &rw__is_local_worker_dead_request__descriptor, bytes);
	if (!m)
		return;
	rc_id id = RC_GET_ID(m, worker_id);
	rc_worker *w = rc_pool_find(n->pool, &id);
	Rw__IsLocalWorkerDeadReply reply = RW__IS_LOCAL_WORKER_DEAD_REPLY__INIT;
	RC_SET(reply, is_dead, !w || w->state == RC_WS_DEAD);
	rc_reply_message(n, r, &reply);
	rc_free_message(m);
}

static void on_worker_pids(rc_daemon *n, rc_request *r, rc_view bytes)
{
	(void)bytes;
	Rw__GetWorkerPIDsReply m = RW__GET_WORKER_PIDS_REPLY__INIT;
	size_t cap = 0;
	for (const rc_worker *w = NULL; (w = rc_pool_next(n->pool, w));) {
		if (!w->pid || !w->id.n)
			continue;
		if (m.n_pids == cap)
			m.pids = rc_realloc(m.pids, (cap = cap ? 2 * cap : 64) * sizeof(*m.pids));
		m.pids[m.n_pids++] = (int32_t)w->pid;
	}
	rc_reply_message(n, r, &m);
	free(m.pids);
}

static void on_agent_pids(rc_daemon *n, rc_request *r, rc_view bytes)
{
	(void)bytes;
	Rw__GetAgentPIDsReply m = RW__GET_AGENT_PIDS_REPLY__INIT;
	if (n->agents) {
		RC_SET(m, dashboard_agent_pid, (int32_t)rc_agents_dashboard_pid(n->agents));
		RC_SET(m, runtime_env_agent_pid, (int32_t)rc_agents_runtime_env_pid(n->agents));
	}
	rc_reply_message(n, r, &m);
}

/* ---- garbage collection, restart of the head ---- */

static void to_all_workers(rc_daemon *n, rc_method method, const void *message)
{
	for (const rc_worker *w = NULL; (w = rc_pool_next(n->pool, w));)
		if (w->port)
			rc_worker_call(n, w, method, message, CALL_TIMEOUT_MS, NULL, NULL);
}

void rc_gc_everywhere(rc_daemon *n, bool also_other_nodes)
{
	uint64_t now = rc_now_ms();
	if (n->last_gc_ms && now - n->last_gc_ms < MIN_GC_INTERVAL_MS)
		return;
	n->last_gc_ms = now;
	Rw__LocalGCRequest m = RW__LOCAL_GCREQUEST__INIT;
	RC_SET(m, triggered_by_global_gc, true);
	to_all_workers(n, RC_M_CW_LOCAL_GC, &m);
	if (also_other_nodes)
		rc_gcs_send_global_gc(n->gcs);
}

static void on_global_gc(rc_daemon *n, rc_request *r, rc_view bytes)
{
	(void)bytes;
	rc_gc_everywhere(n, true);
	rc_reply(r, (rc_view){ 0 });
}

static void head_restarted(void *arg)
{
	rc_daemon *n = arg;
	rc_timer_stop(n->restart_timer);
	n->restart_timer = NULL;
	n->last_restart_ms = rc_now_ms();
	rc_info("the head has restarted: subscriptions and views are made anew");
	rc_gcs_on_restart(n->gcs);
	to_all_workers(n, RC_M_CW_NOTIFY_GCS_RESTART, NULL);
}

/* Acted upon at once, then at most once in RESTART_INTERVAL_MS, however often a peer says it; the last one counts too. */
static void on_gcs_restart(rc_daemon *n, rc_request *r, rc_view bytes)
{
	(void)bytes;
	uint64_t since = rc_now_ms() - n->last_restart_ms;
	if (!n->last_restart_ms || since >= RESTART_INTERVAL_MS)
		head_restarted(n);
	else if (!n->restart_timer)
		n->restart_timer = rc_timer_start(n->loop, RESTART_INTERVAL_MS - since, 0, head_restarted, n);
	rc_reply(r, (rc_view){ 0 });
}

const rc_service rc_worker_services[] = {
	{ RC_M_GET_FAILURE_CAUSE, on_failure_cause },
	{ RC_M_KILL_LOCAL_ACTOR, on_kill_actor },
	{ RC_M_CANCEL_LOCAL_TASK, on_cancel_task },
	{ RC_M_IS_LOCAL_WORKER_DEAD, on_is_dead },
	{ RC_M_GET_WORKER_PIDS, on_worker_pids },
	{ RC_M_GET_AGENT_PIDS, on_agent_pids },
	{ RC_M_GLOBAL_GC, on_global_gc },
	{ RC_M_NOTIFY_GCS_RESTART, on_gcs_restart },
	{ RC_M_COUNT, NULL },
};
