/* The prefork server: a warm Python process (python/raylet_c/prefork.py) that forks workers, so that a worker starts in
 * tens of milliseconds instead of a second of imports.
 *
 * One server per daemon, for one interpreter. A worker's start is taken by it only when the result cannot be told from an
 * exec: same interpreter, default_worker.py as the script, and no difference between the wanted environment and the
 * server's in LD_*, PYTHON*, MALLOC_*, OMP_*, MKL_*, CUDA_*, NCCL_*, and other variables that libraries read while they are
 * imported (see prefork.c). Everything else is plain exec. RAYLET_C_PREFORK=0 in the daemon's environment turns it off.
 *
 * The worker's parent is the daemon (double fork below a child subreaper); it bears the lineage mark (process.h).
 * Protocol: one SOCK_SEQPACKET pair; request and answer are described in prefork.c. Loop thread only. */
#ifndef RC_PROCS_PREFORK_H
#define RC_PROCS_PREFORK_H

#include "raylet-c/procs/process.h"

typedef struct rc_prefork rc_prefork;

typedef struct rc_prefork_options {
	const char *worker_command; /* --python_worker_command: names interpreter and default_worker.py */
	const char *log_path;      /* where the server's own output goes; NULL: the daemon's */
	const char *warm;          /* extra modules to import when there is time, comma separated ("torch"); "" none */
} rc_prefork_options;

/* NULL with error when prefork is off or cannot work here: go on without. */
rc_prefork *rc_prefork_create(rc_loop *loop, rc_procs *procs, const rc_prefork_options *options, rc_error *error);
void rc_prefork_destroy(rc_prefork *f); /* NULL is fine */

/* The server is being started and will be ready soon: an exec now would take longer than waiting. False after 10 s. */
bool rc_prefork_starting(const rc_prefork *f);
/* fn is called from the loop whenever rc_prefork_starting has become false. One at a time. */
void rc_prefork_on_change(rc_prefork *f, rc_task_fn fn, void *arg);
/* Ready and able to start this command exactly as an exec would. */
bool rc_prefork_can(const rc_prefork *f, const rc_spawn *spawn);
/* p is NULL when the fork failed: use exec then (error says why). Comes from the loop, exactly once. */
typedef void (*rc_prefork_fn)(void *arg, rc_process *p, const rc_error *error);
/* exited is that of the process, as in rc_process_spawn. */
void rc_prefork_spawn(rc_prefork *f, const rc_spawn *spawn, rc_exited_fn exited, void *exited_arg, rc_prefork_fn fn, void *arg);
/* A forked worker was seen to differ from an executed one: no more forks, the text is logged. */
void rc_prefork_disable(rc_prefork *f, const char *why);
pid_t rc_prefork_pid(const rc_prefork *f); /* 0: not running; for statistics and tests */

#endif
