/* Packing: a generated struct to bytes with the numbers of a release.
 *
 * protobuf-c's own pack takes the numbers from a message's descriptor, which would mean one descriptor a release, and
 * setting it in every sub-message before each call. Here the struct stays as it is (const) and only the table differs. A
 * length that is not known beforehand is written after its bytes: one byte is kept free, and the bytes move when that is
 * not enough. Fields go out by number, absent ones not at all; sub-messages that the release lacks are left out.
 *
 * N.B. a proto3 parser refuses a whole message for one string that is not UTF-8, and texts come from anywhere (a worker's
 * last words, a path): what is not UTF-8 goes out as question marks. */
#include "raylet-c/wire/codec.h"

#include <string.h>

static void put_varint(rc_buf *out, uint64_t v)
{
	uint8_t bytes[10];
	size_t n = 0;

	for (; v >= 128; v >>= 7)
		bytes[n++] = (uint8_t)(v | 128);
	bytes[n++] = (uint8_t)v;
	rc_buf_add(out, bytes, n);
}

static void put_tag(rc_buf *out, unsigned number, int wire)
{
	put_varint(out, (uint64_t)number << 3 | (unsigned)wire);
}

static void put_bytes(rc_buf *out, const void *p, size_t n)
{
	put_varint(out, n);
	if (n)
		rc_buf_add(out, p, n);
}

/* The length of the UTF-8 sequence at s, 0 when there is none. s ends with a NUL, which no sequence contains. */
static size_t utf8_length(const uint8_t *s)
{
	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	size_t n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* overlong, a surrogate, beyond U+10FFFF */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

static void put_string(rc_buf *out, const char *text)
{
	size_t n = text ? strlen(text) : 0;

	put_bytes(out, text, n);
	uint8_t *copy = out->p + out->n - n;
	for (size_t i = 0; i < n;) {
		size_t step = utf8_length((const uint8_t *)text + i);
		if (step == 0)
			copy[i] = '?';
		i += step ? step : 1;
	}
}

static size_t open_length(rc_buf *out)
{
	rc_buf_add(out, "", 1);
	return out->n;
}

static void close_length(rc_buf *out, size_t start)
{
	size_t n = out->n - start, extra = 0;

	for (size_t v = n >> 7; v; v >>= 7)
		extra++;
	if (extra) {
		rc_buf_grow(out, extra);
		memmove(out->p + start + extra, out->p + start, n);
	}
	uint8_t *p = out->p + start - 1;
	for (; n >= 128; n >>= 7)
		*p++ = (uint8_t)(n | 128);
	*p = (uint8_t)n;
}

static void put_fixed(rc_buf *out, const void *p, size_t n) /* x86-64 and arm64 are little endian, as the wire is */
{
	_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fixed-width values are copied as they lie in memory");
	rc_buf_add(out, p, n);
}

static void put_scalar(rc_buf *out, ProtobufCType type, const void *p)
{
	int32_t i;
	int64_t l;

	switch (rc__wire_type(type)) {
	case RC__FIXED64:
		put_fixed(out, p, 8);
		return;
	case RC__FIXED32:
		put_fixed(out, p, 4);
		return;
	}
	switch (type) {
	case PROTOBUF_C_TYPE_BOOL:
		put_varint(out, *(const protobuf_c_boolean *)p != 0);
		break;
	case PROTOBUF_C_TYPE_UINT32:
		put_varint(out, *(const uint32_t *)p);
		break;
	case PROTOBUF_C_TYPE_SINT32:
		i = *(const int32_t *)p;
		put_varint(out, (uint32_t)i << 1 ^ (uint32_t)(i >> 31));
		break;
	case PROTOBUF_C_TYPE_SINT64:
		l = *(const int64_t *)p;
		put_varint(out, (uint64_t)l << 1 ^ (uint64_t)(l >> 63));
		break;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_UINT64:
		put_varint(out, *(const uint64_t *)p);
		break;
	default: /* int32, enum: negative numbers take ten bytes */
		put_varint(out, (uint64_t)(int64_t) * (const int32_t *)p);
		break;
	}
}

static void put_message(rc_buf *out, const rc_dialect *d, const rc__message *m, const void *message);

/* One value with its tag. A NULL string or message in an array is a caller's slip: sent as an empty one. */
static void put_value(rc_buf *out, const rc_dialect *d, const rc__field *f, ProtobufCType type, const void *p)
{
	put_tag(out, f->number, rc__wire_type(type));
	if (type == PROTOBUF_C_TYPE_STRING) {
		put_string(out, *(char *const *)p);
	} else if (type == PROTOBUF_C_TYPE_BYTES) {
		const ProtobufCBinaryData *b = p;
		put_bytes(out, b->data, b->len);
	} else if (type == PROTOBUF_C_TYPE_MESSAGE) {
		const void *sub = *(void *const *)p;
		size_t start = open_length(out);
		if (sub)
			put_message(out, d, &d->messages[f->sub], sub);
		close_length(out, start);
	} else {
		put_scalar(out, type, p);
	}
}

static void put_repeated(rc_buf *out, const rc_dialect *d, const rc__field *f, const ProtobufCFieldDescriptor *field,
                         const uint8_t *base)
{
	size_t n = *(const size_t *)(const void *)(base + field->quantifier_offset), size = rc__value_size(field->type);
	const uint8_t *p = *(const uint8_t *const *)(const void *)(base + field->offset);

	if (n == 0)
		return;
	if (field->flags & PROTOBUF_C_FIELD_FLAG_PACKED) {
		put_tag(out, f->number, RC__BYTES);
		size_t start = open_length(out);
		for (size_t i = 0; i < n; i++)
			put_scalar(out, field->type, p + i * size);
		close_length(out, start);
		return;
	}
	for (size_t i = 0; i < n; i++)
		put_value(out, d, f, field->type, p + i * size);
}

static void put_message(rc_buf *out, const rc_dialect *d, const rc__message *m, const void *message)
{
	const uint8_t *base = message;

	for (size_t i = 0; i < m->n_fields; i++) {
		const rc__field *f = &m->fields[i];
		const ProtobufCFieldDescriptor *field = &m->descriptor->fields[f->index];
		const uint8_t *p = base + field->offset;

		if (field->label == PROTOBUF_C_LABEL_REPEATED) {
			put_repeated(out, d, f, field, base);
			continue;
		}
		bool set;
		if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE)
			set = *(void *const *)(const void *)p != NULL;
		else
			set = *(const protobuf_c_boolean *)(const void *)(base + field->quantifier_offset);
		if (set)
			put_value(out, d, f, field->type, p);
	}
}

void rc_pack(const rc_dialect *d, const void *message, rc_buf *out)
{
	const rc__message *m = rc__find_message(d, ((const ProtobufCMessage *)message)->descriptor);

	if (m)
		put_message(out, d, m, message);
}
