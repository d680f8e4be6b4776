/* Collectives over shared memory: what happens when a rank does not do what the others do. */
#include "train_backend/comm/test/faults.h"

/* Blobs that lie: rank 1's, with each byte changed in turn. No crash, and never a connection to the wrong memory. */
static void wrong_blobs(int rank, int size)
{
	rc_comm *comms[2] = { NULL, NULL };
	const void *blobs[2];
	char changed[1024];
	size_t sizes[2];
	rc_error error;
	int unsupported = 0;

	for (size_t place = 0;; place++) {
		for (int r = 0; r < 2; r++) {
			CHECK_EQ_INT(0, rc_comm_shm_prepare(r, 2, 0.01, &comms[r], &error));
			rc_comm_blob(comms[r], &blobs[r], &sizes[r]);
		}
		if (place == sizes[1])
			break;
		memcpy(changed, blobs[1], sizes[1]);
		changed[place] ^= 0x41;
		blobs[1] = changed;
		CHECK_EQ_INT(-1, rc_comm_connect(comms[0], blobs, sizes, &error));
		unsupported += error.code == RC_E_UNSUPPORTED;
		rc_comm_destroy(comms[0]);
		rc_comm_destroy(comms[1]);
	}
	CHECK(unsupported > 36); /* boot id and pid namespace alone have more places */
	blobs[1] = "";
	sizes[1] = 0;
	expect(rc_comm_connect(comms[0], blobs, sizes, &error), RC_E_UNSUPPORTED, &error, "rank 1 has no shared memory to offer");
	rc_comm_destroy(comms[0]);
	rc_comm_destroy(comms[1]);
	rc_comm_destroy(NULL);
	CHECK_EQ_INT(-1, rc_comm_shm_prepare(2, 2, 1, &comms[0], &error));
	CHECK_EQ_INT(-1, rc_comm_shm_prepare(0, 2, 0, &comms[0], &error));
	CHECK_EQ_INT(-1, rc_comm_shm_prepare(0, 0, 1, &comms[0], &error));
	CHECK_EQ_INT(0, rank * size);
}

static void test_wrong_blobs(void) { ranks_run(1, wrong_blobs); }

int main(void)
{
	ranks_start();
	run_faults();
	RUN(test_wrong_blobs, "changed blobs are refused");
	return test_end();
}
