/* The object manager: nodes.h has the nodes and the owner. Run for both releases. */
#include "raylet-c/objects/test/nodes.h"

/* ---- tests ---- */

static int client_a, client_b;

static void moves_objects(void)
{
	static const uint64_t sizes[][2] = { { 0, 3 }, { 10, 0 }, { CHUNK - 3, 3 }, { CHUNK, 1 }, { 5 * CHUNK + 77, 5 }, { 3 * MB, 100 * KB } };
	rc_object_ref refs[2][6];

	start_cluster(2, 64 * MB);
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < 6; i++)
			refs[k][i] = make(&nodes[k], sizes[i][0], sizes[i][1]);
		UNTIL(known_to_owner, (&(here){ &nodes[k], refs[k], 6 }));
		rc_objects_get(nodes[!k].objects, &client_a, refs[k], 6, false);
	}
	for (int k = 0; k < 2; k++) {
		UNTIL(all_here, (&(here){ &nodes[!k], refs[k], 6 }));
		for (int i = 0; i < 6; i++)
			CHECK(intact(&nodes[!k], &refs[k][i], sizes[i][0], sizes[i][1]));
	}
	run_ms(100);
	CHECK_EQ_INT(2, entry_of(&refs[0][0].id)->n_nodes); /* the new copy was reported */
	CHECK_EQ_INT(0, stats_of(&nodes[0]).sending);
	CHECK_EQ_INT(0, stats_of(&nodes[0]).chunks_dropped);
	CHECK_EQ_INT(0, stats_of(&nodes[0]).pull_retries);
	rc_objects_get_cancel(nodes[0].objects, &client_a);
	rc_objects_client_gone(nodes[1].objects, &client_a);
	CHECK_EQ_INT(0, stats_of(&nodes[0]).gets + stats_of(&nodes[1]).gets);
	stop_cluster();
}

static void moves_many(void)
{
	enum { MANY = 400 };
	rc_object_ref *refs = rc_alloc(MANY * sizeof *refs);

	start_cluster(2, 64 * MB);
	for (int i = 0; i < MANY; i++)
		refs[i] = make(&nodes[0], 2000, 2);
	UNTIL(known_to_owner, (&(here){ &nodes[0], refs, MANY }));
	CHECK(owner.updates_calls < MANY / 4); /* batched */
	rc_objects_get(nodes[1].objects, &client_a, refs, MANY, false);
	UNTIL(all_here, (&(here){ &nodes[1], refs, MANY }));
	for (int i = 0; i < MANY; i++)
		CHECK(intact(&nodes[1], &refs[i], 2000, 2));
	CHECK_EQ_INT(MANY, stats_of(&nodes[1]).chunks_in);
	stop_cluster();
	free(refs);
}

static void large_chunks(void)
{
	rc_object_ref ref;

	base_options.chunk_size = 5 * MB;
	start_cluster(2, 128 * MB);
	ref = make(&nodes[0], 12 * MB + 5, 7);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, true);
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	CHECK(intact(&nodes[1], &ref, 12 * MB + 5, 7));
	CHECK_EQ_INT(3, stats_of(&nodes[1]).chunks_in);
	base_options.chunk_size = CHUNK;
	stop_cluster();
}

typedef struct waited {
	bool done;
	rc_id found[8], remaining[8];
	size_t n_found, n_remaining;
} waited;

static void on_wait(void *arg, const rc_id *found, size_t n_found, const rc_id *remaining, size_t n_remaining)
{
	waited *w = arg;

	CHECK(!w->done);
	w->done = true;
	memcpy(w->found, found, n_found * sizeof *found);
	memcpy(w->remaining, remaining, n_remaining * sizeof *remaining);
	w->n_found = n_found;
	w->n_remaining = n_remaining;
}

