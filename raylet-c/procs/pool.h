/* The worker pool: starts worker processes, matches their registrations, keeps idle ones for reuse, ends them.
 *
 * Events come in from the node (registrations, announcements, returns, closed connections, jobs); the pool knows no socket
 * and no RPC. States of a worker that we started:
 *   STARTING -> REGISTERED (its RegisterClient came) -> announced its port -> IDLE <-> LEASED -> EXITING -> DEAD
 * A driver on this node is registered only: it is never leased and its process is not ours.
 *
 * Choice of a worker for a lease (stock's rule, both releases): language, job, root detached actor, runtime env, actor or
 * task, GPU or not must be equal or still open on the worker's side; newest idle one first. A worker that never ran
 * anything is open in all but language, job (when it has one) and runtime env when it was started with one.
 *
 * Loop thread only. Callbacks may come from inside rc_pool_pop and rc_pool_announced, and may call back into the pool. */
#ifndef RC_PROCS_POOL_H
#define RC_PROCS_POOL_H

#include "raylet-c/base/id.h"
#include "raylet-c/base/list.h"
#include "raylet-c/procs/prefork.h"
#include "raylet-c/procs/process.h"
#include "raylet-c/procs/runtime_env.h"
#include "raylet-c/wire/dialect.h"
#include "raylet-c/wire/local.h"

typedef struct rc_pool rc_pool;

/* WorkerType of both releases; RegisterClientRequest has the same numbers. */
enum { RC_WORKER = 0, RC_DRIVER = 1, RC_SPILL_WORKER = 2, RC_RESTORE_WORKER = 3 };
static inline bool rc_is_io_worker(int type) { return type == RC_SPILL_WORKER || type == RC_RESTORE_WORKER; }
enum { RC_LANG_PYTHON = 0, RC_LANG_JAVA = 1, RC_LANG_CPP = 2, RC_LANGS = 3 };

typedef enum rc_worker_state {
	RC_WS_STARTING,
	RC_WS_REGISTERED,
	RC_WS_IDLE,
	RC_WS_LEASED,
	RC_WS_EXITING, /* asked to leave or being killed: never given out again */
	RC_WS_DEAD     /* only seen inside ops.died */
} rc_worker_state;

/* Read-only for others, but for `user` and `conn`. Valid from its start until ops.died returns; a driver until
 * rc_pool_disconnected returns. */
typedef struct rc_worker {
	rc_id id;                 /* absent until registered (2.35.0: the worker makes it) */
	rc_id job_id;             /* nil: not bound to a job */
	rc_id root_detached_actor_id; /* of the lease it has or had first; absent: none */
	int type, language;
	rc_worker_state state;
	pid_t pid;                /* 0 until started; with a runtime env it may change to the registering process's */
	int assigned_port;        /* what the registration reply told it; 0: any */
	int port;                 /* what it announced; 0: not yet */
	char ip[46];
	int64_t startup_token;    /* 2.35.0 */
	int runtime_env_hash;
	uint64_t started_ms, registered_ms; /* rc_now_ms */
	bool forked;              /* by the prefork server */
	bool used;                /* was given out at least once */
	bool actor_lease, gpu_lease; /* of the first lease; meaningful when used */
	void *user;               /* the node's (its lease) */
	void *conn;               /* the node's connection, NULL after rc_pool_disconnected */
	struct rc_worker_private *p;
} rc_worker;

typedef enum rc_pop_status {
	RC_POP_OK,
	RC_POP_CANCELLED,      /* rc_pool_pop_cancel, or the pool ends */
	RC_POP_JOB_FINISHED,
	RC_POP_RUNTIME_ENV_FAILED, /* text: for RuntimeEnvFailedContext.error_message */
	RC_POP_START_FAILED    /* text says how often and whether the process hung or died; 2.60.0: WORKER_STARTUP_FAILED */
} rc_pop_status;

/* w is NULL unless status is RC_POP_OK; then it is LEASED until rc_pool_push or its end. text is never NULL. */
typedef void (*rc_pop_fn)(void *arg, rc_worker *w, rc_pop_status status, const char *text);

