/* The nccl transport over a driver and an NCCL that are faked (gpu/fake_gpu.c): what it asks of NCCL, the watchdog, what ranks are told. What
 * NCCL itself does is checked on GPUs, by tests/train/nccl_check.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdint.h>

#include "train_backend/comm/test/fake_gpu.h"
#include "train_backend/comm/test/ranks.h"
#include "train_backend/device/cuda.h"

static const rc_tag forward = { "layers.4", "forward" }, reduce = { "layers.3", "reduce" };
static int (*last_call)(fake_call *call);

static rc_comm *connect_nccl(int rank, int size, double timeout)
{
	rc_comm *comm = NULL;
	rc_error error;

	if (rc_comm_nccl_prepare(rank, size, 0, timeout, &comm, &error) || ranks_exchange(comm, &error)) {
		printf("# rank %d cannot start: %s\n", rank, error.text);
		exit(1);
	}
	return comm;
}

static rc_stream new_stream(void)
{
	rc_stream stream = NULL;
	rc_error error;

	if (rc_cuda_stream_create(0, &stream, &error)) {
		printf("# no stream: %s\n", error.text);
		exit(1);
	}
	return stream;
}

static void good(int result, const rc_error *error)
{
	if (result) {
		printf("# failed: %s\n", error->text);
		test_bad_ = true;
	}
}

/* Waits until the communicator is broken, and says why. */
static void broken(rc_comm *comm, rc_code code, const char *part)
{
	double limit = ranks_now() + 20;
	rc_error error;

	while (rc_comm_check(comm, &error) == 0) {
		if (ranks_now() > limit) {
			printf("# the communicator is whole, though '%s' is to be told\n", part);
			test_bad_ = true;
			return;
		}
		ranks_pause();
	}
	CHECK_EQ_INT(code, error.code);
	if (!strstr(error.text, part)) {
		printf("# '%s' does not hold '%s'\n", error.text, part);
		test_bad_ = true;
	}
}

static void asked(const char *name, size_t count, int type, int how)
{
	fake_call call = { 0 };

	last_call(&call);
	CHECK_STR(name, call.name);
	CHECK_EQ_INT(count, call.count);
	CHECK_EQ_INT(type, call.type);
	CHECK_EQ_INT(how, call.how);
}

static void operations(int rank, int size)
{
	rc_comm *comm = connect_nccl(rank, size, 30);
	rc_stream stream = new_stream();
	rc_error error;
	char data[256];
	long long taken;
	void *window = NULL;

	CHECK_STR("nccl 2.28.9", rc_comm_transport(comm));
	good(rc_comm_all_gather(comm, forward, data, data, 12, stream, &error), &error);
	asked("all-gather", 12, 1, -1);
	good(rc_comm_reduce_scatter(comm, reduce, data, data, 3, RC_BF16, RC_AVG, stream, &error), &error);
	asked("reduce-scatter", 3, 9, 4);
	good(rc_comm_all_reduce(comm, reduce, data, 5, RC_F16, RC_SUM, stream, &error), &error);
	asked("all-reduce", 5, 6, 0);
	good(rc_comm_all_reduce(comm, reduce, data, 5, RC_F64, RC_SUM, stream, &error), &error);
	asked("all-reduce", 5, 8, 0);
	good(rc_comm_broadcast(comm, reduce, data, 7, size - 1, stream, &error), &error);
	asked("broadcast", 7, 1, size - 1);
	good(rc_comm_all_to_all(comm, reduce, data, data + 128, 9, stream, &error), &error);
	asked("receive", 9, 1, size - 1);
	good(rc_comm_barrier(comm, reduce, &error), &error);
	asked("all-reduce", 1, 7, 0);
	taken = (size - 1) * 12 + (size - 1) * 6 + 2 * (size - 1) * 10 / size + 2 * (size - 1) * 40 / size + (rank == size - 1 ? 0 : 7) +
	        (size - 1) * 9;
	CHECK_EQ_INT(taken, rc_comm_taken(comm));
	CHECK_EQ_INT(0, rc_comm_crossed(comm));
	/* As two nodes: in a ring the first rank of a node takes from the other node. */
	rc_comm_set_local(comm, size / 2);
	if (size == 4) {
		good(rc_comm_all_gather(comm, forward, data, data, 12, stream, &error), &error);
		CHECK_EQ_INT(rank % (size / 2) == 0 ? (size - 1) * 12 : 0, rc_comm_crossed(comm));
		good(rc_comm_all_to_all(comm, reduce, data, data + 128, 9, stream, &error), &error);
		CHECK_EQ_INT((rank % (size / 2) == 0 ? (size - 1) * 12 : 0) + size / 2 * 9, rc_comm_crossed(comm));
	}
	good(rc_comm_window(comm, 10000, &window, &error), &error);
	for (int i = 0; i < 10000; i++)
		CHECK_EQ_INT(0, ((char *)window)[i]);
	good(rc_comm_group_begin(comm, &error), &error);
	CHECK_EQ_INT(-1, rc_comm_group_begin(comm, &error));
	CHECK_EQ_INT(-1, rc_comm_barrier(comm, reduce, &error));
	for (int i = 0; i < 400; i++)
		good(rc_comm_all_gather(comm, forward, data, data, 4, stream, &error), &error);
	CHECK_EQ_INT(1, last_call(&(fake_call){ .count = 0 }));
	good(rc_comm_group_end(comm, &error), &error);
	CHECK_EQ_INT(0, last_call(&(fake_call){ .count = 0 }));
	CHECK_EQ_INT(-1, rc_comm_group_end(comm, &error));
	CHECK_EQ_INT(-1, rc_comm_gather_pieces(comm, forward, data, 1, 4, NULL, 0, data, &error));
	CHECK_EQ_INT(RC_E_UNSUPPORTED, error.code);
	for (int i = 0; i < 5000; i++) /* more than can be in flight */
		good(rc_comm_all_gather(comm, forward, data, data, 4, stream, &error), &error);
	good(rc_comm_barrier(comm, reduce, &error), &error);
	rc_comm_destroy(comm);
	rc_cuda_stream_destroy(stream, NULL);
}

