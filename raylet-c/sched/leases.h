/* The lease manager: from a request for a worker to its end. A lease goes through
 *   PLACEMENT  no node chosen: nothing fits anywhere now, or nothing can (infeasible); tried again when a view changes
 *   ARGS       this node was chosen; its arguments are being fetched
 *   RESOURCES  arguments are here; waits in its class's line for resources
 *   WORKER     resources are held; a worker is being found or started
 *   GRANTED    answered; ends with rc_leases_finished
 * and leaves with exactly one answer for each handle that asked: granted, rejected, canceled, or spilled to another node.
 *
 * Lines: leases of one class (same demand, strategy, function, depth, runtime environment) wait in one FIFO; a class whose
 * head does not fit holds up nobody else. The class with the fewest granted leases goes first. A class may hold at most
 * (CPUs / its CPU demand) leases; beyond that one more is let in after 1, 2, 4, 8, 10 s, so that tasks which wait for tasks
 * of their own kind go on, but do not start a process each at once (stock's worker cap).
 *
 * Rules from join-facts section 6: a request that is only busy is queued, also with grant_or_reject (an owner re-asks a
 * rejected one without pause). With grant_or_reject it is rejected when this node's totals can never meet it or the node is
 * draining; and when it has waited a while and another node could take it at once.
 *
 * Calls into ops happen inside the functions below. An op may call back in, but must not destroy the manager; a lease pointer
 * is valid from rc_leases_request until its reply other than "granted", or until rc_leases_finished. Loop thread only. */
#ifndef RC_SCHED_LEASES_H
#define RC_SCHED_LEASES_H

#include "raylet-c/sched/cluster.h"
#include "raylet-c/sched/lease.h"

enum {
	RC_MAX_LEASES = 500000,      /* on a node, in any state */
	RC_MAX_LEASE_HANDLES = 64,   /* requests that wait for one lease (a retried RPC asks again with the same id) */
	RC_MAX_BACKLOG_REPORTS = 100000 /* (worker, class) pairs */
};

typedef enum rc_lease_state { RC_LEASE_PLACEMENT, RC_LEASE_ARGS, RC_LEASE_RESOURCES, RC_LEASE_WORKER, RC_LEASE_GRANTED } rc_lease_state;

struct rc_lease_class;

typedef struct rc_lease { /* read only outside leases.c, but for user */
	rc_lease_spec spec;
	rc_lease_state state;
	bool grant_or_reject, by_locality, infeasible;
	bool blocked;              /* its worker waits and has lent its CPU */
	bool ending;               /* ops.kill was called */
	int64_t backlog;
	rc_allocation *allocation; /* WORKER, GRANTED */
	rc_bundle *bundle;         /* the allocation is out of it, or NULL */
	rc_id worker_id;           /* GRANTED */
	uint64_t asked_ms, granted_ms;
	int worker_failures;
	void *user; /* the node's */
	/* private */
	rc_link link_; /* in its class's lines, or in the list of those that fetch */
	struct rc_lease_class *class_;
	uint64_t not_before_, seq_;
	void **handles_;
	size_t n_handles_;
	bool fetching_;
} rc_lease;

typedef enum rc_outcome_kind { RC_OUTCOME_GRANTED, RC_OUTCOME_REJECTED, RC_OUTCOME_CANCELED, RC_OUTCOME_SPILLED } rc_outcome_kind;

typedef struct rc_outcome {
	rc_outcome_kind kind;
	rc_enum failure;  /* canceled: RC_V_FAILURE_...; the value on the wire is rc_enum_value(d, failure), -1 there: use FAILED */
	const char *text; /* canceled: for scheduling_failure_message; rejected: why, for the log */
	rc_id node_id;    /* spilled: for retry_at_raylet_address */
} rc_outcome;

typedef enum rc_pin { RC_PIN_OK, RC_PIN_MISSING, RC_PIN_NO_ROOM } rc_pin;

