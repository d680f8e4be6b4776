/* Objects wanted on this node that are not here: where they are, which of them may come now, whom to ask.
 *
 * A want exists while a request uses its object. While the object is missing its owner is asked for its places (a subscription,
 * see owner.c; the first message comes at once). Places: nodes with a copy in memory; a spilled copy on a node (its file is
 * read there); a spilled copy in external storage (spilled_node_id nil), which anyone can restore; a spilled copy here.
 *
 * Which may come (as src/ray/object_manager/pull_manager.cc, but gets and waits are judged object by object, since each
 * helps its worker): gets, then waits, then arguments, each in the order of arrival, as long as the store could hold them all
 * at once; arguments of one lease together or not at all, or two leases would drive out each other's halves. The first is
 * always active, so that the store makes room for it. An object whose place is not known yet takes no turn.
 *
 * An attempt: ask one place (a node of ours by Fetch, see fetch.c, another by ObjectManagerService/Pull) and wait for chunks;
 * without progress for a while, or when that node dies, the next place. What has come stays, and chunks
 * that are here already are not copied again.
 *
 * Ends without success become an error object (metadata: the ErrorType in decimal, no data), which is what a stock node
 * stores: OWNER_DIED; OBJECT_DELETED when the owner does not know the object; OBJECT_FETCH_TIMED_OUT when it exists nowhere
 * for fetch_fail_timeout_milliseconds while nobody is making it, or every place has failed for that long. */
#include "raylet-c/objects/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum {
	PULL_RPC_TIMEOUT_MS = 30000,
	FIRST_PAUSE_MS = 50,
	LAST_PAUSE_MS = 10000,
	STALE_MS = 60000, /* a half received object without a new chunk gives its memory back */
	MAX_PLACES = 64, /* of one object; an owner that names more nodes is believed for the first ones */
};

static void start(rc__om_want *w);

/* ---- life ---- */

void rc__om_want_fail(rc__om_want *w, rc_enum error)
{
	w->failed = true;
	w->error = rc_enum_value(w->o->dialect, error);
	rc_list_remove(&w->fail_link);
	rc_list_append(&w->o->failing, &w->fail_link);
	rc__om_pulls_later(w->o);
}

static void forget_places(rc__om_want *w)
{
	free(w->nodes);
	free(w->url);
	w->nodes = NULL;
	w->url = NULL;
	w->n_nodes = 0;
	w->answered = w->pending_creation = false;
	w->lost_since = 0;
}

static void on_restored(void *arg, const rc_id *id, const char *error)
{
	rc__om_want *w = arg;

	(void)id;
	if (w->state != RC__OM_RESTORING)
		return;
	w->state = RC__OM_IDLE;
	if (error[0])
		rc__om_want_retry(w, error);
}

/* Ends the attempt that is being made, if any. */
static void stop(rc__om_want *w)
{
	rc__om_drop(w->call);
	w->call = NULL;
	rc_list_remove(&w->asking);
	rc_timer_stop(w->timer);
	w->timer = NULL;
	if (w->state == RC__OM_RESTORING)
		rc_store_restore_cancel(w->o->store, &w->id, on_restored, w);
	w->state = RC__OM_IDLE;
	w->source = (rc_id){ 0 };
}

static void deactivate(rc__om_want *w)
{
	if (!w->active)
		return;
	w->active = false;
	rc_list_remove(&w->active_link);
	w->o->n_active--;
	rc__om_receive_end(w);
	stop(w);
	w->attempts = 0;
}

static void look_for(rc__om_want *w)
{
	if (w->sub.owner || w->local || w->failed || !w->owner.worker_id.n)
		return;
	if (rc__om_owner_known_dead(w->o, &w->owner))
		rc__om_want_fail(w, RC_V_ERROR_OWNER_DIED);
	else
		rc__om_subscribe(w->o, &w->sub, &w->owner);
}

/* ---- what the owner tells ---- */

static bool is_place(const rc__om_want *w, const rc_id *node)
{
	for (size_t i = 0; i < w->n_nodes; i++)
		if (rc_id_eq(&w->nodes[i], node))
			return true;
	return w->url && rc_id_eq(&w->url_node, node);
}

