/* The part that all transports share: arguments are checked here, then the transport's table is called. See comm.h. */
#include "train_backend/comm/comm.h"

#include <stdint.h>
#include <unistd.h>

#include "train_backend/comm/comm_ops.h"

static int connected(const rc_comm *comm, rc_error *error)
{
	if (!comm->connected)
		return rc_fail(error, RC_E_INVALID, "the communicator is not connected");
	if (comm->owner != getpid())
		return rc_fail(error, RC_E_INVALID, "the communicator belongs to process %d, of which this one (%d) is a fork", (int)comm->owner,
		               (int)getpid());
	return 0;
}

/* count * unit * ranks, or an error that names the call. */
static int fits(const rc_comm *comm, const char *call, size_t count, size_t unit, rc_error *error)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, unit, &bytes) || __builtin_mul_overflow(bytes, (size_t)comm->size, &bytes) || bytes > PTRDIFF_MAX)
		return rc_fail(error, RC_E_INVALID, "%s: %zu elements of %zu bytes on %d ranks are too many", call, count, unit, comm->size);
	return 0;
}

static int needs(const char *call, const char *what, const void *memory, size_t bytes, rc_error *error)
{
	return memory || bytes == 0 ? 0 : rc_fail(error, RC_E_INVALID, "%s: %s is NULL for %zu bytes", call, what, bytes);
}

static int sums(const char *call, rc_dtype dtype, rc_redop op, rc_error *error)
{
	if (dtype != RC_F32 && dtype != RC_F16 && dtype != RC_BF16 && dtype != RC_F64)
		return rc_fail(error, RC_E_INVALID, "%s: data of type %d cannot be summed", call, (int)dtype);
	if (op != RC_SUM && op != RC_AVG)
		return rc_fail(error, RC_E_INVALID, "%s: there is no operation %d", call, (int)op);
	return 0;
}

void rc_comm_blob(const rc_comm *comm, const void **bytes, size_t *size)
{
	*bytes = comm->blob;
	*size = comm->blob_size;
}

int rc_comm_connect(rc_comm *comm, const void *const *blobs, const size_t *sizes, rc_error *error)
{
	if (comm->connected)
		return rc_fail(error, RC_E_INVALID, "the communicator is connected already");
	if (comm->ops->connect(comm, blobs, sizes, error))
		return -1;
	comm->connected = true;
	return 0;
}

void rc_comm_destroy(rc_comm *comm)
{
	if (comm && comm->owner == getpid())
		comm->ops->destroy(comm);
}

int rc_comm_rank(const rc_comm *comm)
{
	return comm->rank;
}

int rc_comm_size(const rc_comm *comm)
{
	return comm->size;
}

const char *rc_comm_transport(const rc_comm *comm)
{
	return comm->transport;
}

uint64_t rc_comm_taken(const rc_comm *comm)
{
	return comm->taken;
}

void rc_comm_set_local(rc_comm *comm, int ranks)
{
	comm->local = ranks < 0 ? 0 : ranks;
}

uint64_t rc_comm_crossed(const rc_comm *comm)
{
	return comm->local == 1 ? comm->taken : comm->crossed;
}

int rc_comm_window(rc_comm *comm, size_t bytes, void **base, rc_error *error)
{
	if (connected(comm, error) || fits(comm, "window", bytes, 1, error))
		return -1;
	return comm->ops->window(comm, bytes, base, error);
}

int rc_comm_all_gather(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error)
{
	static const char call[] = "all-gather";

	if (connected(comm, error) || fits(comm, call, bytes, 1, error) || needs(call, "send", send, bytes, error) ||
	    needs(call, "recv", recv, bytes, error))
		return -1;
	return comm->ops->all_gather(comm, tag, send, recv, bytes, stream, error);
}

