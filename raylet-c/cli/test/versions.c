/* The versions of a made-up environment against a head's. */
#include "raylet-c/cli/versions.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/test.h"

static char top[] = "/tmp/raylet-c-test-XXXXXX";
static char *ray, *config;

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void make_environment(void)
{
	static const char *const below[] = { "/lib", "/python3.11", "/site-packages", "/ray" };
	char *version;

	CHECK(mkdtemp(top) != NULL);
	ray = rc_strdup(top);
	for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
		char *longer = rc_sprintf("%s%s", ray, below[i]);

		free(ray);
		ray = longer;
		CHECK(mkdir(ray, 0755) == 0);
	}
	config = rc_sprintf("%s/pyvenv.cfg", top);
	version = rc_sprintf("%s/_version.py", ray);
	put(version, "version = \"2.60.0\"\n");
	free(version);
}

static void package_of_a_command(void)
{
	rc_package p;
	char *command = rc_sprintf("/usr/bin/python3 %s/_private/workers/setup_worker.py %s/_private/workers/default_worker.py --x=1", ray, ray);
	char *gone = rc_sprintf("/usr/bin/python3 %s/nowhere/_private/workers/setup_worker.py", ray);

	CHECK(rc_package_of_command(command, &p));
	CHECK_STR(ray, p.dir);
	CHECK_STR("2.60.0", p.release);
	CHECK(!rc_package_of_command(gone, &p));
	CHECK(!rc_package_of_command("sleep 10", &p));
	CHECK(!rc_package_of_command("", &p));
	CHECK(!rc_package_of_command(NULL, &p));
	free(command);
	free(gone);
}

static void fits(void)
{
	rc_package p = { .release = "2.60.0" };
	char python[32];

	snprintf(p.dir, sizeof p.dir, "%s", ray);
	/* only the folder tells: "3.11" */
	CHECK_EQ_INT(RC_FIT_SAME, rc_versions_fit(&p, "2.60.0", "3.11.7", python));
	CHECK_STR("3.11", python);
	CHECK_EQ_INT(RC_FIT_NONE, rc_versions_fit(&p, "2.60.0", "3.1.7", python));
	CHECK_EQ_INT(RC_FIT_NONE, rc_versions_fit(&p, "2.60.0", "3.12.7", python));
	CHECK_EQ_INT(RC_FIT_SAME, rc_versions_fit(&p, "2.60.0", "", python));
	CHECK_EQ_INT(RC_FIT_NONE, rc_versions_fit(&p, "2.35.0", "3.11.7", python));
	put(config, "home = /usr/bin\nversion = 3.11.2\n");
	CHECK_EQ_INT(RC_FIT_SAME, rc_versions_fit(&p, "2.60.0", "3.11.2", python));
	CHECK_STR("3.11.2", python);
	CHECK_EQ_INT(RC_FIT_PATCH, rc_versions_fit(&p, "2.60.0", "3.11.7", python));
	CHECK_EQ_INT(RC_FIT_PATCH, rc_versions_fit(&p, "2.60.0", "3.11.20", python));
	CHECK_EQ_INT(RC_FIT_NONE, rc_versions_fit(&p, "2.60.0", "3.12.2", python));
	CHECK_EQ_INT(RC_FIT_SAME, rc_versions_fit(&p, "2.60.0", "3.11", python));
	put(config, "version = 3.1.2\n"); /* no prefix of 3.11 */
	CHECK_EQ_INT(RC_FIT_NONE, rc_versions_fit(&p, "2.60.0", "3.11.2", python));
	CHECK_EQ_INT(0, unlink(config));
}

int main(void)
{
	make_environment();
	RUN(package_of_a_command, "the ray package is found in the command of its workers");
	RUN(fits, "another Ray or minor version of Python does not fit, another patch level is told apart, the unknown fits");
	char *version = rc_sprintf("%s/_version.py", ray);
	CHECK_EQ_INT(0, unlink(version));
	free(version);
	for (int up = 0; up < 4; up++) { /* ray, site-packages, python3.11, lib */
		CHECK_EQ_INT(0, rmdir(ray));
		*strrchr(ray, '/') = '\0';
	}
	CHECK_EQ_INT(0, rmdir(top));
	free(ray);
	free(config);
	return test_end();
}
