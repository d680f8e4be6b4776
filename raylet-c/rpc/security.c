/* Reading RAY_USE_TLS and RAY_AUTH_MODE; see security.h. Ray calls it an error when a mode is on and its files are not
 * there: so do we, before anything is sent. */
#include "raylet-c/rpc/security.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define K8S_TOKEN "/var/run/secrets/ray.io/serviceaccount/token"

static bool is_on(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && (strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0);
}

static const char *setting(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && *value != '\0' ? value : NULL;
}

/* The first line, trimmed; NULL when nothing is left. */
static char *first_line(const char *text)
{
	size_t n;

	while (isspace((unsigned char)*text) && *text != '\n')
		text++;
	n = strcspn(text, "\n");
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		n--;
	return n > 0 ? rc_strndup(text, n) : NULL;
}

static int read_token(const char *path, const char *named_by, char **ret, rc_error *error)
{
	char line[8192];
	FILE *f = fopen(path, "r");
	bool got;

	if (f == NULL)
		return rc_fail_errno(error, "the token file %s (%s) cannot be read", path, named_by);
	got = fgets(line, sizeof line, f) != NULL;
	fclose(f);
	*ret = got ? first_line(line) : NULL;
	if (*ret == NULL)
		return rc_fail(error, RC_E_INVALID, "the token file %s (%s) is empty", path, named_by);
	return 0;
}

static int find_token(char **ret, rc_error *error)
{
	const char *value = setting("RAY_AUTH_TOKEN"), *home = setting("HOME");
	char *path;
	int rc;

	if (value != NULL && (*ret = first_line(value)) != NULL)
		return 0;
	value = setting("RAY_AUTH_TOKEN_PATH");
	if (value != NULL)
		return read_token(value, "RAY_AUTH_TOKEN_PATH", ret, error);
	if (is_on("RAY_ENABLE_K8S_TOKEN_AUTH"))
		return read_token(K8S_TOKEN, "RAY_ENABLE_K8S_TOKEN_AUTH", ret, error);
	if (home == NULL)
		return rc_fail(error, RC_E_NOT_FOUND, "RAY_AUTH_MODE=token, but there is no RAY_AUTH_TOKEN, no RAY_AUTH_TOKEN_PATH and no HOME");
	path = rc_sprintf("%s/.ray/auth_token", home);
	rc = read_token(path, "RAY_AUTH_MODE=token, and neither RAY_AUTH_TOKEN nor RAY_AUTH_TOKEN_PATH is set", ret, error);
	free(path);
	return rc;
}

int rc_security_from_env(rc_security *ret, rc_error *error)
{
	static const char *const names[] = { "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT" };
	const char *mode = setting("RAY_AUTH_MODE");
	rc_security s = { 0 };
	char **fields[] = { &s.tls_cert, &s.tls_key, &s.tls_ca };

	if (is_on("RAY_USE_TLS"))
		for (size_t i = 0; i < 3; i++) {
			if (setting(names[i]) == NULL) {
				rc_security_free(&s);
				return rc_fail(error, RC_E_INVALID, "RAY_USE_TLS is set, but %s is not", names[i]);
			}
			*fields[i] = rc_strdup(setting(names[i]));
		}
	if (mode != NULL && strcasecmp(mode, "token") == 0 && find_token(&s.token, error) != 0) {
		rc_security_free(&s);
		return -1;
	}
	*ret = s;
	return 0;
}

void rc_security_apply(const rc_security *s, rc_rpc_options *options)
{
	options->tls_cert = s->tls_cert;
	options->tls_key = s->tls_key;
	options->tls_ca = s->tls_ca;
	options->token = s->token;
}

void rc_security_free(rc_security *s)
{
	free(s->tls_cert);
	free(s->tls_key);
	free(s->tls_ca);
	free(s->token);
	*s = (rc_security){ 0 };
}
