/* Metrics of the daemon itself, for whoever serves them to Prometheus: the native agent takes them as they are, Ray's own one by
 * OpenCensus messages to ReporterService/ReportOCMetrics in 2.35.0, by OpenTelemetry's MetricsService/Export in 2.60.0. Both
 * formats are fixed standards, so they are written here without a dialect. The agent puts "ray_" before each name. Gauges only.
 *
 * Building a report: rc_metrics_gauge as often as needed, then rc_metrics_each or an encoder. Pure data: any thread. */
#ifndef RC_AGENT_METRICS_H
#define RC_AGENT_METRICS_H

#include "raylet-c/base/buf.h"

typedef struct rc_metrics rc_metrics;

/* labels common to all points: pairs key, value, ..., NULL; copied. */
rc_metrics *rc_metrics_create(const char *const *common_labels);
void rc_metrics_destroy(rc_metrics *m); /* NULL is fine */
/* One point of a gauge. Points with the same name must have the same label keys. labels as above, may be NULL. */
void rc_metrics_gauge(rc_metrics *m, const char *name, const char *description, double value, const char *const *labels);

/* Each point with all its labels: n pairs key, value. */
typedef void (*rc_metric_fn)(void *arg, const char *name, const char *description, double value, const char *const *labels, size_t n);
void rc_metrics_each(const rc_metrics *m, rc_metric_fn fn, void *arg);

/* The request bodies; out is appended to. wall_ms: the time of all points. */
void rc_metrics_encode_opencensus(const rc_metrics *m, uint64_t wall_ms, rc_buf *out);
void rc_metrics_encode_opentelemetry(const rc_metrics *m, uint64_t wall_ms, rc_buf *out);
#define RC_METRICS_OTLP_PATH "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"

#endif
