/* See flat.h. N.B. all sizes come from a peer: an offset is added only after it was compared with what is left. */
#include "raylet-c/wire/flat.h"

#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

int rc__flat_fail(rc__flat_reader *r, const char *field, const char *format, ...)
{
	char text[200];
	va_list args;

	if (r->failed)
		return -1;
	r->failed = true;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	return rc_fail(r->error, RC_E_INVALID, "%s: %s %s", r->message, field, text);
}

static bool inside(const rc__flat_reader *r, size_t at, size_t n)
{
	return at <= r->body.n && n <= r->body.n - at;
}

static uint16_t u16(const rc__flat_reader *r, size_t at)
{
	uint16_t v;

	memcpy(&v, r->body.p + at, sizeof v);
	return v;
}

static uint32_t u32(const rc__flat_reader *r, size_t at)
{
	uint32_t v;

	memcpy(&v, r->body.p + at, sizeof v);
	return v;
}

static int open_table(rc__flat_reader *r, size_t at, rc__flat_table *ret, const char *field)
{
	if (!inside(r, at, 4))
		return rc__flat_fail(r, field, "lies outside of the message");
	int64_t vtable = (int64_t)at - (int32_t)u32(r, at);
	if (vtable < 0 || !inside(r, (size_t)vtable, 4))
		return rc__flat_fail(r, field, "has its vtable outside of the message");
	rc__flat_table t = { .at = at, .vtable = (size_t)vtable };
	t.vtable_size = u16(r, t.vtable);
	t.table_size = u16(r, t.vtable + 2);
	if (t.vtable_size < 4 || !inside(r, t.vtable, t.vtable_size))
		return rc__flat_fail(r, field, "has a vtable of %zu bytes, which does not fit", t.vtable_size);
	if (t.table_size < 4 || !inside(r, t.at, t.table_size))
		return rc__flat_fail(r, field, "is a table of %zu bytes, which does not fit", t.table_size);
	*ret = t;
	return 0;
}

/* Where a slot's value of n bytes lies; 0: absent or faulty. */
static size_t slot_at(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, size_t n, const char *field)
{
	size_t entry = 4 + 2 * (size_t)slot;

	if (r->failed || entry + 2 > t->vtable_size)
		return 0;
	size_t offset = u16(r, t->vtable + entry);
	if (offset == 0)
		return 0;
	if (offset < 4 || offset > t->table_size || n > t->table_size - offset) {
		rc__flat_fail(r, field, "lies outside of its table");
		return 0;
	}
	return t->at + offset;
}

/* Follows the offset that stands at `at`; 0: faulty. */
static size_t follow(rc__flat_reader *r, size_t at, const char *field)
{
	size_t distance = u32(r, at);

	if (distance == 0 || distance > r->body.n - at) {
		rc__flat_fail(r, field, "lies outside of the message");
		return 0;
	}
	return at + distance;
}

static rc__flat_vector open_vector(rc__flat_reader *r, size_t at, size_t size, const char *field)
{
	if (!inside(r, at, 4)) {
		rc__flat_fail(r, field, "lies outside of the message");
		return (rc__flat_vector){ 0 };
	}
	rc__flat_vector v = { at + 4, u32(r, at) };
	if (v.n > (r->body.n - v.at) / size) {
		rc__flat_fail(r, field, "has %zu elements, which do not fit", v.n);
		return (rc__flat_vector){ 0 };
	}
	return v;
}

int rc__flat_root(rc__flat_reader *r, rc__flat_table *ret)
{
	*ret = (rc__flat_table){ 0 };
	if (r->body.n < 4)
		return rc__flat_fail(r, "body", "has %zu bytes, too few for a table", r->body.n);
	size_t at = u32(r, 0);
	return open_table(r, at, ret, "root table");
}

int64_t rc__flat_int(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, unsigned size, const char *field)
{
	size_t at = slot_at(r, t, slot, size, field);
	int8_t i8;
	int32_t i32;
	int64_t i64;

	if (at == 0)
		return 0;
	switch (size) {
	case 1:
		memcpy(&i8, r->body.p + at, 1);
		return i8;
	case 4:
		memcpy(&i32, r->body.p + at, 4);
		return i32;
	default:
		memcpy(&i64, r->body.p + at, 8);
		return i64;
	}
}

double rc__flat_double(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, const char *field)
{
	size_t at = slot_at(r, t, slot, 8, field);
	double v = 0;

	if (at)
		memcpy(&v, r->body.p + at, 8);
	return v;
}

