/* The CUDA half of kernels.h: tables and launches. The kernels are in kernels.cu, whose text the build makes a string of. */
#include <stdlib.h>
#include <string.h>

#include "train_backend/device/cuda.h"
#include "train_backend/device/nvrtc.h"
#include "train_backend/kernels/internal.h"

static const char source[] =
#include "train_backend/kernels/kernels.cu.inc"
	;

/* As in kernels.cu. */
#define THREADS 256
#define TILE 8192
#define PACK_POINTERS 256

/* Sums of squares under way at a time, on all streams together, and in one captured graph: each has its own partial sums. */
#define SUM_SLOTS 64
#define SUM_SLOT_BLOCKS 4096

enum kernel {
	UNSHUFFLE,
	PACK,
	CAST,
	ACCUMULATE,
	SCALE,
	SUM_SQUARES,
	CLIP_COEFFICIENT,
	ADAMW,
	ADAMW_F64,
	SGD,
	SGD_F64,
	QUANTIZE,
	DEQUANTIZE,
	KERNELS,
};

static const char *const names[KERNELS] = {
	[UNSHUFFLE] = "unshuffle",
	[PACK] = "pack",
	[CAST] = "cast",
	[ACCUMULATE] = "accumulate",
	[SCALE] = "scale",
	[SUM_SQUARES] = "sum_squares",
	[CLIP_COEFFICIENT] = "clip_coefficient",
	[ADAMW] = "adamw",
	[ADAMW_F64] = "adamw_f64",
	[SGD] = "sgd",
	[SGD_F64] = "sgd_f64",
	[QUANTIZE] = "quantize",
	[DEQUANTIZE] = "dequantize",
};

struct rc__cuda_kernels {
	rc_cuda_module module;
	rc_cuda_function functions[KERNELS];
	unsigned blocks[KERNELS]; /* as many as run at a time: the grid of a long call */
	void *sums;               /* [SUM_SLOTS][SUM_SLOT_BLOCKS] f64, then [SUM_SLOTS] u32 counters */
	unsigned next_sum;        /* atomic */
};

/* As struct tile in kernels.cu. */
struct tile {
	uint64_t packed, full, grad;
	uint32_t piece, count, zeros, unused;
};

/* Tiles of 256 pieces each, so that their gradients' addresses fit into a launch's parameters; gaps go with the first. */
struct group {
	size_t first_tile, tiles;
};

struct rc__cuda_layout {
	void *tiles; /* on the device */
	struct group *groups;
	size_t group_count, tile_count;
};

struct pointers {
	const void *of[PACK_POINTERS];
};

/* As in kernels.cu. */
struct adamw_call {
	void *param;
	const void *grad;
	void *exp_avg, *exp_avg_sq;
	void *cast;
	int param_type, grad_type, state_type, cast_type;
	uint64_t count;
	const float *step, *grad_scale, *skip;
	double lr, beta1;
	rc__adamw_factors factors;
	int vector;
	int follow;
};

/* As in kernels.cu. */
struct sgd_call {
	void *param;
	const void *grad;
	void *buffer;
	void *cast;
	int param_type, grad_type, state_type, cast_type;
	uint64_t count;
	double decay, momentum, weight, step_size, sign;
	int first, nesterov, follow;
};

/* ---- create and destroy ---- */

