/* Collectives of every transport for CPU memory: what happens when a rank does not do what the others do. Every rank must be told, in time,
 * and in the same words. */
#ifndef RC_COMM_TEST_FAULTS_H
#define RC_COMM_TEST_FAULTS_H

#include <dirent.h>
#include <pthread.h>
#include <stdint.h>

#include "train_backend/comm/test/ranks.h"

static bool killed_may_hang; /* set where a rank that is killed while data moves can leave the others inside the provider */
static const rc_tag forward = { "layers.4", "forward" }, reduce = { "layers.3", "reduce" };

static void expect(int result, rc_code code, const rc_error *error, const char *part)
{
	CHECK_EQ_INT(-1, result);
	if (result == 0)
		return;
	CHECK_EQ_INT(code, error->code);
	if (!strstr(error->text, part)) {
		printf("# '%s' does not hold '%s'\n", error->text, part);
		test_bad_ = true;
	}
}

/* All ranks of the mask were told the same. */
static void told_the_same(int rank, int size, unsigned mask, int point, const rc_error *error)
{
	int members = __builtin_popcount(mask), first = __builtin_ctz(mask);

	snprintf(ranks_area->texts[rank], sizeof ranks_area->texts[rank], "%s", error->text);
	ranks_point(point, members);
	CHECK_STR(ranks_area->texts[first], error->text);
	(void)size;
}

static void other_size(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 20);
	rc_error error, again;
	char send[8192], recv[4 * 8192];

	memset(send, rank, sizeof send);
	memset(recv, 0x33, sizeof recv);
	expect(rc_comm_all_gather(comm, forward, send, recv, rank == 1 ? 8192 : 4096, NULL, &error), RC_E_INVALID, &error,
	       "all-gather of layers.4 (forward): sizes differ: rank 0 has 4096 bytes, rank 1 has 8192");
	for (size_t i = 0; i < sizeof recv; i++)
		CHECK_EQ_INT(0x33, recv[i]); /* no data has moved */
	expect(rc_comm_barrier(comm, forward, &again), RC_E_INVALID, &again, error.text);
	CHECK_EQ_INT(-1, rc_comm_check(comm, &again));
	told_the_same(rank, size, (1u << size) - 1, 1, &error);
	rc_comm_destroy(comm);
}

static void other_call(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 20);
	rc_error error;
	float data[256] = { 0 };
	int result;

	if (rank == 1)
		result = rc_comm_reduce_scatter(comm, reduce, data, data, 16, RC_F32, RC_SUM, NULL, &error);
	else
		result = rc_comm_broadcast(comm, forward, data, 64, 0, NULL, &error);
	expect(result, RC_E_INVALID, &error,
	       "calls differ: rank 0 is at broadcast of layers.4 (forward), rank 1 at reduce-scatter of layers.3 (reduce)");
	told_the_same(rank, size, (1u << size) - 1, 1, &error);
	rc_comm_destroy(comm);
}

static void other_type(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 20);
	rc_error error;
	uint16_t data[16] = { 0 };

	expect(rc_comm_all_reduce(comm, reduce, data, 16, rank == 1 ? RC_BF16 : RC_F16, RC_SUM, NULL, &error), RC_E_INVALID, &error,
	       "types differ: rank 0 has f16, rank 1 has bf16");
	rc_comm_destroy(comm);
	(void)size;
}

static void other_root(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 20);
	rc_error error;
	char data[16] = { 0 };

	expect(rc_comm_broadcast(comm, reduce, data, 16, rank, NULL, &error), RC_E_INVALID, &error,
	       "roots differ: rank 0 has root 0, rank 1 has 1");
	rc_comm_destroy(comm);
	(void)size;
}

/* The last rank is killed while the others wait for it. */
static void killed_before(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 60);
	rc_error error;
	float data[8] = { 0 };
	char part[400], name[200];
	double begin = ranks_now();

	CHECK_EQ_INT(0, rc_comm_barrier(comm, forward, &error));
	if (rank == size - 1)
		raise(SIGKILL);
	snprintf(part, sizeof part, "all-reduce of layers.3 (reduce): %s has died", ranks_name(size - 1, name));
	expect(rc_comm_all_reduce(comm, reduce, data, 8, RC_F32, RC_SUM, NULL, &error), RC_E_UNAVAILABLE, &error, part);
	CHECK(ranks_now() - begin < 20); /* much sooner than the timeout */
	told_the_same(rank, size, (1u << (size - 1)) - 1, 1, &error);
	rc_comm_destroy(comm);
}

static rc_comm *thread_comm;

/* Kills this process once the call has moved for a while. */
static void *kill_soon(void *unused)
{
	for (int i = 0; i < 200; i++)
		ranks_pause();
	raise(SIGKILL);
	return unused;
}

