/* What only a library or a system call tells, as text of `key: value` lines, so that a description of a machine can hold it too.
 *
 * A probe of this machine runs in a child process with a limit of time: somebody else's library that hangs, writes or crashes
 * harms nobody. Below a root the text is the file <root>/probe/NAME. Private to this folder; from a process with one thread. */
#ifndef RC_DOCTOR_PROBE_H
#define RC_DOCTOR_PROBE_H

#include <stdbool.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/status.h"

enum { RC__PROBE_LIMIT = 256 * 1024, RC__PROBE_SECONDS = 10 };

typedef void (*rc__probe_fn)(int out); /* writes its lines; runs in the child */

/* out is appended to. The error: no such file, too slow, a crash. seconds: RC__PROBE_SECONDS but in tests. */
int rc__probe(const char *root, const char *name, rc__probe_fn fn, int seconds, rc_buf *out, rc_error *error) RC_WARN_UNUSED;

/* libfabric.so.1 (EFA's own folder, then the system's):
 *   version: 1.22    path: /opt/amazon/efa/lib/libfabric.so.1
 *   provider: efa    (one line for each that fi_getinfo has, without utility layers behind `;`)
 *   hmem: efa        (those that take memory of GPUs)
 *   error: TEXT */
void rc__probe_libfabric(int out);
/* NVML: driver: 550.54.15, cuda: 12.4, gpu: NVIDIA A10G (a line each), nvlink: 1; error: TEXT */
void rc__probe_nvml(int out);
/* address: eth0 172.31.4.5 (a line each, of interfaces that are up) */
void rc__probe_addresses(int out);
/* clock: 1 (synchronised) or 0; error_us: 1500 */
void rc__probe_clock(int out);

/* The lines of a probe's text one after the other: *at begins at text and moves on; key and value are cut to size. */
bool rc__probe_line(const char **at, char key[32], char value[256]);

#endif
