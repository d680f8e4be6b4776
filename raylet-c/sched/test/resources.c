/* Resources of a node, with a random test against a slow model. */
#include "raylet-c/sched/resources.h"
#include "raylet-c/sched/test/sched_test.h"

static uint64_t clock_ms = 1000;
static int changes;

static uint64_t fake_now(void)
{
	return clock_ms;
}

static void changed(void *ctx)
{
	(void)ctx;
	changes++;
}

static rc_resources *node(const char *list)
{
	rc_amounts a = amounts_of(list);
	rc_error e = { 0 };
	rc_resources_options o = { .changed = changed, .now_ms = fake_now };
	rc_resources *r = rc_resources_create(&a, &o, &e);
	if (!r)
		test_fail_(__FILE__, __LINE__, e.text);
	rc_amounts_free(&a);
	return r;
}

static rc_allocation *take(rc_resources *r, const char *list)
{
	rc_amounts d = amounts_of(list);
	bool fits = rc_resources_fits(r, &d);
	uint64_t version = rc_resources_version(r);
	rc_allocation *a = rc_resources_allocate(r, &d);
	CHECK_EQ_INT(fits, a != NULL);
	if (!a || a->n == 0)
		CHECK_EQ_INT(version, rc_resources_version(r));
	else
		CHECK(rc_resources_version(r) > version);
	rc_amounts_free(&d);
	return a;
}

static bool feasible(rc_resources *r, const char *list)
{
	rc_amounts d = amounts_of(list);
	bool yes = rc_resources_feasible(r, &d);
	rc_amounts_free(&d);
	return yes;
}

/* "GPU:1=1,3=1 CPU:0=2" */
static void check_grants(const char *file, int line, const char *want, const rc_allocation *a)
{
	rc_buf b = { 0 };
	for (size_t k = 0; a && k < a->n; k++) {
		rc_buf_printf(&b, "%s%s:", k ? " " : "", a->v[k].name);
		for (size_t i = 0; i < a->v[k].n; i++)
			rc_buf_printf(&b, "%s%u=%.15g", i ? "," : "", a->v[k].slots[i].index, rc_q_double(a->v[k].slots[i].q));
	}
	test_str_(file, line, "grants", want, a ? rc_buf_cstr(&b) : NULL);
	rc_buf_free(&b);
}
#define CHECK_GRANTS(want, a) check_grants(__FILE__, __LINE__, (want), (a))

static void check_available(const char *file, int line, const char *want, const rc_resources *r)
{
	rc_amounts a = { 0 };
	rc_resources_available(r, &a);
	check_amounts_(file, line, want, &a);
	rc_amounts_free(&a);
}
#define CHECK_AVAILABLE(want, r) check_available(__FILE__, __LINE__, (want), (r))

static void whole_devices(void)
{
	rc_resources *r = node("CPU,4,GPU,4");
	rc_allocation *a = take(r, "GPU,2,CPU,1.5"), *b = take(r, "GPU,1");
	CHECK_GRANTS("CPU:0=1.5 GPU:0=1,1=1", a);
	CHECK_GRANTS("GPU:2=1", b);
	CHECK(!take(r, "GPU,2"));
	CHECK(!take(r, "GPU,1,CPU,3"));
	CHECK_AVAILABLE("{CPU: 2.5, GPU: 1}", r);
	rc_resources_free(r, a);
	a = take(r, "GPU,3");
	CHECK_GRANTS("GPU:0=1,1=1,3=1", a);
	CHECK_AVAILABLE("{CPU: 4, GPU: 0}", r);
	rc_resources_free(r, a);
	rc_resources_free(r, b);
	CHECK_AVAILABLE("{CPU: 4, GPU: 4}", r);
	rc_resources_destroy(r);
}

