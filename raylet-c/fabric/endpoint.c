/* See endpoint.h. */
#include "raylet-c/fabric/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "raylet-c/fabric/internal.h"

enum { READ, SEND, RECEIVE };
enum { CQ_BATCH = 16, ADDRESS_TABLE = 64, MAX_QUEUE = 128 };

_Static_assert(sizeof(struct fi_context2) <= sizeof((rc_op *)0)->context, "rc_op has room for the provider's context");
_Static_assert(offsetof(rc_op, context) == 0, "completions name the context");

struct rc_region {
	rc_link link;
	struct fid_mr *mr;
	const uint8_t *start;
	uint64_t n;
	rc_remote remote;
};

struct rc_endpoint {
	const rc_fabric_library *library;
	rc_fabric_offer offer;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	int fd;
	uint8_t address[RC_FABRIC_ADDRESS];
	size_t address_n;
	rc_link posted, waiting; /* of rc_op: taken by the provider, not taken yet */
	size_t n_ops;
	rc_link regions;
};

static int fail(const rc_endpoint *p, rc_error *e, const char *what, long rc)
{
	return rc_fail(e, rc == -FI_ENOMEM ? RC_E_NO_MEMORY : RC_E_UNAVAILABLE, "fabric %s: %s: %s", p->offer.provider, what,
	               p->library->strerror((int)-rc));
}

/* ---- life ---- */

static int open_queue(rc_endpoint *p, rc_error *e)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD };
	int rc = fi_cq_open(p->domain, &attr, &p->cq, NULL);

	p->fd = -1;
	if (rc == 0) {
		if (fi_control(&p->cq->fid, FI_GETWAIT, &p->fd) != 0)
			p->fd = -1;
		return 0;
	}
	attr.wait_obj = FI_WAIT_NONE;
	rc = fi_cq_open(p->domain, &attr, &p->cq, NULL);
	return rc ? fail(p, e, "no completion queue", rc) : 0;
}

static int open_objects(rc_endpoint *p, rc_error *e)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE, .count = ADDRESS_TABLE };
	int rc;

	if ((rc = p->library->fabric(p->info->fabric_attr, &p->fabric, NULL)))
		return fail(p, e, "cannot open the fabric", rc);
	if ((rc = fi_domain(p->fabric, p->info, &p->domain, NULL)))
		return fail(p, e, "cannot open the domain", rc);
	if ((rc = fi_av_open(p->domain, &av, &p->av, NULL)))
		return fail(p, e, "no address table", rc);
	if (open_queue(p, e) < 0)
		return -1;
	if ((rc = fi_endpoint(p->domain, p->info, &p->ep, NULL)))
		return fail(p, e, "no endpoint", rc);
	if ((rc = fi_ep_bind(p->ep, &p->av->fid, 0)) || (rc = fi_ep_bind(p->ep, &p->cq->fid, FI_SEND | FI_RECV)))
		return fail(p, e, "cannot bind the endpoint", rc);
	if ((rc = fi_enable(p->ep)))
		return fail(p, e, "cannot enable the endpoint", rc);
	p->address_n = sizeof p->address;
	if ((rc = fi_getname(&p->ep->fid, p->address, &p->address_n)))
		return fail(p, e, "the endpoint has no address", rc);
	return 0;
}

static size_t smaller(size_t queue)
{
	return queue > MAX_QUEUE ? MAX_QUEUE : queue;
}

rc_endpoint *rc_endpoint_open(const rc_fabric_library *l, const rc_fabric_offer *offer, const char *ip, rc_error *e)
{
	struct fi_info *info = rc__fabric_info(l, offer->provider, ip, e);
	rc__signals signals;
	rc_endpoint *p;
	int rc;

	if (!info)
		return NULL;
	p = rc_alloc(sizeof *p);
	p->library = l;
	p->offer = *offer;
	p->info = info;
	/* Layers keep a buffer of 16 KiB for each: by default some thousands of them. */
	p->info->tx_attr->size = smaller(p->info->tx_attr->size);
	p->info->rx_attr->size = smaller(p->info->rx_attr->size);
	rc_list_init(&p->posted);
	rc_list_init(&p->waiting);
	rc_list_init(&p->regions);
	rc__signals_keep(&signals);
	rc = open_objects(p, e);
	rc__signals_restore(&signals);
	if (rc < 0) {
		rc_endpoint_close(p);
		return NULL;
	}
	return p;
}

static void end_op(rc_endpoint *p, rc_op *op, uint64_t n, const rc_error *error)
{
	rc_list_remove(&op->link);
	op->busy = false;
	p->n_ops--;
	op->done(op, n, error);
}

static void close_fid(void *object) /* each begins with its struct fid */
{
	if (object)
		fi_close(object);
}