typedef struct rc_lease_ops { /* all called with rc_leases_config.ctx */
	/* Start fetching spec.dependencies. True: all are here already. Else rc_leases_args_ready later. Not called without any. */
	bool (*fetch_args)(void *ctx, rc_lease *lease);
	/* The lease left before it was granted, or ended: stop fetching, unpin. Once, however often fetch_args was called. */
	void (*release_args)(void *ctx, rc_lease *lease);
	/* About to be given to a worker: keep the arguments here. MISSING: one was evicted, fetch_args comes again.
	 * NO_ROOM: too many bytes of arguments are pinned (max_task_args_memory_fraction); tried again when a lease ends. May be NULL. */
	rc_pin (*pin_args)(void *ctx, rc_lease *lease);
	/* Find or start a worker: rc_leases_worker_ready or rc_leases_worker_failed, now or later. */
	void (*pop_worker)(void *ctx, rc_lease *lease);
	/* The lease was cancelled meanwhile; neither call must come any more. */
	void (*cancel_pop)(void *ctx, rc_lease *lease);
	/* The answer to one request. GRANTED: lease->worker_id and lease->allocation say what. */
	void (*reply)(void *ctx, rc_lease *lease, void *handle, const rc_outcome *outcome);
	/* End the worker of a granted lease (its bundle, owner or job is gone); rc_leases_finished comes when it is dead. */
	void (*kill)(void *ctx, rc_lease *lease, const char *reason);
} rc_lease_ops;

typedef struct rc_leases_config {
	const rc_dialect *dialect;
	rc_id self;
	const rc_labels *labels; /* of this node; borrowed */
	rc_resources *resources;
	rc_bundles *bundles;
	rc_cluster *cluster;
	const rc_lease_ops *ops;
	void *ctx;
	uint64_t (*now_ms)(void); /* NULL: rc_now_ms */
	/* From the internal config; rc_leases_config_defaults sets Ray's defaults. */
	double spread_threshold;          /* scheduler_spread_threshold 0.5 */
	double top_k_fraction;            /* scheduler_top_k_fraction 0.2 */
	bool avoid_gpu_nodes;             /* scheduler_avoid_gpu_nodes true */
	bool worker_cap;                  /* worker_cap_enabled true */
	uint64_t cap_first_ms, cap_max_ms; /* worker_cap_initial_backoff_delay_ms 1000, worker_cap_max_backoff_delay_ms 10000 */
	int worker_retries;               /* pop_worker_max_retries (2.60.0); -1: no limit */
	uint64_t worker_retry_ms;         /* pause after a failed worker start, 1000 */
	uint64_t reject_after_ms;         /* grant_or_reject, busy here and free elsewhere: rejected after this wait, 1000 */
	size_t max_shapes;                /* max_resource_shapes_per_load_report 100 */
} rc_leases_config;

typedef struct rc_leases rc_leases;

void rc_leases_config_defaults(rc_leases_config *c);
rc_leases *rc_leases_create(const rc_leases_config *config); /* config is copied */
/* Frees all leases without a reply; the caller has answered or closed its handles. */
void rc_leases_destroy(rc_leases *l);

/* A request. Takes *spec over (it is empty afterwards), also on failure. handle comes back with the reply, which may come
 * before this returns. A known id that is still waiting joins it; one that is granted is answered again in 2.60.0 (its
 * lease ids are never used twice) and is a new lease in 2.35.0 (a restarted actor asks with the same task id).
 * -1: no lease id (RC_E_INVALID) or a limit (RC_E_FULL); no reply comes. */
int rc_leases_request(rc_leases *l, rc_lease_spec *spec, bool grant_or_reject, bool by_locality, int64_t backlog, void *handle,
                      rc_error *e) RC_WARN_UNUSED;
void rc_leases_args_ready(rc_leases *l, rc_lease *lease);
void rc_leases_worker_ready(rc_leases *l, rc_lease *lease, const rc_id *worker_id);

