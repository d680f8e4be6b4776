/* Collectives of a fixed group of ranks. One table of operations (comm_ops.h); transports: shm (ranks of one host, CPU memory),
 * fabric (ranks of several hosts, CPU memory, over libfabric) and nccl (GPU memory, the library that the process has loaded).
 *
 * Every rank must make the same calls in the same order. A call with other sizes than the other ranks', a rank that does not come
 * within the timeout, and a rank that has died end the call on every rank with an error that names rank, unit and phase; from then
 * on the communicator is broken and every later call fails at once with that error. On shm and fabric this is found inside the call. On nccl
 * the call only queues work on the stream: sizes are compared through the ranks' progress records, a watchdog thread aborts what
 * does not end in time, and rc_comm_check tells.
 *
 * Thread rule: one thread at a time uses a communicator; rc_comm_abort from any thread. */
#ifndef RC_COMM_COMM_H
#define RC_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/status.h"
#include "train_backend/device/dtype.h"

typedef struct rc_comm rc_comm;

/* For error texts: which unit, in which phase ("forward", "backward", "reduce", ...). Both may be NULL; copied. */
typedef struct rc_tag {
	const char *unit;
	const char *phase;
} rc_tag;

typedef enum rc_redop {
	RC_SUM,
	RC_AVG, /* shm, fabric: the sum (bf16 and f16 in f32) times 1 / ranks, rounded once to the data type; nccl: its own average */
} rc_redop;

/* Start in two steps: prepare makes this rank's blob; whoever calls brings every rank the blobs of all (torch's store), and connect
 * joins them. timeout: seconds for each call. */
int rc_comm_shm_prepare(int rank, int size, double timeout, rc_comm **comm, rc_error *error) RC_WARN_UNUSED;
/* providers: libfabric's names, comma between, the preferred first; NULL: efa, tcp, net, sockets. ip: this host's own address, which the
 * others reach; NULL: libfabric's choice. RC_E_NOT_FOUND: no libfabric here, or none of the providers. */
int rc_comm_fabric_prepare(int rank, int size, const char *providers, const char *ip, double timeout, rc_comm **comm, rc_error *error)
	RC_WARN_UNUSED;
int rc_comm_nccl_prepare(int rank, int size, int device, double timeout, rc_comm **comm, rc_error *error) RC_WARN_UNUSED;
void rc_comm_blob(const rc_comm *comm, const void **bytes, size_t *size);
/* blobs[r], sizes[r] of rank r. RC_E_UNSUPPORTED: a rank cannot be reached this way (shm: another host, another
 * process namespace; fabric: no provider in common). */
int rc_comm_connect(rc_comm *comm, const void *const *blobs, const size_t *sizes, rc_error *error) RC_WARN_UNUSED;
/* Accepts NULL and what was never connected. In a forked child it does nothing: the communicator is its parent's. */
void rc_comm_destroy(rc_comm *comm);

int rc_comm_rank(const rc_comm *comm);
int rc_comm_size(const rc_comm *comm);
const char *rc_comm_transport(const rc_comm *comm); /* "shm", "nccl 2.28.9", "fabric net" */

/* Bytes of other ranks' data that came to this rank since the start; nccl: what the calls move at least, whatever way it goes. */
uint64_t rc_comm_taken(const rc_comm *comm);
/* For counting only: how many ranks, side by side, share a node; 0 (the start): all. */
void rc_comm_set_local(rc_comm *comm, int ranks);
/* How much of rc_comm_taken came from other nodes. nccl: as of a flat ring, in which one rank of each node takes from the node before. */
uint64_t rc_comm_crossed(const rc_comm *comm);

/* Memory that every rank can reach: collective, the same number of bytes on all ranks, zeroed, aligned to 4096, until destroy.
 * shm: operations on it need no copy in between. fabric: memory of this rank. nccl: RC_E_UNSUPPORTED where the library cannot register memory. */
int rc_comm_window(rc_comm *comm, size_t bytes, void **base, rc_error *error) RC_WARN_UNUSED;

/* recv is [ranks][bytes]; send may be recv + rank * bytes. */
int rc_comm_all_gather(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error)
	RC_WARN_UNUSED;
/* Gathers each piece to its place in full (see rc_piece); nothing else of full is written, its padding neither. send is this rank's chunk
 * of `chunk` elements of `element` bytes. shm: send must lie in a window. Transports without it: RC_E_UNSUPPORTED (gather, then
 * kernels/). */
int rc_comm_gather_pieces(rc_comm *comm, rc_tag tag, const void *send, size_t chunk, size_t element, const rc_piece *pieces, size_t count,
                          void *full, rc_error *error) RC_WARN_UNUSED;
/* send is [ranks][count], recv [count]. shm, fabric: sums in the order of ranks, so every run gives the same bits. */
int rc_comm_reduce_scatter(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t count, rc_dtype dtype, rc_redop op,
                           rc_stream stream, rc_error *error) RC_WARN_UNUSED;
/* In place. */
int rc_comm_all_reduce(rc_comm *comm, rc_tag tag, void *data, size_t count, rc_dtype dtype, rc_redop op, rc_stream stream,
                       rc_error *error) RC_WARN_UNUSED;
/* send and recv are [ranks][bytes]: part q of send goes to rank q, part q of recv comes from it. Transports without it: RC_E_UNSUPPORTED. */
int rc_comm_all_to_all(rc_comm *comm, rc_tag tag, const void *send, void *recv, size_t bytes, rc_stream stream, rc_error *error)
	RC_WARN_UNUSED;
int rc_comm_broadcast(rc_comm *comm, rc_tag tag, void *data, size_t bytes, int root, rc_stream stream, rc_error *error) RC_WARN_UNUSED;
int rc_comm_barrier(rc_comm *comm, rc_tag tag, rc_error *error) RC_WARN_UNUSED; /* nccl: of the host threads' queued work */

/* Several queued calls as one launch (nccl); elsewhere nothing. */
int rc_comm_group_begin(rc_comm *comm, rc_error *error) RC_WARN_UNUSED;
int rc_comm_group_end(rc_comm *comm, rc_error *error) RC_WARN_UNUSED;

/* After the launch of a CUDA graph that calls were captured into: from here until the stream has come here is one call, which must end
 * within the timeout like any other. All ranks call. shm: nothing. */
int rc_comm_watch(rc_comm *comm, rc_tag tag, rc_stream stream, rc_error *error) RC_WARN_UNUSED;

/* -1 with the reason when the communicator is broken. Cheap. */
int rc_comm_check(rc_comm *comm, rc_error *error) RC_WARN_UNUSED;
/* Breaks it on every rank with this reason: what they wait in ends. */
void rc_comm_abort(rc_comm *comm, const char *reason);

#endif
