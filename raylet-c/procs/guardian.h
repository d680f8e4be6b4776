/* The guardian as process.c sees it. Private to this folder; the public part is rc_guardian_start in process.h. */
#ifndef RC_PROCS_GUARDIAN_H
#define RC_PROCS_GUARDIAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "raylet-c/base/status.h"

uint64_t rc__guardian_mark(void);         /* the daemon's mark, the same for its whole life */
bool rc__guardian_ended(pid_t pid);       /* true when this reaped child was the guardian */
int rc__guardian_restart(rc_error *error);
void rc__guardian_stop(void);             /* lets it do its work and end */

#endif
