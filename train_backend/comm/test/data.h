/* Collectives of every transport for CPU memory: data. Faults are in faults.h. The oracle works in plain loops on what every rank is known
 * to hold: a value is a function of rank and place. */
#ifndef RC_COMM_TEST_DATA_H
#define RC_COMM_TEST_DATA_H

#include <math.h>
#include <stdint.h>

#include "train_backend/comm/test/ranks.h"

static const rc_tag tag = { "layers.3", "forward" };

/* Some number that depends on rank and place, of many sizes and both signs. */
static double value(int rank, size_t place)
{
	uint64_t x = (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15u ^ (place + 17) * 0xbf58476d1ce4e5b9u;

	x ^= x >> 31;
	x *= 0x94d049bb133111ebu;
	x ^= x >> 29;
	return ((double)(x >> 40) / 8388608.0 - 1.0) * ldexp(1, (int)(x % 9) - 4);
}

static unsigned char byte(int rank, size_t place)
{
	return (unsigned char)((place * 131 + (size_t)rank * 29 + place / 251) & 0xff);
}

/* ---- slow conversions, written apart from those under test ---- */

static float from_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, 4);
	return x;
}

/* f16 or bf16 by search: the nearest of all 65536 numbers would be slow, so exponent and fraction are found with frexp. */
static uint16_t slow_narrow(double x, int fraction_bits, int exponent_bits)
{
	int bias = (1 << (exponent_bits - 1)) - 1, exponent;
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	double size = fabs(x), step, whole;

	if (isinf(size))
		return (uint16_t)(sign | ((1 << exponent_bits) - 1) << fraction_bits);
	frexp(size, &exponent); /* size = f * 2^exponent, f in [0.5, 1) */
	exponent = size == 0 || exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
	step = ldexp(1, exponent - fraction_bits);
	whole = nearbyint(size / step); /* rounds to nearest even */
	if (whole >= ldexp(1, fraction_bits + 1)) {
		whole /= 2;
		exponent++;
	}
	if (exponent > bias)
		return (uint16_t)(sign | ((1 << exponent_bits) - 1) << fraction_bits);
	if (whole < ldexp(1, fraction_bits))
		return (uint16_t)(sign | (uint16_t)whole);
	return (uint16_t)(sign | (exponent + bias) << fraction_bits | ((uint16_t)whole - (1 << fraction_bits)));
}

static double slow_widen(uint16_t bits, int fraction_bits, int exponent_bits)
{
	int bias = (1 << (exponent_bits - 1)) - 1, exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
	double fraction = bits & ((1 << fraction_bits) - 1), sign = bits & 0x8000 ? -1 : 1;

	if (exponent == 0)
		return sign * ldexp(fraction, 1 - bias - fraction_bits);
	return sign * ldexp(fraction + ldexp(1, fraction_bits), exponent - bias - fraction_bits);
}

static void store(void *to, size_t place, rc_dtype dtype, double x)
{
	switch (dtype) {
	case RC_F32: ((float *)to)[place] = (float)x; break;
	case RC_F64: ((double *)to)[place] = x; break;
	case RC_F16: ((uint16_t *)to)[place] = slow_narrow(x, 10, 5); break;
	case RC_BF16: ((uint16_t *)to)[place] = slow_narrow(x, 7, 8); break;
	default: break;
	}
}

/* What the sum at a place must be, in the order of ranks, into to[0]. */
static void oracle(void *to, int size, size_t place, rc_dtype dtype, rc_redop op)
{
	if (dtype == RC_F64) {
		double sum = value(0, place);

		for (int q = 1; q < size; q++)
			sum += value(q, place);
		store(to, 0, dtype, op == RC_AVG ? sum * (1.0 / size) : sum);
	} else {
		float sum = 0;

		for (int q = 0; q < size; q++) {
			uint16_t half;
			volatile float x = (float)value(q, place);

			if (dtype == RC_F16) {
				store(&half, 0, dtype, value(q, place));
				x = (float)slow_widen(half, 10, 5);
			} else if (dtype == RC_BF16) {
				store(&half, 0, dtype, value(q, place));
				x = (float)slow_widen(half, 7, 8);
			}
			sum = q ? sum + x : x;
		}
		store(to, 0, dtype, op == RC_AVG ? sum * (float)(1.0 / size) : sum);
	}
}

