/* Placement-group bundles: any order, any repetition, nothing lost. */
#include "raylet-c/base/log.h"
#include "raylet-c/sched/bundles.h"
#include "raylet-c/sched/test/sched_test.h"

#define A "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a" /* of 18 bytes 10 */

static rc_resources *res;
static rc_bundles *bundles;
static int removed_calls;
static rc_bundle *kept; /* a lease that refuses to end at once */
static rc_allocation *inside;

static void on_removed(void *ctx, rc_bundle *b)
{
	(void)ctx;
	removed_calls++;
	char *name = rc_group_name_make("bundle", &b->id.group, b->id.index);
	CHECK(rc_resources_exists(res, name));
	free(name);
	CHECK(rc_bundle_find(bundles, &b->id) == NULL);
	if (b == kept && inside)
		rc_resources_give_back(res, inside);
}

static void begin(const char *list)
{
	rc_amounts a = amounts_of(list);
	res = rc_resources_create(&a, NULL, NULL);
	bundles = rc_bundles_create(res);
	rc_bundles_on_removed(bundles, on_removed, NULL);
	rc_amounts_free(&a);
	removed_calls = 0;
	kept = NULL;
}

static void end(void)
{
	rc_bundles_destroy(bundles);
	rc_resources_destroy(res);
}

static rc_bundle_id bundle(uint8_t group, int index)
{
	return (rc_bundle_id){ id_of_byte(RC_PG_ID, group), index };
}

static int prepare(uint8_t group, int index, const char *list)
{
	rc_amounts a = amounts_of(list);
	rc_bundle_id id = bundle(group, index);
	int bad = rc_bundle_prepare(bundles, &id, &a, NULL);
	rc_amounts_free(&a);
	return bad;
}

static void commit(uint8_t group, int index)
{
	rc_bundle_id id = bundle(group, index);
	rc_bundle_commit(bundles, &id);
}

static void drop(uint8_t group, int index)
{
	rc_bundle_id id = bundle(group, index);
	rc_bundle_remove(bundles, &id);
}

static void check_available(const char *file, int line, const char *want)
{
	rc_amounts a = { 0 };
	rc_resources_available(res, &a);
	check_amounts_(file, line, want, &a);
	rc_amounts_free(&a);
}
#define CHECK_AVAILABLE(want) check_available(__FILE__, __LINE__, (want))

static void life(void)
{
	begin("CPU,4,GPU,4,memo,1");
	rc_amounts other = amounts_of("GPU,1");
	rc_allocation *first = rc_resources_allocate(res, &other);
	CHECK_EQ_INT(0, prepare(10, 0, "CPU,1,GPU,2"));
	CHECK_AVAILABLE("{CPU: 3, GPU: 1, memo: 1}");
	commit(10, 0);
	CHECK_AVAILABLE("{CPU: 3, CPU_group_0_" A ": 1, CPU_group_" A ": 1, GPU: 1, GPU_group_0_" A ": 2, GPU_group_" A
	                ": 2, bundle_group_0_" A ": 1000, bundle_group_" A ": 1000, memo: 1}");
	/* The group's devices are the ones that were reserved: 1 and 2. */
	rc_amounts want = amounts_of("GPU_group_" A ",1,bundle_group_" A ",0.001");
	rc_allocation *a = rc_resources_allocate(res, &want);
	CHECK(a != NULL);
	for (size_t k = 0; a && k < a->n; k++)
		if (strncmp(a->v[k].name, "GPU", 3) == 0)
			CHECK_EQ_INT(1, a->v[k].slots[0].index);
	rc_bundle_id id = bundle(10, 0);
	CHECK(rc_bundle_of(bundles, a) == rc_bundle_find(bundles, &id));
	CHECK(rc_bundle_of(bundles, first) == NULL);
	rc_resources_free(res, a);
	CHECK_EQ_INT(0, prepare(10, 1, "CPU,1,memo,1"));
	commit(10, 1);
	CHECK_EQ_INT(2000 * RC_Q_ONE, rc_resources_total(res, "bundle_group_" A));
	CHECK(rc_bundles_has_group(bundles, &id.group));
	drop(10, 0);
	CHECK_EQ_INT(1, removed_calls);
	CHECK_AVAILABLE("{CPU: 3, CPU_group_" A ": 1, CPU_group_1_" A ": 1, GPU: 3, bundle_group_" A ": 1000, bundle_group_1_" A
	                ": 1000, memo: 0, memo_group_" A ": 1, memo_group_1_" A ": 1}");
	drop(10, 1);
	CHECK(!rc_bundles_has_group(bundles, &id.group));
	rc_resources_free(res, first);
	CHECK_AVAILABLE("{CPU: 4, GPU: 4, memo: 1}");
	rc_amounts_free(&other);
	rc_amounts_free(&want);
	end();
}

