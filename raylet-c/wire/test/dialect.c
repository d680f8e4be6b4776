/* Dialects: look-ups, packing and unpacking by hand-made bytes. tests/wire/roundtrip.py does the same against Ray's own
 * descriptors with random contents. */
#include <stdlib.h>

#include "raylet-c/base/test.h"
#include "raylet-c/wire/table.h"

static const rc_dialect *old, *new;

static void names_supported_releases(void)
{
	rc_error e = { 0 };

	CHECK(rc_dialect_find("2.34.0", &e) == NULL);
	CHECK_EQ_INT(RC_E_UNSUPPORTED, e.code);
	CHECK_STR("Ray 2.34.0 is not supported; supported are 2.35.0, 2.60.0", e.text);
	CHECK(rc_dialect_find(NULL, NULL) == NULL);
	CHECK_STR("2.60.0", rc_dialect_release(new));
}

static void table_fits_messages(void)
{
	const rc_dialect *both[] = { old, new };

	CHECK_EQ_INT(old->n_messages, new->n_messages);
	for (size_t r = 0; r < 2; r++) {
		for (size_t i = 0; i < both[r]->n_messages; i++) {
			const rc__message *m = &both[r]->messages[i];
			for (size_t k = 0; k < m->n_fields; k++) {
				const rc__field *f = &m->fields[k];
				CHECK(k == 0 || m->fields[k - 1].number < f->number);
				CHECK(f->index < m->descriptor->n_fields);
				const ProtobufCFieldDescriptor *field = &m->descriptor->fields[f->index];
				CHECK((field->type == PROTOBUF_C_TYPE_MESSAGE) == (f->sub != RC__NO_SUB));
				CHECK(f->sub == RC__NO_SUB || both[r]->messages[f->sub].descriptor == field->descriptor);
				CHECK(f->sub == RC__NO_SUB || both[r]->messages[f->sub].known);
			}
		}
	}
}

static void methods_and_enums(void)
{
	CHECK_STR("/ray.rpc.NodeManagerService/ReturnWorker", rc_method_path(old, RC_M_RETURN_WORKER));
	CHECK_STR("/ray.rpc.NodeManagerService/ReturnWorkerLease", rc_method_path(new, RC_M_RETURN_WORKER));
	CHECK(rc_method_path(old, RC_M_KILL_LOCAL_ACTOR) == NULL);
	CHECK_STR("/ray.rpc.syncer.RaySyncer/StartSync", rc_method_path(new, RC_M_START_SYNC));
	CHECK_EQ_INT(RC_M_OM_PUSH, rc_method_find(old, "/ray.rpc.ObjectManagerService/Push and more", 34));
	CHECK_EQ_INT(-1, rc_method_find(old, "/ray.rpc.ObjectManagerService/Pusl", 34));
	CHECK_EQ_INT(-1, rc_method_find(old, "", 0));
	CHECK_EQ_INT(8, rc_enum_value(old, RC_V_CHANNEL_LOG));
	CHECK_EQ_INT(7, rc_enum_value(new, RC_V_CHANNEL_LOG));
	CHECK_EQ_INT(-1, rc_enum_value(new, RC_V_CHANNEL_OBJECT_EVICTION));
	for (int m = 0; m < RC_M_COUNT; m++)
		CHECK(rc_method_path(old, (rc_method)m) || rc_method_path(new, (rc_method)m));
	for (int v = 0; v < RC_V_COUNT; v++)
		CHECK(rc_enum_value(old, (rc_enum)v) >= 0 || rc_enum_value(new, (rc_enum)v) >= 0);
}

static void has_field(void)
{
	CHECK(!rc_has_field(old, &rw__gcs_node_info__descriptor, "session_dir"));
	CHECK(rc_has_field(new, &rw__gcs_node_info__descriptor, "session_dir"));
	CHECK(rc_has_field(old, &rw__gcs_node_info__descriptor, "node_id"));
	CHECK(!rc_has_field(new, &rw__gcs_node_info__descriptor, "no_such_field"));
	CHECK(!rc_has_field(old, &rw__kill_local_actor_request__descriptor, "worker_id"));
}

