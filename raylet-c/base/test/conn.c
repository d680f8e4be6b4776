/* The framed socket server, talked to by blocking clients on the same thread between turns of the loop, or on another. */
#include "raylet-c/base/conn.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static rc_loop *loop;
static rc_listener *listener;
static char folder[] = "/tmp/rc_conn_XXXXXX", path[64];
static int accepted, frames, closed, stop_after_closed;
static rc_conn *conns[64], *last_closed; /* in the order in which they came */
static char reason[200];
static int64_t types[64], sizes[64];
static bool aligned = true;
static void (*on_frame)(rc_conn *c, int64_t type, const uint8_t *body, size_t n);

static void op_accepted(void *ctx, rc_conn *c)
{
	(void)ctx;
	conns[accepted++ % 64] = c;
	rc_conn_set_user(c, &accepted);
	CHECK_EQ_INT(getpid(), rc_conn_peer_pid(c));
}

static void op_frame(void *ctx, rc_conn *c, int64_t type, const uint8_t *body, size_t n)
{
	(void)ctx;
	CHECK(rc_conn_user(c) == &accepted);
	aligned &= (uintptr_t)body % 8 == 0;
	types[frames % 64] = type;
	sizes[frames++ % 64] = (int64_t)n;
	if (on_frame)
		on_frame(c, type, body, n);
}

static void op_closed(void *ctx, rc_conn *c, const char *why)
{
	(void)ctx;
	CHECK(rc_conn_user(c) == &accepted);
	snprintf(reason, sizeof reason, "%s", why);
	last_closed = c;
	if (++closed == stop_after_closed)
		rc_loop_stop(loop);
}

static void begin(size_t max_frame)
{
	static const rc_conn_ops ops = { op_accepted, op_frame, op_closed };
	rc_error e = { 0 };

	accepted = frames = closed = 0;
	stop_after_closed = 1;
	on_frame = NULL;
	reason[0] = 0;
	loop = rc_loop_create();
	listener = rc_listener_create(loop, path, max_frame, &ops, NULL, &e);
	CHECK_STR("", e.text);
}

static void end(void)
{
	struct stat st;

	rc_listener_destroy(listener, true);
	listener = NULL;
	CHECK(stat(path, &st) < 0);
	rc_loop_destroy(loop);
}

static int dial(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	CHECK_EQ_INT(0, connect(fd, (struct sockaddr *)&a, sizeof a));
	return fd;
}

static size_t put_frame(uint8_t *to, int64_t type, size_t n)
{
	int64_t header[3] = { INT64_C(0x5241590000000000), type, (int64_t)n };

	memcpy(to, header, 24);
	memset(to + 24, (int)type, n);
	return 24 + n;
}

static void pieces(void)
{
	uint8_t bytes[4096];
	size_t n = 0;
	int fd;

	begin(1000);
	fd = dial();
	for (int i = 0; i < 20; i++)
		n += put_frame(bytes + n, i, (size_t)i * 7);
	for (size_t i = 0; i < n; i += 13)
		CHECK(write(fd, bytes + i, n - i < 13 ? n - i : 13) > 0);
	close(fd);
	rc_loop_run(loop);
	CHECK_EQ_INT(20, frames);
	for (int i = 0; i < 20; i++) {
		CHECK_EQ_INT(i, types[i]);
		CHECK_EQ_INT(i * 7, sizes[i]);
	}
	CHECK(aligned);
	CHECK_STR("end of stream", reason);
	end();
}

static void *send_large(void *arg)
{
	size_t n = (size_t)5 << 20;
	uint8_t *bytes = malloc(n + 64);
	int fd = *(int *)arg;

	put_frame(bytes, 3, n);
	for (size_t at = 0; at < n + 24;) {
		ssize_t done = write(fd, bytes + at, n + 24 - at);

		if (done <= 0)
			break;
		at += (size_t)done;
	}
	free(bytes);
	close(fd);
	return NULL;
}

static void large(void)
{
	pthread_t thread;
	int fd;

	begin(64 << 20);
	fd = dial();
	pthread_create(&thread, NULL, send_large, &fd);
	rc_loop_run(loop);
	pthread_join(thread, NULL);
	CHECK_EQ_INT(1, frames);
	CHECK_EQ_INT(5 << 20, sizes[0]);
	end();
}

static void bad_input(const void *bytes, size_t n, const char *why)
{
	char byte;
	int fd;

	begin(1000);
	fd = dial();
	CHECK_EQ_INT(n, write(fd, bytes, n));
	if (strstr(why, "inside"))
		close(fd);
	rc_loop_run(loop);
	CHECK_EQ_INT(0, frames);
	CHECK_STR(why, reason);
	if (!strstr(why, "inside")) {
		CHECK(read(fd, &byte, 1) <= 0);
		close(fd);
	}
	end();
}

