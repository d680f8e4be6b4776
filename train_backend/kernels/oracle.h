/* The slow readable twin of each kernel, element by element in the plainest arithmetic; tests hold the fast ones to them. Everything
 * in host memory; arguments as in kernels.h. Any thread. */
#ifndef RC_KERNELS_ORACLE_H
#define RC_KERNELS_ORACLE_H

#include "train_backend/kernels/kernels.h"

/* One element as a number, and a number as an element: rounded to nearest even; a NaN stays one. */
double rc_oracle_get(const void *from, rc_dtype type, size_t index);
void rc_oracle_put(void *to, rc_dtype type, size_t index, double value);

void rc_oracle_unshuffle(const rc_piece *pieces, size_t count, size_t chunk, const void *gathered, void *full, size_t element);
void rc_oracle_pack(const rc_piece *pieces, size_t count, int ranks, size_t chunk, const void *const *grads, rc_dtype from, void *packed,
                    rc_dtype to, float scale);
void rc_oracle_cast(const void *from, rc_dtype from_type, void *to, rc_dtype to_type, size_t count);
void rc_oracle_accumulate(void *sum, rc_dtype sum_type, const void *from, rc_dtype from_type, size_t count, float scale);
void rc_oracle_scale(void *data, rc_dtype type, size_t count, float scale);
double rc_oracle_sum_squares(const void *data, rc_dtype type, size_t count);
void rc_oracle_clip_coefficient(float sum, float max_norm, float *coefficient, float *norm);
void rc_oracle_adamw(const rc_adamw *step);
void rc_oracle_sgd(const rc_sgd *step);
void rc_oracle_quantize(rc_quant kind, size_t block, const void *from, rc_dtype from_type, size_t count, float *residual, void *packed);
void rc_oracle_dequantize(rc_quant kind, size_t block, const void *packed, void *to, rc_dtype to_type, size_t count, bool add, float scale);

#endif
