/* The framed unix-socket server. See conn.h.
 *
 * Reading: one growing buffer a connection, given back when it is empty; it grows with the bytes that came, not with the
 * length a peer claims. A frame whose body does not lie at a multiple of 8 is copied once.
 * What all connections hold of unfinished messages is limited too: who goes beyond is closed.
 * Writing: what the kernel does not take at once waits in one buffer. A descriptor belongs to one data byte (0x14, as a
 * stock node sends) at a known position of that buffer, so order is kept; a waiting descriptor is a duplicate.
 * Traps: a peer may say goodbye and close without reading what we sent. A failed write therefore does not end the
 * connection: the frames that it sent before are read first, and end of stream ends it. */
#define _GNU_SOURCE
#include "raylet-c/base/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "raylet-c/base/list.h"
#include "raylet-c/base/log.h"

#define COOKIE INT64_C(0x5241590000000000)

enum {
	HEADER = 24,
	READ_CHUNK = 64 * 1024,
	READS_A_WAKE_UP = 16,   /* so that one busy peer leaves room for the others */
	ACCEPTS_A_WAKE_UP = 64,
	KEEP_BUFFER = 16 * 1024,
	ACCEPT_PAUSE_MS = 100,
	MAX_HELD_FRAMES = 16, /* of the largest size: what all unfinished messages of a listener may hold */
	FD_BYTE = 0x14
};

typedef struct frame_header {
	int64_t cookie, type, length;
} frame_header;

typedef struct queued_fd {
	size_t at; /* position of its byte in out */
	int fd;    /* ours */
} queued_fd;

struct rc_listener {
	rc_loop *loop;
	int fd;
	rc_watch *watch;
	rc_timer *pause; /* while descriptors have run out */
	char *path;
	size_t max_frame;
	rc_conn_ops ops;
	void *ctx;
	rc_link conns;
	size_t refs; /* itself while open, and its connections */
	size_t held, queued; /* bytes of unfinished messages, and of output that waits, all connections together */
	bool open, told_full;
};

struct rc_conn {
	rc_link link;
	rc_listener *listener;
	int fd;
	rc_watch *watch;
	pid_t pid;
	void *user;
	rc_buf in, aligned, out;
	size_t in_start, out_start, held, queued; /* held, queued: counted in the listener's */
	queued_fd *fds;
	size_t n_fds, fds_start, cap_fds;
	bool write_broken;
	bool ended, reported; /* ended: no more frames; reported: the user has seen closed */
	char reason[160];
};

static void count_queued(rc_conn *c)
{
	size_t n = c->out.n - c->out_start;

	c->listener->queued += n - c->queued;
	c->queued = n;
}

static void listener_unref(rc_listener *l)
{
	if (--l->refs)
		return;
	free(l->path);
	free(l);
}

/* ---- end of a connection ---- */

static void free_conn(void *arg)
{
	rc_conn *c = arg;

	listener_unref(c->listener);
	free(c);
}

static void drop_output(rc_conn *c)
{
	for (size_t i = c->fds_start; i < c->n_fds; i++)
		close(c->fds[i].fd);
	free(c->fds);
	c->fds = NULL;
	c->n_fds = c->cap_fds = c->fds_start = 0;
	rc_buf_free(&c->out);
	c->out_start = 0;
	count_queued(c);
}

static void count_held(rc_conn *c, size_t n)
{
	c->listener->held += n - c->held;
	c->held = n;
}

static void release(rc_conn *c) /* what is not needed after the end; the struct lives until the loop is back */
{
	count_held(c, 0);
	rc_watch_stop(c->watch);
	c->watch = NULL;
	close(c->fd);
	c->fd = -1;
	drop_output(c);
}

static void report(rc_conn *c)
{
	rc_list_remove(&c->link);
	c->reported = true;
	c->listener->ops.closed(c->listener->ctx, c, c->reason);
}

static void report_closed(void *arg)
{
	rc_conn *c = arg;

	if (!c->reported)
		report(c);
	rc_buf_free(&c->in);
	rc_buf_free(&c->aligned);
	free_conn(c);
}

static void end_conn(rc_conn *c, const char *reason)
{
	if (c->ended)
		return;
	c->ended = true;
	snprintf(c->reason, sizeof c->reason, "%s", reason);
	release(c);
	rc_loop_post(c->listener->loop, report_closed, c);
}

