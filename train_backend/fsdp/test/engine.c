/* The schedule on the CPU with 1 to 3 ranks over shared memory: what is gathered and reduced against plain loops. */
#include "train_backend/fsdp/engine.h"

#include "train_backend/comm/test/ranks.h"

/* Two parameters of a unit: 5 rows of 3 and 7 rows of 1, sharded by rows. */
enum { ROWS_A = 5, WIDTH_A = 3, ROWS_B = 7, GAP = 4 };

typedef struct small {
	rc_comm *comm;
	rc_engine *engine;
	int ranks, rank;
	rc_piece pieces[2];
	size_t chunk, full_count;
	float *shards[3];  /* in a window */
	float *full[3];    /* units 0 and 2 share a slot */
	char *packed;      /* in a window */
	char reduced[4096];
} small;

static float weight(int unit, size_t i) { return (float)(unit * 1000) + (float)i + 0.5f; }
static float gradient(int rank, size_t i) { return (float)(rank + 1) * ((float)i - 3.25f); }

static void must(int rc, const rc_error *error)
{
	if (rc < 0) {
		printf("# %s\n", error->text);
		exit(1);
	}
}

static void set_up(small *s, int rank, int size)
{
	rc_engine_config config = { .device = -1 };
	rc_error error;
	void *memory;
	int slots[2], bucket;

	memset(s, 0, sizeof *s);
	s->rank = rank;
	s->ranks = size;
	s->comm = ranks_connect(rank, size, 20);
	config.gather = config.reduce = s->comm;
	must(rc_engine_create(&config, &s->engine, &error), &error);
	s->pieces[0].count = (size_t)((ROWS_A + size - 1) / size * WIDTH_A);
	s->pieces[0].total = ROWS_A * WIDTH_A;
	s->pieces[1].chunk = s->pieces[0].count + GAP;
	s->pieces[1].full = s->pieces[0].count * (size_t)size + GAP;
	s->pieces[1].count = (size_t)((ROWS_B + size - 1) / size);
	s->pieces[1].total = ROWS_B;
	s->chunk = s->pieces[1].chunk + s->pieces[1].count;
	s->full_count = s->pieces[1].full + s->pieces[1].count * (size_t)size;
	must(rc_comm_window(s->comm, 3 * s->chunk * sizeof(float), &memory, &error), &error);
	for (int u = 0; u < 3; u++)
		s->shards[u] = (float *)memory + (size_t)u * s->chunk;
	must(rc_comm_window(s->comm, s->chunk * (size_t)size * sizeof(float), &memory, &error), &error);
	s->packed = memory;
	for (int i = 0; i < 2; i++)
		must(slots[i] = rc_engine_add_slot(s->engine, &error), &error);
	must(bucket = rc_engine_add_bucket(s->engine, &error), &error);
	must(rc_engine_set_bucket(s->engine, bucket, memory, s->chunk * (size_t)size * sizeof(float), s->reduced, sizeof s->reduced, &error),
	     &error);
	s->full[0] = s->full[2] = calloc(s->full_count, sizeof(float));
	s->full[1] = calloc(s->full_count, sizeof(float));
	for (int u = 0; u < 3; u++) {
		char name[16];
		rc_unit_spec spec = { .name = name, .pieces = s->pieces, .count = 2, .chunk = s->chunk, .shard_type = RC_F32, .gather_type = RC_F32,
		                      .shard = s->shards[u], .full = s->full[u], .slot = slots[u % 2], .first_bucket = bucket, .bucket_count = 1 };

		snprintf(name, sizeof name, "unit%d", u);
		must(rc_engine_add_unit(s->engine, &spec, &error), &error);
		must(rc_engine_set_gradient(s->engine, u, s->pieces, 2, s->chunk, false, &error), &error);
		for (int p = 0; p < 2; p++)
			for (size_t i = 0; i < s->pieces[p].count; i++) {
				size_t at = (size_t)rank * s->pieces[p].count + i;

				if (at < s->pieces[p].total)
					s->shards[u][s->pieces[p].chunk + i] = weight(u, (size_t)p * 100 + at);
			}
	}
}

static void tear_down(small *s)
{
	rc_engine_destroy(s->engine);
	rc_comm_destroy(s->comm);
	free(s->full[0]);
	free(s->full[1]);
}

static void check_full(const small *s, int unit)
{
	for (int p = 0; p < 2; p++)
		for (size_t i = 0; i < s->pieces[p].total; i++)
			CHECK(s->full[unit][s->pieces[p].full + i] == weight(unit, (size_t)p * 100 + i));
}

