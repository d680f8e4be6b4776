/* What the sources of this folder share; no other folder includes it. */
#ifndef RC_RPC_INTERNAL_H
#define RC_RPC_INTERNAL_H

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <pthread.h>

#include "raylet-c/base/list.h"
#include "raylet-c/base/map.h"
#include "raylet-c/rpc/mailbox.h"
#include "raylet-c/rpc/rpc.h"

typedef struct rc__server rc__server;

struct rc_rpc {
	rc_loop *loop;
	rc__mailbox *box;
	grpc_completion_queue *queue;
	pthread_t thread;
	bool closing;
	size_t max_message;
	char *bearer; /* "Bearer <token>", or NULL */
	grpc_metadata bearer_metadata, cluster_metadata;
	bool has_cluster;
	char *pem_cert, *pem_key, *pem_ca; /* contents; NULL: no TLS */
	char *cert_path;
	rc_map *channels;                  /* address, or address + " bulk 1" and so on -> rc__channel */
	rc_link all_channels;              /* those that were forgotten too */
	rc_timer *sweep;
	rc_map *calls; /* id -> rc__call */
	uint64_t last_call;
	rc__server *server;
};

/* ---- core.c ---- */
/* Starts a batch. When gRPC refuses it (a fault of ours, which is logged), the op is reported with ok = false. Any thread. */
void rc__start(rc_rpc *rpc, grpc_call *call, const grpc_op *ops, size_t n, rc__op *op);
/* A message as one run of bytes: borrowed from the buffer when it is in one piece, else gathered into *flat (to be freed
 * with rc_buf_free). *buffer is set to NULL, and *flat used, when gathering let the buffer go. */
rc_view rc__flatten(grpc_byte_buffer **buffer, rc_buf *flat);
grpc_byte_buffer *rc__message(rc_view bytes); /* copied */

/* ---- channel.c ---- */
typedef struct rc__channel {
	rc_link link; /* of rc_rpc.all_channels */
	grpc_channel *channel;
	char *key;      /* in the map */
	rc_link users;  /* rc__user: calls and streams under way */
	size_t n_users;
	uint64_t idle_since;
	bool forgotten; /* no longer in the map: goes with its last user */
} rc__channel;

typedef struct rc__user {
	rc_link link;
	rc__channel *channel;
	grpc_call *call;
} rc__user;

/* Makes the call on the channel to the address (opened when there is none) and enters it as a user. */
void rc__user_start(rc_rpc *rpc, rc__user *u, const char *address, bool bulk, const char *path, gpr_timespec deadline);
void rc__user_end(rc__user *u); /* lets go of the call and the channel */
void rc__channels_cancel(rc_rpc *rpc);  /* every user: RC_RPC_CANCELLED */
void rc__channels_sweep(void *rpc);     /* drops channels that were idle for a minute */
void rc__channels_destroy(rc_rpc *rpc); /* all; no user is left */

/* ---- metadata of a call ---- */
enum { RC__METADATA_MAX = 2 };
size_t rc__metadata(const rc_rpc *rpc, unsigned which, grpc_metadata *out); /* borrowed slices; out has RC__METADATA_MAX */

/* ---- tls.c ---- */
/* Reads the PEM files that the options name; error names the file. All NULL: TLS stays off. */
int rc__tls_load(rc_rpc *rpc, const rc_rpc_options *options, rc_error *error) RC_WARN_UNUSED;
void rc__tls_free(rc_rpc *rpc);
grpc_channel_credentials *rc__channel_credentials(const rc_rpc *rpc);
grpc_server_credentials *rc__server_credentials(const rc_rpc *rpc);

/* ---- server.c ---- */
void rc__server_stop(rc_rpc *rpc);    /* takes no more calls, and answers what the loop still owes */
void rc__server_cancel(rc_rpc *rpc);  /* gives up answers that did not leave yet */
void rc__server_destroy(rc_rpc *rpc); /* after live fell to 0 */

#endif
