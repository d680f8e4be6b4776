/* The way of a lease up to its grant. Every event changes the state of one lease and then calls rc_leases_run, which places
 * what can be placed and grants what fits; calls that come from inside an op only ask for one more round.
 *
 * Trap: an op may call back in and end the lease or its class. So a lease is moved on before an op is called, a class that a
 * loop holds is counted (refs), and nothing is touched after the last op. */
#include "raylet-c/sched/leases_internal.h"

#include <stdlib.h>

#include "raylet-c/base/log.h"
#include "raylet-c/base/loop.h"

void rc_leases_config_defaults(rc_leases_config *c)
{
	*c = (rc_leases_config){
		.spread_threshold = 0.5,
		.top_k_fraction = 0.2,
		.avoid_gpu_nodes = true,
		.worker_cap = true,
		.cap_first_ms = 1000,
		.cap_max_ms = 10000,
		.worker_retries = -1,
		.worker_retry_ms = 1000,
		.reject_after_ms = 1000,
		.max_shapes = 100,
	};
}

rc_leases *rc_leases_create(const rc_leases_config *config)
{
	rc_leases *l = rc_alloc(sizeof(*l));
	l->c = *config;
	if (!l->c.now_ms)
		l->c.now_ms = rc_now_ms;
	l->policy = (rc_policy){ .config = &l->c, .random = l->c.now_ms() };
	l->answer_again = rc_has_field(l->c.dialect, &rw__lease_spec__descriptor, "dependencies"); /* a LeaseSpec, not a TaskSpec */
	l->by_seq = rc_map_create();
	l->by_id = rc_map_create();
	l->by_worker = rc_map_create();
	l->classes = rc_map_create();
	l->backlogs = rc_map_create();
	rc_list_init(&l->fetching);
	return l;
}

/* ---- classes ---- */

rc_lease_class *rc__class_get(rc_leases *l, const rc_lease_spec *spec)
{
	rc_view key = rc_view_of(spec->class_key, spec->class_key_n);
	rc_lease_class *class = rc_map_get(l->classes, key);
	if (!class) {
		class = rc_alloc(sizeof(*class));
		class->key = rc_strndup(spec->class_key, spec->class_key_n);
		class->key_n = spec->class_key_n;
		class->cpu = rc_amounts_get(&spec->required, "CPU");
		rc_amounts_copy(&class->placement, &spec->placement);
		rc_selector_copy(&class->selector, &spec->selector);
		rc_list_init(&class->unplaced);
		rc_list_init(&class->ready);
		rc_map_put(l->classes, key, class);
	}
	class->refs++;
	return class;
}

static void free_class(rc_lease_class *class)
{
	rc_amounts_free(&class->placement);
	rc_selector_free(&class->selector);
	free(class->key);
	free(class);
}

void rc__class_put(rc_leases *l, rc_lease_class *class)
{
	if (--class->refs > 0)
		return;
	rc_map_del(l->classes, rc_view_of(class->key, class->key_n));
	free_class(class);
}

/* The classes that `want` says yes to, each counted once more. Give back with release_classes. */
static rc_lease_class **collect_classes(rc_leases *l, bool (*want)(const rc_lease_class *), size_t *ret_n)
{
	size_t count = rc_map_count(l->classes), n = 0;
	rc_lease_class **v = rc_alloc((count + 1) * sizeof(*v));
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(l->classes, &i, &key, &value);)
		if (want(value)) {
			v[n] = value;
			v[n++]->refs++;
		}
	*ret_n = n;
	return v;
}

static void release_classes(rc_leases *l, rc_lease_class **v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		rc__class_put(l, v[i]);
	free(v);
}

/* ---- the end ---- */

static rc_view seq_key(const rc_lease *lease)
{
	return rc_view_of(&lease->seq_, sizeof(lease->seq_));
}

static void free_lease(rc_lease *lease)
{
	rc_lease_spec_free(&lease->spec);
	free(lease->handles_);
	free(lease);
}

/* Out of all maps; the memory stays. */
static void forget(rc_leases *l, rc_lease *lease)
{
	rc_map_del(l->by_seq, seq_key(lease));
	if (rc_map_get_id(l->by_id, &lease->spec.lease_id) == lease) /* 2.35.0: a younger one may have the same id */
		rc_map_del_id(l->by_id, &lease->spec.lease_id);
}

