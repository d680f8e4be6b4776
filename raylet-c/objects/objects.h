/* Objects across nodes: pins of primary copies, location reports to owners, pulling from and pushing to other nodes, waits.
 *
 * The store (store/store.h) holds the bytes of this node; this module knows what of them other processes need. Facts: Ray
 * 2.35.0 and 2.60.0, src/ray/object_manager/{object_manager,pull_manager,push_manager,ownership_object_directory}.cc,
 * src/ray/raylet/{local_object_manager,wait_manager}.cc, src/ray/pubsub/subscriber.cc, and the wire.
 *
 * An object's owner is a core worker; it alone knows where copies are. It is always addressed by its worker address, never
 * through its node.
 *
 * Loop thread only. Callbacks never run inside the call that registers them, save where said, and never after the matching
 * cancel. Ids are copied. A module error is logged once and loses nothing; requests end by a callback or a cancel. */
#ifndef RC_OBJECTS_OBJECTS_H
#define RC_OBJECTS_OBJECTS_H

#include "raylet-c/base/id.h"
#include "raylet-c/base/loop.h"
#include "raylet-c/rpc/rpc.h"
#include "raylet-c/store/store.h"
#include "raylet-c/wire/dialect.h"
#include "raylet-c/wire/local.h"

typedef struct rc_objects rc_objects;

/* One object that somebody wants. owner.worker_id.n = 0: without an owner, never pulled (only a local copy counts). */
typedef struct rc_object_ref {
	rc_id id;
	rc_owner owner; /* store.h: node_id, worker_id, ip, port */
} rc_object_ref;

/* Object i of a message of the raylet socket; a missing owner gives one with worker_id.n = 0. False when the id is malformed
 * (the text says how). */
bool rc_object_ref_from_local(const rc_local_objects *o, size_t i, rc_object_ref *ret, rc_error *e);
void rc_owner_from_local(const rc_local_address *a, rc_owner *ret);

typedef struct rc_objects_options {
	rc_loop *loop;
	rc_rpc *rpc;
	const rc_dialect *dialect;
	rc_store *store;
	rc_id node_id;
	const char *ip; /* of this node and its node manager: told to owners as the subscriber's address (2.35.0) */
	int port;
	/* 0 = the value stock has by default; the name in the system config stands beside it. */
	uint64_t chunk_size;          /* object_manager_default_chunk_size: 5 MiB */
	uint64_t max_bytes_in_flight; /* object_manager_max_bytes_in_flight: 2 GiB, all pushes together */
	unsigned pull_timeout_ms;     /* object_manager_pull_timeout_ms: 10000; first wait before another place is asked */
	unsigned max_pulls;           /* objects pulled at one time: 64 */
	unsigned report_batch;        /* max_object_report_batch_size: 2000 */
	double args_memory_fraction;  /* max_task_args_memory_fraction: 0.7 of the store for rc_objects_fetch_hold */
	unsigned fetch_fail_timeout_ms; /* fetch_fail_timeout_milliseconds: 600000; an object that exists nowhere fails then */
	unsigned unreachable_failures; /* failed calls in a row, pauses doubling from 100 ms, until pulls of an owner fail: 8 */
	/* Hex. Not NULL: objects are asked for, and answered, by the Fetch of our own nodes too (exchange.h). */
	const char *cluster_id;
	/* Providers that may carry objects (rc_fabric_settings); NULL or "off": none. ip is the address that they take. */
	const char *fabric;
	unsigned free_period_ms;      /* free_objects_period_milliseconds: 1000; 2.35.0, frees told to other nodes are batched */
} rc_objects_options;

typedef struct rc_objects_ops {
	/* "ip:port" of a node's object manager into ret; false when the node is unknown or dead. */
	bool (*node_address)(void *ctx, const rc_id *node, char ret[80]);
	/* True when the node is known to be dead (an unknown one is not). */
	bool (*node_dead)(void *ctx, const rc_id *node);
	/* Calls fn for each alive node but this one (2.35.0: FreeObjects is sent to all). */
	void (*each_node)(void *ctx, void (*fn)(void *arg, const rc_id *node, const char *address), void *arg);
	/* rc_objects_pulls_queued has changed: the resource view carries it. May be NULL. */
	void (*pulls_queued)(void *ctx, bool queued);
} rc_objects_ops;

/* ops is copied. The store must outlive this module. */
rc_objects *rc_objects_create(const rc_objects_options *options, const rc_objects_ops *ops, void *ctx);
void rc_objects_destroy(rc_objects *o); /* no callbacks come; before rc_rpc_destroy and the store's end; NULL is fine */

/* ---- events ---- */

/* From the store's ops, as they come; fine before rc_objects_create has returned (o is NULL then). */
void rc_objects_sealed(rc_objects *o, const rc_id *id, const rc_owner *owner, uint64_t data_size, uint64_t metadata_size,
                       rc_source source, bool by_client);
void rc_objects_gone(rc_objects *o, const rc_id *id, const rc_owner *owner, bool spilled);
void rc_objects_spilled(rc_objects *o, const rc_id *id, const rc_owner *owner, const char *url);
/* From the head's channels. The second is for workers of any node, drivers included. */
void rc_objects_node_removed(rc_objects *o, const rc_id *node);
void rc_objects_node_added(rc_objects *o, const rc_id *node);
void rc_objects_worker_died(rc_objects *o, const rc_id *worker);

/* ---- services: PIN_OBJECT_IDS, FREE_LOCAL_OBJECTS (2.60.0), OM_PULL, OM_PUSH, OM_FREE_OBJECTS (2.35.0) ---- */

