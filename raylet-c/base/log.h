/* The daemon's log: one line a cause, to the file descriptor 1 or 2 that the start command pointed at raylet.out/.err, or
 * to a file. Any thread; a line is one write. */
#ifndef RC_BASE_LOG_H
#define RC_BASE_LOG_H

#include "raylet-c/base/status.h"

typedef enum rc_level { RC_DEBUG, RC_INFO, RC_WARN, RC_ERROR } rc_level;

void rc_log_level(rc_level least); /* default RC_INFO; RAY_BACKEND_LOG_LEVEL (debug, info, warning, error) sets it in main */

/* Redirects stdout and stderr of the process to these files (append); NULL leaves one alone. For --stdout_filepath. */
int rc_log_redirect(const char *stdout_path, const char *stderr_path, rc_error *error) RC_WARN_UNUSED;

void rc_log_write(rc_level level, const char *file, int line, const char *format, ...) __attribute__((format(printf, 4, 5)));

#define rc_debug(...) rc_log_write(RC_DEBUG, __FILE__, __LINE__, __VA_ARGS__)
#define rc_info(...) rc_log_write(RC_INFO, __FILE__, __LINE__, __VA_ARGS__)
#define rc_warn(...) rc_log_write(RC_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define rc_error_log(...) rc_log_write(RC_ERROR, __FILE__, __LINE__, __VA_ARGS__)

#endif
