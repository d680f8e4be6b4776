/* A minimal HTTP/1.1 client: POST, one connection a request. See http.h.
 *
 * The answer ends by Content-Length, by the last chunk, or by end of stream. Head and body are limited; 1xx answers are
 * skipped. Every way out goes through finish(), which calls back exactly once, from the loop. */
#define _GNU_SOURCE
#include "raylet-c/base/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_HEAD = 64 * 1024, MAX_BODY = 64 << 20, READ_ROOM = 16 * 1024 };

typedef struct request {
	rc_loop *loop;
	char *peer; /* "ip:port/path" for texts */
	int fd;
	rc_watch *watch;
	rc_timer *timer;
	rc_buf out, in;
	size_t sent;
	rc_http_fn fn;
	void *arg;
	/* the answer's head, once it is complete */
	bool have_head, chunked, have_length;
	int status;
	size_t body_start;
	uint64_t length;
	rc_buf body; /* of a chunked answer */
	char failure[200];
} request;

static void finish(request *r, int status, rc_view body, const char *text)
{
	rc_watch_stop(r->watch);
	rc_timer_stop(r->timer);
	if (r->fd >= 0)
		close(r->fd);
	r->fn(r->arg, status, body, text);
	rc_buf_free(&r->out);
	rc_buf_free(&r->in);
	rc_buf_free(&r->body);
	free(r->peer);
	free(r);
}

static void fail(request *r, const char *why)
{
	char text[300];

	snprintf(text, sizeof text, "http://%s: %s", r->peer, why);
	finish(r, -1, (rc_view){ 0 }, text);
}

static void fail_errno(request *r, const char *what, int error)
{
	char why[160];

	snprintf(why, sizeof why, "%s: %s", what, strerror(error));
	fail(r, why);
}

static void on_timeout(void *arg)
{
	request *r = arg;

	fail(r, r->sent < r->out.n ? "no connection in time" : "no answer in time");
}

/* ---- parsing: each step returns 1 done, 0 needs more, -1 malformed (with *why) ---- */

static bool name_is(const char *line, size_t n, const char *name)
{
	return n == strlen(name) && strncasecmp(line, name, n) == 0;
}

static int read_header_line(request *r, const char *line, size_t n, const char **why)
{
	const char *colon = memchr(line, ':', n), *value, *end = line + n;

	if (!colon) {
		*why = "an answer header without a colon";
		return -1;
	}
	for (value = colon + 1; value < end && (*value == ' ' || *value == '\t'); value++)
		;
	if (name_is(line, (size_t)(colon - line), "Content-Length")) {
		r->length = 0;
		for (; value < end && *value >= '0' && *value <= '9' && r->length <= MAX_BODY; value++)
			r->length = r->length * 10 + (uint64_t)(*value - '0');
		if (r->length > MAX_BODY || (value < end && *value != ' ')) {
			*why = "an answer with a Content-Length that is no number or too large";
			return -1;
		}
		r->have_length = true;
	} else if (name_is(line, (size_t)(colon - line), "Transfer-Encoding")) {
		r->chunked = (size_t)(end - value) >= 7 && memmem(value, (size_t)(end - value), "chunked", 7);
	}
	return 1;
}

