#include "raylet-c/doctor/pair_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_SIZE (UINT64_C(1) << 32)

static const char *or_dash(const char *text)
{
	return *text ? text : "-";
}

void rc__pair_offer_pack(const rc_fabric_offer *o, rc_buf *out)
{
	rc_buf_printf(out, "offer %s %s %" PRIu32 " %" PRIu32 " %d %d %d %" PRIu64 "\n", o->provider, or_dash(o->place), o->protocol,
	              o->protocol_version, o->read, o->own_keys, o->registers, o->max_message);
}

int rc__pair_offer_parse(const char *line, rc_fabric_offer *ret, rc_error *error)
{
	rc_fabric_offer o = { 0 };
	int read, own, registers, end = -1;
	int n = sscanf(line, "offer %31s %32s %" SCNu32 " %" SCNu32 " %d %d %d %" SCNu64 "%n", o.provider, o.place, &o.protocol, &o.protocol_version,
	               &read, &own, &registers, &o.max_message, &end);
	if (n != 8 || end < 0 || line[end])
		return rc_fail(error, RC_E_INVALID, "the other end's offer cannot be understood: %.100s", line);
	o.read = read != 0;
	o.own_keys = own != 0;
	o.registers = registers != 0;
	if (strcmp(o.place, "-") == 0)
		o.place[0] = '\0';
	*ret = o;
	return 0;
}

void rc__pair_place_pack(const rc__pair_place *p, rc_buf *out)
{
	rc_buf_str(out, "at ");
	for (size_t i = 0; i < p->address_n; i++)
		rc_buf_printf(out, "%02x", p->address[i]);
	rc_buf_printf(out, " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", p->remote.key, p->remote.base, p->size);
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int rc__pair_place_parse(const char *line, rc__pair_place *ret, rc_error *error)
{
	rc__pair_place p = { 0 };
	int end = -1;
	const char *c = line + 3;
	if (strncmp(line, "error ", 6) == 0)
		return rc_fail(error, RC_E_UNAVAILABLE, "the other end: %.300s", line + 6);
	if (strncmp(line, "at ", 3) != 0)
		return rc_fail(error, RC_E_INVALID, "the other end's answer cannot be understood: %.100s", line);
	for (; hex(c[0]) >= 0 && hex(c[1]) >= 0 && p.address_n < sizeof(p.address); c += 2)
		p.address[p.address_n++] = (uint8_t)(hex(c[0]) << 4 | hex(c[1]));
	if (p.address_n == 0 || sscanf(c, " %" SCNu64 " %" SCNu64 " %" SCNu64 "%n", &p.remote.key, &p.remote.base, &p.size, &end) != 3 || end < 0 ||
	    c[end] || p.size % 8 || p.size == 0 || p.size > MAX_SIZE)
		return rc_fail(error, RC_E_INVALID, "the other end's address cannot be understood: %.100s", line);
	*ret = p;
	return 0;
}

uint64_t rc__pair_word(uint64_t offset)
{
	uint64_t x = offset / 8 + UINT64_C(0x9e3779b97f4a7c15); /* neighbours differ in many bits, so swapped or late bytes are seen */
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	return x ^ x >> 27;
}

uint64_t rc__pair_check(const uint64_t *words, uint64_t offset, uint64_t n)
{
	for (uint64_t i = 0; i < n / 8; i++)
		if (words[i] != rc__pair_word(offset + i * 8))
			return offset + i * 8;
	return offset + n;
}
