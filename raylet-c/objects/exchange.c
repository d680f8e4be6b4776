/* See exchange.h. Writers and readers go through the fields in the same order, one function for each shape. */
#include "raylet-c/objects/exchange.h"

#include <string.h>

#define MAX_OBJECT (1ull << 44) /* as receive.c */

/* ---- writing ---- */

static void put(rc_buf *b, uint64_t value, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		*rc_buf_grow(b, 1) = (uint8_t)(value >> 8 * i);
}

static void put_bytes(rc_buf *b, rc_view v, unsigned length_n)
{
	put(b, v.n, length_n);
	rc_buf_add(b, v.p, v.n);
}

static void put_text(rc_buf *b, const char *s)
{
	put_bytes(b, rc_view_str(s), 1);
}

static void put_from(rc_buf *b, const rc__om_from *f)
{
	put(b, RC__OM_EXCHANGE_VERSION, 1);
	put_text(b, f->cluster);
	put_bytes(b, rc_id_view(&f->node), 1);
}

static void put_offer(rc_buf *b, const rc_fabric_offer *o)
{
	put_text(b, o->provider);
	put_text(b, o->place);
	put(b, o->protocol, 4);
	put(b, o->protocol_version, 4);
}

void rc__om_ask_write(const rc__om_ask *m, rc_buf *out)
{
	put_from(out, &m->from);
	put_bytes(out, rc_id_view(&m->object), 1);
	put(out, m->fabric, 1);
	put(out, m->n_offers, 1);
	for (size_t i = 0; i < m->n_offers; i++)
		put_offer(out, &m->offers[i]);
}

static void put_owner(rc_buf *b, const rc_owner *o)
{
	put_bytes(b, rc_id_view(&o->node_id), 1);
	put_bytes(b, rc_id_view(&o->worker_id), 1);
	put_text(b, o->ip);
	put(b, (uint32_t)o->port, 4);
}

void rc__om_answer_write(const rc__om_answer *m, rc_buf *out)
{
	put(out, RC__OM_EXCHANGE_VERSION, 1);
	put(out, m->kind, 1);
	if (m->kind != RC__OM_INLINE && m->kind != RC__OM_GRANTED)
		return;
	put(out, m->data_size, 8);
	put(out, m->metadata_size, 8);
	put_owner(out, &m->owner);
	if (m->kind == RC__OM_INLINE) {
		put_bytes(out, m->bytes, 4);
		return;
	}
	put(out, m->grant, 8);
	put_offer(out, &m->offer);
	put_bytes(out, m->address, 2);
	put(out, m->remote.key, 8);
	put(out, m->remote.base, 8);
}

void rc__om_keep_write(const rc__om_keep *m, rc_buf *out)
{
	put_from(out, &m->from);
	put(out, m->end, 1);
	put(out, m->n, 2);
	for (size_t i = 0; i < m->n; i++)
		put(out, m->grants[i], 8);
}

void rc__om_kept_write(const rc__om_kept *m, rc_buf *out)
{
	put(out, RC__OM_EXCHANGE_VERSION, 1);
	put(out, m->n, 2);
	for (size_t i = 0; i < m->n; i++)
		put(out, m->here[i], 1);
}

/* ---- reading ---- */

typedef struct reader {
	rc_view left;
	bool bad; /* sticks: what is read then is 0 */
} reader;

static rc_view take(reader *r, uint64_t n)
{
	rc_view v = { r->left.p, (size_t)n };

	if (r->bad || n > r->left.n) {
		r->bad = true;
		return (rc_view){ 0 };
	}
	r->left.p += n;
	r->left.n -= (size_t)n;
	return v;
}

static uint64_t get(reader *r, unsigned n)
{
	rc_view v = take(r, n);
	uint64_t value = 0;

	for (unsigned i = 0; i < v.n; i++)
		value |= (uint64_t)v.p[i] << 8 * i;
	return value;
}

/* At most max, else bad. */
static uint64_t get_most(reader *r, unsigned n, uint64_t max)
{
	uint64_t value = get(r, n);

	r->bad = r->bad || value > max;
	return r->bad ? 0 : value;
}

static void get_text(reader *r, char *to, size_t size)
{
	rc_view v = take(r, get_most(r, 1, size - 1));

	r->bad = r->bad || memchr(v.p ? v.p : (const uint8_t *)"", 0, v.n) != NULL;
	if (r->bad)
		v.n = 0;
	if (v.n)
		memcpy(to, v.p, v.n);
	to[v.n] = '\0';
}

static rc_id get_id(reader *r, size_t n)
{
	rc_view v = take(r, get_most(r, 1, RC_ID_MAX));

	r->bad = r->bad || v.n != n;
	return r->bad ? (rc_id){ 0 } : rc_id_from(v.p, v.n);
}

