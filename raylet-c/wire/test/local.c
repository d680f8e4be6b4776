/* Messages of the two unix sockets. test/data/local holds bodies that stock 2.35.0 and 2.60.0 processes sent (requests) and
 * stock raylets answered (replies), named after socket, direction and type number. */
#include <stdlib.h>

#include "raylet-c/base/test.h"
#include "raylet-c/wire/flat.h"
#include "raylet-c/wire/local.h"

static const rc_dialect *old, *new;
static const char *const ips[] = { "127.0.0.161", "127.0.0.162" }; /* of the recorded heads */

typedef struct body { /* in memory of the exact size, so that ASan sees a byte too far */
	uint8_t *p;
	size_t n;
} body;

static body load_named(const rc_dialect *d, const char *socket, const char *way, int64_t type, const char *suffix)
{
	char path[200];
	uint8_t bytes[16384];
	body b = { 0 };

	snprintf(path, sizeof path, "raylet-c/wire/test/data/local/%s_%s_%s_%d%s.bin", rc_dialect_release(d), socket, way, (int)type, suffix);
	FILE *f = fopen(path, "rb");
	if (!f) {
		printf("# %s is missing\n", path);
		CHECK(f != NULL);
		return b;
	}
	b.n = fread(bytes, 1, sizeof bytes, f);
	fclose(f);
	b.p = malloc(b.n ? b.n : 1);
	memcpy(b.p, bytes, b.n);
	return b;
}

static body load(const rc_dialect *d, const char *socket, const char *way, int64_t type)
{
	return load_named(d, socket, way, type, "");
}

static rc_view view(body b)
{
	return rc_view_of(b.p, b.n);
}

static bool is(rc_view v, const char *text)
{
	return v.n == strlen(text) && memcmp(v.p, text, v.n) == 0;
}

static const char *ip_of(const rc_dialect *d)
{
	return ips[d == new];
}

static body raylet_request(const rc_dialect *d, rc_local kind)
{
	return load(d, "raylet", "req", rc_local_type(d, kind));
}

static void kinds(void)
{
	const rc_dialect *both[] = { old, new };

	for (size_t r = 0; r < 2; r++) {
		for (int kind = 0; kind < RC_L_COUNT; kind++) {
			int64_t type = rc_local_type(both[r], (rc_local)kind);
			CHECK(type == -1 || rc_local_kind(both[r], type) == (rc_local)kind);
			CHECK(rc_local_name((rc_local)kind) != NULL);
		}
	}
	CHECK_EQ_INT(-1, rc_local_type(old, RC_L_DISCONNECT_REPLY));
	CHECK_EQ_INT(RC_L_REGISTER_CLIENT, rc_local_kind(old, 4));
	CHECK_EQ_INT(RC_L_ANNOUNCE_PORT_REPLY, rc_local_kind(new, 4));
	CHECK_EQ_INT(RC_L_UNKNOWN, rc_local_kind(old, 1));
	CHECK_EQ_INT(RC_L_UNKNOWN, rc_local_kind(new, 17));
	CHECK_EQ_INT(RC_L_UNKNOWN, rc_local_kind(new, -1));
	CHECK_EQ_INT(RC_L_UNKNOWN, rc_local_kind(new, INT64_MAX));
	CHECK_STR("unknown message", rc_local_name(RC_L_UNKNOWN));
}

static void every_release_has_a_layout(void)
{
	char list[200];
	rc_error e;

	snprintf(list, sizeof list, "%s", rc_dialect_releases());
	for (char *save = NULL, *r = strtok_r(list, ", ", &save); r; r = strtok_r(NULL, ", ", &save))
		CHECK(rc_local_type(rc_dialect_find(r, &e), RC_L_REGISTER_CLIENT) > 0);
}

static void check_owner(const rc_dialect *d, const rc_local_address *owner)
{
	CHECK_EQ_INT(RC_NODE_ID, owner->node_id.n);
	CHECK_EQ_INT(RC_WORKER_ID, owner->worker_id.n);
	CHECK(is(owner->ip, ip_of(d)));
	CHECK(owner->port > 1024 && owner->port < 65536);
}

static void check_objects(const rc_dialect *d, const rc_local_objects *o)
{
	rc_local_address owner;

	CHECK(o->n > 0);
	for (size_t i = 0; i < o->n; i++) {
		CHECK_EQ_INT(RC_OBJECT_ID, rc_local_object(o, i).n);
		CHECK_EQ_INT(0, rc_local_owner(o, i, &owner));
		check_owner(d, &owner);
	}
	CHECK_EQ_INT(0, rc_local_object(o, o->n).n);
	CHECK_EQ_INT(-1, rc_local_owner(o, o->n, &owner));
}