/* ---- memory of a rank: its own, or in a window ---- */

static void *memory(rc_comm *comm, bool in_window, size_t bytes)
{
	rc_error error;
	void *base = NULL;

	if (!in_window)
		return malloc(bytes ? bytes : 1);
	if (rc_comm_window(comm, bytes, &base, &error)) {
		printf("# no window: %s\n", error.text);
		exit(1);
	}
	return base;
}

static void give_back(bool in_window, void *at)
{
	if (!in_window)
		free(at);
}

static void good(int result, const rc_error *error)
{
	if (result) {
		printf("# failed: %s\n", error->text);
		test_bad_ = true;
	}
}

static const size_t counts[] = { 0, 1, 7, 1000, 1023, 65537, 900001 };
enum { COUNTS = sizeof counts / sizeof *counts };

/* Which ranks lend a window: none, all, or only the odd ones. */
static bool lends(int how, int rank)
{
	return how == 2 ? rank % 2 : how;
}

/* ---- tests ---- */

static void gathers(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 30);
	rc_error error;

	for (int c = 0; c < COUNTS; c++)
		for (int how = 0; how < 3; how++) {
			size_t n = counts[c] * 3;
			bool windows = how == 2 || lends(how, rank); /* a window is collective: all make it */
			unsigned char *send = memory(comm, windows, n), *all = malloc((size_t)size * n + 1), *plain = malloc(n + 1);
			unsigned char *from = lends(how, rank) ? send : plain;
			size_t bad = 0;

			for (size_t i = 0; i < n; i++)
				from[i] = byte(rank, i);
			memset(all, 0xee, (size_t)size * n + 1);
			for (int again = 0; again < 2; again++)
				good(rc_comm_all_gather(comm, tag, from, all, n, NULL, &error), &error);
			for (int q = 0; q < size; q++)
				for (size_t i = 0; i < n; i++)
					bad += all[(size_t)q * n + i] != byte(q, i);
			CHECK_EQ_INT(0, bad);
			CHECK_EQ_INT(0xee, all[(size_t)size * n]);
			memset(all, 0, (size_t)rank * n); /* in place: only the own part is right before */
			memset(all + (size_t)(rank + 1) * n, 0, (size_t)(size - rank - 1) * n);
			good(rc_comm_all_gather(comm, tag, all + (size_t)rank * n, all, n, NULL, &error), &error);
			bad = 0;
			for (int q = 0; q < size; q++)
				for (size_t i = 0; i < n; i++)
					bad += all[(size_t)q * n + i] != byte(q, i);
			CHECK_EQ_INT(0, bad);
			free(all);
			free(plain);
			give_back(windows, send);
		}
	rc_comm_destroy(comm);
}

static void gathers_pieces(int rank, int size)
{
	enum { WEIGHT = 13, BIAS = 3, GAP = 5 };
	size_t ranks = (size_t)size;
	/* 13 and 3 elements shared by `size` ranks, odd ones padded, and a gap in the chunk; and one piece of nothing. */
	rc_piece pieces[3] = {
		{ .chunk = 0, .full = 100, .count = (WEIGHT + ranks - 1) / ranks, .total = WEIGHT },
		{ .chunk = (WEIGHT + ranks - 1) / ranks + GAP, .full = 2, .count = (BIAS + ranks - 1) / ranks, .total = BIAS },
		{ .chunk = 0, .full = 0, .count = 0, .total = 0 },
	};
	size_t chunk = pieces[1].chunk + pieces[1].count;
	rc_comm *comm = ranks_connect(rank, size, 30);
	rc_error error;
	uint32_t full[200], *window = memory(comm, true, 4096 + chunk * 4), *send = window + 64;

	for (size_t i = 0; i < chunk; i++)
		send[i] = (uint32_t)(1000 * rank) + (uint32_t)i;
	memset(full, 0xff, sizeof full);
	good(rc_comm_gather_pieces(comm, tag, send, chunk, 4, pieces, 3, full, &error), &error);
	for (size_t i = 0; i < 200; i++) {
		uint32_t want = UINT32_MAX; /* nothing else is written, padding neither */

		for (int p = 0; p < 2; p++)
			if (i >= pieces[p].full && i < pieces[p].full + pieces[p].total) {
				size_t place = i - pieces[p].full;

				want = (uint32_t)(1000 * (place / pieces[p].count) + pieces[p].chunk + place % pieces[p].count);
			}
		CHECK_EQ_INT(want, full[i]);
	}
	if (ranks_prepare == rc_comm_shm_prepare) {
		CHECK_EQ_INT(-1, rc_comm_gather_pieces(comm, tag, full, chunk, 4, pieces, 3, full + 100, &error));
		CHECK_EQ_INT(RC_E_INVALID, error.code);
	}
	pieces[0].total = pieces[0].count * ranks + 1;
	CHECK_EQ_INT(-1, rc_comm_gather_pieces(comm, tag, send, chunk, 4, pieces, 3, full, &error));
	CHECK_EQ_INT(0, rc_comm_check(comm, &error)); /* a wrong argument breaks nothing */
	rc_comm_destroy(comm);
}

