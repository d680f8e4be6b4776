/* What this node has and who holds it. Unit-instance resources (GPU and its kind) are a vector with 1 unit an index: a whole
 * demand takes whole free indices, lowest first; a fraction below 1 takes the index with the least room that fits; a demand
 * above 1 that is not whole is refused. Everything else is one amount at index 0. (2.35.0 and 2.60.0:
 * src/ray/common/scheduling/resource_instance_set.cc.)
 *
 * Placement groups: a demand for the wildcard "R_group_g" is met out of one bundle and taken from the bundle's
 * "R_group_i_g" at the same indices; all wildcard names of one demand are met out of the same bundle.
 *
 * Loop thread only. */
#ifndef RC_SCHED_RESOURCES_H
#define RC_SCHED_RESOURCES_H

#include "raylet-c/sched/amounts.h"

typedef struct rc_resources rc_resources;

typedef struct rc_resources_options {
	/* predefined_unit_instance_resources + "," + custom_unit_instance_resources. NULL: Ray's defaults,
	 * "GPU,neuron_cores,TPU,NPU,HPU". */
	const char *unit_instances;
	void (*changed)(void *ctx); /* after any change of totals, available amounts, or idleness; may be NULL. Coalesce. */
	void *ctx;
	uint64_t (*now_ms)(void); /* NULL: rc_now_ms */
} rc_resources_options;

/* A unit-instance total that is not whole, or above 10000, is refused. */
rc_resources *rc_resources_create(const rc_amounts *total, const rc_resources_options *options, rc_error *e);
void rc_resources_destroy(rc_resources *r); /* NULL is fine */

/* ---- allocation ---- */

typedef struct rc_slot {
	uint32_t index;
	rc_q q;
} rc_slot;

typedef struct rc_grant {
	char *name;
	rc_slot *slots; /* those that are not 0, by index */
	size_t n;
} rc_grant;

typedef struct rc_allocation { /* what a lease holds; RequestWorkerLeaseReply.resource_mapping is made of it */
	rc_grant *v;
	size_t n;
	bool cpu_released; /* its worker is blocked: the CPU part is lent to others */
} rc_allocation;

/* NULL: does not fit now. The caller owns the result; an empty demand gives an empty allocation. */
rc_allocation *rc_resources_allocate(rc_resources *r, const rc_amounts *demand);
/* Gives all back and frees a; NULL is fine. */
void rc_resources_free(rc_resources *r, rc_allocation *a);
/* Gives all back and leaves a empty (its bundle is being removed). */
void rc_resources_give_back(rc_resources *r, rc_allocation *a);
/* A blocked worker lends its CPU (also its group's); taking it back never fails: the CPU may go below 0 until others end,
 * as in stock. Doing one twice does nothing. */
void rc_resources_lend_cpu(rc_resources *r, rc_allocation *a);
void rc_resources_retake_cpu(rc_resources *r, rc_allocation *a);

bool rc_resources_feasible(const rc_resources *r, const rc_amounts *demand); /* the totals could meet it */
bool rc_resources_fits(const rc_resources *r, const rc_amounts *demand);     /* and it would be met now */

/* ---- totals ---- */

/* More of a resource, by index (n = 1 for plain ones): adds to total and available. For committed bundles. */
void rc_resources_add(rc_resources *r, const char *name, const rc_q *amounts, size_t n);
/* The reverse; a resource whose total becomes 0 everywhere disappears. */
void rc_resources_subtract(rc_resources *r, const char *name, const rc_q *amounts, size_t n);
/* ResizeLocalResourceInstances (2.60.0): the new total of a plain resource, not below what is in use. A unit-instance
 * resource is refused with stock's text. */
int rc_resources_resize(rc_resources *r, const char *name, rc_q total, rc_error *e) RC_WARN_UNUSED;
/* object_store_memory: used bytes as the store counts them. */
void rc_resources_set_store_used(rc_resources *r, uint64_t bytes);

/* Filled for a view or a report: every resource, zeros too; below 0 counts as 0. ret: replaced. */
void rc_resources_totals(const rc_resources *r, rc_amounts *ret);
void rc_resources_available(const rc_resources *r, rc_amounts *ret);
rc_q rc_resources_total(const rc_resources *r, const char *name);
rc_q rc_resources_available_of(const rc_resources *r, const char *name); /* may be below 0 */
bool rc_resources_exists(const rc_resources *r, const char *name);
/* Rises with every change. */
uint64_t rc_resources_version(const rc_resources *r);
uint64_t rc_resources_totals_version(const rc_resources *r); /* with every change of a total only */
/* 0..1: the highest used share of CPU, memory and object_store_memory, as the hybrid policy scores a node. */
double rc_resources_utilization(const rc_resources *r);

/* ---- idleness: nothing allocated and nothing marked busy ---- */

enum { RC_BUSY_WORKERS = 1, RC_BUSY_ARGS = 2, RC_BUSY_STORE = 4 }; /* leased workers; leases that wait for arguments; pinned objects */
void rc_resources_mark(rc_resources *r, unsigned flag, bool busy); /* the first two are marked by rc_leases */
bool rc_resources_idle(const rc_resources *r);
uint64_t rc_resources_idle_ms(const rc_resources *r); /* 0 when busy */
/* node_activity of the resource view, one sentence each, in stock's words. ret: pointers into r, valid until the next call. */
size_t rc_resources_activity(rc_resources *r, const char *const **ret);

void rc_resources_print(const rc_resources *r, rc_buf *out);

#endif
