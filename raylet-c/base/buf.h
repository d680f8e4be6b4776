/* Bytes: a borrowed view and a growable buffer. Any thread (no sharing). Allocation failure aborts with a message: the
 * daemon cannot go on without memory for its own bookkeeping; sizes that a peer chooses are checked before they get here. */
#ifndef RC_BASE_BUF_H
#define RC_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rc_view {
	const uint8_t *p;
	size_t n;
} rc_view;

static inline rc_view rc_view_of(const void *p, size_t n)
{
	return (rc_view){ (const uint8_t *)p, n };
}
rc_view rc_view_str(const char *s); /* s may be NULL: empty */
bool rc_view_eq(rc_view a, rc_view b);

typedef struct rc_buf {
	uint8_t *p;
	size_t n, cap;
} rc_buf; /* zero-initialised = empty */

void rc_buf_free(rc_buf *b); /* leaves it empty */
uint8_t *rc_buf_grow(rc_buf *b, size_t n); /* n more bytes, not initialised; returns their start */
void rc_buf_add(rc_buf *b, const void *p, size_t n);
void rc_buf_str(rc_buf *b, const char *s);
void rc_buf_printf(rc_buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *rc_buf_cstr(rc_buf *b); /* NUL-terminated, the NUL not counted */

/* Allocation that never returns NULL. */
void *rc_alloc(size_t n); /* zeroed */
void *rc_realloc(void *p, size_t n);
char *rc_strdup(const char *s); /* NULL stays NULL */
char *rc_strndup(const void *s, size_t n);
char *rc_sprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
