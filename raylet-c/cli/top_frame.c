/* See top_frame.h. A line is gathered in a buffer of its own and cut to the width as it is added: columns are characters, not bytes. */
#define _GNU_SOURCE
#include "raylet-c/cli/top_frame.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAR = 20, ID = 8, MOST_ROWS = 10000 };

typedef struct frame {
	rc_top_view *view;
	rc_buf *out;
	unsigned lines;
} frame;

typedef struct row {
	json_t *worker;
	const char *node;
} row;

/* ---- values ---- */

static json_t *at(json_t *o, const char *key)
{
	return json_object_get(o, key);
}

static const char *text_of(json_t *o, const char *key)
{
	const char *s = json_string_value(at(o, key));

	return s ? s : "";
}

static double number_of(json_t *o, const char *key)
{
	double d = json_number_value(at(o, key));

	return d >= 0 && d < 1e18 ? d : 0;
}

/* "512 B", "1.5 MB": powers of 1024. */
static const char *bytes_text(char *to, size_t room, double n)
{
	static const char *const units[] = { "B", "KB", "MB", "GB", "TB", "PB", "EB" };
	int u = 0;

	while (n >= 1000 && u < 6) {
		n /= 1024;
		u++;
	}
	snprintf(to, room, u && n < 100 ? "%.1f %s" : "%.0f %s", n, units[u]);
	return to;
}

#define BYTES(n) bytes_text((char[24]){ 0 }, 24, n)

