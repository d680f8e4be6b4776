/* The line to one owner: subscriptions to what it publishes of its objects, and what all calls to it share (retries, death).
 *
 * Protocol (src/ray/pubsub/{subscriber,publisher}.cc): commands go out in batches, one batch in flight, in order; one long
 * poll is open while anything is subscribed, and stays open until answered when nothing is. subscriber_id is this node's id,
 * 28 raw bytes. A poll names the last sequence number seen and the publisher's id that the last reply gave (nil at first);
 * another publisher id means that numbers start anew. The publisher keeps messages until a poll acknowledges them, so a lost
 * reply loses nothing. failure_message in place of a message: the owner does not know that object (any more).
 *
 * An owner's death is told by the head (rc_objects_worker_died, rc_objects_node_removed). Before that, calls fail; they are
 * repeated with growing pauses. After some seconds the receivers are told that the owner is unreachable; after ten minutes
 * it counts as dead. An answer such as ABORTED (Ray: "Mismatched WorkerID") or UNIMPLEMENTED says that another process has
 * that port now: the owner is dead. */
#include "raylet-c/objects/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum {
	COMMAND_BATCH = 2000,        /* stock's max_command_batch_size */
	CALL_TIMEOUT_MS = 60000,
	FIRST_PAUSE_MS = 100,
	LAST_PAUSE_MS = 5000,
	GIVE_UP_MS = 600000,
};

typedef struct command {
	rc_link link;
	int channel;
	rc_id key, generator;
	bool subscribe;
} command;

static void send_commands(rc__om_owner *w);
static void poll_owner(rc__om_owner *w);

static int channel_number(const rc_objects *o, int channel)
{
	return rc_enum_value(o->dialect, channel == RC__OM_LOCATIONS ? RC_V_CHANNEL_OBJECT_LOCATIONS : RC_V_CHANNEL_OBJECT_EVICTION);
}

static size_t count_subs(const rc__om_owner *w)
{
	size_t n = 0;

	for (int i = 0; i < RC__OM_CHANNELS; i++)
		n += rc_map_count(w->subs[i]);
	return n;
}

/* ---- life ---- */

rc__om_owner *rc__om_owner_find(rc_objects *o, const rc_owner *address, bool create)
{
	rc__om_owner *w = rc_map_get_id(o->owners, &address->worker_id);

	if (w || !create)
		return w;
	w = rc_alloc(sizeof *w);
	w->o = o;
	w->address = *address;
	snprintf(w->target, sizeof w->target, strchr(address->ip, ':') ? "[%s]:%d" : "%s:%d", address->ip, address->port);
	for (int i = 0; i < RC__OM_CHANNELS; i++)
		w->subs[i] = rc_map_create();
	rc_list_init(&w->commands);
	rc_list_init(&w->commands_sent);
	w->publisher = rc_id_nil(RC_WORKER_ID);
	rc__om_reports_init(w);
	rc_map_put_id(o->owners, &address->worker_id, w);
	return w;
}

static void drop_commands(rc_link *list)
{
	RC_LIST_FOREACH(l, list) {
		rc_list_remove(l);
		free(RC_CONTAINER(l, command, link));
	}
}

static void owner_free(rc__om_owner *w)
{
	rc_map_del_id(w->o->owners, &w->address.worker_id);
	rc__om_drop(w->batch);
	rc__om_drop(w->poll);
	rc_timer_stop(w->retry);
	drop_commands(&w->commands);
	drop_commands(&w->commands_sent);
	rc__om_reports_drop(w);
	rc_map_destroy(w->reports.pending);
	for (int i = 0; i < RC__OM_CHANNELS; i++)
		rc_map_destroy(w->subs[i]);
	free(w);
}

void rc__om_owner_maybe_free(rc__om_owner *w)
{
	if (w->busy || w->batch || w->poll || count_subs(w) > 0 || !rc_list_empty(&w->commands) || !rc__om_reports_idle(w))
		return;
	owner_free(w);
}

