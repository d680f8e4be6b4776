/* Unpacking: bytes to a generated struct, by the numbers of a release.
 *
 * Bytes come from peers and are not trusted: every length is checked against what is left, nesting is limited, and so is
 * the memory that a message may take (two bytes on the wire can stand for a struct of some hundred). A message lives in
 * one arena of its own, freed at once; the arena's start lies in front of the struct that the caller gets.
 *
 * As protobuf's own parsers do: a field that is not known, or comes with another wire type, is skipped; the last value of
 * a singular field counts, and a singular sub-message that comes twice is merged; repeated numbers are taken packed or
 * not. Groups are refused: no release uses them. */
#include "raylet-c/wire/codec.h"

#include <stdlib.h>
#include <string.h>

enum {
	NEST_MAX = 100,
	ARENA_FLOOR = 1 << 20, /* any message may take this much memory, and */
	ARENA_FACTOR = 32,     /* this many times its size on the wire */
	BLOCK_MIN = 1024
};

typedef struct block {
	struct block *next;
	size_t used, size;
	_Alignas(16) uint8_t bytes[];
} block;

typedef struct arena {
	block *last; /* where the next value goes; the first block is the arena itself */
	size_t left; /* of what the message may take */
} arena;

typedef struct reader {
	const uint8_t *p, *end;
} reader;

/* The first thing in the first block; the caller's struct follows. */
typedef struct owner {
	_Alignas(16) block *blocks;
} owner;

static void *take(arena *a, size_t n)
{
	n = (n + 15) & ~(size_t)15;
	if (n > a->left)
		return NULL;
	a->left -= n;
	block *b = a->last;
	if (!b || b->size - b->used < n) {
		size_t size = b ? 2 * b->size : BLOCK_MIN;
		if (size > 256 * 1024)
			size = 256 * 1024;
		if (size < n)
			size = n;
		block *fresh = malloc(sizeof *fresh + size);
		if (!fresh)
			return NULL;
		*fresh = (block){ .next = b, .size = size };
		a->last = b = fresh;
	}
	void *p = b->bytes + b->used;
	b->used += n;
	return p;
}

static void free_blocks(block *b)
{
	while (b) {
		block *next = b->next;
		free(b);
		b = next;
	}
}

/* Room for one more value in a repeated field: arrays double, so the capacity follows from the count. */
static void *append(arena *a, void **array, size_t *n, size_t size)
{
	if (*n == 0 || (*n >= 4 && (*n & (*n - 1)) == 0)) {
		void *grown = take(a, (*n == 0 ? 4 : *n * 2) * size);
		if (!grown)
			return NULL;
		if (*n)
			memcpy(grown, *array, *n * size);
		*array = grown;
	}
	return (uint8_t *)*array + (*n)++ * size;
}

static int get_varint(reader *r, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70 && r->p < r->end; shift += 7) {
		uint8_t byte = *r->p++;
		if (shift < 64)
			v |= (uint64_t)(byte & 127) << shift;
		if (byte < 128) {
			*ret = v;
			return 0;
		}
	}
	return -1;
}

static int get_bytes(reader *r, reader *ret)
{
	uint64_t n;

	if (get_varint(r, &n) != 0 || n > (size_t)(r->end - r->p))
		return -1;
	*ret = (reader){ r->p, r->p + n };
	r->p += n;
	return 0;
}

static int skip(reader *r, int wire)
{
	uint64_t v;
	reader ignored;
	size_t n;

	switch (wire) {
	case RC__VARINT:
		return get_varint(r, &v);
	case RC__BYTES:
		return get_bytes(r, &ignored);
	case RC__FIXED64:
	case RC__FIXED32:
		n = wire == RC__FIXED64 ? 8 : 4;
		if ((size_t)(r->end - r->p) < n)
			return -1;
		r->p += n;
		return 0;
	default:
		return -1;
	}
}

static int get_scalar(reader *r, ProtobufCType type, void *ret)
{
	int wire = rc__wire_type(type);
	uint64_t v;

	if (wire != RC__VARINT) {
		size_t n = wire == RC__FIXED64 ? 8 : 4;
		if ((size_t)(r->end - r->p) < n)
			return -1;
		memcpy(ret, r->p, n);
		r->p += n;
		return 0;
	}
	if (get_varint(r, &v) != 0)
		return -1;
	switch (type) {
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)ret = v != 0;
		break;
	case PROTOBUF_C_TYPE_SINT32:
		*(uint32_t *)ret = (uint32_t)v >> 1 ^ -((uint32_t)v & 1);
		break;
	case PROTOBUF_C_TYPE_SINT64:
		*(uint64_t *)ret = v >> 1 ^ -(v & 1);
		break;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_UINT64:
		*(uint64_t *)ret = v;
		break;
	default:
		*(uint32_t *)ret = (uint32_t)v;
		break;
	}
	return 0;
}

