/* Spilling, restoring, reading ranges, and what happens when files or disks fail. */
#include "raylet-c/store/test/store_test.h"

#define CONFIG "{\"oom_grace_period_s\": 0.2, \"min_spilling_size\": 2000000, \"object_spilling_threshold\": 0.8}"

static int n_restored;
static char restore_error[400];

static void on_restored(void *arg, const rc_id *id, const char *error)
{
	(void)arg, (void)id;
	n_restored++;
	snprintf(restore_error, sizeof restore_error, "%s", error);
}

static const char *restore(const rc_id *id) /* "" or the reason */
{
	int before = n_restored;

	rc_store_restore(store, id, NULL, on_restored, NULL);
	WAIT(n_restored > before);
	return restore_error;
}

static rc_owner owner(void)
{
	rc_owner o = { .node_id = rc_id_random(RC_NODE_ID), .worker_id = rc_id_random(RC_WORKER_ID), .port = 4242 };

	snprintf(o.ip, sizeof o.ip, "192.0.2.7");
	return o;
}

static const char *spill_folder(void) /* of this node */
{
	static char path[400];
	DIR *d = opendir(folder);

	path[0] = 0;
	for (struct dirent *entry; d && (entry = readdir(d));)
		if (strncmp(entry->d_name, "ray_spilled_objects_", 20) == 0)
			snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
	if (d)
		closedir(d);
	return path;
}

static uint64_t number_at(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return v;
}

static void writes_the_format_of_ray(void)
{
	client *c;
	rc_id id = rc_id_random(RC_OBJECT_ID);
	rc_owner o = owner();
	uint8_t *bytes = rc_alloc(8 * MB);
	unsigned long long offset, size;
	uint64_t n_owner;
	Rw__Address *address;
	char path[400] = "";
	const char *url;
	place p;
	ssize_t n;
	int fd;

	open_store((setup){ .config = "{\"object_spilling_threshold\": 0.1}" });
	c = join_store();
	p = create(c, &id, &o, 2 * MB, 9);
	fill(&p, 5);
	seal(c, &id);
	CHECK(rc_store_pin(store, &id));
	pump(50);
	CHECK_EQ_INT(0, n_spilled); /* its creator still has it */
	release(c, &id);
	WAIT(n_spilled == 1);
	url = rc_store_spilled_url(store, &id);
	CHECK_STR(last_url, url);
	CHECK(strncmp(url, spill_folder(), strlen(spill_folder())) == 0);
	CHECK(sscanf(url, "%399[^?]?offset=%llu&size=%llu", path, &offset, &size) == 3);
	CHECK_STR("-multi-1", path + strlen(path) - 8);
	CHECK_EQ_INT(strlen(spill_folder()) + 1 + 32 + 8, strlen(path));
	fd = open(path, O_RDONLY);
	n = read(fd, bytes, 8 * MB);
	close(fd);
	CHECK_EQ_INT(0, offset);
	CHECK_EQ_INT(size, n);
	n_owner = number_at(bytes);
	CHECK_EQ_INT(24 + n_owner + 9 + 2 * MB, n);
	CHECK_EQ_INT(9, number_at(bytes + 8));
	CHECK_EQ_INT(2 * MB, number_at(bytes + 16));
	address = rc_unpack(rc_dialect_find("2.60.0", NULL), &rw__address__descriptor, rc_view_of(bytes + 24, n_owner));
	CHECK(address && memcmp(address->worker_id.data, o.worker_id.b, 28) == 0 && address->port == 4242);
	CHECK_STR("192.0.2.7", address->ip_address);
	rc_free_message(address);
	CHECK(filled(bytes + 24 + n_owner, 2 * MB, 9, 5));
	CHECK(filled(bytes + 24 + n_owner + 9, 0, 2 * MB, 5));
	/* The memory copy is still readable. The file goes with its last object. */
	p = get(c, &id, 0);
	CHECK(is_filled(&p, 5));
	release(c, &id);
	rc_store_delete(store, &id, 1);
	WAIT(access(path, F_OK) < 0);
	CHECK_EQ_INT(0, figures().spill_files_now);
	CHECK(rc_store_spilled_url(store, &id) == NULL);
	CHECK(!contains(c, &id));
	free(bytes);
	leave_store(c);
	close_store();
}

