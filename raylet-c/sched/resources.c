/* One record per resource name; a vector of amounts by index (length 1 for plain resources). Every change goes through
 * shift(), which keeps the count of resources in use, the version and the idle time right.
 *
 * Traps: zero entries stay, since the head reads a missing one as "not there". The CPU may be below 0 after a blocked worker
 * goes on. A bundle's names come and go, and a group's vector may have holes (a bundle that holds devices 1 and 3). */
#include "raylet-c/sched/resources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/loop.h"
#include "raylet-c/base/map.h"

enum { MAX_INSTANCES = 10000 };

static const char implicit_prefix[] = "node:__internal_implicit_resource_"; /* every node has 1 of each such name */
static const char store_name[] = "object_store_memory";

typedef struct resource {
	char *name;
	bool unit, store, implicit;
	size_t n;
	rc_q *total, *available;
	size_t off; /* indices where available is not total */
} resource;

typedef struct group { /* the bundles of one placement group that are committed here */
	struct {
		int index;
		size_t names; /* indexed names that exist */
	} *v; /* by index */
	size_t n;
} group;

struct rc_resources {
	rc_map *by_name; /* resource */
	rc_map *groups;  /* hex -> group */
	char *units;     /* ",GPU,TPU," */
	void (*changed)(void *ctx);
	void *ctx;
	uint64_t (*now_ms)(void);
	size_t in_use; /* resources with off > 0, the object store not counted */
	unsigned marks;
	uint64_t version, totals_version, idle_since_ms;
	const char **activity;
	size_t n_activity;
};

static resource *find(const rc_resources *r, const char *name)
{
	return rc_map_get(r->by_name, rc_view_str(name));
}

static bool is_unit(const rc_resources *r, rc_view base)
{
	char key[128];
	if (base.n + 3 > sizeof(key))
		return false;
	snprintf(key, sizeof(key), ",%.*s,", (int)base.n, (const char *)base.p);
	return strstr(r->units, key) != NULL;
}

static bool busy(const rc_resources *r)
{
	return r->in_use || r->marks;
}

static void touch(rc_resources *r, bool was_busy)
{
	r->version++;
	if (was_busy && !busy(r))
		r->idle_since_ms = r->now_ms();
}

static void tell(rc_resources *r)
{
	if (r->changed)
		r->changed(r->ctx);
}

/* The only place that changes an amount. */
static void shift(rc_resources *r, resource *s, size_t i, rc_q total, rc_q available)
{
	bool was_busy = busy(r), was_off = s->available[i] != s->total[i];
	size_t off = s->off;
	s->total[i] += total;
	s->available[i] += available;
	r->totals_version += total != 0;
	bool is_off = s->available[i] != s->total[i];
	s->off += (size_t)is_off - (size_t)was_off;
	if (!s->store)
		r->in_use += (size_t)(s->off > 0) - (size_t)(off > 0);
	touch(r, was_busy);
}

static void group_count(rc_resources *r, const char *name, int by)
{
	rc_group_name g;
	if (!rc_group_name_parse(name, &g) || g.index < 0)
		return;
	group *p = rc_map_get(r->groups, g.group);
	if (!p) {
		p = rc_alloc(sizeof(*p));
		rc_map_put(r->groups, g.group, p);
	}
	size_t at = 0;
	while (at < p->n && p->v[at].index < g.index)
		at++;
	if (at == p->n || p->v[at].index != g.index) {
		p->v = rc_realloc(p->v, (p->n + 1) * sizeof(*p->v));
		memmove(p->v + at + 1, p->v + at, (p->n - at) * sizeof(*p->v));
		p->v[at].index = g.index;
		p->v[at].names = 0;
		p->n++;
	}
	p->v[at].names += (size_t)by;
	if (p->v[at].names == 0) {
		memmove(p->v + at, p->v + at + 1, (p->n - at - 1) * sizeof(*p->v));
		p->n--;
	}
	if (p->n == 0) {
		rc_map_del(r->groups, g.group);
		free(p->v);
		free(p);
	}
}

static resource *create(rc_resources *r, const char *name)
{
	rc_group_name g;
	resource *s = rc_alloc(sizeof(*s));
	s->name = rc_strdup(name);
	s->store = strcmp(name, store_name) == 0;
	s->unit = is_unit(r, rc_group_name_parse(name, &g) ? g.base : rc_view_str(name));
	rc_map_put(r->by_name, rc_view_str(name), s);
	group_count(r, name, 1);
	return s;
}

