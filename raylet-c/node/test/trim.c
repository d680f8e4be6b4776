/* When memory that was kept for chunks is given back. */
#include "raylet-c/node/trim.h"

#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/test.h"

static unsigned due(rc_trim *t, uint64_t bytes, unsigned looks) /* how often within so many looks */
{
	unsigned n = 0;
	for (unsigned i = 0; i < looks; i++)
		n += rc_trim_due(t, bytes);
	return n;
}

static void once_after_a_pause(void)
{
	rc_trim t = { 0 };
	CHECK_EQ_INT(0, due(&t, 0, 100));
	CHECK_EQ_INT(0, due(&t, 5, RC_TRIM_LOOKS));
	CHECK_EQ_INT(0, due(&t, 6, RC_TRIM_LOOKS));
	CHECK_EQ_INT(1, due(&t, 6, 1));
	CHECK_EQ_INT(0, due(&t, 6, 100));
	CHECK_EQ_INT(1, due(&t, 7, 100));
	t = (rc_trim){ .given_back = RC_TRIM_NEVER };
	CHECK_EQ_INT(0, due(&t, 0, RC_TRIM_LOOKS - 1));
	CHECK_EQ_INT(1, due(&t, 0, 100));
}

__attribute__((unused)) static long resident_pages(void)
{
	long size, resident = -1;
	FILE *f = fopen("/proc/self/statm", "re");
	CHECK(f && fscanf(f, "%ld %ld", &size, &resident) == 2);
	if (f)
		fclose(f);
	return resident;
}

/* Part of the program that is not written to, as its code. */
static const char much[4 << 20] = { 1 };

/* How much of it is in the memory map. */
static long mapped_kb(void)
{
	char line[4096];
	long kb = -1;
	FILE *f = fopen("/proc/self/smaps", "re");
	CHECK(f != NULL);
	for (bool here = false; f && kb < 0 && fgets(line, sizeof(line), f);) {
		unsigned long from, to;
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (unsigned long)much >= from && (unsigned long)much < to;
		if (here)
			sscanf(line, "Rss: %ld kB", &kb);
	}
	if (f)
		fclose(f);
	return kb;
}

static long sum(void)
{
	long n = 0;
	for (size_t i = 0; i < sizeof(much); i += 1024)
		n += ((const volatile char *)much)[i];
	return n;
}

static void stop(void *loop)
{
	rc_loop_stop(loop);
}

__attribute__((unused)) static void pages_go(void)
{
	enum { BLOCKS = 4096, BLOCK = 8192 };
	static void *blocks[BLOCKS];
	rc_loop *loop = rc_loop_create();
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = rc_alloc(BLOCK);
		memset(blocks[i], 1, BLOCK);
	}
	for (int i = 0; i < BLOCKS - 1; i++) /* the last keeps the heap's end where it is */
		free(blocks[i]);
	long before = resident_pages();
	rc_trim_start(loop);
	for (int i = 0; i < 500 && before - resident_pages() <= BLOCKS; i++) {
		rc_loop_after(loop, 10, stop, loop);
		rc_loop_run(loop);
	}
	CHECK(before - resident_pages() > BLOCKS);
	free(blocks[BLOCKS - 1]);
	rc_loop_destroy(loop);
}

static void code_goes(void)
{
	rc_loop *loop = rc_loop_create();
	CHECK_EQ_INT(1, sum());
	CHECK(mapped_kb() >= 4096);
	rc_trim_start(loop);
	for (int i = 0; i < 500 && mapped_kb() >= 1024; i++) {
		rc_timer *t = rc_timer_start(loop, 10, 0, stop, loop);
		rc_loop_run(loop);
		rc_timer_stop(t);
	}
	CHECK(mapped_kb() < 1024);
	CHECK_EQ_INT(1, sum());
	CHECK(mapped_kb() >= 4096);
	rc_loop_destroy(loop);
}

int main(void)
{
	RUN(once_after_a_pause, "memory is given back once, some time after the last chunk");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* theirs is another malloc */
	RUN(pages_go, "free pages inside the heap go back to the system");
#endif
	RUN(code_goes, "code goes from the memory map, and is there when it is wanted again");
	return test_end();
}
