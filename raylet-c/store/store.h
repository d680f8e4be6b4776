/* The object store of this node: Ray's plasma. One shared arena that clients map, an object table, a socket server, creation
 * with backpressure, eviction, fallback allocation on disk, spilling and restoring.
 *
 * Facts: Ray 2.35.0 and 2.60.0 on the wire; src/ray/object_manager/plasma/{store,client,create_request_queue,
 * object_lifecycle_manager,eviction_policy}.cc, src/ray/raylet/local_object_manager.cc, python's _private/external_storage.py.
 *
 * An object lives in memory (arena, or a fallback file on disk that clients map in the same way), or in a spill file, or in
 * both. It may be evicted from memory when it is sealed and nobody needs the memory copy: no client has it, no rc_hold, not
 * pinned. Pinned (primary) copies are spilled under pressure, and then only the spilled copy is kept for ever.
 *
 * Sizes are bytes. An object is data followed directly by metadata. Ids are copied. Loop thread only. Callbacks (rc_store_ops
 * and rc_store_*_fn) run when the store is consistent: they may call any function here but rc_store_destroy. They may run
 * inside the call that caused them, at its end; "later" in a description means never inside the call. */
#ifndef RC_STORE_STORE_H
#define RC_STORE_STORE_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/id.h"
#include "raylet-c/base/loop.h"
#include "raylet-c/base/status.h"
#include "raylet-c/wire/dialect.h"
#include "raylet-c/wire/local.h"

typedef struct rc_store rc_store;

/* The core worker that owns an object (a ray.rpc.Address). worker_id.n = 0: the object has no owner. */
typedef struct rc_owner {
	rc_id node_id, worker_id;
	char ip[64];
	int port;
} rc_owner;

/* Who made an object: plasma.fbs ObjectSource, the same numbers in both releases. */
typedef enum rc_source {
	RC_BY_WORKER = 0, /* a task's result or ray.put */
	RC_RESTORED = 1,
	RC_RECEIVED = 2, /* from another node */
	RC_ERROR_STORED = 3, /* by the node, in place of an object that cannot come */
} rc_source;

typedef struct rc_store_options {
	const char *socket_path;  /* --store_socket_name, at most 107 bytes; must not exist */
	uint64_t capacity;        /* --object_store_memory */
	const char *plasma_dir;   /* --plasma_directory, e.g. /dev/shm; the arena's file is unlinked at once */
	const char *fallback_dir; /* --fallback_directory (2.60.0) or the temp dir (2.35.0); NULL: no fallback allocation */
	const char *spill_dir;    /* wins over the directory in object_spilling_config: --fallback_directory in 2.60.0; else NULL */
	const char *session_dir;  /* spill folder when neither the config nor spill_dir gives one that can be made */
	rc_id node_id;
	bool huge_pages; /* --huge_pages: plasma_dir is a hugetlbfs mount */
	/* What GetInternalConfig answered (JSON), NULL: none. RAY_<name> in the environment counts for what it lacks. Read are:
	 * object_spilling_config, automatic_object_spilling_enabled, object_spilling_threshold, min_spilling_size,
	 * max_fused_object_count, max_spilling_file_size_bytes, max_io_workers, oom_grace_period_s, local_fs_capacity_threshold. */
	const char *system_config;
	size_t max_objects; /* in the table; 0: 2,000,000. More are refused like a full store */
} rc_store_options;

/* All may be NULL. */
typedef struct rc_store_ops {
	/* Sealed in memory: new, received or restored. by_client: through the socket. */
	void (*sealed)(void *ctx, const rc_id *id, const rc_owner *owner, uint64_t data_size, uint64_t metadata_size, rc_source source,
	               bool by_client);
	/* A sealed object's memory copy is gone: evicted or deleted. spilled: the spilled copy is still here. */
	void (*gone)(void *ctx, const rc_id *id, const rc_owner *owner, bool spilled);
	/* Written to a spill file; the memory copy may still be there for a while. */
	void (*spilled)(void *ctx, const rc_id *id, const rc_owner *owner, const char *url);
	/* Creation is blocked: processes should collect garbage, so that references go. At most once a second. */
	void (*full)(void *ctx);
	/* Storage other than files (rc_store_spill_type is not "filesystem"): through Ray's IO workers, which read and write
	 * objects as clients of the socket. Arrays are borrowed for the call. Answer each by the function named, once, later.
	 * Without the first two such a configuration spills to files, with an error in the log. */
	void (*spill_external)(void *ctx, uint64_t job, const rc_id *ids, const rc_owner *owners, size_t n); /* rc_store_external_spilled */
	void (*restore_external)(void *ctx, uint64_t job, const rc_id *id, const char *url);               /* rc_store_external_restored */
	void (*delete_external)(void *ctx, const char *const *urls, size_t n);                            /* no answer */
} rc_store_ops;