/* Tells every subscription; those of a dead owner are ended before. Callbacks may unsubscribe others. */
static void fail_subs(rc__om_owner *w, rc__om_failure why)
{
	for (int channel = 0; channel < RC__OM_CHANNELS; channel++) {
		size_t n = rc_map_count(w->subs[channel]), count = 0, i = 0;
		rc_id *keys = rc_alloc((n ? n : 1) * sizeof *keys);
		void *value;

		while (rc_map_next(w->subs[channel], &i, NULL, &value))
			keys[count++] = ((rc__om_sub *)value)->key;
		for (size_t k = 0; k < count; k++) {
			rc__om_sub *s = rc_map_get_id(w->subs[channel], &keys[k]);

			if (!s)
				continue;
			if (why != RC__OM_OWNER_UNREACHABLE) {
				rc_map_del_id(w->subs[channel], &keys[k]);
				s->owner = NULL;
			}
			s->failed(s, why);
		}
		free(keys);
	}
}

static void owner_dead(rc__om_owner *w)
{
	w->busy = true;
	fail_subs(w, RC__OM_OWNER_DEAD);
	owner_free(w);
}

void rc__om_owners_died(rc_objects *o, const rc_id *worker, const rc_id *node)
{
	size_t n = rc_map_count(o->owners), count = 0, i = 0;
	rc_id *dead = rc_alloc((n ? n : 1) * sizeof *dead);
	void *value;

	if (worker && rc_map_get_id(o->owners, worker))
		dead[count++] = *worker;
	while (node && rc_map_next(o->owners, &i, NULL, &value))
		if (rc_id_eq(&((rc__om_owner *)value)->address.node_id, node))
			dead[count++] = ((rc__om_owner *)value)->address.worker_id;
	for (size_t k = 0; k < count; k++) {
		rc__om_owner *w = rc_map_get_id(o->owners, &dead[k]);

		if (w)
			owner_dead(w);
	}
	free(dead);
}

void rc__om_owners_destroy(rc_objects *o)
{
	size_t i = 0;
	void *value;

	while (rc_map_next(o->owners, &i, NULL, &value))
		owner_free(value);
}

bool rc__om_owner_known_dead(rc_objects *o, const rc_owner *owner)
{
	return rc_map_get_id(o->dead_workers, &owner->worker_id) || rc__om_node_dead(o, &owner->node_id);
}

/* ---- failures ---- */

bool rc__om_refused(int status)
{
	return status == RC_RPC_INVALID || status == RC_RPC_NOT_FOUND || status == RC_RPC_ABORTED || status == RC_RPC_UNIMPLEMENTED ||
	       status == RC_RPC_UNAUTHENTICATED;
}

static void on_retry(void *arg)
{
	rc__om_owner *w = arg;

	rc_timer_stop(w->retry);
	w->retry = NULL;
	send_commands(w);
	poll_owner(w);
	rc__om_reports_send(w);
	rc__om_owner_maybe_free(w);
}

void rc__om_owner_failed(rc__om_owner *w, int status, const char *what, const char *detail)
{
	uint64_t pause = FIRST_PAUSE_MS;

	if (w->retry)
		return;
	if (w->failures++ == 0)
		w->failing_since = rc_now_ms();
	for (unsigned i = 1; i < w->failures && pause < LAST_PAUSE_MS; i++)
		pause *= 2;
	rc_debug("%s to owner %s at %s failed: status %d, %s", what, rc_id_to_hex(&w->address.worker_id).s, w->target, status, detail);
	w->retry = rc_timer_start(w->o->loop, pause < LAST_PAUSE_MS ? pause : LAST_PAUSE_MS, 0, on_retry, w);
	if (w->failures != w->o->options.unreachable_failures)
		return;
	if (count_subs(w) > 0)
		rc_warn("owner %s at %s cannot be reached: %s", rc_id_to_hex(&w->address.worker_id).s, w->target, detail);
	w->busy = true;
	fail_subs(w, RC__OM_OWNER_UNREACHABLE);
	w->busy = false;
	rc__om_owner_maybe_free(w);
}

void rc__om_owner_works(rc__om_owner *w)
{
	w->failures = 0;
	w->failing_since = 0;
}