static void requests_of(const rc_dialect *d)
{
	rc_error e = { 0 };
	body b;
	rc_view detail, exception, object;
	int number = -1;
	bool flag = false;

	b = raylet_request(d, RC_L_REGISTER_CLIENT);
	rc_register_client reg;
	CHECK_EQ_INT(0, rc_decode_register_client(d, view(b), &reg, &e));
	CHECK_EQ_INT(0, reg.worker_type);
	CHECK_EQ_INT(RC_WORKER_ID, reg.worker_id.n);
	CHECK_EQ_INT(RC_JOB_ID, reg.job_id.n);
	CHECK(reg.pid > 1);
	CHECK(d == old ? reg.startup_token >= 0 : reg.startup_token == -1);
	CHECK(is(reg.ip, ip_of(d)));
	CHECK_EQ_INT(0, reg.language);
	free(b.p);

	b = load_named(d, "raylet", "req", rc_local_type(d, RC_L_REGISTER_CLIENT), "_driver");
	CHECK_EQ_INT(0, rc_decode_register_client(d, view(b), &reg, &e));
	CHECK_EQ_INT(1, reg.worker_type);
	CHECK(reg.job_id.n == RC_JOB_ID && reg.job_id.p[0] == 1 && reg.serialized_job_config.n > 40 && is(reg.ip, ip_of(d)));
	free(b.p);

	b = raylet_request(d, RC_L_ANNOUNCE_PORT);
	CHECK_EQ_INT(0, rc_decode_announce_port(d, view(b), &number, &detail, &e));
	CHECK(number > 1024);
	free(b.p);

	b = raylet_request(d, RC_L_DISCONNECT);
	CHECK_EQ_INT(0, rc_decode_disconnect(d, view(b), &number, &detail, &exception, &e));
	CHECK(number >= 0 && number <= 4);
	CHECK(detail.n > 10);
	free(b.p);

	b = raylet_request(d, RC_L_GET_OBJECTS);
	rc_get_objects get = { 0 };
	CHECK_EQ_INT(0, rc_decode_get_objects(d, view(b), &get, &e));
	check_objects(d, &get.objects);
	CHECK_EQ_INT(d == old ? RC_TASK_ID : 0, get.task_id.n);
	free(b.p);

	b = raylet_request(d, RC_L_CANCEL_GET);
	int64_t which = -2;
	CHECK_EQ_INT(0, rc_decode_cancel_get(d, view(b), &which, &e));
	CHECK_EQ_INT(d == old ? -1 : 5, which);
	free(b.p);

	b = raylet_request(d, RC_L_BLOCKED);
	CHECK_EQ_INT(0, rc_decode_blocked(d, view(b), &flag, &e));
	CHECK(flag);
	free(b.p);

	b = raylet_request(d, RC_L_WAIT);
	rc_wait wait = { 0 };
	CHECK_EQ_INT(0, rc_decode_wait(d, view(b), &wait, &e));
	check_objects(d, &wait.objects);
	CHECK(wait.needed > 0 && (size_t)wait.needed <= wait.objects.n);
	CHECK(wait.timeout_ms >= -1 && wait.timeout_ms <= 20000);
	CHECK_EQ_INT(d == old ? RC_TASK_ID : 0, wait.task_id.n);
	free(b.p);

	b = raylet_request(d, RC_L_WAIT_ACTOR_ARGS);
	rc_wait_actor_args args = { 0 };
	CHECK_EQ_INT(0, rc_decode_wait_actor_args(d, view(b), &args, &e));
	check_objects(d, &args.objects);
	CHECK_EQ_INT(d == new ? RC_TASK_ID : 0, args.task_id.n);
	free(b.p);

	b = raylet_request(d, RC_L_PUSH_ERROR);
	rc_view job = { 0 }, type = { 0 }, text = { 0 };
	double when = 0;
	CHECK_EQ_INT(0, rc_decode_push_error(d, view(b), &job, &type, &text, &when, &e));
	CHECK_EQ_INT(RC_JOB_ID, job.n);
	CHECK(is(type, "testtype") && is(text, "some message") && when > 1e9);
	free(b.p);

	b = raylet_request(d, RC_L_FREE_OBJECTS);
	rc_local_objects freed = { 0 };
	CHECK_EQ_INT(0, rc_decode_free_objects(d, view(b), &flag, &freed, &e));
	CHECK(flag && freed.n == 1 && rc_local_object(&freed, 0).n == RC_OBJECT_ID);
	rc_local_address owner = { 0 };
	CHECK_EQ_INT(-1, rc_local_owner(&freed, 0, &owner));
	free(b.p);

	b = raylet_request(d, RC_L_SUBSCRIBE_PLASMA_READY);
	CHECK_EQ_INT(0, rc_decode_subscribe_ready(d, view(b), &object, &owner, &e));
	CHECK_EQ_INT(RC_OBJECT_ID, object.n);
	check_owner(d, &owner);
	free(b.p);

	b = load(d, "plasma", "req", RC_P_CREATE);
	rc_plasma_create create = { 0 };
	CHECK_EQ_INT(0, rc_decode_plasma_create(d, view(b), &create, &e));
	check_owner(d, &create.owner);
	CHECK(create.data_size >= 1 << 20 && create.data_size < 1 << 30 && create.metadata_size > 0 && create.metadata_size < 100);
	CHECK(create.source == 0 && create.device_num == 0 && !create.is_mutable);
	free(b.p);

	b = load(d, "plasma", "req", RC_P_CREATE_RETRY);
	uint64_t request = 0;
	CHECK_EQ_INT(0, rc_decode_plasma_create_retry(d, view(b), &object, &request, &e));
	CHECK(request > 0 && object.n == RC_OBJECT_ID);
	free(b.p);

	static const rc_plasma with_one[] = { RC_P_SEAL, RC_P_RELEASE, RC_P_CONTAINS };
	for (size_t i = 0; i < 3; i++) {
		b = load(d, "plasma", "req", with_one[i]);
		CHECK_EQ_INT(0, rc_decode_plasma_one(d, with_one[i], view(b), &object, &flag, &e));
		CHECK(object.n == RC_OBJECT_ID && !flag);
		free(b.p);
	}
	b = load(d, "plasma", "req", RC_P_GET);
	rc_local_objects objects = { 0 };
	int64_t timeout = -2;
	CHECK_EQ_INT(0, rc_decode_plasma_many(d, RC_P_GET, view(b), &objects, &timeout, &e));
	CHECK(objects.n > 0 && rc_local_object(&objects, 0).n == RC_OBJECT_ID && timeout >= 0 && timeout <= 1000);
	free(b.p);
}

