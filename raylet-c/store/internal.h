/* What the store's own sources share: the object table's entry, queues, jobs, events. Nothing outside store/ includes this.
 *
 * Who does what: table.c objects, their memory, eviction, events; create.c room for new objects and the creation queue;
 * server.c the socket; spill.c choosing and writing spill files; restore.c reading them; store.c start and end, the rest of
 * the public functions; report.c figures.
 *
 * Reentrancy: every public function and every callback from the loop is bracketed by rc__enter and rc__leave. Changes note
 * what has to be looked at (check_creates, check_spill) and queue events; the outermost rc__leave does both until nothing is
 * left. So callbacks of others never run in the middle of a change, and may call any public function. */
#ifndef RC_STORE_INTERNAL_H
#define RC_STORE_INTERNAL_H

#include <pthread.h>

#include "raylet-c/base/conn.h"
#include "raylet-c/base/list.h"
#include "raylet-c/base/map.h"
#include "raylet-c/store/config.h"
#include "raylet-c/store/heap.h"
#include "raylet-c/store/segment.h"
#include "raylet-c/store/spillfile.h"
#include "raylet-c/store/store.h"

typedef struct rc__object rc__object;
typedef struct rc__client rc__client;
typedef struct rc__restore rc__restore;

enum {
	RC__ALIGN = 64,          /* of objects in the arena, as in stock: vector instructions on the data */
	RC__MUTABLE_HEADER = 96, /* sizeof PlasmaObjectHeader, in front of a mutable object's data (src/ray/object_manager/common.h) */
};

/* ---- objects ---- */

typedef enum rc__state { RC__ABSENT, RC__CREATED, RC__SEALED } rc__state; /* of the memory copy */
typedef enum rc__idle { RC__BUSY, RC__EVICTABLE, RC__EVICTABLE_DISK, RC__SPILLABLE, RC__IDLE_COUNT } rc__idle;

/* A file (or an external URL without its query) with spilled objects. It goes when objects and readers are both 0. */
typedef struct rc__file {
	char *path;
	char *url; /* external: of any object in it */
	unsigned objects, readers;
} rc__file;

struct rc__object {
	rc_id id;
	rc_owner owner;
	/* The memory copy. */
	rc__state state;
	rc_source source;
	bool is_mutable, by_client;
	uint64_t data_size, metadata_size;
	uint8_t *data;
	rc_block *block;      /* in the arena, or */
	rc_segment *fallback; /* a segment of its own */
	rc__client *creator;  /* while created through the socket */
	rc_store_buffer *buffer; /* while created by this process */
	unsigned clients, holds;
	uint64_t created_ms;
	/* What is known of it. */
	bool pinned, spilling, deleting;
	bool counted_in_use, counted_primary; /* in the figures: see rc__update */
	rc__idle idle;
	rc_link idle_link; /* in the list of its kind, longest idle first */
	/* The spilled copy. */
	rc__file *file;
	char *url;
	uint64_t spilled_data_size, spilled_metadata_size;
	rc__restore *restore;
};

/* ---- creation ---- */

typedef struct rc__create {
	rc_link link; /* in the queue, or alone */
	uint64_t number;
	rc_store_new object;
	bool is_mutable;
	bool absurd; /* sizes beyond any store (object has 0 instead, for the sums): refused when its turn comes */
	rc__client *client; /* or */
	rc_store_created_fn fn;
	void *arg;
	bool done, cancelled;    /* done: waits for the client to ask again, or for its event */
	rc_plasma_error error;
	rc_store_buffer *buffer; /* own, when made */
} rc__create;

/* ---- jobs on the pool ---- */

/* First member of a job's struct. work runs on a pool thread and may look at store->stopping only; done on the loop. After
 * rc_store_destroy done is not called, drop is: it frees what the job owns. */
typedef struct rc__job {
	rc_link link;
	rc_store *s; /* NULL: the store is gone */
	void (*work)(struct rc__job *job);
	void (*done)(struct rc__job *job); /* frees the job */
	void (*drop)(struct rc__job *job);
	const char *remove; /* a file that must not stay when done is not called; or NULL */
} rc__job;

/* ---- events: callbacks that wait for the outermost rc__leave ---- */

typedef enum rc__event_kind {
	RC__EV_SEALED,
	RC__EV_GONE,
	RC__EV_SPILLED,
	RC__EV_FULL,
	RC__EV_CREATED,
	RC__EV_RESTORED,
	RC__EV_SPILL_EXTERNAL,
	RC__EV_RESTORE_EXTERNAL,
	RC__EV_DELETE_EXTERNAL,
} rc__event_kind;

typedef struct rc__event {
	rc_link link;
	rc__event_kind kind;
	rc_id id;
	rc_owner owner;
	uint64_t data_size, metadata_size;
	rc_source source;
	bool flag;  /* sealed: by a client; gone: still spilled */
	char *text; /* a URL, or an error */
	rc__create *create;
	rc_store_restored_fn restored;
	void *arg;
	uint64_t job;
	rc_id *ids;
	rc_owner *owners;
	size_t n;
} rc__event;

/* ---- the store ---- */

typedef struct rc__list {
	rc_link head;
	uint64_t bytes; /* arena space of those in it */
	size_t n;
} rc__list;

struct rc_store {
	rc_loop *loop;
	const rc_dialect *dialect;
	rc_store_ops ops;
	void *ctx;
	rc_id node_id;
	uint64_t capacity;
	size_t max_objects;
	char *plasma_dir, *fallback_dir;
	rc_store_config config;
	bool stopping; /* atomic: jobs end early */

