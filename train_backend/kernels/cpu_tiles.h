/* What the CPU side's files share: elements of any type as tiles of f32 that stay in the first-level cache. For this folder only. */
#ifndef RC_KERNELS_CPU_TILES_H
#define RC_KERNELS_CPU_TILES_H

#include <string.h>

#include "train_backend/kernels/internal.h"

#define TILE 1024

static inline const void *at(const void *base, rc_dtype type, size_t index)
{
	return (const char *)base + index * rc_dtype_size(type);
}

static inline void *at_mut(void *base, rc_dtype type, size_t index)
{
	return (char *)base + index * rc_dtype_size(type);
}

static inline size_t tile_at(size_t done, size_t count)
{
	return count - done < TILE ? count - done : TILE;
}

/* The elements in f32: from itself where it is f32, else converted into tile. */
static inline const float *widen(const rc__cpu_ops *cpu, const void *from, rc_dtype type, float *tile, size_t count)
{
	const double *f64 = from;

	switch (type) {
	case RC_F32: return from;
	case RC_F16: cpu->widen_f16(from, tile, count); return tile;
	case RC_BF16: cpu->widen_bf16(from, tile, count); return tile;
	default:
		for (size_t i = 0; i < count; i++)
			tile[i] = (float)f64[i];
		return tile;
	}
}

static inline void narrow(const rc__cpu_ops *cpu, const float *from, void *to, rc_dtype type, size_t count)
{
	double *f64 = to;

	switch (type) {
	case RC_F32:
		if (from != to)
			memcpy(to, from, count * sizeof *from);
		break;
	case RC_F16: cpu->narrow_f16(from, to, count); break;
	case RC_BF16: cpu->narrow_bf16(from, to, count); break;
	default:
		for (size_t i = 0; i < count; i++)
			f64[i] = from[i];
	}
}

/* Elements that are read and written: in place where they are f32. */
static inline float *open_tile(const rc__cpu_ops *cpu, void *data, rc_dtype type, float *tile, size_t count)
{
	return type == RC_F32 ? data : (float *)widen(cpu, data, type, tile, count);
}

static inline double get_f64(const rc__cpu_ops *cpu, const void *from, rc_dtype type, size_t index)
{
	float tile[1];

	if (type == RC_F64)
		return ((const double *)from)[index];
	return *widen(cpu, at(from, type, index), type, tile, 1);
}

/* f64 goes to 16 bits by way of f32, as torch's conversions do. */
static inline void put_f64(const rc__cpu_ops *cpu, void *to, rc_dtype type, size_t index, double value)
{
	float narrowed = (float)value;

	if (type == RC_F64)
		((double *)to)[index] = value;
	else
		narrow(cpu, &narrowed, at_mut(to, type, index), type, 1);
}

static inline void convert(const rc__cpu_ops *cpu, const void *from, rc_dtype from_type, void *to, rc_dtype to_type, size_t count,
                           float scale)
{
	float tile[TILE];

	if (from_type == to_type && scale == 1) {
		memcpy(to, from, count * rc_dtype_size(from_type));
		return;
	}
	if ((from_type == RC_F64 || to_type == RC_F64) && scale != 1) {
		for (size_t i = 0; i < count; i++)
			put_f64(cpu, to, to_type, i, get_f64(cpu, from, from_type, i) * scale);
		return;
	}
	for (size_t done = 0, n; done < count; done += n) {
		const void *source = at(from, from_type, done);
		void *target = at_mut(to, to_type, done);

		n = tile_at(done, count);
		if (scale == 1 && to_type == RC_F32) { /* straight into the target */
			widen(cpu, source, from_type, target, n);
			continue;
		}
		const float *values = widen(cpu, source, from_type, tile, n);
		if (scale != 1) {
			if (values != tile)
				memcpy(tile, values, n * sizeof *tile);
			cpu->scale(tile, scale, n);
			values = tile;
		}
		narrow(cpu, values, target, to_type, n);
	}
}

#endif
