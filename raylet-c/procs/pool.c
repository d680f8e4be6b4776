/* The worker pool. Three kinds of lists: workers (all), pops that wait, and registrations that wait for a port.
 *
 * A pop that finds no idle worker goes through WAIT_JOB (its job has not come yet), WAIT_ENV (the agent makes its runtime
 * env) and WAIT_START (a place under the startup concurrency), and then has a worker that is being started for it. The tie is
 * loose: any worker that becomes usable serves the oldest pop it fits, and a starting worker whose pop was served otherwise
 * is spare and serves the next. A start that fails is tried again; a pop fails after MAX_TRIES of its starts did.
 *
 * A runtime env is counted by the agent: each started worker holds one reference until its end; a pop holds one between the
 * agent's answer and the start. */
#include "raylet-c/procs/pool_internal.h"

#include "raylet-c/procs/context.h"

static rc_view pop_key(const uint64_t *id)
{
	return rc_view_of(id, sizeof(*id));
}

pop *rc__pool_find_pop(rc_pool *pool, uint64_t id)
{
	return rc_map_get(pool->pops_by_id, pop_key(&id));
}

rc_worker *rc__pool_find_seq(rc_pool *pool, uint64_t seq)
{
	RC_LIST_FOREACH (l, &pool->workers)
		if (WORKER_OF(l, link)->seq == seq)
			return of_private(WORKER_OF(l, link));
	return NULL;
}

/* ---- pops ---- */

static void free_pop(pop *q)
{
	if (q->worker)
		q->worker->p->for_pop = NULL;
	rc__pool_put_env(q->pool, q->env, &q->env_held);
	rc_timer_stop(q->retry_timer);
	rc_list_remove(&q->link);
	rc_list_remove(&q->ready_link);
	rc_map_del(q->pool->pops_by_id, pop_key(&q->id));
	for (size_t i = 0; i < q->want.n_dynamic_options; i++)
		free(q->want.dynamic_options[i]);
	free((void *)(uintptr_t)q->want.dynamic_options);
	rc_free_message((void *)(uintptr_t)q->want.runtime_env);
	free(q->env);
	free(q->context);
	free(q->last_failure);
	free(q);
}

/* May w serve this pop? State and announcement are the caller's to look at. */
bool rc__pool_fits(const rc_worker *w, const pop *q)
{
	const rc_pop *want = &q->want;
	if (w->p->dedicated || want->n_dynamic_options)
		return w->p->for_pop == q;
	if (w->type != q->type || w->language != want->language || strcmp(w->p->env, q->env) != 0)
		return false;
	if (rc_is_io_worker(w->type))
		return true;
	if (has_job(&w->job_id) && !rc_id_eq(&w->job_id, &want->job_id))
		return false;
	/* A new process from the trainer server is sooner at work than one that still has to import torch. */
	if (want->is_train && q->may_fork && !w->p->train && rc_prefork_serves(w->p->pool->options.prefork, RC_WARM_TRAIN))
		return false;
	if (!w->used)
		return true;
	return w->actor_lease == want->is_actor && w->gpu_lease == want->is_gpu &&
	       same_optional_id(&w->root_detached_actor_id, &want->root_detached_actor_id);
}

static void lease(rc_worker *w, const rc_pop *want)
{
	rc_list_remove(&w->p->idle_link);
	w->state = RC_WS_LEASED;
	if (!rc_is_io_worker(w->type)) {
		w->job_id = want->job_id;
		w->root_detached_actor_id = want->root_detached_actor_id;
		w->actor_lease = want->is_actor;
		w->gpu_lease = want->is_gpu;
	}
	w->used = true;
}

void rc__pool_give(rc_worker *w, pop *q)
{
	rc_pop want = q->want;
	lease(w, &want);
	rc__pool_finish_pop(q, w, RC_POP_OK, "");
}

static rc_worker *find_idle(rc_pool *pool, const pop *q)
{
	for (rc_link *l = pool->idle.prev; l != &pool->idle; l = l->prev) {
		rc_worker *w = of_private(WORKER_OF(l, idle_link));
		if (rc__pool_fits(w, q))
			return w;
	}
	return NULL;
}

