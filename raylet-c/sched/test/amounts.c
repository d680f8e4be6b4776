/* Amounts: fixed point, maps, the resource list of the command line, names of placement groups' resources. */
#include <math.h>

#include "raylet-c/sched/test/sched_test.h"

static void rounds(void)
{
	rc_q q = -1;
	CHECK(rc_q_from_double(0.00005, &q) == 0);
	CHECK_EQ_INT(1, q);
	CHECK(rc_q_from_double(0.1 + 0.2, &q) == 0);
	CHECK_EQ_INT(3000, q);
	CHECK(rc_q_from_double(0.000049, &q) == 0);
	CHECK_EQ_INT(0, q);
	CHECK(rc_q_from_double(1e14, &q) == 0);
	CHECK_EQ_INT(RC_Q_MAX, q);
	CHECK(rc_q_from_double(23105953280.0, &q) == 0);
	CHECK_EQ_INT(231059532800000, q);
}

static void refuses_numbers(void)
{
	rc_q q = 7;
	CHECK(rc_q_from_double(-0.1, &q) < 0);
	CHECK(rc_q_from_double(NAN, &q) < 0);
	CHECK(rc_q_from_double(INFINITY, &q) < 0);
	CHECK(rc_q_from_double(2e14, &q) < 0);
	CHECK_EQ_INT(7, q);
}

static void parses_list(void)
{
	rc_amounts a = amounts_of("custA,3,node:192.0.2.2,1.0,CPU,2,GPU,0,memory,23105953280");
	CHECK_AMOUNTS("{CPU: 2, GPU: 0, custA: 3, memory: 23105953280, node:192.0.2.2: 1}", &a);
	CHECK(rc_amounts_has(&a, "GPU"));
	CHECK(!rc_amounts_has(&a, "TPU"));
	rc_amounts_free(&a);
	a = amounts_of("");
	CHECK_EQ_INT(0, a.n);
	rc_amounts_free(&a);
}

static void refuses_lists(void)
{
	static const struct {
		const char *list, *text;
	} cases[] = {
		{ "CPU", "static resource list: CPU has the amount \"\", which is not a number between 0 and 1e14" },
		{ "CPU,two", "static resource list: CPU has the amount \"two\", which is not a number between 0 and 1e14" },
		{ "CPU,2x", "static resource list: CPU has the amount \"2x\", which is not a number between 0 and 1e14" },
		{ "CPU,-1", "static resource list: CPU has the amount \"-1\", which is not a number between 0 and 1e14" },
		{ "CPU,nan", "static resource list: CPU has the amount \"nan\", which is not a number between 0 and 1e14" },
		{ ",1", "static resource list: a resource without a name" },
		{ "CPU,1,CPU,2", "static resource list: CPU is given twice" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		rc_amounts a = { 0 };
		rc_error e = { 0 };
		rc_amounts_set(&a, "kept", 1);
		CHECK(rc_amounts_parse_list(cases[i].list, &a, &e) < 0);
		CHECK_STR(cases[i].text, e.text);
		CHECK(a.n == 1);
		rc_amounts_free(&a);
	}
}

static void sorted_map(void)
{
	rc_amounts a = { 0 }, b = { 0 };
	char name[16];
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "r%d", (i * 7919) % 500);
		rc_amounts_add(&a, name, i);
	}
	CHECK_EQ_INT(500, a.n);
	for (size_t i = 1; i < a.n; i++)
		CHECK(strcmp(a.v[i - 1].name, a.v[i].name) < 0);
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "r%d", (i * 7919) % 500);
		CHECK_EQ_INT(i, rc_amounts_get(&a, name));
	}
	rc_amounts_copy(&b, &a);
	CHECK(rc_amounts_eq(&a, &b));
	rc_amounts_set(&b, "zero", 0);
	CHECK(rc_amounts_eq(&a, &b));
	CHECK(rc_amounts_eq(&b, &a));
	rc_amounts_set(&b, "zero", 1);
	CHECK(!rc_amounts_eq(&a, &b));
	CHECK(!rc_amounts_eq(&b, &a));
	rc_amounts_free(&a);
	rc_amounts_free(&b);
}

