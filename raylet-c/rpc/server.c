/* The server: every unary method goes to one function on the loop; the health service is answered on the queue thread.
 *
 * Life of a request, each step one event, all but the third on the queue thread:
 *   posted (waiting for a call) -> reading its message -> with the loop (one hop) -> answering -> freed.
 * Limits: max_calls requests that are read or unanswered, and held bytes of their messages (4 times the largest message); a call
 * beyond them gets RESOURCE_EXHAUSTED. What a peer cancels stays with the loop until it is answered: the answer goes nowhere.
 * Whatever ends without the loop (bad token, health, limits, a peer that left) never reaches it. */
#include <errno.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/log.h"
#include "raylet-c/rpc/health.h"
#include "raylet-c/rpc/request.h"

enum { POSTED = 64, MAX_CALLS = 65536, HELD_MESSAGES = 4 };

static void post(rc__server *s);

static bool slice_is(grpc_slice slice, const char *text)
{
	size_t n = strlen(text);
	return GRPC_SLICE_LENGTH(slice) == n && !memcmp(GRPC_SLICE_START_PTR(slice), text, n);
}

/* ---- end of a request ---- */

void rc__request_free(rc_request *r)
{
	rc__mailbox *box = r->server->rpc->box;
	if (r->call) {
		grpc_call_unref(r->call);
		atomic_fetch_sub(&r->server->open, 1);
	}
	atomic_fetch_sub(&r->server->held, r->held);
	grpc_call_details_destroy(&r->details);
	grpc_metadata_array_destroy(&r->metadata);
	grpc_byte_buffer_destroy(r->message);
	grpc_byte_buffer_destroy(r->answer);
	grpc_slice_unref(r->detail);
	rc_buf_free(&r->flat);
	gpr_free(r->peer);
	rc__parts_free(r->parts);
	free(r);
	rc__let_go(box);
}

static void on_answered(rc__op *op, bool ok)
{
	(void)ok; /* false: the peer has left, or its deadline has passed; nobody waits for this answer */
	rc__request_free(RC_CONTAINER(op, rc_request, op));
}

