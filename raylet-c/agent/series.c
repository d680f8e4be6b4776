#include "raylet-c/agent/series.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/agent/text.h"
#include "raylet-c/base/log.h"
#include "raylet-c/base/loop.h"
#include "raylet-c/base/map.h"

enum { MAX_POINTS = 100000, MAX_TEXT = 64 << 20, MAX_LABELS = 64, MAX_VALUE = 1024, MAX_DROPS = 8 };

typedef struct point {
	char *labels;  /* as shown: key="value",... */
	double value;  /* of a histogram: the sum */
	uint64_t until_ms;
	size_t n_bounds;
	double *bounds;
	uint64_t *counts;
	size_t size;   /* counted against MAX_TEXT */
} point;

typedef struct family {
	rc_series_kind kind;
	char *help;
	rc_map *points; /* all labels -> point */
	bool complained;
} family;

struct rc_series {
	rc_map *families; /* shown name -> family */
	struct {
		char *name, *key;
	} drops[MAX_DROPS];
	size_t n_drops, n_points, n_text;
	bool told_full;
};

rc_series *rc_series_create(void)
{
	rc_series *s = rc_alloc(sizeof(*s));
	s->families = rc_map_create();
	return s;
}

static void free_point(rc_series *s, point *p)
{
	s->n_points--;
	s->n_text -= p->size;
	free(p->labels);
	free(p->bounds);
	free(p->counts);
	free(p);
}

void rc_series_destroy(rc_series *s)
{
	if (!s)
		return;
	void *f_value, *p_value;
	for (size_t i = 0; rc_map_next(s->families, &i, NULL, &f_value);) {
		family *f = f_value;
		for (size_t k = 0; rc_map_next(f->points, &k, NULL, &p_value);)
			free_point(s, p_value);
		rc_map_destroy(f->points);
		free(f->help);
		free(f);
	}
	rc_map_destroy(s->families);
	for (size_t i = 0; i < s->n_drops; i++) {
		free(s->drops[i].name);
		free(s->drops[i].key);
	}
	free(s);
}

/* ---- names and labels ---- */

static void add_name(rc_buf *out, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char c = ((const char *)p)[i];
		bool ok = c == '_' || c == ':' || isalpha((unsigned char)c) || (isdigit((unsigned char)c) && (i || out->n));
		rc_buf_add(out, ok ? &c : "_", 1);
	}
}

static void shown_name(rc_buf *out, rc_series_kind kind, const char *name)
{
	size_t n = strlen(name);
	rc_buf_str(out, "ray_");
	add_name(out, name, n < MAX_VALUE ? n : MAX_VALUE);
	if (kind == RC_SERIES_COUNTER && !(n > 6 && !strcmp(name + n - 6, "_total")))
		rc_buf_str(out, "_total");
}

/* A label's value, escaped; what is not UTF-8 becomes '?'. */
static void add_value(rc_buf *out, rc_view value)
{
	size_t n = value.n < MAX_VALUE ? value.n : MAX_VALUE;
	for (size_t i = 0, length; i < n; i += length ? length : 1) {
		length = rc_utf8_length(value.p + i, n - i);
		if (value.p[i] == '\n')
			rc_buf_str(out, "\\n");
		else if (value.p[i] == '"' || value.p[i] == '\\')
			rc_buf_printf(out, "\\%c", value.p[i]);
		else if (!length || value.p[i] < 0x20)
			rc_buf_str(out, "?");
		else
			rc_buf_add(out, value.p + i, length);
	}
}

static int by_key(const void *a, const void *b)
{
	const rc_label *x = a, *y = b;
	size_t n = x->key.n < y->key.n ? x->key.n : y->key.n;
	int order = memcmp(x->key.p, y->key.p, n);
	return order ? order : (x->key.n > y->key.n) - (x->key.n < y->key.n);
}

static bool is_dropped(const rc_series *s, const char *name, rc_view key)
{
	for (size_t i = 0; i < s->n_drops; i++)
		if (!strcmp(s->drops[i].name, name) && rc_view_eq(key, rc_view_str(s->drops[i].key)))
			return true;
	return false;
}

