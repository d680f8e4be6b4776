/* What this machine's libfabric can do, and which of it two machines take: providers, their order, the choice.
 *
 * Facts: libfabric 1.17 to 2.x, man pages fi_getinfo.3, fi_provider.7. "tcp" has reliable datagrams of its own from 1.18 on,
 * "net" is what it grew from (1.16, 1.17). "tcp;ofi_rxm" is left alone: 1.17's crashes when it is closed with reads under way.
 * Two ends talk when provider, protocol and protocol version are the same; shm also needs one /dev/shm and one process
 * namespace (place).
 *
 * The choice is pure: descriptions in, an index out. Any thread. */
#ifndef RC_FABRIC_OFFER_H
#define RC_FABRIC_OFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raylet-c/fabric/library.h"

enum { RC_FABRIC_PROVIDER = 32, RC_FABRIC_DOMAIN = 64, RC_FABRIC_PLACE = 33, RC_FABRIC_MAX_OFFERS = 8 };

typedef struct rc_fabric_offer {
	char provider[RC_FABRIC_PROVIDER]; /* libfabric's name: "efa", "tcp", "net", "sockets", "shm" */
	char domain[RC_FABRIC_DOMAIN];     /* the device or interface; "" in what a peer told */
	char place[RC_FABRIC_PLACE];       /* "": reaches other hosts; else only who says the same */
	uint32_t protocol, protocol_version;
	bool read;          /* one-sided reads (else only tagged messages) */
	bool own_keys;      /* keys of registered memory are chosen by us (random), else by the device */
	bool registers;     /* local memory must be registered (FI_MR_LOCAL) */
	uint64_t link_bits; /* a second, as the device tells it; 0: unknown */
	uint64_t max_message;
} rc_fabric_offer;

typedef struct rc_fabric_settings {
	const char *providers; /* RAYLET_C_FABRIC: NULL, "" or "auto": all in our order; "off"; else names, comma between, in that order */
	const char *ip;        /* the node's own address: which interface tcp, net and sockets take */
} rc_fabric_settings;

/* What can be opened here, the preferred first, at most RC_FABRIC_MAX_OFFERS. Returns how many; 0: the error says why not.
 * May take some tens of milliseconds: not on a loop thread. */
size_t rc_fabric_offers(const rc_fabric_library *l, const rc_fabric_settings *s, rc_fabric_offer *ret, rc_error *e);

/* The provider's place in our order, 0 the best; -1: one that is not used (psm2, udp, ...). shm, efa, tcp, net, sockets:
 * within a host memory, then a device, then sockets of ever older makes. */
int rc_fabric_rank(const char *provider);
/* Whether a list of names (rc_fabric_settings.providers) has this provider; its position into *ret (may be NULL). */
bool rc_fabric_wanted(const char *providers, const char *provider, size_t *ret);
/* The first of mine that theirs has too and that can read. -1: none. */
int rc_fabric_choose(const rc_fabric_offer *mine, size_t n_mine, const rc_fabric_offer *theirs, size_t n_theirs);
bool rc_fabric_same(const rc_fabric_offer *a, const rc_fabric_offer *b); /* these two can talk */

#endif
