/* A file that calls itself a shared library. */
#include "raylet-c/doctor/library.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	rc_library l = { 0 };
	rc_error error;
	char text[96];

	if (rc_library_parse(rc_view_of(data, size), &l, &error) != 0)
		return 0;
	if (strlen(l.version) >= sizeof l.version || strlen(l.net_name) >= sizeof l.net_name)
		abort();
	rc_library_net_text(l.net_exported, text);
	return rc_library_common_net(&l, &l) > 31;
}
