/* The workers' output to their drivers: batches of the tail (log_tail.h) as messages of the head's channel of log lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/agent/internal.h"
#include "raylet-c/base/choices.h"
#include "raylet-c/base/log.h"

static void published(void *arg, const rc_error *error, const void *reply)
{
	rc_agent *a = arg;
	(void)reply;
	if (error)
		rc_warn("lines of workers did not reach their drivers: %s", error->text);
	if (a->tail)
		rc_log_tail_taken(a->tail);
}

static void publish(void *ctx, const rc_log_batch *b)
{
	rc_agent *a = ctx;
	Rw__LogBatch batch = RW__LOG_BATCH__INIT;
	Rw__PubMessage message = RW__PUB_MESSAGE__INIT, *messages[] = { &message };
	Rw__GcsPublishRequest request = RW__GCS_PUBLISH_REQUEST__INIT;
	batch.ip = (char *)a->o.node_ip;
	batch.pid = (char *)b->pid;
	batch.job_id = (char *)b->job;
	RC_SET(batch, is_error, b->is_error);
	batch.actor_name = *b->actor ? (char *)b->actor : NULL;
	batch.task_name = *b->task ? (char *)b->task : NULL;
	batch.lines = (char **)b->lines;
	batch.n_lines = b->n_lines;
	RC_SET(message, channel_type, rc_enum_value(a->o.dialect, RC_V_CHANNEL_LOG));
	RC_SET_BYTES(message, key_id, b->job, strlen(b->job));
	message.log_batch_message = &batch;
	request.pub_messages = messages;
	request.n_pub_messages = 1;
	rc_gcs_call(a->o.gcs, RC_M_GCS_PUBLISH, &request, &rw__gcs_publish_reply__descriptor, published, a);
}

/* Where this process's errors go, when that is a file. */
static const char *own_errors(char path[4096])
{
	struct stat st;
	ssize_t n = readlink("/proc/self/fd/2", path, 4095);
	if (n <= 0)
		return NULL;
	path[n] = '\0';
	return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? path : NULL;
}

void rc__agent_logs_start(rc_agent *a)
{
	char path[4096];
	if (rc_choice_log_tail())
		a->tail = rc_log_tail_create(a->o.loop, a->o.log_dir, own_errors(path), "raylet", publish, a);
}

void rc_agent_worker(rc_agent *a, pid_t pid)
{
	if (a->tail)
		rc_log_tail_worker(a->tail, pid);
}
