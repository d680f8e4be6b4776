/* What the files of kernels/ share: the two backends' tables, and the layout. For this folder only. */
#ifndef RC_KERNELS_INTERNAL_H
#define RC_KERNELS_INTERNAL_H

#include <stdint.h>

#include "train_backend/kernels/kernels.h"

/* Elements of a chunk that no piece covers. */
typedef struct rc__gap {
	size_t chunk, count;
} rc__gap;

typedef struct rc__cuda_layout rc__cuda_layout;

struct rc_layout {
	rc_kernels *kernels;   /* borrowed */
	rc_piece *pieces;      /* [count], in the caller's order */
	size_t count;
	rc__gap *gaps;         /* [gap_count], ascending */
	size_t gap_count;
	int ranks;
	size_t chunk;
	rc__cuda_layout *cuda; /* NULL on the CPU */
};

/* What an AdamW step does to one element besides reading and writing it: all that is made of the options once a call. In f32, as
 * torch rounds them for f32 arithmetic; in f64 for f64 parameters. */
typedef struct rc__adamw_factors {
	double decay;        /* decoupled: the parameter is multiplied by 1 - lr * weight_decay; 1: not */
	double l2;           /* not decoupled: weight_decay, or 0 */
	double beta2;
	double weight1;      /* 1 - beta1 */
	double weight2;      /* 1 - beta2 */
	double step_size;    /* lr / (1 - beta1^step) */
	double root;         /* sqrt(1 - beta2^step) */
	double eps;
	double grad_scale;   /* 1: not scaled; negative to maximise */
} rc__adamw_factors;

typedef struct rc__sgd_factors {
	double decay;      /* weight_decay, or 0 */
	double momentum;   /* 0: without */
	double weight;     /* of the gradient in the buffer: 1 - dampening */
	double step_size;  /* -lr */
	double sign;       /* of the gradient: -1 to maximise */
	bool first, nesterov;
} rc__sgd_factors;

/* The calls of kernels.h after their arguments were checked: no zero counts, types that the call serves. */
typedef struct rc__backend {
	int (*unshuffle)(rc_kernels *kernels, const rc_layout *layout, const void *gathered, void *full, size_t element, rc_stream stream,
	                 rc_error *error);
	int (*pack)(rc_kernels *kernels, const rc_layout *layout, const void *const *grads, rc_dtype from, void *packed, rc_dtype to,
	            float scale, rc_stream stream, rc_error *error);
	int (*cast)(rc_kernels *kernels, const void *from, rc_dtype from_type, void *to, rc_dtype to_type, size_t count, rc_stream stream,
	            rc_error *error);
	int (*accumulate)(rc_kernels *kernels, void *sum, rc_dtype sum_type, const void *from, rc_dtype from_type, size_t count, float scale,
	                  rc_stream stream, rc_error *error);
	int (*scale)(rc_kernels *kernels, void *data, rc_dtype type, size_t count, float scale, rc_stream stream, rc_error *error);
	int (*sum_squares)(rc_kernels *kernels, const void *data, rc_dtype type, size_t count, float *out, rc_stream stream, rc_error *error);
	int (*clip_coefficient)(rc_kernels *kernels, const float *sum, float max_norm, float *coefficient, float *norm, rc_stream stream,
	                        rc_error *error);
	int (*adamw_step)(rc_kernels *kernels, const rc_adamw *step, rc_stream stream, rc_error *error);
	int (*sgd_step)(rc_kernels *kernels, const rc_sgd *step, rc_stream stream, rc_error *error);
	int (*quantize)(rc_kernels *kernels, rc_quant kind, size_t block, const void *from, rc_dtype from_type, size_t count, float *residual,
	                void *packed, rc_stream stream, rc_error *error);
	int (*dequantize)(rc_kernels *kernels, rc_quant kind, size_t block, const void *packed, void *to, rc_dtype to_type, size_t count,
	                  bool add, float scale, rc_stream stream, rc_error *error);
} rc__backend;

typedef struct rc__cuda_kernels rc__cuda_kernels;
typedef struct rc__cpu_ops rc__cpu_ops;

struct rc_kernels {
	const rc__backend *backend;
	int device;              /* -1: the CPU */
	const rc__cpu_ops *cpu;  /* the processor's fastest set; NULL on CUDA */
	rc__cuda_kernels *cuda;  /* NULL on the CPU */
};

extern const rc__backend rc__cpu_backend;
extern const rc__backend rc__cuda_backend;

