/* Fetch and Keep served (exchange.h): an object of this node for another node of ours.
 *
 * Who asks must name the cluster, and be a node that the head knows; gRPC has checked certificates and tokens before. A small
 * object goes in the answer. A larger one is held in the store and its bytes, no others, are granted over the fabric that both
 * have; the hold ends when the asking node says so, dies, or has not asked for more time for 60 s. Where there is no common
 * fabric, and for what lies in a spill file, the answer is PUSHED and the object goes as after a Pull (push.c). */
#include "raylet-c/objects/internal.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum {
	INLINE_BYTES = 256 << 10,
	LEND_MS = 60000,
	MAX_LENDS = 10000,
	MAX_HELD_ASKS = 1000,
};

typedef struct lend {
	rc_objects *o;
	uint64_t number;
	rc_id node;
	const rc_hold *hold;
	rc_store *store;
	uint64_t grant; /* the fabric's */
	rc_fabric_offer offer;
	uint64_t until_ms;
	rc_request *request; /* while the grant is made */
} lend;

typedef struct held_ask { /* the offers of this node are not known yet */
	rc_link link;
	rc_request *request;
	rc__om_ask ask;
} held_ask;

static void reply_with(rc_request *r, const rc__om_answer *a)
{
	rc_buf b = { 0 };

	rc__om_answer_write(a, &b);
	rc_reply(r, rc_view_of(b.p, b.n));
	rc_buf_free(&b);
}

static void reply_kind(rc_request *r, rc__om_answer_kind kind)
{
	reply_with(r, &(rc__om_answer){ .kind = kind });
}

/* The answer goes first: a push may be quick. */
static void reply_pushed(rc_objects *o, rc_request *r, const rc_id *node, const rc_id *object)
{
	o->stats.fetch_pushed++;
	reply_kind(r, RC__OM_PUSHED);
	rc__om_push_object(o, node, object);
}

/* ---- lends ---- */

static void released(void *arg)
{
	lend *l = arg;

	rc_store_release(l->store, l->hold);
	free(l);
}

static void lend_end(lend *l)
{
	rc_map_del(l->o->lends, rc_view_of(&l->number, sizeof l->number));
	if (l->request)
		rc_reply_error(l->request, RC_RPC_UNAVAILABLE, "the asking node has died");
	rc_fabric_revoke(l->o->fabric, l->grant, released, l);
}

static void on_granted(void *arg, const rc_error *error, rc_view address, const rc_remote *remote)
{
	lend *l = arg;
	rc_objects *o = l->o;
	rc_request *r = l->request;
	rc__om_answer a = { .kind = RC__OM_GRANTED, .grant = l->number, .offer = l->offer, .address = address };

	l->request = NULL;
	if (error) {
		rc_id object = l->hold->id, node = l->node;

		rc_map_del(o->lends, rc_view_of(&l->number, sizeof l->number));
		released(l);
		if (o->destroying)
			rc_reply_error(r, RC_RPC_UNAVAILABLE, "this node is ending");
		else
			reply_pushed(o, r, &node, &object);
		return;
	}
	a.data_size = l->hold->data_size;
	a.metadata_size = l->hold->metadata_size;
	a.owner = l->hold->owner;
	a.remote = *remote;
	l->until_ms = rc_now_ms() + LEND_MS;
	o->stats.fetch_granted++;
	reply_with(r, &a);
}

static void lend_new(rc_objects *o, rc_request *r, const rc__om_ask *ask, const rc_hold *hold, const rc_fabric_offer *offer)
{
	lend *l = rc_alloc(sizeof *l);

	l->o = o;
	l->store = o->store;
	l->number = ++o->next_lend;
	l->node = ask->from.node;
	l->hold = hold;
	l->offer = *offer;
	l->request = r;
	l->until_ms = UINT64_MAX;
	rc_map_put(o->lends, rc_view_of(&l->number, sizeof l->number), l);
	l->grant = rc_fabric_grant(o->fabric, offer, hold->data, hold->data_size + hold->metadata_size, on_granted, l);
}

/* ---- Fetch ---- */

/* A fabric that both have; -1: none, or no room for one more. */
static int choose(rc_objects *o, const rc__om_ask *ask, rc_fabric_offer *ret)
{
	rc_fabric_offer mine[RC_FABRIC_MAX_OFFERS];
	int i = rc_fabric_choose(mine, rc_fabric_usable(o->fabric, mine), ask->offers, ask->n_offers);

	if (i < 0 || rc_map_count(o->lends) >= MAX_LENDS)
		return -1;
	*ret = mine[i];
	return 0;
}

static void hold_ask(rc_objects *o, rc_request *r, const rc__om_ask *ask)
{
	held_ask *h = rc_alloc(sizeof *h);

	h->request = r;
	h->ask = *ask;
	rc_list_append(&o->held_asks, &h->link);
	o->n_held_asks++;
	rc_fabric_start(o->fabric);
}

