/* The kernels against their slow twins, every type, odd sizes and places: on the CPU for every instruction set that this processor
 * has, and the CUDA kernels under the fake driver. */
#include "train_backend/kernels/internal.h"
#include "train_backend/kernels/test/compare.h"

/* Longer than two tiles, and with every rest of a vector. */
static const size_t sizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 100, 255, 1023, 1024, 1025, 2500};

#define SIZES (sizeof sizes / sizeof *sizes)

static rc_kernels *kernels;

/* How many elements behind an aligned place buffers begin: 0, or 1, which is aligned to no more than the element. The last element
 * ends its block of memory, so that AddressSanitizer sees what is written behind it. */
static size_t behind;

static void *odd_place(void *block, rc_dtype type)
{
	return (char *)block + behind * rc_dtype_size(type);
}

static void *buffer(rc_dtype type, size_t count)
{
	return malloc((count + behind) * rc_dtype_size(type));
}

static void casts(void)
{
	for (size_t a = 0; a < TYPES; a++)
		for (size_t b = 0; b < TYPES; b++)
			for (size_t s = 0; s < SIZES; s++) {
				size_t count = sizes[s];
				void *from = buffer(all_types[a], count), *want = buffer(all_types[b], count), *got = buffer(all_types[b], count);

				fill_bits(odd_place(from, all_types[a]), all_types[a], count);
				rc_oracle_cast(odd_place(from, all_types[a]), all_types[a], want, all_types[b], count);
				CHECK(!rc_cast(kernels, odd_place(from, all_types[a]), all_types[a], odd_place(got, all_types[b]), all_types[b], count,
				               NULL, NULL));
				CHECK(same("cast", want, odd_place(got, all_types[b]), all_types[b], count));
				free(from), free(want), free(got);
			}
}

/* Every f16 and bf16, and every way an f32 lies between two of them. */
static void casts_of_all_halves(void)
{
	static uint16_t halves[65536], back[65536];
	static float wide[65536], want[65536];

	for (size_t i = 0; i < 65536; i++)
		halves[i] = (uint16_t)i;
	for (size_t a = 1; a <= 2; a++) {
		CHECK(!rc_cast(kernels, halves, all_types[a], wide, RC_F32, 65536, NULL, NULL));
		rc_oracle_cast(halves, all_types[a], want, RC_F32, 65536);
		CHECK(same("every half to f32", want, wide, RC_F32, 65536));
		for (int nudge = -1; nudge <= 1; nudge++) {
			for (size_t i = 0; i < 65535; i++) {
				uint32_t low, high;

				memcpy(&low, &want[i], 4);
				memcpy(&high, &want[i + 1], 4);
				low = low / 2 + high / 2 + (low & high & 1) + (uint32_t)nudge;
				memcpy(&wide[i], &low, 4);
			}
			uint16_t *rounded = malloc(sizeof back);

			CHECK(!rc_cast(kernels, wide, RC_F32, back, all_types[a], 65535, NULL, NULL));
			rc_oracle_cast(wide, RC_F32, rounded, all_types[a], 65535);
			CHECK(same("between two halves", rounded, back, all_types[a], 65535));
			free(rounded);
		}
	}
}

static void accumulates_and_scales(void)
{
	static const float scales[] = {1, 0.25f, -3.3f};

	for (size_t a = 0; a < TYPES; a++)
		for (size_t b = 0; b < TYPES; b++)
			for (size_t s = 0; s < SIZES; s++) {
				rc_dtype sum_type = all_types[a], type = all_types[b];
				size_t count = sizes[s];
				float scale = scales[s % 3];
				void *from = buffer(type, count), *got = buffer(sum_type, count), *want;

				fill_wild(odd_place(from, type), type, count, 2);
				fill_wild(odd_place(got, sum_type), sum_type, count, 3);
				want = copy_of(odd_place(got, sum_type), count * rc_dtype_size(sum_type));
				rc_oracle_accumulate(want, sum_type, odd_place(from, type), type, count, scale);
				CHECK(!rc_accumulate(kernels, odd_place(got, sum_type), sum_type, odd_place(from, type), type, count, scale, NULL, NULL));
				CHECK(same("accumulate", want, odd_place(got, sum_type), sum_type, count));
				if (b == 0) {
					rc_oracle_scale(want, sum_type, count, -0.7f);
					CHECK(!rc_scale(kernels, odd_place(got, sum_type), sum_type, count, -0.7f, NULL, NULL));
					CHECK(same("scale", want, odd_place(got, sum_type), sum_type, count));
				}
				free(from), free(got), free(want);
			}
}

