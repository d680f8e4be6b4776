/* Bringing spilled objects back to memory, and reading ranges of them for other nodes.
 *
 * A restore goes: its turn (few at a time) - the header is read by a job - room is made through the creation queue, like for
 * any object - a job reads into it - seal. A restored copy may be evicted at once again: its spilled copy stays. Storage of
 * other kinds is read by an IO worker of Ray, which creates and seals the object through the socket.
 *
 * A restore ends early when the object comes by another way, or is deleted; then it has no object any more (o = NULL), and
 * what is still running is only cleaned up. A spilled copy that cannot be read for good (no file, not the format) is dropped,
 * so that nobody asks for it without end. */
#include "raylet-c/store/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raylet-c/base/log.h"

enum { MOST_RESTORES = 2, MOST_READ = 64 << 20 };

typedef enum step { QUEUED, OPENING, CREATING, READING, EXTERNAL, COMING } step; /* COMING: someone else is creating it */

typedef struct waiter {
	rc_store_restored_fn fn;
	void *arg;
} waiter;

struct rc__restore {
	rc__job job;
	rc_store *s;
	rc_link link; /* while queued */
	rc__object *o;
	rc_id id;
	step step;
	char *url;
	rc__file *file; /* kept from deletion; NULL: not one of ours */
	waiter *waiters;
	size_t n_waiters;
	uint64_t start_ns;
	rc__create *create;
	rc_store_buffer *buffer;
	const bool *stop;
	/* The jobs' part. */
	rc_spill_place place;
	rc_spill_header header;
	uint8_t *owner;
	int fd;
	int result;
	bool gone; /* the file is not there or not what it should be */
	rc_error error;
};

static void start_next(rc_store *s);

/* ---- ends ---- */

static void tell_one(rc_store *s, const rc_id *id, rc_store_restored_fn fn, void *arg, const char *error)
{
	rc__event *ev;

	if (!fn)
		return;
	ev = rc__event_new(s, RC__EV_RESTORED, NULL);
	ev->id = *id;
	ev->restored = fn;
	ev->arg = arg;
	ev->text = rc_strdup(error);
}

static void free_restore(rc__restore *r)
{
	if (r->fd >= 0)
		close(r->fd);
	free(r->place.path);
	free(r->url);
	free(r->owner);
	free(r->waiters);
	free(r);
}

static void drop_restore_job(rc__job *job)
{
	free_restore(RC_CONTAINER(job, rc__restore, job));
}

static void end_turn(rc_store *s, rc__restore *r) /* r has no object any more: frees it */
{
	bool had_turn = r->step != QUEUED && r->step != COMING;

	rc_list_remove(&r->link);
	if (r->file) {
		r->file->readers--;
		rc__file_unref(s, r->file);
	}
	free_restore(r);
	if (had_turn) {
		s->restoring--;
		start_next(s);
	}
}

/* Takes r from its object and tells those who wait. Frees r, but while a job, an IO worker or an event will come back to it. */
static void detach(rc_store *s, rc__restore *r, const char *error)
{
	for (size_t i = 0; i < r->n_waiters; i++)
		tell_one(s, &r->id, r->waiters[i].fn, r->waiters[i].arg, error);
	r->n_waiters = 0;
	r->o->restore = NULL;
	r->o = NULL;
	s->stats.restoring_objects--;
	if (r->step == OPENING || r->step == READING || r->step == EXTERNAL || (r->step == CREATING && r->create->done))
		return;
	if (r->step == CREATING) {
		rc__create_forget(s, r->create);
		free(r->create);
	}
	end_turn(s, r);
}

void rc__restore_sealed(rc_store *s, rc__object *o)
{
	rc__restore *r = o->restore;
	uint64_t now = rc__now_ns(), from = r->start_ns > s->last_restore_end_ns ? r->start_ns : s->last_restore_end_ns;

	if (o->source == RC_RESTORED && r->start_ns) {
		s->stats.restored_bytes_total += rc__size(o);
		s->stats.restored_objects_total++;
		s->stats.restore_time_total_s += (double)(now - from) / 1e9;
		s->last_restore_end_ns = now;
	}
	detach(s, r, "");
}

