/* Jobs, runtime envs, and workers that are started ahead of their lease. See pool.h. An answer of the runtime-env agent may come
 * when its pop, its worker or even the pool is gone, so it goes by number (env_ask). */
#include "raylet-c/procs/context.h"
#include "raylet-c/procs/pool_internal.h"

job *rc__pool_find_job(const rc_pool *pool, const rc_id *id)
{
	return has_job(id) ? rc_map_get_id(pool->jobs, id) : NULL;
}

static job *make_job(rc_pool *pool, const rc_id *id)
{
	job *j = rc__pool_find_job(pool, id);
	if (j)
		return j;
	j = rc_alloc(sizeof(*j));
	j->id = *id;
	rc_list_init(&j->link);
	rc_map_put_id(pool->jobs, id, j);
	return j;
}

bool rc__pool_job_finished(const rc_pool *pool, const rc_id *id)
{
	job *j = rc__pool_find_job(pool, id);
	return j && j->finished;
}

/* ---- runtime envs ---- */

void rc__pool_put_env(rc_pool *pool, const char *env, bool *held)
{
	if (*held && pool->options.runtime_envs)
		rc_runtime_env_put(pool->options.runtime_envs, env);
	*held = false;
}

static void free_ask(env_ask *a)
{
	rc_list_remove(&a->link);
	free(a->serialized);
	free(a);
}

static void env_answered(void *arg, const char *context, const char *error)
{
	env_ask *a = arg;
	rc_pool *pool = a->pool;
	if (!pool) { /* the node ends: so does the agent with its counts */
		free_ask(a);
		return;
	}
	bool held = context != NULL;
	if (a->job.n) {
		job *j = rc__pool_find_job(pool, &a->job);
		if (error) {
			rc_warn("the runtime env of job %s could not be installed ahead: %s", rc_id_to_hex(&a->job).s, error);
		} else if (j && !j->finished) {
			j->env_held = true;
			held = false;
		}
	} else if (a->worker_seq) {
		rc_worker *w = rc__pool_find_seq(pool, a->worker_seq);
		if (error)
			rc_warn("the runtime-env agent was not told of %s: %s", a->serialized, error);
		else if (w) {
			w->p->env_held = true;
			held = false;
		}
	} else {
		pop *q = rc__pool_find_pop(pool, a->pop);
		if (q && error) {
			rc__pool_finish_pop(q, NULL, RC_POP_RUNTIME_ENV_FAILED, error);
		} else if (q) {
			q->context = rc_strdup(context);
			q->env_held = true;
			held = false;
			rc__pool_ready(q);
			rc__pool_pump(pool);
		}
	}
	rc__pool_put_env(pool, a->serialized, &held);
	free_ask(a);
}

void rc__pool_ask_env(rc_pool *pool, const Rw__RuntimeEnvInfo *info, const rc_id *job_id, uint64_t for_pop, uint64_t for_worker,
                      bool for_job)
{
	env_ask *a = rc_alloc(sizeof(*a));
	*a = (env_ask){ .pool = pool, .pop = for_pop, .worker_seq = for_worker };
	if (for_job)
		a->job = *job_id;
	a->serialized = rc_strdup(info->serialized_runtime_env);
	rc_list_append(&pool->asks, &a->link);
	/* What a worker was started with is there already, and variables alone need nobody to make them. */
	rc_words variables = { 0 };
	bool made = for_worker || (for_job && rc_context_of_env(info->serialized_runtime_env, &variables));
	rc_words_free(&variables);
	(made ? rc_runtime_env_count : rc_runtime_env_get)(pool->options.runtime_envs, info, job_id, env_answered, a);
}

Rw__RuntimeEnvInfo *rc__pool_copy_env(const rc_pool *pool, const Rw__RuntimeEnvInfo *info)
{
	Rw__RuntimeEnvInfo plain = *info;
	rc_buf b = { 0 };
	rc_pack(pool->options.dialect, &plain, &b);
	Rw__RuntimeEnvInfo *copy = rc_unpack(pool->options.dialect, &rw__runtime_env_info__descriptor, rc_view_of(b.p, b.n));
	rc_buf_free(&b);
	return copy;
}

/* ---- jobs ---- */

static void prestart(rc_pool *pool, const rc_id *job_id, int language, const Rw__RuntimeEnvInfo *env, unsigned n, uint64_t keep_alive_ms)
{
	rc_pop want = { .job_id = *job_id, .language = language, .runtime_env = env };
	for (unsigned i = 0; i < n && rc_map_count(pool->pops_by_id) < MAX_POPS; i++) {
		pop *q = rc__pool_new_pop(pool, &want, RC_WORKER, NULL, NULL);
		q->prestart = true;
		q->keep_alive_until = keep_alive_ms ? rc_now_ms() + keep_alive_ms : 0;
		rc__pool_advance(q);
	}
	rc__pool_pump(pool);
}

void rc_pool_prestart(rc_pool *pool, const rc_id *job_id, int language, const Rw__RuntimeEnvInfo *env, unsigned n, uint64_t keep_alive_ms)
{
	unsigned most = 1000; /* a peer's number */
	if (!pool->options.enable_prestart || !has_language(pool, language))
		return;
	prestart(pool, job_id, language, env, n < most ? n : most, keep_alive_ms);
}

