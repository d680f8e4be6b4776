/* Do a node's Ray and Python fit those of the head? Ray's own rule: the releases are equal, and so are the versions of
 * Python, to the patch level or (RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL=minor) to the minor one. Any thread. */
#ifndef RC_CLI_VERSIONS_H
#define RC_CLI_VERSIONS_H

#include <stdbool.h>

#include "raylet-c/cli/package.h"

typedef enum rc_fit {
	RC_FIT_SAME,
	RC_FIT_PATCH, /* Python differs in its patch level only: works */
	RC_FIT_NONE,  /* another Ray, or another minor version of Python: what one pickles the other cannot read */
} rc_fit;

/* ret_python: "3.11.7" of the package's environment; "3.11" where only its library folder tells; "" when unknown, as the
 * head's may be: what is unknown fits. */
rc_fit rc_versions_fit(const rc_package *p, const char *head_release, const char *head_python, char ret_python[32]);

/* The package whose /_private/workers/ a worker's command names: false when it names none (ret is then unset). */
bool rc_package_of_command(const char *command, rc_package *ret);

#endif
