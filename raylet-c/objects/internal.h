/* What the sources of this folder share; no other folder includes it.
 *
 *   objects.c   life, calls, events, services, frees, figures
 *   ref.c       references and owners' addresses as they come in (no state)
 *   owner.c     the line to one owner: subscriptions and their long poll, retries, death
 *   report.c    location reports to owners
 *   pin.c       primary copies kept for owners
 *   pull.c      objects wanted from elsewhere: where they are, which may come now, whom to ask
 *   request.c   gets, waits, fetches: sets of wanted objects
 *   receive.c   chunks coming in
 *   chunk.c     the head of a Push message in pieces (no state)
 *   push.c      chunks going out
 *   exchange.c  what nodes of ours say to each other (no state)
 *   fetch.c     objects asked for by Fetch, read over the fabric
 *   lend.c      Fetch and Keep served: objects in answers, granted, pushed
 *
 * Nothing here calls out of the module (request callbacks, the node's operations that act) while it walks its own lists:
 * what has become due is noted and done by rc__om_kick's timer. */
#ifndef RC_OBJECTS_INTERNAL_H
#define RC_OBJECTS_INTERNAL_H

#include <pthread.h>

#include "raylet-c/base/list.h"
#include "raylet-c/base/map.h"
#include "raylet-c/fabric/fabric.h"
#include "raylet-c/objects/exchange.h"
#include "raylet-c/objects/objects.h"

enum { RC__OM_ADDRESS = 80 }; /* "ip:port" */

typedef struct rc__om_owner rc__om_owner;
typedef struct rc__om_sub rc__om_sub;
typedef struct rc__om_want rc__om_want;
typedef struct rc__om_use rc__om_use;
typedef struct rc__om_request rc__om_request;
typedef struct rc__om_receive rc__om_receive;
typedef struct rc__om_push rc__om_push;
typedef struct rc__om_loan rc__om_loan;

/* Field numbers of PushRequest in this release, see chunk.c. */
typedef struct rc__om_push_fields {
	unsigned push_id, object_id, node_id, owner_address, chunk_index, data_size, metadata_size, data;
} rc__om_push_fields;

enum { RC__OM_GET, RC__OM_WAIT, RC__OM_ARGS, RC__OM_PRIORITIES };
enum { RC__OM_DEAD_RING = 8192 }; /* workers known to have died; older ones are asked in vain and fail then */

struct rc_objects {
	rc_objects_options options;
	rc_objects_ops ops;
	void *ctx;
	rc_loop *loop;
	rc_store *store;
	const rc_dialect *dialect;
	char *ip, *cluster_id;
	bool owners_free; /* 2.60.0: owners call FreeLocalObjects; 2.35.0: they publish, and this node tells the others */
	bool destroying, orphans_due;
	rc_timer *kick; /* due at once: request callbacks, then the scheduling of pulls */
	rc_timer *tick; /* every second: time limits */
	rc_link calls;

	rc_map *owners; /* worker id -> rc__om_owner */
	rc_map *dead_workers;
	rc_id dead_ring[RC__OM_DEAD_RING];
	size_t dead_next;

	rc_map *pins;       /* object id -> pin */
	rc_map *pin_owners; /* worker id -> list of pins */
	rc_link provisional; /* pins that no owner has asked for yet, oldest first */

	rc_map *wants; /* object id -> rc__om_want */
	rc_link active; /* of rc__om_want */
	size_t n_active;
	bool pulls_queued, pulls_queued_told, schedule_due;
	rc_link failing; /* of rc__om_want: error objects to be stored */

	rc_link requests[RC__OM_PRIORITIES]; /* with something missing, oldest first */
	rc_map *requests_by_id, *clients;
	rc_link due; /* requests whose callback is due */
	uint64_t next_request;
	size_t n_uses;
	uint64_t args_held;