static void requests(void)
{
	requests_of(old);
	requests_of(new);
}

/* ---- replies: what a stock raylet wrote and what we write must read alike ---- */

static bool root(rc__flat_reader *r, rc_view bytes, rc__flat_table *t)
{
	static rc_error e;

	*r = (rc__flat_reader){ .body = bytes, .message = "reply", .error = &e };
	return rc__flat_root(r, t) == 0;
}

static int64_t int_of(rc_view bytes, unsigned slot, unsigned size)
{
	rc__flat_reader r;
	rc__flat_table t;

	CHECK(root(&r, bytes, &t));
	int64_t v = rc__flat_int(&r, &t, slot, size, "value");
	CHECK(!r.failed);
	return v;
}

static rc_view bytes_of(rc_view bytes, unsigned slot)
{
	rc__flat_reader r;
	rc__flat_table t;

	CHECK(root(&r, bytes, &t));
	rc_view v = rc__flat_bytes(&r, &t, slot, "value");
	CHECK(!r.failed);
	return v;
}

static rc__flat_vector vector_of(rc_view bytes, unsigned slot)
{
	rc__flat_reader r;
	rc__flat_table t;

	CHECK(root(&r, bytes, &t));
	rc__flat_vector v = rc__flat_offsets(&r, &t, slot, "value");
	CHECK(!r.failed);
	return v;
}

/* Where the spec of a CreateReply stands. */
static size_t spec_at(rc_view bytes)
{
	rc__flat_reader r;
	rc__flat_table t;
	uint16_t offset;

	CHECK(root(&r, bytes, &t) && t.vtable_size >= 4 + 2 * 3);
	memcpy(&offset, bytes.p + t.vtable + 4 + 2 * 2, 2);
	CHECK(offset && offset + 80u <= t.table_size);
	return t.at + offset;
}

