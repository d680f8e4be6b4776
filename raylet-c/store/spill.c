/* Spilling: which primary copies, when, and the files (or external URLs) that hold them.
 *
 * When: the primary copies that only memory has are more than object_spilling_threshold of the arena, or a creation waits.
 * Which: those that nobody reads, the longest idle first, fused into a file until it has min_spilling_size bytes or
 * max_fused_object_count objects. A smaller batch waits while others are being written, as in stock, save for a creation.
 *
 * The memory copy stays readable while it is written and after; it may then be evicted. A file is deleted when the last
 * object in it is; the format and the URLs are Ray's (spillfile.h). Storage of other kinds goes through the callbacks of
 * rc_store_ops; there the base of the URL is counted in the same way. */
#include "raylet-c/store/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raylet-c/base/log.h"

enum { MOST_JOBS = 2, AGAIN_MS = 1000, LOG_MS = 10000 }; /* jobs: the pool has other work too, and a disk gains nothing from more */

typedef struct spill_job {
	rc__job job;
	rc__object **objects; /* marked spilling: they stay */
	rc_spill_item *items;
	uint8_t **owners; /* serialized addresses: the items' views */
	size_t n, done;
	uint64_t start_ns;
	char *path;
	const bool *stop;
	int result;
	rc_error error;
} spill_job;

static bool log_now(rc_store *s)
{
	uint64_t now = rc_now_ms();

	if (s->spill_logged_ms && now - s->spill_logged_ms < LOG_MS)
		return false;
	s->spill_logged_ms = now;
	return true;
}

bool rc__spilling(const rc_store *s)
{
	return s->spill_jobs > 0;
}

/* ---- files ---- */

typedef struct unlink_job {
	rc__job job;
	char *path;
} unlink_job;

static void unlink_work(rc__job *job)
{
	unlink_job *u = RC_CONTAINER(job, unlink_job, job);

	if (unlink(u->path) < 0 && errno != ENOENT)
		rc_error_log("cannot remove the spill file %s: %m", u->path);
}

static void unlink_drop(rc__job *job)
{
	unlink_job *u = RC_CONTAINER(job, unlink_job, job);

	free(u->path);
	free(u);
}

static rc__file *file_of(rc_store *s, const char *path)
{
	rc__file *f = rc_map_get(s->files, rc_view_str(path));

	if (f)
		return f;
	f = rc_alloc(sizeof *f);
	f->path = rc_strdup(path);
	rc_map_put(s->files, rc_view_str(path), f);
	s->stats.spill_files_now++;
	return f;
}

static void free_file(rc__file *f)
{
	free(f->path);
	free(f->url);
	free(f);
}

void rc__file_unref(rc_store *s, rc__file *f)
{
	if (f->objects || f->readers)
		return;
	rc_map_del(s->files, rc_view_str(f->path));
	s->stats.spill_files_now--;
	if (s->spill_to_files) {
		unlink_job *u = rc_alloc(sizeof *u);

		*u = (unlink_job){ .job = { .work = unlink_work, .done = unlink_drop, .drop = unlink_drop }, .path = f->path };
		f->path = NULL;
		u->job.remove = u->path;
		rc__job_start(s, &u->job);
	} else if (f->url) {
		rc__event_new(s, RC__EV_DELETE_EXTERNAL, NULL)->text = f->url;
		f->url = NULL;
	}
	free_file(f);
}

/* ---- results ---- */

static void spilled(rc_store *s, rc__object *o, rc__file *f, char *url) /* url is ours */
{
	o->spilling = false;
	s->stats.spilling_objects--;
	s->stats.spilling_bytes -= rc__size(o);
	if (o->deleting || !o->pinned || o->file) { /* nobody wants the copy any more */
		free(url);
	} else {
		o->file = f;
		o->url = url;
		o->spilled_data_size = o->data_size;
		o->spilled_metadata_size = o->metadata_size;
		f->objects++;
		s->stats.spilled_objects_now++;
		s->stats.spilled_bytes_now += rc__size(o);
		rc__event_new(s, RC__EV_SPILLED, o)->text = rc_strdup(url);
	}
	s->stats.spilled_objects_total++;
	s->stats.spilled_bytes_total += rc__size(o);
	rc__update(s, o);
}

static void not_spilled(rc_store *s, rc__object *o)
{
	o->spilling = false;
	s->stats.spilling_objects--;
	s->stats.spilling_bytes -= rc__size(o);
	rc__update(s, o);
}

