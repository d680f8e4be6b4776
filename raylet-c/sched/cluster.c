/* A map of nodes. A node is offered to the policy once it is both ALIVE in the node table and has sent a view; the two come
 * on different channels in either order, so either makes the entry. DEAD removes it; a view that comes late makes it again
 * without ALIVE, which is harmless, and such entries are dropped when there are too many. */
#include "raylet-c/sched/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/map.h"

struct rc_cluster {
	rc_id self;
	rc_map *nodes;
	uint64_t version;
};

rc_cluster *rc_cluster_create(const rc_id *self)
{
	rc_cluster *c = rc_alloc(sizeof(*c));
	c->self = *self;
	c->nodes = rc_map_create();
	c->version = 1;
	return c;
}

static void free_node(rc_node *n)
{
	rc_amounts_free(&n->total);
	rc_amounts_free(&n->available);
	rc_labels_free(&n->labels);
	free(n);
}

void rc_cluster_destroy(rc_cluster *c)
{
	if (!c)
		return;
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(c->nodes, &i, &key, &value);)
		free_node(value);
	rc_map_destroy(c->nodes);
	free(c);
}

rc_node *rc_cluster_find(const rc_cluster *c, const rc_id *node)
{
	return rc_map_get_id(c->nodes, node);
}

static void drop_strangers(rc_cluster *c)
{
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(c->nodes, &i, &key, &value);) {
		rc_node *n = value;
		if (!n->alive) {
			rc_map_del(c->nodes, key);
			free_node(n);
		}
	}
}

static rc_node *obtain(rc_cluster *c, const rc_id *node)
{
	rc_node *n = rc_cluster_find(c, node);
	if (n)
		return n;
	if (rc_map_count(c->nodes) >= RC_MAX_NODES)
		drop_strangers(c);
	if (rc_map_count(c->nodes) >= RC_MAX_NODES)
		return NULL;
	n = rc_alloc(sizeof(*n));
	n->id = *node;
	rc_map_put_id(c->nodes, node, n);
	return n;
}

void rc_cluster_alive(rc_cluster *c, const rc_id *node, const rc_labels *labels)
{
	if (node->n != RC_NODE_ID || rc_id_eq(node, &c->self))
		return;
	rc_node *n = obtain(c, node);
	if (!n)
		return;
	n->alive = true;
	for (size_t i = 0; labels && i < labels->n; i++)
		rc_labels_set(&n->labels, labels->v[i].key, labels->v[i].value);
	c->version++;
}

void rc_cluster_dead(rc_cluster *c, const rc_id *node)
{
	rc_node *n = rc_map_del_id(c->nodes, node);
	if (!n)
		return;
	free_node(n);
	c->version++;
}

int rc_cluster_view(rc_cluster *c, const rc_id *node, const Rw__SyncerResourceViewSyncMessage *view, rc_error *e)
{
	if (node->n != RC_NODE_ID)
		return rc_fail(e, RC_E_INVALID, "resource view: the node id has %d bytes, not %d", node->n, RC_NODE_ID);
	if (rc_id_eq(node, &c->self))
		return 0;
	rc_amounts total = { 0 }, available = { 0 };
	rc_labels labels = { 0 };
	int bad = rc_amounts_from_map((const Rw__MapStringDouble *const *)view->resources_total, view->n_resources_total,
	                              "resource view: resources_total", &total, e);
	bad = bad || rc_amounts_from_map((const Rw__MapStringDouble *const *)view->resources_available, view->n_resources_available,
	                                 "resource view: resources_available", &available, e);
	bad = bad || rc_labels_from_map((const Rw__MapStringString *const *)view->labels, view->n_labels, &labels, e);
	rc_node *n = bad ? NULL : obtain(c, node);
	if (!bad && !n)
		bad = rc_fail(e, RC_E_FULL, "resource view of %s: more than %d nodes", rc_id_to_hex(node).s, RC_MAX_NODES);
	if (bad) {
		rc_amounts_free(&total);
		rc_amounts_free(&available);
		rc_labels_free(&labels);
		return -1;
	}
	rc_amounts_free(&n->total);
	rc_amounts_free(&n->available);
	n->total = total;
	n->available = available;
	if (labels.n) { /* 2.35.0's views have none: keep those of the node table */
		rc_labels_free(&n->labels);
		n->labels = labels;
	}
	n->draining = RC_GET(view, is_draining);
	n->draining_deadline_ms = RC_GET(view, draining_deadline_timestamp_ms);
	n->pulls_queued = RC_GET(view, object_pulls_queued);
	n->has_view = true;
	c->version++;
	return 0;
}

uint64_t rc_cluster_version(const rc_cluster *c)
{
	return c->version;
}

rc_node *rc_cluster_next(const rc_cluster *c, size_t *i)
{
	rc_view key;
	void *value;
	while (rc_map_next(c->nodes, i, &key, &value)) {
		rc_node *n = value;
		if (n->alive && n->has_view)
			return n;
	}
	return NULL;
}

void rc_cluster_take(rc_cluster *c, rc_node *node, const rc_amounts *demand)
{
	(void)c;
	for (size_t i = 0; i < demand->n; i++) {
		const rc_amount *a = &demand->v[i];
		if (rc_amounts_has(&node->available, a->name) && rc_amounts_get(&node->available, a->name) > -RC_Q_MAX)
			rc_amounts_add(&node->available, a->name, -a->q);
	}
}

static bool covers(const rc_amounts *have, const rc_amounts *demand)
{
	static const char implicit_prefix[] = "node:__internal_implicit_resource_"; /* 1 where not listed */
	for (size_t i = 0; i < demand->n; i++) {
		const char *name = demand->v[i].name;
		rc_q q = rc_amounts_get(have, name);
		if (q == 0 && strncmp(name, implicit_prefix, sizeof(implicit_prefix) - 1) == 0 && !rc_amounts_has(have, name))
			q = RC_Q_ONE;
		if (demand->v[i].q > 0 && q < demand->v[i].q)
			return false;
	}
	return true;
}

bool rc_node_feasible(const rc_node *n, const rc_amounts *demand)
{
	return covers(&n->total, demand);
}

bool rc_node_fits(const rc_node *n, const rc_amounts *demand)
{
	return !n->draining && covers(&n->available, demand) && covers(&n->total, demand);
}

double rc_node_utilization(const rc_node *n)
{
	static const char *const names[] = { "CPU", "memory", "object_store_memory" };
	double most = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		rc_q total = rc_amounts_get(&n->total, names[i]);
		double used = total > 0 ? 1 - (double)rc_amounts_get(&n->available, names[i]) / (double)total : 0;
		most = used > most ? used : most;
	}
	return most;
}

void rc_cluster_print(const rc_cluster *c, rc_buf *out)
{
	size_t i = 0;
	rc_buf_printf(out, "other nodes: %zu\n", rc_map_count(c->nodes));
	for (rc_node *n; (n = rc_cluster_next(c, &i)) != NULL;) {
		rc_buf_printf(out, "  %s:%s available ", rc_id_to_hex(&n->id).s, n->draining ? " draining," : "");
		rc_amounts_print(&n->available, out);
		rc_buf_str(out, " of ");
		rc_amounts_print(&n->total, out);
		rc_buf_str(out, "\n");
	}
}