void rc__restore_drop(rc_store *s, rc__object *o, const char *why)
{
	detach(s, o->restore, why);
	rc__forget_if_empty(s, o);
}

void rc__restore_aborted(rc_store *s, rc__object *o)
{
	if (o->restore->step == COMING)
		rc__restore_drop(s, o, "its creation was given up");
}

/* r has its object, and no job, IO worker or event that comes back. Frees r. */
static void fail(rc_store *s, rc__restore *r, const char *why)
{
	rc__object *o = r->o;

	rc_error_log("object %s cannot be restored from %s: %s", rc_id_to_hex(&r->id).s, r->url, why);
	r->step = OPENING; /* detach leaves it to us */
	detach(s, r, why);
	if (r->gone && o->file && o->file == r->file) {
		bool lost = o->state == RC__ABSENT;

		rc__drop_spilled(s, o);
		if (lost)
			rc__event_new(s, RC__EV_GONE, o);
	}
	rc__update(s, o);
	end_turn(s, r);
}

void rc__restore_external_done(rc_store *s, rc__restore *r, const char *error)
{
	if (!r->o)
		end_turn(s, r);
	else
		fail(s, r, error && *error ? error : "the IO worker has not made it");
}

/* ---- the way of a file ---- */

static void read_work(rc__job *job)
{
	rc__restore *r = RC_CONTAINER(job, rc__restore, job);
	const rc_store_buffer *b = r->buffer;

	r->result = rc_spill_read(r->fd, &r->place, &r->header, 0, b->data_size + b->metadata_size, b->data, r->stop, &r->error);
	r->gone = r->result < 0 && r->error.code == RC_E_INVALID;
}

static void read_done(rc__job *job)
{
	rc__restore *r = RC_CONTAINER(job, rc__restore, job);
	rc_store *s = r->s;

	rc__enter(s);
	if (!r->o) { /* deleted meanwhile: what was read into waited for this */
		rc__aborted(s, rc__find(s, &r->id));
		end_turn(s, r);
	} else if (r->result == 0) {
		rc__sealed(s, r->o);
		end_turn(s, r);
	} else {
		rc__drop_memory(s, r->o);
		fail(s, r, r->error.text);
	}
	rc__leave(s);
}

static void created(void *arg, rc_store_buffer *b, rc_plasma_error why)
{
	rc__restore *r = arg;
	rc_store *s = r->s;

	rc__enter(s);
	r->create = NULL;
	if (!r->o) {
		if (b)
			rc__aborted(s, rc__find(s, &r->id));
		end_turn(s, r);
	} else if (b) {
		r->buffer = b;
		r->step = READING;
		r->job.work = read_work;
		r->job.done = read_done;
		rc__job_start(s, &r->job);
	} else if (why == RC_PE_EXISTS && r->o->state == RC__CREATED) {
		r->step = COMING;
		s->restoring--;
		start_next(s);
	} else {
		fail(s, r, why == RC_PE_NO_DISK ? "no memory and no disk space for it" : "no memory for it");
	}
	rc__leave(s);
}

static void open_work(rc__job *job)
{
	rc__restore *r = RC_CONTAINER(job, rc__restore, job);

	r->fd = rc_spill_open(&r->place, &r->header, &r->error);
	r->result = r->fd < 0 ? -1 : 0;
	if (r->fd < 0) {
		r->gone = r->error.code == RC_E_INVALID || (access(r->place.path, F_OK) < 0 && errno == ENOENT);
		return;
	}
	r->owner = rc_alloc(r->header.owner_size + 1);
	r->result = rc_spill_read_owner(r->fd, &r->place, &r->header, r->owner, &r->error);
}

static void unpack_owner(const rc_store *s, const rc__restore *r, rc_owner *ret)
{
	Rw__Address *m = rc_unpack(s->dialect, &rw__address__descriptor, rc_view_of(r->owner, r->header.owner_size));

	*ret = (rc_owner){ 0 };
	if (!m)
		return;
	ret->node_id = RC_GET_ID(m, node_id);
	ret->worker_id = RC_GET_ID(m, worker_id);
	ret->port = RC_GET(m, port);
	strncpy(ret->ip, RC_GET_STR(m, ip_address), sizeof ret->ip - 1);
	rc_free_message(m);
}