static void waits_in_order(void)
{
	rc_object_ref refs[5];
	waited w = { 0 };
	uint64_t began;

	start_cluster(2, 64 * MB);
	for (int i = 0; i < 4; i++)
		refs[i] = make(&nodes[i % 2], 1000, 1); /* 1 and 3 are here */
	refs[4] = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	entry_of(&refs[4].id)->pending = true; /* nobody has made it yet */

	rc_objects_wait(nodes[1].objects, refs, 5, 1, 0, on_wait, &w);
	CHECK(!w.done); /* never inside the call */
	UNTIL(flag, &w.done);
	CHECK_EQ_INT(1, w.n_found);
	CHECK(rc_id_eq(&w.found[0], &refs[1].id));
	CHECK_EQ_INT(4, w.n_remaining);
	CHECK(rc_id_eq(&w.remaining[0], &refs[0].id) && rc_id_eq(&w.remaining[3], &refs[4].id));

	w = (waited){ 0 };
	rc_objects_wait(nodes[1].objects, refs, 5, 4, -1, on_wait, &w);
	UNTIL(flag, &w.done);
	CHECK_EQ_INT(4, w.n_found);
	for (int i = 0; i < 4; i++)
		CHECK(rc_id_eq(&w.found[i], &refs[i].id));
	CHECK_EQ_INT(1, w.n_remaining);

	w = (waited){ 0 };
	began = rc_now_ms();
	rc_objects_wait(nodes[1].objects, refs + 3, 2, 2, 200, on_wait, &w);
	UNTIL(flag, &w.done);
	CHECK(rc_now_ms() - began >= 190);
	CHECK_EQ_INT(1, w.n_found);
	CHECK_EQ_INT(1, w.n_remaining);

	w = (waited){ 0 };
	rc_objects_wait_cancel(nodes[1].objects, rc_objects_wait(nodes[1].objects, refs, 5, 5, 10, on_wait, &w));
	run_ms(50);
	CHECK(!w.done);
	CHECK_EQ_INT(0, stats_of(&nodes[1]).waits);

	rc_objects_wait(nodes[1].objects, refs + 4, 1, 1, -1, on_wait, &w);
	run_ms(30);
	{ /* now it is made, on the other node */
		rc_store_new object = { .id = refs[4].id, .owner = owner.address, .data_size = 5, .source = RC_BY_WORKER };

		rc_store_create_object(nodes[0].store, &object, made, &nodes[0]);
	}
	UNTIL(flag, &w.done);
	CHECK_EQ_INT(1, w.n_found);
	CHECK(intact(&nodes[1], &refs[4], 5, 0));
	stop_cluster();
}

static void on_ready(void *arg, const rc_id *id)
{
	*(rc_id *)arg = *id;
}

static bool has_id(void *arg)
{
	return ((rc_id *)arg)->n > 0;
}