static void spills_for_new_objects(void)
{
	client *c;
	rc_id ids[30];
	char path[400];

	open_store((setup){ .config = CONFIG });
	c = join_store();
	for (int i = 0; i < 30; i++) { /* 30 MB of primary copies through a store of 8 */
		ids[i] = make(c, MB, (unsigned)i);
		CHECK(rc_store_pin(store, &ids[i]));
	}
	WAIT(figures().spilling_objects == 0);
	CHECK(figures().spilled_bytes_total >= 22 * MB);
	CHECK_EQ_INT(0, figures().fallback_bytes);
	CHECK(figures().spill_files_now <= figures().spilled_objects_now / 2); /* fused */
	CHECK(figures().spill_time_total_s > 0);
	CHECK_EQ_INT(n_gone, n_gone_spilled);
	for (int i = 0; i < 30; i++) {
		place p;

		if (!rc_store_contains(store, &ids[i])) {
			CHECK(get(c, &ids[i], 0).missing);
			CHECK(rc_store_sizes(store, &ids[i], NULL, NULL, NULL));
			CHECK_STR("", restore(&ids[i]));
		}
		p = get(c, &ids[i], 0);
		CHECK(is_filled(&p, (unsigned)i));
		release(c, &ids[i]);
	}
	CHECK(figures().restored_bytes_total >= 22 * MB);
	CHECK(figures().restored_objects_total >= 22);
	CHECK_STR("", restore(&ids[29])); /* is there: nothing to do */
	snprintf(path, sizeof path, "%s", spill_folder());
	CHECK(count_entries(path) > 0);
	rc_store_delete(store, ids, 30);
	WAIT(count_entries(path) == 0);
	CHECK_EQ_INT(0, figures().used_bytes);
	CHECK_EQ_INT(0, figures().allocated_bytes);
	CHECK_EQ_INT(0, figures().spilled_bytes_now);
	leave_store(c);
	close_store();
}

static void keeps_what_is_read(void)
{
	client *a, *b;
	rc_id ids[8], huge = rc_id_random(RC_OBJECT_ID);
	place p;

	open_store((setup){ .config = CONFIG });
	a = join_store();
	b = join_store();
	for (int i = 0; i < 7; i++) {
		ids[i] = make(a, MB, (unsigned)i);
		rc_store_pin(store, &ids[i]);
		if (i < 3)
			CHECK(!get(b, &ids[i], 0).missing);
	}
	p = create(a, &huge, NULL, 4 * MB, 0);
	CHECK_EQ_INT(RC_PE_OK, p.error);
	CHECK(!p.fallback);
	for (int i = 0; i < 3; i++)
		CHECK(rc_store_contains(store, &ids[i]) && !rc_store_spilled_url(store, &ids[i]));
	for (int i = 3; i < 7; i++)
		CHECK(rc_store_spilled_url(store, &ids[i]) != NULL);
	leave_store(a);
	leave_store(b);
	close_store();
}

static int n_read;
static uint8_t *read_result;
static size_t read_n;

static void on_read(void *arg, uint8_t *bytes, size_t n, const char *error)
{
	(void)arg;
	n_read++;
	free(read_result);
	read_result = bytes;
	read_n = n;
	snprintf(restore_error, sizeof restore_error, "%s", error);
}

