/* Runtime environments: asks the runtime-env agent to make one and to drop it, over HTTP on the node.
 *
 * POST /get_or_create_runtime_env and /delete_runtime_env_if_possible, protobuf bodies, answer 200 with a protobuf whose
 * status is 0 for OK (both releases; ray/_private/runtime_env/agent/main.py). The agent counts references by
 * source_process "raylet": every successful get must be matched by one delete, which this module's users do.
 * While the agent starts (connection refused) a request is tried again, up to agent_register_timeout_ms. Loop thread only. */
#ifndef RC_PROCS_RUNTIME_ENV_H
#define RC_PROCS_RUNTIME_ENV_H

#include "raylet-c/base/loop.h"
#include "raylet-c/base/http.h"
#include "raylet-c/wire/dialect.h"

typedef struct rc_runtime_envs rc_runtime_envs;

typedef struct rc_runtime_envs_options {
	const rc_dialect *dialect;
	const char *ip;   /* the node's address: 2.60.0's agent listens there only */
	int port;
	const char *token; /* 2.60.0 token mode: sent as Authorization: Bearer; NULL: off */
	unsigned start_timeout_ms; /* how long an agent that cannot be reached is tried; 0: 30 s */
	/* The agent runs only when it is needed: called before each request, and when one was answered. NULL: it always runs. */
	void (*wanted)(void *ctx);
	void (*answered)(void *ctx);
	void *ctx;
} rc_runtime_envs_options;

rc_runtime_envs *rc_runtime_envs_create(rc_loop *loop, const rc_runtime_envs_options *options);
/* Callbacks come with an error before it returns. NULL is fine. */
void rc_runtime_envs_destroy(rc_runtime_envs *e);

/* True when there is nothing to make: NULL, "" or "{}". */
bool rc_runtime_env_is_none(const Rw__RuntimeEnvInfo *info);
/* What --runtime-env-hash carries and workers are matched by; 0 for none. */
int rc_runtime_env_hash(const Rw__RuntimeEnvInfo *info);

/* context: the serialized runtime env context for setup_worker.py, or NULL with the agent's error text. Never from inside. */
typedef void (*rc_runtime_env_fn)(void *arg, const char *context, const char *error);
void rc_runtime_env_get(rc_runtime_envs *e, const Rw__RuntimeEnvInfo *info, const rc_id *job, rc_runtime_env_fn fn, void *arg);
/* The same for an env that this daemon applies itself (context.h): without `wanted` the agent is told of it, for its counts and
 * `ray list runtime-envs`; with it, it is only counted here. */
void rc_runtime_env_count(rc_runtime_envs *e, const Rw__RuntimeEnvInfo *info, const rc_id *job, rc_runtime_env_fn fn, void *arg);
/* One for each get or count that succeeded. A failure is logged. */
void rc_runtime_env_put(rc_runtime_envs *e, const char *serialized);

/* Requests are open, or envs that the agent made are in use. */
bool rc_runtime_envs_busy(const rc_runtime_envs *e);
/* What is known of envs, as the answer to the state API: a GetRuntimeEnvsInfoReply; limit < 0: all. Without `wanted` the agent
 * knows more. */
void rc_runtime_envs_pack(const rc_runtime_envs *e, int64_t limit, rc_buf *out);

#endif
