/* Data types of parameters, gradients and messages. Any thread. */
#ifndef RC_DEVICE_DTYPE_H
#define RC_DEVICE_DTYPE_H

#include <stddef.h>

typedef enum rc_dtype {
	RC_U8, /* bytes that are only moved */
	RC_F32,
	RC_F16,
	RC_BF16,
	RC_F64,
} rc_dtype;

/* Bytes of one element. */
static inline size_t rc_dtype_size(rc_dtype dtype)
{
	return dtype == RC_U8 ? 1 : dtype == RC_F32 ? 4 : dtype == RC_F64 ? 8 : 2;
}

/* A CUDA stream or event (CUstream, CUevent); NULL on the CPU. */
typedef void *rc_stream;
typedef void *rc_event;

/* Where one parameter lies. A rank's chunk of a unit is the concatenation of its chunks of all parameters; the gathered buffer
 * holds the whole parameters. Chunk r of a parameter goes to full + r * count: with count = ceil(rows / ranks) * row size (torch's
 * Shard(0)) the whole parameter is contiguous there, followed by padding. All in elements. */
typedef struct rc_piece {
	size_t chunk; /* offset inside a rank's chunk */
	size_t full;  /* offset inside the gathered buffer */
	size_t count; /* of one rank's chunk, padding included; the same on all ranks */
	size_t total; /* of the whole parameter, at most count * ranks; what is beyond it is padding, zero in shards and messages */
} rc_piece;

#endif
