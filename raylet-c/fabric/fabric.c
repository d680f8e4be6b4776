/* See fabric.h. The loop's side: which offers there are and which rest, one line for each offer in use, grants and reads as jobs. */
#include "raylet-c/fabric/fabric.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/base/map.h"
#include "raylet-c/fabric/line.h"

enum { STALL_MS = 10000, REST_MS = 5000, MAX_REST_MS = 300000 };

typedef struct slot { /* one offer */
	rc_fabric *f;
	rc_fabric_offer offer;
	rc__line *line; /* NULL: not in use */
	uint64_t serial; /* of the line */
	uint64_t rest_until_ms, rest_ms;
} slot;

struct rc_fabric {
	rc_fabric_options options;
	char *library_path, *providers, *ip;
	struct search *search; /* while it runs */
	bool started, ready;
	rc_fabric_library *library;
	slot slots[RC_FABRIC_MAX_OFFERS];
	size_t n_slots;
	rc_map *grants; /* number -> grant */
	uint64_t next_grant, next_serial;
	rc_fabric_stats stats;
};

/* ---- what is here ---- */

typedef struct search {
	rc_fabric *f; /* NULL: destroyed meanwhile */
	char *library_path, *providers, *ip;
	rc_fabric_library *library;
	rc_fabric_offer offers[RC_FABRIC_MAX_OFFERS];
	size_t n;
	rc_error error;
} search;

static void search_free(search *s)
{
	free(s->library_path);
	free(s->providers);
	free(s->ip);
	free(s);
}

static void look(void *arg)
{
	search *s = arg;
	rc_fabric_settings settings = { .providers = s->providers, .ip = s->ip };

	s->library = rc_fabric_library_open(s->library_path, &s->error);
	if (s->library)
		s->n = rc_fabric_offers(s->library, &settings, s->offers, &s->error);
}

static void found(void *arg)
{
	search *s = arg;
	rc_fabric *f = s->f;
	rc_buf names = { 0 };

	if (!f) {
		rc_fabric_library_close(s->library);
		search_free(s);
		return;
	}
	f->search = NULL;
	f->ready = true;
	f->library = s->library;
	f->n_slots = s->n;
	for (size_t i = 0; i < s->n; i++) {
		f->slots[i] = (slot){ .f = f, .offer = s->offers[i] };
		rc_buf_printf(&names, "%s%s", i ? ", " : "", s->offers[i].provider);
	}
	if (s->n)
		rc_info("fabric: %s has %s", rc_fabric_library_path(f->library), rc_buf_cstr(&names));
	else
		rc_info("fabric: none: %s", s->error.text);
	rc_buf_free(&names);
	search_free(s);
	if (f->options.ready)
		f->options.ready(f->options.arg);
}

rc_fabric *rc_fabric_create(const rc_fabric_options *options)
{
	rc_fabric *f = rc_alloc(sizeof *f);

	f->options = *options;
	f->options.stall_ms = options->stall_ms ? options->stall_ms : STALL_MS;
	f->options.rest_ms = options->rest_ms ? options->rest_ms : REST_MS;
	f->library_path = rc_strdup(options->library);
	f->providers = rc_strdup(options->providers);
	f->ip = rc_strdup(options->ip);
	f->grants = rc_map_create();
	return f;
}

void rc_fabric_start(rc_fabric *f)
{
	search *s;

	if (f->started)
		return;
	f->started = true;
	s = f->search = rc_alloc(sizeof *s);
	s->f = f;
	s->library_path = rc_strdup(f->library_path);
	s->providers = rc_strdup(f->providers);
	s->ip = rc_strdup(f->ip);
	rc_loop_work(f->options.loop, look, found, s);
}

bool rc_fabric_started(const rc_fabric *f)
{
	return f->started;
}

bool rc_fabric_ready(const rc_fabric *f)
{
	return f->ready;
}

size_t rc_fabric_usable(const rc_fabric *f, rc_fabric_offer ret[RC_FABRIC_MAX_OFFERS])
{
	uint64_t now = rc_now_ms();
	size_t n = 0;

	for (size_t i = 0; i < f->n_slots; i++)
		if (now >= f->slots[i].rest_until_ms)
			ret[n++] = f->slots[i].offer;
	return n;
}

/* ---- lines ---- */

static void on_broken(void *arg, rc__line *l, const rc_error *e)
{
	slot *s = arg;

	s->f->stats.failures++;
	s->rest_ms = s->rest_ms ? s->rest_ms * 2 : s->f->options.rest_ms;
	s->rest_ms = s->rest_ms < MAX_REST_MS ? s->rest_ms : MAX_REST_MS;
	s->rest_until_ms = rc_now_ms() + s->rest_ms;
	rc_warn("%s: objects go over gRPC; it is tried again in %llu s", e->text, (unsigned long long)(s->rest_ms + 999) / 1000);
	s->line = NULL;
	rc__line_destroy(l);
}

