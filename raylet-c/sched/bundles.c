/* A map of the bundles that are prepared or committed, and a list of removed ones that leases still hold. A bundle is counted
 * once more while it is being removed, so that whatever the removal triggers cannot free it under our hands. */
#include "raylet-c/sched/bundles.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/base/map.h"

#define BUNDLE_UNITS (1000 * RC_Q_ONE) /* of "bundle", Ray's own resource of every bundle */

struct rc_bundles {
	rc_resources *resources;
	rc_map *by_id;
	rc_link removed;
	size_t n_removed;
	bool draining;
	rc_bundle_removed_fn fn;
	void *ctx;
};

typedef struct id_key {
	uint8_t b[RC_ID_MAX + sizeof(int32_t)];
	size_t n;
} id_key;

static id_key key_of(const rc_bundle_id *id)
{
	id_key k;
	int32_t index = id->index;
	memcpy(k.b, id->group.b, id->group.n);
	memcpy(k.b + id->group.n, &index, sizeof(index));
	k.n = id->group.n + sizeof(index);
	return k;
}

rc_bundles *rc_bundles_create(rc_resources *resources)
{
	rc_bundles *b = rc_alloc(sizeof(*b));
	b->resources = resources;
	b->by_id = rc_map_create();
	rc_list_init(&b->removed);
	return b;
}

static void free_bundle(rc_bundles *b, rc_bundle *p)
{
	rc_resources_free(b->resources, p->held);
	rc_amounts_free(&p->resources);
	free(p);
}

void rc_bundles_destroy(rc_bundles *b)
{
	if (!b)
		return;
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(b->by_id, &i, &key, &value);)
		free_bundle(b, value);
	RC_LIST_FOREACH(link, &b->removed)
		free_bundle(b, RC_CONTAINER(link, rc_bundle, link_));
	rc_map_destroy(b->by_id);
	free(b);
}

void rc_bundles_on_removed(rc_bundles *b, rc_bundle_removed_fn fn, void *ctx)
{
	b->fn = fn;
	b->ctx = ctx;
}

void rc_bundles_set_draining(rc_bundles *b, bool draining)
{
	b->draining = draining;
}

rc_bundle *rc_bundle_find(rc_bundles *b, const rc_bundle_id *id)
{
	id_key k = key_of(id);
	return rc_map_get(b->by_id, rc_view_of(k.b, k.n));
}

/* ---- the names under which a committed bundle is offered ---- */

static void publish(rc_bundles *b, const rc_bundle *p, bool add)
{
	for (size_t k = 0; k <= p->held->n; k++) {
		static const rc_slot units = { 0, BUNDLE_UNITS };
		const rc_grant own = { .name = (char *)"bundle", .slots = (rc_slot *)&units, .n = 1 };
		const rc_grant *g = k < p->held->n ? &p->held->v[k] : &own;
		size_t n = g->n ? g->slots[g->n - 1].index + 1u : 0;
		rc_q *amounts = rc_alloc((n + 1) * sizeof(*amounts));
		for (size_t i = 0; i < g->n; i++)
			amounts[g->slots[i].index] = g->slots[i].q;
		char *names[] = { rc_group_name_make(g->name, &p->id.group, p->id.index), rc_group_name_make(g->name, &p->id.group, -1) };
		for (size_t i = 0; i < 2; i++) {
			if (add)
				rc_resources_add(b->resources, names[i], amounts, n);
			else
				rc_resources_subtract(b->resources, names[i], amounts, n);
			free(names[i]);
		}
		free(amounts);
	}
}

/* ---- prepare, commit, remove ---- */

static rc_bundle_id id_of(const Rw__Bundle *spec)
{
	rc_bundle_id id = { { 0 }, -1 };
	if (spec->bundle_id) {
		id.group = RC_GET_ID(spec->bundle_id, placement_group_id);
		id.index = RC_GET(spec->bundle_id, bundle_index);
	}
	return id;
}