/* NULL: the error names the option, its value and the reason; nothing is left behind. ops is copied; strings of options too.
 * Warns when the memory that the arena promises is not free in plasma_dir now: then creation blocks, spills or falls back to
 * disk before the arena is full, but no process dies by SIGBUS, since pages are reserved before they are handed out. */
rc_store *rc_store_create(rc_loop *loop, const rc_dialect *d, const rc_store_options *options, const rc_store_ops *ops, void *ctx,
                          rc_error *e);
/* Closes the socket and all clients, waits for disk jobs that are running, removes the spill files. No callback comes. */
void rc_store_destroy(rc_store *s); /* NULL is fine */

/* ---- looking ---- */

bool rc_store_contains(const rc_store *s, const rc_id *id); /* sealed, in memory */
/* The URL of the spilled copy, NULL when there is none; borrowed until the object is deleted. Files: "/dir/file?offset=0&size=9". */
const char *rc_store_spilled_url(const rc_store *s, const rc_id *id);
const char *rc_store_spill_type(const rc_store *s); /* "filesystem", "smart_open", ..; "" when spilling is off */
/* Object known here, sealed in memory or spilled. Outputs may be NULL. */
bool rc_store_sizes(const rc_store *s, const rc_id *id, uint64_t *ret_data_size, uint64_t *ret_metadata_size, rc_owner *ret_owner);

/* ---- reading ---- */

/* Keeps a memory copy where it is until rc_store_release. NULL: not sealed in memory. */
typedef struct rc_hold {
	const uint8_t *data; /* data_size bytes, then metadata_size bytes */
	uint64_t data_size, metadata_size;
	rc_owner owner;
	rc_id id;
} rc_hold;
const rc_hold *rc_store_hold(rc_store *s, const rc_id *id);
void rc_store_release(rc_store *s, const rc_hold *hold); /* NULL is fine */

/* The arena: most objects' memory, mapped for as long as the store lives. */
void rc_store_arena(const rc_store *s, void **ret_base, uint64_t *ret_size);

/* ---- writing ---- */

typedef struct rc_store_new {
	rc_id id;
	rc_owner owner;
	uint64_t data_size, metadata_size;
	rc_source source;
} rc_store_new;

/* An object being written by this process. */
typedef struct rc_store_buffer {
	uint8_t *data; /* data_size bytes, then metadata_size bytes */
	uint64_t data_size, metadata_size;
	rc_id id;
} rc_store_buffer;

/* b is NULL unless why is RC_PE_OK. RC_PE_EXISTS: it is in memory already, sealed or not (also when someone else made it
 * while this request was waiting). RC_PE_NO_MEMORY, RC_PE_NO_DISK: refused after oom_grace_period_s. */
typedef void (*rc_store_created_fn)(void *arg, rc_store_buffer *b, rc_plasma_error why);
/* Waits in the same queue as clients' requests. fn runs once: inside the call when there is room (save in a callback of the
 * store: then soon after it), else later. The number is for rc_store_create_cancel; 0 when fn has run already. */
uint64_t rc_store_create_object(rc_store *s, const rc_store_new *object, rc_store_created_fn fn, void *arg);
void rc_store_create_cancel(rc_store *s, uint64_t request); /* fn does not come; unknown numbers are ignored */
/* Exactly one of these for each buffer. Seal: readable by all, evictable unless pinned. */
void rc_store_seal(rc_store *s, rc_store_buffer *b);
void rc_store_abort(rc_store *s, rc_store_buffer *b);
/* Creates and seals a small object at once (64 KiB at most), on disk when there is no room in memory: error objects. */
rc_plasma_error rc_store_put(rc_store *s, const rc_store_new *object, rc_view data, rc_view metadata);

/* ---- keeping and deleting ---- */

/* This node's copy is the primary one: never lost, but spilled under pressure. False: neither sealed in memory nor spilled
 * here, or its deletion was asked for. */
