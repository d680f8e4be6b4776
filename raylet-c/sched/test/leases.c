/* The lease manager with a made-up node: every op writes a word into a journal that the tests read. */
#include "raylet-c/base/log.h"
#include "raylet-c/sched/leases.h"
#include "raylet-c/sched/test/sched_test.h"

enum { SELF = 0x50 };

static uint64_t now_ms;
static uint64_t fake_now(void)
{
	return now_ms;
}

static rc_resources *res;
static rc_bundles *bundles;
static rc_cluster *cluster;
static rc_labels no_labels;
static rc_leases *l;
static rc_buf journal;
static bool args_local, pool_at_once, kill_at_once;
static rc_pin pin_answer;
static int next_worker, replies, granted_replies;

/* "<name of the lease>" is its lease id's first byte, a letter. */
static char name_of(const rc_lease *lease)
{
	return (char)lease->spec.lease_id.b[0];
}

static bool fetch_args(void *ctx, rc_lease *lease)
{
	(void)ctx;
	rc_buf_printf(&journal, "fetch %c; ", name_of(lease));
	return args_local;
}

static void release_args(void *ctx, rc_lease *lease)
{
	(void)ctx;
	rc_buf_printf(&journal, "release %c; ", name_of(lease));
}

static rc_pin pin_args(void *ctx, rc_lease *lease)
{
	(void)ctx;
	(void)lease;
	rc_pin p = pin_answer;
	pin_answer = p == RC_PIN_MISSING ? RC_PIN_OK : p;
	return p;
}

static rc_id worker_id(int n)
{
	rc_id id = id_of_byte(RC_WORKER_ID, 0);
	memcpy(id.b, &n, sizeof(n));
	return id;
}

static void ready(rc_lease *lease)
{
	rc_id id = worker_id(++next_worker);
	rc_leases_worker_ready(l, lease, &id);
}

static void pop_worker(void *ctx, rc_lease *lease)
{
	(void)ctx;
	rc_buf_printf(&journal, "pop %c; ", name_of(lease));
	if (pool_at_once)
		ready(lease);
}

static void cancel_pop(void *ctx, rc_lease *lease)
{
	(void)ctx;
	rc_buf_printf(&journal, "unpop %c; ", name_of(lease));
}

static void reply(void *ctx, rc_lease *lease, void *handle, const rc_outcome *o)
{
	(void)ctx;
	(void)handle;
	replies++;
	switch (o->kind) {
	case RC_OUTCOME_GRANTED:
		granted_replies++;
		rc_buf_printf(&journal, "%c granted; ", name_of(lease));
		break;
	case RC_OUTCOME_REJECTED:
		rc_buf_printf(&journal, "%c rejected; ", name_of(lease));
		break;
	case RC_OUTCOME_CANCELED:
		rc_buf_printf(&journal, "%c canceled %d; ", name_of(lease), rc_enum_value(rc_dialect_find("2.60.0", NULL), o->failure));
		CHECK(o->text != NULL);
		break;
	case RC_OUTCOME_SPILLED:
		rc_buf_printf(&journal, "%c to %x; ", name_of(lease), o->node_id.b[0]);
		break;
	}
}

static void kill_worker(void *ctx, rc_lease *lease, const char *reason)
{
	(void)ctx;
	rc_buf_printf(&journal, "kill %c; ", name_of(lease));
	CHECK(reason && *reason);
	if (kill_at_once)
		rc_leases_finished(l, lease);
}

static const rc_lease_ops ops = { fetch_args, release_args, pin_args, pop_worker, cancel_pop, reply, kill_worker };

static void begin_release(const char *release, const char *list, const rc_leases_config *change)
{
	rc_amounts a = amounts_of(list);
	rc_id self = id_of_byte(RC_NODE_ID, SELF);
	now_ms = 100000;
	res = rc_resources_create(&a, &(rc_resources_options){ .now_ms = fake_now }, NULL);
	bundles = rc_bundles_create(res);
	cluster = rc_cluster_create(&self);
	rc_leases_config c;
	rc_leases_config_defaults(&c);
	if (change)
		c = *change;
	c.dialect = rc_dialect_find(release, NULL);
	c.self = self;
	c.labels = &no_labels;
	c.resources = res;
	c.bundles = bundles;
	c.cluster = cluster;
	c.ops = &ops;
	c.now_ms = fake_now;
	l = rc_leases_create(&c);
	rc_bundles_on_removed(bundles, rc_leases_bundle_removed, l);
	args_local = false;
	pool_at_once = true;
	kill_at_once = false;
	pin_answer = RC_PIN_OK;
	next_worker = replies = granted_replies = 0;
	rc_amounts_free(&a);
}

static void begin(const char *list)
{
	begin_release("2.60.0", list, NULL);
}

static void end(void)
{
	rc_leases_destroy(l);
	rc_bundles_destroy(bundles);
	rc_cluster_destroy(cluster);
	rc_resources_destroy(res);
	rc_buf_free(&journal);
}

/* What happened since the last look. */
static void check_journal(const char *file, int line, const char *want)
{
	size_t n = journal.n;
	if (n >= 2)
		journal.n -= 2;
	test_str_(file, line, "journal", want, rc_buf_cstr(&journal));
	journal.n = 0;
}
#define CHECK_JOURNAL(want) check_journal(__FILE__, __LINE__, (want))

static rc_id lease_id(char name)
{
	return id_of_byte(RC_LEASE_ID, (uint8_t)name);
}

static rc_lease *lease(char name)
{
	rc_id id = lease_id(name);
	return rc_leases_find(l, &id);
}

