/* Errors carry code and text. */
#include "raylet-c/base/status.h"

#include <errno.h>

#include "raylet-c/base/test.h"

static void fills(void)
{
	rc_error e = { 0 };

	CHECK_EQ_INT(-1, rc_fail(&e, RC_E_FULL, "%s %d", "slot", 3));
	CHECK_EQ_INT(RC_E_FULL, e.code);
	CHECK_STR("slot 3", e.text);
	CHECK_EQ_INT(-1, rc_fail(NULL, RC_E_FULL, "nobody looks"));
}

static void adds_errno(void)
{
	rc_error e = { 0 };

	errno = ENOENT;
	CHECK_EQ_INT(-1, rc_fail_errno(&e, "cannot open %s", "/x"));
	CHECK_EQ_INT(RC_E_SYSTEM, e.code);
	CHECK_STR("cannot open /x: No such file or directory", e.text);
	CHECK_EQ_INT(ENOENT, errno);
}

static void wraps_itself(void)
{
	rc_error e = { 0 };

	rc_fail(&e, RC_E_INVALID, "inner");
	rc_fail(&e, RC_E_INVALID, "outer: %s", e.text);
	CHECK_STR("outer: inner", e.text);
}

static void cuts_long_text(void)
{
	rc_error e = { 0 };
	char big[1000];

	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = 0;
	errno = EIO;
	rc_fail_errno(&e, "%s", big);
	CHECK_EQ_INT(sizeof e.text - 1, strlen(e.text));
}

int main(void)
{
	RUN(fills, "a failure fills code and text and returns -1");
	RUN(adds_errno, "a failed system call ends the text with its reason and leaves errno alone");
	RUN(wraps_itself, "an error may be made from its own text");
	RUN(cuts_long_text, "a text that is too long is cut");
	return test_end();
}
