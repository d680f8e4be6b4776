/* A CUDA driver and an NCCL for hosts without a GPU, for test/nccl.c. This one source is built twice, as libcuda.so.1 and as
 * libnccl.so.2; what they share hangs on the streams. No data is moved. Work on a stream is a collective, and it is done when every rank
 * has queued its part: ranks are processes that count in memory of rank 0, which the unique id names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "train_backend/comm/test/fake_gpu.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* they are only looked up by name */
#define API __attribute__((visibility("default"))) int

enum { NOT_READY = 600, CAPTURED_EVENT = 907 };

typedef struct world {
	atomic_int joined;
	atomic_ullong queued[16]; /* collectives, by rank */
} world;

typedef struct comm {
	world *world;
	int rank, size;
	atomic_bool aborted;
} comm;

typedef struct op {
	comm *comm;
	uint64_t number;
} op;

typedef struct event {
	op *after;
	bool captured; /* recorded into a graph: nobody may ask about it */
} event;

/* Communicators and works are never given back, since events may point to them to the end; the checker of leaks finds them here. */
typedef struct kept {
	struct kept *next;
} kept;

static _Atomic(kept *) all;

static void *keep(size_t bytes)
{
	kept *k = calloc(1, sizeof *k + bytes);

	if (!k)
		abort();
	k->next = atomic_load(&all);
	while (!atomic_compare_exchange_weak(&all, &k->next, k))
		;
	return k + 1;
}

static bool done(const op *o)
{
	if (!o || atomic_load(&o->comm->aborted))
		return true;
	for (int r = 0; r < o->comm->size; r++)
		if (atomic_load(&o->comm->world->queued[r]) < o->number)
			return false;
	return true;
}

/* ---- the driver ---- */

static int context;

API cuInit(unsigned flags) { (void)flags; return 0; }
API cuDriverGetVersion(int *version) { *version = 13000; return 0; }
API cuGetErrorString(int result, const char **text) { (void)result; *text = "fake"; return 0; }
API cuGetErrorName(int result, const char **text) { (void)result; *text = "FAKE"; return 0; }
API cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
API cuDeviceGetCount(int *count) { *count = 1; return 0; }
API cuDeviceGetAttribute(int *value, int attribute, int device) { (void)attribute; (void)device; *value = 9; return 0; }
API cuDevicePrimaryCtxRetain(void **ret, int device) { (void)device; *ret = &context; return 0; }
API cuCtxSetCurrent(void *ctx) { return ctx == &context ? 0 : 201; }
API cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = *greatest = 0; return 0; }
API cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
	(void)flags;
	(void)priority;
	*stream = calloc(1, sizeof(fake_stream));
	return 0;
}
API cuStreamDestroy_v2(void *stream) { free(stream); return 0; }
API cuStreamIsCapturing(void *stream, int *status) { *status = stream && ((fake_stream *)stream)->capturing; return 0; }
API cuThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return 0; }
API cuStreamWaitEvent(void *stream, void *e, unsigned flags) { (void)stream; (void)e; (void)flags; return 0; }
API cuEventCreate(void **e, unsigned flags) { (void)flags; *e = calloc(1, sizeof(event)); return 0; }
API cuEventDestroy_v2(void *e) { free(e); return 0; }
API cuEventQuery(void *e) { return ((event *)e)->captured ? CAPTURED_EVENT : done(((event *)e)->after) ? 0 : NOT_READY; }
API cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
	(void)stream;
	memmove((void *)to, (void *)from, bytes);
	return 0;
}
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream)
{
	(void)stream;
	memset((void *)to, value, bytes);
	return 0;
}
API cuMemAlloc_v2(uint64_t *memory, size_t bytes) { *memory = (uint64_t)malloc(bytes); return 0; }
API cuMemFree_v2(uint64_t memory) { free((void *)memory); return 0; }
API cuModuleLoadData(void **module, const void *image) { (void)module; (void)image; return 1; }
API cuModuleUnload(void *module) { (void)module; return 0; }
API cuModuleGetFunction(void **function, void *module, const char *name) { (void)function; (void)module; (void)name; return 1; }
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *f, int threads, size_t bytes)
{
	(void)f;
	(void)threads;
	(void)bytes;
	*blocks = 1;
	return 0;
}
API cuLaunchKernel(void) { return 1; }

