/* Metrics of a hostile worker: the first byte says in which of the two formats. What came in is written out. */
#include "raylet-c/agent/ingest.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	rc_series *s = rc_series_create();
	rc_buf out = { 0 };
	rc_view request = rc_view_of(data + (size > 0), size - (size > 0));
	if (size && data[0] & 1)
		rc_ingest_opencensus(s, request, 60000);
	else
		rc_ingest_opentelemetry(s, request, 60000, 60000);
	rc_series_write(s, &out);
	for (size_t i = 0; i < out.n; i++)
		if (out.p[i] == '\0')
			abort(); /* no byte of a peer may end the text */
	rc_buf_free(&out);
	rc_series_destroy(s);
	return 0;
}
