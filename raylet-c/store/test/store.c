/* The store as clients of its socket see it, and the functions for the rest of the daemon. */
#include "raylet-c/store/test/store_test.h"

static void tells_its_capacity(void)
{
	rc_buf body = { 0 };
	rc__flat_table t;
	rc__flat_reader r;
	rc__flat_writer w;
	client *c;

	open_store((setup){ 0 });
	c = join_store();
	w = rc__flat_start(&body, 0);
	rc__flat_finish(&w);
	write_frame(c, RC_P_CONNECT, &body);
	CHECK(read_frame(c));
	CHECK_EQ_INT(RC_P_CONNECT_REPLY, c->type);
	r = reply_reader(c, &t);
	CHECK_EQ_INT(8 * MB, rc__flat_int(&r, &t, 0, 8, "capacity"));
	leave_store(c);
	close_store();
}

static void shares_objects(void)
{
	client *a, *b;
	rc_id id = rc_id_random(RC_OBJECT_ID), other;
	place p, q[2];
	rc_id both[2];

	open_store((setup){ 0 });
	a = join_store();
	b = join_store();
	p = create(a, &id, NULL, 100000, 17);
	CHECK_EQ_INT(RC_PE_OK, p.error);
	fill(&p, 1);
	CHECK(!contains(b, &id));
	CHECK_EQ_INT(RC_PE_OK, seal(a, &id));
	CHECK(contains(b, &id));
	CHECK_EQ_INT(1, n_sealed);
	q[0] = get(b, &id, 0);
	CHECK(is_filled(&q[0], 1));
	CHECK_EQ_INT(100000, q[0].data_size);
	CHECK_EQ_INT(17, q[0].metadata_size);
	other = make(a, 5000, 2);
	both[0] = other;
	both[1] = id;
	write_get(b, both, 2, -1);
	read_got(b, q, 2);
	CHECK(is_filled(&q[0], 2));
	CHECK(is_filled(&q[1], 1));
	CHECK_EQ_INT(1, b->n_segments);
	CHECK(silent(a) && silent(b));
	CHECK_EQ_INT(100017 + 5000, figures().used_bytes);
	CHECK_EQ_INT(2, figures().local_objects);
	CHECK_EQ_INT(2, figures().clients);
	leave_store(a);
	leave_store(b);
	CHECK_EQ_INT(0, figures().in_use_objects);
	CHECK_EQ_INT(0, figures().clients);
	close_store();
}

static void answers_errors(void)
{
	client *a, *b;
	rc_id id = rc_id_random(RC_OBJECT_ID), unknown = rc_id_random(RC_OBJECT_ID);

	open_store((setup){ 0 });
	a = join_store();
	b = join_store();
	CHECK_EQ_INT(RC_PE_OK, create(a, &id, NULL, 10, 0).error);
	CHECK_EQ_INT(RC_PE_EXISTS, create(b, &id, NULL, 10, 0).error);
	CHECK_EQ_INT(RC_PE_UNEXPECTED, seal(b, &id));
	CHECK_EQ_INT(RC_PE_OK, seal(a, &id));
	CHECK_EQ_INT(RC_PE_SEALED, seal(a, &id));
	CHECK_EQ_INT(RC_PE_EXISTS, create(a, &id, NULL, 10, 0).error);
	CHECK_EQ_INT(RC_PE_NOT_FOUND, seal(a, &unknown));
	CHECK_EQ_INT(RC_PE_UNEXPECTED, ask_again(a, &id, 4711).error);
	CHECK_EQ_INT(RC_PE_NO_MEMORY, create(a, &unknown, NULL, UINT64_MAX - 3, 10).error);
	CHECK_EQ_INT(RC_PE_NO_MEMORY, create(a, &unknown, NULL, 10, UINT64_MAX).error);
	abort_object(a, &unknown);
	CHECK(!release_unmap(a, &unknown));
	CHECK_EQ_INT(RC_PE_OK, create(a, &unknown, NULL, 0, 0).error);
	leave_store(a);
	leave_store(b);
	close_store();
}