static int load(rc__cuda_kernels *made, int device, rc_error *error)
{
	rc_cuda_device description;
	rc_nvrtc_target target;
	rc_nvrtc_code code;
	int result;

	if (rc_cuda_open(device, error) || rc_cuda_describe(device, &description, error))
		return -1;
	target = (rc_nvrtc_target){description.major, description.minor, description.driver};
	if (rc_nvrtc_build(source, "kernels.cu", &target, &code, error))
		return -1;
	result = rc_cuda_module_load(code.image, &made->module, error);
	free(code.image);
	if (result)
		return -1;
	for (int i = 0; i < KERNELS; i++) {
		int blocks;

		if (rc_cuda_module_function(made->module, names[i], &made->functions[i], error) ||
		    rc_cuda_occupancy(made->functions[i], THREADS, &blocks, error))
			return -1;
		made->blocks[i] = (unsigned)(blocks > 0 ? blocks : 1) * (unsigned)description.multiprocessors;
	}
	if (made->blocks[SUM_SQUARES] > SUM_SLOT_BLOCKS)
		made->blocks[SUM_SQUARES] = SUM_SLOT_BLOCKS;
	size_t bytes = SUM_SLOTS * (SUM_SLOT_BLOCKS * sizeof(double) + sizeof(uint32_t));
	if (rc_cuda_alloc(bytes, &made->sums, error) || rc_cuda_zero(made->sums, bytes, NULL, error))
		return -1;
	return rc_cuda_stream_sync(NULL, error);
}

int rc__cuda_kernels_create(int device, rc__cuda_kernels **kernels, rc_error *error)
{
	rc__cuda_kernels *made = calloc(1, sizeof *made);

	if (!made)
		return rc_fail(error, RC_E_NO_MEMORY, "kernels: no memory");
	if (load(made, device, error)) {
		rc__cuda_kernels_destroy(made);
		return -1;
	}
	*kernels = made;
	return 0;
}

void rc__cuda_kernels_destroy(rc__cuda_kernels *kernels)
{
	if (!kernels)
		return;
	rc_cuda_free(kernels->sums, NULL);
	rc_cuda_module_unload(kernels->module, NULL);
	free(kernels);
}

/* ---- launches ---- */

/* A grid for `units` of work, of which a block does `each` at a time. */
static int launch(rc_kernels *kernels, enum kernel kernel, uint64_t units, uint64_t each, void **arguments, rc_stream stream,
                  rc_error *error)
{
	uint64_t wanted = (units + each - 1) / each;
	unsigned most = kernels->cuda->blocks[kernel];

	if (rc_cuda_enter(kernels->device, error))
		return -1;
	return rc_cuda_launch(kernels->cuda->functions[kernel], wanted < most ? (unsigned)wanted : most, THREADS, arguments, stream, error);
}

/* Whether a kernel may use wide accesses on this memory. */
static bool wide(const void *memory, rc_dtype type)
{
	return (uintptr_t)memory % 16 == 0 && type != RC_F64;
}

/* ---- layouts ---- */

static size_t tiles_of(size_t count)
{
	return (count + TILE - 1) / TILE;
}

/* Tiles of `count` elements at `packed`, of which the first `filled` come from the piece. */
static struct tile *add_tiles(struct tile *next, size_t packed, size_t count, size_t filled, size_t full, size_t grad, size_t piece)
{
	for (size_t done = 0; done < count; done += TILE) {
		size_t n = count - done < TILE ? count - done : TILE, have = done < filled ? filled - done : 0;

		have = have < n ? have : n;
		*next++ = (struct tile){.packed = packed + done, .full = full + done, .grad = grad + done, .piece = (uint32_t)piece,
		                        .count = (uint32_t)have, .zeros = (uint32_t)(n - have)};
	}
	return next;
}

/* Rank by rank inside a group, so that a launch writes a message from its start to its end. */
static struct tile *fill_tiles(const rc_layout *layout, struct tile *tiles, struct group *groups)
{
	struct tile *next = tiles;

	for (size_t g = 0; g * PACK_POINTERS < layout->count || g == 0; g++) {
		size_t end = layout->count < (g + 1) * PACK_POINTERS ? layout->count : (g + 1) * PACK_POINTERS;

		groups[g].first_tile = (size_t)(next - tiles);
		for (size_t rank = 0; rank < (size_t)layout->ranks; rank++) {
			for (size_t i = g * PACK_POINTERS; i < end; i++) {
				const rc_piece *piece = &layout->pieces[i];
				size_t begin = rank * piece->count, left = begin < piece->total ? piece->total - begin : 0;

				next = add_tiles(next, rank * layout->chunk + piece->chunk, piece->count, left < piece->count ? left : piece->count,
				                 piece->full + begin, begin, i);
			}
			for (size_t i = 0; g == 0 && i < layout->gap_count; i++)
				next = add_tiles(next, rank * layout->chunk + layout->gaps[i].chunk, layout->gaps[i].count, 0, 0, 0, 0);
		}
		groups[g].tiles = (size_t)(next - tiles) - groups[g].first_tile;
	}
	return next;
}

