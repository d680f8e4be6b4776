/* Errors: filling an rc_error. See status.h. */
#define _GNU_SOURCE
#include "raylet-c/base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *rc_code_name(rc_code code)
{
	switch (code) {
	case RC_OK:
		return "ok";
	case RC_E_INVALID:
		return "invalid";
	case RC_E_NOT_FOUND:
		return "not found";
	case RC_E_EXISTS:
		return "exists";
	case RC_E_NO_MEMORY:
		return "no memory";
	case RC_E_FULL:
		return "full";
	case RC_E_TIMEOUT:
		return "timeout";
	case RC_E_CANCELLED:
		return "cancelled";
	case RC_E_UNAVAILABLE:
		return "unavailable";
	case RC_E_UNSUPPORTED:
		return "unsupported";
	case RC_E_SYSTEM:
		return "system error";
	}
	return "unknown";
}

/* The arguments may point into error->text itself (wrapping a cause), so the text is made aside. */
static void fill(rc_error *error, rc_code code, const char *suffix, const char *format, va_list args)
{
	char text[sizeof error->text];
	int n = vsnprintf(text, sizeof text, format, args);
	size_t used = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;

	if (n < 0)
		text[0] = 0;
	snprintf(text + used, sizeof text - used, "%s%s", *suffix ? ": " : "", suffix);
	memcpy(error->text, text, sizeof text);
	error->code = code;
}

int rc_fail(rc_error *error, rc_code code, const char *format, ...)
{
	if (error) {
		va_list args;

		va_start(args, format);
		fill(error, code, "", format, args);
		va_end(args);
	}
	return -1;
}

int rc_fail_errno(rc_error *error, const char *format, ...)
{
	int saved = errno;

	if (error) {
		char reason[128];
		va_list args;

		va_start(args, format);
		fill(error, RC_E_SYSTEM, strerror_r(saved, reason, sizeof reason), format, args);
		va_end(args);
	}
	errno = saved;
	return -1;
}
