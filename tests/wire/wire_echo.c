/* For roundtrip.py: reads requests from stdin, each a line "RELEASE MESSAGE LENGTH" and LENGTH bytes; unpacks the bytes,
 * and answers with the packed bytes and what the struct holds as JSON, each after a line with its length; "-1" when the
 * bytes do not unpack. Strings and bytes are in hex, doubles as C's %a. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/wire/table.h"

static void dump_hex(rc_buf *out, const void *p, size_t n)
{
	rc_buf_str(out, "\"");
	for (size_t i = 0; i < n; i++)
		rc_buf_printf(out, "%02x", ((const uint8_t *)p)[i]);
	rc_buf_str(out, "\"");
}

static void dump_message(rc_buf *out, const ProtobufCMessage *m);

static size_t dump_value(rc_buf *out, ProtobufCType type, const void *p) /* returns the value's size */
{
	const ProtobufCBinaryData *b = p;

	switch (type) {
	case PROTOBUF_C_TYPE_STRING:
		dump_hex(out, *(char *const *)p, strlen(*(char *const *)p));
		return sizeof(char *);
	case PROTOBUF_C_TYPE_BYTES:
		dump_hex(out, b->data, b->len);
		return sizeof *b;
	case PROTOBUF_C_TYPE_MESSAGE:
		dump_message(out, *(ProtobufCMessage *const *)p);
		return sizeof(void *);
	case PROTOBUF_C_TYPE_DOUBLE:
		rc_buf_printf(out, "\"%a\"", *(const double *)p);
		return 8;
	case PROTOBUF_C_TYPE_FLOAT:
		rc_buf_printf(out, "\"%a\"", (double)*(const float *)p);
		return 4;
	case PROTOBUF_C_TYPE_INT64:
		rc_buf_printf(out, "%" PRId64, *(const int64_t *)p);
		return 8;
	case PROTOBUF_C_TYPE_UINT64:
		rc_buf_printf(out, "%" PRIu64, *(const uint64_t *)p);
		return 8;
	case PROTOBUF_C_TYPE_UINT32:
		rc_buf_printf(out, "%" PRIu32, *(const uint32_t *)p);
		return 4;
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_BOOL:
		rc_buf_printf(out, "%" PRId32, *(const int32_t *)p);
		return 4;
	default:
		fprintf(stderr, "wire_echo: ray.proto uses type %d, which this program does not know\n", type);
		exit(1);
	}
}

static void dump_message(rc_buf *out, const ProtobufCMessage *m)
{
	const char *comma = "";

	rc_buf_str(out, "{");
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		const uint8_t *base = (const uint8_t *)m, *p = base + f->offset;
		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			size_t n = *(const size_t *)(const void *)(base + f->quantifier_offset);
			if (n == 0)
				continue;
			rc_buf_printf(out, "%s\"%s\":[", comma, f->name);
			p = *(const uint8_t *const *)(const void *)p;
			for (size_t k = 0; k < n; k++) {
				rc_buf_str(out, k ? "," : "");
				p += dump_value(out, f->type, p);
			}
			rc_buf_str(out, "]");
		} else {
			bool pointer = f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE;
			if (pointer ? *(void *const *)(const void *)p == NULL : !*(const protobuf_c_boolean *)(const void *)(base + f->quantifier_offset))
				continue;
			rc_buf_printf(out, "%s\"%s\":", comma, f->name);
			dump_value(out, f->type, p);
		}
		comma = ",";
	}
	rc_buf_str(out, "}");
}

static const ProtobufCMessageDescriptor *find(const rc_dialect *d, const char *name)
{
	char full[160];

	snprintf(full, sizeof full, "rw.%s", name);
	for (size_t i = 0; i < d->n_messages; i++)
		if (strcmp(d->messages[i].descriptor->name, full) == 0)
			return d->messages[i].descriptor;
	return NULL;
}

int main(void)
{
	char release[32], name[128];
	size_t n;
	rc_error error;

	while (scanf("%31s %127s %zu", release, name, &n) == 3 && getchar() == '\n') {
		const rc_dialect *d = rc_dialect_find(release, &error);
		const ProtobufCMessageDescriptor *m = d ? find(d, name) : NULL;
		if (!m) {
			fprintf(stderr, "wire_echo: %s\n", d ? name : error.text);
			return 1;
		}
		uint8_t *bytes = malloc(n ? n : 1); /* of the exact size, for ASan */
		if (!bytes || fread(bytes, 1, n, stdin) != n)
			return 1;
		void *message = rc_unpack(d, m, rc_view_of(bytes, n));
		free(bytes);
		if (!message) {
			puts("-1");
		} else {
			rc_buf packed = { 0 }, text = { 0 };
			rc_pack(d, message, &packed);
			dump_message(&text, message);
			printf("%zu\n", packed.n);
			if (packed.n)
				fwrite(packed.p, 1, packed.n, stdout);
			printf("%zu\n", text.n);
			fwrite(text.p, 1, text.n, stdout);
			rc_buf_free(&packed);
			rc_buf_free(&text);
		}
		rc_free_message(message);
		fflush(stdout);
	}
	return 0;
}