int rc__cuda_layout_create(rc_kernels *kernels, const rc_layout *layout, rc__cuda_layout **table, rc_error *error)
{
	rc__cuda_layout *made = calloc(1, sizeof *made);
	struct tile *tiles = NULL;
	size_t count = 0;
	int result;

	for (size_t i = 0; i < layout->count; i++)
		count += tiles_of(layout->pieces[i].count);
	for (size_t i = 0; i < layout->gap_count; i++)
		count += tiles_of(layout->gaps[i].count);
	count *= (size_t)layout->ranks;
	if (made) {
		made->tile_count = count;
		made->group_count = layout->count ? (layout->count + PACK_POINTERS - 1) / PACK_POINTERS : 1;
		made->groups = calloc(made->group_count, sizeof *made->groups);
		tiles = malloc((count + 1) * sizeof *tiles);
	}
	if (!made || !made->groups || !tiles) {
		result = rc_fail(error, RC_E_NO_MEMORY, "layout: no memory for %zu tiles", count);
	} else if (count > UINT32_MAX) {
		result = rc_fail(error, RC_E_INVALID, "layout: %zu tiles are too many", count);
	} else {
		fill_tiles(layout, tiles, made->groups);
		result = rc_cuda_enter(kernels->device, error) || rc_cuda_alloc(count * sizeof *tiles, &made->tiles, error) ||
		         rc_cuda_copy(made->tiles, tiles, count * sizeof *tiles, NULL, error) || rc_cuda_stream_sync(NULL, error);
	}
	free(tiles);
	if (result) {
		rc__cuda_layout_destroy(kernels, made);
		return -1;
	}
	*table = made;
	return 0;
}

void rc__cuda_layout_destroy(rc_kernels *kernels, rc__cuda_layout *table)
{
	if (!table)
		return;
	if (table->tiles && !rc_cuda_enter(kernels->device, NULL))
		rc_cuda_free(table->tiles, NULL);
	free(table->groups);
	free(table);
}

static int cuda_unshuffle(rc_kernels *kernels, const rc_layout *layout, const void *gathered, void *full, size_t element, rc_stream stream,
                          rc_error *error)
{
	uint32_t count = (uint32_t)layout->cuda->tile_count, size = (uint32_t)element;
	void *arguments[] = {&layout->cuda->tiles, &count, &gathered, &full, &size};

	return launch(kernels, UNSHUFFLE, count, 1, arguments, stream, error);
}

static int cuda_pack(rc_kernels *kernels, const rc_layout *layout, const void *const *grads, rc_dtype from, void *packed, rc_dtype to,
                     float scale, rc_stream stream, rc_error *error)
{
	int from_type = (int)from, to_type = (int)to;
	uint32_t from_size = (uint32_t)rc_dtype_size(from), to_size = (uint32_t)rc_dtype_size(to);
	struct pointers pointers;

	for (size_t g = 0; g < layout->cuda->group_count; g++) {
		struct group group = layout->cuda->groups[g];
		uint32_t first = (uint32_t)(g * PACK_POINTERS), count = (uint32_t)group.tiles;
		size_t pieces = layout->count - first < PACK_POINTERS ? layout->count - first : PACK_POINTERS;
		void *tiles = (char *)layout->cuda->tiles + group.first_tile * sizeof(struct tile);
		void *arguments[] = {&tiles, &count, &first, &from_type, &from_size, &packed, &to_type, &to_size, &scale, &pointers};

		if (!count)
			continue;
		if (pieces)
			memcpy(pointers.of, grads + first, pieces * sizeof *grads);
		if (launch(kernels, PACK, count, 1, arguments, stream, error))
			return -1;
	}
	return 0;
}

