/* The object manager with real stores and real gRPC on 127.0.0.1: two or more nodes in one process, and an owner that is
 * played here (what a core worker answers: subscriptions, long polls, location updates). Run for both releases. */
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

static void look(void *arg)
{
	(void)arg;
	wanted.met = wanted.fn && wanted.fn(wanted.arg);
	if (wanted.met || rc_now_ms() >= wanted.until)
		rc_loop_stop(loop);
}

static bool run_until(condition fn, void *arg, uint64_t ms)
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

static void run_ms(uint64_t ms)
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

static node *node_of(const rc_id *id)
{
	for (int i = 0; i < NODES; i++)
		if (nodes[i].rpc && rc_id_eq(&nodes[i].id, id))
			return &nodes[i];
	return NULL;
}

static bool node_address(void *ctx, const rc_id *id, char ret[80])
{
	node *n = node_of(id);

	(void)ctx;
	if (!n || n->dead || n->unknown)
		return false;
	memcpy(ret, n->address, 80);
	return true;
}

static bool node_dead(void *ctx, const rc_id *id)
{
	node *n = node_of(id);

	(void)ctx;
	return n && n->dead;
}

static void each_node(void *ctx, void (*fn)(void *arg, const rc_id *node, const char *address), void *arg)
{
	for (int i = 0; i < NODES; i++)
		if (nodes[i].rpc && !nodes[i].dead && &nodes[i] != ctx)
			fn(arg, &nodes[i].id, nodes[i].address);
}

static void sealed(void *ctx, const rc_id *id, const rc_owner *owner, uint64_t data_size, uint64_t metadata_size, rc_source source,
                   bool by_client)
{
	rc_objects_sealed(((node *)ctx)->objects, id, owner, data_size, metadata_size, source, by_client);
}

static void gone(void *ctx, const rc_id *id, const rc_owner *owner, bool is_spilled)
{
	rc_objects_gone(((node *)ctx)->objects, id, owner, is_spilled);
}

static void spilled(void *ctx, const rc_id *id, const rc_owner *owner, const char *url)
{
	rc_objects_spilled(((node *)ctx)->objects, id, owner, url);
}

static void serve(void *ctx, rc_request *r, const char *path, size_t path_n, rc_view bytes)
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
	if (n->mute || method < 0 || !rc_objects_serve(n->objects, r, (rc_method)method, bytes))
		rc_reply_error(r, RC_RPC_UNIMPLEMENTED, "no such method");
}

static double disk_threshold = 0.95;

static node *start_node(int i, uint64_t capacity, bool mute)
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

static void remove_dir(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *entry;
	char path[400];

	while (d && (entry = readdir(d))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
		if (unlink(path) < 0)
			remove_dir(path);
	}
	if (d)
		closedir(d);
	rmdir(dir);
}

static void stop_node(node *n)
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

static void kill_node(node *dead) /* as the head tells it */
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

static entry *entry_of(const rc_id *id)
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

static int channel_value(int channel)
{
	return rc_enum_value(dialect, channel == 0 ? RC_V_CHANNEL_OBJECT_LOCATIONS : RC_V_CHANNEL_OBJECT_EVICTION);
}

static void answer_poll(subscriber *s)
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

static void publish(int channel, const rc_id *key, bool failure)
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

static subscriber *subscriber_of(const rc_id *id)
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

static void serve_commands(rc_request *r, rc_view bytes)
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

static void serve_poll(rc_request *r, rc_view bytes)
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

static void serve_updates(rc_request *r, rc_view bytes)
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

static void serve_owner(void *ctx, rc_request *r, const char *path, size_t path_n, rc_view bytes)
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

static void start_owner(void)
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

static void stop_owner(void)
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

static void start_cluster(int n, uint64_t capacity)
{
	start_owner();
	for (int i = 0; i < n; i++)
		start_node(i, capacity, false);
}

static void stop_cluster(void)
{
	for (int i = 0; i < NODES; i++)
		stop_node(&nodes[i]);
	stop_owner();
	run_ms(5); /* what was posted frees itself */
}

/* ---- objects ---- */

static uint8_t byte_of(const rc_id *id, uint64_t i)
{
	return (uint8_t)(id->b[i % 28] + i * 31 + (i >> 13));
}

static void made(void *arg, rc_store_buffer *b, rc_plasma_error why)
{
	node *n = arg;

	CHECK_EQ_INT(RC_PE_OK, why);
	if (!b)
		return;
	for (uint64_t i = 0; i < b->data_size + b->metadata_size; i++)
		b->data[i] = byte_of(&b->id, i);
	rc_store_seal(n->store, b);
}

static rc_object_ref make(node *n, uint64_t data_size, uint64_t metadata_size)
{
	rc_store_new object = { .id = rc_id_random(RC_OBJECT_ID), .owner = owner.address, .data_size = data_size,
	                        .metadata_size = metadata_size, .source = RC_BY_WORKER };

	entry_of(&object.id)->size = data_size + metadata_size;
	rc_store_create_object(n->store, &object, made, n);
	return (rc_object_ref){ .id = object.id, .owner = owner.address };
}

