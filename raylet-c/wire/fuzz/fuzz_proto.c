/* Unpacking of hostile bytes as any message of any release. The input: a byte for the release, two for the message, then the
 * bytes. What unpacks is packed and unpacked again, which must give the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "raylet-c/wire/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const rc_dialect *const dialects[] = {
#define X(release) &rc__dialect_##release,
		RC__RELEASES(X)
#undef X
	};

	if (size < 3)
		return 0;
	const rc_dialect *d = dialects[data[0] % (sizeof dialects / sizeof *dialects)];
	const ProtobufCMessageDescriptor *m = d->messages[(data[1] | data[2] << 8) % d->n_messages].descriptor;
	void *first = rc_unpack(d, m, rc_view_of(data + 3, size - 3));
	if (!first)
		return 0;
	rc_buf packed = { 0 }, again = { 0 };
	rc_pack(d, first, &packed);
	rc_free_message(first);
	void *second = rc_unpack(d, m, rc_view_of(packed.p, packed.n));
	if (second) { /* NULL: what was packed shorter than it came may use more memory than its size allows */
		rc_pack(d, second, &again);
		if (packed.n != again.n || (again.n && memcmp(packed.p, again.p, again.n) != 0))
			abort();
	}
	rc_free_message(second);
	rc_buf_free(&packed);
	rc_buf_free(&again);
	return 0;
}
