/* The runtime environments that this node has made or tried to make: for `ray list runtime-envs`, and to know whether the helper
 * that makes them is still needed. Ray's own agent keeps the same table (2.35.0, 2.60.0: runtime_env_agent.py). Those that nobody uses any
 * more are kept up to a number, the oldest go first. Loop thread only. */
#ifndef RC_PROCS_ENV_TABLE_H
#define RC_PROCS_ENV_TABLE_H

#include "raylet-c/wire/dialect.h"

enum { RC_ENV_TABLE_UNUSED_MAX = 200 };

typedef struct rc_env_table rc_env_table;
rc_env_table *rc_env_table_create(void);
void rc_env_table_destroy(rc_env_table *t); /* NULL is fine */

/* It was made in ms, or not: error then says why. */
void rc_env_table_made(rc_env_table *t, const char *env, uint64_t ms, const char *error);
/* Somebody uses it. by_helper: the helper counts this use as well. */
void rc_env_table_use(rc_env_table *t, const char *env, bool by_helper);
/* One use ends; true: the helper must be told. */
bool rc_env_table_leave(rc_env_table *t, const char *env);
size_t rc_env_table_helper_uses(const rc_env_table *t);

/* A GetRuntimeEnvsInfoReply; limit < 0: all. */
void rc_env_table_pack(const rc_env_table *t, const rc_dialect *d, int64_t limit, rc_buf *out);

#endif