static void refuses(void)
{
	const int64_t good = INT64_C(0x5241590000000000);
	int64_t cookie[3] = { 77, 1, 0 }, longer[3] = { good, 5, 1001 }, negative[3] = { good, 5, -1 };

	bad_input(cookie, 24, "bad cookie 0x000000000000004d in a frame header");
	bad_input(longer, 24, "message type 5 of 1001 bytes: at most 1000 are allowed");
	bad_input(negative, 24, "message type 5 of -1 bytes: at most 1000 are allowed");
	bad_input(longer, 20, "end of stream inside a message");
}

/* ---- answers with descriptors between them ---- */

enum { BIG = 3 << 20 };
static int passed_fd;

static void answer(rc_conn *c, int64_t type, const uint8_t *body, size_t n)
{
	uint8_t *big = rc_alloc(BIG);

	(void)type;
	(void)body;
	(void)n;
	memset(big, 'b', BIG);
	rc_conn_send(c, 1, "one", 3);
	rc_conn_send_fd(c, passed_fd);
	rc_conn_send(c, 2, big, BIG);
	rc_conn_send_fd(c, passed_fd);
	rc_conn_send(c, 3, NULL, 0);
	rc_conn_send_fd(c, passed_fd);
	rc_conn_send_fd(c, passed_fd);
	free(big);
}

static void read_all(int fd, void *to, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t got = read(fd, (char *)to + at, n - at);

		CHECK(got > 0);
		if (got <= 0)
			return;
		at += (size_t)got;
	}
}

static void expect_frame(int fd, int64_t type, size_t n)
{
	int64_t header[3] = { 0 };
	char *body = malloc(n + 1);

	read_all(fd, header, 24);
	CHECK_EQ_INT(type, header[1]);
	CHECK_EQ_INT(n, header[2]);
	if ((size_t)header[2] == n)
		read_all(fd, body, n);
	free(body);
}

static void expect_fd(int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
	struct cmsghdr *h;
	struct stat a, b;
	int got = -1;

	CHECK_EQ_INT(1, recvmsg(fd, &m, MSG_WAITALL));
	CHECK_EQ_INT(0x14, byte);
	h = CMSG_FIRSTHDR(&m);
	CHECK(h != NULL);
	if (!h)
		return;
	memcpy(&got, CMSG_DATA(h), sizeof got);
	CHECK(fstat(got, &a) == 0 && fstat(passed_fd, &b) == 0 && a.st_ino == b.st_ino);
	close(got);
}

static void *ask(void *arg)
{
	int fd = *(int *)arg;
	uint8_t bytes[32];

	CHECK_EQ_INT(24, write(fd, bytes, put_frame(bytes, 9, 0)));
	usleep(50000); /* the answer fills the socket before it is read */
	expect_frame(fd, 1, 3);
	expect_fd(fd);
	expect_frame(fd, 2, BIG);
	expect_fd(fd);
	expect_frame(fd, 3, 0);
	expect_fd(fd);
	expect_fd(fd);
	close(fd);
	return NULL;
}

static void descriptors(void)
{
	pthread_t thread;
	char name[80];
	int fd;

	begin(1000);
	on_frame = answer;
	snprintf(name, sizeof name, "%s/file", folder);
	passed_fd = open(name, O_RDWR | O_CREAT, 0600);
	fd = dial();
	pthread_create(&thread, NULL, ask, &fd);
	rc_loop_run(loop);
	pthread_join(thread, NULL);
	close(passed_fd);
	unlink(name);
	end();
}

enum { SLAB = 300 * 1000 };

static void answer_slab(rc_conn *c, int64_t type, const uint8_t *body, size_t n)
{
	uint8_t *slab = rc_alloc(SLAB);

	(void)body;
	(void)n;
	rc_conn_send(c, type, slab, SLAB);
	rc_conn_send_fd(c, passed_fd);
	free(slab);
}

static void *ask_in_turns(void *arg)
{
	int fd = *(int *)arg, asked = 0, answered = 0;
	uint8_t bytes[32];

	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 10; i++)
			CHECK_EQ_INT(24, write(fd, bytes, put_frame(bytes, asked++, 0)));
		for (int i = 0; i < (round == 5 ? 60 - answered : 8); answered++, i += round != 5) { /* leaves a rest that grows */
			expect_frame(fd, answered, SLAB);
			expect_fd(fd);
		}
	}
	CHECK_EQ_INT(60, answered);
	close(fd);
	return NULL;
}

static void in_turns(void)
{
	pthread_t thread;
	char name[80];
	int fd;

	begin(1000);
	on_frame = answer_slab;
	snprintf(name, sizeof name, "%s/file", folder);
	passed_fd = open(name, O_RDWR | O_CREAT, 0600);
	fd = dial();
	pthread_create(&thread, NULL, ask_in_turns, &fd);
	rc_loop_run(loop);
	pthread_join(thread, NULL);
	CHECK_EQ_INT(60, frames);
	close(passed_fd);
	unlink(name);
	end();
}

