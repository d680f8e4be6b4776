/* The file of --labels-file (2.60.0: ray/_private/label_utils.py reads it as YAML and wants one map of strings to strings). Read
 * here is the YAML that such a map needs: one `key: value` a line, plain or in quotes, comments, blank lines, and the marks ---
 * and ... alone. Plain values that YAML takes for numbers, truth or null are refused as `ray start` refuses them: quote them.
 * Pure; any thread. */
#ifndef RC_CLI_LABELS_FILE_H
#define RC_CLI_LABELS_FILE_H

#include "raylet-c/base/status.h"

enum { RC_LABELS_FILE_MOST = 65536 }; /* bytes of a file that is read at all */

/* Called for every label, in the order of the file; -1 with the error filled ends the parsing. */
typedef int (*rc_label_fn)(void *arg, const char *key, const char *value, rc_error *error);

/* The error names the line. */
int rc_labels_file_parse(const char *text, rc_label_fn fn, void *arg, rc_error *error) RC_WARN_UNUSED;

/* The text of the file, NUL-terminated, the caller's; NULL with the error. */
char *rc_labels_file_read(const char *path, rc_error *error);

#endif
