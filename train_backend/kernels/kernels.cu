/* The CUDA kernels. NVRTC compiles this text at run time without any header, for the device in hand; cuda.c launches it. The
 * build puts it into the library as a string.
 *
 * Data types are run-time values: every thread of a launch takes the same branch, and a thread moves up to 32 bytes a branch, so
 * the branch hides behind the memory, and one kernel serves all pairs of types. The arithmetic is that of the CPU (cpu_simd.inc),
 * rounding by rounding: products and sums are fused only where fmaf says so (the compiler is called with --fmad=false).
 *
 * Kernels that take `vector` use wide accesses; it is set when every pointer is aligned to 16 bytes and no type is f64. Blocks have
 * THREADS threads and walk over the data with the stride of the whole grid. */

#define THREADS 256
#define TILE 8192       /* elements of a tile; as in cuda.c */
#define PACK_POINTERS 256

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* rc_dtype */
enum { F32 = 1, F16 = 2, BF16 = 3, F64 = 4 };
/* rc_quant */
enum { INT8 = 0, INT4 = 1, FP8 = 2 };

#define INLINE static __device__ __forceinline__

/* ---- conversions ---- */

INLINE float from_bf16(u16 x)
{
	return __uint_as_float((u32)x << 16);
}

#ifndef FAKE_DRIVER /* which brings its own: test/fake_driver.cc */
INLINE float from_f16(u16 x)
{
	float y;

	asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
	return y;
}

INLINE u16 to_f16(float x)
{
	u16 y;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
	return y;
}
#endif

/* Two at once, the first in the low half. */
INLINE u32 to_bf16_pair(float low, float high)
{
#if __CUDA_ARCH__ >= 800
	u32 pair;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
	return pair;
#else
	u32 a = __float_as_uint(low), b = __float_as_uint(high);

	a = (a & 0x7fffffff) > 0x7f800000 ? a >> 16 | 0x40 : (a + 0x7fff + (a >> 16 & 1)) >> 16;
	b = (b & 0x7fffffff) > 0x7f800000 ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
	return a | b << 16;
#endif
}

/* ---- one element, any type ---- */

INLINE float load1(const void *from, int type, u64 i)
{
	switch (type) {
	case F32: return ((const float *)from)[i];
	case F16: return from_f16(((const u16 *)from)[i]);
	case BF16: return from_bf16(((const u16 *)from)[i]);
	default: return (float)((const double *)from)[i];
	}
}

INLINE void store1(void *to, int type, u64 i, float x)
{
	switch (type) {
	case F32: ((float *)to)[i] = x; break;
	case F16: ((u16 *)to)[i] = to_f16(x); break;
	case BF16: ((u16 *)to)[i] = (u16)to_bf16_pair(x, 0); break;
	default: ((double *)to)[i] = x;
	}
}

INLINE double load_f64(const void *from, int type, u64 i)
{
	return type == F64 ? ((const double *)from)[i] : (double)load1(from, type, i);
}

INLINE void store_f64(void *to, int type, u64 i, double x)
{
	if (type == F64)
		((double *)to)[i] = x;
	else
		store1(to, type, i, (float)x);
}

/* ---- N elements of f32, f16 or bf16 at an aligned place; N is 4 or 8, i a multiple of N ---- */

/* The bits as they lie there. Apart from decoding, so that a thread has all its loads under way before it waits for one. */
template <int N> INLINE void fetch(const void *from, int type, u64 i, u32 *w)
{
	if (type == F32) {
		const uint4 *p = (const uint4 *)((const float *)from + i);

#pragma unroll
		for (int j = 0; j < N / 4; j++) {
			uint4 v = p[j];

			w[4 * j] = v.x, w[4 * j + 1] = v.y, w[4 * j + 2] = v.z, w[4 * j + 3] = v.w;
		}
	} else if (N == 8) {
		uint4 v = *(const uint4 *)((const u16 *)from + i);

		w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
	} else {
		uint2 v = *(const uint2 *)((const u16 *)from + i);

		w[0] = v.x, w[1] = v.y;
	}
}