	rc__om_push_fields push_fields;
	rc_link jobs; /* copies into receive buffers */
	size_t queued_bytes; /* of chunks that wait for their buffer */
	pthread_mutex_t job_lock;
	pthread_cond_t job_done;
	size_t jobs_running;

	rc_map *pushes; /* node id + object id -> rc__om_push */
	rc_link push_order;
	uint64_t bytes_in_flight;
	rc_link reads; /* of spill files */
	rc_link unknown_pulls;
	size_t n_unknown_pulls;

	rc_fabric *fabric; /* NULL: not to be used */
	rc_map *peers;     /* node id -> peer (fetch.c) */
	rc_link asking;    /* wants that ask again when the offers are known */
	rc_link loans;     /* of rc__om_loan */
	rc_map *lends;     /* number -> lend (lend.c) */
	uint64_t next_lend;
	rc_link held_asks; /* Fetch requests that wait for the offers */
	size_t n_held_asks;

	rc_buf freed; /* object ids to tell other nodes */
	rc_timer *free_timer;

	rc_objects_stats stats;
};

/* ---- objects.c ---- */

void rc__om_kick(rc_objects *o); /* runs due callbacks soon */

/* A call whose callback never comes after rc__om_drop or the module's end. */
typedef struct rc__om_call rc__om_call;
typedef void (*rc__om_reply_fn)(void *arg, int status, rc_view reply, const char *detail);
/* Never calls back inside. message is packed here. NULL: the release has no such method (logged). */
rc__om_call *rc__om_send_own(rc_objects *o, const char *target, const char *path, rc_view request, uint64_t timeout_ms,
                             rc__om_reply_fn fn, void *arg);
rc__om_call *rc__om_send(rc_objects *o, const char *target, rc_method method, const void *message, uint64_t timeout_ms,
                         rc__om_reply_fn fn, void *arg);
/* head and body one after the other, body not copied; unref as rc_call_zero_copy, also after the module's end. */
rc__om_call *rc__om_send_chunk(rc_objects *o, const char *target, rc_view head, rc_view body, rc_task_fn unref, void *unref_arg,
                               uint64_t timeout_ms, rc__om_reply_fn fn, void *arg);
void rc__om_drop(rc__om_call *call); /* NULL is fine */
bool rc__om_node_address(rc_objects *o, const rc_id *node, char ret[RC__OM_ADDRESS]);
bool rc__om_node_dead(rc_objects *o, const rc_id *node);
void rc__om_free(rc_objects *o, const rc_id *id, bool everywhere); /* deletes here; everywhere: tells other nodes (2.35.0) */

/* ---- ref.c ---- */

rc_owner rc__om_owner_from_proto(const Rw__Address *a); /* NULL or malformed: worker_id.n = 0 */

/* ---- owner.c ---- */

typedef enum rc__om_failure {
	RC__OM_OWNER_DEAD,
	RC__OM_OWNER_UNREACHABLE, /* for some seconds; the subscription stays, unless the receiver ends it */
	RC__OM_KEY_GONE,          /* the owner knows no such object */
} rc__om_failure;
enum { RC__OM_LOCATIONS, RC__OM_EVICTION, RC__OM_CHANNELS };

struct rc__om_sub {
	rc__om_owner *owner; /* NULL: not subscribed */
	int channel;
	rc_id key, generator;
	/* m is borrowed for the call. May unsubscribe itself and others. */
	void (*message)(rc__om_sub *s, const Rw__PubMessage *m);
	void (*failed)(rc__om_sub *s, rc__om_failure why); /* the subscription has ended but for UNREACHABLE */
};
bool rc__om_owner_known_dead(rc_objects *o, const rc_owner *owner);
/* The key must not be subscribed on that channel of that owner. Owners known to be dead must be sorted out before. */
void rc__om_subscribe(rc_objects *o, rc__om_sub *s, const rc_owner *owner);
void rc__om_unsubscribe(rc__om_sub *s); /* fine when not subscribed */
rc__om_owner *rc__om_owner_find(rc_objects *o, const rc_owner *address, bool create);
void rc__om_owner_failed(rc__om_owner *w, int status, const char *what, const char *detail); /* a call failed: retried, or given up */
void rc__om_owner_works(rc__om_owner *w);
void rc__om_owner_maybe_free(rc__om_owner *w);
bool rc__om_refused(int status); /* the peer answered, and it is not that owner */
void rc__om_owners_died(rc_objects *o, const rc_id *worker, const rc_id *node); /* one of them NULL */
void rc__om_owners_tick(rc_objects *o);
void rc__om_owners_destroy(rc_objects *o);

