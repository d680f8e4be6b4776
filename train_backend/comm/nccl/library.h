/* The NCCL library, opened at run time: the one that the process has loaded (torch's), so that there is one in it. Only what is used is
 * declared, in our own words; its binary interface is stable within libnccl.so.2. Any thread. */
#ifndef RC_COMM_NCCL_LIBRARY_H
#define RC_COMM_NCCL_LIBRARY_H

#include <stddef.h>

#include "raylet-c/base/status.h"
#include "train_backend/device/dtype.h"

typedef void *rc__nccl_comm;
typedef struct rc__nccl_id {
	char bytes[128];
} rc__nccl_id;

enum { RC__NCCL_OK = 0, RC__NCCL_IN_PROGRESS = 7 };
enum { RC__NCCL_SUM = 0, RC__NCCL_AVG = 4 };
enum { RC__NCCL_WINDOW_SYMMETRIC = 1 };

typedef struct rc__nccl {
	int version; /* 22809: 2.28.9 */
	int (*ncclGetVersion)(int *version);
	int (*ncclGetUniqueId)(rc__nccl_id *id);
	int (*ncclCommInitRank)(rc__nccl_comm *comm, int size, rc__nccl_id id, int rank);
	int (*ncclCommDestroy)(rc__nccl_comm comm);
	int (*ncclCommAbort)(rc__nccl_comm comm);
	int (*ncclCommGetAsyncError)(rc__nccl_comm comm, int *result);
	const char *(*ncclGetErrorString)(int result);
	int (*ncclAllGather)(const void *send, void *recv, size_t count, int type, rc__nccl_comm comm, rc_stream stream);
	int (*ncclReduceScatter)(const void *send, void *recv, size_t count, int type, int op, rc__nccl_comm comm, rc_stream stream);
	int (*ncclAllReduce)(const void *send, void *recv, size_t count, int type, int op, rc__nccl_comm comm, rc_stream stream);
	int (*ncclBroadcast)(const void *send, void *recv, size_t count, int type, int root, rc__nccl_comm comm, rc_stream stream);
	int (*ncclSend)(const void *send, size_t count, int type, int to, rc__nccl_comm comm, rc_stream stream);
	int (*ncclRecv)(void *recv, size_t count, int type, int from, rc__nccl_comm comm, rc_stream stream);
	int (*ncclGroupStart)(void);
	int (*ncclGroupEnd)(void);
	/* NULL in versions that lack them: before 2.13, 2.19, 2.19, 2.27. */
	const char *(*ncclGetLastError)(rc__nccl_comm comm);
	int (*ncclMemAlloc)(void **memory, size_t bytes);
	int (*ncclMemFree)(void *memory);
	int (*ncclCommRegister)(rc__nccl_comm comm, void *memory, size_t bytes, void **handle);
	int (*ncclCommDeregister)(rc__nccl_comm comm, void *handle);
	int (*ncclCommWindowRegister)(rc__nccl_comm comm, void *memory, size_t bytes, void **window, int flags);
	int (*ncclCommWindowDeregister)(rc__nccl_comm comm, void *window);
} rc__nccl;

/* Once a process; what it gives lives as long. RC_E_UNAVAILABLE: there is none. */
int rc__nccl_open(const rc__nccl **library, rc_error *error);
int rc__nccl_type(rc_dtype dtype);

#endif