static void reads_ranges(void)
{
	static const uint64_t ranges[][2] = { { 0, 1000016 }, { 999990, 26 }, { 1000000, 16 }, { 999999, 2 }, { 5, 0 }, { 1000016, 0 } };
	client *c;
	rc_id id;
	int before;

	open_store((setup){ .config = "{\"object_spilling_threshold\": 0.01}" });
	c = join_store();
	id = rc_id_random(RC_OBJECT_ID);
	{
		place p = create(c, &id, NULL, 1000000, 16);

		fill(&p, 8);
		seal(c, &id);
		release(c, &id);
	}
	rc_store_pin(store, &id);
	WAIT(n_spilled == 1);
	for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
		before = n_read;
		rc_store_read_spilled(store, &id, ranges[i][0], ranges[i][1], on_read, NULL);
		CHECK_EQ_INT(before, n_read);
		WAIT(n_read > before);
		CHECK(read_result && read_n == ranges[i][1]);
		CHECK(filled(read_result, ranges[i][0], ranges[i][1], 8));
	}
	before = n_read;
	rc_store_read_spilled(store, &id, 1000000, 17, on_read, NULL); /* beyond its end */
	WAIT(n_read > before);
	CHECK(!read_result && strstr(restore_error, "outside"));
	/* Deleted while it is read: the read goes on, then the file goes. */
	before = n_read;
	rc_store_read_spilled(store, &id, 0, 1000000, on_read, NULL);
	rc_store_delete(store, &id, 1);
	CHECK_EQ_INT(1, figures().spill_files_now);
	WAIT(n_read > before);
	CHECK(read_result && filled(read_result, 0, 1000000, 8));
	WAIT(count_entries(spill_folder()) == 0);
	before = n_read;
	rc_store_read_spilled(store, &id, 0, 10, on_read, NULL);
	WAIT(n_read > before);
	CHECK(!read_result);
	free(read_result);
	read_result = NULL;
	leave_store(c);
	close_store();
}

/* Makes objects until the first is spilled and gone from memory. */
static rc_id spilled_and_gone(client *c, unsigned seed)
{
	rc_id id = make(c, 3 * MB, seed), filler = rc_id_random(RC_OBJECT_ID);

	rc_store_pin(store, &id);
	CHECK_EQ_INT(RC_PE_OK, create(c, &filler, NULL, 7 * MB, 0).error);
	abort_object(c, &filler);
	CHECK(!rc_store_contains(store, &id) && rc_store_spilled_url(store, &id));
	return id;
}

static void restores_share_and_end(void)
{
	client *c;
	rc_id id, other = rc_id_random(RC_OBJECT_ID);
	int before = n_restored;

	open_store((setup){ .config = CONFIG });
	c = join_store();
	id = spilled_and_gone(c, 1);
	for (int i = 0; i < 3; i++)
		rc_store_restore(store, &id, NULL, on_restored, NULL);
	rc_store_restore(store, &id, NULL, on_restored, &other);
	rc_store_restore_cancel(store, &id, on_restored, &other);
	WAIT(n_restored == before + 3);
	CHECK_EQ_INT(1, figures().restored_objects_total);
	/* Deleted while it is under way, at each step of it. */
	for (int turns = 0; turns < 6; turns++) {
		rc_store_delete(store, &id, 1);
		id = spilled_and_gone(c, 1);
		before = n_restored;
		rc_store_restore(store, &id, NULL, on_restored, NULL);
		for (int i = 0; i < turns && n_restored == before; i++)
			pump(0);
		rc_store_delete(store, &id, 1);
		WAIT(n_restored == before + 1);
		WAIT(figures().spill_files_now == 0 && figures().allocated_bytes == 0);
		CHECK(!rc_store_contains(store, &id));
		CHECK_EQ_INT(0, figures().restoring_objects);
	}
	CHECK(strstr(restore(&other), "no spilled copy") != NULL);
	/* Someone else brings it while the restore waits for room. */
	id = spilled_and_gone(c, 2);
	CHECK_EQ_INT(RC_PE_OK, create(c, &id, NULL, 7 * MB, 0).error);
	before = n_restored;
	rc_store_restore(store, &id, NULL, on_restored, NULL);
	pump(20);
	CHECK_EQ_INT(before, n_restored);
	seal(c, &id);
	WAIT(n_restored == before + 1);
	CHECK_STR("", restore_error);
	leave_store(c);
	close_store();
}

