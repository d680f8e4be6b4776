/* Talks to the runtime-env agent. An agent that is not listening yet (it takes a second or two of imports) is asked again
 * every 100 ms; an HTTP answer other than 200, or one that is not the expected message, is an error at once.
 *
 * The agent itself bounds the installation (RuntimeEnvConfig.setup_timeout_seconds, 600 by default, -1: none), so the
 * request has that time and a minute more. */
#include "raylet-c/procs/runtime_env.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/http.h"
#include "raylet-c/base/list.h"
#include "raylet-c/base/log.h"
#include "raylet-c/procs/env_table.h"

enum {
	RETRY_MS = 100,
	DEFAULT_START_TIMEOUT_MS = 30000,
	DEFAULT_SETUP_MS = 600 * 1000,
	EXTRA_MS = 60 * 1000,
	NO_LIMIT_MS = 24 * 3600 * 1000
};
enum { STATUS_OK = 0 }; /* AgentRpcStatus */

static const char get_path[] = "/get_or_create_runtime_env";
static const char put_path[] = "/delete_runtime_env_if_possible";

typedef struct request {
	rc_runtime_envs *envs; /* NULL when the owner is gone: the answer is dropped */
	rc_link link;
	const char *path;
	rc_buf body;
	uint64_t give_up_ms, timeout_ms, began_ms;
	rc_timer *timer; /* until the next try */
	char *name;      /* the serialized env, for the log */
	rc_runtime_env_fn fn;
	void *arg;
} request;

struct rc_runtime_envs {
	rc_loop *loop;
	const rc_dialect *dialect;
	char *ip, *headers;
	int port;
	unsigned start_timeout_ms;
	void (*wanted)(void *ctx), (*answered)(void *ctx); /* NULL: the agent always runs */
	void *ctx;
	rc_env_table *table;
	rc_link requests;
	rc_link counts; /* count: answers on their way */
};

typedef struct count {
	rc_link link;
	rc_runtime_env_fn fn;
	void *arg;
} count;

bool rc_runtime_env_is_none(const Rw__RuntimeEnvInfo *info)
{
	const char *s = info ? info->serialized_runtime_env : NULL;
	return !s || !*s || strcmp(s, "{}") == 0;
}

int rc_runtime_env_hash(const Rw__RuntimeEnvInfo *info)
{
	if (rc_runtime_env_is_none(info))
		return 0;
	uint32_t h = 2166136261u; /* FNV-1a */
	for (const char *p = info->serialized_runtime_env; *p; p++)
		h = (h ^ (uint8_t)*p) * 16777619u;
	h &= 0x7fffffff;
	return h ? (int)h : 1;
}

rc_runtime_envs *rc_runtime_envs_create(rc_loop *loop, const rc_runtime_envs_options *o)
{
	rc_runtime_envs *e = rc_alloc(sizeof(*e));
	*e = (rc_runtime_envs){ .loop = loop, .dialect = o->dialect, .port = o->port };
	e->ip = rc_strdup(o->ip);
	e->start_timeout_ms = o->start_timeout_ms ? o->start_timeout_ms : DEFAULT_START_TIMEOUT_MS;
	e->headers = o->token && *o->token ? rc_sprintf("Authorization: Bearer %s\r\n", o->token)
	                                   : rc_strdup("");
	e->wanted = o->wanted;
	e->answered = o->answered;
	e->ctx = o->ctx;
	e->table = rc_env_table_create();
	rc_list_init(&e->requests);
	rc_list_init(&e->counts);
	return e;
}

static void free_request(request *r)
{
	rc_timer_stop(r->timer);
	rc_list_remove(&r->link);
	rc_buf_free(&r->body);
	free(r->name);
	free(r);
}

static void finish(request *r, const char *context, const char *error)
{
	if (r->fn)
		r->fn(r->arg, context, error);
	else if (error)
		rc_warn("the runtime-env agent did not drop %s: %s", r->name, error);
	free_request(r);
}

void rc_runtime_envs_destroy(rc_runtime_envs *e)
{
	if (!e)
		return;
	RC_LIST_FOREACH (l, &e->requests) {
		request *r = RC_CONTAINER(l, request, link);
		if (r->fn)
			r->fn(r->arg, NULL, "the node is shutting down");
		r->fn = NULL;
		r->envs = NULL;
		rc_list_remove(&r->link);
		if (r->timer) /* between two tries: nobody else will free it */
			free_request(r);
	}
	RC_LIST_FOREACH (l, &e->counts) {
		count *c = RC_CONTAINER(l, count, link);
		rc_list_remove(&c->link);
		c->fn(c->arg, NULL, "the node is shutting down");
		c->fn = NULL;
	}
	rc_env_table_destroy(e->table);
	free(e->ip);
	free(e->headers);
	free(e);
}

static void answered_get(request *r, rc_view body)
{
	Rw__GetOrCreateRuntimeEnvReply *m = rc_unpack(r->envs->dialect, &rw__get_or_create_runtime_env_reply__descriptor, body);
	if (!m)
		finish(r, NULL, "the runtime-env agent's answer is malformed");
	else {
		const char *error = RC_GET(m, status) == STATUS_OK ? NULL : *RC_GET_STR(m, error_message) ? m->error_message : "the runtime-env agent gave no reason";
		rc_env_table_made(r->envs->table, r->name, rc_now_ms() - r->began_ms, error);
		if (!error)
			rc_env_table_use(r->envs->table, r->name, true);
		finish(r, error ? NULL : RC_GET_STR(m, serialized_runtime_env_context), error);
	}
	rc_free_message(m);
}

