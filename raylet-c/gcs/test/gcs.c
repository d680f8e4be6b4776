/* The module against a scripted head in the same process, in the numbers of each release. The sync stream needs a head that
 * speaks it: test/live.c. */
#define _GNU_SOURCE
#include "raylet-c/gcs/gcs.h"

#include <stdlib.h>

#include "raylet-c/base/log.h"
#include "raylet-c/base/test.h"

static const char *const releases[] = { "2.35.0", "2.60.0" };
static const char *release;
static const rc_dialect *dialect;
static rc_loop *loop;
static rc_rpc *rpc;
static rc_gcs *gcs;
static int port;
static char address[40];
static rc_id own_id;

/* ---- the scripted head ---- */

static struct {
	int calls[RC_M_COUNT];
	int metadata_missing; /* so many times */
	const char *metadata, *config;
	int away, fault;      /* so many calls are answered UNAVAILABLE, INTERNAL */
	bool wrong_cluster, garbage, hold_jobs;
	int status_code;      /* in KvPut's answer */
	bool alive;           /* what CheckAlive says */
	rc_request *poll, *jobs;
	int64_t polled_after;
	rc_buf reported;      /* last ReportWorkerFailure */
} head;

static void answer(rc_request *r, const void *message)
{
	rc_buf bytes = { 0 };

	rc_pack(dialect, message, &bytes);
	rc_reply(r, rc_view_of(bytes.p, bytes.n));
	rc_buf_free(&bytes);
}

static rc_id node_id(int n)
{
	rc_id id = rc_id_nil(RC_NODE_ID);

	id.b[0] = (uint8_t)n;
	return id;
}

static void answer_kv_get(rc_request *r, rc_view bytes)
{
	Rw__InternalKVGetRequest *q = rc_unpack(dialect, &rw__internal_kvget_request__descriptor, bytes);
	Rw__InternalKVGetReply reply = RW__INTERNAL_KVGET_REPLY__INIT;
	Rw__GcsStatus status = RW__GCS_STATUS__INIT;

	reply.status = &status;
	if (rc_view_eq(RC_GET_VIEW(q, key), rc_view_str("CLUSTER_METADATA")) && head.metadata_missing-- <= 0) {
		CHECK(rc_view_eq(RC_GET_VIEW(q, namespace_), rc_view_str("cluster")));
		RC_SET_BYTES(reply, value, head.metadata, strlen(head.metadata));
	} else if (rc_view_eq(RC_GET_VIEW(q, key), rc_view_str("session_name"))) {
		RC_SET_BYTES(reply, value, "s1", 2);
	} else if (strcmp(release, "2.35.0") == 0 && rc_view_eq(RC_GET_VIEW(q, namespace_), rc_view_str("session"))) {
		RC_SET_BYTES(reply, value, "/from/kv", 8);
	} else {
		RC_SET(status, code, 17);
		status.message = "no such key";
	}
	answer(r, &reply);
	rc_free_message(q);
}

static void answer_nodes(rc_request *r, bool liveness)
{
	rc_id ids[2] = { node_id(1), node_id(2) };

	if (liveness) {
		Rw__GetAllNodeAddressAndLivenessReply reply = RW__GET_ALL_NODE_ADDRESS_AND_LIVENESS_REPLY__INIT;
		Rw__GcsNodeAddressAndLiveness nodes[2] = { RW__GCS_NODE_ADDRESS_AND_LIVENESS__INIT,
		                                           RW__GCS_NODE_ADDRESS_AND_LIVENESS__INIT }, *list[2];

		for (int i = 0; i < 2; i++) {
			RC_SET_ID(nodes[i], node_id, &ids[i]);
			nodes[i].node_manager_address = "10.0.0.1";
			RC_SET(nodes[i], node_manager_port, 100 + i);
			RC_SET(nodes[i], object_manager_port, 200 + i);
			list[i] = &nodes[i];
		}
		reply.n_node_info_list = 2;
		reply.node_info_list = list;
		answer(r, &reply);
	} else {
		Rw__GetAllNodeInfoReply reply = RW__GET_ALL_NODE_INFO_REPLY__INIT;
		Rw__GcsNodeInfo nodes[2] = { RW__GCS_NODE_INFO__INIT, RW__GCS_NODE_INFO__INIT }, *list[2];
		Rw__MapStringString label = RW__MAP_STRING_STRING__INIT, *labels = &label;

		label.key = "zone";
		label.value = "a";
		for (int i = 0; i < 2; i++) {
			RC_SET_ID(nodes[i], node_id, &ids[i]);
			nodes[i].node_manager_address = "10.0.0.1";
			RC_SET(nodes[i], node_manager_port, 100 + i);
			RC_SET(nodes[i], object_manager_port, 200 + i);
			RC_SET(nodes[i], is_head_node, i == 0);
			nodes[i].session_dir = "/from/node";
			nodes[i].temp_dir = "/temp";
			nodes[i].n_labels = 1;
			nodes[i].labels = &labels;
			list[i] = &nodes[i];
		}
		reply.n_node_info_list = 2;
		reply.node_info_list = list;
		answer(r, &reply);
	}
}

