/* Tests with several ranks: each is a child process. They exchange their blobs through shared memory. A child that fails a check or
 * ends otherwise than expected fails the test; every child has a time limit. */
#ifndef RC_COMM_TEST_RANKS_H
#define RC_COMM_TEST_RANKS_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/base/test.h"
#include "train_backend/comm/comm.h"

enum { RANKS_MAX = 4, RANKS_BLOB = 2048, RANKS_LIMIT = 120 /* seconds */ };

typedef struct ranks_shared {
	atomic_int come[16];            /* points where ranks wait for each other outside the communicator */
	char blobs[RANKS_MAX][RANKS_BLOB];
	size_t sizes[RANKS_MAX];
	char texts[RANKS_MAX][400];     /* for tests that compare what the ranks were told */
	atomic_int pids[RANKS_MAX];
} ranks_shared;

static ranks_shared *ranks_area;

/* The transport under test: how a rank begins, and the host that it names beside a pid (NULL: none). */
static int (*ranks_prepare)(int rank, int size, double timeout, rc_comm **comm, rc_error *error) = rc_comm_shm_prepare;
static const char *ranks_host;

static inline double ranks_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void ranks_pause(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

/* All `size` ranks come to a point, besides the communicator. */
static inline void ranks_point(int point, int size)
{
	double limit = ranks_now() + 30;

	atomic_fetch_add(&ranks_area->come[point], 1);
	while (atomic_load(&ranks_area->come[point]) < size) {
		if (ranks_now() > limit) {
			printf("# the ranks did not come to point %d\n", point);
			exit(1);
		}
		ranks_pause();
	}
}

static inline int ranks_exchange(rc_comm *comm, rc_error *error)
{
	const void *bytes, *blobs[RANKS_MAX];
	int size = rc_comm_size(comm);
	size_t n;

	rc_comm_blob(comm, &bytes, &n);
	memcpy(ranks_area->blobs[rc_comm_rank(comm)], bytes, n);
	ranks_area->sizes[rc_comm_rank(comm)] = n;
	ranks_point(0, size);
	for (int q = 0; q < size; q++)
		blobs[q] = ranks_area->blobs[q];
	return rc_comm_connect(comm, blobs, ranks_area->sizes, error);
}

/* A connected communicator, or the child ends. */
static inline rc_comm *ranks_connect(int rank, int size, double timeout)
{
	rc_error error;
	rc_comm *comm = NULL;

	if (ranks_prepare(rank, size, timeout, &comm, &error) || ranks_exchange(comm, &error)) {
		printf("# rank %d cannot start: %s\n", rank, error.text);
		exit(1);
	}
	return comm;
}

/* As texts name a rank: "rank 1 (pid 123)". */
static inline const char *ranks_name(int rank, char text[200])
{
	snprintf(text, 200, "rank %d (pid %d%s%s)", rank, atomic_load(&ranks_area->pids[rank]), ranks_host ? " on " : "",
	         ranks_host ? ranks_host : "");
	return text;
}

/* Runs fn in `size` children. Those in `killed` (a bit each) must end by SIGKILL. */
static inline void ranks_run_some_killed(int size, void (*fn)(int rank, int size), unsigned killed)
{
	pid_t pids[RANKS_MAX];

	memset(ranks_area, 0, sizeof *ranks_area);
	fflush(stdout);
	for (int r = 0; r < size; r++) {
		pids[r] = fork();
		if (pids[r] == 0) {
			alarm(RANKS_LIMIT);
			atomic_store(&ranks_area->pids[r], getpid());
			test_bad_ = false;
			fn(r, size);
			exit(test_bad_ ? 1 : 0);
		}
	}
	for (int r = 0; r < size; r++) {
		int status = 0;
		bool well;

		waitpid(pids[r], &status, 0);
		well = killed >> r & 1 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 0;
		if (!well) {
			printf("# rank %d of %d ended with status %#x\n", r, size, (unsigned)status);
			test_bad_ = true;
		}
	}
}

static inline void ranks_run(int size, void (*fn)(int rank, int size))
{
	ranks_run_some_killed(size, fn, 0);
}

static inline void ranks_start(void)
{
	ranks_area = mmap(NULL, sizeof *ranks_area, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ranks_area == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
}

#endif