/* A worker that is on its way up and that no pop waits for. */
static rc_worker *find_spare(rc_pool *pool, const pop *q)
{
	RC_LIST_FOREACH (l, &pool->workers) {
		rc_worker *w = of_private(WORKER_OF(l, link));
		if ((w->state == RC_WS_STARTING || w->state == RC_WS_REGISTERED) && !w->p->for_pop && !w->p->dying && rc__pool_fits(w, q))
			return w;
	}
	return NULL;
}

/* q waits for w from now on. */
static void tie(pop *q, rc_worker *w)
{
	rc_list_remove(&q->ready_link);
	rc__pool_put_env(q->pool, q->env, &q->env_held); /* w holds one of its own */
	q->worker = w;
	w->p->for_pop = q;
	q->state = WAIT_WORKER;
}

/* A worker on its way up lost its pop. */
static void became_spare(rc_worker *w)
{
	rc_pool *pool = w->p->pool;
	if (w->state == RC_WS_EXITING)
		return;
	if (w->p->dedicated) {
		rc__pool_end_worker(w, true, "its lease was withdrawn");
		return;
	}
	RC_LIST_FOREACH (l, &pool->ready) {
		pop *q = RC_CONTAINER(l, pop, ready_link);
		if (!q->prestart && rc__pool_fits(w, q)) {
			tie(q, w);
			return;
		}
	}
}

void rc__pool_finish_pop(pop *q, rc_worker *w, rc_pop_status status, const char *text)
{
	rc_pop_fn fn = q->fn;
	void *arg = q->arg;
	rc_worker *unused = q->worker != w ? q->worker : NULL;
	if (w) { /* another pop may have waited for it */
		pop *other = w->p->for_pop != q ? w->p->for_pop : NULL;
		w->p->for_pop = NULL;
		if (other) {
			other->worker = NULL;
			rc__pool_ready(other);
		}
	}
	if (unused)
		unused->p->for_pop = NULL;
	q->worker = NULL;
	free_pop(q);
	if (unused)
		became_spare(unused);
	if (fn)
		fn(arg, w, status, text);
}

static unsigned count_starting(const rc_pool *pool, int type)
{
	unsigned n = 0;
	RC_LIST_FOREACH (l, &pool->workers) {
		struct rc_worker_private *p = WORKER_OF(l, link);
		rc_worker *w = of_private(p);
		n += w->type == type && (w->state == RC_WS_STARTING || (w->state == RC_WS_REGISTERED && !p->registered));
	}
	return n;
}

static unsigned count_type(const rc_pool *pool, int type)
{
	unsigned n = 0;
	RC_LIST_FOREACH (l, &pool->workers)
		n += of_private(WORKER_OF(l, link))->type == type;
	return n;
}

pop *rc__pool_new_pop(rc_pool *pool, const rc_pop *want, int type, rc_pop_fn fn, void *arg)
{
	pop *q = rc_alloc(sizeof(*q));
	*q = (pop){ .pool = pool, .id = ++pool->next_pop, .type = type, .want = *want, .fn = fn, .arg = arg };
	q->want.runtime_env = NULL;
	q->want.dynamic_options = NULL;
	q->env = rc_strdup("");
	q->may_fork = type == RC_WORKER && want->language == RC_LANG_PYTHON;
	if (!rc_runtime_env_is_none(want->runtime_env)) {
		q->want.runtime_env = rc__pool_copy_env(pool, want->runtime_env);
		free(q->env);
		q->env = rc_strdup(want->runtime_env->serialized_runtime_env);
		rc_words variables = { 0 };
		q->env_only_variables = want->language == RC_LANG_PYTHON && rc_context_of_env(q->env, &variables);
		q->may_fork = q->may_fork && q->env_only_variables && rc_prefork_allows(pool->options.prefork, &variables);
		rc_words_free(&variables);
	}
	if (want->n_dynamic_options) {
		char **copy = rc_alloc(want->n_dynamic_options * sizeof(*copy));
		for (size_t i = 0; i < want->n_dynamic_options; i++)
			copy[i] = rc_strdup(want->dynamic_options[i]);
		q->want.dynamic_options = copy;
	}
	rc_list_append(&pool->pops, &q->link);
	rc_list_init(&q->ready_link);
	rc_map_put(pool->pops_by_id, pop_key(&q->id), q);
	return q;
}