static void answer_jobs(rc_request *r)
{
	Rw__GetAllJobInfoReply reply = RW__GET_ALL_JOB_INFO_REPLY__INIT;
	Rw__JobTableData jobs[2] = { RW__JOB_TABLE_DATA__INIT, RW__JOB_TABLE_DATA__INIT }, *list[2] = { &jobs[0], &jobs[1] };

	RC_SET_BYTES(jobs[0], job_id, "\1\0\0\0", 4);
	RC_SET_BYTES(jobs[1], job_id, "\2\0\0\0", 4);
	RC_SET(jobs[1], is_dead, 1);
	reply.n_job_info_list = 2;
	reply.job_info_list = list;
	answer(r, &reply);
}

static void serve(void *ctx, rc_request *r, const char *path, size_t n, rc_view bytes)
{
	int m = rc_method_find(dialect, path, n);

	(void)ctx;
	if (m >= 0)
		head.calls[m]++;
	if (m != RC_M_START_SYNC && head.away > 0) {
		head.away--;
		rc_reply_error(r, RC_RPC_UNAVAILABLE, "not now");
		return;
	}
	if (m == RC_M_KV_PUT && head.fault > 0) {
		head.fault--;
		rc_reply_error(r, RC_RPC_INTERNAL, "oh");
		return;
	}
	if (head.wrong_cluster && m != RC_M_START_SYNC) {
		rc_reply_error(r, strcmp(release, "2.35.0") == 0 ? RC_RPC_ABORTED : RC_RPC_UNAUTHENTICATED, "AuthError");
		return;
	}
	switch (m) {
	case RC_M_GET_CLUSTER_ID: {
		Rw__GetClusterIdReply reply = RW__GET_CLUSTER_ID_REPLY__INIT;
		rc_id id = node_id(77);

		CHECK_EQ_INT(0, bytes.n);
		RC_SET_ID(reply, cluster_id, &id);
		answer(r, &reply);
		break;
	}
	case RC_M_KV_GET:
		answer_kv_get(r, bytes);
		break;
	case RC_M_KV_PUT: {
		Rw__InternalKVPutReply reply = RW__INTERNAL_KVPUT_REPLY__INIT;
		Rw__GcsStatus status = RW__GCS_STATUS__INIT;

		if (head.garbage) {
			rc_reply(r, rc_view_of("\xff\xff\xff", 3));
			break;
		}
		RC_SET(status, code, head.status_code);
		status.message = "because";
		reply.status = &status;
		answer(r, &reply);
		break;
	}
	case RC_M_GET_INTERNAL_CONFIG: {
		Rw__GetInternalConfigReply reply = RW__GET_INTERNAL_CONFIG_REPLY__INIT;

		reply.config = (char *)head.config;
		answer(r, &reply);
		break;
	}
	case RC_M_GET_ALL_NODE_INFO:
	case RC_M_GET_ALL_NODE_LIVENESS:
		answer_nodes(r, m == RC_M_GET_ALL_NODE_LIVENESS);
		break;
	case RC_M_GET_ALL_JOB_INFO:
		if (head.hold_jobs)
			head.jobs = r;
		else
			answer_jobs(r);
		break;
	case RC_M_GCS_POLL: {
		Rw__GcsSubscriberPollRequest *q = rc_unpack(dialect, &rw__gcs_subscriber_poll_request__descriptor, bytes);

		if (head.poll)
			rc_reply(head.poll, (rc_view){ 0 });
		head.polled_after = RC_GET(q, max_processed_sequence_id);
		head.poll = r;
		rc_free_message(q);
		break;
	}
	case RC_M_CHECK_ALIVE: {
		Rw__CheckAliveReply reply = RW__CHECK_ALIVE_REPLY__INIT;
		protobuf_c_boolean alive = head.alive;

		reply.n_raylet_alive = 1;
		reply.raylet_alive = &alive;
		answer(r, &reply);
		break;
	}
	case RC_M_REPORT_WORKER_FAILURE:
		head.reported.n = 0;
		rc_buf_add(&head.reported, bytes.p, bytes.n);
		rc_reply(r, (rc_view){ 0 });
		break;
	case RC_M_START_SYNC:
		rc_reply_error(r, RC_RPC_UNIMPLEMENTED, "no stream here");
		break;
	default:
		rc_reply(r, (rc_view){ 0 });
	}
}

