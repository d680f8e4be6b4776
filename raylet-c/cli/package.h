/* An installed `ray` Python package, seen from outside: where it is, which release, which Python runs it; and where our own
 * daemon lies. Nothing of Ray is imported; Python is executed only to ask which package it would import.
 * Layout facts from the wheels of 2.35.0 and 2.60.0: <ray>/core/src/ray/raylet/raylet is the node daemon, <ray>/_version.py
 * has a line version = "X.Y.Z". Main thread of the command. */
#ifndef RC_CLI_PACKAGE_H
#define RC_CLI_PACKAGE_H

#include <limits.h>

#include "raylet-c/base/status.h"

typedef struct rc_package {
	char dir[PATH_MAX];    /* .../site-packages/ray */
	char raylet[PATH_MAX]; /* dir + /core/src/ray/raylet/raylet */
	char python[PATH_MAX]; /* the interpreter of that environment, or "" when not known */
	char release[32];      /* "2.60.0" */
} rc_package;

/* ray_dir: a ray package, a site-packages folder or an environment that holds one; NULL: the package of the environment that
 * this command is installed in, else that of `ray` on PATH, else that of `python3` on PATH. The error says where was looked. */
int rc_package_find(const char *ray_dir, rc_package *ret, rc_error *error) RC_WARN_UNUSED;

/* Fills in the release of the package at p->dir: the line version = "2.60.0" of its _version.py. */
int rc_package_release(rc_package *p, rc_error *error) RC_WARN_UNUSED;

/* The daemon to install: `raylet` beside this command, or raylet_c/bin/raylet of the environment that it is installed in. */
int rc_daemon_find(char ret_path[PATH_MAX], rc_error *error) RC_WARN_UNUSED;

/* 1: the file has the mark of our daemon, 0: it has not, -1: it cannot be read. */
int rc_is_our_daemon(const char *path, rc_error *error) RC_WARN_UNUSED;

#endif
