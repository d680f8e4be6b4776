/* The choice on descriptions of machines (test/data), and on what commonly goes wrong with them. */
#define _GNU_SOURCE
#include "raylet-c/base/test.h"
#include "raylet-c/doctor/choice.h"
#include "raylet-c/doctor/test/tree.h"

static char root[] = "/tmp/rc_choice_XXXXXX";
static rc_facts f;
static rc_choice c;
static rc_choice_env env;

/* description: of a file; change: lines that change it. */
static void look(const char *description, const char *change, bool require)
{
	tree_remove(root);
	mkdir(root, 0700);
	tree_describe_file(root, description);
	tree_describe(root, change);
	rc_facts_gather(&(rc_facts_options){ .root = root, .address = "172.31.4.5", .site_packages = "/site" }, &f);
	rc_choose(&f, &c);
	rc_choice_environment(&f, &c, require, &env);
}

static const char *value(const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; i < env.n; i++)
		if (strncmp(env.v[i], name, n) == 0 && env.v[i][n] == '=')
			return env.v[i] + n + 1;
	return NULL;
}

static void drop(const char *path) /* a file of the description */
{
	char *full = rc_sprintf("%s%s", root, path);
	CHECK(unlink(full) == 0);
	free(full);
	rc_facts_gather(&(rc_facts_options){ .root = root, .address = "172.31.4.5", .site_packages = "/site" }, &f);
	rc_choose(&f, &c);
	rc_choice_environment(&f, &c, false, &env);
}

static void machines(void)
{
	static const struct {
		const char *name;
		int devices;
		rc_via within, between;
		bool gpu_direct;
	} want[] = {
		{ "p4d.24xlarge", 4, RC_VIA_NVLINK, RC_VIA_EFA, true }, { "p5.48xlarge", 32, RC_VIA_NVLINK, RC_VIA_EFA, true },
		{ "g5.48xlarge", 1, RC_VIA_SHM, RC_VIA_EFA, false },    { "g6.12xlarge", 1, RC_VIA_SHM, RC_VIA_EFA, false },
		{ "g6.xlarge", 0, RC_VIA_NONE, RC_VIA_TCP, false },
	};
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		look(want[i].name, "", false);
		CHECK_STR(want[i].name, f.instance);
		CHECK_EQ_INT(want[i].devices, f.efa.devices);
		CHECK_EQ_INT(want[i].devices, f.efa.opened);
		CHECK_STR(rc_via_name(want[i].within), rc_via_name(c.nccl_within));
		CHECK_STR(rc_via_name(want[i].between), rc_via_name(c.nccl_between));
		CHECK_STR(rc_via_name(want[i].between), rc_via_name(c.fabric_between));
		CHECK_STR("shm", rc_via_name(c.fabric_within));
		CHECK_EQ_INT(want[i].gpu_direct, c.gpu_direct);
		CHECK_STR("", c.why_not_efa);
		CHECK_STR("ens32", c.interface);
		CHECK_STR("=ens32", value("NCCL_SOCKET_IFNAME"));
		CHECK_STR("ens32", value("GLOO_SOCKET_IFNAME"));
		bool efa = want[i].between == RC_VIA_EFA;
		CHECK_STR(efa ? "efa" : NULL, value("FI_PROVIDER"));
		CHECK_STR(efa ? "1" : NULL, value("FI_EFA_FORK_SAFE"));
		CHECK_STR(efa ? "0" : NULL, value("FI_EFA_USE_HUGE_PAGE"));
		CHECK_STR(NULL, value("NCCL_PROTO"));
		CHECK_STR(NULL, value("NCCL_NET"));
		CHECK_STR(NULL, value("FI_EFA_USE_DEVICE_RDMA"));
		CHECK_STR(efa ? "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so" : NULL, value("NCCL_NET_PLUGIN"));
	}
}

