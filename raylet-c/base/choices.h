/* Choices that the environment makes and that the daemon and the `raylet-c` command must understand alike. Any thread. */
#ifndef RC_BASE_CHOICES_H
#define RC_BASE_CHOICES_H

#include <stdbool.h>

/* RAYLET_C_AGENT: native (the daemon is the node's agent) or stock (Ray's own process, the default). Another word is logged, and
 * counts as none. */
bool rc_choice_native_agent(void);

/* RAYLET_C_LOG_TAIL=1: the daemon sends its workers' output to the drivers. `raylet-c start` sets it in the place of Ray's log
 * monitor; `ray start` runs that one by itself, so there it must not be set. */
#define RC_CHOICE_LOG_TAIL "RAYLET_C_LOG_TAIL=1"
bool rc_choice_log_tail(void);

#endif
