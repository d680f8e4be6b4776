/* A pair on this machine, by fabric/ and by TCP; wrong bytes are found; a hostile other end is an error. */
#include "raylet-c/base/test.h"
#include "raylet-c/doctor/pair.h"
#include "raylet-c/doctor/pair_line.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void measured(const char *providers, const char *transport)
{
	rc_pair_result r = { 0 };
	rc_error e = { 0 };
	rc_buf b = { 0 };
	int rc = rc_pair_local(&(rc_pair_options){ .providers = providers, .seconds = 1 }, &r, &e);
	CHECK_STR("", rc ? e.text : "");
	if (transport)
		CHECK_STR(transport, r.transport);
	CHECK(r.latency_us > 0 && r.latency_us <= r.latency_99_us);
	for (int i = 0; i < RC_PAIR_SIZES; i++)
		CHECK(r.sizes[i].gib_per_s > 0);
	CHECK(r.checked >= UINT64_C(2000) * 8 + (64 << 10) + (1 << 20) + (8 << 20));
	rc_pair_print(&r, UINT64_C(10000000000), &b);
	CHECK(strstr(rc_buf_cstr(&b), r.transport) != NULL);
	CHECK((strstr(rc_buf_cstr(&b), "of the link's") != NULL) == (strcmp(r.transport, "shm") != 0));
	rc_buf_free(&b);
}

static void by_fabric(void)
{
	measured(NULL, NULL); /* what this machine has */
}

static void by_tcp(void)
{
	measured("off", "tcp, without libfabric");
}

static void wrong_bytes(void)
{
	uint64_t words[64];
	for (int i = 0; i < 64; i++)
		words[i] = rc__pair_word(4096 + (uint64_t)i * 8);
	CHECK_EQ_INT(4096 + 512, (long long)rc__pair_check(words, 4096, 512));
	words[63] ^= 1;
	CHECK_EQ_INT(4096 + 504, (long long)rc__pair_check(words, 4096, 512));
	words[63] ^= 1;
	CHECK_EQ_INT(0, (long long)rc__pair_check(words, 0, 512)); /* right bytes of another place */
}

/* What the other end says, one answer for each line that is asked for; it closes after the last. */
static void against(const char *said, const char *want)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	rc_pair_result r;
	rc_error e = { 0 };
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(listener, (struct sockaddr *)&a, n) == 0 && listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&a, &n) == 0);
	pid_t child = fork();
	if (child == 0) {
		char heard[4096];
		int fd = accept(listener, NULL, NULL);
		if (write(fd, said, strlen(said)) < 0)
			_exit(1);
		shutdown(fd, SHUT_WR);
		while (read(fd, heard, sizeof(heard)) > 0)
			;
		_exit(0);
	}
	close(listener);
	CHECK_EQ_INT(-1, rc_pair_measure(&(rc_pair_options){ .providers = "off" }, "127.0.0.1", ntohs(a.sin_port), &r, &e));
	CHECK(strstr(e.text, want) != NULL);
	if (!strstr(e.text, want))
		printf("# %s\n", e.text);
	waitpid(child, NULL, 0);
}

static void hostile(void)
{
	char *endless = rc_alloc(8192);
	memset(endless, 'x', 8000);
	against("HTTP/1.1 400 Bad Request\n", "no raylet-c doctor of this version");
	against("raylet-c-pair 1\nnonsense\n", "cannot be understood");
	against(endless, "does not speak our protocol");
	against("raylet-c-pair 1\n", "closed the connection");
	against("raylet-c-pair 1\nend\n\1\2\3\4\5\6\7\1", "WRONG DATA over tcp");
	rc_buf many = { 0 };
	rc_buf_str(&many, "raylet-c-pair 1\n");
	for (int i = 0; i < 9; i++)
		rc_buf_str(&many, "offer net - 1 1 1 1 1 1000000\n");
	against(rc_buf_cstr(&many), "more than 8 offers");
	rc_buf_free(&many);
	free(endless);
	rc_pair_result r;
	rc_error e;
	CHECK_EQ_INT(-1, rc_pair_measure(&(rc_pair_options){ 0 }, "127.0.0.1", 1, &r, &e));
	CHECK(strstr(e.text, "127.0.0.1 port 1 cannot be reached") != NULL);
}

static void words(void)
{
	static const struct {
		const char *text, *host;
		int port;
	} want[] = { { "10.0.0.1", "10.0.0.1", RC_PAIR_PORT }, { "10.0.0.1:7", "10.0.0.1", 7 }, { "node-3:0", "node-3", 0 }, { "7", "", 7 },
		     { "[::1]:9", "::1", 9 },                  { "::1", "::1", RC_PAIR_PORT } };
	char host[256];
	int port;
	rc_error e;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		CHECK_EQ_INT(0, rc_pair_parse(want[i].text, host, &port, &e));
		CHECK_STR(want[i].host, host);
		CHECK_EQ_INT(want[i].port, port);
	}
	CHECK_EQ_INT(-1, rc_pair_parse("a:70000", host, &port, &e));
	CHECK_EQ_INT(-1, rc_pair_parse("a:x", host, &port, &e));
	CHECK_EQ_INT(-1, rc_pair_parse("", host, &port, &e));
}

int main(void)
{
	RUN(words, "host and port as people write them");
	RUN(wrong_bytes, "a wrong bit, and right bytes of another place, are found");
	RUN(hostile, "another end that is none, or lies, is an error");
	RUN(by_fabric, "two local ends measure by the transport of this machine, every word right");
	RUN(by_tcp, "without libfabric they measure TCP");
	return test_end();
}
