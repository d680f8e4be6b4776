/* Objects between nodes of ours: in answers, over the fabric, and when that fails. nodes.h has the nodes and the owner; the
 * endpoints are those of this machine's libfabric on 127.0.0.1. */
#include "raylet-c/objects/test/nodes.h"

static int client_a;
static const char *provider;

static node *start_ours(int i, uint64_t capacity, const char *fabric)
{
	node *n;

	base_options.cluster_id = "c1c1";
	base_options.fabric = fabric;
	n = start_node(i, capacity, false);
	base_options.cluster_id = NULL;
	base_options.fabric = NULL;
	return n;
}

static void start_pair(uint64_t capacity)
{
	start_owner();
	start_ours(0, capacity, provider);
	start_ours(1, capacity, provider);
}

/* ---- what works ---- */

static void moves(void)
{
	static const uint64_t sizes[][2] = { { 0, 3 }, { 10, 0 }, { 256 * KB - 1, 1 }, { 256 * KB, 1 }, { 5 * CHUNK + 77, 5 },
	                                       { 3 * MB, 300 * KB } };
	rc_object_ref refs[2][6];

	start_pair(64 * MB);
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < 6; i++)
			refs[k][i] = make(&nodes[k], sizes[i][0], sizes[i][1]);
		UNTIL(known_to_owner, (&(here){ &nodes[k], refs[k], 6 }));
		rc_objects_get(nodes[!k].objects, &client_a, refs[k], 6, false);
	}
	for (int k = 0; k < 2; k++)
		UNTIL(all_here, (&(here){ &nodes[!k], refs[k], 6 }));
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < 6; i++)
			CHECK(intact(&nodes[!k], &refs[k][i], sizes[i][0], sizes[i][1]));
		CHECK_EQ_INT(3, stats_of(&nodes[k]).came_inline);
		CHECK_EQ_INT(3, stats_of(&nodes[k]).came_fabric);
		CHECK_EQ_INT(3, stats_of(&nodes[k]).fetch_granted);
		CHECK_EQ_INT(0, stats_of(&nodes[k]).fetch_pushed + stats_of(&nodes[k]).chunks_out + stats_of(&nodes[k]).pull_retries);
		CHECK_EQ_INT(0, rc_map_count(nodes[k].objects->lends));
	}
	stop_cluster();
}

/* 1,000 objects of 0 bytes to 1.2 MB, half of them made by each node, every byte compared. */
static void moves_thousand(void)
{
	enum { EACH = 500 };
	rc_object_ref *refs[2];
	uint64_t seed = 7, *sizes[2];
	size_t wrong = 0;

	start_pair(400 * MB);
	for (int k = 0; k < 2; k++) {
		refs[k] = rc_alloc(EACH * sizeof *refs[k]);
		sizes[k] = rc_alloc(EACH * sizeof *sizes[k]);
		for (int i = 0; i < EACH; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			sizes[k][i] = (seed >> 33) % (i % 4 ? 100 * KB : 1200 * KB);
			refs[k][i] = make(&nodes[k], sizes[k][i], i % 3);
		}
		UNTIL(known_to_owner, (&(here){ &nodes[k], refs[k], EACH }));
	}
	for (int k = 0; k < 2; k++)
		rc_objects_get(nodes[!k].objects, &client_a, refs[k], EACH, false);
	for (int k = 0; k < 2; k++)
		UNTIL(all_here, (&(here){ &nodes[!k], refs[k], EACH }));
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < EACH; i++)
			wrong += !intact(&nodes[!k], &refs[k][i], sizes[k][i], i % 3);
	}
	CHECK_EQ_INT(0, wrong);
	for (int k = 0; k < 2; k++) {
		CHECK_EQ_INT(EACH, stats_of(&nodes[k]).came_inline + stats_of(&nodes[k]).came_fabric);
		CHECK(stats_of(&nodes[k]).came_fabric > 50);
		free(refs[k]);
		free(sizes[k]);
	}
	stop_cluster();
}

/* ---- who has no fabric ---- */

static void stock_peer(void)
{
	rc_object_ref refs[2][3];

	start_owner();
	start_ours(0, 64 * MB, provider);
	start_node(1, 64 * MB, false); /* without a cluster id: answers UNIMPLEMENTED, as a stock node does */
	for (int round = 0; round < 3; round++)
		for (int k = 0; k < 2; k++) {
			refs[k][round] = make(&nodes[k], 2 * MB, 5);
			UNTIL(known_to_owner, (&(here){ &nodes[k], &refs[k][round], 1 }));
			rc_objects_get(nodes[!k].objects, &client_a, &refs[k][round], 1, false);
			UNTIL(all_here, (&(here){ &nodes[!k], &refs[k][round], 1 }));
			CHECK(intact(&nodes[!k], &refs[k][round], 2 * MB, 5));
		}
	CHECK_EQ_INT(0, stats_of(&nodes[0]).came_inline + stats_of(&nodes[0]).came_fabric + stats_of(&nodes[0]).pull_retries);
	CHECK_EQ_INT(0, stats_of(&nodes[1]).pull_retries);
	CHECK(!rc_fabric_started(nodes[0].objects->fabric)); /* nobody here has one: libfabric stays unloaded */
	stop_cluster();
}

