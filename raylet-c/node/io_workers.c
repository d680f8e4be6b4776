/* Spilling to storage that is not files: Ray's IO workers write, read and delete there (CoreWorkerService SpillObjects,
 * RestoreSpilledObjects, DeleteSpilledObjects). The pool starts them when they are wanted, at most max_io_workers of a type,
 * and each does one call at a time.
 *
 *   the store asks --> a job is posted --> the pool gives an IO worker --> the call --> the store is answered, the worker goes back
 *
 * The store is answered once for each job: also when no worker can be started, when it dies in the call (the connection
 * breaks) and when it hangs (CALL_LIMIT_MS). A worker whose call failed is ended, since nobody knows what it does; an error of
 * the storage itself is no failed call: the worker logs it and answers with fewer URLs. How many jobs there are is limited by
 * the store; of deletions there is one at a time. Facts: Ray 2.35.0 and 2.60.0, src/ray/raylet/local_object_manager.cc. */
#include <stdio.h>
#include <stdlib.h>

#include "raylet-c/base/log.h"
#include "raylet-c/node/node.h"

enum { CALL_LIMIT_MS = 600000, DELETE_BATCH = 1000, DELETE_TRIES = 3 };

typedef enum io_kind { IO_SPILL, IO_RESTORE, IO_DELETE } io_kind;

typedef struct io_job {
	rc_daemon *node;
	io_kind kind;
	uint64_t number; /* the store's; 0: a deletion */
	size_t n;        /* objects to spill, URLs to delete */
	rc_id worker;    /* who does it */
	rc_buf request;
	int tries;
} io_job;

static const struct {
	rc_method method;
	int worker_type;
	const char *what;
} kinds[] = {
	[IO_SPILL] = { RC_M_CW_SPILL_OBJECTS, RC_SPILL_WORKER, "spill objects" },
	[IO_RESTORE] = { RC_M_CW_RESTORE_SPILLED, RC_RESTORE_WORKER, "restore an object" },
	[IO_DELETE] = { RC_M_CW_DELETE_SPILLED, RC_SPILL_WORKER, "delete spilled objects" }, /* there is one, since it wrote them */
};

static void delete_next(rc_daemon *n);
static void start(void *arg);

static io_job *new_job(rc_daemon *n, io_kind kind, uint64_t number, size_t count, const void *message)
{
	io_job *j = rc_alloc(sizeof(*j));
	j->node = n;
	j->kind = kind;
	j->number = number;
	j->n = count;
	rc_pack(n->dialect, message, &j->request);
	rc_loop_post(n->loop, start, j);
	return j;
}

static void free_job(io_job *j)
{
	rc_buf_free(&j->request);
	free(j);
}

static void spill_ended(io_job *j, rc_view reply, const char *error)
{
	rc_daemon *n = j->node;
	Rw__SpillObjectsReply *m = *error ? NULL : rc_unpack(n->dialect, &rw__spill_objects_reply__descriptor, reply);
	size_t got = m ? m->n_spilled_objects_url : 0;
	char text[160];
	if (!*error && got < j->n) {
		snprintf(text, sizeof(text), "an IO worker wrote %zu of %zu objects; its log says why (io_worker-*, python-core-spill_worker-*)", got,
		         j->n);
		error = text;
	}
	rc_store_external_spilled(n->store, j->number, m ? (const char *const *)m->spilled_objects_url : NULL, got, error);
	rc_free_message(m);
}

static void delete_ended(io_job *j, const char *error)
{
	rc_daemon *n = j->node;
	if (*error && ++j->tries < DELETE_TRIES) {
		rc_loop_post(n->loop, start, j);
		return;
	}
	if (*error)
		rc_warn("%zu spilled files stay in the storage: %s (tried %d times)", j->n, error, j->tries);
	free_job(j);
	n->io_deleting = false;
	delete_next(n);
}

/* error: "" when the worker has answered. Frees j. */
static void ended(io_job *j, rc_view reply, const char *error)
{
	if (rc_daemon_ending(j->node)) {
		free_job(j);
		return;
	}
	switch (j->kind) {
	case IO_SPILL:
		spill_ended(j, reply, error);
		break;
	case IO_RESTORE:
		rc_store_external_restored(j->node->store, j->number, error);
		break;
	case IO_DELETE:
		delete_ended(j, error);
		return;
	}
	free_job(j);
}

static void answered(void *arg, int status, rc_view reply, const char *detail)
{
	io_job *j = arg;
	rc_daemon *n = j->node;
	rc_worker *w = rc_daemon_ending(n) ? NULL : rc_pool_find(n->pool, &j->worker);
	char text[512] = "";
	if (status != RC_RPC_OK) {
		snprintf(text, sizeof(text), "IO worker %s did not %s: %s", rc_id_to_hex(&j->worker).s, kinds[j->kind].what, detail);
		if (w)
			rc_worker_end(n, w, true, RC_V_EXIT_SYSTEM_ERROR, "%s", text);
	} else if (w) {
		rc_pool_push(n->pool, w);
	}
	ended(j, reply, text);
}

