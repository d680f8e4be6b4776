/* The parts of the daemon put together. One rc_daemon a process; everything is for the loop thread.
 *
 * Reading order: main.c (start, states, end), services.c (the table of served RPCs), lease_service.c (leases), workers.c
 * (what happens to workers), worker_socket.c (the table of local messages), stats.c (figures for others), drain.c. */
#ifndef RC_NODE_NODE_H
#define RC_NODE_NODE_H

#include "raylet-c/agent/agent.h"
#include "raylet-c/base/conn.h"
#include "raylet-c/base/list.h"
#include "raylet-c/base/map.h"
#include "raylet-c/gcs/gcs.h"
#include "raylet-c/node/options.h"
#include "raylet-c/node/train.h"
#include "raylet-c/node/trim.h"
#include "raylet-c/objects/objects.h"
#include "raylet-c/procs/agents.h"
#include "raylet-c/procs/pool.h"
#include "raylet-c/rpc/rpc.h"
#include "raylet-c/sched/bundles.h"
#include "raylet-c/sched/cluster.h"
#include "raylet-c/sched/drain.h"
#include "raylet-c/sched/leases.h"
#include "raylet-c/sched/resources.h"
#include "raylet-c/store/store.h"

/* States, in this order; a failure goes straight to ENDING. Names are the same in the log. */
typedef enum rc_daemon_state {
	RC_CONNECTING,  /* the head is asked who it is */
	RC_REGISTERING, /* sockets and ports are open, RegisterNode is on its way */
	RC_ALIVE,
	RC_DRAINING,    /* no new leases; leaves when idle */
	RC_ENDING,      /* leaving: unregister, end workers and helpers, stop the loop */
} rc_daemon_state;

typedef struct rc_daemon {
	rc_options options;
	rc_daemon_state state;
	int exit_status;
	uint64_t started_ms;      /* rc_now_ms at main() */
	uint64_t started_wall_ms;
	char *token;              /* RAY_AUTH_TOKEN and its kind; NULL: off */
	bool tls;                 /* RAY_USE_TLS */

	rc_loop *loop;
	rc_rpc *rpc;
	rc_gcs *gcs;
	const rc_dialect *dialect; /* known once connected */
	bool v235;                 /* the release has the TaskSpec lease protocol (2.35.0) */
	rc_id node_id;
	int port;                  /* of the one server: node manager and object manager */
	rc_agent_ports ports;
	bool native_agent;         /* RAYLET_C_AGENT */

	rc_store *store;
	rc_objects *objects;
	rc_resources *resources;
	rc_bundles *bundles;
	rc_cluster *cluster;
	rc_leases *leases;
	rc_procs *procs;
	rc_prefork *prefork;
	rc_runtime_envs *runtime_envs;
	rc_pool *pool;
	rc_agents *agents; /* Ray's own: helper processes */
	rc_agent *agent;   /* the native one; NULL: Ray's own runs */
	rc_listener *listener;
	rc_labels labels;
	rc_train train;

	rc_map *failures;      /* lease id (2.35.0: task id) -> failure (workers.c): why a leased worker ended, for its owner */
	rc_link failure_list;  /* oldest first */
	size_t n_failures;

	rc_drain drain;

	char **io_deletes; /* URLs of external storage that nobody needs any more; at most one deletion is under way */
	size_t n_io_deletes, io_deletes_room;
	bool io_deleting;

	rc_timer *tick_timer, *debug_timer, *metrics_timer, *memory_timer; /* 100 ms: waiting leases, drain; 10 s: debug_state.txt; metrics */
	bool view_posted, debug_writing;
	size_t jobs_ending;   /* calls to the head that are not answered yet */
	rc_timer *restart_timer; /* NotifyGCSRestart came again, too soon */
	rc_timer *jobs_timer; /* ending: unregister when they are answered, or now */
	rc_enum end_reason;
	char end_text[1024];
	rc_trim trim;
	uint64_t last_gc_ms, last_memory_kill_ms, last_restart_ms;
} rc_daemon;

static inline bool rc_daemon_ending(const rc_daemon *n)
{
	return n->state == RC_ENDING;
}