static bool intact(node *n, const rc_object_ref *ref, uint64_t data_size, uint64_t metadata_size)
{
	const rc_hold *h = rc_store_hold(n->store, &ref->id);
	bool ok = h && h->data_size == data_size && h->metadata_size == metadata_size &&
	          rc_id_eq(&h->owner.worker_id, &owner.address.worker_id);

	for (uint64_t i = 0; ok && i < data_size + metadata_size; i++)
		ok = h->data[i] == byte_of(&ref->id, i);
	rc_store_release(n->store, h);
	return ok;
}

static void error_of(node *n, const rc_object_ref *ref, char ret[16])
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

static bool all_here(void *arg)
{
	here *h = arg;

	for (size_t i = 0; i < h->count; i++)
		if (!rc_store_contains(h->n->store, &h->refs[i].id))
			return false;
	return true;
}

static bool none_here(void *arg)
{
	here *h = arg;

	for (size_t i = 0; i < h->count; i++)
		if (rc_store_contains(h->n->store, &h->refs[i].id) || rc_store_spilled_url(h->n->store, &h->refs[i].id))
			return false;
	return true;
}

static bool known_to_owner(void *arg) /* reported by some node */
{
	here *h = arg;

	for (size_t i = 0; i < h->count; i++)
		if (entry_of(&h->refs[i].id)->n_nodes == 0)
			return false;
	return true;
}

static bool flag(void *arg)
{
	return *(bool *)arg;
}

static void set_flag(void *arg)
{
	*(bool *)arg = true;
}

static rc_objects_stats stats_of(node *n)
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

static void on_outcome(void *arg, int status, rc_view reply, const char *detail)
{
	outcome *o = arg;

	o->done = true;
	o->status = status;
	snprintf(o->detail, sizeof o->detail, "%s", detail);
	rc_buf_add(&o->reply, reply.p, reply.n);
}

static void call_node(node *n, rc_method method, const void *m, outcome *o)
{
	rc_buf b = { 0 };

	*o = (outcome){ 0 };
	rc_pack(dialect, m, &b);
	rc_call(owner.rpc, n->address, rc_method_path(dialect, method), rc_view_of(b.p, b.n), 10000, 0, on_outcome, o);
	rc_buf_free(&b);
	UNTIL(flag, &o->done);
}

static bool pin(node *n, const rc_object_ref *ref)
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
static void send_chunk(node *to, node *from, const rc_object_ref *ref, uint32_t index, uint64_t data_size, uint64_t metadata_size,
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

/* ---- tests ---- */

static int client_a, client_b;

static void moves_objects(void)
{
	static const uint64_t sizes[][2] = { { 0, 3 }, { 10, 0 }, { CHUNK - 3, 3 }, { CHUNK, 1 }, { 5 * CHUNK + 77, 5 }, { 3 * MB, 100 * KB } };
	rc_object_ref refs[2][6];

	start_cluster(2, 64 * MB);
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < 6; i++)
			refs[k][i] = make(&nodes[k], sizes[i][0], sizes[i][1]);
		UNTIL(known_to_owner, (&(here){ &nodes[k], refs[k], 6 }));
		rc_objects_get(nodes[!k].objects, &client_a, refs[k], 6, false);
	}
	for (int k = 0; k < 2; k++) {
		UNTIL(all_here, (&(here){ &nodes[!k], refs[k], 6 }));
		for (int i = 0; i < 6; i++)
			CHECK(intact(&nodes[!k], &refs[k][i], sizes[i][0], sizes[i][1]));
	}
	run_ms(100);
	CHECK_EQ_INT(2, entry_of(&refs[0][0].id)->n_nodes); /* the new copy was reported */
	CHECK_EQ_INT(0, stats_of(&nodes[0]).sending);
	CHECK_EQ_INT(0, stats_of(&nodes[0]).chunks_dropped);
	CHECK_EQ_INT(0, stats_of(&nodes[0]).pull_retries);
	rc_objects_get_cancel(nodes[0].objects, &client_a);
	rc_objects_client_gone(nodes[1].objects, &client_a);
	CHECK_EQ_INT(0, stats_of(&nodes[0]).gets + stats_of(&nodes[1]).gets);
	stop_cluster();
}

static void moves_many(void)
{
	enum { MANY = 400 };
	rc_object_ref *refs = rc_alloc(MANY * sizeof *refs);

	start_cluster(2, 64 * MB);
	for (int i = 0; i < MANY; i++)
		refs[i] = make(&nodes[0], 2000, 2);
	UNTIL(known_to_owner, (&(here){ &nodes[0], refs, MANY }));
	CHECK(owner.updates_calls < MANY / 4); /* batched */
	rc_objects_get(nodes[1].objects, &client_a, refs, MANY, false);
	UNTIL(all_here, (&(here){ &nodes[1], refs, MANY }));
	for (int i = 0; i < MANY; i++)
		CHECK(intact(&nodes[1], &refs[i], 2000, 2));
	CHECK_EQ_INT(MANY, stats_of(&nodes[1]).chunks_in);
	stop_cluster();
	free(refs);
}

