/* The worker pool. Three kinds of lists: workers (all), pops that wait, and registrations that wait for a port.
 *
 * A pop that finds no idle worker goes through WAIT_JOB (its job has not come yet), WAIT_ENV (the agent makes its runtime
 * env) and WAIT_START (a place under the startup concurrency), and then has a worker that is being started for it. The tie is
 * loose: any worker that becomes usable serves the oldest pop it fits, and a starting worker whose pop was served otherwise
 * is spare and serves the next. A start that fails is tried again; a pop fails after MAX_TRIES of its starts did.
 *
 * A runtime env is counted by the agent: each started worker holds one reference until its end; a pop holds one between the
 * agent's answer and the start. */
#include "raylet-c/procs/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/base/map.h"
#include "raylet-c/procs/context.h"
#include "raylet-c/procs/ports.h"
#include "raylet-c/procs/start.h"

enum { MAX_TRIES = 4, RETRY_FIRST_MS = 100, PORT_POLL_MS = 100, EXIT_TIMEOUT_MS = 10000, MAX_POPS = 100000, MAX_FINISHED_JOBS = 20000,
       MAX_TEXT = 600, IO_IDLE_FACTOR = 30 /* of idle_threshold_ms: a new IO worker costs more than a task's worker */ };

typedef struct job {
	rc_link link; /* pool->finished_jobs, oldest first */
	rc_id id;
	Rw__JobConfig *config; /* NULL: none known */
	bool started, finished, env_held;
} job;

typedef enum pop_state { WAIT_JOB, WAIT_ENV, WAIT_START, WAIT_WORKER, WAIT_RETRY } pop_state;

typedef struct pop {
	rc_pool *pool;
	rc_link link;       /* pool->pops, oldest first */
	rc_link ready_link; /* pool->ready while it is in WAIT_START */
	uint64_t id;
	pop_state state;
	int type; /* RC_WORKER or an IO type */
	rc_pop want; /* runtime_env and dynamic_options point to copies */
	char *env;   /* serialized, "" for none */
	char *context;
	bool env_held, env_only_variables;
	bool prestart; /* nobody waits: it only makes a worker start */
	uint64_t keep_alive_until;
	int tries;
	rc_worker *worker; /* being started for it */
	rc_timer *retry_timer;
	char *last_failure;
	rc_pop_fn fn;
	void *arg;
} pop;

typedef struct env_ask { /* outlives its pop: the agent's answer must find somebody */
	rc_pool *pool; /* NULL: the pool is gone */
	rc_link link;
	uint64_t pop; /* 0: nobody waits for the answer, it is only counted */
	char *serialized;
	rc_id job;    /* an eager installation for it; absent: none */
	uint64_t worker_seq; /* the worker that holds it, for an env whose start did not wait */
} env_ask;

struct rc_worker_private {
	rc_pool *pool;
	rc_link link;      /* pool->workers */
	rc_link idle_link; /* pool->idle, oldest first */
	uint64_t seq;
	rc_process *process;
	rc__starting *starting;
	rc_id given_id;    /* 2.60.0: the id on its command line */
	char *env;         /* serialized, "" for none */
	bool env_held;
	bool train;        /* started for a lease of Ray Train */
	bool dedicated;    /* started with dynamic options: for its pop only */
	bool announced, exit_asked, dying;
	pop *for_pop;      /* NULL: spare */
	rc_timer *timer;   /* registration, exit or good-bye */
	uint64_t idle_since, keep_alive_until;
	char *cause;       /* why the pool ended it */
	rc_registered_fn registered; /* set while it waits for a port */
	void *registered_arg;
};

struct rc_pool {
	rc_loop *loop;
	rc_pool_options options;
	char *strings[8];
	const rc_pool_ops *ops;
	void *ctx;
	rc__ports *ports;
	rc_map *jobs;    /* job id -> job */
	rc_map *by_id;   /* worker id -> rc_worker, registered ones */
	rc_map *pops_by_id;
	rc_link workers, idle, pops, ready, asks, finished_jobs;
	size_t n_finished_jobs;
	uint64_t next_pop, next_seq;
	int64_t next_token;
	bool first_job_seen, pumping, ending;
	rc_timer *reap_timer, *port_timer;
	unsigned last_warning_multiple;
	rc_pool_stats stats;
};

