/* Finding and taking apart the head's address; see address.h. */
#include "raylet-c/cli/address.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/buf.h"

static bool read_line(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "re");
	bool got = f != NULL && fgets(text, (int)size, f) != NULL;

	if (f != NULL)
		fclose(f);
	if (got)
		text[strcspn(text, "\n")] = '\0';
	return got && *text != '\0';
}

int rc_address_auto(char ret[256], rc_error *error)
{
	const char *address = getenv("RAY_ADDRESS"), *top = getenv("RAY_TMPDIR");

	if (address != NULL && *address != '\0' && strcmp(address, "auto") != 0) {
		snprintf(ret, 256, "%s", address);
		return 0;
	}
	if (top == NULL)
		top = getenv("TMPDIR");
	char *path = rc_sprintf("%s/ray/ray_current_cluster", top != NULL ? top : "/tmp");
	int rc = read_line(path, ret, 256) ? 0 : rc_fail(error, RC_E_NOT_FOUND, "--address=auto: RAY_ADDRESS is not set and there is no %s", path);
	free(path);
	return rc;
}

int rc_address_split(const char *address, char ret_host[256], int *ret_port, rc_error *error)
{
	const char *colon = strrchr(address, ':');
	char *end;
	long port = colon != NULL ? strtol(colon + 1, &end, 10) : 0;

	if (colon == NULL || colon == address || colon - address >= 256 || end == colon + 1 || *end != '\0' || port < 1 || port > 65535)
		return rc_fail(error, RC_E_INVALID, "--address=%s is not HOST:PORT", address);
	bool bracket = *address == '[' && colon[-1] == ']';
	snprintf(ret_host, 256, "%.*s", (int)(colon - address) - 2 * bracket, address + bracket);
	*ret_port = (int)port;
	return 0;
}
