/* The head of Push messages: cut at every place, damaged at random, in both releases' numbers. */
#include "raylet-c/objects/internal.h"

#include <stdlib.h>

#include "raylet-c/base/test.h"

static const char *const releases[] = { "2.35.0", "2.60.0" };

static rc__om_chunk example(void)
{
	rc__om_chunk c = { .object = rc_id_random(RC_OBJECT_ID), .node = rc_id_random(RC_NODE_ID), .index = 3, .data_size = 345,
	                   .metadata_size = 5, .n = 45 };

	c.owner = (rc_owner){ .node_id = rc_id_random(RC_NODE_ID), .worker_id = rc_id_random(RC_WORKER_ID), .ip = "10.0.0.7", .port = 1234 };
	return c;
}

static rc_buf message(const rc_dialect *d, const rc__om_push_fields *f, const rc__om_chunk *c)
{
	rc_id push = rc_id_random(RC_NODE_ID);
	rc_buf b = { 0 };

	rc__om_chunk_head(d, f, &push, c, &b);
	for (size_t i = 0; i < c->n; i++)
		rc_buf_add(&b, &(uint8_t){ (uint8_t)(i * 7) }, 1);
	return b;
}

static void same_numbers(void)
{
	for (int r = 0; r < 2; r++) {
		rc__om_push_fields f;

		rc__om_push_fields_find(rc_dialect_find(releases[r], NULL), &f);
		CHECK_EQ_INT(1, f.push_id);
		CHECK_EQ_INT(2, f.object_id);
		CHECK_EQ_INT(3, f.node_id);
		CHECK_EQ_INT(4, f.owner_address);
		CHECK_EQ_INT(5, f.chunk_index);
		CHECK_EQ_INT(6, f.data_size);
		CHECK_EQ_INT(7, f.metadata_size);
		CHECK_EQ_INT(8, f.data);
	}
}

static void agrees_with_protobuf(void)
{
	for (int r = 0; r < 2; r++) {
		const rc_dialect *d = rc_dialect_find(releases[r], NULL);
		rc__om_push_fields f;
		rc__om_chunk c = example();
		Rw__PushRequest *m;
		rc_buf b;

		rc__om_push_fields_find(d, &f);
		b = message(d, &f, &c);
		m = rc_unpack(d, &rw__push_request__descriptor, rc_view_of(b.p, b.n));
		CHECK(m != NULL);
		CHECK_EQ_INT(28, m->push_id.len);
		CHECK_EQ_INT(3, m->chunk_index);
		CHECK_EQ_INT(345, m->data_size);
		CHECK_EQ_INT(5, m->metadata_size);
		CHECK_EQ_INT(45, m->data.len);
		CHECK_EQ_INT(7, m->data.data[1]);
		CHECK_STR("10.0.0.7", m->owner_address->ip_address);
		rc_free_message(m);
		rc_buf_free(&b);
	}
}

static void check_same(const rc__om_chunk *want, const rc__om_chunk *got, const rc_view *pieces)
{
	size_t piece = got->piece, offset = got->offset;

	CHECK(rc_id_eq(&want->object, &got->object));
	CHECK(rc_id_eq(&want->node, &got->node));
	CHECK(rc_id_eq(&want->owner.worker_id, &got->owner.worker_id));
	CHECK(rc_id_eq(&want->owner.node_id, &got->owner.node_id));
	CHECK_STR(want->owner.ip, got->owner.ip);
	CHECK_EQ_INT(want->owner.port, got->owner.port);
	CHECK_EQ_INT(want->index, got->index);
	CHECK_EQ_INT(want->data_size, got->data_size);
	CHECK_EQ_INT(want->metadata_size, got->metadata_size);
	CHECK_EQ_INT(want->n, got->n);
	for (size_t i = 0; i < got->n && !test_bad_; i++) {
		while (offset == pieces[piece].n) {
			piece++;
			offset = 0;
		}
		CHECK_EQ_INT((uint8_t)(i * 7), pieces[piece].p[offset++]);
	}
}

static void reads_any_pieces(void)
{
	const rc_dialect *d = rc_dialect_find("2.60.0", NULL);
	rc__om_push_fields f;
	rc__om_chunk c = example(), got;
	rc_error e;
	rc_buf b;

	rc__om_push_fields_find(d, &f);
	b = message(d, &f, &c);
	for (size_t one = 0; one <= b.n; one++)
		for (size_t two = one; two <= b.n; two += 3) {
			rc_view pieces[4] = { { b.p, one }, { b.p + one, 0 }, { b.p + one, two - one }, { b.p + two, b.n - two } };

			CHECK_EQ_INT(0, rc__om_chunk_parse(d, &f, pieces, 4, &got, &e));
			check_same(&c, &got, pieces);
			if (test_bad_)
				return;
		}
	rc_buf_free(&b);
}

