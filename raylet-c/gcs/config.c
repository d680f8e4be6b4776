/* Ray's config values. The head's JSON (what `_system_config` and the start command set) wins over this node's environment
 * RAY_<name>, which wins over the caller's default: the order of both releases. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "raylet-c/base/log.h"
#include "raylet-c/gcs/internal.h"

static const json_t *from_head(const rc_gcs *g, const char *name)
{
	return g->config ? json_object_get(g->config, name) : NULL;
}

static const char *from_environment(const char *name)
{
	char variable[128];

	snprintf(variable, sizeof variable, "RAY_%s", name);
	return getenv(variable);
}

static void complain(const char *name, const char *want)
{
	rc_warn("config value %s is not %s: the default is used", name, want);
}

int64_t rc_gcs_config_int(const rc_gcs *g, const char *name, int64_t fallback)
{
	const json_t *value = from_head(g, name);
	const char *text = value ? json_string_value(value) : from_environment(name);
	char *end;
	long long n;

	if (json_is_integer(value))
		return json_integer_value(value);
	if (json_is_real(value))
		return (int64_t)json_real_value(value);
	if (json_is_boolean(value))
		return json_is_true(value);
	if (!value && !text)
		return fallback;
	if (text) {
		errno = 0;
		n = strtoll(text, &end, 10);
		if (!errno && end != text && !*end)
			return n;
	}
	complain(name, "a whole number");
	return fallback;
}

double rc_gcs_config_double(const rc_gcs *g, const char *name, double fallback)
{
	const json_t *value = from_head(g, name);
	const char *text = value ? json_string_value(value) : from_environment(name);
	char *end;
	double n;

	if (json_is_number(value))
		return json_number_value(value);
	if (!value && !text)
		return fallback;
	if (text) {
		n = strtod(text, &end);
		if (end != text && !*end)
			return n;
	}
	complain(name, "a number");
	return fallback;
}

bool rc_gcs_config_bool(const rc_gcs *g, const char *name, bool fallback)
{
	const json_t *value = from_head(g, name);
	const char *text = value ? json_string_value(value) : from_environment(name);

	if (json_is_boolean(value))
		return json_is_true(value);
	if (json_is_integer(value))
		return json_integer_value(value) != 0;
	if (!value && !text)
		return fallback;
	if (text && (strcmp(text, "1") == 0 || strcasecmp(text, "true") == 0))
		return true;
	if (text && (strcmp(text, "0") == 0 || strcasecmp(text, "false") == 0))
		return false;
	complain(name, "true or false");
	return fallback;
}

const char *rc_gcs_config_str(const rc_gcs *g, const char *name, const char *fallback)
{
	const json_t *value = from_head(g, name);
	const char *text = value ? json_string_value(value) : from_environment(name);

	if (text)
		return text;
	if (value)
		complain(name, "a string");
	return fallback;
}