/* A rest makes only sense between failures: one that works is as good as new. */
static void works(rc_fabric *f, const rc_fabric_offer *offer)
{
	for (size_t i = 0; i < f->n_slots; i++)
		if (rc_fabric_same(&f->slots[i].offer, offer))
			f->slots[i].rest_ms = 0;
}

/* With its line open. */
static slot *slot_for(rc_fabric *f, const rc_fabric_offer *offer)
{
	for (size_t i = 0; i < f->n_slots; i++) {
		slot *s = &f->slots[i];

		if (!rc_fabric_same(&s->offer, offer))
			continue;
		if (!s->line) {
			s->serial = ++f->next_serial;
			s->line = rc__line_create(&(rc__line_options){
			        .loop = f->options.loop,
			        .library = f->library,
			        .offer = s->offer,
			        .ip = f->ip,
			        .arena = f->options.arena,
			        .arena_size = f->options.arena_size,
			        .stall_ms = f->options.stall_ms,
			        .broken = on_broken,
			        .arg = s,
			});
		}
		return s;
	}
	abort(); /* not one of rc_fabric_usable */
}

/* ---- grants ---- */

typedef struct grant {
	rc_fabric *f;
	uint64_t number, serial; /* serial: of the line; its regions end with it */
	rc_region *region;       /* the thread's; NULL: not registered yet */
	bool revoked;
	rc_granted_fn fn;
	rc_task_fn done;
	void *arg, *done_arg;
} grant;

typedef struct grant_job {
	rc__job job;
	grant *grant;
	void *start;
	uint64_t n;
	rc_region *region;
	rc_remote remote;
	uint8_t address[RC_FABRIC_ADDRESS];
	size_t address_n;
} grant_job;

static void grant_end(grant *g)
{
	rc_task_fn done = g->done;
	void *arg = g->done_arg;

	rc_map_del(g->f->grants, rc_view_of(&g->number, sizeof g->number));
	free(g);
	if (done)
		done(arg);
}

static void revoke_run(rc__line *l, rc__job *j)
{
	grant_job *r = RC_CONTAINER(j, grant_job, job);

	rc_endpoint_unregister(rc__line_endpoint(l), r->region);
	rc__line_granted(l, -1);
	rc__line_back(l, j, NULL);
}

static void revoke_finish(rc__job *j, const rc_error *e)
{
	grant_job *r = RC_CONTAINER(j, grant_job, job);

	(void)e; /* a closed endpoint has no regions */
	grant_end(r->grant);
	free(r);
}

static rc__line *line_of(const grant *g)
{
	for (size_t i = 0; i < g->f->n_slots; i++)
		if (g->f->slots[i].line && g->f->slots[i].serial == g->serial)
			return g->f->slots[i].line;
	return NULL;
}

static void unregister(grant *g)
{
	rc__line *l = line_of(g);
	grant_job *r;

	if (!l || !g->region) {
		grant_end(g);
		return;
	}
	r = rc_alloc(sizeof *r);
	r->job.run = revoke_run;
	r->job.finish = revoke_finish;
	r->grant = g;
	r->region = g->region;
	rc__line_do(l, &r->job);
}

static void grant_run(rc__line *l, rc__job *j)
{
	grant_job *r = RC_CONTAINER(j, grant_job, job);
	rc_endpoint *p = rc__line_endpoint(l);
	rc_view address = rc_endpoint_address(p);
	rc_error e;

	r->region = rc_endpoint_register(p, r->start, r->n, true, &e);
	if (!r->region) {
		rc__line_back(l, j, &e);
		return;
	}
	rc__line_granted(l, 1);
	r->remote = rc_region_remote(r->region);
	r->address_n = address.n;
	memcpy(r->address, address.p, address.n);
	rc__line_back(l, j, NULL);
}

static void grant_finish(rc__job *j, const rc_error *e)
{
	grant_job *r = RC_CONTAINER(j, grant_job, job);
	grant *g = r->grant;
	rc_granted_fn fn = g->fn;

	g->region = e ? NULL : r->region;
	if (g->revoked) {
		unregister(g);
	} else if (e) {
		void *arg = g->arg;

		grant_end(g);
		fn(arg, e, (rc_view){ 0 }, NULL);
	} else {
		fn(g->arg, NULL, rc_view_of(r->address, r->address_n), &r->remote);
	}
	free(r);
}