static rc_lease_spec spec(char name, const char *class, const char *list)
{
	rc_lease_spec s = { 0 };
	s.lease_id = lease_id(name);
	s.job_id = id_of_byte(RC_JOB_ID, 1);
	s.owner.worker_id = id_of_byte(RC_WORKER_ID, 0xee);
	s.owner.node_id = id_of_byte(RC_NODE_ID, 0xef);
	s.owner.ip = rc_strdup("");
	s.required = amounts_of(list);
	s.placement = amounts_of(list);
	s.strategy.bundle.index = -1;
	s.class_key = rc_sprintf("%s %s", class, list);
	s.class_key_n = strlen(s.class_key);
	return s;
}

static void send(rc_lease_spec s, bool grant_or_reject)
{
	static int handles;
	rc_error e = { 0 };
	if (rc_leases_request(l, &s, grant_or_reject, false, 0, &handles, &e) < 0)
		test_fail_(__FILE__, __LINE__, e.text);
	CHECK(s.class_key == NULL);
}

static void ask(char name, const char *list)
{
	send(spec(name, "f", list), false);
}

static rc_lease_spec with_args(rc_lease_spec s)
{
	s.dependencies = rc_alloc(sizeof(*s.dependencies));
	s.n_dependencies = 1;
	s.dependencies[0].object_id = id_of_byte(RC_OBJECT_ID, 7);
	s.dependencies[0].owner.ip = rc_strdup("");
	return s;
}

static void finish(char name)
{
	CHECK(lease(name) != NULL);
	if (lease(name))
		rc_leases_finished(l, lease(name));
}

static void node(uint8_t byte, const char *total, const char *available, bool draining)
{
	rc_id id = id_of_byte(RC_NODE_ID, byte);
	rc_amounts t = amounts_of(total), a = amounts_of(available);
	rc_amount_map tm = rc_amount_map_make(&t), am = rc_amount_map_make(&a);
	Rw__SyncerResourceViewSyncMessage m = RW__SYNCER__RESOURCE_VIEW_SYNC_MESSAGE__INIT;
	m.resources_total = tm.v;
	m.n_resources_total = tm.n;
	m.resources_available = am.v;
	m.n_resources_available = am.n;
	RC_SET(m, is_draining, draining);
	rc_cluster_alive(cluster, &id, NULL);
	CHECK_EQ_INT(0, rc_cluster_view(cluster, &id, &m, NULL));
	rc_amount_map_free(&tm);
	rc_amount_map_free(&am);
	rc_amounts_free(&t);
	rc_amounts_free(&a);
	rc_leases_run(l);
}

static void check_free(const char *file, int line, const char *want)
{
	rc_amounts a = { 0 };
	rc_resources_available(res, &a);
	check_amounts_(file, line, want, &a);
	rc_amounts_free(&a);
}
#define CHECK_FREE(want) check_free(__FILE__, __LINE__, (want))

/* Nothing is left: each request was answered once and all resources are back. */
static void check_clean(const char *file, int line, int requests)
{
	test_int_(file, line, "replies", requests, replies);
	test_int_(file, line, "waiting", 0, (long long)rc_leases_waiting(l));
	test_int_(file, line, "granted", 0, (long long)rc_leases_granted(l));
	test_int_(file, line, "idle", 1, rc_resources_idle(res));
	size_t i = 0;
	if (rc_leases_next(l, &i))
		test_fail_(file, line, "a lease is left");
}
#define CHECK_CLEAN(requests) check_clean(__FILE__, __LINE__, (requests))

/* ---- the way of a lease ---- */

static bool cancel(char name)
{
	rc_id id = lease_id(name);
	return rc_leases_cancel(l, &id, RC_V_FAILURE_INTENDED, "");
}

static void simple(void)
{
	begin("CPU,1,GPU,2");
	pool_at_once = false;
	ask('z', "");
	CHECK(!rc_resources_idle(res)); /* a worker is being started, though it takes no resources */
	cancel('z');
	CHECK(rc_resources_idle(res));
	CHECK_JOURNAL("pop z; unpop z; z canceled 4");
	ask('a', "CPU,1,GPU,1");
	CHECK_JOURNAL("pop a");
	CHECK_EQ_INT(RC_LEASE_WORKER, lease('a')->state);
	CHECK_FREE("{CPU: 0, GPU: 1}");
	ready(lease('a'));
	CHECK_JOURNAL("a granted");
	CHECK(!rc_resources_idle(res));
	rc_lease_mapping map = rc_lease_mapping_make(lease('a')->allocation);
	CHECK_EQ_INT(2, map.n);
	CHECK_STR("GPU", map.v[1]->name);
	CHECK_EQ_INT(0, map.v[1]->resource_ids[0]->index);
	CHECK(map.v[1]->resource_ids[0]->has_index && map.v[1]->resource_ids[0]->quantity == 1);
	rc_lease_mapping_free(&map);
	ask('b', "CPU,1");
	CHECK_JOURNAL("");
	finish('a');
	CHECK_JOURNAL("pop b");
	ready(lease('b'));
	finish('b');
	CHECK_JOURNAL("b granted");
	CHECK_CLEAN(3);
	end();
}

