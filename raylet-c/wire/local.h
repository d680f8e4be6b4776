/* Messages of the two unix sockets (raylet socket, plasma socket): flatbuffers in Ray's frame (base/conn.h), read with
 * bounds checks and written by our own writer. Decoded structs borrow from the body. Facts: 2.35.0 and 2.60.0 on the wire,
 * ray's src/ray/raylet/format/node_manager.fbs and src/ray/object_manager/plasma/plasma.fbs. Pure functions: any thread. */
#ifndef RC_WIRE_LOCAL_H
#define RC_WIRE_LOCAL_H

#include "raylet-c/wire/dialect.h"

enum { RC_LOCAL_MAX_OBJECTS = 1 << 20 }; /* that one message may name; stock workers name 10,000 at most, a wait some 300,000 */

/* ---- raylet socket ---- */

typedef enum rc_local {
	RC_L_ACTOR_CREATION_DONE,
	RC_L_REGISTER_CLIENT,
	RC_L_REGISTER_CLIENT_REPLY,
	RC_L_ANNOUNCE_PORT,
	RC_L_ANNOUNCE_PORT_REPLY,
	RC_L_DISCONNECT,
	RC_L_DISCONNECT_REPLY,
	RC_L_GET_OBJECTS,     /* FetchOrReconstruct / AsyncGetObjectsRequest */
	RC_L_CANCEL_GET,      /* NotifyUnblocked / CancelGetRequest */
	RC_L_BLOCKED,
	RC_L_UNBLOCKED,
	RC_L_WAIT,
	RC_L_WAIT_REPLY,
	RC_L_WAIT_ACTOR_ARGS,
	RC_L_PUSH_ERROR,
	RC_L_FREE_OBJECTS,
	RC_L_SUBSCRIBE_PLASMA_READY,
	RC_L_COUNT,
	RC_L_UNKNOWN = -1
} rc_local;

int64_t rc_local_type(const rc_dialect *d, rc_local kind); /* -1: the release has none */
rc_local rc_local_kind(const rc_dialect *d, int64_t type);
const char *rc_local_name(rc_local kind);

typedef struct rc_local_address {
	rc_view node_id, worker_id;
	rc_view ip; /* not NUL-terminated */
	int port;
} rc_local_address;

typedef struct rc_local_objects { /* ids and, for the messages that have them, owners; checked by the decoder, read by index */
	size_t n;
	const void *begin_, *ids_, *owners_, *end_; /* private */
} rc_local_objects;
rc_view rc_local_object(const rc_local_objects *o, size_t i);                        /* 28 bytes; empty: i out of range */
int rc_local_owner(const rc_local_objects *o, size_t i, rc_local_address *ret_owner); /* -1: none */

typedef struct rc_register_client {
	int worker_type; /* 0 worker, 1 driver, 2 spill, 3 restore */
	rc_view worker_id, job_id, ip, serialized_job_config;
	int64_t pid;
	int64_t startup_token; /* 2.35.0; -1 in 2.60.0 */
	int runtime_env_hash, language, port;
} rc_register_client;

typedef struct rc_get_objects {
	rc_local_objects objects;
	bool fetch_only; /* 2.35.0 */
	rc_view task_id; /* 2.35.0 */
} rc_get_objects;

typedef struct rc_wait {
	rc_local_objects objects;
	int needed;
	int64_t timeout_ms; /* -1: none */
	rc_view task_id;    /* 2.35.0 */
} rc_wait;

typedef struct rc_wait_actor_args {
	rc_local_objects objects;
	int64_t tag;        /* 2.35.0 */
	rc_view task_id;    /* 2.60.0 */
	int attempt_number; /* 2.60.0 */
} rc_wait_actor_args;

/* All decoders: 0, or -1 with a text that names the message, the field and the fault. */
int rc_decode_register_client(const rc_dialect *d, rc_view body, rc_register_client *ret, rc_error *e) RC_WARN_UNUSED;
int rc_decode_announce_port(const rc_dialect *d, rc_view body, int *ret_port, rc_view *ret_entrypoint, rc_error *e) RC_WARN_UNUSED;
int rc_decode_disconnect(const rc_dialect *d, rc_view body, int *ret_exit_type, rc_view *ret_detail, rc_view *ret_exception,
                         rc_error *e) RC_WARN_UNUSED;
int rc_decode_get_objects(const rc_dialect *d, rc_view body, rc_get_objects *ret, rc_error *e) RC_WARN_UNUSED;
/* Which of the connection's get requests, counted from 0, is over; -1: all (2.35.0, which names a task instead). */
int rc_decode_cancel_get(const rc_dialect *d, rc_view body, int64_t *ret_get, rc_error *e) RC_WARN_UNUSED;
int rc_decode_blocked(const rc_dialect *d, rc_view body, bool *ret_release_resources, rc_error *e) RC_WARN_UNUSED; /* 2.60.0: true */
int rc_decode_wait(const rc_dialect *d, rc_view body, rc_wait *ret, rc_error *e) RC_WARN_UNUSED;
int rc_decode_wait_actor_args(const rc_dialect *d, rc_view body, rc_wait_actor_args *ret, rc_error *e) RC_WARN_UNUSED;
int rc_decode_push_error(const rc_dialect *d, rc_view body, rc_view *ret_job, rc_view *ret_type, rc_view *ret_text, double *ret_time,
                         rc_error *e) RC_WARN_UNUSED;
