/* A served call and its server: what server.c and parts.c share. */
#ifndef RC_RPC_REQUEST_H
#define RC_RPC_REQUEST_H

#include <semaphore.h>
#include <stdatomic.h>

#include "raylet-c/rpc/internal.h"

typedef struct rc__parts rc__parts;

struct rc__server {
	rc_rpc *rpc;
	grpc_server *server;
	rc__op stopped;
	sem_t taken_down; /* see take_down_at_once */
	char *sliced, *health_service;
	rc_serve_fn serve;
	void *ctx;
	size_t max_calls;
	atomic_bool serving;
	atomic_size_t open, held;
	atomic_bool told_full;
	rc_link with_loop; /* rc_request: unanswered ones, loop thread only */
};

struct rc_request {
	rc__op op;
	rc__server *server;
	rc_link link;
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array metadata;
	grpc_byte_buffer *message, *answer;
	rc_buf flat;
	rc_view bytes;
	size_t held;
	grpc_slice detail;
	int cancelled;
	char *peer;
	rc__parts *parts; /* parts.c: an answer in parts has begun */
};

/* server.c: frees the request and lets go of what it holds. Any thread. */
void rc__request_free(rc_request *r);

/* parts.c */
/* The server stops: the user hears `left`, the peer UNAVAILABLE. Loop thread. */
void rc__parts_stop(rc_request *r);
void rc__parts_free(rc__parts *p); /* NULL is fine */

#endif
