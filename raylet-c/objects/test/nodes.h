/* For tests of the object manager with real stores and real gRPC on 127.0.0.1: two or more nodes in one process, and an owner that
 * is played here (what a core worker answers: subscriptions, long polls, location updates). Included by one source a program. */
#ifndef RC_OBJECTS_TEST_NODES_H
#define RC_OBJECTS_TEST_NODES_H

#include "raylet-c/objects/objects.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/list.h"
#include "raylet-c/base/log.h"
#include "raylet-c/base/test.h"
#include "raylet-c/objects/internal.h"

enum { WAIT_MS = 60000, NODES = 4, CHUNK = 64 << 10, KB = 1 << 10, MB = 1 << 20 };

static rc_loop *loop;
static const rc_dialect *dialect;

/* ---- running the loop until something is so ---- */

typedef bool (*condition)(void *arg);
static struct {
	condition fn;
	void *arg;
	uint64_t until;
	bool met;
} wanted;

static inline void look(void *arg)
{
	(void)arg;
	wanted.met = wanted.fn && wanted.fn(wanted.arg);
	if (wanted.met || rc_now_ms() >= wanted.until)
		rc_loop_stop(loop);
}

static inline bool run_until(condition fn, void *arg, uint64_t ms)
{
	rc_timer *t = rc_timer_start(loop, 0, 1, look, NULL);

	wanted.fn = fn;
	wanted.arg = arg;
	wanted.until = rc_now_ms() + ms;
	wanted.met = false;
	rc_loop_run(loop);
	rc_timer_stop(t);
	return wanted.met;
}

static inline void run_ms(uint64_t ms)
{
	run_until(NULL, NULL, ms);
}

#define UNTIL(fn, arg) CHECK(run_until(fn, arg, WAIT_MS))

/* ---- nodes ---- */

typedef struct node {
	rc_id id;
	int port;
	char address[80], dir[64];
	rc_rpc *rpc;
	rc_store *store;
	rc_objects *objects;
	bool dead, unknown, mute; /* mute: no object manager here, the test plays it */
	int pulls;       /* seen by a mute node */
	rc_id pulled, puller;
} node;

static node nodes[NODES];
static rc_objects_options base_options;

static inline node *node_of(const rc_id *id)
{
	for (int i = 0; i < NODES; i++)
		if (nodes[i].rpc && rc_id_eq(&nodes[i].id, id))
			return &nodes[i];
	return NULL;
}

static inline bool node_address(void *ctx, const rc_id *id, char ret[80])
{
	node *n = node_of(id);

	(void)ctx;
	if (!n || n->dead || n->unknown)
		return false;
	memcpy(ret, n->address, 80);
	return true;
}

static inline bool node_dead(void *ctx, const rc_id *id)
{
	node *n = node_of(id);

	(void)ctx;
	return n && n->dead;
}

static inline void each_node(void *ctx, void (*fn)(void *arg, const rc_id *node, const char *address), void *arg)
{
	for (int i = 0; i < NODES; i++)
		if (nodes[i].rpc && !nodes[i].dead && &nodes[i] != ctx)
			fn(arg, &nodes[i].id, nodes[i].address);
}

static inline void sealed(void *ctx, const rc_id *id, const rc_owner *owner, uint64_t data_size, uint64_t metadata_size, rc_source source,
                   bool by_client)
{
	rc_objects_sealed(((node *)ctx)->objects, id, owner, data_size, metadata_size, source, by_client);
}

static inline void gone(void *ctx, const rc_id *id, const rc_owner *owner, bool is_spilled)
{
	rc_objects_gone(((node *)ctx)->objects, id, owner, is_spilled);
}

static inline void spilled(void *ctx, const rc_id *id, const rc_owner *owner, const char *url)
{
	rc_objects_spilled(((node *)ctx)->objects, id, owner, url);
}