static rc_plasma_spec spec_from(const uint8_t *p)
{
	rc_plasma_spec s = { 0 };
	int32_t segment, device;

	memcpy(&segment, p, 4);
	memcpy(&s.unique_fd_id, p + 8, 8);
	memcpy(&s.header_offset, p + 16, 8);
	memcpy(&s.data_offset, p + 24, 8);
	memcpy(&s.data_size, p + 32, 8);
	memcpy(&s.metadata_offset, p + 40, 8);
	memcpy(&s.metadata_size, p + 48, 8);
	memcpy(&s.allocated_size, p + 56, 8);
	s.fallback = p[64];
	memcpy(&device, p + 68, 4);
	s.is_mutable = p[72];
	s.segment_index = segment;
	s.device_num = device;
	return s;
}

static bool same_string(rc_view a, rc_view b, unsigned slot)
{
	rc_view x = bytes_of(a, slot), y = bytes_of(b, slot);

	return x.n == y.n && (x.n == 0 || memcmp(x.p, y.p, x.n) == 0);
}

static rc_id id_in(rc_view bytes, unsigned slot)
{
	rc_view v = bytes_of(bytes, slot);

	return rc_id_from(v.p, v.n);
}

static void replies_of(const rc_dialect *d)
{
	rc_buf out = { 0 };
	body b;

	b = load(d, "raylet", "rep", rc_local_type(d, RC_L_REGISTER_CLIENT_REPLY));
	rc_id node = id_in(view(b), 2);
	CHECK_EQ_INT(RC_NODE_ID, node.n);
	CHECK_EQ_INT(1, int_of(view(b), 0, 1));
	rc_encode_register_reply(d, true, NULL, &node, (int)int_of(view(b), 3, 4), &out);
	rc_view ours = rc_view_of(out.p, out.n);
	CHECK_EQ_INT(1, int_of(ours, 0, 1));
	CHECK(same_string(view(b), ours, 2)); /* the text is "OK" there, which nobody reads */
	CHECK_EQ_INT(int_of(view(b), 3, 4), int_of(ours, 3, 4));
	out.n = 0;
	rc_encode_register_reply(d, false, "no", &node, 0, &out);
	CHECK(is(bytes_of(rc_view_of(out.p, out.n), 1), "no") && int_of(rc_view_of(out.p, out.n), 0, 1) == 0);
	free(b.p);

	b = load(d, "raylet", "rep", rc_local_type(d, RC_L_ANNOUNCE_PORT_REPLY));
	out.n = 0;
	rc_encode_announce_reply(d, true, "", &out);
	ours = rc_view_of(out.p, out.n);
	CHECK_EQ_INT(int_of(view(b), 0, 1), int_of(ours, 0, 1));
	free(b.p);

	b = load(d, "raylet", "rep", rc_local_type(d, RC_L_WAIT_REPLY));
	rc__flat_vector found = vector_of(view(b), 0), remaining = vector_of(view(b), 1);
	rc_id ids[16];
	rc__flat_reader r;
	rc__flat_table t;
	CHECK(root(&r, view(b), &t) && found.n + remaining.n > 0 && found.n + remaining.n <= 16);
	for (size_t i = 0; i < found.n + remaining.n; i++) {
		rc_view v = i < found.n ? rc__flat_element_bytes(&r, &found, i, "id") : rc__flat_element_bytes(&r, &remaining, i - found.n, "id");
		ids[i] = rc_id_from(v.p, v.n);
		CHECK_EQ_INT(RC_OBJECT_ID, ids[i].n);
	}
	out.n = 0;
	rc_encode_wait_reply(d, ids, found.n, ids + found.n, remaining.n, &out);
	ours = rc_view_of(out.p, out.n);
	rc__flat_vector ours_found = vector_of(ours, 0), ours_remaining = vector_of(ours, 1);
	CHECK_EQ_INT(found.n, ours_found.n);
	CHECK_EQ_INT(remaining.n, ours_remaining.n);
	CHECK(root(&r, ours, &t));
	for (size_t i = 0; i < found.n; i++) {
		rc_view v = rc__flat_element_bytes(&r, &ours_found, i, "id");
		CHECK(v.n == RC_OBJECT_ID && memcmp(v.p, ids[i].b, v.n) == 0);
	}
	free(b.p);

	out.n = 0;
	rc_encode_disconnect_reply(d, &out);
	CHECK(root(&r, rc_view_of(out.p, out.n), &t));

	b = load(d, "plasma", "rep", RC_P_CONNECT_REPLY);
	out.n = 0;
	rc_encode_plasma_connect_reply(d, int_of(view(b), 0, 8), &out);
	CHECK_EQ_INT(int_of(view(b), 0, 8), int_of(rc_view_of(out.p, out.n), 0, 8));
	CHECK_EQ_INT(200000000, int_of(view(b), 0, 8));
	free(b.p);

	b = load(d, "plasma", "rep", RC_P_CREATE_REPLY);
	rc_id object = id_in(view(b), 0);
	rc_plasma_spec spec = spec_from(b.p + spec_at(view(b)));
	CHECK(spec.data_size > 0 && spec.metadata_offset == spec.data_offset + spec.data_size);
	out.n = 0;
	rc_encode_plasma_create_reply(d, &object, (uint64_t)int_of(view(b), 1, 8), &spec, (rc_plasma_error)int_of(view(b), 3, 4),
	                              (int)int_of(view(b), 4, 4), int_of(view(b), 5, 8), int_of(view(b), 6, 8), &out);
	ours = rc_view_of(out.p, out.n);
	CHECK(same_string(view(b), ours, 0));
	CHECK_EQ_INT(0, spec_at(ours) % 8);
	CHECK(memcmp(b.p + spec_at(view(b)), ours.p + spec_at(ours), 80) == 0);
	CHECK_EQ_INT(int_of(view(b), 1, 8), int_of(ours, 1, 8));
	CHECK_EQ_INT(int_of(view(b), 3, 4), int_of(ours, 3, 4));
	CHECK_EQ_INT(int_of(view(b), 4, 4), int_of(ours, 4, 4));
	CHECK_EQ_INT(int_of(view(b), 5, 8), int_of(ours, 5, 8));
	CHECK_EQ_INT(int_of(view(b), 6, 8), int_of(ours, 6, 8));
	free(b.p);

	b = load(d, "plasma", "rep", RC_P_SEAL_REPLY);
	object = id_in(view(b), 0);
	out.n = 0;
	rc_encode_plasma_one_reply(d, RC_P_SEAL_REPLY, &object, RC_PE_OK, false, &out);
	CHECK(same_string(view(b), rc_view_of(out.p, out.n), 0) && int_of(rc_view_of(out.p, out.n), 1, 4) == int_of(view(b), 1, 4));
	free(b.p);

	b = load(d, "plasma", "rep", RC_P_CONTAINS_REPLY);
	object = id_in(view(b), 0);
	out.n = 0;
	rc_encode_plasma_one_reply(d, RC_P_CONTAINS_REPLY, &object, RC_PE_OK, int_of(view(b), 1, 4) != 0, &out);
	CHECK(same_string(view(b), rc_view_of(out.p, out.n), 0) && int_of(rc_view_of(out.p, out.n), 1, 4) == int_of(view(b), 1, 4));
	free(b.p);
	rc_buf_free(&out);
}

