/* gRPC behind one header: the only folder that includes grpc/. Unary clients, one server, a bidirectional client stream.
 *
 * Threads: one thread of this module drains the completion queue; every callback and handler runs on the loop thread, save
 * the health service, which the queue thread answers by itself so that it never waits for slow work. All functions are for
 * the loop thread unless marked "any thread".
 *
 * Metadata: every call carries the token of rc_rpc_options; those that ask for it also the cluster id (rc_rpc_set_cluster_id). */
#ifndef RC_RPC_RPC_H
#define RC_RPC_RPC_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/loop.h"

typedef struct rc_rpc rc_rpc;

typedef struct rc_rpc_options {
	/* RAY_USE_TLS: PEM files, all three or none. The same certificate serves both ways; the peer's is required (mutual). */
	const char *tls_cert, *tls_key, *tls_ca;
	/* RAY_AUTH_MODE=token (2.60.0): sent as "authorization: Bearer <token>" on every call and demanded on every served
	 * call but the health check (UNAUTHENTICATED otherwise). NULL: off. */
	const char *token;
	size_t max_message; /* bytes, both ways; 0: 512 MiB */
} rc_rpc_options;

rc_rpc *rc_rpc_create(rc_loop *loop, const rc_rpc_options *options, rc_error *error);
/* With TLS the certificate must list the address by which others call this process, else the error has both; 0 without TLS. */
int rc_tls_check_address(const rc_rpc *rpc, const char *address, rc_error *error) RC_WARN_UNUSED;
/* Stops the server, cancels calls (their callbacks come with RC_RPC_CANCELLED before this returns) and ends the thread.
 * Calls and streams begun inside those callbacks come to nothing, without a callback. Requests that were not answered yet
 * are answered UNAVAILABLE and are gone: nobody may touch them after this. Takes up to 0.5 s for answers to leave. Not from
 * within a callback of this module. NULL is fine. */
void rc_rpc_destroy(rc_rpc *rpc);

/* gRPC status codes that are looked at (grpc/status.h has all). */
enum {
	RC_RPC_OK = 0,
	RC_RPC_CANCELLED = 1,
	RC_RPC_UNKNOWN = 2,
	RC_RPC_INVALID = 3,
	RC_RPC_DEADLINE = 4,
	RC_RPC_NOT_FOUND = 5,
	RC_RPC_EXHAUSTED = 8,
	RC_RPC_ABORTED = 10,
	RC_RPC_UNIMPLEMENTED = 12,
	RC_RPC_INTERNAL = 13,
	RC_RPC_UNAVAILABLE = 14,
	RC_RPC_UNAUTHENTICATED = 16
};

/* ---- client ---- */

/* A channel to one "ip:port", shared by all calls to it, kept until nobody used it for a while. Calls are made by address. */

/* reply is borrowed for the call; empty unless status is RC_RPC_OK. detail: the peer's text. */
typedef void (*rc_reply_fn)(void *arg, int status, rc_view reply, const char *detail);

typedef enum rc_metadata { RC_META_NONE = 0, RC_META_CLUSTER_ID = 1 } rc_metadata;

/* timeout_ms 0, or more than 24 days: none. The request is copied. Unreachable peers fail with RC_RPC_UNAVAILABLE (no
 * wait-for-ready): at once when they refuse, after 5 s when they do not answer at all. Calls to one peer may overtake each
 * other. path must stay valid (paths come from tables). fn may be NULL. Returns a call id for rc_call_cancel. */
uint64_t rc_call(rc_rpc *rpc, const char *address, const char *path, rc_view request, uint64_t timeout_ms, unsigned metadata,
                 rc_reply_fn fn, void *arg);
/* The request is `head` (copied) followed by `body`, which is sent without a copy; unref(unref_arg) is called on the loop
 * thread when gRPC no longer needs it. For chunks of objects. */
uint64_t rc_call_zero_copy(rc_rpc *rpc, const char *address, const char *path, rc_view head, rc_view body, rc_task_fn unref,
                           void *unref_arg, uint64_t timeout_ms, rc_reply_fn fn, void *arg);
/* The callback comes with RC_RPC_CANCELLED, later. Unknown ids are ignored. */
void rc_call_cancel(rc_rpc *rpc, uint64_t call);
/* Closes the channel to this address: a peer that died. Its calls fail. */
void rc_rpc_forget(rc_rpc *rpc, const char *address);