static void late(int rank, int size)
{
	rc_comm *comm = connect_nccl(rank, size, 0.8);
	rc_stream stream = new_stream();
	rc_error error;
	char data[64], part[300];

	good(rc_comm_all_gather(comm, forward, data, data, 4, stream, &error), &error);
	good(rc_comm_barrier(comm, forward, &error), &error);
	if (rank != 1)
		good(rc_comm_reduce_scatter(comm, reduce, data, data, 4, RC_F32, RC_SUM, stream, &error), &error);
	snprintf(part, sizeof part, "reduce-scatter of layers.3 (reduce): rank 1 (pid %d) did not come within 0.8 s; it came last to barrier of "
	         "layers.4 (forward), call 2, and rank ", atomic_load(&ranks_area->pids[1]));
	broken(comm, RC_E_TIMEOUT, part);
	good(rc_cuda_stream_sync(stream, &error), &error); /* what waited on the device was ended */
	CHECK_EQ_INT(-1, rc_comm_all_gather(comm, forward, data, data, 4, stream, &error));
	CHECK_EQ_INT(RC_E_TIMEOUT, error.code);
	CHECK_EQ_INT(-1, rc_comm_barrier(comm, forward, &error));
	ranks_point(1, size);
	rc_comm_destroy(comm);
	rc_cuda_stream_destroy(stream, NULL);
}

static void other_size(int rank, int size)
{
	rc_comm *comm = connect_nccl(rank, size, 30);
	rc_stream stream = new_stream();
	rc_error error;
	float data[64];
	int result;

	result = rc_comm_all_reduce(comm, reduce, data, rank == 1 ? 8 : 4, RC_F32, RC_SUM, stream, &error);
	if (result)
		CHECK_EQ_INT(RC_E_INVALID, error.code);
	broken(comm, RC_E_INVALID, "all-reduce of layers.3 (reduce): sizes differ: rank ");
	ranks_point(1, size);
	rc_comm_destroy(comm);
	rc_cuda_stream_destroy(stream, NULL);
}

static void killed(int rank, int size)
{
	rc_comm *comm = connect_nccl(rank, size, 60);
	rc_stream stream = new_stream();
	rc_error error;
	float data[64];
	char part[100];

	good(rc_comm_barrier(comm, forward, &error), &error);
	if (rank == size - 1)
		raise(SIGKILL);
	good(rc_comm_all_reduce(comm, reduce, data, 4, RC_F32, RC_SUM, stream, &error), &error);
	snprintf(part, sizeof part, "all-reduce of layers.3 (reduce): rank %d (pid %d) has died", size - 1,
	         atomic_load(&ranks_area->pids[size - 1]));
	broken(comm, RC_E_UNAVAILABLE, part);
	ranks_point(1, size - 1);
	rc_comm_destroy(comm);
	rc_cuda_stream_destroy(stream, NULL);
}

/* A rank that has ended after its part of the last call is no fault. */
static void ends_first(int rank, int size)
{
	rc_comm *comm = connect_nccl(rank, size, 60);
	rc_stream stream = new_stream();
	rc_error error;
	float data[64];

	for (int i = 0; i < 10; i++)
		good(rc_comm_all_reduce(comm, reduce, data, 4, RC_F32, RC_SUM, stream, &error), &error);
	rc_comm_destroy(comm); /* waits for what is in flight */
	CHECK_EQ_INT(0, rank == 0 && size == 0);
	rc_cuda_stream_destroy(stream, NULL);
}