static void repeats(void)
{
	begin("CPU,4");
	commit(10, 0);
	drop(10, 0);
	CHECK_AVAILABLE("{CPU: 4}");
	CHECK_EQ_INT(0, prepare(10, 0, "CPU,3"));
	CHECK_EQ_INT(0, prepare(10, 0, "CPU,3"));
	CHECK_EQ_INT(10000, rc_resources_available_of(res, "CPU"));
	CHECK_EQ_INT(0, prepare(10, 0, "CPU,2")); /* another demand: the earlier is stale */
	CHECK_EQ_INT(20000, rc_resources_available_of(res, "CPU"));
	commit(10, 0);
	commit(10, 0);
	CHECK_EQ_INT(20000, rc_resources_total(res, "CPU_group_" A));
	CHECK_EQ_INT(0, prepare(10, 0, "CPU,2")); /* committed: a late repetition */
	CHECK_EQ_INT(0, prepare(10, 0, "CPU,4"));
	CHECK_EQ_INT(20000, rc_resources_available_of(res, "CPU"));
	drop(10, 0);
	drop(10, 0);
	commit(10, 0); /* late */
	CHECK_AVAILABLE("{CPU: 4}");
	CHECK_EQ_INT(1, removed_calls);
	CHECK_EQ_INT(0, prepare(10, 0, "CPU,4")); /* the same bundle comes back */
	drop(10, 0); /* while prepared: nobody is inside, nobody is told */
	CHECK_EQ_INT(1, removed_calls);
	CHECK_AVAILABLE("{CPU: 4}");
	end();
}

static void held_until_the_last_lease_ends(void)
{
	begin("CPU,2,GPU,1");
	CHECK_EQ_INT(0, prepare(10, 0, "GPU,1,CPU,1"));
	commit(10, 0);
	rc_amounts want = amounts_of("GPU_group_" A ",1,CPU_group_" A ",1");
	inside = rc_resources_allocate(res, &want);
	rc_bundle *old = kept = rc_bundle_of(bundles, inside);
	rc_bundle_ref(old);
	drop(10, 0);
	CHECK_AVAILABLE("{CPU: 1, GPU: 0}"); /* its worker may still use the device */
	CHECK(prepare(10, 0, "GPU,1") < 0);
	CHECK_EQ_INT(0, prepare(10, 0, "CPU,1")); /* the id may come back meanwhile */
	commit(10, 0);
	CHECK_AVAILABLE("{CPU: 0, CPU_group_0_" A ": 1, CPU_group_" A ": 1, GPU: 0, bundle_group_0_" A ": 1000, bundle_group_" A ": 1000}");
	rc_resources_free(res, inside);
	inside = NULL;
	rc_bundle_unref(bundles, old);
	CHECK_EQ_INT(10000, rc_resources_available_of(res, "GPU"));
	CHECK_EQ_INT(10000, rc_resources_available_of(res, "CPU_group_" A));
	drop(10, 0);
	CHECK_AVAILABLE("{CPU: 2, GPU: 1}");
	rc_amounts_free(&want);
	end();
}

