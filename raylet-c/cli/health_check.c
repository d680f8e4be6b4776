/* `raylet-c health-check`; see health_check.h. Facts: ray/scripts/scripts.py of 2.35.0 and 2.60.0: the release of the head must be
 * that of the installed ray, unless --skip-version-check; a component's last word in the namespace healthcheck of the key-value
 * store, {"time": seconds}, must be younger than RAY_HEALTHCHECK_EXPIRATION_S (10) seconds. */
#include "raylet-c/cli/health_check.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/cli/address.h"
#include "raylet-c/cli/head.h"
#include "raylet-c/cli/package.h"
#include "raylet-c/cli/words.h"

enum { TIMEOUT_MS = 10000 };

static const char help[] =
	"raylet-c health-check [--address HOST:PORT] [OPTIONS]\n"
	"\n"
	"Asks a head whether it is there, as `ray health-check` does, without Python. Status 0: it is, 1: it is not.\n"
	"\n"
	"  --address HOST:PORT     the head (RAY_ADDRESS, else the last cluster of this host)\n"
	"  --component NAME        this part's last sign of life must be young, too: ray_client_server\n"
	"  --skip-version-check    the head may be of another Ray release than the ray package here\n"
	"  --ray-dir DIR           that package (as for raylet-c enable)\n"
	"  --timeout SECONDS       how long to wait (10)\n";

static int check_release(const rc_head_facts *head, const char *ray_dir, rc_error *error)
{
	rc_package package;

	if (rc_package_find(ray_dir, &package, error) != 0)
		return -1;
	if (strcmp(package.release, head->release) == 0)
		return 0;
	return rc_fail(error, RC_E_INVALID,
	               "Version mismatch: The cluster was started with:\n    Ray: %s\nThis environment has:\n    Ray: %s\n(%s)", head->release,
	               package.release, package.dir);
}

/* text: {"time": 1700000000.5, ...} */
static int check_component(const char *name, const char *text, size_t n, double now, rc_error *error)
{
	const char *given = getenv("RAY_HEALTHCHECK_EXPIRATION_S");
	double most = given != NULL && atof(given) > 0 ? atof(given) : 10;
	json_t *report = json_loadb(text, n, 0, NULL), *time = json_object_get(report, "time");
	double age = json_is_number(time) ? now - json_number_value(time) : json_is_string(time) ? now - atof(json_string_value(time)) : -1;
	bool known = json_is_number(time) || json_is_string(time);

	json_decref(report);
	if (!known)
		return rc_fail(error, RC_E_INVALID, "the report of %s has no time", name);
	return age < most ? 0 : rc_fail(error, RC_E_TIMEOUT, "the last report of %s is %.0f s old", name, age);
}

static int check(const char *address, const char *component, const char *ray_dir, bool skip_version, uint64_t timeout_ms, rc_error *error)
{
	rc_head_facts head;
	rc_buf report = { 0 };
	int rc;

	if (rc_head_check(address, timeout_ms, &head, error) != 0)
		return -1;
	if (!skip_version && check_release(&head, ray_dir, error) != 0)
		return -1;
	if (component == NULL)
		return 0;
	rc = rc_head_value(address, timeout_ms, "healthcheck", component, &report, error);
	if (rc == 0)
		rc = check_component(component, (const char *)report.p, report.n, (double)rc_wall_ms() / 1000, error);
	rc_buf_free(&report);
	return rc;
}

int rc_health_check_command(int argc, char **argv)
{
	const char *address = NULL, *component = NULL, *ray_dir = NULL, *timeout = NULL, *ignored = NULL;
	bool skip_version = false, wants_help = false;
	const rc_word words[] = {
		{ "--address", &address, NULL }, { "--component", &component, NULL },    { "--ray-dir", &ray_dir, NULL },
		{ "--timeout", &timeout, NULL }, { "--redis_password", &ignored, NULL }, { "--skip-version-check", NULL, &skip_version },
		{ "--help", NULL, &wants_help }, { NULL, NULL, NULL },
	};
	char found[256], host[256];
	int64_t seconds = TIMEOUT_MS / 1000;
	rc_error error;
	int port;

	if (rc_words_read(words, argc, argv, &error) != 0 ||
	    (timeout != NULL && rc_word_number("--timeout", timeout, 1, 86400, &seconds, &error) != 0)) {
		fprintf(stderr, "raylet-c health-check: %s\n", error.text);
		return 2;
	}
	if (wants_help) {
		fputs(help, stdout);
		return 0;
	}
	rc_log_level(RC_ERROR);
	if (address == NULL || strcmp(address, "auto") == 0) {
		if (rc_address_auto(found, &error) != 0) {
			fprintf(stderr, "raylet-c health-check: %s\n", error.text);
			return 1;
		}
		address = found;
	}
	if (rc_address_split(address, host, &port, &error) != 0 ||
	    check(address, component, ray_dir, skip_version, (uint64_t)seconds * 1000, &error) != 0) {
		fprintf(stderr, "raylet-c health-check: %s\n", error.text);
		return 1;
	}
	return 0;
}
