/* Collectives over GPU memory through NCCL.
 *
 * A call only queues work on the caller's stream. After it an event is recorded there, and the call is "in flight" until the event is
 * done. A watchdog thread looks at the oldest call in flight ten times a second: when it does not end within the timeout, when a rank of
 * this host has died or has given up, and when NCCL reports an error, it keeps the reason, tells the ranks of this host (progress.h) and
 * aborts NCCL's communicator, which ends what waits on the device. Only the watchdog aborts. With nothing in flight it looks in the same
 * way at the call that a thread is inside of: NCCL connects ranks in the first calls, and waits in them for every rank without a limit.
 *
 * While a stream is captured into a CUDA graph its work is not run, and no event may be asked about: such calls are not in flight. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "train_backend/comm/comm_ops.h"
#include "train_backend/comm/nccl/library.h"
#include "train_backend/comm/nccl/progress.h"
#include "train_backend/device/cuda.h"

enum {
	FLIGHTS = 2048, /* in flight at most; what comes on top is not watched by itself: the calls after it are */
	GROUPED = 256,  /* calls of one group that are watched */
	VERSION = 1,
};

static const double look_every = 0.1, gone_grace = 2, busy_grace = 2; /* seconds */

typedef struct blob {
	char magic[8];
	uint32_t version;
	int32_t rank, size, library; /* NCCL's version */
	rc__nccl_id id;              /* rank 0's is taken */
	rc__progress_name progress;
} blob;

static const char magic[8] = "rc_nccl";

typedef struct flight {
	rc__call call;
	rc_stream stream;
	rc_event event; /* NULL: nothing to wait for */
} flight;

typedef struct registered {
	void *memory;
	void *window, *handle; /* how it is known to NCCL, or NULL */
} registered;

typedef struct nccl {
	rc_comm comm;
	const rc__nccl *library;
	int device;
	blob blob;
	uint64_t number;         /* of the last call */
	rc__progress progress;
	rc_stream own_stream;    /* for barriers and zeroing */
	void *word;              /* what a barrier sums */
	rc_event barrier;
	registered *windows;
	int window_count;
	bool grouped;
	flight group[GROUPED];
	int group_count;

	pthread_mutex_t use;     /* held in NCCL's functions */
	_Atomic(rc__nccl_comm) handle; /* under use, but for an abort beside a call; NULL: aborted, or not connected */

	pthread_mutex_t lock;    /* for all below */
	pthread_cond_t changed;
	pthread_t watchdog;
	bool watched, stop;
	flight *flights;         /* [FLIGHTS], a ring from oldest to newest */
	uint64_t oldest, newest;
	double since;            /* when the oldest became the oldest */
	rc__call inside;         /* what a thread is in NCCL's functions for; number 0: none is */
	double inside_since;
	rc_event spare[FLIGHTS];
	int spares;
	atomic_bool failed;      /* may be read without the lock; then reason stands */
	rc_error reason;
} nccl;

