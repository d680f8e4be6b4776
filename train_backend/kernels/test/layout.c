/* Packing gradients and unpacking gathered parameters against the slow twins: on the CPU, and the CUDA kernels under the fake driver. */
#include "train_backend/kernels/test/compare.h"

#define MOST_PIECES 300

static rc_kernels *kernels;

/* A layout as the engine makes them: rows dealt to ranks by torch's Shard(0), here and there a gap for alignment, pieces without an
 * element, parameters smaller than the ranks; in any order. */
struct plan {
	rc_piece pieces[MOST_PIECES];
	size_t count, chunk, full;
	int ranks;
};

static struct plan random_plan(size_t count, int ranks)
{
	struct plan plan = {.count = count, .ranks = ranks};

	for (size_t i = 0; i < count; i++) {
		size_t rows = random_below(9), width = random_below(4) ? 1 + random_below(40) : 1 + random_below(3000);
		size_t share = (rows + (size_t)ranks - 1) / (size_t)ranks * width;

		plan.chunk += random_below(3) ? 0 : random_below(9);
		plan.pieces[i] = (rc_piece){plan.chunk, plan.full, share, rows * width};
		plan.chunk += share;
		plan.full += share * (size_t)ranks;
	}
	plan.chunk += random_below(20);
	for (size_t i = count; i-- > 1;) {
		size_t other = random_below(i + 1);
		rc_piece kept = plan.pieces[i];

		plan.pieces[i] = plan.pieces[other];
		plan.pieces[other] = kept;
	}
	return plan;
}

static void unshuffles(void)
{
	static const size_t elements[] = {1, 2, 4, 8};

	for (size_t round = 0; round < 60; round++) {
		struct plan plan = random_plan(round % 13, 1 + (int)(round % 5));
		size_t element = elements[round % 4], gathered_bytes = plan.chunk * (size_t)plan.ranks * element, bytes = plan.full * element;
		unsigned char *gathered = malloc(gathered_bytes + 1), *want = malloc(bytes + 1), *got = malloc(bytes + 1);
		rc_layout *layout = NULL;

		fill_bits(gathered, RC_U8, gathered_bytes);
		memset(want, 0xa5, bytes);
		memset(got, 0xa5, bytes);
		CHECK(!rc_layout_create(kernels, plan.pieces, plan.count, plan.ranks, plan.chunk, &layout, NULL));
		CHECK(!rc_unshuffle(kernels, layout, gathered, got, element, NULL, NULL));
		rc_oracle_unshuffle(plan.pieces, plan.count, plan.chunk, gathered, want, element);
		CHECK(memcmp(want, got, bytes) == 0); /* what is padding is not touched */
		rc_layout_destroy(layout);
		free(gathered), free(want), free(got);
	}
}

static void packs(void)
{
	for (size_t round = 0; round < 160; round++) {
		struct plan plan = random_plan(round % 40 == 39 ? MOST_PIECES : round % 13, 1 + (int)(round % 5));
		rc_dtype from = all_types[round % TYPES], to = all_types[round / TYPES % TYPES];
		size_t total = plan.chunk * (size_t)plan.ranks, bytes = total * rc_dtype_size(to);
		void *want = malloc(bytes + 1), *got = malloc(bytes + 1), *grads[MOST_PIECES] = {0};
		float scale = round / 16 % 2 ? 0.3f : 1;
		rc_layout *layout = NULL;

		for (size_t i = 0; i < plan.count; i++) {
			if (random_below(6) == 0)
				continue;
			grads[i] = malloc(plan.pieces[i].total * rc_dtype_size(from) + 1);
			fill_bits(grads[i], from, plan.pieces[i].total);
		}
		memset(got, 0xa5, bytes);
		CHECK(!rc_layout_create(kernels, plan.pieces, plan.count, plan.ranks, plan.chunk, &layout, NULL));
		CHECK(!rc_pack(kernels, layout, (const void *const *)grads, from, got, to, scale, NULL, NULL));
		rc_oracle_pack(plan.pieces, plan.count, plan.ranks, plan.chunk, (const void *const *)grads, from, want, to, scale);
		if (from == to && scale == 1)
			CHECK(memcmp(want, got, bytes) == 0);
		CHECK(same("pack", want, got, to, total));
		rc_layout_destroy(layout);
		for (size_t i = 0; i < plan.count; i++)
			free(grads[i]);
		free(want), free(got);
	}
}