static void large_chunks(void)
{
	rc_object_ref ref;

	base_options.chunk_size = 5 * MB;
	start_cluster(2, 128 * MB);
	ref = make(&nodes[0], 12 * MB + 5, 7);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, true);
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	CHECK(intact(&nodes[1], &ref, 12 * MB + 5, 7));
	CHECK_EQ_INT(3, stats_of(&nodes[1]).chunks_in);
	base_options.chunk_size = CHUNK;
	stop_cluster();
}

typedef struct waited {
	bool done;
	rc_id found[8], remaining[8];
	size_t n_found, n_remaining;
} waited;

static void on_wait(void *arg, const rc_id *found, size_t n_found, const rc_id *remaining, size_t n_remaining)
{
	waited *w = arg;

	CHECK(!w->done);
	w->done = true;
	memcpy(w->found, found, n_found * sizeof *found);
	memcpy(w->remaining, remaining, n_remaining * sizeof *remaining);
	w->n_found = n_found;
	w->n_remaining = n_remaining;
}

static void waits_in_order(void)
{
	rc_object_ref refs[5];
	waited w = { 0 };
	uint64_t began;

	start_cluster(2, 64 * MB);
	for (int i = 0; i < 4; i++)
		refs[i] = make(&nodes[i % 2], 1000, 1); /* 1 and 3 are here */
	refs[4] = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	entry_of(&refs[4].id)->pending = true; /* nobody has made it yet */

	rc_objects_wait(nodes[1].objects, refs, 5, 1, 0, on_wait, &w);
	CHECK(!w.done); /* never inside the call */
	UNTIL(flag, &w.done);
	CHECK_EQ_INT(1, w.n_found);
	CHECK(rc_id_eq(&w.found[0], &refs[1].id));
	CHECK_EQ_INT(4, w.n_remaining);
	CHECK(rc_id_eq(&w.remaining[0], &refs[0].id) && rc_id_eq(&w.remaining[3], &refs[4].id));

	w = (waited){ 0 };
	rc_objects_wait(nodes[1].objects, refs, 5, 4, -1, on_wait, &w);
	UNTIL(flag, &w.done);
	CHECK_EQ_INT(4, w.n_found);
	for (int i = 0; i < 4; i++)
		CHECK(rc_id_eq(&w.found[i], &refs[i].id));
	CHECK_EQ_INT(1, w.n_remaining);

	w = (waited){ 0 };
	began = rc_now_ms();
	rc_objects_wait(nodes[1].objects, refs + 3, 2, 2, 200, on_wait, &w);
	UNTIL(flag, &w.done);
	CHECK(rc_now_ms() - began >= 190);
	CHECK_EQ_INT(1, w.n_found);
	CHECK_EQ_INT(1, w.n_remaining);

	w = (waited){ 0 };
	rc_objects_wait_cancel(nodes[1].objects, rc_objects_wait(nodes[1].objects, refs, 5, 5, 10, on_wait, &w));
	run_ms(50);
	CHECK(!w.done);
	CHECK_EQ_INT(0, stats_of(&nodes[1]).waits);

	rc_objects_wait(nodes[1].objects, refs + 4, 1, 1, -1, on_wait, &w);
	run_ms(30);
	{ /* now it is made, on the other node */
		rc_store_new object = { .id = refs[4].id, .owner = owner.address, .data_size = 5, .source = RC_BY_WORKER };

		rc_store_create_object(nodes[0].store, &object, made, &nodes[0]);
	}
	UNTIL(flag, &w.done);
	CHECK_EQ_INT(1, w.n_found);
	CHECK(intact(&nodes[1], &refs[4], 5, 0));
	stop_cluster();
}

static void on_ready(void *arg, const rc_id *id)
{
	*(rc_id *)arg = *id;
}

static bool has_id(void *arg)
{
	return ((rc_id *)arg)->n > 0;
}