static void fractions(void)
{
	rc_resources *r = node("GPU,2");
	rc_allocation *half = take(r, "GPU,0.5"), *quarter, *other, *whole;
	CHECK_GRANTS("GPU:0=0.5", half);
	whole = take(r, "GPU,1");
	CHECK_GRANTS("GPU:1=1", whole);
	quarter = take(r, "GPU,0.25");
	CHECK_GRANTS("GPU:0=0.25", quarter);
	rc_resources_free(r, whole);
	other = take(r, "GPU,0.25"); /* the fuller device, though the other is free */
	CHECK_GRANTS("GPU:0=0.25", other);
	CHECK(!take(r, "GPU,1.5"));
	CHECK(!feasible(r, "GPU,1.5"));
	CHECK(!feasible(r, "GPU,3"));
	CHECK(feasible(r, "GPU,2"));
	CHECK(!take(r, "GPU,2"));
	rc_resources_free(r, half);
	rc_resources_free(r, quarter);
	rc_resources_free(r, other);
	CHECK(rc_resources_idle(r));
	rc_resources_destroy(r);
}

static void plain_fractions(void)
{
	rc_resources *r = node("CPU,1,memo,1");
	rc_allocation *v[10];
	for (int i = 0; i < 10; i++)
		CHECK((v[i] = take(r, "CPU,0.1,memo,0.1")) != NULL);
	CHECK(!take(r, "CPU,0.0001"));
	CHECK_AVAILABLE("{CPU: 0, memo: 0}", r);
	CHECK(!feasible(r, "nothing,1"));
	for (int i = 0; i < 10; i++)
		rc_resources_free(r, v[i]);
	CHECK_AVAILABLE("{CPU: 1, memo: 1}", r);
	rc_allocation *none = take(r, "CPU,0");
	CHECK(none && none->n == 0);
	rc_resources_free(r, none);
	rc_resources_free(r, NULL);
	rc_resources_destroy(r);
}

static void unit_names(void)
{
	rc_amounts a = amounts_of("TPU,4,NPU,2,mine,2");
	rc_error e = { 0 };
	rc_resources *r = rc_resources_create(&a, &(rc_resources_options){ .unit_instances = "GPU,mine" }, &e);
	rc_allocation *x = take(r, "mine,1"), *y = take(r, "mine,1"), *z = take(r, "TPU,1.5");
	CHECK_GRANTS("mine:0=1", x);
	CHECK_GRANTS("mine:1=1", y);
	CHECK_GRANTS("TPU:0=1.5", z);
	rc_resources_free(r, x);
	rc_resources_free(r, y);
	rc_resources_free(r, z);
	rc_resources_destroy(r);
	rc_amounts_free(&a);
	a = amounts_of("GPU,1.5");
	CHECK(!rc_resources_create(&a, NULL, &e));
	CHECK_STR("resources: GPU is 1.5; it is counted in whole devices, at most 10000", e.text);
	rc_amounts_free(&a);
	r = node("TPU,2,GPU,0");
	x = take(r, "TPU,2");
	CHECK_GRANTS("TPU:0=1,1=1", x);
	CHECK(!take(r, "GPU,0.5"));
	rc_resources_free(r, x);
	rc_resources_destroy(r);
}

static void lends_cpu(void)
{
	rc_resources *r = node("CPU,2,GPU,1");
	rc_allocation *a = take(r, "CPU,2,GPU,1"), *b;
	CHECK(!take(r, "CPU,1"));
	rc_resources_lend_cpu(r, a);
	rc_resources_lend_cpu(r, a);
	CHECK_AVAILABLE("{CPU: 2, GPU: 0}", r);
	b = take(r, "CPU,1.5");
	rc_resources_retake_cpu(r, a);
	rc_resources_retake_cpu(r, a);
	CHECK_EQ_INT(-15000, rc_resources_available_of(r, "CPU"));
	CHECK_AVAILABLE("{CPU: 0, GPU: 0}", r);
	CHECK(!take(r, "CPU,0.1"));
	rc_resources_free(r, b);
	CHECK_EQ_INT(0, rc_resources_available_of(r, "CPU"));
	rc_resources_lend_cpu(r, a); /* ends while it lends */
	rc_resources_free(r, a);
	CHECK_AVAILABLE("{CPU: 2, GPU: 1}", r);
	CHECK(rc_resources_idle(r));
	rc_resources_destroy(r);
}

#define G "00112233445566778899aabbccddeeff0011"

