#define _GNU_SOURCE
#include "raylet-c/agent/relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/list.h"

enum { MAX_RELAYS = 64, MAX_BUFFERED = 256 * 1024, PIECE = 64 * 1024, AGAIN_MS = 100, START_MS = 60 * 1000 };

typedef struct relay relay;

typedef struct side {
	relay *relay;
	int fd;
	rc_watch *watch;
	rc_buf out;     /* waits to be written here */
	bool ended;     /* nothing more comes from it */
	bool shut;      /* nothing more goes to it */
} side;

struct relay {
	rc_relays *owner;
	rc_link link;
	side sides[2]; /* the peer, the helper */
	uint64_t give_up_ms;
	rc_timer *timer;
};

struct rc_relays {
	rc_loop *loop;
	char *ip;
	int port;
	bool (*want)(void *ctx);
	void *ctx;
	rc_link relays;
	size_t n;
};

static void relay_free(relay *r)
{
	rc_timer_stop(r->timer);
	for (int i = 0; i < 2; i++) {
		rc_watch_stop(r->sides[i].watch);
		if (r->sides[i].fd >= 0)
			close(r->sides[i].fd);
		rc_buf_free(&r->sides[i].out);
	}
	rc_list_remove(&r->link);
	r->owner->n--;
	free(r);
}

/* ---- bytes both ways ---- */

static side *other(side *s)
{
	return &s->relay->sides[s == &s->relay->sides[0]];
}

static void set_events(side *s)
{
	bool room = other(s)->out.n < MAX_BUFFERED;
	rc_watch_events(s->watch, (s->ended || !room ? 0 : RC_READABLE) | (s->out.n ? RC_WRITABLE : 0));
}

/* False: the relay is over. */
static bool write_out(side *s)
{
	while (s->out.n) {
		ssize_t n = send(s->fd, s->out.p, s->out.n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		memmove(s->out.p, s->out.p + n, s->out.n - (size_t)n);
		s->out.n -= (size_t)n;
	}
	if (other(s)->ended && !s->shut) {
		shutdown(s->fd, SHUT_WR);
		s->shut = true;
	}
	return true;
}

static bool read_in(side *s)
{
	side *to = other(s);
	uint8_t *room = rc_buf_grow(&to->out, PIECE);
	ssize_t n = recv(s->fd, room, PIECE, MSG_DONTWAIT);
	int error = errno;
	to->out.n -= PIECE - (n > 0 ? (size_t)n : 0);
	if (n < 0)
		return error == EAGAIN || error == EINTR;
	if (n == 0)
		s->ended = true;
	return true;
}

static void on_side(void *arg, int events)
{
	side *s = arg;
	relay *r = s->relay;
	bool ok = true;
	if (events & RC_READABLE)
		ok = read_in(s);
	ok = ok && write_out(&r->sides[0]) && write_out(&r->sides[1]);
	if (!ok || (r->sides[0].shut && r->sides[1].shut)) {
		relay_free(r);
		return;
	}
	set_events(&r->sides[0]);
	set_events(&r->sides[1]);
}

/* ---- reaching the helper ---- */

static void refuse(relay *r, const char *text)
{
	char *answer = rc_sprintf("HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
	                          strlen(text), text);
	(void)!send(r->sides[0].fd, answer, strlen(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
	free(answer);
	relay_free(r);
}

static void try_connect(void *arg);

static void connected(void *arg, int events)
{
	side *s = arg;
	relay *r = s->relay;
	int error = 0;
	socklen_t n = sizeof(error);
	(void)events;
	rc_watch_stop(s->watch);
	s->watch = NULL;
	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error) {
		close(s->fd);
		s->fd = -1;
		r->timer = rc_timer_start(r->owner->loop, AGAIN_MS, 0, try_connect, r);
		return;
	}
	for (int i = 0; i < 2; i++)
		r->sides[i].watch = rc_watch_start(r->owner->loop, r->sides[i].fd, RC_READABLE, on_side, &r->sides[i]);
	on_side(&r->sides[0], 0);
}

static void try_connect(void *arg)
{
	relay *r = arg;
	rc_relays *o = r->owner;
	side *s = &r->sides[1];
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)o->port) };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)o->port) };
	bool is_v4 = inet_pton(AF_INET, o->ip, &v4.sin_addr) == 1;
	rc_timer_stop(r->timer);
	r->timer = NULL;
	if (!o->want(o->ctx) || rc_now_ms() > r->give_up_ms || (!is_v4 && inet_pton(AF_INET6, o->ip, &v6.sin6_addr) != 1)) {
		refuse(r, "the job agent of this node cannot be reached; its output is in raylet.out and raylet.err");
		return;
	}
	s->fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int code = s->fd < 0 ? -1 : is_v4 ? connect(s->fd, (struct sockaddr *)&v4, sizeof(v4)) : connect(s->fd, (struct sockaddr *)&v6, sizeof(v6));
	if (code == 0 || (s->fd >= 0 && errno == EINPROGRESS)) {
		s->watch = rc_watch_start(o->loop, s->fd, RC_WRITABLE, connected, s);
		return;
	}
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	r->timer = rc_timer_start(o->loop, AGAIN_MS, 0, try_connect, r);
}

void rc_relay(rc_relays *o, rc_http_call *call)
{
	if (o->n >= MAX_RELAYS) {
		rc_http_answer_text(call, 503, "%d requests for jobs are open already", MAX_RELAYS);
		return;
	}
	relay *r = rc_alloc(sizeof(*r));
	*r = (relay){ .owner = o, .give_up_ms = rc_now_ms() + START_MS, .sides = { { .relay = r, .fd = -1 }, { .relay = r, .fd = -1 } } };
	rc_list_append(&o->relays, &r->link);
	o->n++;
	r->sides[0].fd = rc_http_call_take(call, &r->sides[1].out);
	if (r->sides[0].fd < 0)
		relay_free(r);
	else
		try_connect(r);
}

/* ---- life ---- */

rc_relays *rc_relays_create(rc_loop *loop, const char *ip, int port, bool (*want)(void *ctx), void *ctx)
{
	rc_relays *o = rc_alloc(sizeof(*o));
	*o = (rc_relays){ .loop = loop, .ip = rc_strdup(ip), .port = port, .want = want, .ctx = ctx };
	rc_list_init(&o->relays);
	return o;
}

void rc_relays_destroy(rc_relays *o)
{
	if (!o)
		return;
	RC_LIST_FOREACH(l, &o->relays)
		relay_free(RC_CONTAINER(l, relay, link));
	free(o->ip);
	free(o);
}
