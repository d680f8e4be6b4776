/* Metrics as Prometheus reads them: what this node measures itself, and what its workers report, kept until the next scrape.
 *
 * A point is one series: a name and labels. Points of a name must be of one kind; those of another kind are dropped. What is
 * not refreshed in `ttl_ms` is gone. Limits: 100,000 points and 64 MiB of text in all; what comes beyond is dropped, with one
 * line in the log. Loop thread only. */
#ifndef RC_AGENT_SERIES_H
#define RC_AGENT_SERIES_H

#include "raylet-c/base/buf.h"

typedef struct rc_series rc_series;

typedef enum rc_series_kind { RC_SERIES_GAUGE, RC_SERIES_COUNTER, RC_SERIES_HISTOGRAM } rc_series_kind;

typedef struct rc_label {
	rc_view key, value;
} rc_label;

typedef struct rc_histogram {
	size_t n_bounds;
	const double *bounds;    /* rising */
	const uint64_t *counts;  /* n_bounds + 1, not summed up */
	double sum;
} rc_histogram;

rc_series *rc_series_create(void);
void rc_series_destroy(rc_series *s); /* NULL is fine */

/* Names get "ray_" in front, counters "_total" behind unless they have it; what a name or label may not hold becomes '_'. */
/* add: the value is a difference to what is there. Otherwise it takes its place. */
void rc_series_set(rc_series *s, rc_series_kind kind, const char *name, const char *help, const rc_label *labels, size_t n_labels,
                   double value, bool add, uint64_t ttl_ms);
/* The bounds of a point are those of its first report; reports with others are dropped. */
void rc_series_histogram(rc_series *s, const char *name, const char *help, const rc_label *labels, size_t n_labels,
                         const rc_histogram *h, bool add, uint64_t ttl_ms);
/* Points of this name are shown without a label of this key, and summed up where that makes them equal. */
void rc_series_drop_label(rc_series *s, const char *name, const char *key);

/* The text format, version 0.0.4; drops what is too old. */
void rc_series_write(rc_series *s, rc_buf *out);

#endif
