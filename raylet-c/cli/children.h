/* The processes that `raylet-c start` makes and, with --block, watches. Main thread of the command. */
#ifndef RC_CLI_CHILDREN_H
#define RC_CLI_CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

#include "raylet-c/base/status.h"

typedef struct rc_child_spec {
	char *const *words;       /* argv; words[0] is executed as it stands */
	const char *const *env;   /* "NAME=value" pairs added to the environment, NULL-terminated; a set variable is replaced */
	const char *out, *err;    /* files that stdout and stderr are appended to; NULL: inherited; "/dev/null" */
	bool die_with_us;         /* killed when this process ends (--block) */
} rc_child_spec;

/* The pid, or -1 (also when the program cannot be executed: the error names it). SIGINT is blocked in the child, as in those
 * of `ray start`; stdin is /dev/null; no other descriptor is inherited. */
pid_t rc_child_start(const rc_child_spec *spec, rc_error *error);

/* 1 and the wait status when pid has ended, 0 while it runs. */
int rc_child_ended(pid_t pid, int *ret_status);

/* SIGTERM, then SIGKILL after grace_ms; returns when it is gone. */
void rc_child_stop(pid_t pid, int grace_ms);

#endif
