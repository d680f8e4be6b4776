/* All strategies choose from one list of candidates: the nodes that can ever take the demand and match the selector, this
 * one among them unless it drains. */
#include "raylet-c/sched/policy.h"

#include <stdlib.h>
#include <string.h>

typedef struct candidate {
	rc_node *node; /* NULL: this one */
	const rc_id *id;
	const rc_labels *labels;
	bool fits, gpu;
	double score;
} candidate;

typedef struct candidates {
	candidate *v;
	size_t n, n_nodes; /* n_nodes: all nodes looked at */
	const candidate *local; /* in v, or NULL */
} candidates;

static uint64_t next_random(rc_policy *p)
{
	p->random = p->random * 6364136223846793005u + 1442695040888963407u;
	return p->random >> 33;
}

static double score_of(const rc_policy *p, double utilization)
{
	return utilization < p->config->spread_threshold ? 0 : utilization;
}

static int by_id(const void *a, const void *b)
{
	return memcmp(((const candidate *)a)->id->b, ((const candidate *)b)->id->b, RC_NODE_ID);
}

static int by_score(const void *a, const void *b)
{
	const candidate *x = a, *y = b;
	if (x->score != y->score)
		return x->score < y->score ? -1 : 1;
	return by_id(a, b);
}

/* Sorted by id. Free c.v. */
static candidates collect(const rc_policy *p, const rc_amounts *demand, const rc_selector *selector)
{
	const rc_leases_config *c = p->config;
	candidates s = { .n_nodes = 1 };
	size_t cap = 8;
	s.v = rc_alloc(cap * sizeof(*s.v));
	if (!p->draining && rc_selector_match(selector, c->labels) && rc_resources_feasible(c->resources, demand))
		s.v[s.n++] = (candidate){ NULL, &c->self, c->labels, rc_resources_fits(c->resources, demand),
		                          rc_resources_total(c->resources, "GPU") > 0, score_of(p, rc_resources_utilization(c->resources)) };
	size_t i = 0;
	for (rc_node *n; (n = rc_cluster_next(c->cluster, &i)) != NULL;) {
		s.n_nodes++;
		if (n->draining || !rc_selector_match(selector, &n->labels) || !rc_node_feasible(n, demand))
			continue;
		if (s.n == cap)
			s.v = rc_realloc(s.v, (cap *= 2) * sizeof(*s.v));
		s.v[s.n++] = (candidate){ n, &n->id, &n->labels, rc_node_fits(n, demand) && !n->pulls_queued, rc_amounts_get(&n->total, "GPU") > 0,
		                          score_of(p, rc_node_utilization(n)) };
	}
	qsort(s.v, s.n, sizeof(*s.v), by_id);
	for (size_t k = 0; k < s.n; k++)
		if (!s.v[k].node)
			s.local = &s.v[k];
	return s;
}

static rc_place place_on(const candidate *c)
{
	if (!c)
		return (rc_place){ RC_PLACE_INFEASIBLE, NULL, false };
	return (rc_place){ c->node ? RC_PLACE_REMOTE : RC_PLACE_LOCAL, c->node, c->fits };
}

/* Which of the candidates to consider: bits. */
enum { FITS = 1, NO_GPU = 2 };

/* The best by score; this node when it ties. NULL: none is left by the filter. */
static const candidate *best(rc_policy *p, const candidates *s, unsigned filter)
{
	candidate *v = rc_alloc((s->n + 1) * sizeof(*v));
	const candidate *local = NULL, *chosen = NULL;
	size_t n = 0;
	for (size_t i = 0; i < s->n; i++) {
		if (((filter & FITS) && !s->v[i].fits) || ((filter & NO_GPU) && s->v[i].gpu))
			continue;
		if (!s->v[i].node)
			local = &s->v[i];
		v[n++] = s->v[i];
	}
	if (n) {
		qsort(v, n, sizeof(*v), by_score);
		size_t k = (size_t)((double)s->n_nodes * p->config->top_k_fraction);
		k = k < 1 ? 1 : k > n ? n : k;
		chosen = local && local->score <= v[0].score ? local : NULL;
		const candidate *pick = &v[next_random(p) % k];
		for (size_t i = 0; !chosen && i < s->n; i++)
			if (s->v[i].node == pick->node)
				chosen = &s->v[i];
	}
	free(v);
	return chosen;
}

static rc_place hybrid(rc_policy *p, const candidates *s, const rc_amounts *demand, bool prefer_local)
{
	if (prefer_local && s->local && s->local->fits)
		return place_on(s->local);
	const candidate *c = NULL;
	if (p->config->avoid_gpu_nodes && rc_amounts_get(demand, "GPU") == 0)
		c = best(p, s, FITS | NO_GPU);
	if (!c)
		c = best(p, s, FITS);
	if (!c)
		c = s->local ? s->local : best(p, s, 0);
	return place_on(c);
}

