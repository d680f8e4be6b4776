/* Flatbuffers, the part that Ray's two unix sockets use: tables, scalars, strings, byte vectors, vectors of strings, tables,
 * structs and scalars. Private to wire/ (local.c, plasma.c). Any thread.
 *
 * Layout: u32 offset of the root table; a table starts with an i32 distance back to its vtable; a vtable is u16 own size, u16
 * table size, then per slot a u16 offset from the table's start, 0 = absent; strings and vectors are u32 count, then the
 * elements. All little endian. Offsets to strings, vectors and tables are forward from where they stand. */
#ifndef RC_WIRE_FLAT_H
#define RC_WIRE_FLAT_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/status.h"

/* ---- reading: every access is checked against the body; the first fault is kept, later reads give defaults ---- */

typedef struct rc__flat_reader {
	rc_view body;
	const char *message; /* for the error text */
	rc_error *error;
	bool failed;
} rc__flat_reader;

typedef struct rc__flat_table {
	size_t at, vtable; /* offsets in the body */
	size_t table_size, vtable_size;
} rc__flat_table;

typedef struct rc__flat_vector {
	size_t at, n; /* of the first element; at = 0: absent */
} rc__flat_vector;

/* Notes the first fault: "<message>: <field> <text>". Always returns -1. */
int rc__flat_fail(rc__flat_reader *r, const char *field, const char *format, ...) __attribute__((format(printf, 3, 4)));

int rc__flat_root(rc__flat_reader *r, rc__flat_table *ret);
/* Integers of 1, 4 or 8 bytes, sign-extended; 0 when the slot is absent. */
int64_t rc__flat_int(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, unsigned size, const char *field);
double rc__flat_double(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, const char *field);
/* A string or byte vector, without the NUL; empty with p = NULL when absent. */
rc_view rc__flat_bytes(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, const char *field);
/* The same, but of exactly n bytes; optional: absent or of no bytes is fine too. */
rc_view rc__flat_id(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, size_t n, bool optional, const char *field);
bool rc__flat_table_at(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, rc__flat_table *ret, const char *field);
rc__flat_vector rc__flat_offsets(rc__flat_reader *r, const rc__flat_table *t, unsigned slot, const char *field); /* of strings or tables */
rc_view rc__flat_element_bytes(rc__flat_reader *r, const rc__flat_vector *v, size_t i, const char *field);
int rc__flat_element_table(rc__flat_reader *r, const rc__flat_vector *v, size_t i, rc__flat_table *ret, const char *field);

/* ---- writing: forward; first the fields of the one table, then what they point to ---- */

typedef struct rc__flat_writer {
	rc_buf *out;
	size_t vtable, table;
} rc__flat_writer;

/* out must be empty: alignment counts from its start. */
rc__flat_writer rc__flat_start(rc_buf *out, unsigned n_slots);
void rc__flat_put_int(rc__flat_writer *w, unsigned slot, unsigned size, int64_t value);
void rc__flat_put_struct(rc__flat_writer *w, unsigned slot, const void *bytes, size_t n, size_t align);
/* A place for an offset: give it to one of the functions below, all of which come after the last field. */
size_t rc__flat_put_offset(rc__flat_writer *w, unsigned slot);
void rc__flat_finish(rc__flat_writer *w); /* no more fields */
void rc__flat_string(rc__flat_writer *w, size_t place, rc_view text);
/* n elements of `size` bytes, aligned to `align`; returns where the first one stands in out->p, not initialised. */
size_t rc__flat_vector_of(rc__flat_writer *w, size_t place, size_t n, size_t size, size_t align);

#endif