API cuEventRecord(void *e, void *stream)
{
	fake_stream *s = stream;

	*(event *)e = (event){ .after = s->last, .captured = s->capturing };
	return 0;
}

API cuStreamSynchronize(void *stream)
{
	while (!done(((fake_stream *)stream)->last))
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	return 0;
}

/* ---- NCCL ---- */

typedef struct id {
	char bytes[128];
} id;

static _Thread_local bool in_group;
static fake_call last;

API ncclGetVersion(int *version) { *version = 22809; return 0; }
__attribute__((visibility("default"))) const char *ncclGetErrorString(int result) { return result == 3 ? "internal error" : "some error"; }
API ncclCommGetAsyncError(void *c, int *result) { (void)c; *result = getenv("FAKE_ASYNC_ERROR") ? 3 : 0; return 0; }
API ncclGroupStart(void) { in_group = true; return 0; }
API ncclGroupEnd(void) { in_group = false; return 0; }
API ncclMemAlloc(void **memory, size_t bytes) { *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096); return 0; }
API ncclMemFree(void *memory) { free(memory); return 0; }
API ncclCommRegister(void *c, void *memory, size_t bytes, void **handle)
{
	(void)c;
	(void)memory;
	(void)bytes;
	*handle = malloc(1);
	return 0;
}
API ncclCommDeregister(void *c, void *handle) { (void)c; free(handle); return 0; }
API ncclCommDestroy(void *c) { (void)c; return 0; }
API ncclCommAbort(void *c) { atomic_store(&((comm *)c)->aborted, true); return 0; }
API fake_last_call(fake_call *call) { *call = last; return in_group; }

API ncclGetUniqueId(id *ret)
{
	int fd = memfd_create("fake_nccl", MFD_CLOEXEC); /* stays open as long as this process */

	if (fd < 0 || ftruncate(fd, sizeof(world)))
		return 2;
	memset(ret, 0, sizeof *ret);
	snprintf(ret->bytes, sizeof ret->bytes, "/proc/%d/fd/%d", (int)getpid(), fd);
	return 0;
}

API ncclCommInitRank(void **ret, int size, id unique, int rank)
{
	comm *c = keep(sizeof *c);
	int fd = open(unique.bytes, O_RDWR | O_CLOEXEC);

	c->rank = rank;
	c->size = size;
	c->world = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(world), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (c->world == MAP_FAILED)
		return 2;
	close(fd);
	atomic_fetch_add(&c->world->joined, 1);
	while (atomic_load(&c->world->joined) < size) /* without a limit, as NCCL's */
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	*ret = c;
	return 0;
}

static int queue(const char *name, size_t count, int type, int how, void *c, void *stream)
{
	op *o = keep(sizeof *o);

	last = (fake_call){ .count = count, .type = type, .how = how };
	snprintf(last.name, sizeof last.name, "%s", name);
	o->comm = c;
	if (((fake_stream *)stream)->capturing)
		o->number = UINT64_MAX; /* is not run: it is never done */
	else
		o->number = atomic_fetch_add(&o->comm->world->queued[o->comm->rank], 1) + 1;
	((fake_stream *)stream)->last = o;
	if (getenv("FAKE_CONNECTS")) /* as a first call does, which connects the ranks */
		while (!done(o))
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	return atomic_load(&o->comm->aborted) ? 3 : 0;
}

API ncclAllGather(const void *from, void *to, size_t count, int type, void *c, void *stream)
{
	(void)from, (void)to;
	return queue("all-gather", count, type, -1, c, stream);
}

API ncclReduceScatter(const void *from, void *to, size_t count, int type, int how, void *c, void *stream)
{
	(void)from, (void)to;
	return queue("reduce-scatter", count, type, how, c, stream);
}

API ncclAllReduce(const void *from, void *to, size_t count, int type, int how, void *c, void *stream)
{
	(void)from, (void)to;
	return queue("all-reduce", count, type, how, c, stream);
}

API ncclSend(const void *from, size_t count, int type, int peer, void *c, void *stream)
{
	(void)from;
	return queue("send", count, type, peer, c, stream);
}

API ncclRecv(void *to, size_t count, int type, int peer, void *c, void *stream)
{
	(void)to;
	return queue("receive", count, type, peer, c, stream);
}

API ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *c, void *stream)
{
	(void)from, (void)to;
	return queue("broadcast", count, type, root, c, stream);
}
