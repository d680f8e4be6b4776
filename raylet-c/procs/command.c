/* Worker commands. The order of the words is stock's: the template up to the placeholder, per-job and per-process options in
 * its place, the rest of the template, then what is only known at the start of the process. */
#include "raylet-c/procs/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raylet-c/procs/pool.h"

extern char **environ;

#define DYNAMIC_OPTIONS "RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER"
#define PORT "RAY_NODE_MANAGER_PORT_PLACEHOLDER"
#define SETUP_WORKER "setup_worker.py"

/* ---- words ---- */

void rc_words_add(rc_words *w, char *owned)
{
	if (w->n + 2 > w->cap) {
		w->cap = w->cap ? 2 * w->cap : 32;
		w->v = rc_realloc(w->v, w->cap * sizeof(*w->v));
	}
	w->v[w->n++] = owned;
	w->v[w->n] = NULL;
}

void rc_words_add_copy(rc_words *w, const char *s)
{
	rc_words_add(w, rc_strdup(s));
}

void rc_words_free(rc_words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->v[i]);
	free(w->v);
	*w = (rc_words){ 0 };
}

static void words_remove(rc_words *w, size_t i)
{
	free(w->v[i]);
	memmove(w->v + i, w->v + i + 1, (w->n - i) * sizeof(*w->v)); /* the NULL too */
	w->n--;
}

void rc_words_split(const char *text, rc_words *out)
{
	rc_buf word = { 0 };
	bool open = false; /* a word has begun: "" is one too */
	char quote = 0;
	for (const char *p = text ? text : ""; *p; p++) {
		if (!quote && strchr(" \t\r\n\v\f", *p)) {
			if (open)
				rc_words_add(out, rc_strndup(word.p, word.n));
			word.n = 0;
			open = false;
			continue;
		}
		open = true;
		if (*p == quote)
			quote = 0;
		else if (!quote && (*p == '\'' || *p == '"'))
			quote = *p;
		else if (*p == '\\' && quote != '\'' && p[1] && (!quote || p[1] == '"' || p[1] == '\\'))
			rc_buf_add(&word, ++p, 1);
		else
			rc_buf_add(&word, p, 1);
	}
	if (open)
		rc_words_add(out, rc_strndup(word.p, word.n));
	rc_buf_free(&word);
}

/* ---- environment ---- */

static size_t env_index(const rc_words *env, const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; i < env->n; i++)
		if (strncmp(env->v[i], name, n) == 0 && env->v[i][n] == '=')
			return i;
	return env->n;
}

const char *rc_env_get(const rc_words *env, const char *name)
{
	size_t i = env_index(env, name);
	return i < env->n ? env->v[i] + strlen(name) + 1 : NULL;
}

void rc_env_set(rc_words *env, const char *name, const char *value)
{
	size_t i = env_index(env, name);
	char *word = rc_sprintf("%s=%s", name, value);
	if (i == env->n) {
		rc_words_add(env, word);
		return;
	}
	free(env->v[i]);
	env->v[i] = word;
}

void rc_env_unset(rc_words *env, const char *name)
{
	size_t i = env_index(env, name);
	if (i < env->n)
		words_remove(env, i);
}

void rc_env_inherit(rc_words *env)
{
	for (char **e = environ; *e; e++)
		rc_words_add_copy(env, *e);
	const char *kept = rc_env_get(env, RC_KEPT_PRELOAD);
	if (kept)
		rc_env_set(env, "LD_PRELOAD", kept);
	rc_env_unset(env, RC_KEPT_PRELOAD);
	const char *on_workers = rc_env_get(env, "RAY_LD_PRELOAD_ON_WORKERS");
	bool set_by_ray = on_workers || rc_env_get(env, "RAY_LD_PRELOAD");
	if (set_by_ray && !(on_workers && strcmp(on_workers, "1") == 0))
		rc_env_unset(env, "LD_PRELOAD");
}

/* ---- the command ---- */