static void gets_wait(void)
{
	client *a, *b;
	rc_id ids[3] = { rc_id_random(RC_OBJECT_ID), rc_id_random(RC_OBJECT_ID), rc_id_random(RC_OBJECT_ID) };
	place p[4], q;
	uint64_t start;

	open_store((setup){ 0 });
	a = join_store();
	b = join_store();
	start = rc_now_ms();
	q = get(b, &ids[0], 60);
	CHECK(q.missing);
	CHECK(rc_now_ms() - start >= 50);
	write_get(b, ids, 2, -1);
	CHECK(silent(b));
	CHECK_EQ_INT(1, figures().waiting_gets);
	for (int i = 0; i < 2; i++) {
		q = create(a, &ids[i], NULL, 100, 0);
		fill(&q, (unsigned)i);
		CHECK(silent(b));
		seal(a, &ids[i]);
		release(a, &ids[i]);
	}
	read_got(b, p, 2);
	CHECK(is_filled(&p[0], 0) && is_filled(&p[1], 1));
	CHECK_EQ_INT(0, figures().waiting_gets);
	/* What is there is answered at the time-out, twice the same counts too, and it is kept meanwhile. */
	write_get(b, (rc_id[]){ ids[0], ids[2], ids[0], ids[2] }, 4, 60);
	read_got(b, p, 4);
	CHECK(is_filled(&p[0], 0) && is_filled(&p[2], 0) && p[1].missing && p[3].missing);
	write_get(b, &ids[2], 1, -1);
	leave_store(b);
	CHECK_EQ_INT(0, figures().waiting_gets);
	CHECK_EQ_INT(RC_PE_OK, create(a, &ids[2], NULL, 1, 1).error);
	CHECK_EQ_INT(RC_PE_OK, seal(a, &ids[2]));
	leave_store(a);
	close_store();
}

static void deletes(void)
{
	client *a, *b;
	rc_id ids[4];
	int32_t errors[4];

	open_store((setup){ 0 });
	a = join_store();
	b = join_store();
	for (int i = 0; i < 3; i++)
		ids[i] = make(a, 1000, 1);
	ids[3] = rc_id_random(RC_OBJECT_ID);
	CHECK(!get(b, &ids[1], 0).missing);
	rc_store_pin(store, &ids[2]);
	delete_objects(a, ids, 4, errors);
	CHECK_EQ_INT(RC_PE_OK, errors[0]);
	CHECK_EQ_INT(RC_PE_IN_USE, errors[1]);
	CHECK_EQ_INT(RC_PE_IN_USE, errors[2]);
	CHECK_EQ_INT(RC_PE_NOT_FOUND, errors[3]);
	CHECK(!contains(a, &ids[0]) && contains(a, &ids[1]) && contains(a, &ids[2]));
	CHECK_EQ_INT(1, n_gone);
	release(b, &ids[1]);
	CHECK(!contains(a, &ids[1]));
	CHECK(contains(a, &ids[2]));
	/* The owner frees it: also while it is in use, then it goes with the last reader. */
	CHECK(!get(b, &ids[2], 0).missing);
	rc_store_delete(store, &ids[2], 1);
	CHECK(!rc_store_pin(store, &ids[2]));
	CHECK(contains(a, &ids[2]));
	CHECK_EQ_INT(1000, figures().used_bytes);
	leave_store(b);
	CHECK(!contains(a, &ids[2]));
	CHECK_EQ_INT(0, figures().used_bytes);
	CHECK_EQ_INT(0, figures().allocated_bytes);
	CHECK_EQ_INT(3, n_gone);
	/* Freed before it is sealed: it goes once it was sealed and let go. */
	CHECK_EQ_INT(RC_PE_OK, create(a, &ids[3], NULL, 10, 0).error);
	rc_store_delete(store, &ids[3], 1);
	CHECK_EQ_INT(RC_PE_OK, seal(a, &ids[3]));
	release(a, &ids[3]);
	CHECK(!contains(a, &ids[3]));
	leave_store(a);
	close_store();
}