static void arguments(void)
{
	begin("CPU,1");
	send(with_args(spec('a', "f", "CPU,1")), false);
	CHECK_JOURNAL("fetch a");
	CHECK_EQ_INT(RC_LEASE_ARGS, lease('a')->state);
	CHECK(!rc_resources_idle(res));
	ask('b', "CPU,1"); /* goes past the one that fetches */
	CHECK_JOURNAL("pop b; b granted");
	rc_leases_args_ready(l, lease('a'));
	rc_leases_args_ready(l, lease('a'));
	CHECK_JOURNAL("");
	pin_answer = RC_PIN_MISSING; /* evicted meanwhile */
	finish('b');
	CHECK_JOURNAL("fetch a");
	rc_leases_args_ready(l, lease('a'));
	CHECK_JOURNAL(""); /* pauses shortly */
	now_ms += 200;
	pin_answer = RC_PIN_NO_ROOM;
	rc_leases_run(l);
	CHECK_JOURNAL("");
	pin_answer = RC_PIN_OK;
	rc_leases_run(l);
	CHECK_JOURNAL("pop a; a granted");
	finish('a');
	CHECK_JOURNAL("release a");
	args_local = true;
	send(with_args(spec('c', "f", "CPU,1")), false);
	CHECK_JOURNAL("fetch c; pop c; c granted");
	finish('c');
	CHECK_JOURNAL("release c");
	CHECK_CLEAN(3);
	end();
}

static void retried_requests(void)
{
	begin("CPU,1");
	pool_at_once = false;
	ask('a', "CPU,1");
	ask('a', "CPU,1");
	CHECK_JOURNAL("pop a");
	ready(lease('a'));
	CHECK_JOURNAL("a granted; a granted");
	ask('a', "CPU,1"); /* the answer was lost */
	CHECK_JOURNAL("a granted");
	CHECK_EQ_INT(1, rc_leases_granted(l));
	finish('a');
	CHECK_CLEAN(3);
	ask('b', "CPU,1");
	for (int i = 1; i < RC_MAX_LEASE_HANDLES; i++)
		ask('b', "CPU,1");
	rc_lease_spec s = spec('b', "f", "CPU,1");
	rc_error e = { 0 };
	CHECK(rc_leases_request(l, &s, false, false, 0, NULL, &e) < 0);
	CHECK_EQ_INT(RC_E_FULL, e.code);
	ready(lease('b'));
	finish('b');
	CHECK_CLEAN(3 + RC_MAX_LEASE_HANDLES);
	s = spec('x', "f", "CPU,1");
	s.lease_id.n = 0;
	CHECK(rc_leases_request(l, &s, false, false, 0, NULL, &e) < 0);
	CHECK_STR("lease request without a lease id", e.text);
	end();
	/* 2.35.0: a restarted actor asks with the same task id while its old worker is not yet gone. */
	begin_release("2.35.0", "CPU,4", NULL);
	ask('a', "CPU,1");
	rc_lease *old = lease('a');
	ask('a', "CPU,1");
	CHECK_JOURNAL("pop a; a granted; pop a; a granted");
	CHECK(lease('a') != old);
	CHECK_FREE("{CPU: 2}");
	rc_leases_finished(l, old);
	CHECK(lease('a') != NULL);
	finish('a');
	CHECK_CLEAN(2);
	end();
}

static void actors(void)
{
	begin("CPU,1");
	rc_lease_spec s = spec('a', "A", "");
	s.is_actor = true;
	rc_amounts_free(&s.placement);
	s.placement = amounts_of("CPU,1");
	ask('b', "CPU,1");
	send(s, true); /* the CPU is for the choice of the node only */
	CHECK_JOURNAL("pop b; b granted; pop a; a granted");
	CHECK_EQ_INT(0, lease('a')->allocation->n);
	rc_leases_blocked(l, lease('a'));
	CHECK(!lease('a')->blocked);
	s = spec('c', "A", "");
	s.is_actor = true;
	rc_amounts_free(&s.placement);
	s.placement = amounts_of("CPU,2");
	send(s, true);
	CHECK_JOURNAL("c rejected");
	finish('a');
	finish('b');
	CHECK_CLEAN(3);
	end();
}

static void blocked_workers(void)
{
	begin("CPU,1");
	ask('a', "CPU,1");
	send(spec('b', "child", "CPU,1"), false);
	CHECK_JOURNAL("pop a; a granted");
	rc_leases_blocked(l, lease('a'));
	rc_leases_blocked(l, lease('a'));
	CHECK_JOURNAL("pop b; b granted");
	rc_leases_unblocked(l, lease('a'));
	rc_leases_unblocked(l, lease('a'));
	CHECK_EQ_INT(-10000, rc_resources_available_of(res, "CPU"));
	send(spec('c', "child", "CPU,1"), false);
	finish('b');
	CHECK_JOURNAL("");
	finish('a');
	CHECK_JOURNAL("pop c; c granted");
	rc_leases_blocked(l, lease('c'));
	finish('c'); /* dies while it waits */
	CHECK_FREE("{CPU: 1}");
	CHECK_CLEAN(3);
	end();
}

/* ---- order ---- */

static void blocked_class(void)
{
	begin("CPU,4,memo,1");
	ask('a', "memo,1");
	ask('b', "memo,1");
	ask('c', "memo,1");
	ask('d', "CPU,1");
	CHECK_JOURNAL("pop a; a granted; pop d; d granted");
	finish('a');
	CHECK_JOURNAL("pop b; b granted");
	finish('b');
	CHECK_JOURNAL("pop c; c granted");
	finish('c');
	finish('d');
	CHECK_CLEAN(4);
	end();
}

