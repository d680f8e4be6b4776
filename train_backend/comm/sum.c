/* See sum.h. Blocks that stay in the first cache are widened, summed source by source, and narrowed: one reading of every source and
 * one writing of the result. The loops are plain C that the compiler turns into vectors, once for each set of instructions. */
#pragma GCC optimize("O3", "fp-contract=off")
#include "train_backend/comm/sum.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { BLOCK = 1024 }; /* elements */

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits;
}

INLINE float float_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

INLINE float widen_bf16(uint16_t x)
{
	return float_of((uint32_t)x << 16);
}

INLINE uint16_t narrow_bf16(float x)
{
	uint32_t bits = bits_of(x);
	uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded); /* a NaN stays one */
}

/* f16 in integer arithmetic: for processors without F16C, and for what is left after whole vectors. */
static float widen_f16(uint16_t x)
{
	uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 0x1f, fraction = x & 0x3ff;

	if (exponent == 0x1f)
		return float_of(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x400000 : 0));
	if (exponent)
		return float_of(sign | (exponent + 112) << 23 | fraction << 13);
	return float_of(sign | bits_of((float)fraction * 0x1p-24f));
}

static uint16_t narrow_f16(float x)
{
	uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;

	if (size > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
	if (size >= 0x477ff000) /* 65520: halfway to the next power of two */
		return (uint16_t)(sign | 0x7c00);
	if (size < 0x38800000) { /* below 2^-14: adding 0.5 leaves the fraction, rounded by the addition itself, in the low bits */
		return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000));
	}
	return (uint16_t)(sign | (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13);
}

/* ---- blocks of f16, 8 at a time where the processor converts them ---- */

#ifdef __x86_64__
__attribute__((target("avx,f16c"))) static void widen_f16_vector(float *to, const uint16_t *from, size_t n, bool add)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i)));

		_mm256_storeu_ps(to + i, add ? _mm256_add_ps(_mm256_loadu_ps(to + i), x) : x);
	}
	for (; i < n; i++)
		to[i] = add ? to[i] + widen_f16(from[i]) : widen_f16(from[i]);
}

__attribute__((target("avx,f16c"))) static void narrow_f16_vector(uint16_t *to, const float *from, size_t n)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8)
		_mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
	for (; i < n; i++)
		to[i] = narrow_f16(from[i]);
}
#endif

/* ---- one set of loops, compiled for each set of instructions ---- */

INLINE void sum_f32(float *to, const void *const *from, int sources, size_t begin, size_t n, float scale)
{
	float sum[BLOCK];
	const float *first = (const float *)from[0] + begin;

	for (size_t i = 0; i < n; i++)
		sum[i] = first[i];
	for (int s = 1; s < sources; s++) {
		const float *x = (const float *)from[s] + begin;

		for (size_t i = 0; i < n; i++)
			sum[i] += x[i];
	}
	for (size_t i = 0; i < n; i++)
		to[begin + i] = sum[i] * scale;
}

INLINE void sum_f64(double *to, const void *const *from, int sources, size_t begin, size_t n, double scale)
{
	double sum[BLOCK];
	const double *first = (const double *)from[0] + begin;

	for (size_t i = 0; i < n; i++)
		sum[i] = first[i];
	for (int s = 1; s < sources; s++) {
		const double *x = (const double *)from[s] + begin;

		for (size_t i = 0; i < n; i++)
			sum[i] += x[i];
	}
	for (size_t i = 0; i < n; i++)
		to[begin + i] = sum[i] * scale;
}

INLINE void sum_bf16(uint16_t *to, const void *const *from, int sources, size_t begin, size_t n, float scale)
{
	float sum[BLOCK];
	const uint16_t *first = (const uint16_t *)from[0] + begin;

	for (size_t i = 0; i < n; i++)
		sum[i] = widen_bf16(first[i]);
	for (int s = 1; s < sources; s++) {
		const uint16_t *x = (const uint16_t *)from[s] + begin;

		for (size_t i = 0; i < n; i++)
			sum[i] += widen_bf16(x[i]);
	}
	for (size_t i = 0; i < n; i++)
		to[begin + i] = narrow_bf16(sum[i] * scale);
}

INLINE void sum_f16(uint16_t *to, const void *const *from, int sources, size_t begin, size_t n, float scale, bool vector)
{
	float sum[BLOCK];

	for (int s = 0; s < sources; s++) {
		const uint16_t *x = (const uint16_t *)from[s] + begin;

#ifdef __x86_64__
		if (vector) {
			widen_f16_vector(sum, x, n, s > 0);
			continue;
		}
#endif
		for (size_t i = 0; i < n; i++)
			sum[i] = s > 0 ? sum[i] + widen_f16(x[i]) : widen_f16(x[i]);
	}
	for (size_t i = 0; i < n; i++)
		sum[i] *= scale;
#ifdef __x86_64__
	if (vector) {
		narrow_f16_vector(to + begin, sum, n);
		return;
	}
#endif
	(void)vector;
	for (size_t i = 0; i < n; i++)
		to[begin + i] = narrow_f16(sum[i]);
}

INLINE void sum_all(void *to, const void *const *from, int sources, size_t count, rc_dtype dtype, double scale, bool f16c)
{
	for (size_t begin = 0; begin < count; begin += BLOCK) {
		size_t n = count - begin < BLOCK ? count - begin : BLOCK;

		if (dtype == RC_F32)
			sum_f32(to, from, sources, begin, n, (float)scale);
		else if (dtype == RC_BF16)
			sum_bf16(to, from, sources, begin, n, (float)scale);
		else if (dtype == RC_F16)
			sum_f16(to, from, sources, begin, n, (float)scale, f16c);
		else
			sum_f64(to, from, sources, begin, n, scale);
	}
}

static void sum_plain(void *to, const void *const *from, int sources, size_t count, rc_dtype dtype, double scale)
{
	sum_all(to, from, sources, count, dtype, scale, false);
}

#ifdef __x86_64__
__attribute__((target("avx2,f16c"))) static void sum_avx2(void *to, const void *const *from, int sources, size_t count, rc_dtype dtype,
                                                         double scale)
{
	sum_all(to, from, sources, count, dtype, scale, true);
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx2,f16c,prefer-vector-width=512"))) static void
sum_avx512(void *to, const void *const *from, int sources, size_t count, rc_dtype dtype, double scale)
{
	sum_all(to, from, sources, count, dtype, scale, true);
}
#endif

void rc__sum(void *to, const void *const *from, int sources, size_t count, rc_dtype dtype, double scale)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
		sum_avx512(to, from, sources, count, dtype, scale);
		return;
	}
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
		sum_avx2(to, from, sources, count, dtype, scale);
		return;
	}
#endif
	sum_plain(to, from, sources, count, dtype, scale);
}