/* ---- writing ---- */

static void watch_events(rc_conn *c)
{
	count_queued(c);
	rc_watch_events(c->watch, RC_READABLE | (c->out.n > c->out_start ? RC_WRITABLE : 0));
}

static ssize_t send_some(int fd, struct iovec *iov, size_t n_iov, const int *pass)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr message = { .msg_iov = iov, .msg_iovlen = n_iov };
	ssize_t n;

	if (pass) {
		struct cmsghdr *header;

		message.msg_control = control.bytes;
		message.msg_controllen = sizeof control.bytes;
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), pass, sizeof(int));
	}
	do
		n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n;
}

/* True when n is the result of a send that failed for good. */
static bool write_failed(rc_conn *c, ssize_t n)
{
	if (n >= 0 || errno == EAGAIN || errno == EWOULDBLOCK)
		return false;
	c->write_broken = true;
	drop_output(c);
	return true;
}

static void flush(rc_conn *c)
{
	while (c->out_start < c->out.n) {
		queued_fd *next = c->fds_start < c->n_fds ? &c->fds[c->fds_start] : NULL;
		bool pass = next && next->at == c->out_start;
		size_t until = pass ? c->out_start + 1 : next ? next->at : c->out.n;
		struct iovec iov = { c->out.p + c->out_start, until - c->out_start };
		ssize_t n = send_some(c->fd, &iov, 1, pass ? &next->fd : NULL);

		if (write_failed(c, n))
			return;
		if (n < 0) {
			count_queued(c);
			return;
		}
		c->out_start += (size_t)n;
		if (pass && n == 1) {
			close(next->fd);
			c->fds_start++;
		}
	}
	drop_output(c);
}

static rc_conn *slowest(const rc_listener *l)
{
	rc_conn *worst = NULL;

	RC_LIST_FOREACH (link, &l->conns) {
		rc_conn *c = RC_CONTAINER(link, rc_conn, link);

		if (!worst || c->queued > worst->queued)
			worst = c;
	}
	return worst;
}

static bool queue_has_room(rc_conn *c, size_t n)
{
	rc_listener *l = c->listener;

	if (c->queued + n > RC_CONN_MAX_QUEUED) {
		rc_warn("%s: process %d does not read: %zu bytes wait for it; connection closed", l->path, (int)c->pid, c->queued);
		end_conn(c, "the peer does not read: too many bytes are waiting for it");
	}
	while (!c->ended && l->queued + n > RC_CONN_MAX_QUEUED_ALL) {
		rc_conn *worst = slowest(l);

		rc_warn("%s: %zu bytes wait for all processes together, most of them, %zu, for process %d, which does not read; connection closed", l->path,
		        l->queued, worst->queued, (int)worst->pid);
		end_conn(worst, "the peer does not read: too many bytes are waiting for all peers together");
	}
	return !c->ended;
}

/* Room at the end: bytes that were sent are dropped first when they are most of the buffer. */
static void compact_output(rc_conn *c)
{
	if (c->out_start < c->out.n / 2 || c->out_start == 0)
		return;
	memmove(c->out.p, c->out.p + c->out_start, c->out.n - c->out_start);
	c->out.n -= c->out_start;
	c->n_fds -= c->fds_start;
	for (size_t i = 0; i < c->n_fds; i++)
		c->fds[i] = (queued_fd){ c->fds[i + c->fds_start].at - c->out_start, c->fds[i + c->fds_start].fd };
	c->fds_start = c->out_start = 0;
}

void rc_conn_send(rc_conn *c, int64_t type, const void *body, size_t n)
{
	frame_header header = { COOKIE, type, (int64_t)n };
	struct iovec iov[2] = { { &header, sizeof header }, { (void *)body, n } };
	size_t sent = 0;

	if (c->ended || c->write_broken)
		return;
	if (c->out.n == c->out_start) {
		ssize_t done = send_some(c->fd, iov, n ? 2 : 1, NULL);

		if (write_failed(c, done))
			return;
		sent = done > 0 ? (size_t)done : 0;
		if (sent == HEADER + n)
			return;
	}
	if (!queue_has_room(c, HEADER + n - sent))
		return;
	compact_output(c);
	if (sent < HEADER) {
		rc_buf_add(&c->out, (uint8_t *)&header + sent, HEADER - sent);
		sent = HEADER;
	}
	rc_buf_add(&c->out, (const uint8_t *)body + (sent - HEADER), HEADER + n - sent);
	watch_events(c);
}

