/* Everything that is decided about a node before its processes start, and the command lines that follow from it: exactly what
 * `ray start` of the head's release gives to its raylet and log monitor (order and spelling included: tools find a node by
 * them). Facts: ray/_private/services.py of 2.35.0 and 2.60.0, and the command lines of running nodes (test/plan.c).
 * Pure functions over plain data; any thread. */
#ifndef RC_CLI_PLAN_H
#define RC_CLI_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/status.h"

typedef struct rc_plan {
	bool v235; /* the release is 2.35.0; else 2.60.0 */
	/* All owned, never NULL; free with rc_plan_free. */
	char *daemon, *ray_dir, *python;
	char *gcs_address, *cluster_id, *session_name, *webui;
	char *node_id, *node_ip, *node_name;
	char *temp_dir, *session_dir, *log_dir, *resource_dir, *raylet_socket, *store_socket;
	char *resources; /* "a,3,node:127.0.0.1,1.0,CPU,2,..." */
	char *labels;    /* JSON, or "" */
	char *plasma_dir, *fallback_dir, *worker_port_list; /* the last "": none */
	/* Log files of the processes: "" when the output is not redirected (or, in 2.35.0, is redirected by the starter). */
	char *raylet_out, *raylet_err, *agent_out, *agent_err, *agent_log, *env_out, *env_err, *env_log, *monitor_out, *monitor_err;
	int64_t num_cpus, object_store_memory, maximum_startup_concurrency;
	int64_t object_manager_port, node_manager_port, min_worker_port, max_worker_port;
	int64_t metrics_agent_port, metrics_export_port, runtime_env_agent_port, dashboard_agent_listen_port;
	int64_t rotate_bytes, rotate_backups;
	bool debugger_external;
	bool redirect, minimal, java; /* minimal: the dashboard's Python packages are missing; java: a Java with Ray's jars is there */
} rc_plan;

void rc_plan_free(rc_plan *p);

/* NULL-terminated; free with rc_words_free. */
char **rc_plan_raylet_words(const rc_plan *p);
char **rc_plan_log_monitor_words(const rc_plan *p);
void rc_words_free(char **words);

/* One string that the daemon takes apart again: words with white space, and empty ones, in double quotes. */
char *rc_words_join(char *const *words);

/* The resource list of --static_resource_list. custom: JSON object text of --resources or NULL; env: that of
 * RAY_OVERRIDE_RESOURCES, which wins, or NULL. *cpus etc. come in as given or found, and go out as overridden. gpu_type "": none.
 * The error names the resource: reserved names, fractions, negative or too large amounts, not an object. */
typedef struct rc_amounts {
	int64_t cpus, gpus, memory, object_store_memory; /* -1: not decided yet (in), left alone (out) */
} rc_amounts;
int rc_resources_override(const char *env, rc_amounts *amounts, rc_error *error) RC_WARN_UNUSED;
int rc_resources_text(const char *custom, const char *env, const rc_amounts *amounts, const char *node_ip, const char *gpu_type, char **ret,
                      rc_error *error) RC_WARN_UNUSED;

/* The defaults of the environment (2.60.0), the text of a --labels-file or NULL (2.60.0: flat YAML, see labels_file.h), --labels or
 * NULL (2.60.0: k=v,k=v or JSON; 2.35.0: JSON), then RAY_OVERRIDE_LABELS, as one JSON text; what comes later wins. "": none. */
int rc_labels_text(bool v235, const char *file, const char *given, const char *gpu_type, char **ret, rc_error *error) RC_WARN_UNUSED;

#endif
