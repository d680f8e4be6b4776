/* Framed unix-socket server: the frame that Ray's raylet socket and plasma socket share (2.35.0 and 2.60.0):
 *   int64 cookie 0x5241590000000000, int64 type, int64 length, then length bytes; little endian, no padding.
 * Loop thread only. Writes are queued and never block; a peer that lets more than RC_CONN_MAX_QUEUED bytes pile up is closed, and
 * so is the one for which most wait when all of a listener's together go beyond RC_CONN_MAX_QUEUED_ALL. */
#ifndef RC_BASE_CONN_H
#define RC_BASE_CONN_H

#include <sys/types.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/loop.h"

enum { RC_CONN_MAX_QUEUED = 256 << 20, RC_CONN_MAX_QUEUED_ALL = 2 * RC_CONN_MAX_QUEUED };

typedef struct rc_listener rc_listener;
typedef struct rc_conn rc_conn;

typedef struct rc_conn_ops {
	void (*accepted)(void *ctx, rc_conn *c);
	/* body is borrowed for the call and 8-byte aligned. The handler may close c or destroy the listener. */
	void (*frame)(void *ctx, rc_conn *c, int64_t type, const uint8_t *body, size_t n);
	/* The last call for c, also after rc_conn_close; reason is for the log ("end of stream", "bad cookie 0x..", ...). */
	void (*closed)(void *ctx, rc_conn *c, const char *reason);
} rc_conn_ops;

/* Binds path (at most 107 bytes), mode 0755; a stale socket file is not removed: the caller chooses another name. */
rc_listener *rc_listener_create(rc_loop *loop, const char *path, size_t max_frame, const rc_conn_ops *ops, void *ctx, rc_error *error);
/* Closes its connections too: each gets its `closed` before this returns. Safe inside any callback. NULL is fine. */
void rc_listener_destroy(rc_listener *l, bool unlink_path);

void rc_conn_send(rc_conn *c, int64_t type, const void *body, size_t n);
/* Sends one data byte with fd in SCM_RIGHTS, after everything sent before; fd stays the caller's. */
void rc_conn_send_fd(rc_conn *c, int fd);
void rc_conn_close(rc_conn *c, const char *reason); /* pending writes are tried once; `closed` comes from the loop later */
void rc_conn_set_user(rc_conn *c, void *user);
void *rc_conn_user(const rc_conn *c);
pid_t rc_conn_peer_pid(const rc_conn *c);

#endif
