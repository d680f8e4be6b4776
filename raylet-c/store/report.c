/* Figures of the store: statistics for GetNodeStats and metrics, the list of objects, lines for debug_state.txt. */
#include "raylet-c/store/internal.h"

void rc_store_get_stats(const rc_store *s, rc_store_stats *ret)
{
	*ret = s->stats;
	ret->capacity = s->capacity;
	ret->allocated_bytes = rc_heap_size(s->heap) - rc_heap_free_bytes(s->heap) + s->stats.fallback_bytes;
}

void rc_store_stats_proto(const rc_store *s, Rw__ObjectStoreStats *ret)
{
	rc_store_stats st;

	rc_store_get_stats(s, &st);
	RC_SET(*ret, spill_time_total_s, st.spill_time_total_s);
	RC_SET(*ret, spilled_bytes_total, (int64_t)st.spilled_bytes_total);
	RC_SET(*ret, spilled_objects_total, (int64_t)st.spilled_objects_total);
	RC_SET(*ret, restore_time_total_s, st.restore_time_total_s);
	RC_SET(*ret, restored_bytes_total, (int64_t)st.restored_bytes_total);
	RC_SET(*ret, restored_objects_total, (int64_t)st.restored_objects_total);
	RC_SET(*ret, object_store_bytes_used, (int64_t)st.used_bytes);
	RC_SET(*ret, object_store_bytes_avail, (int64_t)st.capacity); /* the name lies: stock sends the capacity */
	RC_SET(*ret, object_store_bytes_primary_copy, (int64_t)st.primary_bytes);
	RC_SET(*ret, object_store_bytes_fallback, (int64_t)st.fallback_bytes);
	RC_SET(*ret, num_local_objects, (int64_t)st.local_objects);
	RC_SET(*ret, num_object_store_primary_copies, (int64_t)st.primary_objects);
	RC_SET(*ret, cumulative_created_objects, (int64_t)st.created_objects_total);
	RC_SET(*ret, cumulative_created_bytes, (int64_t)st.created_bytes_total);
	RC_SET(*ret, consumed_bytes, (int64_t)st.consumed_bytes_total);
}

void rc_store_each(const rc_store *s, bool (*fn)(void *arg, const rc_object_info *info), void *arg)
{
	uint64_t now = rc_now_ms();
	rc_view key;
	void *value;

	for (size_t i = 0; rc_map_next(s->objects, &i, &key, &value);) {
		const rc__object *o = value;
		bool here = o->state != RC__ABSENT;
		rc_object_info info = {
			.id = o->id,
			.owner = &o->owner,
			.data_size = here ? o->data_size : o->spilled_data_size,
			.metadata_size = here ? o->metadata_size : o->spilled_metadata_size,
			.in_memory = here,
			.sealed = o->state == RC__SEALED,
			.pinned = o->pinned,
			.fallback = o->fallback != NULL,
			.spilling = o->spilling,
			.deleting = o->deleting,
			.clients = o->clients,
			.holds = o->holds,
			.spilled_url = o->url,
			.age_ms = o->created_ms ? now - o->created_ms : 0,
		};

		if (!fn(arg, &info))
			return;
	}
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

void rc_store_debug(const rc_store *s, rc_buf *out)
{
	rc_store_stats st;

	rc_store_get_stats(s, &st);
	rc_buf_printf(out, "ObjectStore:\n");
	rc_buf_printf(out, "- capacity: %.1f MiB, reserved %.1f, allocated %.1f, largest free piece %.1f\n", mib(st.capacity),
	              mib(rc_heap_size(s->heap)), mib(st.allocated_bytes), mib(rc_heap_largest(s->heap)));
	rc_buf_printf(out, "- sealed objects: %llu, %.1f MiB\n", (unsigned long long)st.local_objects, mib(st.used_bytes));
	rc_buf_printf(out, "- unsealed objects: %llu, %.1f MiB\n", (unsigned long long)st.unsealed_objects, mib(st.unsealed_bytes));
	rc_buf_printf(out, "- in use: %llu, %.1f MiB\n", (unsigned long long)st.in_use_objects, mib(st.in_use_bytes));
	rc_buf_printf(out, "- primary copies in memory: %llu, %.1f MiB\n", (unsigned long long)st.primary_objects, mib(st.primary_bytes));
	rc_buf_printf(out, "- evictable: %zu, %.1f MiB; spillable: %zu, %.1f MiB\n", s->idle[RC__EVICTABLE].n, mib(s->idle[RC__EVICTABLE].bytes),
	              s->idle[RC__SPILLABLE].n, mib(s->idle[RC__SPILLABLE].bytes));
	rc_buf_printf(out, "- on disk by fallback allocation: %.1f MiB\n", mib(st.fallback_bytes));
	rc_buf_printf(out, "- created in all: %llu, %.1f MiB; evicted: %llu, %.1f MiB\n", (unsigned long long)st.created_objects_total,
	              mib(st.created_bytes_total), (unsigned long long)st.evicted_objects_total, mib(st.evicted_bytes_total));
	rc_buf_printf(out, "- spilled in all: %llu, %.1f MiB in %.2f s; now: %llu, %.1f MiB in %llu files; under way: %llu\n",
	              (unsigned long long)st.spilled_objects_total, mib(st.spilled_bytes_total), st.spill_time_total_s,
	              (unsigned long long)st.spilled_objects_now, mib(st.spilled_bytes_now), (unsigned long long)st.spill_files_now,
	              (unsigned long long)st.spilling_objects);
	rc_buf_printf(out, "- restored in all: %llu, %.1f MiB in %.2f s; under way: %llu\n", (unsigned long long)st.restored_objects_total,
	              mib(st.restored_bytes_total), st.restore_time_total_s, (unsigned long long)st.restoring_objects);
	rc_buf_printf(out, "- waiting creations: %llu, %.1f MiB; waiting gets: %llu; clients: %llu\n", (unsigned long long)st.waiting_creates,
	              mib(st.waiting_bytes), (unsigned long long)st.waiting_gets, (unsigned long long)st.clients);
}
