#include "raylet-c/agent/series.h"

#include "raylet-c/agent/ingest.h"
#include "raylet-c/agent/metrics.h"
#include "raylet-c/base/id.h"
#include "raylet-c/base/loop.h"
#include "raylet-c/base/test.h"

enum { LONG = 60000 };

static rc_label label(const char *key, const char *value)
{
	return (rc_label){ rc_view_str(key), rc_view_str(value) };
}

static const char *text_of(rc_series *s, rc_buf *out)
{
	rc_buf_free(out);
	rc_series_write(s, out);
	return rc_buf_cstr(out);
}

static void text_format(void)
{
	rc_series *s = rc_series_create();
	rc_buf out = { 0 };
	rc_label two[] = { label("b", "x\"y\\z\n"), label("a-1", "\xff") };
	rc_series_set(s, RC_SERIES_GAUGE, "a.gauge", "help \\ and\nmore", two, 2, 1.5, false, LONG);
	CHECK_STR("# HELP ray_a_gauge help \\\\ and\\nmore\n# TYPE ray_a_gauge gauge\nray_a_gauge{a_1=\"?\",b=\"x\\\"y\\\\z\\n\"} 1.5\n", text_of(s, &out));
	rc_series_set(s, RC_SERIES_GAUGE, "a.gauge", "", (rc_label[]){ two[1], two[0] }, 2, 1e300, false, LONG);
	CHECK(strstr(text_of(s, &out), "} 1.0000000000000001e+300\n"));
	rc_series_set(s, RC_SERIES_COUNTER, "a.gauge", "", two, 2, 1, false, LONG);
	CHECK(strstr(text_of(s, &out), "# TYPE ray_a_gauge_total counter\n"));
	rc_buf_free(&out);
	rc_series_destroy(s);
}

static void counters_and_histograms(void)
{
	rc_series *s = rc_series_create();
	rc_buf out = { 0 };
	const double bounds[] = { 1, 10 };
	const uint64_t counts[] = { 1, 0, 2 };
	rc_label job = label("job", "1");
	rc_histogram h = { .n_bounds = 2, .bounds = bounds, .counts = counts, .sum = 50 };
	rc_series_set(s, RC_SERIES_COUNTER, "c_total", "", NULL, 0, 3, true, LONG);
	rc_series_set(s, RC_SERIES_COUNTER, "c_total", "", NULL, 0, 4, true, LONG);
	CHECK(strstr(text_of(s, &out), "\nray_c_total 7.0\n"));
	rc_series_histogram(s, "h", "", &job, 1, &h, true, LONG);
	rc_series_histogram(s, "h", "", &job, 1, &h, true, LONG);
	CHECK(strstr(text_of(s, &out), "# TYPE ray_h histogram\nray_h_bucket{job=\"1\",le=\"1.0\"} 2.0\nray_h_bucket{job=\"1\",le=\"10.0\"} 2.0\n"
	                               "ray_h_bucket{job=\"1\",le=\"+Inf\"} 6.0\nray_h_count{job=\"1\"} 6.0\nray_h_sum{job=\"1\"} 100.0\n"));
	h.n_bounds = 1; /* another worker's idea of it */
	rc_series_histogram(s, "h", "", &job, 1, &h, true, LONG);
	rc_series_set(s, RC_SERIES_GAUGE, "h", "", &job, 1, 1, false, LONG);
	CHECK(strstr(text_of(s, &out), "ray_h_count{job=\"1\"} 6.0\n") && !strstr(text_of(s, &out), "ray_h{"));
	rc_buf_free(&out);
	rc_series_destroy(s);
}

static void dropped_labels(void)
{
	rc_series *s = rc_series_create();
	rc_buf out = { 0 };
	rc_series_drop_label(s, "tasks", "WorkerId");
	for (int i = 0; i < 3; i++) {
		char id[8];
		snprintf(id, sizeof(id), "w%d", i);
		rc_label labels[] = { label("WorkerId", id), label("State", i ? "RUNNING" : "FINISHED") };
		rc_series_set(s, RC_SERIES_GAUGE, "tasks", "", labels, 2, 1 + i, false, LONG);
		rc_series_set(s, RC_SERIES_GAUGE, "others", "", labels, 1, 1, false, LONG);
	}
	const char *text = text_of(s, &out);
	CHECK(strstr(text, "ray_tasks{State=\"FINISHED\"} 1.0\nray_tasks{State=\"RUNNING\"} 5.0\n"));
	CHECK(strstr(text, "ray_others{WorkerId=\"w1\"} 1.0\n"));
	rc_buf_free(&out);
	rc_series_destroy(s);
}