static void fairness(void)
{
	begin("CPU,3");
	for (char c = 'a'; c <= 'f'; c++)
		send(spec(c, "f", "CPU,1"), false);
	for (char c = 'u'; c <= 'x'; c++)
		send(spec(c, "g", "CPU,1"), false);
	CHECK_JOURNAL("pop a; a granted; pop b; b granted; pop c; c granted");
	finish('a');
	CHECK_JOURNAL("pop u; u granted"); /* f has two, g none */
	finish('b');
	CHECK_JOURNAL("pop d; d granted"); /* one each: who waits longer */
	finish('c');
	CHECK_JOURNAL("pop e; e granted");
	finish('d');
	CHECK_JOURNAL("pop f; f granted");
	finish('e');
	CHECK_JOURNAL("pop v; v granted");
	finish('f');
	finish('u');
	finish('v');
	CHECK_JOURNAL("pop w; w granted; pop x; x granted");
	finish('w');
	finish('x');
	CHECK_CLEAN(10);
	end();
}

static void worker_cap(void)
{
	begin("CPU,2");
	for (char c = 'a'; c <= 'f'; c++)
		ask(c, "CPU,1");
	CHECK_JOURNAL("pop a; a granted; pop b; b granted");
	rc_leases_blocked(l, lease('a'));
	rc_leases_blocked(l, lease('b'));
	CHECK_JOURNAL(""); /* CPUs are free, but parents must not start without end */
	send(spec('u', "child", "CPU,1"), false);
	CHECK_JOURNAL("pop u; u granted");
	now_ms += 999;
	rc_leases_run(l);
	CHECK_JOURNAL("");
	now_ms += 1;
	rc_leases_run(l);
	CHECK_JOURNAL("pop c; c granted");
	rc_leases_blocked(l, lease('c'));
	now_ms += 1999;
	rc_leases_run(l);
	CHECK_JOURNAL("");
	now_ms += 1;
	rc_leases_run(l);
	CHECK_JOURNAL("pop d; d granted");
	finish('c');
	finish('d');
	finish('a');
	CHECK_JOURNAL("pop e; e granted");
	rc_leases_unblocked(l, lease('b'));
	finish('b');
	finish('u');
	CHECK_JOURNAL("pop f; f granted");
	finish('e');
	finish('f');
	CHECK_CLEAN(7);
	end();
	rc_leases_config c;
	rc_leases_config_defaults(&c);
	c.worker_cap = false;
	begin_release("2.60.0", "CPU,1", &c);
	ask('a', "CPU,1");
	ask('b', "CPU,1");
	rc_leases_blocked(l, lease('a'));
	CHECK_JOURNAL("pop a; a granted; pop b; b granted");
	finish('a');
	finish('b');
	CHECK_CLEAN(2);
	end();
}

/* ---- workers that do not come ---- */

static void failed_starts(void)
{
	rc_leases_config c;
	rc_leases_config_defaults(&c);
	c.worker_retries = 1;
	begin_release("2.60.0", "CPU,1", &c);
	pool_at_once = false;
	ask('a', "CPU,1");
	ask('b', "CPU,1");
	rc_leases_worker_failed(l, lease('a'), RC_WORKER_FAIL_NO_JOB, "no job");
	CHECK_JOURNAL("pop a; pop b"); /* the next one may try at once */
	rc_leases_worker_failed(l, lease('b'), RC_WORKER_FAIL_RUNTIME_ENV, "pip failed");
	CHECK_JOURNAL("b canceled 3");
	now_ms += 1000;
	rc_leases_run(l);
	CHECK_JOURNAL("pop a");
	rc_leases_worker_failed(l, lease('a'), RC_WORKER_FAIL_START, "died");
	now_ms += 1000;
	rc_leases_run(l);
	CHECK_JOURNAL("pop a");
	rc_leases_worker_failed(l, lease('a'), RC_WORKER_FAIL_START, "died");
	CHECK_JOURNAL("a canceled 6");
	ask('c', "CPU,1");
	rc_leases_worker_failed(l, lease('c'), RC_WORKER_FAIL_JOB_DEAD, "job over");
	CHECK_JOURNAL("pop c; c canceled 4");
	CHECK_CLEAN(3);
	end();
}

static void order_after_failed_start(void)
{
	begin("CPU,1");
	pool_at_once = false;
	ask('a', "CPU,1");
	ask('b', "CPU,1");
	ask('c', "CPU,1");
	rc_leases_worker_failed(l, lease('a'), RC_WORKER_FAIL_START, "died");
	ready(lease('b'));
	now_ms += 5000;
	finish('b');
	CHECK_JOURNAL("pop a; pop b; b granted; pop a");
	ready(lease('a'));
	finish('a');
	ready(lease('c'));
	finish('c');
	CHECK_JOURNAL("a granted; pop c; c granted");
	CHECK_CLEAN(3);
	end();
}

/* ---- cancellation ---- */

static void cancel_in_each_state(void)
{
	begin("CPU,1");
	pool_at_once = false;
	ask('p', "CPU,2"); /* infeasible */
	send(with_args(spec('f', "f", "CPU,1")), false);
	ask('w', "CPU,1");
	ask('r', "CPU,1");
	CHECK_JOURNAL("fetch f; pop w");
	CHECK(cancel('p') && !lease('p'));
	CHECK(cancel('f') && !lease('f'));
	CHECK(cancel('r') && !lease('r'));
	CHECK_JOURNAL("p canceled 4; release f; f canceled 4; r canceled 4");
	ask('n', "CPU,1");
	CHECK(cancel('w'));
	CHECK_JOURNAL("unpop w; w canceled 4; pop n"); /* the next one gets its resources */
	ready(lease('n'));
	CHECK(!cancel('n'));
	CHECK(!cancel('z'));
	finish('n');
	CHECK_JOURNAL("n granted");
	CHECK_CLEAN(5);
	end();
}

