/* Field numbers stand beside the names that the two standards give them. A message of counters may say that its values are
 * differences (the temporality DELTA of OpenTelemetry), as those of Ray's workers do. */
#include "raylet-c/agent/ingest.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { MAX_LABELS = 64, MAX_BOUNDS = 1024 };

/* ---- fields of a message ---- */

typedef struct field {
	unsigned number, type;
	uint64_t value; /* VARINT, FIXED64 */
	rc_view bytes;
} field;

static bool take_varint(rc_view *m, uint64_t *ret)
{
	*ret = 0;
	for (unsigned shift = 0; m->n && shift < 64; shift += 7) {
		uint8_t byte = *m->p++;
		m->n--;
		*ret |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

/* 1: a field. 0: the end. -1: malformed. */
static int next_field(rc_view *m, field *ret)
{
	uint64_t key, n;
	if (!m->n)
		return 0;
	if (!take_varint(m, &key) || key >> 3 > 0x1fffffff)
		return -1;
	*ret = (field){ .number = (unsigned)(key >> 3), .type = (unsigned)(key & 7) };
	switch (ret->type) {
	case VARINT:
		return take_varint(m, &ret->value) ? 1 : -1;
	case FIXED64:
	case FIXED32:
		n = ret->type == FIXED64 ? 8 : 4;
		break;
	case BYTES:
		if (!take_varint(m, &n))
			return -1;
		break;
	default:
		return -1;
	}
	if (n > m->n)
		return -1;
	if (ret->type == BYTES)
		ret->bytes = rc_view_of(m->p, (size_t)n);
	else
		memcpy(&ret->value, m->p, (size_t)n);
	m->p += n;
	m->n -= (size_t)n;
	return 1;
}

static double as_double(uint64_t bits)
{
	double v;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

/* Strings of a message are not NUL-terminated; names and helps are wanted so. */
static void set_text(char *to, size_t room, rc_view v)
{
	size_t n = v.n < room - 1 ? v.n : room - 1;
	if (n)
		memcpy(to, v.p, n);
	to[n] = '\0';
}

/* A repeated fixed64, packed or one by one. */
static void take_words(const field *f, uint64_t *words, size_t *n)
{
	if (f->type == FIXED64 && *n < MAX_BOUNDS) {
		words[(*n)++] = f->value;
		return;
	}
	for (size_t at = 0; f->type == BYTES && at + 8 <= f->bytes.n && *n < MAX_BOUNDS; at += 8)
		memcpy(&words[(*n)++], f->bytes.p + at, 8);
}

/* ---- what both have: one metric being read ---- */

typedef struct metric {
	rc_series *series;
	char name[256], help[1024];
	rc_series_kind kind;
	bool add;
	uint64_t ttl_ms;
	rc_label labels[MAX_LABELS];
	size_t n_labels;
	uint64_t bounds[MAX_BOUNDS], counts[MAX_BOUNDS + 1]; /* bounds: doubles, as bits */
	size_t n_bounds, n_counts;
	double sum;
} metric;

static void put_histogram(metric *m)
{
	double *bounds = rc_alloc(m->n_bounds * sizeof(*bounds) + 1);
	if (m->n_bounds)
		memcpy(bounds, m->bounds, m->n_bounds * sizeof(*bounds));
	if (m->n_counts == m->n_bounds + 1 && m->n_bounds) {
		rc_histogram h = { .n_bounds = m->n_bounds, .bounds = bounds, .counts = m->counts, .sum = m->sum };
		rc_series_histogram(m->series, m->name, m->help, m->labels, m->n_labels, &h, m->add, m->ttl_ms);
	}
	free(bounds);
}

/* ---- OpenTelemetry ---- */

static bool otlp_value(rc_view any, rc_view *ret) /* AnyValue: a string is all that Ray's workers send */
{
	field f;
	int code;
	while ((code = next_field(&any, &f)) > 0)
		if (f.number == 1 && f.type == BYTES)
			*ret = f.bytes;
	return code == 0;
}

static bool otlp_attribute(metric *m, rc_view pair)
{
	rc_label label = { 0 };
	field f;
	int code;
	while ((code = next_field(&pair, &f)) > 0) {
		if (f.number == 1 && f.type == BYTES)
			label.key = f.bytes;
		else if (f.number == 2 && f.type == BYTES && !otlp_value(f.bytes, &label.value))
			return false;
	}
	if (label.key.n && m->n_labels < MAX_LABELS)
		m->labels[m->n_labels++] = label;
	return code == 0;
}

static bool otlp_number(metric *m, rc_view data)
{
	double value = 0;
	field f;
	int code;
	m->n_labels = 0;
	while ((code = next_field(&data, &f)) > 0) {
		if (f.number == 4 && f.type == FIXED64) /* as_double */
			value = as_double(f.value);
		else if (f.number == 6 && f.type == FIXED64) /* as_int */
			value = (double)(int64_t)f.value;
		else if (f.number == 7 && f.type == BYTES && !otlp_attribute(m, f.bytes)) /* attributes */
			return false;
	}
	if (code == 0)
		rc_series_set(m->series, m->kind, m->name, m->help, m->labels, m->n_labels, value, m->add, m->ttl_ms);
	return code == 0;
}

static bool otlp_histogram(metric *m, rc_view data)
{
	field f;
	int code;
	m->n_labels = m->n_bounds = m->n_counts = 0;
	m->sum = 0;
	while ((code = next_field(&data, &f)) > 0) {
		if (f.number == 5 && f.type == FIXED64) /* sum */
			m->sum = as_double(f.value);
		else if (f.number == 6) /* bucket_counts */
			take_words(&f, m->counts, &m->n_counts);
		else if (f.number == 7) /* explicit_bounds */
			take_words(&f, m->bounds, &m->n_bounds);
		else if (f.number == 9 && f.type == BYTES && !otlp_attribute(m, f.bytes)) /* attributes */
			return false;
	}
	if (code == 0)
		put_histogram(m);
	return code == 0;
}

/* Gauge, Sum or Histogram: data_points are field 1, aggregation_temporality 2 (1: DELTA), is_monotonic 3. */
static bool otlp_data(metric *m, rc_view data, unsigned which)
{
	rc_view rest = data;
	field f;
	int code;
	bool monotonic = false;
	while ((code = next_field(&rest, &f)) > 0) {
		if (f.number == 2 && f.type == VARINT && which != 5)
			m->add = f.value == 1;
		else if (f.number == 3 && f.type == VARINT)
			monotonic = f.value != 0;
	}
	if (code < 0)
		return false;
	m->kind = which == 7 && monotonic ? RC_SERIES_COUNTER : RC_SERIES_GAUGE;
	while ((code = next_field(&data, &f)) > 0)
		if (f.number == 1 && f.type == BYTES && !(which == 9 ? otlp_histogram(m, f.bytes) : otlp_number(m, f.bytes)))
			return false;
	return true;
}

static bool otlp_metric(rc_series *s, rc_view bytes, uint64_t gauge_ttl_ms, uint64_t ttl_ms)
{
	metric *m = rc_alloc(sizeof(*m));
	field f, data = { 0 };
	int code;
	m->series = s;
	while ((code = next_field(&bytes, &f)) > 0) {
		if (f.number == 1 && f.type == BYTES) /* name */
			set_text(m->name, sizeof(m->name), f.bytes);
		else if (f.number == 2 && f.type == BYTES) /* description */
			set_text(m->help, sizeof(m->help), f.bytes);
		else if ((f.number == 5 || f.number == 7 || f.number == 9) && f.type == BYTES) /* gauge, sum, histogram */
			data = f;
	}
	m->ttl_ms = data.number == 5 ? gauge_ttl_ms : ttl_ms;
	bool ok = code == 0 && (!data.number || !*m->name || otlp_data(m, data.bytes, data.number));
	free(m);
	return ok;
}

bool rc_ingest_opentelemetry(rc_series *s, rc_view request, uint64_t gauge_ttl_ms, uint64_t ttl_ms)
{
	field resource, scope, f;
	int code;
	while ((code = next_field(&request, &resource)) > 0) { /* resource_metrics */
		while (resource.number == 1 && (code = next_field(&resource.bytes, &scope)) > 0) /* scope_metrics */
			while (scope.number == 2 && (code = next_field(&scope.bytes, &f)) > 0) /* metrics */
				if (f.number == 2 && f.type == BYTES && !otlp_metric(s, f.bytes, gauge_ttl_ms, ttl_ms))
					return false;
		if (code < 0)
			return false;
	}
	return code == 0;
}

/* ---- OpenCensus ---- */

enum { OC_GAUGE_INT = 1, OC_GAUGE_DOUBLE = 2, OC_CUMULATIVE_INT = 4, OC_CUMULATIVE_DOUBLE = 5, OC_CUMULATIVE_DISTRIBUTION = 6 };

static bool first_bytes(rc_view m, unsigned number, rc_view *ret)
{
	field f;
	int code;
	while ((code = next_field(&m, &f)) > 0)
		if (f.number == number && f.type == BYTES)
			*ret = f.bytes;
	return code == 0;
}

static bool oc_buckets(metric *m, const field *f) /* buckets: count is field 1 */
{
	rc_view bucket = f->bytes;
	field c;
	int code;
	uint64_t count = 0;
	while ((code = next_field(&bucket, &c)) > 0)
		if (c.number == 1 && c.type == VARINT)
			count = c.value;
	if (m->n_counts <= MAX_BOUNDS)
		m->counts[m->n_counts++] = count;
	return code == 0;
}

static bool oc_distribution(metric *m, rc_view data)
{
	rc_view bounds = { 0 };
	field f;
	int code;
	m->n_bounds = m->n_counts = 0;
	m->sum = 0;
	while ((code = next_field(&data, &f)) > 0) {
		if (f.number == 2 && f.type == FIXED64) /* sum */
			m->sum = as_double(f.value);
		else if (f.number == 4 && f.type == BYTES && !first_bytes(f.bytes, 1, &bounds)) /* bucket_options.explicit */
			return false;
		else if (f.number == 5 && f.type == BYTES && !oc_buckets(m, &f))
			return false;
	}
	while (code == 0 && (code = next_field(&bounds, &f)) > 0)
		if (f.number == 1)
			take_words(&f, m->bounds, &m->n_bounds);
	if (code == 0)
		put_histogram(m);
	return code == 0;
}

/* 2.35.0 shows what adds up as a counter, and under its bare name as a gauge too (RAY_EXPORT_COUNTER_AS_GAUGE). */
static void oc_number(metric *m, int type, double value)
{
	size_t n = strlen(m->name);
	const char *bare = getenv("RAY_EXPORT_COUNTER_AS_GAUGE");
	bool is_counter = type == OC_CUMULATIVE_INT || type == OC_CUMULATIVE_DOUBLE;
	rc_series_set(m->series, is_counter ? RC_SERIES_COUNTER : RC_SERIES_GAUGE, m->name, m->help, m->labels, m->n_labels, value, false, m->ttl_ms);
	if (type == OC_CUMULATIVE_DOUBLE && !(n > 6 && !strcmp(m->name + n - 6, "_total")) && !(bare && !strcmp(bare, "0")))
		rc_series_set(m->series, RC_SERIES_GAUGE, m->name, m->help, m->labels, m->n_labels, value, false, m->ttl_ms);
}

static bool oc_point(metric *m, int type, rc_view point)
{
	field f;
	int code;
	while ((code = next_field(&point, &f)) > 0) {
		if (f.number == 2 && f.type == VARINT && (type == OC_GAUGE_INT || type == OC_CUMULATIVE_INT)) /* int64_value */
			oc_number(m, type, (double)(int64_t)f.value);
		else if (f.number == 3 && f.type == FIXED64 && (type == OC_GAUGE_DOUBLE || type == OC_CUMULATIVE_DOUBLE)) /* double_value */
			oc_number(m, type, as_double(f.value));
		else if (f.number == 4 && f.type == BYTES && type == OC_CUMULATIVE_DISTRIBUTION && !oc_distribution(m, f.bytes)) /* distribution_value */
			return false;
	}
	return code == 0;
}

/* label_values are field 2, in the order of the descriptor's keys; points are field 3. */
static bool oc_timeseries(metric *m, int type, rc_view bytes)
{
	rc_view rest = bytes;
	field f;
	int code;
	size_t n = 0;
	while ((code = next_field(&rest, &f)) > 0) {
		if (f.number != 2 || f.type != BYTES || n >= m->n_labels)
			continue;
		m->labels[n].value = (rc_view){ 0 };
		if (!first_bytes(f.bytes, 1, &m->labels[n++].value))
			return false;
	}
	if (code < 0 || n != m->n_labels)
		return code == 0;
	while ((code = next_field(&bytes, &f)) > 0)
		if (f.number == 3 && f.type == BYTES && !oc_point(m, type, f.bytes))
			return false;
	return true;
}

static bool oc_descriptor(metric *m, int *type, rc_view bytes)
{
	field f;
	int code;
	while ((code = next_field(&bytes, &f)) > 0) {
		if (f.number == 1 && f.type == BYTES) /* name */
			set_text(m->name, sizeof(m->name), f.bytes);
		else if (f.number == 2 && f.type == BYTES) /* description */
			set_text(m->help, sizeof(m->help), f.bytes);
		else if (f.number == 4 && f.type == VARINT) /* type */
			*type = (int)f.value;
		else if (f.number == 5 && f.type == BYTES && m->n_labels < MAX_LABELS && !first_bytes(f.bytes, 1, &m->labels[m->n_labels++].key)) /* label_keys */
			return false;
	}
	return code == 0;
}

static bool oc_metric(rc_series *s, rc_view bytes, uint64_t ttl_ms)
{
	metric *m = rc_alloc(sizeof(*m));
	rc_view rest = bytes;
	int type = 0, code;
	field f;
	bool ok = true;
	m->series = s;
	m->ttl_ms = ttl_ms;
	while (ok && (code = next_field(&rest, &f)) != 0)
		ok = code > 0 && (f.number != 1 || f.type != BYTES || oc_descriptor(m, &type, f.bytes)); /* metric_descriptor */
	while (ok && *m->name && (code = next_field(&bytes, &f)) > 0)
		if (f.number == 2 && f.type == BYTES) /* timeseries */
			ok = oc_timeseries(m, type, f.bytes);
	free(m);
	return ok;
}

bool rc_ingest_opencensus(rc_series *s, rc_view request, uint64_t ttl_ms)
{
	field f;
	int code;
	while ((code = next_field(&request, &f)) > 0)
		if (f.number == 1 && f.type == BYTES && !oc_metric(s, f.bytes, ttl_ms)) /* ReportOCMetricsRequest.metrics */
			return false;
	return code == 0;
}
