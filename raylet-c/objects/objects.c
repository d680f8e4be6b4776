/* Life, calls, events, services, frees and figures of the object manager. See objects.h and internal.h.
 *
 * Calls: gRPC's callbacks may come long after what asked for them is gone, so each goes through an rc__om_call that can be
 * dropped; the module's end drops all.
 *
 * Frees: 2.35.0: the owner publishes an eviction to the node with the primary copy, and that node tells all others
 * (ObjectManagerService/FreeObjects, batched: free_objects_period_milliseconds, free_objects_batch_size). 2.60.0: the owner
 * calls FreeLocalObjects on every node that has a copy. What a dead owner leaves, pinned or not, is deleted by this node: no
 * one can ask for it any more, and stock lets unpinned copies lie until the store is full. */
#include "raylet-c/objects/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum {
	TICK_MS = 1000,
	FREE_BATCH = 100,          /* stock's free_objects_batch_size */
	FREE_TIMEOUT_MS = 30000,
	MAX_FREED = 1000000,       /* ids waiting to be told */
	STALL_MS = 5000,           /* of the fabric: before a pull loses patience */
};

/* ---- calls ---- */

struct rc__om_call {
	rc_link link;
	rc_objects *o; /* NULL: dropped */
	rc__om_reply_fn fn;
	void *arg;
	uint64_t id;
};

static void on_reply(void *arg, int status, rc_view reply, const char *detail)
{
	rc__om_call *call = arg;
	rc_objects *o = call->o;

	rc_list_remove(&call->link);
	if (o) {
		rc__om_reply_fn fn = call->fn;
		void *fn_arg = call->arg;

		free(call);
		fn(fn_arg, status, reply, detail);
		return;
	}
	free(call);
}

static rc__om_call *new_call(rc_objects *o, rc__om_reply_fn fn, void *arg)
{
	rc__om_call *call = rc_alloc(sizeof *call);

	call->o = o;
	call->fn = fn;
	call->arg = arg;
	rc_list_append(&o->calls, &call->link);
	return call;
}

rc__om_call *rc__om_send_own(rc_objects *o, const char *target, const char *path, rc_view request, uint64_t timeout_ms,
                             rc__om_reply_fn fn, void *arg)
{
	rc__om_call *call = new_call(o, fn, arg);

	call->id = rc_call(o->options.rpc, target, path, request, timeout_ms, RC_META_CLUSTER_ID, on_reply, call);
	return call;
}

rc__om_call *rc__om_send(rc_objects *o, const char *target, rc_method method, const void *message, uint64_t timeout_ms,
                         rc__om_reply_fn fn, void *arg)
{
	const char *path = rc_method_path(o->dialect, method);
	rc__om_call *call;
	rc_buf b = { 0 };

	if (!path) {
		rc_warn("release %s has no method %d: a call to %s is not made", rc_dialect_release(o->dialect), (int)method, target);
		return NULL;
	}
	rc_pack(o->dialect, message, &b);
	call = new_call(o, fn, arg);
	call->id = rc_call(o->options.rpc, target, path, rc_view_of(b.p, b.n), timeout_ms, RC_META_NONE, on_reply, call);
	rc_buf_free(&b);
	return call;
}

rc__om_call *rc__om_send_chunk(rc_objects *o, const char *target, rc_view head, rc_view body, rc_task_fn unref, void *unref_arg,
                               uint64_t timeout_ms, rc__om_reply_fn fn, void *arg)
{
	rc__om_call *call = new_call(o, fn, arg);

	call->id = rc_call_zero_copy(o->options.rpc, target, rc_method_path(o->dialect, RC_M_OM_PUSH), head, body, unref, unref_arg,
	                             timeout_ms, on_reply, call);
	return call;
}

void rc__om_drop(rc__om_call *call)
{
	rc_objects *o;

	if (!call)
		return;
	o = call->o;
	call->o = NULL;
	rc_list_remove(&call->link);
	rc_call_cancel(o->options.rpc, call->id);
}

/* ---- life ---- */

static void on_kick(void *arg)
{
	rc_objects *o = arg;

	rc__om_requests_run(o);
	rc__om_pulls_run(o);
	if (o->pulls_queued != o->pulls_queued_told) {
		o->pulls_queued_told = o->pulls_queued;
		if (o->ops.pulls_queued)
			o->ops.pulls_queued(o->ctx, o->pulls_queued);
	}
}