/* Requests on the wire. */
typedef struct request {
	Rw__Bundle b[4], *list[4];
	Rw__BundleBundleIdentifier id[4];
	rc_id group;
	rc_amounts amounts[4];
	rc_amount_map map[4];
} request;

static request *make_request(uint8_t group, size_t n, const char *const *lists)
{
	request *q = rc_alloc(sizeof(*q));
	q->group = id_of_byte(RC_PG_ID, group);
	for (size_t i = 0; i < n; i++) {
		rw__bundle__init(&q->b[i]);
		rw__bundle__bundle_identifier__init(&q->id[i]);
		RC_SET_ID(q->id[i], placement_group_id, &q->group);
		RC_SET(q->id[i], bundle_index, (int)i);
		q->b[i].bundle_id = &q->id[i];
		q->amounts[i] = amounts_of(lists[i]);
		q->map[i] = rc_amount_map_make(&q->amounts[i]);
		q->b[i].unit_resources = q->map[i].v;
		q->b[i].n_unit_resources = q->map[i].n;
		q->list[i] = &q->b[i];
	}
	return q;
}

static void free_request(request *q)
{
	for (size_t i = 0; i < 4; i++) {
		rc_amount_map_free(&q->map[i]);
		rc_amounts_free(&q->amounts[i]);
	}
	free(q);
}

static void all_or_none(void)
{
	begin("CPU,4");
	rc_error e = { 0 };
	request *q = make_request(10, 3, (const char *const[]){ "CPU,1", "CPU,2", "CPU,2" });
	CHECK(rc_bundles_prepare(bundles, q->list, 3, &e) < 0);
	CHECK_EQ_INT(RC_E_NO_MEMORY, e.code);
	CHECK_STR("bundle 2 of " A ": {CPU: 2} is not free", e.text);
	CHECK_AVAILABLE("{CPU: 4}");
	CHECK_EQ_INT(0, rc_bundles_prepare(bundles, q->list, 2, &e));
	rc_bundles_commit(bundles, q->list, 3); /* one of them was never prepared */
	CHECK_EQ_INT(30000, rc_resources_total(res, "CPU_group_" A));
	/* A head that came back uses only one of them. */
	CHECK_EQ_INT(0, prepare(11, 0, "CPU,1"));
	rc_bundles_keep_only(bundles, q->list, 1);
	CHECK_EQ_INT(1, rc_bundles_count(bundles));
	CHECK_EQ_INT(10000, rc_resources_total(res, "CPU_group_" A));
	CHECK_EQ_INT(30000, rc_resources_available_of(res, "CPU"));
	rc_bundles_remove(bundles, q->list, 3);
	CHECK_AVAILABLE("{CPU: 4}");
	/* Malformed. */
	q->id[0].has_placement_group_id = 0;
	CHECK(rc_bundles_prepare(bundles, q->list, 1, &e) < 0);
	CHECK_STR("bundle: the placement group id has 0 bytes, not 18", e.text);
	q->b[0].bundle_id = NULL;
	CHECK(rc_bundles_prepare(bundles, q->list, 1, &e) < 0);
	rc_bundles_commit(bundles, q->list, 1);
	rc_bundles_remove(bundles, q->list, 1);
	q->map[1].v[0]->value = -1;
	CHECK(rc_bundles_prepare(bundles, q->list + 1, 1, &e) < 0);
	CHECK_EQ_INT(RC_E_INVALID, e.code);
	CHECK_AVAILABLE("{CPU: 4}");
	free_request(q);
	end();
}

