/* The answer to `raylet-c top` (cli/look.h has its keys). */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/cli/look.h"
#include "raylet-c/node/node.h"

static void set_int(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key, json_integer((json_int_t)value));
}

/* What comes from users and is not UTF-8 is left out by jansson: "" then. */
static void set_text(json_t *o, const char *key, const char *value)
{
	json_t *text = json_string(value);
	json_object_set_new(o, key, text ? text : json_string(""));
}

/* Without the names that placement groups bring: they repeat what the bundles hold. */
static json_t *amounts(const rc_amounts *a)
{
	json_t *o = json_object();
	rc_group_name group;
	for (size_t i = 0; i < a->n; i++)
		if (!rc_group_name_parse(a->v[i].name, &group))
			json_object_set_new(o, a->v[i].name, json_real(rc_q_double(a->v[i].q)));
	return o;
}

/* A lease in a placement group asks for group names only: the plain names of these. */
static json_t *demand(const rc_amounts *a)
{
	json_t *o = json_object();
	rc_group_name group;
	for (size_t i = 0; i < a->n; i++) {
		const char *name = a->v[i].name;
		char base[RC_MAX_RESOURCE_NAME + 1];
		if (rc_group_name_parse(name, &group)) {
			snprintf(base, sizeof(base), "%.*s", (int)group.base.n, (const char *)group.base.p);
			name = base;
		}
		if (strcmp(name, "bundle") != 0)
			json_object_set_new(o, name, json_real(rc_q_double(a->v[i].q)));
	}
	return o;
}

static json_t *lease(const rc_lease *l)
{
	json_t *o = json_object();
	set_text(o, "name", l->spec.actor_name && *l->spec.actor_name ? l->spec.actor_name : l->spec.task_name ? l->spec.task_name : "");
	json_object_set_new(o, "actor", json_boolean(l->spec.is_actor));
	json_object_set_new(o, "blocked", json_boolean(l->blocked));
	set_int(o, "for_ms", rc_now_ms() - l->granted_ms);
	json_object_set_new(o, "resources", demand(&l->spec.required));
	return o;
}

static json_t *workers(rc_daemon *n, size_t *ret_n)
{
	static const char *const states[] = { "starting", "registered", "idle", "leased", "exiting", "dead" };
	static const char *const kinds[] = { "worker", "driver", "spill", "restore" };
	json_t *list = json_array();
	*ret_n = 0;
	for (const rc_worker *w = NULL; (w = rc_pool_next(n->pool, w));) {
		const rc_worker_note *note = w->user;
		json_t *o;
		if (w->pid <= 0 || (*ret_n)++ >= RC_LOOK_MOST)
			continue;
		o = json_object();
		set_int(o, "pid", (uint64_t)w->pid);
		set_text(o, "kind", w->type >= 0 && w->type < 4 ? kinds[w->type] : "worker");
		set_text(o, "state", states[w->state]);
		set_text(o, "job", rc_id_to_hex(&w->job_id).s);
		json_object_set_new(o, "forked", json_boolean(w->forked));
		if (note && note->lease)
			json_object_set_new(o, "lease", lease(note->lease));
		int64_t steps = w->state == RC_WS_LEASED ? rc_train_steps(&n->train, w->pid) : -1;
		if (steps >= 0)
			set_int(o, "steps", (uint64_t)steps);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *bundles(rc_daemon *n)
{
	json_t *list = json_array();
	const rc_bundle *b;
	for (size_t i = 0, k = 0; k < RC_LOOK_MOST && (b = rc_bundles_next(n->bundles, &i)); k++) {
		json_t *o = json_object();
		set_text(o, "group", rc_id_to_hex(&b->id.group).s);
		json_object_set_new(o, "index", json_integer(b->id.index));
		set_text(o, "state", rc_bundle_state_name(b->state));
		set_int(o, "leases", b->users);
		json_object_set_new(o, "resources", amounts(&b->resources));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *store(rc_daemon *n)
{
	json_t *o = json_object();
	rc_store_stats s;
	rc_store_get_stats(n->store, &s);
	set_int(o, "capacity", s.capacity);
	set_int(o, "used", s.used_bytes);
	set_int(o, "fallback", s.fallback_bytes);
	set_int(o, "objects", s.local_objects);
	set_int(o, "spilled", s.spilled_bytes_now);
	set_int(o, "spilled_objects", s.spilled_objects_now);
	return o;
}

static json_t *transfers(rc_daemon *n)
{
	json_t *o = json_object();
	rc_objects_stats s;
	rc_objects_get_stats(n->objects, &s);
	set_int(o, "in", s.bytes_in);
	set_int(o, "out", s.bytes_out);
	set_int(o, "receiving", s.receiving);
	set_int(o, "sending", s.sending);
	set_int(o, "wanted", s.pulls_wanted);
	set_int(o, "fabric", s.came_fabric);
	set_int(o, "inline", s.came_inline);
	set_int(o, "fallbacks", s.fallbacks);
	return o;
}

static void set_resources(rc_daemon *n, json_t *o)
{
	rc_amounts total = { 0 }, available = { 0 };
	rc_resources_totals(n->resources, &total);
	rc_resources_available(n->resources, &available);
	json_object_set_new(o, "total", amounts(&total));
	json_object_set_new(o, "free", amounts(&available));
	rc_amounts_free(&total);
	rc_amounts_free(&available);
}

bool rc_look_serve(rc_daemon *n, rc_request *r, const char *path, size_t path_n)
{
	json_t *o, *leases;
	size_t n_workers;
	char *text;
	if (!rc_view_eq(rc_view_of(path, path_n), rc_view_str(RC_LOOK_PATH)))
		return false;
	o = json_object();
	set_text(o, "state", rc_daemon_state_name(n->state));
	set_int(o, "up_ms", rc_now_ms() - n->started_ms);
	set_resources(n, o);
	leases = json_object();
	set_int(leases, "granted", rc_leases_granted(n->leases));
	set_int(leases, "waiting", rc_leases_waiting(n->leases));
	json_object_set_new(o, "leases", leases);
	set_int(o, "n_bundles", rc_bundles_count(n->bundles));
	json_object_set_new(o, "bundles", bundles(n));
	json_object_set_new(o, "workers", workers(n, &n_workers));
	set_int(o, "n_workers", n_workers);
	json_object_set_new(o, "store", store(n));
	json_object_set_new(o, "transfers", transfers(n));
	text = json_dumps(o, JSON_COMPACT);
	if (text)
		rc_reply(r, rc_view_str(text));
	else
		rc_reply_error(r, RC_RPC_INTERNAL, "out of memory");
	free(text);
	json_decref(o);
	return true;
}