/* message: NULL with a status other than OK. Any thread; r is gone afterwards. */
static void answer(rc_request *r, grpc_byte_buffer *message, int status, const char *detail)
{
	r->answer = message;
	r->detail = grpc_slice_from_copied_string(detail);
	r->op.on_queue = on_answered;
	grpc_op ops[4];
	size_t n = 0;
	memset(ops, 0, sizeof(ops));
	ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
	if (message) {
		ops[n].op = GRPC_OP_SEND_MESSAGE;
		ops[n++].data.send_message.send_message = message;
	}
	ops[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
	ops[n].data.send_status_from_server.status = (grpc_status_code)status;
	ops[n++].data.send_status_from_server.status_details = &r->detail;
	ops[n].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
	ops[n++].data.recv_close_on_server.cancelled = &r->cancelled;
	rc__start(r->server->rpc, r->call, ops, n, &r->op);
}

void rc_reply(rc_request *r, rc_view bytes)
{
	rc_list_remove(&r->link);
	answer(r, rc__message(bytes), GRPC_STATUS_OK, "");
}

void rc_reply_error(rc_request *r, int status, const char *format, ...)
{
	char text[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	rc_list_remove(&r->link);
	answer(r, NULL, status, text);
}

/* ---- on the loop ---- */

static void on_loop(rc__op *op, bool ok)
{
	rc_request *r = RC_CONTAINER(op, rc_request, op);
	rc__server *s = r->server;
	(void)ok; /* only whole requests are mailed */
	if (s->rpc->closing) {
		answer(r, NULL, RC_RPC_UNAVAILABLE, "the node is stopping");
		return;
	}
	rc_list_append(&s->with_loop, &r->link);
	s->serve(s->ctx, r, (const char *)GRPC_SLICE_START_PTR(r->details.method), GRPC_SLICE_LENGTH(r->details.method), r->bytes);
}

size_t rc_request_slices(const rc_request *r)
{
	return r->message ? r->message->data.raw.slice_buffer.count : r->bytes.n ? 1 : 0;
}

rc_view rc_request_slice(const rc_request *r, size_t i)
{
	if (!r->message)
		return r->bytes;
	const grpc_slice *slice = &r->message->data.raw.slice_buffer.slices[i];
	return rc_view_of(GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
}

const char *rc_request_peer(const rc_request *r)
{
	if (!r->peer)
		((rc_request *)(uintptr_t)r)->peer = grpc_call_get_peer(r->call); /* kept: the caller borrows it */
	return r->peer;
}

/* ---- on the queue thread ---- */

static void answer_health(rc_request *r)
{
	rc__server *s = r->server;
	rc_view name;
	if (!rc__health_service(r->bytes, &name))
		answer(r, NULL, RC_RPC_INVALID, "malformed HealthCheckRequest");
	else if (name.n && !(s->health_service && rc_view_eq(name, rc_view_str(s->health_service))))
		answer(r, NULL, RC_RPC_NOT_FOUND, "unknown service");
	else
		answer(r, rc__message(rc__health_response(atomic_load(&s->serving))), GRPC_STATUS_OK, "");
}

static void on_message(rc__op *op, bool ok)
{
	rc_request *r = RC_CONTAINER(op, rc_request, op);
	rc__server *s = r->server;
	if (!ok || !r->message) { /* the peer left, or sent a message that is too large (gRPC has told it so) */
		answer(r, NULL, RC_RPC_CANCELLED, "no message came");
		return;
	}
	r->held = grpc_byte_buffer_length(r->message);
	size_t held = atomic_fetch_add(&s->held, r->held) + r->held;
	if (held > HELD_MESSAGES * s->rpc->max_message) {
		answer(r, NULL, RC_RPC_EXHAUSTED, "the node holds too many unanswered bytes");
		return;
	}
	if (!s->sliced || !slice_is(r->details.method, s->sliced))
		r->bytes = rc__flatten(&r->message, &r->flat);
	if (slice_is(r->details.method, RC__HEALTH_PATH)) {
		answer_health(r);
		return;
	}
	r->op.on_queue = NULL;
	rc__mail(s->rpc->box, &r->op, true);
}

/* Takes the same time wherever the two differ. */
static bool same_secret(grpc_slice got, const char *wanted)
{
	size_t n = strlen(wanted);
	const uint8_t *p = GRPC_SLICE_START_PTR(got);
	unsigned differ = GRPC_SLICE_LENGTH(got) != n;
	for (size_t i = 0; i < GRPC_SLICE_LENGTH(got); i++)
		differ |= p[i] ^ (uint8_t)wanted[i % (n + 1)];
	return !differ;
}

static bool token_is_right(const rc_request *r)
{
	const char *wanted = r->server->rpc->bearer;
	for (size_t i = 0; i < r->metadata.count; i++)
		if (slice_is(r->metadata.metadata[i].key, "authorization"))
			return same_secret(r->metadata.metadata[i].value, wanted);
	return false;
}

static void on_call(rc__op *op, bool ok)
{
	rc_request *r = RC_CONTAINER(op, rc_request, op);
	rc__server *s = r->server;
	if (!ok) { /* the server stops */
		rc__request_free(r);
		return;
	}
	size_t open = atomic_fetch_add(&s->open, 1);
	post(s);
	if (s->rpc->bearer && !slice_is(r->details.method, RC__HEALTH_PATH) && !token_is_right(r)) {
		answer(r, NULL, RC_RPC_UNAUTHENTICATED, "InvalidAuthToken: Authentication token is missing or incorrect");
		return;
	}
	if (open >= s->max_calls) {
		if (!atomic_exchange(&s->told_full, true))
			rc_warn("%zu calls wait for an answer; further ones are refused", s->max_calls);
		answer(r, NULL, RC_RPC_EXHAUSTED, "too many unanswered calls");
		return;
	}
	r->op.on_queue = on_message;
	grpc_op read = { .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &r->message };
	rc__start(s->rpc, r->call, &read, 1, &r->op);
}

static void post(rc__server *s)
{
	rc_request *r = rc_alloc(sizeof(*r));
	r->server = s;
	r->op.on_queue = on_call;
	r->op.on_loop = on_loop;
	r->detail = grpc_empty_slice();
	rc_list_init(&r->link);
	grpc_call_details_init(&r->details);
	grpc_metadata_array_init(&r->metadata);
	rc__hold(s->rpc->box);
	rc__publish(&r->op);
	grpc_call_error code = grpc_server_request_call(s->server, &r->call, &r->details, &r->metadata, s->rpc->queue, s->rpc->queue, &r->op);
	if (code == GRPC_CALL_OK)
		return;
	rc_error_log("gRPC refused to wait for a call: %s", grpc_call_error_to_string(code));
	rc__request_free(r);
}

/* ---- life ---- */

/* gRPC does not tell why it could not bind: try it by hand. */
static int bind_failure(const char *ip, int port, const char *option, rc_error *error)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV }, *found;
	char service[16];
	snprintf(service, sizeof(service), "%d", port);
	int code = getaddrinfo(ip, service, &hints, &found);
	if (code)
		return rc_fail(error, RC_E_INVALID, "cannot listen on %s:%d (%s): %s", ip, port, option, gai_strerror(code));
	int one = 1, fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) && !bind(fd, found->ai_addr, found->ai_addrlen) &&
	    !listen(fd, 1))
		rc_fail(error, RC_E_SYSTEM, "cannot listen on %s:%d (%s)", ip, port, option);
	else
		rc_fail_errno(error, "cannot listen on %s:%d (%s)", ip, port, option);
	if (fd >= 0)
		close(fd);
	freeaddrinfo(found);
	return -1;
}