static void fabric_off(void)
{
	rc_object_ref refs[2];

	start_owner();
	start_ours(0, 64 * MB, provider);
	start_ours(1, 64 * MB, "off");
	for (int k = 0; k < 2; k++) {
		refs[k] = make(&nodes[k], 2 * MB, 5);
		UNTIL(known_to_owner, (&(here){ &nodes[k], &refs[k], 1 }));
		rc_objects_get(nodes[!k].objects, &client_a, &refs[k], 1, false);
	}
	for (int k = 0; k < 2; k++)
		UNTIL(all_here, (&(here){ &nodes[!k], &refs[k], 1 }));
	for (int k = 0; k < 2; k++) {
		CHECK(intact(&nodes[!k], &refs[k], 2 * MB, 5));
		CHECK_EQ_INT(1, stats_of(&nodes[k]).fetch_pushed);
		CHECK_EQ_INT(0, stats_of(&nodes[k]).came_fabric);
	}
	CHECK(nodes[1].objects->fabric == NULL);
	stop_cluster();
}

static void no_common_provider(void)
{
	rc_object_ref ref;

	start_owner();
	start_ours(0, 64 * MB, "net");
	start_ours(1, 64 * MB, "sockets");
	ref = make(&nodes[0], 2 * MB, 5);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, false);
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	CHECK(intact(&nodes[1], &ref, 2 * MB, 5));
	CHECK_EQ_INT(1, stats_of(&nodes[0]).fetch_pushed);
	stop_cluster();
}

static void fetch_as(node *to, const char *cluster, const rc_id *node_id, const rc_object_ref *ref, outcome *o)
{
	rc__om_ask m = { .object = ref->id };
	rc_buf b = { 0 };

	snprintf(m.from.cluster, sizeof m.from.cluster, "%s", cluster);
	m.from.node = *node_id;
	rc__om_ask_write(&m, &b);
	*o = (outcome){ 0 };
	rc_call(owner.rpc, to->address, RC__OM_FETCH_PATH, rc_view_of(b.p, b.n), 10000, 0, on_outcome, o);
	rc_buf_free(&b);
	UNTIL(flag, &o->done);
}

static void strangers(void)
{
	rc_object_ref ref;
	rc__om_answer a;
	rc_id unknown = rc_id_random(RC_NODE_ID);
	outcome o;

	start_pair(64 * MB);
	ref = make(&nodes[0], 100, 5);
	fetch_as(&nodes[0], "c2c2", &nodes[1].id, &ref, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	fetch_as(&nodes[0], "", &nodes[1].id, &ref, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	fetch_as(&nodes[0], "c1c1", &unknown, &ref, &o);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK_EQ_INT(0, rc__om_answer_read(rc_view_of(o.reply.p, o.reply.n), &a, NULL));
	CHECK_EQ_INT(RC__OM_PUSHED, a.kind); /* to where the head says that this node is, once it does */
	rc_buf_free(&o.reply);
	fetch_as(&nodes[0], "c1c1", &nodes[1].id, &ref, &o);
	CHECK_EQ_INT(0, rc__om_answer_read(rc_view_of(o.reply.p, o.reply.n), &a, NULL));
	CHECK_EQ_INT(RC__OM_INLINE, a.kind);
	rc_buf_free(&o.reply);
	rc_call(owner.rpc, nodes[0].address, RC__OM_FETCH_PATH, rc_view_str("\x01zzz"), 10000, 0, on_outcome, &o);
	o.done = false;
	UNTIL(flag, &o.done);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	rc_call(owner.rpc, nodes[0].address, RC__OM_FETCH_PATH, rc_view_str("\x09zzz"), 10000, 0, on_outcome, &o);
	o.done = false;
	UNTIL(flag, &o.done);
	CHECK_EQ_INT(RC_RPC_UNIMPLEMENTED, o.status); /* a later version's: it then asks as if this were a stock node */
	stop_cluster();
}

/* ---- failures ---- */

static bool some_came(void *arg)
{
	return stats_of(arg).chunks_in > 3;
}

/* The lender takes its loan back in the middle: what was read counts no more where the provider cannot tell, and all comes. */
static void loan_ended(void)
{
	rc_object_ref ref;

	start_pair(200 * MB);
	ref = make(&nodes[0], 60 * MB, 5);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, false);
	UNTIL(some_came, &nodes[1]);
	CHECK_EQ_INT(1, rc_map_count(nodes[0].objects->lends));
	rc_objects_node_removed(nodes[0].objects, &nodes[1].id); /* a wrong word of the head: the node lives */
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	CHECK(intact(&nodes[1], &ref, 60 * MB, 5));
	CHECK_EQ_INT(1, stats_of(&nodes[1]).fallbacks);
	CHECK_EQ_INT(0, stats_of(&nodes[1]).came_fabric);
	CHECK_EQ_INT(0, rc_map_count(nodes[0].objects->lends));
	stop_cluster();
}

/* The lender dies in the middle: the object comes from another node. */
static void lender_dies(void)
{
	rc_object_ref ref;

	start_pair(200 * MB);
	start_ours(2, 200 * MB, provider);
	ref = make(&nodes[0], 60 * MB, 5);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
	rc_objects_get(nodes[2].objects, &client_a, &ref, 1, true);
	UNTIL(all_here, (&(here){ &nodes[2], &ref, 1 }));
	nodes[2].unknown = true; /* the first place is the one that dies */
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, false);
	UNTIL(some_came, &nodes[1]);
	nodes[2].unknown = false;
	rc_objects_destroy(nodes[0].objects);
	nodes[0].objects = NULL;
	nodes[0].mute = true;
	kill_node(&nodes[0]);
	rc_objects_node_added(nodes[1].objects, &nodes[2].id);
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	CHECK(intact(&nodes[1], &ref, 60 * MB, 5));
	stop_cluster();
}