/* Moves a pop on to the next thing that it has to wait for. */
void rc__pool_advance(pop *q)
{
	rc_pool *pool = q->pool;
	if (!rc_is_io_worker(q->type) && has_job(&q->want.job_id)) {
		job *j = rc__pool_find_job(pool, &q->want.job_id);
		if (j && j->finished) {
			rc__pool_finish_pop(q, NULL, RC_POP_JOB_FINISHED, "the job has finished");
			return;
		}
		if (!j || !j->started) {
			q->state = WAIT_JOB;
			return;
		}
	}
	if (*q->env && !q->context && !q->env_only_variables) {
		if (!pool->options.runtime_envs) {
			rc__pool_finish_pop(q, NULL, RC_POP_RUNTIME_ENV_FAILED, "this node has no runtime-env agent");
			return;
		}
		q->state = WAIT_ENV;
		rc__pool_ask_env(pool, q->want.runtime_env, &q->want.job_id, q->id, 0, false);
		return;
	}
	rc__pool_ready(q);
}

/* Only a worker is missing now. */
void rc__pool_ready(pop *q)
{
	q->state = WAIT_START;
	rc_list_remove(&q->ready_link);
	rc_worker *w = q->prestart ? NULL : find_idle(q->pool, q);
	if (w) {
		rc__pool_give(w, q);
		return;
	}
	w = q->prestart ? NULL : find_spare(q->pool, q);
	if (w)
		tie(q, w);
	else
		rc_list_append(&q->pool->ready, &q->ready_link);
}

uint64_t rc_pool_pop(rc_pool *pool, const rc_pop *want, rc_pop_fn fn, void *arg)
{
	if (rc_map_count(pool->pops_by_id) >= MAX_POPS) {
		fn(arg, NULL, RC_POP_START_FAILED, "too many leases wait for a worker on this node");
		return 0;
	}
	if (!has_language(pool, want->language)) {
		fn(arg, NULL, RC_POP_START_FAILED, "this node cannot start workers of the language that the lease asks for");
		return 0;
	}
	pop *q = rc__pool_new_pop(pool, want, RC_WORKER, fn, arg);
	uint64_t id = q->id;
	if (rc__pool_job_finished(pool, &q->want.job_id)) {
		rc__pool_finish_pop(q, NULL, RC_POP_JOB_FINISHED, "the job has finished");
		return 0;
	}
	if (want->is_train)
		rc_prefork_want_train(pool->options.prefork);
	rc_worker *w = find_idle(pool, q);
	if (w) {
		rc__pool_give(w, q);
		return 0;
	}
	rc__pool_advance(q);
	rc__pool_pump(pool);
	return rc__pool_find_pop(pool, id) ? id : 0;
}

void rc_pool_pop_cancel(rc_pool *pool, uint64_t id)
{
	pop *q = id ? rc__pool_find_pop(pool, id) : NULL;
	if (q)
		rc__pool_finish_pop(q, NULL, RC_POP_CANCELLED, "cancelled");
}

uint64_t rc_pool_pop_io(rc_pool *pool, int type, rc_pop_fn fn, void *arg)
{
	rc_pop want = { .language = RC_LANG_PYTHON };
	want.job_id = rc_id_nil(RC_JOB_ID);
	if (rc_map_count(pool->pops_by_id) >= MAX_POPS || !pool->options.commands[RC_LANG_PYTHON]) {
		fn(arg, NULL, RC_POP_START_FAILED,
		   rc_map_count(pool->pops_by_id) >= MAX_POPS ? "too many requests wait for an IO worker" : "this node cannot start Python workers");
		return 0;
	}
	pop *q = rc__pool_new_pop(pool, &want, type, fn, arg);
	uint64_t id = q->id;
	rc_worker *w = find_idle(pool, q);
	if (w) {
		rc__pool_give(w, q);
		return 0;
	}
	rc__pool_advance(q);
	rc__pool_pump(pool);
	return rc__pool_find_pop(pool, id) ? id : 0;
}

