/* The CPU half of kernels.h. Data goes through tiles of f32 that stay in the first-level cache: a vectorised loop converts a tile,
 * one computes (cpu_simd.inc), one converts back, so any mix of types runs at about memory speed. What is f32 already is worked on
 * in place. f64 has plain loops of its own. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "train_backend/kernels/cpu_tiles.h"
#include "train_backend/kernels/internal.h"

size_t rc__cpu_sets(const rc__cpu_ops *sets[3])
{
	size_t count = 0;

#ifdef RC__X86_SETS
	bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");

	if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl"))
		sets[count++] = &rc__cpu_avx512;
	if (avx2)
		sets[count++] = &rc__cpu_avx2;
#endif
	sets[count++] = &rc__cpu_base;
	return count;
}

static int cpu_unshuffle(rc_kernels *kernels, const rc_layout *layout, const void *gathered, void *full, size_t element, rc_stream stream,
                         rc_error *error)
{
	(void)kernels, (void)stream, (void)error;
	for (size_t i = 0; i < layout->count; i++) {
		const rc_piece *piece = &layout->pieces[i];

		for (size_t rank = 0, done = 0; done < piece->total; rank++, done += piece->count) {
			size_t left = piece->total - done, n = left < piece->count ? left : piece->count;

			memcpy((char *)full + (piece->full + done) * element,
			       (const char *)gathered + (rank * layout->chunk + piece->chunk) * element, n * element);
		}
	}
	return 0;
}

static int cpu_pack(rc_kernels *kernels, const rc_layout *layout, const void *const *grads, rc_dtype from, void *packed, rc_dtype to,
                    float scale, rc_stream stream, rc_error *error)
{
	size_t size = rc_dtype_size(to);

	(void)stream, (void)error;
	for (size_t rank = 0; rank < (size_t)layout->ranks; rank++) {
		char *chunk = (char *)packed + rank * layout->chunk * size;

		for (size_t i = 0; i < layout->count; i++) {
			const rc_piece *piece = &layout->pieces[i];
			size_t begin = rank * piece->count, n = 0;
			char *target = chunk + piece->chunk * size;

			if (grads[i] && begin < piece->total)
				n = piece->total - begin < piece->count ? piece->total - begin : piece->count;
			if (n)
				convert(kernels->cpu, at(grads[i], from, begin), from, target, to, n, scale);
			memset(target + n * size, 0, (piece->count - n) * size);
		}
		for (size_t i = 0; i < layout->gap_count; i++)
			memset(chunk + layout->gaps[i].chunk * size, 0, layout->gaps[i].count * size);
	}
	return 0;
}

static int cpu_cast(rc_kernels *kernels, const void *from, rc_dtype from_type, void *to, rc_dtype to_type, size_t count, rc_stream stream,
                    rc_error *error)
{
	(void)stream, (void)error;
	convert(kernels->cpu, from, from_type, to, to_type, count, 1);
	return 0;
}

static int cpu_accumulate(rc_kernels *kernels, void *sum, rc_dtype sum_type, const void *from, rc_dtype from_type, size_t count,
                          float scale, rc_stream stream, rc_error *error)
{
	const rc__cpu_ops *cpu = kernels->cpu;
	float sums[TILE], values[TILE];

	(void)stream, (void)error;
	if (sum_type == RC_F64 || from_type == RC_F64) {
		for (size_t i = 0; i < count; i++)
			put_f64(cpu, sum, sum_type, i, get_f64(cpu, sum, sum_type, i) + get_f64(cpu, from, from_type, i) * scale);
		return 0;
	}
	for (size_t done = 0, n; done < count; done += n) {
		n = tile_at(done, count);
		float *tile = open_tile(cpu, at_mut(sum, sum_type, done), sum_type, sums, n);

		cpu->add_scaled(tile, widen(cpu, at(from, from_type, done), from_type, values, n), scale, n);
		narrow(cpu, tile, at_mut(sum, sum_type, done), sum_type, n);
	}
	return 0;
}

static int cpu_scale(rc_kernels *kernels, void *data, rc_dtype type, size_t count, float scale, rc_stream stream, rc_error *error)
{
	const rc__cpu_ops *cpu = kernels->cpu;
	float values[TILE];

	(void)stream, (void)error;
	if (type == RC_F64) {
		for (size_t i = 0; i < count; i++)
			((double *)data)[i] *= scale;
		return 0;
	}
	for (size_t done = 0, n; done < count; done += n) {
		n = tile_at(done, count);
		float *tile = open_tile(cpu, at_mut(data, type, done), type, values, n);

		cpu->scale(tile, scale, n);
		narrow(cpu, tile, at_mut(data, type, done), type, n);
	}
	return 0;
}

static int cpu_sum_squares(rc_kernels *kernels, const void *data, rc_dtype type, size_t count, float *out, rc_stream stream,
                           rc_error *error)
{
	const rc__cpu_ops *cpu = kernels->cpu;
	float values[TILE];
	double sum = 0;

	(void)stream, (void)error;
	if (type == RC_F32)
		sum = cpu->sum_squares(data, count);
	for (size_t done = 0, n; type != RC_F32 && done < count; done += n) {
		n = tile_at(done, count);
		if (type == RC_F64) {
			const double *f64 = at(data, type, done);

			for (size_t i = 0; i < n; i++)
				sum += f64[i] * f64[i];
		} else {
			sum += cpu->sum_squares(widen(cpu, at(data, type, done), type, values, n), n);
		}
	}
	*out = (float)(*out + sum);
	return 0;
}

static int cpu_clip_coefficient(rc_kernels *kernels, const float *sum, float max_norm, float *coefficient, float *norm, rc_stream stream,
                                rc_error *error)
{
	float total = sqrtf(*sum), ratio = max_norm / (total + 1e-6f);

	(void)kernels, (void)stream, (void)error;
	*coefficient = ratio > 1 ? 1 : ratio;
	if (norm)
		*norm = total;
	return 0;
}

/* One message block: at most TILE elements at a time through `values`. */
struct quantizer {
	const rc__cpu_ops *cpu;
	rc_quant kind;
	const void *from;
	rc_dtype from_type;
	float *residual;
	float values[TILE];
};

