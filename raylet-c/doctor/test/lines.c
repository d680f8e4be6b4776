/* Marks, cures and the JSON report, on described machines. */
#define _GNU_SOURCE
#include "raylet-c/base/test.h"
#include "raylet-c/doctor/doctor.h"
#include "raylet-c/doctor/test/tree.h"

#include <jansson.h>

static char root[] = "/tmp/rc_lines_XXXXXX";
static rc_facts f;
static rc_choice c;
static rc_choice_env env;
static rc_lines lines;
static const char *set_name, *set_value; /* the one variable of the environment */
static bool require;

static const char *variable(const char *name)
{
	return set_name && strcmp(name, set_name) == 0 ? set_value : NULL;
}

static void look(const char *description, const char *change)
{
	tree_remove(root);
	mkdir(root, 0700);
	tree_describe_file(root, description);
	tree_describe(root, change);
	rc_facts_gather(&(rc_facts_options){ .root = root, .address = "172.31.4.5", .site_packages = "/site" }, &f);
	f.shm_bytes = f.shm_free = UINT64_C(64) << 30; /* the tree's disk would count otherwise */
	rc_choose(&f, &c);
	rc_choice_environment(&f, &c, require, &env);
	rc_line_context x = { .ray_release = "2.60.0", .ray_text = "in place", .ray_enabled = true, .ray_supported = true, .require_efa = require,
		              .getenv = variable };
	rc_lines_make(&f, &c, &x, &lines);
}

static const rc_line *line(const char *name)
{
	for (size_t i = 0; i < lines.n; i++)
		if (strcmp(lines.v[i].name, name) == 0)
			return &lines.v[i];
	printf("# there is no line %s\n", name);
	exit(2);
}

static const char *mark(const char *name)
{
	return rc_mark_name(line(name)->mark);
}

static void sound(void)
{
	static const char *const names[] = { "p4d.24xlarge", "p5.48xlarge", "g5.48xlarge", "g6.12xlarge", "g6.xlarge" };
	for (size_t i = 0; i < 5; i++) {
		look(names[i], "");
		CHECK(!rc_lines_failed(&lines));
		for (size_t k = 0; k < lines.n; k++) {
			bool fine = lines.v[k].mark == RC_MARK_OK || lines.v[k].mark == RC_MARK_SKIP;
			CHECK_STR("", fine ? "" : lines.v[k].text);
			CHECK_STR("", lines.v[k].cure);
		}
	}
	look("p5.48xlarge", "");
	CHECK_STR("32 x rdmap113s0 (0xefa2), firmware 0.0.0.0, driver 2.13.0g", line("efa")->text);
	CHECK_STR("8 x NVIDIA H100 80GB HBM3, driver 550.127.05, CUDA 12.4, NVLink", line("gpus")->text);
	CHECK(strstr(line("transport")->text, "between nodes EFA with GPUDirect RDMA") != NULL);
	CHECK(strstr(line("nccl_plugin")->text, "1.13.2-aws") && strstr(line("nccl_plugin")->text, "fits this NCCL by v9"));
	CHECK_STR("synchronised, at most 0.9 ms off", line("clock")->text);
	look("g6.12xlarge", "");
	CHECK(strstr(line("gpudirect")->text, "not on g6.12xlarge") != NULL);
	CHECK(strstr(line("transport")->text, "between nodes EFA without GPUDirect RDMA") != NULL);
}

static void faults(void)
{
	look("g6.12xlarge", "file /proc/self/limits Max locked memory         65536                65536                bytes");
	for (size_t k = 0; k < lines.n; k++) /* what is not fine has a cure */
		CHECK((lines.v[k].mark == RC_MARK_OK || lines.v[k].mark == RC_MARK_SKIP) == !*lines.v[k].cure);
	CHECK_STR("FAIL", mark("locked_memory"));
	CHECK_STR("WARN", mark("transport"));
	CHECK(rc_lines_failed(&lines));
	require = true;
	look("g6.12xlarge", "file /proc/self/limits Max locked memory         65536                65536                bytes");
	CHECK_STR("FAIL", mark("transport"));
	look("g6.xlarge", "");
	CHECK_STR("FAIL", mark("efa"));
	CHECK_STR("FAIL", mark("transport"));
	require = false;
	look("g6.12xlarge", "probe libfabric\nversion: 1.17\npath: /lib/x\nprovider: tcp\nend");
	CHECK_STR("FAIL", mark("libfabric"));
	look("g6.12xlarge", "library /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so exports=3 looks= text=");
	CHECK_STR("FAIL", mark("nccl_plugin"));
	look("g6.xlarge", "probe clock\nclock: 0\nend\nfile /sys/fs/cgroup/cpu.max 50000 100000\nfile /sys/fs/cgroup/memory.max 2147483648");
	CHECK_STR("WARN", mark("clock"));
	CHECK_STR("WARN", mark("cgroup"));
	CHECK_STR("memory 2.0 GiB, 0.50 CPUs", line("cgroup")->text);
	look("g6.xlarge", "probe addresses\naddress: lo 127.0.0.1\nend");
	CHECK_STR("WARN", mark("interface"));
	f.shm_bytes = 64 << 20;
	rc_lines_make(&f, &c, &(rc_line_context){ .getenv = variable }, &lines);
	CHECK_STR("FAIL", mark("shared_memory"));
	CHECK_STR("SKIP", mark("ray"));
}

