/* A request for a worker, as RequestWorkerLease carries it: TaskSpec in 2.35.0, LeaseSpec in 2.60.0, one struct here.
 * Pure data: any thread. */
#ifndef RC_SCHED_LEASE_H
#define RC_SCHED_LEASE_H

#include "raylet-c/base/list.h"
#include "raylet-c/sched/bundles.h"
#include "raylet-c/sched/labels.h"

enum { RC_MAX_DEPENDENCIES = 100000, RC_MAX_RUNTIME_ENV = 8 << 20, RC_MAX_FALLBACKS = 16 };

typedef struct rc_address {
	rc_id node_id, worker_id;
	char *ip; /* "" when absent */
	int port;
} rc_address;

typedef struct rc_dependency {
	rc_id object_id;
	rc_address owner;
} rc_dependency;

typedef enum rc_strategy_kind {
	RC_STRATEGY_DEFAULT,
	RC_STRATEGY_SPREAD,
	RC_STRATEGY_AFFINITY,
	RC_STRATEGY_GROUP,
	RC_STRATEGY_LABEL
} rc_strategy_kind;

typedef struct rc_strategy {
	rc_strategy_kind kind;
	rc_id node_id;              /* affinity */
	bool soft;                  /* affinity */
	bool spill_on_unavailable;  /* affinity: elsewhere when that node is busy */
	bool fail_on_unavailable;   /* affinity: fail when that node is busy */
	rc_bundle_id bundle;        /* group; index -1: any bundle of it */
	rc_selector hard, prefer;   /* label */
} rc_strategy;

typedef struct rc_lease_spec {
	rc_id lease_id; /* 2.35.0: the task id. May be absent in a backlog report; rc_leases_request refuses that */
	rc_id job_id, actor_id, root_detached_actor_id;
	rc_address owner;
	bool is_actor, is_detached; /* is_actor: actor creation */
	rc_amounts required;        /* held while the worker has the lease */
	rc_amounts placement;       /* what the chosen node must have: for actor creation it may ask for more; else = required */
	rc_strategy strategy;
	rc_selector selector;       /* 2.60.0 */
	rc_selector *fallbacks;     /* 2.60.0: tried in order when no node fits the selector */
	size_t n_fallbacks;
	rc_dependency *dependencies;
	size_t n_dependencies;
	char *runtime_env;     /* serialized JSON; "" or "{}": none, both kept as "" */
	uint64_t runtime_env_hash; /* of runtime_env; 0 for none */
	int runtime_env_timeout_s; /* setup_timeout_seconds; 0: not given */
	bool runtime_env_eager; /* eager_install */
	char *task_name;
	char *actor_name; /* 2.35.0; "" otherwise */
	char **worker_options; /* dynamic_worker_options */
	size_t n_worker_options;
	int64_t max_retries, max_actor_restarts, depth;
	uint64_t attempt;
	int language;
	char *class_key; /* equal for leases that queue in one line: demand, placement, strategy, selectors, function, depth, runtime env */
	size_t class_key_n;
} rc_lease_spec;

/* The message's parts are copied. Refused, with the field named: over-long ids, bad amounts, too many dependencies, bad
 * selectors, a runtime environment above its limit. ret: replaced by a new value on success (it must be empty before). */
int rc_lease_spec_from(const rc_dialect *d, const Rw__LeaseSpec *m, rc_lease_spec *ret, rc_error *e) RC_WARN_UNUSED;
void rc_lease_spec_free(rc_lease_spec *s);

#endif
