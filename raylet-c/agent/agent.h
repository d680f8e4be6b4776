/* The native agent: what Ray's dashboard agent does for a node, inside the daemon. Its parts, each behind a header of its own:
 * pages over HTTP (health, logs, Prometheus), node statistics for the head, the log and reporter services, workers' metrics,
 * tailing of logs to drivers. RAYLET_C_AGENT=stock starts Ray's own agent instead, and there is no rc_agent then.
 *
 * Nothing here asks the head before it answers, so a head that hangs does not make this node look ill. Loop thread only. */
#ifndef RC_AGENT_AGENT_H
#define RC_AGENT_AGENT_H

#include "raylet-c/agent/metrics.h"
#include "raylet-c/gcs/gcs.h"
#include "raylet-c/procs/agents.h"
#include "raylet-c/procs/process.h"
#include "raylet-c/rpc/rpc.h"

typedef struct rc_agent rc_agent;

typedef struct rc_agent_ops {
	/* Why this node does not work, or NULL. */
	const char *(*unwell)(void *ctx);
	/* Pids of the registered workers and drivers: fills up to room, returns how many there are. */
	size_t (*pids)(void *ctx, pid_t *ret, size_t room);
	/* The runtime envs of this node, as a GetRuntimeEnvsInfoReply; limit < 0: all. */
	void (*runtime_envs)(void *ctx, int64_t limit, rc_buf *out);
	/* Starts the job agent unless it runs; false: there is none. Its port is ports.job_helper_port. */
	bool (*want_jobs)(void *ctx);
	/* Adds the daemon's own figures. */
	void (*metrics)(void *ctx, rc_metrics *m);
} rc_agent_ops;

typedef struct rc_agent_options { /* strings are borrowed: they must outlive the agent */
	rc_loop *loop;
	rc_rpc *rpc;
	rc_gcs *gcs; /* connected */
	rc_procs *procs;
	const rc_dialect *dialect;
	rc_id node_id;
	rc_agent_ports ports;
	const char *node_ip, *log_dir, *temp_dir, *session_name, *python_command;
	const char *token; /* NULL: off */
	const rc_agent_ops *ops;
	void *ctx;
} rc_agent_options;

/* Opens the HTTP ports; the gRPC port is the daemon's own server (rc_agent_serve). A port of HTTP that another node's agent holds
 * is done without, with a warning. */
rc_agent *rc_agent_create(const rc_agent_options *options, rc_error *error);
/* The node is registered: addresses go to the head's key-value store, statistics are published. */
void rc_agent_alive(rc_agent *a);
/* A worker of this node has registered. */
void rc_agent_worker(rc_agent *a, pid_t pid);
/* Before rc_gcs_destroy and rc_rpc_destroy. NULL is fine. */
void rc_agent_destroy(rc_agent *a);

/* Serves a call when it is one of the agent's: true. method: of the dialect, or -1 for a path that is in no table. */
bool rc_agent_serve(rc_agent *a, rc_request *r, int method, const char *path, size_t path_n, rc_view bytes);

#endif
