/* Connections that are handed on to a helper process which speaks HTTP itself (WebSockets too): bytes go both ways until both
 * sides have ended. The helper is started with the first one and waited for. At most 64 at a time; a side that does not read
 * holds up the other after 256 KiB. Loop thread only. */
#ifndef RC_AGENT_RELAY_H
#define RC_AGENT_RELAY_H

#include "raylet-c/base/http_server.h"

typedef struct rc_relays rc_relays;

/* want: starts the helper unless it runs; false: there is none. ip is copied. */
rc_relays *rc_relays_create(rc_loop *loop, const char *ip, int port, bool (*want)(void *ctx), void *ctx);
void rc_relays_destroy(rc_relays *r); /* closes them; NULL is fine */

/* Takes the call over. */
void rc_relay(rc_relays *r, rc_http_call *call);

#endif
