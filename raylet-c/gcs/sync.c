/* The sync stream: our resource view to the head, the others' views and the call for garbage collection from it.
 *
 * 2.35.0 sends one message at a time, 2.60.0 a batch (an empty batch kills the head's process). Versions rise with every
 * message; the head drops an older one. One send is under way at a time; of views that pile up only the newest goes.
 * Trap: a head of 2.35.0 aborts when a node opens a second stream while it holds the first one for open. So there is never
 * more than one, it is opened again only after the old one has ended, and only after a pause, as stock nodes do. */
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/gcs/internal.h"

static const rc_stream_ops stream_ops;

static bool batched(const rc_gcs *g)
{
	return rc_has_field(g->dialect, &rw__syncer__ray_sync_message_batch__descriptor, "messages");
}

/* ---- sending ---- */

static void send_message(rc_gcs *g, rc_enum type, rc_view body)
{
	Rw__SyncerRaySyncMessage message = RW__SYNCER__RAY_SYNC_MESSAGE__INIT, *list = &message;
	Rw__SyncerRaySyncMessageBatch batch = RW__SYNCER__RAY_SYNC_MESSAGE_BATCH__INIT;
	rc_buf bytes = { 0 };

	RC_SET(message, version, g->sync.version++);
	RC_SET(message, message_type, rc_enum_value(g->dialect, type));
	RC_SET_BYTES(message, sync_message, body.p, body.n);
	RC_SET_ID(message, node_id, &g->node_id);
	if (batched(g)) {
		batch.n_messages = 1;
		batch.messages = &list;
		rc_pack(g->dialect, &batch, &bytes);
	} else {
		rc_pack(g->dialect, &message, &bytes);
	}
	g->sync.sending = true;
	rc_stream_send(g->sync.stream, rc_view_of(bytes.p, bytes.n));
	rc_buf_free(&bytes);
}

static void send_next(rc_gcs *g);

static void pause_over(void *arg)
{
	rc_gcs *g = arg;

	rc_timer_stop(g->sync.pause);
	g->sync.pause = NULL;
	send_next(g);
}

static void send_next(rc_gcs *g)
{
	rc__gcs_sync *s = &g->sync;
	uint64_t now = rc_now_ms();

	if (!s->stream || !s->ready || s->sending)
		return;
	if (s->gc_wanted) {
		Rw__SyncerCommandsSyncMessage command = RW__SYNCER__COMMANDS_SYNC_MESSAGE__INIT;
		rc_buf bytes = { 0 };

		RC_SET(command, should_global_gc, 1);
		rc_pack(g->dialect, &command, &bytes);
		s->gc_wanted = false;
		send_message(g, RC_V_SYNC_COMMANDS, rc_view_of(bytes.p, bytes.n));
		rc_buf_free(&bytes);
	} else if (s->dirty && !s->pause) {
		if (s->sent_at && now < s->sent_at + RC__GCS_VIEW_PAUSE_MS) {
			s->pause = rc_timer_start(g->loop, s->sent_at + RC__GCS_VIEW_PAUSE_MS - now, 0, pause_over, g);
			return;
		}
		s->dirty = false;
		s->sent_at = now;
		send_message(g, RC_V_SYNC_RESOURCE_VIEW, rc_view_of(s->view.p, s->view.n));
	}
}

void rc_gcs_set_view(rc_gcs *g, const Rw__SyncerResourceViewSyncMessage *view)
{
	rc__gcs_sync *s = &g->sync;
	rc_buf bytes = { 0 };

	rc_pack(g->dialect, view, &bytes);
	if (s->view.n && rc_view_eq(rc_view_of(bytes.p, bytes.n), rc_view_of(s->view.p, s->view.n))) {
		rc_buf_free(&bytes);
		return;
	}
	rc_buf_free(&s->view);
	s->view = bytes;
	s->dirty = true;
	send_next(g);
}

void rc_gcs_send_global_gc(rc_gcs *g)
{
	if (!g->sync.stream || !g->sync.ready)
		return;
	g->sync.gc_wanted = true;
	send_next(g);
}

/* ---- receiving ---- */

