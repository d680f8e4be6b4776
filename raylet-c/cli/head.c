/* Short conversations with a head; see head.h. All have the same course: a `talk` is made, `ask` runs once connected, and whoever
 * has the answer (or the failure) ends the loop. */
#include "raylet-c/cli/head.h"

#include <stdio.h>
#include <string.h>

#include "raylet-c/rpc/security.h"

typedef struct talk talk;
struct talk {
	void (*ask)(talk *t);
	rc_loop *loop;
	rc_gcs *gcs;
	rc_head_facts facts;
	rc_error *error;
	int rc; /* of the whole: 0 once the answer is there */
	/* what `ask` needs, and where the answer goes */
	const char *space, *key, *text;
	rc_buf *value;
	rc_head_node_fn node_fn;
	void *arg;
	rc_id node;
	int64_t seconds;
};

static void end(talk *t, const rc_error *error)
{
	t->rc = error == NULL ? 0 : -1;
	if (error != NULL)
		*t->error = *error;
	rc_loop_stop(t->loop);
}

static void on_connected(void *arg)
{
	talk *t = arg;

	snprintf(t->facts.release, sizeof t->facts.release, "%s", rc_dialect_release(rc_gcs_dialect(t->gcs)));
	snprintf(t->facts.python, sizeof t->facts.python, "%s", rc_gcs_python_version(t->gcs));
	t->ask(t);
}

static void on_failed(void *arg, const rc_error *error)
{
	end(arg, error);
}

static void on_gone(void *arg, const char *text)
{
	talk *t = arg;

	t->rc = rc_fail(t->error, RC_E_UNAVAILABLE, "%s", text);
	rc_loop_stop(t->loop);
}

static void on_timeout(void *arg)
{
	talk *t = arg;

	t->rc = rc_fail(t->error, RC_E_TIMEOUT, "the head does not answer in time");
	rc_loop_stop(t->loop);
}

static int run(talk *t, const char *address, uint64_t timeout_ms, rc_error *error)
{
	static const rc_gcs_ops ops = { .connected = on_connected, .failed = on_failed, .buried = on_gone, .lost = on_gone };
	rc_security security = { 0 };
	rc_rpc_options options = { 0 };
	rc_rpc *rpc = NULL;
	rc_error ignored;

	t->error = error != NULL ? error : &ignored;
	t->rc = -1;
	if (rc_security_from_env(&security, t->error) != 0)
		return -1;
	rc_security_apply(&security, &options);
	t->loop = rc_loop_create();
	rpc = rc_rpc_create(t->loop, &options, t->error);
	if (rpc != NULL) {
		rc_gcs_options where = { .address = address, .node_id = rc_id_random(RC_NODE_ID), .connect_timeout_ms = timeout_ms };

		t->gcs = rc_gcs_create(t->loop, rpc, &where, &ops, t);
		rc_loop_after(t->loop, timeout_ms + 1000, on_timeout, t); /* the connect's own limit comes first and says more */
		rc_loop_run(t->loop);
		rc_gcs_destroy(t->gcs);
		rc_rpc_destroy(rpc);
	}
	rc_loop_destroy(t->loop);
	rc_security_free(&security);
	return t->rc;
}

/* ---- is it there ---- */

static void ask_nothing(talk *t)
{
	end(t, NULL);
}

int rc_head_check(const char *address, uint64_t timeout_ms, rc_head_facts *ret, rc_error *error)
{
	talk t = { .ask = ask_nothing };

	if (run(&t, address, timeout_ms, error) != 0)
		return -1;
	*ret = t.facts;
	return 0;
}

/* ---- a value ---- */

static void on_value(void *arg, const rc_error *error, rc_view value)
{
	talk *t = arg;

	if (error == NULL)
		rc_buf_add(t->value, value.p, value.n);
	end(t, error);
}

static void ask_value(talk *t)
{
	rc_gcs_kv_get(t->gcs, t->space, t->key, on_value, t);
}

int rc_head_value(const char *address, uint64_t timeout_ms, const char *space, const char *key, rc_buf *ret, rc_error *error)
{
	talk t = { .ask = ask_value, .space = space, .key = key, .value = ret };

	return run(&t, address, timeout_ms, error);
}

/* ---- the nodes ---- */

static void on_nodes(void *arg, const rc_error *error, const void *reply)
{
	const Rw__GetAllNodeInfoReply *r = reply;
	talk *t = arg;

	for (size_t i = 0; r != NULL && i < r->n_node_info_list; i++) {
		const Rw__GcsNodeInfo *node = r->node_info_list[i];

		t->node_fn(t->arg, &t->facts, node, RC_GET(node, state) == rc_enum_value(rc_gcs_dialect(t->gcs), RC_V_NODE_ALIVE));
	}
	end(t, error);
}

static void ask_nodes(talk *t)
{
	Rw__GetAllNodeInfoRequest request = RW__GET_ALL_NODE_INFO_REQUEST__INIT;

	rc_gcs_call(t->gcs, RC_M_GET_ALL_NODE_INFO, &request, &rw__get_all_node_info_reply__descriptor, on_nodes, t);
}

int rc_head_nodes(const char *address, uint64_t timeout_ms, rc_head_node_fn fn, void *arg, rc_error *error)
{
	talk t = { .ask = ask_nodes, .node_fn = fn, .arg = arg };

	return run(&t, address, timeout_ms, error);
}

/* ---- drain ---- */

static void on_drained(void *arg, const rc_error *error, const void *reply)
{
	const Rw__AutoscalerDrainNodeReply *r = reply;
	talk *t = arg;
	rc_error refused;

	if (error == NULL && !RC_GET(r, is_accepted)) {
		rc_fail(&refused, RC_E_INVALID, "the head does not drain this node: %s", RC_GET_STR(r, rejection_reason_message));
		error = &refused;
	}
	end(t, error);
}

static void ask_drain(talk *t)
{
	rc_gcs_drain_node(t->gcs, &t->node, RC_V_DRAIN_PREEMPTION, t->text, (int64_t)rc_wall_ms() + t->seconds * 1000, on_drained, t);
}

int rc_head_drain(const char *address, uint64_t timeout_ms, const rc_id *node, int64_t seconds, const char *text, rc_error *error)
{
	talk t = { .ask = ask_drain, .node = *node, .seconds = seconds, .text = text };

	return run(&t, address, timeout_ms, error);
}