static void gives_up_what_was_not_sealed(void)
{
	client *a, *b;
	rc_id ids[3] = { rc_id_random(RC_OBJECT_ID), rc_id_random(RC_OBJECT_ID), rc_id_random(RC_OBJECT_ID) };

	open_store((setup){ 0 });
	a = join_store();
	b = join_store();
	for (int i = 0; i < 3; i++)
		CHECK_EQ_INT(RC_PE_OK, create(a, &ids[i], NULL, 100000, 0).error);
	CHECK_EQ_INT(3, figures().unsealed_objects);
	abort_object(a, &ids[0]);
	release(a, &ids[1]);
	CHECK_EQ_INT(1, figures().unsealed_objects);
	leave_store(a);
	CHECK_EQ_INT(0, figures().unsealed_objects);
	CHECK_EQ_INT(0, figures().allocated_bytes);
	CHECK_EQ_INT(0, n_gone);
	CHECK_EQ_INT(RC_PE_OK, create(b, &ids[2], NULL, 100, 0).error);
	leave_store(b);
	close_store();
}

static uint64_t ask_to_evict(client *c, uint64_t bytes)
{
	rc_buf body = { 0 };
	rc__flat_table t;
	rc__flat_writer w = rc__flat_start(&body, 1);

	rc__flat_put_int(&w, 0, 8, (int64_t)bytes);
	rc__flat_finish(&w);
	write_frame(c, 18, &body);
	if (!read_frame(c))
		return UINT64_MAX;
	CHECK_EQ_INT(19, c->type);
	rc__flat_reader r = reply_reader(c, &t);
	return (uint64_t)rc__flat_int(&r, &t, 0, 8, "num_bytes");
}

static void evicts_when_asked(void)
{
	client *c;
	rc_id ids[4], pinned;

	open_store((setup){ .release = "2.35.0" });
	c = join_store();
	pinned = make(c, MB, 50);
	rc_store_pin(store, &pinned);
	for (int i = 0; i < 4; i++)
		ids[i] = make(c, MB, (unsigned)i);
	CHECK(!get(c, &ids[0], 0).missing); /* in use */
	CHECK_EQ_INT(0, ask_to_evict(c, 0));
	CHECK_EQ_INT(0, n_gone);
	CHECK_EQ_INT(2 * MB, ask_to_evict(c, MB + 1));
	CHECK(contains(c, &ids[0]) && !contains(c, &ids[1]) && !contains(c, &ids[2]) && contains(c, &ids[3]));
	CHECK_EQ_INT(MB, ask_to_evict(c, UINT64_MAX)); /* all that may go */
	CHECK(contains(c, &ids[0]) && contains(c, &pinned));
	write_frame(c, 18, &(rc_buf){ 0 }); /* no table: this is what closes a connection */
	CHECK(!read_frame(c));
	leave_store(c);
	close_store();
}