static void old_ones_go(void)
{
	rc_series *s = rc_series_create();
	rc_buf out = { 0 };
	rc_series_set(s, RC_SERIES_GAUGE, "young", "", NULL, 0, 1, false, LONG);
	rc_series_set(s, RC_SERIES_GAUGE, "old", "", NULL, 0, 1, false, 0);
	for (uint64_t now = rc_now_ms(); rc_now_ms() <= now;)
		;
	CHECK(strstr(text_of(s, &out), "ray_young") && !strstr(text_of(s, &out), "ray_old"));
	rc_buf_free(&out);
	rc_series_destroy(s);
}

static void too_many(void)
{
	rc_series *s = rc_series_create();
	rc_buf out = { 0 };
	char text[16];
	for (int i = 0; i < 100010; i++) {
		snprintf(text, sizeof(text), "%d", i);
		rc_label l = label("n", text);
		rc_series_set(s, RC_SERIES_GAUGE, "many", "", &l, 1, 1, false, LONG);
	}
	rc_series_write(s, &out);
	size_t n = 0;
	for (size_t i = 0; i < out.n; i++)
		n += out.p[i] == '\n';
	CHECK_EQ_INT(100000 + 2, n);
	rc_buf_free(&out);
	rc_series_destroy(s);
}

/* What our own encoders write, and what the Python libraries of both standards made (see below). */
static void both_formats(void)
{
	static const char want[] = "ray_g{Common=\"c\",Name=\"CPU\"} 2.5\nray_g{Common=\"c\",Name=\"GPU\"} 1.0\n";
	rc_metrics *m = rc_metrics_create((const char *[]){ "Common", "c", NULL });
	rc_metrics_gauge(m, "g", "a gauge", 2.5, (const char *[]){ "Name", "CPU", NULL });
	rc_metrics_gauge(m, "g", "a gauge", 1, (const char *[]){ "Name", "GPU", NULL });
	for (int i = 0; i < 2; i++) {
		rc_series *s = rc_series_create();
		rc_buf bytes = { 0 }, out = { 0 };
		(i ? rc_metrics_encode_opencensus : rc_metrics_encode_opentelemetry)(m, 1000, &bytes);
		rc_view v = rc_view_of(bytes.p, bytes.n);
		CHECK(i ? rc_ingest_opencensus(s, v, LONG) : rc_ingest_opentelemetry(s, v, LONG, LONG));
		CHECK(strstr(text_of(s, &out), want));
		if (i) { /* of the nil worker, without which Ray's agent of 2.35.0 refuses it */
			rc_id none = rc_id_nil(RC_WORKER_ID);
			CHECK(bytes.n > 30 && memcmp(bytes.p + bytes.n - 30, "\x12\x1c", 2) == 0 && memcmp(bytes.p + bytes.n - 28, none.b, 28) == 0);
		}
		for (size_t n = 0; n < bytes.n; n++) { /* cut anywhere: no crash, and no nonsense */
			rc_series *cut = rc_series_create();
			if (i)
				rc_ingest_opencensus(cut, rc_view_of(bytes.p, n), LONG);
			else
				rc_ingest_opentelemetry(cut, rc_view_of(bytes.p, n), LONG, LONG);
			rc_series_destroy(cut);
		}
		rc_buf_free(&bytes);
		rc_buf_free(&out);
		rc_series_destroy(s);
	}
	rc_metrics_destroy(m);
}

int main(void)
{
	RUN(text_format, "a point is written with its help, escaped");
	RUN(counters_and_histograms, "differences add up; histograms have their sums of buckets; another kind or other bounds are passed over");
	RUN(dropped_labels, "points that a dropped label made different are summed up");
	RUN(old_ones_go, "what is not refreshed goes");
	RUN(too_many, "beyond the limit points are dropped");
	RUN(both_formats, "both formats are read, also cut short");
	return test_end();
}