static void killed_inside(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 60);
	rc_error error;
	size_t n = 4 << 20;
	float *data = calloc(n, sizeof *data);
	pthread_t thread;
	int result = 0;

	if (rank == 0)
		pthread_create(&thread, NULL, kill_soon, NULL);
	for (int i = 0; i < 100000 && result == 0; i++)
		result = rc_comm_all_reduce(comm, reduce, data, n, RC_F32, RC_AVG, NULL, &error);
	expect(result, RC_E_UNAVAILABLE, &error, "all-reduce of layers.3 (reduce): rank 0 (pid ");
	CHECK(result == 0 || strstr(error.text, "has died"));
	free(data);
	rc_comm_destroy(comm);
	(void)size;
}

/* Rank 1 stops for longer than the timeout; then it goes on and is told too. */
static void stopped(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 1);
	rc_error error;
	float data[8] = { 0 };
	char part[400], name[200];
	double begin = ranks_now();

	CHECK_EQ_INT(0, rc_comm_all_gather(comm, forward, data + rank, data, sizeof *data, NULL, &error));
	if (rank == 1) {
		ranks_point(1, 2);
		raise(SIGSTOP);
	} else if (rank == 0) {
		ranks_point(1, 2);
	}
	snprintf(part, sizeof part, "reduce-scatter of layers.3 (reduce): %s did not come within 1 s; it came last to all-gather of "
	         "layers.4 (forward), call 2, and rank ", ranks_name(1, name));
	expect(rc_comm_reduce_scatter(comm, reduce, data, data, 1, RC_F32, RC_SUM, NULL, &error), RC_E_TIMEOUT, &error, part);
	CHECK(strstr(error.text, "at call 3"));
	CHECK(rank == 1 || ranks_now() - begin < 15);
	if (rank == 0)
		kill(atomic_load(&ranks_area->pids[1]), SIGCONT);
	told_the_same(rank, size, (1u << size) - 1, 2, &error);
	rc_comm_destroy(comm);
}

/* Rank 0 comes only when the others have given up: it is told at once. */
static void late(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 0.3);
	rc_error error;
	double begin;

	if (rank == 0)
		ranks_point(1, size);
	begin = ranks_now();
	expect(rc_comm_barrier(comm, forward, &error), RC_E_TIMEOUT, &error, "barrier of layers.4 (forward): rank 0 (pid ");
	if (rank == 0)
		CHECK(ranks_now() - begin < 0.2);
	else
		ranks_point(1, size);
	told_the_same(rank, size, (1u << size) - 1, 2, &error);
	rc_comm_destroy(comm);
}

static void leaves(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 60);
	rc_error error;

	CHECK_EQ_INT(0, rc_comm_barrier(comm, forward, &error));
	if (rank != size - 1)
		expect(rc_comm_barrier(comm, reduce, &error), RC_E_UNAVAILABLE, &error, "has closed its communicator");
	rc_comm_destroy(comm);
}

static void *abort_soon(void *unused)
{
	ranks_pause();
	rc_comm_abort(thread_comm, "the optimizer failed");
	return unused;
}

static void aborted(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 60);
	rc_error error;
	pthread_t thread;
	char part[400], name[200];

	/* The last rank never comes; another thread of it ends the others' wait. */
	snprintf(part, sizeof part, "aborted by %s: the optimizer failed", ranks_name(size - 1, name));
	if (rank == size - 1) {
		thread_comm = comm;
		pthread_create(&thread, NULL, abort_soon, NULL);
		while (rc_comm_check(comm, &error) == 0)
			ranks_pause();
		pthread_join(thread, NULL);
		expect(-1, RC_E_CANCELLED, &error, part);
	} else {
		expect(rc_comm_barrier(comm, reduce, &error), RC_E_CANCELLED, &error, part);
	}
	told_the_same(rank, size, (1u << size) - 1, 1, &error);
	rc_comm_destroy(comm);
}

/* What a forked child does with its parent's communicator harms nobody. */
static void forked(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 60);
	rc_error error;
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		int result = rc_comm_barrier(comm, forward, &error);

		rc_comm_abort(comm, "of a child");
		rc_comm_destroy(comm);
		_exit(result == -1 && error.code == RC_E_INVALID ? 0 : 1);
	}
	waitpid(child, &status, 0);
	CHECK_EQ_INT(0, status);
	CHECK_EQ_INT(0, rc_comm_barrier(comm, forward, &error));
	rc_comm_destroy(comm);
}

/* ---- start ---- */