static rc_view bytes_at(rc__flat_reader *r, size_t at, const char *field)
{
	at = follow(r, at, field);
	if (at == 0)
		return (rc_view){ 0 };
	rc__flat_vector v = open_vector(r, at, 1, field);
	return v.at ? rc_view_of(r->body.p + v.at, v.n) : (rc_view){ 0 };
}

rc_view rc__flat_bytes(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, const char *field)
{
	size_t at = slot_at(r, t, slot, 4, field);

	return at ? bytes_at(r, at, field) : (rc_view){ 0 };
}

rc_view rc__flat_id(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, size_t n, bool optional, const char *field)
{
	rc_view v = rc__flat_bytes(r, t, slot, field);

	if (v.n != n && !(optional && v.n == 0)) {
		rc__flat_fail(r, field, "has %zu bytes, not %zu", v.n, n);
		return (rc_view){ 0 };
	}
	return v;
}

bool rc__flat_table_at(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, rc__flat_table *ret, const char *field)
{
	size_t at = slot_at(r, t, slot, 4, field);

	at = at ? follow(r, at, field) : 0;
	return at && open_table(r, at, ret, field) == 0;
}

rc__flat_vector rc__flat_offsets(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, const char *field)
{
	size_t at = slot_at(r, t, slot, 4, field);

	at = at ? follow(r, at, field) : 0;
	return at ? open_vector(r, at, 4, field) : (rc__flat_vector){ 0 };
}

rc_view rc__flat_element_bytes(rc__flat_reader *r, const rc__flat_vector *v, size_t i, const char *field)
{
	return bytes_at(r, v->at + 4 * i, field);
}

int rc__flat_element_table(rc__flat_reader *r, const rc__flat_vector *v, size_t i, rc__flat_table *ret, const char *field)
{
	size_t at = follow(r, v->at + 4 * i, field);

	return at ? open_table(r, at, ret, field) : -1;
}

/* ---- writing ---- */

static void pad_to(rc_buf *out, size_t align, size_t ahead) /* so that what comes after `ahead` more bytes is aligned */
{
	size_t n = (align - (out->n + ahead) % align) % align;

	memset(rc_buf_grow(out, n), 0, n);
}

static void set_u16(rc_buf *out, size_t at, size_t v)
{
	uint16_t x = (uint16_t)v;

	memcpy(out->p + at, &x, sizeof x);
}

static void set_u32(rc_buf *out, size_t at, size_t v)
{
	uint32_t x = (uint32_t)v;

	memcpy(out->p + at, &x, sizeof x);
}

rc__flat_writer rc__flat_start(rc_buf *out, unsigned n_slots)
{
	size_t n = 4 + 4 + 2 * (size_t)n_slots;
	rc__flat_writer w = { .out = out, .vtable = 4 };

	memset(rc_buf_grow(out, n), 0, n);
	pad_to(out, 8, 0);
	w.table = out->n;
	memset(rc_buf_grow(out, 4), 0, 4);
	set_u32(out, 0, w.table);
	set_u16(out, w.vtable, n - 4);
	set_u32(out, w.table, w.table - w.vtable);
	return w;
}

void rc__flat_put_struct(rc__flat_writer *w, unsigned slot, const void *bytes, size_t n, size_t align)
{
	pad_to(w->out, align, 0);
	set_u16(w->out, w->vtable + 4 + 2 * (size_t)slot, w->out->n - w->table);
	rc_buf_add(w->out, bytes, n);
}

void rc__flat_put_int(rc__flat_writer *w, unsigned slot, unsigned size, int64_t value)
{
	rc__flat_put_struct(w, slot, &value, size, size); /* little endian: the low bytes come first */
}

size_t rc__flat_put_offset(rc__flat_writer *w, unsigned slot)
{
	rc__flat_put_int(w, slot, 4, 0);
	return w->out->n - 4;
}

void rc__flat_finish(rc__flat_writer *w)
{
	set_u16(w->out, w->vtable + 2, w->out->n - w->table);
}

size_t rc__flat_vector_of(rc__flat_writer *w, size_t place, size_t n, size_t size, size_t align)
{
	pad_to(w->out, 4, 0);
	if (align > 4)
		pad_to(w->out, align, 4);
	set_u32(w->out, place, w->out->n - place);
	rc_buf_grow(w->out, 4);
	set_u32(w->out, w->out->n - 4, n);
	size_t at = w->out->n;
	rc_buf_grow(w->out, n * size);
	return at;
}

void rc__flat_string(rc__flat_writer *w, size_t place, rc_view text)
{
	size_t at = rc__flat_vector_of(w, place, text.n, 1, 1);

	if (text.n)
		memcpy(w->out->p + at, text.p, text.n);
	rc_buf_add(w->out, "", 1);
}