static void tells_readiness(void)
{
	rc_object_ref ref;
	rc_id ready = { 0 }, never = { 0 };

	start_cluster(2, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	rc_objects_subscribe_ready(nodes[1].objects, &client_b, &ref, on_ready, &never);
	rc_objects_client_gone(nodes[1].objects, &client_b);
	rc_objects_subscribe_ready(nodes[1].objects, &client_a, &ref, on_ready, &ready);
	UNTIL(has_id, &ready);
	CHECK(rc_id_eq(&ready, &ref.id));
	CHECK(!never.n);
	ready = (rc_id){ 0 };
	rc_objects_subscribe_ready(nodes[1].objects, &client_a, &ref, on_ready, &ready); /* here already */
	UNTIL(has_id, &ready);
	stop_cluster();
}

static void fetches_and_holds(void)
{
	rc_object_ref refs[3];
	uint64_t fetch, other, empty;
	bool done = false, done_other = false, done_empty = false;
	rc_store_stats s;
	rc_error e;

	base_options.args_memory_fraction = 0.5;
	start_cluster(2, 16 * MB);
	refs[0] = make(&nodes[0], 5 * MB, 0);
	refs[1] = make(&nodes[1], 1000, 0);
	refs[2] = make(&nodes[1], 6 * MB, 0);
	fetch = rc_objects_fetch(nodes[1].objects, refs, 2, set_flag, &done);
	empty = rc_objects_fetch(nodes[1].objects, NULL, 0, set_flag, &done_empty);
	other = rc_objects_fetch(nodes[1].objects, refs + 2, 1, set_flag, &done_other);
	CHECK(!rc_objects_fetch_local(nodes[1].objects, fetch));
	CHECK_EQ_INT(-1, rc_objects_fetch_hold(nodes[1].objects, fetch, &e));
	CHECK_EQ_INT(RC_E_NOT_FOUND, e.code);
	UNTIL(flag, &done);
	CHECK(done_empty && done_other);
	CHECK(rc_objects_fetch_local(nodes[1].objects, fetch));
	CHECK_EQ_INT(0, rc_objects_fetch_hold(nodes[1].objects, fetch, &e));
	CHECK_EQ_INT(0, rc_objects_fetch_hold(nodes[1].objects, empty, &e));
	CHECK_EQ_INT(5 * MB + 1000, stats_of(&nodes[1]).args_held_bytes);
	CHECK_EQ_INT(-1, rc_objects_fetch_hold(nodes[1].objects, other, &e)); /* 11 of 16 MB is over one half */
	CHECK_EQ_INT(RC_E_FULL, e.code);
	rc_store_get_stats(nodes[1].store, &s);
	CHECK_EQ_INT(2, s.in_use_objects);
	rc_objects_fetch_end(nodes[1].objects, fetch);
	CHECK_EQ_INT(0, rc_objects_fetch_hold(nodes[1].objects, other, &e));
	rc_objects_fetch_end(nodes[1].objects, other);
	rc_objects_fetch_end(nodes[1].objects, empty);
	rc_store_get_stats(nodes[1].store, &s);
	CHECK_EQ_INT(0, s.in_use_objects);
	CHECK_EQ_INT(0, stats_of(&nodes[1]).fetches + stats_of(&nodes[1]).args_held_bytes);

	/* Gone again before it was held: told anew. */
	done = false;
	fetch = rc_objects_fetch(nodes[1].objects, refs, 1, set_flag, &done);
	UNTIL(flag, &done);
	done = false;
	rc_store_delete(nodes[1].store, &refs[0].id, 1);
	CHECK_EQ_INT(-1, rc_objects_fetch_hold(nodes[1].objects, fetch, &e));
	CHECK_EQ_INT(RC_E_NOT_FOUND, e.code);
	UNTIL(flag, &done);
	CHECK(intact(&nodes[1], &refs[0], 5 * MB, 0));
	base_options.args_memory_fraction = 0;
	stop_cluster();
}

static void pins_until_freed(void)
{
	rc_object_ref ref, absent;
	outcome o;

	start_cluster(2, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	absent = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	CHECK(pin(&nodes[0], &ref));
	CHECK(!pin(&nodes[0], &absent));
	CHECK_EQ_INT(1, stats_of(&nodes[0]).pinned);
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, true);
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	if (rc_enum_value(dialect, RC_V_CHANNEL_OBJECT_EVICTION) >= 0) { /* 2.35.0 */
		publish(1, &ref.id, false);
	} else {
		Rw__FreeLocalObjectsRequest m = RW__FREE_LOCAL_OBJECTS_REQUEST__INIT;
		ProtobufCBinaryData id = { ref.id.n, ref.id.b };

		m.n_object_ids = 1;
		m.object_ids = &id;
		for (int i = 0; i < 2; i++) {
			call_node(&nodes[i], RC_M_FREE_LOCAL_OBJECTS, &m, &o);
			CHECK_EQ_INT(RC_RPC_OK, o.status);
			rc_buf_free(&o.reply);
		}
	}
	UNTIL(none_here, (&(here){ &nodes[0], &ref, 1 }));
	UNTIL(none_here, (&(here){ &nodes[1], &ref, 1 })); /* 2.35.0: told by the node that had it pinned */
	CHECK_EQ_INT(0, stats_of(&nodes[0]).pinned);
	run_ms(50);
	CHECK_EQ_INT(0, entry_of(&ref.id)->n_nodes);
	stop_cluster();
}

static void owner_death_frees(void)
{
	rc_object_ref refs[2];
	rc_id dead;

	start_cluster(1, 64 * MB);
	refs[0] = make(&nodes[0], 1000, 1);
	refs[1] = make(&nodes[0], 1000, 1);
	CHECK(pin(&nodes[0], &refs[0]) && pin(&nodes[0], &refs[1]));
	run_ms(50);
	CHECK(all_here(&(here){ &nodes[0], refs, 2 }));
	dead = owner.address.worker_id;
	rc_objects_worker_died(nodes[0].objects, &dead);
	CHECK(none_here(&(here){ &nodes[0], refs, 2 }));
	CHECK_EQ_INT(0, stats_of(&nodes[0]).pinned);
	stop_cluster();

	start_cluster(1, 64 * MB);
	refs[0] = make(&nodes[0], 1000, 1);
	CHECK(pin(&nodes[0], &refs[0]));
	rc_objects_node_removed(nodes[0].objects, &owner.address.node_id);
	CHECK(none_here(&(here){ &nodes[0], refs, 1 }));
	stop_cluster();
}

static void owner_death_frees_copies(void)
{
	rc_object_ref ref;

	start_cluster(2, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, true);
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	rc_objects_worker_died(nodes[1].objects, &owner.address.worker_id);
	UNTIL(none_here, (&(here){ &nodes[1], &ref, 1 }));
	stop_cluster();
}

static void owner_death_fails_pulls(void)
{
	rc_object_ref refs[3];
	char error[16];

	start_cluster(1, 64 * MB);
	for (int i = 0; i < 3; i++)
		refs[i] = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	entry_of(&refs[0].id)->pending = true;
	entry_of(&refs[1].id)->unknown = true;
	rc_objects_get(nodes[0].objects, &client_a, refs, 2, false);
	UNTIL(all_here, (&(here){ &nodes[0], refs + 1, 1 }));
	error_of(&nodes[0], &refs[1], error);
	CHECK_STR("10", error); /* OBJECT_DELETED */
	CHECK(!rc_store_contains(nodes[0].store, &refs[0].id));
	rc_objects_worker_died(nodes[0].objects, &owner.address.worker_id);
	UNTIL(all_here, (&(here){ &nodes[0], refs, 1 }));
	error_of(&nodes[0], &refs[0], error);
	CHECK_STR("9", error); /* OWNER_DIED */
	rc_objects_get(nodes[0].objects, &client_a, refs + 2, 1, false); /* asked after the death */
	UNTIL(all_here, (&(here){ &nodes[0], refs + 2, 1 }));
	error_of(&nodes[0], &refs[2], error);
	CHECK_STR("9", error);
	CHECK_EQ_INT(0, entry_of(&refs[0].id)->added); /* error objects are no copies */
	stop_cluster();

	start_cluster(1, 64 * MB);
	owner.refuse = true; /* another process has the owner's port */
	refs[0] = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	rc_objects_get(nodes[0].objects, &client_a, refs, 1, false);
	UNTIL(all_here, (&(here){ &nodes[0], refs, 1 }));
	error_of(&nodes[0], &refs[0], error);
	CHECK_STR("9", error);
	stop_cluster();
}

static void unreachable_owner(void)
{
	rc_object_ref ref;
	char error[16];

	base_options.unreachable_failures = 5; /* 1.5 s */
	start_cluster(1, 64 * MB);
	ref = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	rc_rpc_destroy(owner.rpc); /* as a process that was killed */
	owner.rpc = NULL;
	rc_objects_get(nodes[0].objects, &client_a, &ref, 1, false);
	run_ms(800);
	CHECK(!rc_store_contains(nodes[0].store, &ref.id)); /* it is tried for a while */
	UNTIL(all_here, (&(here){ &nodes[0], &ref, 1 }));
	error_of(&nodes[0], &ref, error);
	CHECK_STR("9", error);
	base_options.unreachable_failures = 0;
	stop_cluster();
}

static bool is_pinned(void *arg)
{
	return stats_of(arg).pinned > 0;
}

static void flaky_owner(void)
{
	enum { MANY = 20 };
	rc_object_ref refs[MANY];

	start_cluster(2, 64 * MB);
	owner.flaky = 6;
	for (int i = 0; i < MANY; i++)
		refs[i] = make(&nodes[0], 3000, 0);
	rc_objects_get(nodes[1].objects, &client_a, refs, MANY, false);
	UNTIL(all_here, (&(here){ &nodes[1], refs, MANY }));
	for (int i = 0; i < MANY; i++)
		CHECK(intact(&nodes[1], &refs[i], 3000, 0));
	CHECK_EQ_INT(0, owner.flaky);
	owner.flaky = 2; /* what is unsubscribed in between must not be subscribed at the end */
	refs[0] = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	rc_objects_get(nodes[1].objects, &client_b, refs, 1, false);
	rc_objects_get_cancel(nodes[1].objects, &client_b);
	run_ms(1000);
	CHECK(!rc_map_get_id(subscriber_of(&nodes[1].id)->keys[0], &refs[0].id));
	stop_cluster();
}

/* 2.35.0 */
static void eviction_failure_frees(void)
{
	rc_object_ref ref;

	start_cluster(1, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	CHECK(pin(&nodes[0], &ref));
	if (rc_enum_value(dialect, RC_V_CHANNEL_OBJECT_EVICTION) >= 0) {
		run_ms(100);
		publish(1, &ref.id, true);
		UNTIL(none_here, (&(here){ &nodes[0], &ref, 1 }));
	}
	stop_cluster();
	start_cluster(1, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	CHECK(pin(&nodes[0], &ref));
	rc_rpc_destroy(owner.rpc);
	owner.rpc = NULL;
	run_ms(2500);
	CHECK(is_pinned(&nodes[0])); /* not reached is not dead */
	stop_cluster();
}

static bool was_pulled(void *arg)
{
	return ((node *)arg)->pulls > 0;
}

static void resumes_after_death(void)
{
	enum { SIZE = 10 * CHUNK };
	node *silent;
	rc_object_ref ref;
	uint64_t sent_before;
	outcome o;

	start_cluster(2, 64 * MB);
	silent = start_node(2, 0, true);
	ref = make(&nodes[0], SIZE, 0);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
	entry_of(&ref.id)->nodes[0] = silent->id; /* at first only there */
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, false);
	UNTIL(was_pulled, silent);
	CHECK(rc_id_eq(&silent->pulled, &ref.id) && rc_id_eq(&silent->puller, &nodes[1].id));
	for (uint32_t i = 0; i < 4; i++) {
		send_chunk(&nodes[1], silent, &ref, i, SIZE, 0, CHUNK, &o);
		CHECK_EQ_INT(RC_RPC_OK, o.status);
	}
	CHECK_EQ_INT(4, stats_of(&nodes[1]).chunks_in);
	entry_of(&ref.id)->nodes[0] = nodes[0].id;
	publish(0, &ref.id, false);
	run_ms(50);
	CHECK(!rc_store_contains(nodes[1].store, &ref.id));
	sent_before = rc_now_ms();
	kill_node(silent);
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	CHECK(rc_now_ms() - sent_before < 3000);
	CHECK(intact(&nodes[1], &ref, SIZE, 0));
	CHECK_EQ_INT(10, stats_of(&nodes[1]).chunks_in); /* the four that were here were not taken again */
	CHECK_EQ_INT(SIZE, stats_of(&nodes[1]).bytes_in);
	stop_cluster();
}

static void rotates_places(void)
{
	node *silent;
	rc_object_ref ref;

	base_options.pull_timeout_ms = 200;
	start_cluster(2, 64 * MB);
	silent = start_node(2, 0, true);
	ref = make(&nodes[0], 3 * CHUNK, 0);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
	entry_of(&ref.id)->nodes[1] = silent->id;
	entry_of(&ref.id)->n_nodes = 2;
	for (int i = 0; i < 6; i++) { /* whichever is asked first, it comes */
		rc_objects_get(nodes[1].objects, &client_a, &ref, 1, true);
		UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
		CHECK(intact(&nodes[1], &ref, 3 * CHUNK, 0));
		rc_store_delete(nodes[1].store, &ref.id, 1);
		run_ms(20);
	}
	base_options.pull_timeout_ms = 0;
	stop_cluster();
}

static void refuses_bad_chunks(void)
{
	enum { SIZE = 3 * CHUNK + 10 };
	node *peer;
	rc_object_ref ref;
	outcome o;

	start_cluster(1, 64 * MB);
	peer = start_node(1, 0, true);
	ref = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	send_chunk(&nodes[0], peer, &ref, 0, SIZE, 0, CHUNK, &o); /* nobody wants it */
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK_EQ_INT(1, stats_of(&nodes[0]).chunks_dropped);

	entry_of(&ref.id)->size = SIZE;
	entry_of(&ref.id)->nodes[0] = peer->id;
	entry_of(&ref.id)->n_nodes = 1;
	rc_objects_get(nodes[0].objects, &client_a, &ref, 1, false);
	UNTIL(was_pulled, peer);
	send_chunk(&nodes[0], peer, &ref, 0, SIZE, 4, CHUNK, &o);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	send_chunk(&nodes[0], peer, &ref, 0, SIZE, 4, CHUNK, &o); /* twice */
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK_EQ_INT(1, stats_of(&nodes[0]).chunks_in);
	CHECK_EQ_INT(2, stats_of(&nodes[0]).chunks_dropped);
	send_chunk(&nodes[0], peer, &ref, 1, SIZE, 4, CHUNK - 1, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	CHECK(strstr(o.detail, "chunk 1 of 4 with 65535 bytes does not fit") != NULL);
	send_chunk(&nodes[0], peer, &ref, 4, SIZE, 4, 10, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	send_chunk(&nodes[0], peer, &ref, 1, SIZE + CHUNK, 4, CHUNK, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	CHECK(strstr(o.detail, "differ from") != NULL);
	send_chunk(&nodes[0], peer, &ref, 1, SIZE, 5, CHUNK, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	send_chunk(&nodes[0], peer, &ref, 0, UINT64_MAX, 0, CHUNK, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	for (uint32_t i = 3; i >= 1; i--) /* any order */
		send_chunk(&nodes[0], peer, &ref, i, SIZE, 4, i == 3 ? 10 : CHUNK, &o);
	UNTIL(all_here, (&(here){ &nodes[0], &ref, 1 }));
	CHECK(intact(&nodes[0], &ref, SIZE - 4, 4));
	send_chunk(&nodes[0], peer, &ref, 1, SIZE, 4, CHUNK, &o); /* when it is here */
	CHECK_EQ_INT(RC_RPC_OK, o.status);

	o = (outcome){ 0 };
	rc_call(peer->rpc, nodes[0].address, rc_method_path(dialect, RC_M_OM_PUSH), rc_view_str("\x12\x7f nonsense"), 10000, 0, on_outcome, &o);
	UNTIL(flag, &o.done);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	for (rc_method m = RC_M_OM_PULL;; m = RC_M_PIN_OBJECT_IDS) {
		o = (outcome){ 0 };
		rc_call(peer->rpc, nodes[0].address, rc_method_path(dialect, m), rc_view_str("\x0a\x7f nonsense"), 10000, 0, on_outcome, &o);
		UNTIL(flag, &o.done);
		CHECK_EQ_INT(RC_RPC_INVALID, o.status);
		if (m == RC_M_PIN_OBJECT_IDS)
			break;
	}
	stop_cluster();
}

static void cancel_gives_memory_back(void)
{
	node *peer;
	rc_object_ref ref;
	rc_store_stats s;
	outcome o;

	start_cluster(1, 64 * MB);
	peer = start_node(1, 0, true);
	ref = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	entry_of(&ref.id)->size = 2 * CHUNK;
	entry_of(&ref.id)->nodes[0] = peer->id;
	entry_of(&ref.id)->n_nodes = 1;
	rc_objects_get(nodes[0].objects, &client_a, &ref, 1, false);
	UNTIL(was_pulled, peer);
	send_chunk(&nodes[0], peer, &ref, 0, 2 * CHUNK, 0, CHUNK, &o);
	rc_store_get_stats(nodes[0].store, &s);
	CHECK_EQ_INT(1, s.unsealed_objects);
	rc_objects_get_cancel(nodes[0].objects, &client_a);
	rc_store_get_stats(nodes[0].store, &s);
	CHECK_EQ_INT(0, s.unsealed_objects);
	run_ms(50);
	CHECK(owner.unsubscribed > 0);
	stop_cluster();
}

static void reads_spilled_objects(void)
{
	enum { MANY = 12, SIZE = 2 * MB + 11 };
	rc_object_ref refs[MANY];
	int spilled_now = 0;

	start_cluster(2, 64 * MB);
	stop_node(&nodes[0]);
	start_node(0, 10 * MB, false);
	for (int i = 0; i < MANY; i++) {
		refs[i] = make(&nodes[0], SIZE, 5);
		run_until(all_here, (&(here){ &nodes[0], &refs[i], 1 }), 5000);
		CHECK(pin(&nodes[0], &refs[i]));
		run_ms(20);
	}
	for (int i = 0; i < MANY; i++)
		spilled_now += rc_store_spilled_url(nodes[0].store, &refs[i].id) != NULL;
	CHECK(spilled_now >= MANY - 5);
	rc_objects_get(nodes[1].objects, &client_a, refs, MANY, false);
	UNTIL(all_here, (&(here){ &nodes[1], refs, MANY }));
	for (int i = 0; i < MANY; i++)
		CHECK(intact(&nodes[1], &refs[i], SIZE, 5));
	/* And at home they are restored. */
	rc_objects_get(nodes[0].objects, &client_a, &refs[0], 1, true);
	UNTIL(all_here, (&(here){ &nodes[0], &refs[0], 1 }));
	CHECK(intact(&nodes[0], &refs[0], SIZE, 5));
	stop_cluster();
}

static void more_than_the_store_holds(void)
{
	enum { MANY = 20, SIZE = 1 * MB };
	rc_object_ref refs[MANY];
	bool done[MANY] = { 0 };
	uint64_t fetch[MANY];

	start_cluster(2, 64 * MB);
	stop_node(&nodes[1]);
	start_node(1, 5 * MB, false);
	for (int i = 0; i < MANY; i++)
		refs[i] = make(&nodes[0], SIZE, 5);
	UNTIL(known_to_owner, (&(here){ &nodes[0], refs, MANY }));
	for (int i = 0; i < MANY; i++) /* arguments of twenty leases, held one after the other */
		fetch[i] = rc_objects_fetch(nodes[1].objects, &refs[i], 1, set_flag, &done[i]);
	for (int i = 0; i < MANY; i++) {
		rc_error e;

		do {
			UNTIL(flag, &done[i]);
			done[i] = false;
		} while (!test_bad_ && rc_objects_fetch_hold(nodes[1].objects, fetch[i], &e) < 0);
		CHECK(intact(&nodes[1], &refs[i], SIZE, 5));
		rc_objects_fetch_end(nodes[1].objects, fetch[i]);
	}
	CHECK(!rc_objects_pulls_queued(nodes[1].objects));
	stop_cluster();
}

static void full_disk_fails(void)
{
	rc_object_ref kept, there;
	const rc_hold *hold;
	char error[16];

	start_cluster(2, 16 * MB);
	stop_node(&nodes[1]);
	disk_threshold = 0;
	start_node(1, 5 * MB, false);
	disk_threshold = 0.95;
	kept = make(&nodes[1], 4 * MB, 0);
	hold = rc_store_hold(nodes[1].store, &kept.id); /* in use: no memory for another, and the disk counts as full */
	CHECK(hold != NULL);
	there = make(&nodes[0], 2 * MB, 0);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &there, 1 }));
	rc_objects_get(nodes[1].objects, &client_a, &there, 1, false);
	UNTIL(all_here, (&(here){ &nodes[1], &there, 1 }));
	error_of(&nodes[1], &there, error);
	CHECK_STR("20", error);
	rc_store_release(nodes[1].store, hold);
	stop_cluster();
}

static void nowhere_fails(void)
{
	rc_object_ref ref;
	char error[16];

	base_options.fetch_fail_timeout_ms = 300;
	start_cluster(1, 64 * MB);
	ref = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	rc_objects_get(nodes[0].objects, &client_a, &ref, 1, false);
	UNTIL(all_here, (&(here){ &nodes[0], &ref, 1 }));
	error_of(&nodes[0], &ref, error);
	CHECK_STR("14", error); /* OBJECT_FETCH_TIMED_OUT */
	base_options.fetch_fail_timeout_ms = 0;
	stop_cluster();
}

static bool got_chunk(void *arg)
{
	return ((node *)arg)->pulls > 0;
}

static void keeps_early_pulls(void)
{
	Rw__PullRequest m = RW__PULL_REQUEST__INIT;
	ProtobufCBinaryData id;
	rc_object_ref ref;
	node *young;
	outcome o;

	start_cluster(1, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	young = start_node(1, 0, true);
	young->unknown = true;
	RC_SET_ID(m, node_id, &young->id);
	RC_SET_ID(m, object_id, &ref.id);
	id = (ProtobufCBinaryData){ ref.id.n, ref.id.b };
	m.n_object_ids = 1;
	m.object_ids = &id;
	call_node(&nodes[0], RC_M_OM_PULL, &m, &o);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	run_ms(50);
	CHECK_EQ_INT(0, young->pulls);
	young->unknown = false;
	rc_objects_node_added(nodes[0].objects, &young->id);
	UNTIL(got_chunk, young);
	CHECK(rc_id_eq(&young->pulled, &ref.id));
	stop_cluster();
}

static void ends_in_the_middle(void)
{
	rc_object_ref refs[3];

	for (int i = 0; i < 6; i++) {
		base_options.chunk_size = i % 2 ? CHUNK : MB;
		start_cluster(2, 64 * MB);
		for (int k = 0; k < 3; k++)
			refs[k] = make(&nodes[0], 2 * MB + 500 * KB, 1);
		UNTIL(known_to_owner, (&(here){ &nodes[0], refs, 3 }));
		rc_objects_get(nodes[1].objects, &client_a, refs, 3, false);
		run_ms((uint64_t)i * 3);
		stop_node(&nodes[i % 2]); /* either end first */
		stop_cluster();
	}
	base_options.chunk_size = CHUNK;
	CHECK(true);
}

static void run_all(void)
{
	RUN(moves_objects, "objects of all sizes move both ways, whole, and new copies are reported");
	RUN(moves_many, "400 objects move with few reports and each chunk once");
	RUN(large_chunks, "chunks of 5 MiB are copied by the pool");
	RUN(waits_in_order, "a wait gives what is here in the order asked, minds count and time limit, and pulls the rest");
	RUN(tells_readiness, "a subscription is told once when its object is here, none of a client that has gone");
	RUN(fetches_and_holds, "arguments are fetched, held within the limit of memory, and fetched again when gone");
	RUN(pins_until_freed, "a pinned object stays until its owner frees it, then it is gone on both nodes");
	RUN(owner_death_frees, "the death of the owner or its node frees what it had pinned");
	RUN(owner_death_frees_copies, "copies that nobody pinned go with their owner too");
	RUN(owner_death_fails_pulls, "objects of a dead owner, or unknown to theirs, become error objects");
	RUN(flaky_owner, "calls to an owner that fail are repeated in order, and lose nothing");
	RUN(eviction_failure_frees, "an owner that knows a pinned object no more frees it, one that is not reached does not");
	RUN(unreachable_owner, "an owner that cannot be reached is tried for some seconds before its objects fail");
	RUN(resumes_after_death, "a node that dies in mid-transfer is replaced, and what has come is kept");
	RUN(rotates_places, "a node that sends nothing is left for another");
	RUN(refuses_bad_chunks, "chunks that nobody wants, twins and malformed ones harm nothing");
	RUN(cancel_gives_memory_back, "a cancelled get gives back the memory of a half received object");
	RUN(reads_spilled_objects, "spilled objects are sent from their files, and restored at home");
	RUN(more_than_the_store_holds, "leases whose arguments exceed the store get them in turn");
	RUN(full_disk_fails, "an object for which there is neither memory nor disk fails as OUT_OF_DISK_ERROR");
	RUN(nowhere_fails, "an object that exists nowhere fails after the time limit");
	RUN(keeps_early_pulls, "a pull by a node that has just joined is answered when the head tells of it");
	RUN(ends_in_the_middle, "either end can stop in mid-transfer");
}

int main(int argc, char **argv)
{
	loop = rc_loop_create();
	base_options.chunk_size = CHUNK;
	rc_log_level(getenv("RC_TEST_LOG") ? RC_DEBUG : RC_ERROR);
	for (int i = 0; i < 2; i++) {
		const char *release = i ? "2.60.0" : "2.35.0";

		if (argc > 1 && strcmp(argv[1], release) != 0)
			continue;
		printf("# Ray %s\n", release);
		dialect = rc_dialect_find(release, NULL);
		run_all();
	}
	rc_loop_destroy(loop);
	return test_end();
}
