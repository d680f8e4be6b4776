/* What `raylet-c top` shows, gathered: this user's nodes from /proc, what nodes of ours tell about themselves (look.h), processes from
 * /proc, GPUs by NVML. One JSON object, so that text and --json cannot differ:
 *
 *   host, load: [1, 5, 15 minutes]
 *   nodes  [{node_id, address, gcs_address, daemon: raylet-c | ray, ray_version, pid, cpu_percent, pss, error, and the keys of look.h;
 *           transfers also in_per_s, out_per_s; workers also cpu_percent, rss, title, steps_per_s}]
 *   gpus   [{index, name, percent, used, total, celsius, watts}]; only where there is a driver
 *
 * Bytes; cpu_percent is of one core since the round before, 0 in the first. error: why a node's own part is missing. Loop thread. */
#ifndef RC_CLI_TOP_MODEL_H
#define RC_CLI_TOP_MODEL_H

#include <jansson.h>
#include <stdbool.h>

#include "raylet-c/base/loop.h"

typedef struct rc_top_model rc_top_model;
typedef void (*rc_top_model_fn)(void *arg, json_t *all); /* borrowed */

/* NULL: the environment's TLS or token settings cannot be used. */
rc_top_model *rc_top_model_create(rc_loop *loop, rc_error *error);
void rc_top_model_destroy(rc_top_model *m); /* NULL is fine; a round under way is given up */
/* A round: fn is called once, within about a second (a head whose nodes' ports are not known yet is waited for, 3 s at most, once in
 * 10 s; the loop stands still meanwhile). While one is under way another is not begun: false. */
bool rc_top_model_look(rc_top_model *m, rc_top_model_fn fn, void *arg);

#endif