static void close_it(rc_conn *c, int64_t type, const uint8_t *body, size_t n)
{
	(void)type;
	(void)body;
	(void)n;
	rc_conn_send(c, 8, "bye", 3);
	rc_conn_close(c, "enough");
	rc_conn_close(c, "twice");
	rc_conn_send(c, 8, "late", 4);
}

static void close_in_callback(void)
{
	uint8_t bytes[64];
	size_t n;
	int fd;

	begin(1000);
	on_frame = close_it;
	fd = dial();
	n = put_frame(bytes, 1, 0);
	n += put_frame(bytes + n, 2, 0);
	CHECK_EQ_INT(n, write(fd, bytes, n));
	rc_loop_run(loop);
	CHECK_EQ_INT(1, frames);
	CHECK_EQ_INT(1, closed);
	CHECK_STR("enough", reason);
	expect_frame(fd, 8, 3);
	CHECK_EQ_INT(0, read(fd, bytes, 1));
	close(fd);
	end();
}

static void destroy_it(rc_conn *c, int64_t type, const uint8_t *body, size_t n)
{
	(void)type;
	(void)body;
	(void)n;
	if (frames == 1)
		rc_conn_close(c, "first");
	rc_listener_destroy(listener, true);
	listener = NULL;
	CHECK_EQ_INT(2, closed);
	rc_loop_stop(loop);
}

static void destroy_in_callback(void)
{
	uint8_t bytes[64];
	int a, b;

	begin(1000);
	stop_after_closed = -1;
	on_frame = destroy_it;
	a = dial();
	b = dial();
	CHECK_EQ_INT(24, write(a, bytes, put_frame(bytes, 1, 0)));
	rc_loop_run(loop);
	CHECK_EQ_INT(2, closed);
	close(a);
	close(b);
	end();
}

/* A client that says goodbye and goes without reading our answer: its goodbye must be seen. */
static void chat(rc_conn *c, int64_t type, const uint8_t *body, size_t n)
{
	(void)type;
	(void)body;
	(void)n;
	rc_conn_send(c, 1, "answer", 6);
	rc_conn_send(c, 1, "answer", 6);
}

static void goodbye(void)
{
	uint8_t bytes[128];
	size_t n;
	int fd;

	begin(1000);
	on_frame = chat;
	fd = dial();
	n = put_frame(bytes, 1, 0);
	n += put_frame(bytes + n, 2, 0);
	n += put_frame(bytes + n, 3, 0);
	CHECK_EQ_INT(n, write(fd, bytes, n));
	close(fd);
	rc_loop_run(loop);
	CHECK_EQ_INT(3, frames);
	CHECK_EQ_INT(1, closed);
	end();
}

static int floods;

static void flood(rc_conn *c, int64_t type, const uint8_t *body, size_t n)
{
	size_t size = 50 << 20;
	uint8_t *big = rc_alloc(size);

	(void)type;
	(void)body;
	(void)n;
	for (int i = 0; i < floods; i++)
		rc_conn_send(c, 1, big, size);
	free(big);
}

static void slow_reader(void)
{
	uint8_t bytes[32];
	int fd;

	begin(1000);
	on_frame = flood;
	floods = 8;
	fd = dial();
	CHECK_EQ_INT(24, write(fd, bytes, put_frame(bytes, 1, 0)));
	rc_loop_run(loop);
	CHECK_STR("the peer does not read: too many bytes are waiting for it", reason);
	close(fd);
	end();
}

static void until(void *arg)
{
	(void)arg;
	rc_loop_stop(loop);
}

static void flood_once(rc_conn *c, int64_t type, const uint8_t *body, size_t n)
{
	flood(c, type, body, n);
	rc_loop_stop(loop);
}

/* 200, 250 and 100 MB wait for three peers: that is too much together, and the second goes. */
static void slow_readers(void)
{
	static const int parts_of_50[] = { 4, 5, 2 };
	uint8_t bytes[32];
	int fd[3];

	begin(1000);
	on_frame = flood_once;
	for (int i = 0; i < 3; i++) {
		floods = parts_of_50[i];
		fd[i] = dial();
		CHECK_EQ_INT(24, write(fd[i], bytes, put_frame(bytes, 1, 0)));
		rc_loop_run(loop);
		CHECK_EQ_INT(i + 1, frames);
	}
	rc_timer *limit = rc_timer_start(loop, 5000, 0, until, NULL);
	if (!closed)
		rc_loop_run(loop);
	rc_timer_stop(limit);
	CHECK_EQ_INT(1, closed);
	CHECK(last_closed == conns[1]);
	CHECK_STR("the peer does not read: too many bytes are waiting for all peers together", reason);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
	end();
}

