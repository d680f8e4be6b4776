/* Kernels over flat buffers, for a device: CUDA (compiled from source by NVRTC at first use) or CPU. Each has a slow readable twin
 * in oracle.h, which the tests hold it to. Counts are in elements. Pointers are device memory for CUDA. Any thread. */
#ifndef RC_KERNELS_KERNELS_H
#define RC_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/status.h"
#include "train_backend/device/dtype.h"

typedef struct rc_kernels rc_kernels;

/* device < 0: the CPU. CUDA: opens the device, makes its context current, compiles what is not in the cache (device/nvrtc.h); not
 * while a graph is captured. Every call on CUDA is one launch (rc_pack: one for each 256 pieces), allocates nothing and may be
 * captured; it leaves the device's context current. */
int rc_kernels_create(int device, rc_kernels **kernels, rc_error *error) RC_WARN_UNUSED;
void rc_kernels_destroy(rc_kernels *kernels);

/* A unit's pieces, kept on the device. `chunk` is the elements of one rank's chunk (alignment gaps included, which stay zero). */
typedef struct rc_layout rc_layout;
int rc_layout_create(rc_kernels *kernels, const rc_piece *pieces, size_t count, int ranks, size_t chunk, rc_layout **layout,
                     rc_error *error) RC_WARN_UNUSED;
void rc_layout_destroy(rc_layout *layout);

/* [ranks][chunk] as an all-gather leaves it -> the whole parameters at their places in full. element: bytes of one, 1, 2, 4 or 8. */
int rc_unshuffle(rc_kernels *kernels, const rc_layout *layout, const void *gathered, void *full, size_t element, rc_stream stream,
                 rc_error *error) RC_WARN_UNUSED;
/* Whole gradients (grads[i] of piece i, contiguous, piece.total elements; NULL: zeros) -> [ranks][chunk] in the reduce's type, times
 * scale, with zeros in padding and gaps. scale 1 with equal types moves the bits. */
int rc_pack(rc_kernels *kernels, const rc_layout *layout, const void *const *grads, rc_dtype from, void *packed, rc_dtype to, float scale,
            rc_stream stream, rc_error *error) RC_WARN_UNUSED;
/* Conversions round to nearest even, as torch's. to and from may be the same buffer only when the types are equal. */
int rc_cast(rc_kernels *kernels, const void *from, rc_dtype from_type, void *to, rc_dtype to_type, size_t count, rc_stream stream,
            rc_error *error) RC_WARN_UNUSED;
/* sum[i] += from[i] * scale, computed in f32 (f64 for f64), rounded once. */
int rc_accumulate(rc_kernels *kernels, void *sum, rc_dtype sum_type, const void *from, rc_dtype from_type, size_t count, float scale,
                  rc_stream stream, rc_error *error) RC_WARN_UNUSED;
/* data[i] *= scale. */
int rc_scale(rc_kernels *kernels, void *data, rc_dtype type, size_t count, float scale, rc_stream stream, rc_error *error) RC_WARN_UNUSED;
/* *out += sum of squares; the same bits every run. CUDA: f32 by a fixed tree inside a block, f64 over the blocks; CPU: f64 inside. out:
 * one f32 on the device. */
int rc_sum_squares(rc_kernels *kernels, const void *data, rc_dtype type, size_t count, float *out, rc_stream stream, rc_error *error)
	RC_WARN_UNUSED;

/* *coefficient = min(1, max_norm / (sqrt(*sum) + 1e-6)), as clip_grad_norm_ makes it from the norm; NaN stays NaN. All are one f32 on the
 * device, so no host waits; norm (NULL: not wanted) takes sqrt(*sum). */
int rc_clip_coefficient(rc_kernels *kernels, const float *sum, float max_norm, float *coefficient, float *norm, rc_stream stream,
                        rc_error *error) RC_WARN_UNUSED;

/* Square roots of count elements, as MKL's vmsSqrt. torch 2.13 takes them from there on x86-64 (ATen/cpu/vml.h), and they are at times one
 * unit in the last place off IEEE's: with them a step gives the bits of torch's default, and without them those of its fused one. */
