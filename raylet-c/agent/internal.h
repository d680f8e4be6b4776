/* What the sources of this folder share. */
#ifndef RC_AGENT_INTERNAL_H
#define RC_AGENT_INTERNAL_H

#include "raylet-c/agent/agent.h"
#include "raylet-c/agent/log_service.h"
#include "raylet-c/agent/log_tail.h"
#include "raylet-c/agent/profiler.h"
#include "raylet-c/agent/relay.h"
#include "raylet-c/agent/sample.h"
#include "raylet-c/agent/series.h"
#include "raylet-c/base/http_server.h"

typedef struct rc__sampling rc__sampling;

struct rc_agent {
	rc_agent_options o;
	bool v235;
	uint64_t interval_ms;     /* of statistics */
	uint64_t metrics_ttl_ms;  /* of a worker's gauges */
	rc_http_server *pages, *metrics, *runtime_envs;
	rc_series *series;
	rc_log_service *logs;
	rc_profiler *profiler;
	rc__sampling *sampling;   /* statistics.c */
	rc_timer *sample_timer;
	rc_log_tail *tail;        /* NULL: somebody else sends logs to drivers */
	rc_relays *relays;        /* to the job agent */
	bool publishing;          /* the head has not taken the last statistics yet */
};

/* statistics.c: samples, and what is made of them */
void rc__agent_statistics_start(rc_agent *a);
void rc__agent_statistics_end(rc_agent *a);

/* driver_logs.c */
void rc__agent_logs_start(rc_agent *a); /* when the environment asks for it */

/* pages.c */
int rc__agent_pages_open(rc_agent *a, rc_error *error) RC_WARN_UNUSED;

#endif
