/* Push messages without a copy of their payload: a message of 5 MiB comes in some hundred pieces, and its payload goes from
 * there straight into the arena; on the way out only the head is packed, and the payload follows from where the object lies.
 *
 * The fields of PushRequest (src/ray/protobuf/object_manager.proto): push_id, object_id, node_id (the sender's),
 * owner_address, chunk_index, data_size, metadata_size, data. Trap: data_size is data and metadata together, and the two
 * are one run of bytes that is cut in chunks. Their numbers (1 to 8 in 2.35.0 and 2.60.0) are taken from the dialect by
 * packing each field alone, so that a release that renumbers them needs no change here. */
#include "raylet-c/objects/internal.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { MAX_ADDRESS = 1024 };

/* ---- numbers ---- */

static unsigned number_of(const rc_dialect *d, const Rw__PushRequest *m)
{
	rc_buf b = { 0 };
	unsigned tag = 0, shift = 0;

	rc_pack(d, m, &b);
	for (size_t i = 0; i < b.n && shift < 28; i++, shift += 7) {
		tag |= (unsigned)(b.p[i] & 0x7f) << shift;
		if (!(b.p[i] & 0x80))
			break;
	}
	rc_buf_free(&b);
	return tag >> 3;
}

void rc__om_push_fields_find(const rc_dialect *d, rc__om_push_fields *ret)
{
	Rw__PushRequest empty = RW__PUSH_REQUEST__INIT, m;
	Rw__Address address = RW__ADDRESS__INIT;
	uint8_t byte = 1;

#define NUMBER(field, set) (m = empty, (set), ret->field = number_of(d, &m))
	NUMBER(push_id, RC_SET_BYTES(m, push_id, &byte, 1));
	NUMBER(object_id, RC_SET_BYTES(m, object_id, &byte, 1));
	NUMBER(node_id, RC_SET_BYTES(m, node_id, &byte, 1));
	NUMBER(owner_address, m.owner_address = &address);
	NUMBER(chunk_index, RC_SET(m, chunk_index, 1));
	NUMBER(data_size, RC_SET(m, data_size, 1));
	NUMBER(metadata_size, RC_SET(m, metadata_size, 1));
	NUMBER(data, RC_SET_BYTES(m, data, &byte, 1));
#undef NUMBER
}

/* ---- reading ---- */

typedef struct cursor {
	const rc_view *pieces;
	size_t n, piece, offset;
	uint64_t left; /* bytes to the end */
} cursor;

static void settle(cursor *c) /* to the piece that has the next byte */
{
	while (c->piece < c->n && c->offset == c->pieces[c->piece].n) {
		c->piece++;
		c->offset = 0;
	}
}

static bool read_varint(cursor *c, uint64_t *ret)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte;

		settle(c);
		if (c->left == 0)
			return false;
		byte = c->pieces[c->piece].p[c->offset++];
		c->left--;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = value;
			return true;
		}
	}
	return false;
}

/* Moves over n bytes, copying them to out unless that is NULL. */
static bool take(cursor *c, uint64_t n, uint8_t *out)
{
	if (n > c->left)
		return false;
	while (n > 0) {
		size_t some;

		settle(c);
		some = c->pieces[c->piece].n - c->offset;
		if (some > n)
			some = (size_t)n;
		if (out) {
			memcpy(out, c->pieces[c->piece].p + c->offset, some);
			out += some;
		}
		c->offset += some;
		c->left -= some;
		n -= some;
	}
	return true;
}

static bool skip(cursor *c, unsigned wire_type)
{
	uint64_t n;

	switch (wire_type) {
	case VARINT:
		return read_varint(c, &n);
	case FIXED64:
		return take(c, 8, NULL);
	case BYTES:
		return read_varint(c, &n) && take(c, n, NULL);
	case FIXED32:
		return take(c, 4, NULL);
	default:
		return false;
	}
}

static int read_id(cursor *c, rc_id *ret, size_t want, const char *name, rc_error *e)
{
	uint8_t bytes[RC_ID_MAX];
	uint64_t n;

	if (!read_varint(c, &n) || n != want || !take(c, n, bytes))
		return rc_fail(e, RC_E_INVALID, "Push: %s is not an id of %zu bytes", name, want);
	*ret = rc_id_from(bytes, want);
	return 0;
}

static int read_owner(const rc_dialect *d, cursor *c, rc_owner *ret, rc_error *e)
{
	uint8_t bytes[MAX_ADDRESS];
	Rw__Address *address;
	uint64_t n;

	if (!read_varint(c, &n) || n > sizeof bytes || !take(c, n, bytes))
		return rc_fail(e, RC_E_INVALID, "Push: owner_address is cut off or longer than %d bytes", MAX_ADDRESS);
	address = rc_unpack(d, &rw__address__descriptor, rc_view_of(bytes, (size_t)n));
	if (!address)
		return rc_fail(e, RC_E_INVALID, "Push: owner_address is not an Address");
	*ret = rc__om_owner_from_proto(address);
	rc_free_message(address);
	return 0;
}