static void dead_owners(void)
{
	begin("CPU,2");
	rc_id owner = id_of_byte(RC_WORKER_ID, 0xee), other = id_of_byte(RC_WORKER_ID, 0xdd), from = id_of_byte(RC_NODE_ID, 0xef),
	      job = id_of_byte(RC_JOB_ID, 1), none = { 0 };
	ask('a', "CPU,1");
	rc_lease_spec s = spec('d', "D", "CPU,1");
	s.is_actor = s.is_detached = true;
	send(s, true);
	ask('b', "CPU,1");
	s = spec('c', "f", "CPU,1");
	s.owner.worker_id = other;
	send(s, false);
	journal.n = 0;
	rc_leases_owner_dead(l, &none);
	rc_leases_owner_dead(l, &owner);
	CHECK_JOURNAL("kill a; b canceled 4");
	rc_leases_owner_dead(l, &owner);
	CHECK_JOURNAL(""); /* once is enough */
	finish('a');
	CHECK_JOURNAL("pop c; c granted");
	rc_leases_node_dead(l, &from);
	CHECK_JOURNAL("kill c");
	finish('c');
	s = spec('e', "f", "CPU,1");
	s.root_detached_actor_id = id_of_byte(RC_ACTOR_ID, 3); /* started by a detached actor of that job */
	send(s, false);
	ask('g', "CPU,1");
	journal.n = 0;
	kill_at_once = true;
	rc_leases_job_dead(l, &job);
	CHECK_JOURNAL("g canceled 4");
	finish('e');
	finish('d');
	ask('h', "CPU,1");
	ask('i', "CPU,1");
	ask('j', "CPU,1");
	journal.n = 0;
	rc_leases_job_dead(l, &job);
	journal.n = 0;
	CHECK_CLEAN(9);
	end();
}

static void shapes(void)
{
	begin("CPU,1");
	ask('a', "CPU,1,foo,1");
	ask('b', "CPU,1,foo,2");
	ask('c', "CPU,1,foo,1");
	ask('d', "CPU,1");
	journal.n = 0;
	rc_amounts v[2] = { amounts_of("foo,1,CPU,1,GPU,0"), amounts_of("bar,1") };
	CHECK_EQ_INT(2, rc_leases_cancel_shapes(l, v, 2));
	CHECK_JOURNAL("a canceled 5; c canceled 5");
	CHECK(lease('b') && lease('d'));
	cancel('b');
	finish('d');
	CHECK_CLEAN(4);
	rc_amounts_free(&v[0]);
	rc_amounts_free(&v[1]);
	end();
}

/* ---- other nodes ---- */

static void infeasible(void)
{
	begin("CPU,1");
	ask('a', "foo,1");
	ask('b', "foo,1");
	send(spec('c', "f", "foo,1"), true);
	CHECK_JOURNAL("c rejected");
	CHECK(lease('a')->infeasible && lease('b')->infeasible);
	node(1, "CPU,1", "CPU,1", false);
	CHECK_JOURNAL("");
	node(2, "foo,1", "foo,1", false);
	CHECK_JOURNAL("a to 2; b to 2");
	ask('d', "bar,1");
	rc_q one = RC_Q_ONE;
	rc_resources_add(res, "bar", &one, 1);
	rc_leases_run(l);
	CHECK_JOURNAL("pop d; d granted");
	finish('d');
	CHECK_CLEAN(4);
	end();
}

static void spills_when_busy(void)
{
	begin("CPU,1");
	ask('a', "CPU,1");
	ask('b', "CPU,1");
	CHECK_JOURNAL("pop a; a granted");
	node(1, "CPU,2", "CPU,0", false);
	CHECK_JOURNAL("");
	node(1, "CPU,2", "CPU,1", false);
	CHECK_JOURNAL("b to 1");
	ask('c', "CPU,1"); /* its one CPU is spoken for */
	CHECK_JOURNAL("");
	node(1, "CPU,2", "CPU,2", true); /* drains */
	CHECK_JOURNAL("");
	node(1, "CPU,2", "CPU,2", false);
	CHECK_JOURNAL("c to 1");
	ask('d', "CPU,1");
	CHECK_JOURNAL("d to 1"); /* asked here first, busy here: there at once */
	finish('a');
	CHECK_CLEAN(4);
	end();
}

static void busy_is_no_reason_to_reject(void)
{
	begin("CPU,1");
	ask('a', "CPU,1");
	send(spec('b', "f", "CPU,1"), true);
	CHECK_JOURNAL("pop a; a granted");
	for (int i = 0; i < 100; i++) {
		now_ms += 100;
		rc_leases_run(l);
	}
	CHECK_JOURNAL(""); /* nobody else could take it */
	node(1, "CPU,1", "CPU,1", false);
	CHECK_JOURNAL("b rejected"); /* it waited long, and now somebody could */
	send(spec('c', "f", "CPU,1"), true);
	now_ms += 900;
	node(1, "CPU,1", "CPU,1", false);
	CHECK_JOURNAL("");
	finish('a');
	CHECK_JOURNAL("pop c; c granted");
	finish('c');
	CHECK_CLEAN(3);
	end();
}