/* "ray_cluster_id: <hex>" for calls with RC_META_CLUSTER_ID; without it they carry none (both releases accept that). */
void rc_rpc_set_cluster_id(rc_rpc *rpc, const char *hex);

/* ---- bidirectional stream, as client ---- */

typedef struct rc_stream rc_stream;
typedef struct rc_stream_ops {
	void (*ready)(void *arg);                /* the peer's initial metadata came */
	void (*message)(void *arg, rc_view bytes);
	void (*sent)(void *arg);                 /* the last rc_stream_send is done: the next one may be made */
	void (*closed)(void *arg, int status, const char *detail); /* the last call; the stream is gone after it */
} rc_stream_ops;

/* metadata: pairs "key", "value", ..., NULL besides the token; at most 8 pairs, copied; keys in lower case. ops must stay
 * valid. Members of ops that are not wanted may be NULL, but for closed. NULL is returned while rc_rpc_destroy runs. */
rc_stream *rc_stream_open(rc_rpc *rpc, const char *address, const char *path, const char *const *metadata, const rc_stream_ops *ops,
                          void *arg);
void rc_stream_send(rc_stream *s, rc_view bytes); /* one at a time: after ready, then after each sent */
void rc_stream_close(rc_stream *s);               /* cancels; `closed` comes later */

/* ---- server ---- */

typedef struct rc_request rc_request; /* one served call; must get exactly one answer */

/* Called for every unary call. path is not NUL-terminated. bytes is contiguous and borrowed until the answer is given,
 * but for large messages (see rc_server_options.sliced) where it is empty and the pieces are read by rc_request_slice. */
typedef void (*rc_serve_fn)(void *ctx, rc_request *request, const char *path, size_t path_n, rc_view bytes);

typedef struct rc_server_port {
	const char *ip;
	int port;           /* 0 or less, or the first one's: none */
	const char *option; /* what an error calls it */
} rc_server_port;

typedef struct rc_server_options {
	const char *ip;  /* address to bind, "0.0.0.0" for all */
	int port;        /* 0: any free one */
	const char *port_option; /* what an error calls it; NULL: a general name */
	const rc_server_port *more; /* served as well, by the same function */
	size_t n_more;
	const char *sliced; /* path whose messages are handed over in pieces (the object manager's Push), or NULL */
	const char *health_service; /* grpc.health.v1.Health/Check answers SERVING for it and for "" */
	rc_serve_fn serve;
	void *ctx;
	size_t max_calls; /* unanswered at a time, more are refused as EXHAUSTED, as are more than 4 max_message bytes; 0: 65536 */
} rc_server_options;

/* Binds and starts; returns the port, or -1 (a taken port says which). */
int rc_server_start(rc_rpc *rpc, const rc_server_options *options, rc_error *error);
void rc_server_set_serving(rc_rpc *rpc, bool serving); /* any thread: what the health service answers */

size_t rc_request_slices(const rc_request *r);
rc_view rc_request_slice(const rc_request *r, size_t i);
const char *rc_request_peer(const rc_request *r); /* "ipv4:127.0.0.1:5000" */
void rc_reply(rc_request *r, rc_view bytes);      /* copied; frees r */
void rc_reply_error(rc_request *r, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* An answer in parts (a method that streams), instead of rc_reply: begin, then one part at a time after each `sent`, then end. */
typedef struct rc_parts_ops {
	void (*sent)(void *arg); /* what was given last has gone: the next part may come */
	void (*left)(void *arg); /* the peer left, or the server stops: the request is gone, nothing more comes. Not after an end */
} rc_parts_ops;
/* metadata: pairs "key", "value", ..., NULL, sent at once; at most 4; copied, and what no header may hold becomes '?'. NULL: none.
 * ops must stay valid; `sent` comes for the beginning too. The request's bytes are no longer borrowed after this. */
void rc_reply_begin(rc_request *r, const char *const *metadata, const rc_parts_ops *ops, void *arg);
void rc_reply_part(rc_request *r, rc_view bytes);                  /* copied */
void rc_reply_end(rc_request *r, int status, const char *detail); /* also while a part is on its way; the request is gone */

#endif
