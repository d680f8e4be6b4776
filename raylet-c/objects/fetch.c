/* Objects asked for by Fetch (exchange.h), and those that are then read over the fabric.
 *
 * Whether a node is ours is found out by asking: a stock node answers UNIMPLEMENTED, once, and is asked by Pull from then on. A
 * small object comes in the answer. A larger one is lent: this node reads it chunk by chunk straight into the store's buffer
 * (receive.c keeps which chunks are here), then asks the lender whether the loan still counted; only then is it sealed, since
 * not every provider can refuse a read whose time is over. When a read fails the rest comes by Push messages from the same
 * node: chunks that are here stay. That node's fabric then rests (5 s, doubling to 5 minutes).
 *
 * Nothing of libfabric is loaded before a node of ours has said that it has a fabric (LOOK). */
#include "raylet-c/objects/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum {
	FETCH_TIMEOUT_MS = 30000,
	KEEP_TIMEOUT_MS = 10000,
	KEEP_MS = 15000, /* the lender keeps a loan for 60 s (lend.c) */
	READS = 4,       /* chunks under way for one object */
	REST_MS = 5000,
	MAX_REST_MS = 300000,
};

typedef struct peer { /* a node that was asked */
	bool stock;
	uint64_t rest_until_ms, rest_ms; /* its fabric */
} peer;

struct rc__om_loan {
	rc_link link; /* o->loans */
	rc__om_receive *receive;
	rc_id node;
	char target[RC__OM_ADDRESS]; /* gRPC */
	uint64_t grant;
	rc_fabric_offer offer;
	uint8_t address[RC_FABRIC_ADDRESS];
	size_t address_n;
	rc_remote remote;
	uint32_t next;             /* chunk */
	unsigned reading;
	bool used, failed, ended;  /* ended: given back */
	rc__om_call *call;
	bool confirming;
	uint64_t kept_ms;
};

typedef struct part { /* one chunk being read */
	rc__om_loan *loan;
	uint32_t index;
} part;

static peer *peer_of(rc_objects *o, const rc_id *node)
{
	peer *p = rc_map_get_id(o->peers, node);

	if (p)
		return p;
	p = rc_alloc(sizeof *p);
	rc_map_put_id(o->peers, node, p);
	return p;
}

/* ---- giving back ---- */

static void forget_reply(void *arg, int status, rc_view reply, const char *detail)
{
	(void)arg;
	(void)reply;
	if (status != RC_RPC_OK) /* the lender's own limit ends it */
		rc_debug("giving a loan back failed: %s", detail);
}

static rc__om_call *send_keep(rc_objects *o, const char *target, uint64_t grant, bool end, rc__om_reply_fn fn, void *arg)
{
	static rc__om_keep m; /* the loop's only; too large for the stack */
	rc__om_call *call;
	rc_buf b = { 0 };

	snprintf(m.from.cluster, sizeof m.from.cluster, "%s", o->options.cluster_id);
	m.from.node = o->options.node_id;
	m.end = end;
	m.n = 1;
	m.grants[0] = grant;
	rc__om_keep_write(&m, &b);
	call = rc__om_send_own(o, target, RC__OM_KEEP_PATH, rc_view_of(b.p, b.n), KEEP_TIMEOUT_MS, fn, arg);
	rc_buf_free(&b);
	return call;
}

void rc__om_loan_free(rc__om_receive *v)
{
	rc__om_loan *l = v->loan;

	if (!l)
		return;
	v->loan = NULL;
	rc_list_remove(&l->link);
	rc__om_drop(l->call);
	if (!l->ended && !v->o->destroying)
		send_keep(v->o, l->target, l->grant, true, forget_reply, NULL);
	free(l);
}

/* ---- reading ---- */

/* No read is under way. The rest comes by Push messages. */
static void fall_back(rc__om_receive *v)
{
	rc__om_want *w = v->want;
	char target[RC__OM_ADDRESS];

	memcpy(target, v->loan->target, sizeof target);
	rc__om_loan_free(v);
	v->o->stats.fallbacks++;
	if (w->state != RC__OM_ASKED) /* the next attempt is due anyway */
		return;
	rc__om_drop(w->call);
	w->call = NULL;
	rc__om_want_pull(w, target);
}

/* Said once for each rest. */
static void loan_failed(rc__om_loan *l, const char *why)
{
	rc_objects *o = l->receive->o;
	peer *p = peer_of(o, &l->node);
	uint64_t now = rc_now_ms();

	l->failed = true;
	if (now < p->rest_until_ms)
		return;
	p->rest_ms = p->rest_ms ? p->rest_ms * 2 : REST_MS;
	p->rest_ms = p->rest_ms < MAX_REST_MS ? p->rest_ms : MAX_REST_MS;
	p->rest_until_ms = now + p->rest_ms;
	rc_warn("reading objects of %s over the fabric failed: %s: gRPC carries them; the fabric is tried again in %llu s", l->target, why,
	        (unsigned long long)p->rest_ms / 1000);
}