template <int N> INLINE void decode(int type, const u32 *w, float *x)
{
	if (type == F32) {
#pragma unroll
		for (int j = 0; j < N; j++)
			x[j] = __uint_as_float(w[j]);
	} else if (type == BF16) {
#pragma unroll
		for (int j = 0; j < N / 2; j++)
			x[2 * j] = __uint_as_float(w[j] << 16), x[2 * j + 1] = __uint_as_float(w[j] & 0xffff0000);
	} else {
#pragma unroll
		for (int j = 0; j < N / 2; j++)
			x[2 * j] = from_f16((u16)w[j]), x[2 * j + 1] = from_f16((u16)(w[j] >> 16));
	}
}

template <int N> INLINE void store(void *to, int type, u64 i, const float *x)
{
	if (type == F32) {
		float4 *p = (float4 *)((float *)to + i);

#pragma unroll
		for (int j = 0; j < N / 4; j++)
			p[j] = make_float4(x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]);
		return;
	}
	u32 w[N / 2];
	if (type == BF16) {
#pragma unroll
		for (int j = 0; j < N / 2; j++)
			w[j] = to_bf16_pair(x[2 * j], x[2 * j + 1]);
	} else {
#pragma unroll
		for (int j = 0; j < N / 2; j++)
			w[j] = to_f16(x[2 * j]) | (u32)to_f16(x[2 * j + 1]) << 16;
	}
	if (N == 8)
		*(uint4 *)((u16 *)to + i) = make_uint4(w[0], w[1], w[N / 2 - 2], w[N / 2 - 1]);
	else
		*(uint2 *)((u16 *)to + i) = make_uint2(w[0], w[1]);
}

INLINE u64 grid_index()
{
	return (u64)blockIdx.x * THREADS + threadIdx.x;
}

INLINE u64 grid_stride()
{
	return (u64)gridDim.x * THREADS;
}

/* ---- layout: gather buffer <-> parameters ---- */

/* As in cuda.c. A stretch of one rank's chunk: `count` elements of a piece, then `zeros` that belong to nothing. */
struct tile {
	u64 packed; /* where it begins in [ranks][chunk] */
	u64 full;   /* in the gathered buffer */
	u64 grad;   /* in the parameter */
	u32 piece;
	u32 count, zeros;
	u32 unused;
};

/* 16 bytes from any place, by words that hold them: up to 3 bytes on either side are read too. */
INLINE uint4 words_at(const u8 *from)
{
	const u32 *p = (const u32 *)((u64)from & ~3ull);
	u32 shift = (u32)((u64)from & 3) * 8, a = p[0], b = p[1], c = p[2], d = p[3], e = shift ? p[4] : 0;

	return make_uint4(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift), __funnelshift_r(c, d, shift),
	                  __funnelshift_r(d, e, shift));
}

/* The block's threads together. `to` is written in aligned vectors wherever `from` lies, four (or two) of a thread under way at a
 * time; what is left over at both ends, byte by byte. */
INLINE void copy_bytes(u8 *to, const u8 *from, u32 bytes)
{
	u32 head = min((u32)(-(u64)to & 15), bytes), t = threadIdx.x;
	uint4 *vectors = (uint4 *)(to + head);
	const u8 *source = from + head;
	u32 odd = (u32)((u64)source & 3), count = (bytes - head) / 16;

	if (odd && count && (bytes - head) % 16 < 4 - odd)
		count--; /* its last word would end behind the source */
	if ((u64)source % 16 == 0) {
		for (u32 i = t; i < count; i += 4 * THREADS) {
			uint4 x[4];

#pragma unroll
			for (u32 j = 0; j < 4; j++)
				if (i + j * THREADS < count)
					x[j] = ((const uint4 *)source)[i + j * THREADS];
#pragma unroll
			for (u32 j = 0; j < 4; j++)
				if (i + j * THREADS < count)
					vectors[i + j * THREADS] = x[j];
		}
	} else {
		for (u32 i = t; i < count; i += 2 * THREADS) {
			bool more = i + THREADS < count;
			uint4 x = words_at(source + i * 16), y = x;

			if (more)
				y = words_at(source + (i + THREADS) * 16);
			vectors[i] = x;
			if (more)
				vectors[i + THREADS] = y;
		}
	}
	if (t < head)
		to[t] = from[t];
	t += head + count * 16;
	if (t < bytes)
		to[t] = from[t];
}