static inline void serve(void *ctx, rc_request *r, const char *path, size_t path_n, rc_view bytes)
{
	node *n = ctx;
	int method = rc_method_find(dialect, path, path_n);

	if (n->mute && method == RC_M_OM_PULL) {
		Rw__PullRequest *m = rc_unpack(dialect, &rw__pull_request__descriptor, bytes);

		n->pulls++;
		n->puller = RC_GET_ID(m, node_id);
		n->pulled = m->n_object_ids ? rc_id_from(m->object_ids[0].data, m->object_ids[0].len) : RC_GET_ID(m, object_id);
		rc_free_message(m);
		rc_reply(r, (rc_view){ 0 });
		return;
	}
	if (n->mute && method == RC_M_OM_PUSH) { /* sliced, but such a small one is in one piece */
		rc__om_push_fields f;
		rc__om_chunk c;
		rc_view piece = rc_request_slice(r, 0);

		rc__om_push_fields_find(dialect, &f);
		CHECK_EQ_INT(0, rc__om_chunk_parse(dialect, &f, &piece, 1, &c, NULL));
		n->pulls++;
		n->pulled = c.object;
		rc_reply(r, (rc_view){ 0 });
		return;
	}
	if (!n->mute && rc_objects_serve_own(n->objects, r, path, path_n, bytes))
		return;
	if (n->mute || method < 0 || !rc_objects_serve(n->objects, r, (rc_method)method, bytes))
		rc_reply_error(r, RC_RPC_UNIMPLEMENTED, "no such method");
}

static double disk_threshold = 0.95;

static inline node *start_node(int i, uint64_t capacity, bool mute)
{
	static const rc_objects_ops ops = { .node_address = node_address, .node_dead = node_dead, .each_node = each_node };
	static const rc_store_ops store_ops = { .sealed = sealed, .gone = gone, .spilled = spilled };
	node *n = &nodes[i];
	rc_rpc_options ro = { 0 };
	rc_server_options so = { .ip = "127.0.0.1", .sliced = rc_method_path(dialect, RC_M_OM_PUSH), .serve = serve, .ctx = n };
	rc_objects_options options = base_options;
	char socket[100];
	rc_error e;

	memset(n, 0, sizeof *n);
	n->id = rc_id_random(RC_NODE_ID);
	n->mute = mute;
	n->rpc = rc_rpc_create(loop, &ro, &e);
	n->port = rc_server_start(n->rpc, &so, &e);
	CHECK(n->port > 0);
	snprintf(n->address, sizeof n->address, "127.0.0.1:%d", n->port);
	if (mute)
		return n;
	snprintf(n->dir, sizeof n->dir, "/tmp/rc_objects_XXXXXX");
	CHECK(mkdtemp(n->dir) != NULL);
	snprintf(socket, sizeof socket, "%s/plasma", n->dir);
	rc_store_options sto = { .socket_path = socket, .capacity = capacity, .plasma_dir = n->dir, .fallback_dir = n->dir };
	char *config = rc_sprintf("{\"min_spilling_size\": 0, \"oom_grace_period_s\": 1, \"local_fs_capacity_threshold\": %g, "
	                          "\"object_spilling_config\": "
	                          "\"{\\\"type\\\": \\\"filesystem\\\", \\\"params\\\": {\\\"directory_path\\\": \\\"%s\\\"}}\"}",
	                          disk_threshold, n->dir);

	sto.session_dir = n->dir;
	sto.node_id = n->id;
	sto.system_config = config;
	n->store = rc_store_create(loop, dialect, &sto, &store_ops, n, &e);
	free(config);
	if (!n->store) {
		printf("# %s\n", e.text);
		exit(1);
	}
	options.loop = loop;
	options.rpc = n->rpc;
	options.dialect = dialect;
	options.store = n->store;
	options.node_id = n->id;
	options.ip = "127.0.0.1";
	options.port = n->port;
	n->objects = rc_objects_create(&options, &ops, n);
	return n;
}

