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

int rc_two_level_all_gather(rc_comm *within, rc_comm *between, rc_tag tag, const void *send, void *recv, size_t bytes, void *staging,
                            rc_stream stream, rc_error *error)
{
	size_t local = (size_t)rc_comm_size(within), nodes = (size_t)rc_comm_size(between);
	int result = 0;

	if (rc_comm_all_gather(between, tag, send, staging, bytes, stream, error) || rc_comm_group_begin(within, error))
		return -1;
	for (size_t n = 0; n < nodes && result == 0; n++)
		result = rc_comm_all_gather(within, tag, (char *)staging + n * bytes, (char *)recv + n * local * bytes, bytes, stream, error);
	return end_group(within, result, error);
}

int rc_two_level_reduce_scatter(rc_comm *within, rc_comm *between, rc_tag tag, const void *send, void *recv, size_t count, rc_dtype dtype,
                                rc_redop op, void *staging, rc_stream stream, rc_error *error)
{
	size_t local = (size_t)rc_comm_size(within), nodes = (size_t)rc_comm_size(between), bytes = count * rc_dtype_size(dtype);
	int result = 0;

	if (rc_comm_group_begin(within, error))
		return -1;
	for (size_t n = 0; n < nodes && result == 0; n++)
		result = rc_comm_reduce_scatter(within, tag, (const char *)send + n * local * bytes, (char *)staging + n * bytes, count, dtype, op,
		                                stream, error);
	if (end_group(within, result, error))
		return -1;
	return rc_comm_reduce_scatter(between, tag, staging, recv, count, dtype, op, stream, error);
}
