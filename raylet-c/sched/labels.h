/* Node labels and what selects nodes by them: 2.60.0's label selectors (key in / not in values) and 2.35.0's node-label
 * strategy (also: exists, does not exist). A missing label fails "in" and passes "not in" (2.60.0:
 * src/ray/common/scheduling/cluster_resource_data.cc; acceptance case scheduling/labels). Pure functions: any thread. */
#ifndef RC_SCHED_LABELS_H
#define RC_SCHED_LABELS_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/status.h"
#include "raylet-c/wire/dialect.h"

enum { RC_MAX_LABELS = 1000, RC_MAX_LABEL = 4096, RC_MAX_CONSTRAINTS = 200, RC_MAX_LABEL_VALUES = 1000 };

typedef struct rc_label {
	char *key, *value;
} rc_label;

typedef struct rc_labels { /* sorted by key, keys distinct; zero-initialised = empty */
	rc_label *v;
	size_t n;
} rc_labels;

void rc_labels_free(rc_labels *l);
void rc_labels_set(rc_labels *l, const char *key, const char *value);
const char *rc_labels_get(const rc_labels *l, const char *key); /* NULL: absent */
/* --labels: a JSON object of strings, or "". ret: replaced on success. */
int rc_labels_parse(const char *json, rc_labels *ret, rc_error *e) RC_WARN_UNUSED;
int rc_labels_from_map(const Rw__MapStringString *const *entries, size_t n, rc_labels *ret, rc_error *e) RC_WARN_UNUSED;

/* For packing; borrows the strings. */
typedef struct rc_label_map {
	Rw__MapStringString **v;
	size_t n;
} rc_label_map;
rc_label_map rc_label_map_make(const rc_labels *l);
void rc_label_map_free(rc_label_map *m);

typedef enum rc_label_op { RC_LABEL_OP_IN, RC_LABEL_OP_NOT_IN, RC_LABEL_OP_EXISTS, RC_LABEL_OP_ABSENT } rc_label_op;

typedef struct rc_constraint {
	char *key;
	rc_label_op op;
	char **values;
	size_t n_values;
} rc_constraint;

typedef struct rc_selector { /* all constraints must hold; empty: every node */
	rc_constraint *v;
	size_t n;
} rc_selector;

void rc_selector_free(rc_selector *s);
void rc_selector_copy(rc_selector *to, const rc_selector *from); /* to: replaced */
bool rc_selector_match(const rc_selector *s, const rc_labels *labels);
void rc_selector_print(const rc_selector *s, rc_buf *out);
/* m may be NULL: empty. An operator that the release does not define is refused. */
int rc_selector_from(const rc_dialect *d, const Rw__LabelSelector *m, rc_selector *ret, rc_error *e) RC_WARN_UNUSED;
int rc_selector_from_expressions(const Rw__LabelMatchExpressions *m, rc_selector *ret, rc_error *e) RC_WARN_UNUSED;
/* For ResourceDemand.label_selectors of 2.60.0; borrows the strings; freed with rc_selector_message_free. */
Rw__LabelSelector *rc_selector_message(const rc_dialect *d, const rc_selector *s);
void rc_selector_message_free(Rw__LabelSelector *m);

#endif
