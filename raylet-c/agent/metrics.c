/* See the header. The writers below know only the fields that the agents read: opencensus.proto.metrics.v1 and
 * opentelemetry.proto.metrics.v1; field numbers stand beside each call. */
#include "raylet-c/agent/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/id.h"

typedef struct label {
	char *key, *value;
} label;

typedef struct point {
	char *name, *description;
	double value;
	label *labels;
	size_t n_labels;
} point;

struct rc_metrics {
	label *common;
	size_t n_common;
	point *points;
	size_t n, cap;
};

static label *labels_copy(const char *const *pairs, size_t *ret_n)
{
	size_t n = 0;
	while (pairs && pairs[2 * n])
		n++;
	label *copy = rc_alloc((n + 1) * sizeof(*copy));
	for (size_t i = 0; i < n; i++)
		copy[i] = (label){ rc_strdup(pairs[2 * i]), rc_strdup(pairs[2 * i + 1]) };
	*ret_n = n;
	return copy;
}

static void labels_free(label *labels, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(labels[i].key);
		free(labels[i].value);
	}
	free(labels);
}

rc_metrics *rc_metrics_create(const char *const *common_labels)
{
	rc_metrics *m = rc_alloc(sizeof(*m));
	m->common = labels_copy(common_labels, &m->n_common);
	return m;
}

void rc_metrics_destroy(rc_metrics *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++) {
		free(m->points[i].name);
		free(m->points[i].description);
		labels_free(m->points[i].labels, m->points[i].n_labels);
	}
	free(m->points);
	labels_free(m->common, m->n_common);
	free(m);
}

void rc_metrics_gauge(rc_metrics *m, const char *name, const char *description, double value, const char *const *labels)
{
	if (m->n == m->cap)
		m->points = rc_realloc(m->points, (m->cap = m->cap ? 2 * m->cap : 32) * sizeof(*m->points));
	point *p = &m->points[m->n++];
	*p = (point){ .name = rc_strdup(name), .description = rc_strdup(description), .value = value };
	p->labels = labels_copy(labels, &p->n_labels);
}

void rc_metrics_each(const rc_metrics *m, rc_metric_fn fn, void *arg)
{
	for (size_t i = 0; i < m->n; i++) {
		const point *p = &m->points[i];
		const char **pairs = rc_alloc(2 * (m->n_common + p->n_labels + 1) * sizeof(*pairs));
		size_t n = 0;
		for (size_t k = 0; k < m->n_common + p->n_labels; k++) {
			const label *l = k < m->n_common ? &m->common[k] : &p->labels[k - m->n_common];
			pairs[n++] = l->key;
			pairs[n++] = l->value;
		}
		fn(arg, p->name, p->description, p->value, pairs, n / 2);
		free(pairs);
	}
}

/* ---- protobuf ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2 };

static void put_varint(rc_buf *b, uint64_t v)
{
	uint8_t out[10];
	size_t n = 0;
	do {
		out[n++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		v >>= 7;
	} while (v);
	rc_buf_add(b, out, n);
}

static void put_number(rc_buf *b, unsigned field, uint64_t v)
{
	put_varint(b, field << 3 | VARINT);
	put_varint(b, v);
}

static void put_fixed64(rc_buf *b, unsigned field, const void *eight_bytes)
{
	put_varint(b, field << 3 | FIXED64);
	rc_buf_add(b, eight_bytes, 8); /* little endian, as this machine */
}

static void put_bytes(rc_buf *b, unsigned field, const void *p, size_t n)
{
	put_varint(b, field << 3 | BYTES);
	put_varint(b, n);
	rc_buf_add(b, p, n);
}

static void put_text(rc_buf *b, unsigned field, const char *s)
{
	put_bytes(b, field, s, strlen(s));
}

/* Takes the part's content over: it is empty after this. */
static void put_part(rc_buf *b, unsigned field, rc_buf *part)
{
	put_bytes(b, field, part->p, part->n);
	rc_buf_free(part);
}

/* ---- OpenCensus ---- */

static void oc_label_key(rc_buf *descriptor, const label *l)
{
	rc_buf key = { 0 };
	put_text(&key, 1, l->key);
	put_part(descriptor, 5, &key);
}

static void oc_label_value(rc_buf *series, const label *l)
{
	rc_buf value = { 0 };
	put_text(&value, 1, l->value);
	put_number(&value, 2, 1); /* has_value */
	put_part(series, 2, &value);
}

void rc_metrics_encode_opencensus(const rc_metrics *m, uint64_t wall_ms, rc_buf *out)
{
	for (size_t i = 0; i < m->n; i++) {
		const point *p = &m->points[i];
		rc_buf metric = { 0 }, descriptor = { 0 }, series = { 0 }, at = { 0 }, time = { 0 };
		put_text(&descriptor, 1, p->name);
		put_text(&descriptor, 2, p->description);
		put_number(&descriptor, 4, 2); /* GAUGE_DOUBLE */
		for (size_t k = 0; k < m->n_common; k++) {
			oc_label_key(&descriptor, &m->common[k]);
			oc_label_value(&series, &m->common[k]);
		}
		for (size_t k = 0; k < p->n_labels; k++) {
			oc_label_key(&descriptor, &p->labels[k]);
			oc_label_value(&series, &p->labels[k]);
		}
		put_number(&time, 1, wall_ms / 1000);
		put_number(&time, 2, wall_ms % 1000 * 1000000);
		put_part(&at, 1, &time);
		put_fixed64(&at, 3, &p->value);
		put_part(&series, 3, &at);
		put_part(&metric, 1, &descriptor);
		put_part(&metric, 2, &series);
		put_part(out, 1, &metric); /* ReportOCMetricsRequest.metrics */
	}
	/* worker_id: the nil one, as of no worker; Ray's agent of 2.35.0 refuses a report without any. */
	const rc_id none = rc_id_nil(RC_WORKER_ID);
	put_bytes(out, 2, none.b, none.n);
}

/* ---- OpenTelemetry ---- */

static void otlp_attribute(rc_buf *data, const label *l)
{
	rc_buf attribute = { 0 }, value = { 0 };
	put_text(&value, 1, l->value);
	put_text(&attribute, 1, l->key);
	put_part(&attribute, 2, &value);
	put_part(data, 7, &attribute);
}

void rc_metrics_encode_opentelemetry(const rc_metrics *m, uint64_t wall_ms, rc_buf *out)
{
	rc_buf scope = { 0 }, resource = { 0 };
	const uint64_t nanos = wall_ms * 1000000;
	for (size_t i = 0; i < m->n; i++) {
		const point *p = &m->points[i];
		rc_buf metric = { 0 }, gauge = { 0 }, data = { 0 };
		for (size_t k = 0; k < m->n_common; k++)
			otlp_attribute(&data, &m->common[k]);
		for (size_t k = 0; k < p->n_labels; k++)
			otlp_attribute(&data, &p->labels[k]);
		put_fixed64(&data, 3, &nanos);
		put_fixed64(&data, 4, &p->value);
		put_part(&gauge, 1, &data);
		put_text(&metric, 1, p->name);
		put_text(&metric, 2, p->description);
		put_part(&metric, 5, &gauge);
		put_part(&scope, 2, &metric);
	}
	put_part(&resource, 2, &scope);
	put_part(out, 1, &resource);
}
