/* CUDA C to machine code by NVRTC, opened at run time, with a cache on disk. Any thread.
 *
 * Looked for, in this order: the file that RAYLET_C_NVRTC names (then nothing else); the library that the process has loaded; the
 * package folders beside the loaded torch and the loaded CUDA runtime; the system's. One that is newer than the driver by a major
 * version is passed over: the driver would refuse its code. */
#ifndef RC_DEVICE_NVRTC_H
#define RC_DEVICE_NVRTC_H

#include <stdbool.h>
#include <stddef.h>

#include "raylet-c/base/status.h"

/* What code is made for. driver: the newest CUDA version that the driver serves (13000 for 13.0), or 0: any. */
typedef struct rc_nvrtc_target {
	int major, minor, driver;
} rc_nvrtc_target;

/* What rc_nvrtc_build made: for cuModuleLoadData. */
typedef struct rc_nvrtc_code {
	void *image;      /* free() it */
	size_t size;
	bool from_cache;
	bool portable;    /* PTX that the driver translates: the device is newer than this NVRTC */
	char library[64]; /* "NVRTC 12.9" */
} rc_nvrtc_code;

/* Compiles `source` (called `name` in messages), or takes it from the cache: files in $XDG_CACHE_HOME/raylet-c, else
 * $HOME/.cache/raylet-c, keyed by source, options, architecture and NVRTC version. Without such a folder it compiles each time. A
 * damaged file is compiled anew; several processes may do so at once. RC_E_UNAVAILABLE: no NVRTC is found; the text says where was
 * looked. Compiling takes seconds. */
int rc_nvrtc_build(const char *source, const char *name, const rc_nvrtc_target *target, rc_nvrtc_code *code, rc_error *error)
	RC_WARN_UNUSED;

#endif