/* fetch() of 8 from any place. */
INLINE void fetch_anywhere(const u8 *from, int type, u32 i, u32 *w)
{
	from += i * (type == F32 ? 4 : 2);
	if ((u64)from % 16 == 0) {
		fetch<8>(from, type, 0, w);
		return;
	}
	uint4 v = words_at(from);
	w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
	if (type == F32) {
		v = words_at(from + 16);
		w[4] = v.x, w[5] = v.y, w[6] = v.z, w[7] = v.w;
	}
}

/* Converted and scaled, like copy_bytes(): aligned vectors of 8 elements where they go, from wherever they lie. No f64. */
INLINE void convert(u8 *to, int to_type, const u8 *from, int from_type, u32 count, float scale)
{
	u32 to_size = to_type == F32 ? 4 : 2, head = min((u32)(-(u64)to & 15) / to_size, count), t = threadIdx.x;
	u8 *vectors = to + head * to_size;
	const u8 *source = from + head * (from_type == F32 ? 4 : 2);
	u32 groups = (count - head) / 8;

	if ((u64)source & 3 && groups && (count - head) % 8 == 0)
		groups--; /* its last word would end behind the source */
	for (u32 g = t; g < groups; g += 2 * THREADS) {
		bool more = g + THREADS < groups;
		u32 v[8] = {0}, w[8] = {0};
		float x[8], y[8];

		fetch_anywhere(source, from_type, g * 8, v);
		if (more)
			fetch_anywhere(source, from_type, (g + THREADS) * 8, w);
		decode<8>(from_type, v, x);
		decode<8>(from_type, w, y);
#pragma unroll
		for (int j = 0; j < 8; j++)
			x[j] *= scale, y[j] *= scale;
		store<8>(vectors, to_type, g * 8, x);
		if (more)
			store<8>(vectors, to_type, (g + THREADS) * 8, y);
	}
	if (t < head)
		store1(to, to_type, t, load1(from, from_type, t) * scale);
	t += head + groups * 8;
	if (t < count)
		store1(to, to_type, t, load1(from, from_type, t) * scale);
}

INLINE void zero_bytes(u8 *p, u32 bytes)
{
	u32 head = min((u32)(-(u64)p & 15), bytes);

	for (u32 i = threadIdx.x; i < head; i += THREADS)
		p[i] = 0;
	u32 vectors = (bytes - head) / 16;
	for (u32 i = threadIdx.x; i < vectors; i += THREADS)
		((uint4 *)(p + head))[i] = make_uint4(0, 0, 0, 0);
	for (u32 i = head + vectors * 16 + threadIdx.x; i < bytes; i += THREADS)
		p[i] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS) unshuffle(const tile *tiles, u32 count, const u8 *gathered, u8 *full, u32 element)
{
	for (u32 t = blockIdx.x; t < count; t += gridDim.x) {
		tile it = tiles[t];

		copy_bytes(full + it.full * element, gathered + it.packed * element, it.count * element);
	}
}

struct pointers {
	const u8 *of[PACK_POINTERS];
};

/* Tiles of pieces [first, first + PACK_POINTERS), or of none. */
extern "C" __global__ void __launch_bounds__(THREADS, 3) pack(const tile *tiles, u32 count, u32 first, int from_type, u32 from_size,
                                                           u8 *packed, int to_type, u32 to_size, float scale, const pointers grads)
{
	bool move = from_type == to_type && scale == 1;

	for (u32 t = blockIdx.x; t < count; t += gridDim.x) {
		tile it = tiles[t];
		const u8 *from = it.count ? grads.of[it.piece - first] : 0;
		u8 *to = packed + it.packed * to_size;

		if (!from)
			it.zeros += it.count, it.count = 0;
		else
			from += it.grad * from_size;
		if (move) {
			copy_bytes(to, from, it.count * to_size);
		} else if (from_type == F64 || to_type == F64) {
			for (u32 i = threadIdx.x; i < it.count; i += THREADS)
				store_f64(to, to_type, i, load_f64(from, from_type, i) * scale);
		} else {
			convert(to, to_type, from, from_type, it.count, scale);
		}
		zero_bytes(to + it.count * to_size, it.zeros * to_size);
	}
}

