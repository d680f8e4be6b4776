/* Lineage marks (process.h says what they are): reading, setting, and killing by mark. Private to this folder.
 * Nothing here allocates or locks, since the guardian and a child between fork and exec use it. */
#ifndef RC_PROCS_LINEAGE_H
#define RC_PROCS_LINEAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* bit 62, then 30 bits for the daemon, then 32 bits for its child */
#define RC__MARK_DAEMON_BITS 0xffffffff00000000ULL

uint64_t rc__mark_new_daemon(void);    /* random; child bits 0 */
int rc__mark_set_self(uint64_t mark);  /* 0 or errno */
uint64_t rc__mark_of(pid_t pid);       /* 0: none, or no such process */
bool rc__pid_running(pid_t pid);       /* false for zombies whose threads are all gone */

/* Calls fn for every pid in /proc. */
void rc__each_pid(void (*fn)(void *arg, pid_t pid), void *arg);

/* SIGKILL to pid if it still bears mark (compared under bits); safe against reuse of pids. True: it was running. */
bool rc__mark_kill(pid_t pid, uint64_t mark, uint64_t bits);
/* One pass over /proc: SIGKILL to all with the mark under bits. Returns how many were running. */
size_t rc__mark_kill_all(uint64_t mark, uint64_t bits);

int rc__pidfd_open(pid_t pid); /* -1 with errno */
int rc__close_from(int first); /* closes all descriptors from first on */

#endif