/* main.c */
/* Ends the daemon: unregister with reason and text, end workers and helpers, leave with this exit status. The first call counts. */
void rc_daemon_end(rc_daemon *n, int exit_status, rc_enum reason, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Tells the head that a driver's job has ended. The head itself ends the jobs of a node that unregisters, and the head of 2.35.0
 * crashes when it ends one twice: so the node unregisters after these calls are answered, and makes none afterwards. */
void rc_daemon_end_job(rc_daemon *n, const rc_id *job);
void rc_daemon_view_changed(void *n); /* push a new resource view soon */

/* services.c: all served RPCs */
void rc_services_serve(void *n, rc_request *r, const char *path, size_t path_n, rc_view bytes);
/* Packs and answers; frees nothing of m. */
void rc_reply_message(rc_daemon *n, rc_request *r, const void *m);
/* Unpacks or answers with INVALID_ARGUMENT and returns NULL. */
void *rc_take_message(rc_daemon *n, rc_request *r, const ProtobufCMessageDescriptor *type, rc_view bytes);
/* The table of a handler: method -> function. */
typedef void (*rc_service_fn)(rc_daemon *n, rc_request *r, rc_view bytes);
typedef struct rc_service {
	rc_method method;
	rc_service_fn serve;
} rc_service;

/* lease_service.c */
extern const rc_service rc_lease_services[];
extern const rc_lease_ops rc_daemon_lease_ops;
/* The lease of a worker ends: its resources go back. again: the worker may serve another lease. */
void rc_worker_lease_finished(rc_daemon *n, rc_worker *w, bool again);

/* workers.c */
extern const rc_pool_ops rc_daemon_pool_ops;
extern const rc_service rc_worker_services[];
/* How a worker's end is told to the head and to owners. */
typedef struct rc_client rc_client;
/* Ends a worker for a reason of ours: exit type INTENDED_SYSTEM_EXIT unless type says otherwise. */
void rc_worker_end(rc_daemon *n, rc_worker *w, bool force, rc_enum exit_type, const char *format, ...) __attribute__((format(printf, 5, 6)));
void rc_failure_record(rc_daemon *n, const rc_id *lease, int error_type, bool fail_at_once, const char *text);
void rc_failures_free(rc_daemon *n);
/* A call on a worker that has a port. message NULL: empty; fn may be NULL. */
void rc_worker_call(rc_daemon *n, const rc_worker *w, rc_method method, const void *message, uint64_t timeout_ms, rc_reply_fn fn, void *arg);
void rc_gc_everywhere(rc_daemon *n, bool also_other_nodes);

/* worker_socket.c */
struct rc_client { /* one connection of the raylet socket: worker or driver */
	rc_daemon *node;
	rc_conn *conn;
	rc_worker *worker; /* NULL until the registration is answered */
	bool registering, said_goodbye;
	bool announced;      /* told its port */
	rc_buf job_config;   /* a driver's, serialized */
	rc_link waits;       /* of client_wait (worker_socket.c) */
	size_t n_waits;
	rc_link gets;        /* 2.60.0: of client_get */
	size_t n_gets;
	int64_t next_get;
};
int rc_worker_socket_open(rc_daemon *n, rc_error *error);

/* workers.c, about a worker's connection */
typedef struct rc_worker_end_info {
	bool known;         /* said by the worker or decided by us: what the head is told */
	rc_enum type;
	char *detail;
	rc_buf exception;   /* of a failed constructor */
	bool reported;
} rc_worker_end_info;
typedef struct rc_worker_note { /* rc_worker.user */
	rc_lease *lease;    /* what it works for; NULL: none */
	rc_worker_end_info end;
} rc_worker_note;
rc_worker_note *rc_worker_note_of(rc_worker *w); /* made on first use */
void rc_worker_notes_free(rc_daemon *n); /* at the end, of the workers that are left */
void rc_worker_registered(rc_client *c, rc_worker *w);
/* Good-bye message: type and texts as sent. */
void rc_worker_goodbye(rc_client *c, int type, rc_view detail, rc_view exception);
void rc_worker_connection_closed(rc_client *c, const char *reason);
/* The worker has its port: jobs of drivers are added here. */
void rc_driver_announced(rc_client *c, rc_view entrypoint);

/* io_workers.c: spilling to external storage; the store's callbacks (rc_store_ops), ctx is the rc_daemon */
void rc_io_spill(void *ctx, uint64_t number, const rc_id *ids, const rc_owner *owners, size_t count);
void rc_io_restore(void *ctx, uint64_t number, const rc_id *id, const char *url);
void rc_io_delete(void *ctx, const char *const *urls, size_t count);
void rc_io_free(rc_daemon *n);

/* stats.c */
extern const rc_service rc_stats_services[];
void rc_stats_write_debug(void *n);
const char *rc_daemon_state_name(rc_daemon_state s);
/* Fills m for the call of fn: resources, load and state of this node now. */
void rc_stats_with_resources(rc_daemon *n, void (*fn)(void *arg, Rw__ResourcesData *m), void *arg);
void rc_stats_push_view(rc_daemon *n);

/* look.c: `raylet-c top` asks. False: another path. */
bool rc_look_serve(rc_daemon *n, rc_request *r, const char *path, size_t path_n);

/* memory.c */
void rc_memory_check(void *n);

/* metrics.c */
void rc_metrics_report(void *n); /* to Ray's own agent */
/* agent.c: the native agent's questions about the node, and its ports */
int rc_daemon_agent_create(rc_daemon *n, rc_error *error);
/* metrics.c: the daemon's figures into a report; n is the rc_daemon */
void rc_metrics_add(void *n, rc_metrics *m);

/* drain.c */
extern const rc_service rc_drain_services[];
void rc_drain_check(rc_daemon *n); /* leave when draining and idle */

#endif
