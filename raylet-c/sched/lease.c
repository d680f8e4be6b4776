/* From the two releases' messages to one struct. What moved between them: 2.35.0 keeps an actor's facts in
 * actor_creation_task_spec and its dependencies in args (only those by reference count); 2.60.0 has them at the top. */
#include "raylet-c/sched/lease.h"

#include <stdlib.h>
#include <string.h>

static int read_id(rc_id *ret, protobuf_c_boolean has, ProtobufCBinaryData bytes, size_t most, const char *field, rc_error *e)
{
	*ret = (rc_id){ 0 };
	if (!has || bytes.len == 0)
		return 0;
	if (bytes.len > most)
		return rc_fail(e, RC_E_INVALID, "lease request: %s has %zu bytes, not %zu", field, bytes.len, most);
	*ret = rc_id_from(bytes.data, bytes.len);
	return 0;
}
#define READ_ID(ret, m, field, most, e) read_id((ret), (m)->has_##field, (m)->field, (most), #field, (e))

static int read_address(const Rw__Address *m, rc_address *ret, rc_error *e)
{
	*ret = (rc_address){ 0 };
	if (m && (READ_ID(&ret->node_id, m, node_id, RC_NODE_ID, e) < 0 || READ_ID(&ret->worker_id, m, worker_id, RC_WORKER_ID, e) < 0))
		return -1;
	ret->ip = rc_strdup(m ? RC_GET_STR(m, ip_address) : "");
	ret->port = m ? RC_GET(m, port) : 0;
	return 0;
}

static int add_dependency(rc_lease_spec *s, const Rw__ObjectReference *m, rc_error *e)
{
	rc_dependency *d = &s->dependencies[s->n_dependencies];
	if (READ_ID(&d->object_id, m, object_id, RC_OBJECT_ID, e) < 0)
		return -1;
	if (d->object_id.n != RC_OBJECT_ID)
		return rc_fail(e, RC_E_INVALID, "lease request: dependency %zu has an object id of %d bytes", s->n_dependencies, d->object_id.n);
	for (size_t i = 0; i < s->n_dependencies && s->n_dependencies < 64; i++) /* the same argument twice: once is enough */
		if (rc_id_eq(&s->dependencies[i].object_id, &d->object_id))
			return 0;
	if (read_address(m->owner_address, &d->owner, e) < 0)
		return -1;
	s->n_dependencies++;
	return 0;
}

static int read_dependencies(const Rw__LeaseSpec *m, rc_lease_spec *s, rc_error *e)
{
	size_t n = m->n_dependencies + m->n_args;
	if (n > RC_MAX_DEPENDENCIES)
		return rc_fail(e, RC_E_FULL, "lease request: %zu dependencies, the limit is %d", n, RC_MAX_DEPENDENCIES);
	if (n == 0)
		return 0;
	s->dependencies = rc_alloc(n * sizeof(*s->dependencies));
	for (size_t i = 0; i < m->n_dependencies; i++)
		if (add_dependency(s, m->dependencies[i], e) < 0)
			return -1;
	for (size_t i = 0; i < m->n_args; i++)
		if (m->args[i]->object_ref && RC_GET_ID(m->args[i]->object_ref, object_id).n && add_dependency(s, m->args[i]->object_ref, e) < 0)
			return -1;
	return 0;
}

