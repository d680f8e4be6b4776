/* A libcuda.so.1 and an NVRTC for hosts without a GPU: the kernels' source is compiled here as C++, and a launch runs its blocks one
 * after another, every thread a fiber. So launches, tables and kernels are tested as they are, in host memory, under sanitizers
 * too (misaligned vectors stop the program). Speed, and what real threads do to each other's memory between barriers, it cannot
 * show: tests/train/kernels_check.py runs on a GPU. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

/* ---- the CUDA language, as far as kernels.cu uses it ---- */

#define FAKE_DRIVER 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static /* one block runs at a time */

struct place {
	unsigned x;
};
static place threadIdx, blockIdx, gridDim;

struct alignas(16) float4 {
	float x, y, z, w;
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};
struct alignas(8) uint2 {
	unsigned x, y;
};
struct alignas(16) double2 {
	double x, y;
};

static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline double2 make_double2(double x, double y) { return {x, y}; }

template <typename To, typename From> static inline To bits_as(From from)
{
	static_assert(sizeof(To) == sizeof(From), "sizes");
	To to;

	memcpy(&to, &from, sizeof to);
	return to;
}
static inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
static inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline void __threadfence() {}
static inline unsigned atomicAdd(unsigned *at, unsigned x) { return __atomic_fetch_add(at, x, __ATOMIC_SEQ_CST); }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) { return (uint64_t(high) << 32 | low) >> (shift & 31); }

/* ---- fibers ---- */

enum waiting { RUNNING, AT_SHUFFLE, AT_BARRIER, ENDED };

static const size_t stack_bytes = 64 << 10;

struct fiber {
	ucontext_t context;
	waiting state;
	unsigned shuffles;
};

static std::vector<fiber> fibers;
static std::vector<char> stacks;
static ucontext_t scheduler;
static unsigned current;
static void (*body)(void **);
static void **body_arguments;
static double exchanged[2][1024]; /* what lanes hand to each other; two, since one lane may be a shuffle ahead of another */

static void wait_at(waiting state)
{
	fibers[current].state = state;
	swapcontext(&fibers[current].context, &scheduler);
}

static inline void __syncthreads()
{
	wait_at(AT_BARRIER);
}

template <typename T> static T shuffle(T x, unsigned lane)
{
	unsigned self = current, turn = fibers[self].shuffles++ % 2;

	memcpy(&exchanged[turn][self], &x, sizeof x);
	wait_at(AT_SHUFFLE);
	if (lane < 32)
		memcpy(&x, &exchanged[turn][self / 32 * 32 + lane], sizeof x);
	return x;
}

template <typename T> static T __shfl_down_sync(unsigned, T x, unsigned step) { return shuffle(x, current % 32 + step); }
template <typename T> static T __shfl_xor_sync(unsigned, T x, unsigned step) { return shuffle(x, (current % 32) ^ step); }

static void fiber_main()
{
	body(body_arguments);
	wait_at(ENDED);
}

/* Lets go those that all others have come to; false: nobody. */
static bool release(unsigned begin, unsigned end, waiting state)
{
	bool any = false;

	for (unsigned i = begin; i < end; i++) {
		if (fibers[i].state != state && fibers[i].state != ENDED)
			return false;
		any = any || fibers[i].state == state;
	}
	for (unsigned i = begin; i < end; i++)
		if (fibers[i].state == state)
			fibers[i].state = RUNNING;
	return any;
}

static void run_block(unsigned threads)
{
	fibers.resize(threads);
	stacks.resize(threads * stack_bytes);
	for (unsigned i = 0; i < threads; i++) {
		getcontext(&fibers[i].context);
		fibers[i].context.uc_stack.ss_sp = &stacks[i * stack_bytes];
		fibers[i].context.uc_stack.ss_size = stack_bytes;
		fibers[i].state = RUNNING;
		fibers[i].shuffles = 0;
		makecontext(&fibers[i].context, fiber_main, 0);
	}
	for (bool more = true; more;) {
		for (current = 0; current < threads; current++)
			if (fibers[current].state == RUNNING) {
				threadIdx.x = current;
				swapcontext(&scheduler, &fibers[current].context);
			}
		more = false;
		for (unsigned warp = 0; warp < threads; warp += 32)
			more = release(warp, std::min(warp + 32, threads), AT_SHUFFLE) || more;
		more = more || release(0, threads, AT_BARRIER);
	}
	for (unsigned i = 0; i < threads; i++)
		if (fibers[i].state != ENDED) {
			fprintf(stderr, "fake driver: thread %u waits for threads that do not come\n", i);
			abort();
		}
}

/* ---- the kernels ---- */

static inline float from_f16(uint16_t x)
{
	int exponent = x >> 10 & 31, fraction = x & 1023;
	float value = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexpf(1024 + fraction, exponent - 25) : ldexpf(fraction, -24);

	return x & 0x8000 ? -value : value;
}

static inline uint16_t to_f16(float x)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0, best = 0;
	float magnitude = fabsf(x);

	if (isnan(x))
		return 0x7fff;
	if (magnitude >= 65520)
		return sign | 0x7c00;
	for (uint16_t bit = 0x4000; bit; bit >>= 1) /* the largest that is not above */
		if ((best | bit) < 0x7c00 && from_f16(best | bit) <= magnitude)
			best |= bit;
	double below = from_f16(best), above = best == 0x7bff ? 65536 : from_f16(best + 1), middle = (below + above) / 2;
	return sign | (magnitude > middle || (magnitude == middle && best % 2) ? best + 1 : best);
}