static void check_bytes(const rc_buf *b, const char *want, size_t n)
{
	CHECK_EQ_INT(n, b->n);
	CHECK(b->n == n && memcmp(b->p, want, n) == 0);
}

static void numbers_of_release(void)
{
	Rw__CancelWorkerLeaseRequest cancel = RW__CANCEL_WORKER_LEASE_REQUEST__INIT;
	Rw__PubMessage message = RW__PUB_MESSAGE__INIT;
	Rw__GcsNodeInfo node = RW__GCS_NODE_INFO__INIT;
	rc_buf b = { 0 };

	RC_SET_BYTES(cancel, lease_id, "abc", 3);
	rc_pack(new, &cancel, &b);
	check_bytes(&b, "\x0a\x03"
	                "abc",
	            5);
	b.n = 0;
	RC_SET(message, channel_type, rc_enum_value(old, RC_V_CHANNEL_NODE_INFO));
	node.temp_dir = (char *)"/t"; /* 2.60.0 only */
	RC_SET(node, node_manager_port, 300);
	message.node_info_message = &node;
	RC_SET(message, sequence_id, 0); /* set to zero is sent */
	rc_pack(old, &message, &b);
	check_bytes(&b, "\x08\x05\x4a\x03\x28\xac\x02\x80\x01\x00", 10);
	b.n = 0;
	message.channel_type = rc_enum_value(new, RC_V_CHANNEL_NODE_INFO);
	rc_pack(new, &message, &b);
	check_bytes(&b, "\x08\x04\x42\x08\x28\xac\x02\x82\x02\x02/t\x70\x00", 14);
	rc_buf_free(&b);
}

static void absent_message(void)
{
	Rw__KillLocalActorRequest kill = RW__KILL_LOCAL_ACTOR_REQUEST__INIT;
	rc_buf b = { 0 };

	RC_SET(kill, force_kill, 1);
	rc_pack(old, &kill, &b);
	CHECK_EQ_INT(0, b.n);
	CHECK(rc_unpack(old, &rw__kill_local_actor_request__descriptor, (rc_view){ 0 }) == NULL);
	rc_pack(new, &kill, &b);
	CHECK_EQ_INT(2, b.n);
	rc_buf_free(&b);
}

static void long_sub_message(void)
{
	Rw__JobTableData job = RW__JOB_TABLE_DATA__INIT;
	Rw__AddJobRequest add = RW__ADD_JOB_REQUEST__INIT;
	rc_buf b = { 0 };

	for (size_t n = 0; n < 20000; n = n < 300 ? n + 1 : 3 * n) {
		char *text = malloc(n + 1);
		memset(text, 'x', n);
		text[n] = 0;
		b.n = 0;
		job.entrypoint = text;
		RC_SET(job, is_dead, 1);
		add.data = &job;
		rc_pack(new, &add, &b);
		Rw__AddJobRequest *back = rc_unpack(new, &rw__add_job_request__descriptor, rc_view_of(b.p, b.n));
		CHECK(back && back->data && back->data->is_dead);
		if (back)
			CHECK_STR(text, back->data->entrypoint);
		rc_free_message(back);
		free(text);
	}
	rc_buf_free(&b);
}

static void *parse(const ProtobufCMessageDescriptor *m, const char *bytes, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1); /* so that ASan sees a byte too far */
	void *message;

	memcpy(copy, bytes, n);
	message = rc_unpack(new, m, rc_view_of(copy, n));
	free(copy);
	return message;
}

