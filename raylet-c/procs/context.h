/* Runtime envs that only set variables: recognised, and applied without setup_worker.py. Pure functions; any thread. */
#ifndef RC_PROCS_CONTEXT_H
#define RC_PROCS_CONTEXT_H

#include "raylet-c/procs/command.h"

/* variables gets KEY=value words, unexpanded, in the order of the JSON text. False: the env or context does more than that
 * (or is malformed), and variables stays empty. */
bool rc_context_of_env(const char *serialized_env, rc_words *variables);  /* {"env_vars": {...}} or with "config" */
/* The agent's answer; interpreter: the first word of the worker command, which the context must not change. */
bool rc_context_is_plain(const char *context, const char *interpreter, rc_words *variables);

/* As Ray's update_envs does: $X and ${X} are replaced by what env has at that moment, an unknown ${X} by nothing. */
void rc_context_apply(const rc_words *variables, rc_words *env);

#endif