typedef struct rc__om_reports { /* part of rc__om_owner, used by report.c */
	rc_map *pending; /* object id -> update */
	rc_link order;   /* pending ones */
	rc_link sent;    /* of the call in flight */
	rc__om_call *call;
} rc__om_reports;

struct rc__om_owner {
	rc_objects *o;
	rc_owner address;
	char target[RC__OM_ADDRESS];
	rc_map *subs[RC__OM_CHANNELS]; /* key -> rc__om_sub */
	rc_link commands, commands_sent;
	rc__om_call *batch, *poll;
	rc_id publisher;
	int64_t sequence;
	unsigned failures;
	uint64_t failing_since;
	rc_timer *retry;
	rc__om_reports reports;
	bool busy; /* being walked: not to be freed */
};

/* ---- report.c ---- */

void rc__om_report_location(rc_objects *o, const rc_id *id, const rc_owner *owner, bool added);
void rc__om_report_spilled(rc_objects *o, const rc_id *id, const rc_owner *owner, const char *url, const rc_id *generator);
void rc__om_reports_init(rc__om_owner *w);
void rc__om_reports_send(rc__om_owner *w); /* if none is in flight */
bool rc__om_reports_idle(const rc__om_owner *w);
void rc__om_reports_drop(rc__om_owner *w);

/* ---- pin.c ---- */

void rc__om_pin_serve(rc_objects *o, rc_request *r, rc_view bytes);
void rc__om_pin_sealed(rc_objects *o, const rc_id *id, const rc_owner *owner); /* by a worker: kept until its owner pins it */
void rc__om_pin_drop(rc_objects *o, const rc_id *id);                          /* freed */
rc_id rc__om_pin_generator(rc_objects *o, const rc_id *id);
void rc__om_pins_died(rc_objects *o, const rc_id *worker, const rc_id *node);
void rc__om_pins_tick(rc_objects *o);
void rc__om_pins_destroy(rc_objects *o);

/* ---- pull.c ---- */

typedef enum rc__om_state { RC__OM_IDLE, RC__OM_ASKED, RC__OM_RESTORING, RC__OM_BACKOFF } rc__om_state;

struct rc__om_want {
	rc_objects *o;
	rc_id id;
	rc_owner owner;
	rc_link uses;
	rc_link active_link, fail_link;
	rc__om_sub sub;
	bool local, failed, active, marked;
	int error; /* ErrorType to be stored */
	bool error_told;
	/* What the owner told. */
	bool answered, pending_creation;
	uint64_t size;
	rc_id *nodes;
	size_t n_nodes;
	char *url;
	rc_id url_node; /* nil or absent: url can be read from anywhere */
	/* The attempt that is made now. */
	rc__om_state state;
	rc_id source;
	unsigned attempts, salt;
	rc_timer *timer;
	rc__om_call *call;
	rc__om_receive *receive;
	char asked[RC__OM_ADDRESS]; /* whom by Fetch */
	bool asked_blind;           /* before our fabric was searched: RC__OM_LOOK is an answer */
	rc_link asking; /* in o->asking */
	uint64_t lost_since; /* ms; 0: somebody has it */
};

