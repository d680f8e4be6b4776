/* Two levels in the engine, on the CPU: 4 ranks as 2 nodes of 2, and 2 or 3 ranks that are nodes of their own. Groups of ranks of this host
 * stand for nodes. Gathers and sums against plain loops; quantised ones against every rank's messages made anew, with the same kernels. */
#include "train_backend/fsdp/engine.h"

#include "train_backend/comm/test/ranks.h"

/* Two parameters of a unit: 301 rows of 3 and 77 rows of 1, sharded by rows, apart by a gap. */
enum { ROWS_A = 301, WIDTH_A = 3, ROWS_B = 77, GAP = 4, UNITS = 3, PLACES_A = ROWS_A * WIDTH_A };

static int local_ranks; /* of a node; 1: every rank is alone */
static rc_engine_quant quant;
static bool secondary;

typedef struct place {
	rc_comm *world, *within, *between;
	rc_engine *engine;
	int ranks, rank, nodes;
	rc_piece pieces[2];
	size_t chunk, full_count;
	rc_dtype gather_type;
	float *shards[UNITS];
	void *full[UNITS]; /* units 0 and 2 share a slot */
	float *residual;   /* of unit 1 */
} place;

static void *kept[64]; /* memory of a rank, given back by tear_down */
static int kept_count;

static void *keep(size_t bytes)
{
	if (kept_count == 64)
		exit(2);
	return kept[kept_count++] = calloc(1, bytes + 1);
}

static float weight(int unit, size_t i) { return (float)((unit * 1000 + (int)i * 37) % 513 - 256) * 0.0173f; }
static float gradient(int rank, int step, size_t i) { return (float)(((int)i * 29 + rank * 7 + step * 131) % 255 - 127) * 0.031f * (float)(rank + 1); }

static void must(int rc, const rc_error *error)
{
	if (rc < 0) {
		printf("# %s\n", error->text);
		exit(1);
	}
}

/* A communicator of the ranks first, first + step, ...; every rank of the world calls, for its own group. */
static rc_comm *part_of(rc_comm *world, int first, int step, int size)
{
	const void *bytes, *blobs[RANKS_MAX];
	char all[RANKS_MAX * 1024];
	size_t n, sizes[RANKS_MAX];
	rc_comm *comm = NULL;
	rc_error error;

	must(rc_comm_shm_prepare((rc_comm_rank(world) - first) / step, size, 20, &comm, &error), &error);
	rc_comm_blob(comm, &bytes, &n);
	must(rc_comm_all_gather(world, (rc_tag){ "blobs", NULL }, bytes, all, n, NULL, &error), &error);
	for (int q = 0; q < size; q++) {
		blobs[q] = all + (size_t)(first + q * step) * n;
		sizes[q] = n;
	}
	must(rc_comm_connect(comm, blobs, sizes, &error), &error);
	return comm;
}

static void *near_memory(place *s, size_t bytes)
{
	rc_error error;
	void *memory;

	if (!s->within)
		return keep(bytes);
	must(rc_comm_window(s->within, bytes + 1, &memory, &error), &error);
	return memory;
}