static void tells_readiness(void)
{
	rc_object_ref ref;
	rc_id ready = { 0 }, never = { 0 };

	start_cluster(2, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	rc_objects_subscribe_ready(nodes[1].objects, &client_b, &ref, on_ready, &never);
	rc_objects_client_gone(nodes[1].objects, &client_b);
	rc_objects_subscribe_ready(nodes[1].objects, &client_a, &ref, on_ready, &ready);
	UNTIL(has_id, &ready);
	CHECK(rc_id_eq(&ready, &ref.id));
	CHECK(!never.n);
	ready = (rc_id){ 0 };
	rc_objects_subscribe_ready(nodes[1].objects, &client_a, &ref, on_ready, &ready); /* here already */
	UNTIL(has_id, &ready);
	stop_cluster();
}

static void fetches_and_holds(void)
{
	rc_object_ref refs[3];
	uint64_t fetch, other, empty;
	bool done = false, done_other = false, done_empty = false;
	rc_store_stats s;
	rc_error e;

	base_options.args_memory_fraction = 0.5;
	start_cluster(2, 16 * MB);
	refs[0] = make(&nodes[0], 5 * MB, 0);
	refs[1] = make(&nodes[1], 1000, 0);
	refs[2] = make(&nodes[1], 6 * MB, 0);
	fetch = rc_objects_fetch(nodes[1].objects, refs, 2, set_flag, &done);
	empty = rc_objects_fetch(nodes[1].objects, NULL, 0, set_flag, &done_empty);
	other = rc_objects_fetch(nodes[1].objects, refs + 2, 1, set_flag, &done_other);
	CHECK(!rc_objects_fetch_local(nodes[1].objects, fetch));
	CHECK_EQ_INT(-1, rc_objects_fetch_hold(nodes[1].objects, fetch, &e));
	CHECK_EQ_INT(RC_E_NOT_FOUND, e.code);
	UNTIL(flag, &done);
	CHECK(done_empty && done_other);
	CHECK(rc_objects_fetch_local(nodes[1].objects, fetch));
	CHECK_EQ_INT(0, rc_objects_fetch_hold(nodes[1].objects, fetch, &e));
	CHECK_EQ_INT(0, rc_objects_fetch_hold(nodes[1].objects, empty, &e));
	CHECK_EQ_INT(5 * MB + 1000, stats_of(&nodes[1]).args_held_bytes);
	CHECK_EQ_INT(-1, rc_objects_fetch_hold(nodes[1].objects, other, &e)); /* 11 of 16 MB is over one half */
	CHECK_EQ_INT(RC_E_FULL, e.code);
	rc_store_get_stats(nodes[1].store, &s);
	CHECK_EQ_INT(2, s.in_use_objects);
	rc_objects_fetch_end(nodes[1].objects, fetch);
	CHECK_EQ_INT(0, rc_objects_fetch_hold(nodes[1].objects, other, &e));
	rc_objects_fetch_end(nodes[1].objects, other);
	rc_objects_fetch_end(nodes[1].objects, empty);
	rc_store_get_stats(nodes[1].store, &s);
	CHECK_EQ_INT(0, s.in_use_objects);
	CHECK_EQ_INT(0, stats_of(&nodes[1]).fetches + stats_of(&nodes[1]).args_held_bytes);

	/* Gone again before it was held: told anew. */
	done = false;
	fetch = rc_objects_fetch(nodes[1].objects, refs, 1, set_flag, &done);
	UNTIL(flag, &done);
	done = false;
	rc_store_delete(nodes[1].store, &refs[0].id, 1);
	CHECK_EQ_INT(-1, rc_objects_fetch_hold(nodes[1].objects, fetch, &e));
	CHECK_EQ_INT(RC_E_NOT_FOUND, e.code);
	UNTIL(flag, &done);
	CHECK(intact(&nodes[1], &refs[0], 5 * MB, 0));
	base_options.args_memory_fraction = 0;
	stop_cluster();
}

static void pins_until_freed(void)
{
	rc_object_ref ref, absent;
	outcome o;

	start_cluster(2, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	absent = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	CHECK(pin(&nodes[0], &ref));
	CHECK(!pin(&nodes[0], &absent));
	CHECK_EQ_INT(1, stats_of(&nodes[0]).pinned);
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, true);
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	if (rc_enum_value(dialect, RC_V_CHANNEL_OBJECT_EVICTION) >= 0) { /* 2.35.0 */
		publish(1, &ref.id, false);
	} else {
		Rw__FreeLocalObjectsRequest m = RW__FREE_LOCAL_OBJECTS_REQUEST__INIT;
		ProtobufCBinaryData id = { ref.id.n, ref.id.b };

		m.n_object_ids = 1;
		m.object_ids = &id;
		for (int i = 0; i < 2; i++) {
			call_node(&nodes[i], RC_M_FREE_LOCAL_OBJECTS, &m, &o);
			CHECK_EQ_INT(RC_RPC_OK, o.status);
			rc_buf_free(&o.reply);
		}
	}
	UNTIL(none_here, (&(here){ &nodes[0], &ref, 1 }));
	UNTIL(none_here, (&(here){ &nodes[1], &ref, 1 })); /* 2.35.0: told by the node that had it pinned */
	CHECK_EQ_INT(0, stats_of(&nodes[0]).pinned);
	run_ms(50);
	CHECK_EQ_INT(0, entry_of(&ref.id)->n_nodes);
	stop_cluster();
}

static void owner_death_frees(void)
{
	rc_object_ref refs[2];
	rc_id dead;

	start_cluster(1, 64 * MB);
	refs[0] = make(&nodes[0], 1000, 1);
	refs[1] = make(&nodes[0], 1000, 1);
	CHECK(pin(&nodes[0], &refs[0]) && pin(&nodes[0], &refs[1]));
	run_ms(50);
	CHECK(all_here(&(here){ &nodes[0], refs, 2 }));
	dead = owner.address.worker_id;
	rc_objects_worker_died(nodes[0].objects, &dead);
	CHECK(none_here(&(here){ &nodes[0], refs, 2 }));
	CHECK_EQ_INT(0, stats_of(&nodes[0]).pinned);
	stop_cluster();

	start_cluster(1, 64 * MB);
	refs[0] = make(&nodes[0], 1000, 1);
	CHECK(pin(&nodes[0], &refs[0]));
	rc_objects_node_removed(nodes[0].objects, &owner.address.node_id);
	CHECK(none_here(&(here){ &nodes[0], refs, 1 }));
	stop_cluster();
}

static void owner_death_frees_copies(void)
{
	rc_object_ref ref;

	start_cluster(2, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, true);
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	rc_objects_worker_died(nodes[1].objects, &owner.address.worker_id);
	UNTIL(none_here, (&(here){ &nodes[1], &ref, 1 }));
	stop_cluster();
}

static void owner_death_fails_pulls(void)
{
	rc_object_ref refs[3];
	char error[16];

	start_cluster(1, 64 * MB);
	for (int i = 0; i < 3; i++)
		refs[i] = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	entry_of(&refs[0].id)->pending = true;
	entry_of(&refs[1].id)->unknown = true;
	rc_objects_get(nodes[0].objects, &client_a, refs, 2, false);
	UNTIL(all_here, (&(here){ &nodes[0], refs + 1, 1 }));
	error_of(&nodes[0], &refs[1], error);
	CHECK_STR("10", error); /* OBJECT_DELETED */
	CHECK(!rc_store_contains(nodes[0].store, &refs[0].id));
	rc_objects_worker_died(nodes[0].objects, &owner.address.worker_id);
	UNTIL(all_here, (&(here){ &nodes[0], refs, 1 }));
	error_of(&nodes[0], &refs[0], error);
	CHECK_STR("9", error); /* OWNER_DIED */
	rc_objects_get(nodes[0].objects, &client_a, refs + 2, 1, false); /* asked after the death */
	UNTIL(all_here, (&(here){ &nodes[0], refs + 2, 1 }));
	error_of(&nodes[0], &refs[2], error);
	CHECK_STR("9", error);
	CHECK_EQ_INT(0, entry_of(&refs[0].id)->added); /* error objects are no copies */
	stop_cluster();

	start_cluster(1, 64 * MB);
	owner.refuse = true; /* another process has the owner's port */
	refs[0] = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	rc_objects_get(nodes[0].objects, &client_a, refs, 1, false);
	UNTIL(all_here, (&(here){ &nodes[0], refs, 1 }));
	error_of(&nodes[0], &refs[0], error);
	CHECK_STR("9", error);
	stop_cluster();
}

static void unreachable_owner(void)
{
	rc_object_ref ref;
	char error[16];

	base_options.unreachable_failures = 5; /* 1.5 s */
	start_cluster(1, 64 * MB);
	ref = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	rc_rpc_destroy(owner.rpc); /* as a process that was killed */
	owner.rpc = NULL;
	rc_objects_get(nodes[0].objects, &client_a, &ref, 1, false);
	run_ms(800);
	CHECK(!rc_store_contains(nodes[0].store, &ref.id)); /* it is tried for a while */
	UNTIL(all_here, (&(here){ &nodes[0], &ref, 1 }));
	error_of(&nodes[0], &ref, error);
	CHECK_STR("9", error);
	base_options.unreachable_failures = 0;
	stop_cluster();
}

static bool is_pinned(void *arg)
{
	return stats_of(arg).pinned > 0;
}

static void flaky_owner(void)
{
	enum { MANY = 20 };
	rc_object_ref refs[MANY];

	start_cluster(2, 64 * MB);
	owner.flaky = 6;
	for (int i = 0; i < MANY; i++)
		refs[i] = make(&nodes[0], 3000, 0);
	rc_objects_get(nodes[1].objects, &client_a, refs, MANY, false);
	UNTIL(all_here, (&(here){ &nodes[1], refs, MANY }));
	for (int i = 0; i < MANY; i++)
		CHECK(intact(&nodes[1], &refs[i], 3000, 0));
	CHECK_EQ_INT(0, owner.flaky);
	owner.flaky = 2; /* what is unsubscribed in between must not be subscribed at the end */
	refs[0] = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	rc_objects_get(nodes[1].objects, &client_b, refs, 1, false);
	rc_objects_get_cancel(nodes[1].objects, &client_b);
	run_ms(1000);
	CHECK(!rc_map_get_id(subscriber_of(&nodes[1].id)->keys[0], &refs[0].id));
	stop_cluster();
}

/* 2.35.0 */
static void eviction_failure_frees(void)
{
	rc_object_ref ref;

	start_cluster(1, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	CHECK(pin(&nodes[0], &ref));
	if (rc_enum_value(dialect, RC_V_CHANNEL_OBJECT_EVICTION) >= 0) {
		run_ms(100);
		publish(1, &ref.id, true);
		UNTIL(none_here, (&(here){ &nodes[0], &ref, 1 }));
	}
	stop_cluster();
	start_cluster(1, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	CHECK(pin(&nodes[0], &ref));
	rc_rpc_destroy(owner.rpc);
	owner.rpc = NULL;
	run_ms(2500);
	CHECK(is_pinned(&nodes[0])); /* not reached is not dead */
	stop_cluster();
}

static bool was_pulled(void *arg)
{
	return ((node *)arg)->pulls > 0;
}

static void resumes_after_death(void)
{
	enum { SIZE = 10 * CHUNK };
	node *silent;
	rc_object_ref ref;
	uint64_t sent_before;
	outcome o;

	start_cluster(2, 64 * MB);
	silent = start_node(2, 0, true);
	ref = make(&nodes[0], SIZE, 0);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
	entry_of(&ref.id)->nodes[0] = silent->id; /* at first only there */
	rc_objects_get(nodes[1].objects, &client_a, &ref, 1, false);
	UNTIL(was_pulled, silent);
	CHECK(rc_id_eq(&silent->pulled, &ref.id) && rc_id_eq(&silent->puller, &nodes[1].id));
	for (uint32_t i = 0; i < 4; i++) {
		send_chunk(&nodes[1], silent, &ref, i, SIZE, 0, CHUNK, &o);
		CHECK_EQ_INT(RC_RPC_OK, o.status);
	}
	CHECK_EQ_INT(4, stats_of(&nodes[1]).chunks_in);
	entry_of(&ref.id)->nodes[0] = nodes[0].id;
	publish(0, &ref.id, false);
	run_ms(50);
	CHECK(!rc_store_contains(nodes[1].store, &ref.id));
	sent_before = rc_now_ms();
	kill_node(silent);
	UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
	CHECK(rc_now_ms() - sent_before < 3000);
	CHECK(intact(&nodes[1], &ref, SIZE, 0));
	CHECK_EQ_INT(10, stats_of(&nodes[1]).chunks_in); /* the four that were here were not taken again */
	CHECK_EQ_INT(SIZE, stats_of(&nodes[1]).bytes_in);
	stop_cluster();
}

static void rotates_places(void)
{
	node *silent;
	rc_object_ref ref;

	base_options.pull_timeout_ms = 200;
	start_cluster(2, 64 * MB);
	silent = start_node(2, 0, true);
	ref = make(&nodes[0], 3 * CHUNK, 0);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &ref, 1 }));
	entry_of(&ref.id)->nodes[1] = silent->id;
	entry_of(&ref.id)->n_nodes = 2;
	for (int i = 0; i < 6; i++) { /* whichever is asked first, it comes */
		rc_objects_get(nodes[1].objects, &client_a, &ref, 1, true);
		UNTIL(all_here, (&(here){ &nodes[1], &ref, 1 }));
		CHECK(intact(&nodes[1], &ref, 3 * CHUNK, 0));
		rc_store_delete(nodes[1].store, &ref.id, 1);
		run_ms(20);
	}
	base_options.pull_timeout_ms = 0;
	stop_cluster();
}

