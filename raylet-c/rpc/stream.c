/* A bidirectional stream as client. Four batches: opening (initial metadata both ways), the status, and one each for the
 * message being received and the one being sent. `closed` is told when the status is there and nothing else is under way.
 *
 * A stream that ends without the peer's metadata (nobody listens, unknown method) may still report its opening as done: gRPC
 * does not tell these apart. `ready` can thus come just before `closed`. */
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/rpc/internal.h"

enum { PAIRS_MAX = 8 };

struct rc_stream {
	rc__op opened, received, sent, ended;
	rc__user user;
	rc_rpc *rpc;
	const rc_stream_ops *ops;
	void *arg;
	const char *path;
	unsigned under_way; /* batches */
	bool has_status;
	grpc_byte_buffer *in, *out;
	grpc_metadata_array initial, trailing;
	grpc_status_code status;
	grpc_slice detail;
};

static void begin(rc_stream *s, const grpc_op *ops, size_t n, rc__op *op)
{
	s->under_way++;
	rc__start(s->rpc, s->user.call, ops, n, op);
}

static void receive(rc_stream *s)
{
	grpc_op op = { .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &s->in };
	begin(s, &op, 1, &s->received);
}

static void batch_done(rc_stream *s)
{
	if (--s->under_way || !s->has_status)
		return;
	rc_rpc *rpc = s->rpc;
	char *detail = grpc_slice_to_c_string(s->detail);
	s->ops->closed(s->arg, (int)s->status, detail);
	gpr_free(detail);
	grpc_slice_unref(s->detail);
	grpc_metadata_array_destroy(&s->initial);
	grpc_metadata_array_destroy(&s->trailing);
	rc__user_end(&s->user);
	free(s);
	rc__let_go(rpc->box);
}

static void on_opened(rc__op *op, bool ok)
{
	rc_stream *s = RC_CONTAINER(op, rc_stream, opened);
	if (ok && s->ops->ready && !s->has_status)
		s->ops->ready(s->arg);
	if (!ok)
		rc_stream_close(s); /* refused metadata, say: without an opening no status would ever come */
	batch_done(s);
}

static void on_received(rc__op *op, bool ok)
{
	rc_stream *s = RC_CONTAINER(op, rc_stream, received);
	if (ok && s->in) {
		rc_buf flat = { 0 };
		rc_view bytes = rc__flatten(&s->in, &flat);
		if (s->ops->message)
			s->ops->message(s->arg, bytes);
		rc_buf_free(&flat);
		grpc_byte_buffer_destroy(s->in);
		s->in = NULL;
		receive(s);
	}
	batch_done(s);
}

static void on_sent(rc__op *op, bool ok)
{
	rc_stream *s = RC_CONTAINER(op, rc_stream, sent);
	grpc_byte_buffer_destroy(s->out);
	s->out = NULL;
	if (ok && s->ops->sent)
		s->ops->sent(s->arg);
	batch_done(s); /* not ok: the status, which is coming, says why */
}

static void on_ended(rc__op *op, bool ok)
{
	rc_stream *s = RC_CONTAINER(op, rc_stream, ended);
	if (!ok)
		s->status = GRPC_STATUS_INTERNAL;
	s->has_status = true;
	batch_done(s);
}

rc_stream *rc_stream_open(rc_rpc *rpc, const char *address, const char *path, const char *const *metadata, const rc_stream_ops *ops,
                          void *arg)
{
	if (rpc->closing)
		return NULL;
	rc_stream *s = rc_alloc(sizeof(*s));
	s->opened.on_loop = on_opened;
	s->received.on_loop = on_received;
	s->sent.on_loop = on_sent;
	s->ended.on_loop = on_ended;
	s->rpc = rpc;
	s->ops = ops;
	s->arg = arg;
	s->path = path;
	s->detail = grpc_empty_slice();
	grpc_metadata_array_init(&s->initial);
	grpc_metadata_array_init(&s->trailing);
	rc__user_start(rpc, &s->user, address, false, path, gpr_inf_future(GPR_CLOCK_MONOTONIC));
	rc__hold(rpc->box);

	grpc_metadata pairs[PAIRS_MAX + RC__METADATA_MAX];
	size_t usual = rc__metadata(rpc, RC_META_NONE, pairs), n = usual;
	for (; metadata && metadata[0]; metadata += 2) {
		if (n - usual == PAIRS_MAX) {
			rc_error_log("%s: more than %d pairs of metadata; %s is left out", path, PAIRS_MAX, metadata[0]);
			break;
		}
		pairs[n++] = (grpc_metadata){ .key = grpc_slice_from_copied_string(metadata[0]), .value = grpc_slice_from_copied_string(metadata[1]) };
	}
	grpc_op status = { .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
	                   .data.recv_status_on_client = { .trailing_metadata = &s->trailing, .status = &s->status, .status_details = &s->detail } };
	begin(s, &status, 1, &s->ended);
	grpc_op opening[] = {
		{ .op = GRPC_OP_SEND_INITIAL_METADATA, .data.send_initial_metadata = { .count = n, .metadata = pairs } },
		{ .op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata.recv_initial_metadata = &s->initial },
	};
	begin(s, opening, 2, &s->opened);
	receive(s);
	for (size_t i = usual; i < n; i++) {
		grpc_slice_unref(pairs[i].key);
		grpc_slice_unref(pairs[i].value);
	}
	return s;
}

void rc_stream_send(rc_stream *s, rc_view bytes)
{
	if (s->has_status)
		return; /* it has ended: `closed` is about to say so */
	if (s->out) {
		rc_error_log("%s: a message was sent before the last one was done; the stream is closed", s->path);
		rc_stream_close(s);
		return;
	}
	s->out = rc__message(bytes);
	grpc_op op = { .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = s->out };
	begin(s, &op, 1, &s->sent);
}

void rc_stream_close(rc_stream *s)
{
	grpc_call_cancel(s->user.call, NULL);
}
