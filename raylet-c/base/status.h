/* Errors: a function that can fail returns 0 or -1 and fills an rc_error, which has a code and a text that names what,
 * which and why. Outputs are written only on success. Any thread. */
#ifndef RC_BASE_STATUS_H
#define RC_BASE_STATUS_H

typedef enum rc_code {
	RC_OK = 0,
	RC_E_INVALID,      /* the input is malformed or not allowed */
	RC_E_NOT_FOUND,
	RC_E_EXISTS,
	RC_E_NO_MEMORY,
	RC_E_FULL,         /* a limit was reached */
	RC_E_TIMEOUT,
	RC_E_CANCELLED,
	RC_E_UNAVAILABLE,  /* the peer is gone or cannot be reached */
	RC_E_UNSUPPORTED,
	RC_E_SYSTEM,       /* a system call failed; the text has its error */
} rc_code;

typedef struct rc_error {
	rc_code code;
	char text[400];
} rc_error;

#define RC_WARN_UNUSED __attribute__((warn_unused_result))

const char *rc_code_name(rc_code code);

/* Fills *error (may be NULL) and returns -1, so that `return rc_fail(error, RC_E_FULL, "...", ...)` reads well. */
int rc_fail(rc_error *error, rc_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same with ": <strerror(errno)>" at the end; code is RC_E_SYSTEM. */
int rc_fail_errno(rc_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
