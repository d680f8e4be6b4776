/* Comparing versions, and reading a package's own; see versions.h. */
#include "raylet-c/cli/versions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/buf.h"

/* pyvenv.cfg says it to the patch level; without one the library's folder says "3.11". */
static void python_version(const rc_package *p, char ret[32])
{
	char *path = rc_sprintf("%s/../../../../pyvenv.cfg", p->dir), line[256];
	const char *folder = strstr(p->dir, "/lib/python3.");
	FILE *f = fopen(path, "r");
	unsigned minor;

	ret[0] = '\0';
	if (folder != NULL && sscanf(folder, "/lib/python3.%u/", &minor) == 1)
		snprintf(ret, 32, "3.%u", minor);
	while (f != NULL && fgets(line, sizeof line, f) != NULL) {
		char text[32];

		if (sscanf(line, "version = %31[0-9.]", text) == 1 || sscanf(line, "version_info = %31[0-9.]", text) == 1) {
			size_t n = strlen(text);

			snprintf(ret, 32, "%.*s", (int)(n > 0 && text[n - 1] == '.' ? n - 1 : n), text);
			break;
		}
	}
	if (f != NULL)
		fclose(f);
	free(path);
}

/* How long "3.11" of "3.11.7" is; all of it when there is no patch level. */
static size_t minor_length(const char *version)
{
	const char *dot = strchr(version, '.');

	dot = dot != NULL ? strchr(dot + 1, '.') : NULL;
	return dot != NULL ? (size_t)(dot - version) : strlen(version);
}

rc_fit rc_versions_fit(const rc_package *p, const char *head_release, const char *head_python, char ret_python[32])
{
	size_t own, head = minor_length(head_python);

	python_version(p, ret_python);
	own = minor_length(ret_python);
	if (strcmp(p->release, head_release) != 0)
		return RC_FIT_NONE;
	if (*ret_python == '\0' || *head_python == '\0')
		return RC_FIT_SAME;
	if (own != head || strncmp(ret_python, head_python, own) != 0)
		return RC_FIT_NONE;
	return ret_python[own] == '\0' || head_python[head] == '\0' || strcmp(ret_python, head_python) == 0 ? RC_FIT_SAME : RC_FIT_PATCH;
}

bool rc_package_of_command(const char *command, rc_package *ret)
{
	const char *end = command != NULL ? strstr(command, "/_private/workers/") : NULL, *begin = end;
	rc_error error;

	while (begin != NULL && begin > command && begin[-1] != ' ')
		begin--;
	if (begin == NULL || (size_t)(end - begin) >= sizeof ret->dir)
		return false;
	*ret = (rc_package){ 0 };
	memcpy(ret->dir, begin, (size_t)(end - begin));
	return rc_package_release(ret, &error) == 0;
}