static void answer(rc_leases *l, rc_lease *lease, const rc_outcome *outcome)
{
	void **handles = lease->handles_;
	size_t n = lease->n_handles_;
	lease->handles_ = NULL;
	lease->n_handles_ = 0;
	for (size_t i = 0; i < n; i++)
		l->c.ops->reply(l->c.ctx, lease, handles[i], outcome);
	free(handles);
}

static void release_args(rc_leases *l, rc_lease *lease)
{
	if (!lease->fetching_)
		return;
	lease->fetching_ = false;
	l->c.ops->release_args(l->c.ctx, lease);
}

static void release_resources(rc_leases *l, rc_lease *lease)
{
	rc_resources_free(l->c.resources, lease->allocation);
	lease->allocation = NULL;
	if (lease->bundle)
		rc_bundle_unref(l->c.bundles, lease->bundle);
	lease->bundle = NULL;
}

/* A worker is wanted or leased: the node is not idle, even when no resources are taken. */
static void hold(rc_leases *l, rc_lease_class *class)
{
	class->held++;
	if (l->n_held++ == 0)
		rc_resources_mark(l->c.resources, RC_BUSY_WORKERS, true);
}

static void unhold(rc_leases *l, rc_lease_class *class)
{
	class->held--;
	if (--l->n_held == 0)
		rc_resources_mark(l->c.resources, RC_BUSY_WORKERS, false);
}

static void leave_line(rc_leases *l, rc_lease *lease)
{
	rc_lease_class *class = lease->class_;
	rc_list_remove(&lease->link_);
	switch (lease->state) {
	case RC_LEASE_PLACEMENT:
		class->n_unplaced -= lease->infeasible;
		lease->infeasible = false;
		break;
	case RC_LEASE_ARGS:
		class->n_fetching--;
		if (--l->n_fetching == 0)
			rc_resources_mark(l->c.resources, RC_BUSY_ARGS, false);
		break;
	case RC_LEASE_RESOURCES:
		class->n_ready--;
		break;
	case RC_LEASE_WORKER:
		unhold(l, class);
		break;
	case RC_LEASE_GRANTED:
		break;
	}
}

void rc__lease_detach(rc_leases *l, rc_lease *lease)
{
	bool popping = lease->state == RC_LEASE_WORKER;
	leave_line(l, lease);
	lease->state = RC_LEASE_PLACEMENT;
	if (popping)
		l->c.ops->cancel_pop(l->c.ctx, lease);
	release_resources(l, lease);
	release_args(l, lease);
}

void rc__lease_end(rc_leases *l, rc_lease *lease, const rc_outcome *outcome)
{
	rc_lease_class *class = lease->class_;
	forget(l, lease);
	l->n_waiting--;
	l->count_spilled += outcome->kind == RC_OUTCOME_SPILLED;
	l->count_rejected += outcome->kind == RC_OUTCOME_REJECTED;
	l->count_canceled += outcome->kind == RC_OUTCOME_CANCELED;
	answer(l, lease, outcome);
	free_lease(lease);
	rc__class_put(l, class);
}

static void reject(rc_leases *l, rc_lease *lease, const char *why)
{
	rc__lease_end(l, lease, &(rc_outcome){ .kind = RC_OUTCOME_REJECTED, .text = why });
}

static void spill(rc_leases *l, rc_lease *lease, rc_node *node)
{
	rc_outcome outcome = { .kind = RC_OUTCOME_SPILLED, .node_id = node->id };
	rc_cluster_take(l->c.cluster, node, &lease->spec.required);
	rc__lease_end(l, lease, &outcome);
}

/* ---- PLACEMENT -> ARGS -> RESOURCES ---- */

static void to_resources(rc_leases *l, rc_lease *lease)
{
	(void)l;
	lease->state = RC_LEASE_RESOURCES;
	rc_list_append(&lease->class_->ready, &lease->link_);
	lease->class_->n_ready++;
}

/* A detached lease that runs here. */
static void to_args(rc_leases *l, rc_lease *lease)
{
	if (lease->spec.n_dependencies == 0) {
		to_resources(l, lease);
		return;
	}
	lease->state = RC_LEASE_ARGS;
	lease->fetching_ = true;
	rc_list_append(&l->fetching, &lease->link_);
	lease->class_->n_fetching++;
	if (l->n_fetching++ == 0)
		rc_resources_mark(l->c.resources, RC_BUSY_ARGS, true);
	if (l->c.ops->fetch_args(l->c.ctx, lease))
		rc_leases_args_ready(l, lease);
}