/* 20 peers with 900 of 1000 bytes each: more than 16 messages in parts are not kept. */
static void parts(void)
{
	uint8_t bytes[1024];
	int fd[20];

	begin(1000);
	put_frame(bytes, 1, 1000);
	for (int i = 0; i < 20; i++) {
		fd[i] = dial();
		CHECK_EQ_INT(900, write(fd[i], bytes, 900));
	}
	rc_loop_run(loop); /* ends with the first one that is closed */
	CHECK_STR("a part of a message, and all such parts together are too large", reason);
	for (int i = 0; i < 20; i++)
		close(fd[i]);
	stop_after_closed = 20;
	if (closed < 20)
		rc_loop_run(loop);
	CHECK_EQ_INT(0, frames);
	stop_after_closed = 21;
	fd[0] = dial(); /* what they held is free again */
	CHECK_EQ_INT(1024, write(fd[0], bytes, 1024));
	close(fd[0]);
	rc_loop_run(loop);
	CHECK_EQ_INT(1, frames);
	CHECK_STR("end of stream", reason);
	end();
}

static void no_descriptors(void)
{
	char text[4096], log[80];
	struct rlimit old, few;
	int fds[8], saved = dup(STDOUT_FILENO), n = 0;
	rc_timer *timer;
	ssize_t got;
	const char *first;

	begin(1000);
	for (int i = 0; i < 8; i++)
		fds[i] = dial();
	snprintf(log, sizeof log, "%s/log", folder);
	n = open(log, O_RDWR | O_CREAT, 0600);
	fflush(stdout);
	dup2(n, STDOUT_FILENO);
	CHECK_EQ_INT(0, getrlimit(RLIMIT_NOFILE, &old));
	few = old;
	few.rlim_cur = (rlim_t)n + 3; /* for two of the eight */
	CHECK_EQ_INT(0, setrlimit(RLIMIT_NOFILE, &few));
	timer = rc_timer_start(loop, 600, 0, until, NULL); /* some tries */
	rc_loop_run(loop);
	rc_timer_stop(timer);
	CHECK_EQ_INT(2, accepted);
	CHECK_EQ_INT(0, setrlimit(RLIMIT_NOFILE, &old));
	timer = rc_timer_start(loop, 300, 0, until, NULL);
	rc_loop_run(loop);
	rc_timer_stop(timer);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	CHECK_EQ_INT(8, accepted);
	got = pread(n, text, sizeof text - 1, 0);
	text[got > 0 ? got : 0] = 0;
	first = strstr(text, "cannot accept a connection on");
	CHECK(first && strstr(first, "Too many open files") && !strstr(first + 1, "cannot accept"));
	close(n);
	unlink(log);
	for (int i = 0; i < 8; i++)
		close(fds[i]);
	end();
}

static void bad_path(void)
{
	static const rc_conn_ops ops = { op_accepted, op_frame, op_closed };
	rc_error e = { 0 };
	char longer[200];

	loop = rc_loop_create();
	memset(longer, 'a', sizeof longer - 1);
	longer[0] = '/';
	longer[sizeof longer - 1] = 0;
	CHECK(!rc_listener_create(loop, longer, 1000, &ops, NULL, &e));
	CHECK(strstr(e.text, "at most 107") != NULL);
	CHECK(!rc_listener_create(loop, "/nonexistent/socket", 1000, &ops, NULL, &e));
	CHECK(strstr(e.text, "/nonexistent/socket: No such file") != NULL);
	rc_loop_destroy(loop);
}

int main(void)
{
	alarm(60); /* a byte in the wrong place makes both sides wait for ever */
	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof path, "%s/socket", folder);
	RUN(pieces, "frames that come in small pieces are put together and aligned");
	RUN(large, "a frame of several MiB arrives whole");
	RUN(refuses, "a bad cookie, a bad length and a cut frame end the connection with a reason");
	RUN(descriptors, "descriptors keep their place between frames, also behind a full socket");
	RUN(in_turns, "descriptors keep their place while a backlog is read and grows in turns");
	RUN(close_in_callback, "closing inside a frame callback sends what waits and is reported once");
	RUN(destroy_in_callback, "destroying the listener inside a frame callback reports every connection");
	RUN(goodbye, "frames of a peer that left without reading are still handled");
	RUN(slow_reader, "a peer that does not read is closed at the limit");
	RUN(slow_readers, "of several peers that do not read the slowest is closed at the limit of all");
	RUN(parts, "what all unfinished messages together hold is limited");
	RUN(no_descriptors, "peers wait while descriptors have run out, which is told once");
	RUN(bad_path, "a socket path that is too long or impossible is named");
	rmdir(folder);
	return test_end();
}
