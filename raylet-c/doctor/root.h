/* Files of a machine, or of a description of one: `root` is put before every path; "" is this machine. Private to this folder.
 * Any thread. */
#ifndef RC_DOCTOR_ROOT_H
#define RC_DOCTOR_ROOT_H

#include <stdbool.h>
#include <stddef.h>

#include "raylet-c/base/buf.h"

/* The file's text without white space at its end, cut at size - 1; false when it cannot be read. */
bool rc__root_read(const char *root, char *text, size_t size, const char *format, ...) __attribute__((format(printf, 4, 5)));
bool rc__root_exists(const char *root, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A whole number in a file: false when there is none. */
bool rc__root_number(const char *root, long long *ret, const char *format, ...) __attribute__((format(printf, 3, 4)));

enum { RC__ROOT_NAMES = 128, RC__ROOT_NAME = 64 };
typedef struct rc__root_names {
	char v[RC__ROOT_NAMES][RC__ROOT_NAME];
	size_t n;
} rc__root_names;
/* The names in a folder in order of the alphabet, hidden ones left out; the first RC__ROOT_NAMES that the system gives. */
void rc__root_list(const char *root, const char *path, rc__root_names *ret);

#endif