typedef struct rc_pop {
	rc_id job_id;
	rc_id root_detached_actor_id; /* absent or nil: none */
	int language;
	bool is_actor, is_gpu;
	bool is_train; /* its class is of ray.train or ray.tune: a worker that has torch imported is worth having */
	const Rw__RuntimeEnvInfo *runtime_env; /* NULL, "" or "{}": none */
	char *const *dynamic_options;          /* of an actor creation; a worker started with some is not shared */
	size_t n_dynamic_options;
} rc_pop;

typedef struct rc_pool_ops {
	/* Send CoreWorkerService/Exit{force_exit}, then call rc_pool_exit_answered, exactly once, when w still lives. */
	void (*exit_worker)(void *ctx, rc_worker *w, bool force);
	/* The process of a worker (not of a driver) has ended, and all its descendants. text: "exit status 1", "signal 9
	 * (Killed)", with the cause first when the pool ended it. Also for one that never registered (id absent). w->user and
	 * w->conn are as the node left them. Last call for w. */
	void (*died)(void *ctx, rc_worker *w, const char *text);
	/* How many idle workers are worth keeping: the node's free CPUs, rounded down. */
	int (*free_cpus)(void *ctx);
	/* For the drivers' eyes: ReportJobError with this type. May be NULL. */
	void (*warn_job)(void *ctx, const rc_id *job, const char *type, const char *text);
} rc_pool_ops;

typedef struct rc_pool_options {
	const rc_dialect *dialect;
	rc_procs *procs;
	rc_prefork *prefork;           /* NULL: always exec */
	rc_runtime_envs *runtime_envs; /* NULL: a lease that needs one fails */
	/* --python_worker_command, --java_..., --cpp_... ("" or NULL: language not available), --native_library_path */
	const char *commands[RC_LANGS];
	const char *native_library_path;
	rc_id node_id;
	int node_manager_port;
	int min_port, max_port;        /* --min_worker_port, --max_worker_port; 0: any */
	const char *port_list;         /* --worker_port_list, "" or NULL: none; wins over the range */
	int startup_concurrency;       /* --maximum_startup_concurrency; RAY_worker_maximum_startup_concurrency wins when > 0 */
	int prestart;                  /* --num_prestart_python_workers: when the first job comes */
	bool enable_prestart;          /* enable_worker_prestart (true) */
	int soft_limit;                /* num_workers_soft_limit (-1: ops.free_cpus) */
	unsigned register_timeout_ms;  /* worker_register_timeout_seconds (60) * 1000 */
	unsigned idle_threshold_ms;    /* idle_worker_killing_time_threshold_ms (1000) */
	unsigned reap_interval_ms;     /* kill_idle_workers_interval_ms (200); 0: never */
	unsigned kill_grace_ms;        /* kill_worker_timeout_milliseconds (100) */
	int oom_score_adj;             /* worker_oom_score_adjustment (1000) */
	int max_io_workers;            /* max_io_workers (4), of each type */
	const char *spilling_config;   /* object_spilling_config, JSON; for IO workers */
	bool debugger_external;        /* --ray-debugger-external */
	const char *train_env;         /* RC_TRAIN_ENV (command.h) of Python workers; NULL: none */
	const char *preload_modules;   /* preload_python_modules, comma separated; "" or NULL: none */
} rc_pool_options;

rc_pool *rc_pool_create(rc_loop *loop, const rc_pool_options *options, const rc_pool_ops *ops, void *ctx, rc_error *error);
/* Pending pops get RC_POP_CANCELLED. Processes are left to rc_procs_destroy; no callbacks for workers come any more. */
void rc_pool_destroy(rc_pool *pool);

/* ---- jobs ---- */
/* config NULL: none known. May come more than once for a job. The first job starts the prestarted workers; leases of a job
 * that has not come yet wait for it. Installs the job's runtime env when it asks for eager_install. Where as many workers are
 * prestarted as make up for its memory, the trainer server is started too. */
void rc_pool_job_started(rc_pool *pool, const rc_id *job, const Rw__JobConfig *config);
/* Its idle workers are told to leave and its waiting pops fail; leased ones are the node's to end (a worker under a detached
 * actor stays, see rc_worker.root_detached_actor_id). */
