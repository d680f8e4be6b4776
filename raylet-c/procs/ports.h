/* The ports that workers may listen on: --worker_port_list, or --min_worker_port to --max_worker_port, or any. Private to
 * this folder. A port is handed out only if it can be bound at that moment. Loop thread only. */
#ifndef RC_PROCS_PORTS_H
#define RC_PROCS_PORTS_H

#include <stdbool.h>

#include "raylet-c/base/status.h"

typedef struct rc__ports rc__ports;

/* list wins; min 0: any port. -1 with error for a malformed list or range. */
rc__ports *rc__ports_create(int min, int max, const char *list, rc_error *error);
void rc__ports_destroy(rc__ports *p); /* NULL is fine */
int rc__ports_take(rc__ports *p);  /* 0: any; -1: none is free now */
void rc__ports_give(rc__ports *p, int port); /* 0 is ignored */

/* Could a server listen there now? An address that is not IPv4 counts as free: the server will say. */
bool rc__port_is_free(const char *ip, int port);

#endif