typedef struct rc_roots {
	void (*take)(int count, const float *from, float *to, int64_t mode);
	/* MKL_Set_Num_Threads_Local: how many threads `take` may make when this one calls it, returns what was set before. For 1024 elements
	 * they cost ten times what they do. */
	int (*threads)(int count);
} rc_roots;

/* One step of AdamW or Adam (torch.optim's formulas) over a flat shard. */
typedef struct rc_adamw {
	void *param;          /* [count] of param_type, updated */
	const void *grad;     /* [count] of grad_type */
	void *exp_avg;        /* [count] of state_type, updated */
	void *exp_avg_sq;     /* [count] of state_type, updated */
	void *cast;           /* NULL, or [count] of cast_type: the new parameter, as stored, for the next gather */
	rc_dtype param_type, grad_type, state_type, cast_type;
	size_t count;
	double lr, beta1, beta2, eps, weight_decay;
	double step;          /* after this one: the first is 1 */
	const float *step_on_device; /* read instead of step where not NULL, so that a captured graph counts on */
	const float *grad_scale; /* NULL, or one f32 on the device that gradients are multiplied by (clipping, unscaling) */
	const float *skip;    /* NULL, or one f32 on the device: not zero means that nothing is changed (a scaler found infinities) */
	bool decoupled;       /* AdamW (true) or Adam with L2 in the gradient */
	bool maximize;
	bool follow;          /* where cast is not the parameter as rounded, somebody has written it: the parameter becomes it before the step */
	const rc_roots *roots; /* NULL: IEEE's square roots. CPU, for parameters in other types than f64 */
} rc_adamw;
int rc_adamw_step(rc_kernels *kernels, const rc_adamw *step, rc_stream stream, rc_error *error) RC_WARN_UNUSED;

/* One step of SGD (torch.optim's formula). Members as in rc_adamw. */
typedef struct rc_sgd {
	void *param;
	const void *grad;
	void *momentum_buffer; /* NULL: without momentum; [count] of state_type, updated */
	void *cast;
	rc_dtype param_type, grad_type, state_type, cast_type;
	size_t count;
	double lr, momentum, dampening, weight_decay;
	bool first;            /* the buffer holds nothing yet: it becomes the gradient, without dampening */
	bool nesterov, maximize, follow;
} rc_sgd;
int rc_sgd_step(rc_kernels *kernels, const rc_sgd *step, rc_stream stream, rc_error *error) RC_WARN_UNUSED;

/* Several steps. On the CPU `threads` threads share the work in blocks (this one among them; the others live for the call); elements
 * do not depend on each other, so the bits are those of one thread. */
int rc_adamw_steps(rc_kernels *kernels, const rc_adamw *steps, size_t count, int threads, rc_stream stream, rc_error *error)
	RC_WARN_UNUSED;
int rc_sgd_steps(rc_kernels *kernels, const rc_sgd *steps, size_t count, int threads, rc_stream stream, rc_error *error) RC_WARN_UNUSED;

/* Block quantisation of messages: each block of `block` elements (a multiple of 32) has one f32 scale, max |x| / 127 (int8) or / 7
 * (int4, two to a byte, low half first). Sizes: rc_quant_bytes. Reduction sums dequantised values in f32. */
typedef enum rc_quant {
	RC_INT8,
	RC_INT4,
	RC_FP8, /* e4m3 with scale max |x| / 448 */
} rc_quant;
size_t rc_quant_bytes(rc_quant kind, size_t count, size_t block);
/* residual: NULL, or [count] f32 of error feedback: added before, holds what was lost after. */
int rc_quantize(rc_kernels *kernels, rc_quant kind, size_t block, const void *from, rc_dtype from_type, size_t count, float *residual,
                void *packed, rc_stream stream, rc_error *error) RC_WARN_UNUSED;
/* to[i] = (add ? to[i] : 0) + value * scale. */
int rc_dequantize(rc_kernels *kernels, rc_quant kind, size_t block, const void *packed, void *to, rc_dtype to_type, size_t count, bool add,
                  float scale, rc_stream stream, rc_error *error) RC_WARN_UNUSED;

#endif
