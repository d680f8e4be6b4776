/* Sorted arrays of (name, fixed-point amount). They are short (a demand has a few names, a node some dozens, more only with
 * many placement groups), so look-ups are binary searches and no hash is kept.
 *
 * Trap: protobuf maps may repeat a key on the wire; the last one wins, as in protobuf. */
#include "raylet-c/sched/amounts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int rc_q_from_double(double d, rc_q *ret)
{
	if (!(d >= 0 && d <= 1e14))
		return -1;
	*ret = (rc_q)floor(d * 10000.0 + 0.5);
	return 0;
}

void rc_amounts_free(rc_amounts *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->v[i].name);
	free(a->v);
	*a = (rc_amounts){ 0 };
}

/* Where name is (found) or belongs. */
static size_t place_of(const rc_amounts *a, const char *name, bool *found)
{
	size_t low = 0, high = a->n;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int c = strcmp(a->v[middle].name, name);
		if (c == 0) {
			*found = true;
			return middle;
		}
		if (c < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*found = false;
	return low;
}

static rc_amount *entry(rc_amounts *a, const char *name)
{
	bool found;
	size_t at = place_of(a, name, &found);
	if (!found) {
		if (a->n == a->cap) {
			a->cap = a->cap ? a->cap * 2 : 4;
			a->v = rc_realloc(a->v, a->cap * sizeof(*a->v));
		}
		memmove(a->v + at + 1, a->v + at, (a->n - at) * sizeof(*a->v));
		a->v[at] = (rc_amount){ rc_strdup(name), 0 };
		a->n++;
	}
	return &a->v[at];
}

void rc_amounts_set(rc_amounts *a, const char *name, rc_q q)
{
	entry(a, name)->q = q;
}

void rc_amounts_add(rc_amounts *a, const char *name, rc_q q)
{
	entry(a, name)->q += q;
}

rc_q rc_amounts_get(const rc_amounts *a, const char *name)
{
	bool found;
	size_t at = place_of(a, name, &found);
	return found ? a->v[at].q : 0;
}

bool rc_amounts_has(const rc_amounts *a, const char *name)
{
	bool found;
	(void)place_of(a, name, &found);
	return found;
}

static bool covered(const rc_amounts *a, const rc_amounts *by)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->v[i].q != rc_amounts_get(by, a->v[i].name))
			return false;
	return true;
}

bool rc_amounts_eq(const rc_amounts *a, const rc_amounts *b)
{
	return covered(a, b) && covered(b, a);
}

void rc_amounts_copy(rc_amounts *to, const rc_amounts *from)
{
	rc_amounts copy = { 0 };
	copy.n = copy.cap = from->n;
	copy.v = from->n ? rc_alloc(from->n * sizeof(*copy.v)) : NULL;
	for (size_t i = 0; i < from->n; i++)
		copy.v[i] = (rc_amount){ rc_strdup(from->v[i].name), from->v[i].q };
	rc_amounts_free(to);
	*to = copy;
}

void rc_amounts_drop_zeros(rc_amounts *a)
{
	size_t kept = 0;
	for (size_t i = 0; i < a->n; i++) {
		if (a->v[i].q)
			a->v[kept++] = a->v[i];
		else
			free(a->v[i].name);
	}
	a->n = kept;
}

void rc_amounts_print(const rc_amounts *a, rc_buf *out)
{
	rc_buf_str(out, "{");
	for (size_t i = 0; i < a->n; i++)
		rc_buf_printf(out, "%s%s: %.15g", i ? ", " : "", a->v[i].name, rc_q_double(a->v[i].q));
	rc_buf_str(out, "}");
}

static int check_name(const char *name, const char *what, rc_error *e)
{
	size_t n = name ? strlen(name) : 0;
	if (n == 0)
		return rc_fail(e, RC_E_INVALID, "%s: a resource without a name", what);
	if (n > RC_MAX_RESOURCE_NAME)
		return rc_fail(e, RC_E_INVALID, "%s: the resource name \"%.40s...\" has %zu bytes, the limit is %d", what, name, n,
		               RC_MAX_RESOURCE_NAME);
	return 0;
}