static void sums_squares(void)
{
	double tolerance = kernels->device < 0 ? 0x1p-23 : 0x1p-20; /* f64 inside; f32 inside */

	for (size_t a = 0; a < TYPES; a++)
		for (size_t s = 0; s < SIZES; s++) {
			void *data = buffer(all_types[a], sizes[s]);
			float sum = 0.5f;
			double want;

			fill_normal(odd_place(data, all_types[a]), all_types[a], sizes[s], 4);
			want = 0.5 + rc_oracle_sum_squares(odd_place(data, all_types[a]), all_types[a], sizes[s]);
			CHECK(!rc_sum_squares(kernels, odd_place(data, all_types[a]), all_types[a], sizes[s], &sum, NULL, NULL));
			CHECK(fabs(sum - want) <= want * tolerance);
			rc_oracle_put(odd_place(data, all_types[a]), all_types[a], sizes[s] / 2, NAN);
			CHECK(!rc_sum_squares(kernels, odd_place(data, all_types[a]), all_types[a], sizes[s], &sum, NULL, NULL));
			CHECK(isnan(sum));
			free(data);
		}
}

static void clips(void)
{
	static const float sums[] = {0, 1e-12f, 0.25f, 1, 4, 1e30f, INFINITY, NAN};

	for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
		float want, want_norm, got = -1, norm = -1;

		rc_oracle_clip_coefficient(sums[i], 1.5f, &want, &want_norm);
		CHECK(!rc_clip_coefficient(kernels, &sums[i], 1.5f, &got, &norm, NULL, NULL));
		CHECK(same("coefficient", &want, &got, RC_F32, 1) && same("norm", &want_norm, &norm, RC_F32, 1));
		CHECK(!rc_clip_coefficient(kernels, &sums[i], 1.5f, &got, NULL, NULL, NULL));
		CHECK(same("coefficient", &want, &got, RC_F32, 1));
	}
}

struct state {
	void *param, *grad, *exp_avg, *exp_avg_sq, *cast;
};

static rc_adamw options(const struct state *state, size_t count, size_t variant)
{
	rc_adamw step = {.param = state->param, .grad = state->grad, .exp_avg = state->exp_avg, .exp_avg_sq = state->exp_avg_sq, .count = count,
	                 .lr = 1e-2, .beta1 = variant % 4 == 3 ? 0.4 : 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = variant % 3 ? 0.1 : 0,
	                 .decoupled = variant % 2, .maximize = variant % 5 == 4};

	step.cast = variant % 2 ? state->cast : NULL;
	return step;
}

