/* Collectives over libfabric, on 127.0.0.1 and over each provider that is here: data, faults, and blobs that are not what they should be.
 *
 *     fabric [PROVIDER [data|faults]] */
#include "train_backend/comm/test/data.h"
#include "train_backend/comm/test/faults.h"

static const char *provider;

static int prepare(int rank, int size, double timeout, rc_comm **comm, rc_error *error)
{
	return rc_comm_fabric_prepare(rank, size, provider, "127.0.0.1", timeout, comm, error);
}

static rc_comm *prepared(int rank, const char *providers)
{
	rc_comm *comm = NULL;
	rc_error error;

	if (rc_comm_fabric_prepare(rank, 2, providers, "127.0.0.1", 0.3, &comm, &error)) {
		printf("# %s\n", error.text);
		exit(1);
	}
	return comm;
}

/* Two communicators of two ranks each: rank 1 of the second is taken for that of the first. */
static void strangers(int rank, int size)
{
	rc_comm *first = prepared(rank, provider), *second = rank ? prepared(1, provider) : NULL;
	const void *bytes, *blobs[2];
	size_t n, sizes[2];
	rc_error error;

	rc_comm_blob(first, &bytes, &n);
	memcpy(ranks_area->blobs[rank], bytes, n);
	ranks_area->sizes[rank] = n;
	ranks_point(0, size);
	for (int q = 0; q < 2; q++) {
		blobs[q] = ranks_area->blobs[q];
		sizes[q] = ranks_area->sizes[q];
	}
	if (rank == 0) {
		expect(rc_comm_connect(first, blobs, sizes, &error), RC_E_INVALID, &error, "rank 1 is of another communicator than rank 0");
	} else {
		rc_comm_blob(second, &bytes, &n);
		blobs[1] = bytes;
		CHECK_EQ_INT(-1, rc_comm_connect(second, blobs, sizes, &error));
	}
	ranks_point(1, size);
	rc_comm_destroy(first);
	rc_comm_destroy(second);
}

/* Blobs that lie: rank 1's, with each byte changed in turn. No crash, and never a connection. */
static void wrong_blobs(int rank, int size)
{
	const void *blobs[2], *own;
	char changed[RANKS_BLOB];
	size_t sizes[2];
	rc_error error;

	for (size_t place = 0, n = 1; place < n; place += 11) {
		rc_comm *comms[2] = { prepared(0, provider), prepared(1, provider) };

		for (int r = 0; r < 2; r++)
			rc_comm_blob(comms[r], &blobs[r], &sizes[r]);
		n = sizes[1];
		own = blobs[1];
		memcpy(changed, own, n);
		changed[place] ^= 0x41;
		blobs[1] = changed;
		CHECK_EQ_INT(-1, rc_comm_connect(comms[1], blobs, sizes, &error));
		sizes[1] = place;
		blobs[1] = own;
		CHECK_EQ_INT(-1, rc_comm_connect(comms[0], blobs, sizes, &error));
		CHECK(error.code == RC_E_UNSUPPORTED && strstr(error.text, "rank 1 has no fabric to offer"));
		rc_comm_destroy(comms[0]);
		rc_comm_destroy(comms[1]);
	}
	(void)rank, (void)size;
}

static void no_provider_in_common(int rank, int size)
{
	rc_comm *comm = prepared(rank, rank ? "shm" : "net,sockets");
	rc_error error;

	expect(ranks_exchange(comm, &error), RC_E_UNSUPPORTED, &error, "the ranks have no fabric provider in common: rank 0 (on ");
	CHECK(strstr(error.text, ") has net, sockets, rank 1 (on ") && strstr(error.text, ") has shm"));
	ranks_point(1, size);
	rc_comm_destroy(comm);
}

static void one_in_common(int rank, int size)
{
	rc_comm *comm = prepared(rank, rank ? "shm,sockets" : "net,sockets");
	rc_error error;

	good(ranks_exchange(comm, &error), &error);
	CHECK_STR("fabric sockets", rc_comm_transport(comm));
	good(rc_comm_barrier(comm, tag, &error), &error);
	rc_comm_destroy(comm);
	(void)size;
}

static bool is_here(void)
{
	rc_comm *comm = NULL;
	rc_error error;
	bool here = rc_comm_fabric_prepare(0, 1, provider, "127.0.0.1", 1, &comm, &error) == 0;

	if (here)
		rc_comm_destroy(comm);
	else
		printf("# %s\n", error.text);
	return here;
}

static void asks(int rank, int size)
{
	(void)rank, (void)size;
	if (!is_here())
		exit(1);
}

/* In a child: what libfabric leaves in a process must not be in the ranks, which are forks of this one. */
static bool provider_is_here(void)
{
	bool here;

	ranks_run(1, asks);
	here = !test_bad_;
	test_bad_ = false;
	return here;
}

static void test_strangers(void) { ranks_run(2, strangers); }
static void test_wrong_blobs(void) { ranks_run(1, wrong_blobs); }
static void test_no_provider(void) { ranks_run(2, no_provider_in_common); }
static void test_one_in_common(void) { ranks_run(2, one_in_common); }

int main(int argc, char **argv)
{
	/* Without a name only the first that is here: each takes minutes on few cores. */
	static const char *const providers[] = { "tcp", "net", "sockets", "shm" };
	char host[64] = "";
	bool done = false, data = argc < 3 || strcmp(argv[2], "data") == 0, faults = argc < 3 || strcmp(argv[2], "faults") == 0;

	gethostname(host, sizeof host - 1);
	ranks_host = host;
	ranks_prepare = prepare;
	many_calls = 200;
	ranks_start();
	for (size_t i = 0; i < sizeof providers / sizeof *providers; i++) {
		provider = providers[i];
		if ((argc > 1 && strcmp(provider, argv[1])) || (argc < 2 && done) || !provider_is_here())
			continue;
		done = true;
		printf("# %s\n", provider);
		if (data)
			run_data();
		if (!faults)
			continue;
		killed_may_hang = strcmp(provider, "shm") == 0;
		if (killed_may_hang)
			printf("# shm: a rank killed while data moves is not tested: others hang (README)\n");
		run_faults();
		RUN(test_strangers, "a rank that was given other blobs is refused");
		RUN(test_wrong_blobs, "changed blobs are refused");
	}
	if (argc < 2) {
		RUN(test_no_provider, "ranks without a provider in common are told who has what");
		RUN(test_one_in_common, "the first provider that all ranks have is taken");
	}
	return test_end();
}
