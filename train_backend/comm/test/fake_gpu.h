/* What test/nccl.c knows of the faked driver and NCCL (gpu/fake_gpu.c). */
#ifndef RC_COMM_TEST_FAKE_GPU_H
#define RC_COMM_TEST_FAKE_GPU_H

#include <stddef.h>

/* What a stream points to. */
typedef struct fake_stream {
	void *last;    /* collective queued last */
	int capturing; /* set by the test */
} fake_stream;

/* The last collective that NCCL was asked for; how: operation, root or -1. */
typedef struct fake_call {
	char name[32];
	size_t count;
	int type, how;
} fake_call;

#endif