/* Answers the open poll with one message. */
static void publish(int64_t sequence, const char *publisher, const Rw__PubMessage *message)
{
	Rw__GcsSubscriberPollReply reply = RW__GCS_SUBSCRIBER_POLL_REPLY__INIT;
	Rw__PubMessage copy = *message, *list = &copy;

	RC_SET(copy, sequence_id, sequence);
	reply.n_pub_messages = 1;
	reply.pub_messages = &list;
	RC_SET_BYTES(reply, publisher_id, publisher, strlen(publisher));
	CHECK(head.poll != NULL);
	if (head.poll)
		answer(head.poll, &reply);
	head.poll = NULL;
}

static void publish_node(int64_t sequence, const char *publisher, int n, bool dead)
{
	Rw__PubMessage message = RW__PUB_MESSAGE__INIT;
	Rw__GcsNodeInfo info = RW__GCS_NODE_INFO__INIT;
	Rw__GcsNodeAddressAndLiveness liveness = RW__GCS_NODE_ADDRESS_AND_LIVENESS__INIT;
	Rw__NodeDeathInfo death = RW__NODE_DEATH_INFO__INIT;
	rc_id id = n == 0 ? own_id : node_id(n);
	bool old = strcmp(release, "2.35.0") == 0;

	RC_SET(message, channel_type, rc_enum_value(dialect, old ? RC_V_CHANNEL_NODE_INFO : RC_V_CHANNEL_NODE_LIVENESS));
	RC_SET_ID(message, key_id, &id);
	RC_SET(death, reason, 2);
	death.reason_message = "it fell";
	RC_SET_ID(info, node_id, &id);
	RC_SET_ID(liveness, node_id, &id);
	RC_SET(info, state, dead);
	RC_SET(liveness, state, dead);
	if (dead) {
		info.death_info = liveness.death_info = &death;
	} else {
		info.node_manager_address = liveness.node_manager_address = "10.0.0.9";
		RC_SET(info, node_manager_port, 900);
		RC_SET(liveness, node_manager_port, 900);
	}
	if (old)
		message.node_info_message = &info;
	else
		message.node_address_and_liveness_message = &liveness;
	publish(sequence, publisher, &message);
}

static void publish_job(int64_t sequence, const char *id, bool dead)
{
	Rw__PubMessage message = RW__PUB_MESSAGE__INIT;
	Rw__JobTableData job = RW__JOB_TABLE_DATA__INIT;

	RC_SET(message, channel_type, rc_enum_value(dialect, RC_V_CHANNEL_JOB));
	RC_SET_BYTES(message, key_id, id, 4);
	RC_SET_BYTES(job, job_id, id, 4);
	RC_SET(job, is_dead, dead);
	message.job_message = &job;
	publish(sequence, "P1", &message);
}

/* ---- what the module tells ---- */

static int connected, failed, added, removed, jobs_alive, jobs_dead, workers_died, buried, lost, registered, results;
static char said[400];
static rc_error result;
static bool destroy_in_connected, destroy_in_added, destroy_in_result;

static void destroy_now(void)
{
	rc_gcs_destroy(gcs);
	gcs = NULL;
}

static void op_connected(void *ctx)
{
	(void)ctx;
	connected++;
	if (destroy_in_connected)
		destroy_now();
}

static void op_failed(void *ctx, const rc_error *error)
{
	(void)ctx;
	failed++;
	snprintf(said, sizeof said, "%s", error->text);
}

static void op_added(void *ctx, rc_gcs_node *node)
{
	(void)ctx;
	CHECK(node->alive);
	added++;
	if (destroy_in_added)
		destroy_now();
}

static void op_removed(void *ctx, rc_gcs_node *node)
{
	(void)ctx;
	CHECK(!node->alive);
	removed++;
	snprintf(said, sizeof said, "%d %s", node->death_reason, node->death_text);
}