static int read_strategy(const Rw__SchedulingStrategy *m, rc_strategy *s, rc_error *e)
{
	*s = (rc_strategy){ .bundle.index = -1 };
	if (!m)
		return 0;
	if (m->spread_scheduling_strategy) {
		s->kind = RC_STRATEGY_SPREAD;
	} else if (m->node_affinity_scheduling_strategy) {
		const Rw__NodeAffinitySchedulingStrategy *a = m->node_affinity_scheduling_strategy;
		s->kind = RC_STRATEGY_AFFINITY;
		s->soft = RC_GET(a, soft);
		s->spill_on_unavailable = RC_GET(a, spill_on_unavailable);
		s->fail_on_unavailable = RC_GET(a, fail_on_unavailable);
		return READ_ID(&s->node_id, a, node_id, RC_NODE_ID, e);
	} else if (m->placement_group_scheduling_strategy) {
		const Rw__PlacementGroupSchedulingStrategy *g = m->placement_group_scheduling_strategy;
		if (READ_ID(&s->bundle.group, g, placement_group_id, RC_PG_ID, e) < 0)
			return -1;
		if (rc_id_is_nil(&s->bundle.group)) /* the nil group says "none" */
			return 0;
		s->kind = RC_STRATEGY_GROUP;
		s->bundle.index = (int)RC_GET(g, placement_group_bundle_index);
	} else if (m->node_label_scheduling_strategy) {
		s->kind = RC_STRATEGY_LABEL;
		if (rc_selector_from_expressions(m->node_label_scheduling_strategy->hard, &s->hard, e) < 0 ||
		    rc_selector_from_expressions(m->node_label_scheduling_strategy->soft, &s->prefer, e) < 0)
			return -1;
	}
	return 0;
}

static int read_selectors(const rc_dialect *d, const Rw__LeaseSpec *m, rc_lease_spec *s, rc_error *e)
{
	if (rc_selector_from(d, m->label_selector, &s->selector, e) < 0)
		return -1;
	size_t n = m->fallback_strategy ? m->fallback_strategy->n_options : 0;
	if (n > RC_MAX_FALLBACKS)
		return rc_fail(e, RC_E_FULL, "lease request: %zu fallback options, the limit is %d", n, RC_MAX_FALLBACKS);
	s->fallbacks = n ? rc_alloc(n * sizeof(*s->fallbacks)) : NULL;
	for (size_t i = 0; i < n; i++) {
		if (rc_selector_from(d, m->fallback_strategy->options[i]->label_selector, &s->fallbacks[i], e) < 0)
			return -1;
		s->n_fallbacks++;
	}
	return 0;
}

static uint64_t hash(const char *p)
{
	uint64_t h = 14695981039346656037u;
	if (!*p)
		return 0;
	for (; *p; p++)
		h = (h ^ (uint8_t)*p) * 1099511628211u;
	return h ? h : 1;
}

static int read_runtime_env(const Rw__RuntimeEnvInfo *m, rc_lease_spec *s, rc_error *e)
{
	const char *env = m ? RC_GET_STR(m, serialized_runtime_env) : "";
	if (strlen(env) > RC_MAX_RUNTIME_ENV)
		return rc_fail(e, RC_E_FULL, "lease request: the runtime environment has %zu bytes, the limit is %d", strlen(env), RC_MAX_RUNTIME_ENV);
	s->runtime_env = rc_strdup(strcmp(env, "{}") == 0 ? "" : env);
	s->runtime_env_hash = hash(s->runtime_env);
	if (m && m->runtime_env_config) {
		s->runtime_env_timeout_s = RC_GET(m->runtime_env_config, setup_timeout_seconds);
		s->runtime_env_eager = RC_GET(m->runtime_env_config, eager_install);
	}
	return 0;
}

static void copy_options(rc_lease_spec *s, char *const *v, size_t n)
{
	s->worker_options = n ? rc_alloc(n * sizeof(*s->worker_options)) : NULL;
	for (size_t i = 0; i < n; i++)
		s->worker_options[i] = rc_strdup(v[i]);
	s->n_worker_options = n;
}

static void make_class_key(rc_lease_spec *s, rc_view function)
{
	rc_buf b = { 0 };
	rc_amounts_print(&s->required, &b);
	rc_amounts_print(&s->placement, &b);
	rc_buf_printf(&b, "|%d%d|%d|%s|%d%d%d|%s|%d|", s->is_actor, s->language, (int)s->strategy.kind, rc_id_to_hex(&s->strategy.node_id).s,
	              s->strategy.soft, s->strategy.spill_on_unavailable, s->strategy.fail_on_unavailable,
	              rc_id_to_hex(&s->strategy.bundle.group).s, s->strategy.bundle.index);
	rc_selector_print(&s->strategy.hard, &b);
	rc_selector_print(&s->strategy.prefer, &b);
	rc_selector_print(&s->selector, &b);
	for (size_t i = 0; i < s->n_fallbacks; i++)
		rc_selector_print(&s->fallbacks[i], &b);
	rc_buf_printf(&b, "|%lld|%llx|", (long long)s->depth, (unsigned long long)s->runtime_env_hash);
	rc_buf_add(&b, function.p, function.n);
	s->class_key = (char *)b.p;
	s->class_key_n = b.n;
}

