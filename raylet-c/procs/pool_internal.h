/* What pool.c, pool_workers.c and pool_jobs.c share. Not for others.
 *
 * Who does what: pool.c pops and starts; pool_workers.c a worker from its registration to its end; pool_jobs.c jobs, runtime
 * envs, and what is started ahead. */
#ifndef RC_PROCS_POOL_INTERNAL_H
#define RC_PROCS_POOL_INTERNAL_H

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/base/map.h"
#include "raylet-c/procs/pool.h"
#include "raylet-c/procs/ports.h"
#include "raylet-c/procs/start.h"

enum {
	MAX_TRIES = 4,
	RETRY_FIRST_MS = 100,
	PORT_POLL_MS = 100,
	EXIT_TIMEOUT_MS = 10000,
	MAX_POPS = 100000,
	MAX_FINISHED_JOBS = 20000,
	MAX_TEXT = 600,
	TRAIN_AHEAD_WORKERS = 10, /* forked instead of executed they save more memory than the trainer server has */
	IO_IDLE_FACTOR = 30 /* of idle_threshold_ms: a new IO worker costs more than a task's worker */
};

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
	bool may_fork; /* nothing in its runtime env speaks against a fork */
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

#define WORKER_OF(l, member) (RC_CONTAINER(l, struct rc_worker_private, member))

/* rc_worker and its private part are one allocation. */
typedef struct whole {
	rc_worker w;
	struct rc_worker_private p;
} whole;

static inline rc_worker *of_private(struct rc_worker_private *p)
{
	return &RC_CONTAINER(p, whole, p)->w;
}

static inline bool same_optional_id(const rc_id *a, const rc_id *b)
{
	bool none_a = a->n == 0 || rc_id_is_nil(a), none_b = b->n == 0 || rc_id_is_nil(b);
	return none_a || none_b ? none_a == none_b : rc_id_eq(a, b);
}

static inline bool has_job(const rc_id *j)
{
	return j->n && !rc_id_is_nil(j);
}

static inline bool release_has_worker_ids(const rc_pool *pool) /* 2.60.0 */
{
	return strcmp(rc_dialect_release(pool->options.dialect), "2.35.0") != 0;
}

/* Did the command line bring a command for workers of this language? */
static inline bool has_language(const rc_pool *pool, int language)
{
	return language >= 0 && language < RC_LANGS && pool->options.commands[language] && *pool->options.commands[language];
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* pool.c */
pop *rc__pool_find_pop(rc_pool *pool, uint64_t id);           /* NULL: served or cancelled meanwhile */
rc_worker *rc__pool_find_seq(rc_pool *pool, uint64_t seq);    /* NULL: gone meanwhile */
bool rc__pool_fits(const rc_worker *w, const pop *q);
void rc__pool_give(rc_worker *w, pop *q);                     /* ends q with w */
/* The one end of a pop: out of all lists, fn, freed. */
void rc__pool_finish_pop(pop *q, rc_worker *w, rc_pop_status status, const char *text);
pop *rc__pool_new_pop(rc_pool *pool, const rc_pop *want, int type, rc_pop_fn fn, void *arg); /* in WAIT_JOB */
void rc__pool_advance(pop *q);                                /* its job has come: on to its runtime env */
void rc__pool_ready(pop *q);                                  /* nothing but a place is missing: WAIT_START */
void rc__pool_pump(rc_pool *pool);                            /* starts what may start now */
rc_worker *rc__pool_new_worker(rc_pool *pool, int type, int language, const rc_id *job_id);
void rc__pool_free_worker(rc_worker *w);
void rc__pool_set_cause(rc_worker *w, const char *cause);     /* the first one stays */
void rc__pool_registration_timed_out(void *arg);

/* pool_workers.c */
void rc__pool_poll_ports(void *arg);                          /* timer: registrations that wait for a port */
void rc__pool_reap_idle(void *arg);                           /* timer: idle workers beyond the pool's size */
void rc__pool_end_worker(rc_worker *w, bool force, const char *cause);

/* pool_jobs.c */
job *rc__pool_find_job(const rc_pool *pool, const rc_id *id); /* NULL: none, or nothing was heard of it */
bool rc__pool_job_finished(const rc_pool *pool, const rc_id *id);
void rc__pool_free_job(job *j);
/* Asks the agent for an env on behalf of a pop, a worker (numbers, 0: none) or the job itself. */
void rc__pool_ask_env(rc_pool *pool, const Rw__RuntimeEnvInfo *info, const rc_id *job_id, uint64_t for_pop, uint64_t for_worker,
                      bool for_job);
void rc__pool_put_env(rc_pool *pool, const char *env, bool *held); /* gives a reference back, when there is one */
Rw__RuntimeEnvInfo *rc__pool_copy_env(const rc_pool *pool, const Rw__RuntimeEnvInfo *info);

#endif