static void no_plugin(void)
{
	look("p5.48xlarge", "", false);
	drop("/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so");
	CHECK_STR("tcp", rc_via_name(c.nccl_between));
	CHECK_STR("efa", rc_via_name(c.fabric_between)); /* objects need no plugin */
	CHECK(strstr(c.why_not_efa, "libnccl-net.so") != NULL);
	CHECK(strstr(c.cure, "aws-ofi-nccl") != NULL);
	CHECK_STR(NULL, value("FI_PROVIDER"));
	CHECK_STR("=ens32", value("NCCL_SOCKET_IFNAME"));
}

static void plugin_of_another_nccl(void)
{
	look("p5.48xlarge",
	     "library /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so exports=2,3,4 looks= text=Using aws-ofi-nccl 1.2.0|AWS Libfabric", false);
	CHECK_STR("tcp", rc_via_name(c.nccl_between));
	CHECK_STR("NCCL 2.23.4+cuda12.4 looks for plugin interfaces v5, v6, v7, v8, v9, aws-ofi-nccl 1.2.0 has v2, v3, v4", c.why_not_efa);
	look("p5.48xlarge", "file /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so nothing", false);
	CHECK(strstr(c.why_not_efa, "no 64-bit ELF file") != NULL);
}

static void plugin_that_the_loader_knows(void)
{
	look("p5.48xlarge", "file /etc/ld.so.cache glibc-ld.so.cache1.1", false);
	rc_buf cache = { 0 };
	rc_buf_str(&cache, "glibc-ld.so.cache1.1");
	rc_buf_add(&cache, "\0libnccl-net.so\0/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so\0", 74);
	CHECK(value("NCCL_NET_PLUGIN") != NULL);
	tree_write(root, "/etc/ld.so.cache", cache.p, cache.n);
	rc_buf_free(&cache);
	drop("/proc/meminfo");
	CHECK_EQ_INT(1, f.plugin_in_cache);
	CHECK_STR(NULL, value("NCCL_NET_PLUGIN"));
}

static void old_parts(void)
{
	look("p4d.24xlarge",
	     "library /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so exports=4,5 looks= text=Using aws-ofi-nccl 1.4.0aws|AWS Libfabric\n"
	     "probe libfabric\nversion: 1.11\nprovider: efa\nhmem: efa\nend",
	     false);
	CHECK_STR("efa", rc_via_name(c.nccl_between));
	CHECK_STR("simple", value("NCCL_PROTO"));
	CHECK_STR("1", value("RDMAV_FORK_SAFE"));
	CHECK_STR(NULL, value("FI_EFA_FORK_SAFE"));
	CHECK_STR("1", value("FI_EFA_USE_DEVICE_RDMA"));
}

static void little_lockable_memory(void)
{
	static const char low[] = "file /proc/self/limits Max locked memory         65536                65536                bytes";
	look("g6.12xlarge", low, false);
	CHECK_STR("tcp", rc_via_name(c.nccl_between));
	CHECK_STR("tcp", rc_via_name(c.fabric_between));
	CHECK_STR("only 64 KiB of memory may be locked (ulimit -l)", c.why_not_efa);
	CHECK(strstr(c.cure, "ulimit -l") != NULL && strstr(c.cure, "IPC_LOCK") != NULL);
	char *capable = rc_sprintf("%s\nfile /proc/self/status CapEff:\t0000000000004000", low);
	look("g6.12xlarge", capable, false);
	CHECK_STR("efa", rc_via_name(c.nccl_between));
	free(capable);
}

static void devices_that_the_pod_lacks(void)
{
	look("g6.12xlarge", "", false);
	drop("/dev/infiniband/uverbs0");
	CHECK_EQ_INT(1, c.efa_there);
	CHECK_STR("tcp", rc_via_name(c.nccl_between));
	CHECK(strstr(c.why_not_efa, "/dev/infiniband/uverbs0: No such file") != NULL);
}