static void groups(void)
{
	rc_resources *r = node("CPU,4,GPU,3");
	rc_q first[] = { RC_Q_ONE }, second[] = { 0, RC_Q_ONE, RC_Q_ONE }, cpu[] = { 2 * RC_Q_ONE };
	rc_resources_add(r, "GPU_group_0_" G, first, 1);
	rc_resources_add(r, "GPU_group_" G, first, 1);
	rc_resources_add(r, "CPU_group_0_" G, cpu, 1);
	rc_resources_add(r, "CPU_group_" G, cpu, 1);
	rc_resources_add(r, "GPU_group_1_" G, second, 3);
	rc_resources_add(r, "GPU_group_" G, second, 3);
	/* The wildcard is met out of the bundle that has it all. */
	rc_allocation *a = take(r, "GPU_group_" G ",2");
	CHECK_GRANTS("GPU_group_1_" G ":1=1,2=1 GPU_group_" G ":1=1,2=1", a);
	rc_allocation *b = take(r, "GPU_group_" G ",0.5,CPU_group_" G ",1");
	CHECK_GRANTS("CPU_group_0_" G ":0=1 CPU_group_" G ":0=1 GPU_group_0_" G ":0=0.5 GPU_group_" G ":0=0.5", b);
	CHECK(!take(r, "GPU_group_" G ",1"));
	rc_resources_free(r, a);
	/* With a bundle's own name, its devices and the same of the wildcard. */
	a = take(r, "GPU_group_" G ",1,GPU_group_1_" G ",1");
	CHECK_GRANTS("GPU_group_1_" G ":1=1 GPU_group_" G ":1=1", a);
	/* Never out of two bundles. */
	CHECK(!take(r, "GPU_group_1_" G ",1,CPU_group_1_" G ",1"));
	CHECK(!take(r, "GPU_group_1_" G ",1,CPU_group_0_" G ",1"));
	CHECK(!feasible(r, "GPU_group_" G ",3"));
	CHECK(!feasible(r, "GPU_group_" G ",2,CPU_group_" G ",1"));
	CHECK(feasible(r, "GPU_group_" G ",1,CPU_group_" G ",2"));
	CHECK(!feasible(r, "CPU_group_1111111111111111111111111111111111ff,1"));
	rc_resources_lend_cpu(r, b);
	CHECK_EQ_INT(20000, rc_resources_available_of(r, "CPU_group_" G));
	CHECK_EQ_INT(20000, rc_resources_available_of(r, "CPU_group_0_" G));
	rc_resources_free(r, a);
	rc_resources_free(r, b);
	rc_resources_subtract(r, "GPU_group_1_" G, second, 3);
	rc_resources_subtract(r, "GPU_group_" G, second, 3);
	CHECK(!rc_resources_exists(r, "GPU_group_1_" G));
	CHECK_EQ_INT(10000, rc_resources_total(r, "GPU_group_" G));
	rc_resources_subtract(r, "GPU_group_0_" G, first, 1);
	rc_resources_subtract(r, "GPU_group_" G, first, 1);
	rc_resources_subtract(r, "CPU_group_0_" G, cpu, 1);
	rc_resources_subtract(r, "CPU_group_" G, cpu, 1);
	rc_resources_subtract(r, "CPU_group_" G, cpu, 1); /* once too often */
	CHECK_AVAILABLE("{CPU: 4, GPU: 3}", r);
	rc_resources_destroy(r);
}

static void implicit(void)
{
	rc_resources *r = node("CPU,1");
	const char *name = "node:__internal_implicit_resource_x,0.5";
	rc_allocation *a = take(r, name), *b = take(r, name);
	CHECK(a && b && !take(r, name));
	CHECK(feasible(r, name));
	CHECK(!feasible(r, "node:__internal_implicit_resource_x,1.5"));
	rc_resources_free(r, a);
	rc_resources_free(r, b);
	CHECK_AVAILABLE("{CPU: 1}", r);
	rc_resources_destroy(r);
}