static void refuses_bad_chunks(void)
{
	enum { SIZE = 3 * CHUNK + 10 };
	node *peer;
	rc_object_ref ref;
	outcome o;

	start_cluster(1, 64 * MB);
	peer = start_node(1, 0, true);
	ref = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	send_chunk(&nodes[0], peer, &ref, 0, SIZE, 0, CHUNK, &o); /* nobody wants it */
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK_EQ_INT(1, stats_of(&nodes[0]).chunks_dropped);

	entry_of(&ref.id)->size = SIZE;
	entry_of(&ref.id)->nodes[0] = peer->id;
	entry_of(&ref.id)->n_nodes = 1;
	rc_objects_get(nodes[0].objects, &client_a, &ref, 1, false);
	UNTIL(was_pulled, peer);
	send_chunk(&nodes[0], peer, &ref, 0, SIZE, 4, CHUNK, &o);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	send_chunk(&nodes[0], peer, &ref, 0, SIZE, 4, CHUNK, &o); /* twice */
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	CHECK_EQ_INT(1, stats_of(&nodes[0]).chunks_in);
	CHECK_EQ_INT(2, stats_of(&nodes[0]).chunks_dropped);
	send_chunk(&nodes[0], peer, &ref, 1, SIZE, 4, CHUNK - 1, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	CHECK(strstr(o.detail, "chunk 1 of 4 with 65535 bytes does not fit") != NULL);
	send_chunk(&nodes[0], peer, &ref, 4, SIZE, 4, 10, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	send_chunk(&nodes[0], peer, &ref, 1, SIZE + CHUNK, 4, CHUNK, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	CHECK(strstr(o.detail, "differ from") != NULL);
	send_chunk(&nodes[0], peer, &ref, 1, SIZE, 5, CHUNK, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	send_chunk(&nodes[0], peer, &ref, 0, UINT64_MAX, 0, CHUNK, &o);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	for (uint32_t i = 3; i >= 1; i--) /* any order */
		send_chunk(&nodes[0], peer, &ref, i, SIZE, 4, i == 3 ? 10 : CHUNK, &o);
	UNTIL(all_here, (&(here){ &nodes[0], &ref, 1 }));
	CHECK(intact(&nodes[0], &ref, SIZE - 4, 4));
	send_chunk(&nodes[0], peer, &ref, 1, SIZE, 4, CHUNK, &o); /* when it is here */
	CHECK_EQ_INT(RC_RPC_OK, o.status);

	o = (outcome){ 0 };
	rc_call(peer->rpc, nodes[0].address, rc_method_path(dialect, RC_M_OM_PUSH), rc_view_str("\x12\x7f nonsense"), 10000, 0, on_outcome, &o);
	UNTIL(flag, &o.done);
	CHECK_EQ_INT(RC_RPC_INVALID, o.status);
	for (rc_method m = RC_M_OM_PULL;; m = RC_M_PIN_OBJECT_IDS) {
		o = (outcome){ 0 };
		rc_call(peer->rpc, nodes[0].address, rc_method_path(dialect, m), rc_view_str("\x0a\x7f nonsense"), 10000, 0, on_outcome, &o);
		UNTIL(flag, &o.done);
		CHECK_EQ_INT(RC_RPC_INVALID, o.status);
		if (m == RC_M_PIN_OBJECT_IDS)
			break;
	}
	stop_cluster();
}

static void cancel_gives_memory_back(void)
{
	node *peer;
	rc_object_ref ref;
	rc_store_stats s;
	outcome o;

	start_cluster(1, 64 * MB);
	peer = start_node(1, 0, true);
	ref = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	entry_of(&ref.id)->size = 2 * CHUNK;
	entry_of(&ref.id)->nodes[0] = peer->id;
	entry_of(&ref.id)->n_nodes = 1;
	rc_objects_get(nodes[0].objects, &client_a, &ref, 1, false);
	UNTIL(was_pulled, peer);
	send_chunk(&nodes[0], peer, &ref, 0, 2 * CHUNK, 0, CHUNK, &o);
	rc_store_get_stats(nodes[0].store, &s);
	CHECK_EQ_INT(1, s.unsealed_objects);
	rc_objects_get_cancel(nodes[0].objects, &client_a);
	rc_store_get_stats(nodes[0].store, &s);
	CHECK_EQ_INT(0, s.unsealed_objects);
	run_ms(50);
	CHECK(owner.unsubscribed > 0);
	stop_cluster();
}

static void reads_spilled_objects(void)
{
	enum { MANY = 12, SIZE = 2 * MB + 11 };
	rc_object_ref refs[MANY];
	int spilled_now = 0;

	start_cluster(2, 64 * MB);
	stop_node(&nodes[0]);
	start_node(0, 10 * MB, false);
	for (int i = 0; i < MANY; i++) {
		refs[i] = make(&nodes[0], SIZE, 5);
		run_until(all_here, (&(here){ &nodes[0], &refs[i], 1 }), 5000);
		CHECK(pin(&nodes[0], &refs[i]));
		run_ms(20);
	}
	for (int i = 0; i < MANY; i++)
		spilled_now += rc_store_spilled_url(nodes[0].store, &refs[i].id) != NULL;
	CHECK(spilled_now >= MANY - 5);
	rc_objects_get(nodes[1].objects, &client_a, refs, MANY, false);
	UNTIL(all_here, (&(here){ &nodes[1], refs, MANY }));
	for (int i = 0; i < MANY; i++)
		CHECK(intact(&nodes[1], &refs[i], SIZE, 5));
	/* And at home they are restored. */
	rc_objects_get(nodes[0].objects, &client_a, &refs[0], 1, true);
	UNTIL(all_here, (&(here){ &nodes[0], &refs[0], 1 }));
	CHECK(intact(&nodes[0], &refs[0], SIZE, 5));
	stop_cluster();
}

static void more_than_the_store_holds(void)
{
	enum { MANY = 20, SIZE = 1 * MB };
	rc_object_ref refs[MANY];
	bool done[MANY] = { 0 };
	uint64_t fetch[MANY];

	start_cluster(2, 64 * MB);
	stop_node(&nodes[1]);
	start_node(1, 5 * MB, false);
	for (int i = 0; i < MANY; i++)
		refs[i] = make(&nodes[0], SIZE, 5);
	UNTIL(known_to_owner, (&(here){ &nodes[0], refs, MANY }));
	for (int i = 0; i < MANY; i++) /* arguments of twenty leases, held one after the other */
		fetch[i] = rc_objects_fetch(nodes[1].objects, &refs[i], 1, set_flag, &done[i]);
	for (int i = 0; i < MANY; i++) {
		rc_error e;

		do {
			UNTIL(flag, &done[i]);
			done[i] = false;
		} while (!test_bad_ && rc_objects_fetch_hold(nodes[1].objects, fetch[i], &e) < 0);
		CHECK(intact(&nodes[1], &refs[i], SIZE, 5));
		rc_objects_fetch_end(nodes[1].objects, fetch[i]);
	}
	CHECK(!rc_objects_pulls_queued(nodes[1].objects));
	stop_cluster();
}

static void full_disk_fails(void)
{
	rc_object_ref kept, there;
	const rc_hold *hold;
	char error[16];

	start_cluster(2, 16 * MB);
	stop_node(&nodes[1]);
	disk_threshold = 0;
	start_node(1, 5 * MB, false);
	disk_threshold = 0.95;
	kept = make(&nodes[1], 4 * MB, 0);
	hold = rc_store_hold(nodes[1].store, &kept.id); /* in use: no memory for another, and the disk counts as full */
	CHECK(hold != NULL);
	there = make(&nodes[0], 2 * MB, 0);
	UNTIL(known_to_owner, (&(here){ &nodes[0], &there, 1 }));
	rc_objects_get(nodes[1].objects, &client_a, &there, 1, false);
	UNTIL(all_here, (&(here){ &nodes[1], &there, 1 }));
	error_of(&nodes[1], &there, error);
	CHECK_STR("20", error);
	rc_store_release(nodes[1].store, hold);
	stop_cluster();
}

static void nowhere_fails(void)
{
	rc_object_ref ref;
	char error[16];

	base_options.fetch_fail_timeout_ms = 300;
	start_cluster(1, 64 * MB);
	ref = (rc_object_ref){ rc_id_random(RC_OBJECT_ID), owner.address };
	rc_objects_get(nodes[0].objects, &client_a, &ref, 1, false);
	UNTIL(all_here, (&(here){ &nodes[0], &ref, 1 }));
	error_of(&nodes[0], &ref, error);
	CHECK_STR("14", error); /* OBJECT_FETCH_TIMED_OUT */
	base_options.fetch_fail_timeout_ms = 0;
	stop_cluster();
}

static bool got_chunk(void *arg)
{
	return ((node *)arg)->pulls > 0;
}

static void keeps_early_pulls(void)
{
	Rw__PullRequest m = RW__PULL_REQUEST__INIT;
	ProtobufCBinaryData id;
	rc_object_ref ref;
	node *young;
	outcome o;

	start_cluster(1, 64 * MB);
	ref = make(&nodes[0], 1000, 1);
	young = start_node(1, 0, true);
	young->unknown = true;
	RC_SET_ID(m, node_id, &young->id);
	RC_SET_ID(m, object_id, &ref.id);
	id = (ProtobufCBinaryData){ ref.id.n, ref.id.b };
	m.n_object_ids = 1;
	m.object_ids = &id;
	call_node(&nodes[0], RC_M_OM_PULL, &m, &o);
	CHECK_EQ_INT(RC_RPC_OK, o.status);
	run_ms(50);
	CHECK_EQ_INT(0, young->pulls);
	young->unknown = false;
	rc_objects_node_added(nodes[0].objects, &young->id);
	UNTIL(got_chunk, young);
	CHECK(rc_id_eq(&young->pulled, &ref.id));
	stop_cluster();
}

static void ends_in_the_middle(void)
{
	rc_object_ref refs[3];

	for (int i = 0; i < 6; i++) {
		base_options.chunk_size = i % 2 ? CHUNK : MB;
		start_cluster(2, 64 * MB);
		for (int k = 0; k < 3; k++)
			refs[k] = make(&nodes[0], 2 * MB + 500 * KB, 1);
		UNTIL(known_to_owner, (&(here){ &nodes[0], refs, 3 }));
		rc_objects_get(nodes[1].objects, &client_a, refs, 3, false);
		run_ms((uint64_t)i * 3);
		stop_node(&nodes[i % 2]); /* either end first */
		stop_cluster();
	}
	base_options.chunk_size = CHUNK;
	CHECK(true);
}

static void run_all(void)
{
	RUN(moves_objects, "objects of all sizes move both ways, whole, and new copies are reported");
	RUN(moves_many, "400 objects move with few reports and each chunk once");
	RUN(large_chunks, "chunks of 5 MiB are copied by the pool");
	RUN(waits_in_order, "a wait gives what is here in the order asked, minds count and time limit, and pulls the rest");
	RUN(tells_readiness, "a subscription is told once when its object is here, none of a client that has gone");
	RUN(fetches_and_holds, "arguments are fetched, held within the limit of memory, and fetched again when gone");
	RUN(pins_until_freed, "a pinned object stays until its owner frees it, then it is gone on both nodes");
	RUN(owner_death_frees, "the death of the owner or its node frees what it had pinned");
	RUN(owner_death_frees_copies, "copies that nobody pinned go with their owner too");
	RUN(owner_death_fails_pulls, "objects of a dead owner, or unknown to theirs, become error objects");
	RUN(flaky_owner, "calls to an owner that fail are repeated in order, and lose nothing");
	RUN(eviction_failure_frees, "an owner that knows a pinned object no more frees it, one that is not reached does not");
	RUN(unreachable_owner, "an owner that cannot be reached is tried for some seconds before its objects fail");
	RUN(resumes_after_death, "a node that dies in mid-transfer is replaced, and what has come is kept");
	RUN(rotates_places, "a node that sends nothing is left for another");
	RUN(refuses_bad_chunks, "chunks that nobody wants, twins and malformed ones harm nothing");
	RUN(cancel_gives_memory_back, "a cancelled get gives back the memory of a half received object");
	RUN(reads_spilled_objects, "spilled objects are sent from their files, and restored at home");
	RUN(more_than_the_store_holds, "leases whose arguments exceed the store get them in turn");
	RUN(full_disk_fails, "an object for which there is neither memory nor disk fails as OUT_OF_DISK_ERROR");
	RUN(nowhere_fails, "an object that exists nowhere fails after the time limit");
	RUN(keeps_early_pulls, "a pull by a node that has just joined is answered when the head tells of it");
	RUN(ends_in_the_middle, "either end can stop in mid-transfer");
}

int main(int argc, char **argv)
{
	loop = rc_loop_create();
	base_options.chunk_size = CHUNK;
	rc_log_level(getenv("RC_TEST_LOG") ? RC_DEBUG : RC_ERROR);
	for (int i = 0; i < 2; i++) {
		const char *release = i ? "2.60.0" : "2.35.0";

		if (argc > 1 && strcmp(argv[1], release) != 0)
			continue;
		printf("# Ray %s\n", release);
		dialect = rc_dialect_find(release, NULL);
		run_all();
	}
	rc_loop_destroy(loop);
	return test_end();
}