static void risky_settings(void)
{
	static const struct {
		const char *name, *value, *line, *mark;
	} want[] = {
		{ "NCCL_PROTO", "LL,LL128,Simple", "nccl_protocol", "WARN" }, { "NCCL_PROTO", "simple", "nccl_protocol", "OK" },
		{ "NCCL_PROTO", "^LL,LL128", "nccl_protocol", "OK" },         { "FI_EFA_USE_HUGE_PAGE", "1", "hugepages", "WARN" },
		{ "FI_EFA_USE_HUGE_PAGE", "0", "hugepages", "OK" },           { "RDMAV_HUGEPAGES_SAFE", "1", "fork_safety", "WARN" },
		{ "FI_EFA_FORK_SAFE", "0", "fork_safety", "OK" },
	};
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		set_name = want[i].name;
		set_value = want[i].value;
		look("p5.48xlarge", "");
		CHECK_STR(want[i].mark, mark(want[i].line));
	}
	look("p5.48xlarge", "file /proc/sys/kernel/osrelease 5.10.0-1-aws"); /* the last of the table on an old kernel */
	CHECK_STR("WARN", mark("fork_safety"));
	set_name = NULL;
}

static void json(void)
{
	rc_buf out = { 0 };
	json_error_t e;
	look("p5.48xlarge", "");
	rc_doctor_json(&lines, &f, &c, &env, &out);
	json_t *r = json_loads(rc_buf_cstr(&out), 0, &e);
	CHECK(r != NULL);
	CHECK(json_is_true(json_object_get(r, "ok")));
	CHECK_EQ_INT((long long)lines.n, (long long)json_array_size(json_object_get(r, "checks")));
	for (size_t i = 0; i < lines.n; i++)
		CHECK_STR(lines.v[i].name, json_string_value(json_object_get(json_array_get(json_object_get(r, "checks"), i), "name")));
	CHECK_STR("efa", json_string_value(json_object_get(json_object_get(r, "transport"), "nccl_between")));
	CHECK_STR("efa", json_string_value(json_object_get(json_object_get(r, "environment"), "FI_PROVIDER")));
	CHECK_STR("=ens32", json_string_value(json_object_get(json_object_get(r, "environment"), "NCCL_SOCKET_IFNAME")));
	json_decref(r);
	rc_buf_free(&out);
	look("p5.48xlarge", "file /sys/devices/virtual/dmi/id/product_name p5\xff\xfe");
	rc_doctor_json(&lines, &f, &c, &env, &out);
	r = json_loads(rc_buf_cstr(&out), 0, &e);
	CHECK(r != NULL);
	json_decref(r);
	rc_buf_free(&out);
}

static void words(void)
{
	rc_doctor_options o;
	rc_error e;
	CHECK_EQ_INT(0, rc_doctor_options_parse(4, (char *[]){ "--json", "--pair", "10.0.0.1:7", "--ray-dir=/x" }, &o, &e));
	CHECK(o.json && o.pair);
	CHECK_STR("10.0.0.1:7", o.pair_host);
	CHECK_STR("/x", o.ray_dir);
	CHECK_EQ_INT(0, rc_doctor_options_parse(2, (char *[]){ "--pair", "--json" }, &o, &e));
	CHECK(o.json && o.pair && !o.pair_host);
	CHECK_EQ_INT(-1, rc_doctor_options_parse(1, (char *[]){ "--jsonx" }, &o, &e));
	CHECK_EQ_INT(-1, rc_doctor_options_parse(1, (char *[]){ "--pair-listen" }, &o, &e));
	CHECK_STR("option --pair-listen needs a value", e.text);
}

int main(void)
{
	if (!mkdtemp(root))
		return 2;
	RUN(sound, "sound machines have no WARN, no FAIL and no cure");
	RUN(faults, "each fault has its mark");
	RUN(risky_settings, "a risky setting of the user is kept and warned of");
	RUN(json, "the JSON report has a stable shape, whatever bytes a machine's files hold");
	RUN(words, "the words of the command line");
	tree_remove(root);
	return test_end();
}
