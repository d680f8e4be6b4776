/* Channels by address, and the calls on them.
 *
 * - An address gets a channel for calls and others for bulk, the zero-copy calls: a chunk of an object on the same connection
 *   would delay every small call behind it. Calls of bulk that are under way at the same time are spread over up to
 *   BULK_CHANNELS, since a peer that reads with several threads has one at work on each connection.
 * - A channel that nobody used for a minute goes. rc_rpc_forget takes it out of the map at once.
 * - Each channel has its own connections (local subchannel pool): gRPC would otherwise share a connection, and its back-off,
 *   between a forgotten channel and the new one to the same address.
 * - IP addresses are given as ipv4:/ipv6: targets, so that no resolver runs for them; anything else is a DNS name. */
#include <arpa/inet.h>
#include <grpc/grpc_security.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/rpc/internal.h"

enum { IDLE_MS = 60 * 1000, MANY = 1024, BULK_CHANNELS = 4 };

/* The caller frees it. */
static char *target_of(const char *address)
{
	const char *colon = strrchr(address, ':');
	char host[INET6_ADDRSTRLEN] = "";
	if (colon && (size_t)(colon - address) < sizeof(host)) {
		struct in6_addr parsed;
		memcpy(host, address, (size_t)(colon - address));
		if (inet_pton(AF_INET, host, &parsed) == 1)
			return rc_sprintf("ipv4:%s", address);
		if (inet_pton(AF_INET6, host, &parsed) == 1)
			return rc_sprintf("ipv6:[%s]%s", host, colon);
	}
	if (address[0] == '[')
		return rc_sprintf("ipv6:%s", address);
	return rc_sprintf("dns:///%s", address);
}

static grpc_channel *open_channel(rc_rpc *rpc, const char *address)
{
	grpc_arg args[16];
	size_t n = 0;
#define INT(name, v) (args[n++] = (grpc_arg){ .type = GRPC_ARG_INTEGER, .key = (char *)(name), .value.integer = (int)(v) })
	INT(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, rpc->max_message);
	INT(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, rpc->max_message);
	INT(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
	INT(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
	INT(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000); /* in truth: the time that one attempt to connect may take */
	INT(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
	INT(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
	INT(GRPC_ARG_ENABLE_RETRIES, 0); /* callers decide; gRPC's would hold on to messages */
	INT(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
	INT(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
	INT(GRPC_ARG_ENABLE_CHANNELZ, 0);
#undef INT
	grpc_channel_args list = { n, args };
	char *target = target_of(address);
	grpc_channel_credentials *credentials = rc__channel_credentials(rpc);
	/* A malformed target gives a channel whose calls fail with a text, never NULL. */
	grpc_channel *channel = grpc_channel_create(target, credentials, &list);
	grpc_channel_credentials_release(credentials);
	free(target);
	return channel;
}

static void close_channel(rc__channel *c)
{
	rc_list_remove(&c->link);
	grpc_channel_destroy(c->channel);
	free(c->key);
	free(c);
}

static char *key_of(const char *address, unsigned bulk) /* 0: for calls */
{
	return bulk ? rc_sprintf("%s bulk %u", address, bulk) : rc_strdup(address);
}

static void drop_idle(rc_rpc *rpc, uint64_t idle_ms)
{
	uint64_t now = rc_now_ms();
	RC_LIST_FOREACH(l, &rpc->all_channels) {
		rc__channel *c = RC_CONTAINER(l, rc__channel, link);
		if (c->forgotten || !rc_list_empty(&c->users) || now - c->idle_since < idle_ms)
			continue;
		rc_map_del(rpc->channels, rc_view_str(c->key));
		close_channel(c);
	}
}

void rc__channels_sweep(void *rpc)
{
	drop_idle(rpc, IDLE_MS);
}

static rc__channel *find_or_open(rc_rpc *rpc, const char *address, unsigned bulk)
{
	char *key = key_of(address, bulk);
	rc__channel *c = rc_map_get(rpc->channels, rc_view_str(key));
	if (c) {
		free(key);
		return c;
	}
	if (rc_map_count(rpc->channels) >= MANY)
		drop_idle(rpc, 1000); /* peers name the addresses: keep only what is in use */
	c = rc_alloc(sizeof(*c));
	c->channel = open_channel(rpc, address);
	c->key = key;
	rc_list_init(&c->users);
	rc_list_append(&rpc->all_channels, &c->link);
	rc_map_put(rpc->channels, rc_view_str(key), c);
	return c;
}

/* The one with the fewest calls; another one while all of them have some. */
static rc__channel *bulk_channel(rc_rpc *rpc, const char *address)
{
	rc__channel *best = NULL;
	for (unsigned i = 1; i <= BULK_CHANNELS && (!best || best->n_users); i++) {
		rc__channel *c = find_or_open(rpc, address, i);
		if (!best || c->n_users < best->n_users)
			best = c;
	}
	return best;
}

void rc__user_start(rc_rpc *rpc, rc__user *u, const char *address, bool bulk, const char *path, gpr_timespec deadline)
{
	u->channel = bulk ? bulk_channel(rpc, address) : find_or_open(rpc, address, 0);
	u->channel->n_users++;
	rc_list_append(&u->channel->users, &u->link);
	u->call = grpc_channel_create_call(u->channel->channel, NULL, GRPC_PROPAGATE_DEFAULTS, rpc->queue, grpc_slice_from_static_string(path),
	                                   NULL, deadline, NULL);
}

void rc__user_end(rc__user *u)
{
	rc__channel *c = u->channel;
	grpc_call_unref(u->call);
	rc_list_remove(&u->link);
	c->n_users--;
	if (!rc_list_empty(&c->users))
		return;
	c->idle_since = rc_now_ms();
	if (c->forgotten)
		close_channel(c);
}

static void fail_users(rc__channel *c, grpc_status_code status, const char *why)
{
	RC_LIST_FOREACH(l, &c->users)
		grpc_call_cancel_with_status(RC_CONTAINER(l, rc__user, link)->call, status, why, NULL);
}

static void forget(rc_rpc *rpc, const char *address, unsigned bulk)
{
	char *key = key_of(address, bulk);
	rc__channel *c = rc_map_del(rpc->channels, rc_view_str(key));
	free(key);
	if (!c)
		return;
	c->forgotten = true;
	if (rc_list_empty(&c->users))
		close_channel(c);
	else
		fail_users(c, GRPC_STATUS_UNAVAILABLE, "the peer is gone");
}

void rc_rpc_forget(rc_rpc *rpc, const char *address)
{
	for (unsigned i = 0; i <= BULK_CHANNELS; i++)
		forget(rpc, address, i);
}

void rc__channels_cancel(rc_rpc *rpc)
{
	RC_LIST_FOREACH(l, &rpc->all_channels)
		fail_users(RC_CONTAINER(l, rc__channel, link), GRPC_STATUS_CANCELLED, "the node is stopping");
}

void rc__channels_destroy(rc_rpc *rpc)
{
	RC_LIST_FOREACH(l, &rpc->all_channels)
		close_channel(RC_CONTAINER(l, rc__channel, link));
}
