/* Room for new objects: the arena grows into its promised size, copies that nobody needs are evicted, primary copies are
 * spilled, and at last an object is put on disk. Those who cannot be served at once wait in one queue, served in order.
 *
 * Rules: a request that waits is tried again after each change that may have made room. While objects are being spilled it
 * waits; when nothing is, it waits oom_grace_period_s for garbage collection and for readers to let go; then it gets a file
 * on disk, or is refused. An object larger than the arena goes to disk at once: nothing that happens here could help it.
 *
 * The arena's pages are reserved as it grows, not at the start: a node that stores little takes little memory, and a full
 * /dev/shm makes the arena smaller instead of killing who touches it. Some of the file system is left free for others. */
#include "raylet-c/store/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raylet-c/base/log.h"

enum {
	GROW_STEP = 2 << 20,
	GROW_INLINE = 8 << 20, /* more is made by a job: it takes milliseconds */
	GROW_PAUSE_MS = 1000,
	TICK_MS = 20,
	CALM_MS = 10000, /* the store is full anew when it was not for so long */
	TELL_MS = 1000,
	LOG_MS = 60000,
};
#define LARGEST (UINT64_C(1) << 46) /* refused whatever the capacity: sums stay far from overflow */

static bool every(uint64_t *last_ms, uint64_t pause_ms) /* true at most once in pause_ms */
{
	uint64_t now = rc_now_ms();

	if (*last_ms && now - *last_ms < pause_ms)
		return false;
	*last_ms = now;
	return true;
}

static uint64_t need_of(const rc_store_new *n, bool is_mutable)
{
	return n->data_size + n->metadata_size + (is_mutable ? RC__MUTABLE_HEADER : 0);
}

/* ---- growing ---- */

typedef struct grow_job {
	rc__job job;
	rc_segment *arena;
	const bool *stop;
	uint64_t to, keep_free;
	int result;
	rc_error error;
} grow_job;

uint64_t rc__arena_limit(const rc_store *s)
{
	return s->grow_again_ms ? rc_heap_size(s->heap) : rc_heap_round(s->heap, s->capacity);
}

static void grown(rc_store *s, int result, const rc_error *e) /* takes what was reserved into use */
{
	uint64_t limit = rc_heap_round(s->heap, s->capacity), size = rc_heap_size(s->heap);
	uint64_t reserved = s->arena->reserved > limit ? limit : s->arena->reserved;

	rc_heap_grow(s->heap, reserved - size);
	s->changes++;
	s->check_creates = true;
	if (result == 0)
		return;
	s->grow_again_ms = rc_now_ms() + GROW_PAUSE_MS;
	if (every(&s->grow_logged_ms, LOG_MS))
		rc_warn("object store: %s in %s; the arena stays at %llu of %llu bytes until there is more", e->text, s->plasma_dir,
		        (unsigned long long)reserved, (unsigned long long)s->capacity);
}

static void grow_work(rc__job *job)
{
	grow_job *g = RC_CONTAINER(job, grow_job, job);

	g->result = rc_segment_reserve(g->arena, g->to, g->keep_free, g->stop, &g->error);
}

static void grow_done(rc__job *job)
{
	grow_job *g = RC_CONTAINER(job, grow_job, job);
	rc_store *s = job->s;

	rc__enter(s);
	s->growing = false;
	grown(s, g->result, &g->error);
	free(g);
	rc__leave(s);
}

static void grow_drop(rc__job *job)
{
	free(RC_CONTAINER(job, grow_job, job));
}

/* True when the heap has become larger. *pending: it will, later. */
static bool grow(rc_store *s, uint64_t bytes, bool at_once, bool *pending)
{
	uint64_t size = rc_heap_size(s->heap), limit = rc_heap_round(s->heap, s->capacity), tail = rc_heap_tail(s->heap), to;
	rc_error e;

	if (size >= limit || s->grow_again_ms)
		return false;
	if (s->growing) {
		*pending = !at_once;
		return false;
	}
	to = size + (bytes > tail ? bytes - tail : RC__ALIGN);
	to = (to + GROW_STEP - 1) / GROW_STEP * GROW_STEP;
	to = to > limit ? limit : to;
	if (!at_once && to - size > GROW_INLINE) {
		grow_job *g = rc_alloc(sizeof *g);

		*g = (grow_job){ .job = { .work = grow_work, .done = grow_done, .drop = grow_drop },
			         .arena = s->arena, .stop = &s->stopping, .to = to, .keep_free = s->keep_free };
		s->growing = *pending = true;
		rc__job_start(s, &g->job);
		return false;
	}
	grown(s, rc_segment_reserve(s->arena, to, s->keep_free, NULL, &e), &e);
	return rc_heap_size(s->heap) > size;
}

