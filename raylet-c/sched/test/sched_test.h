/* Helpers of the tests in this folder. */
#ifndef RC_SCHED_TEST_H
#define RC_SCHED_TEST_H


#include "raylet-c/base/test.h"
#include "raylet-c/sched/amounts.h"

/* "CPU,1,GPU,0.5" */
static inline rc_amounts amounts_of(const char *list)
{
	rc_amounts a = { 0 };
	rc_error e = { 0 };
	if (rc_amounts_parse_list(list, &a, &e) < 0)
		test_fail_(__FILE__, __LINE__, e.text);
	return a;
}

static inline rc_id id_of_byte(size_t n, uint8_t byte)
{
	rc_id id = { .n = (uint8_t)n };
	memset(id.b, byte, n);
	return id;
}

static inline void check_amounts_(const char *file, int line, const char *want, const rc_amounts *got)
{
	rc_buf b = { 0 };
	rc_amounts_print(got, &b);
	test_str_(file, line, "amounts", want, rc_buf_cstr(&b));
	rc_buf_free(&b);
}
#define CHECK_AMOUNTS(want, got) check_amounts_(__FILE__, __LINE__, (want), (got))

/* A small generator, the same on every run. */
static inline uint64_t test_random(uint64_t below)
{
	static uint64_t test_random_state_ = 1;
	test_random_state_ = test_random_state_ * 6364136223846793005u + 1442695040888963407u;
	return (test_random_state_ >> 33) % below;
}

#endif
