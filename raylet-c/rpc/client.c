/* Unary calls: one batch does all of a call, so one event comes back. */
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdlib.h>

#include "raylet-c/rpc/internal.h"

typedef struct rc__call {
	rc__op op;
	rc__user user;
	rc_rpc *rpc;
	uint64_t id;
	rc_reply_fn fn;
	void *arg;
	grpc_byte_buffer *request, *reply;
	grpc_metadata_array initial, trailing;
	grpc_status_code status;
	grpc_slice detail;
} rc__call;

/* Bytes that gRPC may read until it lets go of them. */
typedef struct loan {
	rc__op op;
	rc_rpc *rpc;
	rc_task_fn unref;
	void *arg;
} loan;

static void loan_back_on_loop(rc__op *op, bool ok)
{
	loan *l = RC_CONTAINER(op, loan, op);
	(void)ok;
	l->unref(l->arg);
	rc__let_go(l->rpc->box);
	free(l);
}

static void loan_back(void *arg) /* any thread, inside gRPC */
{
	loan *l = arg;
	rc__receive(&l->op);
	rc__mail(l->rpc->box, &l->op, true);
}

static void call_done(rc__op *op, bool ok)
{
	rc__call *c = RC_CONTAINER(op, rc__call, op);
	rc_rpc *rpc = c->rpc;
	int status = ok ? (int)c->status : RC_RPC_INTERNAL;
	char *detail = ok ? grpc_slice_to_c_string(c->detail) : NULL;
	const char *text = detail ? detail : "the call could not be started";
	rc_buf flat = { 0 };
	rc_view reply = { 0 };
	if (status == RC_RPC_OK && !c->reply) {
		status = RC_RPC_INTERNAL;
		text = "the peer answered OK without a message";
	}
	if (status == RC_RPC_OK)
		reply = rc__flatten(&c->reply, &flat);
	rc_map_del(rpc->calls, rc_view_of(&c->id, sizeof(c->id)));
	if (c->fn)
		c->fn(c->arg, status, reply, text);
	gpr_free(detail);
	rc_buf_free(&flat);
	grpc_byte_buffer_destroy(c->request);
	grpc_byte_buffer_destroy(c->reply);
	grpc_metadata_array_destroy(&c->initial);
	grpc_metadata_array_destroy(&c->trailing);
	grpc_slice_unref(c->detail);
	rc__user_end(&c->user);
	free(c);
	rc__let_go(rpc->box);
}

/* Takes over request. */
static uint64_t start(rc_rpc *rpc, const char *address, bool bulk, const char *path, grpc_byte_buffer *request, uint64_t timeout_ms,
                      unsigned metadata, rc_reply_fn fn, void *arg)
{
	rc__call *c = rc_alloc(sizeof(*c));
	c->op.on_loop = call_done;
	c->rpc = rpc;
	c->id = ++rpc->last_call;
	c->fn = fn;
	c->arg = arg;
	c->request = request;
	c->detail = grpc_empty_slice();
	grpc_metadata_array_init(&c->initial);
	grpc_metadata_array_init(&c->trailing);
	gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
	if (timeout_ms && timeout_ms <= INT32_MAX)
		deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis((int64_t)timeout_ms, GPR_TIMESPAN));
	rc__user_start(rpc, &c->user, address, bulk, path, deadline);
	rc_map_put(rpc->calls, rc_view_of(&c->id, sizeof(c->id)), c);
	rc__hold(rpc->box);

	grpc_metadata pairs[RC__METADATA_MAX];
	size_t pairs_n = rc__metadata(rpc, metadata, pairs);
	grpc_op ops[] = {
		{ .op = GRPC_OP_SEND_INITIAL_METADATA, .data.send_initial_metadata = { .count = pairs_n, .metadata = pairs } },
		{ .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = request },
		{ .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT },
		{ .op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata.recv_initial_metadata = &c->initial },
		{ .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &c->reply },
		{ .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
		  .data.recv_status_on_client = { .trailing_metadata = &c->trailing, .status = &c->status, .status_details = &c->detail } },
	};
	uint64_t id = c->id;
	rc__start(rpc, c->user.call, ops, sizeof(ops) / sizeof(ops[0]), &c->op);
	return id;
}

uint64_t rc_call(rc_rpc *rpc, const char *address, const char *path, rc_view request, uint64_t timeout_ms, unsigned metadata,
                 rc_reply_fn fn, void *arg)
{
	if (rpc->closing)
		return 0;
	return start(rpc, address, false, path, rc__message(request), timeout_ms, metadata, fn, arg);
}

uint64_t rc_call_zero_copy(rc_rpc *rpc, const char *address, const char *path, rc_view head, rc_view body, rc_task_fn unref,
                           void *unref_arg, uint64_t timeout_ms, rc_reply_fn fn, void *arg)
{
	if (rpc->closing) {
		unref(unref_arg);
		return 0;
	}
	loan *l = rc_alloc(sizeof(*l));
	l->op.on_loop = loan_back_on_loop;
	l->rpc = rpc;
	l->unref = unref;
	l->arg = unref_arg;
	rc__hold(rpc->box);
	rc__publish(&l->op);
	/* gRPC's type has no const; it only reads. */
	grpc_slice slices[2] = { grpc_slice_from_copied_buffer((const char *)head.p, head.n),
	                         grpc_slice_new_with_user_data((void *)(uintptr_t)body.p, body.n, loan_back, l) };
	grpc_byte_buffer *request = grpc_raw_byte_buffer_create(slices, 2);
	grpc_slice_unref(slices[0]);
	grpc_slice_unref(slices[1]);
	return start(rpc, address, true, path, request, timeout_ms, RC_META_NONE, fn, arg);
}

void rc_call_cancel(rc_rpc *rpc, uint64_t call)
{
	rc__call *c = rc_map_get(rpc->calls, rc_view_of(&call, sizeof(call)));
	if (c)
		grpc_call_cancel(c->user.call, NULL);
}
