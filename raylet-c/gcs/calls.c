/* Calls on the head that survive its absence.
 *
 * A call that finds the head away (UNAVAILABLE, no answer in time, cancelled by a head that shuts down) waits; the first such
 * call starts the clock of gcs_rpc_server_reconnect_timeout_s. While the head is away one waiting call at a time is sent as
 * a probe; its answer brings the others back, and nodes, jobs and subscriptions are read again, since a head that was
 * restarted knows nothing of our subscriptions. An UNKNOWN or INTERNAL answer is a fault of that one call: five tries.
 * Traps: 2.35.0 says ABORTED "AuthError" where 2.60.0 says UNAUTHENTICATED when the cluster id is wrong, which is how a
 * head that was replaced by another one shows itself; trying again is useless then. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/gcs/internal.h"

enum { FIRST_BACKOFF_MS = 50, MAX_BACKOFF_MS = 1000, MAX_FAULTS = 5, GCS_NOT_FOUND = 17 };

typedef struct call {
	rc_link all, wait;
	rc_gcs *g;
	rc_method method;
	const char *path;
	rc_buf request;
	const ProtobufCMessageDescriptor *reply;
	unsigned flags;
	uint64_t timeout_ms, id; /* id 0: not in flight */
	int faults;
	bool posted; /* its failure is on its way */
	rc_error failure;
	rc_gcs_fn fn;
	void *arg;
} call;

static void schedule_retry(rc_gcs *g);

void rc__gcs_hold(rc_gcs *g)
{
	g->refs++;
}

void rc__gcs_release(rc_gcs *g)
{
	if (--g->refs)
		return;
	json_decref(g->config);
	free(g->config_text);
	free(g->python_version);
	free(g->own_address);
	free(g->address);
	free(g);
}

/* ---- the three ways in which the story ends ---- */

void rc__gcs_tell_failed(rc_gcs *g, rc_code code, const char *format, ...)
{
	rc_error error = { .code = code };
	va_list args;

	if (g->told || g->leaving || g->ended)
		return;
	g->told = true;
	va_start(args, format);
	vsnprintf(error.text, sizeof error.text, format, args);
	va_end(args);
	if (!g->connected)
		g->ops.failed(g->ctx, &error);
	else
		g->ops.lost(g->ctx, error.text);
}

void rc__gcs_tell_buried(rc_gcs *g, const char *text)
{
	if (g->told || g->leaving || g->ended)
		return;
	g->told = true;
	g->ops.buried(g->ctx, text);
}

/* ---- one call ---- */

static void free_call(call *c)
{
	rc_gcs *g = c->g;

	rc_list_remove(&c->all);
	rc_list_remove(&c->wait);
	g->kept_bytes -= c->request.n;
	rc_buf_free(&c->request);
	free(c);
	rc__gcs_release(g);
}

static const char *name_of(const call *c)
{
	const char *slash = strrchr(c->path, '/');

	return slash ? slash + 1 : c->path;
}

static void finish(call *c, const rc_error *error, const void *reply)
{
	if (c->fn)
		c->fn(c->arg, error, reply);
	else if (error)
		rc_warn("the head did not take a report: %s", error->text);
	free_call(c);
}

/* After the end: users hear nothing more. */
static void drop(call *c)
{
	rc_error error = { .code = RC_E_CANCELLED, .text = "the node ends" };

	if (c->flags & RC__GCS_OWN)
		c->fn(c->arg, &error, NULL);
	free_call(c);
}

static void __attribute__((format(printf, 3, 4))) fail(call *c, rc_code code, const char *format, ...)
{
	char text[300];
	rc_error error;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	rc_fail(&error, code, "%s: %s", name_of(c), text);
	finish(c, &error, NULL);
}

static const Rw__GcsStatus *status_of(const ProtobufCMessageDescriptor *descriptor, const void *reply)
{
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(descriptor, "status");

	if (!field || field->type != PROTOBUF_C_TYPE_MESSAGE || field->label == PROTOBUF_C_LABEL_REPEATED)
		return NULL;
	return *(Rw__GcsStatus *const *)((const char *)reply + field->offset);
}

static void answered(call *c, rc_view bytes)
{
	void *reply = rc_unpack(c->g->dialect, c->reply, bytes);
	const Rw__GcsStatus *status = reply ? status_of(c->reply, reply) : NULL;
	int code = status ? RC_GET(status, code) : 0;

	if (!reply)
		fail(c, RC_E_INVALID, "the answer of %zu bytes is malformed", bytes.n);
	else if (code == GCS_NOT_FOUND)
		fail(c, RC_E_NOT_FOUND, "%s", status->message && *status->message ? status->message : "not found");
	else if (code)
		fail(c, RC_E_INVALID, "refused with code %d: %s", code, RC_GET_STR(status, message));
	else
		finish(c, NULL, reply);
	rc_free_message(reply);
}