static void get_from(reader *r, rc__om_from *f)
{
	get_text(r, f->cluster, sizeof f->cluster);
	f->node = get_id(r, RC_NODE_ID);
}

static void get_offer(reader *r, rc_fabric_offer *o)
{
	get_text(r, o->provider, sizeof o->provider);
	get_text(r, o->place, sizeof o->place);
	o->protocol = (uint32_t)get(r, 4);
	o->protocol_version = (uint32_t)get(r, 4);
}

static int begin(reader *r, rc_view bytes, const char *what, rc_error *e)
{
	uint64_t version;

	*r = (reader){ .left = bytes };
	version = get(r, 1);
	if (r->bad || version != RC__OM_EXCHANGE_VERSION)
		return rc_fail(e, RC_E_UNSUPPORTED, "%s of version %u, known is %d", what, (unsigned)version, RC__OM_EXCHANGE_VERSION);
	return 0;
}

static int finish(const reader *r, const char *what, rc_error *e)
{
	if (r->bad || r->left.n)
		return rc_fail(e, RC_E_INVALID, "%s: malformed message", what);
	return 0;
}

int rc__om_ask_read(rc_view bytes, rc__om_ask *ret, rc_error *e)
{
	rc__om_ask m = { 0 };
	reader r;

	if (begin(&r, bytes, "Fetch", e) < 0)
		return -1;
	get_from(&r, &m.from);
	m.object = get_id(&r, RC_OBJECT_ID);
	m.fabric = (rc__om_fabric_state)get_most(&r, 1, RC__OM_FABRIC_KNOWN);
	m.n_offers = get_most(&r, 1, RC_FABRIC_MAX_OFFERS);
	for (size_t i = 0; i < m.n_offers; i++)
		get_offer(&r, &m.offers[i]);
	if (finish(&r, "Fetch", e) < 0)
		return -1;
	*ret = m;
	return 0;
}

static void get_owner(reader *r, rc_owner *o)
{
	rc_view node = take(r, get_most(r, 1, RC_NODE_ID)), worker = take(r, get_most(r, 1, RC_WORKER_ID));

	o->node_id = rc_id_from(node.p, node.n);
	o->worker_id = rc_id_from(worker.p, worker.n);
	get_text(r, o->ip, sizeof o->ip);
	o->port = (int)get_most(r, 4, 65535);
}

int rc__om_answer_read(rc_view bytes, rc__om_answer *ret, rc_error *e)
{
	rc__om_answer m = { 0 };
	reader r;

	if (begin(&r, bytes, "answer to Fetch", e) < 0)
		return -1;
	m.kind = (rc__om_answer_kind)get_most(&r, 1, RC__OM_LOOK);
	if (m.kind == RC__OM_INLINE || m.kind == RC__OM_GRANTED) {
		m.data_size = get_most(&r, 8, MAX_OBJECT);
		m.metadata_size = get_most(&r, 8, MAX_OBJECT);
		get_owner(&r, &m.owner);
	}
	if (m.kind == RC__OM_INLINE) {
		m.bytes = take(&r, get(&r, 4));
		r.bad = r.bad || m.bytes.n != m.data_size + m.metadata_size;
	} else if (m.kind == RC__OM_GRANTED) {
		m.grant = get(&r, 8);
		get_offer(&r, &m.offer);
		m.address = take(&r, get_most(&r, 2, RC_FABRIC_ADDRESS));
		m.remote.key = get(&r, 8);
		m.remote.base = get(&r, 8);
	}
	if (finish(&r, "answer to Fetch", e) < 0)
		return -1;
	*ret = m;
	return 0;
}

int rc__om_keep_read(rc_view bytes, rc__om_keep *ret, rc_error *e)
{
	reader r;

	if (begin(&r, bytes, "Keep", e) < 0)
		return -1;
	get_from(&r, &ret->from);
	ret->end = get_most(&r, 1, 1);
	ret->n = get_most(&r, 2, RC__OM_MAX_KEEP);
	for (size_t i = 0; i < ret->n; i++)
		ret->grants[i] = get(&r, 8);
	return finish(&r, "Keep", e);
}

int rc__om_kept_read(rc_view bytes, rc__om_kept *ret, rc_error *e)
{
	reader r;

	if (begin(&r, bytes, "answer to Keep", e) < 0)
		return -1;
	ret->n = get_most(&r, 2, RC__OM_MAX_KEEP);
	for (size_t i = 0; i < ret->n; i++)
		ret->here[i] = get_most(&r, 1, 1);
	return finish(&r, "answer to Keep", e);
}