/* ---- starts ---- */

static void warn_about_size(rc_pool *pool)
{
	/* At 4 workers a CPU, then at each doubling. */
	const rc_pool_options *o = &pool->options;
	int step = o->prestart > o->startup_concurrency ? o->prestart : o->startup_concurrency;
	unsigned n = count_type(pool, RC_WORKER), multiple = n / (step > 0 ? (unsigned)step : 1);
	if (multiple < 4 || multiple < 2 * pool->last_warning_multiple)
		return;
	pool->last_warning_multiple = multiple;
	if (!pool->ops->warn_job)
		return;
	char *text = rc_sprintf("WARNING: %u worker processes run on node %s. Usual causes are a large number of actors, or tasks that wait in "
	                        "ray.get() for tasks of their own.",
	                        n, rc_id_to_hex(&pool->options.node_id).s);
	rc_id nil = rc_id_nil(RC_JOB_ID);
	pool->ops->warn_job(pool->ctx, &nil, "worker_pool_large", text);
	free(text);
}

void rc__pool_free_worker(rc_worker *w)
{
	struct rc_worker_private *p = w->p;
	rc_timer_stop(p->timer);
	rc_list_remove(&p->link);
	rc_list_remove(&p->idle_link);
	free(p->env);
	free(p->cause);
	free(RC_CONTAINER(p, whole, p));
}

rc_worker *rc__pool_new_worker(rc_pool *pool, int type, int language, const rc_id *job_id)
{
	whole *x = rc_alloc(sizeof(*x));
	rc_worker *w = &x->w;
	w->p = &x->p;
	w->type = type;
	w->language = language;
	w->job_id = job_id->n ? *job_id : rc_id_nil(RC_JOB_ID);
	w->state = RC_WS_STARTING;
	w->started_ms = rc_now_ms();
	w->startup_token = -1;
	x->p.pool = pool;
	x->p.seq = ++pool->next_seq;
	rc_list_init(&x->p.idle_link);
	rc_list_append(&pool->workers, &x->p.link);
	return w;
}

void rc__pool_set_cause(rc_worker *w, const char *cause)
{
	if (cause && !w->p->cause)
		w->p->cause = rc_strdup(cause);
}

static void retry_pop(void *arg)
{
	pop *q = arg;
	rc_timer_stop(q->retry_timer);
	q->retry_timer = NULL;
	rc_pool *pool = q->pool;
	rc__pool_advance(q);
	rc__pool_pump(pool);
}

/* The start made for q failed. */
static void start_failed(pop *q, const char *text)
{
	rc_pool *pool = q->pool;
	pool->stats.start_failures++;
	q->worker = NULL;
	q->tries++;
	free(q->context); /* it went with the worker that failed, and so did its reference */
	q->context = NULL;
	free(q->last_failure);
	q->last_failure = rc_strdup(text);
	if (q->prestart) {
		free_pop(q);
		return;
	}
	if (q->tries >= MAX_TRIES) {
		char *all = rc_sprintf("a worker process could not be started, %d times; the last one: %s", q->tries, text);
		rc__pool_finish_pop(q, NULL, RC_POP_START_FAILED, all);
		free(all);
		return;
	}
	rc_worker *spare = find_spare(pool, q);
	if (spare) {
		tie(q, spare);
		return;
	}
	q->state = WAIT_RETRY;
	q->retry_timer = rc_timer_start(pool->loop, (uint64_t)RETRY_FIRST_MS << (2 * (q->tries - 1)), 0, retry_pop, q);
}

