#include "raylet-c/base/choices.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

bool rc_choice_native_agent(void)
{
	const char *which = getenv("RAYLET_C_AGENT");
	if (which && *which && strcmp(which, "native") != 0 && strcmp(which, "stock") != 0)
		rc_warn("RAYLET_C_AGENT=%s is neither native nor stock: it is passed over", which);
	return which && !strcmp(which, "native");
}

bool rc_choice_log_tail(void)
{
	const char *on = getenv("RAYLET_C_LOG_TAIL");
	return on && !strcmp(on, "1");
}
