/* Hash map: open addressing with linear probing. A deleted entry leaves a tombstone (so that an iteration may delete), which
 * the next growth sweeps out. Keys come from peers, so the hash is seeded at random once a process. See map.h. */
#include "raylet-c/base/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

typedef struct entry {
	uint8_t *key; /* NULL: free, or a tombstone when value is TOMB */
	void *value;
	uint32_t n, hash;
} entry;

struct rc_map {
	entry *entries;
	size_t mask; /* capacity - 1; capacity is 0 or a power of two */
	size_t count, used; /* used: with tombstones */
};

static char tomb_mark;
#define TOMB ((void *)&tomb_mark)

static uint64_t seed(void)
{
	static uint64_t value; /* two threads at once set it to one of two values before any map has entries: harmless only
	                          since maps are made by the loop thread or under the caller's lock */

	while (!value)
		if (getrandom(&value, sizeof value, 0) != sizeof value)
			abort();
	return value;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	__uint128_t product = (__uint128_t)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xd1b54a32d192ed03u);

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint32_t hash_of(rc_view key)
{
	uint64_t h = seed() ^ key.n, word;
	size_t i = 0;

	for (; i + 8 <= key.n; i += 8) {
		memcpy(&word, key.p + i, 8);
		h = mix(h, word);
	}
	word = 0;
	if (i < key.n)
		memcpy(&word, key.p + i, key.n - i);
	h = mix(h, word ^ seed());
	return (uint32_t)(h ^ h >> 32);
}

rc_map *rc_map_create(void)
{
	return rc_alloc(sizeof(rc_map));
}

void rc_map_destroy(rc_map *m)
{
	if (!m)
		return;
	for (size_t i = 0; m->entries && i <= m->mask; i++)
		free(m->entries[i].key);
	free(m->entries);
	free(m);
}

size_t rc_map_count(const rc_map *m)
{
	return m->count;
}

static entry *find(const rc_map *m, rc_view key, uint32_t hash)
{
	if (!m->entries)
		return NULL;
	for (size_t i = hash & m->mask;; i = (i + 1) & m->mask) {
		entry *e = &m->entries[i];

		if (e->key) {
			if (e->hash == hash && e->n == key.n && (key.n == 0 || memcmp(e->key, key.p, key.n) == 0))
				return e;
		} else if (e->value != TOMB) {
			return NULL;
		}
	}
}

void *rc_map_get(const rc_map *m, rc_view key)
{
	entry *e = m->count ? find(m, key, hash_of(key)) : NULL;

	return e ? e->value : NULL;
}

static void insert(rc_map *m, entry e)
{
	size_t i = e.hash & m->mask;

	while (m->entries[i].key)
		i = (i + 1) & m->mask;
	if (m->entries[i].value != TOMB)
		m->used++;
	m->entries[i] = e;
	m->count++;
}

static void resize(rc_map *m)
{
	rc_map bigger = { 0 };
	size_t cap = 8;

	while (cap < m->count * 2 + 2)
		cap *= 2;
	bigger.entries = rc_alloc(cap * sizeof(entry));
	bigger.mask = cap - 1;
	for (size_t i = 0; m->entries && i <= m->mask; i++)
		if (m->entries[i].key)
			insert(&bigger, m->entries[i]);
	free(m->entries);
	*m = bigger;
}

void *rc_map_put(rc_map *m, rc_view key, void *value)
{
	uint32_t hash = hash_of(key);
	entry *old = find(m, key, hash), e = { .value = value, .n = (uint32_t)key.n, .hash = hash };

	if (old) {
		void *replaced = old->value;

		old->value = value;
		return replaced;
	}
	if (!m->entries || (m->used + 1) * 4 > (m->mask + 1) * 3)
		resize(m);
	e.key = (uint8_t *)rc_strndup(key.p, key.n);
	insert(m, e);
	return NULL;
}

void *rc_map_del(rc_map *m, rc_view key)
{
	entry *e = m->count ? find(m, key, hash_of(key)) : NULL;
	void *value;

	if (!e)
		return NULL;
	value = e->value;
	free(e->key);
	*e = (entry){ .value = TOMB };
	m->count--;
	return value;
}

bool rc_map_next(const rc_map *m, size_t *i, rc_view *key, void **value)
{
	for (; m->entries && *i <= m->mask; ++*i) {
		const entry *e = &m->entries[*i];

		if (!e->key)
			continue;
		if (key)
			*key = rc_view_of(e->key, e->n);
		if (value)
			*value = e->value;
		++*i;
		return true;
	}
	return false;
}
