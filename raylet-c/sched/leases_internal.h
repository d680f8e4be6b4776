/* What leases.c, leases_cancel.c and leases_load.c share. Not for others. */
#ifndef RC_SCHED_LEASES_INTERNAL_H
#define RC_SCHED_LEASES_INTERNAL_H

#include "raylet-c/base/map.h"
#include "raylet-c/sched/leases.h"
#include "raylet-c/sched/policy.h"

typedef struct rc_lease_class {
	char *key;
	size_t key_n, refs; /* leases, backlog reports, and passes that look at it */
	rc_amounts placement;
	rc_selector selector;
	rc_q cpu;         /* of the demand */
	rc_link unplaced; /* PLACEMENT: infeasible ones, in order */
	rc_link ready;    /* RESOURCES, in order */
	size_t n_unplaced, n_ready, n_fetching, held; /* held: WORKER and GRANTED */
	uint64_t cap_next_ms;   /* over its cap: when one more may start; 0: not decided */
	uint64_t spill_version; /* of the cluster view at which no other node took the head */
	int64_t backlog;
} rc_lease_class;

typedef struct rc_backlog { /* of one worker */
	rc_id node_id;
	struct {
		rc_lease_class *class;
		int64_t size;
	} *v;
	size_t n;
} rc_backlog;

struct rc_leases {
	rc_leases_config c;
	rc_policy policy;
	bool answer_again; /* a known, granted id gets its grant again */
	rc_map *by_seq, *by_id, *by_worker, *classes;
	rc_map *backlogs; /* worker id -> rc_backlog */
	size_t n_backlogs;
	bool backlog_full; /* said so */
	rc_link fetching;  /* ARGS */
	size_t n_fetching, n_waiting, n_held, n_granted;
	uint64_t next_seq;
	bool running, again;
	uint64_t tried_cluster, tried_totals; /* versions at which the unplaced ones were last tried */
	/* for the debug text */
	uint64_t count_granted, count_spilled, count_rejected, count_canceled;
};

rc_lease_class *rc__class_get(rc_leases *l, const rc_lease_spec *spec); /* one more ref */
void rc__class_put(rc_leases *l, rc_lease_class *class);

/* The lease leaves whatever state it waits in: lists, counts, fetch, worker, resources. It is then in no list. */
void rc__lease_detach(rc_leases *l, rc_lease *lease);
/* Answers all who asked and frees the lease, which was detached. outcome: anything but granted. */
void rc__lease_end(rc_leases *l, rc_lease *lease, const rc_outcome *outcome);
/* A detached lease is looked at anew: state PLACEMENT. */
void rc__lease_place(rc_leases *l, rc_lease *lease);
void rc__backlog_node_dead(rc_leases *l, const rc_id *node_id);

#endif
