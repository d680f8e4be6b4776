/* Ids and their hex form. */
#include "raylet-c/base/id.h"

#include "raylet-c/base/test.h"

static void hex_round(void)
{
	rc_id id = rc_id_random(RC_NODE_ID), back;
	rc_id_hex hex = rc_id_to_hex(&id);

	CHECK_EQ_INT(56, strlen(hex.s));
	back = rc_id_from_hex(hex.s);
	CHECK(rc_id_eq(&id, &back));
	back = rc_id_from_hex("0aFF");
	CHECK_EQ_INT(2, back.n);
	CHECK_EQ_INT(0x0a, back.b[0]);
	CHECK_STR("0aff", rc_id_to_hex(&back).s);
}

static void malformed(void)
{
	char longer[2 * RC_ID_MAX + 3];

	memset(longer, 'a', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	CHECK_EQ_INT(0, rc_id_from_hex("abc").n);
	CHECK_EQ_INT(0, rc_id_from_hex("zz").n);
	CHECK_EQ_INT(0, rc_id_from_hex("").n);
	CHECK_EQ_INT(0, rc_id_from_hex(NULL).n);
	CHECK_EQ_INT(0, rc_id_from_hex(longer).n);
	CHECK_EQ_INT(0, rc_id_from(longer, RC_ID_MAX + 1).n);
}

static void nil(void)
{
	rc_id absent = { 0 }, id = rc_id_nil(RC_JOB_ID), other = rc_id_from("\xff\xff\xff\xfe", 4);

	CHECK(rc_id_is_nil(&absent));
	CHECK(rc_id_is_nil(&id));
	CHECK(!rc_id_is_nil(&other));
	CHECK(!rc_id_eq(&absent, &id));
	CHECK_STR("ffffffff", rc_id_to_hex(&id).s);
}

int main(void)
{
	RUN(hex_round, "an id survives its hex form");
	RUN(malformed, "malformed or too long input gives an absent id");
	RUN(nil, "nil is all ones or absent");
	return test_end();
}
