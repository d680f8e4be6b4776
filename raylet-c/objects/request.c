/* Sets of wanted objects: gets, waits, fetches, subscriptions to readiness. See objects.h for what each means to its caller
 * (stock: src/ray/raylet/{wait_manager,dependency_manager}.cc).
 *
 * A use ties one object to one request. Gets and fetches keep their uses when objects come, since what goes again must be
 * fetched again; the others are done with an object that has come. A request stands in its priority's queue while something
 * is missing. Callbacks are run from the kick timer only, so a request may be ended anywhere. */
#include "raylet-c/objects/internal.h"

#include <stdlib.h>

#include "raylet-c/base/log.h"

enum { MAX_USES = 8000000 }; /* workers drive this: see rc_objects_room */

typedef struct client {
	void *key;
	rc_link requests;
	rc__om_request *get[2]; /* [fetch_only]: one that grows */
} client;

/* ---- clients ---- */

static rc_view key_of(void *const *key)
{
	return rc_view_of(key, sizeof *key);
}

static client *client_find(rc_objects *o, void *key, bool create)
{
	client *c = rc_map_get(o->clients, key_of(&key));

	if (c || !create)
		return c;
	c = rc_alloc(sizeof *c);
	c->key = key;
	rc_list_init(&c->requests);
	rc_map_put(o->clients, key_of(&key), c);
	return c;
}

static void client_maybe_free(rc_objects *o, client *c)
{
	if (!rc_list_empty(&c->requests))
		return;
	rc_map_del(o->clients, key_of(&c->key));
	free(c);
}

/* ---- requests ---- */

static rc_view id_key(const uint64_t *id)
{
	return rc_view_of(id, sizeof *id);
}

static uint64_t *counter(rc__om_request *r)
{
	rc_objects_stats *s = &r->o->stats;

	return r->kind == RC__OM_R_GET ? &s->gets : r->kind == RC__OM_R_FETCH ? &s->fetches : &s->waits;
}

static rc__om_request *request_new(rc_objects *o, rc__om_kind kind, int priority, void *arg)
{
	rc__om_request *r = rc_alloc(sizeof *r);

	r->o = o;
	r->kind = kind;
	r->priority = priority;
	r->arg = arg;
	r->id = ++o->next_request;
	rc_list_init(&r->link);
	rc_list_init(&r->due);
	rc_list_init(&r->in_client);
	rc_list_init(&r->uses);
	rc_map_put(o->requests_by_id, id_key(&r->id), r);
	++*counter(r);
	return r;
}

static void release_holds(rc__om_request *r)
{
	if (!r->holds)
		return;
	for (size_t i = 0; i < r->n; i++)
		rc_store_release(r->o->store, r->holds[i]);
	free(r->holds);
	r->holds = NULL;
	r->o->args_held -= r->held_bytes;
	r->held_bytes = 0;
}

static void request_free(rc__om_request *r)
{
	--*counter(r);
	release_holds(r);
	rc_timer_stop(r->timer);
	rc_list_remove(&r->link);
	rc_list_remove(&r->due);
	rc_list_remove(&r->in_client);
	rc_map_del(r->o->requests_by_id, id_key(&r->id));
	while (!rc_list_empty(&r->uses))
		rc__om_want_unuse(RC_CONTAINER(r->uses.next, rc__om_use, in_request));
	rc_map_destroy(r->ids);
	free(r);
}

static rc__om_request *request_find(rc_objects *o, uint64_t id, rc__om_kind kind)
{
	rc__om_request *r = rc_map_get(o->requests_by_id, id_key(&id));

	return r && r->kind == kind ? r : NULL;
}

static void make_due(rc__om_request *r)
{
	rc_list_remove(&r->due);
	rc_list_append(&r->o->due, &r->due);
	rc__om_kick(r->o);
}

static bool complete(const rc__om_request *r)
{
	return r->n_local == r->n;
}

/* Into its queue, or out of it; completion is noted. */
static void settle(rc__om_request *r)
{
	bool queued = !rc_list_empty(&r->link);

	if (complete(r) && queued)
		rc_list_remove(&r->link);
	else if (!complete(r) && !queued)
		rc_list_append(&r->o->requests[r->priority], &r->link);
	switch (r->kind) {
	case RC__OM_R_GET:
		break;
	case RC__OM_R_WAIT:
		if (r->n_local >= r->needed)
			make_due(r);
		break;
	case RC__OM_R_FETCH:
		if (complete(r) && !r->told)
			make_due(r);
		break;
	case RC__OM_R_READY:
		if (complete(r))
			make_due(r);
		break;
	}
}

int rc_objects_room(const rc_objects *o, size_t n, rc_error *e)
{
	if (o->n_uses + n <= MAX_USES)
		return 0;
	return rc_fail(e, RC_E_FULL, "%zu more objects: %zu are being waited for already, the limit is %d", n, o->n_uses, MAX_USES);
}