static void op_job(void *ctx, const rc_id *job, bool dead, const Rw__JobTableData *data)
{
	(void)ctx;
	(void)job;
	(void)data;
	*(dead ? &jobs_dead : &jobs_alive) += 1;
}

static void op_worker_died(void *ctx, const rc_id *worker, const rc_id *node)
{
	(void)ctx;
	CHECK_EQ_INT(9, worker->b[0]);
	CHECK_EQ_INT(1, node->b[0]);
	workers_died++;
}

static void op_buried(void *ctx, const char *text)
{
	(void)ctx;
	buried++;
	snprintf(said, sizeof said, "%s", text);
}

static void op_lost(void *ctx, const char *text)
{
	(void)ctx;
	lost++;
	snprintf(said, sizeof said, "%s", text);
}

static void on_registered(void *arg, const rc_error *error, const void *reply)
{
	(void)arg;
	CHECK(!error == !!reply);
	registered++;
}

static void on_result(void *arg, const rc_error *error, const void *reply)
{
	(void)arg;
	CHECK(!error == !!reply);
	results++;
	result = error ? *error : (rc_error){ 0 };
	if (destroy_in_result)
		destroy_now();
}

/* ---- running the loop until something is so ---- */

typedef bool (*test_fn)(void);
static test_fn until;
static uint64_t give_up_at;

static void look(void *arg)
{
	(void)arg;
	if (until() || rc_now_ms() > give_up_at)
		rc_loop_stop(loop);
	else
		rc_loop_after(loop, 1, look, NULL);
}

#define WAIT(fn) wait_(fn, __LINE__, #fn)
static void wait_(test_fn fn, int line, const char *what)
{
	until = fn;
	give_up_at = rc_now_ms() + 20000;
	rc_loop_after(loop, 0, look, NULL);
	rc_loop_run(loop);
	if (!fn())
		test_fail_(__FILE__, line, what);
}

static bool never(void)
{
	return false;
}

static void rest(uint64_t ms)
{
	until = never;
	give_up_at = rc_now_ms() + ms;
	rc_loop_after(loop, 0, look, NULL);
	rc_loop_run(loop);
}

static bool is_connected(void)
{
	return connected > 0 || failed > 0;
}
static bool is_registered(void)
{
	return registered > 0;
}
static bool has_two_nodes(void)
{
	return added == 2 && head.poll && jobs_alive == 1;
}
static bool has_result(void)
{
	return results > 0;
}
static bool is_over(void)
{
	return buried || lost || failed;
}

static void begin_at(const char *where, uint64_t timeout_ms)
{
	static const rc_gcs_ops ops = { .connected = op_connected, .failed = op_failed, .node_added = op_added, .node_removed = op_removed,
	                                .job = op_job,
		                        .worker_died = op_worker_died, .buried = op_buried, .lost = op_lost };
	rc_server_options server = { .ip = "127.0.0.1", .serve = serve };
	rc_rpc_options rpc_options = { 0 };
	static char metadata[80];
	rc_error error = { 0 };

	rc_buf_free(&head.reported);
	memset(&head, 0, sizeof head);
	connected = failed = added = removed = jobs_alive = jobs_dead = workers_died = buried = lost = registered = results = 0;
	destroy_in_connected = destroy_in_added = destroy_in_result = false;
	said[0] = 0;
	snprintf(metadata, sizeof metadata, "{\"ray_version\": \"%s\", \"python_version\": \"3.11.7\"}", release);
	head.metadata = metadata;
	head.config = "{\"a_number\": 5, \"a_bool\": true, \"a_text\": \"x\", \"bad\": [1]}";
	head.alive = true;
	dialect = rc_dialect_find(release, &error);
	loop = rc_loop_create();
	rpc = rc_rpc_create(loop, &rpc_options, &error);
	CHECK_STR("", error.text);
	port = rc_server_start(rpc, &server, &error);
	CHECK(port > 0);
	snprintf(address, sizeof address, "127.0.0.1:%d", port);
	gcs = rc_gcs_create(loop, rpc, &(rc_gcs_options){ where ? where : address, own_id, NULL, timeout_ms }, &ops, NULL);
}

static void begin(void)
{
	begin_at(NULL, 10000);
}