/* ---- evicting ---- */

static rc__object *oldest(rc_store *s, rc__idle kind)
{
	return RC_CONTAINER(s->idle[kind].head.next, rc__object, idle_link);
}

static bool may_take(const rc_block *b)
{
	return b->free || ((const rc__object *)b->user)->idle == RC__EVICTABLE;
}

static uint64_t cost_of(const rc_block *b)
{
	return b->free ? 0 : b->size;
}

typedef struct run { /* of neighbours, free or evictable */
	const rc_block *from, *end;
	uint64_t cost; /* bytes to evict */
} run;

/* The run of at least so many bytes that costs the least. */
static bool find_run(const rc_store *s, uint64_t bytes, run *ret)
{
	const rc_block *from = NULL;
	uint64_t total = 0, cost = 0;

	*ret = (run){ .cost = UINT64_MAX };
	for (const rc_block *b = rc_heap_first(s->heap); b; b = b->next) {
		if (!may_take(b)) {
			from = NULL;
			continue;
		}
		if (!from) {
			from = b;
			total = cost = 0;
		}
		total += b->size;
		cost += cost_of(b);
		for (; total - from->size >= bytes; from = from->next) {
			total -= from->size;
			cost -= cost_of(from);
		}
		if (total >= bytes && cost < ret->cost)
			*ret = (run){ from, b->next, cost };
	}
	return ret->from != NULL;
}

static void evict_run(rc_store *s, const run *r)
{
	rc_buf victims = { 0 };

	for (const rc_block *b = r->from; b != r->end; b = b->next) /* evicting joins blocks: so first look, then evict */
		if (!b->free)
			rc_buf_add(&victims, &b->user, sizeof b->user);
	for (size_t i = 0; i < victims.n; i += sizeof(rc__object *)) {
		rc__object *o;

		memcpy(&o, victims.p + i, sizeof o);
		rc__evict(s, o);
	}
	rc_buf_free(&victims);
}

uint64_t rc__evict_bytes(rc_store *s, uint64_t bytes)
{
	uint64_t evicted = 0;

	while (evicted < bytes && s->idle[RC__EVICTABLE].n) {
		rc__object *o = oldest(s, RC__EVICTABLE);

		evicted += rc__size(o);
		rc__evict(s, o);
	}
	return evicted;
}

/* Evicts only when that makes the room: what there is may be wanted again. The longest idle go first; when the hole that they
 * leave is not in one piece, the cheapest run of neighbours. */
static rc_block *evict_and_take(rc_store *s, uint64_t bytes)
{
	uint64_t size = rc_heap_round(s->heap, bytes), unused = rc_heap_free_bytes(s->heap);
	uint64_t need = size > unused ? size - unused : 0, evicted = 0;
	rc_block *b = NULL;
	run r;

	if (need > s->idle[RC__EVICTABLE].bytes || !find_run(s, size, &r))
		return NULL;
	while (evicted < need) {
		rc__object *o = oldest(s, RC__EVICTABLE);

		evicted += o->block->size;
		rc__evict(s, o);
	}
	if (need)
		b = rc_heap_take(s->heap, bytes);
	if (!b && find_run(s, size, &r)) {
		evict_run(s, &r);
		b = rc_heap_take(s->heap, bytes);
	}
	return b;
}

static rc_block *take(rc_store *s, uint64_t bytes, bool at_once, bool *pending)
{
	rc_block *b = rc_heap_take(s->heap, bytes);

	if (!b && grow(s, rc_heap_round(s->heap, bytes), at_once, pending))
		b = rc_heap_take(s->heap, bytes);
	if (!b && !*pending)
		b = evict_and_take(s, bytes);
	return b;
}

/* ---- making an object ---- */

static void start_header(uint8_t *header) /* of a mutable object: a channel of compiled graphs, no reader or writer yet */
{
	static unsigned count;

	memset(header, 0, RC__MUTABLE_HEADER);
	/* Two semaphores get their names from this text; no more than 30 bytes. */
	snprintf((char *)header + 4, 31, "%d-%llu", (int)getpid(), (unsigned long long)rc__now_ns() + count++);
}

