/* Primary copies: objects that their owners asked this node to keep (NodeManagerService/PinObjectIDs), until freed.
 *
 * Who says that an object is free (src/ray/raylet/local_object_manager.cc):
 *   2.35.0  this node subscribes to WORKER_OBJECT_EVICTION of each pinned object at its owner; the message, a failure message
 *           and the owner's death free the object here and, through FreeObjects, on every node;
 *   2.60.0  the channel is gone; owners call FreeLocalObjects. The owner's death frees what it owned.
 * An owner that cannot be reached but has not been told dead keeps its objects.
 *
 * Between a worker's seal and the owner's pin an object could be evicted when the worker is gone already (it retires after
 * max_calls): an object sealed by a worker is therefore pinned at once, and let go if no pin has come after a while. */
#include "raylet-c/objects/internal.h"

#include <stdlib.h>

#include "raylet-c/base/log.h"

enum { PROVISIONAL_MS = 30000 };

typedef struct pin {
	rc_objects *o;
	rc_link in_owner, provisional;
	rc_id id;
	rc_owner owner;
	rc__om_sub sub; /* 2.35.0 */
	bool confirmed; /* the owner has asked for it */
	uint64_t since;
} pin;

typedef struct pin_owner {
	rc_link pins;
} pin_owner;

static void pin_free(pin *p)
{
	rc_objects *o = p->o;
	pin_owner *w = rc_map_get_id(o->pin_owners, &p->owner.worker_id);

	rc__om_unsubscribe(&p->sub);
	rc_map_del_id(o->pins, &p->id);
	rc_list_remove(&p->in_owner);
	rc_list_remove(&p->provisional);
	if (w && rc_list_empty(&w->pins)) {
		rc_map_del_id(o->pin_owners, &p->owner.worker_id);
		free(w);
	}
	free(p);
}

static void on_freed(rc__om_sub *s)
{
	pin *p = RC_CONTAINER(s, pin, sub);
	rc_id id = p->id;

	rc__om_free(p->o, &id, true);
}

static void on_message(rc__om_sub *s, const Rw__PubMessage *m)
{
	(void)m;
	on_freed(s);
}

static void on_failed(rc__om_sub *s, rc__om_failure why)
{
	if (why != RC__OM_OWNER_UNREACHABLE)
		on_freed(s);
}

static pin *add(rc_objects *o, const rc_id *id, const rc_owner *owner)
{
	pin_owner *w = rc_map_get_id(o->pin_owners, &owner->worker_id);
	pin *p = rc_alloc(sizeof *p);

	p->o = o;
	p->id = *id;
	p->owner = *owner;
	p->since = rc_now_ms();
	p->sub = (rc__om_sub){ .channel = RC__OM_EVICTION, .key = *id, .message = on_message, .failed = on_failed };
	if (!w) {
		w = rc_alloc(sizeof *w);
		rc_list_init(&w->pins);
		rc_map_put_id(o->pin_owners, &owner->worker_id, w);
	}
	rc_list_append(&w->pins, &p->in_owner);
	rc_list_init(&p->provisional);
	rc_map_put_id(o->pins, id, p);
	return p;
}

static bool pin_for_owner(rc_objects *o, const rc_id *id, const rc_owner *owner, const rc_id *generator)
{
	pin *p = rc_map_get_id(o->pins, id);

	if (id->n != RC_OBJECT_ID || !rc_store_pin(o->store, id))
		return false;
	if (p && !p->confirmed && !rc_id_eq(&p->owner.worker_id, &owner->worker_id)) {
		pin_free(p); /* made for another owner than the one that asks: ray.put with _owner */
		p = NULL;
	}
	if (!p)
		p = add(o, id, owner);
	if (p->confirmed)
		return true;
	p->confirmed = true;
	rc_list_remove(&p->provisional);
	p->sub.generator = *generator;
	if (!o->owners_free)
		rc__om_subscribe(o, &p->sub, &p->owner);
	return true;
}

