/* Bytes of a hostile HTTP client. The first byte says in how large pieces they come; requests follow one another. */
#include "raylet-c/base/http_request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile size_t sum;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t piece = size ? (size_t)data[0] + 1 : 1;
	rc__http_request r = { 0 };
	int code = 0;
	for (size_t at = 1; at < size && code <= 1; at += piece) {
		rc_buf_add(&r.in, data + at, size - at < piece ? size - at : piece);
		while ((code = rc__http_request_parse(&r, 4096)) == 1) {
			const char *type = rc__http_request_header(&r, "content-type");
			sum = sum + strlen(r.method) + strlen(r.path) + strlen(r.query) + (type ? strlen(type) : 0);
			for (size_t i = 0; i < r.body.n; i++)
				sum = sum + r.body.p[i];
			if (r.path[0] != '/' || r.consumed > r.in.n)
				abort();
			rc__http_request_next(&r);
		}
	}
	if (code > 1 && (code < 400 || code > 599))
		abort();
	rc__http_request_free(&r);
	return 0;
}