static void widen(resource *s, size_t n)
{
	if (n <= s->n)
		return;
	s->total = rc_realloc(s->total, n * sizeof(rc_q));
	s->available = rc_realloc(s->available, n * sizeof(rc_q));
	for (size_t i = s->n; i < n; i++)
		s->total[i] = s->available[i] = 0;
	s->n = n;
}

static void release_memory(resource *s)
{
	free(s->name);
	free(s->total);
	free(s->available);
	free(s);
}

static void destroy(rc_resources *r, resource *s)
{
	bool was_busy = busy(r);
	if (s->off && !s->store)
		r->in_use--;
	group_count(r, s->name, -1);
	rc_map_del(r->by_name, rc_view_str(s->name));
	release_memory(s);
	touch(r, was_busy);
}

rc_resources *rc_resources_create(const rc_amounts *total, const rc_resources_options *options, rc_error *e)
{
	rc_resources *r = rc_alloc(sizeof(*r));
	r->by_name = rc_map_create();
	r->groups = rc_map_create();
	r->now_ms = options && options->now_ms ? options->now_ms : rc_now_ms;
	r->idle_since_ms = r->now_ms();
	r->units = rc_sprintf(",%s,", options && options->unit_instances ? options->unit_instances : "GPU,neuron_cores,TPU,NPU,HPU");
	for (size_t k = 0; k < total->n; k++) {
		rc_q q = total->v[k].q;
		resource *s = create(r, total->v[k].name);
		if (s->unit && (q % RC_Q_ONE || q / RC_Q_ONE > MAX_INSTANCES)) {
			rc_fail(e, RC_E_INVALID, "resources: %s is %.15g; it is counted in whole devices, at most %d", total->v[k].name, rc_q_double(q),
			        MAX_INSTANCES);
			rc_resources_destroy(r);
			return NULL;
		}
		widen(s, s->unit && q ? (size_t)(q / RC_Q_ONE) : 1);
		for (size_t i = 0; i < s->n; i++)
			s->total[i] = s->available[i] = s->unit && q ? RC_Q_ONE : q;
	}
	if (options) {
		r->changed = options->changed;
		r->ctx = options->ctx;
	}
	r->version = r->totals_version = 1;
	return r;
}

void rc_resources_destroy(rc_resources *r)
{
	if (!r)
		return;
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(r->by_name, &i, &key, &value);)
		release_memory(value);
	for (size_t i = 0; rc_map_next(r->groups, &i, &key, &value);) {
		free(((group *)value)->v);
		free(value);
	}
	rc_map_destroy(r->by_name);
	rc_map_destroy(r->groups);
	for (size_t i = 0; i < r->n_activity; i++)
		free((char *)r->activity[i]);
	free(r->activity);
	free(r->units);
	free(r);
}

/* ---- allocation ---- */

/* Which slots of v give q. False: none. ret (may be NULL) gets an allocated array. */
static bool choose(const rc_q *v, size_t n, bool unit, rc_q q, rc_grant *ret)
{
	rc_grant g = { 0 };
	if (!unit || q < RC_Q_ONE) {
		size_t best = SIZE_MAX;
		for (size_t i = 0; i < n; i++)
			if (v[i] >= q && (best == SIZE_MAX || v[i] < v[best]))
				best = i;
		if (best == SIZE_MAX)
			return false;
		if (ret) {
			g.n = 1;
			g.slots = rc_alloc(sizeof(*g.slots));
			g.slots[0] = (rc_slot){ (uint32_t)best, q };
		}
	} else {
		size_t want = (size_t)(q / RC_Q_ONE), whole = 0;
		if (q % RC_Q_ONE)
			return false;
		for (size_t i = 0; i < n; i++)
			whole += v[i] == RC_Q_ONE;
		if (whole < want)
			return false;
		if (ret) {
			g.slots = rc_alloc(want * sizeof(*g.slots));
			for (size_t i = 0; g.n < want; i++)
				if (v[i] == RC_Q_ONE)
					g.slots[g.n++] = (rc_slot){ (uint32_t)i, RC_Q_ONE };
		}
	}
	if (ret) {
		ret->slots = g.slots;
		ret->n = g.n;
	}
	return true;
}

/* Takes the slots off a resource and adds it to the allocation. slots: owned by the allocation afterwards. */
static void take(rc_resources *r, rc_allocation *a, resource *s, rc_slot *slots, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		widen(s, slots[i].index + 1);
		shift(r, s, slots[i].index, 0, -slots[i].q);
	}
	a->v = rc_realloc(a->v, (a->n + 1) * sizeof(*a->v));
	a->v[a->n++] = (rc_grant){ rc_strdup(s->name), slots, n };
}

