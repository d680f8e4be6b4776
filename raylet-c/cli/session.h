/* A node's folders and files as `ray start` lays them (2.35.0 and 2.60.0: ray/_private/node.py): session folder with sockets,
 * logs and run-time resources, open to all users; session_latest; names that no other node of the session uses; 2.35.0's two
 * JSON files. Blocking; main thread of the command. */
#ifndef RC_CLI_SESSION_H
#define RC_CLI_SESSION_H

#include "raylet-c/cli/plan.h"

/* Fills p->session_dir, log_dir, resource_dir, raylet_socket, store_socket and the log files from p->temp_dir,
 * p->session_name, p->v235 and p->redirect; makes the folders. The error names the path: not absolute, not writable, or a
 * socket's path longer than 107 bytes. */
int rc_session_make(rc_plan *p, rc_error *error) RC_WARN_UNUSED;

/* 2.35.0: picks the agents' ports where they are 0 and keeps them in ports_by_node.json; writes node_ip_address.json. Both files
 * are shared by the nodes of a session and locked as Ray's Python locks them (flock on FILE.lock). */
int rc_session_ports_2_35(rc_plan *p, rc_error *error) RC_WARN_UNUSED;

/* <temp_dir>/ray_current_cluster: what ray.init() on this host connects to. */
int rc_session_remember(const rc_plan *p, rc_error *error) RC_WARN_UNUSED;

#endif