static rc__object *attach(rc_store *s, const rc_store_new *n, rc_block *b, rc_segment *fallback, bool is_mutable)
{
	rc__object *o = rc__entry(s, &n->id);

	rc__attach(s, o, n, b, fallback, is_mutable);
	if (is_mutable)
		start_header(o->data - RC__MUTABLE_HEADER);
	return o;
}

static bool exists(rc_store *s, const rc_id *id)
{
	rc__object *o = rc__find(s, id);

	return o && o->state != RC__ABSENT;
}

static bool table_has_room(rc_store *s)
{
	size_t before = rc_map_count(s->objects);

	if (before >= s->max_objects && s->idle[RC__EVICTABLE].n)
		rc__evict(s, oldest(s, RC__EVICTABLE));
	return rc_map_count(s->objects) < s->max_objects;
}

static rc_plasma_error in_arena(rc_store *s, const rc_store_new *n, bool is_mutable, bool at_once, bool *pending, rc__object **ret)
{
	rc_block *b;

	if (exists(s, &n->id))
		return RC_PE_EXISTS;
	b = table_has_room(s) ? take(s, need_of(n, is_mutable), at_once, pending) : NULL;
	if (!b)
		return RC_PE_NO_MEMORY;
	*ret = attach(s, n, b, NULL, is_mutable);
	return RC_PE_OK;
}

static rc_plasma_error on_disk(rc_store *s, const rc_store_new *n, bool is_mutable, rc__object **ret)
{
	uint64_t bytes = need_of(n, is_mutable);
	rc_id_hex hex = rc_id_to_hex(&n->id);
	rc_plasma_error error = RC_PE_NO_MEMORY;
	rc_segment *segment = NULL;
	rc_error e;

	if (exists(s, &n->id))
		return RC_PE_EXISTS;
	while (s->idle[RC__EVICTABLE_DISK].n)
		rc__evict(s, oldest(s, RC__EVICTABLE_DISK));
	if (!table_has_room(s)) {
		rc_fail(&e, RC_E_FULL, "it has %zu objects already", s->max_objects);
	} else if (!s->fallback_dir) {
		rc_fail(&e, RC_E_FULL, "it cannot go to disk: no fallback directory is given");
	} else if (rc__disk_is_full(s, s->fallback_dir, bytes)) {
		rc_fail(&e, RC_E_FULL, "it cannot go to disk: %s would be more than %g full (local_fs_capacity_threshold)", s->fallback_dir,
		        s->config.fs_capacity_threshold);
		error = RC_PE_NO_DISK;
	} else {
		/* Making the blocks of a disk file is quick: the file system only notes them. */
		segment = rc_segment_open(s->fallback_dir, bytes ? bytes : 1, false, ++s->next_segment, &e);
		if (segment && rc_segment_reserve(segment, segment->size, 0, NULL, &e) < 0) {
			error = RC_PE_NO_DISK;
			rc_segment_close(segment);
			segment = NULL;
		}
	}
	if (!segment) {
		if (every(&s->full_logged_ms, TELL_MS))
			rc_error_log("object %s of %llu bytes is refused: the object store is full (%llu of %llu bytes free); %s",
			             hex.s, (unsigned long long)bytes, (unsigned long long)rc_heap_free_bytes(s->heap), (unsigned long long)s->capacity, e.text);
		return error;
	}
	segment->fallback = true;
	if (every(&s->full_logged_ms, TELL_MS))
		rc_info("object %s of %llu bytes goes to disk in %s: the object store is full", hex.s, (unsigned long long)bytes, s->fallback_dir);
	*ret = attach(s, n, NULL, segment, is_mutable);
	return RC_PE_OK;
}

static bool is_absurd(const rc_store_new *n)
{
	return n->data_size > LARGEST || n->metadata_size > LARGEST;
}

rc_plasma_error rc__create_now(rc_store *s, const rc_store_new *object, bool is_mutable, rc__object **ret)
{
	bool pending = false;
	rc_plasma_error error = RC_PE_NO_MEMORY;

	if (!is_absurd(object))
		error = in_arena(s, object, is_mutable, true, &pending, ret);
	return error == RC_PE_NO_MEMORY && !is_absurd(object) ? on_disk(s, object, is_mutable, ret) : error;
}

/* ---- the queue ---- */

static void tick(void *arg)
{
	rc_store *s = arg;

	rc__enter(s);
	if (s->grow_again_ms && rc_now_ms() >= s->grow_again_ms) {
		s->grow_again_ms = 0;
		s->changes++;
	}
	s->check_creates = true;
	rc__leave(s);
}