static void replies(void)
{
	replies_of(old);
	replies_of(new);
}

static void get_reply_of(const rc_dialect *d)
{
	body b = load(d, "plasma", "rep", RC_P_GET_REPLY);
	rc__flat_vector ids = vector_of(view(b), 0), specs = vector_of(view(b), 1), fds = vector_of(view(b), 2), unique = vector_of(view(b), 3),
	                sizes = vector_of(view(b), 4);
	rc__flat_reader r;
	rc__flat_table t;
	rc_buf out = { 0 };

	CHECK(root(&r, view(b), &t));
	CHECK(ids.n == 1 && specs.n == 1 && fds.n == 1 && unique.n == 1 && sizes.n == 1);
	rc_view v = rc__flat_element_bytes(&r, &ids, 0, "id");
	rc_id object = rc_id_from(v.p, v.n);
	rc_plasma_spec spec = spec_from(b.p + specs.at);
	int fd;
	int64_t fd_id, size;
	memcpy(&fd, b.p + fds.at, 4);
	memcpy(&fd_id, b.p + unique.at, 8);
	memcpy(&size, b.p + sizes.at, 8);
	CHECK(size > 200000000);
	rc_encode_plasma_get_reply(d, &object, &spec, 1, &fd, &fd_id, &size, 1, &out);
	rc_view ours = rc_view_of(out.p, out.n);
	rc__flat_vector our_specs = vector_of(ours, 1), our_unique = vector_of(ours, 3), our_sizes = vector_of(ours, 4);
	CHECK_EQ_INT(0, our_specs.at % 8);
	CHECK_EQ_INT(0, our_unique.at % 8);
	CHECK_EQ_INT(0, our_sizes.at % 8);
	CHECK(memcmp(ours.p + our_specs.at, b.p + specs.at, 80) == 0);
	CHECK(memcmp(ours.p + our_unique.at, b.p + unique.at, 8) == 0);
	CHECK(memcmp(ours.p + our_sizes.at, b.p + sizes.at, 8) == 0);
	CHECK_EQ_INT(1, vector_of(ours, 2).n);
	out.n = 0;
	spec = (rc_plasma_spec){ .data_size = UINT64_MAX };
	rc_encode_plasma_get_reply(d, &object, &spec, 1, NULL, NULL, NULL, 0, &out);
	ours = rc_view_of(out.p, out.n);
	CHECK(vector_of(ours, 2).at && vector_of(ours, 3).at && vector_of(ours, 4).at && vector_of(ours, 2).n == 0);
	CHECK_EQ_INT(-1, (int64_t)spec_from(ours.p + vector_of(ours, 1).at).data_size);
	out.n = 0;
	rc_encode_plasma_delete_reply(d, &object, (const rc_plasma_error[]){ RC_PE_IN_USE }, 1, &out);
	ours = rc_view_of(out.p, out.n);
	CHECK(int_of(ours, 0, 4) == 1 && vector_of(ours, 1).n == 1 && ours.p[vector_of(ours, 2).at] == RC_PE_IN_USE);
	out.n = 0;
	rc_encode_plasma_one_reply(d, RC_P_RELEASE_REPLY, &object, RC_PE_NOT_FOUND, true, &out);
	ours = rc_view_of(out.p, out.n);
	CHECK(int_of(ours, 1, 1) == 1 && int_of(ours, 2, 4) == RC_PE_NOT_FOUND);
	out.n = 0;
	rc_encode_plasma_one_reply(d, RC_P_ABORT_REPLY, &object, RC_PE_OK, false, &out);
	CHECK_EQ_INT(RC_OBJECT_ID, bytes_of(rc_view_of(out.p, out.n), 0).n);
	rc_buf_free(&out);
	free(b.p);
}

