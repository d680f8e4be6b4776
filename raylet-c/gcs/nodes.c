/* The node table: filled by one listing, kept current by the node channel (2.35.0: whole entries; 2.60.0: address and
 * liveness only).
 *
 * Traps: a DEAD message carries id, state and death info only. Listing and messages overtake each other, so death is final:
 * an id never lives twice. A listing after a restart of the head may lack nodes that we hold for alive: those have died
 * meanwhile, unless news of them came after the listing was asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/gcs/internal.h"

typedef struct entry {
	rc_gcs_node node;
	rc_link dead_link;
	uint64_t news; /* number of the last piece of news */
} entry;

static void free_entry(entry *e)
{
	for (size_t i = 0; i < e->node.n_labels; i++) {
		free(e->node.labels[i].key);
		free(e->node.labels[i].value);
	}
	free(e->node.labels);
	free(e->node.ip);
	free(e->node.death_text);
	free(e);
}

static entry *add_entry(rc_gcs *g, const rc_id *id)
{
	entry *e = rc_alloc(sizeof *e);

	e->node.id = *id;
	e->node.ip = rc_strdup("");
	e->node.death_text = rc_strdup("");
	rc_list_init(&e->dead_link);
	rc_map_put_id(g->nodes, id, e);
	return e;
}

static void remember_dead(rc_gcs *g, entry *e)
{
	rc_list_append(&g->dead_nodes, &e->dead_link);
	if (++g->n_dead <= RC__GCS_MAX_DEAD)
		return;
	e = RC_CONTAINER(g->dead_nodes.next, entry, dead_link);
	rc_list_remove(&e->dead_link);
	rc_map_del_id(g->nodes, &e->node.id);
	g->n_dead--;
	free_entry(e);
}

static void came(rc_gcs *g, const rc_id *id, const char *ip, int port, int object_port, size_t n_labels, Rw__MapStringString **labels)
{
	entry *e = rc_map_get_id(g->nodes, id);

	if (e) { /* known, or dead for ever */
		e->news = ++g->news;
		return;
	}
	e = add_entry(g, id);
	e->news = ++g->news;
	free(e->node.ip);
	e->node.ip = rc_strdup(ip);
	e->node.node_manager_port = port;
	e->node.object_manager_port = object_port;
	snprintf(e->node.address, sizeof e->node.address, strchr(ip, ':') ? "[%s]:%d" : "%s:%d", ip, port);
	snprintf(e->node.object_address, sizeof e->node.object_address, strchr(ip, ':') ? "[%s]:%d" : "%s:%d", ip, object_port);
	e->node.alive = true;
	e->node.labels = n_labels ? rc_alloc(n_labels * sizeof *e->node.labels) : NULL;
	for (size_t i = 0; i < n_labels; i++)
		e->node.labels[i] = (rc_gcs_label){ rc_strdup(RC_GET_STR(labels[i], key)), rc_strdup(RC_GET_STR(labels[i], value)) };
	e->node.n_labels = n_labels;
	g->n_alive++;
	rc_debug("node %s at %s is alive", rc_id_to_hex(id).s, e->node.address);
	if (g->ops.node_added)
		g->ops.node_added(g->ctx, &e->node);
}

static void set_death(rc_gcs_node *node, const Rw__NodeDeathInfo *death, const char *text)
{
	if (death)
		node->death_reason = RC_GET(death, reason);
	if (death && death->reason_message && *death->reason_message)
		text = death->reason_message;
	if (text && *text) {
		free(node->death_text);
		node->death_text = rc_strdup(text);
	}
}

static void went(rc_gcs *g, const rc_id *id, const Rw__NodeDeathInfo *death, const char *text)
{
	entry *e = rc_map_get_id(g->nodes, id);
	char own[300];

	if (e && !e->node.alive) {
		if (!*e->node.death_text)
			set_death(&e->node, death, text);
		return;
	}
	if (!e)
		e = add_entry(g, id);
	e->news = ++g->news;
	set_death(&e->node, death, text);
	if (e->node.alive) {
		e->node.alive = false;
		g->n_alive--;
		rc_info("node %s at %s is dead: %s", rc_id_to_hex(id).s, e->node.address,
		        *e->node.death_text ? e->node.death_text : "no reason was given");
		if (g->ops.node_removed)
			g->ops.node_removed(g->ctx, &e->node);
		if (g->ended)
			return;
	}
	snprintf(own, sizeof own, "the head has marked this node dead: %s", *e->node.death_text ? e->node.death_text : "no reason was given");
	remember_dead(g, e);
	if (rc_id_eq(id, &g->node_id))
		rc__gcs_tell_buried(g, own);
}

static bool good_id(const rc_id *id)
{
	if (id->n == RC_NODE_ID)
		return true;
	rc_warn("a node with an id of %d bytes in the head's node table is left out", id->n);
	return false;
}