void rc_conn_send_fd(rc_conn *c, int fd)
{
	uint8_t byte = FD_BYTE;
	struct iovec iov = { &byte, 1 };
	int copy;

	if (c->ended || c->write_broken)
		return;
	if (c->out.n == c->out_start) {
		ssize_t done = send_some(c->fd, &iov, 1, &fd);

		if (write_failed(c, done) || done == 1)
			return;
	}
	if (!queue_has_room(c, 1))
		return;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0) {
		rc_error_log("cannot keep descriptor %d for a client: %m", fd);
		end_conn(c, "no descriptor left to pass the segment");
		return;
	}
	compact_output(c);
	if (c->n_fds == c->cap_fds) {
		c->cap_fds = c->cap_fds ? c->cap_fds * 2 : 4;
		c->fds = rc_realloc(c->fds, c->cap_fds * sizeof *c->fds);
	}
	c->fds[c->n_fds++] = (queued_fd){ c->out.n, copy };
	rc_buf_add(&c->out, &byte, 1);
	watch_events(c);
}

void rc_conn_close(rc_conn *c, const char *reason)
{
	if (c->ended)
		return;
	flush(c);
	end_conn(c, reason);
}

/* ---- reading ---- */

/* Ends a connection whose peer broke the rules of the frames. */
static void refuse(rc_conn *c, const char *text)
{
	rc_warn("%s: process %d sent %s; connection closed", c->listener->path, (int)c->pid, text);
	rc_conn_close(c, text);
}

/* Handles the frames that are complete in the buffer. */
static void take_frames(rc_conn *c)
{
	rc_listener *l = c->listener;

	while (!c->ended && c->in.n - c->in_start >= HEADER) {
		frame_header header;
		const uint8_t *body = c->in.p + c->in_start + HEADER;
		char text[160];
		size_t n;

		memcpy(&header, c->in.p + c->in_start, HEADER);
		if (header.cookie != COOKIE) {
			snprintf(text, sizeof text, "bad cookie 0x%016llx in a frame header", (unsigned long long)header.cookie);
			refuse(c, text);
			return;
		}
		if (header.length < 0 || (uint64_t)header.length > l->max_frame) {
			snprintf(text, sizeof text, "message type %lld of %lld bytes: at most %zu are allowed", (long long)header.type,
			         (long long)header.length, l->max_frame);
			refuse(c, text);
			return;
		}
		n = (size_t)header.length;
		if (c->in.n - c->in_start - HEADER < n)
			return;
		if ((uintptr_t)body % 8) {
			c->aligned.n = 0;
			rc_buf_add(&c->aligned, body, n);
			body = n ? c->aligned.p : (const uint8_t *)&header;
		}
		c->in_start += HEADER + n;
		l->ops.frame(l->ctx, c, header.type, body, n);
	}
}

static void tidy_input(rc_conn *c)
{
	if (c->in_start) {
		c->in.n -= c->in_start;
		memmove(c->in.p, c->in.p + c->in_start, c->in.n);
		c->in_start = 0;
	}
	if (c->in.n == 0 && c->in.cap > KEEP_BUFFER)
		rc_buf_free(&c->in);
	if (c->aligned.cap > KEEP_BUFFER)
		rc_buf_free(&c->aligned);
}

static void read_frames(rc_conn *c)
{
	for (int i = 0; i < READS_A_WAKE_UP && !c->ended; i++) {
		size_t room = c->in.cap - c->in.n > 4096 ? c->in.cap - c->in.n : c->in.n < KEEP_BUFFER ? 8192 : READ_CHUNK;
		uint8_t *to = rc_buf_grow(&c->in, room);
		ssize_t n = recv(c->fd, to, room, MSG_DONTWAIT);
		int error = errno;

		c->in.n -= room - (n > 0 ? (size_t)n : 0);
		if (n > 0) {
			take_frames(c);
			if (c->ended)
				return;
			tidy_input(c);
			count_held(c, c->in.n);
			if (c->listener->held > MAX_HELD_FRAMES * c->listener->max_frame) {
				refuse(c, "a part of a message, and all such parts together are too large");
				return;
			}
			if ((size_t)n < room)
				return;
		} else if (n == 0 || error == ECONNRESET) {
			end_conn(c, c->in.n ? "end of stream inside a message" : "end of stream");
		} else if (error == EAGAIN || error == EWOULDBLOCK) {
			return;
		} else if (error != EINTR) {
			char text[160];

			snprintf(text, sizeof text, "reading failed: %s", strerror(error));
			end_conn(c, text);
		}
	}
}

