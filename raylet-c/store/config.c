/* See config.h. */
#include "raylet-c/store/config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/buf.h"

typedef struct reader {
	json_t *root;
	rc_error *e;
	bool failed;
} reader;

/* The value as text-independent JSON (caller's reference), or NULL: default. */
static json_t *look(reader *r, const char *name)
{
	json_t *v = json_object_get(r->root, name);
	char *env_name;
	const char *text;

	if (v)
		return json_is_null(v) ? NULL : json_incref(v);
	env_name = rc_sprintf("RAY_%s", name);
	text = getenv(env_name);
	free(env_name);
	return text && *text ? json_string(text) : NULL;
}

static void refuse(reader *r, const char *name, json_t *v, const char *want)
{
	char *text = json_dumps(v, JSON_ENCODE_ANY);

	if (!r->failed)
		rc_fail(r->e, RC_E_INVALID, "system config: %s is %.100s, %s is wanted", name, text ? text : "?", want);
	r->failed = true;
	free(text);
}

static double number(reader *r, const char *name, double otherwise, double least, double most)
{
	json_t *v = look(r, name);
	double n = otherwise;
	char *end = NULL;

	if (!v)
		return otherwise;
	if (json_is_string(v))
		n = strtod(json_string_value(v), &end);
	else if (json_is_number(v))
		n = json_number_value(v);
	else
		end = "?";
	if ((end && *end) || !(n >= least && n <= most)) {
		refuse(r, name, v, "a number in the allowed range");
		n = otherwise;
	}
	json_decref(v);
	return n;
}

static bool truth(reader *r, const char *name, bool otherwise)
{
	json_t *v = look(r, name);
	bool value = otherwise;

	if (!v)
		return otherwise;
	if (json_is_boolean(v))
		value = json_is_true(v);
	else if (json_is_integer(v))
		value = json_integer_value(v) != 0;
	else if (json_is_string(v))
		value = strcmp(json_string_value(v), "1") == 0 || strcasecmp(json_string_value(v), "true") == 0;
	else
		refuse(r, name, v, "true or false");
	json_decref(v);
	return value;
}

static void read_dirs(reader *r, json_t *dirs, rc_store_config *c)
{
	size_t n = json_is_array(dirs) ? json_array_size(dirs) : dirs ? 1 : 0;

	c->spill_dirs = rc_alloc((n + 1) * sizeof *c->spill_dirs);
	for (size_t i = 0; i < n; i++) {
		json_t *dir = json_is_array(dirs) ? json_array_get(dirs, i) : dirs;

		if (!json_is_string(dir) || json_string_value(dir)[0] != '/') {
			refuse(r, "object_spilling_config params.directory_path", dir, "an absolute path");
			return;
		}
		c->spill_dirs[c->n_spill_dirs++] = rc_strdup(json_string_value(dir));
	}
}

/* A JSON text inside the JSON, or an object. */
static void read_spilling(reader *r, rc_store_config *c)
{
	static const char *const name = "object_spilling_config";
	json_t *v = look(r, name), *config, *type;

	if (!v)
		return;
	if (json_is_string(v) && !json_string_value(v)[0]) {
		json_decref(v);
		return;
	}
	config = json_is_string(v) ? json_loads(json_string_value(v), 0, NULL) : json_incref(v);
	type = json_object_get(config, "type");
	if (json_object_size(config) == 0 && config) {
		/* {}: as if there were none */
	} else if (!json_is_string(type)) {
		refuse(r, name, v, "a JSON object with a type");
	} else {
		c->spill_type = rc_strdup(json_string_value(type));
		if (strcmp(c->spill_type, "filesystem") == 0)
			read_dirs(r, json_object_get(json_object_get(config, "params"), "directory_path"), c);
	}
	json_decref(config);
	json_decref(v);
}

int rc_store_config_read(const char *system_config, rc_store_config *ret, rc_error *e)
{
	json_error_t fault;
	reader r = { .e = e };
	rc_store_config c = { 0 };
	double file_size;

	r.root = system_config && *system_config ? json_loads(system_config, 0, &fault) : json_object();
	if (!json_is_object(r.root)) {
		json_decref(r.root);
		return rc_fail(e, RC_E_INVALID, "the system config is not a JSON object: %.160s", r.root ? "it is another value" : fault.text);
	}
	read_spilling(&r, &c);
	c.spilling = truth(&r, "automatic_object_spilling_enabled", true);
	c.spilling_threshold = number(&r, "object_spilling_threshold", 0.8, 0, 1e6);
	c.min_spilling_size = (uint64_t)number(&r, "min_spilling_size", 100 << 20, 0, 1e15);
	c.max_fused_objects = (uint64_t)number(&r, "max_fused_object_count", 2000, 1, 1e6);
	c.max_io_workers = (unsigned)number(&r, "max_io_workers", 4, 1, 1e4);
	c.grace_ms = (uint64_t)(1000 * number(&r, "oom_grace_period_s", 2, 0, 1e6));
	c.fs_capacity_threshold = number(&r, "local_fs_capacity_threshold", 0.95, 0, 1e6);
	file_size = number(&r, "max_spilling_file_size_bytes", 0, -1e18, 1e18); /* -1 is stock's word for none */
	c.max_spilling_file_size = file_size > 0 ? (uint64_t)file_size : 0;
	json_decref(r.root);
	if (r.failed) {
		rc_store_config_free(&c);
		return -1;
	}
	*ret = c;
	return 0;
}

void rc_store_config_free(rc_store_config *c)
{
	for (size_t i = 0; i < c->n_spill_dirs; i++)
		free(c->spill_dirs[i]);
	free(c->spill_dirs);
	free(c->spill_type);
	*c = (rc_store_config){ 0 };
}