int rc_decode_free_objects(const rc_dialect *d, rc_view body, bool *ret_local_only, rc_local_objects *ret, rc_error *e) RC_WARN_UNUSED;
int rc_decode_subscribe_ready(const rc_dialect *d, rc_view body, rc_view *ret_object, rc_local_address *ret_owner,
                              rc_error *e) RC_WARN_UNUSED;

/* Encoders append a flatbuffer to out (whose content they own: pass an empty one). */
void rc_encode_register_reply(const rc_dialect *d, bool success, const char *failure, const rc_id *node_id, int port, rc_buf *out);
void rc_encode_announce_reply(const rc_dialect *d, bool success, const char *failure, rc_buf *out);
void rc_encode_disconnect_reply(const rc_dialect *d, rc_buf *out);
void rc_encode_wait_reply(const rc_dialect *d, const rc_id *found, size_t n_found, const rc_id *remaining, size_t n_remaining, rc_buf *out);

/* ---- plasma socket (same numbers in both releases for what is used) ---- */

typedef enum rc_plasma {
	RC_P_DISCONNECT = 0,
	RC_P_CREATE = 1,
	RC_P_CREATE_RETRY = 2,
	RC_P_CREATE_REPLY = 3,
	RC_P_ABORT = 4,
	RC_P_ABORT_REPLY = 5,
	RC_P_SEAL = 6,
	RC_P_SEAL_REPLY = 7,
	RC_P_GET = 8,
	RC_P_GET_REPLY = 9,
	RC_P_RELEASE = 10,
	RC_P_RELEASE_REPLY = 11,
	RC_P_DELETE = 12,
	RC_P_DELETE_REPLY = 13,
	RC_P_CONTAINS = 14,
	RC_P_CONTAINS_REPLY = 15,
	RC_P_CONNECT = 16,
	RC_P_CONNECT_REPLY = 17,
	/* 2.35.0: 18/19 evict, 20/21 debug string; 2.60.0: 18/19 debug string */
} rc_plasma;

typedef enum rc_plasma_error {
	RC_PE_OK = 0,
	RC_PE_EXISTS = 1,
	RC_PE_NOT_FOUND = 2,
	RC_PE_NO_MEMORY = 3,
	RC_PE_NOT_SEALED = 4,
	RC_PE_IN_USE = 5,
	RC_PE_UNEXPECTED = 6,
	RC_PE_SEALED = 7,
	RC_PE_NO_DISK = 8,
} rc_plasma_error;

typedef struct rc_plasma_spec { /* where an object lies; PlasmaObjectSpec, 80 bytes on the wire */
	int segment_index;
	int64_t unique_fd_id;
	uint64_t header_offset, data_offset, data_size, metadata_offset, metadata_size, allocated_size;
	bool fallback, is_mutable;
	int device_num;
} rc_plasma_spec;

typedef struct rc_plasma_create {
	rc_view object_id;
	rc_local_address owner;
	bool is_mutable, try_immediately;
	uint64_t data_size, metadata_size;
	int source, device_num;
} rc_plasma_create;

int rc_decode_plasma_create(const rc_dialect *d, rc_view body, rc_plasma_create *ret, rc_error *e) RC_WARN_UNUSED;
int rc_decode_plasma_create_retry(const rc_dialect *d, rc_view body, rc_view *ret_object, uint64_t *ret_request_id,
                                  rc_error *e) RC_WARN_UNUSED;
/* Abort, Seal, Release (ret_flag: may_unmap), Contains: one object id. ret_flag may be NULL. */
int rc_decode_plasma_evict(rc_view body, uint64_t *ret_bytes, rc_error *e) RC_WARN_UNUSED; /* 2.35.0 */
void rc_encode_plasma_evict_reply(uint64_t bytes, rc_buf *out);
int rc_decode_plasma_one(const rc_dialect *d, rc_plasma type, rc_view body, rc_view *ret_object, bool *ret_flag,
                         rc_error *e) RC_WARN_UNUSED;
/* Get (timeout_ms), Delete (timeout NULL). */
int rc_decode_plasma_many(const rc_dialect *d, rc_plasma type, rc_view body, rc_local_objects *ret, int64_t *ret_timeout_ms,
                          rc_error *e) RC_WARN_UNUSED;

void rc_encode_plasma_connect_reply(const rc_dialect *d, int64_t capacity, rc_buf *out);
void rc_encode_plasma_create_reply(const rc_dialect *d, const rc_id *object, uint64_t retry_id, const rc_plasma_spec *spec,
                                   rc_plasma_error error,
                                   int store_fd, int64_t unique_fd_id, int64_t mmap_size, rc_buf *out);
/* Abort, Seal, Release, Contains (flag: has_object) replies. */
void rc_encode_plasma_one_reply(const rc_dialect *d, rc_plasma reply_type, const rc_id *object, rc_plasma_error error,
                                bool flag, rc_buf *out);
void rc_encode_plasma_delete_reply(const rc_dialect *d, const rc_id *objects, const rc_plasma_error *errors, size_t n, rc_buf *out);
/* One spec per object asked for; data_size UINT64_MAX marks a missing one (-1 on the wire). Segments: those that the specs name. */
void rc_encode_plasma_get_reply(const rc_dialect *d, const rc_id *objects, const rc_plasma_spec *specs, size_t n, const int *store_fds,
                                const int64_t *unique_fd_ids, const int64_t *mmap_sizes, size_t n_segments, rc_buf *out);

#endif