void rc_endpoint_close(rc_endpoint *p)
{
	rc_link *lists[] = { NULL, NULL };
	rc_error e;

	if (!p)
		return;
	lists[0] = &p->posted;
	lists[1] = &p->waiting;
	close_fid(p->ep); /* from here on nothing touches the memory of operations */
	p->ep = NULL;
	rc_fail(&e, RC_E_CANCELLED, "fabric %s: the endpoint was closed", p->offer.provider);
	for (int i = 0; i < 2; i++)
		while (!rc_list_empty(lists[i]))
			end_op(p, RC_CONTAINER(lists[i]->next, rc_op, link), 0, &e);
	RC_LIST_FOREACH(l, &p->regions) {
		rc_endpoint_unregister(p, RC_CONTAINER(l, rc_region, link));
	}
	close_fid(p->cq);
	close_fid(p->av);
	close_fid(p->domain);
	close_fid(p->fabric);
	p->library->freeinfo(p->info);
	free(p);
}

const rc_fabric_offer *rc_endpoint_offer(const rc_endpoint *p)
{
	return &p->offer;
}

rc_view rc_endpoint_address(const rc_endpoint *p)
{
	return rc_view_of(p->address, p->address_n);
}

/* ---- peers and memory ---- */

int rc_endpoint_peer(rc_endpoint *p, rc_view address, uint64_t *ret, rc_error *e)
{
	uint8_t copy[RC_FABRIC_ADDRESS] = { 0 }; /* providers read as much as an address of theirs has */
	fi_addr_t peer;
	int rc;

	if (address.n == 0 || address.n > sizeof copy)
		return rc_fail(e, RC_E_INVALID, "fabric %s: a peer's address of %zu bytes", p->offer.provider, address.n);
	memcpy(copy, address.p, address.n);
	copy[sizeof copy - 1] = 0;
	rc = fi_av_insert(p->av, copy, 1, &peer, 0, NULL);
	if (rc != 1 || peer == FI_ADDR_NOTAVAIL)
		return fail(p, e, "a peer's address is not accepted", rc < 0 ? rc : -FI_EINVAL);
	*ret = peer;
	return 0;
}

void rc_endpoint_peer_remove(rc_endpoint *p, uint64_t peer)
{
	fi_addr_t address = peer;

	fi_av_remove(p->av, &address, 1, 0);
}

static uint64_t random_key(const rc_endpoint *p)
{
	uint64_t key = 0;
	size_t size = p->info->domain_attr->mr_key_size;

	if (getrandom(&key, sizeof key, 0) != sizeof key)
		abort(); /* a guessable key would open memory to anyone */
	return size < sizeof key ? key & ((1ull << 8 * size) - 1) : key;
}

rc_region *rc_endpoint_register(rc_endpoint *p, void *start, uint64_t n, bool remote, rc_error *e)
{
	uint64_t mode = (uint64_t)p->info->domain_attr->mr_mode;
	uint64_t key = mode & FI_MR_PROV_KEY ? 0 : random_key(p);
	struct fid_mr *mr;
	rc_region *r;
	int rc = fi_mr_reg(p->domain, start, n, remote ? FI_REMOTE_READ : FI_READ | FI_SEND | FI_RECV, 0, key, 0, &mr, NULL);

	if (rc) {
		fail(p, e, "memory cannot be registered", rc);
		return NULL;
	}
	r = rc_alloc(sizeof *r);
	r->mr = mr;
	r->start = start;
	r->n = n;
	r->remote = (rc_remote){ .key = fi_mr_key(mr), .base = mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)start : 0 };
	rc_list_append(&p->regions, &r->link);
	return r;
}

void rc_endpoint_unregister(rc_endpoint *p, rc_region *r)
{
	(void)p;
	if (!r)
		return;
	rc_list_remove(&r->link);
	fi_close(&r->mr->fid);
	free(r);
}

rc_remote rc_region_remote(const rc_region *r)
{
	return r->remote;
}

bool rc_region_holds(const rc_region *r, const void *start, uint64_t n)
{
	const uint8_t *p = start;

	return p >= r->start && n <= r->n && (uint64_t)(p - r->start) <= r->n - n;
}

/* ---- operations ---- */

static ssize_t post(rc_endpoint *p, rc_op *op)
{
	switch (op->kind) {
	case READ:
		return fi_read(p->ep, op->buffer, op->n, op->description, op->peer, op->from, op->key, op);
	case SEND:
		return fi_tsend(p->ep, op->buffer, op->n, op->description, op->peer, op->tag, op);
	default:
		return fi_trecv(p->ep, op->buffer, op->n, op->description, FI_ADDR_UNSPEC, op->tag, 0, op);
	}
}

