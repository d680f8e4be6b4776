/* What a node of ours tells `raylet-c top` about itself: a gRPC method beside Ray's own on the node manager's port. The request is
 * empty, the answer is one JSON object in UTF-8 (node/look.c makes it). Figures that may be absent are 0 to a reader; unknown keys
 * are left alone, so nodes and commands of different versions fit.
 *
 *   state          connecting, registering, alive, draining, ending
 *   up_ms
 *   total, free    resources by name, without those of placement groups; memory in bytes
 *   leases         {granted, waiting}
 *   bundles        [{group: hex, index, state, leases, resources}], RC_LOOK_MOST at most
 *   workers        [{pid, kind: worker | driver | spill | restore, state: starting | registered | idle | leased | exiting, job: hex,
 *                  forked, lease: {name, actor, blocked, for_ms, resources}, steps}], RC_LOOK_MOST at most; steps: what the
 *                  optimizers of a train worker with our engine have made, absent elsewhere
 *   n_bundles, n_workers   all of them
 *   store          {capacity, used, fallback, objects, spilled, spilled_objects} in bytes and objects, now
 *   transfers      {in, out: bytes since the start; receiving, sending, wanted: objects now; fabric, inline, fallbacks: objects} */
#ifndef RC_CLI_LOOK_H
#define RC_CLI_LOOK_H

#define RC_LOOK_PATH "/raylet_c.Node/Look"

enum { RC_LOOK_MOST = 1000 };

#endif