/* Several steps, so that what is kept in the state counts too. */
static void adamw_steps(rc_dtype param, rc_dtype grad, rc_dtype kept, rc_dtype cast, size_t count, size_t variant)
{
	struct state want = {buffer(param, count), buffer(grad, count), buffer(kept, count), buffer(kept, count), buffer(cast, count)};
	struct state got = {buffer(param, count), NULL, buffer(kept, count), buffer(kept, count), buffer(cast, count)};
	struct state placed = {odd_place(got.param, param), want.grad, odd_place(got.exp_avg, kept), odd_place(got.exp_avg_sq, kept),
	                       odd_place(got.cast, cast)};
	float grad_scale = 0.37f, device_step, skip = 0;

	fill_wild(want.param, param, count, 1);
	memset(want.exp_avg, 0, count * rc_dtype_size(kept));
	memset(want.exp_avg_sq, 0, count * rc_dtype_size(kept));
	memset(want.cast, 0, count * rc_dtype_size(cast));
	memcpy(placed.param, want.param, count * rc_dtype_size(param));
	memcpy(placed.exp_avg, want.exp_avg, count * rc_dtype_size(kept));
	memcpy(placed.exp_avg_sq, want.exp_avg_sq, count * rc_dtype_size(kept));
	memset(placed.cast, 0, count * rc_dtype_size(cast));
	for (int i = 1; i <= 4; i++) {
		rc_adamw slow = options(&want, count, variant), fast = options(&placed, count, variant);

		slow.param_type = fast.param_type = param;
		slow.grad_type = fast.grad_type = grad;
		slow.state_type = fast.state_type = kept;
		slow.cast_type = fast.cast_type = cast;
		fill_wild(want.grad, grad, count, 2);
		device_step = (float)i;
		slow.step = fast.step = i;
		if (variant % 3 == 1) {
			slow.step = fast.step = 0;
			slow.step_on_device = fast.step_on_device = &device_step;
		}
		slow.grad_scale = fast.grad_scale = variant % 4 == 2 ? &grad_scale : NULL;
		skip = i == 3;
		slow.skip = fast.skip = &skip;
		rc_oracle_adamw(&slow);
		CHECK(!rc_adamw_step(kernels, &fast, NULL, NULL));
	}
	/* A device makes beta^step itself, whose last place is not the host's: it can be seen in f64. */
	if (kernels->device >= 0 && param == RC_F64 && variant % 3 == 1)
		for (size_t i = 0; i < count; i++) {
			double slow = rc_oracle_get(want.param, RC_F64, i), fast = rc_oracle_get(placed.param, RC_F64, i);

			if (fabs(slow - fast) <= 1e-14)
				memcpy((double *)placed.param + i, (double *)want.param + i, 8);
			if (cast == RC_F64 && fabs(slow - ((double *)placed.cast)[i]) <= 1e-14)
				memcpy((double *)placed.cast + i, (double *)want.cast + i, 8);
		}
	CHECK(same("parameter", want.param, placed.param, param, count));
	CHECK(same("exp_avg", want.exp_avg, placed.exp_avg, kept, count));
	CHECK(same("exp_avg_sq", want.exp_avg_sq, placed.exp_avg_sq, kept, count));
	CHECK(same("cast", want.cast, placed.cast, cast, count));
	free(want.param), free(want.grad), free(want.exp_avg), free(want.exp_avg_sq), free(want.cast);
	free(got.param), free(got.exp_avg), free(got.exp_avg_sq), free(got.cast);
}

static void adamw_of_all_types(void)
{
	size_t variant = 0;

	for (size_t p = 0; p < TYPES; p++)
		for (size_t g = 0; g < TYPES; g++)
			for (size_t k = 0; k < TYPES; k++, variant++)
				adamw_steps(all_types[p], all_types[g], all_types[k], all_types[variant % TYPES], sizes[variant % SIZES], variant);
	for (variant = 0; variant < 60; variant++)
		adamw_steps(RC_F32, RC_F32, RC_F32, RC_BF16, 1100, variant);
}

static _Thread_local int root_threads = 7;

/* Not IEEE's: so that it shows whose roots were taken. */
static void other_roots(int count, const float *from, float *to, int64_t mode)
{
	CHECK(mode == 0x140102 && (count == 1 || root_threads == 1)); /* the twin takes one at a time */
	for (int i = 0; i < count; i++)
		to[i] = nextafterf(sqrtf(from[i]), INFINITY);
}

static int set_root_threads(int count)
{
	int before = root_threads;

	root_threads = count;
	return before;
}

static const rc_roots roots = {other_roots, set_root_threads};