static void refuses_what_is_cut_off(void)
{
	const rc_dialect *d = rc_dialect_find("2.35.0", NULL);
	rc__om_push_fields f;
	rc__om_chunk c = example(), got;
	int refused = 0;
	rc_error e;
	rc_buf b;

	rc__om_push_fields_find(d, &f);
	b = message(d, &f, &c);
	for (size_t n = 0; n < b.n; n++) {
		uint8_t *copy = (uint8_t *)rc_strndup(b.p, n); /* so that a sanitizer sees a read beyond it */
		rc_view piece = { copy, n };

		refused += rc__om_chunk_parse(d, &f, &piece, 1, &got, &e) < 0;
		free(copy);
	}
	CHECK(refused > (int)b.n / 2); /* a cut between two fields may leave a message */
	{
		rc_view half = { b.p, b.n - 1 };

		CHECK_EQ_INT(-1, rc__om_chunk_parse(d, &f, &half, 1, &got, &e));
		CHECK_STR("Push: field 8 is cut off or malformed", e.text);
		CHECK_EQ_INT(-1, rc__om_chunk_parse(d, &f, NULL, 0, &got, &e));
		CHECK_STR("Push: object_id is missing", e.text);
	}
	rc_buf_free(&b);
	c.metadata_size = c.data_size + 1;
	b = message(d, &f, &c);
	{
		rc_view whole = { b.p, b.n };

		CHECK_EQ_INT(-1, rc__om_chunk_parse(d, &f, &whole, 1, &got, &e));
		CHECK(strstr(e.text, "metadata_size 346 is more than data_size 345") != NULL);
	}
	rc_buf_free(&b);
}

static void survives_damage(void)
{
	const rc_dialect *d = rc_dialect_find("2.60.0", NULL);
	rc__om_push_fields f;
	rc__om_chunk c = example(), got;
	rc_error e;
	rc_buf b;

	srand(3);
	rc__om_push_fields_find(d, &f);
	b = message(d, &f, &c);
	for (int i = 0; i < 20000; i++) {
		uint8_t *copy = (uint8_t *)rc_strndup(b.p, b.n);
		size_t cut = (size_t)rand() % b.n;
		rc_view pieces[2] = { { copy, cut }, { copy + cut, b.n - cut } };

		for (int k = rand() % 4; k >= 0; k--)
			copy[(size_t)rand() % b.n] = (uint8_t)rand();
		if (rc__om_chunk_parse(d, &f, pieces, 2, &got, &e) == 0) {
			size_t left = got.n, piece = got.piece, offset = got.offset;

			while (left > 0 && piece < 2) { /* the payload lies within the message */
				size_t n = pieces[piece].n - offset;

				n = n < left ? n : left;
				left -= n;
				piece++;
				offset = 0;
			}
			CHECK_EQ_INT(0, left);
		}
		free(copy);
	}
	rc_buf_free(&b);
}

static void cuts_objects(void)
{
	CHECK_EQ_INT(1, rc__om_chunk_count(0, 10));
	CHECK_EQ_INT(1, rc__om_chunk_count(10, 10));
	CHECK_EQ_INT(2, rc__om_chunk_count(11, 10));
	CHECK_EQ_INT(10, rc__om_chunk_length(11, 10, 0));
	CHECK_EQ_INT(1, rc__om_chunk_length(11, 10, 1));
	CHECK_EQ_INT(0, rc__om_chunk_length(11, 10, 2));
	CHECK_EQ_INT(0, rc__om_chunk_length(0, 10, 0));
	CHECK_EQ_INT(0, rc__om_chunk_length(11, 5 << 20, UINT32_MAX));
}

int main(void)
{
	RUN(same_numbers, "the dialect gives the numbers of Push fields in both releases");
	RUN(agrees_with_protobuf, "a message from head and payload is a PushRequest for protobuf");
	RUN(reads_any_pieces, "a message is read whole however it is cut in pieces");
	RUN(refuses_what_is_cut_off, "a message that is cut off, or contradicts itself, is refused with a reason");
	RUN(survives_damage, "damaged messages are refused or stay within their bytes");
	RUN(cuts_objects, "objects are cut in chunks of the given size, an empty one in one");
	return test_end();
}
