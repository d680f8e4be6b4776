/* What a transport gives to comm.c: one table of operations, and a structure that starts with struct rc_comm. comm.c has checked
 * the arguments: the communicator is connected (except for connect and destroy), sizes do not overflow, root and types are right. */
#ifndef RC_COMM_COMM_OPS_H
#define RC_COMM_COMM_OPS_H

#include <sys/types.h>

#include "train_backend/comm/comm.h"

typedef struct rc__comm_ops {
	int (*connect)(rc_comm *comm, const void *const *blobs, const size_t *sizes, rc_error *error);
	void (*destroy)(rc_comm *comm);
	int (*window)(rc_comm *comm, size_t bytes, void **base, rc_error *error);
	int (*all_gather)(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error);
	int (*gather_pieces)(rc_comm *comm, rc_tag tag, const void *send, size_t chunk, size_t element, const rc_piece *pieces, size_t count,
	                     void *full, rc_error *error);
	int (*reduce_scatter)(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t count, rc_dtype dtype, rc_redop op,
	                      rc_stream stream, rc_error *error);
	int (*all_reduce)(rc_comm *comm, rc_tag tag, void *data, size_t count, rc_dtype dtype, rc_redop op, rc_stream stream, rc_error *error);
	int (*all_to_all)(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error); /* or NULL */
	int (*broadcast)(rc_comm *comm, rc_tag tag, void *data, size_t bytes, int root, rc_stream stream, rc_error *error);
	int (*barrier)(rc_comm *comm, rc_tag tag, rc_error *error);
	int (*group_begin)(rc_comm *comm, rc_error *error);
	int (*group_end)(rc_comm *comm, rc_error *error);
	int (*watch)(rc_comm *comm, rc_tag tag, rc_stream stream, rc_error *error);
	int (*check)(rc_comm *comm, rc_error *error);
	void (*abort)(rc_comm *comm, const char *reason);
} rc__comm_ops;

struct rc_comm {
	const rc__comm_ops *ops;
	int rank, size;
	double timeout; /* seconds */
	bool connected;
	pid_t owner; /* the process that made it */
	int local;   /* see rc_comm_set_local */
	uint64_t taken, crossed; /* bytes, see rc_comm_taken; counted by the transport */
	char transport[32];
	const void *blob; /* owned by the transport */
	size_t blob_size;
};

static inline void rc__comm_took(rc_comm *comm, int from, size_t bytes)
{
	comm->taken += bytes;
	if (comm->local && from / comm->local != comm->rank / comm->local)
		comm->crossed += bytes;
}

#endif