/* Adds those refs that the request does not have yet. A want that is local already counts at once. */
static void add_refs(rc__om_request *r, const rc_object_ref *refs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		rc__om_want *w = rc_map_get_id(r->o->wants, &refs[i].id);
		rc__om_use *u;

		if (r->ids && rc_map_get_id(r->ids, &refs[i].id))
			continue;
		/* Uses are appended, so a duplicate within this call is the want's last. */
		if (!r->ids && w && !rc_list_empty(&w->uses) && RC_CONTAINER(w->uses.prev, rc__om_use, in_want)->request == r)
			continue;
		u = rc__om_want_use(r->o, &refs[i], r);
		if (r->ids)
			rc_map_put_id(r->ids, &u->id, u);
		r->n++;
		r->n_local += u->want->local;
	}
}

/* What is here already is done with. Not within add_refs: duplicates are found by the want. */
static void leave_local(rc__om_request *r)
{
	RC_LIST_FOREACH(l, &r->uses) {
		rc__om_use *u = RC_CONTAINER(l, rc__om_use, in_request);

		if (!u->want || !u->want->local)
			continue;
		if (r->kind != RC__OM_R_GET) {
			rc__om_want_leave(u);
			continue;
		}
		rc_map_del_id(r->ids, &u->id);
		rc__om_want_unuse(u);
		r->n--;
		r->n_local--;
	}
}

static void request_end(rc__om_request *r)
{
	rc_objects *o = r->o;
	client *c = NULL;

	if (!rc_list_empty(&r->in_client) && r->client)
		c = client_find(o, r->client, false);
	if (c && r->kind == RC__OM_R_GET)
		c->get[r->fetch_only] = NULL;
	request_free(r);
	if (c)
		client_maybe_free(o, c);
}

/* ---- from pull.c ---- */

void rc__om_use_local(rc__om_use *u)
{
	rc__om_request *r = u->request;

	if (r->kind == RC__OM_R_GET && r->fetch_only) {
		rc_map_del_id(r->ids, &u->id);
		rc__om_want_unuse(u);
		r->n--;
	} else {
		r->n_local++;
		if (r->kind == RC__OM_R_WAIT || r->kind == RC__OM_R_READY)
			rc__om_want_leave(u);
	}
	settle(r);
}

void rc__om_use_gone(rc__om_use *u)
{
	u->request->n_local--;
	settle(u->request);
}

/* ---- callbacks ---- */

static void finish_wait(rc__om_request *r)
{
	rc_id *ids = rc_alloc((r->n + 1) * sizeof *ids);
	size_t n_found = 0, n_remaining = 0, limit = r->needed < r->n_local ? r->needed : r->n_local;
	rc_wait_fn fn = r->wait_fn;
	void *arg = r->arg;

	for (rc_link *l = r->uses.next; l != &r->uses; l = l->next) {
		rc__om_use *u = RC_CONTAINER(l, rc__om_use, in_request);

		if (!u->want && n_found < limit)
			ids[n_found++] = u->id;
		else
			ids[limit + n_remaining++] = u->id;
	}
	request_free(r);
	fn(arg, ids, n_found, ids + limit, n_remaining);
	free(ids);
}

void rc__om_requests_run(rc_objects *o)
{
	while (!rc_list_empty(&o->due)) {
		rc__om_request *r = RC_CONTAINER(o->due.next, rc__om_request, due);

		rc_list_remove(&r->due);
		switch (r->kind) {
		case RC__OM_R_GET:
			break;
		case RC__OM_R_WAIT:
			finish_wait(r);
			break;
		case RC__OM_R_FETCH:
			if (!complete(r) || r->told)
				break;
			r->told = true;
			r->fetch_fn(r->arg);
			break;
		case RC__OM_R_READY: {
			rc_id id = RC_CONTAINER(r->uses.next, rc__om_use, in_request)->id;
			rc_ready_fn fn = r->ready_fn;
			void *arg = r->arg;

			request_end(r);
			fn(arg, &id);
			break;
		}
		}
	}
}

static void on_wait_timeout(void *arg)
{
	make_due(arg);
}

/* ---- the interface ---- */

uint64_t rc_objects_wait(rc_objects *o, const rc_object_ref *refs, size_t n, size_t needed, int64_t timeout_ms, rc_wait_fn fn, void *arg)
{
	rc__om_request *r = request_new(o, RC__OM_R_WAIT, RC__OM_WAIT, arg);

	r->wait_fn = fn;
	add_refs(r, refs, n);
	leave_local(r);
	r->needed = needed < r->n ? needed : r->n;
	if (timeout_ms == 0)
		make_due(r);
	else if (timeout_ms > 0)
		r->timer = rc_timer_start(o->loop, (uint64_t)timeout_ms, 0, on_wait_timeout, r);
	settle(r);
	return r->id;
}

