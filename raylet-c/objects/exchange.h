/* What nodes of ours say to each other beside Ray's own protocol: one object is asked for, and comes in the answer, or is
 * granted over the fabric, or is pushed as Ray does. A stock node answers UNIMPLEMENTED to both methods.
 *
 *   /raylet_c.Objects/Fetch   rc__om_ask    -> rc__om_answer
 *   /raylet_c.Objects/Keep    rc__om_keep   -> rc__om_kept: grants are kept for a while longer, or are no longer needed
 *
 * Little endian, behind a version byte; another version is refused, and taken for a stock node's "unimplemented". Both carry the
 * cluster's id and the asking node's: on top of what gRPC demands (TLS, token) the cluster must be the same and the head must
 * know the node. Views in decoded messages point into the bytes they came from. No state; fuzz/fuzz_exchange.c. */
#ifndef RC_OBJECTS_EXCHANGE_H
#define RC_OBJECTS_EXCHANGE_H

#include "raylet-c/base/id.h"
#include "raylet-c/fabric/fabric.h"
#include "raylet-c/store/store.h"

#define RC__OM_FETCH_PATH "/raylet_c.Objects/Fetch"
#define RC__OM_KEEP_PATH "/raylet_c.Objects/Keep"

enum { RC__OM_EXCHANGE_VERSION = 1, RC__OM_CLUSTER = 64, RC__OM_MAX_KEEP = 1000 };

typedef struct rc__om_from { /* who asks */
	char cluster[RC__OM_CLUSTER + 1]; /* hex */
	rc_id node;
} rc__om_from;

typedef enum rc__om_fabric_state {
	RC__OM_FABRIC_OFF,
	RC__OM_FABRIC_UNKNOWN, /* not looked for yet: an answer may ask for that */
	RC__OM_FABRIC_KNOWN,   /* offers tell */
} rc__om_fabric_state;

typedef struct rc__om_ask {
	rc__om_from from;
	rc_id object;
	rc__om_fabric_state fabric;
	size_t n_offers;
	rc_fabric_offer offers[RC_FABRIC_MAX_OFFERS]; /* provider, place, protocol, version */
} rc__om_ask;

typedef enum rc__om_answer_kind {
	RC__OM_ABSENT,  /* no copy here */
	RC__OM_INLINE,  /* bytes has data and metadata */
	RC__OM_GRANTED, /* may be read over the fabric until kept no more */
	RC__OM_PUSHED,  /* comes by Push messages */
	RC__OM_LOOK,    /* this node has a fabric: look for yours and ask again */
} rc__om_answer_kind;

typedef struct rc__om_answer {
	rc__om_answer_kind kind;
	uint64_t data_size, metadata_size; /* INLINE, GRANTED */
	rc_owner owner;
	rc_view bytes; /* INLINE */
	uint64_t grant; /* GRANTED, with the rest */
	rc_fabric_offer offer;
	rc_view address;
	rc_remote remote;
} rc__om_answer;

typedef struct rc__om_keep {
	rc__om_from from;
	bool end; /* no longer needed; else kept */
	size_t n;
	uint64_t grants[RC__OM_MAX_KEEP];
} rc__om_keep;

typedef struct rc__om_kept { /* for each: whether it was still there */
	size_t n;
	bool here[RC__OM_MAX_KEEP];
} rc__om_kept;

void rc__om_ask_write(const rc__om_ask *m, rc_buf *out);
void rc__om_answer_write(const rc__om_answer *m, rc_buf *out);
void rc__om_keep_write(const rc__om_keep *m, rc_buf *out);
void rc__om_kept_write(const rc__om_kept *m, rc_buf *out);
/* -1: malformed, of another version, or beyond a limit; RC_E_UNSUPPORTED for the version. */
int rc__om_ask_read(rc_view bytes, rc__om_ask *ret, rc_error *e) RC_WARN_UNUSED;
int rc__om_answer_read(rc_view bytes, rc__om_answer *ret, rc_error *e) RC_WARN_UNUSED;
int rc__om_keep_read(rc_view bytes, rc__om_keep *ret, rc_error *e) RC_WARN_UNUSED;
int rc__om_kept_read(rc_view bytes, rc__om_kept *ret, rc_error *e) RC_WARN_UNUSED;

#endif