static void waits_for_room_to_restore(void)
{
	client *a, *b;
	rc_id id, big = rc_id_random(RC_OBJECT_ID);
	int before;
	place p;

	open_store((setup){ .config = "{\"oom_grace_period_s\": 10}" });
	a = join_store();
	b = join_store();
	id = spilled_and_gone(a, 1);
	CHECK_EQ_INT(RC_PE_OK, create(b, &big, NULL, 6 * MB, 0).error);
	before = n_restored;
	rc_store_restore(store, &id, NULL, on_restored, NULL);
	pump(100);
	CHECK_EQ_INT(before, n_restored);
	CHECK_EQ_INT(1, figures().waiting_creates);
	rc_store_delete(store, &id, 1); /* it stops waiting.. */
	WAIT(n_restored == before + 1);
	CHECK_EQ_INT(0, figures().waiting_creates);
	leave_store(b);
	id = spilled_and_gone(a, 1);
	b = join_store();
	CHECK_EQ_INT(RC_PE_OK, create(b, &big, NULL, 6 * MB, 0).error);
	before = n_restored;
	rc_store_restore(store, &id, NULL, on_restored, NULL);
	pump(50);
	leave_store(b); /* ..or finds it */
	WAIT(n_restored == before + 1);
	CHECK_STR("", restore_error);
	p = get(a, &id, 0);
	CHECK(is_filled(&p, 1));
	leave_store(a);
	close_store();
}

static void drops_what_cannot_be_read(void)
{
	client *c;
	rc_id id;
	char path[400];
	int fd, gone;

	open_store((setup){ .config = CONFIG });
	c = join_store();
	id = spilled_and_gone(c, 1);
	snprintf(path, sizeof path, "%.*s", (int)strcspn(rc_store_spilled_url(store, &id), "?"), rc_store_spilled_url(store, &id));
	fd = open(path, O_WRONLY);
	CHECK(pwrite(fd, "\377\377", 2, 8) == 2); /* another length of the metadata */
	close(fd);
	gone = n_gone;
	CHECK(strstr(restore(&id), "lengths") != NULL);
	CHECK(rc_store_spilled_url(store, &id) == NULL);
	CHECK(!rc_store_sizes(store, &id, NULL, NULL, NULL));
	CHECK_EQ_INT(gone + 1, n_gone);
	id = spilled_and_gone(c, 1);
	snprintf(path, sizeof path, "%.*s", (int)strcspn(rc_store_spilled_url(store, &id), "?"), rc_store_spilled_url(store, &id));
	CHECK(truncate(path, 100000) == 0);
	CHECK(strstr(restore(&id), "ends at") != NULL);
	CHECK_EQ_INT(0, figures().allocated_bytes);
	id = spilled_and_gone(c, 1);
	unlink(last_url[0] ? (last_url[strcspn(last_url, "?")] = 0, last_url) : "");
	CHECK(strstr(restore(&id), "No such file") != NULL);
	CHECK(rc_store_spilled_url(store, &id) == NULL);
	leave_store(c);
	close_store();
}

static void restores_from_a_url(void)
{
	client *c;
	rc_id id, copy = rc_id_random(RC_OBJECT_ID);
	rc_owner o = owner(), got;
	int before = n_restored;
	place p;

	open_store((setup){ .config = "{\"object_spilling_threshold\": 0.01}" });
	c = join_store();
	id = rc_id_random(RC_OBJECT_ID);
	p = create(c, &id, &o, 1000, 10);
	fill(&p, 6);
	seal(c, &id);
	rc_store_pin(store, &id);
	release(c, &id);
	rc_store_pin(store, &id);
	for (int i = 0; i < 2; i++) {
		rc_id more = make(c, MB, 1);
		rc_store_pin(store, &more);
	}
	WAIT(rc_store_spilled_url(store, &id) != NULL);
	rc_store_restore(store, &copy, rc_store_spilled_url(store, &id), on_restored, NULL);
	WAIT(n_restored > before);
	CHECK_STR("", restore_error);
	p = get(c, &copy, 0);
	CHECK(is_filled(&p, 6) && p.data_size == 1000);
	CHECK(rc_store_sizes(store, &copy, NULL, NULL, &got));
	CHECK(rc_id_eq(&got.worker_id, &o.worker_id) && got.port == o.port && strcmp(got.ip, o.ip) == 0);
	CHECK(rc_store_spilled_url(store, &copy) == NULL);
	for (int i = 0; i < 4; i++) {
		static const char *const bad[] = { "nowhere", "/x?offset=1", "/no/such/file?offset=0&size=100", "?offset=0&size=99" };
		rc_id unknown = rc_id_random(RC_OBJECT_ID);

		before = n_restored;
		rc_store_restore(store, &unknown, bad[i], on_restored, NULL);
		WAIT(n_restored > before);
		CHECK(restore_error[0] != 0);
		CHECK(!rc_store_sizes(store, &unknown, NULL, NULL, NULL));
	}
	leave_store(c);
	close_store();
}

