/* Operations of gRPC, and the list by which finished ones get to the loop.
 *
 * Every operation given to gRPC has an rc__op as its tag. The queue thread takes the finished ones: those with an on_queue
 * function it handles itself, the others go to the mailbox, which the loop empties (one wake-up a burst). The mailbox is ours
 * and not the loop's, so that rc_rpc_destroy can empty it without running the loop.
 *
 * `live` counts what rc_rpc_destroy waits for: calls, streams, served requests, lent slices. */
#ifndef RC_RPC_MAILBOX_H
#define RC_RPC_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "raylet-c/base/loop.h"

typedef struct rc__op rc__op;
typedef void (*rc__op_fn)(rc__op *op, bool ok);
struct rc__op {
	rc__op *next;       /* in the mailbox */
	rc__op_fn on_queue; /* runs on the queue thread; NULL: on_loop runs on the loop thread */
	rc__op_fn on_loop;
	bool ok;
	atomic_bool published;
};

/* What one thread wrote before it gave an op to gRPC, another may read when gRPC gives it back. gRPC orders the two, but in
 * code that a thread sanitizer does not see: this pair shows it. */
static inline void rc__publish(rc__op *op)
{
	atomic_store_explicit(&op->published, true, memory_order_release);
}
static inline void rc__receive(rc__op *op)
{
	(void)atomic_load_explicit(&op->published, memory_order_acquire);
}

typedef struct rc__mailbox rc__mailbox;

rc__mailbox *rc__mailbox_create(rc_loop *loop);
/* Nothing may be mailed any more. A task that is still on its way to the loop frees the mailbox. */
void rc__mailbox_close(rc__mailbox *box);
void rc__mail(rc__mailbox *box, rc__op *op, bool ok); /* to the loop; any thread */
void rc__hold(rc__mailbox *box);                      /* live + 1; any thread */
void rc__let_go(rc__mailbox *box);                    /* live - 1; any thread. The rc_rpc may be gone afterwards */
/* On the loop thread: handles what is in, after waiting for the first of it. */
void rc__mailbox_turn(rc__mailbox *box);
/* Handles what comes in until live is 0, or until that time (rc_now_ms). Loop thread, not inside a callback of this module. */
void rc__mailbox_wait(rc__mailbox *box, uint64_t until_ms);

#endif
