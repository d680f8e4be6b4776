/* Unit tests: one small program per module, TAP on stdout. A test is a function; its name in the output is a sentence about
 * behaviour. A failed check prints where and what, and the test goes on, so that one run shows all that is wrong.
 *
 *   static void keeps_order(void) { CHECK(1 < 2); CHECK_EQ_INT(2, 1 + 1); CHECK_STR("a", name); }
 *   int main(void) { RUN(keeps_order, "posts run in the order they were made"); return test_end(); }
 *
 * RC_TEST=TEXT in the environment runs only the tests whose sentence holds the text.
 */
#ifndef RC_BASE_TEST_H
#define RC_BASE_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_count_, test_failed_;
static bool test_bad_;

static inline void test_fail_(const char *file, int line, const char *text)
{
	test_bad_ = true;
	printf("# %s:%d: %s\n", file, line, text);
}

static inline void test_int_(const char *file, int line, const char *what, long long want, long long got)
{
	if (want == got)
		return;
	test_bad_ = true;
	printf("# %s:%d: %s is %lld, not %lld\n", file, line, what, got, want);
}

static inline void test_str_(const char *file, int line, const char *what, const char *want, const char *got)
{
	if (want == got || (want && got && strcmp(want, got) == 0))
		return;
	test_bad_ = true;
	printf("# %s:%d: %s is '%s', not '%s'\n", file, line, what, got ? got : "(null)", want ? want : "(null)");
}

static inline void test_run_(void (*fn)(void), const char *sentence)
{
	const char *only = getenv("RC_TEST");
	if (only && !strstr(sentence, only))
		return;
	test_bad_ = false;
	fn();
	test_count_++;
	test_failed_ += test_bad_;
	printf("%sok %d - %s\n", test_bad_ ? "not " : "", test_count_, sentence);
	fflush(stdout);
}

static inline int test_end(void)
{
	printf("1..%d\n", test_count_);
	return test_failed_ ? 1 : 0;
}

#define CHECK(cond) ((cond) ? (void)0 : test_fail_(__FILE__, __LINE__, "not true: " #cond))
#define CHECK_EQ_INT(want, got) test_int_(__FILE__, __LINE__, #got, (long long)(want), (long long)(got))
#define CHECK_STR(want, got) test_str_(__FILE__, __LINE__, #got, (want), (got))
#define RUN(fn, sentence) test_run_((fn), (sentence))

#endif