int rc_amounts_from_map(const Rw__MapStringDouble *const *entries, size_t n, const char *what, rc_amounts *ret, rc_error *e)
{
	if (n > RC_MAX_AMOUNTS)
		return rc_fail(e, RC_E_FULL, "%s: %zu resources, the limit is %d", what, n, RC_MAX_AMOUNTS);
	rc_amounts a = { 0 };
	for (size_t i = 0; i < n; i++) {
		rc_q q;
		double value = RC_GET(entries[i], value);
		if (check_name(entries[i]->key, what, e) < 0) {
			rc_amounts_free(&a);
			return -1;
		}
		if (rc_q_from_double(value, &q) < 0) {
			rc_amounts_free(&a);
			return rc_fail(e, RC_E_INVALID, "%s: %s has the amount %g, which is not between 0 and 1e14", what, entries[i]->key, value);
		}
		rc_amounts_set(&a, entries[i]->key, q);
	}
	rc_amounts_free(ret);
	*ret = a;
	return 0;
}

rc_amount_map rc_amount_map_make(const rc_amounts *a)
{
	rc_amount_map m = { .n = a->n };
	if (a->n == 0)
		return m;
	/* One block: the pointers, then the entries. */
	m.v = rc_alloc(a->n * (sizeof(*m.v) + sizeof(**m.v)));
	Rw__MapStringDouble *entries = (Rw__MapStringDouble *)(m.v + a->n);
	for (size_t i = 0; i < a->n; i++) {
		rw__map_string_double__init(&entries[i]);
		entries[i].key = a->v[i].name;
		RC_SET(entries[i], value, rc_q_double(a->v[i].q));
		m.v[i] = &entries[i];
	}
	return m;
}

void rc_amount_map_free(rc_amount_map *m)
{
	free(m->v);
	*m = (rc_amount_map){ 0 };
}

int rc_amounts_parse_list(const char *list, rc_amounts *ret, rc_error *e)
{
	static const char what[] = "static resource list";
	rc_amounts a = { 0 };
	char *copy = rc_strdup(list), *rest = copy, *name;
	size_t n = 0;
	while (*rest && (name = strsep(&rest, ",")) != NULL) {
		char *number = rest ? strsep(&rest, ",") : NULL, *end = NULL;
		double value = number ? strtod(number, &end) : 0;
		rc_q q = 0;
		int bad = check_name(name, what, e);
		if (!bad && (!number || end == number || *end || rc_q_from_double(value, &q) < 0))
			bad = rc_fail(e, RC_E_INVALID, "%s: %s has the amount \"%s\", which is not a number between 0 and 1e14", what, name,
			              number ? number : "");
		if (!bad && rc_amounts_has(&a, name))
			bad = rc_fail(e, RC_E_INVALID, "%s: %s is given twice", what, name);
		if (!bad && ++n > RC_MAX_AMOUNTS)
			bad = rc_fail(e, RC_E_FULL, "%s: more than %d resources", what, RC_MAX_AMOUNTS);
		if (bad) {
			free(copy);
			rc_amounts_free(&a);
			return -1;
		}
		rc_amounts_set(&a, name, q);
		if (!rest)
			break;
	}
	free(copy);
	rc_amounts_free(ret);
	*ret = a;
	return 0;
}

/* ---- names of placement groups' resources ---- */

static bool all_hex(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f')))
			return false;
	return true;
}

bool rc_group_name_parse(const char *name, rc_group_name *ret)
{
	static const char mark[] = "_group_";
	enum { HEX = 2 * RC_PG_ID };
	size_t n = strlen(name);
	if (n < HEX + sizeof(mark) || !all_hex(name + n - HEX, HEX))
		return false;
	const char *group = name + n - HEX, *p = group;
	/* Backwards: "<hex>" is preceded by "_group_" or by "_group_<index>_". */
	int index = -1;
	if (p[-1] != '_')
		return false;
	const char *digits = p - 1;
	while (digits > name && digits[-1] >= '0' && digits[-1] <= '9')
		digits--;
	if (digits < p - 1) {
		if (p - 1 - digits > 9)
			return false;
		index = 0;
		for (const char *c = digits; c < p - 1; c++)
			index = index * 10 + (*c - '0');
		p = digits;
	}
	const size_t mark_n = sizeof(mark) - 1;
	if ((size_t)(p - name) <= mark_n || memcmp(p - mark_n, mark, mark_n) != 0)
		return false;
	*ret = (rc_group_name){ rc_view_of(name, (size_t)(p - name) - mark_n), index, rc_view_of(group, HEX) };
	return true;
}

char *rc_group_name_make(const char *base, const rc_id *group, int index)
{
	if (index < 0)
		return rc_sprintf("%s_group_%s", base, rc_id_to_hex(group).s);
	return rc_sprintf("%s_group_%d_%s", base, index, rc_id_to_hex(group).s);
}

bool rc_is_cpu(const char *name)
{
	rc_group_name g;
	return strcmp(name, "CPU") == 0 || (strncmp(name, "CPU_", 4) == 0 && rc_group_name_parse(name, &g) && g.base.n == 3);
}