static void pump(rc_pool *pool);
static void serve_or_idle(rc_pool *pool, rc_worker *w);
static void end_worker(rc_worker *w, bool force, const char *cause);
static void advance(pop *q);
static void ready(pop *q);
static void finish_pop(pop *q, rc_worker *w, rc_pop_status status, const char *text);

#define WORKER_OF(l, member) (RC_CONTAINER(l, struct rc_worker_private, member))

/* rc_worker and its private part are one allocation. */
typedef struct whole {
	rc_worker w;
	struct rc_worker_private p;
} whole;

static rc_worker *of_private(struct rc_worker_private *p)
{
	return &RC_CONTAINER(p, whole, p)->w;
}

static bool is_io(int type)
{
	return type == RC_SPILL_WORKER || type == RC_RESTORE_WORKER;
}

static bool same_optional_id(const rc_id *a, const rc_id *b)
{
	bool none_a = a->n == 0 || rc_id_is_nil(a), none_b = b->n == 0 || rc_id_is_nil(b);
	return none_a || none_b ? none_a == none_b : rc_id_eq(a, b);
}

static bool has_job(const rc_id *j)
{
	return j->n && !rc_id_is_nil(j);
}

static job *find_job(const rc_pool *pool, const rc_id *id)
{
	return has_job(id) ? rc_map_get_id(pool->jobs, id) : NULL;
}

static job *make_job(rc_pool *pool, const rc_id *id)
{
	job *j = find_job(pool, id);
	if (j)
		return j;
	j = rc_alloc(sizeof(*j));
	j->id = *id;
	rc_list_init(&j->link);
	rc_map_put_id(pool->jobs, id, j);
	return j;
}

static bool release_has_worker_ids(const rc_pool *pool) /* 2.60.0 */
{
	return strcmp(rc_dialect_release(pool->options.dialect), "2.35.0") != 0;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- runtime envs ---- */

static void put_env(rc_pool *pool, const char *env, bool *held)
{
	if (*held && pool->options.runtime_envs)
		rc_runtime_env_put(pool->options.runtime_envs, env);
	*held = false;
}

static rc_view pop_key(const uint64_t *id)
{
	return rc_view_of(id, sizeof(*id));
}

static pop *find_pop(rc_pool *pool, uint64_t id)
{
	return rc_map_get(pool->pops_by_id, pop_key(&id));
}

static rc_worker *find_seq(rc_pool *pool, uint64_t seq)
{
	RC_LIST_FOREACH (l, &pool->workers)
		if (WORKER_OF(l, link)->seq == seq)
			return of_private(WORKER_OF(l, link));
	return NULL;
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
		job *j = find_job(pool, &a->job);
		if (error) {
			rc_warn("the runtime env of job %s could not be installed ahead: %s", rc_id_to_hex(&a->job).s, error);
		} else if (j && !j->finished) {
			j->env_held = true;
			held = false;
		}
	} else if (a->worker_seq) {
		rc_worker *w = find_seq(pool, a->worker_seq);
		if (error)
			rc_warn("the runtime-env agent was not told of %s: %s", a->serialized, error);
		else if (w) {
			w->p->env_held = true;
			held = false;
		}
	} else {
		pop *q = find_pop(pool, a->pop);
		if (q && error) {
			finish_pop(q, NULL, RC_POP_RUNTIME_ENV_FAILED, error);
		} else if (q) {
			q->context = rc_strdup(context);
			q->env_held = true;
			held = false;
			ready(q);
			pump(pool);
		}
	}
	put_env(pool, a->serialized, &held);
	free_ask(a);
}

static void ask_env(rc_pool *pool, const Rw__RuntimeEnvInfo *info, const rc_id *job_id, uint64_t for_pop, uint64_t for_worker, bool for_job)
{
	env_ask *a = rc_alloc(sizeof(*a));
	*a = (env_ask){ .pool = pool, .pop = for_pop, .worker_seq = for_worker };
	if (for_job)
		a->job = *job_id;
	a->serialized = rc_strdup(info->serialized_runtime_env);
	rc_list_append(&pool->asks, &a->link);
	rc_runtime_env_get(pool->options.runtime_envs, info, job_id, env_answered, a);
}

