/* The life of a worker once its process runs: its registration, the wait for a port, announcing, coming back from a lease, and
 * the ways to its end. See pool.h. */
#include "raylet-c/procs/pool_internal.h"

#include <stdio.h>

static void serve_or_idle(rc_pool *pool, rc_worker *w);

/* ---- registration ---- */

static void start_port_timer(rc_pool *pool)
{
	rc_timer_again(pool->port_timer, PORT_POLL_MS);
}

static void finish_registration(rc_worker *w, int port)
{
	struct rc_worker_private *p = w->p;
	rc_registered_fn fn = p->registered;
	p->registered = NULL;
	w->assigned_port = port;
	if (p->process) { /* the time it waited for a port is not its own */
		rc_timer_stop(p->timer);
		p->timer = rc_timer_start(p->pool->loop, p->pool->options.register_timeout_ms, 0, rc__pool_registration_timed_out, w);
	}
	fn(p->registered_arg, w, port, NULL);
}

void rc__pool_poll_ports(void *arg)
{
	rc_pool *pool = arg;
	bool waiting = false;
	bool again = true;
	while (again) {
		again = false;
		RC_LIST_FOREACH (l, &pool->workers) {
			struct rc_worker_private *p = WORKER_OF(l, link);
			if (!p->registered)
				continue;
			int port = rc__ports_take(pool->ports);
			if (port < 0) {
				waiting = true;
				goto out;
			}
			finish_registration(of_private(p), port);
			again = true;
			break;
		}
	}
out:
	if (!waiting)
		return;
	if (!rc_list_empty(&pool->idle)) { /* an idle worker holds a port that another one needs */
		rc_worker *w = of_private(WORKER_OF(pool->idle.next, idle_link));
		if (!w->p->exit_asked && w->type == RC_WORKER && w->p->idle_since + pool->options.reap_interval_ms < rc_now_ms()) {
			rc_list_remove(&w->p->idle_link);
			w->state = RC_WS_EXITING;
			w->p->exit_asked = true;
			pool->ops->exit_worker(pool->ctx, w, false);
		}
	}
	start_port_timer(pool);
}

static rc_worker *match(rc_pool *pool, const rc_register_client *m, pid_t peer_pid)
{
	rc_worker *by_pid = NULL;
	RC_LIST_FOREACH (l, &pool->workers) {
		struct rc_worker_private *p = WORKER_OF(l, link);
		rc_worker *w = of_private(p);
		if (w->type == RC_DRIVER || w->state != RC_WS_STARTING || p->registered)
			continue;
		if (m->startup_token >= 0 && w->startup_token == m->startup_token)
			return w;
		if (p->given_id.n && rc_view_eq(rc_id_view(&p->given_id), m->worker_id))
			return w;
		if (w->pid && (w->pid == (pid_t)m->pid || w->pid == peer_pid))
			by_pid = w;
	}
	return by_pid;
}

static void copy_ip(rc_worker *w, rc_view ip)
{
	size_t n = ip.n < sizeof(w->ip) - 1 ? ip.n : sizeof(w->ip) - 1;
	memcpy(w->ip, ip.p ? (const char *)ip.p : "", n);
	w->ip[n] = 0;
}