/* ---- away and back ---- */

static uint64_t patience_ms(const rc_gcs *g)
{
	if (!g->connected)
		return g->connect_timeout_ms;
	return (uint64_t)rc_gcs_config_int(g, "gcs_rpc_server_reconnect_timeout_s", 60) * 1000;
}

static void give_up(void *arg)
{
	rc_gcs *g = arg;
	const char *why = *g->why_down ? g->why_down : "no answer came";

	rc__gcs_tell_failed(g, RC_E_UNAVAILABLE, "GCS %s did not answer within %llu s: %s", g->address,
	                    (unsigned long long)patience_ms(g) / 1000, why);
}

static void went_down(rc_gcs *g, const char *why)
{
	snprintf(g->why_down, sizeof g->why_down, "%s", why);
	if (g->down)
		return;
	g->down = true;
	g->down_since = rc_now_ms();
	g->backoff_ms = FIRST_BACKOFF_MS;
	if (!g->connected || g->leaving)
		return; /* the deadline of connecting runs already */
	rc_warn("GCS %s is away (%s); calls wait for it, at most %llu s", g->address, why, (unsigned long long)patience_ms(g) / 1000);
	rc_timer_stop(g->deadline);
	g->deadline = rc_timer_start(g->loop, patience_ms(g), 0, give_up, g);
}

static void launch(call *c);

static void send_waiting(rc_gcs *g, bool all)
{
	RC_LIST_FOREACH(l, &g->waiting) {
		call *c = RC_CONTAINER(l, call, wait);

		rc_list_remove(&c->wait);
		launch(c);
		if (!all)
			return;
	}
}

static void came_back(rc_gcs *g)
{
	if (!g->down)
		return;
	g->down = false;
	if (g->connected) {
		rc_info("GCS %s is back after %llu ms", g->address, (unsigned long long)(rc_now_ms() - g->down_since));
		rc_timer_stop(g->deadline);
		g->deadline = NULL;
	}
	send_waiting(g, true);
	if (g->registered && !g->leaving)
		rc_gcs_on_restart(g);
}

static void on_retry(void *arg)
{
	rc_gcs *g = arg;

	rc_timer_stop(g->retry);
	g->retry = NULL;
	g->backoff_ms = g->backoff_ms * 2 > MAX_BACKOFF_MS ? MAX_BACKOFF_MS : g->backoff_ms * 2;
	send_waiting(g, !g->down);
	if (!rc_list_empty(&g->waiting))
		schedule_retry(g);
	else if (!g->down)
		g->backoff_ms = FIRST_BACKOFF_MS;
}

static void schedule_retry(rc_gcs *g)
{
	if (!g->retry)
		g->retry = rc_timer_start(g->loop, g->backoff_ms, 0, on_retry, g);
}

static bool wrong_cluster(int status, const char *detail)
{
	return status == RC_RPC_UNAUTHENTICATED || (status == RC_RPC_ABORTED && strstr(detail, "AuthError"));
}

static void refused(rc_gcs *g, const char *detail)
{
	char text[400];

	if (!g->connected) {
		rc__gcs_tell_failed(g, RC_E_INVALID, "GCS %s refuses this node (cluster id %s): %s", g->address,
		                    *g->cluster_hex ? g->cluster_hex : "none", detail);
		return;
	}
	snprintf(text, sizeof text,
	         "GCS %s refuses this node (%s): it was restarted without its data, or another cluster's head has its address now",
	         g->address, detail);
	rc__gcs_tell_buried(g, text);
}

static bool is_away(int status)
{
	return status == RC_RPC_UNAVAILABLE || status == RC_RPC_CANCELLED || status == RC_RPC_DEADLINE;
}

static rc_code code_of(int status)
{
	if (status == RC_RPC_DEADLINE)
		return RC_E_TIMEOUT;
	if (is_away(status))
		return RC_E_UNAVAILABLE;
	return status == RC_RPC_UNIMPLEMENTED ? RC_E_UNSUPPORTED : RC_E_INVALID;
}

