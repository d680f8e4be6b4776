/* What local.c (raylet socket) and plasma.c (plasma socket) share. Private to wire/. */
#ifndef RC_WIRE_LOCAL_INTERNAL_H
#define RC_WIRE_LOCAL_INTERNAL_H

#include "raylet-c/wire/flat.h"
#include "raylet-c/wire/local.h"

/* Object ids in one slot and their owners in another (NO_OWNERS: the message has none), each checked. */
enum { RC__NO_OWNERS = 99 };
int rc__local_objects(rc__flat_reader *r, const rc__flat_table *t, unsigned ids_slot, unsigned owners_slot, rc_local_objects *ret);
/* A vector of n ids. */
void rc__flat_ids(rc__flat_writer *w, size_t place, const rc_id *ids, size_t n);

#endif
