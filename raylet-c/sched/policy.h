/* Which node a lease should run on, as src/ray/raylet/scheduling/policy/ of both releases decides it:
 *   default   hybrid: the nodes where it fits now, those used less than half counted as unused; this node when it is among
 *             the best, else one of the best few at random. Nodes with GPUs come last for demands without one.
 *   spread    round robin over the nodes where it fits, else over the feasible ones
 *   affinity  that node, or failure; soft: the default when that node is gone or too small
 *   label     by the hard expressions, those that match the preferred ones first
 *   group     the names of the group's resources exist only where its bundles are: the default rule finds them
 * Loop thread only. */
#ifndef RC_SCHED_POLICY_H
#define RC_SCHED_POLICY_H

#include "raylet-c/sched/leases.h"

typedef enum rc_place_kind {
	RC_PLACE_LOCAL,      /* here: now, or this node is the one to wait on */
	RC_PLACE_REMOTE,     /* node: it fits there now, or only there */
	RC_PLACE_INFEASIBLE, /* no node can ever take it; a view may change that */
	RC_PLACE_FAIL        /* hard affinity to a node that is gone or too small, or too busy with fail_on_unavailable */
} rc_place_kind;

typedef struct rc_place {
	rc_place_kind kind;
	rc_node *node; /* remote */
	bool fits;     /* now, as far as is known here */
} rc_place;

typedef struct rc_policy {
	const rc_leases_config *config;
	size_t spread_next; /* round robin */
	uint64_t random;    /* state of a small generator; any seed */
	bool draining;      /* this node counts as absent */
} rc_policy;

/* A node that is alive but has not sent a view is waited for, not given up. prefer_local: this node was chosen by someone
 * before (grant_or_reject, locality, a lease that already waits here): it wins whenever it fits, and when nobody fits. */
rc_place rc_policy_place(rc_policy *p, const rc_lease_spec *spec, bool prefer_local);

/* This node may take the lease some time: it does not drain, its totals meet the demand and its labels the selectors. */
bool rc_policy_may_stay(const rc_policy *p, const rc_lease_spec *spec);

#endif