/* The process is gone (or never was). Last station of a worker that we started. */
static void worker_gone(rc_worker *w, const char *how)
{
	struct rc_worker_private *p = w->p;
	rc_pool *pool = p->pool;
	bool early = !p->announced;
	char *text = p->cause ? rc_sprintf("%s (%s)", p->cause, how) : rc_strdup(how);
	if (early && !p->cause && !rc_procs_ending(pool->options.procs))
		rc_warn("worker %d ended before it was ready: %s; its output is in the node's own log", (int)w->pid, how);
	rc_timer_stop(p->timer);
	p->timer = NULL;
	p->process = NULL;
	rc_list_remove(&p->idle_link);
	if (w->id.n && rc_map_get_id(pool->by_id, &w->id) == w)
		rc_map_del_id(pool->by_id, &w->id);
	rc__ports_give(pool->ports, w->assigned_port);
	rc__pool_put_env(pool, p->env, &p->env_held);
	if (p->registered) {
		rc_registered_fn fn = p->registered;
		p->registered = NULL;
		fn(p->registered_arg, NULL, 0, "the process has ended");
	}
	pop *q = p->for_pop;
	p->for_pop = NULL;
	w->state = RC_WS_DEAD;
	rc_list_remove(&p->link);
	pool->ops->died(pool->ctx, w, text);
	rc__pool_free_worker(w);
	if (q) {
		start_failed(q, text);
	}
	free(text);
	rc__pool_pump(pool);
}

static void process_exited(void *arg, rc_process *process, int status)
{
	(void)process;
	char text[80];
	worker_gone(arg, rc_exit_text(status, text));
}

void rc__pool_registration_timed_out(void *arg)
{
	rc_worker *w = arg;
	rc_pool *pool = w->p->pool;
	pool->stats.register_timeouts++;
	char *cause = rc_sprintf("the process %d was alive but did not %s within %u s: it hung while starting, and was killed", (int)w->pid,
	                         w->state == RC_WS_STARTING ? "register" : "announce its port", pool->options.register_timeout_ms / 1000);
	rc_warn("worker: %s", cause);
	rc__pool_end_worker(w, true, cause);
	free(cause);
}

static void started(void *arg, rc_process *process, bool forked, const rc_error *error)
{
	rc_worker *w = arg;
	struct rc_worker_private *p = w->p;
	rc_pool *pool = p->pool;
	p->starting = NULL;
	if (!process) {
		rc__pool_set_cause(w, error->text);
		rc_warn("%s", error->text);
		worker_gone(w, "not started");
		return;
	}
	p->process = process;
	w->pid = rc_process_pid(process);
	w->forked = forked;
	pool->stats.started++;
	pool->stats.forked += forked;
	rc_debug("worker %d started%s, job %s", (int)w->pid, forked ? " by fork" : "", rc_id_to_hex(&w->job_id).s);
	p->timer = rc_timer_start(pool->loop, pool->options.register_timeout_ms, 0, rc__pool_registration_timed_out, w);
	if (p->dying)
		rc_process_kill(process);
}

static void start_for(rc_pool *pool, pop *q)
{
	rc_worker *w = rc__pool_new_worker(pool, q->type, q->want.language, &q->want.job_id);
	struct rc_worker_private *p = w->p;
	p->env = rc_strdup(q->env);
	w->runtime_env_hash = rc_runtime_env_hash(q->want.runtime_env);
	p->env_held = q->env_held;
	q->env_held = false;
	p->dedicated = q->want.n_dynamic_options > 0;
	p->train = q->want.is_train;
	p->keep_alive_until = q->keep_alive_until;
	if (release_has_worker_ids(pool))
		p->given_id = rc_id_random(RC_WORKER_ID);
	else
		w->startup_token = pool->next_token++;
	if (*q->env && !q->context && pool->options.runtime_envs)
		rc__pool_ask_env(pool, q->want.runtime_env, &q->want.job_id, 0, p->seq, false);
	job *j = rc__pool_find_job(pool, &q->want.job_id);
	rc__start s = {
		.options = &pool->options,
		.job_config = j ? j->config : NULL,
		.worker = w,
		.worker_id = p->given_id,
		.env = q->env,
		.context = q->context,
		.dynamic_options = q->want.dynamic_options,
		.n_dynamic_options = q->want.n_dynamic_options,
		.is_train = q->want.is_train,
	};
	rc_list_remove(&q->ready_link);
	q->state = WAIT_WORKER;
	if (!q->prestart) {
		q->worker = w;
		p->for_pop = q;
	}
	bool prestarted = q->prestart;
	rc__starting *st = rc__start_worker(&s, process_exited, started, w);
	if (st) /* else started() was called, and w may be gone */
		p->starting = st;
	if (prestarted)
		free_pop(q);
}

