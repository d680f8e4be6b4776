/* Messages of the plasma socket. What is used has the same types and slots in 2.35.0 and 2.60.0. A spec on the wire is an
 * inline struct: members at their natural alignment, 80 bytes. */
#include "raylet-c/wire/local_internal.h"

#include <string.h>

enum { SPEC_SIZE = 80, SPEC_ALIGN = 8 };

static const char *name_of(rc_plasma type)
{
	switch (type) {
	case RC_P_CREATE:
		return "PlasmaCreateRequest";
	case RC_P_CREATE_RETRY:
		return "PlasmaCreateRetryRequest";
	case RC_P_ABORT:
		return "PlasmaAbortRequest";
	case RC_P_SEAL:
		return "PlasmaSealRequest";
	case RC_P_GET:
		return "PlasmaGetRequest";
	case RC_P_RELEASE:
		return "PlasmaReleaseRequest";
	case RC_P_DELETE:
		return "PlasmaDeleteRequest";
	case RC_P_CONTAINS:
		return "PlasmaContainsRequest";
	default:
		return "plasma message";
	}
}

/* ---- reading ---- */

static int begin(rc_plasma type, rc_view body, rc_error *e, rc__flat_reader *r, rc__flat_table *t)
{
	*r = (rc__flat_reader){ .body = body, .message = name_of(type), .error = e };
	return rc__flat_root(r, t);
}

int rc_decode_plasma_create(const rc_dialect *d, rc_view body, rc_plasma_create *ret, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	(void)d;

	if (begin(RC_P_CREATE, body, e, &r, &t) != 0)
		return -1;
	rc_plasma_create m = {
		.object_id = rc__flat_id(&r, &t, 0, RC_OBJECT_ID, false, "object_id"),
		.owner.node_id = rc__flat_id(&r, &t, 1, RC_NODE_ID, true, "owner_node_id"),
		.owner.ip = rc__flat_bytes(&r, &t, 2, "owner_ip_address"),
		.owner.port = (int)rc__flat_int(&r, &t, 3, 4, "owner_port"),
		.owner.worker_id = rc__flat_id(&r, &t, 4, RC_WORKER_ID, true, "owner_worker_id"),
		.is_mutable = rc__flat_int(&r, &t, 5, 1, "is_mutable") != 0,
		.data_size = (uint64_t)rc__flat_int(&r, &t, 6, 8, "data_size"),
		.metadata_size = (uint64_t)rc__flat_int(&r, &t, 7, 8, "metadata_size"),
		.source = (int)rc__flat_int(&r, &t, 8, 4, "source"),
		.device_num = (int)rc__flat_int(&r, &t, 9, 4, "device_num"),
		.try_immediately = rc__flat_int(&r, &t, 10, 1, "try_immediately") != 0,
	};
	if (r.failed)
		return -1;
	*ret = m;
	return 0;
}

int rc_decode_plasma_create_retry(const rc_dialect *d, rc_view body, rc_view *ret_object, uint64_t *ret_request_id, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	(void)d;

	if (begin(RC_P_CREATE_RETRY, body, e, &r, &t) != 0)
		return -1;
	rc_view object = rc__flat_id(&r, &t, 0, RC_OBJECT_ID, false, "object_id");
	uint64_t request = (uint64_t)rc__flat_int(&r, &t, 1, 8, "request_id");
	if (r.failed)
		return -1;
	*ret_object = object;
	*ret_request_id = request;
	return 0;
}

int rc_decode_plasma_evict(rc_view body, uint64_t *ret_bytes, rc_error *e)
{
	rc__flat_reader r = { .body = body, .message = "PlasmaEvictRequest", .error = e };
	rc__flat_table t;

	if (rc__flat_root(&r, &t) != 0)
		return -1;
	*ret_bytes = (uint64_t)rc__flat_int(&r, &t, 0, 8, "num_bytes");
	return r.failed ? -1 : 0;
}

void rc_encode_plasma_evict_reply(uint64_t bytes, rc_buf *out)
{
	rc__flat_writer w = rc__flat_start(out, 1);

	rc__flat_put_int(&w, 0, 8, (int64_t)bytes);
	rc__flat_finish(&w);
}

int rc_decode_plasma_one(const rc_dialect *d, rc_plasma type, rc_view body, rc_view *ret_object, bool *ret_flag, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	(void)d;

	if (begin(type, body, e, &r, &t) != 0)
		return -1;
	rc_view object = rc__flat_id(&r, &t, 0, RC_OBJECT_ID, false, "object_id");
	bool flag = type == RC_P_RELEASE && rc__flat_int(&r, &t, 1, 1, "may_unmap") != 0;
	if (r.failed)
		return -1;
	*ret_object = object;
	if (ret_flag)
		*ret_flag = flag;
	return 0;
}

int rc_decode_plasma_many(const rc_dialect *d, rc_plasma type, rc_view body, rc_local_objects *ret, int64_t *ret_timeout_ms, rc_error *e)
{
	rc__flat_reader r;
	rc__flat_table t;
	rc_local_objects objects;
	(void)d;

	if (begin(type, body, e, &r, &t) != 0)
		return -1;
	/* Delete has its count in front, which says nothing that the vector does not. */
	if (rc__local_objects(&r, &t, type == RC_P_DELETE ? 1 : 0, RC__NO_OWNERS, &objects) != 0)
		return -1;
	int64_t timeout = type == RC_P_GET ? rc__flat_int(&r, &t, 1, 8, "timeout_ms") : 0;
	if (r.failed)
		return -1;
	*ret = objects;
	if (ret_timeout_ms)
		*ret_timeout_ms = timeout;
	return 0;
}