static void open_done(rc__job *job)
{
	rc__restore *r = RC_CONTAINER(job, rc__restore, job);
	rc_store *s = r->s;
	rc__object *o = r->o;
	bool ours = o && o->file && o->file == r->file;

	rc__enter(s);
	if (!o) {
		end_turn(s, r);
	} else if (r->result < 0) {
		fail(s, r, r->error.text);
	} else if (ours && (o->spilled_data_size != r->header.data_size || o->spilled_metadata_size != r->header.metadata_size)) {
		r->gone = true;
		fail(s, r, "the file has another object there");
	} else {
		rc_store_new what = { .id = r->id, .data_size = r->header.data_size, .metadata_size = r->header.metadata_size, .source = RC_RESTORED };

		if (ours)
			what.owner = o->owner;
		else
			unpack_owner(s, r, &what.owner);
		r->step = CREATING;
		r->create = rc__create_add(s, &what, NULL, false);
		r->create->fn = created;
		r->create->arg = r;
		s->check_creates = true;
	}
	rc__leave(s);
}

static void start_next(rc_store *s)
{
	while (s->restoring < MOST_RESTORES && !rc_list_empty(&s->restores)) {
		rc__restore *r = RC_CONTAINER(s->restores.next, rc__restore, link);

		rc_list_remove(&r->link);
		s->restoring++;
		r->start_ns = rc__now_ns();
		if (r->place.path) {
			r->step = OPENING;
			r->job.work = open_work;
			r->job.done = open_done;
			rc__job_start(s, &r->job);
		} else {
			rc__event *ev = rc__event_new(s, RC__EV_RESTORE_EXTERNAL, NULL);

			r->step = EXTERNAL;
			ev->id = r->id;
			ev->text = rc_strdup(r->url);
			ev->job = rc__external_restore(s, r);
		}
	}
}

/* ---- public ---- */

/* NULL: e says why not. */
static rc__restore *new_restore(rc_store *s, rc__object *o, const char *url, rc_error *e)
{
	bool external = s->spill_type[0] && !s->spill_to_files;
	rc_spill_place place = { 0 };
	rc__restore *r;

	if (!external && rc_spill_parse_url(url, &place, e) < 0)
		return NULL;
	r = rc_alloc(sizeof *r);
	*r = (rc__restore){ .job = { .drop = drop_restore_job }, .s = s, .o = o, .id = o->id, .url = rc_strdup(url), .file = o->file, .fd = -1,
		            .stop = &s->stopping, .place = place };
	rc_list_init(&r->link);
	if (r->file)
		r->file->readers++;
	o->restore = r;
	s->stats.restoring_objects++;
	if (o->state == RC__CREATED)
		r->step = COMING;
	else
		rc_list_append(&s->restores, &r->link);
	return r;
}

void rc_store_restore(rc_store *s, const rc_id *id, const char *url, rc_store_restored_fn fn, void *arg)
{
	rc__object *o = rc__find(s, id);
	rc_error e = { 0 };

	rc__enter(s);
	if (o && o->state == RC__SEALED) {
		tell_one(s, id, fn, arg, "");
	} else if (o && o->deleting) {
		tell_one(s, id, fn, arg, "the object was deleted");
	} else if (!(o && (o->file || o->restore)) && !url) {
		tell_one(s, id, fn, arg, "no spilled copy of it is known here");
	} else {
		o = rc__entry(s, id);
		if (!o->restore && !new_restore(s, o, o->file ? o->url : url, &e)) {
			tell_one(s, id, fn, arg, e.text);
			rc__forget_if_empty(s, o);
		} else if (fn) {
			rc__restore *r = o->restore;

			r->waiters = rc_realloc(r->waiters, (r->n_waiters + 1) * sizeof *r->waiters);
			r->waiters[r->n_waiters++] = (waiter){ fn, arg };
		}
		start_next(s);
	}
	rc__leave(s);
}