static void reduces(int rank, int size)
{
	static const rc_dtype types[] = { RC_F32, RC_F64, RC_F16, RC_BF16 };
	rc_comm *comm = ranks_connect(rank, size, 30);
	rc_error error;

	for (int c = 0; c < COUNTS; c++)
		for (int how = 0; how < 3; how++)
			for (int t = 0; t < 4; t++) {
				size_t n = counts[c] / (size_t)(how == 2 ? 3 : 1), all = n * (size_t)size, element = rc_dtype_size(types[t]), bad = 0;
				bool windows = how == 2 || lends(how, rank);
				char *window = memory(comm, windows, all * element), *plain = malloc(all * element + 1);
				char *send = lends(how, rank) ? window : plain, *recv = malloc(n * element + 1);
				rc_redop op = (c + t) % 2 ? RC_AVG : RC_SUM;
				double want; /* of any type */

				for (size_t i = 0; i < all; i++)
					store(send, i, types[t], value(rank, i));
				recv[n * element] = 0x5a;
				good(rc_comm_reduce_scatter(comm, tag, send, recv, n, types[t], op, NULL, &error), &error);
				for (size_t i = 0; i < n; i++) {
					oracle(&want, size, (size_t)rank * n + i, types[t], op);
					bad += memcmp(&want, recv + i * element, element) != 0;
				}
				CHECK_EQ_INT(0, bad);
				CHECK_EQ_INT(0x5a, recv[n * element]);
				good(rc_comm_all_reduce(comm, tag, send, all, types[t], op, NULL, &error), &error);
				bad = 0;
				for (size_t i = 0; i < all; i++) {
					if (all > 100000 && i % 37) /* the oracle is slow */
						continue;
					oracle(&want, size, i, types[t], op);
					bad += memcmp(&want, send + i * element, element) != 0;
				}
				CHECK_EQ_INT(0, bad);
				/* In place: the own part of send is recv. */
				for (size_t i = 0; i < all; i++)
					store(send, i, types[t], value(rank, i));
				good(rc_comm_reduce_scatter(comm, tag, send, send + (size_t)rank * n * element, n, types[t], op, NULL, &error), &error);
				CHECK(memcmp(send + (size_t)rank * n * element, recv, n * element) == 0);
				free(recv);
				free(plain);
				give_back(windows, window);
			}
	rc_comm_destroy(comm);
}

