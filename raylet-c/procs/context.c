/* Most runtime envs of trainers are a few variables. For those, stock starts python to run setup_worker.py, which executes
 * bash, which executes python again with default_worker.py: the result is the plain worker with a larger environment.
 *
 * Facts: ray/_private/runtime_env/context.py (fields of the context), ray/_private/utils.py (update_envs), both releases. */
#include "raylet-c/procs/context.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static bool take_variables(const json_t *object, rc_words *variables)
{
	const char *key;
	json_t *value;
	if (object && !json_is_object(object))
		return false;
	json_object_foreach((json_t *)(uintptr_t)object, key, value) {
		if (!json_is_string(value) || !*key || strchr(key, '=') || strlen(json_string_value(value)) != json_string_length(value)) {
			rc_words_free(variables);
			return false;
		}
		rc_words_add(variables, rc_sprintf("%s=%s", key, json_string_value(value)));
	}
	return true;
}

bool rc_context_of_env(const char *serialized_env, rc_words *variables)
{
	json_t *env = json_loads(serialized_env, JSON_REJECT_DUPLICATES, NULL);
	bool only = json_is_object(env) && json_object_get(env, "env_vars");
	const char *key;
	json_t *value;
	if (only)
		json_object_foreach(env, key, value)
			only = only && (strcmp(key, "env_vars") == 0 || strcmp(key, "config") == 0);
	only = only && take_variables(json_object_get(env, "env_vars"), variables);
	json_decref(env);
	return only;
}

bool rc_context_is_plain(const char *context, const char *interpreter, rc_words *variables)
{
	json_t *c = json_loads(context, JSON_REJECT_DUPLICATES, NULL);
	bool plain = json_is_object(c);
	const char *key;
	json_t *value;
	if (plain)
		json_object_foreach(c, key, value) {
			if (strcmp(key, "env_vars") == 0)
				continue;
			if (strcmp(key, "py_executable") == 0)
				plain = plain && json_is_string(value) && strcmp(json_string_value(value), interpreter) == 0;
			else /* command_prefix, java_jars, override_worker_entrypoint, resources_dir, and what a later release adds */
				plain = plain && (json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
				                  (json_is_string(value) && json_string_length(value) == 0));
		}
	plain = plain && take_variables(json_object_get(c, "env_vars"), variables);
	json_decref(c);
	return plain;
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static char *expand(const char *value, const rc_words *env)
{
	rc_buf out = { 0 };
	while (*value) {
		const char *name = value + 1, *end = name, *next;
		bool braces = *value == '$' && *name == '{';
		if (braces) {
			name++;
			end = strchr(name, '}');
			next = end ? end + 1 : NULL;
		} else if (*value == '$') {
			while (is_word(*end))
				end++;
			next = end > name ? end : NULL;
		} else {
			next = NULL;
		}
		if (!next) {
			rc_buf_add(&out, value++, 1);
			continue;
		}
		char *word = rc_strndup(name, (size_t)(end - name));
		const char *found = rc_env_get(env, word);
		if (found)
			rc_buf_str(&out, found);
		else if (!braces || strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != strlen(word) || !*word)
			rc_buf_add(&out, value, (size_t)(next - value));
		free(word);
		value = next;
	}
	char *result = rc_strdup(rc_buf_cstr(&out));
	rc_buf_free(&out);
	return result;
}

void rc_context_apply(const rc_words *variables, rc_words *env)
{
	for (size_t i = 0; i < variables->n; i++) {
		const char *word = variables->v[i], *equals = strchr(word, '=');
		char *name = rc_strndup(word, (size_t)(equals - word));
		char *value = expand(equals + 1, env);
		rc_env_set(env, name, value);
		free(name);
		free(value);
	}
}
