/* Memory that the processes of one host share: a memfd (which no limit of /dev/shm touches), opened by peers through
 * /proc/PID/fd/N. A random key in its first page shows a peer that it has opened the memory meant. Any thread. */
#ifndef RC_COMM_SHM_SEGMENT_H
#define RC_COMM_SHM_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raylet-c/base/status.h"

/* Which process, so that another host, another pid namespace and a reused pid are told apart. */
typedef struct rc__process {
	char boot[40];   /* of /proc/sys/kernel/random/boot_id */
	char pids[40];   /* the pid namespace, "pid:[4026531836]" */
	int64_t pid;
	uint64_t start;  /* clock ticks since boot */
} rc__process;

int rc__process_self(rc__process *self, rc_error *error);
/* RC_E_UNSUPPORTED: other runs on another host or in another pid namespace than self. */
int rc__process_reachable(const rc__process *self, const rc__process *other, rc_error *error);
/* fd: a pidfd of it, or -1 where the kernel has none. */
bool rc__process_lives(const rc__process *process, int fd);

/* What a peer needs to open a segment of a process that it knows. Plain bytes. */
typedef struct rc__segment_name {
	unsigned char key[16];
	uint64_t bytes;
	int32_t fd;
	uint32_t unused;
} rc__segment_name;

typedef struct rc__segment {
	rc__segment_name name; /* fd: -1 once closed */
	char *base;            /* NULL: none; aligned to 4096 */
} rc__segment;

/* Zeroed and backed by pages: RC_E_NO_MEMORY where the host or the cgroup has no room for it. */
int rc__segment_create(size_t bytes, rc__segment *segment, rc_error *error);
/* Peers that have opened it keep it. */
void rc__segment_close_fd(rc__segment *segment);
/* Accepts one that is all zero. */
void rc__segment_destroy(rc__segment *segment);

/* Maps a peer's segment while its fd is open. */
int rc__segment_open(const rc__process *owner, const rc__segment_name *name, char **base, rc_error *error);
void rc__segment_unmap(char *base, size_t bytes); /* base may be NULL */

#endif