/* All labels (what tells points apart) and those that are shown. */
static void label_texts(const rc_series *s, const char *name, const rc_label *labels, size_t n, rc_buf *all, rc_buf *shown)
{
	rc_label sorted[MAX_LABELS];
	n = n < MAX_LABELS ? n : MAX_LABELS;
	if (n)
		memcpy(sorted, labels, n * sizeof(*labels));
	qsort(sorted, n, sizeof(*sorted), by_key);
	for (size_t i = 0; i < n; i++) {
		if (i && !by_key(&sorted[i - 1], &sorted[i]))
			continue;
		rc_buf one = { 0 };
		add_name(&one, sorted[i].key.p, sorted[i].key.n < MAX_VALUE ? sorted[i].key.n : MAX_VALUE);
		rc_buf_str(&one, "=\"");
		add_value(&one, sorted[i].value);
		rc_buf_str(&one, "\"");
		rc_buf_str(all, all->n ? "," : "");
		rc_buf_add(all, one.p, one.n);
		if (!is_dropped(s, name, sorted[i].key)) {
			rc_buf_str(shown, shown->n ? "," : "");
			rc_buf_add(shown, one.p, one.n);
		}
		rc_buf_free(&one);
	}
}

void rc_series_drop_label(rc_series *s, const char *name, const char *key)
{
	if (s->n_drops == MAX_DROPS)
		return;
	s->drops[s->n_drops].name = rc_strdup(name);
	s->drops[s->n_drops++].key = rc_strdup(key);
}

/* ---- points ---- */

static family *family_of(rc_series *s, rc_series_kind kind, const char *name, const char *help)
{
	rc_buf key = { 0 };
	shown_name(&key, kind, name);
	family *f = rc_map_get(s->families, rc_view_of(key.p, key.n));
	if (!f && s->n_points < MAX_POINTS) {
		f = rc_alloc(sizeof(*f));
		*f = (family){ .kind = kind, .help = rc_strndup(help, strnlen(help, MAX_VALUE)), .points = rc_map_create() };
		rc_map_put(s->families, rc_view_of(key.p, key.n), f);
	}
	if (f && f->kind != kind) {
		if (!f->complained)
			rc_warn("metric %s is reported as different kinds: the first one counts", name);
		f->complained = true;
		f = NULL;
	}
	rc_buf_free(&key);
	return f;
}

/* The point, made when it is new; NULL: over the limit. size: what it needs beside its labels. */
static point *point_of(rc_series *s, family *f, const char *name, const rc_label *labels, size_t n_labels, size_t size)
{
	rc_buf all = { 0 }, shown = { 0 };
	label_texts(s, name, labels, n_labels, &all, &shown);
	rc_view key = all.n ? rc_view_of(all.p, all.n) : rc_view_str("-");
	point *p = rc_map_get(f->points, key);
	size += all.n + shown.n + sizeof(*p);
	if (!p && (s->n_points >= MAX_POINTS || s->n_text + size > MAX_TEXT)) {
		if (!s->told_full)
			rc_warn("%zu metrics are kept (%zu bytes): further ones are dropped", s->n_points, s->n_text);
		s->told_full = true;
	} else if (!p) {
		p = rc_alloc(sizeof(*p));
		p->labels = rc_strndup(shown.p ? (char *)shown.p : "", shown.n);
		p->size = size;
		s->n_points++;
		s->n_text += size;
		rc_map_put(f->points, key, p);
	}
	rc_buf_free(&all);
	rc_buf_free(&shown);
	return p;
}

void rc_series_set(rc_series *s, rc_series_kind kind, const char *name, const char *help, const rc_label *labels, size_t n_labels,
                   double value, bool add, uint64_t ttl_ms)
{
	family *f = family_of(s, kind, name, help);
	point *p = f ? point_of(s, f, name, labels, n_labels, 0) : NULL;
	if (!p)
		return;
	p->value = add ? p->value + value : value;
	p->until_ms = rc_now_ms() + ttl_ms;
}

void rc_series_histogram(rc_series *s, const char *name, const char *help, const rc_label *labels, size_t n_labels, const rc_histogram *h,
                         bool add, uint64_t ttl_ms)
{
	size_t bytes = h->n_bounds * sizeof(*h->bounds);
	family *f = family_of(s, RC_SERIES_HISTOGRAM, name, help);
	point *p = f ? point_of(s, f, name, labels, n_labels, 2 * bytes) : NULL;
	if (!p)
		return;
	if (!p->counts) {
		p->n_bounds = h->n_bounds;
		p->bounds = rc_alloc(bytes + 1);
		if (bytes)
			memcpy(p->bounds, h->bounds, bytes);
		p->counts = rc_alloc((h->n_bounds + 1) * sizeof(*p->counts));
	} else if (p->n_bounds != h->n_bounds || (bytes && memcmp(p->bounds, h->bounds, bytes) != 0)) {
		if (!f->complained)
			rc_warn("histogram %s is reported with different bounds: the first ones count", name);
		f->complained = true;
		return;
	}
	for (size_t i = 0; i <= h->n_bounds; i++)
		p->counts[i] = add ? p->counts[i] + h->counts[i] : h->counts[i];
	p->value = add ? p->value + h->sum : h->sum;
	p->until_ms = rc_now_ms() + ttl_ms;
}

