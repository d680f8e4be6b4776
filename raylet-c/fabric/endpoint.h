/* One endpoint of one provider: reliable datagrams, registered memory, one-sided reads, tagged messages. No thread of its own:
 * whoever owns it polls it.
 *
 * Facts: libfabric's man pages fi_endpoint.3, fi_rma.3, fi_mr.3, fi_cq.3, fi_av.3; tried with net, sockets and shm of 1.17.
 *
 * One thread at a time. Memory of an operation stays the caller's and must stay where it is until the operation is done. Each
 * operation that was accepted ends by exactly one call of its done, inside rc_endpoint_poll or rc_endpoint_close; after that
 * neither the provider nor the peer touches its memory. There is no way to take one operation back: closing ends all. */
#ifndef RC_FABRIC_ENDPOINT_H
#define RC_FABRIC_ENDPOINT_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/list.h"
#include "raylet-c/fabric/offer.h"

typedef struct rc_endpoint rc_endpoint;
typedef struct rc_region rc_region;

enum { RC_FABRIC_ADDRESS = 256 }; /* bytes of an endpoint's address at most; opaque to all but the provider */

typedef struct rc_op rc_op;
/* error: NULL when it went well. n: bytes of a received message. */
typedef void (*rc_op_fn)(rc_op *op, uint64_t n, const rc_error *error);
/* The caller's memory; done is set by the caller. One that ended with an error must not be used again, nor freed, before the endpoint
 * is closed: a provider may yet tell of it a second time, which is ignored only as long as it is not busy again. */
struct rc_op {
	void *context[8]; /* the provider's own while the operation is under way (struct fi_context2) */
	rc_op_fn done;
	rc_link link;
	bool busy; /* between being accepted and done */
	/* What was asked for, kept until the provider takes it. */
	int kind;
	uint64_t peer, tag, key, from;
	void *buffer;
	size_t n;
	void *description;
};

/* Where a peer's region is read: told to those who may. */
typedef struct rc_remote {
	uint64_t key;
	uint64_t base; /* to be added to an offset in the region */
} rc_remote;

/* NULL: the error names provider, call and reason. */
rc_endpoint *rc_endpoint_open(const rc_fabric_library *l, const rc_fabric_offer *offer, const char *ip, rc_error *e);
void rc_endpoint_close(rc_endpoint *p); /* NULL is fine; regions are closed too */

const rc_fabric_offer *rc_endpoint_offer(const rc_endpoint *p);
rc_view rc_endpoint_address(const rc_endpoint *p);

/* A peer's address from its rc_endpoint_address. Nothing is sent yet: an error says that the address is malformed. */
int rc_endpoint_peer(rc_endpoint *p, rc_view address, uint64_t *ret, rc_error *e) RC_WARN_UNUSED;
void rc_endpoint_peer_remove(rc_endpoint *p, uint64_t peer);

/* remote: peers that are told the key may read it, else it is for operations of this side only. */
rc_region *rc_endpoint_register(rc_endpoint *p, void *start, uint64_t n, bool remote, rc_error *e);
/* After it nobody can begin to read. NULL is fine. */
void rc_endpoint_unregister(rc_endpoint *p, rc_region *r);
rc_remote rc_region_remote(const rc_region *r);
bool rc_region_holds(const rc_region *r, const void *start, uint64_t n);

/* n: at most offer.max_message. local: the region with the memory where offer.registers says so, else it may be NULL. What the
 * provider has no room for waits here, in order. -1: not accepted, done does not come. */
int rc_endpoint_read(rc_endpoint *p, uint64_t peer, void *to, size_t n, const rc_region *local, const rc_remote *from, uint64_t offset,
                     rc_op *op, rc_error *e) RC_WARN_UNUSED;
int rc_endpoint_send(rc_endpoint *p, uint64_t peer, const void *bytes, size_t n, const rc_region *local, uint64_t tag, rc_op *op,
                     rc_error *e) RC_WARN_UNUSED;
/* A message with this very tag, from any peer; a longer one is an error. */
int rc_endpoint_receive(rc_endpoint *p, void *to, size_t n, const rc_region *local, uint64_t tag, rc_op *op, rc_error *e) RC_WARN_UNUSED;
size_t rc_endpoint_open_ops(const rc_endpoint *p);

/* Moves things on and runs what is done; the number of operations that ended. Never waits. -1: the endpoint is broken. */
int rc_endpoint_poll(rc_endpoint *p, rc_error *e) RC_WARN_UNUSED;
/* A descriptor that becomes readable when rc_endpoint_poll has something to do, as long as rc_endpoint_may_wait said so just
 * before; -1: the provider has none, and must be polled while anything is under way, also by the side that is read from. */
int rc_endpoint_fd(const rc_endpoint *p);
bool rc_endpoint_may_wait(rc_endpoint *p);

#endif
