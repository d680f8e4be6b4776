/* What waits here, by shape, for the autoscaler; backlogs that owners report; what a grant looks like on the wire; debug text. */
#include "raylet-c/sched/leases_internal.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum { MAX_BACKLOG = 1000000000 };

/* ---- backlogs ---- */

void rc_leases_backlog_clear(rc_leases *l, const rc_id *worker_id)
{
	rc_backlog *b = rc_map_del_id(l->backlogs, worker_id);
	if (!b)
		return;
	for (size_t i = 0; i < b->n; i++) {
		b->v[i].class->backlog -= b->v[i].size;
		rc__class_put(l, b->v[i].class);
	}
	l->n_backlogs -= b->n;
	free(b->v);
	free(b);
}

void rc__backlog_node_dead(rc_leases *l, const rc_id *node_id)
{
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(l->backlogs, &i, &key, &value);)
		if (rc_id_eq(&((rc_backlog *)value)->node_id, node_id)) {
			rc_id worker = rc_id_from(key.p, key.n);
			rc_leases_backlog_clear(l, &worker); /* deleting the current entry is allowed */
		}
}

void rc_leases_backlog_set(rc_leases *l, const rc_id *worker_id, rc_lease_spec *spec, int64_t size)
{
	size = size < 0 ? 0 : size > MAX_BACKLOG ? MAX_BACKLOG : size;
	rc_backlog *b = rc_map_get_id(l->backlogs, worker_id);
	rc_lease_class *class = rc__class_get(l, spec);
	size_t at = 0;
	while (b && at < b->n && b->v[at].class != class)
		at++;
	bool known = b && at < b->n;
	if (known) {
		class->backlog += size - b->v[at].size;
		b->v[at].size = size;
	} else if (size > 0 && worker_id->n > 0) {
		if (l->n_backlogs >= RC_MAX_BACKLOG_REPORTS) {
			if (!l->backlog_full)
				rc_warn("backlog reports: more than %d; the load that the autoscaler sees is too small", RC_MAX_BACKLOG_REPORTS);
			l->backlog_full = true;
		} else {
			if (!b) {
				b = rc_alloc(sizeof(*b));
				b->node_id = spec->owner.node_id;
				rc_map_put_id(l->backlogs, worker_id, b);
			}
			b->v = rc_realloc(b->v, (b->n + 1) * sizeof(*b->v));
			b->v[b->n].class = class;
			b->v[b->n++].size = size;
			class->backlog += size;
			class->refs++;
			l->n_backlogs++;
		}
	}
	rc__class_put(l, class);
	rc_lease_spec_free(spec);
}

/* ---- load ---- */

/* One ResourceDemand and what it points to. */
typedef struct demand {
	Rw__ResourceDemand m;
	rc_amounts shape;
	rc_amount_map map;
	Rw__LabelSelector *selectors[1];
} demand;

static demand *demand_of(rc_map *seen, rc_load *ret, const rc_leases *l, const rc_lease_class *class)
{
	rc_buf key = { 0 };
	rc_amounts_print(&class->placement, &key);
	rc_selector_print(&class->selector, &key);
	demand *d = rc_map_get(seen, rc_view_of(key.p, key.n));
	if (!d && ret->by_shape.n_resource_demands < l->c.max_shapes) {
		d = rc_alloc(sizeof(*d));
		rw__resource_demand__init(&d->m);
		rc_amounts_copy(&d->shape, &class->placement);
		d->map = rc_amount_map_make(&d->shape);
		d->m.shape = d->map.v;
		d->m.n_shape = d->map.n;
		RC_SET(d->m, num_ready_requests_queued, 0);
		RC_SET(d->m, num_infeasible_requests_queued, 0);
		RC_SET(d->m, backlog_size, 0);
		if (class->selector.n) {
			d->selectors[0] = rc_selector_message(l->c.dialect, &class->selector);
			d->m.label_selectors = d->selectors;
			d->m.n_label_selectors = 1;
		}
		ret->by_shape.resource_demands[ret->by_shape.n_resource_demands++] = &d->m;
		rc_map_put(seen, rc_view_of(key.p, key.n), d);
	}
	rc_buf_free(&key);
	return d;
}