/* f32 masters of parameters in 16 bits, of which somebody writes one between two steps; with the caller's square roots on the CPU. */
static void masters(void)
{
	for (size_t round = 0; round < 2 * SIZES; round++) {
		rc_dtype type = round % 2 ? RC_BF16 : RC_F16;
		size_t count = sizes[round / 2], victim = count / 2;
		void *want_cast = buffer(type, count), *got_cast = buffer(type, count), *grad = buffer(type, count);
		float *want[3], *got[3];

		for (size_t i = 0; i < 3; i++) {
			want[i] = buffer(RC_F32, count);
			got[i] = buffer(RC_F32, count);
			fill_normal(odd_place(got[i], RC_F32), RC_F32, count, 1);
			if (i)
				memset(odd_place(got[i], RC_F32), 0, count * 4);
			memcpy(want[i], odd_place(got[i], RC_F32), count * 4);
		}
		rc_oracle_cast(want[0], RC_F32, want_cast, type, count);
		memcpy(odd_place(got_cast, type), want_cast, count * 2);
		for (int i = 1; i <= 4; i++) {
			rc_adamw slow = {.param = want[0], .grad = grad, .exp_avg = want[1], .exp_avg_sq = want[2], .cast = want_cast, .count = count,
			                 .param_type = RC_F32, .grad_type = type, .state_type = RC_F32, .cast_type = type, .lr = 1e-2, .beta1 = 0.9,
			                 .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .step = i, .decoupled = true, .follow = true,
			                 .roots = kernels->device < 0 ? &roots : NULL};
			rc_adamw fast = slow;
			float first;

			fast.param = odd_place(got[0], RC_F32), fast.exp_avg = odd_place(got[1], RC_F32), fast.exp_avg_sq = odd_place(got[2], RC_F32);
			fast.cast = odd_place(got_cast, type);
			fill_normal(grad, type, count, 1);
			if (i == 3) {
				rc_oracle_put(want_cast, type, victim, 42);
				rc_oracle_put(fast.cast, type, victim, 42);
			}
			rc_oracle_adamw(&slow);
			CHECK(!rc_adamw_steps(kernels, &fast, 1, 3, NULL, NULL));
			first = ((float *)fast.param)[victim];
			CHECK(i < 3 ? fabsf(first) < 10 : fabsf(first - 42) < 1);
		}
		CHECK_EQ_INT(7, root_threads);
		CHECK(same("master", want[0], odd_place(got[0], RC_F32), RC_F32, count));
		CHECK(same("exp_avg_sq", want[2], odd_place(got[2], RC_F32), RC_F32, count));
		CHECK(same("parameter", want_cast, odd_place(got_cast, type), type, count));
		for (size_t i = 0; i < 3; i++)
			free(want[i]), free(got[i]);
		free(want_cast), free(got_cast), free(grad);
	}
}

static void sgd_steps(rc_dtype param, rc_dtype grad, rc_dtype kept, rc_dtype cast, size_t count, size_t variant)
{
	void *want = buffer(param, count), *got = buffer(param, count), *g = buffer(grad, count);
	void *want_buffer = buffer(kept, count), *got_buffer = buffer(kept, count), *want_cast = buffer(cast, count), *got_cast = buffer(cast, count);

	fill_wild(want, param, count, 1);
	memcpy(odd_place(got, param), want, count * rc_dtype_size(param));
	memset(want_cast, 0, count * rc_dtype_size(cast));
	memset(odd_place(got_cast, cast), 0, count * rc_dtype_size(cast));
	memset(want_buffer, 0, count * rc_dtype_size(kept));
	memset(odd_place(got_buffer, kept), 0, count * rc_dtype_size(kept));
	for (int i = 1; i <= 4; i++) {
		rc_sgd slow = {.param = want, .grad = g, .momentum_buffer = variant % 4 ? want_buffer : NULL, .cast = variant % 2 ? want_cast : NULL,
		               .count = count, .param_type = param, .grad_type = grad, .state_type = kept, .cast_type = cast, .lr = 0.1,
		               .momentum = 0.9, .dampening = variant % 4 == 2 ? 0.3 : 0, .weight_decay = variant % 3 ? 0.1 : 0, .first = i == 1,
		               .nesterov = variant % 4 == 3, .maximize = variant % 5 == 4};
		rc_sgd fast = slow;

		fast.param = odd_place(got, param);
		fast.momentum_buffer = slow.momentum_buffer ? odd_place(got_buffer, kept) : NULL;
		fast.cast = slow.cast ? odd_place(got_cast, cast) : NULL;
		fill_wild(g, grad, count, 2);
		rc_oracle_sgd(&slow);
		CHECK(!rc_sgd_step(kernels, &fast, NULL, NULL));
	}
	CHECK(same("parameter", want, odd_place(got, param), param, count));
	CHECK(same("momentum", want_buffer, odd_place(got_buffer, kept), kept, count));
	CHECK(same("cast", want_cast, odd_place(got_cast, cast), cast, count));
	free(want), free(got), free(g), free(want_buffer), free(got_buffer), free(want_cast), free(got_cast);
}