static inline void remove_dir(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *entry;

	while (d && (entry = readdir(d))) {
		char *path;

		if (entry->d_name[0] == '.')
			continue;
		path = rc_sprintf("%s/%s", dir, entry->d_name);
		if (unlink(path) < 0)
			remove_dir(path);
		free(path);
	}
	if (d)
		closedir(d);
	rmdir(dir);
}

static inline void stop_node(node *n)
{
	if (!n->rpc)
		return;
	rc_objects_destroy(n->objects);
	rc_rpc_destroy(n->rpc);
	rc_store_destroy(n->store);
	if (n->dir[0])
		remove_dir(n->dir);
	memset(n, 0, sizeof *n);
}

static inline void kill_node(node *dead) /* as the head tells it */
{
	dead->dead = true;
	for (int i = 0; i < NODES; i++)
		if (nodes[i].objects && &nodes[i] != dead)
			rc_objects_node_removed(nodes[i].objects, &dead->id);
}

/* ---- the owner ---- */

typedef struct entry {
	rc_link link;
	rc_id id, nodes[8], url_node;
	size_t n_nodes;
	uint64_t size;
	char url[300];
	bool unknown, pending;
	int added, removed; /* reports */
} entry;

typedef struct message {
	rc_link link;
	int channel;
	rc_id key;
	bool failure;
	int64_t sequence;
} message;

typedef struct subscriber {
	rc_link link, messages;
	rc_id id;
	rc_map *keys[2]; /* locations, eviction */
	rc_request *poll;
} subscriber;

static struct {
	rc_rpc *rpc;
	rc_owner address;
	rc_id publisher;
	rc_link entries, subscribers;
	int64_t sequence;
	int polls, commands, unsubscribed, updates_calls;
	bool refuse; /* all calls: another process has the port */
	int flaky;   /* so many calls fail as on a broken connection */
} owner;

static inline entry *entry_of(const rc_id *id)
{
	entry *e;

	for (rc_link *l = owner.entries.next; l != &owner.entries; l = l->next)
		if (rc_id_eq(&RC_CONTAINER(l, entry, link)->id, id))
			return RC_CONTAINER(l, entry, link);
	e = rc_alloc(sizeof *e);
	e->id = *id;
	e->url_node = rc_id_nil(RC_NODE_ID);
	rc_list_append(&owner.entries, &e->link);
	return e;
}

static inline int channel_value(int channel)
{
	return rc_enum_value(dialect, channel == 0 ? RC_V_CHANNEL_OBJECT_LOCATIONS : RC_V_CHANNEL_OBJECT_EVICTION);
}