static void time_text(char *to, size_t room, double ms)
{
	unsigned long s = (unsigned long)(ms / 1000);

	if (s < 60)
		snprintf(to, room, "%lu s", s);
	else if (s < 86400)
		snprintf(to, room, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
	else
		snprintf(to, room, "%lu d %lu h", s / 86400, s / 3600 % 24);
}

/* ---- lines ---- */

static void color(frame *f, const char *sequence)
{
	if (f->view->colors)
		rc_buf_str(f->out, sequence);
}

/* One character and what of it is shown; at is moved past it. */
static void add_character(rc_buf *out, const char **at)
{
	const unsigned char *p = (const unsigned char *)*at;
	size_t n = *p < 0x80 ? 1 : *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : *p >= 0xc2 ? 2 : 0;
	bool whole = n && *p < 0xf5;

	for (size_t i = 1; i < n && whole; i++)
		whole = (p[i] & 0xc0) == 0x80;
	if (!whole || *p < 32 || *p == 127 || (*p == 0xc2 && p[1] < 0xa0))
		rc_buf_add(out, "?", 1);
	else
		rc_buf_add(out, p, n);
	*at += whole ? n : 1;
}

/* A line, cut to the width. */
static void line(frame *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line(frame *f, const char *format, ...)
{
	char text[2048];
	const char *p = text;
	va_list list;

	if (f->view->height && f->lines >= f->view->height)
		return;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	for (unsigned i = 0; *p && i < f->view->width; i++)
		add_character(f->out, &p);
	rc_buf_add(f->out, "\n", 1);
	f->lines++;
}

/* "[||||      ]" for a share of a whole. */
static const char *bar_text(char *to, double part, double whole)
{
	double share = whole > 0 && part > 0 ? part / whole : 0;
	int n = (int)((share < 1 ? share : 1) * BAR + 0.5);

	to[0] = '[';
	memset(to + 1, '|', (size_t)n);
	memset(to + 1 + n, ' ', (size_t)(BAR - n));
	to[BAR + 1] = ']';
	to[BAR + 2] = '\0';
	return to;
}

#define BARS(part, whole) bar_text((char[BAR + 3]){ 0 }, part, whole)

/* ---- nodes ---- */

static bool is_bytes(const char *name)
{
	return strcmp(name, "memory") == 0 || strcmp(name, "object_store_memory") == 0;
}

static void resources_line(frame *f, json_t *node)
{
	json_t *total = at(node, "total"), *value;
	double cpus = number_of(total, "CPU"), used = cpus - number_of(at(node, "free"), "CPU");
	rc_buf b = { 0 };
	const char *key;

	json_object_foreach(total, key, value) {
		double all = number_of(total, key), now = all - number_of(at(node, "free"), key);

		if (strcmp(key, "CPU") == 0 || strcmp(key, "object_store_memory") == 0 || strncmp(key, "node:", 5) == 0)
			continue;
		if (is_bytes(key))
			rc_buf_printf(&b, "  %s %s of %s", key, BYTES(now), BYTES(all));
		else
			rc_buf_printf(&b, "  %.60s %.10g/%.10g", key, now, all);
	}
	line(f, "  CPU    %s %.10g/%.10g%s", BARS(used, cpus), used, cpus, rc_buf_cstr(&b));
	rc_buf_free(&b);
}

static void node_lines(frame *f, json_t *node)
{
	json_t *store = at(node, "store"), *transfers = at(node, "transfers"), *leases = at(node, "leases");
	const char *error = text_of(node, "error");
	char up[32];

	time_text(up, sizeof up, number_of(node, "up_ms"));
	line(f, "node %.*s  %s  %s  head %s  ray %s  up %s  pid %.0f: CPU %.1f %%, %s", ID, text_of(node, "node_id"),
	     *text_of(node, "state") ? text_of(node, "state") : "?", text_of(node, "address"), text_of(node, "gcs_address"),
	     *text_of(node, "ray_version") ? text_of(node, "ray_version") : "?", up, number_of(node, "pid"), number_of(node, "cpu_percent"),
	     BYTES(number_of(node, "pss")));
	if (strcmp(text_of(node, "daemon"), "ray") == 0) {
		line(f, "  Ray's own daemon: it tells nothing more");
		return;
	}
	if (*error) {
		line(f, "  %s", error);
		return;
	}
	resources_line(f, node);
	line(f, "  store  %s %s of %s, objects %.0f, spilled %s   in %s/s, out %s/s%s", BARS(number_of(store, "used"), number_of(store, "capacity")),
	     BYTES(number_of(store, "used")), BYTES(number_of(store, "capacity")), number_of(store, "objects"),
	     BYTES(number_of(store, "spilled")), BYTES(number_of(transfers, "in_per_s")), BYTES(number_of(transfers, "out_per_s")),
	     number_of(transfers, "fabric") > 0 ? " over the fabric" : "");
	line(f, "  leases %.0f granted, %.0f waiting   bundles %.0f   workers %.0f", number_of(leases, "granted"), number_of(leases, "waiting"),
	     number_of(node, "n_bundles"), number_of(node, "n_workers"));
}

static void gpu_lines(frame *f, json_t *gpus)
{
	json_t *g;
	size_t i;

	json_array_foreach(gpus, i, g)
		line(f, "GPU %.0f    %s %3.0f %%  %s of %s  %.0f C  %.0f W  %s", number_of(g, "index"), BARS(number_of(g, "percent"), 100),
		     number_of(g, "percent"), BYTES(number_of(g, "used")), BYTES(number_of(g, "total")), number_of(g, "celsius"),
		     number_of(g, "watts"), text_of(g, "name"));
}

/* ---- processes ---- */

static int compare(const void *a, const void *b, void *order)
{
	static const char *const keys[][2] = { { "cpu_percent", "rss" }, { "rss", "cpu_percent" } };
	const row *x = a, *y = b;

	for (int i = 0; i < 2; i++) {
		double p = number_of(x->worker, keys[*(rc_top_sort *)order][i]), q = number_of(y->worker, keys[*(rc_top_sort *)order][i]);

		if (p != q)
			return p < q ? 1 : -1;
	}
	return number_of(x->worker, "pid") < number_of(y->worker, "pid") ? -1 : 1;
}

static size_t collect(json_t *nodes, row **ret)
{
	size_t n = 0, room = 0, i, k;
	row *rows = NULL;
	json_t *node, *worker;

	json_array_foreach(nodes, i, node) {
		json_array_foreach(at(node, "workers"), k, worker) {
			if (n == MOST_ROWS)
				break;
			if (n == room) {
				room = room ? 2 * room : 64;
				rows = realloc(rows, room * sizeof *rows);
				if (!rows)
					abort();
			}
			rows[n++] = (row){ worker, text_of(node, "node_id") };
		}
	}
	*ret = rows;
	return n;
}

static void demand_text(char *to, size_t room, json_t *resources)
{
	const char *key;
	json_t *value;
	size_t n = 0;

	to[0] = '\0';
	json_object_foreach(resources, key, value) {
		double q = number_of(resources, key);

		if (n + 2 >= room)
			return;
		n += (size_t)(is_bytes(key) ? snprintf(to + n, room - n, "%s%s %s", n ? ", " : "", key, BYTES(q)) :
		                              snprintf(to + n, room - n, "%s%s %.10g", n ? ", " : "", key, q));
	}
}

static void row_line(frame *f, const row *r)
{
	json_t *lease = at(r->worker, "lease");
	const char *kind = text_of(r->worker, "kind"), *name = text_of(lease, "name"), *title = text_of(r->worker, "title");
	char demand[200], since[32] = "", steps[64] = "";
	bool plain = strcmp(kind, "worker") == 0;

	demand_text(demand, sizeof demand, at(lease, "resources"));
	if (json_is_object(lease))
		time_text(since, sizeof since, number_of(lease, "for_ms"));
	if (number_of(r->worker, "steps") > 0)
		snprintf(steps, sizeof steps, "  step %.0f, %.3g/s", number_of(r->worker, "steps"), number_of(r->worker, "steps_per_s"));
	line(f, "%7.0f %-*.*s %6.1f %8s  %-10.10s %10s  %-20.20s %s%s%s%s", number_of(r->worker, "pid"), ID, ID, r->node,
	     number_of(r->worker, "cpu_percent"), BYTES(number_of(r->worker, "rss")),
	     json_is_true(at(lease, "blocked")) ? "blocked" : plain ? text_of(r->worker, "state") : kind, since, demand, title,
	     steps, *name && !strstr(title, name) ? "  " : "", *name && !strstr(title, name) ? name : "");
}

static void processes(frame *f, json_t *nodes)
{
	rc_top_view *v = f->view;
	size_t n, room;
	row *rows;

	n = collect(nodes, &rows);
	if (n)
		qsort_r(rows, n, sizeof *rows, compare, &v->sort);
	if (v->height && f->lines >= v->height) { /* no room for the table */
		free(rows);
		return;
	}
	color(f, "\033[7m");
	line(f, "%-*s", v->colors ? (int)v->width : 0, "    PID NODE       CPU%      MEM  STATE             FOR  ASKED FOR            COMMAND");
	if (v->colors) { /* the end of the sequence goes before the line's end */
		f->out->n--;
		rc_buf_str(f->out, "\033[0m\n");
	}
	room = v->height ? (v->height > f->lines ? v->height - f->lines : 0) : n;
	if (v->first + room > n)
		v->first = n > room ? n - room : 0;
	for (size_t i = v->first; i < n && i < v->first + room; i++)
		row_line(f, &rows[i]);
	free(rows);
}

static void help(frame *f)
{
	static const char *const lines[] = {
		"", "  q  leave        c  sort by CPU     m  sort by memory    h  this text, and back",
		"  j, down / k, up: a line    space, page down / b, page up: a page    g: the top", "",
		"  step N, R/s: steps of the worker's optimizers, where the model is on raylet-c's FSDP engine.",
		"  CPU% is of one core. MEM is resident memory, what is shared (plasma) with it. FOR: since the lease was granted.",
	};

	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		line(f, "%s", lines[i]);
}

void rc_top_frame(json_t *all, rc_top_view *view, rc_buf *out)
{
	frame f = { .view = view, .out = out };
	json_t *nodes = at(all, "nodes"), *load = at(all, "load"), *node;
	size_t i;

	line(&f, "raylet-c top  %s  %s  load %.2f %.2f %.2f  nodes %zu", text_of(all, "host"), view->clock ? view->clock : "",
	     json_number_value(json_array_get(load, 0)), json_number_value(json_array_get(load, 1)),
	     json_number_value(json_array_get(load, 2)), json_array_size(nodes));
	if (*text_of(all, "error"))
		line(&f, "%s", text_of(all, "error"));
	if (json_array_size(nodes) == 0)
		line(&f, "no Ray worker node of this user runs here");
	json_array_foreach(nodes, i, node)
		node_lines(&f, node);
	gpu_lines(&f, at(all, "gpus"));
	if (view->help)
		help(&f);
	else
		processes(&f, nodes);
}