static void set_up(place *s, int rank, int size, rc_dtype gather_type)
{
	rc_engine_config config = { .device = -1, .quant = quant, .secondary = secondary };
	size_t gather_bytes, reduce_bytes, packed_bytes;
	rc_error error;
	void *memory;
	int slots[2], bucket;

	memset(s, 0, sizeof *s);
	s->rank = rank;
	s->ranks = size;
	s->nodes = size / local_ranks;
	s->gather_type = gather_type;
	s->world = ranks_connect(rank, size, 20);
	if (local_ranks > 1)
		s->within = part_of(s->world, rank / local_ranks * local_ranks, 1, local_ranks);
	s->between = part_of(s->world, rank % local_ranks, local_ranks, s->nodes);
	config.gather = config.reduce = s->within;
	config.gather_between = config.reduce_between = s->between;
	must(rc_engine_create(&config, &s->engine, &error), &error);
	s->pieces[0] = (rc_piece){ .count = (size_t)((ROWS_A + size - 1) / size * WIDTH_A), .total = PLACES_A };
	s->pieces[1] = (rc_piece){ .chunk = s->pieces[0].count + GAP, .full = s->pieces[0].count * (size_t)size + GAP,
	                           .count = (size_t)((ROWS_B + size - 1) / size), .total = ROWS_B };
	s->chunk = s->pieces[1].chunk + s->pieces[1].count;
	s->full_count = s->pieces[1].full + s->pieces[1].count * (size_t)size;
	gather_bytes = rc_engine_gather_room(s->engine, s->chunk, gather_type);
	reduce_bytes = rc_engine_reduce_room(s->engine, s->chunk, RC_F32);
	memory = near_memory(s, gather_bytes);
	rc_engine_set_rooms(s->engine, memory, gather_bytes, keep(reduce_bytes), reduce_bytes);
	packed_bytes = s->chunk * (size_t)size * sizeof(float);
	for (int i = 0; i < 2; i++)
		must(slots[i] = rc_engine_add_slot(s->engine, &error), &error);
	must(bucket = rc_engine_add_bucket(s->engine, &error), &error);
	must(rc_engine_set_bucket(s->engine, bucket, near_memory(s, packed_bytes), packed_bytes, keep(packed_bytes), packed_bytes, &error),
	     &error);
	s->full[0] = s->full[2] = keep(s->full_count * sizeof(float));
	s->full[1] = keep(s->full_count * sizeof(float));
	for (int u = 0; u < UNITS; u++) {
		char name[16];
		rc_unit_spec spec = { .name = name, .pieces = s->pieces, .count = 2, .chunk = s->chunk, .shard_type = RC_F32,
		                      .gather_type = gather_type, .full = s->full[u], .slot = slots[u % 2], .first_bucket = bucket, .bucket_count = 1 };

		spec.shard = s->shards[u] = keep(s->chunk * sizeof(float));
		snprintf(name, sizeof name, "unit%d", u);
		must(rc_engine_add_unit(s->engine, &spec, &error), &error);
		must(rc_engine_set_gradient(s->engine, u, s->pieces, 2, s->chunk, false, &error), &error);
		if (secondary)
			must(rc_engine_set_secondary(s->engine, u, near_memory(s, s->chunk * (size_t)s->nodes * sizeof(float)), &error), &error);
		for (int p = 0; p < 2; p++)
			for (size_t i = 0; i < s->pieces[p].count; i++) {
				size_t at = (size_t)rank * s->pieces[p].count + i;

				if (at < s->pieces[p].total)
					s->shards[u][s->pieces[p].chunk + i] = weight(u, (size_t)p * PLACES_A + at);
			}
	}
	s->residual = keep(s->chunk * (size_t)s->nodes * sizeof(float));
	if (quant.reduce)
		must(rc_engine_set_residual(s->engine, 1, s->residual, &error), &error);
}

static void tear_down(place *s)
{
	rc_engine_destroy(s->engine);
	rc_comm_destroy(s->within);
	rc_comm_destroy(s->between);
	rc_comm_destroy(s->world);
	while (kept_count > 0)
		free(kept[--kept_count]);
}

static float element_of(const void *data, rc_dtype type, size_t i)
{
	uint32_t bits;
	float x;

	if (type == RC_F32)
		return ((const float *)data)[i];
	bits = (uint32_t)((const uint16_t *)data)[i] << 16;
	memcpy(&x, &bits, sizeof x);
	return x;
}

/* What a rank's chunk of a unit is after its way between nodes: [chunk] of gather_type. */
static void carried(const place *s, rc_kernels *kernels, int unit, int rank, void *out)
{
	float *chunk = calloc(s->chunk, sizeof *chunk);
	rc_error error;

	for (int p = 0; p < 2; p++)
		for (size_t i = 0; i < s->pieces[p].count; i++) {
			size_t at = (size_t)rank * s->pieces[p].count + i;

			if (at < s->pieces[p].total)
				chunk[s->pieces[p].chunk + i] = weight(unit, (size_t)p * PLACES_A + at);
		}
	if (quant.gather) {
		void *message = malloc(rc_quant_bytes(quant.gather_kind, s->chunk, RC_ENGINE_BLOCK));

		must(rc_quantize(kernels, quant.gather_kind, RC_ENGINE_BLOCK, chunk, RC_F32, s->chunk, NULL, message, NULL, &error), &error);
		must(rc_dequantize(kernels, quant.gather_kind, RC_ENGINE_BLOCK, message, out, s->gather_type, s->chunk, false, 1, NULL, &error),
		     &error);
		free(message);
	} else {
		must(rc_cast(kernels, chunk, RC_F32, out, s->gather_type, s->chunk, NULL, &error), &error);
	}
	free(chunk);
}

