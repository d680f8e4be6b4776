/* The picture of `raylet-c top`: lines of text made of what top_model.h gathers. Pure; any thread. */
#ifndef RC_CLI_TOP_FRAME_H
#define RC_CLI_TOP_FRAME_H

#include <jansson.h>
#include <stdbool.h>

#include "raylet-c/base/buf.h"

typedef enum rc_top_sort { RC_TOP_BY_CPU, RC_TOP_BY_MEMORY } rc_top_sort;

typedef struct rc_top_view {
	unsigned width, height; /* height 0: as many lines as there are */
	rc_top_sort sort;
	size_t first;           /* of the processes: so many are scrolled past; set to what is possible */
	bool colors;            /* ANSI sequences for bars and the table's head */
	bool help;              /* the keys instead of the processes */
	const char *clock;      /* "16:05:12" */
} rc_top_view;

/* Lines end with a newline each; none is wider than width. Any value of all may be missing or of another type: nothing or 0 is shown
 * then. Whatever could move the cursor (control characters, C1 too) is shown as '?'. */
void rc_top_frame(json_t *all, rc_top_view *view, rc_buf *out);

#endif