static nccl *nccl_of(rc_comm *comm)
{
	return (nccl *)comm;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct timespec time_at(double seconds)
{
	return (struct timespec){ .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
}

/* ---- failing ---- */

/* The first reason stands. */
static void give_up(nccl *n, const rc_error *reason)
{
	pthread_mutex_lock(&n->lock);
	if (!atomic_load(&n->failed)) {
		n->reason = *reason;
		rc__progress_break(&n->progress, reason);
		atomic_store_explicit(&n->failed, true, memory_order_release);
		pthread_cond_broadcast(&n->changed);
	}
	pthread_mutex_unlock(&n->lock);
}

static int check_failed(const nccl *n, rc_error *error)
{
	if (!atomic_load_explicit(&n->failed, memory_order_acquire))
		return 0;
	return rc_fail(error, n->reason.code, "%s", n->reason.text);
}

/* Also what the other ranks of this host found. */
static int check(nccl *n, rc_error *error)
{
	rc_error reason;
	bool gone;

	if (check_failed(n, error))
		return -1;
	if (rc__progress_look(&n->progress, NULL, &gone, &reason) == 0)
		return 0;
	give_up(n, &reason);
	return check_failed(n, error);
}

static int fail_result(const nccl *n, const char *what, int result, rc_error *error)
{
	const char *more = n->library->ncclGetLastError ? n->library->ncclGetLastError(n->handle) : NULL;

	return rc_fail(error, RC_E_UNAVAILABLE, "%s: NCCL %s says: %s%s%.200s", what, n->comm.transport + strlen("nccl "),
	               n->library->ncclGetErrorString(result), more && *more ? "; " : "", more ? more : "");
}

/* ---- the watchdog ---- */

/* Under the lock: forgets the calls that have ended; -1: the device fails. */
static int reap(nccl *n, rc_error *error)
{
	while (n->oldest != n->newest) {
		flight *f = &n->flights[n->oldest % FLIGHTS];
		int done = f->event ? rc_cuda_event_done(f->event, error) : 1;

		if (done <= 0)
			return done;
		if (f->event)
			n->spare[n->spares++] = f->event;
		rc__progress_done(&n->progress, f->call.number);
		n->oldest++;
		n->since = now();
		if (n->oldest == n->newest)
			pthread_cond_broadcast(&n->changed);
	}
	return 0;
}

/* Is all well with the oldest call in flight? gone_since: when a peer was first seen dead, 0: none. */
static int look(nccl *n, const rc__call *call, double since, double *gone_since, rc_error *error)
{
	char name[RC__CALL_TEXT];
	bool gone;
	int result;

	/* A rank that has ended after it did its part of this call is no fault: the call then ends in a moment. */
	if (rc__progress_look(&n->progress, call, &gone, error)) {
		if (gone && *gone_since == 0)
			*gone_since = now();
		if (!gone || now() - *gone_since > gone_grace)
			return -1;
	} else {
		*gone_since = 0;
	}
	if (n->library->ncclCommGetAsyncError(n->handle, &result) == RC__NCCL_OK && result != RC__NCCL_OK && result != RC__NCCL_IN_PROGRESS)
		return fail_result(n, rc__call_describe(call, name), result, error);
	if (now() - since > n->comm.timeout)
		return rc__progress_late(&n->progress, call, n->comm.timeout, error);
	return 0;
}

static void abort_library(nccl *n)
{
	struct timespec limit;
	rc__nccl_comm handle;
	bool held;

	/* A thread that is in NCCL and does not come out is what the abort is for: after a while it is done beside it. */
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += (time_t)busy_grace;
	held = pthread_mutex_timedlock(&n->use, &limit) == 0;
	handle = atomic_exchange(&n->handle, NULL);
	if (handle)
		n->library->ncclCommAbort(handle);
	if (held)
		pthread_mutex_unlock(&n->use);
}

static void *watch(void *argument)
{
	nccl *n = argument;
	double gone_since = 0;
	bool aborted = false;
	rc_error error;

	if (rc_cuda_enter(n->device, &error) || rc_cuda_ignore_captures(&error))
		give_up(n, &error);
	pthread_mutex_lock(&n->lock);
	while (!n->stop) {
		struct timespec next = time_at(now() + look_every);

		if (atomic_load(&n->failed) && !aborted) {
			pthread_mutex_unlock(&n->lock);
			abort_library(n);
			aborted = true;
			pthread_mutex_lock(&n->lock);
		} else if (aborted) {
			pthread_cond_wait(&n->changed, &n->lock);
		} else {
			bool bad = reap(n, &error) < 0, flies = n->oldest != n->newest;
			rc__call call = flies ? n->flights[n->oldest % FLIGHTS].call : n->inside;
			double since = flies ? n->since : n->inside_since;

			if (!bad && call.number) {
				pthread_mutex_unlock(&n->lock);
				bad = look(n, &call, since, &gone_since, &error) < 0;
				pthread_mutex_lock(&n->lock);
			}
			if (bad) {
				pthread_mutex_unlock(&n->lock);
				give_up(n, &error);
				pthread_mutex_lock(&n->lock);
			} else if (!n->stop) {
				pthread_cond_timedwait(&n->changed, &n->lock, &next);
			}
		}
	}
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

/* ---- calls ---- */

static void enter(nccl *n, const rc__call *call)
{
	pthread_mutex_lock(&n->lock);
	n->inside = *call;
	n->inside_since = now();
	pthread_mutex_unlock(&n->lock);
}

static void leave(nccl *n)
{
	pthread_mutex_lock(&n->lock);
	n->inside.number = 0;
	pthread_mutex_unlock(&n->lock);
}

/* Puts a queued call in flight. stream_work: it has work on the stream to wait for. */
static void take_off(nccl *n, const rc__call *call, rc_stream stream, bool stream_work)
{
	rc_event event = NULL;

	pthread_mutex_lock(&n->lock);
	if (n->newest - n->oldest < FLIGHTS) {
		if (stream_work && rc_cuda_stream_capturing(stream, NULL) == 0) {
			if (n->spares)
				event = n->spare[--n->spares];
			else if (rc_cuda_event_create(&event, NULL))
				event = NULL;
			if (event && rc_cuda_event_record(event, stream, NULL)) {
				n->spare[n->spares++] = event;
				event = NULL;
			}
		}
		if (n->newest == n->oldest)
			n->since = now();
		n->flights[n->newest++ % FLIGHTS] = (flight){ .call = *call, .stream = stream, .event = event };
	}
	pthread_mutex_unlock(&n->lock);
}

/* Before NCCL is called: numbers the call, compares it with what the ranks of this host have queued, and takes the use of NCCL. */
static int begin(nccl *n, rc_tag tag, rc__call *call, rc_error *error)
{
	rc_error reason;

	if (check(n, error) || rc_cuda_enter(n->device, error))
		return -1;
	call->number = ++n->number;
	rc__call_set_tag(call, tag);
	if (rc__progress_queue(&n->progress, call, &reason)) {
		give_up(n, &reason);
		return check_failed(n, error);
	}
	pthread_mutex_lock(&n->use);
	if (!n->handle) {
		pthread_mutex_unlock(&n->use);
		return check_failed(n, error);
	}
	enter(n, call);
	return 0;
}

/* What a call brings to this rank at least. */
static uint64_t takes(const nccl *n, const rc__call *call)
{
	uint64_t ranks = (uint64_t)n->comm.size;

	switch (call->kind) {
	case RC__ALL_GATHER:
	case RC__REDUCE_SCATTER:
	case RC__ALL_TO_ALL:
		return (ranks - 1) * call->bytes;
	case RC__ALL_REDUCE:
		return 2 * (ranks - 1) * call->bytes / ranks;
	case RC__BROADCAST:
		return n->comm.rank == call->root ? 0 : call->bytes;
	default:
		return 0;
	}
}

/* How much of that comes from other nodes. An all-to-all comes from every rank; the rest goes round rings. */
static uint64_t crosses(const nccl *n, const rc__call *call)
{
	int local = n->comm.local, size = n->comm.size;

	if (!local || local >= size)
		return 0;
	if (call->kind == RC__ALL_TO_ALL)
		return (uint64_t)(size - local) * call->bytes;
	return n->comm.rank % local == 0 ? takes(n, call) : 0;
}

/* After it, with what it returned. */
static int end(nccl *n, const rc__call *call, rc_stream stream, int result, rc_error *error)
{
	char name[RC__CALL_TEXT];
	rc_error reason;

	leave(n);
	if (result != RC__NCCL_OK && n->handle)
		fail_result(n, rc__call_describe(call, name), result, &reason);
	else if (result != RC__NCCL_OK)
		rc_fail(&reason, RC_E_CANCELLED, "%s: aborted", rc__call_describe(call, name));
	pthread_mutex_unlock(&n->use);
	if (result != RC__NCCL_OK) {
		give_up(n, &reason);
		return check_failed(n, error);
	}
	n->comm.taken += takes(n, call);
	n->comm.crossed += crosses(n, call);
	if (!n->grouped)
		take_off(n, call, stream, true);
	else if (n->group_count < GROUPED)
		n->group[n->group_count++] = (flight){ .call = *call, .stream = stream };
	return 0;
}

static int library_op(rc_redop op)
{
	return op == RC_AVG ? RC__NCCL_AVG : RC__NCCL_SUM;
}

static int nccl_all_gather(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error)
{
	nccl *n = nccl_of(comm);
	rc__call call = { .kind = RC__ALL_GATHER, .bytes = bytes };

	if (begin(n, tag, &call, error))
		return -1;
	return end(n, &call, stream, n->library->ncclAllGather(send, recv, bytes, rc__nccl_type(RC_U8), n->handle, stream), error);
}

static int nccl_gather_pieces(rc_comm *comm, rc_tag tag, const void *send, size_t chunk, size_t element, const rc_piece *pieces,
                              size_t count, void *full, rc_error *error)
{
	(void)comm, (void)tag, (void)send, (void)chunk, (void)element, (void)pieces, (void)count, (void)full;
	return rc_fail(error, RC_E_UNSUPPORTED, "nccl gathers no pieces: gather, then put them in their places");
}

static int nccl_reduce_scatter(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t count, rc_dtype dtype, rc_redop op,
                               rc_stream stream, rc_error *error)
{
	nccl *n = nccl_of(comm);
	rc__call call = { .kind = RC__REDUCE_SCATTER, .dtype = dtype, .op = op, .bytes = count * rc_dtype_size(dtype) };

	if (begin(n, tag, &call, error))
		return -1;
	return end(n, &call, stream, n->library->ncclReduceScatter(send, recv, count, rc__nccl_type(dtype), library_op(op), n->handle, stream),
	           error);
}

static int nccl_all_reduce(rc_comm *comm, rc_tag tag, void *data, size_t count, rc_dtype dtype, rc_redop op, rc_stream stream,
                           rc_error *error)
{
	nccl *n = nccl_of(comm);
	rc__call call = { .kind = RC__ALL_REDUCE, .dtype = dtype, .op = op, .bytes = count * rc_dtype_size(dtype) };

	if (begin(n, tag, &call, error))
		return -1;
	return end(n, &call, stream, n->library->ncclAllReduce(data, data, count, rc__nccl_type(dtype), library_op(op), n->handle, stream),
	           error);
}

static int nccl_all_to_all(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error)
{
	nccl *n = nccl_of(comm);
	const rc__nccl *l = n->library;
	rc__call call = { .kind = RC__ALL_TO_ALL, .bytes = bytes };
	int type = rc__nccl_type(RC_U8), result, ended;

	if (begin(n, tag, &call, error))
		return -1;
	result = l->ncclGroupStart();
	if (result != RC__NCCL_OK)
		return end(n, &call, stream, result, error);
	for (int q = 0; q < comm->size && result == RC__NCCL_OK; q++) {
		result = l->ncclSend((const char *)send + (size_t)q * bytes, bytes, type, q, n->handle, stream);
		if (result == RC__NCCL_OK)
			result = l->ncclRecv((char *)recv + (size_t)q * bytes, bytes, type, q, n->handle, stream);
	}
	ended = l->ncclGroupEnd(); /* in any case: the thread must not stay inside the group */
	return end(n, &call, stream, result != RC__NCCL_OK ? result : ended, error);
}

static int nccl_broadcast(rc_comm *comm, rc_tag tag, void *data, size_t bytes, int root, rc_stream stream, rc_error *error)
{
	nccl *n = nccl_of(comm);
	rc__call call = { .kind = RC__BROADCAST, .bytes = bytes, .root = root };

	if (begin(n, tag, &call, error))
		return -1;
	return end(n, &call, stream, n->library->ncclBroadcast(data, data, bytes, rc__nccl_type(RC_U8), root, n->handle, stream), error);
}

/* A sum of one number on a stream of its own; NCCL runs a communicator's calls in their order, so what was queued before has run too. */
static int nccl_barrier(rc_comm *comm, rc_tag tag, rc_error *error)
{
	nccl *n = nccl_of(comm);
	rc__call call = { .kind = RC__BARRIER };
	int done;

	if (n->grouped)
		return rc_fail(error, RC_E_INVALID, "a barrier cannot be part of a group");
	if (begin(n, tag, &call, error))
		return -1;
	if (end(n, &call, n->own_stream, n->library->ncclAllReduce(n->word, n->word, 1, rc__nccl_type(RC_F32), RC__NCCL_SUM, n->handle,
	                                                           n->own_stream), error) ||
	    rc_cuda_event_record(n->barrier, n->own_stream, error))
		return -1;
	while ((done = rc_cuda_event_done(n->barrier, error)) == 0) { /* the watchdog keeps the time */
		if (check_failed(n, error))
			return -1;
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	}
	return done < 0 || check_failed(n, error) ? -1 : 0;
}

static int nccl_group_begin(rc_comm *comm, rc_error *error)
{
	nccl *n = nccl_of(comm);
	int result;

	if (n->grouped)
		return rc_fail(error, RC_E_INVALID, "a group has been begun already");
	if (check(n, error))
		return -1;
	result = n->library->ncclGroupStart();
	if (result != RC__NCCL_OK)
		return fail_result(n, "start of a group", result, error);
	n->grouped = true;
	n->group_count = 0;
	return 0;
}

static int nccl_group_end(rc_comm *comm, rc_error *error)
{
	nccl *n = nccl_of(comm);
	rc_error reason;
	int result;

	if (!n->grouped)
		return rc_fail(error, RC_E_INVALID, "no group has been begun");
	n->grouped = false;
	pthread_mutex_lock(&n->use);
	if (n->group_count)
		enter(n, &n->group[0].call);
	result = n->library->ncclGroupEnd(); /* in any case: the thread must not stay inside the group */
	leave(n);
	pthread_mutex_unlock(&n->use);
	if (check_failed(n, error))
		return -1;
	if (result != RC__NCCL_OK) {
		fail_result(n, "end of a group", result, &reason);
		give_up(n, &reason);
		return check_failed(n, error);
	}
	for (int i = 0; i < n->group_count; i++)
		take_off(n, &n->group[i].call, n->group[i].stream, true);
	return 0;
}

static int nccl_watch(rc_comm *comm, rc_tag tag, rc_stream stream, rc_error *error)
{
	nccl *n = nccl_of(comm);
	rc__call call = { .kind = RC__GRAPH };

	if (begin(n, tag, &call, error))
		return -1;
	return end(n, &call, stream, RC__NCCL_OK, error);
}

static int nccl_check(rc_comm *comm, rc_error *error)
{
	return check(nccl_of(comm), error);
}

static void nccl_abort(rc_comm *comm, const char *reason)
{
	nccl *n = nccl_of(comm);
	rc_error text;

	rc_fail(&text, RC_E_CANCELLED, "aborted by rank %d (pid %" PRId64 "): %s", comm->rank, n->blob.progress.process.pid,
	        reason ? reason : "");
	give_up(n, &text);
}

/* ---- windows ---- */

static void unregister(nccl *n, const registered *r)
{
	if (n->handle && r->window)
		n->library->ncclCommWindowDeregister(n->handle, r->window);
	if (n->handle && r->handle)
		n->library->ncclCommDeregister(n->handle, r->handle);
}

/* A symmetric window where the version has them, else plain registration. */
static int register_memory(nccl *n, registered *r, size_t bytes)
{
	const rc__nccl *l = n->library;

	if (l->ncclCommWindowRegister && l->ncclCommWindowDeregister &&
	    l->ncclCommWindowRegister(n->handle, r->memory, bytes, &r->window, RC__NCCL_WINDOW_SYMMETRIC) == RC__NCCL_OK && r->window)
		return RC__NCCL_OK;
	return l->ncclCommRegister(n->handle, r->memory, bytes, &r->handle);
}

static int nccl_window(rc_comm *comm, size_t bytes, void **base, rc_error *error)
{
	nccl *n = nccl_of(comm);
	rc__call call = { .kind = RC__WINDOW, .bytes = bytes };
	size_t room = bytes ? bytes : 1;
	registered r = { 0 }, *windows;
	int result;

	if (!n->library->ncclMemAlloc || !n->library->ncclMemFree || !n->library->ncclCommRegister || !n->library->ncclCommDeregister)
		return rc_fail(error, RC_E_UNSUPPORTED, "NCCL %s cannot register memory: 2.19 and later can", comm->transport + strlen("nccl "));
	windows = realloc(n->windows, (size_t)(n->window_count + 1) * sizeof *windows);
	if (!windows)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for a table of windows");
	n->windows = windows;
	if (begin(n, (rc_tag){ 0 }, &call, error))
		return -1;
	result = n->library->ncclMemAlloc(&r.memory, room);
	if (result == RC__NCCL_OK)
		result = register_memory(n, &r, room);
	leave(n);
	pthread_mutex_unlock(&n->use);
	take_off(n, &call, NULL, false);
	if (result != RC__NCCL_OK)
		fail_result(n, "making of a window", result, error);
	else if (rc_cuda_zero(r.memory, room, n->own_stream, error) == 0 && rc_cuda_stream_sync(n->own_stream, error) == 0) {
		n->windows[n->window_count++] = r;
		*base = r.memory;
		return 0;
	}
	unregister(n, &r);
	if (r.memory)
		n->library->ncclMemFree(r.memory);
	return -1;
}

/* ---- start and end ---- */

/* NCCL's start waits for all ranks without a limit, so it runs in a thread of its own, which is left behind when it takes too long. */
typedef struct start {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	const rc__nccl *library;
	rc__nccl_id id;
	int rank, size, device;
	rc__nccl_comm handle;
	int result;
	bool done, left; /* left: nobody waits any more, the thread frees this */
	rc_error error;  /* result is not meant, when it has a code */
} start;

static void start_free(start *s)
{
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static void *start_run(void *argument)
{
	start *s = argument;
	rc__nccl_comm handle = NULL;
	bool left;

	if (rc_cuda_enter(s->device, &s->error) == 0) {
		s->error.code = RC_OK;
		s->result = s->library->ncclCommInitRank(&handle, s->size, s->id, s->rank);
	}
	pthread_mutex_lock(&s->lock);
	s->handle = handle;
	s->done = true;
	left = s->left;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	if (left) {
		if (handle)
			s->library->ncclCommAbort(handle);
		start_free(s);
	}
	return NULL;
}

static void init_lock(pthread_mutex_t *lock, pthread_cond_t *changed)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static int start_library(nccl *n, rc__nccl_id id, rc_error *error)
{
	double deadline = now() + n->comm.timeout, gone_since = 0;
	rc__call call = { .kind = RC__CONNECT, .number = 1 };
	start *s = calloc(1, sizeof *s);
	rc_error why = { 0 };
	pthread_t thread;
	int result;

	if (!s)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory to start NCCL");
	init_lock(&s->lock, &s->changed);
	s->library = n->library;
	s->id = id;
	s->rank = n->comm.rank;
	s->size = n->comm.size;
	s->device = n->device;
	errno = pthread_create(&thread, NULL, start_run, s);
	if (errno) {
		start_free(s);
		return rc_fail_errno(error, "cannot start a thread for NCCL");
	}
	pthread_detach(thread);
	pthread_mutex_lock(&s->lock);
	while (!s->done && !why.code) {
		struct timespec next = time_at(now() + look_every);
		bool gone;

		pthread_cond_timedwait(&s->changed, &s->lock, &next);
		if (s->done)
			break;
		if (rc__progress_look(&n->progress, &call, &gone, &why) == 0)
			why.code = RC_OK;
		else if (gone && gone_since == 0) /* it may have come, gone on and ended */
			gone_since = now();
		if (gone && why.code && now() - gone_since <= gone_grace)
			why.code = RC_OK;
		if (!why.code && now() > deadline)
			rc_fail(&why, RC_E_TIMEOUT, "connect: NCCL did not bring the %d ranks together within %g s", s->size, n->comm.timeout);
	}
	if (!s->done) {
		s->left = true;
		pthread_mutex_unlock(&s->lock);
		return rc_fail(error, why.code, "%s", why.text);
	}
	pthread_mutex_unlock(&s->lock);
	n->handle = s->handle;
	result = s->result;
	why = s->error;
	start_free(s);
	if (why.code)
		return rc_fail(error, why.code, "%s", why.text);
	return result == RC__NCCL_OK ? 0 : fail_result(n, "connect", result, error);
}

static int check_blob(const nccl *n, int rank, const void *bytes, size_t size, blob *b, rc_error *error)
{
	if (size != sizeof *b)
		return rc_fail(error, RC_E_UNSUPPORTED, "rank %d has no NCCL to offer (its blob has %zu bytes, not %zu)", rank, size, sizeof *b);
	memcpy(b, bytes, size);
	if (memcmp(b->magic, magic, sizeof magic) || b->version != VERSION)
		return rc_fail(error, RC_E_UNSUPPORTED, "rank %d has no NCCL to offer, or of another version of this module", rank);
	if (b->rank != rank || b->size != n->comm.size)
		return rc_fail(error, RC_E_INVALID, "the blob at place %d of %d is of rank %d of %d", rank, n->comm.size, b->rank, b->size);
	if (b->library / 100 != n->library->version / 100)
		return rc_fail(error, RC_E_UNSUPPORTED, "rank %d has NCCL %d, rank %d has %d: they do not work together", rank, b->library,
		               n->comm.rank, n->library->version);
	return 0;
}

static int nccl_connect(rc_comm *comm, const void *const *blobs, const size_t *sizes, rc_error *error)
{
	nccl *n = nccl_of(comm);
	size_t size = (size_t)comm->size;
	rc__progress_name *names = calloc(size, sizeof *names);
	rc__nccl_id id = { { 0 } };
	int result = -1;

	if (!names) {
		rc_fail(error, RC_E_NO_MEMORY, "no memory for %zu ranks", size);
		goto out;
	}
	if (n->progress.peers) {
		rc_fail(error, RC_E_INVALID, "a communicator whose connect failed cannot connect again");
		goto out;
	}
	for (int q = 0; q < comm->size; q++) {
		blob b;

		if (check_blob(n, q, blobs[q], sizes[q], &b, error))
			goto out;
		names[q] = b.progress;
		if (q == 0)
			id = b.id;
	}
	/* The progress pages first: when NCCL has started, every rank has come here and has opened those of the others. */
	if (rc__progress_connect(&n->progress, names, error) || rc_cuda_enter(n->device, error) || start_library(n, id, error) ||
	    rc_cuda_stream_create(0, &n->own_stream, error) || rc_cuda_event_create(&n->barrier, error) ||
	    rc_cuda_alloc(sizeof(float), &n->word, error) || rc_cuda_zero(n->word, sizeof(float), n->own_stream, error) ||
	    rc_cuda_stream_sync(n->own_stream, error))
		goto out;
	rc__progress_close_fd(&n->progress);
	errno = pthread_create(&n->watchdog, NULL, watch, n);
	if (errno) {
		rc_fail_errno(error, "cannot start the watchdog of NCCL");
		goto out;
	}
	n->watched = true;
	result = 0;
out:
	free(names);
	return result;
}

/* Until nothing is in flight; the watchdog ends the wait when that does not come to be. */
static void stop_watchdog(nccl *n)
{
	pthread_mutex_lock(&n->lock);
	while (n->oldest != n->newest && !atomic_load(&n->failed))
		pthread_cond_wait(&n->changed, &n->lock);
	n->stop = true;
	pthread_cond_broadcast(&n->changed);
	pthread_mutex_unlock(&n->lock);
	pthread_join(n->watchdog, NULL);
}

static void nccl_destroy(rc_comm *comm)
{
	nccl *n = nccl_of(comm);
	bool entered = n->device >= 0 && n->library && rc_cuda_enter(n->device, NULL) == 0;

	if (n->watched)
		stop_watchdog(n);
	if (n->handle && atomic_load(&n->failed)) { /* the watchdog was stopped before it came to it */
		n->library->ncclCommAbort(n->handle);
		n->handle = NULL;
	}
	for (int i = 0; i < n->window_count; i++)
		unregister(n, &n->windows[i]);
	if (n->handle)
		n->library->ncclCommDestroy(n->handle);
	for (int i = 0; i < n->window_count; i++)
		n->library->ncclMemFree(n->windows[i].memory);
	free(n->windows);
	for (; n->oldest != n->newest; n->oldest++)
		if (n->flights[n->oldest % FLIGHTS].event)
			n->spare[n->spares++] = n->flights[n->oldest % FLIGHTS].event;
	if (entered) {
		while (n->spares)
			rc_cuda_event_destroy(n->spare[--n->spares], NULL);
		if (n->barrier)
			rc_cuda_event_destroy(n->barrier, NULL);
		if (n->own_stream)
			rc_cuda_stream_destroy(n->own_stream, NULL);
		if (n->word)
			rc_cuda_free(n->word, NULL);
	}
	rc__progress_destroy(&n->progress);
	free(n->flights);
	pthread_mutex_destroy(&n->use);
	pthread_mutex_destroy(&n->lock);
	pthread_cond_destroy(&n->changed);
	free(n);
}

static const rc__comm_ops ops = {
	.connect = nccl_connect,
	.destroy = nccl_destroy,
	.window = nccl_window,
	.all_gather = nccl_all_gather,
	.gather_pieces = nccl_gather_pieces,
	.reduce_scatter = nccl_reduce_scatter,
	.all_reduce = nccl_all_reduce,
	.all_to_all = nccl_all_to_all,
	.broadcast = nccl_broadcast,
	.barrier = nccl_barrier,
	.group_begin = nccl_group_begin,
	.group_end = nccl_group_end,
	.watch = nccl_watch,
	.check = nccl_check,
	.abort = nccl_abort,
};

int rc_comm_nccl_prepare(int rank, int size, int device, double timeout, rc_comm **comm, rc_error *error)
{
	const rc__nccl *library;
	nccl *n;
	int result;

	if (size < 1 || rank < 0 || rank >= size || device < 0)
		return rc_fail(error, RC_E_INVALID, "rank %d of %d on device %d", rank, size, device);
	if (!(timeout > 0 && timeout < 1e9))
		return rc_fail(error, RC_E_INVALID, "a timeout of %g s is not a positive number of seconds", timeout);
	if (rc__nccl_open(&library, error) || rc_cuda_open(device, error))
		return -1;
	n = calloc(1, sizeof *n);
	if (n)
		n->flights = calloc(FLIGHTS, sizeof *n->flights);
	if (!n || !n->flights) {
		free(n);
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for a communicator");
	}
	n->comm = (rc_comm){ .ops = &ops, .rank = rank, .size = size, .timeout = timeout, .owner = getpid(),
	                     .blob = &n->blob, .blob_size = sizeof n->blob };
	snprintf(n->comm.transport, sizeof n->comm.transport, "nccl %d.%d.%d", library->version / 10000, library->version / 100 % 100,
	         library->version % 100);
	n->library = library;
	n->device = device;
	pthread_mutex_init(&n->use, NULL);
	init_lock(&n->lock, &n->changed);
	memcpy(n->blob.magic, magic, sizeof magic);
	n->blob.version = VERSION;
	n->blob.rank = rank;
	n->blob.size = size;
	n->blob.library = library->version;
	rc__progress_create(&n->progress, rank, size, &n->blob.progress);
	result = rank == 0 ? library->ncclGetUniqueId(&n->blob.id) : RC__NCCL_OK;
	if (result != RC__NCCL_OK) {
		fail_result(n, "preparation", result, error);
		nccl_destroy(&n->comm);
		return -1;
	}
	*comm = &n->comm;
	return 0;
}