/* ---- element by element ---- */

/* The types differ, so no f64 needs more than f32 in between. */
extern "C" __global__ void __launch_bounds__(THREADS) cast(const void *from, int from_type, void *to, int to_type, u64 count, int vector)
{
	u64 groups = vector ? count / 8 : 0;

	for (u64 g = grid_index(); g < groups; g += grid_stride()) {
		u32 w[8];
		float x[8];

		fetch<8>(from, from_type, g * 8, w);
		decode<8>(from_type, w, x);
		store<8>(to, to_type, g * 8, x);
	}
	for (u64 i = groups * 8 + grid_index(); i < count; i += grid_stride())
		store1(to, to_type, i, load1(from, from_type, i));
}

extern "C" __global__ void __launch_bounds__(THREADS) accumulate(void *sum, int sum_type, const void *from, int from_type, u64 count,
                                                                 float scale, int vector)
{
	if (sum_type == F64 || from_type == F64) {
		for (u64 i = grid_index(); i < count; i += grid_stride())
			store_f64(sum, sum_type, i, load_f64(sum, sum_type, i) + load_f64(from, from_type, i) * scale);
		return;
	}
	u64 groups = vector ? count / 8 : 0;
	for (u64 g = grid_index(); g < groups; g += grid_stride()) {
		u32 v[8], w[8];
		float x[8], y[8];

		fetch<8>(sum, sum_type, g * 8, v);
		fetch<8>(from, from_type, g * 8, w);
		decode<8>(sum_type, v, x);
		decode<8>(from_type, w, y);
#pragma unroll
		for (int j = 0; j < 8; j++)
			x[j] += y[j] * scale;
		store<8>(sum, sum_type, g * 8, x);
	}
	for (u64 i = groups * 8 + grid_index(); i < count; i += grid_stride())
		store1(sum, sum_type, i, load1(sum, sum_type, i) + load1(from, from_type, i) * scale);
}

extern "C" __global__ void __launch_bounds__(THREADS) scale(void *data, int type, u64 count, float by, int vector)
{
	if (type == F64) {
		for (u64 i = grid_index(); i < count; i += grid_stride())
			((double *)data)[i] *= by;
		return;
	}
	u64 groups = vector ? count / 8 : 0;
	for (u64 g = grid_index(); g < groups; g += grid_stride()) {
		u32 w[8];
		float x[8];

		fetch<8>(data, type, g * 8, w);
		decode<8>(type, w, x);
#pragma unroll
		for (int j = 0; j < 8; j++)
			x[j] *= by;
		store<8>(data, type, g * 8, x);
	}
	for (u64 i = groups * 8 + grid_index(); i < count; i += grid_stride())
		store1(data, type, i, load1(data, type, i) * by);
}

/* ---- sum of squares ---- */

/* The sum over the block, right in thread 0; the order of additions is fixed. */
template <typename T> INLINE T block_sum(T x, T *warps)
{
	for (int step = 16; step; step /= 2)
		x += __shfl_down_sync(0xffffffff, x, step);
	if (threadIdx.x % 32 == 0)
		warps[threadIdx.x / 32] = x;
	__syncthreads();
	if (threadIdx.x == 0)
		for (int i = 1; i < THREADS / 32; i++)
			x += warps[i];
	return x;
}

/* Each block leaves its sum; the one that comes last, by the counter, adds them all up in their order. So the bits depend on the
 * grid's size only. partials: [grid] in memory that no launch under way shares, with the counter 0, which it is again after. */
