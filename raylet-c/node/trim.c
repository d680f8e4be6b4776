/* See trim.h. */
#include "raylet-c/node/trim.h"

#include <malloc.h>

bool rc_trim_due(rc_trim *t, uint64_t bytes)
{
	t->quiet = bytes == t->seen ? t->quiet + 1 : 0;
	t->seen = bytes;
	if (bytes == t->given_back || t->quiet < RC_TRIM_LOOKS)
		return false;
	t->given_back = bytes;
	return true;
}

static void give_back(void *arg)
{
	(void)arg;
	malloc_trim(0);
}

void rc_trim_start(rc_loop *loop)
{
	rc_loop_work(loop, give_back, NULL, NULL);
}
