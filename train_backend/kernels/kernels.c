/* Kernels over flat buffers: arguments are checked here, the work is in cpu.c and cuda.c. See kernels.h. */
#include "train_backend/kernels/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int rc_kernels_create(int device, rc_kernels **kernels, rc_error *error)
{
	rc_kernels *made = calloc(1, sizeof *made);

	if (!made)
		return rc_fail(error, RC_E_NO_MEMORY, "kernels: no memory");
	made->device = device < 0 ? -1 : device;
	made->backend = device < 0 ? &rc__cpu_backend : &rc__cuda_backend;
	if (device < 0) {
		const rc__cpu_ops *sets[3];

		rc__cpu_sets(sets);
		made->cpu = sets[0];
	} else if (rc__cuda_kernels_create(device, &made->cuda, error)) {
		free(made);
		return -1;
	}
	*kernels = made;
	return 0;
}

void rc_kernels_destroy(rc_kernels *kernels)
{
	if (!kernels)
		return;
	rc__cuda_kernels_destroy(kernels->cuda);
	free(kernels);
}

static int by_chunk(const void *a, const void *b)
{
	const rc_piece *left = a, *right = b;

	return left->chunk < right->chunk ? -1 : left->chunk > right->chunk;
}

/* Checks that the pieces lie in the chunk side by side, and lists what is between them. */
static int find_gaps(rc_layout *layout, rc_error *error)
{
	rc_piece *sorted = malloc((layout->count + 1) * sizeof *sorted);
	size_t end = 0;
	int result = 0;

	layout->gaps = malloc((layout->count + 1) * sizeof *layout->gaps);
	if (!sorted || !layout->gaps) {
		free(sorted);
		return rc_fail(error, RC_E_NO_MEMORY, "layout: no memory for %zu pieces", layout->count);
	}
	if (layout->count)
		memcpy(sorted, layout->pieces, layout->count * sizeof *sorted);
	qsort(sorted, layout->count, sizeof *sorted, by_chunk);
	for (size_t i = 0; i < layout->count && !result; i++) {
		const rc_piece *piece = &sorted[i];

		if (piece->total > piece->count * (size_t)layout->ranks)
			result = rc_fail(error, RC_E_INVALID, "layout: a parameter of %zu elements in %d chunks of %zu", piece->total, layout->ranks,
			                 piece->count);
		else if (piece->count && (piece->chunk < end || piece->chunk > layout->chunk || piece->count > layout->chunk - piece->chunk))
			result = rc_fail(error, RC_E_INVALID,
			                 "layout: a piece of %zu elements at %zu overlaps the one before it (to %zu) or leaves the chunk of %zu",
			                 piece->count, piece->chunk, end, layout->chunk);
		if (result || !piece->count)
			continue;
		if (piece->chunk > end)
			layout->gaps[layout->gap_count++] = (rc__gap){end, piece->chunk - end};
		end = piece->chunk + piece->count;
	}
	if (!result && end < layout->chunk)
		layout->gaps[layout->gap_count++] = (rc__gap){end, layout->chunk - end};
	free(sorted);
	return result;
}

int rc_layout_create(rc_kernels *kernels, const rc_piece *pieces, size_t count, int ranks, size_t chunk, rc_layout **layout,
                     rc_error *error)
{
	rc_layout *made;

	if (ranks < 1)
		return rc_fail(error, RC_E_INVALID, "layout: %d ranks", ranks);
	made = calloc(1, sizeof *made);
	if (!made)
		return rc_fail(error, RC_E_NO_MEMORY, "layout: no memory");
	*made = (rc_layout){.kernels = kernels, .count = count, .ranks = ranks, .chunk = chunk};
	made->pieces = malloc((count + 1) * sizeof *pieces);
	if (!made->pieces) {
		rc_layout_destroy(made);
		return rc_fail(error, RC_E_NO_MEMORY, "layout: no memory for %zu pieces", count);
	}
	if (count)
		memcpy(made->pieces, pieces, count * sizeof *pieces);
	if (find_gaps(made, error) || (kernels->device >= 0 && rc__cuda_layout_create(kernels, made, &made->cuda, error))) {
		rc_layout_destroy(made);
		return -1;
	}
	*layout = made;
	return 0;
}

