/* The two messages of the health service, read and written by hand: one field each. Unknown fields are skipped, as protobuf
 * demands. */
#include "raylet-c/rpc/health.h"

static bool varint(rc_view *v, uint64_t *out)
{
	uint64_t value = 0;
	for (unsigned shift = 0; shift < 64 && v->n; shift += 7) {
		uint8_t byte = *v->p;
		v->p++;
		v->n--;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*out = value;
			return true;
		}
	}
	return false;
}

/* The length of the field that stands at v, whose wire type is known. */
static bool field_length(rc_view *v, unsigned type, uint64_t *length)
{
	uint64_t ignored;
	*length = type == 1 ? 8 : type == 5 ? 4 : 0;
	if (type == 0)
		return varint(v, &ignored);
	if (type == 2 && !varint(v, length))
		return false;
	return (type == 1 || type == 2 || type == 5) && *length <= v->n;
}

bool rc__health_service(rc_view request, rc_view *service)
{
	rc_view name = { 0 };
	while (request.n) {
		uint64_t tag, length;
		if (!varint(&request, &tag) || !field_length(&request, tag & 7, &length))
			return false;
		if (tag == (1 << 3 | 2))
			name = rc_view_of(request.p, length);
		request.p += length;
		request.n -= length;
	}
	*service = name;
	return true;
}

rc_view rc__health_response(bool serving)
{
	static const uint8_t yes[] = { 0x08, 0x01 }, no[] = { 0x08, 0x02 };
	return rc_view_of(serving ? yes : no, 2);
}