/* A fork is worth waiting for, where it is possible at all. Nobody waits for a worker that is started ahead: it is to have all
 * that the server imports. */
static bool waits_for_prefork(const rc_pool *pool, const pop *q)
{
	const rc_prefork *f = pool->options.prefork;
	if (q->prestart && q->may_fork && rc_prefork_importing(f))
		return true;
	return q->may_fork && (rc_prefork_starting(f, RC_WARM_PLAIN) || (q->want.is_train && rc_prefork_starting(f, RC_WARM_TRAIN)));
}

static void prefork_changed(void *arg)
{
	rc__pool_pump(arg);
}

/* A worker is started for a lease: one less is needed ahead. */
static void take_from_prestarted(const pop *q)
{
	RC_LIST_FOREACH (l, &q->pool->ready) {
		pop *ahead = RC_CONTAINER(l, pop, ready_link);
		if (ahead->prestart && ahead->type == q->type && ahead->want.language == q->want.language &&
		    rc_id_eq(&ahead->want.job_id, &q->want.job_id) && strcmp(ahead->env, q->env) == 0) {
			free_pop(ahead);
			return;
		}
	}
}

/* The next one to start a worker for: leases come before what is started ahead. */
static pop *next_to_start(const rc_pool *pool, const unsigned room[4])
{
	pop *ahead = NULL;
	RC_LIST_FOREACH (l, &pool->ready) {
		pop *q = RC_CONTAINER(l, pop, ready_link);
		if (room[q->type] == 0) {
			if (q->type == RC_WORKER && room[RC_SPILL_WORKER] == 0 && room[RC_RESTORE_WORKER] == 0)
				break;
			continue;
		}
		if (waits_for_prefork(pool, q) || (q->prestart && ahead))
			continue;
		if (!q->prestart)
			return q;
		ahead = q;
	}
	return ahead;
}

/* Starts what may be started. Called whenever something changed; never nested. */
void rc__pool_pump(rc_pool *pool)
{
	if (pool->pumping || pool->ending || rc_list_empty(&pool->ready) || rc_procs_ending(pool->options.procs))
		return;
	pool->pumping = true;
	unsigned limit = pool->options.startup_concurrency > 0 ? (unsigned)pool->options.startup_concurrency : 1;
	unsigned io_limit = pool->options.max_io_workers > 0 ? (unsigned)pool->options.max_io_workers : 0;
	for (bool again = true; again;) {
		again = false;
		unsigned room[4] = { 0 }; /* by worker type */
		for (int type = RC_WORKER; type <= RC_RESTORE_WORKER; type++) {
			unsigned starting = count_starting(pool, type), all = rc_is_io_worker(type) ? count_type(pool, type) : 0;
			room[type] = starting >= limit ? 0 : limit - starting;
			if (rc_is_io_worker(type) && all + room[type] > io_limit)
				room[type] = all < io_limit ? io_limit - all : 0;
		}
		pop *q = next_to_start(pool, room);
		if (!q)
			break;
		/* a lease of Ray Train waited for its server, and that came to nothing */
		rc_worker *idle = q->want.is_train && !q->prestart ? find_idle(pool, q) : NULL;
		if (idle) {
			rc__pool_give(idle, q);
		} else {
			if (!q->prestart && !q->want.n_dynamic_options)
				take_from_prestarted(q);
			start_for(pool, q);
			warn_about_size(pool);
		}
		again = true; /* callbacks may have run: the list may be another one */
	}
	pool->pumping = false;
}

/* ---- looking ---- */

rc_worker *rc_pool_find(const rc_pool *pool, const rc_id *worker_id)
{
	return pool ? rc_map_get_id(pool->by_id, worker_id) : NULL;
}

rc_worker *rc_pool_next(const rc_pool *pool, const rc_worker *w)
{
	if (!pool)
		return NULL;
	const rc_link *l = w ? w->p->link.next : pool->workers.next;
	return l == &pool->workers ? NULL : of_private(RC_CONTAINER((rc_link *)(uintptr_t)l, struct rc_worker_private, link));
}

