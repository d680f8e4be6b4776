/* Bytes of a hostile HTTP server. The first byte says in how large pieces
 * the answer comes. */
#include "raylet-c/base/http_answer.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sum;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t piece = size ? (size_t)data[0] + 1 : 1;
	rc__http_answer answer = { 0 };
	const char *why = NULL;
	int state = 0;

	for (size_t at = 1; at < size && state == 0; at += piece) {
		rc_buf_add(&answer.in, data + at, size - at < piece ? size - at : piece);
		state = rc__http_parse(&answer, false, &why);
	}
	if (state == 0)
		state = rc__http_parse(&answer, true, &why);
	if (state == 0 || (state < 0 && !why))
		abort();
	for (size_t i = 0; state > 0 && i < answer.result.n; i++)
		sum ^= answer.result.p[i];
	rc__http_answer_free(&answer);
	return 0;
}
