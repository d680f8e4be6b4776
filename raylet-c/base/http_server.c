/* See the header. A connection has at most one call at a time; what a peer sends ahead waits in its buffer (of at most one
 * head and one body), and then in the kernel.
 *
 * Life: a connection is freed when it is closed and nothing holds it: no call that is unanswered, no read on the pool. */
#define _GNU_SOURCE
#include "raylet-c/base/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/http_request.h"
#include "raylet-c/base/list.h"
#include "raylet-c/base/log.h"

enum { MAX_CONNECTIONS = 256, MAX_LISTENERS = 8, BACKLOG = 128, READ_ROOM = 16 * 1024, PIECE = 256 * 1024 };
enum { SWEEP_MS = 2000, REQUEST_MS = 30 * 1000, WRITE_MS = 60 * 1000, IDLE_MS = 75 * 1000 };

typedef struct listener {
	rc_http_server *server;
	int fd;
	rc_watch *watch;
} listener;

struct rc_http_server {
	rc_loop *loop;
	size_t max_body;
	rc_http_serve_fn serve;
	void *ctx;
	listener listeners[MAX_LISTENERS];
	size_t n_listeners;
	rc_link connections;
	size_t n_connections;
	rc_timer *sweep;
	bool told_full;
};

struct rc_http_call { /* one a connection: the connection itself */
	rc_http_server *server; /* NULL once closed */
	rc_link link;
	int fd;
	rc_watch *watch;
	rc__http_request request;
	bool with_user;         /* a call is unanswered */
	bool parsing, reading;  /* inside parse(); a piece of the file is read on the pool */
	bool last;              /* the connection ends with this answer */
	rc_buf out;
	size_t sent;
	int file;               /* -1: none */
	uint64_t file_left, file_at;
	uint8_t *piece;
	ssize_t piece_n;
	uint64_t deadline_ms;
};

static void parse(rc_http_call *c);

static int dup_cloexec(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/* ---- the end of a connection ---- */

static void let_go(rc_http_call *c)
{
	if (c->server || c->with_user || c->reading || c->parsing)
		return;
	if (c->file >= 0)
		close(c->file);
	rc__http_request_free(&c->request);
	rc_buf_free(&c->out);
	free(c->piece);
	free(c);
}

static void drop(rc_http_call *c)
{
	if (!c->server)
		return;
	rc_watch_stop(c->watch);
	close(c->fd);
	rc_list_remove(&c->link);
	c->server->n_connections--;
	c->server = NULL;
	let_go(c);
}

/* ---- writing ---- */

static void read_piece(void *arg)
{
	rc_http_call *c = arg;
	size_t n = c->file_left < PIECE ? (size_t)c->file_left : PIECE;
	c->piece_n = pread(c->file, c->piece, n, (off_t)c->file_at);
}

static void flush(rc_http_call *c);

static void have_piece(void *arg)
{
	rc_http_call *c = arg;
	c->reading = false;
	if (!c->server) {
		let_go(c);
		return;
	}
	if (c->piece_n <= 0) { /* shorter than it was said to be */
		drop(c);
		return;
	}
	rc_buf_add(&c->out, c->piece, (size_t)c->piece_n);
	c->file_at += (uint64_t)c->piece_n;
	c->file_left -= (uint64_t)c->piece_n;
	flush(c);
}

static void answer_is_out(rc_http_call *c)
{
	if (c->file >= 0)
		close(c->file);
	c->file = -1;
	if (c->last) {
		shutdown(c->fd, SHUT_WR);
		drop(c);
		return;
	}
	rc__http_request_next(&c->request);
	c->deadline_ms = rc_now_ms() + IDLE_MS;
	rc_watch_events(c->watch, RC_READABLE);
	parse(c);
}

static void flush(rc_http_call *c)
{
	while (c->sent < c->out.n) {
		ssize_t n = send(c->fd, c->out.p + c->sent, c->out.n - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			drop(c);
			return;
		}
		if (n < 0) {
			rc_watch_events(c->watch, RC_WRITABLE);
			return;
		}
		c->sent += (size_t)n;
		c->deadline_ms = rc_now_ms() + WRITE_MS;
	}
	rc_buf_free(&c->out);
	c->sent = 0;
	if (c->file >= 0 && c->file_left) {
		rc_watch_events(c->watch, 0);
		c->reading = true;
		rc_loop_work(c->server->loop, read_piece, have_piece, c);
	} else {
		answer_is_out(c);
	}
}

static const char *reason(int status)
{
	static const struct {
		int status;
		const char *text;
	} known[] = { { 200, "OK" }, { 302, "Found" }, { 400, "Bad Request" }, { 401, "Unauthorized" }, { 403, "Forbidden" }, { 404, "Not Found" },
		      { 405, "Method Not Allowed" }, { 413, "Payload Too Large" }, { 431, "Request Header Fields Too Large" },
		      { 500, "Internal Server Error" }, { 501, "Not Implemented" }, { 502, "Bad Gateway" }, { 503, "Service Unavailable" },
		      { 505, "HTTP Version Not Supported" } };
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].status == status)
			return known[i].text;
	return "Status";
}