static void protobuf_maps(void)
{
	rc_amounts a = amounts_of("CPU,1.5,GPU,0"), b = { 0 };
	rc_error e = { 0 };
	rc_amount_map m = rc_amount_map_make(&a);
	CHECK_EQ_INT(2, m.n);
	CHECK_STR("CPU", m.v[0]->key);
	CHECK(m.v[0]->value == 1.5);
	CHECK(m.v[1]->has_value && m.v[1]->value == 0);
	CHECK(rc_amounts_from_map((const Rw__MapStringDouble *const *)m.v, m.n, "test", &b, &e) == 0);
	CHECK_AMOUNTS("{CPU: 1.5, GPU: 0}", &b);
	rc_amounts_drop_zeros(&b);
	CHECK_AMOUNTS("{CPU: 1.5}", &b);
	m.v[0]->value = -3;
	CHECK(rc_amounts_from_map((const Rw__MapStringDouble *const *)m.v, m.n, "test", &b, &e) < 0);
	CHECK_STR("test: CPU has the amount -3, which is not between 0 and 1e14", e.text);
	m.v[0]->key = NULL;
	CHECK(rc_amounts_from_map((const Rw__MapStringDouble *const *)m.v, m.n, "test", &b, &e) < 0);
	CHECK_AMOUNTS("{CPU: 1.5}", &b);
	CHECK(rc_amounts_from_map(NULL, RC_MAX_AMOUNTS + 1, "test", &b, &e) < 0);
	CHECK_EQ_INT(RC_E_FULL, e.code);
	rc_amount_map_free(&m);
	rc_amounts_free(&a);
	rc_amounts_free(&b);
}

#define HEX "0123456789abcdef0123456789abcdef0123"

static void check_name(const char *name, const char *base, int index)
{
	rc_group_name g;
	bool found = rc_group_name_parse(name, &g);
	CHECK_EQ_INT(base != NULL, found);
	if (!base || !found)
		return;
	char copy[200];
	snprintf(copy, sizeof(copy), "%.*s", (int)g.base.n, (const char *)g.base.p);
	CHECK_STR(base, copy);
	CHECK_EQ_INT(index, g.index);
	CHECK(g.group.n == 36 && memcmp(g.group.p, HEX, 36) == 0);
}

static void group_names(void)
{
	check_name("GPU_group_0_" HEX, "GPU", 0);
	check_name("GPU_group_12_" HEX, "GPU", 12);
	check_name("GPU_group_" HEX, "GPU", -1);
	check_name("my_group_3_group_1_" HEX, "my_group_3", 1);
	check_name("my_3_group_" HEX, "my_3", -1);
	check_name("_group_1_" HEX, NULL, 0);
	check_name("_group_" HEX, NULL, 0);
	check_name("GPU_1_" HEX, NULL, 0);
	check_name("GPU_group_x_" HEX, NULL, 0);
	check_name("GPU_group_99999999999_" HEX, NULL, 0);
	check_name("GPU_group_0123", NULL, 0);
	check_name("GPU", NULL, 0);
	check_name("", NULL, 0);
	rc_id group = rc_id_from_hex(HEX);
	char *name = rc_group_name_make("CPU", &group, 4);
	CHECK_STR("CPU_group_4_" HEX, name);
	CHECK(rc_is_cpu(name));
	free(name);
	name = rc_group_name_make("CPU", &group, -1);
	CHECK_STR("CPU_group_" HEX, name);
	CHECK(rc_is_cpu(name));
	free(name);
	CHECK(rc_is_cpu("CPU"));
	CHECK(!rc_is_cpu("CPU_group_1"));
	CHECK(!rc_is_cpu("CPU_x_group_" HEX));
	CHECK(!rc_is_cpu("GPU"));
}

int main(void)
{
	RUN(rounds, "amounts are rounded half up to 1/10000");
	RUN(refuses_numbers, "what is no quantity is refused");
	RUN(parses_list, "the resource list of the command line is read, zeros too");
	RUN(refuses_lists, "a bad resource list is refused with the resource named");
	RUN(sorted_map, "amounts are found by name and compared without regard to zeros");
	RUN(protobuf_maps, "a map comes from protobuf and goes back, and bad ones are refused");
	RUN(group_names, "names of placement groups' resources are told from ordinary ones");
	return test_end();
}