static void on_part(void *arg, const rc_error *error)
{
	part *p = arg;
	rc__om_loan *l = p->loan;
	rc__om_receive *v = l->receive;
	uint32_t index = p->index;

	free(p);
	l->reading--;
	if (error && !v->o->destroying && !l->failed)
		loan_failed(l, error->text);
	l->used = true;
	if (!rc__om_receive_put(v, index, !error) || v->o->destroying)
		return;
	if (!error)
		rc__om_want_chunk(v->want);
	if (!l->failed)
		rc__om_loan_run(v);
	else if (l->reading == 0)
		fall_back(v);
}

void rc__om_loan_run(rc__om_receive *v)
{
	rc__om_loan *l = v->loan;
	uint64_t chunk = v->o->options.chunk_size;

	if (!l || !v->buffer || l->failed || l->confirming)
		return;
	for (; l->reading < READS && l->next < v->n_chunks; l->next++) {
		part *p;

		if (!rc__om_receive_take(v, l->next))
			continue;
		p = rc_alloc(sizeof *p);
		p->loan = l;
		p->index = l->next;
		l->reading++;
		rc_fabric_read(v->o->fabric, &l->offer, rc_view_of(l->address, l->address_n), v->buffer->data + l->next * chunk,
		               rc__om_chunk_length(v->total, chunk, l->next), &l->remote, l->next * chunk, on_part, p);
	}
}

static bool still_lent(int status, rc_view reply)
{
	static rc__om_kept m;
	rc_error e;

	return status == RC_RPC_OK && rc__om_kept_read(reply, &m, &e) == 0 && m.n == 1 && m.here[0];
}

static void on_confirmed(void *arg, int status, rc_view reply, const char *detail)
{
	rc__om_loan *l = arg;
	rc__om_receive *v = l->receive;

	l->call = NULL;
	l->ended = true;
	if (still_lent(status, reply)) {
		v->o->stats.came_fabric++;
		peer_of(v->o, &l->node)->rest_ms = 0;
		rc__om_receive_seal(v);
		return;
	}
	loan_failed(l, status == RC_RPC_OK ? "the lender had ended the loan" : detail);
	rc__om_receive_forget(v);
	fall_back(v);
}

bool rc__om_loan_confirm(rc__om_receive *v)
{
	rc__om_loan *l = v->loan;

	if (!l || !l->used)
		return false;
	if (l->confirming)
		return true;
	rc__om_drop(l->call);
	l->confirming = true;
	l->call = send_keep(v->o, l->target, l->grant, true, on_confirmed, l);
	return true;
}

static void on_kept(void *arg, int status, rc_view reply, const char *detail)
{
	rc__om_loan *l = arg;

	l->call = NULL;
	if (status != RC_RPC_OK || still_lent(status, reply)) /* a broken line is tried again; the end is confirmed anyway */
		return;
	l->ended = true;
	loan_failed(l, detail && *detail ? detail : "the lender had ended the loan");
	if (l->reading == 0 && l->receive->want)
		fall_back(l->receive);
}

void rc__om_fetches_tick(rc_objects *o)
{
	uint64_t now = rc_now_ms();

	RC_LIST_FOREACH(k, &o->loans) {
		rc__om_loan *l = RC_CONTAINER(k, rc__om_loan, link);

		if (l->call || l->ended || now - l->kept_ms < KEEP_MS)
			continue;
		l->kept_ms = now;
		l->call = send_keep(o, l->target, l->grant, false, on_kept, l);
	}
}

/* ---- answers ---- */

static bool usable(rc_objects *o, const rc_fabric_offer *theirs, rc_fabric_offer *ret)
{
	rc_fabric_offer all[RC_FABRIC_MAX_OFFERS];
	size_t n = o->fabric ? rc_fabric_usable(o->fabric, all) : 0;
	int i = rc_fabric_choose(all, n, theirs, 1);

	if (i >= 0)
		*ret = all[i];
	return i >= 0;
}

static void refuse_loan(rc__om_want *w, const rc__om_answer *a, const char *why)
{
	send_keep(w->o, w->asked, a->grant, true, forget_reply, NULL);
	if (why)
		rc__om_want_retry(w, why);
}