/* Adds a use of ref.id by a request; want->local tells whether it is here. The want lives as long as it has uses. */
rc__om_use *rc__om_want_use(rc_objects *o, const rc_object_ref *ref, rc__om_request *r);
void rc__om_want_leave(rc__om_use *u); /* u->want becomes NULL */
void rc__om_want_unuse(rc__om_use *u); /* leaves, and frees u */
void rc__om_want_fail(rc__om_want *w, rc_enum error); /* an error object takes its place, soon */
void rc__om_want_sealed(rc_objects *o, const rc_id *id);
void rc__om_want_gone(rc_objects *o, const rc_id *id);
void rc__om_want_chunk(rc__om_want *w); /* progress: the time limit starts anew */
void rc__om_want_pull(rc__om_want *w, const char *address); /* asks for Push messages; the attempt is under way */
void rc__om_want_retry(rc__om_want *w, const char *why); /* the attempt has failed */
void rc__om_pulls_run(rc_objects *o); /* from the kick timer: stores error objects, decides which pulls are active */
void rc__om_pulls_died(rc_objects *o, const rc_id *node);
void rc__om_pulls_tick(rc_objects *o);
void rc__om_pulls_later(rc_objects *o); /* asks for rc__om_pulls_run */

/* ---- request.c ---- */

struct rc__om_use {
	rc_link in_want, in_request;
	rc__om_want *want; /* NULL: has come, nothing more is needed (waits) */
	rc__om_request *request;
	rc_id id;
};
typedef enum rc__om_kind { RC__OM_R_GET, RC__OM_R_WAIT, RC__OM_R_FETCH, RC__OM_R_READY } rc__om_kind;
struct rc__om_request {
	rc_objects *o;
	rc_link link; /* o->requests[priority] */
	rc_link due;
	rc_link in_client;
	void *client;
	uint64_t id;
	rc__om_kind kind;
	int priority;
	rc_link uses;
	size_t n, n_local;
	rc_map *ids; /* gets: uses by id */
	bool fetch_only, told;
	size_t needed;
	rc_timer *timer;
	rc_wait_fn wait_fn;
	rc_task_fn fetch_fn;
	rc_ready_fn ready_fn;
	void *arg;
	const rc_hold **holds;
	uint64_t held_bytes;
};
void rc__om_use_local(rc__om_use *u); /* may free u */
void rc__om_use_gone(rc__om_use *u);
void rc__om_requests_run(rc_objects *o); /* from the kick timer: due callbacks */
void rc__om_requests_destroy(rc_objects *o);

/* ---- chunk.c ---- */

typedef struct rc__om_chunk {
	rc_id object, node;
	rc_owner owner;
	uint32_t index;
	uint64_t data_size, metadata_size; /* data_size with the metadata */
	size_t piece, offset, n;           /* where the payload begins in the pieces, and its length */
} rc__om_chunk;
void rc__om_push_fields_find(const rc_dialect *d, rc__om_push_fields *ret);
int rc__om_chunk_parse(const rc_dialect *d, const rc__om_push_fields *f, const rc_view *pieces, size_t n_pieces, rc__om_chunk *ret,
                       rc_error *e) RC_WARN_UNUSED;
/* The bytes before the payload of a Push message. */
void rc__om_chunk_head(const rc_dialect *d, const rc__om_push_fields *f, const rc_id *push_id, const rc__om_chunk *c, rc_buf *out);
/* The length of chunk index of an object, 0 when there is no such chunk. */
uint64_t rc__om_chunk_length(uint64_t total, uint64_t chunk_size, uint32_t index);
uint32_t rc__om_chunk_count(uint64_t total, uint64_t chunk_size);

/* ---- receive.c ---- */

