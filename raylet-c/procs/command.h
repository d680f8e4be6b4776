/* The exact command and environment of a worker, as the stock raylet of each release makes them (seen in /proc and strace,
 * 2.35.0 and 2.60.0). Pure functions; any thread. */
#ifndef RC_PROCS_COMMAND_H
#define RC_PROCS_COMMAND_H

#include <stdbool.h>

#include "raylet-c/base/id.h"
#include "raylet-c/wire/dialect.h"

/* A list of strings, NULL at the end; zero-initialised = empty. */
typedef struct rc_words {
	char **v;
	size_t n, cap;
} rc_words;

void rc_words_add(rc_words *w, char *owned);
void rc_words_add_copy(rc_words *w, const char *s);
void rc_words_free(rc_words *w); /* leaves it empty */

/* Splits like a POSIX shell without expansion: blanks, '...', "..." with \" and \\, \x outside quotes. An open quote ends at
 * the end of the text. */
void rc_words_split(const char *text, rc_words *out);

/* In an environment (KEY=value words). */
const char *rc_env_get(const rc_words *env, const char *name); /* NULL: not set */
void rc_env_set(rc_words *env, const char *name, const char *value);
void rc_env_unset(rc_words *env, const char *name);
/* The daemon's own environment without LD_PRELOAD, unless RAY_LD_PRELOAD_ON_WORKERS=1 (2.60.0). When `ray start` did not set
 * the preload (2.35.0: RAY_LD_PRELOAD absent; 2.60.0: RAY_LD_PRELOAD_ON_WORKERS absent) it is the user's and stays. A daemon
 * that left its preload behind keeps the value in RAYLET_C_LD_PRELOAD; that variable is never passed on. */
#define RC_KEPT_PRELOAD "RAYLET_C_LD_PRELOAD"
void rc_env_inherit(rc_words *env);

/* Which parts of the Python package a process takes into use by itself (python/raylet_c/_seam.py). Python workers get "fsdp", unless the
 * daemon's own environment, or later a runtime env, says otherwise. For the daemon itself "0" means Ray's own (node/stock.h). */
#define RC_PARTS "RAYLET_C"
/* What python/raylet_c/train/transport.py makes the environment of trainers from (node/train.c). For Python workers, unless the
 * daemon's own environment has it. */
#define RC_TRAIN_ENV "RAYLET_C_TRAIN_ENV"

typedef struct rc_worker_command {
	/* of the node */
	const rc_dialect *dialect;
	const char *command;             /* --python_worker_command, --java_..., --cpp_... */
	const char *native_library_path; /* C++ only; may be NULL */
	int node_manager_port;
	rc_id node_id;
	bool debugger_external;
	const char *spilling_config;     /* JSON; for IO workers; NULL is "" */
	const char *train_env;           /* for RC_TRAIN_ENV; "" or NULL: none */
	const char *preload_modules;     /* "" or NULL: none */
	/* of the worker */
	int language, type;              /* RC_LANG_*, RC_WORKER or RC_SPILL_WORKER or RC_RESTORE_WORKER */
	rc_id job_id;                    /* nil: ffffffff, as stock's job-less workers have */
	const Rw__JobConfig *job_config; /* NULL: none known; Java and C++ read it */
	int64_t startup_token;           /* 2.35.0 */
	rc_id worker_id;                 /* 2.60.0 */
	int runtime_env_hash;
	const char *runtime_env_context; /* from the agent; NULL, "" or "{}": none */
	char *const *dynamic_options;
	size_t n_dynamic_options;
} rc_worker_command;

/* argv and env are filled from empty; -1: the command is empty. The env starts as rc_env_inherit. */
int rc_worker_command_build(const rc_worker_command *c, rc_words *argv, rc_words *env, rc_error *error) RC_WARN_UNUSED;

/* Replaces every occurrence of RAY_NODE_MANAGER_PORT_PLACEHOLDER; the result is the caller's. */
char *rc_command_put_port(const char *word, int port);
/* Standard base64 with padding. */
char *rc_base64(const char *text);

#endif
