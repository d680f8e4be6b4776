/* LogService: ListLogs and StreamLog, by which `ray logs`, the state API and the dashboard read the log folder. Loop thread only.
 *
 * StreamLog (2.35.0 and 2.60.0: ray/dashboard/modules/log/log_agent.py): `lines` last lines (absent or 0: 1000, -1: all) of what
 * lies between start_offset and end_offset, in parts of 64 KiB; with keep_alive on to what is written later, looked for every
 * `interval` seconds. A file that is not there is told in the initial metadata `log_grpc_status`, with status OK. */
#ifndef RC_AGENT_LOG_SERVICE_H
#define RC_AGENT_LOG_SERVICE_H

#include "raylet-c/base/loop.h"
#include "raylet-c/rpc/rpc.h"
#include "raylet-c/wire/dialect.h"

typedef struct rc_log_service rc_log_service;
/* Strings are copied. */
rc_log_service *rc_log_service_create(rc_loop *loop, const rc_dialect *dialect, const char *log_dir);
/* Before rc_rpc_destroy; streams that are open end with it. NULL is fine. */
void rc_log_service_destroy(rc_log_service *s);

void rc_log_service_list(rc_log_service *s, rc_request *r, rc_view bytes);
void rc_log_service_stream(rc_log_service *s, rc_request *r, rc_view bytes);

#endif