/* ---- the text ---- */

static void add_number(rc_buf *out, double v)
{
	if (isnan(v))
		rc_buf_str(out, "NaN");
	else if (isinf(v))
		rc_buf_str(out, v > 0 ? "+Inf" : "-Inf");
	else if (v == floor(v) && fabs(v) < 1e15)
		rc_buf_printf(out, "%.1f", v);
	else
		rc_buf_printf(out, "%.17g", v);
}

static void add_line(rc_buf *out, const char *name, const char *suffix, const char *labels, const char *bound, double value)
{
	rc_buf_printf(out, "%s%s", name, suffix);
	if (*labels || bound)
		rc_buf_printf(out, "{%s%s%s%s%s}", labels, *labels && bound ? "," : "", bound ? "le=\"" : "", bound ? bound : "", bound ? "\"" : "");
	rc_buf_str(out, " ");
	add_number(out, value);
	rc_buf_str(out, "\n");
}

static void write_histogram(rc_buf *out, const char *name, const point *p)
{
	uint64_t below = 0;
	for (size_t i = 0; i <= p->n_bounds; i++) {
		rc_buf bound = { 0 };
		if (i < p->n_bounds)
			add_number(&bound, p->bounds[i]);
		else
			rc_buf_str(&bound, "+Inf");
		below += p->counts[i];
		add_line(out, name, "_bucket", p->labels, rc_buf_cstr(&bound), (double)below);
		rc_buf_free(&bound);
	}
	add_line(out, name, "_count", p->labels, NULL, (double)below);
	add_line(out, name, "_sum", p->labels, NULL, p->value);
}

static int by_labels(const void *a, const void *b)
{
	return strcmp((*(const point *const *)a)->labels, (*(const point *const *)b)->labels);
}

static void write_help(rc_buf *out, const char *name, const char *help)
{
	rc_buf_printf(out, "# HELP %s ", name);
	for (; *help; help++) {
		if (*help == '\\' || *help == '\n')
			rc_buf_str(out, *help == '\n' ? "\\n" : "\\\\");
		else
			rc_buf_add(out, help, 1);
	}
	rc_buf_str(out, "\n");
}

static void write_family(rc_buf *out, const char *name, const family *f)
{
	static const char *const types[] = { "gauge", "counter", "histogram" };
	size_t n = 0;
	void *value;
	const point **points = rc_alloc((rc_map_count(f->points) + 1) * sizeof(const point *));
	for (size_t i = 0; rc_map_next(f->points, &i, NULL, &value);)
		points[n++] = value;
	qsort(points, n, sizeof(const point *), by_labels);
	write_help(out, name, f->help);
	rc_buf_printf(out, "# TYPE %s %s\n", name, types[f->kind]);
	for (size_t i = 0, next; i < n; i = next) {
		double sum = points[i]->value;
		for (next = i + 1; f->kind != RC_SERIES_HISTOGRAM && next < n && !by_labels(&points[i], &points[next]); next++)
			sum += points[next]->value;
		if (f->kind == RC_SERIES_HISTOGRAM)
			write_histogram(out, name, points[i]);
		else
			add_line(out, name, "", points[i]->labels, NULL, sum);
	}
	free(points);
}

static void drop_old(rc_series *s, family *f, uint64_t now)
{
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(f->points, &i, &key, &value);) {
		point *p = value;
		if (now <= p->until_ms)
			continue;
		rc_map_del(f->points, key);
		free_point(s, p);
	}
}

void rc_series_write(rc_series *s, rc_buf *out)
{
	uint64_t now = rc_now_ms();
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(s->families, &i, &key, &value);) {
		family *f = value;
		drop_old(s, f, now);
		if (rc_map_count(f->points)) {
			char *name = rc_strndup(key.p, key.n);
			write_family(out, name, f);
			free(name);
			continue;
		}
		rc_map_del(s->families, key);
		rc_map_destroy(f->points);
		free(f->help);
		free(f);
	}
	s->told_full = s->told_full && s->n_points >= MAX_POINTS;
}