struct rc__om_receive {
	rc_objects *o;
	rc__om_want *want; /* NULL: ended, copies or reads are still running */
	rc_id id;
	uint64_t total, metadata_size;
	uint64_t create; /* the store's number while the memory is waited for */
	rc_store_buffer *buffer;
	uint8_t *have; /* one bit a chunk: here, or being copied or read */
	uint32_t n_chunks, n_done;
	unsigned copying;
	rc_link waiting; /* jobs without memory yet */
	uint64_t last_ms;
	rc__om_loan *loan; /* read over the fabric; NULL: not */
};

void rc__om_receive_serve(rc_objects *o, rc_request *r, rc_view bytes);
void rc__om_receive_end(rc__om_want *w);    /* w->receive, if any: aborted */
bool rc__om_receive_started(const rc__om_want *w); /* it has its memory */
uint64_t rc__om_receive_idle_ms(const rc__om_want *w); /* since the last chunk; 0 without a receive */
void rc__om_receives_destroy(rc_objects *o);
/* Without Push messages. begin: w->receive, made when there is none; NULL: the sizes cannot be, or are not those of before.
 * memory: asks for it, then rc__om_loan_run. bytes: a whole object, copied. */
rc__om_receive *rc__om_receive_begin(rc__om_want *w, uint64_t data_size, uint64_t metadata_size, rc_error *e);
void rc__om_receive_memory(rc__om_receive *v, const rc_owner *owner);
void rc__om_receive_bytes(rc__om_want *w, rc_view bytes, uint64_t metadata_size, const rc_owner *owner);
/* A chunk is about to be written into the buffer by others: false when it is here or on its way. Each is given back by put, which
 * returns false when the receive has ended by that. */
bool rc__om_receive_take(rc__om_receive *v, uint32_t index);
bool rc__om_receive_put(rc__om_receive *v, uint32_t index, bool ok);
void rc__om_receive_forget(rc__om_receive *v); /* nothing has come; no copy or read is running */
void rc__om_receive_seal(rc__om_receive *v);   /* everything has come; v is gone */

/* ---- fetch.c ---- */

/* Asks a place (w->source, at this address) by Fetch; false: not to be asked so (a stock node), RC_M_OM_PULL is the way. */
bool rc__om_fetch(rc__om_want *w, const char *address);
void rc__om_loan_run(rc__om_receive *v);            /* there is memory: starts reads. Fine without a loan */
bool rc__om_loan_confirm(rc__om_receive *v);        /* asks the lender whether what was read counts; false: nothing was read */
void rc__om_loan_free(rc__om_receive *v);           /* gives it back. Fine without */
void rc__om_fetches_init(rc_objects *o);
void rc__om_fetches_tick(rc_objects *o);
void rc__om_fetches_died(rc_objects *o, const rc_id *node);
void rc__om_fetches_destroy(rc_objects *o); /* first: ends reads */
void rc__om_fetches_free(rc_objects *o);    /* last */
void rc__om_fabric_ready(rc_objects *o);    /* the offers are known: those who wait for that */

/* ---- lend.c ---- */

void rc__om_lend_init(rc_objects *o);
void rc__om_lend_serve(rc_objects *o, rc_request *r, rc_view bytes);
void rc__om_keep_serve(rc_objects *o, rc_request *r, rc_view bytes);
void rc__om_lend_ready(rc_objects *o); /* as rc__om_fabric_ready */
void rc__om_lends_tick(rc_objects *o);
void rc__om_lends_died(rc_objects *o, const rc_id *node);
void rc__om_lends_destroy(rc_objects *o);

/* ---- push.c ---- */

void rc__om_push_serve(rc_objects *o, rc_request *r, rc_view bytes); /* OM_PULL */
void rc__om_pushes_died(rc_objects *o, const rc_id *node);
void rc__om_pushes_node_added(rc_objects *o, const rc_id *node);
void rc__om_push_object(rc_objects *o, const rc_id *node, const rc_id *object); /* as if that node had sent a Pull */
void rc__om_pushes_tick(rc_objects *o);
void rc__om_pushes_destroy(rc_objects *o);

#endif
