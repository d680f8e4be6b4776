/* CPUs, memory and devices of a machine, read from made-up files. */
#include "raylet-c/base/machine.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static char root[] = "/tmp/raylet-c-test-XXXXXX";

static void put(const char *path, const char *text)
{
	char *full = rc_sprintf("%s%s", root, path);

	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
		*p = '\0';
		mkdir(full, 0755);
		*p = '/';
	}
	FILE *f = fopen(full, "w");
	CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
	free(full);
}

static void wipe(void)
{
	char *command = rc_sprintf("rm -rf '%s'/*", root);

	CHECK_EQ_INT(0, system(command));
	free(command);
}

static void cpus(void)
{
	long all = sysconf(_SC_NPROCESSORS_ONLN);

	CHECK_EQ_INT(all, rc_machine_cpus(root));
	put("/sys/fs/cgroup/cpu.max", "max 100000\n");
	CHECK_EQ_INT(all, rc_machine_cpus(root));
	put("/sys/fs/cgroup/cpu.max", "350000 100000\n");
	CHECK_EQ_INT(3, rc_machine_cpus(root));
	put("/sys/fs/cgroup/cpuset/cpuset.cpus", "0,4-5\n");
	CHECK_EQ_INT(3, rc_machine_cpus(root));
	put("/sys/fs/cgroup/cpuset/cpuset.cpus", "0-1\n");
	CHECK_EQ_INT(2, rc_machine_cpus(root));
	setenv("RAY_USE_MULTIPROCESSING_CPU_COUNT", "1", 1);
	CHECK_EQ_INT(all, rc_machine_cpus(root));
	unsetenv("RAY_USE_MULTIPROCESSING_CPU_COUNT");
	wipe();
	put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
	put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	CHECK_EQ_INT(all, rc_machine_cpus(root));
	put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
	CHECK_EQ_INT(4, rc_machine_cpus(root));
	wipe();
}

static void memory(void)
{
	rc_memory m;
	rc_error error;

	CHECK_EQ_INT(-1, rc_machine_memory(root, &m, &error));
	CHECK(strstr(error.text, "meminfo") != NULL);
	put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:         300 kB\nMemAvailable:    500 kB\nBuffers:          50 kB\n"
	                     "Cached:          100 kB\nSReclaimable:     50 kB\n");
	CHECK_EQ_INT(0, rc_machine_memory(root, &m, &error));
	CHECK_EQ_INT(1000 * 1024, m.total);
	CHECK_EQ_INT(500 * 1024, m.used);
	put("/sys/fs/cgroup/memory.max", "max\n");
	put("/sys/fs/cgroup/memory.current", "90000\n");
	put("/sys/fs/cgroup/memory.stat", "anon 5\ninactive_file 20000\nactive_file 10000\n");
	CHECK_EQ_INT(0, rc_machine_memory(root, &m, &error));
	CHECK_EQ_INT(1000 * 1024, m.total);
	CHECK_EQ_INT(60000, m.used);
	put("/sys/fs/cgroup/memory.max", "500000\n");
	CHECK_EQ_INT(0, rc_machine_memory(root, &m, &error));
	CHECK_EQ_INT(500000, m.total);
	wipe();
}

static const char *gpu(const char *product, bool fallback)
{
	static char type[64];

	rc_gpu_type(product, fallback, type);
	return type;
}

static void gpu_types(void)
{
	CHECK_STR("A100", gpu("NVIDIA A100-SXM4-40GB", true));
	CHECK_STR("A100", gpu("NVIDIA A100-SXM4-40GB", false));
	CHECK_STR("V100", gpu("Tesla V100-SXM2-16GB", true));
	CHECK_STR("H200", gpu("NVIDIA H200", true));
	CHECK_STR("RTX-PRO-6000", gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition", true));
	CHECK_STR("RTX", gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition", false));
	CHECK_STR("GeForce-RTX-5090", gpu("NVIDIA GeForce RTX 5090", true));
	CHECK_STR("G", gpu("NVIDIA GeForce RTX 5090", false));
	CHECK_STR("", gpu("", false));
	CHECK_STR("", gpu("", true));
}

static void addresses(void)
{
	char ip[64];

	rc_machine_ip_towards("127.0.0.1", 1234, ip);
	CHECK_STR("127.0.0.1", ip);
	rc_machine_ip_towards("no.such.host.invalid", 1234, ip);
	CHECK_STR("127.0.0.1", ip);
	CHECK(rc_is_localhost("localhost") && rc_is_localhost("::1") && !rc_is_localhost("127.0.0.2"));
}

int main(void)
{
	if (mkdtemp(root) == NULL)
		return 1;
	RUN(cpus, "CPUs are what the control group grants, in whole ones");
	RUN(memory, "memory is the control group's where it has a limit");
	RUN(gpu_types, "a GPU's type is cut from its product name as each release does");
	RUN(addresses, "the own address towards a host is found without sending");
	return rmdir(root) != 0 ? 1 : test_end();
}
