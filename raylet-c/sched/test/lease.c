/* From the messages of both releases to a lease. */
#include "raylet-c/sched/lease.h"
#include "raylet-c/sched/test/sched_test.h"

/* A message as the release would send it: packed and unpacked with its numbers. */
static Rw__LeaseSpec *over_the_wire(const rc_dialect *d, const Rw__LeaseSpec *m)
{
	rc_buf bytes = { 0 };
	rc_pack(d, m, &bytes);
	Rw__LeaseSpec *copy = rc_unpack(d, &rw__lease_spec__descriptor, rc_view_of(bytes.p, bytes.n));
	rc_buf_free(&bytes);
	return copy;
}

static void of_2_35(void)
{
	const rc_dialect *d = rc_dialect_find("2.35.0", NULL);
	rc_id task = id_of_byte(RC_TASK_ID, 1), job = id_of_byte(RC_JOB_ID, 2), actor = id_of_byte(RC_ACTOR_ID, 3),
	      owner = id_of_byte(RC_WORKER_ID, 4),
	      object = id_of_byte(RC_OBJECT_ID, 5);
	Rw__LeaseSpec m = RW__LEASE_SPEC__INIT;
	Rw__ActorCreationTaskSpec a = RW__ACTOR_CREATION_TASK_SPEC__INIT;
	Rw__Address caller = RW__ADDRESS__INIT;
	Rw__TaskArg by_reference = RW__TASK_ARG__INIT, by_value = RW__TASK_ARG__INIT, again = RW__TASK_ARG__INIT;
	Rw__TaskArg *args[] = { &by_value, &by_reference, &again };
	Rw__ObjectReference ref = RW__OBJECT_REFERENCE__INIT;
	rc_amounts placement = amounts_of("CPU,1");
	rc_amount_map map = rc_amount_map_make(&placement);
	char *options[] = { (char *)"-x" };
	RC_SET(m, type, rc_enum_value(d, RC_V_TASK_ACTOR_CREATION));
	RC_SET_ID(m, lease_id, &task);
	RC_SET_ID(m, job_id, &job);
	RC_SET_ID(caller, worker_id, &owner);
	caller.ip_address = (char *)"10.0.0.1";
	RC_SET(caller, port, 777);
	m.caller_address = &caller;
	RC_SET_ID(a, actor_id, &actor);
	RC_SET(a, is_detached, true);
	RC_SET(a, max_actor_restarts, 3);
	a.name = (char *)"me";
	a.dynamic_worker_options = options;
	a.n_dynamic_worker_options = 1;
	m.actor_creation_task_spec = &a;
	m.required_placement_resources = map.v;
	m.n_required_placement_resources = map.n;
	RC_SET_ID(ref, object_id, &object);
	ref.owner_address = &caller;
	by_reference.object_ref = again.object_ref = &ref;
	m.args = args;
	m.n_args = 3;
	m.task_name = (char *)"A.__init__";
	Rw__LeaseSpec *copy = over_the_wire(d, &m);
	rc_lease_spec s = { 0 };
	rc_error e = { 0 };
	CHECK(rc_lease_spec_from(d, copy, &s, &e) == 0);
	CHECK(rc_id_eq(&task, &s.lease_id) && rc_id_eq(&job, &s.job_id) && rc_id_eq(&actor, &s.actor_id) && rc_id_eq(&owner, &s.owner.worker_id));
	CHECK(s.is_actor && s.is_detached);
	CHECK_EQ_INT(3, s.max_actor_restarts);
	CHECK_EQ_INT(777, s.owner.port);
	CHECK_STR("10.0.0.1", s.owner.ip);
	CHECK_STR("me", s.actor_name);
	CHECK_STR("A.__init__", s.task_name);
	CHECK_AMOUNTS("{}", &s.required);
	CHECK_AMOUNTS("{CPU: 1}", &s.placement);
	CHECK_EQ_INT(1, s.n_dependencies);
	CHECK(rc_id_eq(&object, &s.dependencies[0].object_id));
	CHECK_STR("10.0.0.1", s.dependencies[0].owner.ip);
	CHECK_EQ_INT(1, s.n_worker_options);
	CHECK_STR("", s.runtime_env);
	CHECK_EQ_INT(0, s.runtime_env_hash);
	rc_lease_spec_free(&s);
	rc_free_message(copy);
	rc_amount_map_free(&map);
	rc_amounts_free(&placement);
}

