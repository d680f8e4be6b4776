/* Two-level collectives on 2 x 2 and 3 x 1 ranks of this host, where groups of ranks stand for nodes: the same data as in one level, and
 * the bytes that the plan says. */
#include <stdint.h>

#include "train_backend/comm/test/ranks.h"
#include "train_backend/comm/two_level.h"

static const rc_tag tag = { "layers.1", "forward" };
static int local_ranks;

static void good(int result, const rc_error *error)
{
	if (result) {
		printf("# failed: %s\n", error->text);
		test_bad_ = true;
	}
}

/* A communicator of the ranks first, first + step, ...; every rank of the world calls, for its own group. */
static rc_comm *part_of(rc_comm *world, int first, int step, int size)
{
	int rank = (rc_comm_rank(world) - first) / step;
	const void *bytes, *blobs[RANKS_MAX];
	char all[RANKS_MAX * 1024];
	size_t n, sizes[RANKS_MAX];
	rc_comm *comm = NULL;
	rc_error error;

	good(rc_comm_shm_prepare(rank, size, 30, &comm, &error), &error);
	rc_comm_blob(comm, &bytes, &n);
	good(rc_comm_all_gather(world, tag, bytes, all, n, NULL, &error), &error);
	for (int q = 0; q < size; q++) {
		blobs[q] = all + (size_t)(first + q * step) * n;
		sizes[q] = n;
	}
	good(rc_comm_connect(comm, blobs, sizes, &error), &error);
	return comm;
}

static int32_t value(int rank, size_t place)
{
	return rank * 100003 + (int32_t)place * 7;
}

static void both_levels(int rank, int size)
{
	enum { COUNT = 70001 };
	int local = local_ranks, nodes = size / local, node = rank / local;
	size_t ranks = (size_t)size, bad = 0;
	rc_comm *world = ranks_connect(rank, size, 30);
	rc_comm *within = part_of(world, node * local, 1, local), *between = part_of(world, rank % local, local, nodes);
	uint64_t crossed, inside;
	rc_error error;
	int32_t *send = malloc(ranks * COUNT * 4), *recv = malloc(ranks * COUNT * 4), *staging = malloc((size_t)nodes * COUNT * 4);
	float *terms = (float *)send, *sums = (float *)recv;

	for (size_t i = 0; i < COUNT; i++)
		send[i] = value(rank, i);
	crossed = rc_comm_taken(between);
	inside = rc_comm_taken(within);
	good(rc_two_level_all_gather(within, between, tag, send, recv, COUNT * 4, staging, NULL, &error), &error);
	for (int q = 0; q < size; q++)
		for (size_t i = 0; i < COUNT; i++)
			bad += recv[(size_t)q * COUNT + i] != value(q, i);
	CHECK_EQ_INT(0, bad);
	/* Over all ranks of a node that is (nodes - 1) / nodes of the whole. */
	CHECK_EQ_INT((nodes - 1) * COUNT * 4, rc_comm_taken(between) - crossed);
	CHECK_EQ_INT(nodes * (local - 1) * COUNT * 4, rc_comm_taken(within) - inside);
	crossed = rc_comm_taken(between);
	inside = rc_comm_taken(within);

	for (size_t i = 0; i < ranks * COUNT; i++)
		terms[i] = (float)value(rank, i) * 0.37f;
	good(rc_two_level_reduce_scatter(within, between, tag, terms, sums, COUNT, RC_F32, RC_SUM, staging, NULL, &error), &error);
	for (size_t i = 0; i < COUNT; i++) {
		float want = 0;

		for (int n = 0; n < nodes; n++) {
			float node_sum = 0;

			for (int l = 0; l < local; l++) {
				volatile float term = (float)value(n * local + l, (size_t)rank * COUNT + i) * 0.37f;

				node_sum = l ? node_sum + term : term;
			}
			want = n ? want + node_sum : node_sum;
		}
		bad += sums[i] != want;
	}
	CHECK_EQ_INT(0, bad);
	CHECK_EQ_INT((nodes - 1) * COUNT * 4, rc_comm_taken(between) - crossed);
	CHECK_EQ_INT(nodes * (local - 1) * COUNT * 4, rc_comm_taken(within) - inside);

	/* Other sizes on one node: told as in one level, and nothing stays open. */
	rc_comm_destroy(world);
	CHECK_EQ_INT(-1, rc_two_level_all_gather(within, between, tag, send, recv, 4 + (size_t)node, staging, NULL, &error));
	CHECK(strstr(error.text, "sizes differ"));
	rc_comm_destroy(within);
	rc_comm_destroy(between);
	free(send);
	free(recv);
	free(staging);
}

static void test_two_by_two(void)
{
	local_ranks = 2;
	ranks_run(4, both_levels);
}

static void test_three_by_one(void)
{
	local_ranks = 1;
	ranks_run(3, both_levels);
}

int main(void)
{
	ranks_start();
	RUN(test_two_by_two, "2 nodes of 2 ranks gather and reduce what one level does, each byte crossing once");
	RUN(test_three_by_one, "3 nodes of 1 rank do too");
	return test_end();
}