static inline void answer_poll(subscriber *s)
{
	Rw__PubsubLongPollingReply reply = RW__PUBSUB_LONG_POLLING_REPLY__INIT;
	Rw__PubMessage parts[100], *list[100];
	Rw__WorkerObjectLocationsPubMessage locations[100];
	Rw__WorkerObjectEvictionMessage evictions[100];
	ProtobufCBinaryData ids[100][8];
	Rw__FailureMessage failure = RW__FAILURE_MESSAGE__INIT;
	rc_buf out = { 0 };
	size_t n = 0;

	if (!s->poll || rc_list_empty(&s->messages))
		return;
	for (rc_link *l = s->messages.next; l != &s->messages && n < 100; l = l->next, n++) {
		message *m = RC_CONTAINER(l, message, link);
		entry *e = entry_of(&m->key);
		Rw__PubMessage *p = list[n] = &parts[n];

		*p = (Rw__PubMessage)RW__PUB_MESSAGE__INIT;
		RC_SET(*p, channel_type, channel_value(m->channel));
		RC_SET_ID(*p, key_id, &m->key);
		RC_SET(*p, sequence_id, m->sequence);
		if (m->failure) {
			p->failure_message = &failure;
		} else if (m->channel == 1) {
			evictions[n] = (Rw__WorkerObjectEvictionMessage)RW__WORKER_OBJECT_EVICTION_MESSAGE__INIT;
			RC_SET_ID(evictions[n], object_id, &m->key);
			p->worker_object_eviction_message = &evictions[n];
		} else {
			locations[n] = (Rw__WorkerObjectLocationsPubMessage)RW__WORKER_OBJECT_LOCATIONS_PUB_MESSAGE__INIT;
			for (size_t i = 0; i < e->n_nodes; i++)
				ids[n][i] = (ProtobufCBinaryData){ e->nodes[i].n, e->nodes[i].b };
			locations[n].n_node_ids = e->n_nodes;
			locations[n].node_ids = ids[n];
			RC_SET(locations[n], object_size, e->size);
			locations[n].spilled_url = e->url;
			RC_SET_ID(locations[n], spilled_node_id, &e->url_node);
			RC_SET(locations[n], pending_creation, e->pending);
			p->worker_object_locations_message = &locations[n];
		}
	}
	reply.n_pub_messages = n;
	reply.pub_messages = list;
	RC_SET_ID(reply, publisher_id, &owner.publisher);
	rc_pack(dialect, &reply, &out);
	rc_reply(s->poll, rc_view_of(out.p, out.n));
	rc_buf_free(&out);
	s->poll = NULL;
}

static inline void publish(int channel, const rc_id *key, bool failure)
{
	for (rc_link *l = owner.subscribers.next; l != &owner.subscribers; l = l->next) {
		subscriber *s = RC_CONTAINER(l, subscriber, link);
		message *m;

		if (!rc_map_get_id(s->keys[channel], key))
			continue;
		m = rc_alloc(sizeof *m);
		m->channel = channel;
		m->key = *key;
		m->failure = failure;
		m->sequence = ++owner.sequence;
		rc_list_append(&s->messages, &m->link);
		answer_poll(s);
	}
}

static inline subscriber *subscriber_of(const rc_id *id)
{
	subscriber *s;

	for (rc_link *l = owner.subscribers.next; l != &owner.subscribers; l = l->next)
		if (rc_id_eq(&RC_CONTAINER(l, subscriber, link)->id, id))
			return RC_CONTAINER(l, subscriber, link);
	s = rc_alloc(sizeof *s);
	s->id = *id;
	s->keys[0] = rc_map_create();
	s->keys[1] = rc_map_create();
	rc_list_init(&s->messages);
	rc_list_append(&owner.subscribers, &s->link);
	return s;
}

static inline void serve_commands(rc_request *r, rc_view bytes)
{
	Rw__PubsubCommandBatchRequest *m = rc_unpack(dialect, &rw__pubsub_command_batch_request__descriptor, bytes);
	rc_id id = RC_GET_ID(m, subscriber_id);
	subscriber *s = subscriber_of(&id);

	CHECK(node_of(&id) != NULL); /* the node's id is the subscriber's */
	rc_reply(r, (rc_view){ 0 });
	for (size_t i = 0; i < m->n_commands; i++) {
		const Rw__Command *c = m->commands[i];
		rc_id key = RC_GET_ID(c, key_id);
		int channel = RC_GET(c, channel_type) == channel_value(0) ? 0 : 1;

		owner.commands++;
		CHECK_EQ_INT(channel_value(channel), RC_GET(c, channel_type));
		if (c->unsubscribe_message) {
			owner.unsubscribed++;
			rc_map_del_id(s->keys[channel], &key);
			continue;
		}
		rc_map_put_id(s->keys[channel], &key, s);
		if (channel == 1) {
			const Rw__WorkerObjectEvictionSubMessage *e = c->subscribe_message->worker_object_eviction_message;
			rc_id told = RC_GET_ID(e->subscriber_address, node_id);

			CHECK(rc_id_eq(&told, &id));
		} else {
			rc_id worker = RC_GET_ID(c->subscribe_message->worker_object_locations_message, intended_worker_id);

			CHECK(rc_id_eq(&worker, &owner.address.worker_id));
			publish(0, &key, entry_of(&key)->unknown);
		}
	}
	rc_free_message(m);
}