/* Elements [begin, begin + count) in f32 with what was lost before. */
static const float *quantizer_load(struct quantizer *q, size_t begin, size_t count)
{
	const float *values = widen(q->cpu, at(q->from, q->from_type, begin), q->from_type, q->values, count);

	if (!q->residual)
		return values;
	if (values != q->values)
		memcpy(q->values, values, count * sizeof *values);
	q->cpu->add_scaled(q->values, q->residual + begin, 1, count);
	return q->values;
}

static void encode(struct quantizer *q, const float *values, float inverse, void *codes, size_t count)
{
	int8_t pairs[TILE + 1];

	if (q->kind == RC_FP8) {
		q->cpu->encode_fp8(values, inverse, codes, count);
	} else if (q->kind == RC_INT8) {
		q->cpu->encode_int(values, inverse, codes, count);
	} else {
		q->cpu->encode_int(values, inverse, pairs, count);
		pairs[count] = 0; /* the other half of an odd last one */
		q->cpu->join_nibbles(pairs, codes, (count + 1) / 2);
	}
}

static void decode(const rc__cpu_ops *cpu, rc_quant kind, const void *codes, float scale, float *to, size_t count)
{
	int8_t pairs[TILE + 1];

	if (kind == RC_FP8) {
		cpu->decode_fp8(codes, scale, to, count);
	} else if (kind == RC_INT8) {
		cpu->decode_int(codes, scale, to, count);
	} else {
		cpu->split_nibbles(codes, pairs, (count + 1) / 2);
		cpu->decode_int(pairs, scale, to, count);
	}
}