static bool nothing_held(void *arg)
{
	node *n = arg;
	rc_store_stats s;

	rc_store_get_stats(n->store, &s);
	return rc_map_count(n->objects->lends) == 0 && s.in_use_objects == 0;
}

/* A get that is cancelled in the middle gives its memory and the loan back. */
static void cancelled(void)
{
	rc_object_ref ref;
	rc_store_stats s;

	start_pair(200 * MB);
	ref = make(&nodes[0], 60 * MB, 5);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, false);
	UNTIL(some_came, &nodes[1]);
	rc_objects_get_cancel(nodes[1].objects, &client_a);
	UNTIL(nothing_held, &nodes[0]);
	rc_store_get_stats(nodes[1].store, &s);
	CHECK_EQ_INT(0, s.unsealed_objects);
	stop_cluster();
}

static void ends_in_the_middle(void)
{
	for (int k = 0; k < 2; k++) {
		rc_object_ref ref;

		start_pair(200 * MB);
		ref = make(&nodes[0], 60 * MB, 5);
		UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
		rc_objects_get(nodes[1].objects, &client_a, &ref, 1, false);
		UNTIL(some_came, &nodes[1]);
		stop_node(&nodes[k]);
		stop_cluster();
	}
}

static void spilled_object(void)
{
	rc_object_ref refs[8];

	start_pair(16 * MB);
	for (int i = 0; i < 8; i++) { /* more than the store holds: the first ones are spilled */
		refs[i] = make(&nodes[0], 3 * MB, 5);
		UNTIL(known_to_owner, (&(here){ &nodes[0], &refs[i], 1 }));
		CHECK(pin(&nodes[0], &refs[i]));
	}
	for (int i = 0; i < 8; i++) {
		rc_objects_get(nodes[1].objects, &client_a, &refs[i], 1, true);
		UNTIL(all_here, (&(here){ &nodes[1], &refs[i], 1 }));
		CHECK(intact(&nodes[1], &refs[i], 3 * MB, 5));
	}
	CHECK(stats_of(&nodes[0]).fetch_pushed > 0);
	stop_cluster();
}

/* libfabric and its providers keep some of what they allocate. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libfabric.so\n";
}

int main(void)
{
	static const char *const providers[] = { "shm", "net" };
	static char names[2][12][120];

	loop = rc_loop_create();
	base_options.chunk_size = CHUNK;
	rc_log_level(getenv("RC_TEST_LOG") ? RC_DEBUG : RC_ERROR);
	dialect = rc_dialect_find("2.60.0", NULL);
	for (int i = 0; i < 2; i++) {
		size_t n = 0;

		provider = providers[i];
#define OVER(fn, text) (snprintf(names[i][n], sizeof names[i][n], "%s: %s", provider, text), RUN(fn, names[i][n]), n++)
		OVER(moves, "small objects come in the answer, others over the fabric, whole");
		OVER(moves_thousand, "1,000 objects of mixed sizes move both ways, whole");
		OVER(loan_ended, "a loan that ends in the middle loses nothing");
		OVER(cancelled, "a cancelled get gives memory and loan back");
		if (strcmp(provider, "shm") == 0) {
			printf("# shm: endpoints of one process share its memory, which is gone with the first of them: death is tested between processes "
			       "(fabric/test/fabric.c) and over net\n");
			continue;
		}
		OVER(lender_dies, "a lender that dies in the middle is replaced");
		OVER(ends_in_the_middle, "either end can stop in mid-transfer");
	}
	RUN(spilled_object, "spilled objects are pushed from their files");
	RUN(stock_peer, "a stock node is asked as ever, and libfabric stays unloaded");
	RUN(fabric_off, "a node without a fabric gets and gives by Push messages");
	RUN(no_common_provider, "so do nodes that share no provider");
	RUN(strangers, "another cluster's node is refused, an unknown one gets nothing in its answer");
	rc_loop_destroy(loop);
	return test_end();
}