static void answer(rc_objects *o, rc_request *r, const rc__om_ask *ask)
{
	const rc_hold *h = rc_store_hold(o->store, &ask->object);
	uint64_t total = h ? h->data_size + h->metadata_size : 0;
	rc_fabric_offer offer;

	if (!h) {
		if (rc_store_spilled_url(o->store, &ask->object))
			reply_pushed(o, r, &ask->from.node, &ask->object);
		else
			reply_kind(r, RC__OM_ABSENT);
		return;
	}
	if (total <= INLINE_BYTES) {
		o->stats.fetch_inline++;
		o->stats.bytes_out += total;
		reply_with(r, &(rc__om_answer){ .kind = RC__OM_INLINE,
		                                .data_size = h->data_size,
		                                .metadata_size = h->metadata_size,
		                                .owner = h->owner,
		                                .bytes = rc_view_of(h->data, (size_t)total) });
	} else if (o->fabric && ask->fabric == RC__OM_FABRIC_UNKNOWN) {
		rc_fabric_start(o->fabric);
		reply_kind(r, RC__OM_LOOK);
	} else if (o->fabric && ask->n_offers && !rc_fabric_ready(o->fabric) && o->n_held_asks < MAX_HELD_ASKS) {
		hold_ask(o, r, ask);
	} else if (o->fabric && rc_fabric_ready(o->fabric) && choose(o, ask, &offer) == 0) {
		o->stats.bytes_out += total;
		lend_new(o, r, ask, h, &offer);
		return; /* with the hold */
	} else {
		reply_pushed(o, r, &ask->from.node, &ask->object);
	}
	rc_store_release(o->store, h);
}

/* True when it may ask; else it has its answer. */
static bool admit(rc_objects *o, rc_request *r, const char *method, int parsed, const rc__om_from *from, const rc_error *e)
{
	if (parsed < 0) {
		rc_warn("%s from %s: %s", method, rc_request_peer(r), e->text);
		rc_reply_error(r, e->code == RC_E_UNSUPPORTED ? RC_RPC_UNIMPLEMENTED : RC_RPC_INVALID, "%s", e->text);
		return false;
	}
	if (strcmp(from->cluster, o->options.cluster_id) != 0) {
		rc_warn("%s from %s is refused: it is of cluster '%s'", method, rc_request_peer(r), from->cluster);
		rc_reply_error(r, RC_RPC_INVALID, "%s: another cluster's node", method);
		return false;
	}
	return true;
}

void rc__om_lend_serve(rc_objects *o, rc_request *r, rc_view bytes)
{
	rc__om_ask ask;
	rc_error e;
	char address[RC__OM_ADDRESS];

	if (!admit(o, r, "Fetch", rc__om_ask_read(bytes, &ask, &e), &ask.from, &e))
		return;
	if (rc__om_node_address(o, &ask.from.node, address))
		answer(o, r, &ask);
	else /* of a node that the head has not told of yet: kept as a Pull */
		reply_pushed(o, r, &ask.from.node, &ask.object);
}

void rc__om_lend_ready(rc_objects *o)
{
	while (!rc_list_empty(&o->held_asks)) {
		held_ask *h = RC_CONTAINER(o->held_asks.next, held_ask, link);

		rc_list_remove(&h->link);
		o->n_held_asks--;
		answer(o, h->request, &h->ask);
		free(h);
	}
}

/* ---- Keep ---- */

void rc__om_keep_serve(rc_objects *o, rc_request *r, rc_view bytes)
{
	static rc__om_keep keep; /* the loop's only */
	static rc__om_kept kept;
	rc_buf b = { 0 };
	rc_error e;

	if (!admit(o, r, "Keep", rc__om_keep_read(bytes, &keep, &e), &keep.from, &e))
		return;
	kept.n = keep.n;
	for (size_t i = 0; i < keep.n; i++) {
		lend *l = rc_map_get(o->lends, rc_view_of(&keep.grants[i], sizeof keep.grants[i]));

		kept.here[i] = l && !l->request && rc_id_eq(&l->node, &keep.from.node);
		if (kept.here[i] && keep.end)
			lend_end(l);
		else if (kept.here[i])
			l->until_ms = rc_now_ms() + LEND_MS;
	}
	rc__om_kept_write(&kept, &b);
	rc_reply(r, rc_view_of(b.p, b.n));
	rc_buf_free(&b);
}

/* ---- life ---- */

void rc__om_lend_init(rc_objects *o)
{
	o->lends = rc_map_create();
	rc_list_init(&o->held_asks);
}

void rc__om_lends_tick(rc_objects *o)
{
	uint64_t now = rc_now_ms();
	size_t i = 0;
	void *value;

	while (rc_map_next(o->lends, &i, NULL, &value)) {
		lend *l = value;

		if (now < l->until_ms)
			continue;
		rc_info("object %s is lent no more to node %s: it was not kept", rc_id_to_hex(&l->hold->id).s, rc_id_to_hex(&l->node).s);
		lend_end(l);
	}
}

void rc__om_lends_died(rc_objects *o, const rc_id *node)
{
	size_t i = 0;
	void *value;

	while (rc_map_next(o->lends, &i, NULL, &value))
		if (rc_id_eq(&((lend *)value)->node, node))
			lend_end(value);
}

void rc__om_lends_destroy(rc_objects *o) /* the fabric has ended */
{
	size_t i = 0;
	void *value;

	while (rc_map_next(o->lends, &i, NULL, &value))
		released(value);
	rc_map_destroy(o->lends);
	RC_LIST_FOREACH(k, &o->held_asks) {
		held_ask *h = RC_CONTAINER(k, held_ask, link);

		rc_list_remove(k);
		rc_reply_error(h->request, RC_RPC_UNAVAILABLE, "this node is ending");
		free(h);
	}
}
