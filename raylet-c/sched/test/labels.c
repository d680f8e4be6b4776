/* Labels and selectors. */
#include "raylet-c/sched/labels.h"
#include "raylet-c/sched/test/sched_test.h"

static const rc_dialect *dialect(void)
{
	return rc_dialect_find("2.60.0", NULL);
}

static void parses(void)
{
	rc_labels l = { 0 };
	rc_error e = { 0 };
	CHECK(rc_labels_parse("{\"zone\": \"east\", \"a\\u00e9\": \"\"}", &l, &e) == 0);
	CHECK_EQ_INT(2, l.n);
	CHECK_STR("east", rc_labels_get(&l, "zone"));
	CHECK_STR("", rc_labels_get(&l, "a\xc3\xa9"));
	CHECK_STR(NULL, rc_labels_get(&l, "zon"));
	rc_labels_set(&l, "zone", "west");
	rc_labels_set(&l, "b", "1");
	CHECK_STR("west", rc_labels_get(&l, "zone"));
	CHECK_EQ_INT(3, l.n);
	rc_label_map m = rc_label_map_make(&l);
	CHECK_EQ_INT(3, m.n);
	rc_labels copy = { 0 };
	CHECK(rc_labels_from_map((const Rw__MapStringString *const *)m.v, m.n, &copy, &e) == 0);
	CHECK_STR("west", rc_labels_get(&copy, "zone"));
	rc_label_map_free(&m);
	rc_labels_free(&copy);
	CHECK(rc_labels_parse("", &l, &e) == 0);
	CHECK_EQ_INT(0, l.n);
	rc_labels_free(&l);
}

static void refuses(void)
{
	static const char *const cases[] = { "{", "[]", "{\"a\": 1}", "{\"a\": null}", "{\"\": \"x\"}",
		                            "{\"a\": \"1\", \"a\": \"2\"}", "a=b", "{} x" };
	rc_labels l = { 0 };
	rc_labels_set(&l, "kept", "1");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		rc_error e = { 0 };
		CHECK(rc_labels_parse(cases[i], &l, &e) < 0);
		CHECK(strncmp(e.text, "labels: ", 8) == 0);
		CHECK_EQ_INT(1, l.n);
	}
	rc_labels_free(&l);
}

static bool match_one(rc_label_op op, const char *key, const char *value)
{
	char *values[] = { (char *)"other", (char *)value };
	rc_constraint c = { (char *)key, op, values, value ? 2 : 0 };
	rc_selector s = { &c, 1 };
	rc_labels l = { 0 };
	rc_labels_set(&l, "zone", "east");
	bool good = rc_selector_match(&s, &l);
	rc_labels_free(&l);
	return good;
}

static void matches(void)
{
	CHECK(match_one(RC_LABEL_OP_IN, "zone", "east"));
	CHECK(!match_one(RC_LABEL_OP_IN, "zone", "west"));
	CHECK(!match_one(RC_LABEL_OP_IN, "rack", "east"));
	CHECK(!match_one(RC_LABEL_OP_NOT_IN, "zone", "east"));
	CHECK(match_one(RC_LABEL_OP_NOT_IN, "zone", "west"));
	CHECK(match_one(RC_LABEL_OP_NOT_IN, "rack", "1"));
	CHECK(match_one(RC_LABEL_OP_EXISTS, "zone", NULL));
	CHECK(!match_one(RC_LABEL_OP_EXISTS, "rack", NULL));
	CHECK(match_one(RC_LABEL_OP_ABSENT, "rack", NULL));
	CHECK(!match_one(RC_LABEL_OP_ABSENT, "zone", NULL));
	rc_selector none = { 0 };
	rc_labels l = { 0 };
	CHECK(rc_selector_match(&none, &l));
}