static void evicts_the_longest_idle(void)
{
	client *c;
	rc_id ids[8], pinned, big;
	const rc_hold *hold;
	place p;

	open_store((setup){ .no_fallback = true });
	c = join_store();
	pinned = make(c, MB, 50);
	rc_store_pin(store, &pinned);
	for (int i = 0; i < 7; i++)
		ids[i] = make(c, MB, (unsigned)i);
	CHECK_EQ_INT(0, n_gone);
	CHECK(!get(c, &ids[0], 0).missing); /* in use */
	release(c, &ids[1]);                /* not held: nothing happens */
	hold = rc_store_hold(store, &ids[2]);
	CHECK(hold != NULL);
	ids[7] = make(c, MB, 7);
	CHECK(contains(c, &ids[0]) && !contains(c, &ids[1]) && contains(c, &ids[2]) && contains(c, &pinned));
	CHECK_EQ_INT(1, n_gone);
	release(c, &ids[0]); /* now it is the one idle for the shortest time */
	big = rc_id_random(RC_OBJECT_ID);
	p = create(c, &big, NULL, 3 * MB, 0); /* one piece: neighbours go, whatever their age */
	CHECK_EQ_INT(RC_PE_OK, p.error);
	CHECK(contains(c, &ids[0]) && contains(c, &ids[2]) && contains(c, &pinned));
	CHECK(hold && filled(hold->data, 0, MB, 2));
	rc_store_release(store, hold);
	/* Everything but the pinned one and what is being created may go, and what is too much is refused. */
	CHECK_EQ_INT(RC_PE_NO_MEMORY, create(c, &ids[1], NULL, 4 * MB, 0).error);
	CHECK_EQ_INT(5, figures().local_objects); /* ..and nothing was evicted in vain */
	CHECK_EQ_INT(RC_PE_OK, create(c, &ids[1], NULL, 3 * MB, 0).error);
	CHECK_EQ_INT(RC_PE_OK, create(c, &ids[4], NULL, MB, 0).error);
	CHECK(contains(c, &pinned));
	CHECK_EQ_INT(RC_PE_NO_MEMORY, create(c, &ids[3], NULL, MB, 0).error);
	leave_store(c);
	close_store();
}

static void creation_waits_for_room(void)
{
	client *a, *b;
	rc_id first = rc_id_random(RC_OBJECT_ID), second = rc_id_random(RC_OBJECT_ID), third = rc_id_random(RC_OBJECT_ID);
	place p, q;

	open_store((setup){ .config = "{\"oom_grace_period_s\": 5}", .no_fallback = true });
	a = join_store();
	b = join_store();
	CHECK_EQ_INT(RC_PE_OK, create(a, &first, NULL, 6 * MB, 0).error);
	p = create_once(b, &second, 4 * MB, 0);
	CHECK(p.retry != 0);
	q = create_once(b, &third, 100, 0); /* there is room for it, but it comes after */
	CHECK(q.retry != 0 && q.retry != p.retry);
	CHECK(ask_again(b, &second, p.retry).retry == p.retry);
	CHECK_EQ_INT(2, figures().waiting_creates);
	CHECK(n_full >= 1);
	/* Someone who cannot wait is served from what is there, or not at all. */
	first = rc_id_random(RC_OBJECT_ID);
	write_create(a, &first, NULL, 1000, 0, true, false);
	CHECK_EQ_INT(RC_PE_OK, read_created(a).error);
	first = rc_id_random(RC_OBJECT_ID);
	write_create(a, &first, NULL, 4 * MB, 0, true, false);
	CHECK_EQ_INT(RC_PE_NO_MEMORY, read_created(a).error);
	leave_store(a);
	p = ask_again(b, &second, p.retry);
	CHECK(p.data != NULL && !p.retry);
	q = ask_again(b, &third, q.retry);
	CHECK(q.data != NULL && !q.retry);
	CHECK_EQ_INT(0, figures().waiting_creates);
	/* A client that goes away takes what it waits for along. */
	first = rc_id_random(RC_OBJECT_ID);
	CHECK(create_once(b, &first, 6 * MB, 0).retry != 0);
	leave_store(b);
	CHECK_EQ_INT(0, figures().waiting_creates);
	CHECK_EQ_INT(0, figures().waiting_bytes);
	CHECK_EQ_INT(0, figures().allocated_bytes);
	close_store();
}