static rc_place spread(rc_policy *p, const candidates *s, bool prefer_local)
{
	if (s->n == 0 || (prefer_local && s->local))
		return place_on(s->local);
	for (int must_fit = 1; must_fit >= 0; must_fit--)
		for (size_t i = 0; i < s->n; i++) {
			const candidate *c = &s->v[(p->spread_next + i) % s->n];
			if (must_fit && !c->fits)
				continue;
			p->spread_next = (p->spread_next + i + 1) % s->n;
			return place_on(c);
		}
	return place_on(NULL);
}

static rc_place affinity(rc_policy *p, const candidates *s, const rc_lease_spec *spec, bool prefer_local)
{
	const rc_strategy *a = &spec->strategy;
	const candidate *target = NULL;
	for (size_t i = 0; i < s->n; i++)
		if (rc_id_eq(s->v[i].id, &a->node_id))
			target = &s->v[i];
	if (target && (target->fits || (!a->spill_on_unavailable && !a->fail_on_unavailable)))
		return place_on(target);
	if (a->soft || (target && a->spill_on_unavailable))
		return hybrid(p, s, &spec->placement, prefer_local);
	const rc_node *n = rc_cluster_find(p->config->cluster, &a->node_id);
	if (!target && n && n->alive && !n->has_view)
		return place_on(NULL);
	return (rc_place){ RC_PLACE_FAIL, NULL, false };
}

static rc_place label(rc_policy *p, const candidates *s, const rc_lease_spec *spec)
{
	(void)p;
	static const struct {
		bool preferred, fits;
	} tiers[] = { { true, true }, { false, true }, { true, false }, { false, false } };
	for (size_t t = 0; t < 4; t++) {
		const candidate *found = NULL;
		size_t n = 0;
		for (size_t i = 0; i < s->n; i++) {
			const candidate *c = &s->v[i];
			if ((tiers[t].fits && !c->fits) || (tiers[t].preferred && !rc_selector_match(&spec->strategy.prefer, c->labels)))
				continue;
			/* This node, or any of the others with equal chance. */
			if (!c->node || ((!found || found->node) && next_random(p) % ++n == 0))
				found = c;
		}
		if (found)
			return place_on(found);
	}
	return place_on(NULL);
}

/* 2.60.0 writes hard affinity as a selector on the node's own label too. Such a lease fails when none of the nodes exists. */
static bool names_only_gone_nodes(const rc_policy *p, const rc_selector *selector)
{
	for (size_t i = 0; i < selector->n; i++) {
		const rc_constraint *c = &selector->v[i];
		if (strcmp(c->key, "ray.io/node-id") != 0 || c->op != RC_LABEL_OP_IN)
			continue;
		for (size_t k = 0; k < c->n_values; k++) {
			rc_id id = rc_id_from_hex(c->values[k]);
			const rc_node *n = rc_cluster_find(p->config->cluster, &id);
			if (n && n->alive && !n->has_view)
				return false;
		}
		return true;
	}
	return false;
}

static rc_place place(rc_policy *p, const rc_lease_spec *spec, const rc_selector *selector, bool prefer_local)
{
	candidates s = collect(p, &spec->placement, spec->strategy.kind == RC_STRATEGY_LABEL ? &spec->strategy.hard : selector);
	rc_place ret;
	switch (spec->strategy.kind) {
	case RC_STRATEGY_SPREAD:
		ret = spread(p, &s, prefer_local);
		break;
	case RC_STRATEGY_AFFINITY:
		ret = affinity(p, &s, spec, prefer_local);
		break;
	case RC_STRATEGY_LABEL:
		ret = prefer_local && s.local ? place_on(s.local) : label(p, &s, spec);
		break;
	default:
		ret = hybrid(p, &s, &spec->placement, prefer_local);
		break;
	}
	free(s.v);
	if (ret.kind == RC_PLACE_INFEASIBLE && names_only_gone_nodes(p, selector))
		ret.kind = RC_PLACE_FAIL;
	return ret;
}

rc_place rc_policy_place(rc_policy *p, const rc_lease_spec *spec, bool prefer_local)
{
	rc_place ret = place(p, spec, &spec->selector, prefer_local);
	for (size_t i = 0; i < spec->n_fallbacks && (ret.kind == RC_PLACE_INFEASIBLE || ret.kind == RC_PLACE_FAIL); i++)
		ret = place(p, spec, &spec->fallbacks[i], prefer_local);
	return ret;
}

bool rc_policy_may_stay(const rc_policy *p, const rc_lease_spec *spec)
{
	const rc_leases_config *c = p->config;
	bool match = rc_selector_match(spec->strategy.kind == RC_STRATEGY_LABEL ? &spec->strategy.hard : &spec->selector, c->labels);
	for (size_t i = 0; !match && i < spec->n_fallbacks; i++)
		match = rc_selector_match(&spec->fallbacks[i], c->labels);
	return match && !p->draining && rc_resources_feasible(c->resources, &spec->placement) &&
	       rc_resources_feasible(c->resources, &spec->required);
}