static void get_reply(void)
{
	get_reply_of(old);
	get_reply_of(new);
}

static void spec_layout(void)
{
	static const uint8_t want[80] = { 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
		                          5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0,
		                          1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0 };
	rc_plasma_spec spec = { .segment_index = 1, .unique_fd_id = 2, .header_offset = 3, .data_offset = 4, .data_size = 5, .metadata_offset = 6,
		                .metadata_size = 7, .allocated_size = 8, .fallback = true, .device_num = 9, .is_mutable = true };
	rc_id object = rc_id_nil(RC_OBJECT_ID);
	rc_buf out = { 0 };

	rc_encode_plasma_create_reply(new, &object, 11, &spec, RC_PE_NO_MEMORY, 12, 13, 14, &out);
	rc_view ours = rc_view_of(out.p, out.n);
	CHECK(memcmp(ours.p + spec_at(ours), want, sizeof want) == 0);
	CHECK(int_of(ours, 1, 8) == 11 && int_of(ours, 3, 4) == RC_PE_NO_MEMORY && int_of(ours, 4, 4) == 12);
	CHECK(int_of(ours, 5, 8) == 13 && int_of(ours, 6, 8) == 14);
	out.n = 0;
	rc_encode_plasma_create_reply(new, &object, 0, NULL, RC_PE_EXISTS, -1, 0, 0, &out);
	CHECK_EQ_INT(-1, int_of(rc_view_of(out.p, out.n), 4, 4));
	rc_buf_free(&out);
}

/* ---- bad input ---- */