static void gather_in(int rank, int size)
{
	small s;
	rc_error error;

	set_up(&s, rank, size);
	must(rc_engine_begin(s.engine, false, NULL, &error), &error);
	for (int u = 0; u < 3; u++) {
		must(rc_engine_unshard(s.engine, u, false, NULL, &error), &error);
		check_full(&s, u);
		must(rc_engine_release(s.engine, u, NULL, &error), &error);
	}
	/* Backward: units 2 and 1 are there still, unit 0's slot was taken by unit 2. */
	for (int u = 2; u >= 0; u--) {
		must(rc_engine_unshard(s.engine, u, true, NULL, &error), &error);
		check_full(&s, u);
		must(rc_engine_release(s.engine, u, NULL, &error), &error);
	}
	CHECK_EQ_INT(4, rc_engine_get_stats(s.engine).gathers);
	CHECK_EQ_INT((long long)(4 * s.chunk * sizeof(float)) * (size - 1), rc_engine_get_stats(s.engine).gathered_bytes);
	/* A new step sees changed shards. */
	must(rc_comm_barrier(s.comm, (rc_tag){ "test", "change" }, &error), &error);
	for (size_t i = 0; i < s.pieces[1].count; i++)
		s.shards[0][s.pieces[1].chunk + i] = -8;
	must(rc_engine_begin(s.engine, false, NULL, &error), &error);
	must(rc_engine_unshard(s.engine, 0, false, NULL, &error), &error);
	for (size_t i = 0; i < s.pieces[1].total; i++)
		CHECK(s.full[0][s.pieces[1].full + i] == -8);
	/* Its slot cannot be taken while it is in use, and nothing is lost by the attempt. */
	CHECK_EQ_INT(-1, rc_engine_unshard(s.engine, 2, false, NULL, &error));
	CHECK_EQ_INT(RC_E_UNSUPPORTED, error.code);
	CHECK(strstr(error.text, "unit2") && strstr(error.text, "unit0"));
	rc_engine_reset(s.engine);
	must(rc_engine_unshard(s.engine, 2, false, NULL, &error), &error);
	check_full(&s, 2);
	tear_down(&s);
}

static void reduce_with(small *s, rc_reduce_rule rule, bool add, bool without_b, float *out)
{
	float a[ROWS_A * WIDTH_A], b[ROWS_B];
	const void *grads[2] = { a, without_b ? NULL : b };
	rc_error error;

	for (size_t i = 0; i < ROWS_A * WIDTH_A; i++)
		a[i] = gradient(s->rank, i);
	for (size_t i = 0; i < ROWS_B; i++)
		b[i] = gradient(s->rank, 100 + i);
	must(rc_engine_reduce(s->engine, 1, grads, RC_F32, &rule, out, add, NULL, &error), &error);
}

/* The sum over ranks in their order, as f32, of what the rule makes of gradients; 0 in padding. */
static float expected(const small *s, int piece, size_t i, rc_reduce_rule rule, bool without_b)
{
	size_t at = (size_t)s->rank * s->pieces[piece].count + i;
	float sum = 0;

	if (at >= s->pieces[piece].total || (piece == 1 && without_b))
		return 0;
	for (int r = 0; r < s->ranks; r++)
		sum += gradient(r, (size_t)piece * 100 + at) / rule.before;
	if (rule.mean)
		sum /= (float)s->ranks;
	return sum / rule.after;
}

static void reduce_in(int rank, int size)
{
	static const rc_reduce_rule rules[] = {
		{ .type = RC_F32, .mean = false, .before = 1, .after = 1 },
		{ .type = RC_F32, .mean = true, .before = 1, .after = 1 },
		{ .type = RC_F32, .mean = false, .before = 2, .after = 1.5f },
	};
	float *out;
	small s;

	set_up(&s, rank, size);
	out = calloc(s.chunk, sizeof *out);
	for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
		for (int without_b = 0; without_b < 2; without_b++) {
			memset(out, 0x7f, s.chunk * sizeof *out);
			reduce_with(&s, rules[k], false, without_b, out);
			for (int p = 0; p < 2; p++)
				for (size_t i = 0; i < s.pieces[p].count; i++)
					CHECK(out[s.pieces[p].chunk + i] == expected(&s, p, i, rules[k], without_b));
			reduce_with(&s, rules[k], true, without_b, out);
			for (int p = 0; p < 2; p++)
				for (size_t i = 0; i < s.pieces[p].count; i++)
					CHECK(out[s.pieces[p].chunk + i] == 2 * expected(&s, p, i, rules[k], without_b));
		}
	free(out);
	tear_down(&s);
}

