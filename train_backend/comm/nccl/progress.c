/* See progress.h. */
#define _GNU_SOURCE
#include "train_backend/comm/nccl/progress.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static rc__progress_page *own_page(const rc__progress *p)
{
	return (rc__progress_page *)p->own.base;
}

void rc__progress_create(rc__progress *p, int rank, int size, rc__progress_name *name)
{
	*p = (rc__progress){ .rank = rank, .size = size };
	*name = (rc__progress_name){ 0 };
	if (rc__process_self(&name->process, NULL) == 0 && rc__segment_create(sizeof(rc__progress_page), &p->own, NULL) == 0)
		name->segment = p->own.name;
}

int rc__progress_connect(rc__progress *p, const rc__progress_name *names, rc_error *error)
{
	p->peers = calloc((size_t)p->size, sizeof *p->peers);
	if (!p->peers)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for %d ranks", p->size);
	for (int q = 0; q < p->size; q++) {
		char *base = NULL;

		p->peers[q].process = names[q].process;
		p->peers[q].fd = -1;
		if (q == p->rank || names[q].process.pid == 0 || rc__process_reachable(&names[p->rank].process, &names[q].process, NULL))
			continue;
		p->peers[q].near = true;
		if (names[q].segment.bytes == sizeof(rc__progress_page) &&
		    rc__segment_open(&names[q].process, &names[q].segment, &base, NULL) == 0)
			p->peers[q].page = (rc__progress_page *)base;
		p->peers[q].fd = (int)syscall(SYS_pidfd_open, (pid_t)names[q].process.pid, 0);
		if (p->peers[q].fd >= 0 && !rc__process_lives(&names[q].process, -1)) { /* the pid is another's by now */
			close(p->peers[q].fd);
			p->peers[q].fd = -1;
		}
	}
	return 0;
}

void rc__progress_close_fd(rc__progress *p)
{
	if (p->own.base)
		rc__segment_close_fd(&p->own);
}

void rc__progress_destroy(rc__progress *p)
{
	if (p->own.base)
		atomic_store(&own_page(p)->left, true);
	for (int q = 0; p->peers && q < p->size; q++) {
		rc__segment_unmap((char *)p->peers[q].page, sizeof(rc__progress_page));
		if (p->peers[q].fd >= 0)
			close(p->peers[q].fd);
	}
	free(p->peers);
	if (p->own.base)
		rc__segment_destroy(&p->own);
	*p = (rc__progress){ 0 };
}

/* Copies a peer's call of that number; false: it has not come to it, or it is too far ahead. */
static bool call_of(const rc__progress_page *page, uint64_t number, rc__call *call)
{
	const atomic_ullong *at = &page->calls[number % RC__PROGRESS_CALLS].number;

	if (atomic_load_explicit(at, memory_order_acquire) != number)
		return false;
	*call = page->calls[number % RC__PROGRESS_CALLS].call;
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(at, memory_order_relaxed) == number; /* else it was overwritten while it was copied */
}

int rc__progress_queue(rc__progress *p, const rc__call *call, rc_error *error)
{
	size_t at = call->number % RC__PROGRESS_CALLS;
	rc__progress_page *own = own_page(p);
	rc__call other;

	if (!own || !p->peers)
		return 0;
	atomic_store_explicit(&own->calls[at].number, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	own->calls[at].call = *call;
	atomic_store(&own->calls[at].number, call->number); /* in one order with the loads below: of two ranks one sees the other */
	atomic_store(&own->queued, call->number);
	for (int q = 0; q < p->size; q++)
		if (p->peers[q].page && call_of(p->peers[q].page, call->number, &other) && !rc__call_same(call, &other))
			return p->rank < q ? rc__call_differ(p->rank, call, q, &other, error) : rc__call_differ(q, &other, p->rank, call, error);
	return 0;
}

void rc__progress_done(rc__progress *p, uint64_t number)
{
	if (p->own.base)
		atomic_store(&own_page(p)->done, number);
}

void rc__progress_break(rc__progress *p, const rc_error *reason)
{
	rc__progress_page *own = own_page(p);

	if (!own || atomic_load(&own->broken))
		return;
	own->reason = *reason;
	atomic_store_explicit(&own->broken, true, memory_order_release);
}

int rc__progress_look(const rc__progress *p, const rc__call *call, bool *gone, rc_error *error)
{
	char name[RC__CALL_TEXT];

	*gone = false;
	for (int q = 0; p->peers && q < p->size; q++) {
		rc__progress_page *page = p->peers[q].page;

		if (!p->peers[q].near)
			continue;
		if (page && atomic_load_explicit(&page->broken, memory_order_acquire))
			return rc_fail(error, page->reason.code, "%s", page->reason.text);
		if (!call || (page && atomic_load(&page->done) >= call->number))
			continue;
		if (page && atomic_load(&page->left) && atomic_load(&page->queued) < call->number)
			return rc_fail(error, RC_E_UNAVAILABLE, "%s: rank %d (pid %" PRId64 ") has closed its communicator",
			               rc__call_describe(call, name), q, p->peers[q].process.pid);
		if (!rc__process_lives(&p->peers[q].process, p->peers[q].fd)) {
			*gone = true;
			return rc_fail(error, RC_E_UNAVAILABLE, "%s: rank %d (pid %" PRId64 ") has died", rc__call_describe(call, name), q,
			               p->peers[q].process.pid);
		}
	}
	return 0;
}

int rc__progress_late(const rc__progress *p, const rc__call *call, double timeout, rc_error *error)
{
	char name[RC__CALL_TEXT], other[RC__CALL_TEXT];
	uint64_t least = call->number;
	int behind = -1;
	rc__call last;

	rc__call_describe(call, name);
	for (int q = 0; p->peers && q < p->size; q++)
		if (p->peers[q].page && atomic_load(&p->peers[q].page->queued) < least) {
			least = atomic_load(&p->peers[q].page->queued);
			behind = q;
		}
	if (behind < 0)
		return rc_fail(error, RC_E_TIMEOUT, "%s: did not end within %g s on rank %d; it is call %" PRIu64
		               ", which all ranks of this host have queued", name, timeout, p->rank, call->number);
	if (least > 0 && call_of(p->peers[behind].page, least, &last))
		return rc_fail(error, RC_E_TIMEOUT, "%s: rank %d (pid %" PRId64 ") did not come within %g s; it came last to %s, call %" PRIu64
		               ", and rank %d is at call %" PRIu64, name, behind, p->peers[behind].process.pid, timeout,
		               rc__call_describe(&last, other), least, p->rank, call->number);
	return rc_fail(error, RC_E_TIMEOUT, "%s: rank %d (pid %" PRId64 ") did not come within %g s; it has come to call %" PRIu64
	               ", and rank %d is at call %" PRIu64, name, behind, p->peers[behind].process.pid, timeout, least, p->rank, call->number);
}
