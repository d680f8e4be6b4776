/* grpc.health.v1.Health/Check, answered without the loop: the head takes a node for dead after a few late answers (both
 * releases: every 3 s, five misses; the request names the node id in hex). No state; any thread. */
#ifndef RC_RPC_HEALTH_H
#define RC_RPC_HEALTH_H

#include "raylet-c/base/buf.h"

#define RC__HEALTH_PATH "/grpc.health.v1.Health/Check"

/* Reads HealthCheckRequest: field 1, the service's name (borrowed from the request; empty when absent). False: malformed. */
bool rc__health_service(rc_view request, rc_view *service);
/* HealthCheckResponse: field 1, status, 1 serving or 2 not serving. A static array. */
rc_view rc__health_response(bool serving);

#endif