	rc_segment *arena;
	rc_heap *heap;
	int64_t next_segment;
	uint64_t keep_free;        /* bytes of the plasma directory's file system that are left alone */
	uint64_t grow_again_ms;    /* after a failure */
	uint64_t grow_logged_ms;
	bool growing;              /* a job is reserving pages */

	rc_map *objects; /* id -> rc__object */
	rc__list idle[RC__IDLE_COUNT];
	uint64_t changes; /* counts what may have made room */

	int depth;
	bool check_creates, check_spill;
	rc_link events;

	rc_link creates; /* waiting, in order */
	rc_map *create_numbers;
	uint64_t next_number;
	uint64_t tried_number, tried_changes; /* who was tried last, and `changes` then: no change, no new try */
	uint64_t full_since_ms, full_last_ms, full_told_ms, full_logged_ms;
	rc_timer *create_timer;

	rc_listener *listener;
	rc_link clients;
	rc_map *waits; /* id -> list of waiting gets */
	size_t n_waits; /* entries of these lists */

	char **spill_dirs; /* made; files: n > 0 */
	size_t n_spill_dirs, next_spill_dir;
	char *spill_type;
	bool spill_to_files;
	rc_map *files; /* path -> rc__file */
	unsigned spill_jobs;
	uint64_t spill_again_ms, spill_logged_ms;
	uint64_t last_spill_end_ns, last_restore_end_ns;
	uint64_t next_external;
	rc_map *external; /* number -> external (spill.c) */

	rc_link restores; /* waiting for their turn */
	unsigned restoring;

	pthread_mutex_t jobs_lock;
	pthread_cond_t jobs_cond;
	unsigned jobs_running; /* under the lock */
	rc_link jobs;

	rc_store_stats stats; /* kept up to date, but what rc_store_get_stats adds */
};

/* store.c */
void rc__enter(rc_store *s);
void rc__leave(rc_store *s);
void rc__job_start(rc_store *s, rc__job *job);
bool rc__disk_is_full(const rc_store *s, const char *path, uint64_t more); /* beyond local_fs_capacity_threshold */
uint64_t rc__now_ns(void);

/* table.c */
rc__object *rc__find(const rc_store *s, const rc_id *id);
rc__object *rc__entry(rc_store *s, const rc_id *id); /* found or made */
/* Looks again at what may be done with an object: lists, figures, deletion that waited. May free it. */
void rc__update(rc_store *s, rc__object *o);
void rc__forget_if_empty(rc_store *s, rc__object *o);
/* absent -> created, in one of the two places */
void rc__attach(rc_store *s, rc__object *o, const rc_store_new *what, rc_block *block, rc_segment *fallback, bool is_mutable);
void rc__drop_memory(rc_store *s, rc__object *o); /* -> absent, and nothing else: the caller looks after the entry */
void rc__sealed(rc_store *s, rc__object *o);  /* created -> sealed, events, gets. May free it */
void rc__aborted(rc_store *s, rc__object *o); /* created -> absent. May free it */
void rc__evict(rc_store *s, rc__object *o);   /* must be evictable. May free it */
void rc__delete(rc_store *s, rc__object *o);  /* may free it */
void rc__drop_spilled(rc_store *s, rc__object *o);
uint64_t rc__size(const rc__object *o);
rc__event *rc__event_new(rc_store *s, rc__event_kind kind, const rc__object *o);
void rc__run_events(rc_store *s);
void rc__event_free(rc__event *ev);

/* create.c */
rc__create *rc__create_add(rc_store *s, const rc_store_new *object, rc__client *client, bool is_mutable);
rc__create *rc__create_find(const rc_store *s, uint64_t number);
void rc__create_forget(rc_store *s, rc__create *c); /* its number and its place in the queue */
uint64_t rc__arena_limit(const rc_store *s); /* what the arena can have: less than the capacity while no memory is to be had */
void rc__process_creates(rc_store *s);
/* At once: arena, else disk when allowed. *ret is set on RC_PE_OK. */
rc_plasma_error rc__create_now(rc_store *s, const rc_store_new *object, bool is_mutable, rc__object **ret);
uint64_t rc__evict_bytes(rc_store *s, uint64_t bytes); /* of the arena, the longest idle first; returns how many */
uint64_t rc__creates_need(const rc_store *s); /* arena bytes that the queue waits for, at most the capacity */

/* server.c */
int rc__serve(rc_store *s, const char *path, rc_error *e);
void rc__serve_end(rc_store *s);
void rc__gets_sealed(rc_store *s, rc__object *o); /* answers what waited for it */
void rc__client_has(rc_store *s, rc__client *client, rc__object *o); /* counts once for each client */
void rc__segment_gone(rc_store *s, int64_t unique_id); /* clients must be sent it anew, were its number to come back */

/* spill.c */
void rc__spill_open(rc_store *s, const rc_store_options *o);
void rc__spill_end(rc_store *s);
void rc__spill_check(rc_store *s); /* starts what the threshold and the creation queue ask for */
bool rc__spilling(const rc_store *s);
void rc__file_unref(rc_store *s, rc__file *f); /* after objects or readers went down */
uint64_t rc__external_restore(rc_store *s, rc__restore *r); /* the number for ops.restore_external */

/* restore.c */
void rc__restore_sealed(rc_store *s, rc__object *o); /* it came, by whatever way */
void rc__restore_drop(rc_store *s, rc__object *o, const char *why); /* waiting callbacks get the reason; the object goes away */
void rc__restore_aborted(rc_store *s, rc__object *o); /* what it was coming by is no more */
void rc__restore_external_done(rc_store *s, rc__restore *r, const char *error);
void rc__restore_end(rc_store *s);
void rc__restore_free(rc__restore *r);

#endif