/* Takes q of name, or with totals only looks whether the total could give it. */
static bool take_plain(rc_resources *r, rc_allocation *a, const char *name, rc_q q, bool totals)
{
	resource *s = find(r, name);
	if (!s && strncmp(name, implicit_prefix, sizeof(implicit_prefix) - 1) == 0) {
		if (totals || q > RC_Q_ONE)
			return q <= RC_Q_ONE;
		s = create(r, name);
		s->implicit = true;
		widen(s, 1);
		shift(r, s, 0, RC_Q_ONE, RC_Q_ONE);
	}
	rc_grant g = { 0 };
	if (!s || !choose(totals ? s->total : s->available, s->n, s->unit, q, totals ? NULL : &g))
		return false;
	if (!totals)
		take(r, a, s, g.slots, g.n);
	return true;
}

static char *indexed_name(const rc_group_name *g, int index)
{
	return rc_sprintf("%.*s_group_%d_%.*s", (int)g->base.n, (const char *)g->base.p, index, (int)g->group.n, (const char *)g->group.p);
}

/* Takes q of a bundle's resource and the same slots of the group's wildcard. */
static bool take_grouped(rc_resources *r, rc_allocation *a, const rc_group_name *g, int index, rc_q q, bool totals)
{
	char *indexed = indexed_name(g, index);
	char *wildcard = rc_sprintf("%.*s_group_%.*s", (int)g->base.n, (const char *)g->base.p, (int)g->group.n, (const char *)g->group.p);
	bool good = take_plain(r, a, indexed, q, totals);
	resource *w = find(r, wildcard);
	if (good && !totals && w) {
		const rc_grant *from = &a->v[a->n - 1];
		rc_slot *slots = rc_alloc(from->n * sizeof(*slots));
		memcpy(slots, from->slots, from->n * sizeof(*slots));
		take(r, a, w, slots, from->n);
	}
	free(indexed);
	free(wildcard);
	return good;
}

/* The demand out of bundle `index` where it names a group. */
static bool take_all(rc_resources *r, rc_allocation *a, const rc_amounts *demand, int index, bool totals)
{
	for (size_t i = 0; i < demand->n; i++) {
		const rc_amount *d = &demand->v[i];
		rc_group_name g;
		if (d->q == 0)
			continue;
		if (!rc_group_name_parse(d->name, &g)) {
			if (!take_plain(r, a, d->name, d->q, totals))
				return false;
			continue;
		}
		if (g.index < 0) { /* nothing to do when the bundle's own name is asked for too */
			char *indexed = indexed_name(&g, index);
			bool twice = rc_amounts_get(demand, indexed) > 0;
			free(indexed);
			if (twice)
				continue;
		} else if (g.index != index) {
			return false; /* two bundles in one demand */
		}
		if (!take_grouped(r, a, &g, index, d->q, totals))
			return false;
	}
	return true;
}

/* The group that a demand names, and the bundle when it names one (else -1). False: it names none. */
static bool group_of(const rc_amounts *demand, rc_group_name *ret)
{
	bool found = false;
	for (size_t i = 0; i < demand->n; i++) {
		rc_group_name g;
		if (demand->v[i].q == 0 || !rc_group_name_parse(demand->v[i].name, &g))
			continue;
		if (!found || g.index >= 0)
			*ret = g;
		found = true;
	}
	return found;
}

static void empty(rc_resources *r, rc_allocation *a)
{
	for (size_t k = 0; k < a->n; k++) {
		rc_grant *g = &a->v[k];
		resource *s = find(r, g->name);
		if (s && !(a->cpu_released && rc_is_cpu(g->name))) {
			for (size_t i = 0; i < g->n; i++)
				shift(r, s, g->slots[i].index, 0, g->slots[i].q);
			if (s->implicit && s->off == 0)
				destroy(r, s);
		}
		free(g->name);
		free(g->slots);
	}
	free(a->v);
	*a = (rc_allocation){ 0 };
}

/* One attempt; a stays empty on failure. */
static bool attempt(rc_resources *r, rc_allocation *a, const rc_amounts *demand, int index, bool totals)
{
	if (take_all(r, a, demand, index, totals))
		return true;
	empty(r, a);
	return false;
}

static bool meet(rc_resources *r, rc_allocation *a, const rc_amounts *demand, bool totals)
{
	rc_group_name g;
	bool grouped = group_of(demand, &g);
	if (!grouped || g.index >= 0)
		return attempt(r, a, demand, grouped ? g.index : -1, totals);
	const group *p = rc_map_get(r->groups, g.group);
	for (size_t i = 0; p && i < p->n; i++)
		if (attempt(r, a, demand, p->v[i].index, totals))
			return true;
	return false;
}