static void on_locations(rc__om_sub *s, const Rw__PubMessage *p)
{
	rc__om_want *w = RC_CONTAINER(s, rc__om_want, sub);
	const Rw__WorkerObjectLocationsPubMessage *m = p->worker_object_locations_message;

	if (!m || w->local)
		return;
	if (RC_GET(m, ref_removed)) /* the failure message that follows ends it */
		return;
	forget_places(w);
	w->answered = true;
	w->pending_creation = RC_GET(m, pending_creation);
	if (RC_GET(m, object_size))
		w->size = m->object_size;
	w->nodes = rc_alloc((m->n_node_ids + 1) * sizeof *w->nodes);
	for (size_t i = 0; i < m->n_node_ids && w->n_nodes < MAX_PLACES; i++) {
		rc_id node = rc_id_from(m->node_ids[i].data, m->node_ids[i].len);

		if (node.n == RC_NODE_ID && !rc_id_eq(&node, &w->o->options.node_id) && !rc__om_node_dead(w->o, &node))
			w->nodes[w->n_nodes++] = node;
	}
	if (RC_GET_STR(m, spilled_url)[0]) {
		w->url_node = RC_GET_ID(m, spilled_node_id);
		if (rc_id_is_nil(&w->url_node) || !rc__om_node_dead(w->o, &w->url_node))
			w->url = rc_strdup(m->spilled_url);
	}
	/* The place being asked has lost it, and nothing has come from there. */
	if (w->state == RC__OM_ASKED && !w->receive && !is_place(w, &w->source))
		rc__om_want_retry(w, "the copy there is gone");
	rc__om_pulls_later(w->o);
}

static void on_failed(rc__om_sub *s, rc__om_failure why)
{
	rc__om_want *w = RC_CONTAINER(s, rc__om_want, sub);

	rc__om_unsubscribe(s);
	if (w->local)
		return;
	rc_info("object %s cannot be located: %s", rc_id_to_hex(&w->id).s,
	        why == RC__OM_KEY_GONE     ? "its owner knows it no more"
	        : why == RC__OM_OWNER_DEAD ? "its owner has died"
	                                   : "its owner cannot be reached");
	rc__om_want_fail(w, why == RC__OM_KEY_GONE ? RC_V_ERROR_OBJECT_DELETED : RC_V_ERROR_OWNER_DIED);
}

/* ---- uses ---- */

rc__om_use *rc__om_want_use(rc_objects *o, const rc_object_ref *ref, rc__om_request *r)
{
	rc__om_want *w = rc_map_get_id(o->wants, &ref->id);
	rc__om_use *u = rc_alloc(sizeof *u);

	if (!w) {
		w = rc_alloc(sizeof *w);
		w->o = o;
		w->id = ref->id;
		w->owner = ref->owner;
		w->salt = (unsigned)rand();
		w->sub = (rc__om_sub){ .channel = RC__OM_LOCATIONS, .key = ref->id, .message = on_locations, .failed = on_failed };
		rc_list_init(&w->uses);
		rc_list_init(&w->active_link);
		rc_list_init(&w->fail_link);
		rc_list_init(&w->asking);
		w->local = rc_store_contains(o->store, &ref->id);
		rc_map_put_id(o->wants, &ref->id, w);
	} else if (!w->owner.worker_id.n) {
		w->owner = ref->owner;
	}
	u->id = ref->id;
	u->request = r;
	u->want = w;
	rc_list_append(&w->uses, &u->in_want);
	rc_list_append(&r->uses, &u->in_request);
	o->n_uses++;
	look_for(w);
	rc__om_pulls_later(o);
	return u;
}

static void want_free(rc__om_want *w)
{
	deactivate(w);
	rc__om_receive_end(w);
	stop(w);
	rc_list_remove(&w->fail_link);
	rc__om_unsubscribe(&w->sub);
	forget_places(w);
	rc_map_del_id(w->o->wants, &w->id);
	free(w);
}

void rc__om_want_leave(rc__om_use *u)
{
	rc__om_want *w = u->want;

	if (!w)
		return;
	u->want = NULL;
	rc_list_remove(&u->in_want);
	if (!rc_list_empty(&w->uses))
		return;
	rc__om_pulls_later(w->o);
	want_free(w);
}

void rc__om_want_unuse(rc__om_use *u)
{
	rc__om_want_leave(u);
	rc_list_remove(&u->in_request);
	u->request->o->n_uses--;
	free(u);
}