int rc_lease_spec_from(const rc_dialect *d, const Rw__LeaseSpec *m, rc_lease_spec *ret, rc_error *e)
{
	rc_lease_spec s = { .owner.ip = NULL };
	const Rw__ActorCreationTaskSpec *a = m->actor_creation_task_spec;
	s.is_actor = RC_GET(m, type) == rc_enum_value(d, RC_V_TASK_ACTOR_CREATION);
	s.is_detached = RC_GET(m, is_detached_actor) || (a && RC_GET(a, is_detached));
	s.max_retries = RC_GET(m, max_retries);
	s.max_actor_restarts = a ? RC_GET(a, max_actor_restarts) : RC_GET(m, max_actor_restarts);
	s.depth = RC_GET(m, depth);
	s.attempt = RC_GET(m, attempt_number);
	s.language = RC_GET(m, language);
	s.task_name = rc_strdup(RC_GET_STR(m, task_name));
	s.actor_name = rc_strdup(a ? RC_GET_STR(a, name) : "");
	if (a)
		copy_options(&s, a->dynamic_worker_options, a->n_dynamic_worker_options);
	else
		copy_options(&s, m->dynamic_worker_options, m->n_dynamic_worker_options);
	int bad = READ_ID(&s.lease_id, m, lease_id, RC_LEASE_ID, e) < 0 || READ_ID(&s.job_id, m, job_id, RC_JOB_ID, e) < 0 ||
	          READ_ID(&s.root_detached_actor_id, m, root_detached_actor_id, RC_ACTOR_ID, e) < 0 ||
	          (a ? READ_ID(&s.actor_id, a, actor_id, RC_ACTOR_ID, e) : READ_ID(&s.actor_id, m, actor_id, RC_ACTOR_ID, e)) < 0 ||
	          read_address(m->caller_address, &s.owner, e) < 0 ||
	          rc_amounts_from_map((const Rw__MapStringDouble *const *)m->required_resources, m->n_required_resources,
	                              "lease request: required_resources", &s.required, e) < 0 ||
	          rc_amounts_from_map((const Rw__MapStringDouble *const *)m->required_placement_resources, m->n_required_placement_resources,
	                              "lease request: required_placement_resources", &s.placement, e) < 0 ||
	          read_strategy(m->scheduling_strategy, &s.strategy, e) < 0 || read_selectors(d, m, &s, e) < 0 ||
	          read_runtime_env(m->runtime_env_info, &s, e) < 0 || read_dependencies(m, &s, e) < 0;
	if (bad) {
		rc_lease_spec_free(&s);
		return -1;
	}
	if (s.placement.n == 0)
		rc_amounts_copy(&s.placement, &s.required);
	rc_amounts_drop_zeros(&s.required);
	rc_amounts_drop_zeros(&s.placement);
	make_class_key(&s, RC_GET_VIEW(m, function_descriptor));
	*ret = s;
	return 0;
}

void rc_lease_spec_free(rc_lease_spec *s)
{
	free(s->owner.ip);
	rc_amounts_free(&s->required);
	rc_amounts_free(&s->placement);
	rc_selector_free(&s->strategy.hard);
	rc_selector_free(&s->strategy.prefer);
	rc_selector_free(&s->selector);
	for (size_t i = 0; i < s->n_fallbacks; i++)
		rc_selector_free(&s->fallbacks[i]);
	free(s->fallbacks);
	for (size_t i = 0; i < s->n_dependencies; i++)
		free(s->dependencies[i].owner.ip);
	free(s->dependencies);
	free(s->runtime_env);
	free(s->task_name);
	free(s->actor_name);
	for (size_t i = 0; i < s->n_worker_options; i++)
		free(s->worker_options[i]);
	free(s->worker_options);
	free(s->class_key);
	*s = (rc_lease_spec){ 0 };
}
