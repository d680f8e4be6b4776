/* Dialects: which numbers and names a Ray release uses on the wire.
 *
 * One C struct a message (ray.proto, by protoc-c); per release a generated table (gen/dialect_*.c, made by //bazel:dialect
 * from the descriptors inside a Ray wheel) that says which number each field, enum value and method has there. Use only
 * the functions here to pack, unpack and free: protobuf-c's own would take the numbers of ray.proto.
 *
 * Constant data, no state: any thread. */
#ifndef RC_WIRE_DIALECT_H
#define RC_WIRE_DIALECT_H

#include <protobuf-c/protobuf-c.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/id.h"
#include "raylet-c/base/status.h"
#include "raylet-c/wire/methods.h"
#include "raylet-c/wire/ray.pb-c.h"

typedef struct rc_dialect rc_dialect;

/* release: "2.35.0". NULL with an error text that lists the supported releases. */
const rc_dialect *rc_dialect_find(const char *release, rc_error *error);
const char *rc_dialect_release(const rc_dialect *d);
const char *rc_dialect_releases(void); /* "2.35.0, 2.60.0" */

/* "/ray.rpc.NodeManagerService/DrainRaylet", or NULL when the release has no such method. */
const char *rc_method_path(const rc_dialect *d, rc_method m);
/* The method of a path, or -1. */
int rc_method_find(const rc_dialect *d, const char *path, size_t n);
/* The number of an enum value in this release, or -1 when it has none. */
int rc_enum_value(const rc_dialect *d, rc_enum e);
/* True when the release has this field: rc_has_field(d, &rw__gcs_node_info__descriptor, "session_dir"). */
bool rc_has_field(const rc_dialect *d, const ProtobufCMessageDescriptor *message, const char *field);

/* Packs a message built on the generated structs, e.g. Rw__PullRequest m = RW__PULL_REQUEST__INIT; fields that the release
 * lacks are left out, and of a message that it lacks nothing is written. Appends to out. The struct is not changed. */
void rc_pack(const rc_dialect *d, const void *message, rc_buf *out);
/* NULL when the bytes are malformed, nested deeper than 100, or would take more memory than 1 MiB + 32 times their size; also
 * when the release has no such message. Everything in the struct is a copy (bytes and strings have a NUL behind them) and
 * belongs to it: free with rc_free_message. Unknown fields are dropped. */
void *rc_unpack(const rc_dialect *d, const ProtobufCMessageDescriptor *message, rc_view bytes);
void rc_free_message(void *message); /* NULL is fine */

/* Setting optional fields (proto2 presence): RC_SET(m, port, 5); RC_SET_BYTES(m, id, &rc_id); strings: m.name = (char *)s. */
#define RC_SET(m, field, v) ((m).has_##field = 1, (m).field = (v))
#define RC_SET_BYTES(m, field, ptr, size) ((m).has_##field = 1, (m).field.data = (uint8_t *)(ptr), (m).field.len = (size))
#define RC_SET_ID(m, field, id) RC_SET_BYTES(m, field, (id)->b, (id)->n)
/* Reading: the value or 0/empty when absent. */
#define RC_GET(m, field) ((m)->has_##field ? (m)->field : 0)
#define RC_GET_ID(m, field) ((m)->has_##field ? rc_id_from((m)->field.data, (m)->field.len) : (rc_id){ 0 })
#define RC_GET_VIEW(m, field) ((m)->has_##field ? rc_view_of((m)->field.data, (m)->field.len) : (rc_view){ 0 })
#define RC_GET_STR(m, field) ((m)->field ? (m)->field : "")

#endif