static void libfabric_without_efa(void)
{
	look("g6.12xlarge", "probe libfabric\nversion: 1.17\npath: /usr/lib/libfabric.so.1\nprovider: tcp\nprovider: shm\nend", false);
	CHECK_STR("libfabric 1.17 (/usr/lib/libfabric.so.1) finds no efa, only tcp, shm", c.why_not_efa);
	look("g6.12xlarge", "probe libfabric\nerror: libfabric.so.1: cannot open shared object file\nend", false);
	CHECK_STR("no libfabric: libfabric.so.1: cannot open shared object file", c.why_not_efa);
}

static void required(void)
{
	look("p5.48xlarge", "", true);
	CHECK_STR("AWS Libfabric", value("NCCL_NET"));
	look("p5.48xlarge",
	     "library /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so exports=9,10 looks= text=Initializing aws-ofi-nccl 1.16.3|NCCL_PROTO|Libfabric",
	     true);
	CHECK_STR("Libfabric", value("NCCL_NET"));
	CHECK_STR("1.16.3", f.plugin.version);
}

static void other_interfaces(void)
{
	look("g6.xlarge", "file /sys/class/net/docker0/operstate up\nfile /sys/class/net/lo/operstate unknown\n"
	     "probe addresses\naddress: docker0 172.17.0.1\naddress: ens32 172.31.4.5\nend", false);
	CHECK_STR("ens32", c.interface);
	look("g6.xlarge", "probe addresses\naddress: veth9 172.31.4.5\nend", false); /* not in /sys */
	CHECK_STR("veth9", c.interface);
	look("g6.xlarge", "file /sys/class/net/lo/operstate unknown\nprobe addresses\naddress: docker0 172.17.0.1\nend", false);
	rc_facts_gather(&(rc_facts_options){ .root = root, .address = "127.0.44.2" }, &f);
	CHECK(rc_facts_own(&f) && strcmp(rc_facts_own(&f)->name, "lo") == 0);
	rc_facts_gather(&(rc_facts_options){ .root = root, .address = "10.9.9.9" }, &f);
	rc_choose(&f, &c);
	rc_choice_environment(&f, &c, false, &env);
	CHECK_STR("", c.interface);
	CHECK_EQ_INT(0, env.n);
}

static void what_a_node_asks_for(void)
{
	look("g6.12xlarge", "", false);
	rc_facts_gather(&(rc_facts_options){ .root = root, .address = "172.31.4.5", .brief = true }, &f);
	rc_choose(&f, &c);
	CHECK_STR("efa", rc_via_name(c.nccl_between));
	CHECK_EQ_INT(0, f.gpu.count);
	look("g6.xlarge", "", false);
	rc_facts_gather(&(rc_facts_options){ .root = root, .address = "172.31.4.5", .brief = true }, &f);
	CHECK_STR("", f.libfabric.version); /* no EFA: no library is asked */
}

int main(void)
{
	if (!mkdtemp(root))
		return 2;
	RUN(machines, "p4d, p5, g5, g6 and a machine without EFA: transports and environment");
	RUN(no_plugin, "EFA without the NCCL plugin: NCCL takes TCP, objects take EFA, and the reason names the plugin");
	RUN(plugin_of_another_nccl, "a plugin that this NCCL cannot use is a reason with both versions");
	RUN(plugin_that_the_loader_knows, "a plugin that the loader finds is not named by its path");
	RUN(old_parts, "an old plugin and an old libfabric get what they do not do by themselves");
	RUN(little_lockable_memory, "a low limit of locked memory is a reason, unless CAP_IPC_LOCK is there");
	RUN(devices_that_the_pod_lacks, "EFA whose device files are missing in the container is a reason");
	RUN(libfabric_without_efa, "a libfabric without efa, or none, is a reason with its path");
	RUN(required, "required EFA: NCCL is told the plugin's own name, so it fails rather than take sockets");
	RUN(other_interfaces, "the interface is that of the node's own address, whatever bridges there are");
	RUN(what_a_node_asks_for, "a node's own short look comes to the same choice");
	tree_remove(root);
	return test_end();
}
