/* Answers in parts: the server's side of a method that streams to its client.
 *
 * All on the loop thread. Up to two batches are under way: the one that sends (beginning, part or status), and one that was
 * started with the beginning and tells that the call is over: by our status, or because the peer left. The request is freed
 * when both are back. */
#include <stdlib.h>
#include <string.h>

#include "raylet-c/rpc/request.h"

enum { METADATA_MAX = 4 };

struct rc__parts {
	rc__op over; /* RECV_CLOSE_ON_SERVER */
	rc_request *request;
	const rc_parts_ops *ops;
	void *arg;
	grpc_metadata metadata[METADATA_MAX];
	size_t n_metadata;
	int status;
	bool sending, watching; /* batches under way */
	bool ended;             /* the user has nothing to do with it any more */
	bool status_given;
};

void rc__parts_free(rc__parts *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_metadata; i++) {
		grpc_slice_unref(p->metadata[i].key);
		grpc_slice_unref(p->metadata[i].value);
	}
	free(p);
}

static void start(rc_request *r, const grpc_op *op)
{
	r->parts->sending = true;
	rc__start(r->server->rpc, r->call, op, 1, &r->op);
}

static void send_status(rc_request *r)
{
	r->parts->status_given = true;
	grpc_op op = { .op = GRPC_OP_SEND_STATUS_FROM_SERVER };
	op.data.send_status_from_server.status = (grpc_status_code)r->parts->status;
	op.data.send_status_from_server.status_details = &r->detail;
	start(r, &op);
}

static void on_sent(rc__op *op, bool ok)
{
	rc_request *r = RC_CONTAINER(op, rc_request, op);
	rc__parts *p = r->parts;
	p->sending = false;
	grpc_byte_buffer_destroy(r->answer);
	r->answer = NULL;
	if (!p->watching && (p->ended || !ok)) /* over: nobody is there to be told a status */
		rc__request_free(r);
	else if (p->ended && !p->status_given)
		send_status(r);
	else if (!p->ended && ok) /* a failure is told by the other batch */
		p->ops->sent(p->arg);
}

static void on_over(rc__op *op, bool ok)
{
	rc__parts *p = RC_CONTAINER(op, rc__parts, over);
	rc_request *r = p->request;
	(void)ok;
	p->watching = false;
	if (!p->ended) {
		p->ended = true;
		rc_list_remove(&r->link);
		p->ops->left(p->arg);
	}
	if (!p->sending)
		rc__request_free(r);
}

static grpc_slice header_text(const char *text)
{
	grpc_slice slice = grpc_slice_from_copied_string(text);
	for (size_t i = 0; i < GRPC_SLICE_LENGTH(slice); i++)
		if (GRPC_SLICE_START_PTR(slice)[i] < 0x20 || GRPC_SLICE_START_PTR(slice)[i] > 0x7e)
			GRPC_SLICE_START_PTR(slice)[i] = '?';
	return slice;
}

void rc_reply_begin(rc_request *r, const char *const *metadata, const rc_parts_ops *ops, void *arg)
{
	rc__parts *p = r->parts = rc_alloc(sizeof(*p));
	*p = (rc__parts){ .request = r, .ops = ops, .arg = arg, .watching = true };
	for (; metadata && metadata[0] && p->n_metadata < METADATA_MAX; metadata += 2)
		p->metadata[p->n_metadata++] = (grpc_metadata){ .key = header_text(metadata[0]), .value = header_text(metadata[1]) };
	r->op.on_queue = NULL;
	r->op.on_loop = on_sent;
	p->over.on_loop = on_over;
	grpc_op over = { .op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &r->cancelled };
	rc__start(r->server->rpc, r->call, &over, 1, &p->over);
	grpc_op begin = { .op = GRPC_OP_SEND_INITIAL_METADATA };
	begin.data.send_initial_metadata.metadata = p->metadata;
	begin.data.send_initial_metadata.count = p->n_metadata;
	start(r, &begin);
}

void rc_reply_part(rc_request *r, rc_view bytes)
{
	r->answer = rc__message(bytes);
	grpc_op op = { .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = r->answer };
	start(r, &op);
}

void rc_reply_end(rc_request *r, int status, const char *detail)
{
	rc__parts *p = r->parts;
	p->ended = true;
	p->status = status;
	r->detail = grpc_slice_from_copied_string(detail);
	rc_list_remove(&r->link);
	if (!p->sending)
		send_status(r);
}

void rc__parts_stop(rc_request *r)
{
	r->parts->ops->left(r->parts->arg);
	rc_reply_end(r, RC_RPC_UNAVAILABLE, "the node is stopping");
}
