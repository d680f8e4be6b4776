/* How fast chunks of objects pass from one process to another, and how long a small call takes.
 *
 *   throughput [MiB in all: 512] [KiB a chunk: 5120] [chunks under way: 8] [rounds: 5]     both sides are ours
 *   throughput serve PORT [path]                                                           only the receiver
 *   throughput send IP:PORT [MiB] [KiB] [under way] [rounds] [path]                        only the sender
 *
 * The receiver copies each chunk from gRPC's pieces into one large buffer, as the object store does. Prints GiB/s a round, and
 * the processor time of both sides (on a busy machine that, and the best round, say more than the mean); then round trips of an 8-byte call, one at a time. The path of the last two forms lets a
 * foreign gRPC peer (Python's, a stock node's) stand on the other side. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/rpc/rpc.h"

enum { CALLS = 5000 };

static const char *path = "/ray.rpc.ObjectManagerService/Push";
static rc_loop *loop;
static uint8_t *memory;
static size_t total = 512u << 20, chunk = 5120u << 10, at_once = 8, rounds = 5;

static void *map(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

/* ---- receiver ---- */

static void serve(void *ctx, rc_request *r, const char *method, size_t n, rc_view bytes)
{
	static size_t used;
	(void)ctx;
	if (n != strlen(path) || memcmp(method, path, n)) {
		rc_reply(r, bytes);
		return;
	}
	for (size_t i = 0; i < rc_request_slices(r); i++) {
		rc_view piece = rc_request_slice(r, i);
		if (used + piece.n > total)
			used = 0;
		memcpy(memory + used, piece.p, piece.n);
		used += piece.n;
	}
	rc_reply(r, rc_view_str(""));
}

static int receiver(int port, int tell)
{
	rc_error error = { 0 };
	memory = map(total);
	loop = rc_loop_create();
	rc_rpc *rpc = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, &error);
	rc_server_options o = { .ip = "0.0.0.0", .port = port, .sliced = path, .serve = serve };
	port = rpc ? rc_server_start(rpc, &o, &error) : -1;
	if (port < 0) {
		fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	if (tell >= 0 && write(tell, &port, sizeof(port)) != sizeof(port))
		return 1;
	printf("serving %s on port %d\n", path, port);
	fflush(stdout);
	rc_loop_run(loop);
	return 0;
}

/* ---- sender ---- */

static struct {
	rc_rpc *rpc;
	const char *address;
	size_t sent, done, failed;
	size_t calls;
	uint64_t begin_us;
} out;

static uint64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Of a process, all its threads; 0 for pid 0 (not known). */
static double processor_seconds(pid_t pid)
{
	clockid_t clock;
	struct timespec t = { 0 };
	if (pid && !clock_getcpuclockid(pid, &clock))
		clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void nothing(void *arg)
{
	(void)arg;
}

static void send_more(void);

static void chunk_done(void *arg, int status, rc_view reply, const char *detail)
{
	(void)arg;
	(void)reply;
	if (status) {
		if (!out.failed++)
			fprintf(stderr, "chunk failed: %d %s\n", status, detail);
	}
	out.done++;
	send_more();
}

static void send_more(void)
{
	size_t n = total / chunk;
	while (out.sent < n && out.sent - out.done < at_once) {
		rc_view body = rc_view_of(memory + out.sent * chunk, chunk);
		/* As a protobuf field 8 of bytes, so that a peer that parses it finds a message. */
		uint8_t head[16] = { 8 << 3 | 2 };
		size_t h = 1;
		for (size_t v = chunk; v; v >>= 7)
			head[h++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		out.sent++;
		rc_call_zero_copy(out.rpc, out.address, path, rc_view_of(head, h), body, nothing, NULL, 60000, chunk_done, NULL);
	}
	if (out.done == n)
		rc_loop_stop(loop);
}

static void call_done(void *arg, int status, rc_view reply, const char *detail)
{
	(void)arg;
	(void)reply;
	if (status) {
		fprintf(stderr, "call failed: %d %s\n", status, detail);
		rc_loop_stop(loop);
		return;
	}
	if (++out.calls == CALLS)
		rc_loop_stop(loop);
	else
		rc_call(out.rpc, out.address, "/bench.Test/Echo", rc_view_of("12345678", 8), 10000, RC_META_NONE, call_done, NULL);
}

/* peer: the receiving process when it is ours, else 0. */
static int sender(const char *address, pid_t peer)
{
	rc_error error = { 0 };
	memory = map(total);
	loop = rc_loop_create();
	out.rpc = rc_rpc_create(loop, &(rc_rpc_options){ 0 }, &error);
	out.address = address;
	if (!out.rpc) {
		fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	for (size_t i = 0; i < rounds; i++) {
		out.sent = out.done = 0;
		double ours = processor_seconds(getpid()), theirs = processor_seconds(peer);
		uint64_t begin = now_us();
		send_more();
		rc_loop_run(loop);
		double s = (double)(now_us() - begin) / 1e6;
		printf("%zu MiB in chunks of %zu KiB, %zu under way: %.2f GiB/s; processor time: sender %.3f s, receiver %.3f s\n", total >> 20,
		       chunk >> 10, at_once, (double)total / (1 << 30) / s, processor_seconds(getpid()) - ours, processor_seconds(peer) - theirs);
		fflush(stdout);
	}
	if (peer) {
		uint64_t begin = now_us();
		out.calls = (size_t)-1;
		call_done(NULL, 0, (rc_view){ 0 }, NULL);
		rc_loop_run(loop);
		printf("%d small calls: %.0f us each\n", CALLS, (double)(now_us() - begin) / CALLS);
	}
	rc_rpc_destroy(out.rpc);
	rc_loop_destroy(loop);
	return out.failed != 0;
}

static void numbers(char **argv)
{
	size_t *to[] = { &total, &chunk, &at_once, &rounds };
	for (int i = 0; i < 4 && argv[i]; i++)
		*to[i] = strtoull(argv[i], NULL, 10) << (i == 0 ? 20 : i == 1 ? 10 : 0);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "serve")) {
		path = argc > 3 ? argv[3] : path;
		return receiver(atoi(argv[2]), -1);
	}
	if (argc > 2 && !strcmp(argv[1], "send")) {
		numbers(argv + 3);
		path = argc > 7 ? argv[7] : path;
		return sender(argv[2], 0);
	}
	numbers(argv + 1);
	int ends[2], port = 0;
	if (pipe(ends))
		return 1;
	pid_t child = fork();
	if (child == 0)
		return receiver(0, ends[1]);
	if (child < 0 || read(ends[0], &port, sizeof(port)) != sizeof(port))
		return 1;
	char address[40];
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	int code = sender(address, child);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return code;
}