static void falls_back_to_disk(void)
{
	client *a, *b;
	rc_id large = rc_id_random(RC_OBJECT_ID), more = rc_id_random(RC_OBJECT_ID), held = rc_id_random(RC_OBJECT_ID);
	place p, q[2];
	uint64_t start = rc_now_ms();

	open_store((setup){ .config = "{\"oom_grace_period_s\": 0.3}" });
	a = join_store();
	b = join_store();
	p = create_once(a, &large, 20 * MB, 5); /* larger than the store: nothing to wait for */
	CHECK_EQ_INT(RC_PE_OK, p.error);
	CHECK(!p.retry && p.fallback);
	fill(&p, 3);
	CHECK_EQ_INT(RC_PE_OK, seal(a, &large));
	CHECK(release_unmap(a, &large));
	a->segments[0].base = NULL; /* told to unmap it: the next time its descriptor comes again */
	munmap(p.data, 20 * MB + 4096);
	q[0] = get(a, &large, 0);
	CHECK(is_filled(&q[0], 3));
	write_one(a, RC_P_RELEASE, &large, false); /* not told to unmap it: the descriptor stays known */
	pump(5);
	q[0] = get(a, &large, 0);
	CHECK(is_filled(&q[0], 3) && silent(a));
	rc_store_pin(store, &large); /* the primary copy: not to be dropped for what comes */
	start = rc_now_ms();
	CHECK_EQ_INT(RC_PE_OK, create(a, &held, NULL, 7 * MB, 0).error);
	p = create(a, &more, NULL, 4 * MB, 0); /* full of what is in use: after the grace period */
	CHECK(p.fallback);
	CHECK(rc_now_ms() - start >= 300);
	fill(&p, 4);
	seal(a, &more);
	CHECK_EQ_INT(2, figures().local_objects);
	CHECK(figures().fallback_bytes >= 24 * MB);
	write_get(b, (rc_id[]){ large, more }, 2, 0);
	read_got(b, q, 2);
	CHECK(is_filled(&q[0], 3) && is_filled(&q[1], 4));
	CHECK_EQ_INT(2, b->n_segments);
	CHECK_EQ_INT(1, count_entries(folder) - 1); /* the socket and the spill folder: no file has a name */
	rc_store_delete(store, &large, 1);
	leave_store(a);
	leave_store(b);
	CHECK_EQ_INT(0, figures().unsealed_objects);
	CHECK(!rc_store_contains(store, &large));
	CHECK_EQ_INT(4 * MB, figures().fallback_bytes);
	close_store();
}

static int n_created;
static rc_store_buffer *created_buffer;
static rc_plasma_error created_error;

static void on_created(void *arg, rc_store_buffer *b, rc_plasma_error why)
{
	(void)arg;
	n_created++;
	created_buffer = b;
	created_error = why;
}

static void writes_for_the_daemon(void)
{
	rc_store_new what = { .id = rc_id_random(RC_OBJECT_ID), .data_size = 1000, .metadata_size = 10, .source = RC_RECEIVED };
	rc_id first = what.id;
	uint64_t number;
	client *c;
	place p;

	open_store((setup){ .config = "{\"oom_grace_period_s\": 0.2}", .no_fallback = true });
	c = join_store();
	snprintf(what.owner.ip, sizeof what.owner.ip, "10.0.0.1");
	what.owner.port = 77;
	what.owner.worker_id = rc_id_random(RC_WORKER_ID);
	n_created = 0;
	CHECK_EQ_INT(0, rc_store_create_object(store, &what, on_created, NULL));
	CHECK_EQ_INT(1, n_created);
	CHECK_EQ_INT(RC_PE_OK, created_error);
	fill(&(place){ .data = created_buffer->data, .data_size = 1010 }, 9);
	CHECK(!rc_store_contains(store, &what.id));
	CHECK_EQ_INT(RC_PE_EXISTS, create(c, &what.id, NULL, 1, 1).error);
	rc_store_seal(store, created_buffer);
	p = get(c, &what.id, 0);
	CHECK(is_filled(&p, 9));
	CHECK(p.data_size == 1000);
	/* Twice is refused, when it waits too. */
	CHECK_EQ_INT(0, rc_store_create_object(store, &what, on_created, NULL));
	CHECK_EQ_INT(RC_PE_EXISTS, created_error);
	what.id = rc_id_random(RC_OBJECT_ID);
	what.data_size = 7 * MB;
	CHECK_EQ_INT(0, rc_store_create_object(store, &what, on_created, NULL));
	n_created = 0;
	first = what.id;
	what.id = rc_id_random(RC_OBJECT_ID);
	what.data_size = 3 * MB;
	{
		rc_store_buffer *held = created_buffer;

		number = rc_store_create_object(store, &what, on_created, NULL);
		CHECK(number != 0);
		pump(30);
		CHECK_EQ_INT(0, n_created);
		rc_store_create_cancel(store, number);
		number = rc_store_create_object(store, &what, on_created, NULL);
		CHECK(number != 0);
		rc_store_abort(store, held);
		CHECK_EQ_INT(1, n_created);
		CHECK_EQ_INT(RC_PE_OK, created_error);
		rc_store_create_cancel(store, number); /* too late: ignored */
		rc_store_abort(store, created_buffer);
	}
	CHECK(!rc_store_contains(store, &first));
	what.data_size = 9 * MB; /* no disk and larger than the store */
	CHECK_EQ_INT(0, rc_store_create_object(store, &what, on_created, NULL));
	CHECK_EQ_INT(RC_PE_NO_MEMORY, created_error);
	/* A small object at once, as for errors. */
	CHECK_EQ_INT(RC_PE_OK, rc_store_put(store, &what, (rc_view){ 0 }, rc_view_str("23")));
	CHECK_EQ_INT(RC_PE_EXISTS, rc_store_put(store, &what, (rc_view){ 0 }, rc_view_str("23")));
	p = get(c, &what.id, 0);
	CHECK(p.data_size == 0 && p.metadata_size == 2 && memcmp(p.data, "23", 2) == 0);
	leave_store(c);
	close_store();
}