void rc_leases_args_ready(rc_leases *l, rc_lease *lease)
{
	if (lease->state != RC_LEASE_ARGS)
		return;
	leave_line(l, lease);
	to_resources(l, lease);
	rc_leases_run(l);
}

static void wait_for_place(rc_lease *lease)
{
	lease->infeasible = true;
	rc_list_append(&lease->class_->unplaced, &lease->link_);
	lease->class_->n_unplaced++;
}

void rc__lease_place(rc_leases *l, rc_lease *lease)
{
	static const char gone_node[] = "The node that NodeAffinitySchedulingStrategy(soft=False) or a label selector names is gone, "
	                                "is leaving, or can never meet the demand.";
	lease->state = RC_LEASE_PLACEMENT;
	if (lease->grant_or_reject) {
		if (rc_policy_may_stay(&l->policy, &lease->spec))
			to_args(l, lease);
		else
			reject(l, lease, l->policy.draining ? "the node is draining" : "the node can never meet the demand");
		return;
	}
	rc_place place = rc_policy_place(&l->policy, &lease->spec, lease->by_locality);
	switch (place.kind) {
	case RC_PLACE_LOCAL:
		to_args(l, lease);
		break;
	case RC_PLACE_REMOTE:
		spill(l, lease, place.node);
		break;
	case RC_PLACE_INFEASIBLE:
		wait_for_place(lease);
		break;
	case RC_PLACE_FAIL:
		rc__lease_end(l, lease, &(rc_outcome){ .kind = RC_OUTCOME_CANCELED, .failure = RC_V_FAILURE_UNSCHEDULABLE, .text = gone_node });
		break;
	}
}

static bool has_unplaced(const rc_lease_class *class)
{
	return class->n_unplaced > 0;
}

/* Leases that no node could take are tried again when a node or a total changed. */
static void place_pass(rc_leases *l)
{
	uint64_t cluster = rc_cluster_version(l->c.cluster), totals = rc_resources_totals_version(l->c.resources);
	if (cluster == l->tried_cluster && totals == l->tried_totals)
		return;
	l->tried_cluster = cluster;
	l->tried_totals = totals;
	size_t n;
	rc_lease_class **v = collect_classes(l, has_unplaced, &n);
	for (size_t i = 0; i < n; i++)
		for (size_t k = v[i]->n_unplaced; k > 0 && v[i]->n_unplaced > 0; k--) {
			rc_lease *lease = RC_CONTAINER(v[i]->unplaced.next, rc_lease, link_);
			if (rc_policy_place(&l->policy, &lease->spec, lease->by_locality).kind == RC_PLACE_INFEASIBLE)
				break; /* so are those behind it */
			leave_line(l, lease);
			rc__lease_place(l, lease);
		}
	release_classes(l, v, n);
}

/* ---- RESOURCES -> WORKER ---- */

static bool has_ready(const rc_lease_class *class)
{
	return class->n_ready > 0;
}

/* The first in line that is not pausing after a failed start. NULL: all do. */
static rc_lease *head_of(rc_lease_class *class, uint64_t now)
{
	RC_LIST_FOREACH(link, &class->ready) {
		rc_lease *lease = RC_CONTAINER(link, rc_lease, link_);
		if (lease->not_before_ <= now)
			return lease;
	}
	return NULL;
}

/* A class that has its share of processes gets one more only after a while. */
static bool over_cap(rc_leases *l, rc_lease_class *class, uint64_t now)
{
	if (!l->c.worker_cap || class->cpu <= 0)
		return false;
	rc_q cpus = rc_resources_total(l->c.resources, "CPU");
	size_t cap = (size_t)((cpus + class->cpu / 2) / class->cpu);
	cap = cap ? cap : 1;
	if (class->held < cap) {
		class->cap_next_ms = 0;
		return false;
	}
	if (class->cap_next_ms == 0) {
		size_t over = class->held - cap;
		uint64_t wait = over < 20 ? l->c.cap_first_ms << over : l->c.cap_max_ms;
		class->cap_next_ms = now + (wait < l->c.cap_max_ms ? wait : l->c.cap_max_ms);
	}
	return now < class->cap_next_ms;
}