int rc__om_chunk_parse(const rc_dialect *d, const rc__om_push_fields *f, const rc_view *pieces, size_t n_pieces, rc__om_chunk *ret,
                       rc_error *e)
{
	cursor c = { .pieces = pieces, .n = n_pieces };
	rc__om_chunk chunk = { 0 };
	uint64_t value;

	for (size_t i = 0; i < n_pieces; i++)
		c.left += pieces[i].n;
	while (c.left > 0) {
		uint64_t tag;
		unsigned field, wire_type;
		bool ok = true;

		if (!read_varint(&c, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
			return rc_fail(e, RC_E_INVALID, "Push: a field's tag is malformed");
		field = (unsigned)(tag >> 3);
		wire_type = (unsigned)(tag & 7);
		if (field == f->object_id && wire_type == BYTES) {
			if (read_id(&c, &chunk.object, RC_OBJECT_ID, "object_id", e) < 0)
				return -1;
		} else if (field == f->node_id && wire_type == BYTES) {
			if (read_id(&c, &chunk.node, RC_NODE_ID, "node_id", e) < 0)
				return -1;
		} else if (field == f->owner_address && wire_type == BYTES) {
			if (read_owner(d, &c, &chunk.owner, e) < 0)
				return -1;
		} else if (field == f->chunk_index && wire_type == VARINT) {
			ok = read_varint(&c, &value) && value <= UINT32_MAX;
			chunk.index = (uint32_t)value;
		} else if (field == f->data_size && wire_type == VARINT) {
			ok = read_varint(&c, &chunk.data_size);
		} else if (field == f->metadata_size && wire_type == VARINT) {
			ok = read_varint(&c, &chunk.metadata_size);
		} else if (field == f->data && wire_type == BYTES) {
			ok = read_varint(&c, &value) && value <= c.left;
			if (ok) {
				settle(&c);
				chunk.piece = c.piece;
				chunk.offset = c.offset;
				chunk.n = (size_t)value;
				ok = take(&c, value, NULL);
			}
		} else {
			ok = skip(&c, wire_type);
		}
		if (!ok)
			return rc_fail(e, RC_E_INVALID, "Push: field %u is cut off or malformed", field);
	}
	if (!chunk.object.n)
		return rc_fail(e, RC_E_INVALID, "Push: object_id is missing");
	if (chunk.metadata_size > chunk.data_size)
		return rc_fail(e, RC_E_INVALID, "Push of object %s: metadata_size %llu is more than data_size %llu", rc_id_to_hex(&chunk.object).s,
		               (unsigned long long)chunk.metadata_size, (unsigned long long)chunk.data_size);
	*ret = chunk;
	return 0;
}

/* ---- writing ---- */

static void write_varint(rc_buf *out, uint64_t value)
{
	uint8_t bytes[10];
	size_t n = 0;

	while (value >= 0x80) {
		bytes[n++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	bytes[n++] = (uint8_t)value;
	rc_buf_add(out, bytes, n);
}

void rc__om_chunk_head(const rc_dialect *d, const rc__om_push_fields *f, const rc_id *push_id, const rc__om_chunk *c, rc_buf *out)
{
	Rw__PushRequest m = RW__PUSH_REQUEST__INIT;
	Rw__Address owner = RW__ADDRESS__INIT;

	RC_SET_ID(m, push_id, push_id);
	RC_SET_ID(m, object_id, &c->object);
	RC_SET_ID(m, node_id, &c->node);
	RC_SET(m, chunk_index, c->index);
	RC_SET(m, data_size, c->data_size);
	RC_SET(m, metadata_size, c->metadata_size);
	RC_SET_ID(owner, node_id, &c->owner.node_id);
	RC_SET_ID(owner, worker_id, &c->owner.worker_id);
	owner.ip_address = (char *)c->owner.ip;
	RC_SET(owner, port, c->owner.port);
	m.owner_address = &owner;
	rc_pack(d, &m, out);
	write_varint(out, (uint64_t)f->data << 3 | BYTES);
	write_varint(out, c->n);
}

uint32_t rc__om_chunk_count(uint64_t total, uint64_t chunk_size)
{
	return total == 0 ? 1 : (uint32_t)((total + chunk_size - 1) / chunk_size);
}

uint64_t rc__om_chunk_length(uint64_t total, uint64_t chunk_size, uint32_t index)
{
	uint64_t start = (uint64_t)index * chunk_size;

	if (start >= total)
		return 0;
	return total - start < chunk_size ? total - start : chunk_size;
}