static void on_conn(void *arg, int events)
{
	rc_conn *c = arg;

	if (events & RC_WRITABLE && c->out.n > c->out_start)
		flush(c);
	if (events & RC_READABLE)
		read_frames(c);
	if (!c->ended)
		watch_events(c);
}

/* ---- listening ---- */

static void accept_again(void *arg)
{
	rc_listener *l = arg;

	rc_timer_stop(l->pause);
	l->pause = NULL;
	rc_watch_events(l->watch, RC_READABLE);
}

static void on_listener(void *arg, int events)
{
	rc_listener *l = arg;

	(void)events;
	l->refs++; /* an accepted callback may destroy the listener */
	for (int i = 0; i < ACCEPTS_A_WAKE_UP && l->open; i++) {
		struct ucred peer = { 0 };
		socklen_t n = sizeof peer;
		rc_conn *c;
		int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0) {
			if (errno != EAGAIN && errno != EWOULDBLOCK) { /* descriptors or memory ran out: it would fail at once again */
				if (!l->told_full)
					rc_error_log("cannot accept a connection on %s: %m; it is tried again, those that wait are served later", l->path);
				l->told_full = true;
				rc_watch_events(l->watch, 0);
				l->pause = rc_timer_start(l->loop, ACCEPT_PAUSE_MS, 0, accept_again, l);
			} else {
				l->told_full = false; /* all that waited are served */
			}
			break;
		}
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
			peer.pid = 0;
		c = rc_alloc(sizeof *c);
		c->listener = l;
		c->fd = fd;
		c->pid = peer.pid;
		rc_list_append(&l->conns, &c->link);
		l->refs++;
		c->watch = rc_watch_start(l->loop, fd, RC_READABLE, on_conn, c);
		if (l->ops.accepted)
			l->ops.accepted(l->ctx, c);
	}
	listener_unref(l);
}

rc_listener *rc_listener_create(rc_loop *loop, const char *path, size_t max_frame, const rc_conn_ops *ops, void *ctx, rc_error *error)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	rc_listener *l;
	int fd;

	if (strlen(path) >= sizeof address.sun_path) {
		rc_fail(error, RC_E_INVALID, "socket path %s has %zu bytes, at most %zu are possible", path, strlen(path),
		        sizeof address.sun_path - 1);
		return NULL;
	}
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		rc_fail_errno(error, "cannot make a unix socket for %s", path);
		return NULL;
	}
	if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		rc_fail_errno(error, "cannot bind the socket %s", path);
		close(fd);
		return NULL;
	}
	if (chmod(path, 0755) < 0 || listen(fd, 1024) < 0) {
		rc_fail_errno(error, "cannot listen on the socket %s", path);
		unlink(path);
		close(fd);
		return NULL;
	}
	l = rc_alloc(sizeof *l);
	*l = (rc_listener){ .loop = loop, .fd = fd, .path = rc_strdup(path), .max_frame = max_frame, .ops = *ops, .ctx = ctx };
	l->refs = 1;
	l->open = true;
	rc_list_init(&l->conns);
	l->watch = rc_watch_start(loop, fd, RC_READABLE, on_listener, l);
	return l;
}

void rc_listener_destroy(rc_listener *l, bool unlink_path)
{
	if (!l)
		return;
	rc_timer_stop(l->pause);
	rc_watch_stop(l->watch);
	close(l->fd);
	if (unlink_path)
		unlink(l->path);
	l->open = false;
	while (!rc_list_empty(&l->conns)) {
		rc_conn *c = RC_CONTAINER(l->conns.next, rc_conn, link);

		rc_conn_close(c, "the node is shutting down");
		report(c); /* what is posted only frees now */
	}
	listener_unref(l);
}

void rc_conn_set_user(rc_conn *c, void *user)
{
	c->user = user;
}

void *rc_conn_user(const rc_conn *c)
{
	return c->user;
}

pid_t rc_conn_peer_pid(const rc_conn *c)
{
	return c->pid;
}