/* One parameter of 2 ranks whose second half begins at an odd place; memory ends where the data does, which AddressSanitizer sees. */
static void stays_inside(void)
{
	for (size_t n = 1; n <= 70; n++) {
		rc_piece piece = {0, 0, n, 2 * n};
		rc_layout *layout = NULL;

		CHECK(!rc_layout_create(kernels, &piece, 1, 2, n, &layout, NULL));
		for (size_t element = 1; element <= 8; element *= 2) {
			unsigned char *gathered = malloc(2 * n * element), *full = malloc(2 * n * element);

			fill_bits(gathered, RC_U8, 2 * n * element);
			CHECK(!rc_unshuffle(kernels, layout, gathered, full, element, NULL, NULL));
			CHECK(memcmp(gathered, full, 2 * n * element) == 0); /* with one piece and no gap, nothing changes places */
			free(gathered), free(full);
		}
		for (size_t kinds = 0; kinds < 2 * TYPES * TYPES; kinds++) {
			rc_dtype from = all_types[kinds % TYPES], to = all_types[kinds / TYPES % TYPES];
			float scale = kinds / TYPES / TYPES ? 3 : 1;
			size_t bytes = 2 * n * rc_dtype_size(to);
			void *grad = malloc(2 * n * rc_dtype_size(from)), *want = malloc(bytes), *got = malloc(bytes);

			fill_bits(grad, from, 2 * n);
			rc_oracle_pack(&piece, 1, 2, n, (const void *const *)&grad, from, want, to, scale);
			CHECK(!rc_pack(kernels, layout, (const void *const *)&grad, from, got, to, scale, NULL, NULL));
			CHECK(same("pack", want, got, to, 2 * n));
			free(grad), free(want), free(got);
		}
		rc_layout_destroy(layout);
	}
}

static void refuses(void)
{
	static const struct {
		rc_piece pieces[2];
		size_t count, chunk;
		int ranks;
		const char *why;
	} bad[] = {
		{{{0, 0, 4, 8}, {3, 8, 4, 8}}, 2, 20, 2, "overlaps"},
		{{{0, 0, 4, 9}}, 1, 20, 2, "9 elements in 2 chunks of 4"},
		{{{18, 0, 4, 8}}, 1, 20, 2, "leaves the chunk of 20"},
		{{{SIZE_MAX, 0, 4, 8}}, 1, 20, 2, "leaves the chunk of 20"},
		{{{0, 0, 4, 8}}, 1, 20, 0, "0 ranks"},
	};
	rc_layout *layout = NULL;
	rc_error error;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		CHECK_EQ_INT(-1, rc_layout_create(kernels, bad[i].pieces, bad[i].count, bad[i].ranks, bad[i].chunk, &layout, &error));
		CHECK_EQ_INT(RC_E_INVALID, error.code);
		CHECK(strstr(error.text, bad[i].why) != NULL);
	}
	CHECK(!rc_layout_create(kernels, NULL, 0, 2, 0, &layout, NULL));
	CHECK(!rc_unshuffle(kernels, layout, NULL, NULL, 4, NULL, NULL));
	CHECK(!rc_pack(kernels, layout, NULL, RC_F32, NULL, RC_F32, 1, NULL, NULL));
	CHECK_EQ_INT(-1, rc_unshuffle(kernels, layout, NULL, NULL, 3, NULL, &error));
	rc_layout_destroy(layout);
	rc_layout_destroy(NULL);
}

static void run_all(void)
{
	RUN(unshuffles, "gathered chunks come to the parameters' places");
	RUN(packs, "gradients come to the ranks' chunks, zeros to what is between");
	RUN(stays_inside, "nothing outside the buffers is touched, whatever their places and sizes");
	RUN(refuses, "layouts that cannot be are refused");
}

int main(void)
{
	if (rc_kernels_create(-1, &kernels, NULL))
		return 1;
	run_all();
	rc_kernels_destroy(kernels);
	kernels = fake_cuda_kernels();
	if (kernels) {
		printf("# CUDA, fake driver\n");
		run_all();
		rc_kernels_destroy(kernels);
	}
	return test_end();
}
