#include "raylet-c/base/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

enum { WAIT_MS = 10000, FILE_SIZE = 3 << 20 };

static rc_loop *loop;
static rc_http_server *server;
static int port, served;
static rc_http_call *held;
static char file_path[] = "/tmp/rc-http-XXXXXX";

static void serve(void *ctx, rc_http_call *c)
{
	const char *path = rc_http_call_path(c), *mark = rc_http_call_header(c, "x-mark");
	(void)ctx;
	served++;
	if (!strcmp(path, "/hold"))
		held = c;
	else if (!strcmp(path, "/file"))
		rc_http_answer_file(c, "application/octet-stream", open(file_path, O_RDONLY | O_CLOEXEC), FILE_SIZE);
	else
		rc_http_answer_text(c, 200, "%s %s?%s [%s] %.*s", rc_http_call_method(c), path, rc_http_call_query(c), mark ? mark : "",
		                    (int)rc_http_call_body(c).n, (const char *)rc_http_call_body(c).p);
}

/* ---- a client: what it sends, and what came until `want` was in it or the server closed ---- */

typedef struct client {
	int fd;
	rc_buf got;
	const char *want;
	bool closed;
	uint64_t until;
} client;

static client open_client(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	client c = { .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	CHECK_EQ_INT(0, connect(c.fd, (struct sockaddr *)&a, sizeof(a)));
	fcntl(c.fd, F_SETFL, O_NONBLOCK);
	return c;
}

static void look(void *arg)
{
	client *c = arg;
	uint8_t bytes[65536];
	ssize_t n;
	while ((n = recv(c->fd, bytes, sizeof(bytes), 0)) > 0)
		rc_buf_add(&c->got, bytes, (size_t)n);
	c->closed = n == 0 || (n < 0 && errno != EAGAIN);
	if (c->closed || rc_now_ms() > c->until || (c->want && strstr(rc_buf_cstr(&c->got), c->want)) || (!c->want && held))
		rc_loop_stop(loop);
}

static const char *talk(client *c, const char *text, const char *want)
{
	rc_buf_free(&c->got);
	if (text)
		CHECK(send(c->fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
	c->want = want;
	c->until = rc_now_ms() + WAIT_MS;
	rc_timer *t = rc_timer_start(loop, 0, 1, look, c);
	rc_loop_run(loop);
	rc_timer_stop(t);
	CHECK(rc_now_ms() < c->until);
	return rc_buf_cstr(&c->got);
}

static void close_client(client *c)
{
	close(c->fd);
	rc_buf_free(&c->got);
}

static void answers_and_keeps(void)
{
	client c = open_client();
	CHECK(strstr(talk(&c, "GET /a%20b?q=%20 HTTP/1.1\r\nX-Mark:  one \r\n\r\n", "one]"), "GET /a b?q=%20 [one] "));
	CHECK(strstr(talk(&c, "GET / HTTP/1.1\n\n", "GET"), "GET /? [] "));
	close_client(&c);
}

static void body_in_pieces(void)
{
	client c = open_client();
	static const char head[] = "POST /p HTTP/1.1\r\ncontent-length: 4\r\n\r\nbo";
	CHECK_EQ_INT(sizeof(head) - 1, send(c.fd, head, sizeof(head) - 1, 0));
	CHECK(strstr(talk(&c, "dy", "body"), "POST /p? [] body"));
	CHECK(!c.closed);
	CHECK(strstr(talk(&c, "GET /x HTTP/1.0\r\n\r\n", "never"), "Connection: close"));
	CHECK(c.closed);
	close_client(&c);
}

static void pipelined(void)
{
	client c = open_client();
	const char *got = talk(&c, "GET /1 HTTP/1.1\r\n\r\nHEAD /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n", "GET /3");
	CHECK(strstr(got, "GET /1") && !strstr(got, "HEAD /2") && strstr(got, "GET /1") < strstr(got, "GET /3"));
	close_client(&c);
}

static void whole_file(void)
{
	client c = open_client();
	const char *got = talk(&c, "GET /file HTTP/1.1\r\nConnection: close\r\n\r\n", "never");
	const char *body = strstr(got, "\r\n\r\n");
	CHECK(body && c.got.n - (size_t)(body + 4 - got) == FILE_SIZE);
	CHECK_STR("end of the file", body ? got + c.got.n - 15 : "");
	close_client(&c);
}

static void refusals(void)
{
	static const struct {
		const char *text, *status;
	} bad[] = { { "GET\r\n\r\n", "400" }, { "GET /%00 HTTP/1.1\r\n\r\n", "400" }, { "GET /%4 HTTP/1.1\r\n\r\n", "400" }, { "GET x HTTP/1.1\r\n\r\n", "400" },
		    { "GET / HTTP/2.0\r\n\r\n", "505" }, { "GET / HTTP/1.1\r\nno colon\r\n\r\n", "400" }, { "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "400" },
		    { "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "501" }, { "POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", "413" },
		    { "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400" }, { "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400" } };
	int before = served;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		client c = open_client();
		char want[20];
		snprintf(want, sizeof(want), "HTTP/1.1 %s ", bad[i].status);
		CHECK_STR(want, strstr(talk(&c, bad[i].text, "never"), want) ? want : rc_buf_cstr(&c.got));
		CHECK(c.closed);
		close_client(&c);
	}
	client c = open_client();
	char *long_head = malloc(20001);
	memset(long_head, 'a', 20000);
	long_head[20000] = '\0';
	CHECK(strstr(talk(&c, long_head, "never"), "HTTP/1.1 431 "));
	free(long_head);
	close_client(&c);
	CHECK_EQ_INT(before, served);
}

static void late_answer(void)
{
	client c = open_client();
	held = NULL;
	talk(&c, "GET /hold HTTP/1.1\r\n\r\n", NULL);
	CHECK(held != NULL);
	rc_http_answer_text(held, 503, "late");
	CHECK(strstr(talk(&c, NULL, "late"), "HTTP/1.1 503 Service Unavailable"));
	held = NULL;
	talk(&c, "GET /hold HTTP/1.1\r\n\r\n", NULL);
	close_client(&c);
	client d = open_client();
	CHECK(strstr(talk(&d, "GET /after HTTP/1.1\r\n\r\n", "after"), "GET /after"));
	rc_http_answer_text(held, 200, "nobody reads this");
	close_client(&d);
}

static void taken_port(void)
{
	rc_error e;
	rc_http_server *other = rc_http_server_create(loop, 1, serve, NULL);
	CHECK_EQ_INT(-1, rc_http_server_listen(other, "127.0.0.1", port, &e));
	CHECK(strstr(e.text, "cannot listen on 127.0.0.1:") && strstr(e.text, "Address already in use"));
	CHECK_EQ_INT(-1, rc_http_server_listen(other, "nowhere", 0, &e));
	rc_http_server_destroy(other);
}

static void end_with_calls(void)
{
	client c = open_client();
	held = NULL;
	talk(&c, "GET /hold HTTP/1.1\r\n\r\n", NULL);
	rc_http_server_destroy(server);
	server = NULL;
	rc_http_answer_text(held, 200, "too late");
	CHECK_STR("", talk(&c, NULL, "never"));
	CHECK(c.closed);
	close_client(&c);
}

int main(void)
{
	rc_error e;
	loop = rc_loop_create();
	server = rc_http_server_create(loop, 1000, serve, NULL);
	port = rc_http_server_listen(server, "127.0.0.1", 0, &e);
	int fd = mkstemp(file_path);
	if (fd < 0 || ftruncate(fd, FILE_SIZE) || pwrite(fd, "end of the file", 15, FILE_SIZE - 15) != 15)
		return 1;
	close(fd);
	RUN(answers_and_keeps, "a request is answered with its decoded path, query and header");
	RUN(body_in_pieces, "a body may come in pieces; HTTP/1.0 ends the connection");
	RUN(pipelined, "requests sent ahead are answered in their order");
	RUN(whole_file, "a file comes whole");
	RUN(refusals, "malformed and too large requests are refused with their status, and the connection ends");
	RUN(late_answer, "an answer may come later, also when the peer has left");
	RUN(taken_port, "a taken port is named");
	RUN(end_with_calls, "a server may end while a call is unanswered");
	rc_http_server_destroy(server);
	rc_loop_destroy(loop);
	unlink(file_path);
	return test_end();
}