static void drains(void)
{
	begin("CPU,4");
	rc_bundle_id id = bundle(10, 1);
	rc_amounts a = amounts_of("CPU,1");
	rc_error e = { 0 };
	CHECK_EQ_INT(0, prepare(10, 0, "CPU,1"));
	rc_bundles_set_draining(bundles, true);
	CHECK(rc_bundle_prepare(bundles, &id, &a, &e) < 0);
	CHECK_EQ_INT(RC_E_UNAVAILABLE, e.code);
	commit(10, 0); /* prepared before */
	CHECK_EQ_INT(10000, rc_resources_total(res, "CPU_group_0_" A));
	drop(10, 0);
	CHECK_AVAILABLE("{CPU: 4}");
	rc_amounts_free(&a);
	end();
}

static void random_order(void)
{
	begin("CPU,8,GPU,4");
	enum { USERS = 8 };
	struct {
		rc_allocation *a;
		rc_bundle *b;
	} user[USERS] = { 0 };
	for (int step = 0; step < 30000 && !test_bad_; step++) {
		uint8_t group = (uint8_t)(10 + test_random(3));
		int index = (int)test_random(3);
		static const char *const lists[] = { "CPU,1", "CPU,2,GPU,1", "GPU,0.5", "CPU,0.5,GPU,2" };
		size_t k = test_random(USERS);
		switch (test_random(6)) {
		case 0:
		case 1:
			(void)prepare(group, index, lists[test_random(4)]);
			break;
		case 2:
			commit(group, index);
			break;
		case 3: {
			/* Give back what leases inside hold, as the lease manager does. */
			rc_bundle_id id = bundle(group, index);
			rc_bundle *b = rc_bundle_find(bundles, &id);
			for (size_t i = 0; b && b->state == RC_BUNDLE_COMMITTED && i < USERS; i++)
				if (user[i].b == b)
					rc_resources_give_back(res, user[i].a);
			drop(group, index);
			break;
		}
		case 4:
			if (!user[k].a) {
				rc_id id = id_of_byte(RC_PG_ID, group);
				char *name = rc_group_name_make("bundle", &id, test_random(2) ? -1 : index);
				rc_amounts d = { 0 };
				rc_amounts_set(&d, name, 10);
				user[k].a = rc_resources_allocate(res, &d);
				if (user[k].a) {
					user[k].b = rc_bundle_of(bundles, user[k].a);
					CHECK(user[k].b != NULL);
					rc_bundle_ref(user[k].b);
				}
				rc_amounts_free(&d);
				free(name);
			}
			break;
		default:
			if (user[k].a) {
				rc_resources_free(res, user[k].a);
				rc_bundle_unref(bundles, user[k].b);
				user[k].a = NULL;
				user[k].b = NULL;
			}
			break;
		}
		CHECK(rc_resources_available_of(res, "CPU") >= 0);
		CHECK(rc_resources_available_of(res, "GPU") >= 0);
	}
	for (uint8_t group = 10; group < 13; group++)
		for (int index = 0; index < 3; index++) {
			rc_bundle_id id = bundle(group, index);
			rc_bundle *b = rc_bundle_find(bundles, &id);
			for (size_t i = 0; b && i < USERS; i++)
				if (user[i].b == b)
					rc_resources_give_back(res, user[i].a);
			drop(group, index);
		}
	for (size_t k = 0; k < USERS; k++)
		if (user[k].a) {
			rc_resources_free(res, user[k].a);
			rc_bundle_unref(bundles, user[k].b);
		}
	CHECK_AVAILABLE("{CPU: 8, GPU: 4}");
	CHECK(rc_resources_idle(res));
	end();
}

int main(void)
{
	rc_log_level(RC_ERROR);
	RUN(life, "a bundle is prepared, published under the group's names with its devices, and returned");
	RUN(repeats, "prepare, commit and remove may be repeated and come in any order");
	RUN(held_until_the_last_lease_ends, "what a removed bundle held returns when the last lease inside has ended");
	RUN(all_or_none, "a request prepares all of its bundles or none, and bad ones change nothing");
	RUN(drains, "a draining node prepares nothing new");
	RUN(random_order, "30000 random steps lose nothing");
	return test_end();
}