static size_t code_bytes(rc_quant kind, size_t count)
{
	return kind == RC_INT4 ? (count + 1) / 2 : count;
}

static int cpu_quantize(rc_kernels *kernels, rc_quant kind, size_t block, const void *from, rc_dtype from_type, size_t count,
                        float *residual, void *packed, rc_stream stream, rc_error *error)
{
	struct quantizer q = {.cpu = kernels->cpu, .kind = kind, .from = from, .from_type = from_type, .residual = residual};
	float *scales = packed;
	char *codes = (char *)packed + rc__quant_values(count, block);
	const float limit = rc__quant_limit(kind);

	(void)stream, (void)error;
	memset(packed, 0, rc__quant_values(count, block));
	for (size_t b = 0; b * block < count; b++) {
		size_t begin = b * block, end = count - begin < block ? count : begin + block;
		char *target = codes + code_bytes(kind, begin);
		uint32_t bits = 0;
		float most, inverse;

		for (size_t done = begin, n; done < end; done += n) {
			n = tile_at(done, end);
			uint32_t found = q.cpu->max_bits(quantizer_load(&q, done, n), n);

			bits = found > bits ? found : bits;
		}
		memcpy(&most, &bits, sizeof most);
		/* A block with a NaN or an infinity comes out as NaN everywhere; one too small for its inverse, as zeros. */
		inverse = limit / most;
		scales[b] = !isfinite(most) ? NAN : isfinite(inverse) ? most / limit : 0;
		if (!isfinite(most) || !isfinite(inverse)) {
			memset(target, 0, code_bytes(kind, end - begin));
			for (size_t i = begin; residual && i < end; i++)
				residual[i] = isfinite(most) ? *quantizer_load(&q, i, 1) : 0;
		} else {
			for (size_t done = begin, n; done < end; done += n) {
				float back[TILE];

				n = tile_at(done, end);
				const float *values = quantizer_load(&q, done, n);
				char *place = target + code_bytes(kind, done - begin);

				encode(&q, values, inverse, place, n);
				if (!residual)
					continue;
				decode(q.cpu, kind, place, scales[b], back, n);
				for (size_t i = 0; i < n; i++)
					residual[done + i] = values[i] - back[i];
			}
		}
		memset(target + code_bytes(kind, end - begin), 0, code_bytes(kind, block) - code_bytes(kind, end - begin));
	}
	return 0;
}

static int cpu_dequantize(rc_kernels *kernels, rc_quant kind, size_t block, const void *packed, void *to, rc_dtype to_type, size_t count,
                          bool add, float scale, rc_stream stream, rc_error *error)
{
	const rc__cpu_ops *cpu = kernels->cpu;
	const float *scales = packed;
	const char *codes = (const char *)packed + rc__quant_values(count, block);
	float values[TILE];

	(void)stream, (void)error;
	for (size_t b = 0; b * block < count; b++) {
		size_t begin = b * block, end = count - begin < block ? count : begin + block;

		for (size_t done = begin, n; done < end; done += n) {
			n = tile_at(done, end);
			decode(cpu, kind, codes + code_bytes(kind, done), scales[b], values, n);
			if (add) {
				cpu_accumulate(kernels, at_mut(to, to_type, done), to_type, values, RC_F32, n, scale, NULL, NULL);
			} else {
				cpu->scale(values, scale, n);
				narrow(cpu, values, at_mut(to, to_type, done), to_type, n);
			}
		}
	}
	return 0;
}

const rc__backend rc__cpu_backend = {
	.unshuffle = cpu_unshuffle,
	.pack = cpu_pack,
	.cast = cpu_cast,
	.accumulate = cpu_accumulate,
	.scale = cpu_scale,
	.sum_squares = cpu_sum_squares,
	.clip_coefficient = cpu_clip_coefficient,
	.adamw_step = rc__cpu_adamw_step,
	.sgd_step = rc__cpu_sgd_step,
	.quantize = cpu_quantize,
	.dequantize = cpu_dequantize,
};
