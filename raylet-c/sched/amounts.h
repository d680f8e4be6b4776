/* Named quantities of resources, as Ray counts them: fixed point, 1/10000 of a unit, rounded half up from the double on the
 * wire (2.35.0 and 2.60.0: src/ray/common/scheduling/fixed_point.h, seen on the wire). memory and object_store_memory are
 * in bytes. Pure functions: any thread.
 *
 * Names of a placement group's resources (join-facts section 11): "R_group_<index>_<hex>" belongs to one bundle,
 * "R_group_<hex>" is the sum over the group's bundles on this node (the wildcard). R "bundle" is Ray's own: 1000 a bundle. */
#ifndef RC_SCHED_AMOUNTS_H
#define RC_SCHED_AMOUNTS_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/id.h"
#include "raylet-c/base/status.h"
#include "raylet-c/wire/dialect.h"

typedef int64_t rc_q; /* 1/10000 */
#define RC_Q_ONE ((rc_q)10000)
#define RC_Q_MAX ((rc_q)1000000000000000000) /* 1e14 units, Ray's limit for a resource */

enum { RC_MAX_AMOUNTS = 1000, RC_MAX_RESOURCE_NAME = 512 }; /* of one map that a peer sends */

static inline double rc_q_double(rc_q q)
{
	return (double)q / 10000.0;
}
/* -1 for what is no quantity: NaN, below 0, above 1e14. */
int rc_q_from_double(double d, rc_q *ret) RC_WARN_UNUSED;

typedef struct rc_amount {
	char *name;
	rc_q q;
} rc_amount;

typedef struct rc_amounts { /* sorted by name, names distinct; zero-initialised = empty */
	rc_amount *v;
	size_t n, cap;
} rc_amounts;

void rc_amounts_free(rc_amounts *a);                             /* leaves it empty */
void rc_amounts_set(rc_amounts *a, const char *name, rc_q q);    /* keeps zeros */
void rc_amounts_add(rc_amounts *a, const char *name, rc_q q);
rc_q rc_amounts_get(const rc_amounts *a, const char *name);      /* 0: absent */
bool rc_amounts_has(const rc_amounts *a, const char *name);
bool rc_amounts_eq(const rc_amounts *a, const rc_amounts *b);    /* zero and absent are the same */
void rc_amounts_copy(rc_amounts *to, const rc_amounts *from);    /* to: replaced */
void rc_amounts_print(const rc_amounts *a, rc_buf *out);         /* "{CPU: 1, memory: 5000}" */

/* From a protobuf map. what: for the text, "required_resources". Zero entries are kept. Too many entries, too long or empty
 * names, and values that are no quantity are refused. ret: replaced on success. */
int rc_amounts_from_map(const Rw__MapStringDouble *const *entries, size_t n, const char *what, rc_amounts *ret, rc_error *e) RC_WARN_UNUSED;
/* Drops the zero entries: for demands, where 0 means "not asked for". */
void rc_amounts_drop_zeros(rc_amounts *a);

/* A protobuf map made of amounts, for packing: m.resources_total = map.v, m.n_resources_total = map.n. Borrows the names. */
typedef struct rc_amount_map {
	Rw__MapStringDouble **v;
	size_t n;
} rc_amount_map;
rc_amount_map rc_amount_map_make(const rc_amounts *a);
void rc_amount_map_free(rc_amount_map *m);

/* --static_resource_list: "custA,3,node:192.0.2.2,1.0,CPU,2,memory,23105953280". "" is empty. */
int rc_amounts_parse_list(const char *list, rc_amounts *ret, rc_error *e) RC_WARN_UNUSED;

/* ---- names of placement groups' resources ---- */

typedef struct rc_group_name { /* views into the name that was parsed */
	rc_view base;  /* "GPU" */
	int index;     /* of the bundle, or -1: the wildcard */
	rc_view group; /* hex */
} rc_group_name;

bool rc_group_name_parse(const char *name, rc_group_name *ret); /* false: an ordinary name */
/* index -1: the wildcard. */
char *rc_group_name_make(const char *base, const rc_id *group, int index);

/* True for "CPU" and a placement group's CPU: what a blocked worker gives back. */
bool rc_is_cpu(const char *name);

#endif