static int get_message(reader r, const rc_dialect *d, const rc__message *m, void *message, arena *a, unsigned depth);

static void *new_message(arena *a, const rc__message *m)
{
	void *message = take(a, m->descriptor->sizeof_message);

	if (message)
		m->descriptor->message_init(message);
	return message;
}

/* One value into its place in the struct or array. For a message, the place may hold one already: merged. */
static int get_value(reader *r, const rc_dialect *d, const rc__field *f, ProtobufCType type, void *place, arena *a, unsigned depth)
{
	reader sub;

	if (rc__wire_type(type) != RC__BYTES)
		return get_scalar(r, type, place);
	if (get_bytes(r, &sub) != 0)
		return -1;
	size_t n = (size_t)(sub.end - sub.p);
	if (type == PROTOBUF_C_TYPE_MESSAGE) {
		void **message = place;
		if (!*message)
			*message = new_message(a, &d->messages[f->sub]);
		return *message ? get_message(sub, d, &d->messages[f->sub], *message, a, depth + 1) : -1;
	}
	uint8_t *copy = take(a, n + 1);
	if (!copy)
		return -1;
	memcpy(copy, sub.p, n);
	copy[n] = 0;
	if (type == PROTOBUF_C_TYPE_STRING)
		*(char **)place = (char *)copy;
	else
		*(ProtobufCBinaryData *)place = (ProtobufCBinaryData){ n, copy };
	return 0;
}

static int get_repeated(reader *r, const rc_dialect *d, const rc__field *f, const ProtobufCFieldDescriptor *field, int wire, uint8_t *base,
                        arena *a, unsigned depth)
{
	size_t *n = (size_t *)(void *)(base + field->quantifier_offset), size = rc__value_size(field->type);
	void **array = (void **)(void *)(base + field->offset);
	reader packed;

	if (wire == rc__wire_type(field->type)) {
		void *place = append(a, array, n, size);
		if (!place)
			return -1;
		memset(place, 0, size);
		return get_value(r, d, f, field->type, place, a, depth);
	}
	if (get_bytes(r, &packed) != 0)
		return -1;
	while (packed.p < packed.end) {
		void *place = append(a, array, n, size);
		if (!place || get_scalar(&packed, field->type, place) != 0)
			return -1;
	}
	return 0;
}

static const rc__field *find_field(const rc__message *m, uint64_t number)
{
	size_t low = 0, high = m->n_fields;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (m->fields[middle].number == number)
			return &m->fields[middle];
		if (m->fields[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

static int get_message(reader r, const rc_dialect *d, const rc__message *m, void *message, arena *a, unsigned depth)
{
	uint8_t *base = message;

	if (depth > NEST_MAX)
		return -1;
	while (r.p < r.end) {
		uint64_t tag;
		if (get_varint(&r, &tag) != 0 || tag >> 3 == 0 || tag > UINT32_MAX)
			return -1;
		int wire = (int)(tag & 7), failed;
		const rc__field *f = find_field(m, tag >> 3);
		const ProtobufCFieldDescriptor *field = f ? &m->descriptor->fields[f->index] : NULL;
		bool repeated = field && field->label == PROTOBUF_C_LABEL_REPEATED;
		int own = field ? rc__wire_type(field->type) : -1;

		if (wire != own && !(repeated && wire == RC__BYTES)) {
			failed = skip(&r, wire);
		} else if (repeated) {
			failed = get_repeated(&r, d, f, field, wire, base, a, depth);
		} else {
			failed = get_value(&r, d, f, field->type, base + field->offset, a, depth);
			if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE)
				*(protobuf_c_boolean *)(void *)(base + field->quantifier_offset) = 1;
		}
		if (failed)
			return -1;
	}
	return 0;
}

void *rc_unpack(const rc_dialect *d, const ProtobufCMessageDescriptor *message, rc_view bytes)
{
	const rc__message *m = rc__find_message(d, message);
	arena a = { .left = bytes.n > (SIZE_MAX - ARENA_FLOOR) / ARENA_FACTOR ? SIZE_MAX / 2 : ARENA_FLOOR + ARENA_FACTOR * bytes.n };

	if (!m)
		return NULL;
	owner *o = take(&a, sizeof *o + m->descriptor->sizeof_message);
	if (!o)
		return NULL;
	void *result = o + 1;
	m->descriptor->message_init(result);
	const uint8_t *start = bytes.n ? bytes.p : (const uint8_t *)"";
	int failed = get_message((reader){ start, start + bytes.n }, d, m, result, &a, 0);
	o->blocks = a.last;
	if (failed) {
		free_blocks(a.last);
		return NULL;
	}
	return result;
}

void rc_free_message(void *message)
{
	if (message)
		free_blocks(((owner *)message - 1)->blocks);
}