char *rc_command_put_port(const char *word, int port)
{
	rc_buf b = { 0 };
	const char *at;
	for (; (at = strstr(word, PORT)); word = at + strlen(PORT)) {
		rc_buf_add(&b, word, (size_t)(at - word));
		rc_buf_printf(&b, "%d", port);
	}
	rc_buf_str(&b, word);
	char *result = rc_strdup(rc_buf_cstr(&b));
	rc_buf_free(&b);
	return result;
}

char *rc_base64(const char *text)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t n = strlen(text);
	const uint8_t *p = (const uint8_t *)text;
	char *out = rc_alloc((n + 2) / 3 * 4 + 1), *o = out;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
		*o++ = digits[v >> 18];
		*o++ = digits[v >> 12 & 63];
		*o++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
		*o++ = i + 2 < n ? digits[v & 63] : '=';
	}
	return out;
}

static bool has_context(const rc_worker_command *c)
{
	return c->runtime_env_context && *c->runtime_env_context && strcmp(c->runtime_env_context, "{}") != 0;
}

static bool has_worker_id(const rc_worker_command *c) /* 2.60.0: the node gives the worker its id; 2.35.0: a startup token */
{
	return strcmp(rc_dialect_release(c->dialect), "2.35.0") != 0;
}

static char *code_search_path(const Rw__JobConfig *job)
{
	rc_buf b = { 0 };
	for (size_t i = 0; job && i < job->n_code_search_path; i++) {
		if (i)
			rc_buf_str(&b, ":");
		rc_buf_str(&b, job->code_search_path[i]);
	}
	char *result = rc_strdup(rc_buf_cstr(&b));
	rc_buf_free(&b);
	return result;
}

/* What stands in the place of the placeholder. */
static void add_options(const rc_worker_command *c, const char *search_path, rc_words *argv)
{
	if (*search_path && c->language == RC_LANG_JAVA)
		rc_words_add(argv, rc_sprintf("-Dray.job.code-search-path=%s", search_path));
	if (*search_path && c->language == RC_LANG_CPP)
		rc_words_add(argv, rc_sprintf("--ray_code_search_path=%s", search_path));
	if (c->language == RC_LANG_JAVA) {
		for (size_t i = 0; c->job_config && i < c->job_config->n_jvm_options; i++)
			rc_words_add_copy(argv, c->job_config->jvm_options[i]);
		if (has_worker_id(c))
			rc_words_add(argv, rc_sprintf("-Dray.worker.id=%s", rc_id_to_hex(&c->worker_id).s));
		else
			rc_words_add(argv, rc_sprintf("-Dray.raylet.startup-token=%lld", (long long)c->startup_token));
		rc_words_add(argv, rc_sprintf("-Dray.internal.runtime-env-hash=%d", c->runtime_env_hash));
	}
	for (size_t i = 0; i < c->n_dynamic_options; i++)
		rc_words_add_copy(argv, c->dynamic_options[i]);
}

static void add_python_words(const rc_worker_command *c, rc_words *argv)
{
	if (rc_is_io_worker(c->type)) {
		rc_words_add(argv, rc_sprintf("--worker-type=%s", c->type == RC_SPILL_WORKER ? "SPILL_WORKER" : "RESTORE_WORKER"));
		char *config = rc_base64(c->spilling_config ? c->spilling_config : "");
		rc_words_add(argv, rc_sprintf("--object-spilling-config=%s", config));
		free(config);
	}
	if (has_worker_id(c))
		rc_words_add(argv, rc_sprintf("--worker-id=%s", rc_id_to_hex(&c->worker_id).s));
	else
		rc_words_add(argv, rc_sprintf("--startup-token=%lld", (long long)c->startup_token));
	rc_words_add(argv, rc_sprintf("--worker-launch-time-ms=%llu", (unsigned long long)rc_wall_ms()));
	rc_words_add(argv, rc_sprintf("--node-id=%s", rc_id_to_hex(&c->node_id).s));
	rc_words_add(argv, rc_sprintf("--runtime-env-hash=%d", c->runtime_env_hash));
	if (c->preload_modules && *c->preload_modules && !rc_is_io_worker(c->type))
		rc_words_add(argv, rc_sprintf("--worker-preload-modules=%s", c->preload_modules));
}

