/* The rpc module against itself, and against a small C-core server and client written here where bytes on the wire, metadata
 * and timing of a foreign peer matter. */
#include "raylet-c/rpc/rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

enum { WAIT_MS = 20000, MB = 1 << 20 };

static rc_loop *loop;

/* ---- one answered call ---- */

typedef struct outcome {
	int calls, status;
	size_t n;
	uint8_t head[64];
	uint64_t sum;
	char detail[300];
	uint64_t at;
} outcome;

static uint64_t sum_of(rc_view v)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < v.n; i++)
		sum += v.p[i];
	return sum;
}

static void note(void *arg, int status, rc_view reply, const char *detail)
{
	outcome *o = arg;
	o->calls++;
	o->status = status;
	o->n = reply.n;
	o->sum = sum_of(reply);
	o->at = rc_now_ms();
	memcpy(o->head, reply.p ? reply.p : (const uint8_t *)"", reply.n < sizeof(o->head) ? reply.n : sizeof(o->head));
	snprintf(o->detail, sizeof(o->detail), "%s", detail ? detail : "");
}

/* ---- running the loop until something is so ---- */

typedef bool (*condition)(void *arg);
static struct {
	condition fn;
	void *arg;
	uint64_t until;
	bool met;
} waiting;

static void look(void *arg)
{
	(void)arg;
	waiting.met = waiting.fn(waiting.arg);
	if (waiting.met || rc_now_ms() >= waiting.until)
		rc_loop_stop(loop);
}

static bool wait_for(condition fn, void *arg, uint64_t ms)
{
	waiting.fn = fn;
	waiting.arg = arg;
	waiting.until = rc_now_ms() + ms;
	waiting.met = false;
	rc_timer *timer = rc_timer_start(loop, 0, 2, look, NULL);
	rc_loop_run(loop);
	rc_timer_stop(timer);
	return waiting.met;
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

static bool answered(void *arg)
{
	return ((outcome *)arg)->calls > 0;
}

static bool is_set(void *arg)
{
	return *(int *)arg != 0;
}

/* ---- our server ---- */

static struct {
	int served, held_n;
	rc_request *held[8];
	char held_first[8]; /* first byte of each message */
	char path[100], peer[100];
	size_t slices;
	bool contiguous;
} peer;

static bool path_is(const char *path, size_t n, const char *want)
{
	return n == strlen(want) && !memcmp(path, want, n);
}

static bool two_held(void *arg)
{
	(void)arg;
	return peer.held_n >= 2;
}

static bool one_held(void *arg)
{
	(void)arg;
	return peer.held_n >= 1;
}

/* Answers in parts: as many as the request's byte says, then the end; 255: they go on until the peer leaves. */
static struct {
	rc_request *request;
	int want, sent, left;
} parts;

static void part_sent(void *arg)
{
	(void)arg;
	uint8_t number = (uint8_t)parts.sent;
	if (parts.sent == parts.want) {
		rc_reply_end(parts.request, RC_RPC_OK, "");
	} else if (parts.want != 255 || parts.sent < 3) {
		parts.sent++;
		rc_reply_part(parts.request, rc_view_of(&number, 1));
	}
}

static void parts_left(void *arg)
{
	(void)arg;
	parts.left++;
}

static const rc_parts_ops parts_ops = { part_sent, parts_left };

static void serve(void *ctx, rc_request *r, const char *path, size_t n, rc_view bytes)
{
	(void)ctx;
	peer.served++;
	snprintf(peer.path, sizeof(peer.path), "%.*s", (int)n, path);
	snprintf(peer.peer, sizeof(peer.peer), "%s", rc_request_peer(r));
	if (path_is(path, n, "/t.Test/Echo")) {
		rc_reply(r, bytes);
	} else if (path_is(path, n, "/t.Test/Hold") && peer.held_n < 8) {
		peer.held_first[peer.held_n] = bytes.n ? (char)bytes.p[0] : 0;
		peer.held[peer.held_n++] = r;
	} else if (path_is(path, n, "/t.Test/Pieces")) {
		uint64_t total = 0, sum = 0;
		peer.contiguous = bytes.n > 0;
		peer.slices = rc_request_slices(r);
		for (size_t i = 0; i < peer.slices; i++) {
			rc_view piece = rc_request_slice(r, i);
			total += piece.n;
			sum += sum_of(piece);
		}
		uint64_t answer[2] = { total, sum };
		rc_reply(r, rc_view_of(answer, sizeof(answer)));
	} else if (path_is(path, n, "/t.Test/Parts")) {
		memset(&parts, 0, sizeof(parts));
		parts.request = r;
		parts.want = bytes.n ? bytes.p[0] : 0;
		rc_reply_begin(r, (const char *[]){ "a-key", "a\nvalue", NULL }, &parts_ops, NULL);
	} else {
		rc_reply_error(r, RC_RPC_UNIMPLEMENTED, "no method %.*s", (int)n, path);
	}
}

static rc_rpc *node_with(const rc_rpc_options *options, int *port)
{
	rc_error error = { 0 };
	rc_rpc *rpc = rc_rpc_create(loop, options, &error);
	CHECK_STR("", error.text);
	rc_server_options server = { .ip = "127.0.0.1", .sliced = "/t.Test/Pieces", .health_service = "abc123", .serve = serve };
	memset(&peer, 0, sizeof(peer));
	*port = rc_server_start(rpc, &server, &error);
	CHECK_STR("", error.text);
	CHECK(*port > 0);
	return rpc;
}

static rc_rpc *node(int *port)
{
	rc_rpc_options options = { 0 };
	return node_with(&options, port);
}

static const char *at(int port)
{
	static char text[40];
	snprintf(text, sizeof(text), "127.0.0.1:%d", port);
	return text;
}

static outcome call(rc_rpc *rpc, int port, const char *path, const void *bytes, size_t n)
{
	outcome o = { 0 };
	rc_call(rpc, at(port), path, rc_view_of(bytes, n), WAIT_MS, RC_META_NONE, note, &o);
	CHECK(wait_for(answered, &o, WAIT_MS));
	return o;
}

/* ---- a foreign client: plain C-core, in the test's own thread, so that our loop can be left standing ---- */

typedef struct foreign {
	grpc_completion_queue *queue;
	grpc_channel *channel;
} foreign;

static foreign foreign_open(int port)
{
	foreign f;
	grpc_channel_credentials *c = grpc_insecure_credentials_create();
	f.queue = grpc_completion_queue_create_for_pluck(NULL);
	f.channel = grpc_channel_create(at(port), c, NULL);
	grpc_channel_credentials_release(c);
	return f;
}

static void foreign_close(foreign *f)
{
	grpc_channel_destroy(f->channel);
	grpc_completion_queue_shutdown(f->queue);
	grpc_completion_queue_destroy(f->queue);
}

static int foreign_call(foreign *f, const char *path, const char *key, const char *value, rc_buf *reply)
{
	grpc_call *c = grpc_channel_create_call(f->channel, NULL, 0, f->queue, grpc_slice_from_static_string(path), NULL,
	                                        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(10, GPR_TIMESPAN)), NULL);
	grpc_metadata pair = { .key = grpc_slice_from_static_string(key ? key : "none"),
	                       .value = grpc_slice_from_static_string(value ? value : "none") };
	grpc_metadata_array initial, trailing;
	grpc_metadata_array_init(&initial);
	grpc_metadata_array_init(&trailing);
	grpc_byte_buffer *in = NULL, *out = grpc_raw_byte_buffer_create(NULL, 0);
	grpc_status_code status = GRPC_STATUS_UNKNOWN;
	grpc_slice detail = grpc_empty_slice();
	grpc_op ops[6];
	memset(ops, 0, sizeof(ops));
	ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
	ops[0].data.send_initial_metadata.count = key ? 1 : 0;
	ops[0].data.send_initial_metadata.metadata = &pair;
	ops[1].op = GRPC_OP_SEND_MESSAGE;
	ops[1].data.send_message.send_message = out;
	ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
	ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
	ops[3].data.recv_initial_metadata.recv_initial_metadata = &initial;
	ops[4].op = GRPC_OP_RECV_MESSAGE;
	ops[4].data.recv_message.recv_message = &in;
	ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
	ops[5].data.recv_status_on_client.trailing_metadata = &trailing;
	ops[5].data.recv_status_on_client.status = &status;
	ops[5].data.recv_status_on_client.status_details = &detail;
	CHECK_EQ_INT(GRPC_CALL_OK, grpc_call_start_batch(c, ops, 6, c, NULL));
	grpc_completion_queue_pluck(f->queue, c, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
	if (in && reply) {
		grpc_byte_buffer_reader reader;
		CHECK(grpc_byte_buffer_reader_init(&reader, in));
		grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
		rc_buf_add(reply, GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all));
		grpc_slice_unref(all);
		grpc_byte_buffer_reader_destroy(&reader);
	}
	grpc_byte_buffer_destroy(in);
	grpc_byte_buffer_destroy(out);
	grpc_metadata_array_destroy(&initial);
	grpc_metadata_array_destroy(&trailing);
	grpc_slice_unref(detail);
	grpc_call_unref(c);
	return (int)status;
}