static void failing_affinity(void)
{
	begin("CPU,1");
	rc_lease_spec s = spec('a', "f", "CPU,1");
	s.strategy = (rc_strategy){ .kind = RC_STRATEGY_AFFINITY, .node_id = id_of_byte(RC_NODE_ID, 9) };
	send(s, false);
	CHECK_JOURNAL("a canceled 5");
	s = spec('b', "f", "CPU,1");
	s.strategy = (rc_strategy){ .kind = RC_STRATEGY_AFFINITY, .node_id = id_of_byte(RC_NODE_ID, SELF) };
	send(s, false);
	CHECK_JOURNAL("pop b; b granted");
	finish('b');
	CHECK_CLEAN(2);
	end();
}

static void draining(void)
{
	begin("CPU,1");
	ask('a', "CPU,1");
	ask('b', "CPU,1");
	send(spec('c', "f", "CPU,1"), true);
	send(with_args(spec('d', "f", "CPU,1")), false);
	journal.n = 0;
	rc_leases_set_draining(l, true);
	CHECK_EQ_INT(2, rc_leases_waiting(l));
	CHECK(lease('b') && lease('b')->infeasible && lease('d')->infeasible && !lease('c'));
	journal.n = 0;
	send(spec('e', "f", "CPU,1"), true);
	CHECK_JOURNAL("e rejected");
	ask('g', "CPU,1");
	finish('a');
	CHECK_JOURNAL(""); /* what ran is done, nothing new starts */
	CHECK(rc_resources_idle(res));
	node(1, "CPU,9", "CPU,9", false);
	CHECK_JOURNAL("b to 1; d to 1; g to 1");
	ask('h', "CPU,1");
	CHECK_JOURNAL("h to 1");
	rc_id one = id_of_byte(RC_NODE_ID, 1);
	rc_cluster_dead(cluster, &one);
	rc_leases_node_dead(l, &one);
	ask('i', "CPU,1");
	CHECK_JOURNAL("");
	rc_leases_set_draining(l, false);
	CHECK_JOURNAL("pop i; i granted");
	finish('i');
	CHECK_CLEAN(8);
	end();
}

/* ---- placement groups ---- */

#define G "090909090909090909090909090909090909"

static void prepare(int index, const char *list)
{
	rc_bundle_id id = { id_of_byte(RC_PG_ID, 9), index };
	rc_amounts a = amounts_of(list);
	CHECK_EQ_INT(0, rc_bundle_prepare(bundles, &id, &a, NULL));
	rc_bundle_commit(bundles, &id);
	rc_amounts_free(&a);
	rc_leases_run(l);
}

static void drop(int index)
{
	rc_bundle_id id = { id_of_byte(RC_PG_ID, 9), index };
	rc_bundle_remove(bundles, &id);
	rc_leases_run(l);
}

static rc_lease_spec grouped(char name, const char *class, int index)
{
	rc_lease_spec s;
	if (index < 0) {
		s = spec(name, class, "CPU_group_" G ",1,bundle_group_" G ",0.001");
	} else {
		char list[400];
		snprintf(list, sizeof(list), "CPU_group_" G ",1,CPU_group_%d_" G ",1,bundle_group_" G ",0.001,bundle_group_%d_" G ",0.001", index, index);
		s = spec(name, class, list);
	}
	s.strategy.kind = RC_STRATEGY_GROUP;
	s.strategy.bundle = (rc_bundle_id){ id_of_byte(RC_PG_ID, 9), index };
	return s;
}

static void groups(void)
{
	begin("CPU,4");
	send(grouped('a', "f", -1), false);
	CHECK_JOURNAL("");
	prepare(0, "CPU,1");
	CHECK_JOURNAL("pop a; a granted");
	prepare(1, "CPU,1");
	send(grouped('b', "f", 0), false);
	send(grouped('c', "f", -1), false); /* out of the other bundle */
	CHECK_JOURNAL("pop c; c granted");
	CHECK(lease('a')->bundle && lease('c')->bundle && lease('a')->bundle != lease('c')->bundle);
	ask('o', "CPU,1");
	send(grouped('d', "f", -1), false);
	CHECK_JOURNAL("pop o; o granted");
	drop(0);
	CHECK_JOURNAL("kill a; b canceled 2");
	CHECK_FREE("{CPU: 1, CPU_group_" G ": 0, CPU_group_1_" G ": 0, bundle_group_" G ": 999.999, bundle_group_1_" G ": 999.999}");
	finish('a'); /* its process is gone: now the CPU is free */
	CHECK_EQ_INT(20000, rc_resources_available_of(res, "CPU"));
	pool_at_once = false;
	finish('c');
	CHECK_JOURNAL("pop d");
	drop(1);
	CHECK_JOURNAL("unpop d; d canceled 2");
	CHECK_FREE("{CPU: 3}");
	finish('o');
	send(grouped('e', "f", 1), true);
	CHECK_JOURNAL("e rejected");
	CHECK_CLEAN(6);
	end();
}

static void nobody_enters_a_bundle_that_goes(void)
{
	begin("CPU,2");
	prepare(0, "CPU,1");
	prepare(1, "CPU,1");
	send(grouped('a', "f", 0), false);
	send(grouped('c', "f", 1), false);
	send(grouped('b', "f", -1), false);
	journal.n = 0;
	kill_at_once = true;
	drop(0);
	CHECK_JOURNAL("kill a");
	CHECK_EQ_INT(10000, rc_resources_available_of(res, "CPU"));
	finish('c');
	CHECK_JOURNAL("pop b; b granted");
	CHECK_EQ_INT(1, rc_bundle_of(bundles, lease('b')->allocation)->id.index);
	drop(1);
	CHECK_FREE("{CPU: 2}");
	CHECK_CLEAN(3);
	end();
}

