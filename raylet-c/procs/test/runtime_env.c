/* Requests to a fake runtime-env agent: what is asked, what an answer becomes, and that a late agent is waited for. */
#define _GNU_SOURCE
#include "raylet-c/procs/runtime_env.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static rc_loop *loop;
static const rc_dialect *dialect;
static int server = -1, port;
static rc_watch *server_watch;
static char request[65536]; /* the last one, head and body */
static size_t request_n;
static int requests, http_status;
static rc_buf reply;

static void stop_loop(void *arg)
{
	(void)arg;
	rc_loop_stop(loop);
}

static void run_for(unsigned ms)
{
	rc_timer *t = rc_timer_start(loop, ms, 0, stop_loop, NULL);
	rc_loop_run(loop);
	rc_timer_stop(t);
}

static int conn = -1; /* one at a time */
static rc_watch *conn_watch;

static void reply_and_close(void)
{
	requests++;
	if (http_status) {
		rc_buf b = { 0 };
		rc_buf_printf(&b, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", http_status, reply.n);
		rc_buf_add(&b, reply.p, reply.n);
		CHECK(send(conn, b.p, b.n, MSG_NOSIGNAL) == (ssize_t)b.n);
		rc_buf_free(&b);
	}
	rc_watch_stop(conn_watch);
	close(conn);
	conn = -1;
}

static void take(void *arg, int events)
{
	(void)arg;
	(void)events;
	ssize_t n = recv(conn, request + request_n, sizeof(request) - 1 - request_n, 0);
	request_n += n > 0 ? (size_t)n : 0;
	request[request_n] = 0;
	char *end = memmem(request, request_n, "\r\n\r\n", 4), *length = strcasestr(request, "content-length:");
	if (n <= 0 || (end && request_n >= (size_t)(end + 4 - request) + (length ? (size_t)atoi(length + 15) : 0)))
		reply_and_close();
}

static void serve(void *arg, int events)
{
	(void)arg;
	(void)events;
	conn = accept(server, NULL, NULL);
	request_n = 0;
	conn_watch = rc_watch_start(loop, conn, RC_READABLE, take, NULL);
}

static void open_server(void)
{
	server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;
	setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	CHECK(bind(server, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(server, 8) == 0);
	getsockname(server, (struct sockaddr *)&a, &n);
	port = ntohs(a.sin_port);
	server_watch = rc_watch_start(loop, server, RC_READABLE, serve, NULL);
}

static void close_server(void)
{
	rc_watch_stop(server_watch);
	close(server);
}

static void answer(int http, int status, const char *error, const char *context)
{
	Rw__GetOrCreateRuntimeEnvReply m = RW__GET_OR_CREATE_RUNTIME_ENV_REPLY__INIT;
	RC_SET(m, status, status);
	m.error_message = (char *)(uintptr_t)error;
	m.serialized_runtime_env_context = (char *)(uintptr_t)context;
	rc_buf_free(&reply);
	rc_pack(dialect, &m, &reply);
	http_status = http;
}

typedef struct result {
	int count;
	char context[300], error[500];
} result;

static void got(void *arg, const char *context, const char *error)
{
	result *r = arg;
	r->count++;
	snprintf(r->context, sizeof(r->context), "%s", context ? context : "");
	snprintf(r->error, sizeof(r->error), "%s", error ? error : "");
	rc_loop_stop(loop);
}

static rc_runtime_envs *envs(const char *token, unsigned start_timeout_ms)
{
	return rc_runtime_envs_create(loop, &(rc_runtime_envs_options){
	                                        .dialect = dialect, .ip = "127.0.0.1", .port = port, .token = token, .start_timeout_ms = start_timeout_ms });
}

static Rw__RuntimeEnvInfo info(void)
{
	Rw__RuntimeEnvInfo i = RW__RUNTIME_ENV_INFO__INIT;
	i.serialized_runtime_env = (char *)(uintptr_t) "{\"pip\": [\"x\"]}";
	return i;
}

static rc_id job(void)
{
	return rc_id_from("\1\0\0\0", 4);
}

static void asks_and_drops(void)
{
	rc_runtime_envs *e = envs("secret", 1000);
	Rw__RuntimeEnvInfo i = info();
	rc_id j = job();
	result r = { 0 };
	answer(200, 0, NULL, "{\"env_vars\": {}}");
	rc_runtime_env_get(e, &i, &j, got, &r);
	CHECK_EQ_INT(0, r.count);
	rc_loop_run(loop);
	CHECK_STR("{\"env_vars\": {}}", r.context);
	CHECK_STR("", r.error);
	CHECK(strncmp(request, "POST /get_or_create_runtime_env HTTP/1.1\r\n", 42) == 0);
	CHECK(strstr(request, "\r\nAuthorization: Bearer secret\r\n") != NULL);
	CHECK(strstr(request, "\r\nContent-Type: application/octet-stream\r\n") != NULL);
	char *body = strstr(request, "\r\n\r\n") + 4;
	Rw__GetOrCreateRuntimeEnvRequest *m =
		rc_unpack(dialect, &rw__get_or_create_runtime_env_request__descriptor, rc_view_of(body, request_n - (size_t)(body - request)));
	CHECK(m != NULL);
	if (m) {
		CHECK_STR("{\"pip\": [\"x\"]}", m->serialized_runtime_env);
		CHECK_STR("raylet", m->source_process);
		CHECK(m->job_id.len == 8 && memcmp(m->job_id.data, "01000000", 8) == 0); /* text, as the agent wants it */
	}
	rc_free_message(m);
	rc_runtime_env_put(e, "{\"pip\": [\"x\"]}");
	run_for(100);
	CHECK(strncmp(request, "POST /delete_runtime_env_if_possible HTTP/1.1\r\n", 47) == 0);
	rc_runtime_envs_destroy(e);
}

static void passes_errors_on(void)
{
	rc_runtime_envs *e = envs(NULL, 1000);
	Rw__RuntimeEnvInfo i = info();
	rc_id j = job();
	result r = { 0 };
	answer(200, 1, "pip failed: no such package", NULL);
	rc_runtime_env_get(e, &i, &j, got, &r);
	rc_loop_run(loop);
	CHECK_STR("pip failed: no such package", r.error);
	answer(401, 0, NULL, NULL);
	rc_buf_free(&reply);
	rc_buf_str(&reply, "no token");
	rc_runtime_env_get(e, &i, &j, got, &r);
	rc_loop_run(loop);
	CHECK_STR("the runtime-env agent answered HTTP 401: no token", r.error);
	answer(200, 0, NULL, NULL);
	rc_buf_free(&reply);
	rc_buf_str(&reply, "\xff\xff\xff");
	rc_runtime_env_get(e, &i, &j, got, &r);
	rc_loop_run(loop);
	CHECK_STR("the runtime-env agent's answer is malformed", r.error);
	rc_runtime_envs_destroy(e);
}

static void waits_for_a_late_agent(void)
{
	rc_runtime_envs *e = envs(NULL, 5000);
	Rw__RuntimeEnvInfo i = info();
	rc_id j = job();
	result r = { 0 };
	close_server();
	rc_runtime_env_get(e, &i, &j, got, &r);
	run_for(250);
	CHECK_EQ_INT(0, r.count);
	open_server();
	answer(200, 0, NULL, "{}");
	run_for(1000);
	CHECK_EQ_INT(1, r.count);
	CHECK_STR("{}", r.context);
	rc_runtime_envs_destroy(e);
	close_server();
	e = envs(NULL, 200);
	r = (result){ 0 };
	uint64_t start = rc_now_ms();
	rc_runtime_env_get(e, &i, &j, got, &r);
	rc_loop_run(loop);
	CHECK(strncmp(r.error, "the runtime-env agent at 127.0.0.1:", 35) == 0 && strstr(r.error, " cannot be reached: ") != NULL);
	CHECK(rc_now_ms() - start >= 150);
	/* The end of the owner answers what is open, also between two tries. */
	rc_runtime_envs *f = envs(NULL, 60000);
	r = (result){ 0 };
	rc_runtime_env_get(f, &i, &j, got, &r);
	run_for(50);
	rc_runtime_envs_destroy(f);
	CHECK_EQ_INT(1, r.count);
	CHECK_STR("the node is shutting down", r.error);
	run_for(300);
	CHECK_EQ_INT(1, r.count);
	rc_runtime_envs_destroy(e);
	open_server();
}

static void none_and_hash(void)
{
	Rw__RuntimeEnvInfo i = RW__RUNTIME_ENV_INFO__INIT, k = info();
	CHECK(rc_runtime_env_is_none(NULL) && rc_runtime_env_is_none(&i));
	i.serialized_runtime_env = (char *)(uintptr_t) "{}";
	CHECK(rc_runtime_env_is_none(&i));
	CHECK_EQ_INT(0, rc_runtime_env_hash(&i));
	CHECK(!rc_runtime_env_is_none(&k) && rc_runtime_env_hash(&k) > 0);
}

int main(void)
{
	rc_error error;
	loop = rc_loop_create();
	dialect = rc_dialect_find("2.60.0", &error);
	open_server();
	RUN(asks_and_drops, "an env is asked for with job and token, and dropped again");
	RUN(passes_errors_on, "errors of the agent are passed on, and bad answers are named");
	RUN(waits_for_a_late_agent, "an agent that is not up yet is waited for, within its time");
	RUN(none_and_hash, "an absent, empty or {} env is none");
	close_server();
	rc_buf_free(&reply);
	rc_loop_destroy(loop);
	return test_end();
}