void rc__om_owners_tick(rc_objects *o)
{
	uint64_t now = rc_now_ms();
	size_t i = 0;
	void *value;

	while (rc_map_next(o->owners, &i, NULL, &value)) {
		rc__om_owner *w = value;

		if (w->failing_since && now - w->failing_since > GIVE_UP_MS) {
			rc_warn("owner %s at %s counts as dead: not reached for %d s", rc_id_to_hex(&w->address.worker_id).s, w->target,
			        GIVE_UP_MS / 1000);
			owner_dead(w);
			return; /* callbacks may have changed the map; the others come with the next tick */
		}
	}
}

/* ---- commands ---- */

static void on_commands_sent(void *arg, int status, rc_view reply, const char *detail)
{
	rc__om_owner *w = arg;

	(void)reply;
	w->batch = NULL;
	if (status == RC_RPC_OK) {
		drop_commands(&w->commands_sent);
		rc__om_owner_works(w);
		send_commands(w);
		rc__om_owner_maybe_free(w);
		return;
	}
	if (rc__om_refused(status)) {
		rc_info("owner %s is gone: %s answered status %d, %s", rc_id_to_hex(&w->address.worker_id).s, w->target, status, detail);
		owner_dead(w);
		return;
	}
	while (!rc_list_empty(&w->commands_sent)) { /* back to the front, in order */
		rc_link *l = w->commands_sent.prev;

		rc_list_remove(l);
		rc_list_append(w->commands.next, l);
	}
	rc__om_owner_failed(w, status, "subscribing", detail);
}

static void send_commands(rc__om_owner *w)
{
	rc_objects *o = w->o;
	Rw__PubsubCommandBatchRequest m = RW__PUBSUB_COMMAND_BATCH_REQUEST__INIT;
	struct {
		Rw__Command command;
		Rw__SubMessage sub;
		Rw__UnsubscribeMessage unsub;
		Rw__WorkerObjectLocationsSubMessage locations;
		Rw__WorkerObjectEvictionSubMessage eviction;
	} *parts;
	Rw__Command **commands;
	Rw__Address self = RW__ADDRESS__INIT;
	size_t n = 0;

	if (w->batch || w->retry || o->destroying || rc_list_empty(&w->commands))
		return;
	for (rc_link *l = w->commands.next; l != &w->commands && n < COMMAND_BATCH; l = l->next)
		n++;
	parts = rc_alloc(n * sizeof *parts);
	commands = rc_alloc(n * sizeof *commands);
	RC_SET_ID(self, node_id, &o->options.node_id);
	self.ip_address = o->ip;
	RC_SET(self, port, o->options.port);
	for (size_t i = 0; i < n; i++) {
		command *c = RC_CONTAINER(w->commands.next, command, link);
		Rw__Command *out = commands[i] = &parts[i].command;

		rc_list_remove(&c->link);
		rc_list_append(&w->commands_sent, &c->link);
		*out = (Rw__Command)RW__COMMAND__INIT;
		RC_SET(*out, channel_type, channel_number(o, c->channel));
		RC_SET_ID(*out, key_id, &c->key);
		if (!c->subscribe) {
			parts[i].unsub = (Rw__UnsubscribeMessage)RW__UNSUBSCRIBE_MESSAGE__INIT;
			out->unsubscribe_message = &parts[i].unsub;
			continue;
		}
		parts[i].sub = (Rw__SubMessage)RW__SUB_MESSAGE__INIT;
		out->subscribe_message = &parts[i].sub;
		if (c->channel == RC__OM_LOCATIONS) {
			Rw__WorkerObjectLocationsSubMessage *s = &parts[i].locations;

			*s = (Rw__WorkerObjectLocationsSubMessage)RW__WORKER_OBJECT_LOCATIONS_SUB_MESSAGE__INIT;
			RC_SET_ID(*s, intended_worker_id, &w->address.worker_id);
			RC_SET_ID(*s, object_id, &c->key);
			parts[i].sub.worker_object_locations_message = s;
		} else {
			Rw__WorkerObjectEvictionSubMessage *s = &parts[i].eviction;

			*s = (Rw__WorkerObjectEvictionSubMessage)RW__WORKER_OBJECT_EVICTION_SUB_MESSAGE__INIT;
			RC_SET_ID(*s, intended_worker_id, &w->address.worker_id);
			RC_SET_ID(*s, object_id, &c->key);
			s->subscriber_address = &self;
			if (c->generator.n)
				RC_SET_ID(*s, generator_id, &c->generator);
			parts[i].sub.worker_object_eviction_message = s;
		}
	}
	RC_SET_ID(m, subscriber_id, &o->options.node_id);
	m.n_commands = n;
	m.commands = commands;
	w->batch = rc__om_send(o, w->target, RC_M_CW_COMMAND_BATCH, &m, CALL_TIMEOUT_MS, on_commands_sent, w);
	free(commands);
	free(parts);
}