rc_allocation *rc_resources_allocate(rc_resources *r, const rc_amounts *demand)
{
	rc_allocation *a = rc_alloc(sizeof(*a));
	uint64_t version = r->version;
	bool was_busy = busy(r);
	uint64_t idle_since = r->idle_since_ms;
	if (!meet(r, a, demand, false)) {
		r->version = version; /* tried and undone: nothing has changed */
		if (!was_busy)
			r->idle_since_ms = idle_since;
		free(a);
		return NULL;
	}
	if (r->version != version)
		tell(r);
	return a;
}

void rc_resources_give_back(rc_resources *r, rc_allocation *a)
{
	uint64_t version = r->version;
	empty(r, a);
	if (r->version != version)
		tell(r);
}

void rc_resources_free(rc_resources *r, rc_allocation *a)
{
	if (!a)
		return;
	rc_resources_give_back(r, a);
	free(a);
}

static void move_cpu(rc_resources *r, rc_allocation *a, bool lend)
{
	if (a->cpu_released == lend)
		return;
	a->cpu_released = lend;
	uint64_t version = r->version;
	for (size_t k = 0; k < a->n; k++) {
		resource *s = rc_is_cpu(a->v[k].name) ? find(r, a->v[k].name) : NULL;
		for (size_t i = 0; s && i < a->v[k].n; i++)
			shift(r, s, a->v[k].slots[i].index, 0, lend ? a->v[k].slots[i].q : -a->v[k].slots[i].q);
	}
	if (r->version != version)
		tell(r);
}

void rc_resources_lend_cpu(rc_resources *r, rc_allocation *a)
{
	move_cpu(r, a, true);
}

void rc_resources_retake_cpu(rc_resources *r, rc_allocation *a)
{
	move_cpu(r, a, false);
}

bool rc_resources_feasible(const rc_resources *r, const rc_amounts *demand)
{
	rc_allocation none = { 0 };
	return meet((rc_resources *)r, &none, demand, true); /* totals: only looks */
}

bool rc_resources_fits(const rc_resources *r, const rc_amounts *demand)
{
	/* Takes and gives back, which leaves everything as it was. */
	rc_resources *w = (rc_resources *)r;
	rc_allocation a = { 0 };
	uint64_t version = w->version, idle_since = w->idle_since_ms;
	bool good = meet(w, &a, demand, false);
	empty(w, &a);
	w->version = version;
	w->idle_since_ms = idle_since;
	return good;
}

/* ---- totals ---- */

void rc_resources_add(rc_resources *r, const char *name, const rc_q *amounts, size_t n)
{
	resource *s = find(r, name);
	if (!s)
		s = create(r, name);
	widen(s, n ? n : 1);
	for (size_t i = 0; i < n; i++)
		shift(r, s, i, amounts[i], amounts[i]);
	tell(r);
}

void rc_resources_subtract(rc_resources *r, const char *name, const rc_q *amounts, size_t n)
{
	resource *s = find(r, name);
	if (!s)
		return;
	bool any = false;
	for (size_t i = 0; i < n && i < s->n; i++)
		shift(r, s, i, -amounts[i], -amounts[i]);
	for (size_t i = 0; i < s->n; i++)
		any = any || s->total[i] > 0;
	if (!any)
		destroy(r, s);
	tell(r);
}

int rc_resources_resize(rc_resources *r, const char *name, rc_q total, rc_error *e)
{
	if (is_unit(r, rc_view_str(name)))
		return rc_fail(e, RC_E_INVALID, "Cannot resize unit instance resource '%s': devices that are counted one by one (GPU and its kind) "
		               "keep their number while the node runs.", name);
	resource *s = find(r, name);
	if (!s) {
		rc_resources_add(r, name, &total, 1);
		return 0;
	}
	rc_q least = s->available[0] > 0 ? s->total[0] - s->available[0] : s->total[0];
	rc_q by = (total > least ? total : least) - s->total[0];
	if (by) {
		shift(r, s, 0, by, by);
		tell(r);
	}
	return 0;
}

void rc_resources_set_store_used(rc_resources *r, uint64_t bytes)
{
	resource *s = find(r, store_name);
	if (!s)
		return;
	rc_q used = bytes > (uint64_t)(RC_Q_MAX / RC_Q_ONE) ? RC_Q_MAX : (rc_q)bytes * RC_Q_ONE;
	rc_q available = used < s->total[0] ? s->total[0] - used : 0;
	if (available == s->available[0])
		return;
	shift(r, s, 0, 0, available - s->available[0]);
	tell(r);
}