typedef enum rc_worker_fail {
	RC_WORKER_FAIL_RUNTIME_ENV, /* the lease is canceled; text for the user */
	RC_WORKER_FAIL_START,       /* tried again after a pause, up to worker_retries */
	RC_WORKER_FAIL_NO_JOB,      /* the job's config is not known yet: tried again, not counted */
	RC_WORKER_FAIL_JOB_DEAD,    /* the lease is canceled */
} rc_worker_fail;
void rc_leases_worker_failed(rc_leases *l, rc_lease *lease, rc_worker_fail why, const char *text);

/* The worker was returned and may be given to another lease before rc_leases_finished, which has to follow. */
void rc_leases_worker_left(rc_leases *l, const rc_lease *lease);
/* The worker was returned or is dead: what it held is free again and the lease is gone. */
void rc_leases_finished(rc_leases *l, rc_lease *lease);
/* A worker waits in ray.get or ray.wait / goes on. Doing one twice does nothing. Actors keep their CPU, as in stock. */
void rc_leases_blocked(rc_leases *l, rc_lease *lease);
void rc_leases_unblocked(rc_leases *l, rc_lease *lease);

/* CancelWorkerLease: true when it was waiting (2.35.0's CancelWorkerLeaseReply.success). A granted one is left alone. */
bool rc_leases_cancel(rc_leases *l, const rc_id *lease_id, rc_enum failure, const char *text);
/* An owner (worker), all owners on a node, or a job has ended: waiting leases are canceled, granted ones killed. Detached
 * actors live on (for a job: also what a detached actor started). */
void rc_leases_owner_dead(rc_leases *l, const rc_id *worker_id);
void rc_leases_node_dead(rc_leases *l, const rc_id *node_id); /* after rc_cluster_dead */
void rc_leases_job_dead(rc_leases *l, const rc_id *job_id);
/* CancelLeasesWithResourceShapes (2.60.0): infeasible or waiting leases with one of these demands. Returns how many. */
size_t rc_leases_cancel_shapes(rc_leases *l, const rc_amounts *shapes, size_t n);
/* For rc_bundles_on_removed, ctx = the rc_leases. */
void rc_leases_bundle_removed(void *leases, rc_bundle *b);

/* Something changed that is not seen here: resources grew (a commit, a resize), another node's view, time. Call on those
 * and every 100 ms or so while rc_leases_waiting is not 0. */
void rc_leases_run(rc_leases *l);
/* Waiting leases leave for other nodes (rejected with grant_or_reject), none is taken in; running ones go on. */
void rc_leases_set_draining(rc_leases *l, bool draining);

rc_lease *rc_leases_find(rc_leases *l, const rc_id *lease_id);          /* any state; NULL: unknown */
rc_lease *rc_leases_next(const rc_leases *l, size_t *i);                /* all, in no order; nothing may be changed meanwhile */
size_t rc_leases_waiting(const rc_leases *l);
size_t rc_leases_granted(const rc_leases *l);

/* For RequestWorkerLeaseReply: m.resource_mapping = map.v, m.n_resource_mapping = map.n. Borrows names. */
typedef struct rc_lease_mapping {
	Rw__ResourceMapEntry **v;
	size_t n;
} rc_lease_mapping;
rc_lease_mapping rc_lease_mapping_make(const rc_allocation *a);
void rc_lease_mapping_free(rc_lease_mapping *m);

/* ---- load: what waits here, for GetResourceLoad ---- */

/* ReportWorkerBacklog: first clear, then one set per report; also clear when the worker ends. */
void rc_leases_backlog_clear(rc_leases *l, const rc_id *worker_id);
/* Takes *spec over (only its class counts). Above RC_MAX_BACKLOG_REPORTS it is dropped and logged once. */
void rc_leases_backlog_set(rc_leases *l, const rc_id *worker_id, rc_lease_spec *spec, int64_t size);

/* The sums and shapes, at most max_shapes of them; owns all it points to. */
typedef struct rc_load {
	Rw__ResourceLoad by_shape;
	rc_amount_map total; /* for ResourcesData.resource_load */
	rc_amounts total_; /* private */
} rc_load;
void rc_leases_load(const rc_leases *l, rc_load *ret);
void rc_load_free(rc_load *load);

void rc_leases_print(const rc_leases *l, rc_buf *out);

#endif
