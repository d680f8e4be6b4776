/* For the store's tests: a store in a folder of its own, and a small plasma client that speaks frames like Ray's. One thread:
 * while the client waits for an answer the loop runs. */
#ifndef RC_STORE_TEST_STORE_TEST_H
#define RC_STORE_TEST_STORE_TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "raylet-c/base/log.h"
#include "raylet-c/base/test.h"
#include "raylet-c/store/store.h"
#include "raylet-c/wire/local_internal.h"

#define MB (UINT64_C(1) << 20)

typedef struct setup { /* what a test may choose; 0 and NULL: as below */
	uint64_t capacity; /* 8 MiB */
	const char *plasma_dir, *config, *release;
	bool no_fallback, external;
	size_t max_objects;
} setup;

static rc_loop *loop;
static rc_store *store;
static char folder[64], socket_path[100];
static int n_sealed, n_gone, n_gone_spilled, n_spilled, n_full;
static int n_clients; /* that the store should know, at most */
static char last_url[400];
static rc_id external_ids[64];
static size_t n_external;
static uint64_t external_job, restore_job;
static char deleted_url[400];

static inline void on_sealed(void *ctx, const rc_id *id, const rc_owner *owner, uint64_t data_size, uint64_t metadata_size,
                             rc_source source, bool by_client)
{
	(void)ctx, (void)id, (void)owner, (void)data_size, (void)metadata_size, (void)source, (void)by_client;
	n_sealed++;
}

static inline void on_gone(void *ctx, const rc_id *id, const rc_owner *owner, bool spilled)
{
	(void)ctx, (void)id, (void)owner;
	n_gone++;
	n_gone_spilled += spilled;
}

static inline void on_spilled(void *ctx, const rc_id *id, const rc_owner *owner, const char *url)
{
	(void)ctx, (void)id, (void)owner;
	n_spilled++;
	snprintf(last_url, sizeof last_url, "%s", url);
}

static inline void on_full(void *ctx)
{
	(void)ctx;
	n_full++;
}

static inline void on_spill_external(void *ctx, uint64_t job, const rc_id *ids, const rc_owner *owners, size_t n)
{
	(void)ctx, (void)owners;
	external_job = job;
	n_external = n;
	for (size_t i = 0; i < n && i < 64; i++)
		external_ids[i] = ids[i];
}

static inline void on_restore_external(void *ctx, uint64_t job, const rc_id *id, const char *url)
{
	(void)ctx, (void)id, (void)url;
	restore_job = job;
}

static inline void on_delete_external(void *ctx, const char *const *urls, size_t n)
{
	(void)ctx, (void)n;
	snprintf(deleted_url, sizeof deleted_url, "%s", urls[0]);
}

static inline void stop_loop(void *arg)
{
	rc_loop_stop(arg);
}

static inline void pump(uint64_t ms)
{
	rc_loop_after(loop, ms, stop_loop, loop);
	rc_loop_run(loop);
}

/* Runs the loop until cond is true, ten seconds at most. */
#define WAIT(cond)                                                                     \
	do {                                                                           \
		uint64_t until_ = rc_now_ms() + 10000;                                 \
		while (!(cond) && rc_now_ms() < until_)                                \
			pump(1);                                                       \
		CHECK(cond);                                                           \
	} while (0)

static inline void open_store(setup t)
{
	rc_store_options o = { .capacity = t.capacity ? t.capacity : 8 * MB, .node_id = rc_id_random(RC_NODE_ID), .max_objects = t.max_objects };
	rc_store_ops ops = { on_sealed, on_gone, on_spilled, on_full, NULL, NULL, NULL };
	rc_error e = { 0 };

	snprintf(folder, sizeof folder, "/tmp/rc_store_XXXXXX");
	if (!mkdtemp(folder))
		abort();
	snprintf(socket_path, sizeof socket_path, "%s/plasma", folder);
	rc_log_level(RC_ERROR); /* what tests provoke */
	loop = rc_loop_create();
	n_sealed = n_gone = n_gone_spilled = n_spilled = n_full = 0;
	n_external = 0;
	n_clients = 0;
	deleted_url[0] = 0;
	external_job = restore_job = 0;
	if (t.external) {
		ops.spill_external = on_spill_external;
		ops.restore_external = on_restore_external;
		ops.delete_external = on_delete_external;
	}
	o.socket_path = socket_path;
	o.plasma_dir = t.plasma_dir ? t.plasma_dir : "/dev/shm";
	o.fallback_dir = t.no_fallback ? NULL : folder;
	o.session_dir = folder;
	o.system_config = t.config ? t.config : "{\"oom_grace_period_s\": 0.1, \"automatic_object_spilling_enabled\": false}";
	store = rc_store_create(loop, rc_dialect_find(t.release ? t.release : "2.60.0", NULL), &o, &ops, NULL, &e);
	if (!store) {
		printf("# %s\n", e.text);
		abort();
	}
}

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st, (void)flag, (void)ftw;
	return remove(path);
}