static void groups_with_blocked_workers(void)
{
	begin("CPU,1");
	prepare(0, "CPU,1");
	send(grouped('a', "f", 0), false);
	send(grouped('b', "g", -1), false);
	CHECK_JOURNAL("pop a; a granted");
	rc_leases_blocked(l, lease('a'));
	CHECK_JOURNAL("pop b; b granted"); /* a group's CPU is lent as well */
	rc_leases_blocked(l, lease('b'));
	kill_at_once = true;
	drop(0);
	CHECK_FREE("{CPU: 1}");
	CHECK_CLEAN(2);
	end();
}

/* ---- load ---- */

static void load(void)
{
	begin("CPU,1");
	rc_id w1 = worker_id(1), w2 = worker_id(2), from = id_of_byte(RC_NODE_ID, 0xef);
	ask('a', "CPU,1");
	ask('b', "CPU,1");
	send(spec('c', "other function", "CPU,1"), false);
	send(with_args(spec('d', "f", "CPU,1")), false);
	ask('e', "foo,3");
	rc_lease_spec s = spec('x', "f", "CPU,1");
	rc_leases_backlog_set(l, &w1, &s, 5);
	s = spec('x', "f", "CPU,1");
	rc_leases_backlog_set(l, &w2, &s, 7);
	s = spec('x', "f", "CPU,1");
	rc_leases_backlog_set(l, &w1, &s, 6); /* replaces */
	s = spec('x', "f", "GPU,1");
	rc_leases_backlog_set(l, &w1, &s, 2);
	rc_load load;
	rc_leases_load(l, &load);
	CHECK_EQ_INT(3, load.by_shape.n_resource_demands);
	uint64_t seen = 0;
	for (size_t i = 0; i < load.by_shape.n_resource_demands; i++) {
		const Rw__ResourceDemand *m = load.by_shape.resource_demands[i];
		CHECK_EQ_INT(1, m->n_shape);
		if (strcmp(m->shape[0]->key, "CPU") == 0) {
			CHECK_EQ_INT(3, m->num_ready_requests_queued);
			CHECK_EQ_INT(0, m->num_infeasible_requests_queued);
			CHECK_EQ_INT(13, m->backlog_size);
			seen |= 1;
		} else if (strcmp(m->shape[0]->key, "foo") == 0) {
			CHECK(m->shape[0]->value == 3);
			CHECK_EQ_INT(1, m->num_infeasible_requests_queued);
			seen |= 2;
		} else {
			CHECK_EQ_INT(2, m->backlog_size);
			seen |= 4;
		}
	}
	CHECK_EQ_INT(7, seen);
	CHECK_AMOUNTS("{CPU: 3, GPU: 0, foo: 3}", &load.total_);
	rc_load_free(&load);
	rc_leases_backlog_clear(l, &w1);
	rc_leases_backlog_clear(l, &w1);
	rc_leases_load(l, &load);
	CHECK_EQ_INT(2, load.by_shape.n_resource_demands);
	rc_load_free(&load);
	rc_leases_node_dead(l, &from);
	finish('a');
	rc_leases_load(l, &load);
	CHECK_EQ_INT(0, load.by_shape.n_resource_demands);
	rc_load_free(&load);
	CHECK_CLEAN(5);
	rc_buf text = { 0 };
	rc_leases_print(l, &text);
	CHECK(strstr(rc_buf_cstr(&text), "0 waiting") != NULL);
	CHECK(strstr(rc_buf_cstr(&text), "classes: 0") != NULL);
	rc_buf_free(&text);
	end();
}

static void many_shapes(void)
{
	begin("CPU,1");
	char list[40];
	for (int i = 0; i < 150; i++) {
		snprintf(list, sizeof(list), "foo,%d,memory,100000000000000", i + 1);
		rc_lease_spec s = spec('x', "f", list);
		memcpy(s.lease_id.b, &i, sizeof(i));
		send(s, false);
	}
	rc_load load;
	rc_leases_load(l, &load);
	CHECK_EQ_INT(100, load.by_shape.n_resource_demands);
	CHECK(rc_amounts_get(&load.total_, "memory") == RC_Q_MAX);
	rc_load_free(&load);
	end();
}

/* ---- everything at once ---- */

