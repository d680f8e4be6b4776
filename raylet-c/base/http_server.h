/* HTTP/1.1 server for the node's own pages: several addresses, one function that serves. Loop thread only.
 *
 * Each call gets exactly one answer, now or later; a peer that left meanwhile is no matter. Connections are kept for further
 * requests. Limits: 256 connections a server (more are closed at once), a head of 16 KiB and a body of max_body bytes that come
 * within 30 s, 60 s without progress for a peer that does not read, 75 s for one that is idle. HEAD is answered like GET, less
 * the body. */
#ifndef RC_BASE_HTTP_SERVER_H
#define RC_BASE_HTTP_SERVER_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/loop.h"

typedef struct rc_http_server rc_http_server;
typedef struct rc_http_call rc_http_call;
typedef void (*rc_http_serve_fn)(void *ctx, rc_http_call *call);

rc_http_server *rc_http_server_create(rc_loop *loop, size_t max_body, rc_http_serve_fn serve, void *ctx);
/* One more address ("0.0.0.0" for all); port 0: any free one. Returns the port, or -1. */
int rc_http_server_listen(rc_http_server *s, const char *ip, int port, rc_error *error) RC_WARN_UNUSED;
/* Connections are closed; calls that are unanswered may still be answered, which goes nowhere. NULL is fine. */
void rc_http_server_destroy(rc_http_server *s);

const char *rc_http_call_method(const rc_http_call *c); /* "GET" */
const char *rc_http_call_path(const rc_http_call *c);   /* percent-decoded, without the query; not checked for ".." */
const char *rc_http_call_query(const rc_http_call *c);  /* as it came; "" without one */
const char *rc_http_call_header(const rc_http_call *c, const char *name); /* name in lower case; NULL: absent */
rc_view rc_http_call_body(const rc_http_call *c);

/* The answers; the call is gone after one. */
void rc_http_answer(rc_http_call *c, int status, const char *type, rc_view body); /* copied */
void rc_http_answer_text(rc_http_call *c, int status, const char *format, ...) __attribute__((format(printf, 3, 4))); /* text/plain */
/* The first `size` bytes of a file, read piece by piece on the pool; takes the descriptor. A file that turns out shorter ends
 * the connection. */
void rc_http_answer_file(rc_http_call *c, const char *type, int fd, uint64_t size);
/* Instead of an answer: the connection itself, for somebody who speaks HTTP on it from here on. The descriptor (non-blocking) is the
 * caller's, and so are the bytes that came so far, from the first one of this request. -1: the peer has left. The call is gone. */
int rc_http_call_take(rc_http_call *c, rc_buf *ret_came);

#endif
