/* Parsing HTTP answers. See http_answer.h. Head and body are limited; sizes are taken from the text with a limit, so that no
 * number overflows. */
#define _GNU_SOURCE
#include "raylet-c/base/http_answer.h"

#include <string.h>
#include <strings.h>

enum { KEEP_CONSUMED = 64 * 1024 }; /* chunks that were read are dropped when they are this much */

/* Each step returns 1 done, 0 needs more, -1 malformed (with *why). */

static bool name_is(const char *line, size_t n, const char *name)
{
	return n == strlen(name) && strncasecmp(line, name, n) == 0;
}

static int read_header_line(rc__http_answer *a, const char *line, size_t n, const char **why)
{
	const char *colon = memchr(line, ':', n), *value, *end = line + n;

	if (!colon) {
		*why = "an answer header without a colon";
		return -1;
	}
	for (value = colon + 1; value < end && (*value == ' ' || *value == '\t'); value++)
		;
	if (name_is(line, (size_t)(colon - line), "Content-Length")) {
		a->length = 0;
		for (; value < end && *value >= '0' && *value <= '9' && a->length <= RC__HTTP_MAX_BODY; value++)
			a->length = a->length * 10 + (uint64_t)(*value - '0');
		if (a->length > RC__HTTP_MAX_BODY || (value < end && *value != ' ')) {
			*why = "an answer with a Content-Length that is no number or too large";
			return -1;
		}
		a->have_length = true;
	} else if (name_is(line, (size_t)(colon - line), "Transfer-Encoding")) {
		a->chunked = (size_t)(end - value) >= 7 && memmem(value, (size_t)(end - value), "chunked", 7);
	}
	return 1;
}

static int read_head(rc__http_answer *a, const char **why)
{
	const char *text = (const char *)a->in.p, *end = a->in.n ? memmem(text, a->in.n, "\r\n\r\n", 4) : NULL, *line;
	int status;

	if (!end) {
		if (a->in.n > RC__HTTP_MAX_HEAD) {
			*why = "an answer head that is too long";
			return -1;
		}
		return 0;
	}
	if (strncmp(text, "HTTP/1.", 7) != 0 || end - text < 12 || text[8] != ' ') {
		*why = "an answer that is not HTTP/1.x";
		return -1;
	}
	status = (text[9] - '0') * 100 + (text[10] - '0') * 10 + (text[11] - '0');
	if (status < 100 || status > 999) {
		*why = "an answer without a status number";
		return -1;
	}
	a->chunked = a->have_length = false;
	for (line = (const char *)memmem(text, (size_t)(end + 2 - text), "\r\n", 2) + 2; line < end;) {
		const char *line_end = memmem(line, (size_t)(end + 2 - line), "\r\n", 2);

		if (read_header_line(a, line, (size_t)(line_end - line), why) < 0)
			return -1;
		line = line_end + 2;
	}
	a->body_start = (size_t)(end + 4 - text);
	if (status < 200) { /* a provisional answer */
		memmove(a->in.p, a->in.p + a->body_start, a->in.n - a->body_start);
		a->in.n -= a->body_start;
		return read_head(a, why);
	}
	a->status = status;
	a->have_head = true;
	return 1;
}

/* Takes the complete chunks out of `in` into `body`. */
static int read_chunks(rc__http_answer *a, const char **why)
{
	for (;;) {
		const char *line = (const char *)a->in.p + a->body_start;
		size_t left = a->in.n - a->body_start, head;
		const char *line_end = left ? memmem(line, left, "\r\n", 2) : NULL;
		uint64_t n = 0;
		size_t i = 0;

		if (!line_end) {
			if (left <= 1024)
				return 0;
			*why = "a chunk size line that is too long";
			return -1;
		}
		for (; line + i < line_end && line[i] && strchr("0123456789abcdefABCDEF", line[i]) && n <= RC__HTTP_MAX_BODY; i++)
			n = n * 16 + (uint64_t)(line[i] <= '9' ? line[i] - '0' : (line[i] | 32) - 'a' + 10);
		if (n + a->body.n > RC__HTTP_MAX_BODY) {
			*why = "an answer body that is too large";
			return -1;
		}
		if (i == 0 || (line + i < line_end && line[i] != ';' && line[i] != ' ')) {
			*why = "a chunk without a size";
			return -1;
		}
		if (n == 0)
			return 1; /* trailers are of no interest */
		head = (size_t)(line_end + 2 - line);
		if (left < head + n + 2)
			return 0;
		rc_buf_add(&a->body, line + head, (size_t)n);
		a->body_start += head + (size_t)n + 2;
		if (a->body_start > KEEP_CONSUMED) { /* keep what waits small */
			memmove(a->in.p, a->in.p + a->body_start, a->in.n - a->body_start);
			a->in.n -= a->body_start;
			a->body_start = 0;
		}
	}
}

int rc__http_parse(rc__http_answer *a, bool at_end, const char **ret_why)
{
	int state = a->have_head ? 1 : read_head(a, ret_why);

	if (state > 0 && a->chunked) {
		state = read_chunks(a, ret_why);
		a->result = rc_view_of(a->body.p, a->body.n);
	} else if (state > 0) {
		size_t have = a->in.n - a->body_start;

		if (have > RC__HTTP_MAX_BODY) {
			*ret_why = "an answer body that is too large";
			return -1;
		}
		state = a->have_length ? have >= a->length : at_end;
		a->result = rc_view_of(a->in.p + a->body_start, a->have_length && have > a->length ? (size_t)a->length : have);
	}
	if (state == 0 && at_end) {
		*ret_why = a->in.n ? "the answer ends early" : "the peer closed the connection without an answer";
		return -1;
	}
	return state;
}

void rc__http_answer_free(rc__http_answer *a)
{
	rc_buf_free(&a->in);
	rc_buf_free(&a->body);
}