void rc__om_want_sealed(rc_objects *o, const rc_id *id)
{
	rc__om_want *w = rc_map_get_id(o->wants, id);
	rc_link guard;

	if (!w || w->local)
		return;
	w->local = true;
	w->failed = false;
	rc_list_remove(&w->fail_link);
	deactivate(w);
	rc__om_unsubscribe(&w->sub);
	forget_places(w);
	rc_list_append(&w->uses, &guard); /* uses may leave, the want stays until the walk is over */
	for (rc_link *l = w->uses.next, *next; l != &guard; l = next) {
		next = l->next;
		rc__om_use_local(RC_CONTAINER(l, rc__om_use, in_want));
	}
	rc_list_remove(&guard);
	if (rc_list_empty(&w->uses))
		want_free(w);
	rc__om_pulls_later(o);
}

void rc__om_want_gone(rc_objects *o, const rc_id *id)
{
	rc__om_want *w = rc_map_get_id(o->wants, id);

	if (!w || !w->local)
		return;
	w->local = false;
	RC_LIST_FOREACH(l, &w->uses) {
		rc__om_use_gone(RC_CONTAINER(l, rc__om_use, in_want));
	}
	look_for(w);
	rc__om_pulls_later(o);
}

/* ---- one attempt ---- */

typedef enum place_kind { PLACE_HERE, PLACE_NODE, PLACE_EXTERNAL } place_kind;
typedef struct place {
	place_kind kind;
	rc_id node;
	char address[RC__OM_ADDRESS];
} place;

static size_t places(rc__om_want *w, place *out) /* out: MAX_PLACES + 2 */
{
	rc_objects *o = w->o;
	const rc_id *self = &o->options.node_id;
	size_t n = 0;

	if (rc_store_spilled_url(o->store, &w->id))
		out[n++].kind = PLACE_HERE;
	for (size_t i = 0; i < w->n_nodes; i++) {
		const rc_id *node = &w->nodes[(i + w->salt) % w->n_nodes];

		if (!rc__om_node_address(o, node, out[n].address))
			continue;
		out[n].kind = PLACE_NODE;
		out[n++].node = *node;
	}
	if (!w->url)
		return n;
	if (rc_id_is_nil(&w->url_node)) {
		out[n++].kind = PLACE_EXTERNAL;
	} else if (!rc_id_eq(&w->url_node, self) && !is_place(&(rc__om_want){ .nodes = w->nodes, .n_nodes = w->n_nodes }, &w->url_node) &&
	           rc__om_node_address(o, &w->url_node, out[n].address)) {
		out[n].kind = PLACE_NODE;
		out[n++].node = w->url_node;
	}
	return n;
}

static bool pullable(rc__om_want *w)
{
	place found[MAX_PLACES + 2];

	if (w->local || w->failed)
		return false;
	if (w->n_nodes == 0 && !w->url)
		return rc_store_spilled_url(w->o->store, &w->id) != NULL;
	return places(w, found) > 0;
}

static void on_timer(void *arg)
{
	rc__om_want *w = arg;

	if (w->state == RC__OM_BACKOFF) {
		stop(w);
		start(w);
	} else {
		rc__om_want_retry(w, "nothing has come for too long");
	}
}

static void on_asked(void *arg, int status, rc_view reply, const char *detail)
{
	rc__om_want *w = arg;

	(void)reply;
	w->call = NULL;
	if (status != RC_RPC_OK && !w->receive)
		rc__om_want_retry(w, detail);
}

static void set_timer(rc__om_want *w, uint64_t ms)
{
	rc_timer_stop(w->timer);
	w->timer = rc_timer_start(w->o->loop, ms, 0, on_timer, w);
}

static uint64_t patience(const rc__om_want *w)
{
	return (uint64_t)w->o->options.pull_timeout_ms << (w->attempts < 4 ? w->attempts : 4);
}

void rc__om_want_pull(rc__om_want *w, const char *address)
{
	rc_objects *o = w->o;
	Rw__PullRequest m = RW__PULL_REQUEST__INIT;
	ProtobufCBinaryData id = { w->id.n, w->id.b };

	RC_SET_ID(m, node_id, &o->options.node_id);
	RC_SET_ID(m, object_id, &w->id); /* 2.35.0 */
	m.n_object_ids = 1;              /* 2.60.0 */
	m.object_ids = &id;
	w->call = rc__om_send(o, address, RC_M_OM_PULL, &m, PULL_RPC_TIMEOUT_MS, on_asked, w);
}

static void ask(rc__om_want *w, const place *p)
{
	w->state = RC__OM_ASKED;
	w->source = p->node;
	set_timer(w, patience(w));
	if (!rc__om_fetch(w, p->address))
		rc__om_want_pull(w, p->address);
}