typedef enum progress { BLOCKED, MOVED } progress; /* MOVED: the line has another head now */

/* The head cannot start here now. Another node may take it. */
static progress try_elsewhere(rc_leases *l, rc_lease_class *class, rc_lease *lease, uint64_t now)
{
	if (!rc_policy_may_stay(&l->policy, &lease->spec)) { /* a bundle went, the node shrank or drains */
		rc__lease_detach(l, lease);
		rc__lease_place(l, lease);
		return MOVED;
	}
	if (lease->grant_or_reject ? now - lease->asked_ms < l->c.reject_after_ms : class->spill_version == rc_cluster_version(l->c.cluster))
		return BLOCKED;
	class->spill_version = rc_cluster_version(l->c.cluster);
	rc_place place = rc_policy_place(&l->policy, &lease->spec, true);
	if (place.kind != RC_PLACE_REMOTE || !place.fits)
		return BLOCKED;
	class->spill_version = 0;
	rc__lease_detach(l, lease);
	if (lease->grant_or_reject) {
		rc_cluster_take(l->c.cluster, place.node, &lease->spec.required);
		reject(l, lease, "busy, and another node could take it at once");
	} else {
		spill(l, lease, place.node);
	}
	return MOVED;
}

static progress grant_head(rc_leases *l, rc_lease_class *class)
{
	uint64_t now = l->c.now_ms();
	rc_lease *lease = head_of(class, now);
	if (!lease)
		return BLOCKED;
	if (over_cap(l, class, now))
		return try_elsewhere(l, class, lease, now);
	if (lease->fetching_ && l->c.ops->pin_args) {
		rc_pin pin = l->c.ops->pin_args(l->c.ctx, lease);
		if (pin == RC_PIN_NO_ROOM)
			return BLOCKED;
		if (pin == RC_PIN_MISSING) {
			leave_line(l, lease);
			lease->not_before_ = now + 100; /* not in this round again, whatever fetch_args says */
			to_args(l, lease);
			return MOVED;
		}
	}
	rc_allocation *allocation = l->policy.draining ? NULL : rc_resources_allocate(l->c.resources, &lease->spec.required);
	if (!allocation)
		return try_elsewhere(l, class, lease, now);
	leave_line(l, lease);
	lease->state = RC_LEASE_WORKER;
	lease->allocation = allocation;
	lease->bundle = rc_bundle_of(l->c.bundles, allocation);
	if (lease->bundle)
		rc_bundle_ref(lease->bundle);
	hold(l, class);
	class->cap_next_ms = 0;
	l->c.ops->pop_worker(l->c.ctx, lease);
	return MOVED;
}

/* Order of the lines: fewest held leases, then who waits longest. */
static bool goes_first(const rc_lease_class *a, const rc_lease_class *b)
{
	if (a->held != b->held)
		return a->held < b->held;
	const rc_lease *x = rc_list_empty(&a->ready) ? NULL : RC_CONTAINER(a->ready.next, rc_lease, link_);
	const rc_lease *y = rc_list_empty(&b->ready) ? NULL : RC_CONTAINER(b->ready.next, rc_lease, link_);
	return x && (!y || x->seq_ < y->seq_);
}

/* A binary heap with the first to go on top; one round hands out one lease. The order of the others may have changed by what
 * an op did, which only costs a little fairness. */
static void sift(rc_lease_class **v, size_t n, size_t i)
{
	for (;;) {
		size_t top = i;
		for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
			if (goes_first(v[child], v[top]))
				top = child;
		if (top == i)
			return;
		rc_lease_class *swap = v[i];
		v[i] = v[top];
		v[top] = swap;
		i = top;
	}
}

static void grant_pass(rc_leases *l)
{
	size_t n, left;
	rc_lease_class **v = collect_classes(l, has_ready, &n);
	left = n;
	for (size_t i = n / 2; i-- > 0;)
		sift(v, n, i);
	while (left) {
		if (grant_head(l, v[0]) == BLOCKED || v[0]->n_ready == 0) {
			rc_lease_class *out = v[0];
			v[0] = v[--left];
			v[left] = out;
		}
		sift(v, left, 0);
	}
	release_classes(l, v, n);
}

