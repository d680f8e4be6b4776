/* The words of `raylet-c start`: those of `ray start` for a worker node (2.35.0 and 2.60.0), and a few of our own. */
#ifndef RC_CLI_START_OPTIONS_H
#define RC_CLI_START_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "raylet-c/base/status.h"

typedef struct rc_start_options {
	/* NULL: not given. Strings point into argv. */
	const char *address, *node_ip_address, *node_name, *resources, *labels, *temp_dir, *plasma_directory, *object_spilling_directory;
	const char *worker_port_list, *labels_file;
	const char *python, *ray_dir, *daemon; /* ours: the interpreter, the ray package, the node daemon to use */
	/* -1: not given */
	int64_t num_cpus, num_gpus, memory, object_store_memory;
	/* the defaults of `ray start`: 0 (any free one), 10002..19999 for workers, 52365 for the agent */
	int64_t node_manager_port, object_manager_port, min_worker_port, max_worker_port;
	int64_t dashboard_agent_listen_port, dashboard_agent_grpc_port, metrics_export_port, runtime_env_agent_port;
	bool block, no_redirect_output, log_monitor, debugger_external, require_efa, help;
} rc_start_options;

/* 0, or -1 with a text that names the option: unknown (RC_E_NOT_FOUND), without its value or not a number (RC_E_INVALID: exit
 * status 2, as click has it), for a head only, not served here or two ports alike (RC_E_UNSUPPORTED: exit status 1). */
int rc_start_options_parse(int argc, char *const *argv, rc_start_options *ret, rc_error *error) RC_WARN_UNUSED;

/* The text of --help: what is served, then, by name, what is accepted without effect and what is refused and why. */
void rc_start_help(FILE *out);

#endif