extern "C" __global__ void __launch_bounds__(THREADS) sum_squares(const void *data, int type, u64 count, double *partials, u32 *counter,
                                                                  float *out, int vector)
{
	__shared__ float warps[THREADS / 32];
	__shared__ double warps_f64[THREADS / 32];
	__shared__ bool last;
	double sum;

	if (type == F64) {
		double x = 0;

		for (u64 i = grid_index(); i < count; i += grid_stride())
			x += ((const double *)data)[i] * ((const double *)data)[i];
		sum = block_sum(x, warps_f64);
	} else {
		u64 groups = vector ? count / 8 : 0;
		float lanes[8] = {0, 0, 0, 0, 0, 0, 0, 0};

		for (u64 g = grid_index(); g < groups; g += grid_stride()) {
			u32 w[8];
			float x[8];

			fetch<8>(data, type, g * 8, w);
			decode<8>(type, w, x);
#pragma unroll
			for (int j = 0; j < 8; j++)
				lanes[j] += x[j] * x[j];
		}
		for (u64 i = groups * 8 + grid_index(); i < count; i += grid_stride()) {
			float x = load1(data, type, i);

			lanes[0] += x * x;
		}
		sum = block_sum(((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])), warps);
	}
	if (threadIdx.x == 0) {
		partials[blockIdx.x] = sum;
		__threadfence();
		last = atomicAdd(counter, 1) == gridDim.x - 1;
	}
	__syncthreads();
	if (!last)
		return;
	__threadfence();
	double total = 0;
	for (u32 i = threadIdx.x; i < gridDim.x; i += THREADS)
		total += ((const volatile double *)partials)[i];
	total = block_sum(total, warps_f64);
	if (threadIdx.x == 0) {
		*out = (float)(*out + total);
		*counter = 0;
	}
}

extern "C" __global__ void clip_coefficient(const float *sum, float max_norm, float *coefficient, float *norm)
{
	float total = sqrtf(*sum), ratio = max_norm / (total + 1e-6f);

	*coefficient = ratio > 1 ? 1 : ratio;
	if (norm)
		*norm = total;
}

/* ---- AdamW ---- */

/* What is read back after x was stored. */
INLINE float as_stored(int type, float x)
{
	return type == F16 ? from_f16(to_f16(x)) : type == BF16 ? from_bf16((u16)to_bf16_pair(x, 0)) : x;
}

/* As in cuda.c; made by rc__adamw_factors_make. */
struct factors {
	double decay, l2, beta2, weight1, weight2, step_size, root, eps, grad_scale;
};

struct adamw_call {
	void *param;
	const void *grad;
	void *exp_avg, *exp_avg_sq;
	void *cast; /* or 0 */
	int param_type, grad_type, state_type, cast_type;
	u64 count;
	const float *step;       /* or 0: counts from the device's own step, else the factors have it */
	const float *grad_scale; /* or 0 */
	const float *skip;       /* or 0 */
	double lr, beta1;        /* for step */
	factors f;
	int vector;
	int follow; /* where cast is not the parameter as rounded, the parameter becomes it first */
};

/* The number of steps is a whole number. */
INLINE double power(double x, u32 n)
{
	double y = 1;

	for (; n; n /= 2, x *= x)
		if (n & 1)
			y *= x;
	return y;
}

/* Takes the step and the gradients' scale from the device. All threads of the block; false: this step is skipped. */
INLINE bool complete(const adamw_call &call, factors &f)
{
	__shared__ double step_size, root;

	if (call.skip && *call.skip != 0)
		return false;
	if (call.step) {
		if (threadIdx.x == 0) {
			u32 n = (u32)*call.step;

			step_size = call.lr / (1 - power(call.beta1, n));
			root = sqrt(1 - power(call.f.beta2, n));
		}
		__syncthreads();
		f.step_size = step_size;
		f.root = root;
	}
	if (call.grad_scale)
		f.grad_scale *= *call.grad_scale;
	return true;
}

INLINE float fused(float a, float b, float c)
{
	return fmaf(a, b, c);
}

INLINE double fused(double a, double b, double c)
{
	return fma(a, b, c);
}

INLINE float root_of(float x)
{
	return sqrtf(x);
}

INLINE double root_of(double x)
{
	return sqrt(x);
}