static inline void serve_poll(rc_request *r, rc_view bytes)
{
	Rw__PubsubLongPollingRequest *m = rc_unpack(dialect, &rw__pubsub_long_polling_request__descriptor, bytes);
	rc_id id = RC_GET_ID(m, subscriber_id), publisher = RC_GET_ID(m, publisher_id);
	subscriber *s = subscriber_of(&id);

	owner.polls++;
	if (rc_id_eq(&publisher, &owner.publisher)) {
		RC_LIST_FOREACH(l, &s->messages) {
			if (RC_CONTAINER(l, message, link)->sequence <= RC_GET(m, max_processed_sequence_id)) {
				rc_list_remove(l);
				free(RC_CONTAINER(l, message, link));
			}
		}
	}
	CHECK(!s->poll); /* one at a time */
	s->poll = r;
	answer_poll(s);
	rc_free_message(m);
}

static inline void serve_updates(rc_request *r, rc_view bytes)
{
	Rw__UpdateObjectLocationBatchRequest *m = rc_unpack(dialect, &rw__update_object_location_batch_request__descriptor, bytes);
	rc_id from = RC_GET_ID(m, node_id);

	owner.updates_calls++;
	for (size_t i = 0; i < m->n_object_location_updates; i++) {
		const Rw__ObjectLocationUpdate *u = m->object_location_updates[i];
		rc_id id = RC_GET_ID(u, object_id);
		entry *e = entry_of(&id);

		if (u->spilled_location_update) {
			snprintf(e->url, sizeof e->url, "%s", u->spilled_location_update->spilled_url);
			CHECK(RC_GET(u->spilled_location_update, spilled_to_local_storage));
			e->url_node = from;
		}
		if (u->has_plasma_location_update) {
			bool add = u->plasma_location_update == rc_enum_value(dialect, RC_V_LOCATION_ADDED);

			*(add ? &e->added : &e->removed) += 1;
			for (size_t k = 0; k < e->n_nodes; k++)
				if (rc_id_eq(&e->nodes[k], &from))
					e->nodes[k--] = e->nodes[--e->n_nodes];
			if (add)
				e->nodes[e->n_nodes++] = from;
		}
		publish(0, &id, false);
	}
	rc_free_message(m);
	rc_reply(r, (rc_view){ 0 });
}

static inline void serve_owner(void *ctx, rc_request *r, const char *path, size_t path_n, rc_view bytes)
{
	int method = rc_method_find(dialect, path, path_n);

	(void)ctx;
	if (owner.flaky > 0) {
		owner.flaky--;
		rc_reply_error(r, RC_RPC_UNAVAILABLE, "Socket closed");
	} else if (owner.refuse)
		rc_reply_error(r, RC_RPC_ABORTED, "Mismatched WorkerID");
	else if (method == RC_M_CW_COMMAND_BATCH)
		serve_commands(r, bytes);
	else if (method == RC_M_CW_POLL)
		serve_poll(r, bytes);
	else if (method == RC_M_CW_UPDATE_OBJECT_LOCATIONS)
		serve_updates(r, bytes);
	else
		rc_reply_error(r, RC_RPC_UNIMPLEMENTED, "no such method");
}

static inline void start_owner(void)
{
	rc_rpc_options ro = { 0 };
	rc_server_options so = { .ip = "127.0.0.1", .serve = serve_owner };
	rc_error e;

	memset(&owner, 0, sizeof owner);
	rc_list_init(&owner.entries);
	rc_list_init(&owner.subscribers);
	owner.publisher = rc_id_random(RC_NODE_ID);
	owner.rpc = rc_rpc_create(loop, &ro, &e);
	owner.address = (rc_owner){ .node_id = rc_id_random(RC_NODE_ID), .worker_id = rc_id_random(RC_WORKER_ID), .ip = "127.0.0.1" };
	owner.address.port = rc_server_start(owner.rpc, &so, &e);
	CHECK(owner.address.port > 0);
}