static void values(void)
{
	Rw__GetAgentPIDsReply *pids;
	Rw__ResourceId *id;
	Rw__WorkerTableData *w;

	pids = parse(&rw__get_agent_pids_reply__descriptor, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x07\x08\x05", 15);
	CHECK(pids && pids->dashboard_agent_pid == 5 && pids->runtime_env_agent_pid == 7); /* the last value counts */
	rc_free_message(pids);
	pids = parse(&rw__get_agent_pids_reply__descriptor, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
	CHECK(pids && pids->dashboard_agent_pid == -1 && !pids->has_runtime_env_agent_pid);
	rc_free_message(pids);
	id = parse(&rw__resource_id__descriptor, "\x08\x03\x11\x00\x00\x00\x00\x00\x00\xe0\x3f", 11);
	CHECK(id && id->index == 3 && id->quantity == 0.5);
	rc_free_message(id);
	w = parse(&rw__worker_table_data__descriptor, "", 0);
	CHECK(w && !w->has_is_alive && w->exit_detail == NULL && w->n_worker_info == 0);
	CHECK_STR("", RC_GET_STR(w, exit_detail));
	rc_free_message(w);
	rc_free_message(NULL);
}

static void packed_and_not(void)
{
	Rw__GetWorkerPIDsReply *r = parse(&rw__get_worker_pids_reply__descriptor, "\x0a\x03\x01\xac\x02\x08\x07\x0a\x00\x0a\x01\x09", 12);

	CHECK(r && r->n_pids == 4);
	if (r && r->n_pids == 4)
		CHECK(r->pids[0] == 1 && r->pids[1] == 300 && r->pids[2] == 7 && r->pids[3] == 9);
	rc_free_message(r);
}

static void merges(void)
{
	Rw__AddJobRequest *r = parse(&rw__add_job_request__descriptor, "\x0a\x02\x10\x01\x0a\x03\x0a\x01z", 9);

	CHECK(r && r->data && r->data->is_dead && r->data->job_id.len == 1 && r->data->job_id.data[0] == 'z');
	rc_free_message(r);
}

static void unknown_fields(void)
{
	/* number 1000 as varint, fixed 64, bytes, fixed 32; then a known number with another wire type; then a real field */
	Rw__GetAgentPIDsReply *r = parse(&rw__get_agent_pids_reply__descriptor,
	                                 "\xc0\x3e\x01\xc1\x3e"
	                                 "12345678\xc2\x3e\x02zz\xc5\x3e"
	                                 "1234\x0d"
	                                 "1234\x10\x02",
	                                 31);
	CHECK(r && !r->has_dashboard_agent_pid && r->runtime_env_agent_pid == 2);
	rc_free_message(r);
}

static void malformed(void)
{
	static const struct {
		const char *bytes;
		size_t n;
	} bad[] = {
		{ "\x08", 1 },                                                 /* no value */
		{ "\x08\xff", 2 },                                             /* cut varint */
		{ "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12 },    /* eleven bytes */
		{ "\x0a\x05xx", 4 },                                           /* longer than the message */
		{ "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11 },        /* longer than memory */
		{ "\x00\x01", 2 },                                             /* number 0 */
		{ "\xc3\x3e\xc4\x3e", 4 },                                     /* a group */
		{ "\xc1\x3e" "1234567", 9 },                                   /* cut fixed 64 */
		{ "\xc5\x3e" "123", 5 },                                       /* cut fixed 32 */
		{ "\xff\xff\xff\xff\xff\x01\x01", 7 },                         /* tag beyond 32 bits */
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		void *m = parse(&rw__add_job_request__descriptor, bad[i].bytes, bad[i].n);
		CHECK(m == NULL);
		rc_free_message(m);
	}
}

static void memory_limit(void)
{
	rc_buf b = { 0 };

	/* Two bytes an element stand for a struct of more than a hundred: harmless when few, refused when many. */
	for (int i = 0; i < 2000; i++)
		rc_buf_add(&b, "\x12\x00", 2);
	void *few = rc_unpack(new, &rw__get_all_node_info_reply__descriptor, rc_view_of(b.p, b.n));
	CHECK(few != NULL);
	rc_free_message(few);
	for (int i = 0; i < 200000; i++)
		rc_buf_add(&b, "\x12\x00", 2);
	CHECK(rc_unpack(new, &rw__get_all_node_info_reply__descriptor, rc_view_of(b.p, b.n)) == NULL);
	rc_buf_free(&b);
}

static void nul_behind_bytes(void)
{
	Rw__RayObject *r = parse(&rw__ray_object__descriptor, "\x0a\x03xyz", 5);

	CHECK(r && r->has_data && r->data.len == 3 && memcmp(r->data.data, "xyz", 4) == 0);
	rc_free_message(r);
}

static void text_that_is_not_utf8(void)
{
	static const struct {
		const char *in, *out;
	} texts[] = {
		{ "plain", "plain" },
		{ "\xc3\xa9 \xe6\x9c\xac \xf0\x9f\x9a\x80 \xf4\x8f\xbf\xbf", "\xc3\xa9 \xe6\x9c\xac \xf0\x9f\x9a\x80 \xf4\x8f\xbf\xbf" },
		{ "a\xff\xc3", "a??" },
		{ "\xc0\xaf", "??" },
		{ "\xe0\x9f\xbf\xed\xa0\x80", "??????" },
		{ "\xf0\x8f\xbf\xbf\xf4\x90\x80\x80\xf5", "?????????" },
		{ "\xe6\x9c", "??" },
		{ "", "" },
	};
	rc_buf b = { 0 };

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		Rw__OomContext m = RW__OOM_CONTEXT__INIT;
		char *copy = strdup(texts[i].in); /* so that ASan sees a byte too far */
		m.error_message = copy;
		b.n = 0;
		rc_pack(new, &m, &b);
		Rw__OomContext *back = rc_unpack(new, &rw__oom_context__descriptor, rc_view_of(b.p, b.n));
		CHECK(back != NULL);
		if (back)
			CHECK_STR(texts[i].out, back->error_message);
		rc_free_message(back);
		free(copy);
	}
	rc_buf_free(&b);
}

static void many_elements(void)
{
	rc_buf b = { 0 };

	for (int i = 0; i < 1000; i++) {
		rc_buf_add(&b, "\x0a\x01", 2);
		rc_buf_add(&b, &(char){ (char)i }, 1);
	}
	Rw__FreeLocalObjectsRequest *r = rc_unpack(new, &rw__free_local_objects_request__descriptor, rc_view_of(b.p, b.n));
	CHECK(r && r->n_object_ids == 1000);
	for (size_t i = 0; r && i < r->n_object_ids; i++)
		CHECK(r->object_ids[i].len == 1 && r->object_ids[i].data[0] == (uint8_t)i);
	rc_free_message(r);
	rc_buf_free(&b);
}

int main(void)
{
	old = rc_dialect_find("2.35.0", NULL);
	new = rc_dialect_find("2.60.0", NULL);
	RUN(names_supported_releases, "an unknown release is refused with the list of supported ones");
	RUN(table_fits_messages, "tables are sorted and name only places that the structs have");
	RUN(methods_and_enums, "paths and enum values are those of the release, each known to one release at least");
	RUN(has_field, "a field is there only in the releases that have it");
	RUN(numbers_of_release, "a message is packed with the numbers of its release and without fields it lacks");
	RUN(absent_message, "a message that the release lacks packs to nothing and does not unpack");
	RUN(long_sub_message, "a sub-message of any length keeps its bytes");
	RUN(values, "scalars come back with sign, presence and last value");
	RUN(packed_and_not, "repeated numbers are read packed and unpacked");
	RUN(merges, "a sub-message that comes twice is merged");
	RUN(unknown_fields, "unknown fields and foreign wire types are skipped");
	RUN(malformed, "malformed bytes are refused");
	RUN(memory_limit, "a message that would take far more memory than its size is refused");
	RUN(nul_behind_bytes, "bytes have a NUL behind them");
	RUN(text_that_is_not_utf8, "bytes of a string that are not UTF-8 are sent as question marks");
	RUN(many_elements, "repeated fields grow");
	return test_end();
}