static int check_id(const rc_bundle_id *id, rc_error *e)
{
	if (id->group.n != RC_PG_ID)
		return rc_fail(e, RC_E_INVALID, "bundle: the placement group id has %d bytes, not %d", id->group.n, RC_PG_ID);
	if (id->index < 0)
		return rc_fail(e, RC_E_INVALID, "bundle of %s: the index is %d", rc_id_to_hex(&id->group).s, id->index);
	return 0;
}

int rc_bundle_prepare(rc_bundles *b, const rc_bundle_id *id, const rc_amounts *resources, rc_error *e)
{
	if (check_id(id, e) < 0)
		return -1;
	rc_bundle *p = rc_bundle_find(b, id);
	if (p && p->state == RC_BUNDLE_COMMITTED)
		return 0;
	if (p && rc_amounts_eq(&p->resources, resources))
		return 0;
	if (p)
		rc_bundle_remove(b, id); /* another demand under the same id: the earlier one is stale */
	if (b->draining)
		return rc_fail(e, RC_E_UNAVAILABLE, "bundle %d of %s: the node is draining", id->index, rc_id_to_hex(&id->group).s);
	if (rc_bundles_count(b) + b->n_removed >= RC_MAX_BUNDLES)
		return rc_fail(e, RC_E_FULL, "bundle %d of %s: the node has %d bundles already", id->index, rc_id_to_hex(&id->group).s, RC_MAX_BUNDLES);
	rc_allocation *held = rc_resources_allocate(b->resources, resources);
	if (!held) {
		rc_buf text = { 0 };
		rc_amounts_print(resources, &text);
		rc_fail(e, RC_E_NO_MEMORY, "bundle %d of %s: %s is not free", id->index, rc_id_to_hex(&id->group).s, rc_buf_cstr(&text));
		rc_buf_free(&text);
		return -1;
	}
	p = rc_alloc(sizeof(*p));
	p->id = *id;
	p->state = RC_BUNDLE_PREPARED;
	p->held = held;
	rc_amounts_copy(&p->resources, resources);
	rc_list_init(&p->link_);
	id_key k = key_of(id);
	rc_map_put(b->by_id, rc_view_of(k.b, k.n), p);
	return 0;
}

void rc_bundle_commit(rc_bundles *b, const rc_bundle_id *id)
{
	rc_bundle *p = rc_bundle_find(b, id);
	if (!p) {
		rc_info("commit of bundle %d of %s: it is not here any more (removed meanwhile)", id->index, rc_id_to_hex(&id->group).s);
		return;
	}
	if (p->state == RC_BUNDLE_COMMITTED)
		return;
	p->state = RC_BUNDLE_COMMITTED;
	publish(b, p, true);
}

void rc_bundle_ref(rc_bundle *bundle)
{
	bundle->users++;
}

void rc_bundle_unref(rc_bundles *b, rc_bundle *p)
{
	if (--p->users > 0 || p->state != RC_BUNDLE_REMOVED)
		return;
	rc_list_remove(&p->link_);
	b->n_removed--;
	free_bundle(b, p);
}

void rc_bundle_remove(rc_bundles *b, const rc_bundle_id *id)
{
	rc_bundle *p = rc_bundle_find(b, id);
	if (!p)
		return;
	bool committed = p->state == RC_BUNDLE_COMMITTED;
	id_key k = key_of(id);
	rc_map_del(b->by_id, rc_view_of(k.b, k.n));
	p->state = RC_BUNDLE_REMOVED;
	rc_list_append(&b->removed, &p->link_);
	b->n_removed++;
	rc_bundle_ref(p);
	if (committed) {
		if (b->fn)
			b->fn(b->ctx, p);
		publish(b, p, false);
	}
	rc_bundle_unref(b, p);
}

