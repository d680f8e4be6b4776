/* The whole store under any order of what clients and the daemon do, over its real socket. The input: a byte of options, then
 * steps of two bytes, what and with which client, object and size; or a frame of any bytes. At the end everything is let go
 * and deleted, and then nothing may be left: no memory in use, no file, no waiting request. */
#include "raylet-c/store/test/store_test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CLIENTS = 2, IDS = 8, MAX_STEPS = 400 };

static client *clients[CLIENTS];
static rc_id ids[IDS];
static const rc_hold *holds[IDS];
static rc_store_buffer *buffers[64];
static size_t n_buffers;
static uint64_t numbers, own_numbers[16];

static void must(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "not so: %s\n", what);
	abort();
}

static void drain(void)
{
	static char rubbish[1 << 16];

	for (int i = 0; i < CLIENTS; i++)
		while (clients[i] && recv(clients[i]->fd, rubbish, sizeof rubbish, MSG_DONTWAIT) > 0)
			;
}

static void send_frame(client *c, int64_t type, const void *body, size_t n)
{
	int64_t head[3] = { 0x5241590000000000, type, (int64_t)n };

	/* The store may have closed it: then these fail. */
	if (send(c->fd, head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT) > 0 && n)
		(void)!send(c->fd, body, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void send_buf(client *c, int64_t type, rc_buf *body)
{
	send_frame(c, type, body->p, body->n);
	rc_buf_free(body);
}

static void send_one(client *c, rc_plasma type, const rc_id *id, bool flag)
{
	rc_buf body = { 0 };
	rc__flat_writer w = rc__flat_start(&body, 2);
	size_t at = rc__flat_put_offset(&w, 0);

	rc__flat_put_int(&w, 1, 1, flag);
	rc__flat_finish(&w);
	rc__flat_string(&w, at, rc_id_view(id));
	send_buf(c, type, &body);
}

static void send_create(client *c, const rc_id *id, uint64_t data_size, bool at_once, bool is_mutable)
{
	rc_buf body = { 0 };
	rc__flat_writer w = rc__flat_start(&body, 11);
	size_t at;

	rc__flat_put_int(&w, 6, 8, (int64_t)data_size);
	rc__flat_put_int(&w, 7, 8, 3);
	at = rc__flat_put_offset(&w, 0);
	rc__flat_put_int(&w, 5, 1, is_mutable);
	rc__flat_put_int(&w, 10, 1, at_once);
	rc__flat_finish(&w);
	rc__flat_string(&w, at, rc_id_view(id));
	send_buf(c, RC_P_CREATE, &body);
	numbers++;
}

static void send_retry(client *c, const rc_id *id, uint64_t number)
{
	rc_buf body = { 0 };
	rc__flat_writer w = rc__flat_start(&body, 2);
	size_t at;

	rc__flat_put_int(&w, 1, 8, (int64_t)number);
	at = rc__flat_put_offset(&w, 0);
	rc__flat_finish(&w);
	rc__flat_string(&w, at, rc_id_view(id));
	send_buf(c, RC_P_CREATE_RETRY, &body);
}

static void send_many(client *c, rc_plasma type, size_t first, size_t n, int64_t timeout_ms)
{
	rc_buf body = { 0 };
	rc__flat_writer w = rc__flat_start(&body, 2);
	rc_id some[IDS];
	size_t at;

	for (size_t i = 0; i < n; i++)
		some[i] = ids[(first + i) % IDS];
	if (type == RC_P_GET)
		rc__flat_put_int(&w, 1, 8, timeout_ms);
	at = rc__flat_put_offset(&w, type == RC_P_GET ? 0 : 1);
	rc__flat_finish(&w);
	rc__flat_ids(&w, at, some, n);
	send_buf(c, type, &body);
}

static void got_buffer(void *arg, rc_store_buffer *b, rc_plasma_error why)
{
	(void)arg;
	must((b != NULL) == (why == RC_PE_OK), "a buffer comes with OK and only then");
	if (!b)
		return;
	memset(b->data, 7, b->data_size + b->metadata_size);
	if (n_buffers == 64)
		rc_store_abort(store, b);
	else
		buffers[n_buffers++] = b;
}

static void restored(void *arg, const rc_id *id, const char *error)
{
	(void)arg;
	if (!*error)
		rc_store_contains(store, id);
}

static void got_bytes(void *arg, uint8_t *bytes, size_t n, const char *error)
{
	(void)arg, (void)n;
	must(bytes != NULL || *error, "a failed read has a reason");
	free(bytes);
}

static void daemon_step(unsigned what, unsigned i, uint64_t bytes)
{
	rc_store_new new_object = { .id = ids[i], .data_size = bytes, .metadata_size = 3, .source = RC_RECEIVED };

	switch (what) {
	case 0:
		rc_store_pin(store, &ids[i]);
		break;
	case 1:
		rc_store_unpin(store, &ids[i]);
		break;
	case 2:
		rc_store_delete(store, &ids[i], 1);
		break;
	case 3:
		if (!holds[i])
			holds[i] = rc_store_hold(store, &ids[i]);
		break;
	case 4:
		rc_store_release(store, holds[i]);
		holds[i] = NULL;
		break;
	case 5:
		rc_store_restore(store, &ids[i], NULL, restored, NULL);
		break;
	case 6:
		own_numbers[numbers++ % 16] = rc_store_create_object(store, &new_object, got_buffer, NULL);
		break;
	case 7:
		rc_store_create_cancel(store, own_numbers[bytes % 16]);
		break;
	case 8:
		if (n_buffers)
			rc_store_seal(store, buffers[--n_buffers]);
		break;
	case 9:
		if (n_buffers)
			rc_store_abort(store, buffers[--n_buffers]);
		break;
	case 10:
		rc_store_read_spilled(store, &ids[i], bytes / 2, bytes / 2, got_bytes, NULL);
		break;
	case 11:
		rc_store_put(store, &new_object, (rc_view){ 0 }, rc_view_str("1"));
		break;
	default:
		rc_store_restore_cancel(store, &ids[i], restored, NULL);
	}
}

static void client_step(client *c, unsigned what, unsigned i, unsigned small, uint64_t bytes)
{
	switch (what) {
	case 0:
	case 1:
		send_create(c, &ids[i], bytes, what == 1, small == 15);
		break;
	case 2:
		send_retry(c, &ids[i], numbers - small);
		break;
	case 3:
		send_one(c, RC_P_SEAL, &ids[i], false);
		break;
	case 4:
		send_one(c, RC_P_RELEASE, &ids[i], small & 1);
		break;
	case 5:
		send_one(c, RC_P_ABORT, &ids[i], false);
		break;
	case 6:
		send_many(c, RC_P_GET, i, small % IDS, small % 3 == 0 ? 0 : small % 3 == 1 ? -1 : 2);
		break;
	case 7:
		send_many(c, RC_P_DELETE, i, small % IDS, 0);
		break;
	default:
		send_one(c, RC_P_CONTAINS, &ids[i], false);
	}
}

static void everything_ends(void)
{
	uint64_t until = rc_now_ms() + 20000;
	rc_store_stats st;

	for (int i = 0; i < CLIENTS; i++)
		leave_store(clients[i]);
	for (int i = 0; i < 16; i++)
		rc_store_create_cancel(store, own_numbers[i]);
	for (int i = 0; i < IDS; i++)
		rc_store_release(store, holds[i]);
	do { /* what is restored or created meanwhile ends too */
		while (n_buffers)
			rc_store_abort(store, buffers[--n_buffers]);
		rc_store_delete(store, ids, IDS);
		pump(1);
		rc_store_get_stats(store, &st);
	} while ((st.allocated_bytes || st.spill_files_now || st.restoring_objects || st.spilling_objects || st.waiting_creates) &&
	         rc_now_ms() < until);
	must(st.allocated_bytes == 0 && st.fallback_bytes == 0, "memory is given back");
	must(st.used_bytes == 0 && st.local_objects == 0 && st.unsealed_bytes == 0 && st.unsealed_objects == 0, "no object is counted");
	must(st.in_use_bytes == 0 && st.in_use_objects == 0 && st.primary_bytes == 0 && st.primary_objects == 0, "nothing is in use or primary");
	must(st.spilled_bytes_now == 0 && st.spilled_objects_now == 0 && st.spill_files_now == 0, "no spilled copy is counted");
	must(st.spilling_bytes == 0 && st.spilling_objects == 0 && st.restoring_objects == 0, "nothing is on its way");
	must(st.waiting_creates == 0 && st.waiting_bytes == 0 && st.waiting_gets == 0 && st.clients == 0, "nobody waits");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const configs[] = {
		"{\"oom_grace_period_s\": 0, \"object_spilling_threshold\": 0.3, \"min_spilling_size\": 100000}",
		"{\"oom_grace_period_s\": 0.005, \"object_spilling_threshold\": 0.8}",
		"{\"oom_grace_period_s\": 0, \"automatic_object_spilling_enabled\": false}",
		"{\"oom_grace_period_s\": 0.01, \"object_spilling_threshold\": 0, \"min_spilling_size\": 0, \"max_fused_object_count\": 2}",
	};
	size_t at = 1;

	if (size < 3)
		return 0;
	open_store((setup){ .capacity = MB, .config = configs[data[0] & 3], .no_fallback = data[0] & 4, .max_objects = data[0] & 8 ? 5 : 0 });
	memset(holds, 0, sizeof holds);
	memset(own_numbers, 0, sizeof own_numbers);
	n_buffers = 0;
	numbers = 0;
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = join_store();
	for (int i = 0; i < IDS; i++) {
		memset(&ids[i], i + 1, sizeof ids[i]);
		ids[i].n = RC_OBJECT_ID;
	}
	for (int steps = 0; steps < MAX_STEPS && at + 2 <= size; steps++, at += 2) {
		unsigned what = data[at] & 31, which = data[at] >> 5, i = data[at + 1] & 7, small = data[at + 1] >> 4;
		client **c = &clients[which & 1];
		uint64_t bytes = small < 12 ? (uint64_t)small * 20000 : (uint64_t)(small - 11) * 300000;

		if (what < 13) {
			daemon_step(what, i, bytes);
		} else if (what < 22) {
			client_step(*c, what - 13, i, small, bytes);
		} else if (what < 25) {
			pump(small == 15 ? 3 : 0);
		} else if (what == 25) {
			leave_store(*c);
			*c = join_store();
		} else if (what == 26) { /* a frame of the bytes that follow */
			size_t n = small * 8;

			n = n > size - at - 2 ? size - at - 2 : n;
			send_frame(*c, i + 1, data + at + 2, n);
			at += n;
		} else {
			client_step(*c, what & 7, i, small, bytes);
		}
		if (which & 2)
			pump(0);
		drain();
	}
	everything_ends();
	rc_store_destroy(store);
	store = NULL;
	must(count_entries(folder) == 0, "no file is left");
	pump(1);
	rc_loop_destroy(loop);
	nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return 0;
}
