/* See control.h. */
#define _GNU_SOURCE
#include "train_backend/comm/shm/control.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WHOLE, BREAKING, BROKEN }; /* rc__block.state */
enum { LOOK = 1, MEETING = 2 };   /* rc__record.step: the bit, and one meeting */
enum { SPINS = 2000 };            /* some 50 microseconds */

static const double slice = 0.1; /* seconds of sleep between two looks at whether the peer still lives */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_on(atomic_uint *word, unsigned seen, double seconds)
{
	struct timespec t = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };

	syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0); /* woken, changed, interrupted, timed out: the caller looks again */
}

static void wake_all(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/* ---- breaking ---- */

int rc__control_check(const rc__control *c, rc_error *error)
{
	rc__block *block = c->block;
	double deadline = 0;

	if (atomic_load_explicit(&block->state, memory_order_acquire) == WHOLE)
		return 0;
	while (atomic_load_explicit(&block->state, memory_order_acquire) == BREAKING) { /* its text is being written */
		if (!deadline)
			deadline = now() + 1;
		if (now() > deadline)
			return rc_fail(error, RC_E_UNAVAILABLE, "the communicator is broken, and the rank that broke it ended before it said why");
		sleep_on(&block->state, BREAKING, 0.01);
	}
	return rc_fail(error, block->reason.code, "%s", block->reason.text);
}

int rc__control_break(rc__control *c, rc_code code, const char *text, rc_error *error)
{
	rc__block *block = c->block;
	unsigned whole = WHOLE;

	if (atomic_compare_exchange_strong(&block->state, &whole, BREAKING)) {
		rc_fail(&block->reason, code, "%s", text);
		atomic_store_explicit(&block->state, BROKEN, memory_order_release);
		wake_all(&block->state);
		for (int q = 0; q < c->size; q++) {
			atomic_fetch_or(&block->records[q].step, LOOK);
			wake_all(&block->records[q].step);
		}
	}
	return rc__control_check(c, error);
}

/* The current call's description, then why it cannot go on. */
static int break_call(rc__control *c, rc_code code, rc_error *error, const char *format, ...) __attribute__((format(printf, 4, 5)));

static int break_call(rc__control *c, rc_code code, rc_error *error, const char *format, ...)
{
	char text[sizeof error->text], name[RC__CALL_TEXT];
	va_list args;
	int n = snprintf(text, sizeof text, "%s: ", rc__call_describe(&rc__control_arrival(c, c->rank)->call, name));

	va_start(args, format);
	vsnprintf(text + n, sizeof text - (size_t)n, format, args);
	va_end(args);
	return rc__control_break(c, code, text, error);
}

static int break_late(rc__control *c, int q, rc_error *error)
{
	rc__record *late = &c->block->records[q];
	long long pid = c->peers[q].process.pid;
	uint64_t number = atomic_load_explicit(&late->number, memory_order_acquire);
	char name[RC__CALL_TEXT];

	if (number == 0)
		return break_call(c, RC_E_TIMEOUT, error, "rank %d (pid %lld) did not come within %g s; it has come to no call yet, and rank %d is at "
		                  "call %" PRIu64, q, pid, c->timeout, c->rank, c->number);
	if (number == c->number)
		return break_call(c, RC_E_TIMEOUT, error, "rank %d (pid %lld) did not go on within %g s; it came to this call (%" PRIu64
		                  ") and is moving data or stopped", q, pid, c->timeout, number);
	return break_call(c, RC_E_TIMEOUT, error, "rank %d (pid %lld) did not come within %g s; it %s %s, call %" PRIu64
	                  ", and rank %d at call %" PRIu64, q, pid, c->timeout, atomic_load(&late->inside) ? "is at" : "came last to",
	                  rc__call_describe(&late->arrivals[number % 2].call, name), number, c->rank, c->number);
}

/* Rank a and rank b are not in the same call. */
static int break_different(rc__control *c, int a, int b, rc_error *error)
{
	rc_error how;

	rc__call_differ(a, &rc__control_arrival(c, a)->call, b, &rc__control_arrival(c, b)->call, &how);
	return rc__control_break(c, how.code, how.text, error);
}

/* ---- meeting ---- */

/* Counts wrap: only their distance, at most a few meetings, is meant. */
static bool has_come(unsigned step, unsigned to)
{
	return (int)((step & ~(unsigned)LOOK) - to) >= 0;
}

static int wait_for(rc__control *c, int q, rc_error *error)
{
	rc__record *peer = &c->block->records[q];
	double deadline = 0;

	for (unsigned looks = 0;; looks++) {
		unsigned step = atomic_load_explicit(&peer->step, memory_order_acquire);
		double t;

		if (has_come(step, c->step))
			return 0;
		if (step & LOOK) {
			if (rc__control_check(c, error))
				return -1;
			if (atomic_load(&peer->left))
				return break_call(c, RC_E_UNAVAILABLE, error, "rank %d (pid %lld) has closed its communicator", q,
				                  (long long)c->peers[q].process.pid);
		}
		if (looks < c->spins) {
			relax();
			continue;
		}
		t = now();
		if (!deadline) {
			deadline = t + c->timeout;
		} else {
			bool lives = rc__process_lives(&c->peers[q].process, c->peers[q].fd);

			if (has_come(atomic_load_explicit(&peer->step, memory_order_acquire), c->step)) /* it came, then ended */
				return 0;
			if (!lives)
				return break_call(c, RC_E_UNAVAILABLE, error, "rank %d (pid %lld) has died", q, (long long)c->peers[q].process.pid);
			if (t >= deadline)
				return break_late(c, q, error);
		}
		atomic_fetch_add(&peer->sleepers, 1); /* before the kernel looks at step once more: no wake-up is lost */
		sleep_on(&peer->step, step, deadline - t < slice ? deadline - t : slice);
		atomic_fetch_sub(&peer->sleepers, 1);
	}
}

int rc__control_meet(rc__control *c, rc_error *error)
{
	rc__record *own = &c->block->records[c->rank];

	if (rc__control_check(c, error))
		return -1;
	c->step += MEETING;
	atomic_fetch_add(&own->step, MEETING);
	if (atomic_load(&own->sleepers))
		wake_all(&own->step);
	for (int i = 1; i < c->size; i++)
		if (wait_for(c, (c->rank + i) % c->size, error))
			return -1;
	return 0;
}

int rc__control_enter(rc__control *c, rc_tag tag, rc__arrival *arrival, rc_error *error)
{
	rc__record *own = &c->block->records[c->rank];

	if (rc__control_check(c, error))
		return -1;
	arrival->call.number = ++c->number;
	rc__call_set_tag(&arrival->call, tag);
	own->arrivals[c->number % 2] = *arrival;
	atomic_store(&own->inside, true);
	atomic_store_explicit(&own->number, c->number, memory_order_release);
	if (rc__control_meet(c, error))
		return -1;
	for (int q = 1; q < c->size; q++)
		if (!rc__call_same(&rc__control_arrival(c, 0)->call, &rc__control_arrival(c, q)->call))
			return break_different(c, 0, q, error);
	return 0;
}

int rc__control_leave(rc__control *c, int result)
{
	atomic_store(&c->block->records[c->rank].inside, false);
	return result;
}

const rc__arrival *rc__control_arrival(const rc__control *c, int rank)
{
	return &c->block->records[rank].arrivals[c->number % 2];
}

/* ---- open and close ---- */

static int cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int rc__control_open(rc__control *c, rc__block *block, const rc__process *processes, int rank, int size, double timeout, rc_error *error)
{
	rc__peer *peers = calloc((size_t)size, sizeof *peers);

	if (!peers)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for %d ranks", size);
	for (int q = 0; q < size; q++) {
		peers[q].process = processes[q];
		/* -1 (a kernel before 5.3, or a filter): /proc tells then. A reused pid is found by its start time. */
		peers[q].fd = (int)syscall(SYS_pidfd_open, (pid_t)processes[q].pid, 0);
		if (q == rank || !rc__process_lives(&processes[q], -1)) {
			if (peers[q].fd >= 0)
				close(peers[q].fd);
			peers[q].fd = -1;
		}
	}
	/* Spinning while a rank that is waited for has no core only keeps it from coming. */
	*c = (rc__control){ .block = block, .peers = peers, .rank = rank, .size = size, .timeout = timeout,
	                    .spins = cores() >= size ? SPINS : 0 };
	return 0;
}

void rc__control_close(rc__control *c)
{
	if (!c->block)
		return;
	atomic_store(&c->block->records[c->rank].left, true);
	atomic_fetch_or(&c->block->records[c->rank].step, LOOK);
	wake_all(&c->block->records[c->rank].step);
	for (int q = 0; q < c->size; q++)
		if (c->peers[q].fd >= 0)
			close(c->peers[q].fd);
	free(c->peers);
	c->block = NULL;
}