typedef struct orphans {
	rc_objects *o;
	rc_buf ids;
} orphans;

static bool note_orphan(void *arg, const rc_object_info *info)
{
	orphans *list = arg;

	if (info->sealed && !info->deleting && info->owner->worker_id.n && rc__om_owner_known_dead(list->o, info->owner))
		rc_buf_add(&list->ids, &info->id, sizeof info->id);
	return true;
}

/* At most once a second, however many workers die. */
static void delete_orphans(rc_objects *o)
{
	orphans list = { .o = o };

	if (!o->orphans_due)
		return;
	o->orphans_due = false;
	rc_store_each(o->store, note_orphan, &list);
	rc_store_delete(o->store, (const rc_id *)(const void *)list.ids.p, list.ids.n / sizeof(rc_id));
	rc_buf_free(&list.ids);
}

static void on_tick(void *arg)
{
	rc_objects *o = arg;

	delete_orphans(o);
	rc__om_owners_tick(o);
	rc__om_pins_tick(o);
	rc__om_pulls_tick(o);
	rc__om_pushes_tick(o);
	rc__om_fetches_tick(o);
	rc__om_lends_tick(o);
	rc__om_kick(o);
}

void rc__om_kick(rc_objects *o)
{
	if (!o->destroying)
		rc_timer_again(o->kick, 0);
}

static void defaults(rc_objects_options *p)
{
	p->chunk_size = p->chunk_size ? p->chunk_size : 5u << 20;
	p->max_bytes_in_flight = p->max_bytes_in_flight ? p->max_bytes_in_flight : 2ull << 30;
	p->pull_timeout_ms = p->pull_timeout_ms ? p->pull_timeout_ms : 10000;
	p->max_pulls = p->max_pulls ? p->max_pulls : 64;
	p->report_batch = p->report_batch ? p->report_batch : 2000;
	p->args_memory_fraction = p->args_memory_fraction > 0 ? p->args_memory_fraction : 0.7;
	p->fetch_fail_timeout_ms = p->fetch_fail_timeout_ms ? p->fetch_fail_timeout_ms : 600000;
	p->unreachable_failures = p->unreachable_failures ? p->unreachable_failures : 8; /* about 11 s */
	p->free_period_ms = p->free_period_ms ? p->free_period_ms : 1000;
}

/* The offers are known, or there are none. */
static void on_fabric(void *arg)
{
	rc_objects *o = arg;

	rc__om_fabric_ready(o);
	rc__om_lend_ready(o);
}

static void open_fabric(rc_objects *o)
{
	rc_fabric_options f = { .loop = o->loop, .providers = o->options.fabric, .ip = o->ip, .stall_ms = STALL_MS, .ready = on_fabric, .arg = o };

	if (!o->options.fabric || strcmp(o->options.fabric, "off") == 0)
		return;
	rc_store_arena(o->store, &f.arena, &f.arena_size);
	o->fabric = rc_fabric_create(&f);
}

rc_objects *rc_objects_create(const rc_objects_options *options, const rc_objects_ops *ops, void *ctx)
{
	rc_objects *o = rc_alloc(sizeof *o);

	o->options = *options;
	defaults(&o->options);
	o->ops = *ops;
	o->ctx = ctx;
	o->loop = options->loop;
	o->store = options->store;
	o->dialect = options->dialect;
	o->ip = rc_strdup(options->ip);
	o->options.cluster_id = o->cluster_id = rc_strdup(options->cluster_id);
	o->owners_free = rc_method_path(o->dialect, RC_M_FREE_LOCAL_OBJECTS) != NULL;
	rc_list_init(&o->calls);
	o->owners = rc_map_create();
	o->dead_workers = rc_map_create();
	o->pins = rc_map_create();
	o->pin_owners = rc_map_create();
	rc_list_init(&o->provisional);
	o->wants = rc_map_create();
	rc_list_init(&o->active);
	rc_list_init(&o->failing);
	for (int i = 0; i < RC__OM_PRIORITIES; i++)
		rc_list_init(&o->requests[i]);
	o->requests_by_id = rc_map_create();
	o->clients = rc_map_create();
	rc_list_init(&o->due);
	rc__om_push_fields_find(o->dialect, &o->push_fields);
	rc_list_init(&o->jobs);
	pthread_mutex_init(&o->job_lock, NULL);
	pthread_cond_init(&o->job_done, NULL);
	o->pushes = rc_map_create();
	rc_list_init(&o->push_order);
	rc_list_init(&o->reads);
	rc_list_init(&o->unknown_pulls);
	rc__om_fetches_init(o);
	rc__om_lend_init(o);
	open_fabric(o);
	o->kick = rc_timer_start(o->loop, 0, 0, on_kick, o);
	o->tick = rc_timer_start(o->loop, TICK_MS, TICK_MS, on_tick, o);
	return o;
}