void rc_store_restore_cancel(rc_store *s, const rc_id *id, rc_store_restored_fn fn, void *arg)
{
	rc__object *o = rc__find(s, id);
	rc__restore *r = o ? o->restore : NULL;

	for (size_t i = 0; r && i < r->n_waiters; i++) {
		if (r->waiters[i].fn != fn || r->waiters[i].arg != arg)
			continue;
		r->waiters[i] = r->waiters[--r->n_waiters];
		return;
	}
	RC_LIST_FOREACH(l, &s->events) {
		rc__event *ev = RC_CONTAINER(l, rc__event, link);

		if (ev->kind != RC__EV_RESTORED || ev->restored != fn || ev->arg != arg || !rc_id_eq(&ev->id, id))
			continue;
		rc_list_remove(l);
		rc__event_free(ev);
		return;
	}
}

void rc__restore_end(rc_store *s)
{
	rc_view key;
	void *value;

	for (size_t i = 0; rc_map_next(s->objects, &i, &key, &value);) {
		rc__restore *r = ((rc__object *)value)->restore;

		if (r && (r->step == QUEUED || r->step == COMING || (r->step == CREATING && !r->create->done)))
			free_restore(r);
	}
	RC_LIST_FOREACH(l, &s->events) {
		rc__event *ev = RC_CONTAINER(l, rc__event, link);

		if (ev->kind == RC__EV_CREATED && ev->create->fn == created)
			free_restore(ev->create->arg);
	}
}

void rc__restore_free(rc__restore *r)
{
	free_restore(r);
}

/* ---- ranges ---- */

typedef struct range_job {
	rc__job job;
	rc_store *s;
	rc__file *file;
	rc_spill_place place;
	uint64_t offset;
	size_t n;
	uint8_t *bytes;
	const bool *stop;
	rc_store_read_fn fn;
	void *arg;
	rc_error error;
} range_job;

static void range_work(rc__job *job)
{
	range_job *r = RC_CONTAINER(job, range_job, job);
	rc_spill_header header;
	int fd;

	if (!r->place.path) /* refused: the answer comes later all the same */
		return;
	fd = rc_spill_open(&r->place, &header, &r->error);
	if (fd < 0)
		return;
	r->bytes = rc_alloc(r->n + 1);
	if (rc_spill_read(fd, &r->place, &header, r->offset, r->n, r->bytes, r->stop, &r->error) < 0) {
		free(r->bytes);
		r->bytes = NULL;
	}
	close(fd);
}

static void range_drop(rc__job *job)
{
	range_job *r = RC_CONTAINER(job, range_job, job);

	free(r->place.path);
	free(r->bytes);
	free(r);
}

static void range_done(rc__job *job)
{
	range_job *r = RC_CONTAINER(job, range_job, job);
	rc_store *s = r->s;
	uint8_t *bytes = r->bytes;

	rc__enter(s);
	if (r->file) {
		r->file->readers--;
		rc__file_unref(s, r->file);
	}
	r->bytes = NULL;
	rc__leave(s);
	r->fn(r->arg, bytes, bytes ? r->n : 0, bytes ? "" : r->error.text);
	range_drop(job);
}

void rc_store_read_spilled(rc_store *s, const rc_id *id, uint64_t offset, size_t n, rc_store_read_fn fn, void *arg)
{
	rc__object *o = rc__find(s, id);
	range_job *r = rc_alloc(sizeof *r);

	*r = (range_job){ .job = { .work = range_work, .done = range_done, .drop = range_drop }, .s = s, .offset = offset, .n = n,
		          .stop = &s->stopping, .fn = fn, .arg = arg };
	if (!o || !o->file || !s->spill_to_files) {
		rc_fail(&r->error, RC_E_NOT_FOUND, "object %s has no spill file here", rc_id_to_hex(id).s);
	} else if (n > MOST_READ) {
		rc_fail(&r->error, RC_E_INVALID, "%zu bytes are too much for one read of a spilled object", n);
	} else if (rc_spill_parse_url(o->url, &r->place, &r->error) == 0) {
		r->file = o->file;
		r->file->readers++;
	}
	rc__job_start(s, &r->job);
}