/* True when the method is one of these: r has been or will be answered. Let the server hand over OM_PUSH sliced
 * (rc_server_options.sliced). */
bool rc_objects_serve(rc_objects *o, rc_request *r, rc_method method, rc_view bytes);

/* The same for methods that are ours alone: true when path names one. */
bool rc_objects_serve_own(rc_objects *o, rc_request *r, const char *path, size_t path_n, rc_view bytes);

/* RC_L_FREE_OBJECTS: deletes here; unless local_only, 2.35.0 tells every alive node (2.60.0 has no such call). */
void rc_objects_free(rc_objects *o, const rc_id *ids, size_t n, bool local_only);

/* ---- making objects local ----
 * Every request below pulls what is missing. Priority as in stock: gets, then waits, then arguments. An object that cannot
 * come any more (its owner died, it was freed) becomes local too: as an error object whose metadata is the decimal
 * ErrorType. Request numbers are never 0 and never used again. */

/* Whether n more objects may be waited for: to be asked before what a worker wants is passed on to the functions below. */
int rc_objects_room(const rc_objects *o, size_t n, rc_error *e) RC_WARN_UNUSED;

/* RC_L_GET_OBJECTS: no callback; the worker then reads from the store. `client` names the worker (any pointer, e.g. its
 * connection); its gets add up until cancelled. An object that goes again before that is fetched again, unless fetch_only
 * (2.35.0: a first try that no cancel follows): then each is done when it has come once. */
void rc_objects_get(rc_objects *o, void *client, const rc_object_ref *refs, size_t n, bool fetch_only);
void rc_objects_get_cancel(rc_objects *o, void *client); /* RC_L_CANCEL_GET, RC_L_UNBLOCKED, end of the connection */

/* RC_L_WAIT: fn comes once, when `needed` are local or after timeout_ms (-1: never; 0: what is local now), always later than
 * this call. Both lists are in the order asked; found has at most `needed`. Arrays are borrowed for the call. Duplicates in
 * refs are an error of the caller: they count once. */
typedef void (*rc_wait_fn)(void *arg, const rc_id *found, size_t n_found, const rc_id *remaining, size_t n_remaining);
uint64_t rc_objects_wait(rc_objects *o, const rc_object_ref *refs, size_t n, size_t needed, int64_t timeout_ms, rc_wait_fn fn, void *arg);
void rc_objects_wait_cancel(rc_objects *o, uint64_t wait);

/* Arguments of leases and RC_L_WAIT_ACTOR_ARGS: fn comes when all are local, and again when that became so after
 * rc_objects_fetch_hold said NOT_FOUND. Nothing is held by a fetch alone: its objects may be evicted or spilled again. The
 * fetch goes on until rc_objects_fetch_end, also when complete. n = 0 is fine. */
uint64_t rc_objects_fetch(rc_objects *o, const rc_object_ref *refs, size_t n, rc_task_fn fn, void *arg);
/* Holds all of them in the store until rc_objects_fetch_end (a lease: from grant to return). -1: RC_E_NOT_FOUND, something is
 * gone again, fn will come; RC_E_FULL, too much memory is held by arguments already: try again when another fetch has
 * ended. A first holder is never refused. */
int rc_objects_fetch_hold(rc_objects *o, uint64_t fetch, rc_error *e) RC_WARN_UNUSED;
bool rc_objects_fetch_local(rc_objects *o, uint64_t fetch); /* all are local now */
void rc_objects_fetch_end(rc_objects *o, uint64_t fetch);   /* unknown numbers are ignored */

/* RC_L_SUBSCRIBE_PLASMA_READY: fn once when the object is local. client as above: rc_objects_client_gone drops it. */
typedef void (*rc_ready_fn)(void *arg, const rc_id *id);
void rc_objects_subscribe_ready(rc_objects *o, void *client, const rc_object_ref *ref, rc_ready_fn fn, void *arg);

/* A worker's connection has ended: its gets and subscriptions. */
void rc_objects_client_gone(rc_objects *o, void *client);

/* ---- what others report ---- */

bool rc_objects_pulls_queued(const rc_objects *o); /* some request waits for room in the store; NULL is fine */

typedef struct rc_objects_stats {
	uint64_t gets, waits, fetches;           /* open requests */
	uint64_t pulls_wanted, pulls_active;     /* objects not yet local; of these, allowed to come now */
	uint64_t receiving, sending;             /* objects in transfer */
	uint64_t bytes_in, bytes_out;            /* payload since the start */
	uint64_t chunks_in, chunks_out, chunks_dropped, pushes_failed, pull_retries;
	uint64_t pinned;                         /* primary copies for owners; their bytes: rc_store_stats */
	uint64_t args_held_bytes;                /* rc_objects_fetch_hold */
	uint64_t owners_polled, reports_sent, reports_waiting;
	uint64_t objects_failed;                 /* error objects stored */
	uint64_t fetch_inline, fetch_granted, fetch_pushed; /* answers to nodes of ours */
	uint64_t came_inline, came_fabric;                  /* objects, from nodes of ours */
	uint64_t fallbacks;                                 /* begun over the fabric, ended without */
} rc_objects_stats;
void rc_objects_get_stats(const rc_objects *o, rc_objects_stats *ret);
uint64_t rc_objects_bytes_in(const rc_objects *o); /* the one of them that costs nothing */
void rc_objects_debug(const rc_objects *o, rc_buf *out); /* lines for debug_state.txt */

#endif