void rc_layout_destroy(rc_layout *layout)
{
	if (!layout)
		return;
	rc__cuda_layout_destroy(layout->kernels, layout->cuda);
	free(layout->gaps);
	free(layout->pieces);
	free(layout);
}

/* Types that are computed with. */
static int check_type(rc_dtype type, const char *what, rc_error *error)
{
	if (type == RC_F32 || type == RC_F16 || type == RC_BF16 || type == RC_F64)
		return 0;
	return rc_fail(error, RC_E_INVALID, "%s: data type %d is no floating-point type", what, (int)type);
}

static int check_layout(rc_kernels *kernels, const rc_layout *layout, const char *what, rc_error *error)
{
	if (layout->kernels->device == kernels->device)
		return 0;
	return rc_fail(error, RC_E_INVALID, "%s: the layout was made for device %d, not %d", what, layout->kernels->device, kernels->device);
}

int rc_unshuffle(rc_kernels *kernels, const rc_layout *layout, const void *gathered, void *full, size_t element, rc_stream stream,
                 rc_error *error)
{
	if (check_layout(kernels, layout, "unshuffle", error))
		return -1;
	if (element != 1 && element != 2 && element != 4 && element != 8)
		return rc_fail(error, RC_E_INVALID, "unshuffle: elements of %zu bytes", element);
	return layout->chunk ? kernels->backend->unshuffle(kernels, layout, gathered, full, element, stream, error) : 0;
}

int rc_pack(rc_kernels *kernels, const rc_layout *layout, const void *const *grads, rc_dtype from, void *packed, rc_dtype to, float scale,
            rc_stream stream, rc_error *error)
{
	if (check_layout(kernels, layout, "pack", error) || check_type(from, "pack", error) || check_type(to, "pack", error))
		return -1;
	return layout->chunk ? kernels->backend->pack(kernels, layout, grads, from, packed, to, scale, stream, error) : 0;
}

int rc_cast(rc_kernels *kernels, const void *from, rc_dtype from_type, void *to, rc_dtype to_type, size_t count, rc_stream stream,
            rc_error *error)
{
	if (from_type != to_type && (check_type(from_type, "cast", error) || check_type(to_type, "cast", error)))
		return -1;
	if (!count || (from == to && from_type == to_type))
		return 0;
	return kernels->backend->cast(kernels, from, from_type, to, to_type, count, stream, error);
}

int rc_accumulate(rc_kernels *kernels, void *sum, rc_dtype sum_type, const void *from, rc_dtype from_type, size_t count, float scale,
                  rc_stream stream, rc_error *error)
{
	if (check_type(sum_type, "accumulate", error) || check_type(from_type, "accumulate", error))
		return -1;
	return count ? kernels->backend->accumulate(kernels, sum, sum_type, from, from_type, count, scale, stream, error) : 0;
}

int rc_scale(rc_kernels *kernels, void *data, rc_dtype type, size_t count, float scale, rc_stream stream, rc_error *error)
{
	if (check_type(type, "scale", error))
		return -1;
	return count && scale != 1 ? kernels->backend->scale(kernels, data, type, count, scale, stream, error) : 0;
}

int rc_sum_squares(rc_kernels *kernels, const void *data, rc_dtype type, size_t count, float *out, rc_stream stream, rc_error *error)
{
	if (check_type(type, "sum of squares", error))
		return -1;
	return count ? kernels->backend->sum_squares(kernels, data, type, count, out, stream, error) : 0;
}

int rc_clip_coefficient(rc_kernels *kernels, const float *sum, float max_norm, float *coefficient, float *norm, rc_stream stream,
                        rc_error *error)
{
	return kernels->backend->clip_coefficient(kernels, sum, max_norm, coefficient, norm, stream, error);
}

void rc__adamw_factors_make(const rc_adamw *step, double count, double grad_scale, rc__adamw_factors *factors)
{
	*factors = (rc__adamw_factors){
		.decay = step->decoupled ? 1 - step->lr * step->weight_decay : 1,
		.l2 = step->decoupled ? 0 : step->weight_decay,
		.beta2 = step->beta2,
		.weight1 = 1 - step->beta1,
		.weight2 = 1 - step->beta2,
		.step_size = step->lr / (1 - pow(step->beta1, count)),
		.root = sqrt(1 - pow(step->beta2, count)),
		.eps = step->eps,
		.grad_scale = step->maximize ? -grad_scale : grad_scale,
	};
}