/* One element; T is float, or double for parameters in f64. */
template <typename T> struct adamw_math {
	T decay, l2, beta2, weight, weight2, step_size, root, eps, grad_scale;
	bool near;

	__device__ __forceinline__ adamw_math(const factors &f)
		: decay((T)f.decay), l2((T)f.l2), beta2((T)f.beta2), weight((T)f.weight1), weight2((T)f.weight2), step_size((T)f.step_size),
		  root((T)f.root), eps((T)f.eps), grad_scale((T)f.grad_scale), near(!(weight < (T)0.5))
	{
		if (near)
			weight = weight - 1;
	}

	__device__ __forceinline__ void apply(T &p, T g, T &m, T &v) const
	{
		p *= decay;
		g *= grad_scale;
		if (l2 != 0)
			g = fused(p, l2, g);
		m = fused(weight, g - m, near ? g : m);
		v = fused(weight2 * g, g, v * beta2);
		p -= step_size * m / (root_of(v) / root + eps);
	}
};

/* What somebody has written to the narrow copy since the last step counts. */
INLINE float followed(float p, float copy, int type)
{
	return as_stored(type, p) == copy ? p : copy;
}

extern "C" __global__ void __launch_bounds__(THREADS) adamw(const adamw_call call)
{
	factors f = call.f;

	if (!complete(call, f))
		return;
	const adamw_math<float> math(f);
	u64 groups = call.vector ? call.count / 4 : 0;
	for (u64 group = grid_index(); group < groups; group += grid_stride()) {
		u32 p_bits[4], g_bits[4], m_bits[4], v_bits[4];
		float p[4], g[4], m[4], v[4];

		fetch<4>(call.param, call.param_type, group * 4, p_bits);
		fetch<4>(call.grad, call.grad_type, group * 4, g_bits);
		fetch<4>(call.exp_avg, call.state_type, group * 4, m_bits);
		fetch<4>(call.exp_avg_sq, call.state_type, group * 4, v_bits);
		decode<4>(call.param_type, p_bits, p);
		decode<4>(call.grad_type, g_bits, g);
		decode<4>(call.state_type, m_bits, m);
		decode<4>(call.state_type, v_bits, v);
		if (call.follow) {
			u32 c_bits[4];
			float c[4];

			fetch<4>(call.cast, call.cast_type, group * 4, c_bits);
			decode<4>(call.cast_type, c_bits, c);
#pragma unroll
			for (int j = 0; j < 4; j++)
				p[j] = followed(p[j], c[j], call.cast_type);
		}
#pragma unroll
		for (int j = 0; j < 4; j++)
			math.apply(p[j], g[j], m[j], v[j]);
		store<4>(call.param, call.param_type, group * 4, p);
		store<4>(call.exp_avg, call.state_type, group * 4, m);
		store<4>(call.exp_avg_sq, call.state_type, group * 4, v);
		if (call.cast) {
#pragma unroll
			for (int j = 0; j < 4; j++)
				p[j] = as_stored(call.param_type, p[j]);
			store<4>(call.cast, call.cast_type, group * 4, p);
		}
	}
	for (u64 i = groups * 4 + grid_index(); i < call.count; i += grid_stride()) {
		float p = load1(call.param, call.param_type, i), g = load1(call.grad, call.grad_type, i);
		float m = load1(call.exp_avg, call.state_type, i), v = load1(call.exp_avg_sq, call.state_type, i);

		if (call.follow)
			p = followed(p, load1(call.cast, call.cast_type, i), call.cast_type);
		math.apply(p, g, m, v);
		store1(call.param, call.param_type, i, p);
		store1(call.exp_avg, call.state_type, i, m);
		store1(call.exp_avg_sq, call.state_type, i, v);
		if (call.cast)
			store1(call.cast, call.cast_type, i, as_stored(call.param_type, p));
	}
}

extern "C" __global__ void __launch_bounds__(THREADS) adamw_f64(const adamw_call call)
{
	factors f = call.f;

	if (!complete(call, f))
		return;
	const adamw_math<double> math(f);
	for (u64 i = grid_index(); i < call.count; i += grid_stride()) {
		double p = load_f64(call.param, call.param_type, i), g = load_f64(call.grad, call.grad_type, i);
		double m = load_f64(call.exp_avg, call.state_type, i), v = load_f64(call.exp_avg_sq, call.state_type, i);

		math.apply(p, g, m, v);
		store_f64(call.param, call.param_type, i, p);
		store_f64(call.exp_avg, call.state_type, i, m);
		store_f64(call.exp_avg_sq, call.state_type, i, v);
		if (call.cast)
			store_f64(call.cast, call.cast_type, i, p);
	}
}