static void never_connects(int rank, int size)
{
	rc_comm *comm = NULL;
	rc_error error;

	CHECK_EQ_INT(0, ranks_prepare(rank, size, 0.5, &comm, &error));
	CHECK_EQ_INT(-1, rc_comm_barrier(comm, forward, &error));
	CHECK_EQ_INT(RC_E_INVALID, error.code);
	rc_comm_abort(comm, "nothing to abort");
	if (rank == size - 1) { /* brings its blob, but does not connect; its fd is there until the others are done */
		const void *bytes;
		size_t n;

		rc_comm_blob(comm, &bytes, &n);
		memcpy(ranks_area->blobs[rank], bytes, n);
		ranks_area->sizes[rank] = n;
		ranks_point(0, size);
	} else {
		expect(ranks_exchange(comm, &error), RC_E_TIMEOUT, &error, "connect: rank ");
		CHECK(strstr(error.text, "it has come to no call yet"));
		CHECK_EQ_INT(-1, ranks_exchange(comm, &error));
	}
	ranks_point(1, size);
	rc_comm_destroy(comm);
}

static int entries_of(const char *folder)
{
	DIR *dir = opendir(folder);
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static int lines_of(const char *path)
{
	FILE *f = fopen(path, "re");
	int n = 0, c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

static void made_again(int rank, int size)
{
	int fds = 0, maps = 0;
	rc_error error;

	for (int i = 0; i < 60; i++) {
		rc_comm *comm = NULL;
		void *base;
		char blob[RANKS_BLOB];

		CHECK_EQ_INT(0, ranks_prepare(rank, size, 20, &comm, &error));
		if (i == 0) {
			CHECK_EQ_INT(0, ranks_exchange(comm, &error));
		} else { /* the first communicator carried the blobs of the next one, as torch's store would */
			const void *bytes, *blobs[RANKS_MAX];
			size_t n, sizes[RANKS_MAX];
			char all[RANKS_MAX * RANKS_BLOB];

			rc_comm_blob(comm, &bytes, &n);
			memcpy(blob, bytes, n);
			CHECK_EQ_INT(0, rc_comm_all_gather(thread_comm, forward, blob, all, n, NULL, &error));
			for (int q = 0; q < size; q++) {
				blobs[q] = all + (size_t)q * n;
				sizes[q] = n;
			}
			CHECK_EQ_INT(0, rc_comm_connect(comm, blobs, sizes, &error));
			rc_comm_destroy(thread_comm);
		}
		thread_comm = comm;
		CHECK_EQ_INT(0, rc_comm_window(comm, 100000, &base, &error));
		CHECK_EQ_INT(0, rc_comm_window(comm, 10, &base, &error));
		if (i == 4) {
			fds = entries_of("/proc/self/fd");
			maps = lines_of("/proc/self/maps");
		}
	}
	CHECK(entries_of("/proc/self/fd") <= fds); /* connections of libfabric close when the peer has closed too */
	CHECK(lines_of("/proc/self/maps") <= maps + 8); /* the allocator may have grown */
	rc_comm_destroy(thread_comm);
}

static void test_other_size(void) { ranks_run(2, other_size); ranks_run(4, other_size); }
static void test_other_call(void) { ranks_run(2, other_call); ranks_run(3, other_call); }
static void test_other_type(void) { ranks_run(2, other_type); }
static void test_other_root(void) { ranks_run(3, other_root); }
static void test_killed_before(void) { ranks_run_some_killed(2, killed_before, 1 << 1); ranks_run_some_killed(4, killed_before, 1 << 3); }
static void test_killed_inside(void) { ranks_run_some_killed(3, killed_inside, 1 << 0); }
static void test_stopped(void) { ranks_run(2, stopped); ranks_run(4, stopped); }
static void test_late(void) { ranks_run(2, late); ranks_run(3, late); }
static void test_leaves(void) { ranks_run(2, leaves); ranks_run(4, leaves); }
static void test_aborted(void) { ranks_run(2, aborted); ranks_run(4, aborted); }
static void test_forked(void) { ranks_run(2, forked); }
static void test_never_connects(void) { ranks_run(2, never_connects); ranks_run(3, never_connects); }
static void test_made_again(void) { ranks_run(1, made_again); ranks_run(4, made_again); }

static void run_faults(void)
{
	RUN(test_other_size, "sizes that differ are named on every rank before any data moves");
	RUN(test_other_call, "ranks in different calls are told which");
	RUN(test_other_type, "types that differ are named");
	RUN(test_other_root, "roots that differ are named");
	RUN(test_killed_before, "a killed rank ends the others' wait long before the timeout");
	if (!killed_may_hang)
		RUN(test_killed_inside, "a rank killed while data moves ends the call");
	RUN(test_stopped, "a stopped rank is named with its last call, and is told when it goes on");
	RUN(test_late, "a rank that comes too late is told at once");
	RUN(test_leaves, "a rank that has destroyed its communicator ends the others' wait");
	RUN(test_aborted, "an abort from another thread ends every rank's wait with its reason");
	RUN(test_forked, "a forked child can neither use nor end its parent's communicator");
	RUN(test_never_connects, "a rank that never connects is named");
	RUN(test_made_again, "communicators made again and again leave no fd and no memory");
}

#endif
