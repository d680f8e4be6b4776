/* The allocator that `ray start` preloads into a raylet (jemalloc) is left behind: it gives pages back so eagerly that each
 * chunk of an object is received into pages that the kernel has to make anew, and it costs memory of its own.
 *
 * It stays where somebody wants it: a preload that Ray did not set, or a memory profile (MALLOC_CONF). */
#ifndef RC_NODE_PRELOAD_H
#define RC_NODE_PRELOAD_H

#include <stdbool.h>

/* Pure: whether a daemon with these values in its environment (NULL: unset) leaves its preload behind. by_ray is
 * RAY_LD_PRELOAD (2.35.0) or RAY_LD_PRELOAD_ON_WORKERS (2.60.0). */
bool rc_preload_left(const char *preload, const char *by_ray, const char *malloc_conf);

/* Executes the daemon again without the preload if it is to be left, else returns; it returns too when that cannot be done,
 * and all is as before. Workers' environments are made from the value in RAYLET_C_LD_PRELOAD (procs/command.h). Before any
 * thread or file descriptor exists; main thread. */
void rc_leave_preload(char *argv[]);

#endif