static void check_full(const place *s, rc_kernels *kernels, int unit)
{
	float *out = malloc(s->chunk * sizeof *out);
	size_t bad = 0;

	for (int r = 0; r < s->ranks; r++) {
		carried(s, kernels, unit, r, out);
		for (int p = 0; p < 2; p++)
			for (size_t i = 0; i < s->pieces[p].count && (size_t)r * s->pieces[p].count + i < s->pieces[p].total; i++)
				bad += element_of(s->full[unit], s->gather_type, s->pieces[p].full + (size_t)r * s->pieces[p].count + i) !=
				       element_of(out, s->gather_type, s->pieces[p].chunk + i);
	}
	CHECK_EQ_INT(0, bad);
	free(out);
}

static size_t row_bytes(const place *s)
{
	return quant.gather ? rc_quant_bytes(quant.gather_kind, s->chunk, RC_ENGINE_BLOCK) : s->chunk * rc_dtype_size(s->gather_type);
}

static void gather_as(int rank, int size, rc_dtype type)
{
	rc_kernels *kernels = NULL;
	rc_error error;
	uint64_t crossed;
	place s;

	set_up(&s, rank, size, type);
	must(rc_kernels_create(-1, &kernels, &error), &error);
	for (int step = 0; step < 2; step++) {
		crossed = rc_comm_taken(s.between);
		must(rc_engine_begin(s.engine, false, NULL, &error), &error);
		for (int pass = 0; pass < 2; pass++)
			for (int i = 0; i < UNITS; i++) {
				int u = pass ? UNITS - 1 - i : i;

				must(rc_engine_unshard(s.engine, u, pass, NULL, &error), &error);
				check_full(&s, kernels, u);
				must(rc_engine_release(s.engine, u, NULL, &error), &error);
			}
		/* Units 2 and 1 were there still, unit 0 was gathered again: between nodes only where no copy is kept within. */
		CHECK_EQ_INT((secondary ? 3 : 4) * (s.nodes - 1) * (int)row_bytes(&s), rc_comm_taken(s.between) - crossed);
		CHECK_EQ_INT(4 * (step + 1), rc_engine_get_stats(s.engine).gathers);
		CHECK_EQ_INT(secondary ? step + 1 : 0, rc_engine_get_stats(s.engine).secondary_gathers);
	}
	/* The same shards: units 0 and 1 are in their slots, unit 2 comes from the copy within the node where there is one. */
	crossed = rc_comm_taken(s.between);
	must(rc_engine_begin(s.engine, true, NULL, &error), &error);
	for (int u = 0; u < UNITS; u++) {
		must(rc_engine_unshard(s.engine, u, false, NULL, &error), &error);
		check_full(&s, kernels, u);
		must(rc_engine_release(s.engine, u, NULL, &error), &error);
	}
	CHECK_EQ_INT((secondary ? 0 : 1) * (s.nodes - 1) * (int)row_bytes(&s), rc_comm_taken(s.between) - crossed);
	rc_kernels_destroy(kernels);
	tear_down(&s);
}

static void gather_f32(int rank, int size) { gather_as(rank, size, RC_F32); }
static void gather_bf16(int rank, int size) { gather_as(rank, size, RC_BF16); }

/* A rank's gradient at a place of its packed [ranks][chunk]. */
static float packed_at(const place *s, int rank, int step, size_t to, size_t at)
{
	for (int p = 0; p < 2; p++)
		if (at >= s->pieces[p].chunk && at < s->pieces[p].chunk + s->pieces[p].count) {
			size_t i = to * s->pieces[p].count + at - s->pieces[p].chunk;

			return i < s->pieces[p].total ? gradient(rank, step, (size_t)p * PLACES_A + i) : 0;
		}
	return 0;
}