static void take_loan(rc__om_want *w, const rc__om_answer *a)
{
	rc_fabric_offer offer;
	rc__om_receive *v;
	rc__om_loan *l;
	rc_error e;

	if (!usable(w->o, &a->offer, &offer)) {
		refuse_loan(w, a, "its fabric is not to be used now");
		return;
	}
	v = rc__om_receive_begin(w, a->data_size, a->metadata_size, &e);
	if (!v || v->loan) { /* v->loan: an attempt before goes on */
		refuse_loan(w, a, v ? NULL : e.text);
		return;
	}
	l = v->loan = rc_alloc(sizeof *l);
	l->receive = v;
	l->node = w->source;
	memcpy(l->target, w->asked, sizeof l->target);
	l->grant = a->grant;
	l->offer = offer;
	memcpy(l->address, a->address.p, a->address.n);
	l->address_n = a->address.n;
	l->remote = a->remote;
	l->kept_ms = rc_now_ms();
	rc_list_append(&w->o->loans, &l->link);
	rc__om_receive_memory(v, &a->owner);
}

/* The same place, which answers Fetch; our offers go with it now. */
static void fetch_again(rc__om_want *w)
{
	char address[RC__OM_ADDRESS];

	memcpy(address, w->asked, sizeof address);
	(void)rc__om_fetch(w, address);
}

static void on_answer(void *arg, int status, rc_view reply, const char *detail)
{
	rc__om_want *w = arg;
	rc__om_answer a;
	rc_error e;

	w->call = NULL;
	if (status == RC_RPC_UNIMPLEMENTED) {
		peer_of(w->o, &w->source)->stock = true;
		rc__om_want_pull(w, w->asked);
		return;
	}
	if (status != RC_RPC_OK || rc__om_answer_read(reply, &a, &e) < 0) {
		if (!w->receive)
			rc__om_want_retry(w, status == RC_RPC_OK ? e.text : detail);
		return;
	}
	switch (a.kind) {
	case RC__OM_ABSENT:
		if (!w->receive)
			rc__om_want_retry(w, "there is no copy there");
		return;
	case RC__OM_INLINE:
		w->o->stats.came_inline++;
		rc__om_receive_bytes(w, a.bytes, a.metadata_size, &a.owner);
		return;
	case RC__OM_GRANTED:
		take_loan(w, &a);
		return;
	case RC__OM_LOOK:
		if (!w->asked_blind) {
			rc__om_want_retry(w, "the answer does not fit what was asked");
			return;
		}
		if (rc_fabric_ready(w->o->fabric)) { /* another object's answer came first, and the search has ended since */
			fetch_again(w);
			return;
		}
		rc_list_append(&w->o->asking, &w->asking);
		rc_fabric_start(w->o->fabric);
		return;
	case RC__OM_PUSHED:
		return;
	}
}

bool rc__om_fetch(rc__om_want *w, const char *address)
{
	rc_objects *o = w->o;
	rc__om_ask m = { .object = w->id };
	rc_buf b = { 0 };
	peer *p;

	if (!o->options.cluster_id)
		return false;
	p = peer_of(o, &w->source);
	if (p->stock)
		return false;
	snprintf(m.from.cluster, sizeof m.from.cluster, "%s", o->options.cluster_id);
	m.from.node = o->options.node_id;
	if (o->fabric && rc_now_ms() >= p->rest_until_ms) {
		m.fabric = rc_fabric_ready(o->fabric) ? RC__OM_FABRIC_KNOWN : RC__OM_FABRIC_UNKNOWN;
		m.n_offers = rc_fabric_usable(o->fabric, m.offers);
	}
	snprintf(w->asked, sizeof w->asked, "%s", address);
	w->asked_blind = m.fabric == RC__OM_FABRIC_UNKNOWN;
	rc__om_ask_write(&m, &b);
	w->call = rc__om_send_own(o, address, RC__OM_FETCH_PATH, rc_view_of(b.p, b.n), FETCH_TIMEOUT_MS, on_answer, w);
	rc_buf_free(&b);
	return true;
}

void rc__om_fabric_ready(rc_objects *o)
{
	while (!rc_list_empty(&o->asking)) {
		rc__om_want *w = RC_CONTAINER(o->asking.next, rc__om_want, asking);
		rc_list_remove(&w->asking);
		fetch_again(w);
	}
}

/* ---- life ---- */

void rc__om_fetches_init(rc_objects *o)
{
	o->peers = rc_map_create();
	rc_list_init(&o->asking);
	rc_list_init(&o->loans);
}

void rc__om_fetches_died(rc_objects *o, const rc_id *node)
{
	free(rc_map_del_id(o->peers, node));
}

void rc__om_fetches_destroy(rc_objects *o)
{
	rc_fabric_destroy(o->fabric);
	o->fabric = NULL;
}

void rc__om_fetches_free(rc_objects *o)
{
	size_t i = 0;
	void *value;

	while (rc_map_next(o->peers, &i, NULL, &value))
		free(value);
	rc_map_destroy(o->peers);
}