static void sgd_of_all_types(void)
{
	size_t variant = 0;

	for (size_t p = 0; p < TYPES; p++)
		for (size_t g = 0; g < TYPES; g++)
			for (size_t k = 0; k < TYPES; k++, variant++)
				sgd_steps(all_types[p], all_types[g], all_types[k], all_types[variant % TYPES], sizes[variant % SIZES], variant);
	for (variant = 0; variant < 60; variant++)
		sgd_steps(RC_F32, RC_F32, RC_F32, RC_BF16, 1100, variant);
}

/* Longer than a thread's block, in several steps: all of it, once. */
static void threads_share_the_work(void)
{
	enum { COUNT = 700000 };
	float *data[4], *want[4], *buffers[2];
	rc_adamw steps[3];
	rc_sgd plain;
	rc_error error;

	for (size_t i = 0; i < 4; i++) {
		data[i] = malloc(COUNT * sizeof(float));
		fill_normal(data[i], RC_F32, COUNT, 1);
		if (i == 3)
			for (size_t j = 0; j < COUNT; j++)
				data[i][j] = fabsf(data[i][j]);
		want[i] = copy_of(data[i], COUNT * sizeof(float));
	}
	for (size_t i = 0; i < 3; i++) {
		size_t begin = (size_t[]){0, 600000, 600001}[i], end = (size_t[]){600000, 600001, COUNT}[i];

		steps[i] = (rc_adamw){.param = data[0] + begin, .grad = data[1] + begin, .exp_avg = data[2] + begin, .exp_avg_sq = data[3] + begin,
		                      .count = end - begin, .param_type = RC_F32, .grad_type = RC_F32, .state_type = RC_F32, .lr = 1e-2,
		                      .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = (double)(i + 1)};
		rc_adamw slow = steps[i];

		slow.param = want[0] + begin, slow.grad = want[1] + begin, slow.exp_avg = want[2] + begin, slow.exp_avg_sq = want[3] + begin;
		rc_oracle_adamw(&slow);
	}
	CHECK(!rc_adamw_steps(kernels, steps, 3, 4, NULL, NULL));
	for (size_t i = 0; i < 4; i++)
		CHECK(same("threads", want[i], data[i], RC_F32, COUNT));
	plain = (rc_sgd){.param = data[0], .grad = data[1], .momentum_buffer = data[2], .count = COUNT, .param_type = RC_F32, .grad_type = RC_F32,
	                 .state_type = RC_F32, .lr = 0.1, .momentum = 0.9};
	buffers[0] = want[0], buffers[1] = want[2];
	rc_sgd slow = plain;
	slow.param = buffers[0], slow.grad = want[1], slow.momentum_buffer = buffers[1];
	rc_oracle_sgd(&slow);
	CHECK(!rc_sgd_steps(kernels, &plain, 1, 4, NULL, NULL));
	CHECK(same("threads, sgd", want[0], data[0], RC_F32, COUNT));
	steps[1].step = 0;
	CHECK_EQ_INT(-1, rc_adamw_steps(kernels, steps, 3, 4, NULL, &error));
	CHECK_EQ_INT(RC_E_INVALID, error.code);
	for (size_t i = 0; i < 4; i++)
		free(data[i]), free(want[i]);
}