static int decode_any(const rc_dialect *d, int kind, rc_view bytes, rc_error *e)
{
	rc_register_client reg;
	rc_get_objects get;
	rc_wait wait;
	rc_wait_actor_args args;
	rc_plasma_create create;
	rc_local_objects objects;
	rc_local_address owner;
	rc_view a, b, c;
	int number;
	bool flag;
	double when;
	int64_t timeout;
	uint64_t request;

	switch (kind) {
	case RC_L_REGISTER_CLIENT:
		return rc_decode_register_client(d, bytes, &reg, e);
	case RC_L_ANNOUNCE_PORT:
		return rc_decode_announce_port(d, bytes, &number, &a, e);
	case RC_L_DISCONNECT:
		return rc_decode_disconnect(d, bytes, &number, &a, &b, e);
	case RC_L_GET_OBJECTS:
		return rc_decode_get_objects(d, bytes, &get, e);
	case RC_L_CANCEL_GET:
		return rc_decode_cancel_get(d, bytes, &timeout, e);
	case RC_L_BLOCKED:
		return rc_decode_blocked(d, bytes, &flag, e);
	case RC_L_WAIT:
		return rc_decode_wait(d, bytes, &wait, e);
	case RC_L_WAIT_ACTOR_ARGS:
		return rc_decode_wait_actor_args(d, bytes, &args, e);
	case RC_L_PUSH_ERROR:
		return rc_decode_push_error(d, bytes, &a, &b, &c, &when, e);
	case RC_L_FREE_OBJECTS:
		return rc_decode_free_objects(d, bytes, &flag, &objects, e);
	case RC_L_SUBSCRIBE_PLASMA_READY:
		return rc_decode_subscribe_ready(d, bytes, &a, &owner, e);
	case 100 + RC_P_CREATE:
		return rc_decode_plasma_create(d, bytes, &create, e);
	case 100 + RC_P_CREATE_RETRY:
		return rc_decode_plasma_create_retry(d, bytes, &a, &request, e);
	case 100 + RC_P_GET:
		return rc_decode_plasma_many(d, RC_P_GET, bytes, &objects, &timeout, e);
	case 100 + RC_P_RELEASE:
		return rc_decode_plasma_one(d, RC_P_RELEASE, bytes, &a, &flag, e);
	default:
		return -2;
	}
}

static const int all_kinds[] = {
	RC_L_REGISTER_CLIENT, RC_L_ANNOUNCE_PORT,
	RC_L_DISCONNECT,      RC_L_GET_OBJECTS,
	RC_L_CANCEL_GET,      RC_L_BLOCKED,
	RC_L_WAIT,            RC_L_WAIT_ACTOR_ARGS,
	RC_L_PUSH_ERROR,      RC_L_FREE_OBJECTS,
	RC_P_CREATE + 100,    RC_L_SUBSCRIBE_PLASMA_READY,
	RC_P_GET + 100,       RC_P_CREATE_RETRY + 100,
	RC_P_RELEASE + 100,
};

static void damaged(void)
{
	const rc_dialect *both[] = { old, new };
	size_t refused = 0;

	for (size_t r = 0; r < 2; r++) {
		for (size_t k = 0; k < sizeof all_kinds / sizeof *all_kinds; k++) {
			int kind = all_kinds[k];
			body b = kind >= 100 ? load(both[r], "plasma", "req", kind - 100) : raylet_request(both[r], (rc_local)kind);
			for (size_t n = 0; n < b.n; n++) { /* cut */
				rc_error e = { 0 };
				uint8_t *copy = malloc(n ? n : 1);
				memcpy(copy, b.p, n);
				if (decode_any(both[r], kind, rc_view_of(copy, n), &e) != 0) {
					CHECK(e.code == RC_E_INVALID && strchr(e.text, ':') != NULL);
					refused++;
				}
				free(copy);
			}
			for (size_t i = 0; i < b.n; i++) { /* one byte changed */
				static const uint8_t with[] = { 0x01, 0x80, 0xff };
				for (size_t w = 0; w < sizeof with; w++) {
					rc_error e = { 0 };
					b.p[i] ^= with[w];
					refused += decode_any(both[r], kind, view(b), &e) != 0;
					b.p[i] ^= with[w];
				}
			}
			free(b.p);
		}
	}
	CHECK(refused > 1000);
}

static void fault_text(const rc_dialect *d, const char *want, int kind, const char *bytes, size_t n)
{
	rc_error e = { 0 };
	body b = { malloc(n ? n : 1), n };

	memcpy(b.p, bytes, n);
	CHECK_EQ_INT(-1, decode_any(d, kind, view(b), &e));
	CHECK_STR(want, e.text);
	free(b.p);
}

