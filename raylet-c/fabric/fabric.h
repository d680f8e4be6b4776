/* libfabric for a loop: memory granted to peers, memory read from peers. The providers and their order: offer.h.
 *
 * Nothing of libfabric is opened before rc_fabric_start; an endpoint only when an offer is first used. Each endpoint has a
 * thread of its own (line.c), which alone calls libfabric for it; it sleeps when nothing is under way. What fails is closed
 * and rests for a while (5 s, doubling to 5 minutes), told once in the log; after that it is opened anew.
 *
 * A peer may read exactly what it was granted: a grant registers these bytes alone, under a key of their own. With providers
 * that let us choose keys (tcp, net, sockets) these are 64 random bits, checked with the bounds by our own
 * process. efa's device checks keys and bounds, and chooses the keys. shm checks nothing: it reaches only processes of this
 * host and user, which can read each other's memory anyway. Nothing is encrypted or authenticated by any of them: the key goes
 * to a peer over a channel that is (the caller's part).
 *
 * Loop thread only. Callbacks come on the loop thread, later than the call that asks for them. */
#ifndef RC_FABRIC_FABRIC_H
#define RC_FABRIC_FABRIC_H

#include "raylet-c/base/loop.h"
#include "raylet-c/fabric/endpoint.h"

typedef struct rc_fabric rc_fabric;

typedef struct rc_fabric_options {
	rc_loop *loop;
	const char *library;   /* rc_fabric_library_open */
	const char *providers; /* rc_fabric_settings */
	const char *ip;
	/* Where most of what is read goes: registered once for each endpoint whose provider wants that. May be NULL. */
	void *arena;
	uint64_t arena_size;
	unsigned stall_ms; /* a peer that answers nothing for so long while it is read from ends the endpoint; 0: 10000 */
	unsigned rest_ms;  /* first rest after a failure; 0: 5000 */
	rc_task_fn ready;  /* the offers are known, or there are none. May be NULL */
	void *arg;
} rc_fabric_options;

rc_fabric *rc_fabric_create(const rc_fabric_options *options);
/* Reads and grants end (their callbacks come inside this call, with RC_E_CANCELLED). NULL is fine. */
void rc_fabric_destroy(rc_fabric *f);

/* Looks for providers, in the background. Again: nothing. */
void rc_fabric_start(rc_fabric *f);
bool rc_fabric_started(const rc_fabric *f);
bool rc_fabric_ready(const rc_fabric *f); /* the search has ended */
/* What may be used now: offers that do not rest. */
size_t rc_fabric_usable(const rc_fabric *f, rc_fabric_offer ret[RC_FABRIC_MAX_OFFERS]);

/* Lets whoever is told address and remote read n bytes at p, until revoked. error: NULL when it went well; address and remote
 * are borrowed for the call. The number is for rc_fabric_revoke; fn does not come after that. offer: one of rc_fabric_usable. */
typedef void (*rc_granted_fn)(void *arg, const rc_error *error, rc_view address, const rc_remote *remote);
uint64_t rc_fabric_grant(rc_fabric *f, const rc_fabric_offer *offer, const void *p, uint64_t n, rc_granted_fn fn, void *arg);
/* done(arg) when nobody can begin to read any more: the memory must keep its content until then. */
void rc_fabric_revoke(rc_fabric *f, uint64_t grant, rc_task_fn done, void *arg);

/* n bytes from offset of what the peer granted to `to`, in pieces, several under way at a time. fn comes once, when nothing
 * touches the memory any more; error NULL: all has come. */
typedef void (*rc_fabric_read_fn)(void *arg, const rc_error *error);
void rc_fabric_read(rc_fabric *f, const rc_fabric_offer *offer, rc_view address, void *to, uint64_t n, const rc_remote *from,
                    uint64_t offset, rc_fabric_read_fn fn, void *arg);

typedef struct rc_fabric_stats {
	uint64_t grants, reads, read_bytes, failures; /* since the start */
	unsigned lines;                               /* open endpoints */
} rc_fabric_stats;
void rc_fabric_get_stats(const rc_fabric *f, rc_fabric_stats *ret);
void rc_fabric_debug(const rc_fabric *f, rc_buf *out); /* lines for debug_state.txt */

#endif