static void add_command(rc__om_owner *w, const rc__om_sub *s, bool subscribe)
{
	command *c = rc_alloc(sizeof *c);

	c->channel = s->channel;
	c->key = s->key;
	c->generator = s->generator;
	c->subscribe = subscribe;
	rc_list_append(&w->commands, &c->link);
}

void rc__om_subscribe(rc_objects *o, rc__om_sub *s, const rc_owner *owner)
{
	rc__om_owner *w = rc__om_owner_find(o, owner, true);

	s->owner = w;
	rc_map_put_id(w->subs[s->channel], &s->key, s);
	add_command(w, s, true);
	send_commands(w);
	poll_owner(w);
}

void rc__om_unsubscribe(rc__om_sub *s)
{
	rc__om_owner *w = s->owner;

	if (!w)
		return;
	s->owner = NULL;
	rc_map_del_id(w->subs[s->channel], &s->key);
	add_command(w, s, false);
	send_commands(w);
}

/* ---- poll ---- */

static void on_message(rc__om_owner *w, const Rw__PubMessage *m)
{
	rc_id key = RC_GET_ID(m, key_id);
	int number = RC_GET(m, channel_type);

	for (int channel = 0; channel < RC__OM_CHANNELS; channel++) {
		rc__om_sub *s = channel_number(w->o, channel) == number ? rc_map_get_id(w->subs[channel], &key) : NULL;

		if (!s)
			continue;
		if (!m->failure_message) {
			s->message(s, m);
			continue;
		}
		rc_map_del_id(w->subs[channel], &key); /* the publisher does not count it any more */
		s->owner = NULL;
		s->failed(s, RC__OM_KEY_GONE);
	}
}

static void on_poll(void *arg, int status, rc_view reply, const char *detail)
{
	rc__om_owner *w = arg;
	Rw__PubsubLongPollingReply *m;
	rc_id publisher;

	w->poll = NULL;
	if (status != RC_RPC_OK) {
		if (rc__om_refused(status)) {
			rc_info("owner %s is gone: %s answered status %d, %s", rc_id_to_hex(&w->address.worker_id).s, w->target, status, detail);
			owner_dead(w);
		} else if (count_subs(w) > 0) {
			rc__om_owner_failed(w, status, "polling", detail);
		} else {
			rc__om_owner_maybe_free(w);
		}
		return;
	}
	m = rc_unpack(w->o->dialect, &rw__pubsub_long_polling_reply__descriptor, reply);
	if (!m) {
		rc__om_owner_failed(w, RC_RPC_INVALID, "polling", "the reply is malformed");
		return;
	}
	rc__om_owner_works(w);
	publisher = RC_GET_ID(m, publisher_id);
	if (!rc_id_eq(&publisher, &w->publisher)) {
		w->publisher = publisher;
		w->sequence = 0;
	}
	w->busy = true;
	for (size_t i = 0; i < m->n_pub_messages; i++) {
		const Rw__PubMessage *p = m->pub_messages[i];

		if (RC_GET(p, sequence_id) <= w->sequence)
			continue;
		w->sequence = p->sequence_id;
		on_message(w, p);
	}
	w->busy = false;
	rc_free_message(m);
	poll_owner(w);
	rc__om_owner_maybe_free(w);
}

static void poll_owner(rc__om_owner *w)
{
	Rw__PubsubLongPollingRequest m = RW__PUBSUB_LONG_POLLING_REQUEST__INIT;

	if (w->poll || w->retry || count_subs(w) == 0)
		return;
	RC_SET_ID(m, subscriber_id, &w->o->options.node_id);
	RC_SET_ID(m, publisher_id, &w->publisher);
	RC_SET(m, max_processed_sequence_id, w->sequence);
	w->poll = rc__om_send(w->o, w->target, RC_M_CW_POLL, &m, 0, on_poll, w);
}
