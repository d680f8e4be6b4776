/* The lines that two ends of `raylet-c doctor --pair` exchange over TCP before and while they measure. Text, a line each:
 *
 *   client: raylet-c-pair 1                server: raylet-c-pair 1
 *           offer PROVIDER PLACE PROTOCOL VERSION READ OWN_KEYS REGISTERS MAX  (each)      the same, its own
 *           end                                    end
 *           use N           the N-th of the server's offers, or `use tcp`
 *                                          at ADDRESS_HEX KEY BASE SIZE, or: error TEXT
 *           give OFFSET N   (tcp only)     N bytes
 *           bye
 *
 * Pure; any thread. */
#ifndef RC_DOCTOR_PAIR_LINE_H
#define RC_DOCTOR_PAIR_LINE_H

#include "raylet-c/base/buf.h"
#include "raylet-c/fabric/endpoint.h"

enum { RC__PAIR_LINE = 1024 };
#define RC__PAIR_HELLO "raylet-c-pair 1"

void rc__pair_offer_pack(const rc_fabric_offer *o, rc_buf *out); /* with its new line */
/* line: NUL-terminated, without the new line. */
int rc__pair_offer_parse(const char *line, rc_fabric_offer *ret, rc_error *error) RC_WARN_UNUSED;

typedef struct rc__pair_place { /* where the server's memory is read */
	uint8_t address[RC_FABRIC_ADDRESS];
	size_t address_n;
	rc_remote remote;
	uint64_t size;
} rc__pair_place;
void rc__pair_place_pack(const rc__pair_place *p, rc_buf *out);
int rc__pair_place_parse(const char *line, rc__pair_place *ret, rc_error *error) RC_WARN_UNUSED;

/* What stands at byte offset (a multiple of 8) of the measured memory: each end knows it, so every read is checked exactly. */
uint64_t rc__pair_word(uint64_t offset);
/* The first offset in [offset, offset + n) that is wrong; offset + n: all are right. n: a multiple of 8. */
uint64_t rc__pair_check(const uint64_t *words, uint64_t offset, uint64_t n);

#endif
