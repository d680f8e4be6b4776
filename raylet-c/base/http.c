/* A minimal HTTP/1.1 client: POST, one connection a request. See http.h.
 *
 * Every way out goes through finish(), which calls back exactly once, from the loop. The parser is http_answer.c. */
#define _GNU_SOURCE
#include "raylet-c/base/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/http_answer.h"

enum { READ_ROOM = 16 * 1024 };

typedef struct request {
	rc_loop *loop;
	char *peer; /* "ip:port/path" for texts */
	int fd;
	rc_watch *watch;
	rc_timer *timer;
	rc_buf out;
	size_t sent;
	rc__http_answer answer;
	rc_http_fn fn;
	void *arg;
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
	rc__http_answer_free(&r->answer);
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
		uint8_t *to = rc_buf_grow(&r->answer.in, READ_ROOM);
		ssize_t n = recv(r->fd, to, READ_ROOM, MSG_DONTWAIT);
		int error = errno, state;
		const char *why;

		r->answer.in.n -= READ_ROOM - (n > 0 ? (size_t)n : 0);
		if (n < 0 && error == EINTR)
			continue;
		if (n < 0 && (error == EAGAIN || error == ENOTCONN))
			return;
		if (n < 0) {
			fail_errno(r, "cannot connect or read", error);
			return;
		}
		state = rc__http_parse(&r->answer, n == 0, &why);
		if (state > 0)
			finish(r, r->answer.status, r->answer.result, "");
		else if (state < 0)
			fail(r, why);
		if (state)
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

void rc_http_post(rc_loop *loop, const char *ip, int port, const char *path, const char *headers, rc_view body, uint64_t timeout_ms,
                  rc_http_fn fn, void *arg)
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
	rc_buf_printf(&r->out, "\r\nConnection: close\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n%s\r\n", body.n,
	              headers);
	rc_buf_add(&r->out, body.p, body.n);
	r->watch = rc_watch_start(loop, r->fd, RC_READABLE | RC_WRITABLE, on_socket, r);
	if (timeout_ms)
		r->timer = rc_timer_start(loop, timeout_ms, 0, on_timeout, r);
}