static void on_reply(void *arg, int status, rc_view bytes, const char *detail)
{
	call *c = arg;
	rc_gcs *g = c->g;
	bool away = is_away(status);
	bool fault = status == RC_RPC_UNKNOWN || status == RC_RPC_INTERNAL || status == RC_RPC_EXHAUSTED;

	c->id = 0;
	if (g->ended) {
		drop(c);
		return;
	}
	rc__gcs_hold(g);
	rc_list_remove(&c->all); /* user code that runs now may destroy g, which frees what is in the list */
	if (status == RC_RPC_OK) {
		came_back(g);
		answered(c, bytes);
	} else if (wrong_cluster(status, detail)) {
		refused(g, detail);
		if (g->ended)
			drop(c);
		else
			fail(c, RC_E_INVALID, "%s", detail);
	} else if (c->flags & RC__GCS_ONCE || !(away || (fault && ++c->faults < MAX_FAULTS))) {
		fail(c, code_of(status), "gRPC status %d: %s", status, detail);
	} else {
		rc_list_append(&g->calls, &c->all);
		rc_list_append(&g->waiting, &c->wait);
		if (away)
			went_down(g, status == RC_RPC_DEADLINE ? "it is connected but does not answer" : detail);
		if (status == RC_RPC_DEADLINE)
			rc_rpc_forget(g->rpc, g->address); /* a host that vanished: connect anew, to where the name points now */
		schedule_retry(g);
	}
	rc__gcs_release(g);
}

static void launch(call *c)
{
	rc_gcs *g = c->g;

	c->id = rc_call(g->rpc, g->address, c->path, rc_view_of(c->request.p, c->request.n), c->timeout_ms, RC_META_CLUSTER_ID, on_reply, c);
}

static void post_failure(void *arg)
{
	call *c = arg;

	rc_list_remove(&c->all);
	if (c->g->ended)
		drop(c);
	else
		fail(c, c->failure.code, "%s", c->failure.text);
}

void rc__gcs_send(rc_gcs *g, rc_method method, const void *request, const ProtobufCMessageDescriptor *reply, unsigned flags,
                  uint64_t timeout_ms, rc_gcs_fn fn, void *arg)
{
	const char *path = rc_method_path(g->dialect, method);
	call *c = rc_alloc(sizeof *c);

	*c = (call){ .g = g, .method = method, .path = path ? path : "call", .reply = reply, .flags = flags, .timeout_ms = timeout_ms };
	c->fn = fn;
	c->arg = arg;
	rc__gcs_hold(g);
	rc_list_append(&g->calls, &c->all);
	rc_list_init(&c->wait);
	if (request)
		rc_pack(g->dialect, request, &c->request);
	g->kept_bytes += c->request.n;
	if (!path)
		rc_fail(&c->failure, RC_E_UNSUPPORTED, "Ray %s has no such method (%d)", rc_dialect_release(g->dialect), (int)method);
	else if (g->kept_bytes > RC__GCS_MAX_KEPT)
		rc_fail(&c->failure, RC_E_FULL, "%zu bytes of requests wait for the head already", g->kept_bytes);
	if (c->failure.code) {
		c->posted = true;
		rc_loop_post(g->loop, post_failure, c);
	} else if (g->down && !(flags & RC__GCS_ONCE)) {
		rc_list_append(&g->waiting, &c->wait);
		schedule_retry(g);
	} else {
		launch(c);
	}
}

uint64_t rc__gcs_timeout(const rc_gcs *g)
{
	return (uint64_t)rc_gcs_config_int(g, "gcs_server_request_timeout_seconds", 60) * 1000;
}

void rc_gcs_call(rc_gcs *g, rc_method method, const void *request, const ProtobufCMessageDescriptor *reply, rc_gcs_fn fn, void *arg)
{
	rc__gcs_send(g, method, request, reply, 0, rc__gcs_timeout(g), fn, arg);
}

void rc__gcs_calls_init(rc_gcs *g)
{
	rc_list_init(&g->calls);
	rc_list_init(&g->waiting);
	g->backoff_ms = FIRST_BACKOFF_MS;
	g->deadline = rc_timer_start(g->loop, g->connect_timeout_ms, 0, give_up, g);
}

void rc__gcs_calls_end(rc_gcs *g)
{
	rc_timer_stop(g->retry);
	rc_timer_stop(g->deadline);
	rc_timer_stop(g->check);
	g->retry = g->deadline = g->check = NULL;
	RC_LIST_FOREACH(l, &g->calls) {
		call *c = RC_CONTAINER(l, call, all);

		rc_list_remove(&c->wait);
		if (c->id)
			rc_call_cancel(g->rpc, c->id); /* its callback frees it */
		else if (!c->posted)
			drop(c);
	}
}