/* One flat piece, three gradients that cross the borders of chunks. */
static void flat_in(int rank, int size)
{
	enum { N = 17 };
	const rc_piece parts[3] = { { .chunk = 0, .count = 5, .total = 5 }, { .chunk = 6, .count = 9, .total = 9 }, { .chunk = 15, .count = 2, .total = 2 } };
	rc_reduce_rule rule = { .type = RC_F32, .before = 1, .after = 1 };
	float grads[3][9], *out;
	const void *pointers[3] = { grads[0], grads[1], grads[2] };
	size_t chunk = (size_t)((N + size - 1) / size);
	rc_error error;
	small s;

	set_up(&s, rank, size);
	must(rc_engine_set_gradient(s.engine, 1, parts, 3, chunk, true, &error), &error);
	out = calloc(chunk, sizeof *out);
	for (int p = 0; p < 3; p++)
		for (size_t i = 0; i < parts[p].total; i++)
			grads[p][i] = gradient(rank, parts[p].chunk + i);
	must(rc_engine_reduce(s.engine, 1, pointers, RC_F32, &rule, out, false, NULL, &error), &error);
	for (size_t i = 0; i < chunk; i++) {
		size_t at = (size_t)rank * chunk + i;
		float sum = 0;

		for (int r = 0; at < N && at != 5 && r < size; r++)
			sum += gradient(r, at);
		CHECK(out[i] == sum);
	}
	free(out);
	tear_down(&s);
}

static void refusals_in(int rank, int size)
{
	rc_piece bad = { .chunk = 3, .count = 8, .total = 8 };
	rc_unit_spec spec = { .name = "odd", .pieces = &bad, .count = 1, .chunk = 10, .shard_type = RC_F32, .gather_type = RC_F32, .bucket_count = 1 };
	rc_error error;
	small s;

	set_up(&s, rank, size);
	CHECK_EQ_INT(-1, rc_engine_add_unit(s.engine, &spec, &error));
	CHECK(strstr(error.text, "odd"));
	bad = (rc_piece){ .count = 8, .total = 8 * 4 };
	CHECK_EQ_INT(-1, rc_engine_add_unit(s.engine, &spec, &error));
	bad.total = 8;
	spec.slot = 9;
	CHECK_EQ_INT(-1, rc_engine_add_unit(s.engine, &spec, &error));
	spec.slot = 0;
	spec.gather_type = RC_BF16;
	CHECK_EQ_INT(-1, rc_engine_add_unit(s.engine, &spec, &error));
	CHECK_EQ_INT(-1, rc_engine_unshard(s.engine, 3, false, NULL, &error));
	CHECK_EQ_INT(-1, rc_engine_release(s.engine, -1, NULL, &error));
	tear_down(&s);
}

/* Units 0 and 2 share a slot until one of them moves out. */
static void move_in(int rank, int size)
{
	rc_error error;
	float *own;
	int slot;
	small s;

	set_up(&s, rank, size);
	must(rc_engine_begin(s.engine, false, NULL, &error), &error);
	must(rc_engine_unshard(s.engine, 0, false, NULL, &error), &error);
	must(slot = rc_engine_add_slot(s.engine, &error), &error);
	own = calloc(s.full_count, sizeof *own);
	CHECK_EQ_INT(-1, rc_engine_move(s.engine, 0, slot, own, &error)); /* in use */
	CHECK(strstr(error.text, "unit0"));
	CHECK_EQ_INT(-1, rc_engine_move(s.engine, 2, slot + 1, own, &error));
	must(rc_engine_move(s.engine, 2, slot, own, &error), &error);
	must(rc_engine_unshard(s.engine, 2, false, NULL, &error), &error);
	check_full(&s, 0);
	s.full[2] = own;
	check_full(&s, 2);
	free(own);
	tear_down(&s);
}

static void move_works(void)
{
	for (int size = 1; size <= 3; size++)
		ranks_run(size, move_in);
}

static void gather_works(void)
{
	for (int size = 1; size <= 3; size++)
		ranks_run(size, gather_in);
}

static void reduce_works(void)
{
	for (int size = 1; size <= 3; size++)
		ranks_run(size, reduce_in);
}

static void flat_works(void)
{
	for (int size = 1; size <= 3; size++)
		ranks_run(size, flat_in);
}

static void refusals_work(void)
{
	ranks_run(1, refusals_in);
}

int main(void)
{
	ranks_start();
	RUN(gather_works, "gathered units lie in their slots, stay there until the slot is wanted, and follow a changed shard");
	RUN(reduce_works, "gradients are reduced by the rule, added when asked, and padding and missing gradients are zeros");
	RUN(flat_works, "gradients of a flat parameter cross the borders of the ranks' chunks");
	RUN(move_works, "a unit that moves out of a shared slot is used together with the one that stays");
	RUN(refusals_work, "units that do not fit are refused by name");
	return test_end();
}
