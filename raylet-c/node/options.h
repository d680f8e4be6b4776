/* The command line of the stock raylet, as `ray start` of 2.35.0 and 2.60.0 writes it: gflags spelling, `-` and `_` alike in
 * names, `--name=value`, `--name value` or `--switch`. */
#ifndef RC_NODE_OPTIONS_H
#define RC_NODE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/status.h"

typedef struct rc_options {
	/* strings point into argv; an absent one is "" */
	const char *raylet_socket_name, *store_socket_name, *node_ip_address, *node_id, *node_name;
	const char *static_resource_list, *labels, *worker_port_list;
	const char *python_worker_command, *java_worker_command, *cpp_worker_command, *native_library_path;
	const char *dashboard_agent_command, *runtime_env_agent_command;
	const char *temp_dir, *session_dir, *log_dir, *resource_dir, *plasma_directory, *fallback_directory;
	const char *gcs_address, *session_name, *cluster_id, *stdout_filepath, *stderr_filepath;
	const char *cgroup_path, *system_pids;
	int64_t object_manager_port, node_manager_port, min_worker_port, max_worker_port, maximum_startup_concurrency;
	int64_t metrics_agent_port, metrics_export_port, runtime_env_agent_port, dashboard_agent_listen_port;
	int64_t object_store_memory, num_prestart_python_workers, ray_debugger_external;
	int64_t system_reserved_cpu_weight, system_reserved_memory_bytes;
	bool head, huge_pages, enable_resource_isolation;
} rc_options;

/* 0, or -1 with a text that names the flag: unknown, without its value, not a number, needed and missing. */
int rc_options_parse(int argc, char *const *argv, rc_options *ret, rc_error *error) RC_WARN_UNUSED;

#endif