static void deletes_while_spilling(void)
{
	client *c;
	rc_id ids[6];

	open_store((setup){ .config = "{\"object_spilling_threshold\": 0.01}" });
	c = join_store();
	for (int turns = 0; turns < 20; turns++) {
		for (int i = 0; i < 6; i++) {
			ids[i] = make(c, MB, 1);
			rc_store_pin(store, &ids[i]);
			if (i % 2)
				rc_store_delete(store, &ids[i], 1);
			if (i == 4)
				rc_store_unpin(store, &ids[i]);
		}
		for (int i = 0; i < turns; i++)
			pump(0);
		rc_store_delete(store, ids, 6);
		WAIT(figures().spilling_objects == 0);
		CHECK_EQ_INT(0, figures().used_bytes);
		CHECK_EQ_INT(0, figures().spilled_objects_now);
		WAIT(figures().spill_files_now == 0);
		WAIT(count_entries(spill_folder()) == 0);
	}
	leave_store(c);
	close_store();
}

static void ends_while_busy(void) /* what address sanitizer sees is the test */
{
	for (int turns = 0; turns < 8; turns++) {
		client *c;
		rc_id ids[12];

		open_store((setup){ .config = CONFIG });
		c = join_store();
		for (int i = 0; i < 7; i++) {
			ids[i] = make(c, MB, 1);
			rc_store_pin(store, &ids[i]);
		}
		for (int i = 0; i < 4; i++) {
			rc_id id = rc_id_random(RC_OBJECT_ID);

			create_once(c, &id, 2 * MB, 0);
			rc_store_restore(store, &ids[i], NULL, on_restored, NULL);
			rc_store_read_spilled(store, &ids[i], 0, 10000, on_read, NULL);
		}
		for (int i = 0; i < turns; i++)
			pump(0);
		close(c->fd);
		close_store();
		for (size_t i = 0; i < c->n_segments; i++)
			if (c->segments[i].base)
				munmap(c->segments[i].base, c->segments[i].size);
		rc_buf_free(&c->body);
		free(c);
	}
	free(read_result);
	read_result = NULL;
}

static void survives_a_spill_folder_that_fails(void)
{
	client *c;
	rc_id id, other = rc_id_random(RC_OBJECT_ID);
	place p;

	open_store((setup){ .config = CONFIG });
	c = join_store();
	id = make(c, 5 * MB, 1);
	CHECK(rmdir(spill_folder()) == 0);
	rc_store_pin(store, &id);
	p = create(c, &other, NULL, 5 * MB, 0); /* cannot spill: after the grace period it goes to disk */
	CHECK_EQ_INT(RC_PE_OK, p.error);
	CHECK(p.fallback);
	CHECK(rc_store_contains(store, &id));
	CHECK_EQ_INT(0, figures().spilled_objects_total);
	CHECK_EQ_INT(0, figures().spilling_objects);
	p = get(c, &id, 0);
	CHECK(is_filled(&p, 1));
	leave_store(c);
	close_store();
}