static inline void stop_owner(void)
{
	rc_rpc_destroy(owner.rpc);
	RC_LIST_FOREACH(l, &owner.entries) {
		free(RC_CONTAINER(l, entry, link));
	}
	RC_LIST_FOREACH(l, &owner.subscribers) {
		subscriber *s = RC_CONTAINER(l, subscriber, link);

		RC_LIST_FOREACH(k, &s->messages) {
			free(RC_CONTAINER(k, message, link));
		}
		rc_map_destroy(s->keys[0]);
		rc_map_destroy(s->keys[1]);
		free(s);
	}
	owner.rpc = NULL;
}

static inline void start_cluster(int n, uint64_t capacity)
{
	start_owner();
	for (int i = 0; i < n; i++)
		start_node(i, capacity, false);
}

static inline void stop_cluster(void)
{
	for (int i = 0; i < NODES; i++)
		stop_node(&nodes[i]);
	stop_owner();
	run_ms(5); /* what was posted frees itself */
}

/* ---- objects ---- */

static inline uint8_t byte_of(const rc_id *id, uint64_t i)
{
	return (uint8_t)(id->b[i % 28] + i * 31 + (i >> 13));
}

static inline void made(void *arg, rc_store_buffer *b, rc_plasma_error why)
{
	node *n = arg;

	CHECK_EQ_INT(RC_PE_OK, why);
	if (!b)
		return;
	for (uint64_t i = 0; i < b->data_size + b->metadata_size; i++)
		b->data[i] = byte_of(&b->id, i);
	rc_store_seal(n->store, b);
}

static inline rc_object_ref make(node *n, uint64_t data_size, uint64_t metadata_size)
{
	rc_store_new object = { .id = rc_id_random(RC_OBJECT_ID), .owner = owner.address, .data_size = data_size,
	                        .metadata_size = metadata_size, .source = RC_BY_WORKER };

	entry_of(&object.id)->size = data_size + metadata_size;
	rc_store_create_object(n->store, &object, made, n);
	return (rc_object_ref){ .id = object.id, .owner = owner.address };
}

static inline bool intact(node *n, const rc_object_ref *ref, uint64_t data_size, uint64_t metadata_size)
{
	const rc_hold *h = rc_store_hold(n->store, &ref->id);
	bool ok = h && h->data_size == data_size && h->metadata_size == metadata_size &&
	          rc_id_eq(&h->owner.worker_id, &owner.address.worker_id);

	for (uint64_t i = 0; ok && i < data_size + metadata_size; i++)
		ok = h->data[i] == byte_of(&ref->id, i);
	rc_store_release(n->store, h);
	return ok;
}

static inline void error_of(node *n, const rc_object_ref *ref, char ret[16])
{
	const rc_hold *h = rc_store_hold(n->store, &ref->id);

	snprintf(ret, 16, "%s", "");
	if (h && h->data_size == 0 && h->metadata_size < 16)
		snprintf(ret, 16, "%.*s", (int)h->metadata_size, (const char *)h->data);
	rc_store_release(n->store, h);
}

typedef struct here {
	node *n;
	const rc_object_ref *refs;
	size_t count;
} here;

static inline bool all_here(void *arg)
{
	here *h = arg;

	for (size_t i = 0; i < h->count; i++)
		if (!rc_store_contains(h->n->store, &h->refs[i].id))
			return false;
	return true;
}

static inline bool none_here(void *arg)
{
	here *h = arg;

	for (size_t i = 0; i < h->count; i++)
		if (rc_store_contains(h->n->store, &h->refs[i].id) || rc_store_spilled_url(h->n->store, &h->refs[i].id))
			return false;
	return true;
}

