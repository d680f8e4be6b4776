/* Which preloads a daemon leaves behind. */
#include "raylet-c/node/preload.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static void which(void)
{
	CHECK(rc_preload_left("/ray/core/libjemalloc.so", "1", NULL));
	CHECK(rc_preload_left("/ray/core/libjemalloc.so", "0", NULL)); /* 2.60.0: not for workers */
	CHECK(!rc_preload_left("/ray/core/libjemalloc.so", "1", "prof:true"));
	CHECK(!rc_preload_left("/opt/own.so", NULL, NULL));
	CHECK(!rc_preload_left("", "1", NULL));
	CHECK(!rc_preload_left(NULL, "1", NULL));
}

static void again(void) /* of this very program: LD_PRELOAD is gone there, its value kept */
{
	CHECK(getenv("LD_PRELOAD") == NULL);
	CHECK_STR("libc.so.6", getenv("RAYLET_C_LD_PRELOAD"));
}

int main(int argc, char *argv[])
{
	if (argc > 1 && strcmp(argv[1], "again") == 0 && getenv("RAYLET_C_LD_PRELOAD")) {
		RUN(again, "executed again without the preload");
		return test_end();
	}
	RUN(which, "a preload by Ray is left behind, a user's own and a memory profile's are not");
	setenv("LD_PRELOAD", "libc.so.6", 1);
	setenv("RAY_LD_PRELOAD", "1", 1);
	rc_leave_preload((char *[]){ argv[0], (char *)"again", NULL });
	return 1; /* it did not execute itself */
}