static inline int count_entries(const char *dir) /* but . and .. */
{
	DIR *d = opendir(dir);
	int n = 0;

	for (struct dirent *entry; d && (entry = readdir(d));)
		n += entry->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static inline void close_store(void)
{
	rc_store_destroy(store);
	store = NULL;
	CHECK_EQ_INT(0, count_entries(folder));
	pump(20);
	rc_loop_destroy(loop);
	nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline rc_store_stats figures(void)
{
	rc_store_stats st;

	rc_store_get_stats(store, &st);
	return st;
}

/* ---- client ---- */

typedef struct segment {
	int fd;
	int64_t unique_id;
	uint8_t *base;
	size_t size;
} segment;

typedef struct client {
	int fd;
	segment segments[64];
	size_t n_segments;
	rc_buf body; /* of the last answer */
	int64_t type;
} client;

typedef struct place { /* of an object, from an answer */
	rc_plasma_error error;
	uint64_t retry;
	uint8_t *data;
	uint64_t data_size, metadata_size;
	bool fallback, missing;
} place;

static inline client *join_store(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	client *c = rc_alloc(sizeof *c);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
		abort();
	n_clients++;
	pump(0);
	return c;
}

static inline void leave_store(client *c)
{
	close(c->fd);
	for (size_t i = 0; i < c->n_segments; i++)
		if (c->segments[i].base)
			munmap(c->segments[i].base, c->segments[i].size);
	rc_buf_free(&c->body);
	free(c);
	n_clients--;
	for (uint64_t until = rc_now_ms() + 10000; n_clients < (int)figures().clients && rc_now_ms() < until;)
		pump(0);
}

static inline void write_frame(client *c, int64_t type, rc_buf *body)
{
	int64_t head[3] = { 0x5241590000000000, type, (int64_t)body->n };

	if (write(c->fd, head, 24) != 24 || (body->n && write(c->fd, body->p, body->n) != (ssize_t)body->n))
		test_fail_(__FILE__, __LINE__, "the store has closed the connection");
	rc_buf_free(body);
}

static inline bool read_bytes(client *c, void *to, size_t n, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	uint64_t until = rc_now_ms() + 10000;

	for (size_t have = 0; have < n;) {
		struct iovec iov = { (char *)to + have, n - have };
		struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
		ssize_t got = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		if (got == 0 || (got < 0 && errno != EAGAIN) || (got < 0 && rc_now_ms() > until))
			return false;
		if (got < 0) {
			pump(1);
			continue;
		}
		if (ret_fd && CMSG_FIRSTHDR(&m))
			memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof *ret_fd);
		have += (size_t)got;
	}
	return true;
}

static inline bool read_frame(client *c) /* false: closed, or nothing for ten seconds */
{
	int64_t head[3];

	if (!read_bytes(c, head, 24, NULL))
		return false;
	CHECK(head[0] == 0x5241590000000000);
	c->type = head[1];
	c->body.n = 0;
	rc_buf_grow(&c->body, (size_t)head[2]);
	return read_bytes(c, c->body.p, (size_t)head[2], NULL);
}

static inline bool silent(client *c) /* nothing is there to read */
{
	char byte;

	pump(20);
	return recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

static inline rc__flat_reader reply_reader(client *c, rc__flat_table *t)
{
	rc__flat_reader r = { .body = rc_view_of(c->body.p, c->body.n), .message = "reply" };

	rc__flat_root(&r, t);
	CHECK(!r.failed);
	return r;
}

static inline segment *segment_of(client *c, int fd, int64_t unique_id, size_t size) /* reads the descriptor when it is new */
{
	segment *s;
	char byte;

	for (size_t i = 0; i < c->n_segments; i++)
		if (c->segments[i].fd == fd && c->segments[i].unique_id == unique_id && c->segments[i].base)
			return &c->segments[i];
	s = &c->segments[c->n_segments++];
	*s = (segment){ .fd = fd, .unique_id = unique_id, .size = size };
	if (size) {
		int mine = -1;

		CHECK(read_bytes(c, &byte, 1, &mine));
		CHECK(mine >= 0);
		s->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, mine, 0);
		CHECK(s->base != MAP_FAILED);
		close(mine);
	}
	return s;
}

static inline place place_of(client *c, const uint8_t *spec) /* 80 bytes of a PlasmaObjectSpec whose segment is known */
{
	int32_t fd;
	int64_t unique_id;
	uint64_t v[6];
	segment *s;

	memcpy(&fd, spec, 4);
	memcpy(&unique_id, spec + 8, 8);
	memcpy(v, spec + 16, sizeof v);
	if (v[2] == UINT64_MAX)
		return (place){ .missing = true };
	s = segment_of(c, fd, unique_id, 0);
	CHECK(v[3] == v[1] + v[2]);
	CHECK(v[1] % 64 == 0);
	return (place){ .data = s->base + v[1], .data_size = v[2], .metadata_size = v[4], .fallback = spec[64] };
}


static inline void write_one(client *c, rc_plasma type, const rc_id *id, bool flag)
{
	rc_buf body = { 0 };
	rc__flat_writer w = rc__flat_start(&body, 2);
	size_t at = rc__flat_put_offset(&w, 0);

	rc__flat_put_int(&w, 1, 1, flag);
	rc__flat_finish(&w);
	rc__flat_string(&w, at, rc_id_view(id));
	write_frame(c, type, &body);
}

static inline void write_create(client *c, const rc_id *id, const rc_owner *owner, uint64_t data_size, uint64_t metadata_size, bool at_once,
                         bool is_mutable)
{
	rc_buf body = { 0 };
	rc__flat_writer w = rc__flat_start(&body, 11);
	size_t at[4];

	rc__flat_put_int(&w, 6, 8, (int64_t)data_size);
	rc__flat_put_int(&w, 7, 8, (int64_t)metadata_size);
	for (unsigned i = 0; i < 3; i++)
		at[i] = rc__flat_put_offset(&w, i);
	rc__flat_put_int(&w, 3, 4, owner ? owner->port : 0);
	at[3] = rc__flat_put_offset(&w, 4);
	rc__flat_put_int(&w, 5, 1, is_mutable);
	rc__flat_put_int(&w, 10, 1, at_once);
	rc__flat_finish(&w);
	rc__flat_string(&w, at[0], rc_id_view(id));
	rc__flat_string(&w, at[1], owner ? rc_id_view(&owner->node_id) : (rc_view){ 0 });
	rc__flat_string(&w, at[2], rc_view_str(owner ? owner->ip : ""));
	rc__flat_string(&w, at[3], owner ? rc_id_view(&owner->worker_id) : (rc_view){ 0 });
	write_frame(c, RC_P_CREATE, &body);
}

static inline place read_created(client *c)
{
	rc__flat_table t;
	rc__flat_reader r;
	place p = { 0 };

	if (!read_frame(c)) {
		test_fail_(__FILE__, __LINE__, "no answer to Create");
		return (place){ .error = RC_PE_UNEXPECTED };
	}
	CHECK_EQ_INT(RC_P_CREATE_REPLY, c->type);
	r = reply_reader(c, &t);
	p.error = (rc_plasma_error)rc__flat_int(&r, &t, 3, 4, "error");
	p.retry = (uint64_t)rc__flat_int(&r, &t, 1, 8, "retry");
	if (p.error == RC_PE_OK && !p.retry) {
		int fd = (int)rc__flat_int(&r, &t, 4, 4, "fd");
		int64_t unique_id = rc__flat_int(&r, &t, 5, 8, "unique");
		uint16_t spec_at;

		memcpy(&spec_at, c->body.p + t.vtable + 4 + 2 * 2, 2);
		segment_of(c, fd, unique_id, (size_t)rc__flat_int(&r, &t, 6, 8, "size"));
		p = place_of(c, c->body.p + t.at + spec_at);
	}
	return p;
}

static inline place ask_again(client *c, const rc_id *id, uint64_t number)
{
	rc_buf body = { 0 };
	rc__flat_writer w = rc__flat_start(&body, 2);
	size_t at;

	rc__flat_put_int(&w, 1, 8, (int64_t)number);
	at = rc__flat_put_offset(&w, 0);
	rc__flat_finish(&w);
	rc__flat_string(&w, at, rc_id_view(id));
	write_frame(c, RC_P_CREATE_RETRY, &body);
	return read_created(c);
}

static inline place create_once(client *c, const rc_id *id, uint64_t data_size, uint64_t metadata_size)
{
	write_create(c, id, NULL, data_size, metadata_size, false, false);
	return read_created(c);
}

/* As Ray's client does: asks again until it is decided. */
static inline place create(client *c, const rc_id *id, const rc_owner *owner, uint64_t data_size, uint64_t metadata_size)
{
	place p;

	write_create(c, id, owner, data_size, metadata_size, false, false);
	for (p = read_created(c); p.retry; p = ask_again(c, id, p.retry))
		pump(5);
	return p;
}

static inline rc_plasma_error seal(client *c, const rc_id *id)
{
	rc__flat_table t;
	rc__flat_reader r;

	write_one(c, RC_P_SEAL, id, false);
	CHECK(read_frame(c));
	CHECK_EQ_INT(RC_P_SEAL_REPLY, c->type);
	r = reply_reader(c, &t);
	return (rc_plasma_error)rc__flat_int(&r, &t, 1, 4, "error");
}

static inline void release(client *c, const rc_id *id)
{
	write_one(c, RC_P_RELEASE, id, false);
	pump(5);
}

static inline bool release_unmap(client *c, const rc_id *id) /* with may_unmap: what the store answers */
{
	rc__flat_table t;
	rc__flat_reader r;

	write_one(c, RC_P_RELEASE, id, true);
	CHECK(read_frame(c));
	CHECK_EQ_INT(RC_P_RELEASE_REPLY, c->type);
	r = reply_reader(c, &t);
	return rc__flat_int(&r, &t, 1, 1, "should_unmap") != 0;
}

static inline void abort_object(client *c, const rc_id *id)
{
	write_one(c, RC_P_ABORT, id, false);
	CHECK(read_frame(c));
	CHECK_EQ_INT(RC_P_ABORT_REPLY, c->type);
}

static inline bool contains(client *c, const rc_id *id)
{
	rc__flat_table t;
	rc__flat_reader r;

	write_one(c, RC_P_CONTAINS, id, false);
	CHECK(read_frame(c));
	CHECK_EQ_INT(RC_P_CONTAINS_REPLY, c->type);
	r = reply_reader(c, &t);
	return rc__flat_int(&r, &t, 1, 4, "has_object") != 0;
}

static inline void write_get(client *c, const rc_id *ids, size_t n, int64_t timeout_ms)
{
	rc_buf body = { 0 };
	rc__flat_writer w = rc__flat_start(&body, 2);
	size_t at;

	rc__flat_put_int(&w, 1, 8, timeout_ms);
	at = rc__flat_put_offset(&w, 0);
	rc__flat_finish(&w);
	rc__flat_ids(&w, at, ids, n);
	write_frame(c, RC_P_GET, &body);
}

static inline void vector_at(client *c, const rc__flat_table *t, unsigned slot, size_t *ret_at, uint32_t *ret_n)
{
	uint16_t field;
	uint32_t offset;

	memcpy(&field, c->body.p + t->vtable + 4 + 2 * slot, 2);
	memcpy(&offset, c->body.p + t->at + field, 4);
	memcpy(ret_n, c->body.p + t->at + field + offset, 4);
	*ret_at = t->at + field + offset + 4;
}

static inline void read_got(client *c, place *ret, size_t n)
{
	size_t specs, fds, unique, sizes;
	uint32_t n_specs, n_fds, n_unique, n_sizes;
	rc__flat_table t;

	memset(ret, 0, n * sizeof *ret);
	if (!read_frame(c)) {
		test_fail_(__FILE__, __LINE__, "no answer to Get");
		return;
	}
	CHECK_EQ_INT(RC_P_GET_REPLY, c->type);
	(void)reply_reader(c, &t);
	vector_at(c, &t, 1, &specs, &n_specs);
	vector_at(c, &t, 2, &fds, &n_fds);
	vector_at(c, &t, 3, &unique, &n_unique);
	vector_at(c, &t, 4, &sizes, &n_sizes);
	CHECK_EQ_INT(n, n_specs);
	CHECK(n_fds == n_unique && n_fds == n_sizes);
	for (uint32_t i = 0; i < n_fds; i++) {
		int32_t fd;
		int64_t unique_id, size;

		memcpy(&fd, c->body.p + fds + 4 * i, 4);
		memcpy(&unique_id, c->body.p + unique + 8 * i, 8);
		memcpy(&size, c->body.p + sizes + 8 * i, 8);
		segment_of(c, fd, unique_id, (size_t)size);
	}
	for (uint32_t i = 0; i < n_specs && i < n; i++)
		ret[i] = place_of(c, c->body.p + specs + 80 * i);
}

static inline place get(client *c, const rc_id *id, int64_t timeout_ms)
{
	place p;

	write_get(c, id, 1, timeout_ms);
	read_got(c, &p, 1);
	return p;
}

static inline void delete_objects(client *c, const rc_id *ids, size_t n, int32_t *ret_errors)
{
	rc_buf body = { 0 };
	rc__flat_writer w = rc__flat_start(&body, 2);
	size_t at;
	uint32_t n_errors;
	rc__flat_table t;

	rc__flat_put_int(&w, 0, 4, (int64_t)n);
	at = rc__flat_put_offset(&w, 1);
	rc__flat_finish(&w);
	rc__flat_ids(&w, at, ids, n);
	write_frame(c, RC_P_DELETE, &body);
	CHECK(read_frame(c));
	CHECK_EQ_INT(RC_P_DELETE_REPLY, c->type);
	(void)reply_reader(c, &t);
	vector_at(c, &t, 2, &at, &n_errors);
	CHECK_EQ_INT(n, n_errors);
	memcpy(ret_errors, c->body.p + at, 4 * n);
}

/* ---- contents ---- */

static inline void fill(const place *p, unsigned seed)
{
	for (uint64_t i = 0; i < p->data_size + p->metadata_size; i++)
		p->data[i] = (uint8_t)(seed * 31 + i * 7 + i / 251);
}

static inline bool filled(const uint8_t *data, uint64_t from, uint64_t n, unsigned seed)
{
	for (uint64_t i = from; i < from + n; i++)
		if (data[i - from] != (uint8_t)(seed * 31 + i * 7 + i / 251))
			return false;
	return true;
}

static inline bool is_filled(const place *p, unsigned seed)
{
	return !p->missing && p->data && filled(p->data, 0, p->data_size + p->metadata_size, seed);
}

/* Creates, fills and seals; the client lets go of it. */
static inline rc_id make(client *c, uint64_t size, unsigned seed)
{
	rc_id id = rc_id_random(RC_OBJECT_ID);
	place p = create(c, &id, NULL, size - 8, 8);

	CHECK_EQ_INT(RC_PE_OK, p.error);
	if (p.error != RC_PE_OK)
		return id;
	fill(&p, seed);
	CHECK_EQ_INT(RC_PE_OK, seal(c, &id));
	if (p.fallback)
		CHECK(release_unmap(c, &id));
	else
		release(c, &id);
	if (p.fallback)
		for (size_t i = 0; i < c->n_segments; i++)
			if (c->segments[i].base && p.data >= c->segments[i].base && p.data < c->segments[i].base + c->segments[i].size) {
				munmap(c->segments[i].base, c->segments[i].size);
				c->segments[i].base = NULL;
			}
	return id;
}

#endif