/* The sum of a node's ranks, in their order, of what is for rank `to`. */
static void node_sum(const place *s, int node, int step, int to, float *sum)
{
	for (size_t at = 0; at < s->chunk; at++) {
		volatile float x = packed_at(s, node * local_ranks, step, (size_t)to, at);

		for (int l = 1; l < local_ranks; l++)
			x = x + packed_at(s, node * local_ranks + l, step, (size_t)to, at);
		sum[at] = x;
	}
}

/* What rank `rank` gets: node sums in the order of nodes, those of other nodes after their way. lost: [nodes][chunk], per sender. */
static void expected(const place *s, rc_kernels *kernels, int step, float *lost, float *out)
{
	float *sum = malloc(s->chunk * sizeof *sum), *carry = malloc(s->chunk * sizeof *carry);
	void *message = malloc(rc_quant_bytes(RC_INT8, s->chunk, RC_ENGINE_BLOCK));
	rc_error error;

	for (int n = 0; n < s->nodes; n++) {
		node_sum(s, n, step, s->rank, sum);
		if (quant.reduce && n != s->rank / local_ranks) {
			must(rc_quantize(kernels, quant.reduce_kind, RC_ENGINE_BLOCK, sum, RC_F32, s->chunk, lost + (size_t)n * s->chunk, message, NULL,
			                 &error), &error);
			must(rc_dequantize(kernels, quant.reduce_kind, RC_ENGINE_BLOCK, message, carry, RC_F32, s->chunk, false, 1, NULL, &error), &error);
			memcpy(sum, carry, s->chunk * sizeof *sum);
		}
		for (size_t i = 0; i < s->chunk; i++)
			out[i] = n ? out[i] + sum[i] : sum[i];
	}
	for (size_t i = 0; i < s->chunk; i++)
		out[i] /= (float)s->ranks;
	free(message);
	free(carry);
	free(sum);
}

static void reduce_in(int rank, int size)
{
	static float a[PLACES_A], b[ROWS_B];
	const void *grads[2] = { a, b };
	const rc_reduce_rule rule = { .type = RC_F32, .mean = true, .before = 1, .after = 1 };
	float *out, *want, *lost;
	rc_kernels *kernels = NULL;
	size_t message;
	rc_error error;
	place s;

	set_up(&s, rank, size, RC_F32);
	must(rc_kernels_create(-1, &kernels, &error), &error);
	out = keep(s.chunk * sizeof *out);
	want = keep(s.chunk * sizeof *want);
	lost = keep(s.chunk * (size_t)s.nodes * sizeof *lost);
	message = quant.reduce ? rc_quant_bytes(quant.reduce_kind, s.chunk, RC_ENGINE_BLOCK) : s.chunk * sizeof(float);
	for (int step = 0; step < 3; step++) {
		uint64_t crossed = rc_comm_taken(s.between);
		size_t bad = 0;

		for (size_t i = 0; i < PLACES_A; i++)
			a[i] = gradient(rank, step, i);
		for (size_t i = 0; i < ROWS_B; i++)
			b[i] = gradient(rank, step, PLACES_A + i);
		must(rc_engine_reduce(s.engine, 1, grads, RC_F32, &rule, out, false, NULL, &error), &error);
		CHECK_EQ_INT((s.nodes - 1) * (long long)message, rc_comm_taken(s.between) - crossed);
		expected(&s, kernels, step, lost, want);
		for (size_t i = 0; i < s.chunk; i++)
			bad += out[i] != want[i];
		CHECK_EQ_INT(0, bad);
		if (quant.reduce)
			continue; /* added: as many bits would be lost again */
		must(rc_engine_reduce(s.engine, 1, grads, RC_F32, &rule, out, true, NULL, &error), &error);
		for (size_t i = 0; i < s.chunk; i++)
			bad += out[i] != want[i] + want[i];
		CHECK_EQ_INT(0, bad);
	}
	rc_kernels_destroy(kernels);
	tear_down(&s);
}

