/* See heap.h. The tree is a treap: a search tree by (size, offset) whose random weights form a heap, which keeps it balanced
 * without bookkeeping. Splitting a block leaves the rest free; giving one back joins it with free neighbours, so two free
 * blocks never touch. */
#include "raylet-c/store/heap.h"

#include <stdlib.h>

#include "raylet-c/base/buf.h"

struct rc_heap {
	uint64_t align, size, free_bytes;
	rc_block *first, *last; /* by address */
	rc_block *root;
	uint32_t random;
};

static uint32_t next_random(rc_heap *h) /* xorshift: balance needs no better */
{
	h->random ^= h->random << 13;
	h->random ^= h->random >> 17;
	h->random ^= h->random << 5;
	return h->random;
}

static bool before(const rc_block *a, uint64_t size, uint64_t offset)
{
	return a->size != size ? a->size < size : a->offset < offset;
}

/* ---- the tree ---- */

/* Parts of t that are before (size, offset), and the rest. */
static void split(rc_block *t, uint64_t size, uint64_t offset, rc_block **low, rc_block **high)
{
	while (t) {
		if (before(t, size, offset)) {
			*low = t;
			low = &t->right;
			t = t->right;
		} else {
			*high = t;
			high = &t->left;
			t = t->left;
		}
	}
	*low = *high = NULL;
}

static rc_block *join(rc_block *low, rc_block *high)
{
	rc_block *root = NULL, **at = &root;

	while (low && high) {
		if (low->weight > high->weight) {
			*at = low;
			at = &low->right;
			low = low->right;
		} else {
			*at = high;
			at = &high->left;
			high = high->left;
		}
	}
	*at = low ? low : high;
	return root;
}

static void tree_add(rc_heap *h, rc_block *b)
{
	rc_block **at = &h->root;

	b->weight = next_random(h);
	while (*at && (*at)->weight >= b->weight)
		at = before(*at, b->size, b->offset) ? &(*at)->right : &(*at)->left;
	split(*at, b->size, b->offset, &b->left, &b->right);
	*at = b;
	b->free = true;
	h->free_bytes += b->size;
}

static void tree_remove(rc_heap *h, rc_block *b)
{
	rc_block **at = &h->root;

	while (*at != b)
		at = before(*at, b->size, b->offset) ? &(*at)->right : &(*at)->left;
	*at = join(b->left, b->right);
	b->left = b->right = NULL;
	b->free = false;
	h->free_bytes -= b->size;
}

static rc_block *tree_find(const rc_heap *h, uint64_t size) /* the smallest that fits */
{
	rc_block *best = NULL;

	for (rc_block *t = h->root; t;) {
		if (t->size < size) {
			t = t->right;
		} else {
			best = t;
			t = t->left;
		}
	}
	return best;
}

/* ---- blocks by address ---- */

static rc_block *new_block(rc_heap *h, rc_block *after, uint64_t offset, uint64_t size)
{
	rc_block *b = rc_alloc(sizeof *b);

	b->offset = offset;
	b->size = size;
	b->prev = after;
	b->next = after ? after->next : h->first;
	*(b->prev ? &b->prev->next : &h->first) = b;
	*(b->next ? &b->next->prev : &h->last) = b;
	return b;
}

static void drop_block(rc_heap *h, rc_block *b)
{
	*(b->prev ? &b->prev->next : &h->first) = b->next;
	*(b->next ? &b->next->prev : &h->last) = b->prev;
	free(b);
}

rc_heap *rc_heap_create(uint64_t align)
{
	rc_heap *h = rc_alloc(sizeof *h);

	h->align = align;
	h->random = 2463534242u;
	return h;
}

void rc_heap_destroy(rc_heap *h)
{
	if (!h)
		return;
	while (h->first)
		drop_block(h, h->first);
	free(h);
}

void rc_heap_grow(rc_heap *h, uint64_t bytes)
{
	rc_block *last = h->last;

	if (!bytes)
		return;
	if (last && last->free) {
		tree_remove(h, last);
		last->size += bytes;
	} else {
		last = new_block(h, last, h->size, bytes);
	}
	h->size += bytes;
	tree_add(h, last);
}

uint64_t rc_heap_round(const rc_heap *h, uint64_t bytes)
{
	uint64_t rounded = (bytes + h->align - 1) & ~(h->align - 1);

	return rounded < bytes ? UINT64_MAX : rounded ? rounded : h->align; /* an overflow fits nowhere */
}

rc_block *rc_heap_take(rc_heap *h, uint64_t bytes)
{
	uint64_t size = rc_heap_round(h, bytes);
	rc_block *b = tree_find(h, size);

	if (!b)
		return NULL;
	tree_remove(h, b);
	if (b->size > size) {
		rc_block *rest = new_block(h, b, b->offset + size, b->size - size);

		b->size = size;
		tree_add(h, rest);
	}
	b->user = NULL;
	return b;
}

void rc_heap_give(rc_heap *h, rc_block *b)
{
	rc_block *prev = b->prev, *next = b->next;

	b->user = NULL;
	if (next && next->free) {
		tree_remove(h, next);
		b->size += next->size;
		drop_block(h, next);
	}
	if (prev && prev->free) {
		tree_remove(h, prev);
		prev->size += b->size;
		drop_block(h, b);
		b = prev;
	}
	tree_add(h, b);
}

/* ---- looking ---- */

uint64_t rc_heap_size(const rc_heap *h)
{
	return h->size;
}

uint64_t rc_heap_free_bytes(const rc_heap *h)
{
	return h->free_bytes;
}

uint64_t rc_heap_largest(const rc_heap *h)
{
	const rc_block *t = h->root;

	while (t && t->right)
		t = t->right;
	return t ? t->size : 0;
}

uint64_t rc_heap_tail(const rc_heap *h)
{
	return h->last && h->last->free ? h->last->size : 0;
}

const rc_block *rc_heap_first(const rc_heap *h)
{
	return h->first;
}

static bool tree_check(const rc_block *t, const rc_block *min, const rc_block *max, uint64_t *free_bytes, size_t *n)
{
	if (!t)
		return true;
	*free_bytes += t->size;
	++*n;
	return t->free && (!min || before(min, t->size, t->offset)) && (!max || before(t, max->size, max->offset)) &&
	       (!t->left || t->left->weight <= t->weight) && (!t->right || t->right->weight <= t->weight) &&
	       tree_check(t->left, min, t, free_bytes, n) && tree_check(t->right, t, max, free_bytes, n);
}

bool rc_heap_check(const rc_heap *h)
{
	uint64_t end = 0, free_in_tree = 0, free_in_list = 0;
	size_t in_tree = 0, in_list = 0;
	const rc_block *prev = NULL;

	for (const rc_block *b = h->first; b; prev = b, b = b->next) {
		if (b->offset != end || b->prev != prev || !b->size || b->size % h->align || (b->free && prev && prev->free))
			return false;
		end += b->size;
		in_list += b->free;
		free_in_list += b->free ? b->size : 0;
	}
	return end == h->size && h->last == prev && tree_check(h->root, NULL, NULL, &free_in_tree, &in_tree) && in_tree == in_list &&
	       free_in_tree == free_in_list && free_in_tree == h->free_bytes;
}
