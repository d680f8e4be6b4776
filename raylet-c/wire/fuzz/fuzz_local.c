/* The decoders of the raylet and plasma sockets on hostile bodies. The input: a byte for the release, a byte for the decoder,
 * then the body. Everything that a decoder returns is read. */

#include "raylet-c/wire/local.h"
#include "raylet-c/wire/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink;

static void read_view(rc_view v)
{
	for (size_t i = 0; i < v.n; i++)
		sink += v.p[i];
}

static void read_address(const rc_local_address *a)
{
	read_view(a->node_id);
	read_view(a->worker_id);
	read_view(a->ip);
}

static void read_objects(const rc_local_objects *o)
{
	rc_local_address owner;

	for (size_t i = 0; i <= o->n; i++) {
		read_view(rc_local_object(o, i));
		if (rc_local_owner(o, i, &owner) == 0)
			read_address(&owner);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const rc_dialect *const dialects[] = {
#define X(release) &rc__dialect_##release,
		RC__RELEASES(X)
#undef X
	};
	static const rc_plasma with_one[] = { RC_P_ABORT, RC_P_SEAL, RC_P_RELEASE, RC_P_CONTAINS };
	rc_error e;
	rc_view a, b, c;
	rc_local_objects objects;
	rc_local_address owner;
	rc_register_client reg;
	rc_get_objects get;
	rc_wait wait;
	rc_wait_actor_args args;
	rc_plasma_create create;
	int number;
	int64_t timeout;
	uint64_t request;
	double when;
	bool flag;

	if (size < 2)
		return 0;
	const rc_dialect *d = dialects[data[0] % (sizeof dialects / sizeof *dialects)];
	rc_view body = rc_view_of(data + 2, size - 2);
	switch (data[1] % 15) {
	case 0:
		if (rc_decode_register_client(d, body, &reg, &e) == 0) {
			read_view(reg.worker_id);
			read_view(reg.job_id);
			read_view(reg.ip);
			read_view(reg.serialized_job_config);
		}
		break;
	case 1:
		if (rc_decode_announce_port(d, body, &number, &a, &e) == 0)
			read_view(a);
		break;
	case 2:
		if (rc_decode_disconnect(d, body, &number, &a, &b, &e) == 0) {
			read_view(a);
			read_view(b);
		}
		break;
	case 3:
		if (rc_decode_get_objects(d, body, &get, &e) == 0) {
			read_objects(&get.objects);
			read_view(get.task_id);
		}
		break;
	case 4:
		if (rc_decode_blocked(d, body, &flag, &e) == 0)
			sink += flag;
		break;
	case 5:
		if (rc_decode_wait(d, body, &wait, &e) == 0) {
			read_objects(&wait.objects);
			read_view(wait.task_id);
		}
		break;
	case 6:
		if (rc_decode_wait_actor_args(d, body, &args, &e) == 0) {
			read_objects(&args.objects);
			read_view(args.task_id);
		}
		break;
	case 7:
		if (rc_decode_push_error(d, body, &a, &b, &c, &when, &e) == 0) {
			read_view(a);
			read_view(b);
			read_view(c);
		}
		break;
	case 8:
		if (rc_decode_free_objects(d, body, &flag, &objects, &e) == 0)
			read_objects(&objects);
		break;
	case 9:
		if (rc_decode_subscribe_ready(d, body, &a, &owner, &e) == 0) {
			read_view(a);
			read_address(&owner);
		}
		break;
	case 10:
		if (rc_decode_plasma_create(d, body, &create, &e) == 0) {
			read_view(create.object_id);
			read_address(&create.owner);
		}
		break;
	case 11:
		if (data[0] & 2 ? rc_decode_plasma_evict(body, &request, &e) == 0 : rc_decode_plasma_create_retry(d, body, &a, &request, &e) == 0)
			read_view(data[0] & 2 ? (rc_view){ 0 } : a);
		break;
	case 12:
		if (rc_decode_plasma_one(d, with_one[data[0] / 2 % 4], body, &a, &flag, &e) == 0)
			read_view(a);
		break;
	case 13:
		if (rc_decode_cancel_get(d, body, &timeout, &e) == 0)
			sink += (unsigned)timeout;
		break;
	default:
		if (rc_decode_plasma_many(d, data[0] & 2 ? RC_P_DELETE : RC_P_GET, body, &objects, &timeout, &e) == 0)
			read_objects(&objects);
		break;
	}
	return 0;
}
