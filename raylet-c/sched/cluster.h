/* The other nodes as the head's sync stream shows them, for spillback. Between two messages of a node the amounts that we
 * sent there are taken off its view, so that a burst does not all go to one place. Loop thread only. */
#ifndef RC_SCHED_CLUSTER_H
#define RC_SCHED_CLUSTER_H

#include "raylet-c/sched/amounts.h"
#include "raylet-c/sched/labels.h"

enum { RC_MAX_NODES = 20000 };

typedef struct rc_node { /* read only outside cluster.c */
	rc_id id;
	bool alive;    /* the head says so */
	bool has_view; /* a resource view came */
	bool draining, pulls_queued;
	int64_t draining_deadline_ms; /* wall clock; 0: none */
	rc_amounts total, available;
	rc_labels labels;
} rc_node;

typedef struct rc_cluster rc_cluster;

rc_cluster *rc_cluster_create(const rc_id *self); /* views of self are ignored */
void rc_cluster_destroy(rc_cluster *c);

/* From the node table and its channel: ALIVE and DEAD. labels may be NULL (2.35.0 has them here, 2.60.0 in the view too). */
void rc_cluster_alive(rc_cluster *c, const rc_id *node, const rc_labels *labels);
void rc_cluster_dead(rc_cluster *c, const rc_id *node);
/* A view from the stream, which may come before ALIVE. A bad one is refused and the node keeps its last view. */
int rc_cluster_view(rc_cluster *c, const rc_id *node, const Rw__SyncerResourceViewSyncMessage *view, rc_error *e) RC_WARN_UNUSED;
/* Rises with every change that may make another placement possible. */
uint64_t rc_cluster_version(const rc_cluster *c);

rc_node *rc_cluster_find(const rc_cluster *c, const rc_id *node); /* NULL: unknown */
/* for (size_t i = 0; (node = rc_cluster_next(c, &i)) != NULL;) alive nodes with a view, in no order */
rc_node *rc_cluster_next(const rc_cluster *c, size_t *i);
void rc_cluster_take(rc_cluster *c, rc_node *node, const rc_amounts *demand); /* sent there */

bool rc_node_feasible(const rc_node *n, const rc_amounts *demand);
bool rc_node_fits(const rc_node *n, const rc_amounts *demand);
double rc_node_utilization(const rc_node *n);

void rc_cluster_print(const rc_cluster *c, rc_buf *out);

#endif
