/* Statistics every few seconds: a sample is taken on the pool, then published to the head and turned into gauges on the loop.
 * While the head is away, at most one report waits for it. */
#include <stdlib.h>
#include <string.h>

#include "raylet-c/agent/gauges.h"
#include "raylet-c/agent/internal.h"
#include "raylet-c/agent/payload.h"
#include "raylet-c/base/log.h"

enum { FIRST_MS = 200, MAX_PIDS = 10000 };

struct rc__sampling {
	rc_agent *agent; /* NULL: it ended */
	rc_sampler *sampler;
	bool working;
	pid_t *pids;
	size_t n_pids;
	rc_sample sample;
};

static void sampling_free(rc__sampling *s)
{
	rc_sampler_destroy(s->sampler);
	rc_sample_free(&s->sample);
	free(s->pids);
	free(s);
}

static void published(void *arg, const rc_error *error, const void *reply)
{
	rc_agent *a = arg;
	(void)reply;
	a->publishing = false;
	if (error)
		rc_debug("the head did not take this node's statistics: %s", error->text);
}

static void publish(rc_agent *a, const rc_sample *sample)
{
	rc_buf json = { 0 };
	char *key = rc_sprintf("RAY_REPORTER:%s", rc_id_to_hex(&a->o.node_id).s);
	Rw__NodeResourceUsage usage = RW__NODE_RESOURCE_USAGE__INIT;
	Rw__PubMessage message = RW__PUB_MESSAGE__INIT, *messages[] = { &message };
	Rw__GcsPublishRequest request = RW__GCS_PUBLISH_REQUEST__INIT;
	rc_payload_write(sample, a->v235, a->o.node_ip, &json);
	rc_buf_cstr(&json);
	usage.json = (char *)json.p;
	RC_SET(message, channel_type, rc_enum_value(a->o.dialect, RC_V_CHANNEL_NODE_USAGE));
	RC_SET_BYTES(message, key_id, key, strlen(key));
	message.node_resource_usage_message = &usage;
	request.pub_messages = messages;
	request.n_pub_messages = 1;
	a->publishing = true;
	rc_gcs_call(a->o.gcs, RC_M_GCS_PUBLISH, &request, &rw__gcs_publish_reply__descriptor, published, a);
	free(key);
	rc_buf_free(&json);
}

static void take(void *arg)
{
	rc__sampling *s = arg;
	rc_sample_take(s->sampler, s->pids, s->n_pids, &s->sample);
}

static void taken(void *arg)
{
	rc__sampling *s = arg;
	rc_agent *a = s->agent;
	s->working = false;
	if (!a) {
		sampling_free(s);
		return;
	}
	rc_gauges_from_sample(a->series, &s->sample,
	                      &(rc_gauges_options){ .v235 = a->v235, .ip = a->o.node_ip, .session_name = a->o.session_name,
	                                            .release = rc_dialect_release(a->o.dialect), .ttl_ms = 3 * a->interval_ms });
	if (!a->publishing)
		publish(a, &s->sample);
	rc_sample_free(&s->sample);
}

static void sample(void *arg)
{
	rc_agent *a = arg;
	rc__sampling *s = a->sampling;
	if (s->working)
		return;
	size_t n = a->o.ops->pids(a->o.ctx, NULL, 0);
	n = n < MAX_PIDS ? n : MAX_PIDS;
	s->pids = rc_realloc(s->pids, (n + 1) * sizeof(*s->pids));
	s->n_pids = a->o.ops->pids(a->o.ctx, s->pids, n);
	s->n_pids = s->n_pids < n ? s->n_pids : n;
	s->working = true;
	rc_loop_work(a->o.loop, take, taken, s);
}

void rc__agent_statistics_start(rc_agent *a)
{
	/* 2.35.0 shows the file system of the users' temporary files, 2.60.0 that of the node. */
	const char *tmp = getenv("RAY_TMPDIR") ? getenv("RAY_TMPDIR") : getenv("TMPDIR");
	rc_sampler_options o = { .temp_dir = a->v235 ? (tmp ? tmp : "/tmp") : a->o.temp_dir, .full_memory = a->v235 };
	a->sampling = rc_alloc(sizeof(*a->sampling));
	a->sampling->agent = a;
	a->sampling->sampler = rc_sampler_create(&o);
	a->sample_timer = rc_timer_start(a->o.loop, FIRST_MS, a->interval_ms, sample, a);
}

void rc__agent_statistics_end(rc_agent *a)
{
	rc_timer_stop(a->sample_timer);
	if (!a->sampling)
		return;
	a->sampling->agent = NULL;
	if (!a->sampling->working)
		sampling_free(a->sampling);
}
