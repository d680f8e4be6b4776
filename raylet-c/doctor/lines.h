/* The doctor's lines: what was found, judged, with the cure. Pure: facts and choice in. Any thread. */
#ifndef RC_DOCTOR_LINES_H
#define RC_DOCTOR_LINES_H

#include "raylet-c/doctor/choice.h"

typedef enum rc_mark { RC_MARK_OK, RC_MARK_WARN, RC_MARK_FAIL, RC_MARK_SKIP } rc_mark;
const char *rc_mark_name(rc_mark mark);

typedef struct rc_line {
	const char *name; /* stable: the key of the JSON report */
	rc_mark mark;
	char text[480];
	char cure[240];   /* "" with OK and SKIP */
} rc_line;

enum { RC_LINES = 32 };
typedef struct rc_lines {
	rc_line v[RC_LINES];
	size_t n;
} rc_lines;

/* What the command knows and the facts do not. */
typedef struct rc_line_context {
	const char *ray_release;  /* NULL: no ray package was found, ray_text says why */
	const char *ray_text;
	bool ray_enabled, ray_supported;
	bool require_efa;
	const char *(*getenv)(const char *name); /* NULL: the process's own environment */
} rc_line_context;

void rc_lines_make(const rc_facts *facts, const rc_choice *choice, const rc_line_context *context, rc_lines *ret);
bool rc_lines_failed(const rc_lines *lines); /* any FAIL */

#endif
