/* See the header. The head is copied once and cut into strings in place. */
#define _GNU_SOURCE
#include "raylet-c/base/http_request.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MORE = 0, COMPLETE = 1, BAD = 400, TOO_LARGE = 413, HEAD_TOO_LARGE = 431, NOT_SERVED = 501, VERSION = 505 };

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place. False: malformed, or a NUL. */
static bool percent_decode(char *text)
{
	char *to = text;
	for (const char *from = text; *from; from++) {
		char c = *from;
		if (c == '%') {
			int high = hex_digit(from[1]), low = high < 0 ? -1 : hex_digit(from[2]);
			if (low < 0 || (high | low) == 0)
				return false;
			c = (char)(high << 4 | low);
			from += 2;
		}
		*to++ = c;
	}
	*to = '\0';
	return true;
}

static bool is_token(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("!#$%&'*+-.^_`|~", *s))
			return false;
	return true;
}

/* "METHOD target HTTP/1.x" */
static int cut_request_line(rc__http_request *r, char *line)
{
	char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
	if (!version || strchr(version + 1, ' '))
		return BAD;
	*target++ = *version++ = '\0';
	if (strncmp(version, "HTTP/1.", 7) != 0 || !version[7] || version[8])
		return VERSION;
	r->keep_alive = version[7] != '0';
	if (!strncmp(target, "http://", 7)) /* the form for proxies: allowed, the host does not matter */
		target = strchrnul(target + 7, '/');
	if (*target != '/' || !is_token(line))
		return BAD;
	char *query = strchr(target, '?');
	if (query)
		*query++ = '\0';
	char *fragment = strchr(query ? query : target, '#');
	if (fragment)
		*fragment = '\0';
	if (!percent_decode(target))
		return BAD;
	r->method = line;
	r->path = target;
	r->query = query ? query : "";
	return MORE;
}

/* "Name: value", into a name in lower case and the value without blanks around it; *ret_value is its start. */
static int cut_header(char *line, char **ret_value)
{
	char *colon = strchr(line, ':');
	if (!colon)
		return BAD;
	*colon = '\0';
	if (!is_token(line))
		return BAD;
	for (char *p = line; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	char *value = colon + 1, *end;
	while (*value == ' ' || *value == '\t')
		*value++ = '\0';
	for (end = value + strlen(value); end > value && (end[-1] == ' ' || end[-1] == '\t');)
		*--end = '\0';
	*ret_value = value;
	return MORE;
}

static int set_length(rc__http_request *r, const char *value, bool *have)
{
	char *end;
	if (!isdigit((unsigned char)*value))
		return BAD;
	unsigned long long n = strtoull(value, &end, 10);
	if (*end || n > SIZE_MAX / 2 || (*have && n != r->body_length))
		return BAD;
	*have = true;
	r->body_length = (size_t)n;
	return MORE;
}

static int note_header(rc__http_request *r, const char *name, const char *value, bool *have_length)
{
	if (!strcmp(name, "content-length"))
		return set_length(r, value, have_length);
	if (!strcmp(name, "transfer-encoding"))
		return NOT_SERVED;
	if (!strcmp(name, "connection")) {
		if (strcasestr(value, "close"))
			r->keep_alive = false;
		else if (strcasestr(value, "keep-alive"))
			r->keep_alive = true;
	} else if (!strcmp(name, "expect")) {
		if (strcasecmp(value, "100-continue") != 0)
			return BAD;
		r->expect_continue = true;
	}
	return MORE;
}

static int cut_head(rc__http_request *r, size_t n)
{
	bool have_length = false, first = true;
	for (char *line = r->head, *next; line < r->head + n; line = next) {
		char *end = memchr(line, '\n', (size_t)(r->head + n - line)), *value = NULL;
		if (!end)
			end = r->head + n;
		next = end + 1;
		if (end > line && end[-1] == '\r')
			*--end = '\0';
		*end = '\0';
		int code = first ? cut_request_line(r, line) : *line == ' ' || *line == '\t' ? BAD : cut_header(line, &value);
		if (code == MORE && !first && r->n_headers == RC__HTTP_MAX_HEADERS)
			code = HEAD_TOO_LARGE;
		else if (code == MORE && !first)
			code = note_header(r, line, value, &have_length);
		if (code != MORE)
			return code;
		if (!first) {
			r->headers[r->n_headers].name = line;
			r->headers[r->n_headers++].value = value;
		}
		first = false;
	}
	return MORE;
}

/* The end of the head in `in`: behind its empty line. 0: not there yet. */
static size_t find_head_end(const rc_buf *in)
{
	for (size_t i = 0; i < in->n && i < RC__HTTP_MAX_REQUEST_HEAD; i++) {
		if (in->p[i] != '\n')
			continue;
		if (i + 1 < in->n && in->p[i + 1] == '\n')
			return i + 2;
		if (i + 2 < in->n && in->p[i + 1] == '\r' && in->p[i + 2] == '\n')
			return i + 3;
	}
	return 0;
}

int rc__http_request_parse(rc__http_request *r, size_t max_body)
{
	if (!r->head) {
		size_t skip = 0; /* empty lines before a request are allowed */
		while (skip < r->in.n && (r->in.p[skip] == '\r' || r->in.p[skip] == '\n'))
			skip++;
		memmove(r->in.p, r->in.p + skip, r->in.n - skip);
		r->in.n -= skip;
		size_t end = find_head_end(&r->in);
		if (!end)
			return r->in.n >= RC__HTTP_MAX_REQUEST_HEAD ? HEAD_TOO_LARGE : MORE;
		r->head = rc_strndup(r->in.p, end);
		r->body_start = end;
		while (end && (r->head[end - 1] == '\n' || r->head[end - 1] == '\r'))
			end--;
		r->head[end] = '\0';
		int code = memchr(r->in.p, '\0', end) ? BAD : cut_head(r, end);
		if (code != MORE)
			return code;
	}
	if (r->body_length > max_body)
		return TOO_LARGE;
	if (r->in.n - r->body_start < r->body_length)
		return MORE;
	r->body = rc_view_of(r->in.p + r->body_start, r->body_length);
	r->consumed = r->body_start + r->body_length;
	return COMPLETE;
}

const char *rc__http_request_header(const rc__http_request *r, const char *name)
{
	for (size_t i = 0; i < r->n_headers; i++)
		if (!strcmp(r->headers[i].name, name))
			return r->headers[i].value;
	return NULL;
}

void rc__http_request_next(rc__http_request *r)
{
	rc_buf in = r->in;
	size_t consumed = r->consumed;
	free(r->head);
	memmove(in.p, in.p + consumed, in.n - consumed);
	in.n -= consumed;
	*r = (rc__http_request){ .in = in };
}

void rc__http_request_free(rc__http_request *r)
{
	free(r->head);
	rc_buf_free(&r->in);
	*r = (rc__http_request){ 0 };
}