void rc_pool_get_stats(const rc_pool *pool, rc_pool_stats *ret)
{
	*ret = pool->stats;
	RC_LIST_FOREACH (l, &pool->workers) {
		struct rc_worker_private *p = WORKER_OF(l, link);
		rc_worker *w = of_private(p);
		if (w->type == RC_DRIVER) {
			ret->drivers++;
			continue;
		}
		ret->waiting_ports += p->registered != NULL;
		unsigned *const counters[] = { &ret->starting, &ret->registered, &ret->idle, &ret->leased, &ret->exiting };
		if (w->state < RC_WS_DEAD)
			++*counters[w->state];
	}
	RC_LIST_FOREACH (l, &pool->pops)
		ret->waiting_pops += !RC_CONTAINER(l, pop, link)->prestart;
}

/* ---- the pool ---- */

static const char *keep(rc_pool *pool, int i, const char *s)
{
	return pool->strings[i] = rc_strdup(s);
}

rc_pool *rc_pool_create(rc_loop *loop, const rc_pool_options *o, const rc_pool_ops *ops, void *ctx, rc_error *error)
{
	rc__ports *ports = rc__ports_create(o->min_port, o->max_port, o->port_list, error);
	if (!ports)
		return NULL;
	rc_pool *pool = rc_alloc(sizeof(*pool));
	pool->loop = loop;
	pool->options = *o;
	for (int i = 0; i < RC_LANGS; i++)
		pool->options.commands[i] = keep(pool, i, o->commands[i]);
	pool->options.native_library_path = keep(pool, 3, o->native_library_path);
	pool->options.spilling_config = keep(pool, 4, o->spilling_config);
	pool->options.preload_modules = keep(pool, 5, o->preload_modules);
	pool->options.train_env = keep(pool, 6, o->train_env);
	pool->options.port_list = NULL;
	pool->ops = ops;
	pool->ctx = ctx;
	pool->ports = ports;
	pool->jobs = rc_map_create();
	pool->by_id = rc_map_create();
	rc_list_init(&pool->workers);
	rc_list_init(&pool->idle);
	rc_list_init(&pool->pops);
	rc_list_init(&pool->ready);
	rc_list_init(&pool->asks);
	rc_list_init(&pool->finished_jobs);
	pool->pops_by_id = rc_map_create();
	if (o->reap_interval_ms)
		pool->reap_timer = rc_timer_start(loop, o->reap_interval_ms, o->reap_interval_ms, rc__pool_reap_idle, pool);
	pool->port_timer = rc_timer_start(loop, PORT_POLL_MS, 0, rc__pool_poll_ports, pool);
	if (o->prefork)
		rc_prefork_on_change(o->prefork, prefork_changed, pool);
	return pool;
}

void rc_pool_destroy(rc_pool *pool)
{
	if (!pool)
		return;
	pool->ending = true;
	if (pool->options.prefork)
		rc_prefork_on_change(pool->options.prefork, NULL, NULL);
	while (!rc_list_empty(&pool->pops))
		rc__pool_finish_pop(RC_CONTAINER(pool->pops.next, pop, link), NULL, RC_POP_CANCELLED, "the node is shutting down");
	RC_LIST_FOREACH (l, &pool->workers) {
		struct rc_worker_private *p = WORKER_OF(l, link);
		if (p->starting)
			rc__start_cancel(p->starting);
		if (p->process)
			rc_process_set_exited(p->process, NULL, NULL);
		rc__pool_free_worker(of_private(p));
	}
	RC_LIST_FOREACH (l, &pool->asks) {
		env_ask *a = RC_CONTAINER(l, env_ask, link);
		a->pool = NULL;
		rc_list_remove(&a->link);
	}
	rc_timer_stop(pool->reap_timer);
	rc_timer_stop(pool->port_timer);
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(pool->jobs, &i, &key, &value);)
		rc__pool_free_job(value);
	rc_map_destroy(pool->jobs);
	rc_map_destroy(pool->pops_by_id);
	rc_map_destroy(pool->by_id);
	rc__ports_destroy(pool->ports);
	for (size_t i = 0; i < sizeof(pool->strings) / sizeof(pool->strings[0]); i++)
		free(pool->strings[i]);
	free(pool);
}