/* As in cuda.c. */
struct sgd_call {
	void *param;
	const void *grad;
	void *buffer; /* or 0 */
	void *cast;   /* or 0 */
	int param_type, grad_type, state_type, cast_type;
	u64 count;
	double decay, momentum, weight, step_size, sign;
	int first, nesterov, follow;
};

template <typename T> INLINE void sgd_apply(const sgd_call &call, T &p, T g, T &b)
{
	g *= (T)call.sign;
	if (call.decay != 0)
		g = fused(p, (T)call.decay, g);
	if (call.buffer) {
		b = call.first ? g : fused(g, (T)call.weight, b * (T)call.momentum);
		g = call.nesterov ? fused(b, (T)call.momentum, g) : b;
	}
	p = fused(g, (T)call.step_size, p);
}

extern "C" __global__ void __launch_bounds__(THREADS) sgd(const sgd_call call)
{
	for (u64 i = grid_index(); i < call.count; i += grid_stride()) {
		float p = load1(call.param, call.param_type, i), g = load1(call.grad, call.grad_type, i);
		float b = call.buffer && !call.first ? load1(call.buffer, call.state_type, i) : 0;

		if (call.follow)
			p = followed(p, load1(call.cast, call.cast_type, i), call.cast_type);
		sgd_apply(call, p, g, b);
		store1(call.param, call.param_type, i, p);
		if (call.buffer)
			store1(call.buffer, call.state_type, i, b);
		if (call.cast)
			store1(call.cast, call.cast_type, i, as_stored(call.param_type, p));
	}
}

extern "C" __global__ void __launch_bounds__(THREADS) sgd_f64(const sgd_call call)
{
	for (u64 i = grid_index(); i < call.count; i += grid_stride()) {
		double p = load_f64(call.param, call.param_type, i), g = load_f64(call.grad, call.grad_type, i);
		double b = call.buffer && !call.first ? load_f64(call.buffer, call.state_type, i) : 0;

		sgd_apply(call, p, g, b);
		store_f64(call.param, call.param_type, i, p);
		if (call.buffer)
			store_f64(call.buffer, call.state_type, i, b);
		if (call.cast)
			store_f64(call.cast, call.cast_type, i, p);
	}
}

/* ---- block quantisation: a warp for each block of the message ---- */

