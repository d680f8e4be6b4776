/* What this node does for trainers' network: it looks once, at its start, which transport NCCL will take (doctor/choice.h), refuses
 * to start when EFA is required and cannot be used, tells the choice as node label and metric, and hands train workers the
 * environment for it, which python/raylet_c/train/transport.py takes into use where the user has set nothing. What workers then
 * found to be really in use they write into the log folder, a file each, for the metric.
 *
 * RAYLET_C_REQUIRE_EFA=1: required. Loop thread, but for rc_train_look. */
#ifndef RC_NODE_TRAIN_H
#define RC_NODE_TRAIN_H

#include <sys/types.h>

#include "raylet-c/agent/metrics.h"
#include "raylet-c/base/status.h"
#include "raylet-c/doctor/choice.h"
#include "raylet-c/node/options.h"
#include "raylet-c/sched/labels.h"

#define RC_TRAIN_LABEL "raylet-c/transport"

typedef struct rc_train {
	rc_choice choice;
	char *env;     /* for RC_TRAIN_ENV (procs/command.h) */
	const char *log_dir; /* of the options */
} rc_train;

/* Before any thread exists: it forks where EFA is (doctor/probe.h). -1: EFA is required and would not be used. */
int rc_train_look(const rc_options *o, rc_train *ret, rc_error *error) RC_WARN_UNUSED;
void rc_train_free(rc_train *t);

/* RC_TRAIN_LABEL: "efa" or "tcp", unless the user gave it a value. */
void rc_train_label(const rc_train *t, rc_labels *labels);
/* train_transport_configured {transport}: 1; train_transport_workers {within, between}: how many live workers use it. Files of
 * workers that are gone are removed. */
void rc_train_metrics(const rc_train *t, rc_metrics *m);

/* Steps that the optimizers of a train worker have made (python/raylet_c/train/progress.py); -1: it counts none. */
int64_t rc_train_steps(const rc_train *t, pid_t pid);
/* Removes what a worker wrote of itself. */
void rc_train_worker_gone(const rc_train *t, pid_t pid);

#endif