static void begin_answer(rc_http_call *c, int status, const char *type, uint64_t length)
{
	c->with_user = false;
	if (!c->request.keep_alive)
		c->last = true;
	rc_buf_printf(&c->out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %llu\r\n%s\r\n", status, reason(status), type,
	              (unsigned long long)length, c->last ? "Connection: close\r\n" : "");
	c->deadline_ms = rc_now_ms() + WRITE_MS;
}

static bool wants_body(const rc_http_call *c)
{
	return !c->request.method || strcmp(c->request.method, "HEAD") != 0;
}

static void end_answer(rc_http_call *c)
{
	if (c->server)
		flush(c);
	else
		let_go(c);
}

void rc_http_answer(rc_http_call *c, int status, const char *type, rc_view body)
{
	begin_answer(c, status, type, body.n);
	if (wants_body(c))
		rc_buf_add(&c->out, body.p, body.n);
	end_answer(c);
}

void rc_http_answer_text(rc_http_call *c, int status, const char *format, ...)
{
	char text[2048];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	rc_http_answer(c, status, "text/plain; charset=utf-8", rc_view_str(text));
}

void rc_http_answer_file(rc_http_call *c, const char *type, int fd, uint64_t size)
{
	begin_answer(c, 200, type, size);
	if (wants_body(c)) {
		c->file = fd;
		c->file_left = size;
		c->file_at = 0;
		if (!c->piece)
			c->piece = rc_alloc(PIECE);
	} else {
		close(fd);
	}
	end_answer(c);
}

int rc_http_call_take(rc_http_call *c, rc_buf *ret_came)
{
	int fd = -1;
	*ret_came = (rc_buf){ 0 };
	if (c->server) {
		fd = dup_cloexec(c->fd);
		*ret_came = c->request.in;
		c->request.in = (rc_buf){ 0 };
	}
	c->with_user = false;
	if (c->server)
		drop(c); /* its descriptor; the connection lives by ours */
	else
		let_go(c);
	return fd;
}

/* ---- reading ---- */

static void refuse(rc_http_call *c, int status)
{
	c->last = true;
	c->with_user = true;
	rc_http_answer_text(c, status, "%d %s", status, reason(status));
}

