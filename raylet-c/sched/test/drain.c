/* Drain: who may refuse, and how the node's death is reported. */
#include "raylet-c/base/log.h"
#include "raylet-c/sched/drain.h"
#include "raylet-c/sched/test/sched_test.h"

static void idle_termination(void)
{
	const rc_dialect *d = rc_dialect_find("2.60.0", NULL);
	Rw__DrainRayletRequest m = RW__DRAIN_RAYLET_REQUEST__INIT;
	rc_drain drain = { 0 };
	const char *refusal;
	RC_SET(m, reason, rc_enum_value(d, RC_V_DRAIN_IDLE));
	CHECK(!rc_drain_request(&drain, d, &m, false, 1000, &refusal));
	CHECK_STR("The node to be idle terminated is no longer idle.", refusal);
	CHECK(!drain.draining && !rc_drain_done(&drain, true));
	CHECK_EQ_INT(RC_V_DEATH_EXPECTED, rc_drain_death_reason(&drain, d));
	m.reason_message = (char *)"scale down";
	CHECK(rc_drain_request(&drain, d, &m, true, 1000, &refusal));
	CHECK_STR(NULL, refusal);
	CHECK(drain.draining && rc_drain_done(&drain, true) && !rc_drain_done(&drain, false));
	CHECK_STR("scale down", drain.message);
	CHECK(!rc_drain_expired(&drain, d, UINT64_MAX)); /* no preemption */
	CHECK_EQ_INT(RC_V_DEATH_AUTOSCALER_IDLE, rc_drain_death_reason(&drain, d));
	rc_drain_free(&drain);
}

static void preemption(void)
{
	const rc_dialect *d = rc_dialect_find("2.35.0", NULL);
	Rw__DrainRayletRequest m = RW__DRAIN_RAYLET_REQUEST__INIT;
	rc_drain drain = { 0 };
	const char *refusal;
	RC_SET(m, reason, rc_enum_value(d, RC_V_DRAIN_PREEMPTION));
	RC_SET(m, deadline_timestamp_ms, 500);
	CHECK(rc_drain_request(&drain, d, &m, false, 1000, &refusal)); /* late, but the machine goes anyway */
	CHECK_EQ_INT(500, drain.deadline_ms);
	CHECK(rc_drain_expired(&drain, d, 501) && !rc_drain_expired(&drain, d, 500));
	CHECK_EQ_INT(RC_V_DEATH_AUTOSCALER_DRAIN, rc_drain_death_reason(&drain, d));
	RC_SET(m, deadline_timestamp_ms, -7);
	m.reason_message = (char *)"again";
	CHECK(rc_drain_request(&drain, d, &m, false, 1000, &refusal));
	CHECK_EQ_INT(0, drain.deadline_ms);
	CHECK(!rc_drain_expired(&drain, d, 1000)); /* no deadline */
	CHECK_STR("again", drain.message);
	RC_SET(m, reason, 77);
	CHECK(!rc_drain_request(&drain, d, &m, true, 1000, &refusal));
	CHECK(refusal != NULL && drain.draining);
	rc_drain_free(&drain);
}

int main(void)
{
	rc_log_level(RC_ERROR);
	RUN(idle_termination, "a busy node refuses an idle termination with stock's words, an idle one accepts it");
	RUN(preemption, "a preemption is accepted in any state and a later request replaces the earlier");
	return test_end();
}