/* ---- element by element ---- */

static int cuda_cast(rc_kernels *kernels, const void *from, rc_dtype from_type, void *to, rc_dtype to_type, size_t count, rc_stream stream,
                     rc_error *error)
{
	int from_code = (int)from_type, to_code = (int)to_type, vector = wide(from, from_type) && wide(to, to_type);
	uint64_t elements = count;
	void *arguments[] = {&from, &from_code, &to, &to_code, &elements, &vector};

	if (from_type == to_type)
		return rc_cuda_enter(kernels->device, error) ? -1 : rc_cuda_copy(to, from, count * rc_dtype_size(to_type), stream, error);
	return launch(kernels, CAST, count, vector ? 8 * THREADS : THREADS, arguments, stream, error);
}

static int cuda_accumulate(rc_kernels *kernels, void *sum, rc_dtype sum_type, const void *from, rc_dtype from_type, size_t count,
                           float scale, rc_stream stream, rc_error *error)
{
	int sum_code = (int)sum_type, from_code = (int)from_type;
	int vector = wide(sum, sum_type) && wide(from, from_type);
	uint64_t elements = count;
	void *arguments[] = {&sum, &sum_code, &from, &from_code, &elements, &scale, &vector};

	return launch(kernels, ACCUMULATE, count, vector ? 8 * THREADS : THREADS, arguments, stream, error);
}

static int cuda_scale(rc_kernels *kernels, void *data, rc_dtype type, size_t count, float scale, rc_stream stream, rc_error *error)
{
	int code = (int)type, vector = wide(data, type);
	uint64_t elements = count;
	void *arguments[] = {&data, &code, &elements, &scale, &vector};

	return launch(kernels, SCALE, count, vector ? 8 * THREADS : THREADS, arguments, stream, error);
}

static int cuda_sum_squares(rc_kernels *kernels, const void *data, rc_dtype type, size_t count, float *out, rc_stream stream,
                            rc_error *error)
{
	unsigned slot = __atomic_fetch_add(&kernels->cuda->next_sum, 1, __ATOMIC_RELAXED) % SUM_SLOTS;
	double *partials = (double *)kernels->cuda->sums + (size_t)slot * SUM_SLOT_BLOCKS;
	uint32_t *counter = (uint32_t *)((double *)kernels->cuda->sums + (size_t)SUM_SLOTS * SUM_SLOT_BLOCKS) + slot;
	int code = (int)type, vector = wide(data, type);
	uint64_t elements = count;
	void *arguments[] = {&data, &code, &elements, &partials, &counter, &out, &vector};

	return launch(kernels, SUM_SQUARES, count, vector ? 8 * THREADS : THREADS, arguments, stream, error);
}

static int cuda_clip_coefficient(rc_kernels *kernels, const float *sum, float max_norm, float *coefficient, float *norm, rc_stream stream,
                                 rc_error *error)
{
	void *arguments[] = {&sum, &max_norm, &coefficient, &norm};

	if (rc_cuda_enter(kernels->device, error))
		return -1;
	return rc_cuda_launch(kernels->cuda->functions[CLIP_COEFFICIENT], 1, 1, arguments, stream, error);
}