static void resizes(void)
{
	rc_resources *r = node("CPU,4,GPU,1,object_store_memory,1000");
	rc_error e = { 0 };
	rc_allocation *a = take(r, "CPU,3");
	CHECK(rc_resources_resize(r, "CPU", 2 * RC_Q_ONE, &e) == 0); /* not below what is in use */
	CHECK_EQ_INT(30000, rc_resources_total(r, "CPU"));
	CHECK_EQ_INT(0, rc_resources_available_of(r, "CPU"));
	CHECK(rc_resources_resize(r, "CPU", 6 * RC_Q_ONE, &e) == 0);
	CHECK_EQ_INT(30000, rc_resources_available_of(r, "CPU"));
	CHECK(rc_resources_resize(r, "new", 5000, &e) == 0);
	CHECK_EQ_INT(5000, rc_resources_available_of(r, "new"));
	CHECK(rc_resources_resize(r, "GPU", 2 * RC_Q_ONE, &e) < 0);
	CHECK(strstr(e.text, "Cannot resize unit instance resource 'GPU'") == e.text);
	rc_resources_free(r, a);
	CHECK_EQ_INT(60000, rc_resources_available_of(r, "CPU"));
	changes = 0;
	rc_resources_set_store_used(r, 400);
	rc_resources_set_store_used(r, 400);
	CHECK_EQ_INT(1, changes);
	CHECK_EQ_INT(600 * 10000, rc_resources_available_of(r, "object_store_memory"));
	CHECK(rc_resources_utilization(r) > 0.399 && rc_resources_utilization(r) < 0.401);
	CHECK(rc_resources_idle(r));
	rc_resources_set_store_used(r, UINT64_MAX);
	CHECK_EQ_INT(0, rc_resources_available_of(r, "object_store_memory"));
	rc_resources_destroy(r);
}

static void idleness(void)
{
	clock_ms = 5000;
	rc_resources *r = node("CPU,2,GPU,1");
	clock_ms = 5100;
	CHECK_EQ_INT(100, rc_resources_idle_ms(r));
	rc_allocation *a = take(r, "CPU,1");
	CHECK(!take(r, "CPU,2"));
	clock_ms = 5200;
	CHECK_EQ_INT(0, rc_resources_idle_ms(r));
	rc_resources_mark(r, RC_BUSY_WORKERS, true);
	rc_resources_free(r, a);
	clock_ms = 5300;
	CHECK_EQ_INT(0, rc_resources_idle_ms(r));
	const char *const *activity;
	CHECK_EQ_INT(1, rc_resources_activity(r, &activity));
	CHECK_STR("Busy workers on node.", activity[0]);
	rc_resources_mark(r, RC_BUSY_WORKERS, false);
	clock_ms = 5450;
	CHECK_EQ_INT(150, rc_resources_idle_ms(r));
	CHECK(!take(r, "CPU,1,GPU,2")); /* a failed attempt and a question are no activity */
	rc_amounts d = amounts_of("CPU,1");
	CHECK(rc_resources_fits(r, &d));
	rc_amounts_free(&d);
	CHECK_EQ_INT(150, rc_resources_idle_ms(r));
	CHECK_EQ_INT(0, rc_resources_activity(r, &activity));
	a = take(r, "GPU,1");
	CHECK_EQ_INT(1, rc_resources_activity(r, &activity));
	CHECK_STR("Resource: GPU currently in use.", activity[0]);
	rc_resources_free(r, a);
	CHECK_EQ_INT(0, rc_resources_idle_ms(r));
	rc_resources_destroy(r);
}

/* ---- against a model: two vectors and the rules said in the slowest way ---- */

enum { CPUS = 5, GPUS = 6, LIVE = 12, STEPS = 60000 };

typedef struct model {
	rc_q cpu, gpu[GPUS];
} model;

static bool model_take(model *m, rc_q cpu, rc_q gpu, rc_q slots[GPUS])
{
	memset(slots, 0, GPUS * sizeof(*slots));
	if ((cpu && m->cpu < cpu) || (gpu > RC_Q_ONE && gpu % RC_Q_ONE))
		return false;
	if (gpu >= RC_Q_ONE) {
		rc_q want = gpu;
		for (int i = 0; i < GPUS && want; i++)
			if (m->gpu[i] == RC_Q_ONE) {
				slots[i] = RC_Q_ONE;
				want -= RC_Q_ONE;
			}
		if (want)
			return false;
	} else if (gpu > 0) {
		int best = -1;
		for (rc_q room = gpu; room <= RC_Q_ONE && best < 0; room++)
			for (int i = 0; i < GPUS && best < 0; i++)
				if (m->gpu[i] == room)
					best = i;
		if (best < 0)
			return false;
		slots[best] = gpu;
	}
	m->cpu -= cpu;
	for (int i = 0; i < GPUS; i++)
		m->gpu[i] -= slots[i];
	return true;
}