void rc_leases_load(const rc_leases *l, rc_load *ret)
{
	*ret = (rc_load){ .by_shape = RW__RESOURCE_LOAD__INIT };
	rc_map *seen = rc_map_create();
	rc_view key;
	void *value;
	ret->by_shape.resource_demands = rc_alloc((l->c.max_shapes + 1) * sizeof(*ret->by_shape.resource_demands));
	for (size_t i = 0; rc_map_next(l->classes, &i, &key, &value);) {
		const rc_lease_class *class = value;
		size_t ready = class->n_ready + class->n_fetching;
		if (!ready && !class->n_unplaced && !class->backlog)
			continue;
		demand *d = demand_of(seen, ret, l, class);
		if (d) {
			d->m.num_ready_requests_queued += ready;
			d->m.num_infeasible_requests_queued += class->n_unplaced;
			d->m.backlog_size += class->backlog;
		}
		for (size_t k = 0; k < class->placement.n; k++) {
			const rc_amount *a = &class->placement.v[k];
			rc_q sum = rc_amounts_get(&ret->total_, a->name), all;
			bool huge = __builtin_mul_overflow(a->q, (rc_q)(ready + class->n_unplaced), &all) || __builtin_add_overflow(sum, all, &sum);
			rc_amounts_set(&ret->total_, a->name, huge || sum > RC_Q_MAX ? RC_Q_MAX : sum);
		}
	}
	rc_map_destroy(seen);
	ret->total = rc_amount_map_make(&ret->total_);
}

void rc_load_free(rc_load *load)
{
	for (size_t i = 0; i < load->by_shape.n_resource_demands; i++) {
		demand *d = RC_CONTAINER(load->by_shape.resource_demands[i], demand, m);
		rc_amount_map_free(&d->map);
		rc_amounts_free(&d->shape);
		rc_selector_message_free(d->selectors[0]);
		free(d);
	}
	free(load->by_shape.resource_demands);
	rc_amount_map_free(&load->total);
	rc_amounts_free(&load->total_);
	*load = (rc_load){ 0 };
}

/* ---- a grant on the wire ---- */

rc_lease_mapping rc_lease_mapping_make(const rc_allocation *a)
{
	rc_lease_mapping map = { 0 };
	map.v = rc_alloc((a->n + 1) * sizeof(*map.v));
	for (size_t k = 0; k < a->n; k++) {
		const rc_grant *g = &a->v[k];
		/* One block: the entry, pointers, ids. */
		Rw__ResourceMapEntry *entry = rc_alloc(sizeof(*entry) + g->n * (sizeof(Rw__ResourceId *) + sizeof(Rw__ResourceId)));
		rw__resource_map_entry__init(entry);
		entry->name = g->name;
		entry->n_resource_ids = g->n;
		entry->resource_ids = (Rw__ResourceId **)(entry + 1);
		Rw__ResourceId *ids = (Rw__ResourceId *)(entry->resource_ids + g->n);
		for (size_t i = 0; i < g->n; i++) {
			rw__resource_id__init(&ids[i]);
			RC_SET(ids[i], index, g->slots[i].index);
			RC_SET(ids[i], quantity, rc_q_double(g->slots[i].q));
			entry->resource_ids[i] = &ids[i];
		}
		map.v[map.n++] = entry;
	}
	return map;
}

void rc_lease_mapping_free(rc_lease_mapping *m)
{
	for (size_t i = 0; i < m->n; i++)
		free(m->v[i]);
	free(m->v);
	*m = (rc_lease_mapping){ 0 };
}

/* ---- debug ---- */

void rc_leases_print(const rc_leases *l, rc_buf *out)
{
	rc_view key;
	void *value;
	rc_buf_printf(out, "leases: %zu waiting (%zu fetch arguments), %zu granted\n", l->n_waiting, l->n_fetching, l->n_granted);
	rc_buf_printf(out, "since the start: %llu granted, %llu spilled, %llu rejected, %llu canceled\n", (unsigned long long)l->count_granted,
	              (unsigned long long)l->count_spilled, (unsigned long long)l->count_rejected, (unsigned long long)l->count_canceled);
	rc_buf_printf(out, "draining: %s; backlog reports: %zu; classes: %zu\n", l->policy.draining ? "yes" : "no", l->n_backlogs,
	              rc_map_count(l->classes));
	size_t shown = 0;
	for (size_t i = 0; shown < 50 && rc_map_next(l->classes, &i, &key, &value); shown++) {
		const rc_lease_class *class = value;
		rc_buf_printf(out, "  %zu infeasible, %zu fetching, %zu ready, %zu held, backlog %lld: ", class->n_unplaced, class->n_fetching,
		              class->n_ready, class->held, (long long)class->backlog);
		rc_amounts_print(&class->placement, out);
		rc_buf_str(out, "\n");
	}
}