static int start(rc_endpoint *p, rc_op *op, const rc_region *local, rc_error *e)
{
	ssize_t rc = -FI_EAGAIN;

	op->busy = false;
	if (p->offer.registers && !local)
		return rc_fail(e, RC_E_INVALID, "fabric %s: memory of an operation must be registered", p->offer.provider);
	if (op->n > p->offer.max_message)
		return rc_fail(e, RC_E_INVALID, "fabric %s: %zu bytes in one operation, at most %llu go", p->offer.provider, op->n,
		               (unsigned long long)p->offer.max_message);
	op->description = local ? fi_mr_desc(local->mr) : NULL;
	op->busy = true; /* some providers end it inside the call, and tell later */
	if (rc_list_empty(&p->waiting)) /* else it would overtake */
		rc = post(p, op);
	op->busy = !rc || rc == -FI_EAGAIN;
	if (!op->busy)
		return fail(p, e, op->kind == READ ? "read" : op->kind == SEND ? "send" : "receive", rc);
	rc_list_append(rc ? &p->waiting : &p->posted, &op->link);
	p->n_ops++;
	return 0;
}

int rc_endpoint_read(rc_endpoint *p, uint64_t peer, void *to, size_t n, const rc_region *local, const rc_remote *from, uint64_t offset,
                     rc_op *op, rc_error *e)
{
	op->kind = READ;
	op->peer = peer;
	op->buffer = to;
	op->n = n;
	op->key = from->key;
	op->from = from->base + offset;
	return start(p, op, local, e);
}

int rc_endpoint_send(rc_endpoint *p, uint64_t peer, const void *bytes, size_t n, const rc_region *local, uint64_t tag, rc_op *op,
                     rc_error *e)
{
	op->kind = SEND;
	op->peer = peer;
	op->buffer = (void *)(uintptr_t)bytes;
	op->n = n;
	op->tag = tag;
	return start(p, op, local, e);
}

int rc_endpoint_receive(rc_endpoint *p, void *to, size_t n, const rc_region *local, uint64_t tag, rc_op *op, rc_error *e)
{
	op->kind = RECEIVE;
	op->peer = 0;
	op->buffer = to;
	op->n = n;
	op->tag = tag;
	return start(p, op, local, e);
}

size_t rc_endpoint_open_ops(const rc_endpoint *p)
{
	return p->n_ops;
}

/* ---- progress ---- */

static int take_errors(rc_endpoint *p, rc_error *e)
{
	struct fi_cq_err_entry entry = { 0 };
	ssize_t rc = fi_cq_readerr(p->cq, &entry, 0);
	char text[128];
	rc_error why;
	rc_op *op = entry.op_context;

	if (rc == -FI_EAGAIN)
		return 0;
	if (rc < 0)
		return fail(p, e, "the completion queue's error cannot be read", rc);
	if (!op || !op->busy) /* of a provider's own connection, or told before */
		return 0;
	text[0] = '\0';
	fi_cq_strerror(p->cq, entry.prov_errno, entry.err_data, text, sizeof text);
	rc_fail(&why, entry.err == FI_ECANCELED ? RC_E_CANCELLED : RC_E_UNAVAILABLE, "fabric %s: %s: %s%s%s", p->offer.provider,
	        op->kind == READ ? "read" : op->kind == SEND ? "send" : "receive", p->library->strerror(entry.err), text[0] ? ", " : "", text);
	end_op(p, op, 0, &why);
	return 1;
}

static int post_waiting(rc_endpoint *p)
{
	int ended = 0;

	while (!rc_list_empty(&p->waiting)) {
		rc_op *op = RC_CONTAINER(p->waiting.next, rc_op, link);
		ssize_t rc = post(p, op);
		rc_error e;

		if (rc == -FI_EAGAIN)
			break;
		if (rc == 0) {
			rc_list_remove(&op->link);
			rc_list_append(&p->posted, &op->link);
			continue;
		}
		fail(p, &e, "a waiting operation", rc);
		end_op(p, op, 0, &e);
		ended++;
	}
	return ended;
}

int rc_endpoint_poll(rc_endpoint *p, rc_error *e)
{
	struct fi_cq_tagged_entry entries[CQ_BATCH];
	int ended = 0;

	for (;;) {
		ssize_t n = fi_cq_read(p->cq, entries, CQ_BATCH);

		if (n == -FI_EAGAIN || n == 0)
			break;
		if (n == -FI_EAVAIL) {
			int rc = take_errors(p, e);

			if (rc < 0)
				return -1;
			ended += rc;
			continue;
		}
		if (n < 0)
			return fail(p, e, "the completion queue", n);
		for (ssize_t i = 0; i < n; i++) {
			rc_op *op = entries[i].op_context;

			if (!op || !op->busy)
				continue;
			end_op(p, op, entries[i].len, NULL);
			ended++;
		}
	}
	return ended + post_waiting(p);
}

int rc_endpoint_fd(const rc_endpoint *p)
{
	return p->fd;
}

bool rc_endpoint_may_wait(rc_endpoint *p)
{
	struct fid *fids[] = { &p->cq->fid };

	return p->fd >= 0 && rc_list_empty(&p->waiting) && fi_trywait(p->fabric, fids, 1) == FI_SUCCESS;
}
