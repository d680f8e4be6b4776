/* The object table: entries, their memory, what may be evicted or spilled, deletion that waits for readers, and the queue of
 * events for the rest of the daemon.
 *
 * An entry lives while it has a memory copy, a spilled copy, or a restore under way. rc__update is the one place that decides
 * what may happen to a memory copy; it is called after every change of what it looks at. */
#include "raylet-c/store/internal.h"

#include <stdlib.h>
#include <string.h>

rc__object *rc__find(const rc_store *s, const rc_id *id)
{
	return rc_map_get_id(s->objects, id);
}

rc__object *rc__entry(rc_store *s, const rc_id *id)
{
	rc__object *o = rc__find(s, id);

	if (o)
		return o;
	o = rc_alloc(sizeof *o);
	o->id = *id;
	rc_list_init(&o->idle_link);
	rc_map_put_id(s->objects, id, o);
	return o;
}

uint64_t rc__size(const rc__object *o)
{
	return o->data_size + o->metadata_size;
}

void rc__forget_if_empty(rc_store *s, rc__object *o)
{
	if (o->state != RC__ABSENT || o->file || o->restore)
		return;
	rc_map_del_id(s->objects, &o->id);
	free(o);
}

/* ---- events ---- */

rc__event *rc__event_new(rc_store *s, rc__event_kind kind, const rc__object *o)
{
	rc__event *ev = rc_alloc(sizeof *ev);

	ev->kind = kind;
	if (o) {
		ev->id = o->id;
		ev->owner = o->owner;
		ev->data_size = o->data_size;
		ev->metadata_size = o->metadata_size;
		ev->source = o->source;
	}
	rc_list_append(&s->events, &ev->link);
	return ev;
}

void rc__event_free(rc__event *ev)
{
	free(ev->text);
	free(ev->ids);
	free(ev->owners);
	free(ev->create);
	free(ev);
}

static void run_event(rc_store *s, rc__event *ev)
{
	const rc_store_ops *ops = &s->ops;
	const char *const url = ev->text;

	switch (ev->kind) {
	case RC__EV_SEALED:
		if (ops->sealed)
			ops->sealed(s->ctx, &ev->id, &ev->owner, ev->data_size, ev->metadata_size, ev->source, ev->flag);
		break;
	case RC__EV_GONE:
		if (ops->gone)
			ops->gone(s->ctx, &ev->id, &ev->owner, ev->flag);
		break;
	case RC__EV_SPILLED:
		if (ops->spilled)
			ops->spilled(s->ctx, &ev->id, &ev->owner, url);
		break;
	case RC__EV_FULL:
		if (ops->full)
			ops->full(s->ctx);
		break;
	case RC__EV_CREATED:
		rc__create_forget(s, ev->create);
		if (!ev->create->cancelled)
			ev->create->fn(ev->create->arg, ev->create->buffer, ev->create->error);
		break;
	case RC__EV_RESTORED:
		ev->restored(ev->arg, &ev->id, url);
		break;
	case RC__EV_SPILL_EXTERNAL:
		ops->spill_external(s->ctx, ev->job, ev->ids, ev->owners, ev->n);
		break;
	case RC__EV_RESTORE_EXTERNAL:
		ops->restore_external(s->ctx, ev->job, &ev->id, url);
		break;
	case RC__EV_DELETE_EXTERNAL:
		if (ops->delete_external)
			ops->delete_external(s->ctx, &url, 1);
		break;
	}
}

void rc__run_events(rc_store *s)
{
	while (!rc_list_empty(&s->events)) {
		rc__event *ev = RC_CONTAINER(s->events.next, rc__event, link);

		rc_list_remove(&ev->link);
		run_event(s, ev);
		rc__event_free(ev);
	}
}

/* ---- lists and figures ---- */

static uint64_t arena_size(const rc__object *o)
{
	return o->block ? o->block->size : 0;
}

static void set_idle(rc_store *s, rc__object *o, rc__idle kind)
{
	if (kind == o->idle)
		return;
	if (o->idle != RC__BUSY) {
		s->idle[o->idle].bytes -= arena_size(o);
		s->idle[o->idle].n--;
		rc_list_remove(&o->idle_link);
	}
	o->idle = kind;
	if (kind == RC__BUSY)
		return;
	s->idle[kind].bytes += arena_size(o);
	s->idle[kind].n++;
	rc_list_append(&s->idle[kind].head, &o->idle_link);
	s->changes++;
	s->check_creates = s->check_spill = true;
}

static void count(bool *counted, bool now, uint64_t size, uint64_t *bytes, uint64_t *objects)
{
	if (*counted == now)
		return;
	*counted = now;
	*bytes += now ? size : -size;
	*objects += now ? 1 : -(uint64_t)1;
}

