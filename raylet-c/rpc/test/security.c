/* TLS and token settings of the environment. */
#include "raylet-c/rpc/security.h"

#include <stdlib.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static char folder[] = "/tmp/raylet-c-test-XXXXXX";

static void clear(void)
{
	static const char *const names[] = { "RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT", "RAY_AUTH_MODE",
		                             "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ENABLE_K8S_TOKEN_AUTH" };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		unsetenv(names[i]);
	setenv("HOME", folder, 1);
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

static const char *token(const char **ret_error)
{
	static char text[100];
	static rc_error error;
	rc_security s;

	error.text[0] = '\0';
	*ret_error = error.text;
	if (rc_security_from_env(&s, &error) != 0)
		return NULL;
	snprintf(text, sizeof text, "%s", s.token != NULL ? s.token : "(off)");
	rc_security_free(&s);
	return text;
}

static void off(void)
{
	const char *why;

	clear();
	CHECK_STR("(off)", token(&why));
	setenv("RAY_AUTH_TOKEN", "secret", 1); /* a token without the mode is not used */
	CHECK_STR("(off)", token(&why));
	setenv("RAY_AUTH_MODE", "disabled", 1);
	CHECK_STR("(off)", token(&why));
}

static void tokens(void)
{
	const char *why;
	char *path = rc_sprintf("%s/token", folder);

	clear();
	setenv("RAY_AUTH_MODE", "token", 1);
	CHECK(token(&why) == NULL);
	CHECK(strstr(why, "auth_token") != NULL);
	put(path, "  from file \nsecond line\n");
	setenv("RAY_AUTH_TOKEN_PATH", path, 1);
	CHECK_STR("from file", token(&why));
	setenv("RAY_AUTH_TOKEN", " from variable \n", 1);
	CHECK_STR("from variable", token(&why));
	unsetenv("RAY_AUTH_TOKEN");
	put(path, "\n");
	CHECK(token(&why) == NULL);
	CHECK(strstr(why, "empty") != NULL && strstr(why, path) != NULL);
	unlink(path);
	CHECK(token(&why) == NULL);
	CHECK(strstr(why, "No such file") != NULL);
	free(path);
}

static void tls(void)
{
	rc_security s;
	rc_error error;
	rc_rpc_options options = { 0 };

	clear();
	setenv("RAY_USE_TLS", "1", 1);
	setenv("RAY_TLS_SERVER_CERT", "/c", 1);
	setenv("RAY_TLS_SERVER_KEY", "/k", 1);
	CHECK_EQ_INT(-1, rc_security_from_env(&s, &error));
	CHECK(strstr(error.text, "RAY_TLS_CA_CERT") != NULL);
	setenv("RAY_TLS_CA_CERT", "/a", 1);
	CHECK_EQ_INT(0, rc_security_from_env(&s, &error));
	rc_security_apply(&s, &options);
	CHECK_STR("/c", options.tls_cert);
	CHECK_STR("/k", options.tls_key);
	CHECK_STR("/a", options.tls_ca);
	CHECK(options.token == NULL);
	rc_security_free(&s);
	setenv("RAY_USE_TLS", "0", 1);
	CHECK_EQ_INT(0, rc_security_from_env(&s, &error));
	CHECK(s.tls_cert == NULL);
	rc_security_free(&s);
}

int main(void)
{
	if (mkdtemp(folder) == NULL)
		return 1;
	RUN(off, "without RAY_AUTH_MODE=token no token is used");
	RUN(tokens, "the token comes from variable, file or home, trimmed, and a missing one is named");
	RUN(tls, "TLS needs all three files");
	return rmdir(folder) != 0 ? 1 : test_end();
}