void rc__gcs_node_info(rc_gcs *g, const Rw__GcsNodeInfo *info)
{
	rc_id id = RC_GET_ID(info, node_id);

	if (!good_id(&id))
		return;
	if (RC_GET(info, state) == rc_enum_value(g->dialect, RC_V_NODE_DEAD))
		went(g, &id, info->death_info, NULL);
	else
		came(g, &id, RC_GET_STR(info, node_manager_address), RC_GET(info, node_manager_port), RC_GET(info, object_manager_port),
		     info->n_labels, info->labels);
}

void rc__gcs_node_liveness(rc_gcs *g, const Rw__GcsNodeAddressAndLiveness *info, rc_view key)
{
	rc_id id = info->has_node_id ? RC_GET_ID(info, node_id) : rc_id_from(key.p, key.n);

	if (!good_id(&id))
		return;
	if (RC_GET(info, state) == rc_enum_value(g->dialect, RC_V_NODE_DEAD))
		went(g, &id, info->death_info, NULL);
	else
		came(g, &id, RC_GET_STR(info, node_manager_address), RC_GET(info, node_manager_port), RC_GET(info, object_manager_port), 0, NULL);
}

/* ---- the listing ---- */

typedef struct listing {
	rc_gcs *g;
	uint64_t asked_at; /* g->news then */
} listing;

/* Nodes that we hold for alive and of which nothing was heard since the listing was asked for are gone. */
static void sweep(rc_gcs *g, uint64_t asked_at)
{
	bool again = true;

	while (again && !g->ended) { /* node_removed may change the table: start over after each */
		void *value;

		again = false;
		for (size_t i = 0; !again && rc_map_next(g->nodes, &i, NULL, &value);) {
			entry *e = value;

			if (!e->node.alive || e->news > asked_at)
				continue;
			rc_id id = e->node.id;

			went(g, &id, NULL, "the head does not know it any more");
			again = true;
		}
	}
}

static void end_listing(listing *l, const rc_error *error)
{
	rc_gcs *g = l->g;

	if (error && !g->ended)
		rc_error_log("the list of nodes could not be read: %s", error->text);
	else if (!g->ended)
		sweep(g, l->asked_at);
	free(l);
}

static void on_infos(void *arg, const rc_error *error, const void *reply)
{
	const Rw__GetAllNodeInfoReply *r = reply;
	listing *l = arg;

	for (size_t i = 0; r && i < r->n_node_info_list && !l->g->ended; i++)
		rc__gcs_node_info(l->g, r->node_info_list[i]);
	end_listing(l, error);
}

static void on_liveness(void *arg, const rc_error *error, const void *reply)
{
	const Rw__GetAllNodeAddressAndLivenessReply *r = reply;
	listing *l = arg;

	for (size_t i = 0; r && i < r->n_node_info_list && !l->g->ended; i++)
		rc__gcs_node_liveness(l->g, r->node_info_list[i], (rc_view){ 0 });
	end_listing(l, error);
}

void rc__gcs_fetch_nodes(rc_gcs *g)
{
	listing *l = rc_alloc(sizeof *l);

	*l = (listing){ g, g->news };
	if (rc_method_path(g->dialect, RC_M_GET_ALL_NODE_LIVENESS)) {
		Rw__GetAllNodeAddressAndLivenessRequest request = RW__GET_ALL_NODE_ADDRESS_AND_LIVENESS_REQUEST__INIT;

		rc__gcs_send(g, RC_M_GET_ALL_NODE_LIVENESS, &request, &rw__get_all_node_address_and_liveness_reply__descriptor, RC__GCS_OWN,
		             rc__gcs_timeout(g), on_liveness, l);
	} else {
		Rw__GetAllNodeInfoRequest request = RW__GET_ALL_NODE_INFO_REQUEST__INIT;

		rc__gcs_send(g, RC_M_GET_ALL_NODE_INFO, &request, &rw__get_all_node_info_reply__descriptor, RC__GCS_OWN, rc__gcs_timeout(g),
		             on_infos, l);
	}
}

/* ---- reading ---- */

void rc__gcs_nodes_init(rc_gcs *g)
{
	g->nodes = rc_map_create();
	rc_list_init(&g->dead_nodes);
}

void rc__gcs_nodes_end(rc_gcs *g)
{
	void *value;

	for (size_t i = 0; rc_map_next(g->nodes, &i, NULL, &value);)
		free_entry(value);
	rc_map_destroy(g->nodes);
	g->nodes = NULL;
}

rc_gcs_node *rc_gcs_node_find(const rc_gcs *g, const rc_id *id)
{
	entry *e = rc_map_get_id(g->nodes, id);

	return e ? &e->node : NULL;
}

size_t rc_gcs_nodes_alive(const rc_gcs *g)
{
	return g->n_alive;
}

rc_gcs_node *rc_gcs_node_next(const rc_gcs *g, size_t *i)
{
	void *value;

	while (rc_map_next(g->nodes, i, NULL, &value)) {
		entry *e = value;

		if (e->node.alive)
			return &e->node;
	}
	return NULL;
}