static void add_cpp_words(const rc_worker_command *c, rc_words *argv)
{
	if (has_worker_id(c))
		rc_words_add(argv, rc_sprintf("--ray_worker_id=%s", rc_id_to_hex(&c->worker_id).s));
	else
		rc_words_add(argv, rc_sprintf("--startup_token=%lld", (long long)c->startup_token));
	rc_words_add(argv, rc_sprintf("--ray_runtime_env_hash=%d", c->runtime_env_hash));
}

/* setup_worker.py is the second word; it is only there to apply a runtime env (Java needs its classpath from it always). */
static void add_runtime_env(const rc_worker_command *c, rc_words *argv)
{
	static const char *const names[] = { "PYTHON", "JAVA", "CPP" };
	if (has_context(c)) {
		rc_words_add(argv, rc_sprintf("--language=%s", names[c->language]));
		rc_words_add(argv, rc_sprintf("--serialized-runtime-env-context=%s", c->runtime_env_context));
	} else if (c->language == RC_LANG_PYTHON && argv->n >= 2 && strstr(argv->v[1], SETUP_WORKER)) {
		words_remove(argv, 1);
	} else if (c->language == RC_LANG_JAVA) {
		rc_words_add(argv, rc_sprintf("--language=%s", names[c->language]));
	}
	if (c->debugger_external && c->language != RC_LANG_CPP)
		rc_words_add_copy(argv, "--ray-debugger-external");
}

static void add_environment(const rc_worker_command *c, const char *search_path, rc_words *env)
{
	if (!rc_is_io_worker(c->type)) {
		rc_id nil = rc_id_nil(RC_JOB_ID);
		rc_env_set(env, "RAY_JOB_ID", rc_id_to_hex(c->job_id.n ? &c->job_id : &nil).s);
	}
	char pid[16];
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	rc_env_set(env, "RAY_RAYLET_PID", pid);
	if (c->language == RC_LANG_PYTHON)
		rc_env_set(env, "SPT_NOENV", "1");
	if (c->language == RC_LANG_PYTHON && !rc_is_io_worker(c->type) && !rc_env_get(env, RC_PARTS))
		rc_env_set(env, RC_PARTS, "fsdp");
	if (c->language == RC_LANG_PYTHON && !rc_is_io_worker(c->type) && c->train_env && *c->train_env && !rc_env_get(env, RC_TRAIN_ENV))
		rc_env_set(env, RC_TRAIN_ENV, c->train_env);
	if (c->language != RC_LANG_CPP)
		return;
	const char *parts[] = { c->native_library_path, rc_env_get(env, "LD_LIBRARY_PATH"), search_path };
	rc_buf path = { 0 };
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i] && *parts[i])
			rc_buf_printf(&path, "%s%s", path.n ? ":" : "", parts[i]);
	if (path.n)
		rc_env_set(env, "LD_LIBRARY_PATH", rc_buf_cstr(&path));
	rc_buf_free(&path);
}

int rc_worker_command_build(const rc_worker_command *c, rc_words *argv, rc_words *env, rc_error *error)
{
	rc_words template = { 0 };
	rc_words_split(c->command, &template);
	if (template.n == 0) {
		rc_words_free(&template);
		return rc_fail(error, RC_E_UNSUPPORTED, "this node has no command to start workers of language %d with", c->language);
	}
	char *search_path = code_search_path(c->job_config);
	for (size_t i = 0; i < template.n; i++) {
		if (strcmp(template.v[i], DYNAMIC_OPTIONS) == 0)
			add_options(c, search_path, argv);
		else
			rc_words_add(argv, rc_command_put_port(template.v[i], c->node_manager_port));
	}
	rc_words_free(&template);
	if (c->language == RC_LANG_PYTHON)
		add_python_words(c, argv);
	if (c->language == RC_LANG_CPP)
		add_cpp_words(c, argv);
	add_runtime_env(c, argv);
	rc_env_inherit(env);
	add_environment(c, search_path, env);
	free(search_path);
	return 0;
}
