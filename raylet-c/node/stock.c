/* Executing the kept original of Ray's raylet; see stock.h. Ray's flags are gflags: one or two dashes, "=value" optional for
 * booleans, and everything after a bare "--" is no flag. */
#include "raylet-c/node/stock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "raylet-c/base/version.h"

static bool is_true(const char *value)
{
	static const char *const words[] = { "1", "t", "true", "y", "yes" };

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strcasecmp(value, words[i]) == 0)
			return true;
	return false;
}

const char *rc_stock_asked(int argc, char *const argv[], const char *raylet_c)
{
	bool head = false;

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *word = argv[i];

		if (*word != '-')
			continue;
		word += word[1] == '-' ? 2 : 1;
		if (strcmp(word, "head") == 0)
			head = true;
		else if (strcmp(word, "nohead") == 0)
			head = false;
		else if (strncmp(word, "head=", 5) == 0)
			head = is_true(word + 5);
	}
	if (head)
		return "--head";
	return raylet_c != NULL && strcmp(raylet_c, "0") == 0 ? "RAYLET_C=0" : NULL;
}

void rc_exec_stock_if_asked(int argc, char *argv[])
{
	const char *why = rc_stock_asked(argc, argv, getenv("RAYLET_C"));
	char path[PATH_MAX + sizeof "/raylet.stock"];
	ssize_t n;
	char *slash;

	if (why == NULL)
		return;
	n = readlink("/proc/self/exe", path, PATH_MAX);
	if (n < 0 || n >= PATH_MAX) {
		fprintf(stderr, RC_DAEMON_MARK ": %s asks for Ray's own raylet, but /proc/self/exe cannot be read: %s\n", why, strerror(errno));
		_exit(127);
	}
	path[n] = '\0';
	slash = strrchr(path, '/');
	strcpy(slash == NULL ? path : slash + 1, "raylet.stock");
	execv(path, argv);
	fprintf(stderr,
	        RC_DAEMON_MARK ": %s asks for Ray's own raylet, which cannot be executed as %s: %s. `raylet-c enable` puts it there; "
	        "reinstalling ray brings it back.\n",
	        why, path, strerror(errno));
	_exit(127);
}
