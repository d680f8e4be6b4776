/* The head's address when none is named, as `ray start --address=auto` looks for it. Any thread. */
#ifndef RC_CLI_ADDRESS_H
#define RC_CLI_ADDRESS_H

#include "raylet-c/base/status.h"

/* RAY_ADDRESS, else what the last start on this host wrote down: <temp>/ray_current_cluster, temp by RAY_TMPDIR, TMPDIR, /tmp. */
int rc_address_auto(char ret[256], rc_error *error) RC_WARN_UNUSED;

/* "HOST:PORT" or "[IPV6]:PORT" taken apart; the brackets do not belong to the host. */
int rc_address_split(const char *address, char ret_host[256], int *ret_port, rc_error *error) RC_WARN_UNUSED;

#endif