static void answered_put(request *r, rc_view body)
{
	Rw__DeleteRuntimeEnvIfPossibleReply *m = rc_unpack(r->envs->dialect, &rw__delete_runtime_env_if_possible_reply__descriptor, body);
	if (!m)
		finish(r, NULL, "its answer is malformed");
	else
		finish(r, NULL, RC_GET(m, status) == STATUS_OK ? NULL : RC_GET_STR(m, error_message));
	rc_free_message(m);
}

static void try_again(void *arg);

static void answered(void *arg, int status, rc_view body, const char *text)
{
	request *r = arg;
	if (!r->envs) {
		free_request(r);
		return;
	}
	if (status > 0 && r->envs->answered)
		r->envs->answered(r->envs->ctx);
	if (status == 200) {
		if (r->path == get_path)
			answered_get(r, body);
		else
			answered_put(r, body);
		return;
	}
	if (status < 0 && rc_now_ms() < r->give_up_ms) { /* not listening yet, or being started again */
		r->timer = rc_timer_start(r->envs->loop, RETRY_MS, 0, try_again, r);
		return;
	}
	char *why = status < 0 ? rc_sprintf("the runtime-env agent at %s:%d cannot be reached: %s", r->envs->ip, r->envs->port, text)
	                       : rc_sprintf("the runtime-env agent answered HTTP %d: %.*s", status, (int)(body.n < 300 ? body.n : 300), (const char *)body.p);
	finish(r, NULL, why);
	free(why);
}

static void send_request(request *r)
{
	rc_runtime_envs *e = r->envs;
	if (e->wanted)
		e->wanted(e->ctx);
	rc_http_post(e->loop, e->ip, e->port, r->path, e->headers, rc_view_of(r->body.p, r->body.n), r->timeout_ms, answered, r);
}

static void try_again(void *arg)
{
	request *r = arg;
	rc_timer_stop(r->timer);
	r->timer = NULL;
	send_request(r);
}

static request *new_request(rc_runtime_envs *e, const char *path, const char *serialized)
{
	request *r = rc_alloc(sizeof(*r));
	*r = (request){ .envs = e, .path = path, .give_up_ms = rc_now_ms() + e->start_timeout_ms, .timeout_ms = EXTRA_MS, .began_ms = rc_now_ms() };
	r->name = rc_strdup(serialized);
	rc_list_append(&e->requests, &r->link);
	return r;
}

void rc_runtime_env_get(rc_runtime_envs *e, const Rw__RuntimeEnvInfo *info, const rc_id *job, rc_runtime_env_fn fn, void *arg)
{
	request *r = new_request(e, get_path, info->serialized_runtime_env);
	r->fn = fn;
	r->arg = arg;
	int seconds = info->runtime_env_config ? RC_GET(info->runtime_env_config, setup_timeout_seconds) : 0;
	r->timeout_ms = seconds < 0 ? NO_LIMIT_MS : (seconds ? (uint64_t)seconds * 1000 : DEFAULT_SETUP_MS) + EXTRA_MS;

	rc_id_hex hex = rc_id_to_hex(job); /* the agent takes the field's bytes as text: it wants the hex form */
	Rw__GetOrCreateRuntimeEnvRequest m = RW__GET_OR_CREATE_RUNTIME_ENV_REQUEST__INIT;
	m.serialized_runtime_env = info->serialized_runtime_env;
	m.runtime_env_config = info->runtime_env_config;
	m.source_process = (char *)"raylet";
	RC_SET_BYTES(m, job_id, hex.s, strlen(hex.s));
	rc_pack(e->dialect, &m, &r->body);
	send_request(r);
}

static void counted(void *arg)
{
	count *c = arg;
	rc_list_remove(&c->link);
	if (c->fn)
		c->fn(c->arg, "", NULL);
	free(c);
}

void rc_runtime_env_count(rc_runtime_envs *e, const Rw__RuntimeEnvInfo *info, const rc_id *job, rc_runtime_env_fn fn, void *arg)
{
	if (!e->wanted) {
		rc_runtime_env_get(e, info, job, fn, arg);
		return;
	}
	count *c = rc_alloc(sizeof(*c));
	*c = (count){ .fn = fn, .arg = arg };
	rc_list_append(&e->counts, &c->link);
	rc_env_table_made(e->table, info->serialized_runtime_env, 0, NULL);
	rc_env_table_use(e->table, info->serialized_runtime_env, false);
	rc_loop_post(e->loop, counted, c);
}

bool rc_runtime_envs_busy(const rc_runtime_envs *e)
{
	return !rc_list_empty(&e->requests) || rc_env_table_helper_uses(e->table);
}

void rc_runtime_envs_pack(const rc_runtime_envs *e, int64_t limit, rc_buf *out)
{
	rc_env_table_pack(e->table, e->dialect, limit, out);
}

void rc_runtime_env_put(rc_runtime_envs *e, const char *serialized)
{
	if (!rc_env_table_leave(e->table, serialized))
		return;
	request *r = new_request(e, put_path, serialized);
	Rw__DeleteRuntimeEnvIfPossibleRequest m = RW__DELETE_RUNTIME_ENV_IF_POSSIBLE_REQUEST__INIT;
	m.serialized_runtime_env = (char *)serialized;
	m.source_process = (char *)"raylet";
	rc_pack(e->dialect, &m, &r->body);
	send_request(r);
}
