/* A handful of rules; see the header. */
#include "raylet-c/sched/drain.h"

#include <stdlib.h>

#include "raylet-c/base/log.h"

bool rc_drain_request(rc_drain *drain, const rc_dialect *d, const Rw__DrainRayletRequest *request, bool idle, uint64_t wall_ms,
                      const char **ret_refusal)
{
	int reason = RC_GET(request, reason);
	int64_t deadline = RC_GET(request, deadline_timestamp_ms);
	bool idle_termination = reason == rc_enum_value(d, RC_V_DRAIN_IDLE);
	*ret_refusal = NULL;
	if (!idle_termination && reason != rc_enum_value(d, RC_V_DRAIN_PREEMPTION))
		*ret_refusal = "The drain reason is neither idle termination nor preemption.";
	else if (idle_termination && !idle)
		*ret_refusal = "The node to be idle terminated is no longer idle.";
	if (*ret_refusal)
		return false;
	if (deadline > 0 && (uint64_t)deadline < wall_ms)
		rc_warn("drain request whose deadline passed %llu ms ago: the clocks of the hosts may differ",
		        (unsigned long long)(wall_ms - (uint64_t)deadline));
	free(drain->message);
	*drain = (rc_drain){ true, reason, rc_strdup(RC_GET_STR(request, reason_message)), deadline > 0 ? deadline : 0 };
	return true;
}

bool rc_drain_done(const rc_drain *drain, bool idle)
{
	return drain->draining && idle;
}

rc_enum rc_drain_death_reason(const rc_drain *drain, const rc_dialect *d)
{
	if (!drain->draining)
		return RC_V_DEATH_EXPECTED;
	return drain->reason == rc_enum_value(d, RC_V_DRAIN_PREEMPTION) ? RC_V_DEATH_AUTOSCALER_DRAIN : RC_V_DEATH_AUTOSCALER_IDLE;
}

bool rc_drain_expired(const rc_drain *drain, const rc_dialect *d, uint64_t wall_ms)
{
	return drain->draining && drain->reason == rc_enum_value(d, RC_V_DRAIN_PREEMPTION) && drain->deadline_ms != 0 &&
	       (uint64_t)drain->deadline_ms < wall_ms;
}

void rc_drain_free(rc_drain *drain)
{
	free(drain->message);
	*drain = (rc_drain){ 0 };
}
