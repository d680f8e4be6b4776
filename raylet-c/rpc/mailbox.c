/* See mailbox.h. The lock is held for a few instructions at a time; callbacks run without it. */
#include "raylet-c/rpc/mailbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "raylet-c/base/buf.h"

struct rc__mailbox {
	rc_loop *loop;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* something came in, or live fell */
	rc__op *first, **last;
	bool posted; /* a task is on its way to the loop */
	bool closed;
	size_t live;
};

rc__mailbox *rc__mailbox_create(rc_loop *loop)
{
	rc__mailbox *box = rc_alloc(sizeof(*box));
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* as rc_now_ms */
	pthread_cond_init(&box->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&box->lock, NULL);
	box->loop = loop;
	box->last = &box->first;
	return box;
}

static void mailbox_free(rc__mailbox *box)
{
	pthread_cond_destroy(&box->changed);
	pthread_mutex_destroy(&box->lock);
	free(box);
}

void rc__mailbox_close(rc__mailbox *box)
{
	pthread_mutex_lock(&box->lock);
	box->closed = true;
	bool posted = box->posted;
	pthread_mutex_unlock(&box->lock);
	if (!posted)
		mailbox_free(box);
}

/* What is in, in order. What comes in meanwhile waits for the next turn, so that the loop gets to its other work. */
static void empty(rc__mailbox *box)
{
	pthread_mutex_lock(&box->lock);
	rc__op *op = box->first;
	box->first = NULL;
	box->last = &box->first;
	pthread_mutex_unlock(&box->lock);
	while (op) {
		rc__op *next = op->next;
		op->on_loop(op, op->ok);
		op = next;
	}
}

static void task(void *arg)
{
	rc__mailbox *box = arg;
	pthread_mutex_lock(&box->lock);
	bool closed = box->closed;
	box->posted = false;
	pthread_mutex_unlock(&box->lock);
	if (closed)
		mailbox_free(box);
	else
		empty(box);
}

void rc__mail(rc__mailbox *box, rc__op *op, bool ok)
{
	op->ok = ok;
	op->next = NULL;
	pthread_mutex_lock(&box->lock);
	*box->last = op;
	box->last = &op->next;
	/* Inside the lock: once it is open, the loop may have handled op and rc_rpc_destroy may have returned. */
	if (!box->posted)
		rc_loop_post(box->loop, task, box);
	box->posted = true;
	pthread_cond_signal(&box->changed);
	pthread_mutex_unlock(&box->lock);
}

void rc__hold(rc__mailbox *box)
{
	pthread_mutex_lock(&box->lock);
	box->live++;
	pthread_mutex_unlock(&box->lock);
}

void rc__let_go(rc__mailbox *box)
{
	pthread_mutex_lock(&box->lock);
	if (--box->live == 0)
		pthread_cond_signal(&box->changed);
	pthread_mutex_unlock(&box->lock);
}

void rc__mailbox_turn(rc__mailbox *box)
{
	pthread_mutex_lock(&box->lock);
	while (!box->first)
		pthread_cond_wait(&box->changed, &box->lock);
	pthread_mutex_unlock(&box->lock);
	empty(box);
}

void rc__mailbox_wait(rc__mailbox *box, uint64_t until_ms)
{
	struct timespec until = { .tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (long)(until_ms % 1000) * 1000000 };
	for (;;) {
		int code = 0;
		pthread_mutex_lock(&box->lock);
		while (!box->first && box->live && !code)
			code = until_ms == UINT64_MAX ? pthread_cond_wait(&box->changed, &box->lock) :
			                                pthread_cond_timedwait(&box->changed, &box->lock, &until);
		bool done = !box->first;
		pthread_mutex_unlock(&box->lock);
		if (done)
			return;
		empty(box);
		if (rc_now_ms() >= until_ms)
			return;
	}
}