static int read_head(request *r, const char **why)
{
	const char *text = (const char *)r->in.p, *end = r->in.n ? memmem(text, r->in.n, "\r\n\r\n", 4) : NULL, *line;
	int status;

	if (!end) {
		if (r->in.n > MAX_HEAD) {
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
	r->chunked = r->have_length = false;
	for (line = (const char *)memmem(text, (size_t)(end + 2 - text), "\r\n", 2) + 2; line < end;) {
		const char *line_end = memmem(line, (size_t)(end + 2 - line), "\r\n", 2);

		if (read_header_line(r, line, (size_t)(line_end - line), why) < 0)
			return -1;
		line = line_end + 2;
	}
	r->body_start = (size_t)(end + 4 - text);
	if (status < 200) { /* a provisional answer */
		memmove(r->in.p, r->in.p + r->body_start, r->in.n - r->body_start);
		r->in.n -= r->body_start;
		return read_head(r, why);
	}
	r->status = status;
	r->have_head = true;
	return 1;
}

/* Takes the complete chunks out of `in` into `body`. */
static int read_chunks(request *r, const char **why)
{
	for (;;) {
		const char *line = (const char *)r->in.p + r->body_start;
		size_t left = r->in.n - r->body_start, head;
		const char *line_end = left ? memmem(line, left, "\r\n", 2) : NULL;
		uint64_t n = 0;
		size_t i = 0;

		if (!line_end) {
			if (left <= 1024)
				return 0;
			*why = "a chunk size line that is too long";
			return -1;
		}
		for (; line + i < line_end && strchr("0123456789abcdefABCDEF", line[i]) && n <= MAX_BODY; i++)
			n = n * 16 + (uint64_t)(line[i] <= '9' ? line[i] - '0' : (line[i] | 32) - 'a' + 10);
		if (n + r->body.n > MAX_BODY) {
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
		rc_buf_add(&r->body, line + head, (size_t)n);
		r->body_start += head + (size_t)n + 2;
		if (r->body_start > READ_ROOM * 4) { /* keep what waits small */
			memmove(r->in.p, r->in.p + r->body_start, r->in.n - r->body_start);
			r->in.n -= r->body_start;
			r->body_start = 0;
		}
	}
}

/* True when the request is over (and r gone). */
static bool parse(request *r, bool at_end)
{
	const char *why = "the answer ends early";
	rc_view body;
	int state = r->have_head ? 1 : read_head(r, &why);

	if (state > 0 && r->chunked) {
		state = read_chunks(r, &why);
		body = rc_view_of(r->body.p, r->body.n);
	} else if (state > 0) {
		size_t have = r->in.n - r->body_start;

		if (have > MAX_BODY) {
			why = "an answer body that is too large";
			state = -1;
		} else if (r->have_length) {
			state = have >= r->length;
		} else {
			state = at_end;
		}
		body = rc_view_of(r->in.p + r->body_start, r->have_length && have > r->length ? (size_t)r->length : have);
	}
	if (state > 0)
		finish(r, r->status, body, "");
	else if (state < 0 || at_end)
		fail(r, r->in.n || state < 0 ? why : "the peer closed the connection without an answer");
	else
		return false;
	return true;
}

/* ---- socket ---- */

static void on_socket(void *arg, int events)
{
	request *r = arg;

	if (events & RC_WRITABLE && r->sent < r->out.n) {
		ssize_t n = send(r->fd, r->out.p + r->sent, r->out.n - r->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			fail_errno(r, "cannot connect or send", errno); /* a failed connect gives its own reason here */
			return;
		}
		r->sent += n > 0 ? (size_t)n : 0;
		if (r->sent == r->out.n)
			rc_watch_events(r->watch, RC_READABLE);
	}
	if (!(events & RC_READABLE))
		return;
	for (;;) {
		uint8_t *to = rc_buf_grow(&r->in, READ_ROOM);
		ssize_t n = recv(r->fd, to, READ_ROOM, MSG_DONTWAIT);
		int error = errno;

		r->in.n -= READ_ROOM - (n > 0 ? (size_t)n : 0);
		if (n < 0 && error == EINTR)
			continue;
		if (n < 0 && (error == EAGAIN || error == ENOTCONN))
			return;
		if (n < 0) {
			fail_errno(r, "cannot connect or read", error);
			return;
		}
		if (parse(r, n == 0))
			return;
	}
}

static void fail_later(void *arg)
{
	request *r = arg;

	fail(r, r->failure);
}

static int open_socket(const char *ip, int port, char *why, size_t n)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	bool is_v4 = inet_pton(AF_INET, ip, &v4.sin_addr) == 1;
	int fd, status;

	if (port <= 0 || port > 65535 || (!is_v4 && inet_pton(AF_INET6, ip, &v6.sin6_addr) != 1)) {
		snprintf(why, n, "not an address");
		return -1;
	}
	fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		snprintf(why, n, "no socket: %s", strerror(errno));
		return -1;
	}
	status = is_v4 ? connect(fd, (struct sockaddr *)&v4, sizeof v4) : connect(fd, (struct sockaddr *)&v6, sizeof v6);
	if (status < 0 && errno != EINPROGRESS) {
		snprintf(why, n, "cannot connect: %s", strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
}

void rc_http_post(rc_loop *loop, const char *ip, int port, const char *path, const char *headers, rc_view body, uint64_t timeout_ms, rc_http_fn fn,
                  void *arg)
{
	request *r = rc_alloc(sizeof *r);
	bool v6 = strchr(ip, ':') != NULL;

	*r = (request){ .loop = loop, .fn = fn, .arg = arg };
	r->peer = rc_sprintf(v6 ? "[%s]:%d%s" : "%s:%d%s", ip, port, path);
	r->fd = open_socket(ip, port, r->failure, sizeof r->failure);
	if (r->fd < 0) {
		rc_loop_post(loop, fail_later, r);
		return;
	}
	rc_buf_printf(&r->out, "POST %s HTTP/1.1\r\nHost: ", path);
	rc_buf_printf(&r->out, v6 ? "[%s]:%d" : "%s:%d", ip, port);
	rc_buf_printf(&r->out, "\r\nConnection: close\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n%s\r\n", body.n, headers);
	rc_buf_add(&r->out, body.p, body.n);
	r->watch = rc_watch_start(loop, r->fd, RC_READABLE | RC_WRITABLE, on_socket, r);
	if (timeout_ms)
		r->timer = rc_timer_start(loop, timeout_ms, 0, on_timeout, r);
}