static void popped(void *arg, rc_worker *w, rc_pop_status status, const char *text)
{
	io_job *j = arg;
	rc_daemon *n = j->node;
	if (status != RC_POP_OK) {
		char error[512];
		snprintf(error, sizeof(error), "no IO worker to %s: %s", kinds[j->kind].what, text);
		ended(j, (rc_view){ 0 }, error);
		return;
	}
	char address[80];
	snprintf(address, sizeof(address), "%s:%d", w->ip, w->port);
	j->worker = w->id;
	rc_call(n->rpc, address, rc_method_path(n->dialect, kinds[j->kind].method), rc_view_of(j->request.p, j->request.n), CALL_LIMIT_MS,
	        RC_META_NONE, answered, j);
}

static void start(void *arg)
{
	io_job *j = arg;
	if (rc_daemon_ending(j->node))
		free_job(j);
	else
		rc_pool_pop_io(j->node->pool, kinds[j->kind].worker_type, popped, j);
}

/* ---- what the store asks for ---- */

void rc_io_spill(void *ctx, uint64_t number, const rc_id *ids, const rc_owner *owners, size_t count)
{
	rc_daemon *n = ctx;
	Rw__SpillObjectsRequest m = RW__SPILL_OBJECTS_REQUEST__INIT;
	Rw__ObjectReference *refs = rc_alloc(count * sizeof(*refs)), **pointers = rc_alloc(count * sizeof(*pointers));
	Rw__Address *addresses = rc_alloc(count * sizeof(*addresses));
	for (size_t i = 0; i < count; i++) {
		pointers[i] = &refs[i];
		rw__object_reference__init(&refs[i]);
		RC_SET_ID(refs[i], object_id, &ids[i]);
		rw__address__init(&addresses[i]);
		RC_SET_ID(addresses[i], node_id, &owners[i].node_id);
		RC_SET_ID(addresses[i], worker_id, &owners[i].worker_id);
		addresses[i].ip_address = (char *)owners[i].ip;
		RC_SET(addresses[i], port, owners[i].port);
		refs[i].owner_address = &addresses[i];
	}
	m.object_refs_to_spill = pointers;
	m.n_object_refs_to_spill = count;
	new_job(n, IO_SPILL, number, count, &m);
	free(addresses);
	free(pointers);
	free(refs);
}

void rc_io_restore(void *ctx, uint64_t number, const rc_id *id, const char *url)
{
	Rw__RestoreSpilledObjectsRequest m = RW__RESTORE_SPILLED_OBJECTS_REQUEST__INIT;
	ProtobufCBinaryData bytes = { id->n, (uint8_t *)id->b };
	char *urls = (char *)url;
	m.spilled_objects_url = &urls;
	m.n_spilled_objects_url = 1;
	m.object_ids_to_restore = &bytes;
	m.n_object_ids_to_restore = 1;
	new_job(ctx, IO_RESTORE, number, 1, &m);
}

static void delete_next(rc_daemon *n)
{
	size_t count = n->n_io_deletes < DELETE_BATCH ? n->n_io_deletes : DELETE_BATCH;
	if (n->io_deleting || !count)
		return;
	Rw__DeleteSpilledObjectsRequest m = RW__DELETE_SPILLED_OBJECTS_REQUEST__INIT;
	char **urls = n->io_deletes + n->n_io_deletes - count; /* the last: the order does not matter */
	m.spilled_objects_url = urls;
	m.n_spilled_objects_url = count;
	n->io_deleting = true;
	new_job(n, IO_DELETE, 0, count, &m);
	for (size_t i = 0; i < count; i++)
		free(urls[i]);
	n->n_io_deletes -= count;
}

void rc_io_delete(void *ctx, const char *const *urls, size_t count)
{
	rc_daemon *n = ctx;
	if (n->n_io_deletes + count > n->io_deletes_room) {
		n->io_deletes_room = 2 * (n->n_io_deletes + count);
		n->io_deletes = rc_realloc(n->io_deletes, n->io_deletes_room * sizeof(*n->io_deletes));
	}
	for (size_t i = 0; i < count; i++)
		n->io_deletes[n->n_io_deletes++] = rc_strdup(urls[i]);
	delete_next(n);
}

void rc_io_free(rc_daemon *n)
{
	for (size_t i = 0; i < n->n_io_deletes; i++)
		free(n->io_deletes[i]);
	free(n->io_deletes);
}
