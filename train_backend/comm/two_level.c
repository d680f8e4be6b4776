/* See two_level.h. Inside a node there is one call for each node's row of the data, so that every part lands at its place in the order of
 * ranks without a copy more. */
#include "train_backend/comm/two_level.h"

/* Ends the calls of a group in any case, so that none stays open; result and error are those of its calls. */
static int end_group(rc_comm *comm, int result, rc_error *error)
{
	rc_error of_end;

	if (rc_comm_group_end(comm, &of_end) == 0 || result)
		return result;
	return rc_fail(error, of_end.code, "%s", of_end.text);
}

int rc_two_level_spread(rc_comm *within, size_t nodes, rc_tag tag, const void *rows, void *recv, size_t bytes, rc_stream stream,
                        rc_error *error)
{
	size_t local = (size_t)rc_comm_size(within);
	int result = 0;

	if (rc_comm_group_begin(within, error))
		return -1;
	for (size_t n = 0; n < nodes && result == 0; n++)
		result = rc_comm_all_gather(within, tag, (const char *)rows + n * bytes, (char *)recv + n * local * bytes, bytes, stream, error);
	return end_group(within, result, error);
}

int rc_two_level_collect(rc_comm *within, size_t nodes, rc_tag tag, const void *send, void *rows, size_t count, rc_dtype dtype, rc_redop op,
                         rc_stream stream, rc_error *error)
{
	size_t local = (size_t)rc_comm_size(within), bytes = count * rc_dtype_size(dtype);
	int result = 0;

	if (rc_comm_group_begin(within, error))
		return -1;
	for (size_t n = 0; n < nodes && result == 0; n++)
		result = rc_comm_reduce_scatter(within, tag, (const char *)send + n * local * bytes, (char *)rows + n * bytes, count, dtype, op,
		                                stream, error);
	return end_group(within, result, error);
}

int rc_two_level_all_gather(rc_comm *within, rc_comm *between, rc_tag tag, const void *send, void *recv, size_t bytes, void *staging,
                            rc_stream stream, rc_error *error)
{
	if (rc_comm_all_gather(between, tag, send, staging, bytes, stream, error))
		return -1;
	return rc_two_level_spread(within, (size_t)rc_comm_size(between), tag, staging, recv, bytes, stream, error);
}

int rc_two_level_reduce_scatter(rc_comm *within, rc_comm *between, rc_tag tag, const void *send, void *recv, size_t count, rc_dtype dtype,
                                rc_redop op, void *staging, rc_stream stream, rc_error *error)
{
	if (rc_two_level_collect(within, (size_t)rc_comm_size(between), tag, send, staging, count, dtype, op, stream, error))
		return -1;
	return rc_comm_reduce_scatter(between, tag, staging, recv, count, dtype, op, stream, error);
}
