/* The allocator against a plain model: an array of bytes that remembers who has which unit. */
#include "raylet-c/store/heap.h"

#include <stdlib.h>

#include "raylet-c/base/test.h"

enum { UNIT = 64, UNITS = 4096, HELD = 300 };

static int model[UNITS]; /* 0: free, -1: not there yet, else the number of the taker */

static uint64_t smallest_fit(int units, uint64_t *ret_offset) /* length of the best free run in the model, 0: none */
{
	uint64_t best = 0;

	for (int i = 0; i < UNITS;) {
		int end = i;

		while (end < UNITS && model[end] == 0)
			end++;
		if (end - i >= units && (best == 0 || (uint64_t)(end - i) < best)) {
			best = (uint64_t)(end - i);
			*ret_offset = (uint64_t)i * UNIT;
		}
		i = end > i ? end : i + 1;
	}
	return best;
}

static void fill(const rc_block *b, int value)
{
	for (uint64_t i = 0; i < b->size / UNIT; i++) {
		CHECK(value == 0 ? model[b->offset / UNIT + i] > 0 : model[b->offset / UNIT + i] == 0);
		model[b->offset / UNIT + i] = value;
	}
}

static void agrees_with_a_model(void)
{
	rc_heap *h = rc_heap_create(UNIT);
	rc_block *held[HELD] = { 0 };
	uint64_t grown = 0;

	srand(7);
	for (int i = 0; i < UNITS; i++)
		model[i] = -1;
	for (int step = 0; step < 30000; step++) {
		int slot = rand() % HELD;

		if (rand() % 50 == 0 && grown < (uint64_t)UNITS * UNIT) {
			uint64_t more = (uint64_t)(1 + rand() % 64) * UNIT;

			more = more > (uint64_t)UNITS * UNIT - grown ? (uint64_t)UNITS * UNIT - grown : more;
			rc_heap_grow(h, more);
			for (uint64_t i = 0; i < more / UNIT; i++)
				model[grown / UNIT + i] = 0;
			grown += more;
		}
		if (held[slot]) {
			fill(held[slot], 0);
			rc_heap_give(h, held[slot]);
			held[slot] = NULL;
		} else {
			uint64_t bytes = (uint64_t)(rand() % (rand() % 20 ? 40 : 600)) * UNIT + (uint64_t)(rand() % UNIT);
			int units = (int)(rc_heap_round(h, bytes) / UNIT);
			uint64_t offset = 0, best = smallest_fit(units, &offset);

			held[slot] = rc_heap_take(h, bytes);
			CHECK((best == 0) == (held[slot] == NULL));
			if (held[slot]) {
				CHECK_EQ_INT(offset, held[slot]->offset);
				CHECK_EQ_INT(rc_heap_round(h, bytes), held[slot]->size);
				fill(held[slot], slot + 1);
			}
		}
		if (step % 100 == 0)
			CHECK(rc_heap_check(h));
		if (test_bad_)
			break;
	}
	for (int i = 0; i < HELD; i++)
		if (held[i])
			rc_heap_give(h, held[i]);
	CHECK(rc_heap_check(h));
	CHECK_EQ_INT(grown, rc_heap_largest(h));
	CHECK_EQ_INT(grown, rc_heap_free_bytes(h));
	rc_heap_destroy(h);
}

static void joins_neighbours(void)
{
	rc_heap *h = rc_heap_create(UNIT);
	rc_block *a, *b, *c;

	CHECK(rc_heap_take(h, 1) == NULL);
	rc_heap_grow(h, 10 * UNIT);
	a = rc_heap_take(h, 0);
	b = rc_heap_take(h, UNIT + 1);
	c = rc_heap_take(h, 7 * UNIT);
	CHECK_EQ_INT(UNIT, a->size);
	CHECK_EQ_INT(2 * UNIT, b->size);
	CHECK(c != NULL);
	CHECK(rc_heap_take(h, 1) == NULL);
	CHECK_EQ_INT(0, rc_heap_tail(h));
	rc_heap_give(h, a);
	rc_heap_give(h, c);
	CHECK_EQ_INT(7 * UNIT, rc_heap_largest(h));
	CHECK_EQ_INT(7 * UNIT, rc_heap_tail(h));
	rc_heap_grow(h, UNIT);
	CHECK_EQ_INT(8 * UNIT, rc_heap_tail(h));
	rc_heap_give(h, b);
	CHECK_EQ_INT(11 * UNIT, rc_heap_largest(h));
	CHECK(rc_heap_check(h));
	rc_heap_destroy(h);
}

static void refuses_sizes_that_overflow(void)
{
	rc_heap *h = rc_heap_create(UNIT);

	rc_heap_grow(h, UNIT);
	CHECK(rc_heap_take(h, UINT64_MAX) == NULL);
	CHECK(rc_heap_take(h, UINT64_MAX - UNIT + 1) == NULL);
	CHECK_EQ_INT(UNIT, rc_heap_free_bytes(h));
	rc_heap_destroy(h);
}

int main(void)
{
	RUN(agrees_with_a_model, "random takes, gives and growth agree with a model of the bytes, best fit and lowest address first");
	RUN(joins_neighbours, "a freed block joins its free neighbours and growth joins the free end");
	RUN(refuses_sizes_that_overflow, "a size whose rounding overflows is refused");
	return test_end();
}
