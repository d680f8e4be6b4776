/* DrainRaylet: an idle node accepts an idle termination and a busy one refuses it; a preemption is always accepted. While
 * draining nothing new is taken in; the node leaves once it is idle. Like stock it does not end itself at the deadline (the
 * machine is taken then), but says so in the view. Stock's text for a refusal, in both releases: "The node to be idle
 * terminated is no longer idle." A later request replaces an earlier one. Loop thread only. */
#ifndef RC_SCHED_DRAIN_H
#define RC_SCHED_DRAIN_H

#include "raylet-c/base/buf.h"
#include "raylet-c/wire/dialect.h"

typedef struct rc_drain { /* zero-initialised: not draining */
	bool draining;
	int reason;           /* autoscaler.DrainNodeReason as on the wire */
	char *message;        /* the request's text */
	int64_t deadline_ms;  /* wall clock, 0: none */
} rc_drain;

/* True: accepted and noted (then call rc_leases_set_draining). False: *ret_refusal is the text for the reply. An unknown reason is
 * refused; a deadline that has passed is only logged. */
bool rc_drain_request(rc_drain *drain, const rc_dialect *d, const Rw__DrainRayletRequest *request, bool idle, uint64_t wall_ms,
                      const char **ret_refusal);
/* Time to leave: draining and idle. */
bool rc_drain_done(const rc_drain *drain, bool idle);
/* NodeDeathInfo.reason for UnregisterNode: preempted, idle, or expected termination when not draining. */
rc_enum rc_drain_death_reason(const rc_drain *drain, const rc_dialect *d);
/* A preemption whose deadline has passed: what ends the node now was announced (stock's rule for SIGTERM). */
bool rc_drain_expired(const rc_drain *drain, const rc_dialect *d, uint64_t wall_ms);
void rc_drain_free(rc_drain *drain);

#endif
