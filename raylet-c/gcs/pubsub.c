/* Subscriptions on the head: nodes, jobs and worker deaths, through one long poll.
 *
 * Order: subscribe, then read the listings, so that nothing falls between. Messages carry rising sequence ids; what was
 * handled is acknowledged by the next poll. A publisher id that changes is another head process: ids start anew, and it
 * knows none of our subscriptions. Only one poll may be open for a subscriber.
 * Trap: a head that has declared this node dead answers polls at once and empty; without a pause that is a busy loop. */

#include "raylet-c/base/log.h"
#include "raylet-c/gcs/internal.h"

enum { EMPTY_POLL_PAUSE_MS = 200 };

static void poll_head(rc_gcs *g);

static void on_message(rc_gcs *g, const Rw__PubMessage *m)
{
	int channel = RC_GET(m, channel_type);

	if (channel == rc_enum_value(g->dialect, RC_V_CHANNEL_NODE_LIVENESS) && m->node_address_and_liveness_message) {
		rc__gcs_node_liveness(g, m->node_address_and_liveness_message, RC_GET_VIEW(m, key_id));
	} else if (channel == rc_enum_value(g->dialect, RC_V_CHANNEL_NODE_INFO) && m->node_info_message) {
		rc__gcs_node_info(g, m->node_info_message);
	} else if (channel == rc_enum_value(g->dialect, RC_V_CHANNEL_JOB) && m->job_message) {
		rc__gcs_job_news(g, m->job_message, false);
	} else if (channel == rc_enum_value(g->dialect, RC_V_CHANNEL_WORKER_DELTA) && m->worker_delta_message) {
		rc_id worker = RC_GET_ID(m->worker_delta_message, worker_id), node = RC_GET_ID(m->worker_delta_message, node_id);

		if (worker.n == RC_WORKER_ID && g->ops.worker_died)
			g->ops.worker_died(g->ctx, &worker, &node);
	}
}

static void poll_again(void *arg)
{
	rc_gcs *g = arg;

	rc_timer_stop(g->sub.pause);
	g->sub.pause = NULL;
	poll_head(g);
}

/* True when the answer comes from another publisher than the one before. */
static bool publisher_changed(rc__gcs_sub *sub, rc_view publisher)
{
	bool known = sub->publisher_id.n > 0;

	if (rc_view_eq(publisher, rc_view_of(sub->publisher_id.p, sub->publisher_id.n)))
		return false;
	sub->publisher_id.n = 0;
	rc_buf_add(&sub->publisher_id, publisher.p, publisher.n);
	sub->done = 0;
	return known;
}

static void on_messages(rc_gcs *g, const Rw__GcsSubscriberPollReply *r)
{
	bool another = publisher_changed(&g->sub, RC_GET_VIEW(r, publisher_id));

	for (size_t i = 0; i < r->n_pub_messages && !g->ended; i++) {
		const Rw__PubMessage *m = r->pub_messages[i];

		if (RC_GET(m, sequence_id) <= g->sub.done)
			continue; /* sent again because our acknowledgement was on its way */
		g->sub.done = RC_GET(m, sequence_id);
		on_message(g, m);
	}
	if (another && !g->ended) {
		rc_info("GCS %s has another publisher: it was restarted", g->address);
		rc_gcs_on_restart(g);
	}
}

static void on_poll(void *arg, const rc_error *error, const void *reply)
{
	const Rw__GcsSubscriberPollReply *r = reply;
	rc_gcs *g = arg;
	rc__gcs_sub *sub = &g->sub;
	bool pause = error || (r->n_pub_messages == 0 && rc_now_ms() - sub->polled_at < EMPTY_POLL_PAUSE_MS);

	if (!error)
		on_messages(g, r);
	else if (!g->told && !g->ended)
		rc_warn("the poll for the head's messages failed: %s", error->text);
	sub->polling = false;
	if (!g->ended && pause && !sub->pause)
		sub->pause = rc_timer_start(g->loop, EMPTY_POLL_PAUSE_MS, 0, poll_again, g);
	else if (!g->ended)
		poll_head(g);
}

static void poll_head(rc_gcs *g)
{
	Rw__GcsSubscriberPollRequest request = RW__GCS_SUBSCRIBER_POLL_REQUEST__INIT;
	rc__gcs_sub *sub = &g->sub;

	if (sub->polling || sub->pause || g->leaving)
		return;
	sub->polling = true;
	sub->polled_at = rc_now_ms();
	RC_SET_ID(request, subscriber_id, &sub->subscriber_id);
	RC_SET(request, max_processed_sequence_id, sub->done);
	RC_SET_BYTES(request, publisher_id, sub->publisher_id.p, sub->publisher_id.n);
	rc__gcs_send(g, RC_M_GCS_POLL, &request, &rw__gcs_subscriber_poll_reply__descriptor, 0, 0, on_poll, g);
}

static void on_subscribed(void *arg, const rc_error *error, const void *reply)
{
	rc_gcs *g = arg;

	(void)reply;
	if (error) {
		rc_error_log("the head does not take our subscriptions: %s", error->text);
	} else if (!g->leaving) {
		rc__gcs_fetch_nodes(g);
		rc__gcs_fetch_jobs(g);
	}
}

void rc__gcs_subscribe(rc_gcs *g)
{
	bool liveness = rc_enum_value(g->dialect, RC_V_CHANNEL_NODE_LIVENESS) >= 0;
	rc_enum channels[] = { liveness ? RC_V_CHANNEL_NODE_LIVENESS : RC_V_CHANNEL_NODE_INFO, RC_V_CHANNEL_JOB, RC_V_CHANNEL_WORKER_DELTA };
	enum { N = sizeof channels / sizeof *channels };
	Rw__GcsSubscriberCommandBatchRequest request = RW__GCS_SUBSCRIBER_COMMAND_BATCH_REQUEST__INIT;
	Rw__SubMessage subscribe = RW__SUB_MESSAGE__INIT; /* empty, but it must be there */
	Rw__Command commands[N], *list[N];

	if (!g->sub.subscriber_id.n)
		g->sub.subscriber_id = rc_id_random(RC_WORKER_ID);
	for (size_t i = 0; i < N; i++) {
		commands[i] = (Rw__Command)RW__COMMAND__INIT;
		RC_SET(commands[i], channel_type, rc_enum_value(g->dialect, channels[i])); /* no key: the whole channel */
		commands[i].subscribe_message = &subscribe;
		list[i] = &commands[i];
	}
	RC_SET_ID(request, subscriber_id, &g->sub.subscriber_id);
	RC_SET_ID(request, sender_id, &g->node_id);
	request.n_commands = N;
	request.commands = list;
	rc_gcs_call(g, RC_M_GCS_COMMAND_BATCH, &request, &rw__gcs_subscriber_command_batch_reply__descriptor, on_subscribed, g);
	poll_head(g);
}

void rc__gcs_pubsub_end(rc_gcs *g)
{
	rc_timer_stop(g->sub.pause);
	g->sub.pause = NULL;
	rc_buf_free(&g->sub.publisher_id);
}
