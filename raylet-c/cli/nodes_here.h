/* The worker nodes that run on this host as this user, found in /proc: node daemons by their command line (any Ray node has
 * --node_id= and --gcs-address= there: ray/_private/services.py of 2.35.0 and 2.60.0), and what `raylet-c start` made by a
 * variable that it gives to its children. A process of another user is never looked into. Main thread of the command. */
#ifndef RC_CLI_NODES_HERE_H
#define RC_CLI_NODES_HERE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "raylet-c/base/status.h"

/* In the environment of daemon and log monitor: the node's id. Workers inherit it; a node that one of them starts has an id of
 * its own, so it is not taken for ours. */
#define RC_STARTED_VARIABLE "RAYLET_C_STARTED"

enum { RC_NODES_HERE_MOST = 1000 };

typedef struct rc_node_here {
	char *node_id, *ip, *gcs_address, *session_dir; /* never NULL */
	char *agent_listen_port, *agent_grpc_port, *metrics_export_port, *runtime_env_agent_port; /* as on the command line, "" when not */
	pid_t daemon;
	pid_t monitor, starter; /* 0: none; starter: `raylet-c start --block` */
	bool started;           /* by `raylet-c start` */
	bool ours;              /* our daemon; else Ray's own */
} rc_node_here;

/* proc: "/proc" but in tests. At most RC_NODES_HERE_MOST. Free with rc_nodes_here_free. */
int rc_nodes_here(const char *proc, rc_node_here **ret, size_t *ret_n, rc_error *error) RC_WARN_UNUSED;
void rc_nodes_here_free(rc_node_here *nodes, size_t n);

#endif