static void end(void)
{
	if (head.poll)
		rc_reply(head.poll, (rc_view){ 0 });
	if (head.jobs)
		rc_reply(head.jobs, (rc_view){ 0 });
	head.poll = head.jobs = NULL;
	rc_gcs_destroy(gcs);
	rc_rpc_destroy(rpc);
	rc_loop_destroy(loop);
	rc_buf_free(&head.reported);
}

static void join(void)
{
	Rw__GcsNodeInfo info = RW__GCS_NODE_INFO__INIT;

	begin();
	WAIT(is_connected);
	RC_SET_ID(info, node_id, &own_id);
	info.node_manager_address = "127.0.0.1";
	RC_SET(info, node_manager_port, 5);
	rc_gcs_register(gcs, &info, on_registered, NULL);
	WAIT(is_registered);
	WAIT(has_two_nodes);
}

/* ---- tests ---- */

static void connects(void)
{
	rc_id id = node_id(77);

	begin();
	WAIT(is_connected);
	CHECK_EQ_INT(1, connected);
	CHECK_STR(release, rc_dialect_release(rc_gcs_dialect(gcs)));
	CHECK_STR(rc_id_to_hex(&id).s, rc_gcs_cluster_id(gcs));
	CHECK_STR("3.11.7", rc_gcs_python_version(gcs));
	CHECK_STR(head.config, rc_gcs_config_json(gcs));
	setenv("RAY_a_number", "6", 1);
	setenv("RAY_other", "7", 1);
	setenv("RAY_flag", "True", 1);
	CHECK_EQ_INT(5, rc_gcs_config_int(gcs, "a_number", 1));
	CHECK_EQ_INT(7, rc_gcs_config_int(gcs, "other", 1));
	CHECK_EQ_INT(1, rc_gcs_config_int(gcs, "nobody", 1));
	CHECK_EQ_INT(3, rc_gcs_config_int(gcs, "bad", 3));
	CHECK(rc_gcs_config_bool(gcs, "a_bool", false) && rc_gcs_config_bool(gcs, "flag", false) && rc_gcs_config_bool(gcs, "none", true));
	CHECK(rc_gcs_config_double(gcs, "a_number", 0) == 5 && rc_gcs_config_double(gcs, "none", 0.5) == 0.5);
	CHECK_STR("x", rc_gcs_config_str(gcs, "a_text", ""));
	end();
}

static void same_bootstrap(void)
{
	Rw__InternalKVGetRequest request = RW__INTERNAL_KVGET_REQUEST__INIT;
	rc_buf first = { 0 };

	RC_SET_BYTES(request, key, "k", 1);
	RC_SET_BYTES(request, namespace_, "n", 1);
	for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
		const rc_dialect *d = rc_dialect_find(releases[i], NULL);
		rc_buf bytes = { 0 };

		rc_pack(d, &request, &bytes);
		if (i == 0)
			rc_buf_add(&first, bytes.p, bytes.n);
		CHECK(rc_view_eq(rc_view_of(first.p, first.n), rc_view_of(bytes.p, bytes.n)));
		CHECK_STR("/ray.rpc.NodeInfoGcsService/GetClusterId", rc_method_path(d, RC_M_GET_CLUSTER_ID));
		CHECK_STR("/ray.rpc.InternalKVGcsService/InternalKVGet", rc_method_path(d, RC_M_KV_GET));
		rc_buf_free(&bytes);
	}
	rc_buf_free(&first);
}

static void waits_for_metadata(void)
{
	begin();
	head.metadata_missing = 2;
	WAIT(is_connected);
	CHECK_EQ_INT(1, connected);
	CHECK_EQ_INT(3, head.calls[RC_M_KV_GET]);
	end();
	begin_at(NULL, 300);
	head.metadata_missing = 100;
	WAIT(is_connected);
	CHECK_EQ_INT(1, failed);
	CHECK(strstr(said, "has not said yet which Ray release") != NULL);
	end();
}

static void refuses_release(void)
{
	begin();
	head.metadata = "{\"ray_version\": \"1.2.3\"}";
	WAIT(is_connected);
	CHECK_EQ_INT(1, failed);
	CHECK(strstr(said, "1.2.3") && strstr(said, "2.35.0") && strstr(said, "2.60.0") && strstr(said, address));
	end();
	begin();
	head.metadata = "not json";
	WAIT(is_connected);
	CHECK(failed == 1 && strstr(said, "CLUSTER_METADATA is no JSON"));
	end();
	begin();
	head.config = "[]";
	WAIT(is_connected);
	CHECK(failed == 1 && strstr(said, "internal config is no JSON object"));
	end();
}

