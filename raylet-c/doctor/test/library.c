#define _GNU_SOURCE
#include "raylet-c/base/test.h"
#include "raylet-c/doctor/library.h"
#include "raylet-c/doctor/test/tree.h"

static rc_library parse(const char *exports, const char *looks, const char *texts)
{
	rc_buf b = { 0 };
	rc_library l = { 0 };
	rc_error e = { 0 };
	tree_library(&b, exports, looks, texts);
	CHECK_EQ_INT(0, rc_library_parse(rc_view_of(b.p, b.n), &l, &e));
	rc_buf_free(&b);
	return l;
}

static void versions(void)
{
	rc_library nccl = parse("", "6,7,8,9,10,11", "NCCL version detected|NCCL version 2.28.9+cuda13.0|ncclNetPlugin_vX");
	rc_library plugin = parse("6,7,8,9,10", "", "NCCL_PROTO|Initializing aws-ofi-nccl 1.16.3|Libfabric");
	rc_library old = parse("4,5", "", "NCCL_PROTOCOL|AWS Libfabric|Libfabric");
	char text[96];
	CHECK_STR("2.28.9+cuda13.0", nccl.version);
	CHECK_STR("1.16.3", plugin.version);
	CHECK_EQ_INT(0xfc0, nccl.net_looked_for);
	CHECK_EQ_INT(0, nccl.net_exported);
	CHECK_EQ_INT(0x7c0, plugin.net_exported);
	CHECK_EQ_INT(10, rc_library_common_net(&nccl, &plugin));
	CHECK_EQ_INT(0, rc_library_common_net(&nccl, &old));
	CHECK(plugin.guards_protocol && !old.guards_protocol);
	CHECK_STR("Libfabric", plugin.net_name);
	CHECK_STR("AWS Libfabric", old.net_name);
	CHECK_STR("", old.version);
	rc_library_net_text(old.net_exported, text);
	CHECK_STR("v4, v5", text);
	rc_library_net_text(0, text);
	CHECK_STR("none", text);
}

/* Every file that is the sound one with some bytes changed, or its beginning, is an error or an answer. */
static void broken_files(void)
{
	rc_buf b = { 0 };
	rc_library l = { 0 };
	rc_error e;
	tree_library(&b, "6,7", "8,9", "NCCL version 2.28.9|NCCL_PROTO");
	for (size_t n = 0; n < b.n; n++)
		CHECK(rc_library_parse(rc_view_of(b.p, n), &l, &e) != 0 || n > sizeof(Elf64_Ehdr));
	for (size_t i = 0; i < b.n; i++) {
		uint8_t was = b.p[i];
		for (int bit = 0; bit < 8; bit++) {
			b.p[i] = (uint8_t)(was ^ 1u << bit);
			if (rc_library_parse(rc_view_of(b.p, b.n), &l, &e) == 0)
				CHECK(strlen(l.version) < sizeof(l.version));
		}
		b.p[i] = was;
	}
	CHECK_EQ_INT(-1, rc_library_parse(rc_view_str("not a library at all, though long enough to hold an ELF header and more"), &l, &e));
	rc_buf_free(&b);
}

static const char *volatile in_constants = "ncclNetPlugin_v30";

static void real_one(void)
{
	rc_library l = { 0 };
	rc_error e;
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[n > 0 ? n : 0] = '\0';
	CHECK_EQ_INT(0, rc_library_read(self, &l, &e)); /* as the compiler's and the linker's own files are */
	CHECK_STR(self, l.path);
	CHECK(strstr(l.version, "2.28.9") == l.version);
	CHECK(strcmp(in_constants, "") != 0 && l.net_looked_for & 1u << 30);
	CHECK_EQ_INT(-1, rc_library_read("/nowhere/libnccl.so.2", &l, &e));
	CHECK_EQ_INT(-1, rc_library_read("/", &l, &e));
}

int main(void)
{
	RUN(versions, "versions and plugin interfaces are read from a library's bytes");
	RUN(broken_files, "files that are cut or changed are answered without a crash");
	RUN(real_one, "a linker's own file is read");
	return test_end();
}