static void start(rc__om_want *w)
{
	place found[MAX_PLACES + 2];
	const place *p;
	size_t n;

	if (w->state != RC__OM_IDLE || !w->active || w->local)
		return;
	n = places(w, found);
	if (n == 0) { /* it takes its turn again when a place is known */
		rc__om_pulls_later(w->o);
		return;
	}
	p = &found[w->attempts % n];
	switch (p->kind) {
	case PLACE_HERE:
	case PLACE_EXTERNAL:
		rc__om_receive_end(w); /* the store restores into memory of its own */
		w->state = RC__OM_RESTORING;
		rc_store_restore(w->o->store, &w->id, p->kind == PLACE_HERE ? NULL : w->url, on_restored, w);
		return;
	case PLACE_NODE:
		ask(w, p);
		return;
	}
}

void rc__om_want_chunk(rc__om_want *w)
{
	if (w->state == RC__OM_ASKED && w->timer)
		rc_timer_again(w->timer, patience(w));
}

void rc__om_want_retry(rc__om_want *w, const char *why)
{
	uint64_t pause = FIRST_PAUSE_MS;

	stop(w);
	w->attempts++;
	w->o->stats.pull_retries++;
	rc_debug("object %s: attempt %u failed: %s", rc_id_to_hex(&w->id).s, w->attempts, why);
	if (!w->active)
		return;
	for (unsigned i = 1; i < w->attempts && pause < LAST_PAUSE_MS; i++)
		pause *= 2;
	w->state = RC__OM_BACKOFF;
	set_timer(w, pause < LAST_PAUSE_MS ? pause : LAST_PAUSE_MS);
}

void rc__om_pulls_died(rc_objects *o, const rc_id *node)
{
	size_t i = 0;
	void *value;

	while (rc_map_next(o->wants, &i, NULL, &value)) {
		rc__om_want *w = value;

		for (size_t k = 0; k < w->n_nodes; k++)
			if (rc_id_eq(&w->nodes[k], node))
				w->nodes[k--] = w->nodes[--w->n_nodes];
		if (w->url && rc_id_eq(&w->url_node, node)) {
			free(w->url);
			w->url = NULL;
		}
		if (w->state == RC__OM_ASKED && rc_id_eq(&w->source, node))
			rc__om_want_retry(w, "the node has died");
	}
	rc__om_pulls_later(o);
}

/* ---- which may come ---- */

void rc__om_pulls_later(rc_objects *o)
{
	if (o->schedule_due || o->destroying)
		return;
	o->schedule_due = true;
	rc__om_kick(o);
}

static void store_errors(rc_objects *o)
{
	while (!rc_list_empty(&o->failing)) {
		rc__om_want *w = RC_CONTAINER(o->failing.next, rc__om_want, fail_link);
		rc_store_new object = { .id = w->id, .source = RC_ERROR_STORED };
		bool told = w->error_told;
		char text[16];
		rc_plasma_error why;

		rc_list_remove(&w->fail_link);
		deactivate(w);
		snprintf(text, sizeof text, "%d", w->error);
		w->error_told = true;
		why = rc_store_put(o->store, &object, (rc_view){ 0 }, rc_view_str(text)); /* w may be freed: it is local now */
		if (why == RC_PE_OK)
			o->stats.objects_failed++;
		else if (why != RC_PE_EXISTS && !told) /* it is tried again every second */
			rc_error_log("no error object can be stored for %s now: plasma error %d", rc_id_to_hex(&object.id).s, (int)why);
	}
}

/* What the store could hold besides what is in use, with the pulls that are under way counted as not yet there. */
static uint64_t room(rc_objects *o)
{
	rc_store_stats s;
	uint64_t taken, ours = 0;

	rc_store_get_stats(o->store, &s);
	RC_LIST_FOREACH(l, &o->active) {
		rc__om_want *w = RC_CONTAINER(l, rc__om_want, active_link);

		if (rc__om_receive_started(w))
			ours += w->size;
	}
	taken = s.in_use_bytes + s.unsealed_bytes;
	taken = taken > ours ? taken - ours : 0;
	return s.capacity > taken ? s.capacity - taken : 0;
}

typedef struct turn {
	rc_objects *o;
	uint64_t room;
	size_t marked;
	bool full; /* somebody waits for room */
} turn;