static void no_head(void)
{
	begin_at("127.0.0.1:1", 300);
	WAIT(is_connected);
	CHECK_EQ_INT(1, failed);
	CHECK(strstr(said, "GCS 127.0.0.1:1 did not answer within 0 s: ") && strstr(said, "refused"));
	end();
	begin();
	head.wrong_cluster = true;
	WAIT(is_connected);
	CHECK(failed == 1 && strstr(said, "refuses this node") && strstr(said, "AuthError"));
	end();
}

static bool node_came(void)
{
	return added == 3;
}
static bool node_went(void)
{
	return removed == 1 && head.poll;
}

static void node_table(void)
{
	rc_id one = node_id(1), three = node_id(3);
	rc_gcs_node *node;
	size_t i = 0, n = 0;

	join();
	node = rc_gcs_node_find(gcs, &one);
	CHECK(node && node->node_manager_port == 100 && node->object_manager_port == 200);
	CHECK_STR("10.0.0.1:100", node->address);
	CHECK_STR("10.0.0.1:200", node->object_address);
	CHECK_EQ_INT(strcmp(release, "2.35.0") == 0, node->n_labels);
	publish_node(1, "P1", 3, false);
	WAIT(node_came);
	CHECK_EQ_INT(3, rc_gcs_nodes_alive(gcs));
	rest(20);
	publish_node(2, "P1", 3, true);
	WAIT(node_went);
	CHECK_STR("2 it fell", said);
	CHECK_EQ_INT(2, head.polled_after);
	publish_node(3, "P1", 3, false); /* an old message: the dead stay dead */
	rest(20);
	publish_node(3, "P1", 4, false); /* sent twice */
	rest(20);
	CHECK_EQ_INT(3, added);
	node = rc_gcs_node_find(gcs, &three);
	CHECK(node && !node->alive);
	while (rc_gcs_node_next(gcs, &i))
		n++;
	CHECK_EQ_INT(2, n);
	end();
}

static void burial(void)
{
	join();
	publish_node(1, "P1", 0, true);
	WAIT(is_over);
	CHECK_EQ_INT(1, buried);
	CHECK_STR("the head has marked this node dead: it fell", said);
	end();
	join();
	head.alive = false;
	WAIT(is_over);
	CHECK(buried == 1 && strstr(said, "does not hold this node for alive"));
	end();
	join();
	head.wrong_cluster = true;
	rc_gcs_kv_put(gcs, "n", "k", rc_view_str("v"), true, on_result, NULL);
	WAIT(is_over);
	CHECK(buried == 1 && strstr(said, "another cluster's head"));
	end();
}

static bool job_died(void)
{
	return jobs_dead == 1 && head.poll;
}
static bool jobs_asked(void)
{
	return head.jobs && head.poll;
}
static bool job_ran(void)
{
	return jobs_alive == 2 && head.poll;
}
static bool worker_died(void)
{
	return workers_died == 1;
}

static void job_news(void)
{
	Rw__PubMessage message = RW__PUB_MESSAGE__INIT;
	Rw__WorkerDeltaData delta = RW__WORKER_DELTA_DATA__INIT;
	rc_id worker = node_id(9), node = node_id(1);

	join();
	CHECK_EQ_INT(1, jobs_alive); /* the listing's dead one is not told */
	CHECK_EQ_INT(0, jobs_dead);
	publish_job(1, "\1\0\0\0", false);
	rest(20);
	CHECK_EQ_INT(1, jobs_alive);
	publish_job(2, "\5\0\0\0", false);
	WAIT(job_ran);
	/* a listing that is older than the message that overtakes it */
	head.hold_jobs = true;
	rc_gcs_on_restart(gcs);
	WAIT(jobs_asked);
	publish_job(3, "\1\0\0\0", true);
	WAIT(job_died);
	answer_jobs(head.jobs);
	head.jobs = NULL;
	rest(20);
	CHECK_EQ_INT(2, jobs_alive);
	CHECK_EQ_INT(1, jobs_dead);
	RC_SET(message, channel_type, rc_enum_value(dialect, RC_V_CHANNEL_WORKER_DELTA));
	RC_SET_ID(delta, worker_id, &worker);
	RC_SET_ID(delta, node_id, &node);
	message.worker_delta_message = &delta;
	publish(4, "P1", &message);
	WAIT(worker_died);
	end();
}

