/* A sample as the gauges that Ray's agents export (names: METRICS_GAUGES of reporter_agent.py, 2.35.0 and 2.60.0), into the
 * series. Loop thread only. */
#ifndef RC_AGENT_GAUGES_H
#define RC_AGENT_GAUGES_H

#include "raylet-c/agent/metrics.h"
#include "raylet-c/agent/sample.h"
#include "raylet-c/agent/series.h"

typedef struct rc_gauges_options {
	bool v235;
	const char *ip, *session_name, *release;
	uint64_t ttl_ms;
} rc_gauges_options;

void rc_gauges_from_sample(rc_series *s, const rc_sample *sample, const rc_gauges_options *o);
/* The daemon's own figures. */
void rc_gauges_from_metrics(rc_series *s, const rc_metrics *m, uint64_t ttl_ms);

#endif