void rc_objects_destroy(rc_objects *o)
{
	if (!o)
		return;
	o->destroying = true;
	rc_timer_stop(o->kick);
	rc_timer_stop(o->tick);
	rc_timer_stop(o->free_timer);
	rc__om_fetches_destroy(o);
	rc__om_lends_destroy(o);
	rc__om_receives_destroy(o);
	rc__om_pushes_destroy(o);
	rc__om_requests_destroy(o);
	rc__om_pins_destroy(o);
	rc__om_owners_destroy(o);
	while (!rc_list_empty(&o->calls))
		rc__om_drop(RC_CONTAINER(o->calls.next, rc__om_call, link));
	rc_map_destroy(o->owners);
	rc_map_destroy(o->dead_workers);
	rc_map_destroy(o->pins);
	rc_map_destroy(o->pin_owners);
	rc_map_destroy(o->wants);
	rc_map_destroy(o->requests_by_id);
	rc_map_destroy(o->clients);
	rc_map_destroy(o->pushes);
	rc__om_fetches_free(o);
	free(o->cluster_id);
	rc_buf_free(&o->freed);
	pthread_mutex_destroy(&o->job_lock);
	pthread_cond_destroy(&o->job_done);
	free(o->ip);
	free(o);
}

bool rc__om_node_address(rc_objects *o, const rc_id *node, char ret[RC__OM_ADDRESS])
{
	return node->n == RC_NODE_ID && o->ops.node_address(o->ctx, node, ret);
}

bool rc__om_node_dead(rc_objects *o, const rc_id *node)
{
	return node->n == RC_NODE_ID && o->ops.node_dead(o->ctx, node);
}

/* ---- events ---- */

void rc_objects_sealed(rc_objects *o, const rc_id *id, const rc_owner *owner, uint64_t data_size, uint64_t metadata_size,
                       rc_source source, bool by_client)
{
	(void)data_size;
	(void)metadata_size;
	if (!o)
		return;
	/* An error object stands for something that is nowhere: its owner, if it lives, must not send others here. */
	if (source != RC_ERROR_STORED)
		rc__om_report_location(o, id, owner, true);
	if (by_client && source == RC_BY_WORKER)
		rc__om_pin_sealed(o, id, owner);
	rc__om_want_sealed(o, id);
}

void rc_objects_gone(rc_objects *o, const rc_id *id, const rc_owner *owner, bool spilled)
{
	(void)spilled;
	if (!o)
		return;
	rc__om_report_location(o, id, owner, false);
	rc__om_want_gone(o, id);
}

void rc_objects_spilled(rc_objects *o, const rc_id *id, const rc_owner *owner, const char *url)
{
	rc_id generator;

	if (!o)
		return;
	generator = rc__om_pin_generator(o, id);
	rc__om_report_spilled(o, id, owner, url, &generator);
}

void rc_objects_node_removed(rc_objects *o, const rc_id *node)
{
	o->orphans_due = true;
	rc__om_owners_died(o, NULL, node);
	rc__om_pins_died(o, NULL, node);
	rc__om_pushes_died(o, node);
	rc__om_lends_died(o, node);
	rc__om_fetches_died(o, node);
	rc__om_pulls_died(o, node);
}

void rc_objects_node_added(rc_objects *o, const rc_id *node)
{
	rc__om_pushes_node_added(o, node);
	rc__om_pulls_later(o); /* places that could not be reached may be now */
}

