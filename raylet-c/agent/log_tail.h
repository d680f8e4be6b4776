/* The output of this node's workers, line by line, for their drivers: what Ray's log monitor does (2.35.0 and 2.60.0:
 * ray/_private/log_monitor.py), for the workers of this node only, so that nodes which share a log folder do not tell twice.
 *
 * Files: worker-<id>-<job>-<pid>.out and .err of pids that were named by rc_log_tail_worker, and one more (the daemon's errors).
 * Lines that begin with :job_id:, :task_name: or :actor_name: are not passed on: they tell whose the lines after them are. Each
 * line is passed on once, also across truncation (the file is read from its start again) and rotation (the old file is read to
 * its end first). A last line without its end waits half a second for the rest.
 *
 * The files themselves are the queue: while MAX batches are not taken yet, nothing is read. Loop thread only. */
#ifndef RC_AGENT_LOG_TAIL_H
#define RC_AGENT_LOG_TAIL_H

#include <sys/types.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/loop.h"

typedef struct rc_log_tail rc_log_tail;

typedef struct rc_log_batch { /* borrowed for the call */
	const char *pid;  /* "123", or the name of the other file */
	const char *job;  /* hex; "" while it is not known */
	bool is_error;
	const char *actor, *task; /* "" unless known */
	char *const *lines;
	size_t n_lines;
} rc_log_batch;

/* Takes a batch; rc_log_tail_taken is to be called once it has gone, later or now. */
typedef void (*rc_log_batch_fn)(void *ctx, const rc_log_batch *batch);

/* other: one more file, told as other_name; NULL: none. Strings are copied. Without inotify the files are looked at ten times a second. */
rc_log_tail *rc_log_tail_create(rc_loop *loop, const char *folder, const char *other, const char *other_name, rc_log_batch_fn fn, void *ctx);
void rc_log_tail_destroy(rc_log_tail *t); /* NULL is fine */

void rc_log_tail_worker(rc_log_tail *t, pid_t pid); /* a worker of this node; its files are read from now on */
void rc_log_tail_taken(rc_log_tail *t);

#endif