static void names_the_fault(void)
{
	fault_text(new, "WaitRequest: body has 0 bytes, too few for a table", RC_L_WAIT, "", 0);
	fault_text(new, "WaitRequest: root table lies outside of the message", RC_L_WAIT, "\xff\xff\xff\x7f", 4);
	/* root 8, vtable at 4: 4 bytes, a table of 4: no field at all */
	fault_text(new, "RegisterClientRequest: worker_id has 0 bytes, not 28", RC_L_REGISTER_CLIENT, "\x08\0\0\0\x04\0\x04\0\x04\0\0\0", 12);
	fault_text(new, "WaitRequest: root table has its vtable outside of the message", RC_L_WAIT, "\x08\0\0\0\x04\0\x04\0\x10\0\0\0", 12);
	/* one slot, an int */
	fault_text(new, "AnnounceWorkerPort: port is 65536, not 0..65535", RC_L_ANNOUNCE_PORT,
	           "\x0c\0\0\0\0\0\x06\0\x08\0\x04\0\x06\0\0\0\0\0\x01\0", 20);
	/* slot 0 is a vector of one string of one byte */
	fault_text(old, "PlasmaGetRequest: object_ids has an id of 1 bytes at 0, not 28", 100 + RC_P_GET,
	           "\x0c\0\0\0\0\0\x06\0\x08\0\x04\0\x06\0\0\0\x04\0\0\0\x01\0\0\0\x04\0\0\0\x01\0\0\0x\0\0\0", 36);
	fault_text(old, "PlasmaGetRequest: object_ids has 1073741824 elements, which do not fit", 100 + RC_P_GET,
	           "\x0c\0\0\0\0\0\x06\0\x08\0\x04\0\x06\0\0\0\x04\0\0\0\0\0\0\x40", 24);
}

/* Entries of a vector may all point at one text: few bytes for very many objects. */
static void names_too_many(void)
{
	enum { N = (1 << 20) + 1, VECTOR = 20 };
	static const uint8_t head[VECTOR] = { 12, 0, 0, 0, 0, 0, 6, 0, 8, 0, 4, 0, 6, 0, 0, 0, 4, 0, 0, 0 };
	size_t size = VECTOR + 4 + 4 * (size_t)N + 4 + 28;
	body b = { calloc(1, size), size };
	uint32_t n = N, length = 28;
	rc_error e = { 0 };

	memcpy(b.p, head, sizeof head);
	memcpy(b.p + VECTOR, &n, 4);
	for (uint32_t i = 0; i < N; i++) {
		uint32_t distance = 4 * (N - i);
		memcpy(b.p + VECTOR + 4 + 4 * (size_t)i, &distance, 4);
	}
	memcpy(b.p + VECTOR + 4 + 4 * (size_t)N, &length, 4);
	CHECK_EQ_INT(-1, decode_any(new, RC_L_GET_OBJECTS, view(b), &e));
	CHECK_STR("AsyncGetObjectsRequest: object_ids has 1048577 entries, the limit is 1048576", e.text);
	n = N - 1;
	memcpy(b.p + VECTOR, &n, 4);
	CHECK_EQ_INT(0, decode_any(new, RC_L_GET_OBJECTS, view(b), &e));
	free(b.p);
}

static void other_dialect(void)
{
	rc_register_client reg;
	rc_error e = { 0 };
	body b = raylet_request(old, RC_L_REGISTER_CLIENT);

	/* 2.35.0 has a startup token where 2.60.0 has the job id */
	CHECK_EQ_INT(-1, rc_decode_register_client(new, view(b), &reg, &e));
	CHECK(strncmp(e.text, "RegisterClientRequest: ", 23) == 0);
	free(b.p);
	b = raylet_request(new, RC_L_REGISTER_CLIENT);
	CHECK_EQ_INT(-1, rc_decode_register_client(old, view(b), &reg, &e));
	free(b.p);
}

int main(void)
{
	old = rc_dialect_find("2.35.0", NULL);
	new = rc_dialect_find("2.60.0", NULL);
	RUN(kinds, "type numbers map to kinds and back, unknown ones to none");
	RUN(names_too_many, "a message that names more objects than allowed is refused");
	RUN(every_release_has_a_layout, "every release with a dialect has a layout of its raylet socket");
	RUN(requests, "what stock workers and drivers sent is read, every field");
	RUN(replies, "replies read as a stock raylet's replies do");
	RUN(get_reply, "a reply to Get has aligned specs, sizes and empty vectors");
	RUN(spec_layout, "a spec has each member at its place");
	RUN(damaged, "a cut or damaged body is refused or read, never read beyond its end");
	RUN(names_the_fault, "the error names message, field and fault");
	RUN(other_dialect, "a registration in the other release's layout is refused");
	return test_end();
}