static void random_life(void)
{
	begin("CPU,4,GPU,2,memo,1");
	enum { NAMES = 26 };
	int asked = 0;
	for (int step = 0; step < 60000 && !test_bad_; step++) {
		char name = (char)('a' + test_random(NAMES));
		rc_lease *p = lease(name);
		now_ms += test_random(300);
		pool_at_once = test_random(2);
		args_local = test_random(2);
		kill_at_once = test_random(2);
		pin_answer = (rc_pin)(test_random(10) ? RC_PIN_OK : test_random(3));
		static const char *const lists[] = { "CPU,1", "CPU,2", "CPU,0.5,GPU,0.5", "GPU,1", "memo,1", "CPU,5", "foo,1", "", "CPU,1,GPU,2" };
		static const char *const classes[] = { "f", "g", "h" };
		rc_id id;
		switch (test_random(16)) {
		case 0:
		case 1:
		case 2:
		case 3:
			if (!p) {
				size_t kind = test_random(10);
				rc_lease_spec s = kind == 9 ? grouped(name, classes[test_random(3)], (int)test_random(3) - 1)
				                            : spec(name, classes[test_random(3)], lists[kind]);
				s.is_actor = test_random(4) == 0;
				s.job_id = id_of_byte(RC_JOB_ID, (uint8_t)test_random(3));
				s.owner.worker_id = id_of_byte(RC_WORKER_ID, (uint8_t)(1 + test_random(3)));
				send(test_random(3) ? s : with_args(s), test_random(2));
				asked++;
			}
			break;
		case 4:
		case 5:
		case 6:
			if (p && p->state == RC_LEASE_GRANTED)
				rc_leases_finished(l, p);
			break;
		case 7:
			if (p && p->state == RC_LEASE_WORKER)
				test_random(2) ? ready(p) : rc_leases_worker_failed(l, p, (rc_worker_fail)test_random(4), "because");
			break;
		case 8:
			if (p && p->state == RC_LEASE_ARGS)
				rc_leases_args_ready(l, p);
			break;
		case 9:
			if (p)
				test_random(2) ? rc_leases_blocked(l, p) : rc_leases_unblocked(l, p);
			break;
		case 10:
			cancel(name);
			break;
		case 11:
			if (test_random(20) == 0) {
				id = id_of_byte(RC_WORKER_ID, (uint8_t)(1 + test_random(3)));
				rc_leases_owner_dead(l, &id);
			} else if (test_random(20) == 0) {
				id = id_of_byte(RC_JOB_ID, (uint8_t)test_random(3));
				rc_leases_job_dead(l, &id);
			}
			break;
		case 12:
			if (test_random(2)) {
				rc_bundle_id b = { id_of_byte(RC_PG_ID, 9), (int)test_random(2) };
				rc_amounts a = amounts_of("CPU,1");
				if (rc_bundle_prepare(bundles, &b, &a, NULL) == 0 && test_random(2))
					rc_bundle_commit(bundles, &b);
				rc_amounts_free(&a);
				rc_leases_run(l);
			} else {
				drop((int)test_random(2));
			}
			break;
		case 13:
			if (test_random(30) == 0)
				rc_leases_set_draining(l, test_random(4) == 0);
			break;
		case 14:
			if (test_random(10) == 0)
				node((uint8_t)(1 + test_random(2)), "CPU,4,foo,1", test_random(4) ? "CPU,0,foo,0" : "CPU,4,foo,1", test_random(4) == 0);
			break;
		default:
			rc_leases_run(l);
			break;
		}
		journal.n = 0;
		CHECK(rc_resources_available_of(res, "GPU") >= 0);
		CHECK(rc_resources_available_of(res, "memo") >= 0);
		size_t i = 0, waiting = 0, granted = 0;
		for (rc_lease *q; (q = rc_leases_next(l, &i)) != NULL;)
			*(q->state == RC_LEASE_GRANTED ? &granted : &waiting) += 1;
		CHECK_EQ_INT(waiting, rc_leases_waiting(l));
		CHECK_EQ_INT(granted, rc_leases_granted(l));
		CHECK_EQ_INT(asked, replies + (int)waiting);
	}
	/* Everything ends. */
	kill_at_once = true;
	for (char c = 'a'; c <= 'z'; c++)
		cancel(c);
	for (char c = 'a'; c <= 'z'; c++)
		if (lease(c))
			rc_leases_finished(l, lease(c));
	drop(0);
	drop(1);
	CHECK(granted_replies > 500); /* enough of them came that far */
	CHECK_FREE("{CPU: 4, GPU: 2, memo: 1}");
	CHECK_CLEAN(asked);
	end();
}

int main(void)
{
	rc_log_level(RC_ERROR);
	RUN(simple, "a lease gets resources, a worker and its answer, and gives back at its end");
	RUN(arguments, "arguments come first, are pinned before a worker is asked, and released at the end");
	RUN(retried_requests, "a repeated request joins the first or gets the same grant; 2.35.0's restarted actor is new");
	RUN(actors, "an actor's placement demand chooses the node and is not held");
	RUN(blocked_workers, "a blocked worker lets others run, and the CPU may go below zero");
	RUN(blocked_class, "a line that is stuck holds up no other");
	RUN(fairness, "the class with the fewest workers goes first");
	RUN(worker_cap, "a class may exceed its share of processes only slowly");
	RUN(failed_starts, "a failed start is tried again after a pause, and ends as the cause says");
	RUN(order_after_failed_start, "a lease keeps its place in line after a failed start");
	RUN(cancel_in_each_state, "a request can be cancelled in every state but granted");
	RUN(dead_owners, "what a dead owner, node or job asked for ends, detached actors stay");
	RUN(shapes, "demands that the autoscaler gives up are cancelled");
	RUN(infeasible, "what fits nowhere waits for a node or a bundle, or is rejected when so asked");
	RUN(spills_when_busy, "a busy node sends leases to nodes that have room now");
	RUN(busy_is_no_reason_to_reject, "grant-or-reject waits while busy, and is rejected late and only if another has room");
	RUN(failing_affinity, "hard affinity to a node that is gone fails");
	RUN(draining, "a draining node sends away or rejects what waits and finishes what runs");
	RUN(groups, "leases in bundles wait for them, run in one, and end with it; its resources return when they are dead");
	RUN(nobody_enters_a_bundle_that_goes, "no lease is let into a bundle while it is being removed");
	RUN(groups_with_blocked_workers, "blocked workers in a bundle lend the group's CPU and leave nothing behind");
	RUN(load, "the load report adds up lines by shape with backlogs");
	RUN(many_shapes, "the load report is bounded");
	RUN(random_life, "60000 random events answer each request once and lose nothing");
	return test_end();
}