static void keep_ticking(rc_store *s, bool on)
{
	if (on && !s->create_timer)
		s->create_timer = rc_timer_start(s->loop, TICK_MS, TICK_MS, tick, s);
	if (!on && s->create_timer) {
		rc_timer_stop(s->create_timer);
		s->create_timer = NULL;
	}
}

/* There is no room for c. True: it waits; false: *error is decided. */
static bool waits(rc_store *s, const rc__create *c, rc_plasma_error *error, rc__object **ret)
{
	uint64_t now = rc_now_ms();

	if (rc_heap_round(s->heap, need_of(&c->object, c->is_mutable)) <= rc_heap_round(s->heap, s->capacity)) {
		if (every(&s->full_told_ms, TELL_MS))
			rc__event_new(s, RC__EV_FULL, NULL);
		rc__spill_check(s);
		if (rc__spilling(s)) {
			s->full_since_ms = 0;
			return true;
		}
		if (!s->full_since_ms || now - s->full_last_ms > CALM_MS)
			s->full_since_ms = now;
		s->full_last_ms = now;
		if (now - s->full_since_ms < s->config.grace_ms)
			return true;
	}
	*error = on_disk(s, &c->object, c->is_mutable, ret);
	return false;
}

static void leave_queue(rc_store *s, rc__create *c)
{
	rc_list_remove(&c->link);
	s->stats.waiting_creates--;
	s->stats.waiting_bytes -= need_of(&c->object, c->is_mutable);
}

static void finish(rc_store *s, rc__create *c, rc_plasma_error error, rc__object *o)
{
	leave_queue(s, c);
	c->done = true;
	c->error = error;
	if (c->client) {
		if (!o)
			return;
		o->by_client = true;
		o->creator = c->client;
		rc__client_has(s, c->client, o);
		return;
	}
	if (o) {
		o->buffer = rc_alloc(sizeof *o->buffer);
		*o->buffer = (rc_store_buffer){ o->data, o->data_size, o->metadata_size, o->id };
		c->buffer = o->buffer;
	}
	rc__event_new(s, RC__EV_CREATED, NULL)->create = c;
}

void rc__process_creates(rc_store *s)
{
	s->check_creates = false;
	while (!rc_list_empty(&s->creates)) {
		rc__create *c = RC_CONTAINER(s->creates.next, rc__create, link);
		rc_plasma_error error = RC_PE_NO_MEMORY;
		bool pending = false;
		rc__object *o = NULL;

		if (!c->absurd) {
			if (s->tried_number != c->number || s->tried_changes != s->changes) {
				error = in_arena(s, &c->object, c->is_mutable, false, &pending, &o);
				s->tried_number = c->number;
				s->tried_changes = s->changes;
			}
			if (pending || (error == RC_PE_NO_MEMORY && waits(s, c, &error, &o))) {
				keep_ticking(s, true);
				return;
			}
			if (o && o->block)
				s->full_since_ms = 0;
		}
		finish(s, c, error, o);
	}
	keep_ticking(s, s->grow_again_ms != 0);
}

rc__create *rc__create_add(rc_store *s, const rc_store_new *object, rc__client *client, bool is_mutable)
{
	rc__create *c = rc_alloc(sizeof *c);

	c->number = ++s->next_number;
	c->object = *object;
	c->is_mutable = is_mutable;
	c->client = client;
	c->absurd = is_absurd(object);
	if (c->absurd)
		c->object.data_size = c->object.metadata_size = 0;
	rc_list_append(&s->creates, &c->link);
	s->stats.waiting_creates++;
	s->stats.waiting_bytes += need_of(&c->object, is_mutable);
	rc_map_put(s->create_numbers, rc_view_of(&c->number, sizeof c->number), c);
	return c;
}

rc__create *rc__create_find(const rc_store *s, uint64_t number)
{
	return rc_map_get(s->create_numbers, rc_view_of(&number, sizeof number));
}

void rc__create_forget(rc_store *s, rc__create *c)
{
	if (!c->done) {
		leave_queue(s, c);
		s->check_creates = true;
	}
	rc_map_del(s->create_numbers, rc_view_of(&c->number, sizeof c->number));
}

uint64_t rc__creates_need(const rc_store *s)
{
	uint64_t need = s->stats.waiting_bytes;

	return need > s->capacity ? s->capacity : need;
}
