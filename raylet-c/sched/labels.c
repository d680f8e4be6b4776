/* Labels are a short sorted array; selectors a list of constraints. --labels is the only JSON here: a flat object of strings,
 * read with jansson. */
#include "raylet-c/sched/labels.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void rc_labels_free(rc_labels *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].key);
		free(l->v[i].value);
	}
	free(l->v);
	*l = (rc_labels){ 0 };
}

/* The first whose key is not below. */
static size_t place_of(const rc_labels *l, const char *key)
{
	size_t low = 0, high = l->n;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (strcmp(l->v[middle].key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void rc_labels_set(rc_labels *l, const char *key, const char *value)
{
	size_t at = place_of(l, key);
	if (at < l->n && strcmp(l->v[at].key, key) == 0) {
		free(l->v[at].value);
		l->v[at].value = rc_strdup(value);
		return;
	}
	l->v = rc_realloc(l->v, (l->n + 1) * sizeof(*l->v));
	memmove(l->v + at + 1, l->v + at, (l->n - at) * sizeof(*l->v));
	l->v[at] = (rc_label){ rc_strdup(key), rc_strdup(value) };
	l->n++;
}

const char *rc_labels_get(const rc_labels *l, const char *key)
{
	size_t at = place_of(l, key);
	return at < l->n && strcmp(l->v[at].key, key) == 0 ? l->v[at].value : NULL;
}

static int check_label(const char *key, const char *value, rc_error *e)
{
	size_t n = key ? strlen(key) : 0;
	if (n == 0 || n > RC_MAX_LABEL)
		return rc_fail(e, RC_E_INVALID, "labels: the key \"%.40s\" has %zu bytes, allowed are 1 to %d", key ? key : "", n, RC_MAX_LABEL);
	if (value && strlen(value) > RC_MAX_LABEL)
		return rc_fail(e, RC_E_INVALID, "labels: the value of \"%.40s\" has %zu bytes, the limit is %d", key, strlen(value), RC_MAX_LABEL);
	return 0;
}

int rc_labels_parse(const char *json, rc_labels *ret, rc_error *e)
{
	rc_labels l = { 0 };
	if (json && *json) {
		json_error_t fault;
		json_t *object = json_loads(json, JSON_REJECT_DUPLICATES, &fault);
		if (!object)
			return rc_fail(e, RC_E_INVALID, "labels: not JSON at byte %d: %s", fault.position, fault.text);
		int bad = 0;
		if (!json_is_object(object))
			bad = rc_fail(e, RC_E_INVALID, "labels: not a JSON object");
		else if (json_object_size(object) > RC_MAX_LABELS)
			bad = rc_fail(e, RC_E_FULL, "labels: %zu labels, the limit is %d", json_object_size(object), RC_MAX_LABELS);
		const char *key;
		json_t *value;
		if (!bad)
			json_object_foreach(object, key, value) {
				if (!json_is_string(value))
					bad = rc_fail(e, RC_E_INVALID, "labels: the value of \"%.40s\" is not a string", key);
				else
					bad = check_label(key, json_string_value(value), e);
				if (bad)
					break;
				rc_labels_set(&l, key, json_string_value(value));
			}
		json_decref(object);
		if (bad) {
			rc_labels_free(&l);
			return -1;
		}
	}
	rc_labels_free(ret);
	*ret = l;
	return 0;
}

int rc_labels_from_map(const Rw__MapStringString *const *entries, size_t n, rc_labels *ret, rc_error *e)
{
	if (n > RC_MAX_LABELS)
		return rc_fail(e, RC_E_FULL, "labels: %zu labels, the limit is %d", n, RC_MAX_LABELS);
	rc_labels l = { 0 };
	for (size_t i = 0; i < n; i++) {
		if (check_label(entries[i]->key, entries[i]->value, e) < 0) {
			rc_labels_free(&l);
			return -1;
		}
		rc_labels_set(&l, entries[i]->key, RC_GET_STR(entries[i], value));
	}
	rc_labels_free(ret);
	*ret = l;
	return 0;
}

rc_label_map rc_label_map_make(const rc_labels *l)
{
	rc_label_map m = { .n = l->n };
	if (l->n == 0)
		return m;
	m.v = rc_alloc(l->n * (sizeof(*m.v) + sizeof(**m.v)));
	Rw__MapStringString *entries = (Rw__MapStringString *)(m.v + l->n);
	for (size_t i = 0; i < l->n; i++) {
		rw__map_string_string__init(&entries[i]);
		entries[i].key = l->v[i].key;
		entries[i].value = l->v[i].value;
		m.v[i] = &entries[i];
	}
	return m;
}

void rc_label_map_free(rc_label_map *m)
{
	free(m->v);
	*m = (rc_label_map){ 0 };
}

/* ---- selectors ---- */

void rc_selector_free(rc_selector *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].key);
		for (size_t k = 0; k < s->v[i].n_values; k++)
			free(s->v[i].values[k]);
		free(s->v[i].values);
	}
	free(s->v);
	*s = (rc_selector){ 0 };
}

