/* Growable bytes. */
#include "raylet-c/base/buf.h"

#include <stdlib.h>

#include "raylet-c/base/test.h"

static void grows(void)
{
	rc_buf b = { 0 };

	for (int i = 0; i < 1000; i++)
		rc_buf_add(&b, "abc", 3);
	CHECK_EQ_INT(3000, b.n);
	CHECK(memcmp(b.p + 2997, "abc", 3) == 0);
	rc_buf_add(&b, NULL, 0);
	CHECK_EQ_INT(3000, b.n);
	rc_buf_free(&b);
	CHECK(b.p == NULL && b.n == 0 && b.cap == 0);
}

static void prints(void)
{
	rc_buf b = { 0 };

	rc_buf_str(&b, "a");
	rc_buf_printf(&b, "%d-%s", 12, "z");
	CHECK_EQ_INT(5, b.n);
	CHECK_STR("a12-z", rc_buf_cstr(&b));
	CHECK_EQ_INT(5, b.n);
	rc_buf_free(&b);
}

static void views(void)
{
	CHECK_EQ_INT(0, rc_view_str(NULL).n);
	CHECK(rc_view_eq(rc_view_str("ab"), rc_view_of("abc", 2)));
	CHECK(!rc_view_eq(rc_view_str("ab"), rc_view_str("ac")));
	CHECK(rc_view_eq(rc_view_str(""), (rc_view){ 0 }));
}

static void copies(void)
{
	char *a = rc_strdup("x"), *b = rc_strndup("hello", 2), *c = rc_sprintf("%s%d", "n", 5);
	unsigned char *zero = rc_alloc(16);

	CHECK_STR("x", a);
	CHECK_STR("he", b);
	CHECK_STR("n5", c);
	CHECK(rc_strdup(NULL) == NULL);
	for (int i = 0; i < 16; i++)
		CHECK_EQ_INT(0, zero[i]);
	free(a);
	free(b);
	free(c);
	free(zero);
}

int main(void)
{
	RUN(grows, "a buffer grows and frees to empty");
	RUN(prints, "printed text is appended and its NUL is not counted");
	RUN(views, "views compare by content");
	RUN(copies, "copies are NUL-terminated and allocations are zeroed");
	return test_end();
}