static void limits_the_table(void)
{
	client *c;
	rc_id ids[4];

	open_store((setup){ .max_objects = 3, .no_fallback = true });
	c = join_store();
	for (int i = 0; i < 4; i++)
		ids[i] = make(c, 1000, 1);
	CHECK(!contains(c, &ids[0]) && contains(c, &ids[3]));
	for (int i = 1; i < 4; i++)
		rc_store_pin(store, &ids[i]);
	CHECK_EQ_INT(RC_PE_NO_MEMORY, create(c, &ids[0], NULL, 10, 0).error);
	leave_store(c);
	close_store();
}

static void mutable_objects_have_a_header(void)
{
	client *c;
	rc_id id = rc_id_random(RC_OBJECT_ID);
	uint64_t zero[7] = { 0 };
	uint16_t at;
	rc__flat_table t;
	uint64_t v[6];

	open_store((setup){ 0 });
	c = join_store();
	write_create(c, &id, NULL, 1000, 0, false, true);
	CHECK(read_frame(c));
	(void)reply_reader(c, &t);
	memcpy(&at, c->body.p + t.vtable + 4 + 2 * 2, 2);
	memcpy(v, c->body.p + t.at + at + 16, sizeof v);
	CHECK_EQ_INT(v[0] + 96, v[1]);
	CHECK_EQ_INT(v[1] + 1000, v[3]);
	CHECK_EQ_INT(1, c->body.p[t.at + at + 72]);
	segment_of(c, 1, 1, 8 * MB);
	CHECK(c->segments[0].base[v[0] + 4] >= '0');
	CHECK(memcmp(c->segments[0].base + v[0] + 40, zero, sizeof zero) == 0);
	leave_store(c);
	close_store();
}

