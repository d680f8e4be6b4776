/* Bytes of a hostile client on the framed socket. The first byte says in how large pieces they come. */
#include "raylet-c/base/conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static rc_loop *loop;
static volatile uint8_t sum;

static void on_frame(void *ctx, rc_conn *c, int64_t type, const uint8_t *body, size_t n)
{
	(void)ctx;
	if ((uintptr_t)body % 8)
		abort();
	for (size_t i = 0; i < n; i++)
		sum ^= body[i];
	if (type == 7)
		rc_conn_close(c, "asked to");
	else
		rc_conn_send(c, type, body, n);
}

static void on_closed(void *ctx, rc_conn *c, const char *reason)
{
	(void)ctx;
	(void)c;
	if (!*reason)
		abort();
	rc_loop_stop(loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const rc_conn_ops ops = { .frame = on_frame, .closed = on_closed };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t piece = size ? (size_t)data[0] + 1 : 1;
	rc_listener *listener;
	rc_error error;
	int fd;

	if (size > 64 * 1024) /* what a socket takes without a reader */
		return 0;
	snprintf(address.sun_path, sizeof address.sun_path, "/tmp/rc_fuzz_conn_%d", (int)getpid());
	unlink(address.sun_path);
	loop = rc_loop_create();
	listener = rc_listener_create(loop, address.sun_path, 32 * 1024, &ops, NULL, &error);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!listener || fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		abort();
	for (size_t at = 1; at < size; at += piece)
		if (send(fd, data + at, size - at < piece ? size - at : piece, MSG_DONTWAIT | MSG_NOSIGNAL) <= 0)
			break;
	shutdown(fd, SHUT_WR);
	rc_loop_run(loop);
	close(fd);
	rc_listener_destroy(listener, true);
	rc_loop_destroy(loop);
	return 0;
}