/* ---- tests of calls ---- */

static void echo(void)
{
	int port;
	rc_rpc *rpc = node(&port);
	outcome o = call(rpc, port, "/t.Test/Echo", "hello", 5);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK_EQ_INT(5, o.n);
	CHECK(!memcmp(o.head, "hello", 5));
	CHECK_STR("/t.Test/Echo", peer.path);
	CHECK(!strncmp(peer.peer, "ipv4:127.0.0.1:", 15));
	o = call(rpc, port, "/t.Test/Echo", "", 0);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK_EQ_INT(0, o.n);
	rc_rpc_destroy(rpc);
}

static void errors_come_over(void)
{
	int port;
	rc_rpc *rpc = node(&port);
	outcome o = call(rpc, port, "/t.Test/Nothing", "x", 1);
	CHECK_EQ_INT(RC_RPC_UNIMPLEMENTED, o.status);
	CHECK_STR("no method /t.Test/Nothing", o.detail);
	CHECK_EQ_INT(0, o.n);
	rc_rpc_destroy(rpc);
}

static void large_message(void)
{
	int port;
	rc_rpc *rpc = node(&port);
	size_t n = 100 * MB;
	uint8_t *bytes = rc_alloc(n);
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 4096);
	outcome o = call(rpc, port, "/t.Test/Echo", bytes, n);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK_EQ_INT(n, o.n);
	CHECK_EQ_INT(sum_of(rc_view_of(bytes, n)), o.sum);
	free(bytes);
	rc_rpc_destroy(rpc);
}

static void too_large_message(void)
{
	int port;
	rc_rpc_options options = { .max_message = 1 << 20 };
	rc_rpc *rpc = node_with(&options, &port), *other = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	uint8_t *bytes = rc_alloc(2 << 20);
	outcome o = { 0 };
	rc_call(other, at(port), "/t.Test/Echo", rc_view_of(bytes, 2 << 20), WAIT_MS, RC_META_NONE, note, &o);
	CHECK(wait_for(answered, &o, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_EXHAUSTED, o.status);
	CHECK_EQ_INT(0, peer.served);
	o = call(rpc, port, "/t.Test/Echo", "still there", 11);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	free(bytes);
	rc_rpc_destroy(other);
	rc_rpc_destroy(rpc);
}

static int listener(int *port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	CHECK(!bind(fd, (struct sockaddr *)&a, n) && !getsockname(fd, (struct sockaddr *)&a, &n));
	*port = ntohs(a.sin_port);
	return fd;
}

static void unavailable_is_fast(void)
{
	int port;
	int fd = listener(&port); /* bound, not listening: refuses */
	rc_rpc *rpc = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	for (int i = 0; i < 3; i++) {
		outcome o = { 0 };
		uint64_t before = rc_now_ms();
		rc_call(rpc, at(port), "/t.Test/Echo", rc_view_str("x"), 0, RC_META_NONE, note, &o);
		CHECK(wait_for(answered, &o, WAIT_MS));
		CHECK_EQ_INT(RC_RPC_UNAVAILABLE, o.status);
		CHECK(o.at - before < 1000);
		CHECK(o.detail[0]);
	}
	outcome o = { 0 };
	rc_call(rpc, "no port here", "/t.Test/Echo", rc_view_str("x"), 3000, RC_META_NONE, note, &o);
	CHECK(wait_for(answered, &o, WAIT_MS));
	CHECK(o.status != RC_RPC_OK);
	rc_rpc_destroy(rpc);
	close(fd);
}

static void restarted_peer_is_found(void)
{
	int port;
	rc_rpc *client = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL), *first = node(&port);
	outcome o = call(client, port, "/t.Test/Echo", "a", 1);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	rc_rpc_destroy(first);
	o = call(client, port, "/t.Test/Echo", "b", 1);
	CHECK_EQ_INT(RC_RPC_UNAVAILABLE, o.status);
	wait_for(never, NULL, 300);
	rc_rpc *second = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	rc_server_options server = { .ip = "127.0.0.1", .port = port, .serve = serve };
	rc_error error = { 0 };
	CHECK_EQ_INT(port, rc_server_start(second, &server, &error));
	CHECK_STR("", error.text);
	uint64_t before = rc_now_ms();
	do {
		o = call(client, port, "/t.Test/Echo", "c", 1);
		if (o.status)
			wait_for(never, NULL, 20);
	} while (o.status && rc_now_ms() - before < WAIT_MS);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK(rc_now_ms() - before < 2500);
	rc_rpc_destroy(client);
	rc_rpc_destroy(second);
}

static void taken_port_is_named(void)
{
	int port;
	rc_rpc *first = node(&port), *second = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	rc_server_options server = { .ip = "127.0.0.1", .port = port, .port_option = "--a_port", .serve = serve };
	rc_error error = { 0 };
	char want[100];
	snprintf(want, sizeof(want), "cannot listen on 127.0.0.1:%d (--a_port): Address already in use", port);
	CHECK_EQ_INT(-1, rc_server_start(second, &server, &error));
	CHECK_STR(want, error.text);
	/* The second port is taken: the first one is given back, and the same rpc can serve elsewhere. */
	int free_port, other, fd = listener(&free_port), fd2 = listener(&other);
	close(fd);
	close(fd2);
	server.port = free_port;
	rc_server_port more[] = { { "127.0.0.1", 0, "--none" }, { "127.0.0.1", port, "--a_port" } };
	server.more = more;
	server.n_more = 2;
	server.port_option = NULL;
	CHECK_EQ_INT(-1, rc_server_start(second, &server, &error));
	CHECK_STR(want, error.text);
	more[1].port = other;
	CHECK_EQ_INT(free_port, rc_server_start(second, &server, &error));
	CHECK_EQ_INT(RC_RPC_OK, call(first, other, "/t.Test/Echo", "x", 1).status);
	rc_rpc_destroy(second);
	second = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	server.ip = "not an address";
	CHECK_EQ_INT(-1, rc_server_start(second, &server, &error));
	CHECK_EQ_INT(RC_E_INVALID, error.code);
	rc_rpc_destroy(second);
	rc_rpc_destroy(first);
}

