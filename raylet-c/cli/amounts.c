/* Resources and labels of a node as `ray start` accepts and orders them; see plan.h. Facts: ray/_private/resource_spec.py
 * (2.35.0), resource_and_label_spec.py and label_utils.py (2.60.0). Amounts are whole numbers up to 1e14; a zero is left out;
 * Python prints a float with ".0", and so do we, since the text is compared by people. */
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/cli/labels_file.h"
#include "raylet-c/cli/plan.h"

#define MOST 1e14 /* MAX_RESOURCE_QUANTITY */

static const char *const special[] = { "CPU", "GPU", "memory", "object_store_memory" };

static json_t *read_object(const char *text, const char *named, rc_error *error)
{
	json_error_t why;
	json_t *root = json_loads(text, 0, &why);

	if (root == NULL) {
		rc_fail(error, RC_E_INVALID, "%s is not JSON (%s at character %d): %.200s", named, why.text, why.position, text);
		return NULL;
	}
	if (!json_is_object(root)) {
		rc_fail(error, RC_E_INVALID, "%s is not a JSON object of names: %.200s", named, text);
		json_decref(root);
		return NULL;
	}
	return root;
}

static int check_amount(const char *name, const json_t *value, rc_error *error)
{
	double amount;

	if (!json_is_number(value))
		return rc_fail(error, RC_E_INVALID, "resource \"%s\" is not a number", name);
	amount = json_number_value(value);
	if (amount != floor(amount))
		return rc_fail(error, RC_E_INVALID, "Resource quantities must all be whole numbers: \"%s\" is %g", name, amount);
	if (amount < 0 || amount > MOST)
		return rc_fail(error, RC_E_INVALID, "Resource quantities must be from 0 to %g: \"%s\" is %g", MOST, name, amount);
	return 0;
}

static int64_t *special_field(rc_amounts *a, size_t i)
{
	int64_t *fields[] = { &a->cpus, &a->gpus, &a->memory, &a->object_store_memory };

	return fields[i];
}

int rc_resources_override(const char *env, rc_amounts *amounts, rc_error *error)
{
	json_t *root;

	if (env == NULL || *env == '\0')
		return 0;
	root = read_object(env, "RAY_OVERRIDE_RESOURCES", error);
	if (root == NULL)
		return -1;
	for (size_t i = 0; i < 4; i++) {
		json_t *value = json_object_get(root, special[i]);

		if (value == NULL)
			continue;
		if (check_amount(special[i], value, error) != 0) {
			json_decref(root);
			return -1;
		}
		*special_field(amounts, i) = (int64_t)json_number_value(value);
	}
	json_decref(root);
	return 0;
}

static bool is_special(const char *name)
{
	for (size_t i = 0; i < 4; i++)
		if (strcmp(name, special[i]) == 0)
			return true;
	return false;
}

static int add_custom(json_t *all, const char *text, const char *named, bool allow_special, rc_error *error)
{
	json_t *root, *value;
	const char *name;
	int rc = 0;

	if (text == NULL || *text == '\0')
		return 0;
	root = read_object(text, named, error);
	if (root == NULL)
		return -1;
	json_object_foreach(root, name, value) {
		if (is_special(name)) {
			if (allow_special)
				continue;
			rc = rc_fail(error, RC_E_INVALID, "%s may not name \"%s\": there is an option of its own for it", named, name);
		} else if (strcmp(name, "node:__internal_head__") == 0) {
			rc = rc_fail(error, RC_E_INVALID, "%s: \"%s\" is a reserved resource name", named, name);
		} else if (strchr(name, ',') != NULL) {
			rc = rc_fail(error, RC_E_INVALID, "%s: a resource's name has no comma: \"%s\"", named, name);
		} else {
			rc = check_amount(name, value, error);
		}
		if (rc != 0)
			break;
		json_object_set(all, name, value);
	}
	json_decref(root);
	return rc;
}

int rc_resources_text(const char *custom, const char *env, const rc_amounts *amounts, const char *node_ip, const char *gpu_type, char **ret,
                      rc_error *error)
{
	json_t *all = json_object(), *value;
	const char *name;
	char *own = rc_sprintf("node:%s", node_ip);
	rc_buf out = { 0 };
	int rc = -1;

	if (add_custom(all, custom, "--resources", false, error) == 0 && add_custom(all, env, "RAY_OVERRIDE_RESOURCES", true, error) == 0) {
		json_object_set_new(all, own, json_real(1.0));
		if (gpu_type[0] != '\0') {
			char *type = rc_sprintf("accelerator_type:%s", gpu_type);

			json_object_set_new(all, type, json_integer(1));
			free(type);
		}
		for (size_t i = 0; i < 4; i++)
			json_object_set_new(all, special[i], json_integer(*special_field((rc_amounts *)amounts, i)));
		json_object_foreach(all, name, value) {
			if (json_number_value(value) == 0)
				continue;
			rc_buf_printf(&out, "%s%s,", out.n > 0 ? "," : "", name);
			if (json_is_integer(value))
				rc_buf_printf(&out, "%lld", (long long)json_integer_value(value));
			else
				rc_buf_printf(&out, "%.1f", json_real_value(value));
		}
		*ret = rc_strdup(rc_buf_cstr(&out));
		rc = 0;
	}
	rc_buf_free(&out);
	free(own);
	json_decref(all);
	return rc;
}

