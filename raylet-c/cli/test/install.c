/* enable, disable and status on a made-up ray package. */
#include "raylet-c/cli/install.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/test.h"
#include "raylet-c/base/version.h"

static char top[] = "/tmp/raylet-c-test-XXXXXX";
static char *package, *raylet, *stock, *marker, *daemon_file;

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
	CHECK(chmod(path, 0755) == 0);
}

static const char *get(const char *path)
{
	static char text[256];
	FILE *f = fopen(path, "r");

	if (f == NULL)
		return NULL;
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	return text;
}

static void release(const char *version)
{
	char *path = rc_sprintf("%s/_version.py", package), *text = rc_sprintf("# a comment\ncommit = \"abc\"\nversion = \"%s\"\n", version);

	put(path, text);
	free(path);
	free(text);
}

static void fresh_package(void)
{
	put(raylet, "stock program");
	unlink(stock);
	unlink(marker);
	release("2.60.0");
}

static rc_package find(void)
{
	rc_package p = { 0 };
	rc_error error = { 0 };

	CHECK_EQ_INT(0, rc_package_find(package, &p, &error));
	CHECK_STR("", error.text);
	return p;
}

static rc_install_state state(void)
{
	rc_package p = find();
	rc_install_state s = RC_INSTALL_STOCK;
	rc_error error;

	CHECK_EQ_INT(0, rc_install_state_of(&p, &s, &error));
	return s;
}

static void finds_by_environment(void)
{
	rc_package p;
	rc_error error;

	fresh_package();
	CHECK_EQ_INT(0, rc_package_find(top, &p, &error));
	CHECK_STR(package, p.dir);
	CHECK_STR(raylet, p.raylet);
	CHECK_STR("2.60.0", p.release);
	CHECK_EQ_INT(-1, rc_package_find("/usr/bin", &p, &error));
	CHECK(strstr(error.text, "/usr/bin") != NULL);
	CHECK_EQ_INT(-1, rc_package_find("/no/such/folder", &p, &error));
	CHECK(strstr(error.text, "/no/such/folder") != NULL && strstr(error.text, "No such file") != NULL);
}

static void enables_and_disables(void)
{
	rc_error error;
	rc_install_state was;

	fresh_package();
	rc_package p = find();
	CHECK_EQ_INT(RC_INSTALL_STOCK, state());
	CHECK_EQ_INT(0, rc_install_enable(&p, daemon_file, &error));
	CHECK_STR("x" RC_DAEMON_MARK "y", get(raylet));
	CHECK_STR("stock program", get(stock));
	CHECK(strstr(get(marker), "2.60.0") != NULL);
	CHECK_EQ_INT(0, access(raylet, X_OK));
	CHECK_EQ_INT(RC_INSTALL_ENABLED, state());
	CHECK_EQ_INT(0, rc_install_enable(&p, daemon_file, &error)); /* an update keeps the original */
	CHECK_STR("stock program", get(stock));
	CHECK_EQ_INT(0, rc_install_disable(&p, &was, &error));
	CHECK_EQ_INT(RC_INSTALL_ENABLED, was);
	CHECK_STR("stock program", get(raylet));
	CHECK(access(stock, F_OK) != 0 && access(marker, F_OK) != 0);
	CHECK_EQ_INT(RC_INSTALL_STOCK, state());
	CHECK_EQ_INT(0, rc_install_disable(&p, &was, &error));
	CHECK_EQ_INT(RC_INSTALL_STOCK, was);
}

static void sees_overwriting(void)
{
	rc_error error;
	rc_install_state was;

	fresh_package();
	rc_package p = find();
	CHECK_EQ_INT(0, rc_install_enable(&p, daemon_file, &error));
	CHECK_EQ_INT(0, unlink(raylet));
	put(raylet, "newer stock");
	CHECK_EQ_INT(RC_INSTALL_OVERWRITTEN, state());
	CHECK_EQ_INT(0, rc_install_enable(&p, daemon_file, &error));
	CHECK_STR("newer stock", get(stock));
	CHECK_EQ_INT(RC_INSTALL_ENABLED, state());
	CHECK_EQ_INT(0, unlink(raylet));
	put(raylet, "newest stock");
	CHECK_EQ_INT(0, rc_install_disable(&p, &was, &error));
	CHECK_EQ_INT(RC_INSTALL_OVERWRITTEN, was);
	CHECK_STR("newest stock", get(raylet));
	CHECK(access(stock, F_OK) != 0);
}

