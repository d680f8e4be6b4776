/* The store's start and end, the bracket around everything that changes it (internal.h), its jobs, and the public functions
 * that hold, write, keep and delete objects. */
#include "raylet-c/store/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/base/log.h"

enum { KEEP_FREE = 64 << 20, DEFAULT_MAX_OBJECTS = 2000000, MAX_PUT = 64 << 10 };

uint64_t rc__now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

bool rc__disk_is_full(const rc_store *s, const char *path, uint64_t more)
{
	uint64_t unused, total;
	rc_error e;

	if (rc_disk_space(path, &unused, &total, &e) < 0 || total == 0)
		return false; /* then writing tells */
	if (more > unused)
		return true;
	return (double)(total - (unused - more)) / (double)total > s->config.fs_capacity_threshold;
}

/* ---- the bracket ---- */

void rc__enter(rc_store *s)
{
	s->depth++;
}

void rc__leave(rc_store *s)
{
	if (s->depth > 1) {
		s->depth--;
		return;
	}
	for (;;) {
		if (s->check_creates)
			rc__process_creates(s);
		else if (s->check_spill)
			rc__spill_check(s);
		else if (!rc_list_empty(&s->events))
			rc__run_events(s);
		else
			break;
	}
	s->depth = 0;
}

/* ---- jobs ---- */

static void job_work(void *arg)
{
	rc__job *job = arg;
	rc_store *s = job->s; /* stays until this has said that it is done */

	if (!__atomic_load_n(&s->stopping, __ATOMIC_ACQUIRE))
		job->work(job);
	pthread_mutex_lock(&s->jobs_lock);
	if (--s->jobs_running == 0)
		pthread_cond_signal(&s->jobs_cond);
	pthread_mutex_unlock(&s->jobs_lock);
}

static void job_done(void *arg)
{
	rc__job *job = arg;

	if (!job->s) {
		job->drop(job);
		return;
	}
	rc_list_remove(&job->link);
	job->done(job);
}

void rc__job_start(rc_store *s, rc__job *job)
{
	job->s = s;
	rc_list_append(&s->jobs, &job->link);
	pthread_mutex_lock(&s->jobs_lock);
	s->jobs_running++;
	pthread_mutex_unlock(&s->jobs_lock);
	rc_loop_work(s->loop, job_work, job_done, job);
}

static void stop_jobs(rc_store *s)
{
	__atomic_store_n(&s->stopping, true, __ATOMIC_RELEASE);
	pthread_mutex_lock(&s->jobs_lock);
	while (s->jobs_running)
		pthread_cond_wait(&s->jobs_cond, &s->jobs_lock);
	pthread_mutex_unlock(&s->jobs_lock);
	RC_LIST_FOREACH(l, &s->jobs) {
		rc__job *job = RC_CONTAINER(l, rc__job, link);

		rc_list_remove(l);
		job->s = NULL; /* the loop gets it yet, and drops it */
		if (job->remove)
			unlink(job->remove);
	}
}

/* ---- start ---- */

static int check_dir(const char *path, const char *what, rc_error *e)
{
	struct stat st;

	if (!path || !path[0])
		return rc_fail(e, RC_E_INVALID, "the %s is not given", what);
	if (stat(path, &st) < 0)
		return rc_fail_errno(e, "the %s %s cannot be used", what, path);
	if (!S_ISDIR(st.st_mode))
		return rc_fail(e, RC_E_INVALID, "the %s %s is not a folder", what, path);
	if (access(path, W_OK | X_OK) < 0)
		return rc_fail_errno(e, "the %s %s cannot be used", what, path);
	return 0;
}

/* The arena takes memory only as it grows; here it is told when it will not be able to. */
static void look_at_space(rc_store *s)
{
	uint64_t unused, total;
	rc_error e;

	if (rc_disk_space(s->plasma_dir, &unused, &total, &e) < 0) {
		rc_warn("%s", e.text);
		return;
	}
	s->keep_free = total / 20 < KEEP_FREE ? total / 20 : KEEP_FREE;
	if (s->capacity + s->keep_free > unused)
		rc_warn("the object store may take %llu bytes, but %s has only %llu free and %llu of them are left alone: it will spill or use the disk "
		        "early. Give %s more room (docker run --shm-size=.., a larger emptyDir) or the store less (--object-store-memory)",
		        (unsigned long long)s->capacity, s->plasma_dir, (unsigned long long)unused, (unsigned long long)s->keep_free, s->plasma_dir);
}