static bool one_of(const rc_constraint *c, const char *value)
{
	for (size_t i = 0; i < c->n_values; i++)
		if (strcmp(c->values[i], value) == 0)
			return true;
	return false;
}

bool rc_selector_match(const rc_selector *s, const rc_labels *labels)
{
	for (size_t i = 0; i < s->n; i++) {
		const rc_constraint *c = &s->v[i];
		const char *value = rc_labels_get(labels, c->key);
		bool good = false;
		switch (c->op) {
		case RC_LABEL_OP_IN:
			good = value && one_of(c, value);
			break;
		case RC_LABEL_OP_NOT_IN:
			good = !value || !one_of(c, value);
			break;
		case RC_LABEL_OP_EXISTS:
			good = value != NULL;
			break;
		case RC_LABEL_OP_ABSENT:
			good = value == NULL;
			break;
		}
		if (!good)
			return false;
	}
	return true;
}

void rc_selector_print(const rc_selector *s, rc_buf *out)
{
	static const char *const names[] = { "in", "!in", "exists", "!exists" };
	rc_buf_str(out, "{");
	for (size_t i = 0; i < s->n; i++) {
		rc_buf_printf(out, "%s%s: %s", i ? ", " : "", s->v[i].key, names[s->v[i].op]);
		for (size_t k = 0; k < s->v[i].n_values; k++)
			rc_buf_printf(out, "%s%s", k ? "," : "(", s->v[i].values[k]);
		rc_buf_str(out, s->v[i].n_values ? ")" : "");
	}
	rc_buf_str(out, "}");
}

