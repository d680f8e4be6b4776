/* The prefork servers: warm Python processes (python/raylet_c/prefork.py) that fork workers, so that a worker starts in
 * tens of milliseconds instead of a second of imports.
 *
 * Two servers for one interpreter: the plain one has imported what every worker imports; the trainer one also torch and Ray
 * Train. The second is started where trainers are expected (pool.h: with a job, on a node of many CPUs; on one with GPUs at
 * once), or when the first lease of one comes, which waits for it, and is ended when none came for ten minutes. A worker's start is taken by one of them only when the result cannot be told from an exec: same
 * interpreter, default_worker.py as the script, and no difference between the wanted environment and the server's in what
 * libraries read while they are imported (prefork.c). Everything else is plain exec. In the daemon's environment
 * RAYLET_C_PREFORK=0 turns both off, RAYLET_C_PREFORK_TRAIN=0 the second, =1 starts it with the first.
 *
 * The worker's parent is the daemon (double fork below a child subreaper); it bears the lineage mark (process.h).
 * Protocol: a SOCK_SEQPACKET pair each; request and answer are described in prefork.py. Loop thread only. */
#ifndef RC_PROCS_PREFORK_H
#define RC_PROCS_PREFORK_H

#include "raylet-c/procs/command.h"
#include "raylet-c/procs/process.h"

typedef struct rc_prefork rc_prefork;

typedef enum rc_warmth { RC_WARM_PLAIN, RC_WARM_TRAIN } rc_warmth;

typedef struct rc_prefork_options {
	const char *worker_command; /* --python_worker_command: names interpreter and default_worker.py */
	const char *log_path;      /* where the servers' own output goes; NULL: the daemon's */
	bool trainers_expected;    /* start the trainer server soon: the node has GPUs */
	const char *warm;          /* more modules for the plain server to import, comma separated; NULL or "": none */
} rc_prefork_options;

/* Starts the plain server. NULL with error when prefork is off or cannot work here: go on without. */
rc_prefork *rc_prefork_create(rc_loop *loop, rc_procs *procs, const rc_prefork_options *options, rc_error *error);
void rc_prefork_destroy(rc_prefork *f); /* NULL is fine */

/* A lease of Ray Train may come: starts the trainer server a little later, when nothing else has to be imported any more. */
void rc_prefork_expect_train(rc_prefork *f);
/* A lease of Ray Train came: starts the trainer server unless it runs, is off, or memory is short. f may be NULL. */
void rc_prefork_want_train(rc_prefork *f);
/* The server for this warmth is being started and will be ready soon: an exec now, or a fork of the plain server that has to
 * import the rest itself, would take longer than waiting. False after 10 s at the latest, for the trainer server 30 s. f may
 * be NULL. */
bool rc_prefork_starting(const rc_prefork *f, rc_warmth warmth);
bool rc_prefork_importing(const rc_prefork *f); /* the plain server is starting, or has not imported everything yet; f may be NULL */
bool rc_prefork_serves(const rc_prefork *f, rc_warmth warmth); /* starting or ready; f may be NULL */
/* May a worker with these variables (KEY=value), set over the daemon's, be forked, as far as can be told before a server is
 * ready? f may be NULL. */
bool rc_prefork_allows(const rc_prefork *f, const rc_words *variables);
/* fn is called from the loop whenever rc_prefork_starting or rc_prefork_importing has become false. One at a time. */
void rc_prefork_on_change(rc_prefork *f, rc_task_fn fn, void *arg);
/* Ready and able to start this command exactly as an exec would. RC_WARM_TRAIN: by the trainer server itself. */
bool rc_prefork_can(const rc_prefork *f, const rc_spawn *spawn, rc_warmth warmth);
/* p is NULL when the fork failed: use exec then (error says why). Comes from the loop, exactly once. */
typedef void (*rc_prefork_fn)(void *arg, rc_process *p, const rc_error *error);
/* Only after rc_prefork_can. exited is that of the process, as in rc_process_spawn. */
void rc_prefork_spawn(rc_prefork *f, const rc_spawn *spawn, rc_warmth warmth, rc_exited_fn exited, void *exited_arg, rc_prefork_fn fn, void *arg);
/* A forked worker was seen to differ from an executed one: no more forks, the text is logged. */
void rc_prefork_disable(rc_prefork *f, const char *why);
pid_t rc_prefork_pid(const rc_prefork *f, rc_warmth warmth); /* 0: not running; f may be NULL */

#endif
