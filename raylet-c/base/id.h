/* Ray's identifiers: fixed numbers of raw bytes (2.35.0 and 2.60.0 agree). Nil is all 0xff. Any thread. */
#ifndef RC_BASE_ID_H
#define RC_BASE_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raylet-c/base/buf.h"

enum { RC_ID_MAX = 32 }; /* the longest: a lease of 2.60.0 */
enum { RC_NODE_ID = 28, RC_WORKER_ID = 28, RC_CLUSTER_ID = 28, RC_OBJECT_ID = 28, RC_TASK_ID = 24, RC_PG_ID = 18, RC_ACTOR_ID = 16,
       RC_JOB_ID = 4, RC_LEASE_ID = 32 };

/* One type for all: its length tells the kind. n = 0: absent. */
typedef struct rc_id {
	uint8_t n;
	uint8_t b[RC_ID_MAX];
} rc_id;

typedef struct rc_id_hex {
	char s[2 * RC_ID_MAX + 1];
} rc_id_hex;

rc_id rc_id_from(const void *p, size_t n); /* longer than RC_ID_MAX: absent */
rc_id rc_id_from_hex(const char *hex);     /* malformed: absent */
rc_id rc_id_nil(size_t n);
rc_id rc_id_random(size_t n);
bool rc_id_is_nil(const rc_id *id); /* absent or all 0xff */
bool rc_id_eq(const rc_id *a, const rc_id *b);
rc_id_hex rc_id_to_hex(const rc_id *id); /* lower case; printf("%s", rc_id_to_hex(&id).s) */
static inline rc_view rc_id_view(const rc_id *id)
{
	return rc_view_of(id->b, id->n);
}

#endif
