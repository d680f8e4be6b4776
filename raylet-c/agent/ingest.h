/* Metrics that workers send, into the series. Both formats are fixed standards whose numbers do not move between Ray releases:
 * opencensus.proto.metrics.v1 in ReporterService/ReportOCMetrics (2.35.0), opentelemetry.proto.collector.metrics.v1 in
 * MetricsService/Export (2.60.0). What is not understood in them is passed over. Loop thread only. */
#ifndef RC_AGENT_INGEST_H
#define RC_AGENT_INGEST_H

#include "raylet-c/agent/series.h"

/* False: malformed; what came before that counts. */
bool rc_ingest_opencensus(rc_series *s, rc_view request, uint64_t ttl_ms);
/* gauge_ttl_ms is for gauges, ttl_ms for what adds up. */
bool rc_ingest_opentelemetry(rc_series *s, rc_view request, uint64_t gauge_ttl_ms, uint64_t ttl_ms);

#endif