static bool subscribed_again(void)
{
	return head.calls[RC_M_GCS_COMMAND_BATCH] == 2 && head.poll;
}

static void another_publisher(void)
{
	join();
	publish_node(7, "P1", 3, false);
	WAIT(node_came);
	rest(20);
	publish_node(1, "P2", 4, false); /* a new process counts from the start */
	WAIT(subscribed_again);
	rest(20);
	CHECK_EQ_INT(1, head.polled_after);
	/* its listing has 1 and 2 only; 4 came after the listing was asked for or before it: never taken for dead by mistake */
	CHECK_EQ_INT(4, added);
	end();
}

static bool away_over(void)
{
	return results == 3 && head.calls[RC_M_GCS_COMMAND_BATCH] == 2;
}

static void survives_absence(void)
{
	Rw__WorkerTableData worker = RW__WORKER_TABLE_DATA__INIT;
	Rw__ReportWorkerFailureRequest *got;

	join();
	head.away = 4;
	worker.exit_detail = "gone";
	rc_gcs_report_worker_failure(gcs, &worker, on_result, NULL);
	rc_gcs_kv_put(gcs, "n", "k", rc_view_str("v"), true, on_result, NULL);
	rest(30);
	rc_gcs_kv_put(gcs, "n", "k", rc_view_str("v"), true, on_result, NULL);
	WAIT(away_over);
	CHECK_EQ_INT(RC_OK, result.code);
	got = rc_unpack(dialect, &rw__report_worker_failure_request__descriptor, rc_view_of(head.reported.p, head.reported.n));
	CHECK_STR("gone", got ? RC_GET_STR(got->worker_failure, exit_detail) : "");
	rc_free_message(got);
	CHECK_EQ_INT(0, lost);
	end();
}

static void is_lost(void)
{
	setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "1", 1);
	join();
	head.away = 1000000;
	rc_gcs_kv_put(gcs, "n", "k", rc_view_str("v"), true, on_result, NULL);
	WAIT(is_over);
	CHECK_EQ_INT(1, lost);
	CHECK(strstr(said, "did not answer within 1 s: not now") != NULL);
	CHECK_EQ_INT(0, results);
	end();
	unsetenv("RAY_gcs_rpc_server_reconnect_timeout_s");
}

static void put(void)
{
	results = 0;
	rc_gcs_kv_put(gcs, "n", "k", rc_view_str("v"), true, on_result, NULL);
	WAIT(has_result);
}

static void on_value(void *arg, const rc_error *error, rc_view value)
{
	(void)arg;
	results++;
	result = error ? *error : (rc_error){ 0 };
	if (!error)
		snprintf(said, sizeof said, "%.*s", (int)value.n, (const char *)value.p);
}

static void refusals(void)
{
	static uint8_t big[90 << 20];

	join();
	head.status_code = 4;
	put();
	CHECK_EQ_INT(RC_E_INVALID, result.code);
	CHECK_STR("InternalKVPut: refused with code 4: because", result.text);
	head.status_code = 17;
	put();
	CHECK_EQ_INT(RC_E_NOT_FOUND, result.code);
	head.status_code = 0;
	head.garbage = true;
	put();
	CHECK_EQ_INT(RC_E_INVALID, result.code);
	CHECK(strstr(result.text, "malformed") != NULL);
	head.garbage = false;
	head.fault = 2;
	put();
	CHECK_EQ_INT(RC_OK, result.code);
	head.fault = 100;
	put();
	CHECK(result.code == RC_E_INVALID && strstr(result.text, "gRPC status 13: oh"));
	head.fault = 0;
	results = 0;
	rc_gcs_kv_get(gcs, "session", "nobody", on_value, NULL);
	WAIT(has_result);
	CHECK_EQ_INT(strcmp(release, "2.35.0") == 0 ? RC_OK : RC_E_NOT_FOUND, result.code);
	results = 0;
	if (strcmp(release, "2.35.0") == 0) {
		rc_gcs_call(gcs, RC_M_GET_ALL_NODE_LIVENESS, NULL, &rw__get_all_node_info_reply__descriptor, on_result, NULL);
		WAIT(has_result);
		CHECK_EQ_INT(RC_E_UNSUPPORTED, result.code);
	}
	head.away = 1000000;
	results = 0;
	for (int i = 0; i < 3; i++)
		rc_gcs_kv_put(gcs, "n", "k", rc_view_of(big, sizeof big), true, on_result, NULL);
	WAIT(has_result);
	CHECK_EQ_INT(1, results);
	CHECK_EQ_INT(RC_E_FULL, result.code);
	end();
}

