/* One process as /proc shows it, with the figures and units of the psutil package that Ray's own agents use (2.35.0 and 2.60.0:
 * ray/dashboard/modules/reporter/reporter_agent.py). No state but the processor time of the last look. Any thread; one at a time
 * for one table. */
#ifndef RC_AGENT_PROCESSES_H
#define RC_AGENT_PROCESSES_H

#include <sys/types.h>

#include "raylet-c/base/buf.h"

typedef struct rc_process_info {
	pid_t pid;
	uint64_t start_ticks;     /* since boot: with the pid, who it is */
	double create_time;       /* seconds since 1970 */
	double cpu_percent;       /* of one core since the last look; 0 at the first */
	double user, system, children_user, children_system, iowait; /* seconds */
	uint64_t rss, vms, shared, text, data; /* bytes */
	bool has_full;
	uint64_t uss, pss, swap;  /* bytes, of smaps_rollup */
	int num_fds;              /* -1: not to be seen */
	rc_buf cmdline;           /* words, a NUL behind each; trailing empty ones (of a changed title) are left out */
	unsigned gpu_memory_mb, gpu_percent;
} rc_process_info;

typedef struct rc_process_table rc_process_table; /* remembers processor times between looks */
rc_process_table *rc_process_table_create(void);
void rc_process_table_destroy(rc_process_table *t); /* NULL is fine */

/* False: there is no such process, or it is a zombie. full: also smaps_rollup, which takes the kernel a while. The caller
 * frees it. */
bool rc_process_look(rc_process_table *t, pid_t pid, bool full, rc_process_info *ret);
void rc_process_info_free(rc_process_info *p);
/* After a round of looks: forgets the processes that were not looked at in it. */
void rc_process_table_sweep(rc_process_table *t);

#endif
