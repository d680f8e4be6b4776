/* Starting one worker process: command, environment, runtime env, prefork or exec. Private to this folder. */
#ifndef RC_PROCS_START_H
#define RC_PROCS_START_H

#include "raylet-c/procs/pool.h"

typedef struct rc__start {
	const rc_pool_options *options;
	const Rw__JobConfig *job_config; /* NULL: none known */
	const rc_worker *worker;         /* language, type, job_id, tokens, hash */
	rc_id worker_id;                 /* 2.60.0 */
	const char *env;                 /* the serialized runtime env, "" for none */
	const char *context;             /* the agent's answer; NULL: the env only sets variables, or there is none */
	char *const *dynamic_options;
	size_t n_dynamic_options;
	bool is_train;
} rc__start;

/* p, or NULL with error. Comes from inside (exec) or from the loop (prefork), exactly once unless cancelled before. */
typedef void (*rc__started_fn)(void *arg, rc_process *p, bool forked, const rc_error *error);
typedef struct rc__starting rc__starting;

/* Returns NULL when fn was called already. */
rc__starting *rc__start_worker(const rc__start *s, rc_exited_fn exited, rc__started_fn fn, void *arg);
/* fn does not come; the process, if it comes to be, is killed. */
void rc__start_cancel(rc__starting *s);

#endif