void rc_objects_worker_died(rc_objects *o, const rc_id *worker)
{
	if (worker->n != RC_WORKER_ID)
		return;
	o->orphans_due = true;
	if (!rc_map_get_id(o->dead_workers, worker)) {
		rc_id *slot = &o->dead_ring[o->dead_next++ % RC__OM_DEAD_RING];

		if (slot->n)
			rc_map_del_id(o->dead_workers, slot);
		*slot = *worker;
		rc_map_put_id(o->dead_workers, worker, slot);
	}
	rc__om_owners_died(o, worker, NULL);
	rc__om_pins_died(o, worker, NULL);
}

/* ---- frees ---- */

static void forget_reply(void *arg, int status, rc_view reply, const char *detail)
{
	(void)arg;
	(void)reply;
	if (status != RC_RPC_OK) /* that node's copy stays until it is evicted, as with stock */
		rc_debug("telling a node of freed objects failed: status %d, %s", status, detail);
}

static void tell_node(void *arg, const rc_id *node, const char *address)
{
	rc_objects *o = arg;
	Rw__FreeObjectsRequest m = RW__FREE_OBJECTS_REQUEST__INIT;
	size_t n = o->freed.n / RC_OBJECT_ID;
	ProtobufCBinaryData *ids = rc_alloc(n * sizeof *ids);

	(void)node;
	for (size_t i = 0; i < n; i++)
		ids[i] = (ProtobufCBinaryData){ RC_OBJECT_ID, o->freed.p + i * RC_OBJECT_ID };
	m.n_object_ids = n;
	m.object_ids = ids;
	rc__om_send(o, address, RC_M_OM_FREE_OBJECTS, &m, FREE_TIMEOUT_MS, forget_reply, NULL);
	free(ids);
}

static void tell_freed(void *arg)
{
	rc_objects *o = arg;

	rc_timer_stop(o->free_timer);
	o->free_timer = NULL;
	if (!o->freed.n)
		return;
	o->ops.each_node(o->ctx, tell_node, o);
	o->freed.n = 0;
}

static void note_freed(rc_objects *o, const rc_id *id)
{
	if (o->owners_free || o->freed.n / RC_OBJECT_ID >= MAX_FREED)
		return;
	rc_buf_add(&o->freed, id->b, RC_OBJECT_ID);
	if (o->freed.n / RC_OBJECT_ID >= FREE_BATCH)
		tell_freed(o);
	else if (!o->free_timer)
		o->free_timer = rc_timer_start(o->loop, o->options.free_period_ms, 0, tell_freed, o);
}

void rc__om_free(rc_objects *o, const rc_id *id, bool everywhere)
{
	rc__om_pin_drop(o, id);
	rc_store_delete(o->store, id, 1);
	if (everywhere)
		note_freed(o, id);
}

void rc_objects_free(rc_objects *o, const rc_id *ids, size_t n, bool local_only)
{
	for (size_t i = 0; i < n; i++)
		rc__om_free(o, &ids[i], !local_only);
}

static void serve_free(rc_objects *o, rc_request *r, const char *name, rc_view bytes, const ProtobufCMessageDescriptor *descriptor)
{
	/* FreeLocalObjectsRequest and FreeObjectsRequest are one shape: a list of ids. */
	Rw__FreeObjectsRequest *m = rc_unpack(o->dialect, descriptor, bytes);

	if (!m) {
		rc_warn("%s from %s is malformed", name, rc_request_peer(r));
		rc_reply_error(r, RC_RPC_INVALID, "%s: malformed request", name);
		return;
	}
	for (size_t i = 0; i < m->n_object_ids; i++) {
		rc_id id = rc_id_from(m->object_ids[i].data, m->object_ids[i].len);

		if (id.n == RC_OBJECT_ID)
			rc__om_free(o, &id, false);
	}
	rc_free_message(m);
	rc_reply(r, (rc_view){ 0 });
}

_Static_assert(offsetof(Rw__FreeObjectsRequest, object_ids) == offsetof(Rw__FreeLocalObjectsRequest, object_ids),
               "serve_free reads both as one");

