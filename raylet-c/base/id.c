/* Ids: construction, comparison, hex. See id.h. */
#include "raylet-c/base/id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

rc_id rc_id_from(const void *p, size_t n)
{
	rc_id id = { 0 };

	if (n == 0 || n > RC_ID_MAX)
		return id;
	id.n = (uint8_t)n;
	memcpy(id.b, p, n);
	return id;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

rc_id rc_id_from_hex(const char *hex)
{
	size_t n = hex ? strlen(hex) : 0;
	rc_id id = { 0 };

	if (n == 0 || n % 2 || n / 2 > RC_ID_MAX)
		return id;
	for (size_t i = 0; i < n / 2; i++) {
		int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return (rc_id){ 0 };
		id.b[i] = (uint8_t)(high << 4 | low);
	}
	id.n = (uint8_t)(n / 2);
	return id;
}

rc_id rc_id_nil(size_t n)
{
	rc_id id = { 0 };

	if (n > RC_ID_MAX)
		return id;
	id.n = (uint8_t)n;
	memset(id.b, 0xff, n);
	return id;
}

rc_id rc_id_random(size_t n)
{
	rc_id id = { 0 };

	if (n > RC_ID_MAX)
		return id;
	id.n = (uint8_t)n;
	if (getrandom(id.b, n, 0) != (ssize_t)n) { /* up to 256 bytes never come short once the pool is up */
		perror("getrandom");
		abort();
	}
	return id;
}

bool rc_id_is_nil(const rc_id *id)
{
	for (size_t i = 0; i < id->n; i++)
		if (id->b[i] != 0xff)
			return false;
	return true;
}

bool rc_id_eq(const rc_id *a, const rc_id *b)
{
	return a->n == b->n && memcmp(a->b, b->b, a->n) == 0;
}

rc_id_hex rc_id_to_hex(const rc_id *id)
{
	static const char digits[] = "0123456789abcdef";
	rc_id_hex hex;

	for (size_t i = 0; i < id->n; i++) {
		hex.s[2 * i] = digits[id->b[i] >> 4];
		hex.s[2 * i + 1] = digits[id->b[i] & 15];
	}
	hex.s[2 * id->n] = 0;
	return hex;
}
