/* The HTTP client against a scripted server on another thread. */
#define _GNU_SOURCE
#include "raylet-c/base/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static rc_loop *loop;
static int listen_fd, port, got_status;
static char got_body[200], got_text[300], seen_request[4000];
static const char *script; /* what the server answers; '|' makes a pause */

static void *serve(void *arg)
{
	int fd = accept(listen_fd, NULL, NULL);
	size_t n = 0;

	(void)arg;
	while (n < sizeof seen_request - 1 && !memmem(seen_request, n, "the body", 8)) {
		ssize_t got = read(fd, seen_request + n, sizeof seen_request - 1 - n);

		if (got <= 0)
			break;
		n += (size_t)got;
	}
	seen_request[n] = 0;
	for (const char *p = script; *p; p++) {
		if (*p == '|')
			usleep(20000);
		else if (send(fd, p, 1, MSG_NOSIGNAL) != 1) /* the client may have gone already */
			break;
	}
	close(fd);
	return NULL;
}

static void on_answer(void *arg, int status, rc_view body, const char *text)
{
	(void)arg;
	got_status = status;
	snprintf(got_body, sizeof got_body, "%.*s", (int)body.n, (const char *)body.p);
	snprintf(got_text, sizeof got_text, "%s", text);
	rc_loop_stop(loop);
}

static void post(const char *answer, uint64_t timeout_ms)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;
	pthread_t thread;

	script = answer;
	listen_fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ_INT(0, bind(listen_fd, (struct sockaddr *)&a, sizeof a));
	CHECK_EQ_INT(0, listen(listen_fd, 5));
	getsockname(listen_fd, (struct sockaddr *)&a, &n);
	port = ntohs(a.sin_port);
	pthread_create(&thread, NULL, serve, NULL);
	loop = rc_loop_create();
	rc_http_post(loop, "127.0.0.1", port, "/do/it", "X-Token: 5\r\n", rc_view_str("the body"), timeout_ms, on_answer, NULL);
	rc_loop_run(loop);
	rc_loop_destroy(loop);
	pthread_join(thread, NULL);
	close(listen_fd);
}

static void lengths(void)
{
	char host[40];

	post("HTTP/1.1 200 OK\r\ncontent-length:  5\r\nServer: x\r\n\r\nhe|llo and more", 0);
	CHECK_EQ_INT(200, got_status);
	CHECK_STR("hello", got_body);
	CHECK(strstr(seen_request, "POST /do/it HTTP/1.1\r\n") == seen_request);
	snprintf(host, sizeof host, "Host: 127.0.0.1:%d\r\n", port);
	CHECK(strstr(seen_request, host) && strstr(seen_request, "\r\nX-Token: 5\r\n") && strstr(seen_request, "Content-Length: 8\r\n"));
	post("HTTP/1.0 404 Not Found\r\n\r\nto the |end", 0);
	CHECK_EQ_INT(404, got_status);
	CHECK_STR("to the end", got_body);
	post("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n|||||", 0);
	CHECK_EQ_INT(500, got_status);
	CHECK_STR("", got_body);
}

static void chunks(void)
{
	post("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel|lo\r\n3;x=y\r\n wo\r|\nA\r\n0123456789\r\n0\r\n\r\n", 0);
	CHECK_EQ_INT(200, got_status);
	CHECK_STR("hello wo0123456789", got_body);
}

static void bad_answers(void)
{
	post("", 0);
	CHECK_EQ_INT(-1, got_status);
	CHECK(strstr(got_text, "closed the connection without an answer") != NULL);
	post("SMTP ready\r\n\r\n", 0);
	CHECK_EQ_INT(-1, got_status);
	CHECK(strstr(got_text, "not HTTP") != NULL);
	post("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", 0);
	CHECK_EQ_INT(-1, got_status);
	CHECK(strstr(got_text, "ends early") != NULL);
	post("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", 0);
	CHECK(strstr(got_text, "Content-Length") != NULL);
	post("HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n", 0);
	CHECK(strstr(got_text, "Content-Length") != NULL);
	post("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 0);
	CHECK(strstr(got_text, "chunk without a size") != NULL);
	post("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n", 0);
	CHECK(strstr(got_text, "too large") != NULL);
	post("HTTP/1.1 200 OK\r\nno colon here\r\n\r\n", 0);
	CHECK(strstr(got_text, "without a colon") != NULL);
}

static void slow(void)
{
	post("HTTP/1.1 200 OK\r\n||||||||||", 60);
	CHECK_EQ_INT(-1, got_status);
	CHECK(strstr(got_text, "no answer in time") != NULL);
}

static void nobody(void)
{
	loop = rc_loop_create();
	rc_http_post(loop, "127.0.0.1", port, "/", "", (rc_view){ 0 }, 1000, on_answer, NULL);
	rc_loop_run(loop);
	CHECK_EQ_INT(-1, got_status);
	CHECK(strstr(got_text, "Connection refused") != NULL);
	rc_http_post(loop, "no-ip", 1, "/", "", (rc_view){ 0 }, 1000, on_answer, NULL);
	rc_loop_run(loop);
	CHECK_STR("http://no-ip:1/: not an address", got_text);
	rc_loop_destroy(loop);
}

int main(void)
{
	RUN(lengths, "answers end by length or by end of stream, and provisional ones are skipped");
	RUN(chunks, "chunked answers are put together");
	RUN(bad_answers, "each kind of malformed answer is named");
	RUN(slow, "an answer that does not come in time is given up");
	RUN(nobody, "a refused connection and a bad address are named");
	return test_end();
}