int rc__cuda_kernels_create(int device, rc__cuda_kernels **kernels, rc_error *error) RC_WARN_UNUSED;
void rc__cuda_kernels_destroy(rc__cuda_kernels *kernels);
int rc__cuda_layout_create(rc_kernels *kernels, const rc_layout *layout, rc__cuda_layout **table, rc_error *error) RC_WARN_UNUSED;
void rc__cuda_layout_destroy(rc_kernels *kernels, rc__cuda_layout *table);

/* Everything but what is read from device memory at run time: step_on_device and grad_scale. */
void rc__adamw_factors_make(const rc_adamw *step, double count, double grad_scale, rc__adamw_factors *factors);
void rc__sgd_factors_make(const rc_sgd *step, rc__sgd_factors *factors);

void rc__sgd_factors_make(const rc_sgd *step, rc__sgd_factors *factors);

/* cpu_optim.c */
int rc__cpu_adamw_step(rc_kernels *kernels, const rc_adamw *step, rc_stream stream, rc_error *error) RC_WARN_UNUSED;
int rc__cpu_sgd_step(rc_kernels *kernels, const rc_sgd *step, rc_stream stream, rc_error *error) RC_WARN_UNUSED;

/* Where the two parts of a quantised message lie: scales [blocks] f32 at 0, values at the offset, a multiple of 16. */
static inline size_t rc__quant_blocks(size_t count, size_t block)
{
	return (count + block - 1) / block;
}

static inline size_t rc__quant_values(size_t count, size_t block)
{
	return (rc__quant_blocks(count, block) * sizeof(float) + 15) / 16 * 16;
}

/* The largest value that a code stands for. */
static inline float rc__quant_limit(rc_quant kind)
{
	return kind == RC_INT8 ? 127 : kind == RC_INT4 ? 7 : 448;
}

/* Vectorised loops over f32, one set for each instruction set; the same bits from each. Buffers of one call do not overlap. */
struct rc__cpu_ops {
	const char *name;
	void (*widen_bf16)(const uint16_t *from, float *to, size_t count);
	void (*narrow_bf16)(const float *from, uint16_t *to, size_t count);
	void (*widen_f16)(const uint16_t *from, float *to, size_t count);
	void (*narrow_f16)(const float *from, uint16_t *to, size_t count);
	void (*scale)(float *data, float scale, size_t count);
	void (*add_scaled)(float *sum, const float *from, float scale, size_t count);
	double (*sum_squares)(const float *data, size_t count);
	void (*adamw_f32)(const rc__adamw_factors *factors, float *param, const float *grad, float *exp_avg, float *exp_avg_sq, size_t count);
	/* The same in two halves, between which somebody else takes the square roots of exp_avg_sq. */
	void (*adamw_moments)(const rc__adamw_factors *factors, float *param, const float *grad, float *exp_avg, float *exp_avg_sq, size_t count);
	void (*adamw_apply)(const rc__adamw_factors *factors, float *param, const float *exp_avg, const float *roots, size_t count);
	/* buffer: NULL without momentum. */
	void (*sgd_f32)(const rc__sgd_factors *factors, float *param, const float *grad, float *buffer, size_t count);
	/* All four in bf16, the commonest case after f32, in one loop. */
	void (*adamw_bf16)(const rc__adamw_factors *factors, uint16_t *param, const uint16_t *grad, uint16_t *exp_avg, uint16_t *exp_avg_sq,
	                   size_t count);
	uint32_t (*max_bits)(const float *data, size_t count); /* the bits of the largest |x|: a NaN's are above infinity's */
	/* codes[i] for data[i] * inverse; one byte each, int4 too. */
	void (*encode_int)(const float *data, float inverse, int8_t *codes, size_t count);
	/* Two signed bytes <-> two nibbles of one, the first the low one. count: of pairs. */
	void (*join_nibbles)(const int8_t *pairs, uint8_t *bytes, size_t count);
	void (*split_nibbles)(const uint8_t *bytes, int8_t *pairs, size_t count);
	void (*encode_fp8)(const float *data, float inverse, uint8_t *codes, size_t count);
	void (*decode_int)(const int8_t *codes, float scale, float *to, size_t count);
	void (*decode_fp8)(const uint8_t *codes, float scale, float *to, size_t count);
};

extern const rc__cpu_ops rc__cpu_base;
#if defined __x86_64__ && !defined __clang__ /* clang has other pragmas; only the fuzz build uses it */
#define RC__X86_SETS
extern const rc__cpu_ops rc__cpu_avx2;
extern const rc__cpu_ops rc__cpu_avx512;
#endif

/* Every set that this processor runs, the fastest first; returns how many. */
size_t rc__cpu_sets(const rc__cpu_ops *sets[3]);

#endif