static inline bool known_to_owner(void *arg) /* reported by some node */
{
	here *h = arg;

	for (size_t i = 0; i < h->count; i++)
		if (entry_of(&h->refs[i].id)->n_nodes == 0)
			return false;
	return true;
}

static inline bool flag(void *arg)
{
	return *(bool *)arg;
}

static inline void set_flag(void *arg)
{
	*(bool *)arg = true;
}

static inline rc_objects_stats stats_of(node *n)
{
	rc_objects_stats s;

	rc_objects_get_stats(n->objects, &s);
	return s;
}

/* ---- services called as peers would ---- */

typedef struct outcome {
	bool done;
	int status;
	char detail[400];
	rc_buf reply;
} outcome;

static inline void on_outcome(void *arg, int status, rc_view reply, const char *detail)
{
	outcome *o = arg;

	o->done = true;
	o->status = status;
	snprintf(o->detail, sizeof o->detail, "%s", detail);
	rc_buf_add(&o->reply, reply.p, reply.n);
}

static inline void call_node(node *n, rc_method method, const void *m, outcome *o)
{
	rc_buf b = { 0 };

	*o = (outcome){ 0 };
	rc_pack(dialect, m, &b);
	rc_call(owner.rpc, n->address, rc_method_path(dialect, method), rc_view_of(b.p, b.n), 10000, 0, on_outcome, o);
	rc_buf_free(&b);
	UNTIL(flag, &o->done);
}

static inline bool pin(node *n, const rc_object_ref *ref)
{
	Rw__PinObjectIDsRequest m = RW__PIN_OBJECT_IDS_REQUEST__INIT;
	Rw__Address a = RW__ADDRESS__INIT;
	ProtobufCBinaryData id = { ref->id.n, (uint8_t *)ref->id.b };
	Rw__PinObjectIDsReply *reply;
	bool ok;
	outcome o;

	RC_SET_ID(a, node_id, &owner.address.node_id);
	RC_SET_ID(a, worker_id, &owner.address.worker_id);
	a.ip_address = owner.address.ip;
	RC_SET(a, port, owner.address.port);
	m.owner_address = &a;
	m.n_object_ids = 1;
	m.object_ids = &id;
	call_node(n, RC_M_PIN_OBJECT_IDS, &m, &o);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	reply = rc_unpack(dialect, &rw__pin_object_ids_reply__descriptor, rc_view_of(o.reply.p, o.reply.n));
	ok = reply && reply->n_successes == 1 && reply->successes[0];
	rc_free_message(reply);
	rc_buf_free(&o.reply);
	return ok;
}

/* A chunk of ref as its node would send it; n and the sizes can be made wrong. */
static inline void send_chunk(node *to, node *from, const rc_object_ref *ref, uint32_t index, uint64_t data_size, uint64_t metadata_size,
                       size_t n, outcome *o)
{
	rc__om_chunk c = { .object = ref->id, .node = from->id, .owner = owner.address, .index = index, .data_size = data_size,
	                   .metadata_size = metadata_size, .n = n };
	rc__om_push_fields f;
	rc_id push = rc_id_random(RC_NODE_ID);
	rc_buf b = { 0 };

	rc__om_push_fields_find(dialect, &f);
	rc__om_chunk_head(dialect, &f, &push, &c, &b);
	for (size_t i = 0; i < n; i++)
		rc_buf_add(&b, &(uint8_t){ byte_of(&ref->id, (uint64_t)index * CHUNK + i) }, 1);
	*o = (outcome){ 0 };
	rc_call(from->rpc, to->address, rc_method_path(dialect, RC_M_OM_PUSH), rc_view_of(b.p, b.n), 10000, 0, on_outcome, o);
	rc_buf_free(&b);
	UNTIL(flag, &o->done);
	rc_buf_free(&o->reply);
}

#endif