void rc_pool_register(rc_pool *pool, const rc_register_client *m, pid_t peer_pid, void *conn, rc_registered_fn fn, void *arg)
{
	rc_worker *w;
	if (m->worker_id.n != RC_WORKER_ID) {
		fn(arg, NULL, 0, "the worker id is not 28 bytes long");
		return;
	}
	rc_id id = rc_id_from(m->worker_id.p, m->worker_id.n);
	if (rc_map_get_id(pool->by_id, &id)) {
		fn(arg, NULL, 0, "a process with this worker id is registered already");
		return;
	}
	if (m->worker_type == RC_DRIVER) {
		rc_id job_id = rc_id_from(m->job_id.p, m->job_id.n);
		w = rc__pool_new_worker(pool, RC_DRIVER, m->language, &job_id);
		w->p->env = rc_strdup("");
		w->pid = (pid_t)(m->pid ? m->pid : peer_pid);
	} else {
		w = match(pool, m, peer_pid);
		if (!w || w->type != m->worker_type) {
			char text[MAX_TEXT];
			snprintf(text, sizeof(text), "process %lld was not started by this node, or has registered too late: %s", (long long)m->pid,
			         w ? "its worker type is another one" : "its startup token, worker id and pid are unknown");
			fn(arg, NULL, 0, text);
			return;
		}
		if (w->forked && m->worker_type == RC_WORKER && !rc_view_eq(m->job_id, rc_id_view(&w->job_id))) {
			rc_prefork_disable(pool->options.prefork, "a forked worker registered for another job than it was forked for");
			fn(arg, NULL, 0, "the worker has another job id than it was started with");
			return;
		}
		if (w->pid != (pid_t)m->pid && m->pid > 0)
			w->pid = (pid_t)m->pid; /* behind a launcher, or in another pid namespace */
	}
	w->id = id;
	w->conn = conn;
	w->state = RC_WS_REGISTERED;
	w->registered_ms = rc_now_ms();
	copy_ip(w, m->ip);
	rc_map_put_id(pool->by_id, &w->id, w);
	rc_timer_stop(w->p->timer);
	w->p->timer = NULL;
	w->p->registered = fn;
	w->p->registered_arg = arg;
	int port = rc__ports_take(pool->ports);
	if (port >= 0) {
		finish_registration(w, port);
		return;
	}
	rc_info("worker %d waits for a free port of the worker port range", (int)w->pid);
	start_port_timer(pool);
	rc__pool_pump(pool); /* it does not count as starting any more */
}

void rc_pool_register_cancel(rc_pool *pool, void *conn)
{
	RC_LIST_FOREACH (l, &pool->workers) {
		struct rc_worker_private *p = WORKER_OF(l, link);
		rc_worker *w = of_private(p);
		if (!p->registered || w->conn != conn)
			continue;
		p->registered = NULL;
		rc_pool_disconnected(pool, w, 0);
		return;
	}
}

void rc_pool_announced(rc_pool *pool, rc_worker *w, int port)
{
	w->port = port;
	if (w->type == RC_DRIVER)
		return;
	rc_timer_stop(w->p->timer);
	w->p->timer = NULL;
	bool first = !w->p->announced;
	w->p->announced = true;
	if (first)
		rc_debug("worker %d registered %llu ms after its start and announced its port after %llu", (int)w->pid,
		         (unsigned long long)(w->registered_ms - w->started_ms), (unsigned long long)(rc_now_ms() - w->started_ms));
	if (first && w->state == RC_WS_REGISTERED)
		serve_or_idle(pool, w);
	rc__pool_pump(pool);
}

static void serve_or_idle(rc_pool *pool, rc_worker *w)
{
	pop *own = w->p->for_pop;
	if (own) {
		rc__pool_give(w, own);
		return;
	}
	RC_LIST_FOREACH (l, &pool->pops) {
		pop *q = RC_CONTAINER(l, pop, link);
		if (!q->prestart && q->state != WAIT_JOB && rc__pool_fits(w, q)) {
			rc__pool_give(w, q);
			return;
		}
	}
	w->state = RC_WS_IDLE;
	w->p->idle_since = rc_now_ms();
	rc_list_remove(&w->p->idle_link);
	rc_list_append(&pool->idle, &w->p->idle_link);
}

void rc_pool_push(rc_pool *pool, rc_worker *w)
{
	if (w->state != RC_WS_LEASED)
		return;
	serve_or_idle(pool, w);
	rc__pool_pump(pool);
}

/* ---- ends ---- */

static void stop_now(void *arg)
{
	rc_worker *w = arg;
	rc_timer_stop(w->p->timer);
	w->p->timer = NULL;
	if (w->p->process)
		rc_process_stop(w->p->process, w->p->pool->options.kill_grace_ms);
}

static void unusable(rc_worker *w)
{
	rc_list_remove(&w->p->idle_link);
	w->state = RC_WS_EXITING;
	rc_timer_stop(w->p->timer);
	w->p->timer = NULL;
}

void rc__pool_end_worker(rc_worker *w, bool force, const char *cause)
{
	struct rc_worker_private *p = w->p;
	if (w->type == RC_DRIVER || w->state == RC_WS_DEAD)
		return;
	rc__pool_set_cause(w, cause);
	unusable(w);
	p->dying = true;
	if (!p->process)
		return; /* being forked: started() kills it */
	if (force)
		rc_process_kill(p->process);
	else
		rc_process_stop(p->process, p->pool->options.kill_grace_ms);
}

