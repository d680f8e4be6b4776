/* The shape of a release's table (gen/dialect_*.c). Private to wire/: everyone else uses dialect.h.
 *
 * Constant data: no code runs at start and any thread may read it. The list of messages is ray.proto's, in its order. */
#ifndef RC_WIRE_TABLE_H
#define RC_WIRE_TABLE_H

#include "raylet-c/wire/dialect.h"
#include "raylet-c/wire/gen/releases.h"

enum { RC__NO_SUB = 0xffff };

typedef struct rc__field {
	uint16_t number; /* on the wire */
	uint16_t index;  /* in the protobuf-c descriptor's fields */
	uint16_t sub;    /* of the sub-message in rc_dialect.messages, or RC__NO_SUB */
} rc__field;

typedef struct rc__message {
	const ProtobufCMessageDescriptor *descriptor; /* protobuf-c's: where the members are and what types they have */
	const rc__field *fields;                      /* those that the release has, by number */
	uint16_t n_fields;
	bool known; /* false: the release has no such message */
} rc__message;

typedef struct rc__path {
	const char *path; /* NULL: the release has no such method */
	size_t n;
} rc__path;

struct rc_dialect {
	const char *release;
	const rc__message *messages;
	size_t n_messages;
	const rc__path *methods; /* by rc_method */
	const int16_t *enums;    /* by rc_enum */
};

#define X(release) extern const rc_dialect rc__dialect_##release;
RC__RELEASES(X)
#undef X

#endif