static void aborted(int rank, int size)
{
	rc_comm *comm = connect_nccl(rank, size, 60);
	rc_stream stream = new_stream();
	rc_error error;
	float data[64];

	if (rank == 0) {
		good(rc_comm_all_reduce(comm, reduce, data, 4, RC_F32, RC_SUM, stream, &error), &error);
		rc_comm_abort(comm, "the optimizer failed");
	}
	broken(comm, RC_E_CANCELLED, "the optimizer failed");
	good(rc_cuda_stream_sync(stream, &error), &error);
	ranks_point(1, size);
	rc_comm_destroy(comm);
	rc_cuda_stream_destroy(stream, NULL);
}

/* NCCL connects ranks inside the first calls and waits there: a rank that does not come, has given up or has ended is found all the same. */
static void connects_late(int rank, int size)
{
	rc_comm *comm = connect_nccl(rank, size, 0.8);
	rc_stream stream = new_stream();
	rc_error error;
	float data[64];

	setenv("FAKE_CONNECTS", "1", 1);
	if (rank != 1) {
		CHECK_EQ_INT(-1, rc_comm_all_reduce(comm, reduce, data, 4, RC_F32, RC_SUM, stream, &error));
		CHECK_EQ_INT(RC_E_TIMEOUT, error.code);
		CHECK(strstr(error.text, "all-reduce of layers.3 (reduce): rank 1 (pid "));
	}
	broken(comm, RC_E_TIMEOUT, "did not come within 0.8 s; it has come to call 0, and rank ");
	ranks_point(1, size);
	rc_comm_destroy(comm);
	rc_cuda_stream_destroy(stream, NULL);
}

static void connects_other_size(int rank, int size)
{
	rc_comm *comm = connect_nccl(rank, size, 30);
	rc_stream stream = new_stream();
	rc_error error;
	float data[64];

	setenv("FAKE_CONNECTS", "1", 1);
	CHECK_EQ_INT(-1, rc_comm_all_reduce(comm, reduce, data, rank == 1 ? 8 : 4, RC_F32, RC_SUM, stream, &error));
	CHECK_EQ_INT(RC_E_INVALID, error.code);
	broken(comm, RC_E_INVALID, "all-reduce of layers.3 (reduce): sizes differ: rank ");
	ranks_point(1, size);
	rc_comm_destroy(comm);
	rc_cuda_stream_destroy(stream, NULL);
}

static void captured(int rank, int size)
{
	rc_comm *comm = connect_nccl(rank, size, 0.5);
	rc_stream stream = new_stream();
	rc_error error;
	float data[64];

	((fake_stream *)stream)->capturing = 1;
	good(rc_comm_all_reduce(comm, reduce, data, 4, RC_F32, RC_SUM, stream, &error), &error);
	for (double end = ranks_now() + 1; ranks_now() < end; ranks_pause()) /* twice the timeout: nothing may come of it */
		good(rc_comm_check(comm, &error), &error);
	((fake_stream *)stream)->capturing = 0;
	good(rc_comm_barrier(comm, forward, &error), &error);
	/* A launch of the graph is watched: here rank 1 launches none. */
	if (rank == 0)
		good(rc_comm_watch(comm, (rc_tag){ "step", NULL }, stream, &error), &error);
	broken(comm, RC_E_TIMEOUT, "CUDA graph of step: rank 1 (pid ");
	ranks_point(1, size);
	rc_comm_destroy(comm);
	rc_cuda_stream_destroy(stream, NULL);
}

static void async_error(int rank, int size)
{
	rc_comm *comm = connect_nccl(rank, size, 60);
	rc_stream stream = new_stream();
	rc_error error;
	float data[64];

	good(rc_comm_barrier(comm, forward, &error), &error);
	if (rank == 0) {
		setenv("FAKE_ASYNC_ERROR", "1", 1);
		good(rc_comm_all_reduce(comm, reduce, data, 4, RC_F32, RC_SUM, stream, &error), &error);
	}
	broken(comm, RC_E_UNAVAILABLE, "all-reduce of layers.3 (reduce): NCCL 2.28.9 says: internal error");
	ranks_point(1, size);
	rc_comm_destroy(comm);
	rc_cuda_stream_destroy(stream, NULL);
}