static void batch_ended(rc_store *s, uint64_t start_ns, size_t done, size_t n, const char *error)
{
	uint64_t now = rc__now_ns(), from = start_ns > s->last_spill_end_ns ? start_ns : s->last_spill_end_ns;

	s->spill_jobs--;
	s->last_spill_end_ns = now;
	s->check_creates = s->check_spill = true;
	s->changes++;
	if (done)
		s->stats.spill_time_total_s += (double)(now - from) / 1e9;
	s->spill_again_ms = done < n ? rc_now_ms() + AGAIN_MS : 0;
	if (done < n && log_now(s))
		rc_error_log("%zu of %zu objects could not be spilled: %s", n - done, n, error);
	else if (done == n && log_now(s))
		rc_info("spilled %llu MiB in %llu objects so far, in %.1f s", (unsigned long long)s->stats.spilled_bytes_total >> 20,
		        (unsigned long long)s->stats.spilled_objects_total, s->stats.spill_time_total_s);
}

/* ---- writing files ---- */

static void write_work(rc__job *job)
{
	spill_job *w = RC_CONTAINER(job, spill_job, job);

	w->result = rc_spill_write(w->path, w->items, w->n, w->stop, &w->done, &w->error);
}

static void write_drop(rc__job *job)
{
	spill_job *w = RC_CONTAINER(job, spill_job, job);

	for (size_t i = 0; i < w->n; i++)
		free(w->owners[i]);
	free(w->owners);
	free(w->items);
	free(w->objects);
	free(w->path);
	free(w);
}

static void write_done(rc__job *job)
{
	spill_job *w = RC_CONTAINER(job, spill_job, job);
	rc_store *s = job->s;
	rc__file *f = NULL;

	rc__enter(s);
	if (w->done) {
		f = file_of(s, w->path);
		f->readers++; /* while the batch is taken in */
	}
	for (size_t i = 0; i < w->done; i++)
		spilled(s, w->objects[i], f, rc_spill_url(w->path, w->items[i].offset, w->items[i].size));
	for (size_t i = w->done; i < w->n; i++)
		not_spilled(s, w->objects[i]);
	if (f) {
		f->readers--;
		rc__file_unref(s, f);
	}
	batch_ended(s, w->start_ns, w->done, w->n, w->error.text);
	write_drop(job);
	rc__leave(s);
}

static rc_view pack_owner(const rc_store *s, const rc_owner *owner, uint8_t **ret) /* nobody: empty */
{
	Rw__Address m = RW__ADDRESS__INIT;
	rc_buf out = { 0 };

	if (owner->worker_id.n) {
		RC_SET_ID(m, node_id, &owner->node_id);
		RC_SET_ID(m, worker_id, &owner->worker_id);
		m.ip_address = (char *)owner->ip;
		RC_SET(m, port, owner->port);
		rc_pack(s->dialect, &m, &out);
	}
	*ret = out.p;
	return rc_view_of(out.p, out.n);
}

static void write_batch(rc_store *s, rc__object **objects, size_t n)
{
	spill_job *w = rc_alloc(sizeof *w);

	s->next_spill_dir = (s->next_spill_dir + 1) % s->n_spill_dirs;
	*w = (spill_job){ .job = { .work = write_work, .done = write_done, .drop = write_drop }, .objects = objects, .n = n,
		          .start_ns = rc__now_ns(), .stop = &s->stopping };
	w->path = rc_spill_new_path(s->spill_dirs[s->next_spill_dir], n);
	w->job.remove = w->path;
	w->items = rc_alloc(n * sizeof *w->items);
	w->owners = rc_alloc(n * sizeof *w->owners);
	for (size_t i = 0; i < n; i++) {
		const rc__object *o = objects[i];

		w->items[i].owner = pack_owner(s, &o->owner, &w->owners[i]);
		w->items[i].data = rc_view_of(o->data, o->data_size);
		w->items[i].metadata = rc_view_of(o->data + o->data_size, o->metadata_size);
	}
	rc__job_start(s, &w->job);
}

/* ---- other storage ---- */

typedef struct external_batch {
	rc__object **objects;
	size_t n;
	uint64_t start_ns;
} external_batch;

typedef struct external { /* what waits for an answer: one of the two */
	uint64_t number;
	external_batch *batch;
	rc__restore *restore;
} external;

static external *external_new(rc_store *s)
{
	external *x = rc_alloc(sizeof *x);

	x->number = ++s->next_external;
	rc_map_put(s->external, rc_view_of(&x->number, sizeof x->number), x);
	return x;
}