static void on_one(rc_gcs *g, const Rw__SyncerRaySyncMessage *m)
{
	rc_id node = RC_GET_ID(m, node_id);
	bool is_view = RC_GET(m, message_type) == rc_enum_value(g->dialect, RC_V_SYNC_RESOURCE_VIEW);
	bool is_command = RC_GET(m, message_type) == rc_enum_value(g->dialect, RC_V_SYNC_COMMANDS);
	void *body;

	if (rc_id_eq(&node, &g->node_id) || !(is_view || is_command))
		return;
	body = rc_unpack(g->dialect, is_view ? &rw__syncer__resource_view_sync_message__descriptor
	                 : &rw__syncer__commands_sync_message__descriptor,
	                 RC_GET_VIEW(m, sync_message));
	if (!body)
		rc_warn("a malformed %s of node %s on the sync stream is left out", is_view ? "resource view" : "command", rc_id_to_hex(&node).s);
	else if (is_view && g->ops.view)
		g->ops.view(g->ctx, &node, body);
	else if (is_command && g->ops.global_gc && RC_GET((Rw__SyncerCommandsSyncMessage *)body, should_global_gc))
		g->ops.global_gc(g->ctx);
	rc_free_message(body);
}

static void on_message(void *arg, rc_view bytes)
{
	rc_gcs *g = arg;
	void *message;

	if (g->ended)
		return;
	message = rc_unpack(g->dialect, batched(g) ? &rw__syncer__ray_sync_message_batch__descriptor
	                    : &rw__syncer__ray_sync_message__descriptor, bytes);
	if (!message) {
		rc_warn("a malformed message of %zu bytes on the sync stream is left out", bytes.n);
		return;
	}
	rc__gcs_hold(g);
	if (batched(g)) {
		const Rw__SyncerRaySyncMessageBatch *batch = message;

		for (size_t i = 0; i < batch->n_messages && !g->ended; i++)
			on_one(g, batch->messages[i]);
	} else {
		on_one(g, message);
	}
	rc_free_message(message);
	rc__gcs_release(g);
}

/* ---- the stream's life ---- */

static void on_ready(void *arg)
{
	rc_gcs *g = arg;

	if (g->ended)
		return;
	g->sync.ready = true;
	g->sync.dirty = g->sync.view.n > 0;
	send_next(g);
}

static void on_sent(void *arg)
{
	rc_gcs *g = arg;

	if (g->ended)
		return;
	if (g->sync.complained) /* not in `ready`, which may come for a stream that fails at once */
		rc_info("the sync stream to GCS %s is open again", g->address);
	g->sync.complained = false;
	g->sync.sending = false;
	send_next(g);
}

static void open_stream(void *arg)
{
	rc_gcs *g = arg;
	rc_id_hex hex = rc_id_to_hex(&g->node_id);
	const char *metadata[] = { "node_id", hex.s, NULL };

	rc_timer_stop(g->sync.reconnect);
	g->sync.reconnect = NULL;
	if (g->ended || g->leaving || g->sync.stream)
		return;
	g->sync.stream = rc_stream_open(g->rpc, g->address, rc_method_path(g->dialect, RC_M_START_SYNC), metadata, &stream_ops, g);
	if (g->sync.stream)
		rc__gcs_hold(g);
}

static void on_closed(void *arg, int status, const char *detail)
{
	rc_gcs *g = arg;
	rc__gcs_sync *s = &g->sync;

	s->stream = NULL;
	s->ready = s->sending = s->gc_wanted = false;
	if (!g->ended && !g->leaving) {
		if (!s->complained)
			rc_warn("the sync stream to GCS %s ended (gRPC status %d: %s); it is opened again", g->address, status, detail);
		s->complained = true;
		if (!s->reconnect)
			s->reconnect = rc_timer_start(g->loop, RC__GCS_STREAM_PAUSE_MS, 0, open_stream, g);
	}
	rc__gcs_release(g);
}

static const rc_stream_ops stream_ops = { on_ready, on_message, on_sent, on_closed };

void rc__gcs_sync_start(rc_gcs *g)
{
	open_stream(g);
}

void rc__gcs_sync_end(rc_gcs *g)
{
	rc_timer_stop(g->sync.pause);
	rc_timer_stop(g->sync.reconnect);
	g->sync.pause = g->sync.reconnect = NULL;
	rc_buf_free(&g->sync.view);
	if (g->sync.stream)
		rc_stream_close(g->sync.stream);
}