/* Ranks 0 and 1 are one node, 2 and 3 another, for the count of bytes that cross. */
static void all_to_alls(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 30);
	int like = size < 4 && (rank | 1) >= size ? 1 : 2;
	rc_error error;

	rc_comm_set_local(comm, 2);
	for (int c = 0; c < COUNTS; c++)
		for (int how = 0; how < 3; how++) {
			size_t n = counts[c] * 3, all = n * (size_t)size, bad = 0;
			bool windows = how == 2 || lends(how, rank);
			unsigned char *window = memory(comm, windows, all), *plain = malloc(all + 1), *recv = malloc(all + 1);
			unsigned char *send = lends(how, rank) ? window : plain;
			uint64_t taken = rc_comm_taken(comm), crossed = rc_comm_crossed(comm);

			for (size_t i = 0; i < all; i++)
				send[i] = byte(rank, i);
			recv[all] = 0xee;
			good(rc_comm_all_to_all(comm, tag, send, recv, n, NULL, &error), &error);
			for (int q = 0; q < size; q++)
				for (size_t i = 0; i < n; i++)
					bad += recv[(size_t)q * n + i] != byte(q, (size_t)rank * n + i);
			CHECK_EQ_INT(0, bad);
			CHECK_EQ_INT(0xee, recv[all]);
			CHECK_EQ_INT(n * (size_t)(size - 1), rc_comm_taken(comm) - taken);
			CHECK_EQ_INT(n * (size_t)(size - like), rc_comm_crossed(comm) - crossed);
			free(recv);
			free(plain);
			give_back(windows, window);
		}
	rc_comm_set_local(comm, 1);
	CHECK_EQ_INT(rc_comm_taken(comm), rc_comm_crossed(comm));
	rc_comm_destroy(comm);
}

static void broadcasts(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 30);
	rc_error error;

	for (int c = 0; c < COUNTS; c++)
		for (int root = 0; root < size; root++)
			for (int how = 0; how < 3; how++) {
				size_t n = counts[c] * 4, bad = 0;
				bool windows = how == 2 || lends(how, rank);
				unsigned char *window = memory(comm, windows, n), *plain = malloc(n + 1), *data = lends(how, rank) ? window : plain;

				for (size_t i = 0; i < n; i++)
					data[i] = byte(rank, i);
				good(rc_comm_broadcast(comm, tag, data, n, root, NULL, &error), &error);
				for (size_t i = 0; i < n; i++)
					bad += data[i] != byte(root, i);
				CHECK_EQ_INT(0, bad);
				free(plain);
				give_back(windows, window);
			}
	CHECK_EQ_INT(-1, rc_comm_broadcast(comm, tag, NULL, 0, size, NULL, &error));
	CHECK_EQ_INT(RC_E_INVALID, error.code);
	good(rc_comm_barrier(comm, tag, &error), &error);
	rc_comm_destroy(comm);
}

/* Numbers at the edges of f16 and bf16: infinities, what rounds to them, the smallest. NaN's bits are not compared. */
static void rounds_at_the_edges(int rank, int size)
{
	static const float edges[] = { 65504, 65519.99f, 65520, 1e30f, 3.4e38f, -3.4e38f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f, 0x1.8p-24f, 0x1p-14f,
	                               0x1.ffcp-15f, 0x1p-133f, 0x1p-140f, 0, -0.0f, 1.00048828125f, 1.00390625f, 1.01171875f, INFINITY };
	enum { EDGES = sizeof edges / sizeof *edges };
	rc_comm *comm = ranks_connect(rank, size, 30);
	rc_error error;

	for (int t = 0; t < 2; t++) {
		rc_dtype type = t ? RC_BF16 : RC_F16;
		int fraction = t ? 7 : 10, exponent = t ? 8 : 5;
		uint16_t data[EDGES], nan = t ? 0x7fc1 : 0x7e01;

		for (int i = 0; i < EDGES; i++)
			data[i] = slow_narrow(rank == 0 ? edges[i] : edges[i] / 256, fraction, exponent);
		good(rc_comm_all_reduce(comm, tag, data, EDGES, type, RC_SUM, NULL, &error), &error);
		for (int i = 0; i < EDGES; i++) {
			uint16_t own = slow_narrow(edges[i], fraction, exponent), other = slow_narrow(edges[i] / 256, fraction, exponent);
			float a = own == slow_narrow(INFINITY, fraction, exponent) ? INFINITY : (float)slow_widen(own, fraction, exponent);
			float b = other == slow_narrow(INFINITY, fraction, exponent) ? INFINITY : (float)slow_widen(other, fraction, exponent), sum = a;

			if (own == slow_narrow(-INFINITY, fraction, exponent))
				sum = a = -INFINITY;
			for (int q = 1; q < size; q++)
				sum += b;
			CHECK_EQ_INT(slow_narrow(sum, fraction, exponent), data[i]);
		}
		good(rc_comm_all_reduce(comm, tag, &nan, 1, type, RC_SUM, NULL, &error), &error);
		CHECK(t ? isnan(from_bits((uint32_t)nan << 16)) : (nan & 0x7c00) == 0x7c00 && (nan & 0x3ff));
	}
	rc_comm_destroy(comm);
}