int rc_comm_gather_pieces(rc_comm *comm, rc_tag tag, const void *send, size_t chunk, size_t element, const rc_piece *pieces, size_t count,
                          void *full, rc_error *error)
{
	static const char call[] = "gather of pieces";

	if (connected(comm, error) || fits(comm, call, chunk, element, error) || needs(call, "send", send, chunk, error) ||
	    needs(call, "full", full, chunk, error))
		return -1;
	for (size_t i = 0; i < count; i++)
		if (pieces[i].count > chunk || pieces[i].chunk > chunk - pieces[i].count ||
		    pieces[i].total > pieces[i].count * (size_t)comm->size)
			return rc_fail(error, RC_E_INVALID, "%s: piece %zu (%zu elements at %zu, %zu in all) is not inside a chunk of %zu elements", call,
			               i, pieces[i].count, pieces[i].chunk, pieces[i].total, chunk);
	return comm->ops->gather_pieces(comm, tag, send, chunk, element, pieces, count, full, error);
}

int rc_comm_reduce_scatter(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t count, rc_dtype dtype, rc_redop op,
                           rc_stream stream, rc_error *error)
{
	static const char call[] = "reduce-scatter";

	if (connected(comm, error) || sums(call, dtype, op, error) || fits(comm, call, count, rc_dtype_size(dtype), error) ||
	    needs(call, "send", send, count, error) || needs(call, "recv", recv, count, error))
		return -1;
	return comm->ops->reduce_scatter(comm, tag, send, recv, count, dtype, op, stream, error);
}

int rc_comm_all_reduce(rc_comm *comm, rc_tag tag, void *data, size_t count, rc_dtype dtype, rc_redop op, rc_stream stream, rc_error *error)
{
	static const char call[] = "all-reduce";

	if (connected(comm, error) || sums(call, dtype, op, error) || fits(comm, call, count, rc_dtype_size(dtype), error) ||
	    needs(call, "data", data, count, error))
		return -1;
	return comm->ops->all_reduce(comm, tag, data, count, dtype, op, stream, error);
}

int rc_comm_all_to_all(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error)
{
	static const char call[] = "all-to-all";

	if (connected(comm, error) || fits(comm, call, bytes, 1, error) || needs(call, "send", send, bytes, error) ||
	    needs(call, "recv", recv, bytes, error))
		return -1;
	if (!comm->ops->all_to_all)
		return rc_fail(error, RC_E_UNSUPPORTED, "%s is not there over %s", call, comm->transport);
	return comm->ops->all_to_all(comm, tag, send, recv, bytes, stream, error);
}

int rc_comm_broadcast(rc_comm *comm, rc_tag tag, void *data, size_t bytes, int root, rc_stream stream, rc_error *error)
{
	static const char call[] = "broadcast";

	if (connected(comm, error) || fits(comm, call, bytes, 1, error) || needs(call, "data", data, bytes, error))
		return -1;
	if (root < 0 || root >= comm->size)
		return rc_fail(error, RC_E_INVALID, "%s: there is no rank %d among %d", call, root, comm->size);
	return comm->ops->broadcast(comm, tag, data, bytes, root, stream, error);
}

int rc_comm_barrier(rc_comm *comm, rc_tag tag, rc_error *error)
{
	return connected(comm, error) ? -1 : comm->ops->barrier(comm, tag, error);
}

int rc_comm_group_begin(rc_comm *comm, rc_error *error)
{
	return connected(comm, error) ? -1 : comm->ops->group_begin(comm, error);
}

int rc_comm_group_end(rc_comm *comm, rc_error *error)
{
	return connected(comm, error) ? -1 : comm->ops->group_end(comm, error);
}

int rc_comm_watch(rc_comm *comm, rc_tag tag, rc_stream stream, rc_error *error)
{
	return connected(comm, error) ? -1 : comm->ops->watch(comm, tag, stream, error);
}

int rc_comm_check(rc_comm *comm, rc_error *error)
{
	return connected(comm, error) ? -1 : comm->ops->check(comm, error);
}

void rc_comm_abort(rc_comm *comm, const char *reason)
{
	if (comm->connected && comm->owner == getpid())
		comm->ops->abort(comm, reason);
}