static external *external_take(rc_store *s, uint64_t number, bool restore)
{
	external *x = rc_map_get(s->external, rc_view_of(&number, sizeof number));

	if (!x || !!x->restore != restore) {
		rc_error_log("an answer for spill job %llu, which is not waited for, is ignored", (unsigned long long)number);
		return NULL;
	}
	rc_map_del(s->external, rc_view_of(&number, sizeof number));
	return x;
}

uint64_t rc__external_restore(rc_store *s, rc__restore *r)
{
	external *x = external_new(s);

	x->restore = r;
	return x->number;
}

static void external_spill(rc_store *s, rc__object **objects, size_t n)
{
	external *x = external_new(s);
	rc__event *ev = rc__event_new(s, RC__EV_SPILL_EXTERNAL, NULL);

	x->batch = rc_alloc(sizeof *x->batch);
	*x->batch = (external_batch){ objects, n, rc__now_ns() };
	ev->job = x->number;
	ev->n = n;
	ev->ids = rc_alloc(n * sizeof *ev->ids);
	ev->owners = rc_alloc(n * sizeof *ev->owners);
	for (size_t i = 0; i < n; i++) {
		ev->ids[i] = objects[i]->id;
		ev->owners[i] = objects[i]->owner;
	}
}

static void external_one(rc_store *s, rc__object *o, const char *url)
{
	char *base = rc_strndup(url, strcspn(url, "?"));
	rc__file *f = file_of(s, base);

	free(base);
	if (!f->url)
		f->url = rc_strdup(url);
	f->readers++;
	spilled(s, o, f, rc_strdup(url));
	f->readers--;
	rc__file_unref(s, f);
}

void rc_store_external_spilled(rc_store *s, uint64_t job, const char *const *urls, size_t n_urls, const char *error)
{
	external *x = external_take(s, job, false);
	external_batch *b;

	if (!x)
		return;
	rc__enter(s);
	b = x->batch;
	if (n_urls > b->n)
		n_urls = b->n;
	for (size_t i = 0; i < b->n; i++) {
		if (i < n_urls)
			external_one(s, b->objects[i], urls[i]);
		else
			not_spilled(s, b->objects[i]);
	}
	batch_ended(s, b->start_ns, n_urls, b->n, error);
	free(b->objects);
	free(b);
	free(x);
	rc__leave(s);
}

void rc_store_external_restored(rc_store *s, uint64_t job, const char *error)
{
	external *x = external_take(s, job, true);

	if (!x)
		return;
	rc__enter(s);
	rc__restore_external_done(s, x->restore, error);
	free(x);
	rc__leave(s);
}

/* ---- choosing ---- */

/* Bytes that should leave memory besides those on their way. */
static uint64_t wanted(const rc_store *s)
{
	uint64_t limit = rc__arena_limit(s), primary = s->stats.primary_bytes, allowed = (uint64_t)(s->config.spilling_threshold * (double)limit);
	uint64_t on_disk = s->stats.fallback_bytes, want = 0, have, need;

	primary -= on_disk < primary ? on_disk : primary; /* these take no room in the arena */
	want = primary > allowed ? primary - allowed : 0;
	if (!rc_list_empty(&s->creates)) {
		need = rc__creates_need(s);
		have = rc_heap_free_bytes(s->heap) + s->idle[RC__EVICTABLE].bytes + (limit - rc_heap_size(s->heap));
		if (need > have && need - have > want)
			want = need - have;
		if (!want && !s->spill_jobs && !s->growing)
			want = 1; /* there is room, but not in one piece */
	}
	return want > s->stats.spilling_bytes ? want - s->stats.spilling_bytes : 0;
}

/* Moves a batch off the list of what may be spilled. NULL: it is too small to begin with now. */
static rc__object **choose(rc_store *s, size_t *ret_n)
{
	rc__list *list = &s->idle[RC__SPILLABLE];
	uint64_t most = s->config.max_spilling_file_size, bytes = 0;
	size_t n = 0, limit = list->n < s->config.max_fused_objects ? list->n : (size_t)s->config.max_fused_objects;
	rc__object **objects;

	RC_LIST_FOREACH(l, &list->head) {
		uint64_t size = rc__size(RC_CONTAINER(l, rc__object, idle_link));

		if (n == limit || (n && bytes >= s->config.min_spilling_size) || (n && most && bytes + size > most))
			break;
		bytes += size;
		n++;
	}
	if (n == list->n && bytes < s->config.min_spilling_size && s->spill_jobs && rc_list_empty(&s->creates))
		return NULL;
	objects = rc_alloc(n * sizeof *objects);
	for (size_t i = 0; i < n; i++) {
		rc__object *o = RC_CONTAINER(list->head.next, rc__object, idle_link);

		objects[i] = o;
		o->spilling = true;
		s->stats.spilling_objects++;
		s->stats.spilling_bytes += rc__size(o);
		rc__update(s, o);
	}
	*ret_n = n;
	return objects;
}

