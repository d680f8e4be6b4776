/* libfabric, opened at run time. Any thread may use one that is open; opening and closing are for one thread. */
#ifndef RC_FABRIC_LIBRARY_H
#define RC_FABRIC_LIBRARY_H

#include "raylet-c/base/status.h"

typedef struct rc_fabric_library rc_fabric_library;

/* path NULL: RAYLET_C_LIBFABRIC, else EFA's own (/opt/amazon/efa/lib64, lib), else the system's libfabric.so.1. The error
 * names each place and what was wrong with it. */
rc_fabric_library *rc_fabric_library_open(const char *path, rc_error *e);
/* Frees the struct; the library stays in the process, since providers leave threads and hooks behind. NULL is fine. */
void rc_fabric_library_close(rc_fabric_library *l);
const char *rc_fabric_library_path(const rc_fabric_library *l);
void rc_fabric_library_version(const rc_fabric_library *l, unsigned *ret_major, unsigned *ret_minor);

#endif