static int open_arena(rc_store *s, const rc_store_options *o, rc_error *e)
{
	if (check_dir(o->plasma_dir, "plasma directory (--plasma_directory)", e) < 0)
		return -1;
	if (o->capacity < RC__ALIGN || o->capacity > (uint64_t)1 << 46)
		return rc_fail(e, RC_E_INVALID, "an object store of %llu bytes (--object_store_memory) is not possible", (unsigned long long)o->capacity);
	s->plasma_dir = rc_strdup(o->plasma_dir);
	s->capacity = o->capacity;
	look_at_space(s);
	s->arena = rc_segment_open(o->plasma_dir, rc_heap_round(s->heap, o->capacity), o->huge_pages, ++s->next_segment, e);
	return s->arena ? 0 : -1;
}

static void open_fallback(rc_store *s, const rc_store_options *o)
{
	rc_error e;

	if (!o->fallback_dir || !o->fallback_dir[0])
		return;
	if (check_dir(o->fallback_dir, "fallback directory", &e) < 0)
		rc_warn("%s: objects beyond the store's size will be refused", e.text);
	else
		s->fallback_dir = rc_strdup(o->fallback_dir);
}

rc_store *rc_store_create(rc_loop *loop, const rc_dialect *d, const rc_store_options *options, const rc_store_ops *ops, void *ctx,
                          rc_error *e)
{
	rc_store *s = rc_alloc(sizeof *s);

	s->loop = loop;
	s->dialect = d;
	s->ops = ops ? *ops : (rc_store_ops){ 0 };
	s->ctx = ctx;
	s->node_id = options->node_id;
	s->max_objects = options->max_objects ? options->max_objects : DEFAULT_MAX_OBJECTS;
	s->heap = rc_heap_create(RC__ALIGN);
	s->objects = rc_map_create();
	s->create_numbers = rc_map_create();
	s->waits = rc_map_create();
	for (int i = 0; i < RC__IDLE_COUNT; i++)
		rc_list_init(&s->idle[i].head);
	rc_list_init(&s->events);
	rc_list_init(&s->creates);
	rc_list_init(&s->clients);
	rc_list_init(&s->restores);
	rc_list_init(&s->jobs);
	pthread_mutex_init(&s->jobs_lock, NULL);
	pthread_cond_init(&s->jobs_cond, NULL);
	if (rc_store_config_read(options->system_config, &s->config, e) < 0 || open_arena(s, options, e) < 0 ||
	    rc__serve(s, options->socket_path, e) < 0) {
		rc_store_destroy(s);
		return NULL;
	}
	rc__spill_open(s, options);
	open_fallback(s, options);
	return s;
}

static void free_objects(rc_store *s)
{
	rc_view key;
	void *value;

	for (size_t i = 0; rc_map_next(s->objects, &i, &key, &value);) {
		rc__object *o = value;

		rc_segment_close(o->fallback);
		free(o->buffer);
		free(o->url);
		free(o);
	}
	rc_map_destroy(s->objects);
}

void rc_store_destroy(rc_store *s)
{
	rc_view key;
	void *value;

	if (!s)
		return;
	s->depth = 1; /* nothing is looked at and no callback runs from here on */
	stop_jobs(s);
	if (s->listener)
		rc__serve_end(s);
	rc_timer_stop(s->create_timer);
	rc__restore_end(s);
	while (!rc_list_empty(&s->events)) {
		rc__event *ev = RC_CONTAINER(s->events.next, rc__event, link);

		rc_list_remove(&ev->link);
		if (ev->create)
			rc__create_forget(s, ev->create);
		rc__event_free(ev);
	}
	for (size_t i = 0; rc_map_next(s->create_numbers, &i, &key, &value);)
		free(value);
	rc_map_destroy(s->create_numbers);
	free_objects(s);
	rc_map_destroy(s->waits);
	rc__spill_end(s);
	rc_heap_destroy(s->heap);
	rc_segment_close(s->arena);
	rc_store_config_free(&s->config);
	pthread_mutex_destroy(&s->jobs_lock);
	pthread_cond_destroy(&s->jobs_cond);
	free(s->plasma_dir);
	free(s->fallback_dir);
	free(s);
}

/* ---- looking and reading ---- */

void rc_store_arena(const rc_store *s, void **ret_base, uint64_t *ret_size)
{
	*ret_base = s->arena->base;
	*ret_size = s->arena->size;
}

bool rc_store_contains(const rc_store *s, const rc_id *id)
{
	const rc__object *o = rc__find(s, id);

	return o && o->state == RC__SEALED;
}

const char *rc_store_spilled_url(const rc_store *s, const rc_id *id)
{
	const rc__object *o = rc__find(s, id);

	return o ? o->url : NULL;
}

const char *rc_store_spill_type(const rc_store *s)
{
	return s->spill_type;
}

