/* What nodes tell `raylet-c top`, drawn: the first two bytes are width and height. Nothing but newlines may move the cursor. */
#include <stdlib.h>

#include "raylet-c/cli/top_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	rc_top_view view = { .width = n > 0 ? data[0] : 80, .height = n > 1 ? data[1] : 24, .sort = RC_TOP_BY_MEMORY };
	rc_buf out = { 0 };
	json_t *all = n > 2 ? json_loadb((const char *)data + 2, n - 2, 0, NULL) : NULL;

	rc_top_frame(all, &view, &out);
	for (size_t i = 0; i < out.n; i++)
		if (out.p[i] < 32 && out.p[i] != '\n')
			abort();
	rc_buf_free(&out);
	json_decref(all);
	return 0;
}