void rc_pool_job_finished(rc_pool *pool, const rc_id *job);
bool rc_pool_job_is_finished(const rc_pool *pool, const rc_id *job);

/* ---- leases ---- */
/* fn is called exactly once. Returns a number for rc_pool_pop_cancel (0 when fn was called already). */
uint64_t rc_pool_pop(rc_pool *pool, const rc_pop *pop, rc_pop_fn fn, void *arg);
void rc_pool_pop_cancel(rc_pool *pool, uint64_t pop); /* fn gets RC_POP_CANCELLED from inside; unknown numbers are ignored */
/* The lease was returned and the worker may serve another one. Also returns IO workers. Ignored when it is EXITING. */
void rc_pool_push(rc_pool *pool, rc_worker *w);
/* Starts workers ahead: PrestartWorkers of 2.60.0 (kept for keep_alive_ms even when idle), or a backlog. */
void rc_pool_prestart(rc_pool *pool, const rc_id *job, int language, const Rw__RuntimeEnvInfo *env, unsigned n, uint64_t keep_alive_ms);
/* A lease request that tells how many like it wait at the owner (backlog_size): prestarts, within the free CPUs. */
void rc_pool_backlog(rc_pool *pool, const rc_pop *pop, int64_t backlog);
/* An IO worker (RC_SPILL_WORKER, RC_RESTORE_WORKER), started on demand, at most max_io_workers of a type. */
uint64_t rc_pool_pop_io(rc_pool *pool, int type, rc_pop_fn fn, void *arg);

/* ---- events of the raylet socket ---- */
/* The answer to a registration: w and a port (0: any), or w NULL and why not. The pool waits for a free port of the range,
 * so it may come later; never when rc_pool_disconnected is called before. */
typedef void (*rc_registered_fn)(void *arg, rc_worker *w, int port, const char *failure);
/* RegisterClient. Workers are matched by startup token (2.35.0) or worker id (2.60.0), else by peer_pid, else refused.
 * conn becomes w->conn. For a driver a rc_worker is made. */
void rc_pool_register(rc_pool *pool, const rc_register_client *m, pid_t peer_pid, void *conn, rc_registered_fn fn, void *arg);
/* AnnounceWorkerPort. The worker becomes usable (a waiting pop may get it now). */
void rc_pool_announced(rc_pool *pool, rc_worker *w, int port);
/* The connection closed, or the worker said good-bye (grace_ms: how long it may take to end by itself; 0: kill_grace_ms).
 * A driver is gone after this; a worker's process is ended if it does not end, and ops.died follows. */
void rc_pool_disconnected(rc_pool *pool, rc_worker *w, unsigned grace_ms);
/* The connection closed before the registration was answered. */
void rc_pool_register_cancel(rc_pool *pool, void *conn);

/* ---- ending workers ---- */
/* Answer to ops.exit_worker. answered false: the call failed. success: the worker agrees and exits; else it goes back idle. */
void rc_pool_exit_answered(rc_pool *pool, rc_worker *w, bool answered, bool success);
/* Ends it: force: SIGKILL with all descendants at once, else SIGTERM first. cause goes into the text of ops.died. */
void rc_pool_kill(rc_pool *pool, rc_worker *w, bool force, const char *cause);

/* ---- looking; pool NULL (the node ends): there is none ---- */
rc_worker *rc_pool_find(const rc_pool *pool, const rc_id *worker_id); /* registered ones, drivers too */
/* for (rc_worker *w = NULL; (w = rc_pool_next(pool, w)); ) : all, drivers and STARTING ones too. fn must not end w. */
rc_worker *rc_pool_next(const rc_pool *pool, const rc_worker *w);

typedef struct rc_pool_stats {
	unsigned starting, registered, idle, leased, exiting, drivers, waiting_pops, waiting_ports;
	uint64_t started, forked, register_timeouts, start_failures;
} rc_pool_stats;
void rc_pool_get_stats(const rc_pool *pool, rc_pool_stats *ret);

#endif