static void on_session(void *arg, const rc_error *error, const rc_gcs_session *session)
{
	(void)arg;
	results++;
	CHECK(!error);
	if (session)
		snprintf(said, sizeof said, "%s %s %s", session->session_name, session->session_dir, session->temp_dir);
}

static void session_facts(void)
{
	join();
	rc_gcs_get_session(gcs, on_session, NULL);
	WAIT(has_result);
	CHECK_STR(strcmp(release, "2.35.0") == 0 ? "s1 /from/kv /from/kv" : "s1 /from/node /temp", said);
	end();
}

static bool gone(void)
{
	return gcs == NULL;
}

static void destruction(void)
{
	begin();
	end(); /* before anything happened */
	begin();
	destroy_in_connected = true;
	WAIT(gone);
	end();
	begin();
	WAIT(is_connected);
	destroy_in_added = true;
	rc_gcs_register(gcs, &(Rw__GcsNodeInfo)RW__GCS_NODE_INFO__INIT, on_registered, NULL);
	WAIT(gone);
	rest(20);
	end();
	join();
	destroy_in_result = true;
	rc_gcs_kv_put(gcs, "n", "k", rc_view_str("v"), true, on_result, NULL);
	rc_gcs_kv_put(gcs, "n", "k", rc_view_str("v"), true, on_result, NULL);
	WAIT(gone);
	rest(20);
	CHECK_EQ_INT(1, results);
	end();
	join();
	head.away = 1000000;
	rc_gcs_kv_get(gcs, "n", "k", on_value, NULL);
	rc_gcs_get_session(gcs, on_session, NULL);
	rest(60);
	end();
	CHECK_EQ_INT(0, results);
}

static void leaves(void)
{
	join();
	rc_gcs_unregister(gcs, RC_V_DEATH_EXPECTED, "bye", on_result, NULL);
	WAIT(has_result);
	CHECK_EQ_INT(RC_OK, result.code);
	CHECK_EQ_INT(1, head.calls[RC_M_UNREGISTER_NODE]);
	publish_node(1, "P1", 0, true);
	rest(30);
	CHECK_EQ_INT(0, buried);
	end();
	join();
	results = 0;
	head.away = 1000000;
	rc_gcs_unregister(gcs, RC_V_DEATH_EXPECTED, "bye", on_result, NULL);
	WAIT(has_result);
	CHECK_EQ_INT(RC_E_UNAVAILABLE, result.code);
	end();
}

static void run_all(const char *which)
{
	static const struct {
		void (*fn)(void);
		const char *sentence;
	} tests[] = {
		{ connects, "connecting finds cluster id, release and config, and the head's config wins over the environment" },
		{ waits_for_metadata, "a head that has not named its release yet is asked again, until the deadline" },
		{ refuses_release, "an unknown release and malformed facts end connecting with a text that says what" },
		{ no_head, "a head that is absent or another cluster's ends connecting with a text that says why" },
		{ node_table, "the node table follows listing and messages, and death is final" },
		{ burial, "a node that the head holds for dead is told so once" },
		{ job_news, "each job is told once as running, and a listing does not revive one that died meanwhile" },
		{ another_publisher, "another publisher means subscribing and reading anew, and its messages count from one" },
		{ survives_absence, "calls made while the head is away arrive when it is back, and subscriptions are renewed" },
		{ is_lost, "a head that stays away is given up after the configured time" },
		{ refusals, "refusals, faults, malformed answers and too many waiting bytes each give their error" },
		{ session_facts, "the session's folders are found where each release keeps them" },
		{ destruction, "destroying the module anywhere, inside callbacks too, is safe and silent" },
		{ leaves, "leaving is one call that is not repeated, and no burial is told after it" },
	};

	release = which;
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
		char name[200];

		snprintf(name, sizeof name, "%s (%s)", tests[i].sentence, which);
		RUN(tests[i].fn, name);
	}
}

int main(void)
{
	rc_log_level(RC_ERROR);
	own_id = rc_id_random(RC_NODE_ID);
	setenv("RAY_raylet_liveness_self_check_interval_ms", "300", 1);
	RUN(same_bootstrap, "what is sent before the release is known is the same in all releases");
	for (size_t i = 0; i < sizeof releases / sizeof *releases; i++)
		run_all(releases[i]);
	return test_end();
}