void rc__om_pin_serve(rc_objects *o, rc_request *r, rc_view bytes)
{
	Rw__PinObjectIDsRequest *m = rc_unpack(o->dialect, &rw__pin_object_ids_request__descriptor, bytes);
	Rw__PinObjectIDsReply reply = RW__PIN_OBJECT_IDS_REPLY__INIT;
	rc_buf out = { 0 };
	rc_owner owner;
	rc_id generator;

	owner = rc__om_owner_from_proto(m ? m->owner_address : NULL);
	if (!owner.worker_id.n) {
		rc_warn("PinObjectIDs from %s: %s", rc_request_peer(r), m ? "owner_address is not a worker's address" : "malformed request");
		rc_reply_error(r, RC_RPC_INVALID, "PinObjectIDs: %s", m ? "owner_address is not a worker's address" : "malformed request");
		rc_free_message(m);
		return;
	}
	generator = RC_GET_ID(m, generator_id);
	reply.n_successes = m->n_object_ids;
	reply.successes = rc_alloc((m->n_object_ids + 1) * sizeof *reply.successes);
	for (size_t i = 0; i < m->n_object_ids; i++) {
		rc_id id = rc_id_from(m->object_ids[i].data, m->object_ids[i].len);

		reply.successes[i] = pin_for_owner(o, &id, &owner, &generator);
	}
	if (rc__om_owner_known_dead(o, &owner))
		rc__om_pins_died(o, &owner.worker_id, NULL);
	rc_pack(o->dialect, &reply, &out);
	rc_reply(r, rc_view_of(out.p, out.n));
	rc_buf_free(&out);
	free(reply.successes);
	rc_free_message(m);
}

void rc__om_pin_sealed(rc_objects *o, const rc_id *id, const rc_owner *owner)
{
	pin *p;

	if (owner->worker_id.n != RC_WORKER_ID || rc_map_get_id(o->pins, id) || rc__om_owner_known_dead(o, owner) ||
	    !rc_store_pin(o->store, id))
		return;
	p = add(o, id, owner);
	rc_list_append(&o->provisional, &p->provisional);
}

void rc__om_pin_drop(rc_objects *o, const rc_id *id)
{
	pin *p = rc_map_get_id(o->pins, id);

	if (p)
		pin_free(p);
}

rc_id rc__om_pin_generator(rc_objects *o, const rc_id *id)
{
	pin *p = rc_map_get_id(o->pins, id);

	return p ? p->sub.generator : (rc_id){ 0 };
}

static void owner_died(rc_objects *o, pin_owner *w)
{
	for (bool last = false; !last;) { /* freeing the last pin frees w */
		rc_id id = RC_CONTAINER(w->pins.next, pin, in_owner)->id;

		last = w->pins.next->next == &w->pins;
		rc__om_free(o, &id, true);
	}
}

void rc__om_pins_died(rc_objects *o, const rc_id *worker, const rc_id *node)
{
	pin_owner *w = worker ? rc_map_get_id(o->pin_owners, worker) : NULL;
	size_t i = 0;
	void *value;

	if (w)
		owner_died(o, w);
	while (node && rc_map_next(o->pin_owners, &i, NULL, &value)) { /* only entries are deleted meanwhile */
		w = value;
		if (rc_id_eq(&RC_CONTAINER(w->pins.next, pin, in_owner)->owner.node_id, node))
			owner_died(o, w);
	}
}

void rc__om_pins_tick(rc_objects *o)
{
	uint64_t now = rc_now_ms();

	while (!rc_list_empty(&o->provisional)) {
		pin *p = RC_CONTAINER(o->provisional.next, pin, provisional);

		if (now - p->since < PROVISIONAL_MS)
			return;
		rc_store_unpin(o->store, &p->id);
		pin_free(p);
	}
}

void rc__om_pins_destroy(rc_objects *o)
{
	size_t i = 0;
	void *value;

	while (rc_map_next(o->pins, &i, NULL, &value)) {
		pin *p = value;

		p->sub.owner = NULL; /* its owner is freed after this */
		pin_free(p);
	}
}