static bool disk_allows(rc_store *s)
{
	if (!s->spill_to_files || !rc__disk_is_full(s, s->spill_dirs[(s->next_spill_dir + 1) % s->n_spill_dirs], 0))
		return true;
	s->spill_again_ms = rc_now_ms() + AGAIN_MS;
	if (log_now(s))
		rc_error_log("objects cannot be spilled: the disk of %s is more than %g full (local_fs_capacity_threshold)",
		             s->spill_dirs[(s->next_spill_dir + 1) % s->n_spill_dirs], s->config.fs_capacity_threshold);
	return false;
}

void rc__spill_check(rc_store *s)
{
	unsigned most = s->config.max_io_workers < MOST_JOBS ? s->config.max_io_workers : MOST_JOBS;

	s->check_spill = false;
	if (!s->spill_type[0] || s->stopping || (s->spill_again_ms && rc_now_ms() < s->spill_again_ms))
		return;
	while (s->spill_jobs < most && s->idle[RC__SPILLABLE].n && wanted(s) && disk_allows(s)) {
		size_t n;
		rc__object **objects = choose(s, &n);

		if (!objects)
			break;
		s->spill_jobs++;
		if (s->spill_to_files)
			write_batch(s, objects, n);
		else
			external_spill(s, objects, n);
	}
	s->check_spill = false; /* what was changed here has been looked at */
}

/* ---- start and end ---- */

static void add_dir(rc_store *s, const char *base)
{
	rc_error e;
	char *dir = rc_spill_make_dir(base, rc_id_to_hex(&s->node_id).s, &e);

	if (dir)
		s->spill_dirs[s->n_spill_dirs++] = dir;
	else
		rc_error_log("%s", e.text);
}

static void open_files(rc_store *s, const rc_store_options *o)
{
	const rc_store_config *c = &s->config;
	bool by_config = !o->spill_dir || (c->n_spill_dirs && strcmp(c->spill_dirs[0], o->spill_dir) == 0);
	rc_id random = rc_id_random(1);

	s->spill_to_files = true;
	s->spill_dirs = rc_alloc((c->n_spill_dirs + 2) * sizeof *s->spill_dirs);
	for (size_t i = 0; by_config && i < c->n_spill_dirs; i++)
		add_dir(s, c->spill_dirs[i]);
	if (!by_config)
		add_dir(s, o->spill_dir);
	if (!s->n_spill_dirs && o->session_dir)
		add_dir(s, o->session_dir);
	if (s->n_spill_dirs) {
		s->spill_type = rc_strdup("filesystem");
		s->next_spill_dir = random.b[0] % s->n_spill_dirs;
		return;
	}
	s->spill_type = rc_strdup("");
	rc_error_log("no folder for spilled objects can be used: a full store will refuse objects");
}

void rc__spill_open(rc_store *s, const rc_store_options *o)
{
	const char *type = s->config.spill_type ? s->config.spill_type : "filesystem";
	bool files = strcmp(type, "filesystem") == 0;

	s->files = rc_map_create();
	s->external = rc_map_create();
	if (!s->config.spilling) {
		s->spill_type = rc_strdup("");
	} else if (files) {
		open_files(s, o);
	} else if (s->ops.spill_external && s->ops.restore_external) {
		s->spill_type = rc_strdup(type);
	} else {
		rc_error_log("object_spilling_config: storage of type %s cannot be used by this node; it spills to files in %s", type,
		             o->session_dir ? o->session_dir : "no folder");
		open_files(s, o);
	}
}

void rc__spill_end(rc_store *s)
{
	rc_view key;
	void *value;

	for (size_t i = 0; s->files && rc_map_next(s->files, &i, &key, &value);) {
		rc__file *f = value;

		if (s->spill_to_files)
			unlink(f->path);
		free_file(f);
	}
	for (size_t i = 0; i < s->n_spill_dirs; i++) {
		rmdir(s->spill_dirs[i]); /* stays when an IO worker or a read that goes on has left something */
		free(s->spill_dirs[i]);
	}
	for (size_t i = 0; s->external && rc_map_next(s->external, &i, &key, &value);) {
		external *x = value;

		if (x->batch)
			free(x->batch->objects);
		free(x->batch);
		if (x->restore)
			rc__restore_free(x->restore);
		free(x);
	}
	rc_map_destroy(s->external);
	rc_map_destroy(s->files);
	free(s->spill_dirs);
	free(s->spill_type);
}