static int cuda_adamw_step(rc_kernels *kernels, const rc_adamw *step, rc_stream stream, rc_error *error)
{
	bool f64 = step->param_type == RC_F64;
	bool vector = wide(step->param, step->param_type) && wide(step->grad, step->grad_type) && wide(step->exp_avg, step->state_type) &&
	              wide(step->exp_avg_sq, step->state_type) && (!step->cast || wide(step->cast, step->cast_type));
	struct adamw_call call = {
		.param = step->param,
		.grad = step->grad,
		.exp_avg = step->exp_avg,
		.exp_avg_sq = step->exp_avg_sq,
		.cast = step->cast,
		.param_type = (int)step->param_type,
		.grad_type = (int)step->grad_type,
		.state_type = (int)step->state_type,
		.cast_type = (int)step->cast_type,
		.count = step->count,
		.step = step->step_on_device,
		.grad_scale = step->grad_scale,
		.skip = step->skip,
		.lr = step->lr,
		.beta1 = step->beta1,
		.vector = vector,
		.follow = step->follow,
	};
	void *arguments[] = {&call};

	rc__adamw_factors_make(step, step->step_on_device ? 1 : step->step, 1, &call.factors);
	return launch(kernels, f64 ? ADAMW_F64 : ADAMW, step->count, vector ? 4 * THREADS : THREADS, arguments, stream, error);
}

static int cuda_sgd_step(rc_kernels *kernels, const rc_sgd *step, rc_stream stream, rc_error *error)
{
	rc__sgd_factors f;

	rc__sgd_factors_make(step, &f);
	struct sgd_call call = {
		.param = step->param,
		.grad = step->grad,
		.buffer = step->momentum_buffer,
		.cast = step->cast,
		.param_type = (int)step->param_type,
		.grad_type = (int)step->grad_type,
		.state_type = (int)step->state_type,
		.cast_type = (int)step->cast_type,
		.count = step->count,
		.decay = f.decay,
		.momentum = f.momentum,
		.weight = f.weight,
		.step_size = f.step_size,
		.sign = f.sign,
		.first = f.first,
		.nesterov = f.nesterov,
		.follow = step->follow,
	};
	void *arguments[] = {&call};

	return launch(kernels, step->param_type == RC_F64 ? SGD_F64 : SGD, step->count, THREADS, arguments, stream, error);
}

/* ---- block quantisation ---- */

static int cuda_quantize(rc_kernels *kernels, rc_quant kind, size_t block, const void *from, rc_dtype from_type, size_t count,
                         float *residual, void *packed, rc_stream stream, rc_error *error)
{
	int kind_code = (int)kind, code = (int)from_type, vector = wide(from, from_type) && wide(residual, RC_F32);
	uint32_t block_size = (uint32_t)block;
	uint64_t elements = count;
	char *codes = (char *)packed + rc__quant_values(count, block);
	float limit = rc__quant_limit(kind);
	void *arguments[] = {&kind_code, &block_size, &from, &code, &elements, &residual, &packed, &codes, &limit, &vector};

	return launch(kernels, QUANTIZE, rc__quant_blocks(count, block), THREADS / 32, arguments, stream, error);
}

static int cuda_dequantize(rc_kernels *kernels, rc_quant kind, size_t block, const void *packed, void *to, rc_dtype to_type, size_t count,
                           bool add, float scale, rc_stream stream, rc_error *error)
{
	int kind_code = (int)kind, code = (int)to_type, adds = add, vector = wide(to, to_type);
	uint32_t block_size = (uint32_t)block;
	uint64_t elements = count;
	const char *codes = (const char *)packed + rc__quant_values(count, block);
	void *arguments[] = {&kind_code, &block_size, &packed, &codes, &to, &code, &elements, &adds, &scale, &vector};

	return launch(kernels, DEQUANTIZE, rc__quant_blocks(count, block), THREADS / 32, arguments, stream, error);
}

const rc__backend rc__cuda_backend = {
	.unshuffle = cuda_unshuffle,
	.pack = cuda_pack,
	.cast = cuda_cast,
	.accumulate = cuda_accumulate,
	.scale = cuda_scale,
	.sum_squares = cuda_sum_squares,
	.clip_coefficient = cuda_clip_coefficient,
	.adamw_step = cuda_adamw_step,
	.sgd_step = cuda_sgd_step,
	.quantize = cuda_quantize,
	.dequantize = cuda_dequantize,
};