static grpc_server *make_server(const rc_rpc *rpc)
{
	grpc_arg args[16];
	size_t n = 0;
#define INT(name, v) (args[n++] = (grpc_arg){ .type = GRPC_ARG_INTEGER, .key = (char *)(name), .value.integer = (int)(v) })
	INT(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, rpc->max_message);
	INT(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, rpc->max_message);
	INT(GRPC_ARG_ALLOW_REUSEPORT, 0); /* a taken port is an error */
	INT(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0); /* peers choose their keepalive */
	INT(GRPC_ARG_ENABLE_CHANNELZ, 0);
#undef INT
	grpc_channel_args list = { n, args };
	return grpc_server_create(&list, NULL);
}

static void server_free(rc__server *s)
{
	grpc_server_destroy(s->server);
	free(s->sliced);
	free(s->health_service);
	s->rpc->server = NULL;
	free(s);
}

static void on_stopped(rc__op *op, bool ok)
{
	(void)ok;
	rc__let_go(RC_CONTAINER(op, rc__server, stopped)->rpc->box);
}

static void on_taken_down(rc__op *op, bool ok)
{
	(void)ok;
	sem_post(&RC_CONTAINER(op, rc__server, stopped)->taken_down);
}

/* For a server that has a port and was not started: gRPC aborts when such a one is destroyed without a shutdown. The queue
 * thread does it; this waits. */
static void take_down_at_once(rc__server *s)
{
	sem_init(&s->taken_down, 0, 0);
	s->stopped.on_queue = on_taken_down;
	rc__publish(&s->stopped);
	grpc_server_shutdown_and_notify(s->server, s->rpc->queue, &s->stopped);
	while (sem_wait(&s->taken_down))
		;
	sem_destroy(&s->taken_down);
	server_free(s);
}

static int listen_on(rc__server *s, const char *ip, int port)
{
	char *address = rc_sprintf(strchr(ip, ':') ? "[%s]:%d" : "%s:%d", ip, port);
	grpc_server_credentials *credentials = rc__server_credentials(s->rpc);
	int bound = grpc_server_add_http2_port(s->server, address, credentials);
	grpc_server_credentials_release(credentials);
	free(address);
	return bound;
}

int rc_server_start(rc_rpc *rpc, const rc_server_options *o, rc_error *error)
{
	if (rpc->server)
		return rc_fail(error, RC_E_EXISTS, "the server runs already");
	rc__server *s = rpc->server = rc_alloc(sizeof(*s));
	s->rpc = rpc;
	s->sliced = rc_strdup(o->sliced);
	s->health_service = rc_strdup(o->health_service);
	s->serve = o->serve;
	s->ctx = o->ctx;
	s->max_calls = o->max_calls ? o->max_calls : MAX_CALLS;
	s->stopped.on_queue = on_stopped;
	atomic_init(&s->serving, true);
	rc_list_init(&s->with_loop);
	s->server = make_server(rpc);
	grpc_server_register_completion_queue(s->server, rpc->queue, NULL);
	int port = listen_on(s, o->ip, o->port);
	if (port <= 0) {
		server_free(s); /* nothing listens and nothing was started: gRPC allows it without a shutdown */
		return bind_failure(o->ip, o->port, o->port_option ? o->port_option : "its port", error);
	}
	for (size_t i = 0; i < o->n_more; i++) {
		const rc_server_port *more = &o->more[i];
		if (more->port <= 0 || more->port == port || listen_on(s, more->ip, more->port) > 0)
			continue;
		take_down_at_once(s);
		return bind_failure(more->ip, more->port, more->option, error);
	}
	grpc_server_start(s->server);
	for (int i = 0; i < POSTED; i++)
		post(s);
	return port;
}

void rc_server_set_serving(rc_rpc *rpc, bool serving)
{
	if (rpc->server)
		atomic_store(&rpc->server->serving, serving);
}

void rc__server_stop(rc_rpc *rpc)
{
	rc__server *s = rpc->server;
	if (!s)
		return;
	rc__hold(rpc->box);
	rc__publish(&s->stopped);
	grpc_server_shutdown_and_notify(s->server, rpc->queue, &s->stopped);
	RC_LIST_FOREACH(l, &s->with_loop) {
		rc_request *r = RC_CONTAINER(l, rc_request, link);
		if (r->parts)
			rc__parts_stop(r);
		else
			rc_reply_error(r, RC_RPC_UNAVAILABLE, "the node is stopping");
	}
}

void rc__server_cancel(rc_rpc *rpc)
{
	if (rpc->server)
		grpc_server_cancel_all_calls(rpc->server->server);
}

void rc__server_destroy(rc_rpc *rpc)
{
	if (rpc->server)
		server_free(rpc->server);
}