void rc_pool_backlog(rc_pool *pool, const rc_pop *want, int64_t backlog)
{
	if (!pool->options.enable_prestart || want->n_dynamic_options || !rc_runtime_env_is_none(want->runtime_env) ||
	    want->language != RC_LANG_PYTHON)
		return;
	int64_t usable = 0;
	RC_LIST_FOREACH (l, &pool->workers) {
		rc_worker *w = of_private(WORKER_OF(l, link));
		bool same_job = !has_job(&w->job_id) || rc_id_eq(&w->job_id, &want->job_id);
		usable += w->type == RC_WORKER && same_job && !*w->p->env &&
		          (w->state == RC_WS_IDLE || w->state == RC_WS_STARTING || w->state == RC_WS_REGISTERED);
	}
	RC_LIST_FOREACH (l, &pool->pops) {
		pop *q = RC_CONTAINER(l, pop, link);
		usable += q->prestart && q->state != WAIT_WORKER && rc_id_eq(&q->want.job_id, &want->job_id);
	}
	int64_t desired = pool->ops->free_cpus ? pool->ops->free_cpus(pool->ctx) : 0;
	if (desired > backlog)
		desired = backlog;
	if (desired > usable)
		prestart(pool, &want->job_id, want->language, NULL, (unsigned)(desired - usable), 0);
}

static pop *find_waiting_for_job(rc_pool *pool, const rc_id *id)
{
	RC_LIST_FOREACH (l, &pool->pops) {
		pop *q = RC_CONTAINER(l, pop, link);
		if (q->state == WAIT_JOB && rc_id_eq(&q->want.job_id, id))
			return q;
	}
	return NULL;
}

void rc__pool_free_job(job *j)
{
	rc_list_remove(&j->link);
	rc_free_message(j->config);
	free(j);
}

void rc_pool_job_started(rc_pool *pool, const rc_id *id, const Rw__JobConfig *config)
{
	if (!has_job(id))
		return;
	job *j = make_job(pool, id);
	bool first_time = !j->started;
	j->started = true;
	if (config && !j->config) {
		rc_buf b = { 0 };
		rc_pack(pool->options.dialect, config, &b);
		j->config = rc_unpack(pool->options.dialect, &rw__job_config__descriptor, rc_view_of(b.p, b.n));
		rc_buf_free(&b);
		const Rw__RuntimeEnvInfo *env = j->config ? j->config->runtime_env_info : NULL;
		if (!j->finished && !rc_runtime_env_is_none(env) && env->runtime_env_config && RC_GET(env->runtime_env_config, eager_install) &&
		    pool->options.runtime_envs)
			rc__pool_ask_env(pool, env, id, 0, 0, true);
	}
	if (!first_time || j->finished)
		return;
	if (!pool->first_job_seen && pool->options.enable_prestart && pool->options.prestart > 0 && pool->options.commands[RC_LANG_PYTHON]) {
		pool->first_job_seen = true;
		prestart(pool, id, RC_LANG_PYTHON, NULL, (unsigned)pool->options.prestart, 0);
	}
	pool->first_job_seen = true;
	if (pool->options.enable_prestart && pool->options.prestart >= TRAIN_AHEAD_WORKERS)
		rc_prefork_expect_train(pool->options.prefork);
	for (pop *q; (q = find_waiting_for_job(pool, id)) != NULL;)
		rc__pool_advance(q); /* may call back and change the list */
	rc__pool_pump(pool);
}

void rc_pool_job_finished(rc_pool *pool, const rc_id *id)
{
	if (!has_job(id))
		return;
	job *j = make_job(pool, id);
	if (j->finished)
		return;
	j->finished = true;
	if (j->env_held)
		rc__pool_put_env(pool, j->config->runtime_env_info->serialized_runtime_env, &j->env_held);
	rc_list_append(&pool->finished_jobs, &j->link);
	if (++pool->n_finished_jobs > MAX_FINISHED_JOBS) {
		job *oldest = RC_CONTAINER(pool->finished_jobs.next, job, link);
		rc_map_del_id(pool->jobs, &oldest->id);
		rc__pool_free_job(oldest);
		pool->n_finished_jobs--;
	}
	bool again = true;
	while (again) {
		again = false;
		RC_LIST_FOREACH (l, &pool->pops) {
			pop *q = RC_CONTAINER(l, pop, link);
			/* the work of a detached actor goes on without its job */
			if (rc_is_io_worker(q->type) || !rc_id_eq(&q->want.job_id, id) || has_job(&q->want.root_detached_actor_id))
				continue;
			rc__pool_finish_pop(q, NULL, RC_POP_JOB_FINISHED, "the job has finished");
			again = true;
			break;
		}
	}
	RC_LIST_FOREACH (l, &pool->workers) { /* nobody will want those any more */
		rc_worker *w = of_private(WORKER_OF(l, link));
		if (w->type == RC_WORKER && (w->state == RC_WS_STARTING || w->state == RC_WS_REGISTERED) && rc_id_eq(&w->job_id, id) && !w->p->for_pop)
			rc__pool_end_worker(w, true, "its job has finished");
	}
	rc__pool_reap_idle(pool);
}

bool rc_pool_job_is_finished(const rc_pool *pool, const rc_id *id)
{
	return rc__pool_job_finished(pool, id);
}