#include "train_backend/kernels/kernels.cu"

template <typename... Arguments, size_t... I> static void call(void (*kernel)(Arguments...), void **arguments, std::index_sequence<I...>)
{
	kernel(*static_cast<typename std::remove_const<Arguments>::type *>(arguments[I])...);
}

template <typename... Arguments> static void call(void (*kernel)(Arguments...), void **arguments)
{
	call(kernel, arguments, std::index_sequence_for<Arguments...>());
}

#define KERNEL(name) {#name, [](void **arguments) { call(name, arguments); }}

static const std::map<std::string, void (*)(void **)> kernels = {
	KERNEL(unshuffle), KERNEL(pack),  KERNEL(cast),      KERNEL(accumulate), KERNEL(scale),      KERNEL(sum_squares),
	KERNEL(clip_coefficient), KERNEL(adamw), KERNEL(adamw_f64), KERNEL(sgd),        KERNEL(sgd_f64),
	KERNEL(quantize),  KERNEL(dequantize),
};

/* ---- the driver ---- */

#define API extern "C" __attribute__((visibility("default"))) int

static const int multiprocessors = 3, occupancy = 2; /* few, so that blocks walk far */

API cuInit(unsigned) { return 0; }
API cuDriverGetVersion(int *version) { *version = 13000; return 0; }
API cuGetErrorString(int, const char **text) { *text = "an error of the fake driver"; return 0; }
API cuGetErrorName(int, const char **text) { *text = "FAKE"; return 0; }
API cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
API cuDeviceGetCount(int *count) { *count = 1; return 0; }
API cuDeviceGetAttribute(int *value, int attribute, int) { *value = attribute == 16 ? multiprocessors : attribute == 75 ? 9 : 0; return 0; }
API cuDevicePrimaryCtxRetain(void **context, int) { static int it; *context = &it; return 0; }
API cuCtxSetCurrent(void *) { return 0; }
API cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return 0; }
API cuStreamCreateWithPriority(void **stream, unsigned, int) { *stream = malloc(1); return 0; }
API cuStreamDestroy_v2(void *stream) { free(stream); return 0; }
API cuStreamSynchronize(void *) { return 0; }
API cuStreamIsCapturing(void *, int *status) { *status = 0; return 0; }
API cuThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return 0; }
API cuStreamWaitEvent(void *, void *, unsigned) { return 0; }
API cuEventCreate(void **event, unsigned) { *event = malloc(1); return 0; }
API cuEventDestroy_v2(void *event) { free(event); return 0; }
API cuEventRecord(void *, void *) { return 0; }
API cuEventQuery(void *) { return 0; }
API cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *) { memcpy((void *)to, (const void *)from, bytes); return 0; }
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *) { memset((void *)to, value, bytes); return 0; }
API cuMemAlloc_v2(uint64_t *memory, size_t bytes) { *memory = (uint64_t)malloc(bytes); return *memory ? 0 : 2; }
API cuMemFree_v2(uint64_t memory) { free((void *)memory); return 0; }
API cuModuleLoadData(void **, const void *image) { return strcmp((const char *)image, "fake code") ? 200 : 0; }
API cuModuleUnload(void *) { return 0; }
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int, size_t) { *blocks = occupancy; return 0; }

API cuModuleGetFunction(void **function, void *, const char *name)
{
	auto found = kernels.find(name);

	if (found == kernels.end())
		return 500;
	*function = (void *)found->second;
	return 0;
}

API cuLaunchKernel(void *function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned, void *,
                   void **arguments, void **)
{
	if (!blocks || !threads || threads > 1024)
		return 1;
	body = (void (*)(void **))function;
	body_arguments = arguments;
	gridDim.x = blocks;
	for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
		run_block(threads);
	return 0;
}

/* ---- NVRTC ---- */

API nvrtcVersion(int *major, int *minor) { *major = 1; *minor = 0; return 0; }
API nvrtcGetNumSupportedArchs(int *count) { *count = 1; return 0; }
API nvrtcGetSupportedArchs(int *architectures) { *architectures = 90; return 0; }
API nvrtcCreateProgram(void **program, const char *, const char *, int, const char *const *, const char *const *)
{
	*program = malloc(1);
	return 0;
}
API nvrtcDestroyProgram(void **program) { free(*program); return 0; }
API nvrtcCompileProgram(void *, int, const char *const *) { return 0; }
API nvrtcGetProgramLogSize(void *, size_t *size) { *size = 0; return 0; }
API nvrtcGetProgramLog(void *, char *) { return 0; }
API nvrtcGetCUBINSize(void *, size_t *size) { *size = sizeof "fake code"; return 0; }
API nvrtcGetCUBIN(void *, char *image) { memcpy(image, "fake code", sizeof "fake code"); return 0; }
API nvrtcGetPTXSize(void *, size_t *size) { *size = 0; return 1; }
API nvrtcGetPTX(void *, char *) { return 1; }
extern "C" __attribute__((visibility("default"))) const char *nvrtcGetErrorString(int) { return "an error of the fake NVRTC"; }