static void random_against_model(void)
{
	rc_resources *r = node("CPU,5,GPU,6");
	model m = { CPUS * RC_Q_ONE, { 0 } };
	for (int i = 0; i < GPUS; i++)
		m.gpu[i] = RC_Q_ONE;
	struct {
		rc_allocation *a;
		rc_q cpu, slots[GPUS];
		bool lent;
	} live[LIVE] = { 0 };
	for (int step = 0; step < STEPS && !test_bad_; step++) {
		size_t k = test_random(LIVE);
		if (!live[k].a) {
			static const rc_q gpu_demands[] = { 0, 0, 10000, 20000, 30000, 5000, 2500, 3333, 1, 15000 };
			rc_q cpu = (rc_q)test_random(3) * 7500, gpu = gpu_demands[test_random(10)], slots[GPUS];
			rc_amounts d = { 0 };
			rc_amounts_set(&d, "CPU", cpu);
			rc_amounts_set(&d, "GPU", gpu);
			bool fits = rc_resources_fits(r, &d);
			rc_allocation *a = rc_resources_allocate(r, &d);
			rc_amounts_free(&d);
			bool want = model_take(&m, cpu, gpu, slots);
			CHECK_EQ_INT(want, a != NULL);
			CHECK_EQ_INT(fits, a != NULL);
			if (!a)
				continue;
			live[k].a = a;
			live[k].cpu = cpu;
			live[k].lent = false;
			memcpy(live[k].slots, slots, sizeof(slots));
			for (size_t i = 0; i < a->n; i++)
				if (strcmp(a->v[i].name, "GPU") == 0)
					for (size_t s = 0; s < a->v[i].n; s++)
						CHECK_EQ_INT(slots[a->v[i].slots[s].index], a->v[i].slots[s].q);
		} else if (test_random(3) == 0) {
			bool lend = test_random(2);
			if (lend != live[k].lent)
				m.cpu += lend ? live[k].cpu : -live[k].cpu;
			live[k].lent = lend;
			lend ? rc_resources_lend_cpu(r, live[k].a) : rc_resources_retake_cpu(r, live[k].a);
		} else {
			m.cpu += live[k].lent ? 0 : live[k].cpu;
			for (int i = 0; i < GPUS; i++)
				m.gpu[i] += live[k].slots[i];
			rc_resources_free(r, live[k].a);
			live[k].a = NULL;
		}
		rc_q gpu = 0;
		for (int i = 0; i < GPUS; i++)
			gpu += m.gpu[i];
		CHECK_EQ_INT(m.cpu, rc_resources_available_of(r, "CPU"));
		CHECK_EQ_INT(gpu, rc_resources_available_of(r, "GPU"));
		CHECK_EQ_INT(m.cpu == CPUS * RC_Q_ONE && gpu == GPUS * RC_Q_ONE, rc_resources_idle(r));
	}
	for (size_t k = 0; k < LIVE; k++)
		rc_resources_free(r, live[k].a);
	CHECK_AVAILABLE("{CPU: 5, GPU: 6}", r);
	CHECK(rc_resources_idle(r));
	rc_resources_destroy(r);
}

int main(void)
{
	RUN(whole_devices, "whole demands take whole free devices, lowest first, and give them back");
	RUN(fractions, "a fraction takes the fullest device that fits, and more than one device is taken whole");
	RUN(plain_fractions, "plain resources are one amount and exhausted ones stay listed");
	RUN(unit_names, "which resources are counted in devices is configurable");
	RUN(lends_cpu, "a blocked worker lends its CPU, and taking it back may go below zero");
	RUN(groups, "a group's wildcard is met out of one bundle, at the same devices");
	RUN(implicit, "an implicit resource is there without being listed");
	RUN(resizes, "a resize keeps what is in use, and the store's use is no activity");
	RUN(idleness, "idle time counts from the end of the last activity");
	RUN(random_against_model, "60000 random steps agree with a slow model");
	return test_end();
}
