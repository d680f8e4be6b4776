/* Growable bytes and allocation that cannot fail. See buf.h. */
#define _GNU_SOURCE
#include "raylet-c/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void __attribute__((noreturn)) no_memory(size_t n)
{
	fprintf(stderr, "out of memory: cannot allocate %zu bytes\n", n);
	abort();
}

void *rc_alloc(size_t n)
{
	void *p = calloc(1, n ? n : 1);

	if (!p)
		no_memory(n);
	return p;
}

void *rc_realloc(void *p, size_t n)
{
	void *grown = realloc(p, n ? n : 1);

	if (!grown)
		no_memory(n);
	return grown;
}

char *rc_strndup(const void *s, size_t n)
{
	char *copy = rc_realloc(NULL, n + 1);

	if (n)
		memcpy(copy, s, n);
	copy[n] = 0;
	return copy;
}

char *rc_strdup(const char *s)
{
	return s ? rc_strndup(s, strlen(s)) : NULL;
}

char *rc_sprintf(const char *format, ...)
{
	char *text = NULL;
	va_list args;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	if (n < 0)
		no_memory(strlen(format));
	return text;
}

rc_view rc_view_str(const char *s)
{
	return s ? rc_view_of(s, strlen(s)) : (rc_view){ 0 };
}

bool rc_view_eq(rc_view a, rc_view b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

void rc_buf_free(rc_buf *b)
{
	free(b->p);
	*b = (rc_buf){ 0 };
}

uint8_t *rc_buf_grow(rc_buf *b, size_t n)
{
	uint8_t *start;

	if (n > SIZE_MAX / 4 - b->n)
		no_memory(n);
	if (b->n + n > b->cap) {
		size_t cap = b->cap ? b->cap * 2 : 64;

		while (cap < b->n + n)
			cap *= 2;
		b->p = rc_realloc(b->p, cap);
		b->cap = cap;
	}
	start = b->p + b->n;
	b->n += n;
	return start;
}

void rc_buf_add(rc_buf *b, const void *p, size_t n)
{
	if (n)
		memcpy(rc_buf_grow(b, n), p, n);
}

void rc_buf_str(rc_buf *b, const char *s)
{
	rc_buf_add(b, s, strlen(s));
}

void rc_buf_printf(rc_buf *b, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n < 0)
		return;
	va_start(args, format);
	vsnprintf((char *)rc_buf_grow(b, (size_t)n + 1), (size_t)n + 1, format, args);
	va_end(args);
	b->n--; /* the NUL is not counted */
}

const char *rc_buf_cstr(rc_buf *b)
{
	*rc_buf_grow(b, 1) = 0;
	b->n--;
	return (const char *)b->p;
}
