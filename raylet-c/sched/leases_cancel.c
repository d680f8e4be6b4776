/* Ends that come from outside: a cancelled request, a dead owner, node or job, a removed bundle, a drain. The leases are
 * collected by their sequence numbers first, since answering one may end others. */
#include "raylet-c/sched/leases_internal.h"

#include <stdlib.h>

typedef bool (*match_fn)(const rc_lease *lease, const void *arg);

typedef struct victims {
	uint64_t *v;
	size_t n, cap;
} victims;

static int by_seq(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* In the order in which they were asked for. */
static victims collect(rc_leases *l, match_fn match, const void *arg)
{
	victims s = { 0 };
	size_t i = 0;
	for (rc_lease *lease; (lease = rc_leases_next(l, &i)) != NULL;) {
		if (!match(lease, arg))
			continue;
		if (s.n == s.cap) {
			s.cap = s.cap ? s.cap * 2 : 16;
			s.v = rc_realloc(s.v, s.cap * sizeof(*s.v));
		}
		s.v[s.n++] = lease->seq_;
	}
	if (s.n)
		qsort(s.v, s.n, sizeof(*s.v), by_seq);
	return s;
}

static rc_lease *lease_of(rc_leases *l, uint64_t seq)
{
	return rc_map_get(l->by_seq, rc_view_of(&seq, sizeof(seq)));
}

static void cancel_one(rc_leases *l, rc_lease *lease, rc_enum failure, const char *text)
{
	rc__lease_detach(l, lease);
	rc__lease_end(l, lease, &(rc_outcome){ .kind = RC_OUTCOME_CANCELED, .failure = failure, .text = text });
}

static void kill_one(rc_leases *l, rc_lease *lease, const char *reason)
{
	if (lease->ending)
		return;
	lease->ending = true;
	l->c.ops->kill(l->c.ctx, lease, reason);
}

/* Waiting ones are canceled, granted ones killed (reason NULL: left alone). Returns how many were canceled. */
static size_t end_all(rc_leases *l, match_fn match, const void *arg, rc_enum failure, const char *text, const char *reason)
{
	victims s = collect(l, match, arg);
	size_t n = 0;
	for (size_t i = 0; i < s.n; i++) {
		rc_lease *lease = lease_of(l, s.v[i]);
		if (!lease)
			continue;
		if (lease->state != RC_LEASE_GRANTED) {
			cancel_one(l, lease, failure, text);
			n++;
		} else if (reason) {
			kill_one(l, lease, reason);
		}
	}
	free(s.v);
	if (s.n)
		rc_leases_run(l);
	return n;
}

bool rc_leases_cancel(rc_leases *l, const rc_id *lease_id, rc_enum failure, const char *text)
{
	rc_lease *lease = rc_leases_find(l, lease_id);
	if (!lease || lease->state == RC_LEASE_GRANTED)
		return false;
	cancel_one(l, lease, failure, text);
	rc_leases_run(l);
	return true;
}

static bool owned_by(const rc_lease *lease, const void *worker_id)
{
	return !lease->spec.is_detached && rc_id_eq(&lease->spec.owner.worker_id, worker_id);
}

void rc_leases_owner_dead(rc_leases *l, const rc_id *worker_id)
{
	if (worker_id->n == 0)
		return;
	rc_leases_backlog_clear(l, worker_id);
	end_all(l, owned_by, worker_id, RC_V_FAILURE_INTENDED, "The owner of the task or actor has died.",
	        "The worker is stopped because the owner of its task or actor has died.");
}

static bool owned_on(const rc_lease *lease, const void *node_id)
{
	return !lease->spec.is_detached && rc_id_eq(&lease->spec.owner.node_id, node_id);
}

void rc_leases_node_dead(rc_leases *l, const rc_id *node_id)
{
	if (node_id->n == 0)
		return;
	rc__backlog_node_dead(l, node_id);
	end_all(l, owned_on, node_id, RC_V_FAILURE_INTENDED, "The node of the task's or actor's owner has died.",
	        "The worker is stopped because the node of the owner of its task or actor has died.");
	rc_leases_run(l); /* leases that hoped for that node */
}

static bool of_job(const rc_lease *lease, const void *job_id)
{
	return !lease->spec.is_detached && rc_id_is_nil(&lease->spec.root_detached_actor_id) && rc_id_eq(&lease->spec.job_id, job_id);
}

void rc_leases_job_dead(rc_leases *l, const rc_id *job_id)
{
	if (job_id->n == 0)
		return;
	end_all(l, of_job, job_id, RC_V_FAILURE_INTENDED, "The job has finished.", "The worker is stopped because its job has finished.");
}

typedef struct shapes {
	const rc_amounts *v;
	size_t n;
} shapes;

static bool of_shape(const rc_lease *lease, const void *arg)
{
	const shapes *s = arg;
	for (size_t i = 0; lease->state != RC_LEASE_GRANTED && i < s->n; i++)
		if (rc_amounts_eq(&lease->spec.required, &s->v[i]) || rc_amounts_eq(&lease->spec.placement, &s->v[i]))
			return true;
	return false;
}

size_t rc_leases_cancel_shapes(rc_leases *l, const rc_amounts *v, size_t n)
{
	rc_buf text = { 0 };
	rc_buf_str(&text, "No node has, or will have, the resources that the task or actor needs. Demands given up: ");
	for (size_t i = 0; i < n; i++) {
		rc_buf_str(&text, i ? ", " : "");
		rc_amounts_print(&v[i], &text);
	}
	size_t count = end_all(l, of_shape, &(shapes){ v, n }, RC_V_FAILURE_UNSCHEDULABLE, rc_buf_cstr(&text), NULL);
	rc_buf_free(&text);
	return count;
}

typedef struct gone_bundle {
	const rc_bundle *bundle;
	bool last; /* of its group on this node */
} gone_bundle;

static bool in_bundle(const rc_lease *lease, const void *arg)
{
	const gone_bundle *g = arg;
	const rc_strategy *s = &lease->spec.strategy;
	if (lease->bundle)
		return lease->bundle == g->bundle;
	return lease->state != RC_LEASE_GRANTED && s->kind == RC_STRATEGY_GROUP && rc_id_eq(&s->bundle.group, &g->bundle->id.group) &&
	       (s->bundle.index == g->bundle->id.index || (s->bundle.index < 0 && g->last));
}

void rc_leases_bundle_removed(void *leases, rc_bundle *b)
{
	rc_leases *l = leases;
	gone_bundle g = { b, !rc_bundles_has_group(l->c.bundles, &b->id.group) };
	victims s = collect(l, in_bundle, &g);
	/* No lease may be let into the bundle while its names still exist: rounds wait until the caller asks for one. */
	bool was_running = l->running;
	l->running = true;
	for (size_t i = 0; i < s.n; i++) {
		rc_lease *lease = lease_of(l, s.v[i]);
		if (!lease)
			continue;
		char *text = rc_sprintf("Placement group %s was removed (bundle %d).", rc_id_to_hex(&b->id.group).s, b->id.index);
		if (lease->state != RC_LEASE_GRANTED) {
			cancel_one(l, lease, RC_V_FAILURE_PG_REMOVED, text);
		} else {
			if (lease->blocked)
				rc_resources_retake_cpu(l->c.resources, lease->allocation);
			rc_resources_give_back(l->c.resources, lease->allocation);
			kill_one(l, lease, text);
		}
		free(text);
	}
	l->running = was_running;
	free(s.v);
}

static bool not_started(const rc_lease *lease, const void *arg)
{
	(void)arg;
	return lease->state == RC_LEASE_PLACEMENT || lease->state == RC_LEASE_ARGS || lease->state == RC_LEASE_RESOURCES;
}

void rc_leases_set_draining(rc_leases *l, bool draining)
{
	if (l->policy.draining == draining)
		return;
	l->policy.draining = draining;
	rc_bundles_set_draining(l->c.bundles, draining);
	victims s = collect(l, not_started, NULL);
	for (size_t i = 0; i < s.n; i++) {
		rc_lease *lease = lease_of(l, s.v[i]);
		if (!lease || !not_started(lease, NULL))
			continue;
		rc__lease_detach(l, lease);
		rc__lease_place(l, lease);
	}
	free(s.v);
	rc_leases_run(l);
}