void rc_pool_kill(rc_pool *pool, rc_worker *w, bool force, const char *cause)
{
	(void)pool;
	rc__pool_end_worker(w, force, cause);
}

void rc_pool_disconnected(rc_pool *pool, rc_worker *w, unsigned grace_ms)
{
	w->conn = NULL;
	if (w->p->registered) {
		rc_registered_fn fn = w->p->registered;
		w->p->registered = NULL;
		fn(w->p->registered_arg, NULL, 0, "the connection was closed");
	}
	if (w->type == RC_DRIVER) {
		rc_map_del_id(pool->by_id, &w->id);
		rc__ports_give(pool->ports, w->assigned_port);
		rc__pool_free_worker(w);
		return;
	}
	bool dying = w->p->dying;
	unusable(w);
	if (!dying && w->p->process)
		w->p->timer = rc_timer_start(pool->loop, grace_ms ? grace_ms : pool->options.kill_grace_ms, 0, stop_now, w);
}

static void exit_took_too_long(void *arg)
{
	rc__pool_end_worker(arg, false, "it agreed to exit and did not");
}

static void ask_to_exit(rc_pool *pool, rc_worker *w, bool force)
{
	rc_list_remove(&w->p->idle_link);
	w->state = RC_WS_EXITING;
	w->p->exit_asked = true;
	pool->ops->exit_worker(pool->ctx, w, force);
}

void rc_pool_exit_answered(rc_pool *pool, rc_worker *w, bool answered, bool success)
{
	w->p->exit_asked = false;
	if (w->state != RC_WS_EXITING || w->p->dying || !w->conn)
		return;
	if (!answered) {
		rc__pool_end_worker(w, false, "idle, and it did not answer the request to exit");
	} else if (success) {
		rc__pool_set_cause(w, "idle, asked to exit");
		rc_timer_stop(w->p->timer);
		w->p->timer = rc_timer_start(pool->loop, EXIT_TIMEOUT_MS, 0, exit_took_too_long, w);
	} else { /* it owns objects: asked again after the others */
		serve_or_idle(pool, w);
		rc__pool_pump(pool);
	}
}

/* IO workers of which none was wanted for a good while; stock keeps them. Few at a time end, so one look at each is enough. */
static void reap_io(rc_pool *pool, uint64_t now)
{
	RC_LIST_FOREACH (l, &pool->idle) {
		rc_worker *w = of_private(WORKER_OF(l, idle_link));
		if (rc_is_io_worker(w->type) && w->p->idle_since + IO_IDLE_FACTOR * (uint64_t)pool->options.idle_threshold_ms <= now) {
			ask_to_exit(pool, w, false);
			return; /* the list may be another one */
		}
	}
}

void rc__pool_reap_idle(void *arg)
{
	rc_pool *pool = arg;
	uint64_t now = rc_now_ms();
	int idle = 0;
	bool again = true;
	while (again) { /* those of finished jobs first, whatever the limit */
		again = false;
		idle = 0;
		RC_LIST_FOREACH (l, &pool->idle) {
			rc_worker *w = of_private(WORKER_OF(l, idle_link));
			if (w->type != RC_WORKER)
				continue;
			idle++;
			if (rc__pool_job_finished(pool, &w->job_id) && !has_job(&w->root_detached_actor_id)) {
				ask_to_exit(pool, w, true);
				again = true;
				break;
			}
		}
	}
	reap_io(pool, now);
	int desired = pool->options.soft_limit >= 0 ? pool->options.soft_limit : pool->ops->free_cpus ? pool->ops->free_cpus(pool->ctx) : 0;
	while (idle > desired) {
		rc_worker *victim = NULL;
		for (rc_link *l = pool->idle.next; l != &pool->idle && !victim; l = l->next) {
			rc_worker *w = of_private(WORKER_OF(l, idle_link));
			if (w->type == RC_WORKER && max_u64(w->p->idle_since + pool->options.idle_threshold_ms, w->p->keep_alive_until) <= now)
				victim = w;
		}
		if (!victim)
			return;
		ask_to_exit(pool, victim, false);
		idle--;
	}
}