bool rc_store_pin(rc_store *s, const rc_id *id);
/* Becomes a copy that may be evicted; its spilled copy goes. Unknown ids are ignored. */
void rc_store_unpin(rc_store *s, const rc_id *id);
/* Ends the object: unpins it, drops its spilled copy (the file goes with the last object in it) and its memory copy, the
 * latter as soon as no client or hold has it, or once sealed when it is still being written. Unknown ids are ignored. */
void rc_store_delete(rc_store *s, const rc_id *ids, size_t n);

/* ---- spilled objects ---- */

/* Brings an object back to memory. url: NULL = the spilled copy of this node; else where it is (external storage, or a file
 * that can be read here). fn comes once: "" when it is sealed in memory (also when it was), else the reason; later, save that
 * it may run inside the call when nothing was to do. Repeated calls for one object share the work. fn may be NULL. */
typedef void (*rc_store_restored_fn)(void *arg, const rc_id *id, const char *error);
void rc_store_restore(rc_store *s, const rc_id *id, const char *url, rc_store_restored_fn fn, void *arg);
/* Takes one waiting fn back (the restore itself goes on). */
void rc_store_restore_cancel(rc_store *s, const rc_id *id, rc_store_restored_fn fn, void *arg);

/* Reads bytes offset..offset+n of (data, metadata) of an object with a spill file here, without restoring it: for other
 * nodes' pulls. fn comes once, later; bytes are the receiver's to free() and NULL on failure (then error says why). The
 * object's file stays until fn has run, also if the object is deleted. n: at most 64 MiB. */
typedef void (*rc_store_read_fn)(void *arg, uint8_t *bytes, size_t n, const char *error);
void rc_store_read_spilled(rc_store *s, const rc_id *id, uint64_t offset, size_t n, rc_store_read_fn fn, void *arg);

/* Answers of rc_store_ops. urls[i] belongs to ids[i]; fewer than asked: the first n_urls were spilled. error: "" or reason. */
void rc_store_external_spilled(rc_store *s, uint64_t job, const char *const *urls, size_t n_urls, const char *error);
void rc_store_external_restored(rc_store *s, uint64_t job, const char *error);

/* ---- figures ---- */

typedef struct rc_store_stats {
	uint64_t capacity;
	uint64_t used_bytes;      /* sealed objects in memory: object_store_bytes_used */
	uint64_t allocated_bytes; /* the same with unsealed ones and rounding, arena and fallback */
	uint64_t fallback_bytes;
	uint64_t primary_bytes, primary_objects; /* pinned and in memory */
	uint64_t local_objects;                  /* sealed, in memory */
	uint64_t unsealed_bytes, unsealed_objects;
	uint64_t in_use_bytes, in_use_objects; /* held by clients or rc_hold */
	uint64_t created_bytes_total, created_objects_total;
	uint64_t consumed_bytes_total; /* got by clients; 2.35.0 consumed_bytes */
	uint64_t evicted_bytes_total, evicted_objects_total;
	uint64_t spilled_bytes_total, spilled_objects_total, restored_bytes_total, restored_objects_total;
	double spill_time_total_s, restore_time_total_s; /* overlapping jobs are not counted twice */
	uint64_t spilled_bytes_now, spilled_objects_now, spill_files_now;
	uint64_t spilling_objects, spilling_bytes, restoring_objects;
	uint64_t waiting_creates, waiting_bytes, waiting_gets, clients;
} rc_store_stats;
void rc_store_get_stats(const rc_store *s, rc_store_stats *ret);
/* Fills an ObjectStoreStats of GetNodeStats (all but object_pulls_queued); RW__OBJECT_STORE_STATS__INIT first. */
void rc_store_stats_proto(const rc_store *s, Rw__ObjectStoreStats *ret);

typedef struct rc_object_info {
	rc_id id;
	const rc_owner *owner;
	uint64_t data_size, metadata_size;
	bool in_memory, sealed, pinned, fallback, spilling, deleting;
	unsigned clients, holds;
	const char *spilled_url; /* NULL: none */
	uint64_t age_ms;
} rc_object_info;
/* fn returns false to stop. It must not change the store. */
void rc_store_each(const rc_store *s, bool (*fn)(void *arg, const rc_object_info *info), void *arg);
void rc_store_debug(const rc_store *s, rc_buf *out); /* lines for debug_state.txt */

#endif