static void quantises(void)
{
	static const size_t blocks[] = {32, 96, 256, 2048};
	static const rc_quant kinds[] = {RC_INT8, RC_INT4, RC_FP8};

	for (size_t round = 0; round < 3 * 4 * TYPES * 3; round++) {
		rc_quant kind = kinds[round % 3];
		size_t block = blocks[round / 3 % 4], count = sizes[random_below(SIZES)], bytes = rc_quant_bytes(kind, count, block);
		size_t start = rc__quant_values(count, block);
		rc_dtype type = all_types[round / 12 % TYPES];
		bool feedback = round % 5 < 3, add = round % 2;
		void *from = buffer(type, count), *source = odd_place(from, type), *result = buffer(type, count), *wanted;
		float *residual = malloc(count * sizeof *residual), *lost;
		char *want = malloc(bytes), *got = malloc(bytes);

		if (round % 7 == 6)
			fill_wild(source, type, count, 1);
		else
			fill_normal(source, type, count, round % 7 == 5 ? 1e-39 : 3);
		if (round % 11 == 10)
			memset(source, 0, count * rc_dtype_size(type));
		fill_normal(residual, RC_F32, count, 0.01);
		lost = copy_of(residual, count * sizeof *residual);
		rc_oracle_quantize(kind, block, source, type, count, feedback ? lost : NULL, want);
		CHECK(!rc_quantize(kernels, kind, block, source, type, count, feedback ? residual : NULL, got, NULL, NULL));
		CHECK(same("scales", want, got, RC_F32, rc__quant_blocks(count, block)));
		CHECK(same("codes", want + start, got + start, RC_U8, bytes - start));
		CHECK(same("what was lost", lost, residual, RC_F32, count));
		fill_normal(odd_place(result, type), type, count, 1);
		wanted = copy_of(odd_place(result, type), count * rc_dtype_size(type));
		rc_oracle_dequantize(kind, block, want, wanted, type, count, add, 0.5f);
		CHECK(!rc_dequantize(kernels, kind, block, got, odd_place(result, type), type, count, add, 0.5f, NULL, NULL));
		CHECK(same("dequantised", wanted, odd_place(result, type), type, count));
		free(from), free(result), free(wanted), free(residual), free(lost), free(want), free(got);
	}
}

/* That the codes stand for what they came from, whatever the twin says. */
static void quantising_loses_little(void)
{
	static float from[4096], back[4096];
	static const struct {
		rc_quant kind;
		double loss; /* of the block's largest */
	} kinds[] = {{RC_INT8, 0.5 / 127}, {RC_INT4, 0.5 / 7}, {RC_FP8, 1.0 / 28}};
	char *packed = malloc(rc_quant_bytes(RC_INT8, 4096, 128));

	fill_normal(from, RC_F32, 4096, 5);
	for (size_t k = 0; k < 3; k++) {
		CHECK(!rc_quantize(kernels, kinds[k].kind, 128, from, RC_F32, 4096, NULL, packed, NULL, NULL));
		CHECK(!rc_dequantize(kernels, kinds[k].kind, 128, packed, back, RC_F32, 4096, false, 1, NULL, NULL));
		for (size_t b = 0; b < 4096; b += 128) {
			double most = 0, lost = 0;

			for (size_t i = b; i < b + 128; i++) {
				most = fmax(most, fabs(from[i]));
				lost = fmax(lost, fabs(from[i] - back[i]));
			}
			CHECK(lost <= most * kinds[k].loss * 1.0001 && lost > 0);
		}
	}
	free(packed);
}