void rc_objects_wait_cancel(rc_objects *o, uint64_t wait)
{
	rc__om_request *r = request_find(o, wait, RC__OM_R_WAIT);

	if (r)
		request_free(r);
}

void rc_objects_get(rc_objects *o, void *key, const rc_object_ref *refs, size_t n, bool fetch_only)
{
	client *c;
	rc__om_request *r;

	if (n == 0)
		return;
	c = client_find(o, key, true);
	r = c->get[fetch_only];
	if (!r) {
		r = c->get[fetch_only] = request_new(o, RC__OM_R_GET, RC__OM_GET, NULL);
		r->ids = rc_map_create();
		r->fetch_only = fetch_only;
		r->client = key;
		rc_list_append(&c->requests, &r->in_client);
	}
	add_refs(r, refs, n);
	if (fetch_only)
		leave_local(r);
	settle(r);
}

void rc_objects_get_cancel(rc_objects *o, void *key)
{
	client *c = client_find(o, key, false);
	rc__om_request *both[2] = { c ? c->get[0] : NULL, c ? c->get[1] : NULL };

	for (int i = 0; i < 2; i++)
		if (both[i])
			request_end(both[i]);
}

void rc_objects_subscribe_ready(rc_objects *o, void *key, const rc_object_ref *ref, rc_ready_fn fn, void *arg)
{
	client *c;
	rc__om_request *r;

	c = client_find(o, key, true);
	r = request_new(o, RC__OM_R_READY, RC__OM_WAIT, arg);
	r->ready_fn = fn;
	r->client = key;
	rc_list_append(&c->requests, &r->in_client);
	add_refs(r, ref, 1);
	leave_local(r);
	settle(r);
}

void rc_objects_client_gone(rc_objects *o, void *key)
{
	client *c = client_find(o, key, false);

	if (!c)
		return;
	while (!rc_list_empty(&c->requests))
		request_free(RC_CONTAINER(c->requests.next, rc__om_request, in_client));
	client_maybe_free(o, c);
}

uint64_t rc_objects_fetch(rc_objects *o, const rc_object_ref *refs, size_t n, rc_task_fn fn, void *arg)
{
	rc__om_request *r = request_new(o, RC__OM_R_FETCH, RC__OM_ARGS, arg);

	r->fetch_fn = fn;
	add_refs(r, refs, n);
	settle(r);
	return r->id;
}

int rc_objects_fetch_hold(rc_objects *o, uint64_t fetch, rc_error *e)
{
	rc__om_request *r = request_find(o, fetch, RC__OM_R_FETCH);
	rc_store_stats s;
	uint64_t bytes = 0;
	size_t i = 0;

	if (!r)
		return rc_fail(e, RC_E_NOT_FOUND, "fetch %llu does not exist", (unsigned long long)fetch);
	if (r->holds)
		return 0;
	if (!complete(r)) {
		r->told = false;
		return rc_fail(e, RC_E_NOT_FOUND, "%zu of %zu arguments are not here", r->n - r->n_local, r->n);
	}
	r->holds = rc_alloc((r->n + 1) * sizeof *r->holds);
	for (rc_link *l = r->uses.next; l != &r->uses; l = l->next) {
		const rc_hold *h = rc_store_hold(o->store, &RC_CONTAINER(l, rc__om_use, in_request)->id);

		if (!h) { /* cannot be, as long as every seal and loss is told to this module */
			release_holds(r);
			r->told = false;
			return rc_fail(e, RC_E_NOT_FOUND, "an argument is not here");
		}
		r->holds[i++] = h;
		bytes += h->data_size + h->metadata_size;
	}
	rc_store_get_stats(o->store, &s);
	if (bytes > 0 && o->args_held > 0 && (double)(o->args_held + bytes) > o->options.args_memory_fraction * (double)s.capacity) {
		release_holds(r);
		return rc_fail(e, RC_E_FULL, "arguments hold %llu bytes already, %llu more do not fit", (unsigned long long)o->args_held,
		               (unsigned long long)bytes);
	}
	r->held_bytes = bytes;
	o->args_held += bytes;
	return 0;
}

bool rc_objects_fetch_local(rc_objects *o, uint64_t fetch)
{
	rc__om_request *r = request_find(o, fetch, RC__OM_R_FETCH);

	return r && complete(r);
}

void rc_objects_fetch_end(rc_objects *o, uint64_t fetch)
{
	rc__om_request *r = request_find(o, fetch, RC__OM_R_FETCH);

	if (r)
		request_free(r);
}

void rc__om_requests_destroy(rc_objects *o)
{
	size_t i = 0;
	void *value;

	while (rc_map_next(o->requests_by_id, &i, NULL, &value))
		request_free(value);
	i = 0;
	while (rc_map_next(o->clients, &i, NULL, &value))
		free(value);
}