void rc__sgd_factors_make(const rc_sgd *step, rc__sgd_factors *factors)
{
	*factors = (rc__sgd_factors){
		.decay = step->weight_decay,
		.momentum = step->momentum,
		.weight = 1 - step->dampening,
		.step_size = -step->lr,
		.sign = step->maximize ? -1 : 1,
		.first = step->first,
		.nesterov = step->nesterov,
	};
}

static bool is_half(rc_dtype type)
{
	return type == RC_F16 || type == RC_BF16;
}

int rc_adamw_step(rc_kernels *kernels, const rc_adamw *step, rc_stream stream, rc_error *error)
{
	if (check_type(step->param_type, "adamw: parameter", error) || check_type(step->grad_type, "adamw: gradient", error) ||
	    check_type(step->state_type, "adamw: state", error) || (step->cast && check_type(step->cast_type, "adamw: cast", error)))
		return -1;
	if (!step->step_on_device && !(step->step >= 1))
		return rc_fail(error, RC_E_INVALID, "adamw: step %g: the first is 1", step->step);
	if (step->follow && (step->param_type != RC_F32 || !step->cast || !is_half(step->cast_type)))
		return rc_fail(error, RC_E_INVALID, "adamw: only an f32 parameter follows, and a copy in 16 bits");
	if (step->roots && (kernels->device >= 0 || step->param_type == RC_F64))
		return rc_fail(error, RC_E_INVALID, "adamw: square roots of one's own are for the CPU and not for f64");
	return step->count ? kernels->backend->adamw_step(kernels, step, stream, error) : 0;
}

int rc_sgd_step(rc_kernels *kernels, const rc_sgd *step, rc_stream stream, rc_error *error)
{
	if (check_type(step->param_type, "sgd: parameter", error) || check_type(step->grad_type, "sgd: gradient", error) ||
	    (step->momentum_buffer && check_type(step->state_type, "sgd: momentum", error)) ||
	    (step->cast && check_type(step->cast_type, "sgd: cast", error)))
		return -1;
	if (step->follow && (step->param_type != RC_F32 || !step->cast || !is_half(step->cast_type)))
		return rc_fail(error, RC_E_INVALID, "sgd: only an f32 parameter follows, and a copy in 16 bits");
	return step->count ? kernels->backend->sgd_step(kernels, step, stream, error) : 0;
}

static int check_quant(rc_quant kind, size_t block, rc_dtype type, rc_error *error)
{
	if (kind != RC_INT8 && kind != RC_INT4 && kind != RC_FP8)
		return rc_fail(error, RC_E_INVALID, "quantisation: kind %d", (int)kind);
	if (!block || block % 32 || block > 1 << 20)
		return rc_fail(error, RC_E_INVALID, "quantisation: blocks of %zu elements: a multiple of 32 up to 1048576 is wanted", block);
	return check_type(type, "quantisation", error);
}

size_t rc_quant_bytes(rc_quant kind, size_t count, size_t block)
{
	size_t elements = rc__quant_blocks(count, block) * block;

	return rc__quant_values(count, block) + (kind == RC_INT4 ? elements / 2 : elements);
}

int rc_quantize(rc_kernels *kernels, rc_quant kind, size_t block, const void *from, rc_dtype from_type, size_t count, float *residual,
                void *packed, rc_stream stream, rc_error *error)
{
	if (check_quant(kind, block, from_type, error))
		return -1;
	return count ? kernels->backend->quantize(kernels, kind, block, from, from_type, count, residual, packed, stream, error) : 0;
}

int rc_dequantize(rc_kernels *kernels, rc_quant kind, size_t block, const void *packed, void *to, rc_dtype to_type, size_t count, bool add,
                  float scale, rc_stream stream, rc_error *error)
{
	if (check_quant(kind, block, to_type, error))
		return -1;
	return count ? kernels->backend->dequantize(kernels, kind, block, packed, to, to_type, count, add, scale, stream, error) : 0;
}