void rc_leases_run(rc_leases *l)
{
	if (l->running) {
		l->again = true;
		return;
	}
	l->running = true;
	do {
		l->again = false;
		place_pass(l);
		grant_pass(l);
	} while (l->again);
	l->running = false;
}

/* ---- WORKER -> GRANTED -> the end ---- */

void rc_leases_worker_ready(rc_leases *l, rc_lease *lease, const rc_id *worker_id)
{
	if (lease->state != RC_LEASE_WORKER) {
		rc_error_log("lease %s: a worker came in state %d", rc_id_to_hex(&lease->spec.lease_id).s, (int)lease->state);
		return;
	}
	lease->state = RC_LEASE_GRANTED;
	lease->worker_id = *worker_id;
	lease->granted_ms = l->c.now_ms();
	l->n_waiting--;
	l->count_granted++;
	const rc_lease *before = rc_map_put_id(l->by_worker, worker_id, lease);
	if (before)
		rc_error_log("worker %s was given lease %s while it holds another", rc_id_to_hex(worker_id).s, rc_id_to_hex(&lease->spec.lease_id).s);
	l->n_granted++;
	answer(l, lease, &(rc_outcome){ .kind = RC_OUTCOME_GRANTED });
}

void rc_leases_worker_failed(rc_leases *l, rc_lease *lease, rc_worker_fail why, const char *text)
{
	if (lease->state != RC_LEASE_WORKER)
		return;
	leave_line(l, lease);
	lease->state = RC_LEASE_PLACEMENT;
	release_resources(l, lease);
	rc_outcome outcome = { .kind = RC_OUTCOME_CANCELED, .failure = RC_V_FAILURE_INTENDED, .text = text };
	bool ends = why == RC_WORKER_FAIL_RUNTIME_ENV || why == RC_WORKER_FAIL_JOB_DEAD;
	if (why == RC_WORKER_FAIL_RUNTIME_ENV)
		outcome.failure = RC_V_FAILURE_SCHEDULING_RUNTIME_ENV;
	if (why == RC_WORKER_FAIL_START && l->c.worker_retries >= 0 && ++lease->worker_failures > l->c.worker_retries) {
		outcome.failure = RC_V_FAILURE_WORKER_STARTUP;
		ends = true;
	}
	if (ends) {
		release_args(l, lease);
		rc__lease_end(l, lease, &outcome);
	} else { /* its turn comes again after a pause; it keeps its place before the younger ones */
		lease->not_before_ = l->c.now_ms() + l->c.worker_retry_ms;
		lease->state = RC_LEASE_RESOURCES;
		lease->class_->n_ready++;
		rc_link *before = lease->class_->ready.next;
		while (before != &lease->class_->ready && RC_CONTAINER(before, rc_lease, link_)->seq_ < lease->seq_)
			before = before->next;
		rc_list_append(before, &lease->link_); /* "append to before" is "insert in front of it" */
	}
	rc_leases_run(l);
}

void rc_leases_worker_left(rc_leases *l, const rc_lease *lease)
{
	if (rc_map_get_id(l->by_worker, &lease->worker_id) == lease)
		rc_map_del_id(l->by_worker, &lease->worker_id);
}

void rc_leases_finished(rc_leases *l, rc_lease *lease)
{
	if (lease->state != RC_LEASE_GRANTED)
		return;
	rc_lease_class *class = lease->class_;
	unhold(l, class);
	forget(l, lease);
	rc_leases_worker_left(l, lease);
	l->n_granted--;
	release_resources(l, lease);
	release_args(l, lease);
	free_lease(lease);
	rc__class_put(l, class);
	rc_leases_run(l);
}

void rc_leases_blocked(rc_leases *l, rc_lease *lease)
{
	if (lease->state != RC_LEASE_GRANTED || lease->spec.is_actor || lease->blocked)
		return;
	lease->blocked = true;
	rc_resources_lend_cpu(l->c.resources, lease->allocation);
	rc_leases_run(l);
}

void rc_leases_unblocked(rc_leases *l, rc_lease *lease)
{
	if (lease->state != RC_LEASE_GRANTED || !lease->blocked)
		return;
	lease->blocked = false;
	rc_resources_retake_cpu(l->c.resources, lease->allocation);
}

