/* What pack.c and unpack.c share: how a C type lies in memory and on the wire. Private to wire/. */
#ifndef RC_WIRE_CODEC_H
#define RC_WIRE_CODEC_H


#include "raylet-c/wire/table.h"

/* Wire types. Groups (3, 4) do not occur in proto3. */
enum { RC__VARINT = 0, RC__FIXED64 = 1, RC__BYTES = 2, RC__FIXED32 = 5 };

/* NULL when the release has no such message. */
const rc__message *rc__find_message(const rc_dialect *d, const ProtobufCMessageDescriptor *descriptor);

static inline int rc__wire_type(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return RC__BYTES;
	case PROTOBUF_C_TYPE_DOUBLE:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
		return RC__FIXED64;
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return RC__FIXED32;
	default:
		return RC__VARINT;
	}
}

/* Size of one value in a struct or in an array. */
static inline size_t rc__value_size(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return 8;
	default:
		return 4;
	}
}

#endif