/* One more constraint at the end of s; the strings are copied. */
static int add(rc_selector *s, const char *key, rc_label_op op, char **values, size_t n, rc_error *e)
{
	if (s->n == RC_MAX_CONSTRAINTS)
		return rc_fail(e, RC_E_FULL, "label selector: more than %d constraints", RC_MAX_CONSTRAINTS);
	if (n > RC_MAX_LABEL_VALUES)
		return rc_fail(e, RC_E_FULL, "label selector: \"%.40s\" has %zu values, the limit is %d", key ? key : "", n, RC_MAX_LABEL_VALUES);
	if (check_label(key, NULL, e) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (check_label(key, values[i], e) < 0)
			return -1;
	s->v = rc_realloc(s->v, (s->n + 1) * sizeof(*s->v));
	rc_constraint *c = &s->v[s->n++];
	*c = (rc_constraint){ rc_strdup(key), op, n ? rc_alloc(n * sizeof(*c->values)) : NULL, n };
	for (size_t i = 0; i < n; i++)
		c->values[i] = rc_strdup(values[i]);
	return 0;
}

void rc_selector_copy(rc_selector *to, const rc_selector *from)
{
	rc_selector copy = { from->n ? rc_alloc(from->n * sizeof(*copy.v)) : NULL, from->n };
	for (size_t i = 0; i < from->n; i++) {
		const rc_constraint *c = &from->v[i];
		copy.v[i] = (rc_constraint){ rc_strdup(c->key), c->op, c->n_values ? rc_alloc(c->n_values * sizeof(*c->values)) : NULL, c->n_values };
		for (size_t k = 0; k < c->n_values; k++)
			copy.v[i].values[k] = rc_strdup(c->values[k]);
	}
	rc_selector_free(to);
	*to = copy;
}

int rc_selector_from(const rc_dialect *d, const Rw__LabelSelector *m, rc_selector *ret, rc_error *e)
{
	rc_selector s = { 0 };
	for (size_t i = 0; m && i < m->n_label_constraints; i++) {
		const Rw__LabelSelectorConstraint *c = m->label_constraints[i];
		int op = RC_GET(c, operator_), bad;
		if (op == rc_enum_value(d, RC_V_LABEL_IN))
			bad = add(&s, c->label_key, RC_LABEL_OP_IN, c->label_values, c->n_label_values, e);
		else if (op == rc_enum_value(d, RC_V_LABEL_NOT_IN))
			bad = add(&s, c->label_key, RC_LABEL_OP_NOT_IN, c->label_values, c->n_label_values, e);
		else
			bad = rc_fail(e, RC_E_INVALID, "label selector: \"%.40s\" has the unknown operator %d", RC_GET_STR(c, label_key), op);
		if (bad) {
			rc_selector_free(&s);
			return -1;
		}
	}
	rc_selector_free(ret);
	*ret = s;
	return 0;
}

int rc_selector_from_expressions(const Rw__LabelMatchExpressions *m, rc_selector *ret, rc_error *e)
{
	rc_selector s = { 0 };
	for (size_t i = 0; m && i < m->n_expressions; i++) {
		const Rw__LabelMatchExpression *x = m->expressions[i];
		const Rw__LabelOperator *o = x->operator_;
		int bad;
		if (o && o->label_in)
			bad = add(&s, x->key, RC_LABEL_OP_IN, o->label_in->values, o->label_in->n_values, e);
		else if (o && o->label_not_in)
			bad = add(&s, x->key, RC_LABEL_OP_NOT_IN, o->label_not_in->values, o->label_not_in->n_values, e);
		else if (o && o->label_exists)
			bad = add(&s, x->key, RC_LABEL_OP_EXISTS, NULL, 0, e);
		else if (o && o->label_does_not_exist)
			bad = add(&s, x->key, RC_LABEL_OP_ABSENT, NULL, 0, e);
		else
			bad = rc_fail(e, RC_E_INVALID, "label expression: \"%.40s\" has no operator", RC_GET_STR(x, key));
		if (bad) {
			rc_selector_free(&s);
			return -1;
		}
	}
	rc_selector_free(ret);
	*ret = s;
	return 0;
}

Rw__LabelSelector *rc_selector_message(const rc_dialect *d, const rc_selector *s)
{
	Rw__LabelSelector *m = rc_alloc(sizeof(*m));
	rw__label_selector__init(m);
	m->label_constraints = s->n ? rc_alloc(s->n * sizeof(*m->label_constraints)) : NULL;
	for (size_t i = 0; i < s->n; i++) {
		if (s->v[i].op != RC_LABEL_OP_IN && s->v[i].op != RC_LABEL_OP_NOT_IN)
			continue; /* not expressible in a LabelSelector; comes from 2.35.0's strategy only, which has no such report */
		Rw__LabelSelectorConstraint *c = rc_alloc(sizeof(*c));
		rw__label_selector_constraint__init(c);
		c->label_key = s->v[i].key;
		RC_SET(*c, operator_, rc_enum_value(d, s->v[i].op == RC_LABEL_OP_IN ? RC_V_LABEL_IN : RC_V_LABEL_NOT_IN));
		c->label_values = s->v[i].values;
		c->n_label_values = s->v[i].n_values;
		m->label_constraints[m->n_label_constraints++] = c;
	}
	return m;
}

void rc_selector_message_free(Rw__LabelSelector *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n_label_constraints; i++)
		free(m->label_constraints[i]);
	free(m->label_constraints);
	free(m);
}