static rc_q sum(const rc_q *v, size_t n)
{
	rc_q q = 0;
	for (size_t i = 0; i < n; i++)
		q += v[i];
	return q;
}

void rc_resources_totals(const rc_resources *r, rc_amounts *ret)
{
	rc_view key;
	void *value;
	rc_amounts_free(ret);
	for (size_t i = 0; rc_map_next(r->by_name, &i, &key, &value);) {
		const resource *s = value;
		rc_amounts_set(ret, s->name, sum(s->total, s->n));
	}
}

void rc_resources_available(const rc_resources *r, rc_amounts *ret)
{
	rc_view key;
	void *value;
	rc_amounts_free(ret);
	for (size_t i = 0; rc_map_next(r->by_name, &i, &key, &value);) {
		const resource *s = value;
		rc_q q = sum(s->available, s->n);
		rc_amounts_set(ret, s->name, q > 0 ? q : 0);
	}
}

rc_q rc_resources_total(const rc_resources *r, const char *name)
{
	const resource *s = find(r, name);
	return s ? sum(s->total, s->n) : 0;
}

rc_q rc_resources_available_of(const rc_resources *r, const char *name)
{
	const resource *s = find(r, name);
	return s ? sum(s->available, s->n) : 0;
}

bool rc_resources_exists(const rc_resources *r, const char *name)
{
	return find(r, name) != NULL;
}

uint64_t rc_resources_version(const rc_resources *r)
{
	return r->version;
}

uint64_t rc_resources_totals_version(const rc_resources *r)
{
	return r->totals_version;
}

double rc_resources_utilization(const rc_resources *r)
{
	static const char *const names[] = { "CPU", "memory", store_name };
	double most = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		rc_q total = rc_resources_total(r, names[i]);
		double used = total > 0 ? 1 - (double)rc_resources_available_of(r, names[i]) / (double)total : 0;
		most = used > most ? used : most;
	}
	return most;
}

/* ---- idleness ---- */

void rc_resources_mark(rc_resources *r, unsigned flag, bool on)
{
	unsigned marks = on ? r->marks | flag : r->marks & ~flag;
	if (marks == r->marks)
		return;
	bool was_busy = busy(r);
	r->marks = marks;
	touch(r, was_busy);
	tell(r);
}

bool rc_resources_idle(const rc_resources *r)
{
	return !busy(r);
}

uint64_t rc_resources_idle_ms(const rc_resources *r)
{
	uint64_t now = r->now_ms();
	return busy(r) || now < r->idle_since_ms ? 0 : now - r->idle_since_ms;
}

static void say(rc_resources *r, char *sentence)
{
	r->activity = rc_realloc(r->activity, (r->n_activity + 1) * sizeof(*r->activity));
	r->activity[r->n_activity++] = sentence;
}

size_t rc_resources_activity(rc_resources *r, const char *const **ret)
{
	for (size_t i = 0; i < r->n_activity; i++)
		free((char *)r->activity[i]);
	r->n_activity = 0;
	if (r->marks & RC_BUSY_WORKERS)
		say(r, rc_strdup("Busy workers on node."));
	if (r->marks & RC_BUSY_ARGS)
		say(r, rc_strdup("Pulling task arguments."));
	if (r->marks & RC_BUSY_STORE)
		say(r, rc_sprintf("Resource: %s currently in use.", store_name));
	rc_view key;
	void *value;
	for (size_t i = 0; r->in_use && rc_map_next(r->by_name, &i, &key, &value);) {
		const resource *s = value;
		if (s->off && !s->store)
			say(r, rc_sprintf("Resource: %s currently in use.", s->name));
	}
	*ret = r->activity;
	return r->n_activity;
}

void rc_resources_print(const rc_resources *r, rc_buf *out)
{
	rc_amounts total = { 0 };
	rc_resources_totals(r, &total); /* for the order */
	for (size_t k = 0; k < total.n; k++) {
		const resource *s = find(r, total.v[k].name);
		rc_buf_printf(out, "%s: ", s->name);
		for (size_t i = 0; i < s->n; i++)
			rc_buf_printf(out, "%s%.15g/%.15g", i ? ", " : "", rc_q_double(s->available[i]), rc_q_double(s->total[i]));
		rc_buf_str(out, "\n");
	}
	rc_buf_printf(out, "in use: %zu resources; marks: %u; version: %llu\n", r->in_use, r->marks, (unsigned long long)r->version);
	rc_amounts_free(&total);
}
