/* Short conversations of the command with a head: connect, one question, its answer, goodbye. Each blocks until then, at most
 * timeout_ms, and makes a loop and an rpc of its own; TLS and token come from the environment (rpc/security.h). Main thread of the
 * command. The error names the address. */
#ifndef RC_CLI_HEAD_H
#define RC_CLI_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/gcs/gcs.h"

typedef struct rc_head_facts {
	char release[32], python[32]; /* "" when the head does not say */
} rc_head_facts;

/* The head answers and is of a release that we know. */
int rc_head_check(const char *address, uint64_t timeout_ms, rc_head_facts *ret, rc_error *error) RC_WARN_UNUSED;

/* One value of the key-value store; free with rc_buf_free. RC_E_NOT_FOUND: no such key. */
int rc_head_value(const char *address, uint64_t timeout_ms, const char *space, const char *key, rc_buf *ret,
                  rc_error *error) RC_WARN_UNUSED;

/* Calls fn for every node that the head knows, dead ones too; node is borrowed. */
typedef void (*rc_head_node_fn)(void *arg, const rc_head_facts *head, const Rw__GcsNodeInfo *node, bool alive);
int rc_head_nodes(const char *address, uint64_t timeout_ms, rc_head_node_fn fn, void *arg, rc_error *error) RC_WARN_UNUSED;

/* Asks the head to drain a node by a deadline so many seconds away. A refusal is RC_E_INVALID. */
int rc_head_drain(const char *address, uint64_t timeout_ms, const rc_id *node, int64_t seconds, const char *text,
                  rc_error *error) RC_WARN_UNUSED;

#endif
