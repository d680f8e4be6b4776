/* A sample as the JSON that the head's dashboard reads from the channel of node statistics, in the form of a release. Keys and
 * units: ray/dashboard/modules/reporter/reporter_agent.py (2.35.0, 2.60.0) and reporter_models.py (2.60.0), and payloads of
 * stock nodes. Pure; any thread. */
#ifndef RC_AGENT_PAYLOAD_H
#define RC_AGENT_PAYLOAD_H

#include "raylet-c/agent/sample.h"

void rc_payload_write(const rc_sample *sample, bool v235, const char *ip, rc_buf *out);

#endif
