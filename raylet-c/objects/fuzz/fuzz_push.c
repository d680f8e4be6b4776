/* Push messages from hostile peers, in pieces. The input: a byte for the release, one for the length of the pieces, then the
 * message. What is read as a chunk must lie within the message. */
#include <stdlib.h>
#include <string.h>

#include "raylet-c/objects/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const rc_dialect *d = rc_dialect_find(size && data[0] & 1 ? "2.60.0" : "2.35.0", NULL);
	rc__om_push_fields f;
	rc__om_chunk c;
	rc_error e;

	if (size < 2)
		return 0;
	size_t each = data[1] ? data[1] : size, n = 0;
	rc_view *pieces = rc_alloc((size + 1) * sizeof *pieces);
	for (size_t at = 2; at < size; at += each)
		pieces[n++] = rc_view_of(data + at, size - at < each ? size - at : each);
	rc__om_push_fields_find(d, &f);
	if (rc__om_chunk_parse(d, &f, pieces, n, &c, &e) == 0) {
		size_t left = c.n, offset = c.offset;
		for (size_t i = c.piece; left > 0; i++, offset = 0) {
			if (i >= n || offset > pieces[i].n)
				abort();
			left -= pieces[i].n - offset < left ? pieces[i].n - offset : left;
		}
		if (rc__om_chunk_length(c.data_size, 5 << 20, c.index) > c.data_size)
			abort();
	}
	free(pieces);
	return 0;
}