/* ---- the beginning ---- */

static int join(rc_leases *l, rc_lease *lease, void *handle, rc_error *e)
{
	if (lease->state == RC_LEASE_GRANTED) {
		l->c.ops->reply(l->c.ctx, lease, handle, &(rc_outcome){ .kind = RC_OUTCOME_GRANTED });
		return 0;
	}
	if (lease->n_handles_ == RC_MAX_LEASE_HANDLES)
		return rc_fail(e, RC_E_FULL, "lease %s: %d requests wait for it already", rc_id_to_hex(&lease->spec.lease_id).s, RC_MAX_LEASE_HANDLES);
	lease->handles_ = rc_realloc(lease->handles_, (lease->n_handles_ + 1) * sizeof(*lease->handles_));
	lease->handles_[lease->n_handles_++] = handle;
	return 0;
}

int rc_leases_request(rc_leases *l, rc_lease_spec *spec, bool grant_or_reject, bool by_locality, int64_t backlog, void *handle, rc_error *e)
{
	rc_lease *known = rc_map_get_id(l->by_id, &spec->lease_id);
	if (known && (known->state != RC_LEASE_GRANTED || l->answer_again)) {
		rc_lease_spec_free(spec);
		return join(l, known, handle, e);
	}
	int bad = 0;
	if (spec->lease_id.n == 0)
		bad = rc_fail(e, RC_E_INVALID, "lease request without a lease id");
	else if (rc_map_count(l->by_seq) >= RC_MAX_LEASES)
		bad = rc_fail(e, RC_E_FULL, "lease %s: the node has %d leases already", rc_id_to_hex(&spec->lease_id).s, RC_MAX_LEASES);
	if (bad) {
		rc_lease_spec_free(spec);
		return -1;
	}
	rc_lease *lease = rc_alloc(sizeof(*lease));
	lease->spec = *spec;
	*spec = (rc_lease_spec){ 0 };
	lease->grant_or_reject = grant_or_reject;
	lease->by_locality = by_locality;
	lease->backlog = backlog;
	lease->asked_ms = l->c.now_ms();
	lease->seq_ = ++l->next_seq;
	rc_list_init(&lease->link_);
	lease->class_ = rc__class_get(l, &lease->spec);
	lease->handles_ = rc_alloc(sizeof(*lease->handles_));
	lease->handles_[lease->n_handles_++] = handle;
	rc_map_put(l->by_seq, seq_key(lease), lease);
	rc_map_put_id(l->by_id, &lease->spec.lease_id, lease);
	l->n_waiting++;
	bool hopeless = lease->class_->n_unplaced > 0 && !grant_or_reject && l->tried_cluster == rc_cluster_version(l->c.cluster) &&
	                l->tried_totals == rc_resources_totals_version(l->c.resources);
	if (hopeless) /* like those of its class before it */
		wait_for_place(lease);
	else
		rc__lease_place(l, lease);
	rc_leases_run(l);
	return 0;
}

void rc_leases_destroy(rc_leases *l)
{
	if (!l)
		return;
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(l->by_seq, &i, &key, &value);) {
		rc_lease *lease = value;
		release_resources(l, lease);
		free_lease(lease);
	}
	for (size_t i = 0; rc_map_next(l->classes, &i, &key, &value);)
		free_class(value);
	for (size_t i = 0; rc_map_next(l->backlogs, &i, &key, &value);) {
		free(((rc_backlog *)value)->v);
		free(value);
	}
	rc_map_destroy(l->by_seq);
	rc_map_destroy(l->by_id);
	rc_map_destroy(l->by_worker);
	rc_map_destroy(l->classes);
	rc_map_destroy(l->backlogs);
	free(l);
}

/* ---- questions ---- */

rc_lease *rc_leases_find(rc_leases *l, const rc_id *lease_id)
{
	return rc_map_get_id(l->by_id, lease_id);
}

rc_lease *rc_leases_next(const rc_leases *l, size_t *i)
{
	rc_view key;
	void *value;
	return rc_map_next(l->by_seq, i, &key, &value) ? value : NULL;
}

size_t rc_leases_waiting(const rc_leases *l)
{
	return l->n_waiting;
}

size_t rc_leases_granted(const rc_leases *l)
{
	return l->n_granted;
}