static void deadline(void)
{
	int port;
	rc_rpc *rpc = node(&port);
	outcome o = { 0 };
	uint64_t before = rc_now_ms();
	rc_call(rpc, at(port), "/t.Test/Hold", rc_view_str("x"), 150, RC_META_NONE, note, &o);
	CHECK(wait_for(answered, &o, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_DEADLINE, o.status);
	CHECK(o.at - before >= 140 && o.at - before < 1500);
	CHECK_EQ_INT(1, peer.held_n);
	rc_reply(peer.held[0], rc_view_str("too late"));
	wait_for(never, NULL, 50);
	CHECK_EQ_INT(1, o.calls);
	rc_rpc_destroy(rpc);
}

static void cancel(void)
{
	int port;
	rc_rpc *rpc = node(&port);
	outcome o = { 0 }, kept = { 0 };
	uint64_t id = rc_call(rpc, at(port), "/t.Test/Hold", rc_view_str("x"), 0, RC_META_NONE, note, &o);
	rc_call(rpc, at(port), "/t.Test/Hold", rc_view_str("y"), 0, RC_META_NONE, note, &kept);
	CHECK(wait_for(two_held, NULL, WAIT_MS));
	int y = peer.held_first[0] == 'y' ? 0 : 1; /* gRPC keeps no order between calls */
	rc_call_cancel(rpc, id);
	CHECK_EQ_INT(0, o.calls); /* later, not inside */
	CHECK(wait_for(answered, &o, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_CANCELLED, o.status);
	rc_call_cancel(rpc, id);
	rc_call_cancel(rpc, 123456789);
	rc_reply(peer.held[!y], rc_view_str("nobody waits"));
	rc_reply_error(peer.held[y], RC_RPC_ABORTED, "%s", "because");
	CHECK(wait_for(answered, &kept, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_ABORTED, kept.status);
	CHECK_STR("because", kept.detail);
	rc_rpc_destroy(rpc);
}

static void forget(void)
{
	int port;
	rc_rpc *rpc = node(&port);
	outcome o = { 0 };
	rc_call(rpc, at(port), "/t.Test/Hold", rc_view_str("x"), 0, RC_META_NONE, note, &o);
	CHECK(wait_for(one_held, NULL, WAIT_MS));
	rc_rpc_forget(rpc, at(port));
	rc_rpc_forget(rpc, "10.9.8.7:1");
	CHECK(wait_for(answered, &o, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_UNAVAILABLE, o.status);
	o = call(rpc, port, "/t.Test/Echo", "again", 5);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	rc_rpc_destroy(rpc);
}

static void returned(void *arg)
{
	++*(int *)arg;
}

static void zero_copy(void)
{
	int port, unrefs = 0;
	rc_rpc *rpc = node(&port);
	size_t n = 5 * MB;
	uint8_t *body = rc_alloc(n);
	memset(body, 3, n);
	outcome o = { 0 };
	rc_call_zero_copy(rpc, at(port), "/t.Test/Echo", rc_view_str("head"), rc_view_of(body, n), returned, &unrefs, WAIT_MS, note, &o);
	CHECK(wait_for(answered, &o, WAIT_MS));
	CHECK(wait_for(is_set, &unrefs, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK_EQ_INT(n + 4, o.n);
	CHECK_EQ_INT(3 * n + 'h' + 'e' + 'a' + 'd', o.sum);
	CHECK(!memcmp(o.head, "head", 4));
	wait_for(never, NULL, 50);
	CHECK_EQ_INT(1, unrefs);

	/* An empty body, and a peer that is not there. */
	unrefs = 0;
	o.calls = 0;
	rc_call_zero_copy(rpc, at(port), "/t.Test/Echo", rc_view_str("head"), rc_view_of(body, 0), returned, &unrefs, WAIT_MS, note, &o);
	CHECK(wait_for(answered, &o, WAIT_MS) && wait_for(is_set, &unrefs, WAIT_MS));
	CHECK_EQ_INT(4, o.n);
	CHECK_EQ_INT(1, unrefs);
	int dead, fd = listener(&dead);
	unrefs = 0;
	o.calls = 0;
	rc_call_zero_copy(rpc, at(dead), "/t.Test/Echo", rc_view_str("head"), rc_view_of(body, n), returned, &unrefs, WAIT_MS, note, &o);
	CHECK(wait_for(answered, &o, WAIT_MS) && wait_for(is_set, &unrefs, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_UNAVAILABLE, o.status);
	CHECK_EQ_INT(1, unrefs);
	close(fd);
	free(body);
	rc_rpc_destroy(rpc);
}

/* Connections to a port of this host, as the one who connected sees them. */
static int connections_to(int port)
{
	static const char *const tables[] = { "/proc/net/tcp", "/proc/net/tcp6" };
	char line[512];
	int n = 0;
	unsigned to, state;
	for (int i = 0; i < 2; i++) {
		FILE *f = fopen(tables[i], "re");
		while (f && fgets(line, sizeof(line), f))
			n += sscanf(line, " %*d: %*[0-9A-Fa-f]:%*x %*[0-9A-Fa-f]:%x %x", &to, &state) == 2 && to == (unsigned)port && state == 1;
		if (f)
			fclose(f);
	}
	return n;
}

static bool no_connections(void *port)
{
	return connections_to(*(int *)port) == 0;
}

static bool twelve_answered(void *arg)
{
	const outcome *o = arg;
	for (int i = 0; i < 12; i++)
		if (!o[i].calls)
			return false;
	return true;
}

static void bulk_is_spread(void)
{
	int port, unrefs = 0;
	rc_rpc *rpc = node(&port);
	uint8_t *body = rc_alloc(MB);
	for (int i = 0; i < 3; i++) { /* one after the other: one connection will do */
		outcome o = { 0 };
		rc_call_zero_copy(rpc, at(port), "/t.Test/Echo", rc_view_str("head"), rc_view_of(body, MB), returned, &unrefs, WAIT_MS, note, &o);
		CHECK(wait_for(answered, &o, WAIT_MS));
	}
	CHECK_EQ_INT(1, connections_to(port));
	outcome many[12] = { 0 };
	for (int i = 0; i < 12; i++)
		rc_call_zero_copy(rpc, at(port), "/t.Test/Echo", rc_view_str("head"), rc_view_of(body, MB), returned, &unrefs, WAIT_MS, note, &many[i]);
	CHECK(wait_for(twelve_answered, many, WAIT_MS));
	for (int i = 0; i < 12; i++)
		CHECK_EQ_INT(RC_RPC_OK, many[i].status);
	CHECK_EQ_INT(4, connections_to(port));
	rc_rpc_forget(rpc, at(port));
	CHECK(wait_for(no_connections, &port, WAIT_MS));
	rc_rpc_destroy(rpc);
	CHECK_EQ_INT(15, unrefs);
	free(body);
}

static void pieces(void)
{
	int port, unrefs = 0;
	rc_rpc *rpc = node(&port);
	size_t n = 5 * MB;
	uint8_t *body = rc_alloc(n);
	memset(body, 5, n);
	outcome o = { 0 };
	rc_call_zero_copy(rpc, at(port), "/t.Test/Pieces", rc_view_str("0123"), rc_view_of(body, n), returned, &unrefs, WAIT_MS, note, &o);
	CHECK(wait_for(answered, &o, WAIT_MS) && wait_for(is_set, &unrefs, WAIT_MS));
	uint64_t got[2];
	memcpy(got, o.head, sizeof(got));
	CHECK_EQ_INT(n + 4, got[0]);
	CHECK_EQ_INT(5 * n + '0' + '1' + '2' + '3', got[1]);
	CHECK(!peer.contiguous);
	CHECK(peer.slices > 1);
	free(body);
	rc_rpc_destroy(rpc);
}

static void many_calls(void)
{
	enum { N = 3000 };
	static outcome o[N];
	int port;
	rc_rpc *rpc = node(&port);
	memset(o, 0, sizeof(o));
	for (int i = 0; i < N; i++)
		rc_call(rpc, at(port), "/t.Test/Echo", rc_view_of(&i, sizeof(i)), WAIT_MS, RC_META_NONE, note, &o[i]);
	int bad = 0;
	for (int i = 0; i < N; i++) {
		if (!o[i].calls && !wait_for(answered, &o[i], WAIT_MS))
			bad++;
		bad += o[i].status || o[i].calls != 1 || o[i].n != sizeof(i) || memcmp(o[i].head, &i, sizeof(i));
	}
	CHECK_EQ_INT(0, bad);
	CHECK_EQ_INT(N, peer.served);
	rc_rpc_destroy(rpc);
}

/* Calls are in flight on every side: held on our server, waiting for a foreign one, lent bytes, an open stream. */
static void stream_closed(void *arg, int status, const char *detail)
{
	(void)detail;
	*(int *)arg = 100 + status;
}

static void destroy_in_flight(void)
{
	static const rc_stream_ops ops = { .closed = stream_closed };
	int port, silent, unrefs = 0, ended = 0;
	int fd = listener(&silent);
	CHECK(!listen(fd, 16)); /* connects, never speaks */
	rc_rpc *rpc = node(&port), *client = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	outcome o[4] = { 0 };
	uint8_t *body = rc_alloc(MB);
	rc_call(rpc, at(port), "/t.Test/Hold", rc_view_str("x"), 0, RC_META_NONE, note, &o[0]);
	rc_call(client, at(port), "/t.Test/Hold", rc_view_str("x"), 0, RC_META_NONE, note, &o[1]);
	CHECK(wait_for(two_held, NULL, WAIT_MS));
	rc_call(client, at(silent), "/t.Test/Echo", rc_view_str("x"), 0, RC_META_NONE, note, &o[2]);
	rc_call_zero_copy(client, at(silent), "/t.Test/Echo", rc_view_str("x"), rc_view_of(body, MB), returned, &unrefs, 0, note, &o[3]);
	CHECK(rc_stream_open(client, at(silent), "/t.Test/Stream", NULL, &ops, &ended) != NULL);
	rc_rpc_destroy(rpc);
	CHECK_EQ_INT(1, o[0].calls);
	CHECK(o[0].status == RC_RPC_CANCELLED || o[0].status == RC_RPC_UNAVAILABLE);
	rc_rpc_destroy(client);
	for (int i = 1; i < 4; i++) {
		CHECK_EQ_INT(1, o[i].calls);
		CHECK(o[i].status == RC_RPC_CANCELLED || (i == 1 && o[i].status == RC_RPC_UNAVAILABLE));
	}
	CHECK_EQ_INT(100 + RC_RPC_CANCELLED, ended);
	CHECK_EQ_INT(1, unrefs);
	wait_for(never, NULL, 20); /* what was posted to the loop finds nothing to do */
	free(body);
	close(fd);
}

static void answers_held(void *arg, int status, rc_view reply, const char *detail)
{
	(void)arg, (void)reply, (void)detail;
	CHECK_EQ_INT(RC_RPC_CANCELLED, status);
	for (int i = 0; i < peer.held_n; i++)
		rc_reply(peer.held[i], rc_view_str("late"));
}

static void destroy_lets_calls_answer(void)
{
	int port, silent, fd = listener(&silent);
	CHECK(!listen(fd, 16));
	rc_rpc *rpc = node(&port), *client = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	outcome o[2] = { 0 };
	for (int i = 0; i < 2; i++)
		rc_call(client, at(port), "/t.Test/Hold", rc_view_str("x"), 0, RC_META_NONE, note, &o[i]);
	CHECK(wait_for(two_held, NULL, WAIT_MS));
	rc_call(rpc, at(silent), "/t.Test/Echo", rc_view_str("x"), 0, RC_META_NONE, answers_held, NULL);
	rc_rpc_destroy(rpc);
	for (int i = 0; i < 2; i++) {
		CHECK(wait_for(answered, &o[i], WAIT_MS));
		CHECK_EQ_INT(RC_RPC_OK, o[i].status);
		CHECK_EQ_INT(4, o[i].n);
	}
	rc_rpc_destroy(client);
	close(fd);
}

static void calls_again(void *arg, int status, rc_view reply, const char *detail)
{
	(void)reply;
	(void)detail;
	rc_rpc **rpc = arg;
	CHECK_EQ_INT(RC_RPC_CANCELLED, status);
	CHECK_EQ_INT(0, rc_call(*rpc, "127.0.0.1:1", "/t.Test/Echo", rc_view_str("x"), 0, RC_META_NONE, calls_again, arg));
}

static void destroy_ends_repeated_calls(void)
{
	int port;
	rc_rpc *rpc = node(&port), *client = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	rc_call(client, at(port), "/t.Test/Hold", rc_view_str("x"), 0, RC_META_NONE, calls_again, &client);
	CHECK(wait_for(one_held, NULL, WAIT_MS));
	rc_rpc_destroy(client);
	rc_rpc_destroy(rpc);
	rc_rpc_destroy(NULL);
}

static void *foreign_hold(void *arg)
{
	static int status;
	status = foreign_call(arg, "/t.Test/Hold", NULL, NULL, NULL);
	return &status;
}

static void last_answer_leaves(void)
{
	int port;
	pthread_t thread;
	void *status;
	rc_rpc *rpc = node(&port);
	foreign f = foreign_open(port);
	CHECK(!pthread_create(&thread, NULL, foreign_hold, &f));
	CHECK(wait_for(one_held, NULL, WAIT_MS));
	rc_reply(peer.held[0], rc_view_str("bye"));
	uint64_t before = rc_now_ms();
	rc_rpc_destroy(rpc);
	CHECK(rc_now_ms() - before < 400);
	pthread_join(thread, &status);
	CHECK_EQ_INT(RC_RPC_OK, *(int *)status);
	foreign_close(&f);
}

/* ---- limits ---- */

static bool four_answered(void *arg)
{
	int n = 0;
	for (int i = 0; i < 6; i++)
		n += ((outcome *)arg)[i].calls;
	return n >= 4;
}

static bool all_answered(void *arg)
{
	int n = 0;
	for (int i = 0; i < 6; i++)
		n += ((outcome *)arg)[i].calls;
	return n == 6;
}

static void calls_are_limited(void)
{
	rc_error error = { 0 };
	rc_rpc *rpc = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, &error);
	rc_server_options server = { .ip = "127.0.0.1", .serve = serve, .max_calls = 2 };
	memset(&peer, 0, sizeof(peer));
	int port = rc_server_start(rpc, &server, &error), full = 0, ok = 0;
	outcome o[6] = { 0 };
	for (int i = 0; i < 6; i++)
		rc_call(rpc, at(port), "/t.Test/Hold", rc_view_str("x"), WAIT_MS, RC_META_NONE, note, &o[i]);
	CHECK(wait_for(four_answered, o, WAIT_MS));
	CHECK_EQ_INT(2, peer.held_n);
	while (peer.held_n)
		rc_reply(peer.held[--peer.held_n], rc_view_str("y"));
	CHECK(wait_for(all_answered, o, WAIT_MS));
	for (int i = 0; i < 6; i++) {
		full += o[i].status == RC_RPC_EXHAUSTED;
		ok += o[i].status == RC_RPC_OK;
	}
	CHECK_EQ_INT(4, full);
	CHECK_EQ_INT(2, ok);
	CHECK_EQ_INT(RC_RPC_OK, call(rpc, port, "/t.Test/Echo", "x", 1).status); /* room again */
	rc_rpc_destroy(rpc);
}

static void held_bytes_are_limited(void)
{
	int port;
	rc_rpc_options options = { .max_message = 1000000 };
	rc_rpc *rpc = node_with(&options, &port);
	uint8_t *bytes = rc_alloc(999000);
	outcome o[6] = { 0 };
	for (int i = 0; i < 6; i++)
		rc_call(rpc, at(port), "/t.Test/Hold", rc_view_of(bytes, 999000), WAIT_MS, RC_META_NONE, note, &o[i]);
	int full = 0;
	for (int wait = 0; wait < 200 && (peer.held_n < 4 || full < 2); wait++) {
		wait_for(never, NULL, 10);
		full = 0;
		for (int i = 0; i < 6; i++)
			full += o[i].status == RC_RPC_EXHAUSTED;
	}
	CHECK_EQ_INT(4, peer.held_n);
	CHECK_EQ_INT(2, full);
	while (peer.held_n)
		rc_reply(peer.held[--peer.held_n], rc_view_str("y"));
	CHECK(wait_for(all_answered, o, WAIT_MS));
	free(bytes);
	rc_rpc_destroy(rpc);
}

static void names_are_resolved(void)
{
	int port;
	char address[40];
	outcome o = { 0 };
	rc_rpc *rpc = node(&port);
	snprintf(address, sizeof(address), "localhost:%d", port);
	rc_call(rpc, address, "/t.Test/Echo", rc_view_str("x"), WAIT_MS, RC_META_NONE, note, &o);
	CHECK(wait_for(answered, &o, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK_STR("", o.detail);
	rc_rpc_destroy(rpc);
}

/* ---- health ---- */

static int health(rc_rpc *rpc, int port, const char *service, uint8_t *answer)
{
	uint8_t request[64] = { 0x0a, (uint8_t)strlen(service) };
	memcpy(request + 2, service, strlen(service));
	outcome o = call(rpc, port, "/grpc.health.v1.Health/Check", request, service[0] ? 2 + strlen(service) : 0);
	CHECK_EQ_INT(o.status ? 0 : 2, o.n);
	*answer = o.head[1];
	return o.status;
}

static void health_answers(void)
{
	int port;
	uint8_t answer;
	rc_rpc *rpc = node(&port);
	CHECK_EQ_INT(RC_RPC_OK, health(rpc, port, "", &answer));
	CHECK_EQ_INT(1, answer);
	CHECK_EQ_INT(RC_RPC_OK, health(rpc, port, "abc123", &answer));
	CHECK_EQ_INT(1, answer);
	CHECK_EQ_INT(RC_RPC_NOT_FOUND, health(rpc, port, "other", &answer));
	rc_server_set_serving(rpc, false);
	CHECK_EQ_INT(RC_RPC_OK, health(rpc, port, "abc123", &answer));
	CHECK_EQ_INT(2, answer);
	outcome o = call(rpc, port, "/grpc.health.v1.Health/Check", "\x0a\x7f", 2);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	CHECK_EQ_INT(0, peer.served);
	rc_rpc_destroy(rpc);
}

static void health_without_loop(void)
{
	int port;
	rc_rpc *rpc = node(&port);
	foreign f = foreign_open(port);
	rc_buf reply = { 0 };
	CHECK_EQ_INT(0, foreign_call(&f, "/grpc.health.v1.Health/Check", NULL, NULL, &reply)); /* the loop does not run here */
	CHECK_EQ_INT(2, reply.n);
	CHECK(reply.n == 2 && reply.p[0] == 8 && reply.p[1] == 1);
	rc_buf_free(&reply);
	foreign_close(&f);
	rc_rpc_destroy(rpc);
}

static void *foreign_echo(void *arg)
{
	static int status;
	status = foreign_call(((void **)arg)[0], "/t.Test/Echo", "authorization", ((void **)arg)[1], NULL);
	rc_loop_post(loop, (rc_task_fn)rc_loop_stop, loop);
	return &status;
}

static int echo_with_token(foreign *f, const char *value)
{
	pthread_t thread;
	void *args[2] = { f, (void *)(uintptr_t)value }, *status;
	CHECK(!pthread_create(&thread, NULL, foreign_echo, args));
	rc_loop_run(loop);
	pthread_join(thread, &status);
	return *(int *)status;
}

static void token_is_demanded(void)
{
	int port;
	rc_rpc_options with = { .token = "s3cret" }, wrong = { .token = "s3creT" }, longer = { .token = "s3crets" };
	rc_rpc *rpc = node_with(&with, &port);
	outcome o = call(rpc, port, "/t.Test/Echo", "x", 1);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	peer.served = 0;
	const rc_rpc_options *bad[] = { &wrong, &longer, &(rc_rpc_options){ .token = "" }, &(rc_rpc_options){ 0 } };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		rc_rpc *client = rc_rpc_create(loop, bad[i], NULL);
		o = call(client, port, "/t.Test/Echo", "x", 1);
		CHECK_EQ_INT(RC_RPC_UNAUTHENTICATED, o.status);
		CHECK(strstr(o.detail, "InvalidAuthToken") != NULL);
		uint8_t answer;
		CHECK_EQ_INT(RC_RPC_OK, health(client, port, "abc123", &answer));
		rc_rpc_destroy(client);
	}
	CHECK_EQ_INT(0, peer.served);
	foreign f = foreign_open(port);
	CHECK_EQ_INT(RC_RPC_OK, echo_with_token(&f, "Bearer s3cret"));
	CHECK_EQ_INT(RC_RPC_UNAUTHENTICATED, echo_with_token(&f, "s3cret"));
	CHECK_EQ_INT(RC_RPC_UNAUTHENTICATED, echo_with_token(&f, "Bearer s3cre"));
	foreign_close(&f);
	rc_rpc_destroy(rpc);
	rc_error error = { 0 };
	CHECK(!rc_rpc_create(loop, &(rc_rpc_options){ .token = "two\nlines" }, &error));
	CHECK_EQ_INT(RC_E_INVALID, error.code);
}

/* ---- a foreign server for the stream ---- */

/* Accepts one stream: notes metadata, answers initial metadata, then echoes each message with '!' appended; the message "end"
 * ends it with ABORTED "asked to". Runs in a thread of its own. */
typedef struct stream_server {
	grpc_completion_queue *queue;
	grpc_server *server;
	pthread_t thread;
	int port, accepts;
	char seen[400];
} stream_server;

static bool stream_wait(stream_server *s, void *tag)
{
	return grpc_completion_queue_pluck(s->queue, tag, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).success;
}

static void stream_run(stream_server *s, grpc_call *c)
{
	grpc_op op;
	memset(&op, 0, sizeof(op));
	op.op = GRPC_OP_SEND_INITIAL_METADATA;
	grpc_call_start_batch(c, &op, 1, s, NULL);
	stream_wait(s, s);
	bool end = false;
	while (!end) {
		grpc_byte_buffer *in = NULL;
		memset(&op, 0, sizeof(op));
		op.op = GRPC_OP_RECV_MESSAGE;
		op.data.recv_message.recv_message = &in;
		grpc_call_start_batch(c, &op, 1, s, NULL);
		if (!stream_wait(s, s) || !in)
			break;
		grpc_byte_buffer_reader reader;
		CHECK(grpc_byte_buffer_reader_init(&reader, in));
		grpc_slice two[2] = { grpc_byte_buffer_reader_readall(&reader), grpc_slice_from_static_string("!") };
		grpc_byte_buffer_reader_destroy(&reader);
		end = grpc_slice_str_cmp(two[0], "end") == 0;
		grpc_byte_buffer *out = grpc_raw_byte_buffer_create(two, 2);
		memset(&op, 0, sizeof(op));
		op.op = GRPC_OP_SEND_MESSAGE;
		op.data.send_message.send_message = out;
		grpc_call_start_batch(c, &op, 1, s, NULL);
		stream_wait(s, s);
		grpc_slice_unref(two[0]);
		grpc_byte_buffer_destroy(in);
		grpc_byte_buffer_destroy(out);
	}
	int cancelled;
	grpc_slice detail = grpc_slice_from_static_string("asked to");
	grpc_op last[2];
	memset(last, 0, sizeof(last));
	last[0].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
	last[0].data.send_status_from_server.status = GRPC_STATUS_ABORTED;
	last[0].data.send_status_from_server.status_details = &detail;
	last[1].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
	last[1].data.recv_close_on_server.cancelled = &cancelled;
	grpc_call_start_batch(c, last, 2, s, NULL);
	stream_wait(s, s);
}

static void *stream_thread(void *arg)
{
	stream_server *s = arg;
	for (int n = 0; n < s->accepts; n++) {
		grpc_call *c = NULL;
		grpc_call_details details;
		grpc_metadata_array metadata;
		grpc_call_details_init(&details);
		grpc_metadata_array_init(&metadata);
		grpc_server_request_call(s->server, &c, &details, &metadata, s->queue, s->queue, s);
		if (stream_wait(s, s)) {
			for (size_t i = 0; i < metadata.count; i++) {
				char *key = grpc_slice_to_c_string(metadata.metadata[i].key), *value = grpc_slice_to_c_string(metadata.metadata[i].value);
				size_t used = strlen(s->seen);
				if (strcmp(key, "user-agent"))
					snprintf(s->seen + used, sizeof(s->seen) - used, "%s=%s;", key, value);
				free(key);
				free(value);
			}
			stream_run(s, c);
			grpc_call_unref(c);
		}
		grpc_call_details_destroy(&details);
		grpc_metadata_array_destroy(&metadata);
	}
	return NULL;
}

static void stream_server_start(stream_server *s, int accepts)
{
	memset(s, 0, sizeof(*s));
	grpc_init();
	s->accepts = accepts;
	s->queue = grpc_completion_queue_create_for_pluck(NULL);
	s->server = grpc_server_create(NULL, NULL);
	grpc_server_register_completion_queue(s->server, s->queue, NULL);
	grpc_server_credentials *c = grpc_insecure_server_credentials_create();
	s->port = grpc_server_add_http2_port(s->server, "127.0.0.1:0", c);
	grpc_server_credentials_release(c);
	grpc_server_start(s->server);
	CHECK(!pthread_create(&s->thread, NULL, stream_thread, s));
}

static void stream_server_stop(stream_server *s)
{
	pthread_join(s->thread, NULL);
	grpc_server_shutdown_and_notify(s->server, s->queue, &s->port);
	grpc_server_cancel_all_calls(s->server);
	stream_wait(s, &s->port);
	grpc_server_destroy(s->server);
	grpc_completion_queue_shutdown(s->queue);
	grpc_completion_queue_destroy(s->queue);
	grpc_shutdown_blocking();
}

typedef struct stream_user {
	rc_stream *stream;
	int ready, messages, sent, closed, status;
	char text[300], detail[100];
	const char *const *script; /* sent one after the other, NULL at the end */
} stream_user;

static void user_next(stream_user *u)
{
	if (*u->script) {
		const char *message = *u->script++;
		rc_stream_send(u->stream, rc_view_str(message));
	}
}

static void user_ready(void *arg)
{
	stream_user *u = arg;
	u->ready++;
	user_next(u);
}

static void user_message(void *arg, rc_view bytes)
{
	stream_user *u = arg;
	size_t used = strlen(u->text);
	u->messages++;
	snprintf(u->text + used, sizeof(u->text) - used, "%.*s,", (int)bytes.n, (const char *)bytes.p);
}

static void user_sent(void *arg)
{
	stream_user *u = arg;
	u->sent++;
	user_next(u);
}

static void user_closed(void *arg, int status, const char *detail)
{
	stream_user *u = arg;
	u->closed++;
	u->status = status;
	snprintf(u->detail, sizeof(u->detail), "%s", detail);
}

static const rc_stream_ops user_ops = { user_ready, user_message, user_sent, user_closed };

static void stream_both_ways(void)
{
	static const char *const script[] = { "one", "two", "three", "end", NULL }, *const metadata[] = { "node_id", "00ff", "x-more", "yes", NULL };
	stream_server s;
	stream_server_start(&s, 1);
	rc_rpc *rpc = rc_rpc_create(loop, &(rc_rpc_options){ .token = "tok" }, NULL);
	stream_user u = { .script = script };
	u.stream = rc_stream_open(rpc, at(s.port), "/t.Test/Stream", metadata, &user_ops, &u);
	CHECK(wait_for(is_set, &u.closed, WAIT_MS));
	CHECK_EQ_INT(1, u.ready);
	CHECK_EQ_INT(4, u.sent);
	CHECK_EQ_INT(4, u.messages);
	CHECK_STR("one!,two!,three!,end!,", u.text);
	CHECK_EQ_INT(RC_RPC_ABORTED, u.status);
	CHECK_STR("asked to", u.detail);
	stream_server_stop(&s);
	CHECK(strstr(s.seen, "node_id=00ff;") && strstr(s.seen, "x-more=yes;") && strstr(s.seen, "authorization=Bearer tok;"));
	rc_rpc_destroy(rpc);
}

static void stream_close_and_forget(void)
{
	static const char *const script[] = { "one", NULL };
	stream_server s;
	stream_server_start(&s, 2);
	rc_rpc *rpc = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	stream_user u = { .script = script };
	u.stream = rc_stream_open(rpc, at(s.port), "/t.Test/Stream", NULL, &user_ops, &u);
	CHECK(wait_for(is_set, &u.messages, WAIT_MS));
	rc_stream_close(u.stream);
	CHECK_EQ_INT(0, u.closed);
	CHECK(wait_for(is_set, &u.closed, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_CANCELLED, u.status);
	u = (stream_user){ .script = script };
	u.stream = rc_stream_open(rpc, at(s.port), "/t.Test/Stream", NULL, &user_ops, &u);
	CHECK(wait_for(is_set, &u.messages, WAIT_MS));
	rc_rpc_forget(rpc, at(s.port));
	CHECK(wait_for(is_set, &u.closed, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_UNAVAILABLE, u.status);
	CHECK_EQ_INT(1, u.closed);
	stream_server_stop(&s);
	rc_rpc_destroy(rpc);
}

static void stream_to_nobody(void)
{
	static const char *const script[] = { "one", NULL };
	int port, fd = listener(&port);
	rc_rpc *rpc = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	stream_user u = { .script = script };
	u.stream = rc_stream_open(rpc, at(port), "/t.Test/Stream", NULL, &user_ops, &u);
	CHECK(wait_for(is_set, &u.closed, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_UNAVAILABLE, u.status);
	CHECK_EQ_INT(1, u.closed);
	CHECK_EQ_INT(0, u.messages);
	rc_rpc_destroy(rpc);
	close(fd);
}

static void stream_with_bad_metadata(void)
{
	static const char *const metadata[] = { "node_id", "a\nb", NULL };
	rc_rpc *rpc = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	stream_user u = { 0 };
	u.stream = rc_stream_open(rpc, "127.0.0.1:1", "/t.Test/Stream", metadata, &user_ops, &u);
	CHECK(wait_for(is_set, &u.closed, WAIT_MS));
	CHECK(u.status != RC_RPC_OK);
	CHECK_EQ_INT(0, u.ready);
	rc_rpc_destroy(rpc);
}

static void cluster_id_where_asked(void)
{
	/* The stream server serves the unary call as well: it notes the metadata and ends the call. */
	stream_server s;
	stream_server_start(&s, 3);
	rc_rpc *rpc = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	outcome o = { 0 };
	for (int i = 0; i < 3; i++) {
		o.calls = 0;
		rc_call(rpc, at(s.port), "/t.Test/X", rc_view_str("end"), WAIT_MS, i == 2 ? RC_META_NONE : RC_META_CLUSTER_ID, note, &o);
		CHECK(wait_for(answered, &o, WAIT_MS));
		CHECK_EQ_INT(RC_RPC_ABORTED, o.status);
		rc_rpc_set_cluster_id(rpc, "00aa");
		rc_rpc_set_cluster_id(rpc, "00ab");
		rc_rpc_set_cluster_id(rpc, "not\nlegal");
	}
	stream_server_stop(&s);
	CHECK_STR("ray_cluster_id=00ab;", s.seen);
	rc_rpc_destroy(rpc);
}

/* ---- TLS ---- */

static char tls_dir[] = "/tmp/rc-rpc-tls-XXXXXX";

static bool make_certificates(void)
{
	static const char script[] =
	    "cd '%s' && exec >/dev/null 2>&1 && for c in good evil; do "
	    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca-$c -keyout $c-ca.key -out $c-ca.crt && "
	    "openssl req -newkey rsa:2048 -nodes -subj /CN=node -keyout $c.key -out $c.csr && "
	    "echo 'subjectAltName=IP:127.0.0.1' > ext && "
	    "openssl x509 -req -in $c.csr -CA $c-ca.crt -CAkey $c-ca.key -CAcreateserial -days 2 -extfile ext -out $c.crt || exit 1; done && "
	    "echo 'subjectAltName=IP:10.1.2.3' > ext && "
	    "openssl x509 -req -in good.csr -CA good-ca.crt -CAkey good-ca.key -CAcreateserial -days 2 -extfile ext -out other-address.crt && "
	    "echo 'subjectAltName=DNS:a.example,DNS:*.b.example' > ext && "
	    "openssl x509 -req -in good.csr -CA good-ca.crt -CAkey good-ca.key -CAcreateserial -days 2 -extfile ext -out names.crt";
	char command[2000];
	if (!mkdtemp(tls_dir))
		return false;
	snprintf(command, sizeof(command), script, tls_dir);
	return system(command) == 0;
}

static rc_rpc_options tls_options(const char *cert, const char *key, const char *ca)
{
	static char paths[3][100];
	const char *names[3] = { cert, key, ca };
	for (int i = 0; i < 3; i++)
		snprintf(paths[i], sizeof(paths[i]), "%s/%s", tls_dir, names[i]);
	return (rc_rpc_options){ .tls_cert = paths[0], .tls_key = paths[1], .tls_ca = paths[2] };
}

static int tls_call(const rc_rpc_options *options, int port)
{
	outcome o = { 0 };
	rc_rpc *client = rc_rpc_create(loop, options, NULL);
	rc_call(client, at(port), "/t.Test/Echo", rc_view_str("x"), 5000, RC_META_NONE, note, &o);
	CHECK(wait_for(answered, &o, WAIT_MS));
	rc_rpc_destroy(client);
	return o.status;
}

static void tls_is_mutual(void)
{
	int port;
	CHECK(make_certificates());
	rc_rpc_options good = tls_options("good.crt", "good.key", "good-ca.crt");
	rc_rpc *rpc = node_with(&good, &port);
	CHECK_EQ_INT(RC_RPC_OK, tls_call(&good, port));
	int served = peer.served;
	rc_rpc_options evil = tls_options("evil.crt", "evil.key", "good-ca.crt");
	CHECK(tls_call(&evil, port) != RC_RPC_OK); /* the server does not know who signed it */
	rc_rpc_options strange_ca = tls_options("good.crt", "good.key", "evil-ca.crt");
	CHECK(tls_call(&strange_ca, port) != RC_RPC_OK);
	CHECK(tls_call(&(rc_rpc_options){ 0 }, port) != RC_RPC_OK);
	CHECK_EQ_INT(served, peer.served);
	rc_rpc_destroy(rpc);
}

static void tls_checks_the_address(void)
{
	int port;
	rc_rpc_options other = tls_options("other-address.crt", "good.key", "good-ca.crt");
	rc_rpc *rpc = node_with(&other, &port);
	CHECK(tls_call(&other, port) != RC_RPC_OK);
	CHECK_EQ_INT(0, peer.served);
	rc_error error = { 0 };
	CHECK_EQ_INT(0, rc_tls_check_address(rpc, "10.1.2.3", &error));
	CHECK_EQ_INT(-1, rc_tls_check_address(rpc, "127.0.0.1", &error));
	CHECK(strstr(error.text, "other-address.crt does not list 127.0.0.1") && strstr(error.text, "it lists IP:10.1.2.3"));
	rc_rpc_destroy(rpc);
	rc_rpc_options names = tls_options("names.crt", "good.key", "good-ca.crt");
	rpc = node_with(&names, &port);
	CHECK_EQ_INT(-1, rc_tls_check_address(rpc, "127.0.0.1", &error));
	CHECK(strstr(error.text, "it lists DNS:a.example, DNS:*.b.example"));
	CHECK_EQ_INT(0, rc_tls_check_address(rpc, "x.b.example", &error));
	CHECK_EQ_INT(-1, rc_tls_check_address(rpc, "b.example", &error));
	rc_rpc_destroy(rpc);
	rpc = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	CHECK_EQ_INT(0, rc_tls_check_address(rpc, "127.0.0.1", &error)); /* no TLS */
	rc_rpc_destroy(rpc);
}

static void tls_files_are_named(void)
{
	rc_error error = { 0 };
	rc_rpc_options o = tls_options("good.crt", "none.key", "good-ca.crt");
	CHECK(!rc_rpc_create(loop, &o, &error));
	CHECK(strstr(error.text, "none.key: No such file") != NULL);
	o.tls_key = NULL;
	CHECK(!rc_rpc_create(loop, &o, &error));
	CHECK_STR("TLS needs a certificate, a key and a CA file; missing: key", error.text);
	o = tls_options("good.crt", "ext", "good-ca.crt");
	CHECK(!rc_rpc_create(loop, &o, &error));
	CHECK(strstr(error.text, "/ext is not a PEM file") != NULL);
	char command[100];
	snprintf(command, sizeof(command), "rm -r '%s'", tls_dir);
	CHECK(!system(command));
}

/* ---- resources ---- */

static void descriptors_are_cloexec(void)
{
	int port;
	rc_rpc *rpc = node(&port);
	call(rpc, port, "/t.Test/Echo", "x", 1);
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int open_ones = 0;
	while ((e = readdir(d))) {
		int fd = atoi(e->d_name);
		char target[200] = "", path[40];
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		int flags = fcntl(fd, F_GETFD);
		if (fd <= 2 || n <= 0 || flags < 0 || (strncmp(target, "socket:", 7) && strncmp(target, "anon_inode:", 11)))
			continue;
		open_ones++;
		if (!(flags & FD_CLOEXEC)) {
			printf("# descriptor %d (%s) is inherited\n", fd, target);
			CHECK(false);
		}
	}
	closedir(d);
	CHECK(open_ones >= 4);
	rc_rpc_destroy(rpc);
}

/* ---- answers in parts ---- */

typedef struct reader {
	rc_stream *stream;
	int n, closed, status;
	uint8_t got[8];
} reader;

static void reader_ready(void *arg)
{
	(void)arg;
}

static void reader_message(void *arg, rc_view bytes)
{
	reader *x = arg;
	if (x->n < 8 && bytes.n == 1)
		x->got[x->n] = bytes.p[0];
	x->n++;
}

static void reader_closed(void *arg, int status, const char *detail)
{
	reader *x = arg;
	(void)detail;
	x->closed = 1;
	x->status = status;
}

static const rc_stream_ops reader_ops = { .ready = reader_ready, .message = reader_message, .closed = reader_closed };

static bool reader_is_closed(void *arg)
{
	return ((reader *)arg)->closed;
}

static bool reader_has_three(void *arg)
{
	return ((reader *)arg)->n == 3;
}

static void parts_come_in_order(void)
{
	int port;
	rc_rpc *rpc = node(&port);
	static const uint8_t wants[] = { 0, 1, 5 };
	for (size_t i = 0; i < 3; i++) {
		reader x = { 0 };
		x.stream = rc_stream_open(rpc, at(port), "/t.Test/Parts", NULL, &reader_ops, &x);
		rc_stream_send(x.stream, rc_view_of(&wants[i], 1));
		CHECK(wait_for(reader_is_closed, &x, WAIT_MS));
		CHECK_EQ_INT(RC_RPC_OK, x.status);
		CHECK_EQ_INT(wants[i], x.n);
		for (int k = 0; k < x.n; k++)
			CHECK_EQ_INT(k, x.got[k]);
		CHECK_EQ_INT(0, parts.left);
	}
	rc_rpc_destroy(rpc);
}

static void a_reader_that_leaves_is_told(void)
{
	int port;
	rc_rpc *rpc = node(&port);
	uint8_t forever = 255;
	reader x = { 0 };
	x.stream = rc_stream_open(rpc, at(port), "/t.Test/Parts", NULL, &reader_ops, &x);
	rc_stream_send(x.stream, rc_view_of(&forever, 1));
	CHECK(wait_for(reader_has_three, &x, WAIT_MS));
	CHECK_EQ_INT(0, parts.left);
	rc_stream_close(x.stream);
	CHECK(wait_for(is_set, &parts.left, WAIT_MS));
	rc_rpc_destroy(rpc);
	CHECK_EQ_INT(1, parts.left);
}

static void a_stop_ends_answers_in_parts(void)
{
	int port;
	rc_rpc *rpc = node(&port), *client = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, NULL);
	uint8_t forever = 255;
	reader x = { 0 };
	x.stream = rc_stream_open(client, at(port), "/t.Test/Parts", NULL, &reader_ops, &x);
	rc_stream_send(x.stream, rc_view_of(&forever, 1));
	CHECK(wait_for(reader_has_three, &x, WAIT_MS));
	rc_rpc_destroy(rpc);
	CHECK_EQ_INT(1, parts.left);
	CHECK(wait_for(reader_is_closed, &x, WAIT_MS));
	CHECK_EQ_INT(RC_RPC_UNAVAILABLE, x.status);
	rc_rpc_destroy(client);
}

int main(void)
{
	loop = rc_loop_create();
	RUN(echo, "a call is served and its bytes come back");
	RUN(errors_come_over, "status and text of an error answer reach the caller");
	RUN(large_message, "a message of 100 MB passes both ways unchanged");
	RUN(too_large_message, "a message over the limit is refused before it reaches the handler, and the server goes on");
	RUN(unavailable_is_fast, "a peer that refuses is UNAVAILABLE at once, also without a deadline");
	RUN(restarted_peer_is_found, "a peer that restarted on its port is found again within 2.5 s");
	RUN(taken_port_is_named, "a taken port, first or second, and a malformed address are errors that name them");
	RUN(deadline, "a deadline ends a call, and a late answer is harmless");
	RUN(cancel, "a cancelled call ends once, later, and leaves others alone");
	RUN(forget, "forgetting an address fails its calls, and the next call connects anew");
	RUN(zero_copy, "lent bytes arrive and are given back exactly once, also when the call fails");
	RUN(bulk_is_spread, "lent bytes of several calls at once take up to four connections, and forgetting the address ends all");
	RUN(pieces, "a sliced method gets the pieces as received");
	RUN(many_calls, "three thousand calls at once are all answered");
	RUN(destroy_in_flight, "destroy with calls in flight tells each of them and gives lent bytes back");
	RUN(destroy_lets_calls_answer, "a request that waits for a call of the server's own is answered by its end, once");
	RUN(destroy_ends_repeated_calls, "a callback that calls again does not keep destroy from ending");
	RUN(last_answer_leaves, "an answer that was given just before destroy reaches its caller");
	RUN(calls_are_limited, "calls over the limit are refused until others are answered");
	RUN(held_bytes_are_limited, "messages over the limit of held bytes are refused");
	RUN(names_are_resolved, "a peer can be addressed by name");
	RUN(health_answers, "the health service answers for its name and the empty one, and says when not serving");
	RUN(health_without_loop, "the health service answers while the loop stands still");
	RUN(token_is_demanded, "a wrong or missing token is refused, but not for the health service");
	RUN(stream_both_ways, "a stream passes metadata and messages both ways in order and tells the end");
	RUN(stream_close_and_forget, "a stream ends by close and by forgetting its address");
	RUN(stream_to_nobody, "a stream to a peer that refuses is closed as UNAVAILABLE");
	RUN(stream_with_bad_metadata, "a stream with metadata that HTTP forbids is closed, not left open");
	RUN(cluster_id_where_asked, "the cluster id goes with the calls that ask for it, once it is known");
	RUN(tls_is_mutual, "with TLS both sides must show a certificate that the CA signed");
	RUN(tls_checks_the_address, "with TLS a certificate for another address is refused, and one's own is found out");
	RUN(tls_files_are_named, "a missing or wrong TLS file is an error that names it");
	RUN(descriptors_are_cloexec, "every descriptor of gRPC is closed on exec");
	RUN(parts_come_in_order, "an answer in parts comes in order, then its status");
	RUN(a_reader_that_leaves_is_told, "the server hears of a reader that leaves while nothing is sent");
	RUN(a_stop_ends_answers_in_parts, "a server that stops ends its answers in parts");
	rc_loop_destroy(loop);
	return test_end();
}
