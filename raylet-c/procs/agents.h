/* The node's helper processes: dashboard agent and runtime-env agent, from the commands in the daemon's flags; with the native
 * agent the latter and the job agent (python/raylet_c/job_agent.py), each when it is wanted.
 *
 * Stock's contract (2.35.0 and 2.60.0): environment + RAY_NODE_ID, RAY_RAYLET_PID and
 * RAY_enable_pipe_based_agent_to_parent_health_check=1, stdin a pipe held by the daemon, 2.35.0: "--agent-id N" at the end.
 * Different from stock: ports that are 0 in the commands are chosen here before anything starts (so that the node registers
 * at once with ports that stay true), the port files of 2.60.0 are written here too, and a helper that dies is started
 * again on the same ports instead of taking the node down. Loop thread only. */
#ifndef RC_PROCS_AGENTS_H
#define RC_PROCS_AGENTS_H

#include "raylet-c/base/id.h"
#include "raylet-c/procs/process.h"
#include "raylet-c/wire/dialect.h"

typedef struct rc_agents rc_agents;

/* Ports as the node registers them (RegisterNode); -1: service off (2.60.0 --minimal has no HTTP). */
typedef struct rc_agent_ports {
	int metrics_agent_port;  /* gRPC of the dashboard agent: --dashboard-agent-port (2.35.0), --grpc-port (2.60.0) */
	int metrics_export_port, dashboard_agent_listen_port, runtime_env_agent_port;
	int job_helper_port;         /* of the job agent; -1: there is none */
	int runtime_env_helper_port; /* where the runtime-env agent listens: the same, or its own when the daemon has that one */
} rc_agent_ports;

typedef struct rc_agents_options {
	const rc_dialect *dialect;
	rc_procs *procs;
	const char *dashboard_agent_command, *runtime_env_agent_command; /* "" or NULL: none */
	/* The daemon is the dashboard agent itself, and has the port of the runtime-env agent: the first command only tells ports, the
	 * second is run when it is wanted (rc_agents_want_runtime_env), on a port of its own, until it was idle for a minute. */
	bool native;
	bool (*runtime_env_busy)(void *arg); /* with native: it is still needed */
	const char *session_dir, *log_dir, *session_name, *gcs_address, *cluster_id;
	const char *node_ip;
	rc_id node_id;
	int node_manager_port;
	bool (*busy)(void *arg); /* NULL: never; true: something that is waited for needs the processor, so they start later */
	void *busy_arg; /* of both */
} rc_agents_options;

/* Chooses the ports in the commands: bind-tested, outside the kernel's ephemeral range where possible. May be called before
 * the node manager port is known. A fixed port that is taken is an error that names option and port. */
int rc_agents_choose_ports(const rc_agents_options *options, rc_agent_ports *ret, rc_error *error) RC_WARN_UNUSED;

/* Writes the port files (2.60.0) and starts both helpers. A helper whose exec fails is logged and tried again later. */
rc_agents *rc_agents_start(rc_loop *loop, const rc_agents_options *options, const rc_agent_ports *ports);
/* SIGTERM to both, EOF on their stdin; fn when both are gone or after grace_ms (then they were killed). */
void rc_agents_stop(rc_agents *a, unsigned grace_ms, rc_task_fn fn, void *arg);
void rc_agents_destroy(rc_agents *a);   /* NULL is fine */
/* With native: starts the runtime-env agent unless it runs. */
void rc_agents_want_runtime_env(rc_agents *a);
/* With native: starts the job agent unless it runs; it ends by itself. False: there is none. */
bool rc_agents_want_jobs(rc_agents *a);
/* With native: it has answered, so it is up, and has written its own port into the port file of 2.60.0: ours goes there again. */
void rc_agents_runtime_env_answered(rc_agents *a);
pid_t rc_agents_dashboard_pid(const rc_agents *a); /* 0: not running now */
pid_t rc_agents_runtime_env_pid(const rc_agents *a);

#endif
