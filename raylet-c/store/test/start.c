/* Start: options and system config that cannot be, folders that are missing or full, and what is left behind. */
#include "raylet-c/store/test/store_test.h"

#include <sys/mount.h>

#include "raylet-c/store/config.h"
#include "raylet-c/store/segment.h"

static char top[64];

static void make_top(void)
{
	snprintf(top, sizeof top, "/tmp/rc_start_XXXXXX");
	if (!mkdtemp(top))
		abort();
	rc_log_level(RC_ERROR);
	loop = rc_loop_create();
}

static void remove_top(void)
{
	rc_loop_destroy(loop);
	nftw(top, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *try_start(rc_store_options o) /* the error, "" when it starts */
{
	static rc_error e;
	rc_store *s;

	o.node_id = rc_id_random(RC_NODE_ID);
	e.text[0] = 0;
	s = rc_store_create(loop, rc_dialect_find("2.60.0", NULL), &o, NULL, NULL, &e);
	if (s)
		rc_store_destroy(s);
	CHECK((s == NULL) == (e.text[0] != 0));
	CHECK_EQ_INT(0, count_entries(top));
	return e.text;
}

static void names_what_is_wrong(void)
{
	char path[80], file[80], longer[300];
	rc_store_options ok;
	int fd;

	make_top();
	snprintf(path, sizeof path, "%s/plasma", top);
	ok = (rc_store_options){ .socket_path = path, .capacity = MB, .plasma_dir = "/dev/shm", .session_dir = top };
	CHECK_STR("", try_start(ok));
#define WITH(field, value, word)                                         \
	do {                                                             \
		rc_store_options o = ok;                                 \
		o.field = value;                                         \
		CHECK(strstr(try_start(o), word) != NULL);               \
	} while (0)
	WITH(plasma_dir, "/no/such/folder", "/no/such/folder");
	WITH(plasma_dir, NULL, "plasma_directory");
	WITH(plasma_dir, "/dev/null", "not a folder");
	WITH(plasma_dir, "/proc", "/proc"); /* nothing can be made there */
	WITH(capacity, 0, "0 bytes");
	WITH(capacity, UINT64_MAX, "object_store_memory");
	WITH(huge_pages, true, "hugetlbfs");
	WITH(socket_path, "/no/such/folder/plasma", "/no/such/folder/plasma");
	memset(longer, 'x', sizeof longer);
	memcpy(longer, "/tmp/", 5);
	longer[250] = 0;
	WITH(socket_path, longer, "107");
	WITH(system_config, "{", "not a JSON object");
	WITH(system_config, "[1]", "not a JSON object");
	WITH(system_config, "{\"object_spilling_threshold\": \"much\"}", "object_spilling_threshold is \"much\"");
	WITH(system_config, "{\"object_spilling_config\": \"{\"}", "object_spilling_config");
	/* The socket's name is taken: it belongs to someone else and stays. */
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	close(fd);
	{
		rc_error e;

		CHECK(rc_store_create(loop, rc_dialect_find("2.60.0", NULL), &ok, NULL, NULL, &e) == NULL);
		CHECK(strstr(e.text, path) != NULL);
		CHECK(access(path, F_OK) == 0);
		unlink(path);
	}
	/* Storage that nobody serves and folders that only help are told, not fatal. */
	ok.system_config = "{\"object_spilling_config\": \"{\\\"type\\\": \\\"smart_open\\\"}\"}";
	CHECK_STR("", try_start(ok));
	ok.system_config = NULL;
	ok.fallback_dir = "/no/such/folder";
	ok.session_dir = "/proc/nothing";
	CHECK_STR("", try_start(ok));
	snprintf(file, sizeof file, "%s/deep/er", top);
	ok.session_dir = file;
	{
		rc_error e;
		rc_store *s = rc_store_create(loop, rc_dialect_find("2.60.0", NULL), &ok, NULL, NULL, &e);

		CHECK(s && strcmp(rc_store_spill_type(s), "filesystem") == 0);
		CHECK(access(file, F_OK) == 0);
		rc_store_destroy(s);
		CHECK_EQ_INT(0, count_entries(file));
	}
	remove_top();
}

static void reads_the_system_config(void)
{
	rc_store_config c;
	rc_error e;

	CHECK_EQ_INT(0, rc_store_config_read(NULL, &c, &e));
	CHECK(c.spilling && !c.spill_type && c.spilling_threshold == 0.8 && c.min_spilling_size == 100 * MB && c.max_fused_objects == 2000);
	CHECK(c.grace_ms == 2000 && c.fs_capacity_threshold == 0.95 && c.max_io_workers == 4 && !c.max_spilling_file_size);
	rc_store_config_free(&c);
	setenv("RAY_min_spilling_size", "7", 1);
	setenv("RAY_object_spilling_threshold", "0.5", 1);
	CHECK_EQ_INT(0, rc_store_config_read(
		"{\"object_spilling_threshold\": 0.6, \"max_spilling_file_size_bytes\": -1, \"oom_grace_period_s\": \"3\","
		"\"automatic_object_spilling_enabled\": false, \"other\": [], \"object_spilling_config\": "
		"\"{\\\"type\\\": \\\"filesystem\\\", \\\"params\\\": {\\\"directory_path\\\": [\\\"/a\\\", \\\"/b\\\"]}}\"}", &c, &e));
	CHECK(c.min_spilling_size == 7 && c.spilling_threshold == 0.6 && c.max_spilling_file_size == 0 && !c.spilling && c.grace_ms == 3000);
	CHECK_STR("filesystem", c.spill_type);
	CHECK_EQ_INT(2, c.n_spill_dirs);
	CHECK_STR("/b", c.spill_dirs[1]);
	rc_store_config_free(&c);
	unsetenv("RAY_min_spilling_size");
	unsetenv("RAY_object_spilling_threshold");
	CHECK_EQ_INT(0, rc_store_config_read("{\"object_spilling_config\": \"\"}", &c, &e));
	CHECK(!c.spill_type);
	rc_store_config_free(&c);
	CHECK(rc_store_config_read("{\"object_spilling_config\": {\"type\": \"filesystem\", \"params\": {\"directory_path\": \"relative\"}}}",
	                           &c, &e) < 0);
	CHECK(strstr(e.text, "relative") != NULL);
	CHECK(rc_store_config_read("{\"max_io_workers\": true}", &c, &e) < 0);
}

/* A file system of 16 MiB in place of /dev/shm. Needs the right to mount. */
static void lives_with_a_full_memory_file_system(void)
{
	char dir[64], path[100];
	client *c;
	rc_id ids[12];
	place p;
	int fd, on_disk = 0;
	uint64_t unused, total;
	rc_error e;

	snprintf(dir, sizeof dir, "/tmp/rc_shm_XXXXXX");
	if (!mkdtemp(dir))
		abort();
	if (mount("tmpfs", dir, "tmpfs", 0, "size=16m") < 0) {
		printf("# no right to mount: not tried\n");
		rmdir(dir);
		return;
	}
	snprintf(path, sizeof path, "%s/filler", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(posix_fallocate(fd, 0, 8 * (off_t)MB) == 0); /* of someone else: 8 are left, and the store wants 14 */
	open_store((setup){ .plasma_dir = dir, .capacity = 14 * MB,
	                    .config = "{\"oom_grace_period_s\": 0.2, \"min_spilling_size\": 1000000}" });
	c = join_store();
	for (int i = 0; i < 12; i++) {
		ids[i] = rc_id_random(RC_OBJECT_ID);
		p = create(c, &ids[i], NULL, MB, 0);
		CHECK_EQ_INT(RC_PE_OK, p.error);
		if (p.error != RC_PE_OK)
			break;
		fill(&p, (unsigned)i); /* every page is touched: nobody dies */
		on_disk += p.fallback;
		seal(c, &ids[i]);
	}
	CHECK(on_disk >= 5 && on_disk <= 8);
	CHECK(rc_disk_space(dir, &unused, &total, &e) == 0 && unused >= 16 * MB / 20); /* left for others */
	for (int i = 0; i < 12; i++) {
		p = get(c, &ids[i], 0);
		CHECK(is_filled(&p, (unsigned)i));
	}
	/* Primary copies that nobody reads make room by being spilled. */
	leave_store(c);
	c = join_store();
	for (int i = 0; i < 12; i++)
		rc_store_pin(store, &ids[i]);
	for (int i = 0; i < 4; i++) {
		rc_id id = rc_id_random(RC_OBJECT_ID);

		p = create(c, &id, NULL, MB, 0);
		CHECK(p.error == RC_PE_OK && !p.fallback);
	}
	CHECK(n_spilled >= 4);
	/* More memory is used once there is more. */
	close(fd);
	unlink(path);
	pump(1200);
	ids[0] = rc_id_random(RC_OBJECT_ID);
	p = create(c, &ids[0], NULL, 8 * MB, 0);
	CHECK(p.error == RC_PE_OK && !p.fallback);
	fill(&p, 3);
	leave_store(c);
	close_store();
	CHECK_EQ_INT(0, count_entries(dir));
	umount(dir);
	rmdir(dir);
}

/* A disk of 8 MiB for what does not fit in memory. */
static void lives_with_a_full_disk(void)
{
	char dir[64];
	client *c;
	rc_store_options o = { .capacity = 4 * MB, .plasma_dir = "/dev/shm", .node_id = rc_id_random(RC_NODE_ID) };
	rc_id ids[16];
	rc_error e;
	int made = 0;
	place p = { 0 };

	snprintf(dir, sizeof dir, "/tmp/rc_disk_XXXXXX");
	if (!mkdtemp(dir))
		abort();
	if (mount("tmpfs", dir, "tmpfs", 0, "size=8m") < 0) {
		printf("# no right to mount: not tried\n");
		rmdir(dir);
		return;
	}
	loop = rc_loop_create();
	snprintf(socket_path, sizeof socket_path, "%s/plasma", dir);
	o.socket_path = socket_path;
	o.fallback_dir = o.session_dir = dir;
	o.system_config = "{\"oom_grace_period_s\": 0.2, \"min_spilling_size\": 1000000, \"local_fs_capacity_threshold\": 0.9}";
	store = rc_store_create(loop, rc_dialect_find("2.60.0", NULL), &o, &(rc_store_ops){ 0 }, NULL, &e);
	CHECK(store != NULL);
	c = join_store();
	for (; made < 16; made++) {
		ids[made] = rc_id_random(RC_OBJECT_ID);
		p = create(c, &ids[made], NULL, MB, 0);
		if (p.error != RC_PE_OK)
			break;
		fill(&p, (unsigned)made);
		seal(c, &ids[made]);
		rc_store_pin(store, &ids[made]);
		if (!p.fallback)
			release(c, &ids[made]);
	}
	CHECK_EQ_INT(RC_PE_NO_DISK, p.error);
	CHECK(made >= 9 && made <= 12);
	for (int i = 0; i < made; i++)
		CHECK(rc_store_contains(store, &ids[i]) || rc_store_spilled_url(store, &ids[i]));
	/* Freed ones make room again. */
	leave_store(c);
	rc_store_delete(store, ids, (size_t)made);
	pump(1100);
	c = join_store();
	ids[0] = make(c, 3 * MB, 1);
	CHECK(contains(c, &ids[0]));
	leave_store(c);
	rc_store_destroy(store);
	CHECK_EQ_INT(0, count_entries(dir));
	pump(10);
	rc_loop_destroy(loop);
	umount(dir);
	rmdir(dir);
}

int main(void)
{
	RUN(names_what_is_wrong, "a bad option is refused by name and reason, and nothing is left behind");
	RUN(reads_the_system_config, "the system config counts before the environment, and both before the defaults");
	RUN(lives_with_a_full_memory_file_system, "when the memory file system is full, objects spill or go to disk, nobody dies by SIGBUS");
	RUN(lives_with_a_full_disk, "when the disk is full too, creation is refused with out of disk and what was there stays");
	return test_end();
}