static void never_loses_the_original(void)
{
	rc_error error;
	rc_install_state was;

	fresh_package();
	rc_package p = find();
	CHECK_EQ_INT(0, rc_install_enable(&p, daemon_file, &error));
	CHECK_EQ_INT(0, unlink(stock));
	CHECK_EQ_INT(RC_INSTALL_NO_STOCK, state());
	CHECK_EQ_INT(-1, rc_install_disable(&p, &was, &error));
	CHECK(strstr(error.text, "raylet.stock") != NULL && strstr(error.text, "reinstall") != NULL);
	CHECK_EQ_INT(0, rc_install_enable(&p, daemon_file, &error));
	CHECK(access(stock, F_OK) != 0); /* ours is not taken for the original */
}

static void refuses(void)
{
	rc_error error;

	fresh_package();
	release("9.9.9");
	rc_package p = find();
	CHECK_EQ_INT(-1, rc_install_enable(&p, daemon_file, &error));
	CHECK(strstr(error.text, "9.9.9") != NULL && strstr(error.text, "2.35.0") != NULL && strstr(error.text, "2.60.0") != NULL);
	CHECK_STR("stock program", get(raylet));
	fresh_package();
	p = find();
	CHECK_EQ_INT(-1, rc_install_enable(&p, stock, &error)); /* no such daemon */
	CHECK_EQ_INT(-1, rc_install_enable(&p, raylet, &error));
	CHECK(strstr(error.text, "not a raylet-c daemon") != NULL);
	CHECK_EQ_INT(RC_INSTALL_STOCK, state());
}

static void tells_of_read_only(void)
{
	char *folder = rc_strndup(raylet, (size_t)(strrchr(raylet, '/') - raylet));
	rc_error error = { 0 };

	fresh_package();
	rc_package p = find();
	CHECK(chmod(folder, 0555) == 0);
	if (access(folder, W_OK) != 0) { /* root may write everywhere */
		CHECK_EQ_INT(-1, rc_install_enable(&p, daemon_file, &error));
		CHECK(strstr(error.text, "raylet-c start") != NULL && strstr(error.text, "ermission") != NULL);
	}
	CHECK(chmod(folder, 0755) == 0);
	free(folder);
}

int main(void)
{
	if (mkdtemp(top) == NULL)
		return 1;
	package = rc_sprintf("%s/lib/python3.11/site-packages/ray", top);
	raylet = rc_sprintf("%s/core/src/ray/raylet/raylet", package);
	stock = rc_sprintf("%s.stock", raylet);
	marker = rc_sprintf("%s.c", raylet);
	daemon_file = rc_sprintf("%s/daemon", top);
	for (char *p = raylet + strlen(top) + 1; (p = strchr(p, '/')) != NULL; p++) {
		*p = '\0';
		CHECK(mkdir(raylet, 0755) == 0);
		*p = '/';
	}
	put(daemon_file, "x" RC_DAEMON_MARK "y");
	RUN(finds_by_environment, "a ray package is found in an environment, and a wrong folder is named in the error");
	RUN(enables_and_disables, "enable keeps the original beside ours and disable puts it back");
	RUN(sees_overwriting, "a later installation of ray is seen as overwriting and becomes the new original");
	RUN(never_loses_the_original, "our daemon is never taken for the original");
	RUN(refuses, "unknown releases and foreign programs are refused and nothing changes");
	RUN(tells_of_read_only, "a folder that cannot be written gets an error with the way out");
	char *clean = rc_sprintf("rm -rf '%s'", top);
	int rc = system(clean);
	free(clean);
	free(package);
	free(raylet);
	free(stock);
	free(marker);
	free(daemon_file);
	return rc != 0 ? 1 : test_end();
}