bool rc_objects_serve(rc_objects *o, rc_request *r, rc_method method, rc_view bytes)
{
	switch (method) {
	case RC_M_PIN_OBJECT_IDS:
		rc__om_pin_serve(o, r, bytes);
		return true;
	case RC_M_FREE_LOCAL_OBJECTS:
		serve_free(o, r, "FreeLocalObjects", bytes, &rw__free_local_objects_request__descriptor);
		return true;
	case RC_M_OM_FREE_OBJECTS:
		serve_free(o, r, "FreeObjects", bytes, &rw__free_objects_request__descriptor);
		return true;
	case RC_M_OM_PULL:
		rc__om_push_serve(o, r, bytes);
		return true;
	case RC_M_OM_PUSH:
		rc__om_receive_serve(o, r, bytes);
		return true;
	default:
		return false;
	}
}

bool rc_objects_serve_own(rc_objects *o, rc_request *r, const char *path, size_t path_n, rc_view bytes)
{
	rc_view name = rc_view_of(path, path_n);

	if (!o->options.cluster_id)
		return false;
	if (rc_view_eq(name, rc_view_str(RC__OM_FETCH_PATH)))
		rc__om_lend_serve(o, r, bytes);
	else if (rc_view_eq(name, rc_view_str(RC__OM_KEEP_PATH)))
		rc__om_keep_serve(o, r, bytes);
	else
		return false;
	return true;
}

/* ---- figures ---- */

bool rc_objects_pulls_queued(const rc_objects *o)
{
	return o && o->pulls_queued;
}

uint64_t rc_objects_bytes_in(const rc_objects *o)
{
	return o->stats.bytes_in;
}

void rc_objects_get_stats(const rc_objects *o, rc_objects_stats *ret)
{
	size_t i = 0;
	void *value;

	*ret = o->stats;
	ret->pulls_active = o->n_active;
	ret->args_held_bytes = o->args_held;
	ret->sending = rc_map_count(o->pushes);
	ret->pinned = rc_map_count(o->pins);
	while (rc_map_next(o->wants, &i, NULL, &value)) {
		const rc__om_want *w = value;

		ret->pulls_wanted += !w->local;
		ret->receiving += w->receive != NULL;
	}
	i = 0;
	while (rc_map_next(o->owners, &i, NULL, &value)) {
		const rc__om_owner *w = value;

		ret->owners_polled += w->poll != NULL;
		ret->reports_waiting += rc_map_count(w->reports.pending);
	}
}

void rc_objects_debug(const rc_objects *o, rc_buf *out)
{
	rc_objects_stats s;

	rc_objects_get_stats(o, &s);
#define N(x) (unsigned long long)s.x
	rc_buf_printf(out, "- open requests: %llu gets, %llu waits, %llu fetches\n", N(gets), N(waits), N(fetches));
	rc_buf_printf(out, "- received: %llu bytes, %llu chunks, %llu chunks not wanted\n", N(bytes_in), N(chunks_in), N(chunks_dropped));
	rc_buf_printf(out, "- error objects stored: %llu\n", N(objects_failed));
	rc_buf_printf(out, "LocalObjectManager:\n- pinned objects: %llu\n- held by arguments: %llu bytes\n", N(pinned), N(args_held_bytes));
	rc_buf_printf(out, "PushManager:\n- pushes in flight: %llu\n- bytes in flight: %llu\n", N(sending),
	              (unsigned long long)o->bytes_in_flight);
	rc_buf_printf(out, "- sent: %llu bytes, %llu chunks; failed pushes: %llu\n", N(bytes_out), N(chunks_out), N(pushes_failed));
	rc_buf_printf(out, "OwnershipBasedObjectDirectory:\n- owners polled: %llu\n- location reports: %llu sent, %llu waiting\n",
	              N(owners_polled), N(reports_sent), N(reports_waiting));
	rc_buf_printf(out, "PullManager:\n- objects wanted: %llu, active: %llu, in transfer: %llu\n- retries: %llu\n- waiting for room: %s\n",
	              N(pulls_wanted), N(pulls_active), N(receiving), N(pull_retries), o->pulls_queued ? "yes" : "no");
	if (o->options.cluster_id)
		rc_buf_printf(out, "Fetch:\n- answered: %llu with the object, %llu granted, %llu by a push; lent now: %zu\n"
		                   "- came: %llu in answers, %llu over the fabric; fallbacks: %llu\n",
		              N(fetch_inline), N(fetch_granted), N(fetch_pushed), rc_map_count(o->lends), N(came_inline), N(came_fabric), N(fallbacks));
	if (o->fabric)
		rc_fabric_debug(o->fabric, out);
#undef N
}