static void windows_are_zero_and_shared(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 30);
	rc_error error;

	for (size_t n = 0; n < 100000; n = n * 3 + 1) {
		unsigned char *base = memory(comm, true, n), *all = malloc((size_t)size * n + 1);
		size_t bad = 0;

		CHECK_EQ_INT(0, (uintptr_t)base % 4096);
		for (size_t i = 0; i < n; i++)
			bad += base[i] != 0;
		CHECK_EQ_INT(0, bad);
		memset(base, rank + 1, n);
		good(rc_comm_all_gather(comm, tag, base, all, n, NULL, &error), &error);
		memset(base, 0x77, n); /* after the call it is this rank's again: nobody reads it any more */
		for (int q = 0; q < size; q++)
			for (size_t i = 0; i < n; i++)
				bad += all[(size_t)q * n + i] != q + 1;
		CHECK_EQ_INT(0, bad);
		free(all);
	}
	CHECK_EQ_INT(-1, rc_comm_window(comm, (size_t)1 << 46, (void **)&(void *){ NULL }, &error));
	CHECK_EQ_INT(RC_E_NO_MEMORY, error.code);
	CHECK(strstr(error.text, "rank 0: ")); /* everyone is told of the first that has no room */
	good(rc_comm_barrier(comm, tag, &error), &error);
	rc_comm_destroy(comm);
}

/* Meetings in quick order: what a fast rank writes for the next call must not reach a slow one's present call. */
static int many_calls = 3000;

static void many_small_calls(int rank, int size)
{
	rc_comm *comm = ranks_connect(rank, size, 30);
	rc_error error;
	float *window = memory(comm, true, 64);
	size_t bad = 0;

	for (int i = 0; i < many_calls; i++) {
		float x = (float)(rank + i), all[RANKS_MAX], want = 0;

		for (int q = 0; q < size; q++)
			want += (float)(q + i);
		good(rc_comm_all_reduce(comm, tag, &x, 1, RC_F32, RC_SUM, NULL, &error), &error);
		bad += x != want;
		x = (float)(rank * 10000 + i);
		*window = x;
		good(rc_comm_all_gather(comm, tag, i % 2 ? &x : window, all, sizeof x, NULL, &error), &error);
		for (int q = 0; q < size; q++)
			bad += all[q] != (float)(q * 10000 + i);
		if (i % 7 == 0)
			good(rc_comm_barrier(comm, tag, &error), &error);
	}
	CHECK_EQ_INT(0, bad);
	rc_comm_destroy(comm);
}

static void on_all_sizes(void (*fn)(int rank, int size))
{
	for (int size = 1; size <= RANKS_MAX; size++)
		ranks_run(size, fn);
}

static void test_gathers(void) { on_all_sizes(gathers); }
static void test_pieces(void) { on_all_sizes(gathers_pieces); }
static void test_reduces(void) { on_all_sizes(reduces); }
static void test_all_to_alls(void) { on_all_sizes(all_to_alls); }
static void test_broadcasts(void) { on_all_sizes(broadcasts); }
static void test_edges(void) { on_all_sizes(rounds_at_the_edges); }
static void test_windows(void) { on_all_sizes(windows_are_zero_and_shared); }
static void test_many(void) { on_all_sizes(many_small_calls); }

static void run_data(void)
{
	RUN(test_gathers, "an all-gather brings every rank's bytes, from windows, other memory and both, in place too");
	RUN(test_pieces, "a gather of pieces puts each parameter together and writes nothing else");
	RUN(test_reduces, "sums and averages of all types have the bits of a sum in the order of ranks");
	RUN(test_edges, "halves round to nearest even, overflow to infinity and keep subnormals");
	RUN(test_all_to_alls, "an all-to-all brings each rank its part of every rank's bytes, and counts what comes from another node");
	RUN(test_broadcasts, "a broadcast brings the root's bytes");
	RUN(test_windows, "a window is zero, aligned and shared; one that no host can hold is refused on all ranks");
	RUN(test_many, "many small calls in a row stay apart");
}

#endif