static void from_wire(void)
{
	Rw__LabelSelectorConstraint c = RW__LABEL_SELECTOR_CONSTRAINT__INIT, *list[] = { &c };
	Rw__LabelSelector m = RW__LABEL_SELECTOR__INIT;
	char *values[] = { (char *)"a", (char *)"b" };
	rc_selector s = { 0 };
	rc_error e = { 0 };
	m.label_constraints = list;
	m.n_label_constraints = 1;
	c.label_key = (char *)"tier";
	c.label_values = values;
	c.n_label_values = 2;
	RC_SET(c, operator_, 2);
	CHECK(rc_selector_from(dialect(), &m, &s, &e) == 0);
	rc_buf text = { 0 };
	rc_selector_print(&s, &text);
	CHECK_STR("{tier: !in(a,b)}", rc_buf_cstr(&text));
	rc_buf_free(&text);
	Rw__LabelSelector *back = rc_selector_message(dialect(), &s);
	CHECK_EQ_INT(1, back->n_label_constraints);
	CHECK_EQ_INT(2, back->label_constraints[0]->operator_);
	CHECK_STR("b", back->label_constraints[0]->label_values[1]);
	rc_selector_message_free(back);
	rc_selector copy = { 0 };
	rc_selector_copy(&copy, &s);
	RC_SET(c, operator_, 7);
	CHECK(rc_selector_from(dialect(), &m, &s, &e) < 0);
	CHECK_STR("label selector: \"tier\" has the unknown operator 7", e.text);
	RC_SET(c, operator_, 1);
	c.label_key = NULL;
	CHECK(rc_selector_from(dialect(), &m, &s, &e) < 0);
	CHECK_EQ_INT(1, s.n);
	CHECK(rc_selector_from(dialect(), NULL, &s, &e) == 0);
	CHECK_EQ_INT(0, s.n);
	CHECK_STR("b", copy.v[0].values[1]);
	rc_selector_free(&copy);
}

static void expressions(void)
{
	Rw__LabelOperator in = RW__LABEL_OPERATOR__INIT, not_in = RW__LABEL_OPERATOR__INIT, exists = RW__LABEL_OPERATOR__INIT,
	                  absent = RW__LABEL_OPERATOR__INIT, none = RW__LABEL_OPERATOR__INIT;
	Rw__LabelIn a = RW__LABEL_IN__INIT;
	Rw__LabelNotIn b = RW__LABEL_NOT_IN__INIT;
	Rw__LabelExists c = RW__LABEL_EXISTS__INIT;
	Rw__LabelDoesNotExist d = RW__LABEL_DOES_NOT_EXIST__INIT;
	char *values[] = { (char *)"1" };
	a.values = b.values = values;
	a.n_values = b.n_values = 1;
	in.label_in = &a;
	not_in.label_not_in = &b;
	exists.label_exists = &c;
	absent.label_does_not_exist = &d;
	Rw__LabelOperator *operators[] = { &in, &not_in, &exists, &absent, &none };
	Rw__LabelMatchExpression x[5], *list[5];
	for (size_t i = 0; i < 5; i++) {
		rw__label_match_expression__init(&x[i]);
		x[i].key = (char *)"k";
		x[i].operator_ = operators[i];
		list[i] = &x[i];
	}
	Rw__LabelMatchExpressions m = RW__LABEL_MATCH_EXPRESSIONS__INIT;
	m.expressions = list;
	m.n_expressions = 4;
	rc_selector s = { 0 };
	rc_error e = { 0 };
	CHECK(rc_selector_from_expressions(&m, &s, &e) == 0);
	rc_buf text = { 0 };
	rc_selector_print(&s, &text);
	CHECK_STR("{k: in(1), k: !in(1), k: exists, k: !exists}", rc_buf_cstr(&text));
	rc_buf_free(&text);
	m.n_expressions = 5;
	CHECK(rc_selector_from_expressions(&m, &s, &e) < 0);
	CHECK_STR("label expression: \"k\" has no operator", e.text);
	rc_selector_free(&s);
}

int main(void)
{
	RUN(parses, "labels are read from JSON and go through protobuf");
	RUN(refuses, "labels that are not an object of strings are refused and the old ones kept");
	RUN(matches, "a missing label fails 'in' and passes 'not in'");
	RUN(from_wire, "a label selector comes from the wire and goes back");
	RUN(expressions, "the expressions of the node label strategy become constraints");
	return test_end();
}
