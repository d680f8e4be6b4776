/* A hash map from byte strings (ids, names) to pointers: open addressing, keys copied, insertion order not kept.
 * Loop thread only, or the caller locks. */
#ifndef RC_BASE_MAP_H
#define RC_BASE_MAP_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/id.h"

typedef struct rc_map rc_map;

rc_map *rc_map_create(void);
void rc_map_destroy(rc_map *m); /* NULL is fine; values are the caller's */
size_t rc_map_count(const rc_map *m);
void *rc_map_get(const rc_map *m, rc_view key); /* NULL: absent */
void *rc_map_put(rc_map *m, rc_view key, void *value); /* value must not be NULL; returns the value replaced, or NULL */
void *rc_map_del(rc_map *m, rc_view key);              /* the value removed, or NULL */

/* for (size_t i = 0; rc_map_next(m, &i, &key, &value);) ... Deleting the current entry inside is allowed; putting is not. */
bool rc_map_next(const rc_map *m, size_t *i, rc_view *key, void **value);

static inline void *rc_map_get_id(const rc_map *m, const rc_id *id)
{
	return rc_map_get(m, rc_id_view(id));
}
static inline void *rc_map_put_id(rc_map *m, const rc_id *id, void *value)
{
	return rc_map_put(m, rc_id_view(id), value);
}
static inline void *rc_map_del_id(rc_map *m, const rc_id *id)
{
	return rc_map_del(m, rc_id_view(id));
}

#endif