static void of_2_60(void)
{
	const rc_dialect *d = rc_dialect_find("2.60.0", NULL);
	rc_id lease = id_of_byte(RC_LEASE_ID, 1), actor = id_of_byte(RC_ACTOR_ID, 3), node = id_of_byte(RC_NODE_ID, 6),
	      object = id_of_byte(RC_OBJECT_ID, 5);
	Rw__LeaseSpec m = RW__LEASE_SPEC__INIT;
	Rw__SchedulingStrategy strategy = RW__SCHEDULING_STRATEGY__INIT;
	Rw__NodeAffinitySchedulingStrategy affinity = RW__NODE_AFFINITY_SCHEDULING_STRATEGY__INIT;
	Rw__LabelSelectorConstraint c = RW__LABEL_SELECTOR_CONSTRAINT__INIT, *list[] = { &c };
	Rw__LabelSelector selector = RW__LABEL_SELECTOR__INIT;
	Rw__FallbackOption option = RW__FALLBACK_OPTION__INIT, *option_list[] = { &option };
	Rw__FallbackStrategy fallback = RW__FALLBACK_STRATEGY__INIT;
	Rw__RuntimeEnvInfo env = RW__RUNTIME_ENV_INFO__INIT;
	Rw__RuntimeEnvConfig config = RW__RUNTIME_ENV_CONFIG__INIT;
	Rw__ObjectReference ref = RW__OBJECT_REFERENCE__INIT, *refs[] = { &ref };
	rc_amounts required = amounts_of("CPU,1,GPU,0");
	rc_amount_map map = rc_amount_map_make(&required);
	char *values[] = { (char *)"east" };
	RC_SET_ID(m, lease_id, &lease);
	RC_SET_ID(m, actor_id, &actor);
	RC_SET_ID(affinity, node_id, &node);
	RC_SET(affinity, soft, true);
	strategy.node_affinity_scheduling_strategy = &affinity;
	m.scheduling_strategy = &strategy;
	c.label_key = (char *)"zone";
	RC_SET(c, operator_, rc_enum_value(d, RC_V_LABEL_IN));
	c.label_values = values;
	c.n_label_values = 1;
	selector.label_constraints = list;
	selector.n_label_constraints = 1;
	m.label_selector = &selector;
	option.label_selector = &selector;
	fallback.options = option_list;
	fallback.n_options = 1;
	m.fallback_strategy = &fallback;
	env.serialized_runtime_env = (char *)"{\"env_vars\": {}}";
	RC_SET(config, setup_timeout_seconds, 600);
	env.runtime_env_config = &config;
	m.runtime_env_info = &env;
	RC_SET_ID(ref, object_id, &object);
	m.dependencies = refs;
	m.n_dependencies = 1;
	m.required_resources = map.v;
	m.n_required_resources = map.n;
	Rw__LeaseSpec *copy = over_the_wire(d, &m);
	rc_lease_spec s = { 0 };
	rc_error e = { 0 };
	CHECK(rc_lease_spec_from(d, copy, &s, &e) == 0);
	CHECK(!s.is_actor && rc_id_eq(&actor, &s.actor_id));
	CHECK_EQ_INT(RC_STRATEGY_AFFINITY, s.strategy.kind);
	CHECK(s.strategy.soft && rc_id_eq(&node, &s.strategy.node_id));
	CHECK_EQ_INT(1, s.selector.n);
	CHECK_EQ_INT(1, s.n_fallbacks);
	CHECK_EQ_INT(1, s.n_dependencies);
	CHECK_AMOUNTS("{CPU: 1}", &s.required);
	CHECK_AMOUNTS("{CPU: 1}", &s.placement);
	CHECK_EQ_INT(600, s.runtime_env_timeout_s);
	CHECK(s.runtime_env_hash != 0);
	rc_lease_spec other = { 0 };
	CHECK(rc_lease_spec_from(d, copy, &other, &e) == 0);
	CHECK(other.class_key_n == s.class_key_n && memcmp(other.class_key, s.class_key, s.class_key_n) == 0);
	rc_lease_spec_free(&other);
	RC_SET(*copy, depth, 2);
	CHECK(rc_lease_spec_from(d, copy, &other, &e) == 0);
	CHECK(other.class_key_n != s.class_key_n || memcmp(other.class_key, s.class_key, s.class_key_n) != 0);
	rc_lease_spec_free(&other);
	rc_lease_spec_free(&s);
	rc_free_message(copy);
	rc_amount_map_free(&map);
	rc_amounts_free(&required);
}