/* The last rank brings its blob and does not connect. */
static void never_connects(int rank, int size)
{
	rc_comm *comm = NULL;
	rc_error error;
	const void *bytes;
	size_t n;

	good(rc_comm_nccl_prepare(rank, size, 0, rank == 0 ? 0.5 : 60, &comm, &error), &error);
	if (rank == size - 1) {
		rc_comm_blob(comm, &bytes, &n);
		memcpy(ranks_area->blobs[rank], bytes, n);
		ranks_area->sizes[rank] = n;
		ranks_point(0, size);
	} else {
		CHECK_EQ_INT(-1, ranks_exchange(comm, &error));
		if (rank == 0) {
			CHECK_EQ_INT(RC_E_TIMEOUT, error.code);
			CHECK(strstr(error.text, "did not bring the "));
		} else { /* is told by the one that has gone */
			CHECK_EQ_INT(RC_E_UNAVAILABLE, error.code);
			CHECK(strstr(error.text, "connect: rank 0 (pid ") && strstr(error.text, "has closed its communicator"));
		}
	}
	if (rank == 0)
		rc_comm_destroy(comm);
	ranks_point(1, size);
	if (rank != 0)
		rc_comm_destroy(comm);
}

/* The last rank ends once it has brought its blob. */
static void dies_early(int rank, int size)
{
	rc_comm *comm = NULL;
	rc_error error;
	const void *bytes;
	char part[100];
	size_t n;

	good(rc_comm_nccl_prepare(rank, size, 0, 60, &comm, &error), &error);
	rc_comm_blob(comm, &bytes, &n);
	if (rank == size - 1) {
		memcpy(ranks_area->blobs[rank], bytes, n);
		ranks_area->sizes[rank] = n;
		atomic_fetch_add(&ranks_area->come[0], 1);
		raise(SIGKILL);
	}
	CHECK_EQ_INT(-1, ranks_exchange(comm, &error));
	snprintf(part, sizeof part, "connect: rank %d (pid %d) has died", size - 1, atomic_load(&ranks_area->pids[size - 1]));
	/* Or one that was told this first has given up. */
	CHECK(strstr(error.text, part) || strstr(error.text, "has closed its communicator"));
	CHECK_EQ_INT(RC_E_UNAVAILABLE, error.code);
	rc_comm_destroy(comm);
}

static void test_operations(void) { ranks_run(1, operations); ranks_run(3, operations); ranks_run(4, operations); }
static void test_late(void) { ranks_run(2, late); ranks_run(3, late); }
static void test_other_size(void) { ranks_run(2, other_size); ranks_run(3, other_size); }
static void test_killed(void) { ranks_run_some_killed(2, killed, 1 << 1); ranks_run_some_killed(3, killed, 1 << 2); }
static void test_ends_first(void) { ranks_run(3, ends_first); }
static void test_aborted(void) { ranks_run(2, aborted); }
static void test_connects_late(void) { ranks_run(2, connects_late); ranks_run(3, connects_late); }
static void test_connects_other_size(void) { ranks_run(2, connects_other_size); }
static void test_captured(void) { ranks_run(2, captured); }
static void test_async_error(void) { ranks_run(2, async_error); }
static void test_never_connects(void) { ranks_run(2, never_connects); ranks_run(3, never_connects); }

static void test_dies_early(void) { ranks_run_some_killed(2, dies_early, 1 << 1); ranks_run_some_killed(3, dies_early, 1 << 2); }

static void *open_fake(const char *name)
{
	char program[PATH_MAX] = { 0 }, path[PATH_MAX + 64];
	void *handle;

	if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
		return NULL;
	snprintf(path, sizeof path, "%s/fake_gpu/%s", dirname(program), name);
	handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* later dlopens by the bare name find it */
	if (!handle)
		printf("# %s\n", dlerror());
	return handle;
}

int main(void)
{
	void *driver = open_fake("libcuda.so.1"), *library = open_fake("libnccl.so.2");

	if (!driver || !library) {
		printf("not ok - the faked driver and NCCL lie beside this program\n");
		return 1;
	}
	*(void **)&last_call = dlsym(library, "fake_last_call");
	ranks_start();
	RUN(test_operations, "NCCL is asked for what was meant, alone and in groups");
	RUN(test_late, "a rank that does not come is named with its last call, and the device is freed");
	RUN(test_other_size, "sizes that differ are named on every rank of the host");
	RUN(test_killed, "a killed rank ends the others' calls long before the timeout");
	RUN(test_ends_first, "a rank that ends after its last call harms nobody");
	RUN(test_aborted, "an abort reaches the other ranks of the host");
	RUN(test_connects_late, "a rank that does not come to a call in which NCCL waits is named, and the others come out of it");
	RUN(test_connects_other_size, "sizes that differ end a call in which NCCL waits");
	RUN(test_captured, "a call that is captured into a graph is not waited for, a launch of the graph is");
	RUN(test_async_error, "an error that NCCL reports later is told with its call");
	RUN(test_never_connects, "a rank that never connects ends the others' wait");
	RUN(test_dies_early, "a rank that ends before it connects ends the others' wait");
	return test_end();
}
