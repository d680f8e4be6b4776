/* A minimal HTTP/1.1 client for the node's own helper processes (runtime-env agent): one request a connection, answer
 * read whole (Content-Length, chunked or to the end), size limited. Loop thread only. */
#ifndef RC_BASE_HTTP_H
#define RC_BASE_HTTP_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/loop.h"

/* status: the HTTP status, or -1 when there was no answer (then text says why). body is borrowed for the call. */
typedef void (*rc_http_fn)(void *arg, int status, rc_view body, const char *text);

/* The body's type is application/octet-stream. headers: extra header lines, each ended by \r\n, or "". Body copied. */
void rc_http_post(rc_loop *loop, const char *ip, int port, const char *path, const char *headers, rc_view body,
                  uint64_t timeout_ms, rc_http_fn fn, void *arg);

#endif