/* Each way of nodes, with what is set. */
static void on_all_ways(void (*fn)(int rank, int size))
{
	local_ranks = 2;
	ranks_run(4, fn);
	local_ranks = 1;
	ranks_run(2, fn);
	ranks_run(3, fn);
}

static void test_gathers(void)
{
	quant = (rc_engine_quant){ 0 };
	for (int i = 0; i < 2; i++) {
		secondary = i;
		on_all_ways(gather_f32);
		on_all_ways(gather_bf16);
	}
}

static void test_quantised_gathers(void)
{
	for (int i = 0; i < 2; i++) {
		secondary = i;
		quant = (rc_engine_quant){ .gather = true, .gather_kind = RC_INT8 };
		on_all_ways(gather_f32);
		on_all_ways(gather_bf16);
		quant.gather_kind = RC_FP8;
		on_all_ways(gather_f32);
	}
	secondary = false;
}

static void test_reductions(void)
{
	quant = (rc_engine_quant){ 0 };
	on_all_ways(reduce_in);
}

static void test_quantised_reductions(void)
{
	quant = (rc_engine_quant){ .reduce = true, .reduce_kind = RC_INT8 };
	on_all_ways(reduce_in);
	quant.reduce_kind = RC_INT4;
	on_all_ways(reduce_in);
}

/* A rank whose node fails tells the other node at once why. */
static void break_in(int rank, int size)
{
	rc_error error;
	double begin;
	int result = 0;
	place s;

	set_up(&s, rank, size, RC_F32);
	ranks_point(1, size);
	begin = ranks_now();
	if (rank == 0)
		rc_comm_abort(s.within, "out of memory");
	for (int u = 0; u < 2 && result == 0; u++) /* the other node's first gather may end before it is told */
		result = rc_engine_unshard(s.engine, u, false, NULL, &error);
	CHECK_EQ_INT(-1, result);
	CHECK(strstr(error.text, "out of memory (here rank q is rank 0 + q * 1 of all)"));
	CHECK(ranks_now() - begin < 10);
	CHECK_EQ_INT(-1, rc_engine_begin(s.engine, false, NULL, &error));
	tear_down(&s);
}

static void refusals_in(int rank, int size)
{
	rc_engine_config config = { .device = -1 };
	rc_engine *engine;
	rc_error error;
	place s;

	set_up(&s, rank, size, RC_F32);
	CHECK_EQ_INT(-1, rc_engine_create(&config, &engine, &error));
	config.gather = config.reduce = s.within;
	config.secondary = true;
	CHECK_EQ_INT(-1, rc_engine_create(&config, &engine, &error));
	config.gather_between = config.reduce_between = s.between;
	config.quant.reduce = true;
	config.replicate = s.world;
	CHECK_EQ_INT(-1, rc_engine_create(&config, &engine, &error));
	CHECK_EQ_INT(-1, rc_engine_set_secondary(s.engine, 0, NULL, &error));
	rc_engine_set_rooms(s.engine, NULL, 0, NULL, 0);
	CHECK_EQ_INT(-1, rc_engine_unshard(s.engine, 0, false, NULL, &error));
	CHECK(strstr(error.text, "unit0") && strstr(error.text, "scratch"));
	tear_down(&s);
}

static void test_break(void)
{
	quant = (rc_engine_quant){ 0 };
	local_ranks = 2;
	ranks_run(4, break_in);
}

static void test_refusals(void)
{
	local_ranks = 2;
	ranks_run(4, refusals_in);
}

int main(void)
{
	ranks_start();
	RUN(test_gathers, "units are gathered in two levels, once a step between nodes where a copy is kept within");
	RUN(test_quantised_gathers, "quantised gathers give all ranks the numbers of the messages");
	RUN(test_reductions, "sums are of a node's ranks first, then of the nodes");
	RUN(test_quantised_reductions, "quantised sums are made in f32, and what rounding has lost comes with the next message");
	RUN(test_break, "a node that fails tells the others its reason");
	RUN(test_refusals, "what does not fit together is refused");
	return test_end();
}
