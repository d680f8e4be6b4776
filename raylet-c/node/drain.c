/* Leaving on request: DrainRaylet (autoscaler, ray drain-node) and ShutdownRaylet. The rules are in sched/drain.h. */
#include "raylet-c/base/log.h"
#include "raylet-c/node/node.h"

static void on_drain(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__DrainRayletRequest *m = rc_take_message(n, r, &rw__drain_raylet_request__descriptor, bytes);
	if (!m)
		return;
	Rw__DrainRayletReply reply = RW__DRAIN_RAYLET_REPLY__INIT;
	const char *refusal = NULL;
	bool accepted = rc_drain_request(&n->drain, n->dialect, m, rc_resources_idle(n->resources), rc_wall_ms(), &refusal);
	RC_SET(reply, is_accepted, accepted);
	if (!accepted)
		reply.rejection_reason_message = (char *)refusal;
	rc_reply_message(n, r, &reply);
	rc_free_message(m);
	if (!accepted) {
		rc_info("a drain was refused: %s", refusal);
		return;
	}
	rc_info("draining: %s", n->drain.message);
	if (n->state == RC_ALIVE)
		n->state = RC_DRAINING;
	rc_leases_set_draining(n->leases, true);
	rc_stats_push_view(n);
	rc_drain_check(n);
}

void rc_drain_check(rc_daemon *n)
{
	if (rc_daemon_ending(n) || !rc_drain_done(&n->drain, rc_resources_idle(n->resources)))
		return;
	rc_daemon_end(n, 0, rc_drain_death_reason(&n->drain, n->dialect), "%s", n->drain.message);
}

static void on_shutdown(rc_daemon *n, rc_request *r, rc_view bytes)
{
	Rw__ShutdownRayletRequest *m = rc_take_message(n, r, &rw__shutdown_raylet_request__descriptor, bytes);
	if (!m)
		return;
	bool graceful = RC_GET(m, graceful);
	rc_free_message(m);
	rc_reply(r, (rc_view){ 0 });
	rc_daemon_end(n, 0, RC_V_DEATH_EXPECTED, "the head asked the node to shut down%s", graceful ? "" : " at once");
}

const rc_service rc_drain_services[] = {
	{ RC_M_DRAIN_RAYLET, on_drain },
	{ RC_M_SHUTDOWN_RAYLET, on_shutdown },
	{ RC_M_COUNT, NULL },
};