/* |x| is at most 448, give or take a rounding. */
INLINE u32 encode_fp8(float x)
{
	u32 bits = __float_as_uint(x), code;

	if (fabsf(x) < 0.015625f) /* below 2^-6 the unit is 2^-9 */
		code = (u32)__float2int_rn(fabsf(x) * 512);
	else /* 3 of 23 fraction bits are kept; the exponent's bias goes from 127 to 7 */
		code = (((bits & 0x7fffffff) + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3);
	return (bits >> 24 & 0x80) | code;
}

INLINE float decode_fp8(u32 code)
{
	/* In a float's places the bits stand for 2^-120 times the value, small ones too. */
	return __uint_as_float((code & 0x80) << 24 | (code & 0x7f) << 20) * 1.329227995784916e36f;
}

INLINE u32 encode(int kind, float x)
{
	if (kind == FP8)
		return encode_fp8(x);
	return (u32)__float2int_rn(x) & (kind == INT8 ? 0xff : 0xf);
}

INLINE float number_of(int kind, u32 code)
{
	if (kind == FP8)
		return decode_fp8(code);
	return (float)(kind == INT8 ? (int)(code << 24) >> 24 : (int)(code << 28) >> 28);
}

/* Four elements at i, zeros beyond count. */
INLINE void load_four(const void *from, int type, u64 i, u64 count, bool vector, float *x)
{
	if (vector && i + 4 <= count) {
		u32 w[4];

		fetch<4>(from, type, i, w);
		decode<4>(type, w, x);
	} else {
#pragma unroll
		for (u32 j = 0; j < 4; j++)
			x[j] = i + j < count ? load1(from, type, i + j) : 0;
	}
}

INLINE void store_four(void *to, int type, u64 i, u64 count, bool vector, const float *x)
{
	if (vector && i + 4 <= count) {
		store<4>(to, type, i, x);
	} else {
#pragma unroll
		for (u32 j = 0; j < 4; j++)
			if (i + j < count)
				store1(to, type, i + j, x[j]);
	}
}

INLINE void load_with_residual(const void *from, int type, const float *residual, u64 i, u64 count, bool vector, float *x)
{
	load_four(from, type, i, count, vector, x);
	if (residual) {
		float lost[4];

		load_four(residual, F32, i, count, vector, lost);
#pragma unroll
		for (int j = 0; j < 4; j++)
			x[j] += lost[j];
	}
}

extern "C" __global__ void __launch_bounds__(THREADS) quantize(int kind, u32 block, const void *from, int type, u64 count, float *residual,
                                                               float *scales, u8 *codes, float limit, int vector)
{
	u32 lane = threadIdx.x % 32;
	u64 blocks = (count + block - 1) / block;

	for (u64 b = grid_index() / 32; b < blocks; b += grid_stride() / 32) {
		u64 begin = b * block;
		u32 most = 0;

		for (u32 i = lane * 4; i < block; i += 128) {
			float x[4];

			load_with_residual(from, type, residual, begin + i, count, vector, x);
#pragma unroll
			for (int j = 0; j < 4; j++)
				most = max(most, __float_as_uint(x[j]) & 0x7fffffff); /* a NaN's bits are above infinity's */
		}
		for (int step = 16; step; step /= 2)
			most = max(most, __shfl_xor_sync(0xffffffff, most, step));
		float largest = __uint_as_float(most), inverse = limit / largest;
		bool finite = most < 0x7f800000, usable = finite && __float_as_uint(inverse) < 0x7f800000;
		float scale = usable ? largest / limit : finite ? 0 : __uint_as_float(0x7fc00000);
		if (lane == 0)
			scales[b] = scale;
		for (u32 i = lane * 4; i < block; i += 128) {
			float x[4];
			u32 code[4];

			load_with_residual(from, type, residual, begin + i, count, vector, x);
#pragma unroll
			for (int j = 0; j < 4; j++) {
				code[j] = usable ? encode(kind, x[j] * inverse) : 0;
				x[j] = usable ? x[j] - number_of(kind, code[j]) * scale : finite ? x[j] : 0;
			}
			if (residual)
				store_four(residual, F32, begin + i, count, vector, x);
			if (kind == INT4)
				((u16 *)codes)[(begin + i) / 4] = (u16)(code[0] | code[1] << 4 | code[2] << 8 | code[3] << 12);
			else
				((u32 *)codes)[(begin + i) / 4] = code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24;
		}
	}
}

extern "C" __global__ void __launch_bounds__(THREADS) dequantize(int kind, u32 block, const float *scales, const u8 *codes, void *to,
                                                                 int type, u64 count, int add, float by, int vector)
{
	u32 lane = threadIdx.x % 32;
	u64 blocks = (count + block - 1) / block;

	for (u64 b = grid_index() / 32; b < blocks; b += grid_stride() / 32) {
		u64 begin = b * block;
		float scale = scales[b];

		for (u32 i = lane * 4; i < block && begin + i < count; i += 128) {
			u32 word = kind == INT4 ? ((const u16 *)codes)[(begin + i) / 4] : ((const u32 *)codes)[(begin + i) / 4];
			u32 bits = kind == INT4 ? 4 : 8;
			float x[4];

#pragma unroll
			for (u32 j = 0; j < 4; j++)
				x[j] = number_of(kind, word >> bits * j & (kind == INT4 ? 0xf : 0xff)) * scale;
			if (type == F64) {
				for (u32 j = 0; j < 4; j++)
					if (begin + i + j < count)
						((double *)to)[begin + i + j] = add ? ((double *)to)[begin + i + j] + (double)x[j] * by : (double)(x[j] * by);
				continue;
			}
#pragma unroll
			for (u32 j = 0; j < 4; j++)
				x[j] *= by;
			if (add) {
				float y[4];

				load_four(to, type, begin + i, count, vector, y);
#pragma unroll
				for (u32 j = 0; j < 4; j++)
					x[j] += y[j];
			}
			store_four(to, type, begin + i, count, vector, x);
		}
	}
}