static void groups(void)
{
	const rc_dialect *d = rc_dialect_find("2.60.0", NULL);
	Rw__LeaseSpec m = RW__LEASE_SPEC__INIT;
	Rw__SchedulingStrategy strategy = RW__SCHEDULING_STRATEGY__INIT;
	Rw__PlacementGroupSchedulingStrategy group = RW__PLACEMENT_GROUP_SCHEDULING_STRATEGY__INIT;
	rc_id id = id_of_byte(RC_PG_ID, 9), nil = rc_id_nil(RC_PG_ID);
	rc_lease_spec s = { 0 };
	rc_error e = { 0 };
	RC_SET_ID(group, placement_group_id, &id);
	RC_SET(group, placement_group_bundle_index, -1);
	strategy.placement_group_scheduling_strategy = &group;
	m.scheduling_strategy = &strategy;
	CHECK(rc_lease_spec_from(d, &m, &s, &e) == 0);
	CHECK_EQ_INT(RC_STRATEGY_GROUP, s.strategy.kind);
	CHECK_EQ_INT(-1, s.strategy.bundle.index);
	CHECK(rc_id_eq(&id, &s.strategy.bundle.group));
	rc_lease_spec_free(&s);
	RC_SET_ID(group, placement_group_id, &nil);
	CHECK(rc_lease_spec_from(d, &m, &s, &e) == 0);
	CHECK_EQ_INT(RC_STRATEGY_DEFAULT, s.strategy.kind);
	rc_lease_spec_free(&s);
}

static void refuses(void)
{
	const rc_dialect *d = rc_dialect_find("2.60.0", NULL);
	Rw__LeaseSpec m = RW__LEASE_SPEC__INIT;
	Rw__ObjectReference ref = RW__OBJECT_REFERENCE__INIT, *refs[] = { &ref };
	rc_lease_spec s = { 0 };
	rc_error e = { 0 };
	uint8_t junk[40] = { 1 };
	RC_SET_BYTES(m, lease_id, junk, 40);
	CHECK(rc_lease_spec_from(d, &m, &s, &e) < 0);
	CHECK_STR("lease request: lease_id has 40 bytes, not 32", e.text);
	m.has_lease_id = 0;
	RC_SET_BYTES(m, job_id, junk, 5);
	CHECK(rc_lease_spec_from(d, &m, &s, &e) < 0);
	m.has_job_id = 0;
	m.dependencies = refs;
	m.n_dependencies = 1;
	CHECK(rc_lease_spec_from(d, &m, &s, &e) < 0);
	CHECK_STR("lease request: dependency 0 has an object id of 0 bytes", e.text);
	m.n_dependencies = RC_MAX_DEPENDENCIES + 1;
	CHECK(rc_lease_spec_from(d, &m, &s, &e) < 0);
	CHECK_EQ_INT(RC_E_FULL, e.code);
	m.n_dependencies = 0;
	CHECK(rc_lease_spec_from(d, &m, &s, &e) == 0); /* an empty one is well-formed */
	rc_lease_spec_free(&s);
}

int main(void)
{
	RUN(of_2_35, "a TaskSpec of 2.35.0 becomes a lease");
	RUN(of_2_60, "a LeaseSpec of 2.60.0 becomes a lease, and equal ones are of one class");
	RUN(groups, "a placement group is read with its bundle, and the nil group is none");
	RUN(refuses, "a malformed request is refused with the field named");
	return test_end();
}