bool rc_store_sizes(const rc_store *s, const rc_id *id, uint64_t *ret_data_size, uint64_t *ret_metadata_size, rc_owner *ret_owner)
{
	const rc__object *o = rc__find(s, id);
	bool here = o && o->state == RC__SEALED;

	if (!here && !(o && o->file))
		return false;
	if (ret_data_size)
		*ret_data_size = here ? o->data_size : o->spilled_data_size;
	if (ret_metadata_size)
		*ret_metadata_size = here ? o->metadata_size : o->spilled_metadata_size;
	if (ret_owner)
		*ret_owner = o->owner;
	return true;
}

typedef struct held {
	rc_hold hold; /* first */
	rc__object *o;
} held;

const rc_hold *rc_store_hold(rc_store *s, const rc_id *id)
{
	rc__object *o = rc__find(s, id);
	held *h;

	if (!o || o->state != RC__SEALED)
		return NULL;
	rc__enter(s);
	h = rc_alloc(sizeof *h);
	h->hold = (rc_hold){ o->data, o->data_size, o->metadata_size, o->owner, o->id };
	h->o = o;
	o->holds++;
	rc__update(s, o);
	rc__leave(s);
	return &h->hold;
}

void rc_store_release(rc_store *s, const rc_hold *hold)
{
	held *h;

	if (!hold)
		return;
	rc__enter(s);
	h = (held *)(uintptr_t)hold;
	h->o->holds--;
	rc__update(s, h->o);
	free(h);
	rc__leave(s);
}

/* ---- writing ---- */

uint64_t rc_store_create_object(rc_store *s, const rc_store_new *object, rc_store_created_fn fn, void *arg)
{
	rc__create *c;
	uint64_t number;

	rc__enter(s);
	c = rc__create_add(s, object, NULL, false);
	c->fn = fn;
	c->arg = arg;
	number = c->number;
	s->check_creates = true;
	rc__leave(s);
	return rc__create_find(s, number) ? number : 0;
}

void rc_store_create_cancel(rc_store *s, uint64_t request)
{
	rc__create *c = rc__create_find(s, request);

	if (!c || c->client)
		return;
	rc__enter(s);
	rc__create_forget(s, c);
	if (!c->done) {
		free(c);
	} else {
		c->cancelled = true; /* its event, which is queued, frees it */
		if (c->buffer)
			rc__aborted(s, rc__find(s, &c->object.id));
	}
	rc__leave(s);
}

static rc__object *of_buffer(rc_store *s, const rc_store_buffer *b)
{
	rc__object *o = rc__find(s, &b->id);

	if (!o || o->buffer != b) { /* a mistake of the caller: going on would corrupt memory */
		rc_error_log("object %s: a buffer was sealed or aborted twice", rc_id_to_hex(&b->id).s);
		abort();
	}
	return o;
}

void rc_store_seal(rc_store *s, rc_store_buffer *b)
{
	rc__enter(s);
	rc__sealed(s, of_buffer(s, b));
	rc__leave(s);
}

void rc_store_abort(rc_store *s, rc_store_buffer *b)
{
	rc__enter(s);
	rc__aborted(s, of_buffer(s, b));
	rc__leave(s);
}

rc_plasma_error rc_store_put(rc_store *s, const rc_store_new *object, rc_view data, rc_view metadata)
{
	rc_store_new what = *object;
	rc__object *o = NULL;
	rc_plasma_error error;

	if (data.n + metadata.n > MAX_PUT)
		return RC_PE_NO_MEMORY;
	what.data_size = data.n;
	what.metadata_size = metadata.n;
	rc__enter(s);
	error = rc__create_now(s, &what, false, &o);
	if (o) {
		if (data.n)
			memcpy(o->data, data.p, data.n);
		if (metadata.n)
			memcpy(o->data + data.n, metadata.p, metadata.n);
		rc__sealed(s, o);
	}
	rc__leave(s);
	return error;
}

/* ---- keeping and deleting ---- */

bool rc_store_pin(rc_store *s, const rc_id *id)
{
	rc__object *o = rc__find(s, id);

	if (!o || o->deleting || (o->state != RC__SEALED && !o->file))
		return false;
	rc__enter(s);
	o->pinned = true;
	rc__update(s, o);
	s->check_spill = true;
	rc__leave(s);
	return true;
}

void rc_store_unpin(rc_store *s, const rc_id *id)
{
	rc__object *o = rc__find(s, id);

	if (!o || !o->pinned)
		return;
	rc__enter(s);
	o->pinned = false;
	rc__drop_spilled(s, o);
	rc__update(s, o);
	rc__leave(s);
}

void rc_store_delete(rc_store *s, const rc_id *ids, size_t n)
{
	rc__enter(s);
	for (size_t i = 0; i < n; i++) {
		rc__object *o = rc__find(s, &ids[i]);

		if (o)
			rc__delete(s, o);
	}
	rc__leave(s);
}
