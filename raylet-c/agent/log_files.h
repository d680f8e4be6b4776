/* The node's log folder as others may see it: regular files below it, and nothing else. No link is followed, inside or out (Ray's
 * own agents follow links; 2.35.0's lists folders above too); names with ".." are refused. Any thread. */
#ifndef RC_AGENT_LOG_FILES_H
#define RC_AGENT_LOG_FILES_H

#include <sys/types.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/status.h"

enum { RC_LOG_FILES_MAX = 100000, RC_LOG_DEPTH_MAX = 16 };

/* Opens a file or, when ret_is_folder is not NULL, also a folder, for reading. name: relative, or below folder when it is
 * absolute. The descriptor, or -1: RC_E_NOT_FOUND (also for what is no regular file), RC_E_INVALID (leads out). */
int rc_log_file_open(const char *folder, const char *name, bool *ret_is_folder, uint64_t *ret_size, rc_error *error) RC_WARN_UNUSED;

typedef void (*rc_log_name_fn)(void *arg, const char *name); /* a folder's name ends with '/' */
/* The names below the folder that match a pattern of path parts: shell wildcards, "**" for any number of folders; "": all in
 * the folder itself. At most RC_LOG_FILES_MAX. -1: absolute, or has "..". */
int rc_log_files_list(const char *folder, const char *pattern, rc_log_name_fn fn, void *arg, rc_error *error) RC_WARN_UNUSED;

/* Where the last `lines` lines before `end` begin; a line without its end counts. */
uint64_t rc_log_tail_start(int fd, uint64_t end, uint64_t lines);

#endif