uint64_t rc_fabric_grant(rc_fabric *f, const rc_fabric_offer *offer, const void *p, uint64_t n, rc_granted_fn fn, void *arg)
{
	slot *s = slot_for(f, offer);
	grant *g = rc_alloc(sizeof *g);
	grant_job *r = rc_alloc(sizeof *r);

	g->f = f;
	g->number = ++f->next_grant;
	g->serial = s->serial;
	g->fn = fn;
	g->arg = arg;
	rc_map_put(f->grants, rc_view_of(&g->number, sizeof g->number), g);
	r->job.run = grant_run;
	r->job.finish = grant_finish;
	r->grant = g;
	r->start = (void *)(uintptr_t)p; /* libfabric wants it writable; it is registered for reading only */
	r->n = n;
	f->stats.grants++;
	rc__line_do(s->line, &r->job);
	return g->number;
}

void rc_fabric_revoke(rc_fabric *f, uint64_t number, rc_task_fn done, void *arg)
{
	grant *g = rc_map_get(f->grants, rc_view_of(&number, sizeof number));

	if (!g || g->revoked) {
		if (done)
			done(arg);
		return;
	}
	g->done = done;
	g->done_arg = arg;
	g->revoked = true;
	if (g->region || !line_of(g)) /* else grant_finish sees to it */
		unregister(g);
}

/* ---- reads ---- */

typedef struct reading {
	rc__read read; /* first: rc__read_run looks for it */
	rc_fabric *f;
	rc_fabric_offer offer;
	rc_fabric_read_fn fn;
	void *arg;
} reading;

static void read_finish(rc__job *j, const rc_error *e)
{
	reading *r = RC_CONTAINER(j, reading, read.job);

	if (!e) {
		r->f->stats.read_bytes += r->read.n;
		works(r->f, &r->offer);
	}
	r->fn(r->arg, e);
	free(r);
}

void rc_fabric_read(rc_fabric *f, const rc_fabric_offer *offer, rc_view address, void *to, uint64_t n, const rc_remote *from,
                    uint64_t offset, rc_fabric_read_fn fn, void *arg)
{
	reading *r = rc_alloc(sizeof *r);

	r->f = f;
	r->offer = *offer;
	r->fn = fn;
	r->arg = arg;
	r->read.job.run = rc__read_run;
	r->read.job.finish = read_finish;
	r->read.address_n = address.n < sizeof r->read.address ? address.n : 0; /* 0: refused by the endpoint */
	memcpy(r->read.address, address.p, r->read.address_n);
	r->read.to = to;
	r->read.n = n;
	r->read.offset = offset;
	r->read.from = *from;
	f->stats.reads++;
	rc__line_do(slot_for(f, offer)->line, &r->read.job);
}

/* ---- end, figures ---- */

void rc_fabric_destroy(rc_fabric *f)
{
	size_t i = 0;
	void *value;

	if (!f)
		return;
	if (f->search)
		f->search->f = NULL;
	for (size_t k = 0; k < f->n_slots; k++) {
		rc__line *l = f->slots[k].line;

		f->slots[k].line = NULL;
		rc__line_destroy(l);
	}
	while (rc_map_next(f->grants, &i, NULL, &value))
		free(value);
	rc_map_destroy(f->grants);
	rc_fabric_library_close(f->library);
	free(f->library_path);
	free(f->providers);
	free(f->ip);
	free(f);
}

void rc_fabric_get_stats(const rc_fabric *f, rc_fabric_stats *ret)
{
	*ret = f->stats;
	ret->lines = 0;
	for (size_t i = 0; i < f->n_slots; i++)
		ret->lines += f->slots[i].line != NULL;
}

void rc_fabric_debug(const rc_fabric *f, rc_buf *out)
{
	uint64_t now = rc_now_ms();

	rc_buf_str(out, "Fabric:\n");
	if (!f->ready)
		rc_buf_printf(out, "- %s\n", f->started ? "looking for providers" : "not asked for yet");
	for (size_t i = 0; i < f->n_slots; i++) {
		const slot *s = &f->slots[i];

		rc_buf_printf(out, "- %s (%s): %s\n", s->offer.provider, s->offer.domain,
		              s->line ? "open" : now < s->rest_until_ms ? "rests after a failure" : "not in use");
	}
	rc_buf_printf(out, "- granted: %llu; read: %llu transfers, %llu bytes; failures: %llu\n", (unsigned long long)f->stats.grants,
	              (unsigned long long)f->stats.reads, (unsigned long long)f->stats.read_bytes, (unsigned long long)f->stats.failures);
}
