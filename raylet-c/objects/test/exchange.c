/* What nodes of ours say to each other: written, read, cut at every place, damaged at random. */
#include "raylet-c/objects/exchange.h"

#include <stdlib.h>

#include "raylet-c/base/test.h"

typedef struct any {
	int kind;
	rc__om_ask ask;
	rc__om_answer answer;
	rc__om_keep keep;
	rc__om_kept kept;
} any;

static int read_any(any *a, rc_view bytes)
{
	rc_error e;

	switch (a->kind) {
	case 0:
		return rc__om_ask_read(bytes, &a->ask, &e);
	case 1:
		return rc__om_answer_read(bytes, &a->answer, &e);
	case 2:
		return rc__om_keep_read(bytes, &a->keep, &e);
	default:
		return rc__om_kept_read(bytes, &a->kept, &e);
	}
}

static void write_any(const any *a, rc_buf *out)
{
	switch (a->kind) {
	case 0:
		rc__om_ask_write(&a->ask, out);
		break;
	case 1:
		rc__om_answer_write(&a->answer, out);
		break;
	case 2:
		rc__om_keep_write(&a->keep, out);
		break;
	default:
		rc__om_kept_write(&a->kept, out);
	}
}

static rc_fabric_offer offer(void)
{
	return (rc_fabric_offer){ .provider = "net", .place = "0123456789abcdef", .protocol = 25, .protocol_version = 3 };
}

static void fill(any *a, int which)
{
	memset(a, 0, sizeof *a);
	a->ask = (rc__om_ask){ .from = { .cluster = "c1c1", .node = rc_id_random(RC_NODE_ID) }, .object = rc_id_random(RC_OBJECT_ID),
	                       .fabric = RC__OM_FABRIC_KNOWN, .n_offers = 2, .offers = { offer(), offer() } };
	a->answer = (rc__om_answer){ .data_size = 9, .metadata_size = 2, .owner = { .ip = "10.0.0.7", .port = 1234 } };
	a->answer.owner.node_id = rc_id_random(RC_NODE_ID);
	a->keep.from = a->ask.from;
	switch (which) {
	case 0:
		a->kind = 0;
		break;
	case 1:
		a->kind = 1;
		a->answer.kind = RC__OM_INLINE;
		a->answer.bytes = rc_view_str("hello, wide");
		break;
	case 2:
		a->kind = 1;
		a->answer.kind = RC__OM_GRANTED;
		a->answer.grant = 77;
		a->answer.offer = offer();
		a->answer.address = rc_view_str("an address");
		a->answer.remote = (rc_remote){ .key = UINT64_MAX, .base = 1ull << 47 };
		break;
	case 3:
		a->kind = 1;
		a->answer.kind = RC__OM_PUSHED;
		break;
	case 4:
		a->kind = 2;
		a->keep.end = true;
		a->keep.n = 3;
		a->keep.grants[2] = 1ull << 60;
		break;
	default:
		a->kind = 3;
		a->kept.n = 3;
		a->kept.here[1] = true;
	}
}

enum { KINDS = 6 };
static any one, two;

static void round_trip(void)
{
	for (int i = 0; i < KINDS; i++) {
		rc_buf a = { 0 }, b = { 0 };

		fill(&one, i);
		write_any(&one, &a);
		two.kind = one.kind;
		CHECK_EQ_INT(0, read_any(&two, rc_view_of(a.p, a.n)));
		write_any(&two, &b);
		CHECK(rc_view_eq(rc_view_of(a.p, a.n), rc_view_of(b.p, b.n)));
		if (i == 2) {
			CHECK(two.answer.remote.key == UINT64_MAX && two.answer.remote.base == 1ull << 47);
			CHECK(rc_fabric_same(&two.answer.offer, &one.answer.offer));
			CHECK(rc_id_eq(&two.answer.owner.node_id, &one.answer.owner.node_id));
			CHECK_STR("10.0.0.7", two.answer.owner.ip);
		}
		rc_buf_free(&a);
		rc_buf_free(&b);
	}
}

static void cut(void)
{
	for (int i = 0; i < KINDS; i++) {
		rc_buf a = { 0 };

		fill(&one, i);
		write_any(&one, &a);
		two.kind = one.kind;
		for (size_t n = 0; n < a.n; n++) {
			uint8_t *exact = rc_alloc(n + 1); /* a sanitizer sees a byte too far */

			memcpy(exact, a.p, n);
			CHECK_EQ_INT(-1, read_any(&two, rc_view_of(exact, n)));
			free(exact);
		}
		rc_buf_str(&a, "x");
		CHECK_EQ_INT(-1, read_any(&two, rc_view_of(a.p, a.n)));
		rc_buf_free(&a);
	}
}

/* Whatever is read must be written the same again. */
static void damaged(void)
{
	srand(5);
	for (int i = 0; i < 60000; i++) {
		rc_buf a = { 0 }, b = { 0 };

		fill(&one, i % KINDS);
		write_any(&one, &a);
		for (int k = rand() % 4; k >= 0; k--)
			a.p[(size_t)rand() % a.n] = (uint8_t)(rand() % 3 ? rand() : rand() % 4);
		two.kind = one.kind;
		if (read_any(&two, rc_view_of(a.p, a.n)) == 0) {
			write_any(&two, &b);
			CHECK(rc_view_eq(rc_view_of(a.p, a.n), rc_view_of(b.p, b.n)));
		}
		rc_buf_free(&a);
		rc_buf_free(&b);
	}
}

int main(void)
{
	RUN(round_trip, "each message is read as it was written");
	RUN(cut, "a message cut anywhere, or longer, is refused");
	RUN(damaged, "damaged messages harm nothing");
	return test_end();
}
