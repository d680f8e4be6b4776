#include "raylet-c/procs/env_table.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/list.h"
#include "raylet-c/base/map.h"

typedef struct entry {
	rc_link link; /* of unused ones, oldest first; else by itself */
	char *env, *error;
	size_t own_uses, helper_uses;
	bool made, success;
	uint64_t ms;
} entry;

struct rc_env_table {
	rc_map *entries;
	rc_link unused;
	size_t n_unused, helper_uses;
};

rc_env_table *rc_env_table_create(void)
{
	rc_env_table *t = rc_alloc(sizeof(*t));
	t->entries = rc_map_create();
	rc_list_init(&t->unused);
	return t;
}

static void free_entry(entry *e)
{
	free(e->env);
	free(e->error);
	free(e);
}

void rc_env_table_destroy(rc_env_table *t)
{
	if (!t)
		return;
	void *value;
	for (size_t i = 0; rc_map_next(t->entries, &i, NULL, &value);)
		free_entry(value);
	rc_map_destroy(t->entries);
	free(t);
}

/* Keeps the list of those without a use. */
static void sort_in(rc_env_table *t, entry *e)
{
	bool is_unused = !rc_list_empty(&e->link), unused = e->own_uses + e->helper_uses == 0;
	if (is_unused == unused)
		return;
	if (is_unused) {
		rc_list_remove(&e->link);
		t->n_unused--;
		return;
	}
	rc_list_append(&t->unused, &e->link);
	if (++t->n_unused <= RC_ENV_TABLE_UNUSED_MAX)
		return;
	entry *oldest = RC_CONTAINER(t->unused.next, entry, link);
	rc_list_remove(&oldest->link);
	t->n_unused--;
	rc_map_del(t->entries, rc_view_str(oldest->env));
	free_entry(oldest);
}

static entry *entry_of(rc_env_table *t, const char *env)
{
	entry *e = rc_map_get(t->entries, rc_view_str(env));
	if (e)
		return e;
	e = rc_alloc(sizeof(*e));
	rc_list_init(&e->link);
	e->env = rc_strdup(env);
	rc_map_put(t->entries, rc_view_str(env), e);
	return e;
}

void rc_env_table_made(rc_env_table *t, const char *env, uint64_t ms, const char *error)
{
	entry *e = entry_of(t, env);
	free(e->error);
	e->error = rc_strdup(error);
	e->made = true;
	e->success = !error;
	e->ms = ms;
	sort_in(t, e);
}

void rc_env_table_use(rc_env_table *t, const char *env, bool by_helper)
{
	entry *e = entry_of(t, env);
	e->own_uses += !by_helper;
	e->helper_uses += by_helper;
	t->helper_uses += by_helper;
	sort_in(t, e);
}

bool rc_env_table_leave(rc_env_table *t, const char *env)
{
	entry *e = rc_map_get(t->entries, rc_view_str(env));
	bool by_helper = e && !e->own_uses && e->helper_uses;
	if (e && e->own_uses)
		e->own_uses--;
	if (by_helper) {
		e->helper_uses--;
		t->helper_uses--;
	}
	if (e)
		sort_in(t, e);
	return by_helper;
}

size_t rc_env_table_helper_uses(const rc_env_table *t)
{
	return t->helper_uses;
}

void rc_env_table_pack(const rc_env_table *t, const rc_dialect *d, int64_t limit, rc_buf *out)
{
	size_t total = rc_map_count(t->entries), n = 0;
	size_t most = limit >= 0 && (uint64_t)limit < total ? (size_t)limit : total;
	Rw__RuntimeEnvState *states = rc_alloc((most + 1) * sizeof(*states)), **list = rc_alloc((most + 1) * sizeof(*list));
	Rw__GetRuntimeEnvsInfoReply m = RW__GET_RUNTIME_ENVS_INFO_REPLY__INIT;
	void *value;
	for (size_t i = 0; n < most && rc_map_next(t->entries, &i, NULL, &value); n++) {
		const entry *e = value;
		Rw__RuntimeEnvState *s = list[n] = &states[n];
		*s = (Rw__RuntimeEnvState)RW__RUNTIME_ENV_STATE__INIT;
		s->runtime_env = e->env;
		RC_SET(*s, ref_cnt, (int64_t)(e->own_uses + e->helper_uses));
		if (!e->made)
			continue;
		RC_SET(*s, success, e->success);
		RC_SET(*s, creation_time_ms, (int64_t)e->ms);
		s->error = e->error;
	}
	m.runtime_env_states = list;
	m.n_runtime_env_states = n;
	RC_SET(m, total, (int64_t)total);
	rc_pack(d, &m, out);
	free(list);
	free(states);
}
