/* A best-fit allocator of ranges of a segment. It never touches the segment: clients can write there, so nothing in it may be
 * trusted. Its blocks are structs of their own, in one list by address and, when free, in a tree by (size, offset): the
 * smallest block that fits is taken, the lowest address among equals, and neighbours that are free become one.
 *
 * The range starts empty and grows at its end (rc_heap_grow), as memory behind it is reserved. One thread. */
#ifndef RC_STORE_HEAP_H
#define RC_STORE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rc_heap rc_heap;

typedef struct rc_block {
	uint64_t offset, size; /* multiples of the alignment */
	void *user;            /* the taker's, NULL at first */
	bool free;
	struct rc_block *next, *prev;                   /* by address */
	struct rc_block *left, *right; uint32_t weight; /* tree of free blocks */
} rc_block;

rc_heap *rc_heap_create(uint64_t align); /* a power of two */
void rc_heap_destroy(rc_heap *h);        /* NULL is fine */
void rc_heap_grow(rc_heap *h, uint64_t bytes); /* a multiple of the alignment */

rc_block *rc_heap_take(rc_heap *h, uint64_t bytes); /* NULL: no block is large enough. 0 bytes take one unit */
void rc_heap_give(rc_heap *h, rc_block *b);

uint64_t rc_heap_round(const rc_heap *h, uint64_t bytes); /* what rc_heap_take uses up */
uint64_t rc_heap_size(const rc_heap *h);
uint64_t rc_heap_free_bytes(const rc_heap *h);
uint64_t rc_heap_largest(const rc_heap *h);
uint64_t rc_heap_tail(const rc_heap *h);    /* free bytes at the end, which growing would make larger */
const rc_block *rc_heap_first(const rc_heap *h); /* by address, then ->next */
bool rc_heap_check(const rc_heap *h);       /* for tests: every invariant holds */

#endif