/* ---- writing ---- */

static void put_spec(uint8_t *at, const rc_plasma_spec *spec)
{
	uint64_t sizes[6] = { spec->header_offset,   spec->data_offset,   spec->data_size,
		              spec->metadata_offset, spec->metadata_size, spec->allocated_size };
	int32_t segment = spec->segment_index, device = spec->device_num;

	memset(at, 0, SPEC_SIZE);
	memcpy(at, &segment, 4);
	memcpy(at + 8, &spec->unique_fd_id, 8);
	memcpy(at + 16, sizes, sizeof sizes);
	at[64] = spec->fallback;
	memcpy(at + 68, &device, 4);
	at[72] = spec->is_mutable;
}

void rc_encode_plasma_connect_reply(const rc_dialect *d, int64_t capacity, rc_buf *out)
{
	rc__flat_writer w = rc__flat_start(out, 1);
	(void)d;

	rc__flat_put_int(&w, 0, 8, capacity);
	rc__flat_finish(&w);
}

void rc_encode_plasma_create_reply(const rc_dialect *d, const rc_id *object, uint64_t retry_id, const rc_plasma_spec *spec, rc_plasma_error error,
                                   int store_fd, int64_t unique_fd_id, int64_t mmap_size, rc_buf *out)
{
	static const rc_plasma_spec none;
	uint8_t bytes[SPEC_SIZE];
	rc__flat_writer w = rc__flat_start(out, 8);
	(void)d;

	put_spec(bytes, spec ? spec : &none);
	rc__flat_put_struct(&w, 2, bytes, sizeof bytes, SPEC_ALIGN);
	rc__flat_put_int(&w, 1, 8, (int64_t)retry_id);
	rc__flat_put_int(&w, 5, 8, unique_fd_id);
	rc__flat_put_int(&w, 6, 8, mmap_size);
	size_t id = rc__flat_put_offset(&w, 0);
	rc__flat_put_int(&w, 3, 4, error);
	rc__flat_put_int(&w, 4, 4, store_fd);
	rc__flat_finish(&w);
	rc__flat_string(&w, id, rc_id_view(object));
}

void rc_encode_plasma_one_reply(const rc_dialect *d, rc_plasma reply_type, const rc_id *object, rc_plasma_error error, bool flag, rc_buf *out)
{
	rc__flat_writer w = rc__flat_start(out, 3);
	(void)d;

	size_t id = rc__flat_put_offset(&w, 0);
	switch (reply_type) {
	case RC_P_SEAL_REPLY:
		rc__flat_put_int(&w, 1, 4, error);
		break;
	case RC_P_RELEASE_REPLY: /* should_unmap, error */
		rc__flat_put_int(&w, 2, 4, error);
		rc__flat_put_int(&w, 1, 1, flag);
		break;
	case RC_P_CONTAINS_REPLY: /* an int, not a bool */
		rc__flat_put_int(&w, 1, 4, flag);
		break;
	default: /* Abort has the id only */
		break;
	}
	rc__flat_finish(&w);
	rc__flat_string(&w, id, rc_id_view(object));
}

void rc_encode_plasma_delete_reply(const rc_dialect *d, const rc_id *objects, const rc_plasma_error *errors, size_t n, rc_buf *out)
{
	rc__flat_writer w = rc__flat_start(out, 3);
	(void)d;

	rc__flat_put_int(&w, 0, 4, (int64_t)n);
	size_t ids = rc__flat_put_offset(&w, 1), codes = rc__flat_put_offset(&w, 2);
	rc__flat_finish(&w);
	rc__flat_ids(&w, ids, objects, n);
	size_t at = rc__flat_vector_of(&w, codes, n, 4, 4);
	for (size_t i = 0; i < n; i++) {
		int32_t code = errors[i];
		memcpy(out->p + at + 4 * i, &code, 4);
	}
}

void rc_encode_plasma_get_reply(const rc_dialect *d, const rc_id *objects, const rc_plasma_spec *specs, size_t n, const int *store_fds,
                                const int64_t *unique_fd_ids, const int64_t *mmap_sizes, size_t n_segments, rc_buf *out)
{
	rc__flat_writer w = rc__flat_start(out, 6);
	size_t place[6], at;
	(void)d;

	for (unsigned slot = 0; slot < 6; slot++)
		place[slot] = rc__flat_put_offset(&w, slot);
	rc__flat_finish(&w);
	rc__flat_ids(&w, place[0], objects, n);
	at = rc__flat_vector_of(&w, place[1], n, SPEC_SIZE, SPEC_ALIGN);
	for (size_t i = 0; i < n; i++)
		put_spec(out->p + at + SPEC_SIZE * i, &specs[i]);
	at = rc__flat_vector_of(&w, place[2], n_segments, 4, 4);
	for (size_t i = 0; i < n_segments; i++)
		memcpy(out->p + at + 4 * i, &store_fds[i], 4);
	at = rc__flat_vector_of(&w, place[3], n_segments, 8, 8);
	for (size_t i = 0; i < n_segments; i++)
		memcpy(out->p + at + 8 * i, &unique_fd_ids[i], 8);
	at = rc__flat_vector_of(&w, place[4], n_segments, 8, 8);
	for (size_t i = 0; i < n_segments; i++)
		memcpy(out->p + at + 8 * i, &mmap_sizes[i], 8);
	rc__flat_vector_of(&w, place[5], 0, 4, 4); /* handles of device memory: none */
}