static void other_storage_goes_through_callbacks(void)
{
	client *c;
	rc_id ids[3];
	place p;
	int before;
	static const char *const urls[] = { "s3://bucket/key?offset=0&size=10", "s3://bucket/key?offset=10&size=10" };
	const char *config = "{\"object_spilling_threshold\": 0.01, \"object_spilling_config\": \"{\\\"type\\\": \\\"smart_open\\\"}\"}";

	open_store((setup){ .config = config, .external = true });
	CHECK_STR("smart_open", rc_store_spill_type(store));
	c = join_store();
	for (int i = 0; i < 3; i++)
		ids[i] = make(c, 2 * MB, (unsigned)i);
	for (int i = 0; i < 3; i++)
		rc_store_pin(store, &ids[i]);
	WAIT(n_external > 0);
	CHECK_EQ_INT(1, n_external); /* the first alone crosses the threshold: the others wait for it, or go in a second batch */
	rc_store_external_spilled(store, external_job, urls, 1, "");
	CHECK_STR(urls[0], rc_store_spilled_url(store, &ids[0]));
	WAIT(n_external == 2);
	rc_store_external_spilled(store, external_job, urls + 1, 1, "the worker died");
	CHECK_EQ_INT(2, n_spilled);
	CHECK_STR(urls[1], rc_store_spilled_url(store, &ids[1]));
	CHECK(rc_store_spilled_url(store, &ids[2]) == NULL);
	rc_store_external_spilled(store, external_job, urls, 1, ""); /* nobody waits for it: ignored */
	/* Restoring: the IO worker creates it as a client. */
	{
		rc_id filler = rc_id_random(RC_OBJECT_ID);

		CHECK_EQ_INT(RC_PE_OK, create(c, &filler, NULL, 4 * MB, 0).error);
		CHECK(!rc_store_contains(store, &ids[0]));
		abort_object(c, &filler);
	}
	before = n_restored;
	rc_store_restore(store, &ids[0], NULL, on_restored, NULL);
	CHECK(restore_job != 0);
	p = create(c, &ids[0], NULL, 2 * MB - 8, 8);
	fill(&p, 0);
	seal(c, &ids[0]);
	CHECK_EQ_INT(before + 1, n_restored);
	CHECK_STR("", restore_error);
	rc_store_external_restored(store, restore_job, "");
	release(c, &ids[0]);
	restore_job = 0;
	rc_store_restore(store, &ids[1], NULL, on_restored, NULL);
	CHECK(restore_job != 0);
	rc_store_external_restored(store, restore_job, "no such bucket");
	CHECK_STR("no such bucket", restore_error);
	CHECK_STR(urls[1], rc_store_spilled_url(store, &ids[1]));
	rc_store_delete(store, &ids[0], 1);
	CHECK_STR("", deleted_url);
	rc_store_delete(store, &ids[1], 1);
	CHECK(strncmp(deleted_url, "s3://bucket/key", 15) == 0);
	leave_store(c);
	close_store();
}

int main(void)
{
	RUN(writes_the_format_of_ray, "a primary copy over the threshold is written in Ray's format under Ray's file name and URL");
	RUN(spills_for_new_objects, "thirty pinned objects go through a store of eight and come back whole, and their files go with them");
	RUN(keeps_what_is_read, "objects that clients read are not spilled");
	RUN(reads_ranges, "ranges of data and metadata are read from the file, also while the object is deleted");
	RUN(restores_share_and_end, "restores of one object share the work and end when it is deleted or comes by another way");
	RUN(waits_for_room_to_restore, "a restore waits in the creation queue for room");
	RUN(drops_what_cannot_be_read, "a spilled copy that is damaged or missing is told once and dropped");
	RUN(restores_from_a_url, "an object is restored from a URL that another node wrote, with its owner");
	RUN(deletes_while_spilling, "objects deleted while they are written leave no file");
	RUN(ends_while_busy, "the store ends in the middle of disk jobs and leaves nothing behind");
	RUN(survives_a_spill_folder_that_fails, "when spilling fails the objects stay and new ones go to disk");
	RUN(other_storage_goes_through_callbacks, "storage of other kinds is spilled, restored and deleted through the callbacks");
	return test_end();
}
