/* Putting our daemon in the place of Ray's inside a ray package, and back. Every step leaves a package that works: the
 * program is only ever replaced by a rename.
 *
 * Files beside the program (<ray>/core/src/ray/raylet/): raylet.stock is Ray's own, kept; raylet.c is the marker, one line
 * that names the versions. A later `pip install` of ray writes a new raylet and knows of neither: that is seen by the marker
 * being there while the program has not our mark. Main thread of the command; a lock on the folder keeps two commands apart. */
#ifndef RC_CLI_INSTALL_H
#define RC_CLI_INSTALL_H

#include "raylet-c/cli/package.h"

typedef enum rc_install_state {
	RC_INSTALL_STOCK,       /* Ray's own daemon, nothing of ours */
	RC_INSTALL_ENABLED,     /* ours, the original is kept */
	RC_INSTALL_OVERWRITTEN, /* was enabled, then another installation wrote Ray's own again */
	RC_INSTALL_NO_STOCK,    /* ours, and the original is gone: only reinstalling ray brings it back */
} rc_install_state;

int rc_install_state_of(const rc_package *p, rc_install_state *ret, rc_error *error) RC_WARN_UNUSED;

/* daemon: our program, copied. Enabling an enabled package puts the given daemon there (an update). An unknown release is
 * refused with the supported ones; a folder that cannot be written names the way without it (`raylet-c start`). */
int rc_install_enable(const rc_package *p, const char *daemon, rc_error *error) RC_WARN_UNUSED;

/* *ret_was: what was found. Disabling a stock package is no error. */
int rc_install_disable(const rc_package *p, rc_install_state *ret_was, rc_error *error) RC_WARN_UNUSED;

#endif