int rc_bundles_prepare(rc_bundles *b, Rw__Bundle *const *specs, size_t n, rc_error *e)
{
	for (size_t i = 0; i < n; i++) {
		rc_bundle_id id = id_of(specs[i]);
		rc_amounts resources = { 0 };
		int bad = rc_amounts_from_map((const Rw__MapStringDouble *const *)specs[i]->unit_resources, specs[i]->n_unit_resources,
		                              "bundle: unit_resources", &resources, e);
		rc_amounts_drop_zeros(&resources);
		bad = bad || rc_bundle_prepare(b, &id, &resources, e) < 0;
		rc_amounts_free(&resources);
		if (!bad)
			continue;
		for (size_t k = 0; k < i; k++) {
			rc_bundle_id earlier = id_of(specs[k]);
			const rc_bundle *p = rc_bundle_find(b, &earlier);
			if (p && p->state == RC_BUNDLE_PREPARED)
				rc_bundle_remove(b, &earlier);
		}
		return -1;
	}
	return 0;
}

void rc_bundles_commit(rc_bundles *b, Rw__Bundle *const *specs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		rc_bundle_id id = id_of(specs[i]);
		rc_bundle_commit(b, &id);
	}
}

void rc_bundles_remove(rc_bundles *b, Rw__Bundle *const *specs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		rc_bundle_id id = id_of(specs[i]);
		rc_bundle_remove(b, &id);
	}
}

void rc_bundles_keep_only(rc_bundles *b, Rw__Bundle *const *in_use, size_t n)
{
	rc_map *keep = rc_map_create();
	for (size_t i = 0; i < n; i++) {
		rc_bundle_id id = id_of(in_use[i]);
		id_key k = key_of(&id);
		rc_map_put(keep, rc_view_of(k.b, k.n), b);
	}
	/* Removing calls out, so the ids are collected first. */
	size_t n_gone = 0, count = rc_bundles_count(b);
	rc_bundle_id *gone = count ? rc_alloc(count * sizeof(*gone)) : NULL;
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(b->by_id, &i, &key, &value);)
		if (!rc_map_get(keep, key))
			gone[n_gone++] = ((rc_bundle *)value)->id;
	for (size_t i = 0; i < n_gone; i++)
		rc_bundle_remove(b, &gone[i]);
	free(gone);
	rc_map_destroy(keep);
}

/* ---- questions ---- */

bool rc_bundles_has_group(const rc_bundles *b, const rc_id *group)
{
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(b->by_id, &i, &key, &value);) {
		const rc_bundle *p = value;
		if (p->state == RC_BUNDLE_COMMITTED && rc_id_eq(&p->id.group, group))
			return true;
	}
	return false;
}

rc_bundle *rc_bundle_of(rc_bundles *b, const rc_allocation *a)
{
	for (size_t k = 0; k < a->n; k++) {
		rc_group_name g;
		if (!rc_group_name_parse(a->v[k].name, &g) || g.index < 0)
			continue;
		char hex[2 * RC_PG_ID + 1];
		memcpy(hex, g.group.p, 2 * RC_PG_ID);
		hex[2 * RC_PG_ID] = 0;
		rc_bundle_id id = { rc_id_from_hex(hex), g.index };
		return rc_bundle_find(b, &id);
	}
	return NULL;
}

size_t rc_bundles_count(const rc_bundles *b)
{
	return rc_map_count(b->by_id);
}

const rc_bundle *rc_bundles_next(const rc_bundles *b, size_t *i)
{
	rc_view key;
	void *value;
	return rc_map_next(b->by_id, i, &key, &value) ? value : NULL;
}

const char *rc_bundle_state_name(rc_bundle_state s)
{
	static const char *const names[] = { "prepared", "committed", "removed" };
	return names[s];
}

void rc_bundles_print(const rc_bundles *b, rc_buf *out)
{
	const rc_bundle *p;
	rc_buf_printf(out, "bundles: %zu, removed and still held: %zu\n", rc_bundles_count(b), b->n_removed);
	for (size_t i = 0; (p = rc_bundles_next(b, &i));) {
		rc_buf_printf(out, "  %s %d: %s, %zu leases, ", rc_id_to_hex(&p->id.group).s, p->id.index, rc_bundle_state_name(p->state), p->users);
		rc_amounts_print(&p->resources, out);
		rc_buf_str(out, "\n");
	}
}