static void refuses(void)
{
	rc_error error;
	float x[32] = {0};
	rc_adamw step = {.param = x, .grad = x, .exp_avg = x, .exp_avg_sq = x, .count = 1,
	                 .param_type = RC_F32, .grad_type = RC_F32, .state_type = RC_F32};

	CHECK_EQ_INT(-1, rc_cast(kernels, x, RC_U8, x, RC_F32, 1, NULL, &error));
	CHECK_EQ_INT(RC_E_INVALID, error.code);
	CHECK_EQ_INT(-1, rc_adamw_step(kernels, &step, NULL, &error)); /* step 0 */
	step.step = 1, step.grad_type = RC_U8;
	CHECK_EQ_INT(-1, rc_adamw_step(kernels, &step, NULL, &error));
	CHECK(strstr(error.text, "gradient") != NULL);
	CHECK_EQ_INT(-1, rc_quantize(kernels, RC_INT8, 33, x, RC_F32, 32, NULL, x, NULL, &error));
	CHECK_EQ_INT(-1, rc_quantize(kernels, RC_INT8, 0, x, RC_F32, 32, NULL, x, NULL, &error));
	CHECK_EQ_INT(-1, rc_dequantize(kernels, (rc_quant)7, 32, x, x, RC_F32, 32, false, 1, NULL, &error));
}

static void nothing_is_nothing(void)
{
	float out = 3;
	rc_adamw step = {.param_type = RC_F32, .grad_type = RC_F32, .state_type = RC_F32, .step = 1};

	CHECK(!rc_cast(kernels, NULL, RC_F32, NULL, RC_BF16, 0, NULL, NULL));
	CHECK(!rc_accumulate(kernels, NULL, RC_F32, NULL, RC_F32, 0, 1, NULL, NULL));
	CHECK(!rc_scale(kernels, NULL, RC_F32, 0, 2, NULL, NULL));
	CHECK(!rc_sum_squares(kernels, NULL, RC_F32, 0, &out, NULL, NULL));
	CHECK(out == 3);
	CHECK(!rc_adamw_step(kernels, &step, NULL, NULL));
	CHECK(!rc_quantize(kernels, RC_INT8, 32, NULL, RC_F32, 0, NULL, NULL, NULL, NULL));
	CHECK(!rc_dequantize(kernels, RC_INT8, 32, NULL, NULL, RC_F32, 0, true, 1, NULL, NULL));
	CHECK_EQ_INT(0, rc_quant_bytes(RC_INT8, 0, 32));
	rc_kernels_destroy(NULL);
}

static void run_all(const char *what)
{
	for (behind = 0; behind < 2; behind++) {
		printf("# %s, buffers %s\n", what, behind ? "at odd places" : "aligned");
		RUN(casts, "casts between all types round as the twin does");
		RUN(accumulates_and_scales, "sums and products of all types are the twin's");
		RUN(sums_squares, "sums of squares are right to an f32's last place");
		RUN(adamw_of_all_types, "AdamW and Adam give the twin's bits for all types and options");
		RUN(sgd_of_all_types, "SGD gives the twin's bits for all types and options");
		RUN(masters, "f32 masters follow what is written to their parameters; square roots are the caller's");
		RUN(threads_share_the_work, "threads step each element once");
		RUN(quantises, "quantised messages, lost parts and dequantised sums are the twin's");
	}
	RUN(casts_of_all_halves, "every 16-bit number, and what lies between two, is converted right");
	RUN(clips, "clipping's coefficient is clip_grad_norm_'s");
	RUN(quantising_loses_little, "quantising loses at most half a step");
	RUN(refuses, "what makes no sense is refused");
	RUN(nothing_is_nothing, "no elements are no work");
}

int main(void)
{
	const rc__cpu_ops *sets[3];
	size_t count = rc__cpu_sets(sets);

	if (rc_kernels_create(-1, &kernels, NULL))
		return 1;
	for (size_t i = 0; i < count; i++) {
		kernels->cpu = sets[i];
		run_all(sets[i]->name);
	}
	rc_kernels_destroy(kernels);
	kernels = fake_cuda_kernels();
	if (kernels) {
		run_all("CUDA under the fake driver");
		rc_kernels_destroy(kernels);
	}
	return test_end();
}
