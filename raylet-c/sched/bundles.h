/* Placement-group bundles on this node: prepare takes a bundle's resources, commit publishes them under the group's names,
 * remove undoes either. Each is idempotent and they may come in any order (a group removed while it is being prepared, a
 * head that restarts, a repeated call): a commit of an unknown bundle and a removal of one are no errors; a prepare of a
 * committed bundle succeeds and changes nothing; a prepare after a removal is a new bundle.
 *
 * What a removed bundle held returns to the node when the last lease inside it has ended (its worker is gone), so that a
 * device is never offered while a dying worker still has it.
 *
 * Facts: join-facts section 11; src/ray/raylet/placement_group_resource_manager.cc. Loop thread only. */
#ifndef RC_SCHED_BUNDLES_H
#define RC_SCHED_BUNDLES_H

#include "raylet-c/base/list.h"
#include "raylet-c/sched/resources.h"

enum { RC_MAX_BUNDLES = 100000 }; /* on a node, removed ones that are still held included */

typedef struct rc_bundle_id {
	rc_id group; /* 18 bytes */
	int index;
} rc_bundle_id;

typedef enum rc_bundle_state { RC_BUNDLE_PREPARED, RC_BUNDLE_COMMITTED, RC_BUNDLE_REMOVED } rc_bundle_state;

const char *rc_bundle_state_name(rc_bundle_state s); /* for logs and listings */

typedef struct rc_bundle { /* read only outside bundles.c */
	rc_bundle_id id;
	rc_bundle_state state;
	rc_amounts resources; /* as asked for */
	rc_allocation *held;  /* of the node's own resources */
	size_t users;         /* leases inside */
	rc_link link_;        /* private */
} rc_bundle;

typedef struct rc_bundles rc_bundles;

/* b was committed and is going: cancel the leases that wait for it, end those inside (rc_leases does both: pass
 * rc_leases_bundle_removed). b's names still exist during the call; what the leases inside hold must be back in them after it. */
typedef void (*rc_bundle_removed_fn)(void *ctx, rc_bundle *b);

rc_bundles *rc_bundles_create(rc_resources *resources);
void rc_bundles_destroy(rc_bundles *b); /* NULL is fine */
void rc_bundles_on_removed(rc_bundles *b, rc_bundle_removed_fn fn, void *ctx);

/* After any of these: rc_leases_run, since resources may have come or gone.
 * Prepare: all of the request or none. -1: the text says what does not fit (RC_E_NO_MEMORY), is malformed (RC_E_INVALID), or
 * that the node is draining (RC_E_UNAVAILABLE). PrepareBundleResourcesReply.success = (return value == 0). */
int rc_bundles_prepare(rc_bundles *b, Rw__Bundle *const *specs, size_t n, rc_error *e) RC_WARN_UNUSED;
void rc_bundles_commit(rc_bundles *b, Rw__Bundle *const *specs, size_t n);
/* CancelResourceReserve (one), RemovePlacementGroupBundles (several). */
void rc_bundles_remove(rc_bundles *b, Rw__Bundle *const *specs, size_t n);
/* ReleaseUnusedBundles: removes every bundle, prepared or committed, that the head does not list. */
void rc_bundles_keep_only(rc_bundles *b, Rw__Bundle *const *in_use, size_t n);

/* The same without protobuf. */
int rc_bundle_prepare(rc_bundles *b, const rc_bundle_id *id, const rc_amounts *resources, rc_error *e) RC_WARN_UNUSED;
void rc_bundle_commit(rc_bundles *b, const rc_bundle_id *id);
void rc_bundle_remove(rc_bundles *b, const rc_bundle_id *id);

rc_bundle *rc_bundle_find(rc_bundles *b, const rc_bundle_id *id); /* prepared or committed; else NULL */
bool rc_bundles_has_group(const rc_bundles *b, const rc_id *group); /* a committed bundle of it is here */
/* The bundle out of which an allocation was met, or NULL. */
rc_bundle *rc_bundle_of(rc_bundles *b, const rc_allocation *a);
/* A lease inside keeps the bundle's resources from returning to the node. */
void rc_bundle_ref(rc_bundle *bundle);
void rc_bundle_unref(rc_bundles *b, rc_bundle *bundle);

/* No bundle is prepared any more (rc_leases_set_draining does this). */
void rc_bundles_set_draining(rc_bundles *b, bool draining);

size_t rc_bundles_count(const rc_bundles *b);
const rc_bundle *rc_bundles_next(const rc_bundles *b, size_t *i); /* prepared and committed ones, in no order; *i begins with 0 */
void rc_bundles_print(const rc_bundles *b, rc_buf *out);

#endif
