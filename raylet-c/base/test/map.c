/* The hash map. */
#include "raylet-c/base/map.h"

#include "raylet-c/base/test.h"

static rc_view number(int i, char *text)
{
	return rc_view_of(text, (size_t)sprintf(text, "%d", i));
}

static void many(void)
{
	static int values[5000];
	rc_map *m = rc_map_create();
	char text[16];

	for (int i = 0; i < 5000; i++)
		CHECK(rc_map_put(m, number(i, text), &values[i]) == NULL);
	CHECK_EQ_INT(5000, rc_map_count(m));
	for (int i = 0; i < 5000; i++)
		CHECK(rc_map_get(m, number(i, text)) == &values[i]);
	CHECK(rc_map_get(m, rc_view_str("nobody")) == NULL);
	CHECK(rc_map_put(m, number(7, text), &values[8]) == &values[7]);
	CHECK(rc_map_get(m, number(7, text)) == &values[8]);
	CHECK_EQ_INT(5000, rc_map_count(m));
	rc_map_destroy(m);
}

static void churn(void)
{
	rc_map *m = rc_map_create();
	static int value;
	char text[16];

	for (int i = 0; i < 100000; i++) {
		rc_map_put(m, number(i, text), &value);
		if (i >= 10)
			CHECK(rc_map_del(m, number(i - 10, text)) == &value);
	}
	CHECK_EQ_INT(10, rc_map_count(m));
	CHECK(rc_map_del(m, rc_view_str("nobody")) == NULL);
	for (int i = 99990; i < 100000; i++)
		CHECK(rc_map_get(m, number(i, text)) == &value);
	rc_map_destroy(m);
}

static void iterate_and_delete(void)
{
	static int values[300];
	rc_map *m = rc_map_create();
	rc_view key;
	void *value;
	char text[16];
	int seen = 0;

	for (int i = 0; i < 300; i++)
		rc_map_put(m, number(i, text), &values[i]);
	for (size_t i = 0; rc_map_next(m, &i, &key, &value);) {
		seen++;
		CHECK(rc_map_del(m, key) == value);
	}
	CHECK_EQ_INT(300, seen);
	CHECK_EQ_INT(0, rc_map_count(m));
	for (size_t i = 0; rc_map_next(m, &i, &key, &value);)
		CHECK(false);
	rc_map_destroy(m);
}

static void odd_keys(void)
{
	rc_map *m = rc_map_create();
	static int a, b;
	rc_id id = rc_id_nil(RC_NODE_ID);

	CHECK(rc_map_get(m, rc_view_str("")) == NULL);
	rc_map_put(m, (rc_view){ 0 }, &a);
	CHECK(rc_map_get(m, rc_view_str("")) == &a);
	rc_map_put(m, rc_view_of("\0\0", 2), &b);
	CHECK(rc_map_get(m, rc_view_of("\0", 1)) == NULL);
	CHECK(rc_map_get(m, rc_view_of("\0\0", 2)) == &b);
	CHECK(rc_map_put_id(m, &id, &a) == NULL);
	CHECK(rc_map_get_id(m, &id) == &a);
	CHECK(rc_map_del_id(m, &id) == &a);
	rc_map_destroy(m);
	rc_map_destroy(NULL);
}

int main(void)
{
	RUN(many, "thousands of keys are found again, and a second put replaces");
	RUN(churn, "a long run of puts and deletes keeps the map right");
	RUN(iterate_and_delete, "deleting the current entry while iterating misses none");
	RUN(odd_keys, "the empty key and zero bytes are keys like others");
	return test_end();
}