void rc__drop_memory(rc_store *s, rc__object *o)
{
	uint64_t size = rc__size(o);

	set_idle(s, o, RC__BUSY);
	count(&o->counted_in_use, false, size, &s->stats.in_use_bytes, &s->stats.in_use_objects);
	count(&o->counted_primary, false, size, &s->stats.primary_bytes, &s->stats.primary_objects);
	if (o->state == RC__SEALED) {
		s->stats.used_bytes -= size;
		s->stats.local_objects--;
	} else {
		s->stats.unsealed_bytes -= size;
		s->stats.unsealed_objects--;
	}
	if (o->block)
		rc_heap_give(s->heap, o->block);
	if (o->fallback) {
		s->stats.fallback_bytes -= o->fallback->size;
		rc__segment_gone(s, o->fallback->unique_id);
		rc_segment_close(o->fallback);
	}
	free(o->buffer);
	o->block = NULL;
	o->fallback = NULL;
	o->data = NULL;
	o->buffer = NULL;
	o->creator = NULL;
	o->state = RC__ABSENT;
	o->deleting = false;
	s->changes++;
	s->check_creates = true;
}

void rc__update(rc_store *s, rc__object *o)
{
	bool sealed = o->state == RC__SEALED, used = o->clients || o->holds;
	rc__idle kind = RC__BUSY;

	if (o->deleting && sealed && !used && !o->spilling) {
		rc__event_new(s, RC__EV_GONE, o);
		rc__drop_memory(s, o);
		rc__forget_if_empty(s, o);
		return;
	}
	count(&o->counted_in_use, used && o->state != RC__ABSENT, rc__size(o), &s->stats.in_use_bytes, &s->stats.in_use_objects);
	count(&o->counted_primary, o->pinned && sealed && !o->file, rc__size(o), &s->stats.primary_bytes, &s->stats.primary_objects);
	if (sealed && !used && !o->spilling && !o->deleting) {
		if (!o->pinned || o->file)
			kind = o->fallback ? RC__EVICTABLE_DISK : RC__EVICTABLE;
		else if (!o->fallback && !o->is_mutable) /* what is on disk already makes no room by moving */
			kind = RC__SPILLABLE;
	}
	set_idle(s, o, kind);
	rc__forget_if_empty(s, o);
}

/* ---- life ---- */

void rc__attach(rc_store *s, rc__object *o, const rc_store_new *what, rc_block *block, rc_segment *fallback, bool is_mutable)
{
	o->owner = what->owner;
	o->state = RC__CREATED;
	o->source = what->source;
	o->is_mutable = is_mutable;
	o->by_client = false;
	o->data_size = what->data_size;
	o->metadata_size = what->metadata_size;
	o->block = block;
	o->fallback = fallback;
	o->data = (fallback ? fallback->base : s->arena->base + block->offset) + (is_mutable ? RC__MUTABLE_HEADER : 0);
	o->created_ms = rc_now_ms();
	if (block)
		block->user = o;
	if (fallback)
		s->stats.fallback_bytes += fallback->size;
	s->stats.unsealed_bytes += rc__size(o);
	s->stats.unsealed_objects++;
	s->stats.created_bytes_total += rc__size(o);
	s->stats.created_objects_total++;
	s->changes++; /* for one who waits to create the same */
}

void rc__sealed(rc_store *s, rc__object *o)
{
	o->state = RC__SEALED;
	o->creator = NULL;
	free(o->buffer);
	o->buffer = NULL;
	s->stats.unsealed_bytes -= rc__size(o);
	s->stats.unsealed_objects--;
	s->stats.used_bytes += rc__size(o);
	s->stats.local_objects++;
	rc__event_new(s, RC__EV_SEALED, o)->flag = o->by_client;
	if (o->restore)
		rc__restore_sealed(s, o);
	rc__gets_sealed(s, o);
	rc__update(s, o);
}

void rc__aborted(rc_store *s, rc__object *o)
{
	rc__drop_memory(s, o);
	if (o->restore)
		rc__restore_aborted(s, o);
	else
		rc__forget_if_empty(s, o);
}

void rc__evict(rc_store *s, rc__object *o)
{
	s->stats.evicted_bytes_total += rc__size(o);
	s->stats.evicted_objects_total++;
	rc__event_new(s, RC__EV_GONE, o)->flag = o->file != NULL;
	rc__drop_memory(s, o);
	rc__forget_if_empty(s, o);
}

void rc__drop_spilled(rc_store *s, rc__object *o)
{
	rc__file *f = o->file;

	if (!f)
		return;
	s->stats.spilled_objects_now--;
	s->stats.spilled_bytes_now -= o->spilled_data_size + o->spilled_metadata_size;
	free(o->url);
	o->url = NULL;
	o->file = NULL;
	f->objects--;
	rc__file_unref(s, f);
}

void rc__delete(rc_store *s, rc__object *o)
{
	o->pinned = false;
	rc__drop_spilled(s, o);
	if (o->state != RC__ABSENT)
		o->deleting = true;
	if (o->restore) {
		bool absent = o->state == RC__ABSENT;

		rc__restore_drop(s, o, "the object was deleted");
		if (absent)
			return; /* freed */
	}
	rc__update(s, o);
}
