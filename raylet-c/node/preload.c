/* See preload.h. The name of the executed file is the true one, not /proc/self/exe: the kernel makes the process name of it,
 * and Ray looks for "raylet". */
#include "raylet-c/node/preload.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "raylet-c/procs/command.h"

bool rc_preload_left(const char *preload, const char *by_ray, const char *malloc_conf)
{
	return preload && *preload && by_ray && !malloc_conf;
}

void rc_leave_preload(char *argv[])
{
	const char *preload = getenv("LD_PRELOAD"), *by_ray = getenv("RAY_LD_PRELOAD");
	char path[PATH_MAX];
	ssize_t n;

	if (!by_ray)
		by_ray = getenv("RAY_LD_PRELOAD_ON_WORKERS");
	if (!rc_preload_left(preload, by_ray, getenv("MALLOC_CONF")))
		return;
	n = readlink("/proc/self/exe", path, sizeof path - 1);
	if (n < 0 || setenv(RC_KEPT_PRELOAD, preload, 1) != 0 || unsetenv("LD_PRELOAD") != 0)
		return;
	path[n] = '\0';
	execv(path, argv);
	setenv("LD_PRELOAD", getenv(RC_KEPT_PRELOAD), 1);
	unsetenv(RC_KEPT_PRELOAD);
}
