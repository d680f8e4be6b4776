/* Location reports: what this node has, told to the owners (CoreWorkerService/UpdateObjectLocationBatch).
 *
 * Per owner one call is in flight; what happens meanwhile to an object replaces what was still to be told of it: the last
 * of ADDED and REMOVED, and a spill URL besides. The field plasma_location_update has presence: ADDED (0) must be encoded.
 * An owner that refuses is gone; one that cannot be reached is asked again as owner.c has it. */
#include "raylet-c/objects/internal.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum { CALL_TIMEOUT_MS = 60000 };

typedef struct update {
	rc_link link;
	rc_id object, generator;
	bool has_location, added;
	char *url; /* NULL: no spill to tell */
} update;

void rc__om_reports_init(rc__om_owner *w)
{
	w->reports.pending = rc_map_create();
	rc_list_init(&w->reports.order);
	rc_list_init(&w->reports.sent);
}

bool rc__om_reports_idle(const rc__om_owner *w)
{
	return !w->reports.call && rc_map_count(w->reports.pending) == 0;
}

static void free_updates(rc_link *list)
{
	RC_LIST_FOREACH(l, list) {
		update *u = RC_CONTAINER(l, update, link);

		rc_list_remove(l);
		free(u->url);
		free(u);
	}
}

void rc__om_reports_drop(rc__om_owner *w)
{
	rc__om_drop(w->reports.call);
	w->reports.call = NULL;
	free_updates(&w->reports.sent);
	RC_LIST_FOREACH(l, &w->reports.order) {
		rc_map_del_id(w->reports.pending, &RC_CONTAINER(l, update, link)->object);
	}
	free_updates(&w->reports.order);
}

/* Puts what the failed call carried back, older than what has come since. */
static void put_back(rc__om_owner *w)
{
	while (!rc_list_empty(&w->reports.sent)) {
		rc_link *l = w->reports.sent.prev;
		update *u = RC_CONTAINER(l, update, link), *newer = rc_map_get_id(w->reports.pending, &u->object);

		rc_list_remove(l);
		if (!newer) {
			rc_list_append(w->reports.order.next, l);
			rc_map_put_id(w->reports.pending, &u->object, u);
			continue;
		}
		if (!newer->has_location) {
			newer->has_location = u->has_location;
			newer->added = u->added;
		}
		if (!newer->url) {
			newer->url = u->url;
			newer->generator = u->generator;
			u->url = NULL;
		}
		free(u->url);
		free(u);
	}
}

static void on_reported(void *arg, int status, rc_view reply, const char *detail)
{
	rc__om_owner *w = arg;

	(void)reply;
	w->reports.call = NULL;
	if (status == RC_RPC_OK) {
		rc__om_owner_works(w);
		free_updates(&w->reports.sent);
		rc__om_reports_send(w);
		rc__om_owner_maybe_free(w);
	} else if (rc__om_refused(status)) {
		rc_debug("owner %s at %s takes no location reports: status %d, %s", rc_id_to_hex(&w->address.worker_id).s, w->target, status,
		         detail);
		rc__om_reports_drop(w);
		rc__om_owner_maybe_free(w);
	} else {
		put_back(w);
		rc__om_owner_failed(w, status, "reporting locations", detail);
	}
}

void rc__om_reports_send(rc__om_owner *w)
{
	rc_objects *o = w->o;
	Rw__UpdateObjectLocationBatchRequest m = RW__UPDATE_OBJECT_LOCATION_BATCH_REQUEST__INIT;
	size_t n = rc_map_count(w->reports.pending);
	struct {
		Rw__ObjectLocationUpdate update;
		Rw__ObjectSpilledLocationUpdate spilled;
	} *parts;
	Rw__ObjectLocationUpdate **updates;

	if (w->reports.call || w->retry || n == 0)
		return;
	n = n < o->options.report_batch ? n : o->options.report_batch;
	parts = rc_alloc(n * sizeof *parts);
	updates = rc_alloc(n * sizeof *updates);
	for (size_t i = 0; i < n; i++) {
		update *u = RC_CONTAINER(w->reports.order.next, update, link);
		Rw__ObjectLocationUpdate *out = updates[i] = &parts[i].update;

		rc_list_remove(&u->link);
		rc_list_append(&w->reports.sent, &u->link);
		rc_map_del_id(w->reports.pending, &u->object);
		*out = (Rw__ObjectLocationUpdate)RW__OBJECT_LOCATION_UPDATE__INIT;
		RC_SET_ID(*out, object_id, &u->object);
		if (u->has_location)
			RC_SET(*out, plasma_location_update, rc_enum_value(o->dialect, u->added ? RC_V_LOCATION_ADDED : RC_V_LOCATION_REMOVED));
		if (u->url) {
			parts[i].spilled = (Rw__ObjectSpilledLocationUpdate)RW__OBJECT_SPILLED_LOCATION_UPDATE__INIT;
			parts[i].spilled.spilled_url = u->url;
			RC_SET(parts[i].spilled, spilled_to_local_storage, strcmp(rc_store_spill_type(o->store), "filesystem") == 0);
			out->spilled_location_update = &parts[i].spilled;
			if (u->generator.n)
				RC_SET_ID(*out, generator_id, &u->generator);
		}
	}
	RC_SET_ID(m, intended_worker_id, &w->address.worker_id);
	RC_SET_ID(m, node_id, &o->options.node_id);
	m.n_object_location_updates = n;
	m.object_location_updates = updates;
	o->stats.reports_sent += n;
	w->reports.call = rc__om_send(o, w->target, RC_M_CW_UPDATE_OBJECT_LOCATIONS, &m, CALL_TIMEOUT_MS, on_reported, w);
	free(updates);
	free(parts);
}

static update *pending_update(rc__om_owner *w, const rc_id *id)
{
	update *u = rc_map_get_id(w->reports.pending, id);

	if (u)
		return u;
	u = rc_alloc(sizeof *u);
	u->object = *id;
	rc_list_append(&w->reports.order, &u->link);
	rc_map_put_id(w->reports.pending, id, u);
	return u;
}

static bool has_owner(rc_objects *o, const rc_owner *owner)
{
	return owner->worker_id.n == RC_WORKER_ID && owner->port > 0 && !rc__om_owner_known_dead(o, owner);
}

void rc__om_report_location(rc_objects *o, const rc_id *id, const rc_owner *owner, bool added)
{
	rc__om_owner *w;
	update *u;

	if (!has_owner(o, owner))
		return;
	w = rc__om_owner_find(o, owner, true);
	u = pending_update(w, id);
	u->has_location = true;
	u->added = added;
	rc__om_reports_send(w);
}

void rc__om_report_spilled(rc_objects *o, const rc_id *id, const rc_owner *owner, const char *url, const rc_id *generator)
{
	rc__om_owner *w;
	update *u;

	if (!has_owner(o, owner))
		return;
	w = rc__om_owner_find(o, owner, true);
	u = pending_update(w, id);
	free(u->url);
	u->url = rc_strdup(url);
	u->generator = *generator;
	rc__om_reports_send(w);
}