static Rw__RuntimeEnvInfo *copy_env(const rc_pool *pool, const Rw__RuntimeEnvInfo *info)
{
	Rw__RuntimeEnvInfo plain = *info;
	rc_buf b = { 0 };
	rc_pack(pool->options.dialect, &plain, &b);
	Rw__RuntimeEnvInfo *copy = rc_unpack(pool->options.dialect, &rw__runtime_env_info__descriptor, rc_view_of(b.p, b.n));
	rc_buf_free(&b);
	return copy;
}

/* ---- pops ---- */

static void free_pop(pop *q)
{
	if (q->worker)
		q->worker->p->for_pop = NULL;
	put_env(q->pool, q->env, &q->env_held);
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

static bool job_finished(const rc_pool *pool, const rc_id *id)
{
	job *j = find_job(pool, id);
	return j && j->finished;
}

/* May w serve this pop? State and announcement are the caller's to look at. */
static bool fits(const rc_worker *w, const pop *q)
{
	const rc_pop *want = &q->want;
	if (w->p->dedicated || want->n_dynamic_options)
		return w->p->for_pop == q;
	if (w->type != q->type || w->language != want->language || strcmp(w->p->env, q->env) != 0)
		return false;
	if (is_io(w->type))
		return true;
	if (has_job(&w->job_id) && !rc_id_eq(&w->job_id, &want->job_id))
		return false;
	/* A new process from the trainer server is sooner at work than one that still has to import torch. */
	if (want->is_train && !w->p->train && rc_prefork_pid(w->p->pool->options.prefork, RC_WARM_TRAIN))
		return false;
	if (!w->used)
		return true;
	return w->actor_lease == want->is_actor && w->gpu_lease == want->is_gpu && same_optional_id(&w->root_detached_actor_id, &want->root_detached_actor_id);
}

static void lease(rc_worker *w, const rc_pop *want)
{
	rc_list_remove(&w->p->idle_link);
	w->state = RC_WS_LEASED;
	if (!is_io(w->type)) {
		w->job_id = want->job_id;
		w->root_detached_actor_id = want->root_detached_actor_id;
		w->actor_lease = want->is_actor;
		w->gpu_lease = want->is_gpu;
	}
	w->used = true;
}

static void give(rc_worker *w, pop *q)
{
	rc_pop want = q->want;
	lease(w, &want);
	finish_pop(q, w, RC_POP_OK, "");
}

static rc_worker *find_idle(rc_pool *pool, const pop *q)
{
	for (rc_link *l = pool->idle.prev; l != &pool->idle; l = l->prev) {
		rc_worker *w = of_private(WORKER_OF(l, idle_link));
		if (fits(w, q))
			return w;
	}
	return NULL;
}

/* A worker that is on its way up and that no pop waits for. */
static rc_worker *find_spare(rc_pool *pool, const pop *q)
{
	RC_LIST_FOREACH (l, &pool->workers) {
		rc_worker *w = of_private(WORKER_OF(l, link));
		if ((w->state == RC_WS_STARTING || w->state == RC_WS_REGISTERED) && !w->p->for_pop && !w->p->dying && fits(w, q))
			return w;
	}
	return NULL;
}

/* q waits for w from now on. */
static void tie(pop *q, rc_worker *w)
{
	rc_list_remove(&q->ready_link);
	put_env(q->pool, q->env, &q->env_held); /* w holds one of its own */
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
		end_worker(w, true, "its lease was withdrawn");
		return;
	}
	RC_LIST_FOREACH (l, &pool->ready) {
		pop *q = RC_CONTAINER(l, pop, ready_link);
		if (!q->prestart && fits(w, q)) {
			tie(q, w);
			return;
		}
	}
}