/* [a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])? */
static bool is_label_part(const char *s, size_t n)
{
	if (n == 0 || n > 63 || !isalnum((unsigned char)s[0]) || !isalnum((unsigned char)s[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && strchr("_.-", s[i]) == NULL)
			return false;
	return true;
}

static int check_label(const char *key, const char *value, rc_error *error)
{
	const char *slash = strrchr(key, '/');
	const char *name = slash != NULL ? slash + 1 : key;

	if (!is_label_part(name, strlen(name)))
		return rc_fail(error, RC_E_INVALID,
		               "Invalid label key name `%s`: 1 to 63 letters, digits, dashes, underscores, dots, alphanumeric at both ends", name);
	if (slash != NULL) {
		const char *p = key;

		if (slash - key > 253)
			return rc_fail(error, RC_E_INVALID, "Invalid label key prefix of `%.100s`: longer than 253 characters", key);
		for (;;) { /* dot-separated parts; Ray lets empty ones pass */
			size_t n = strcspn(p, "./");

			if (n > 0 && !is_label_part(p, n))
				return rc_fail(error, RC_E_INVALID, "Invalid label key prefix `%.*s`", (int)(slash - key), key);
			p += n;
			if (p >= slash)
				break;
			p++;
		}
	}
	if (*value != '\0' && !is_label_part(value, strlen(value)))
		return rc_fail(error, RC_E_INVALID, "Invalid label value `%s` of `%s`", value, key);
	return 0;
}

static int add_json_labels(json_t *all, const char *text, const char *named, bool reserve, rc_error *error)
{
	json_t *root = read_object(text, named, error), *value;
	const char *key;
	int rc = 0;

	if (root == NULL)
		return -1;
	json_object_foreach(root, key, value) {
		if (!json_is_string(value))
			rc = rc_fail(error, RC_E_INVALID, "%s: the value of \"%s\" is not a string", named, key);
		else if (reserve && strncmp(key, "ray.io/", 7) == 0)
			rc = rc_fail(error, RC_E_INVALID, "Custom label keys `%s` cannot start with the prefix `ray.io/`", key);
		if (rc != 0)
			break;
		json_object_set(all, key, value);
	}
	json_decref(root);
	return rc;
}

static char *trimmed(const char *s, size_t n)
{
	while (n > 0 && isspace((unsigned char)*s))
		s++, n--;
	while (n > 0 && isspace((unsigned char)s[n - 1]))
		n--;
	return rc_strndup(s, n);
}

/* k=v,k=v, perhaps in double quotes */
static int add_pair_labels(json_t *all, const char *text, rc_error *error)
{
	size_t n = strlen(text);
	int rc = 0;

	if (n > 1 && text[0] == '"' && text[n - 1] == '"') {
		text++;
		n -= 2;
	}
	for (const char *p = text, *end = text + n; rc == 0 && n > 0; p++) {
		size_t pair = strcspn(p, ",");

		if (p + pair > end)
			pair = (size_t)(end - p);
		const char *equals = memchr(p, '=', pair);
		if (equals == NULL || memchr(equals + 1, '=', pair - (size_t)(equals - p) - 1) != NULL)
			return rc_fail(error, RC_E_INVALID, "--labels=%s: \"%.*s\" is not of the form key=value", text, (int)pair, p);
		char *key = trimmed(p, (size_t)(equals - p)), *value = trimmed(equals + 1, pair - (size_t)(equals - p) - 1);
		rc = check_label(key, value, error);
		if (rc == 0)
			json_object_set_new(all, key, json_string(value));
		free(key);
		free(value);
		p += pair;
		if (p >= end)
			break;
	}
	return rc;
}

static int on_file_label(void *arg, const char *key, const char *value, rc_error *error)
{
	if (check_label(key, value, error) != 0)
		return -1;
	json_object_set_new(arg, key, json_string(value));
	return 0;
}

int rc_labels_text(bool v235, const char *file, const char *given, const char *gpu_type, char **ret, rc_error *error)
{
	static const struct {
		const char *variable, *key;
	} defaults[] = {
		{ "RAY_NODE_MARKET_TYPE", "ray.io/market-type" },
		{ "RAY_NODE_TYPE_NAME", "ray.io/node-group" },
		{ "RAY_NODE_ZONE", "ray.io/availability-zone" },
		{ "RAY_NODE_REGION", "ray.io/availability-region" },
	};
	const char *override = getenv("RAY_OVERRIDE_LABELS");
	json_t *all = json_object();
	int rc = 0;

	for (size_t i = 0; !v235 && i < 4; i++) {
		const char *value = getenv(defaults[i].variable);

		if (value != NULL && *value != '\0')
			json_object_set_new(all, defaults[i].key, json_string(value));
	}
	if (!v235 && gpu_type[0] != '\0')
		json_object_set_new(all, "ray.io/accelerator-type", json_string(gpu_type));
	if (file != NULL)
		rc = rc_labels_file_parse(file, on_file_label, all, error);
	if (rc == 0 && given != NULL && *given != '\0') {
		const char *start = given + strspn(given, " \t\n");

		rc = v235 || *start == '{' ? add_json_labels(all, given, "--labels", true, error) : add_pair_labels(all, given, error);
	}
	if (rc == 0 && override != NULL && *override != '\0')
		rc = add_json_labels(all, override, "RAY_OVERRIDE_LABELS", false, error);
	if (rc == 0) {
		char *text = json_object_size(all) > 0 ? json_dumps(all, JSON_ENSURE_ASCII) : NULL;

		*ret = rc_strdup(text != NULL ? text : "");
		free(text);
	}
	json_decref(all);
	return rc;
}