static void mark(turn *t, rc__om_want *w)
{
	if (w->marked)
		return;
	w->marked = true;
	t->marked++;
	t->room -= w->size < t->room ? w->size : t->room;
	if (!w->active) {
		w->active = true;
		rc_list_append(&t->o->active, &w->active_link);
		t->o->n_active++;
	}
}

/* False when it must wait for room, and all after it. */
static bool give_turns(turn *t, rc__om_request *r)
{
	uint64_t need = 0;
	bool together = r->kind == RC__OM_R_FETCH;

	for (rc_link *l = r->uses.next; l != &r->uses; l = l->next) {
		rc__om_want *w = RC_CONTAINER(l, rc__om_use, in_request)->want;

		if (!w || w->local || w->marked)
			continue;
		if (t->marked >= t->o->options.max_pulls && !together)
			return true;
		if (!pullable(w)) {
			if (together)
				return true;
			continue;
		}
		if (together) {
			need += w->size;
			continue;
		}
		if (w->size > t->room && t->marked > 0)
			return false;
		mark(t, w);
	}
	if (!together)
		return true;
	if (need > t->room && t->marked > 0)
		return false;
	for (rc_link *l = r->uses.next; l != &r->uses; l = l->next) {
		rc__om_want *w = RC_CONTAINER(l, rc__om_use, in_request)->want;

		if (w && !w->local && t->marked < t->o->options.max_pulls)
			mark(t, w);
	}
	return true;
}

/* Starting may restore at once, which seals, which changes the list: hence by a copy of the ids. */
static void start_active(rc_objects *o)
{
	rc_id *ids = rc_alloc((o->n_active + 1) * sizeof *ids);
	size_t n = 0;

	RC_LIST_FOREACH(l, &o->active) {
		rc__om_want *w = RC_CONTAINER(l, rc__om_want, active_link);

		if (w->state == RC__OM_IDLE && !w->receive)
			ids[n++] = w->id;
	}
	for (size_t i = 0; i < n; i++) {
		rc__om_want *w = rc_map_get_id(o->wants, &ids[i]);

		if (w)
			start(w);
	}
	free(ids);
}

void rc__om_pulls_run(rc_objects *o)
{
	turn t = { .o = o };

	store_errors(o);
	if (!o->schedule_due)
		return;
	o->schedule_due = false;
	t.room = room(o);
	RC_LIST_FOREACH(l, &o->active) { /* what has its memory goes on */
		rc__om_want *w = RC_CONTAINER(l, rc__om_want, active_link);

		w->marked = false;
		if (rc__om_receive_started(w) || w->state == RC__OM_RESTORING)
			mark(&t, w);
	}
	for (int p = 0; p < RC__OM_PRIORITIES && !t.full && t.marked < o->options.max_pulls; p++) {
		RC_LIST_FOREACH(l, &o->requests[p]) {
			t.full = !give_turns(&t, RC_CONTAINER(l, rc__om_request, link));
			if (t.full || t.marked >= o->options.max_pulls)
				break;
		}
	}
	o->pulls_queued = t.full;
	RC_LIST_FOREACH(l, &o->active) {
		rc__om_want *w = RC_CONTAINER(l, rc__om_want, active_link);

		if (w->marked)
			w->marked = false;
		else
			deactivate(w);
	}
	start_active(o);
}

void rc__om_pulls_tick(rc_objects *o)
{
	uint64_t now = rc_now_ms();
	size_t i = 0;
	void *value;

	while (rc_map_next(o->wants, &i, NULL, &value)) {
		rc__om_want *w = value;

		if (w->failed && !w->local && rc_list_empty(&w->fail_link))
			rc_list_append(&o->failing, &w->fail_link);
		if (rc__om_receive_idle_ms(w) > STALE_MS)
			rc__om_receive_end(w);
		if (w->local || w->failed || !w->answered || w->pending_creation || w->receive || (pullable(w) && w->attempts == 0)) {
			w->lost_since = 0;
			continue;
		}
		if (!w->lost_since)
			w->lost_since = now;
		if (now - w->lost_since < o->options.fetch_fail_timeout_ms)
			continue;
		rc_warn("object %s could not be had anywhere for %u s and nobody is making it", rc_id_to_hex(&w->id).s,
		        o->options.fetch_fail_timeout_ms / 1000);
		rc__om_want_fail(w, RC_V_ERROR_FETCH_TIMED_OUT);
	}
	o->schedule_due = true; /* room may have come */
}