static void bad_messages_end_only_their_client(void)
{
	client *good, *bad;
	rc_id id;
	rc_buf body = { 0 };

	open_store((setup){ 0 });
	good = join_store();
	id = make(good, 100, 1);
	for (int type = -1; type < 25; type++) { /* a body of rubbish, or none, for each type */
		for (int full = 0; full < 2; full++) {
			bad = join_store();
			if (full)
				rc_buf_add(&body, "\377\377\377\177rubbish\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
			write_frame(bad, type, &body);
			if (type != RC_P_CONNECT && type != 18)
				CHECK(!read_frame(bad));
			leave_store(bad);
		}
	}
	bad = join_store();
	CHECK(write(bad->fd, "not a frame at all, but text", 28) == 28);
	CHECK(!read_frame(bad));
	leave_store(bad);
	CHECK(contains(good, &id));
	CHECK_EQ_INT(1, figures().clients);
	leave_store(good);
	close_store();
}

static void shows_figures_to_workers(void)
{
	static const char *const releases[] = { "2.35.0", "2.60.0" };
	static const int types[] = { 20, 18 };

	for (int i = 0; i < 2; i++) {
		rc_buf body = { 0 };
		rc__flat_table t;
		rc__flat_reader r;
		client *c;
		rc_view text;

		open_store((setup){ .release = releases[i] });
		c = join_store();
		write_frame(c, types[i], &body);
		CHECK(read_frame(c));
		CHECK_EQ_INT(types[i] + 1, c->type);
		r = reply_reader(c, &t);
		text = rc__flat_bytes(&r, &t, 0, "text");
		CHECK(text.n > 100 && memcmp(text.p, "ObjectStore:", 12) == 0);
		CHECK(!r.failed);
		leave_store(c);
		close_store();
	}
}

static bool count_one(void *arg, const rc_object_info *info)
{
	rc_object_info *sum = arg;

	sum->data_size += info->data_size;
	sum->pinned |= info->pinned;
	sum->clients += info->clients;
	return true;
}

static void lists_objects(void)
{
	Rw__ObjectStoreStats m = RW__OBJECT_STORE_STATS__INIT;
	rc_object_info sum = { 0 };
	rc_buf text = { 0 };
	client *c;
	rc_id id;

	open_store((setup){ 0 });
	c = join_store();
	id = make(c, 1008, 1);
	make(c, 108, 1);
	rc_store_pin(store, &id);
	CHECK(!get(c, &id, 0).missing);
	rc_store_each(store, count_one, &sum);
	CHECK_EQ_INT(1100, sum.data_size);
	CHECK(sum.pinned);
	CHECK_EQ_INT(1, sum.clients);
	rc_store_stats_proto(store, &m);
	CHECK_EQ_INT(8 * MB, RC_GET(&m, object_store_bytes_avail));
	CHECK_EQ_INT(1116, RC_GET(&m, object_store_bytes_used));
	CHECK_EQ_INT(1008, RC_GET(&m, object_store_bytes_primary_copy));
	CHECK_EQ_INT(2, RC_GET(&m, cumulative_created_objects));
	rc_store_debug(store, &text);
	CHECK(strstr(rc_buf_cstr(&text), "sealed objects: 2") != NULL);
	rc_buf_free(&text);
	leave_store(c);
	close_store();
}

int main(void)
{
	RUN(tells_its_capacity, "a client that connects is told the capacity");
	RUN(shares_objects, "an object that one client seals is read by another in the same memory, the descriptor comes once");
	RUN(answers_errors, "creating twice, sealing twice or unknown objects, absurd sizes: each gets its error");
	RUN(gets_wait, "a get waits until all are sealed or its time is over, and answers what is there");
	RUN(deletes, "deleting waits for the last reader, and a client cannot delete a pinned object");
	RUN(gives_up_what_was_not_sealed, "an object aborted, released or left unsealed by its creator gives its memory back");
	RUN(evicts_when_asked, "2.35.0: a client that asks for eviction gets the bytes that went, the longest idle");
	RUN(evicts_the_longest_idle, "a full store evicts the copies that were idle longest, never those pinned, held or in use");
	RUN(creation_waits_for_room, "creations wait in order until there is room, and end with their client");
	RUN(falls_back_to_disk, "objects go to disk when they are larger than the store or the grace period is over");
	RUN(writes_for_the_daemon, "the daemon creates, fills, seals, aborts and cancels like a client");
	RUN(limits_the_table, "more objects than the limit are refused once none can be evicted");
	RUN(mutable_objects_have_a_header, "a mutable object has an empty header of 96 bytes in front of its data");
	RUN(bad_messages_end_only_their_client, "malformed and unknown messages end the connection that sent them and nothing else");
	RUN(shows_figures_to_workers, "the text of figures that workers ask for has the type of their release");
	RUN(lists_objects, "objects and figures are listed for statistics");
	return test_end();
}