static void parse(rc_http_call *c)
{
	if (c->parsing) /* an answer from within serve(): the loop below goes on */
		return;
	c->parsing = true;
	while (c->server && !c->with_user && !c->out.n && c->file < 0 && !c->reading) {
		bool had_head = c->request.head != NULL;
		int code = rc__http_request_parse(&c->request, c->server->max_body);
		if (code == 0) {
			if (!had_head && c->request.head && c->request.expect_continue) {
				static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
				(void)!send(c->fd, go_on, sizeof(go_on) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
			}
			break;
		}
		if (code != 1) {
			refuse(c, code);
			break;
		}
		c->with_user = true;
		rc_watch_events(c->watch, 0);
		c->server->serve(c->server->ctx, c);
	}
	c->parsing = false;
	let_go(c);
}

static void on_socket(void *arg, int events)
{
	rc_http_call *c = arg;
	if (c->out.n) {
		flush(c);
		return;
	}
	(void)events;
	bool idle = c->request.in.n == 0;
	uint8_t *to = rc_buf_grow(&c->request.in, READ_ROOM);
	ssize_t n = recv(c->fd, to, READ_ROOM, MSG_DONTWAIT);
	int error = errno;
	c->request.in.n -= READ_ROOM - (n > 0 ? (size_t)n : 0);
	if (n == 0 || (n < 0 && error != EAGAIN && error != EINTR)) {
		drop(c);
		return;
	}
	if (n > 0 && idle)
		c->deadline_ms = rc_now_ms() + REQUEST_MS;
	if (n > 0)
		parse(c);
}

/* ---- accepting ---- */

static void on_connection(void *arg, int events)
{
	listener *l = arg;
	rc_http_server *s = l->server;
	(void)events;
	int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), one = 1;
	if (fd < 0)
		return;
	if (s->n_connections >= MAX_CONNECTIONS) {
		if (!s->told_full)
			rc_warn("%d HTTP connections are open; further ones are closed", MAX_CONNECTIONS);
		s->told_full = true;
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	rc_http_call *c = rc_alloc(sizeof(*c));
	*c = (rc_http_call){ .server = s, .fd = fd, .file = -1, .deadline_ms = rc_now_ms() + REQUEST_MS };
	rc_list_append(&s->connections, &c->link);
	s->n_connections++;
	c->watch = rc_watch_start(s->loop, fd, RC_READABLE, on_socket, c);
}

static void sweep(void *arg)
{
	rc_http_server *s = arg;
	uint64_t now = rc_now_ms();
	RC_LIST_FOREACH(l, &s->connections) {
		rc_http_call *c = RC_CONTAINER(l, rc_http_call, link);
		if (now > c->deadline_ms && !c->with_user && !c->reading)
			drop(c);
	}
}

/* ---- life ---- */

rc_http_server *rc_http_server_create(rc_loop *loop, size_t max_body, rc_http_serve_fn serve, void *ctx)
{
	rc_http_server *s = rc_alloc(sizeof(*s));
	*s = (rc_http_server){ .loop = loop, .max_body = max_body, .serve = serve, .ctx = ctx };
	rc_list_init(&s->connections);
	s->sweep = rc_timer_start(loop, SWEEP_MS, SWEEP_MS, sweep, s);
	return s;
}

int rc_http_server_listen(rc_http_server *s, const char *ip, int port, rc_error *error)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	bool is_v4 = inet_pton(AF_INET, ip, &v4.sin_addr) == 1;
	struct sockaddr *address = is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	socklen_t size = is_v4 ? sizeof(v4) : sizeof(v6);
	int one = 1;
	if (s->n_listeners == MAX_LISTENERS || port < 0 || port > 65535 || (!is_v4 && inet_pton(AF_INET6, ip, &v6.sin6_addr) != 1))
		return rc_fail(error, RC_E_INVALID, "cannot listen on %s:%d: not an address, or one too many", ip, port);
	int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) || bind(fd, address, size) || listen(fd, BACKLOG) ||
	    getsockname(fd, address, &size)) {
		rc_fail_errno(error, "cannot listen on %s:%d", ip, port);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	listener *l = &s->listeners[s->n_listeners++];
	*l = (listener){ .server = s, .fd = fd };
	l->watch = rc_watch_start(s->loop, fd, RC_READABLE, on_connection, l);
	return ntohs(is_v4 ? v4.sin_port : v6.sin6_port);
}

void rc_http_server_destroy(rc_http_server *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_listeners; i++) {
		rc_watch_stop(s->listeners[i].watch);
		close(s->listeners[i].fd);
	}
	RC_LIST_FOREACH(l, &s->connections)
		drop(RC_CONTAINER(l, rc_http_call, link));
	rc_timer_stop(s->sweep);
	free(s);
}

/* ---- a call ---- */

const char *rc_http_call_method(const rc_http_call *c)
{
	return c->request.method;
}

const char *rc_http_call_path(const rc_http_call *c)
{
	return c->request.path;
}

const char *rc_http_call_query(const rc_http_call *c)
{
	return c->request.query;
}

const char *rc_http_call_header(const rc_http_call *c, const char *name)
{
	return rc__http_request_header(&c->request, name);
}

rc_view rc_http_call_body(const rc_http_call *c)
{
	return c->request.body;
}