static void finish_pop(pop *q, rc_worker *w, rc_pop_status status, const char *text)
{
	rc_pop_fn fn = q->fn;
	void *arg = q->arg;
	rc_worker *unused = q->worker != w ? q->worker : NULL;
	if (w) { /* another pop may have waited for it */
		pop *other = w->p->for_pop != q ? w->p->for_pop : NULL;
		w->p->for_pop = NULL;
		if (other) {
			other->worker = NULL;
			ready(other);
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

static pop *new_pop(rc_pool *pool, const rc_pop *want, int type, rc_pop_fn fn, void *arg)
{
	pop *q = rc_alloc(sizeof(*q));
	*q = (pop){ .pool = pool, .id = ++pool->next_pop, .type = type, .want = *want, .fn = fn, .arg = arg };
	q->want.runtime_env = NULL;
	q->want.dynamic_options = NULL;
	q->env = rc_strdup("");
	if (!rc_runtime_env_is_none(want->runtime_env)) {
		q->want.runtime_env = copy_env(pool, want->runtime_env);
		free(q->env);
		q->env = rc_strdup(want->runtime_env->serialized_runtime_env);
		rc_words variables = { 0 };
		q->env_only_variables = want->language == RC_LANG_PYTHON && rc_context_of_env(q->env, &variables);
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
static void advance(pop *q)
{
	rc_pool *pool = q->pool;
	if (!is_io(q->type) && has_job(&q->want.job_id)) {
		job *j = find_job(pool, &q->want.job_id);
		if (j && j->finished) {
			finish_pop(q, NULL, RC_POP_JOB_FINISHED, "the job has finished");
			return;
		}
		if (!j || !j->started) {
			q->state = WAIT_JOB;
			return;
		}
	}
	if (*q->env && !q->context && !q->env_only_variables) {
		if (!pool->options.runtime_envs) {
			finish_pop(q, NULL, RC_POP_RUNTIME_ENV_FAILED, "this node has no runtime-env agent");
			return;
		}
		q->state = WAIT_ENV;
		ask_env(pool, q->want.runtime_env, &q->want.job_id, q->id, 0, false);
		return;
	}
	ready(q);
}

/* Only a worker is missing now. */
static void ready(pop *q)
{
	q->state = WAIT_START;
	rc_list_remove(&q->ready_link);
	rc_worker *w = q->prestart ? NULL : find_idle(q->pool, q);
	if (w) {
		give(w, q);
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
	if (want->language < 0 || want->language >= RC_LANGS || !pool->options.commands[want->language] || !*pool->options.commands[want->language]) {
		fn(arg, NULL, RC_POP_START_FAILED, "this node cannot start workers of the language that the lease asks for");
		return 0;
	}
	pop *q = new_pop(pool, want, RC_WORKER, fn, arg);
	uint64_t id = q->id;
	if (job_finished(pool, &q->want.job_id)) {
		finish_pop(q, NULL, RC_POP_JOB_FINISHED, "the job has finished");
		return 0;
	}
	rc_worker *w = find_idle(pool, q);
	if (w) {
		give(w, q);
		if (want->is_train)
			rc_prefork_want_train(pool->options.prefork);
		return 0;
	}
	advance(q);
	pump(pool);
	if (want->is_train) /* for those that follow; this one did not wait for it */
		rc_prefork_want_train(pool->options.prefork);
	return find_pop(pool, id) ? id : 0;
}

void rc_pool_pop_cancel(rc_pool *pool, uint64_t id)
{
	pop *q = id ? find_pop(pool, id) : NULL;
	if (q)
		finish_pop(q, NULL, RC_POP_CANCELLED, "cancelled");
}

uint64_t rc_pool_pop_io(rc_pool *pool, int type, rc_pop_fn fn, void *arg)
{
	rc_pop want = { .language = RC_LANG_PYTHON };
	want.job_id = rc_id_nil(RC_JOB_ID);
	if (rc_map_count(pool->pops_by_id) >= MAX_POPS || !pool->options.commands[RC_LANG_PYTHON]) {
		fn(arg, NULL, RC_POP_START_FAILED, rc_map_count(pool->pops_by_id) >= MAX_POPS ? "too many requests wait for an IO worker" : "this node cannot start Python workers");
		return 0;
	}
	pop *q = new_pop(pool, &want, type, fn, arg);
	uint64_t id = q->id;
	rc_worker *w = find_idle(pool, q);
	if (w) {
		give(w, q);
		return 0;
	}
	advance(q);
	pump(pool);
	return find_pop(pool, id) ? id : 0;
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
	char *text = rc_sprintf("WARNING: %u worker processes run on node %s. Usual causes are a large number of actors, or tasks that wait in ray.get() for "
	                        "tasks of their own.",
	                        n, rc_id_to_hex(&pool->options.node_id).s);
	rc_id nil = rc_id_nil(RC_JOB_ID);
	pool->ops->warn_job(pool->ctx, &nil, "worker_pool_large", text);
	free(text);
}

static void free_worker(rc_worker *w)
{
	struct rc_worker_private *p = w->p;
	rc_timer_stop(p->timer);
	rc_list_remove(&p->link);
	rc_list_remove(&p->idle_link);
	free(p->env);
	free(p->cause);
	free(RC_CONTAINER(p, whole, p));
}

static rc_worker *new_worker(rc_pool *pool, int type, int language, const rc_id *job_id)
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

static void set_cause(rc_worker *w, const char *cause)
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
	advance(q);
	pump(pool);
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
		finish_pop(q, NULL, RC_POP_START_FAILED, all);
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
	put_env(pool, p->env, &p->env_held);
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
	free_worker(w);
	if (q) {
		start_failed(q, text);
	}
	free(text);
	pump(pool);
}

static void process_exited(void *arg, rc_process *process, int status)
{
	(void)process;
	char text[80];
	worker_gone(arg, rc_exit_text(status, text));
}

static void registration_timed_out(void *arg)
{
	rc_worker *w = arg;
	rc_pool *pool = w->p->pool;
	pool->stats.register_timeouts++;
	char *cause = rc_sprintf("the process %d was alive but did not %s within %u s: it hung while starting, and was killed", (int)w->pid,
	                         w->state == RC_WS_STARTING ? "register" : "announce its port", pool->options.register_timeout_ms / 1000);
	rc_warn("worker: %s", cause);
	end_worker(w, true, cause);
	free(cause);
}

static void started(void *arg, rc_process *process, bool forked, const rc_error *error)
{
	rc_worker *w = arg;
	struct rc_worker_private *p = w->p;
	rc_pool *pool = p->pool;
	p->starting = NULL;
	if (!process) {
		set_cause(w, error->text);
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
	p->timer = rc_timer_start(pool->loop, pool->options.register_timeout_ms, 0, registration_timed_out, w);
	if (p->dying)
		rc_process_kill(process);
}

static void start_for(rc_pool *pool, pop *q)
{
	rc_worker *w = new_worker(pool, q->type, q->want.language, &q->want.job_id);
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
		ask_env(pool, q->want.runtime_env, &q->want.job_id, 0, p->seq, false);
	job *j = find_job(pool, &q->want.job_id);
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

/* A fork is worth waiting for, where it is possible at all. */
static bool waits_for_prefork(const rc_pool *pool, const pop *q)
{
	const rc_prefork *f = pool->options.prefork;
	if (q->type != RC_WORKER || q->want.language != RC_LANG_PYTHON || (*q->env && !q->env_only_variables))
		return false;
	return rc_prefork_starting(f, RC_WARM_PLAIN) || (q->want.is_train && rc_prefork_starting(f, RC_WARM_TRAIN));
}

static void prefork_changed(void *arg)
{
	pump(arg);
}

/* Starts what may be started. Called whenever something changed; never nested. */
static void pump(rc_pool *pool)
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
			unsigned starting = count_starting(pool, type), all = is_io(type) ? count_type(pool, type) : 0;
			room[type] = starting >= limit ? 0 : limit - starting;
			if (is_io(type) && all + room[type] > io_limit)
				room[type] = all < io_limit ? io_limit - all : 0;
		}
		RC_LIST_FOREACH (l, &pool->ready) {
			pop *q = RC_CONTAINER(l, pop, ready_link);
			if (room[q->type] == 0) {
				if (q->type == RC_WORKER && room[RC_SPILL_WORKER] == 0 && room[RC_RESTORE_WORKER] == 0)
					break;
				continue;
			}
			if (waits_for_prefork(pool, q))
				continue;
			start_for(pool, q);
			warn_about_size(pool);
			again = true; /* callbacks may have run: the list may be another one */
			break;
		}
	}
	pool->pumping = false;
}

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
		p->timer = rc_timer_start(p->pool->loop, p->pool->options.register_timeout_ms, 0, registration_timed_out, w);
	}
	fn(p->registered_arg, w, port, NULL);
}

static void poll_ports(void *arg)
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
		w = new_worker(pool, RC_DRIVER, m->language, &job_id);
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
	pump(pool); /* it does not count as starting any more */
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
	pump(pool);
}

static void serve_or_idle(rc_pool *pool, rc_worker *w)
{
	pop *own = w->p->for_pop;
	if (own) {
		give(w, own);
		return;
	}
	RC_LIST_FOREACH (l, &pool->pops) {
		pop *q = RC_CONTAINER(l, pop, link);
		if (!q->prestart && q->state != WAIT_JOB && fits(w, q)) {
			give(w, q);
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
	pump(pool);
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

static void end_worker(rc_worker *w, bool force, const char *cause)
{
	struct rc_worker_private *p = w->p;
	if (w->type == RC_DRIVER || w->state == RC_WS_DEAD)
		return;
	set_cause(w, cause);
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
	end_worker(w, force, cause);
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
		free_worker(w);
		return;
	}
	bool dying = w->p->dying;
	unusable(w);
	if (!dying && w->p->process)
		w->p->timer = rc_timer_start(pool->loop, grace_ms ? grace_ms : pool->options.kill_grace_ms, 0, stop_now, w);
}

static void exit_took_too_long(void *arg)
{
	end_worker(arg, false, "it agreed to exit and did not");
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
		end_worker(w, false, "idle, and it did not answer the request to exit");
	} else if (success) {
		set_cause(w, "idle, asked to exit");
		rc_timer_stop(w->p->timer);
		w->p->timer = rc_timer_start(pool->loop, EXIT_TIMEOUT_MS, 0, exit_took_too_long, w);
	} else { /* it owns objects: asked again after the others */
		serve_or_idle(pool, w);
		pump(pool);
	}
}

/* IO workers of which none was wanted for a good while; stock keeps them. Few at a time end, so one look at each is enough. */
static void reap_io(rc_pool *pool, uint64_t now)
{
	RC_LIST_FOREACH (l, &pool->idle) {
		rc_worker *w = of_private(WORKER_OF(l, idle_link));
		if (is_io(w->type) && w->p->idle_since + IO_IDLE_FACTOR * (uint64_t)pool->options.idle_threshold_ms <= now) {
			ask_to_exit(pool, w, false);
			return; /* the list may be another one */
		}
	}
}

static void reap_idle(void *arg)
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
			if (job_finished(pool, &w->job_id) && !has_job(&w->root_detached_actor_id)) {
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

/* ---- jobs ---- */

static void prestart(rc_pool *pool, const rc_id *job_id, int language, const Rw__RuntimeEnvInfo *env, unsigned n, uint64_t keep_alive_ms)
{
	rc_pop want = { .job_id = *job_id, .language = language, .runtime_env = env };
	for (unsigned i = 0; i < n && rc_map_count(pool->pops_by_id) < MAX_POPS; i++) {
		pop *q = new_pop(pool, &want, RC_WORKER, NULL, NULL);
		q->prestart = true;
		q->keep_alive_until = keep_alive_ms ? rc_now_ms() + keep_alive_ms : 0;
		advance(q);
	}
	pump(pool);
}

void rc_pool_prestart(rc_pool *pool, const rc_id *job_id, int language, const Rw__RuntimeEnvInfo *env, unsigned n, uint64_t keep_alive_ms)
{
	unsigned most = 1000; /* a peer's number */
	if (!pool->options.enable_prestart || language < 0 || language >= RC_LANGS || !pool->options.commands[language] || !*pool->options.commands[language])
		return;
	prestart(pool, job_id, language, env, n < most ? n : most, keep_alive_ms);
}

void rc_pool_backlog(rc_pool *pool, const rc_pop *want, int64_t backlog)
{
	if (!pool->options.enable_prestart || want->n_dynamic_options || !rc_runtime_env_is_none(want->runtime_env) || want->language != RC_LANG_PYTHON)
		return;
	int64_t usable = 0;
	RC_LIST_FOREACH (l, &pool->workers) {
		rc_worker *w = of_private(WORKER_OF(l, link));
		bool same_job = !has_job(&w->job_id) || rc_id_eq(&w->job_id, &want->job_id);
		usable += w->type == RC_WORKER && same_job && !*w->p->env && (w->state == RC_WS_IDLE || w->state == RC_WS_STARTING || w->state == RC_WS_REGISTERED);
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

static void free_job(job *j)
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
			ask_env(pool, env, id, 0, 0, true);
	}
	if (!first_time || j->finished)
		return;
	if (!pool->first_job_seen && pool->options.enable_prestart && pool->options.prestart > 0 && pool->options.commands[RC_LANG_PYTHON]) {
		pool->first_job_seen = true;
		prestart(pool, id, RC_LANG_PYTHON, NULL, (unsigned)pool->options.prestart, 0);
	}
	pool->first_job_seen = true;
	for (pop *q; (q = find_waiting_for_job(pool, id)) != NULL;)
		advance(q); /* may call back and change the list */
	pump(pool);
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
		put_env(pool, j->config->runtime_env_info->serialized_runtime_env, &j->env_held);
	rc_list_append(&pool->finished_jobs, &j->link);
	if (++pool->n_finished_jobs > MAX_FINISHED_JOBS) {
		job *oldest = RC_CONTAINER(pool->finished_jobs.next, job, link);
		rc_map_del_id(pool->jobs, &oldest->id);
		free_job(oldest);
		pool->n_finished_jobs--;
	}
	bool again = true;
	while (again) {
		again = false;
		RC_LIST_FOREACH (l, &pool->pops) {
			pop *q = RC_CONTAINER(l, pop, link);
			/* the work of a detached actor goes on without its job */
			if (is_io(q->type) || !rc_id_eq(&q->want.job_id, id) || has_job(&q->want.root_detached_actor_id))
				continue;
			finish_pop(q, NULL, RC_POP_JOB_FINISHED, "the job has finished");
			again = true;
			break;
		}
	}
	RC_LIST_FOREACH (l, &pool->workers) { /* nobody will want those any more */
		rc_worker *w = of_private(WORKER_OF(l, link));
		if (w->type == RC_WORKER && (w->state == RC_WS_STARTING || w->state == RC_WS_REGISTERED) && rc_id_eq(&w->job_id, id) && !w->p->for_pop)
			end_worker(w, true, "its job has finished");
	}
	reap_idle(pool);
}

bool rc_pool_job_is_finished(const rc_pool *pool, const rc_id *id)
{
	return job_finished(pool, id);
}

/* ---- looking ---- */

rc_worker *rc_pool_find(const rc_pool *pool, const rc_id *worker_id)
{
	return rc_map_get_id(pool->by_id, worker_id);
}

rc_worker *rc_pool_find_pid(const rc_pool *pool, pid_t pid)
{
	RC_LIST_FOREACH (l, &pool->workers)
		if (of_private(WORKER_OF(l, link))->pid == pid)
			return of_private(WORKER_OF(l, link));
	return NULL;
}

rc_worker *rc_pool_next(const rc_pool *pool, const rc_worker *w)
{
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
		pool->reap_timer = rc_timer_start(loop, o->reap_interval_ms, o->reap_interval_ms, reap_idle, pool);
	pool->port_timer = rc_timer_start(loop, PORT_POLL_MS, 0, poll_ports, pool);
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
		finish_pop(RC_CONTAINER(pool->pops.next, pop, link), NULL, RC_POP_CANCELLED, "the node is shutting down");
	RC_LIST_FOREACH (l, &pool->workers) {
		struct rc_worker_private *p = WORKER_OF(l, link);
		if (p->starting)
			rc__start_cancel(p->starting);
		if (p->process)
			rc_process_set_exited(p->process, NULL, NULL);
		free_worker(of_private(p));
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
		free_job(value);
	rc_map_destroy(pool->jobs);
	rc_map_destroy(pool->pops_by_id);
	rc_map_destroy(pool->by_id);
	rc__ports_destroy(pool->ports);
	for (size_t i = 0; i < sizeof(pool->strings) / sizeof(pool->strings[0]); i++)
		free(pool->strings[i]);
	free(pool);
}
