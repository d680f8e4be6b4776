/* A sample of this machine and this process beside other sources, and as JSON beside jansson's reading of it. */
#include "raylet-c/agent/payload.h"

#include <jansson.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/agent/text.h"
#include "raylet-c/base/loop.h"
#include "raylet-c/base/test.h"

/* Uses the processor for so long, however long that takes. */
static void burn(double seconds)
{
	for (clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC); clock() < end;)
		;
}

static void figures(void)
{
	rc_sampler *s = rc_sampler_create(&(rc_sampler_options){ .temp_dir = "/tmp", .full_memory = true });
	pid_t self = getpid(), none = 0;
	rc_sample a, b;
	struct sysinfo info;
	rc_sample_take(s, &self, 1, &a);
	CHECK_EQ_INT(0, sysinfo(&info));
	CHECK_EQ_INT(info.totalram * info.mem_unit, a.host_total);
	CHECK(a.mem_total && a.mem_used <= a.mem_total && a.host_used < a.host_total);
	CHECK(a.now - a.boot > (double)info.uptime - 5 && a.now - a.boot < (double)info.uptime + 5);
	CHECK(a.cpus >= 0 && a.physical_cpus >= 1 && a.physical_cpus <= sysconf(_SC_NPROCESSORS_CONF));
	CHECK_EQ_INT(1, a.n_workers);
	CHECK_EQ_INT(self, a.workers[0].pid);
	CHECK(a.workers[0].rss > 100000 && a.workers[0].vms > a.workers[0].rss && a.workers[0].num_fds >= 3);
	CHECK(a.workers[0].has_full && a.workers[0].uss <= a.workers[0].pss && a.workers[0].pss <= a.workers[0].rss + 4096 * 64);
	CHECK(a.workers[0].create_time > a.boot && a.workers[0].create_time <= a.now + 1);
	uint64_t began = rc_now_ms(); /* as "raylet": a second look in one round has nothing to compare with */
	burn(0.5);
	rc_sample_take(s, &self, 1, &b);
	double percent = 50000.0 / (double)(rc_now_ms() - began);
	printf("# %.1f %% of a core, %.1f %% by the clocks\n", b.raylet.cpu_percent, percent);
	CHECK(b.raylet.cpu_percent > percent * 0.7 - 1 && b.raylet.cpu_percent < percent * 1.5 + 1);
	CHECK(b.cpu_percent > 0 && b.cpu_percent <= 100);
	CHECK(b.disk_io[0] >= a.disk_io[0] && b.network[0] >= a.network[0]);
	rc_sample_free(&a);
	rc_sample_free(&b);
	rc_sample_take(s, &none, 1, &a);
	CHECK_EQ_INT(0, a.n_workers);
	rc_sample_free(&a);
	rc_sampler_destroy(s);
}

static void zombies_are_no_workers(void)
{
	rc_process_table *t = rc_process_table_create();
	rc_process_info p;
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	siginfo_t info;
	CHECK_EQ_INT(0, waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT));
	CHECK(!rc_process_look(t, child, false, &p));
	rc_process_info_free(&p);
	waitpid(child, NULL, 0);
	rc_process_table_destroy(t);
}

static void as_json(void)
{
	rc_process_info workers[2] = { { .pid = 7, .num_fds = -1 }, { .pid = 8, .num_fds = 3, .gpu_memory_mb = 5, .has_full = true, .uss = 9 } };
	rc_gpu_process on_gpu = { .pid = 8, .memory_mb = 5, .percent = -1 };
	rc_gpu gpu = { .index = 1, .name = "A \"card\"", .uuid = "GPU-1", .percent = 30, .used_mb = 5, .total_mb = 9, .power_mw = 1000, .celsius = -1,
		       .processes = &on_gpu, .n_processes = 1 };
	rc_sample s = { .now = 1.5, .hostname = "h\xff\n", .cpus = 2, .physical_cpus = 1, .mem_total = 10, .mem_used = 4, .load = { 1, 2, 3 }, .workers = workers,
		        .n_workers = 2, .gpus = &gpu, .n_gpus = 1 };
	rc_buf_add(&workers[1].cmdline, "ray::A\0b\xc3\xa4\0", 11);
	s.disks[s.n_disks++] = (rc_disk_usage){ .path = "/", .total = 3, .used = 1, .free = 2, .percent = 33.3 };
	for (int i = 0; i < 2; i++) {
		rc_buf out = { 0 };
		rc_payload_write(&s, i, "1.2.3.4", &out);
		json_error_t e;
		json_t *j = json_loadb((char *)out.p, out.n, 0, &e);
		CHECK_STR("", j ? "" : e.text);
		CHECK_STR("h?\n", json_string_value(json_object_get(j, "hostname")));
		json_t *w = json_array_get(json_object_get(j, "workers"), 1), *words = json_object_get(w, "cmdline");
		CHECK_EQ_INT(2, json_array_size(words));
		CHECK_STR("b\xc3\xa4", json_string_value(json_array_get(words, 1)));
		CHECK(json_is_null(json_object_get(json_array_get(json_object_get(j, "workers"), 0), "numFds")));
		CHECK_EQ_INT(i ? 9 : 0, json_integer_value(json_object_get(json_object_get(w, "memoryFullInfo"), "uss")));
		CHECK_EQ_INT(i ? 0 : 5, json_integer_value(json_object_get(w, "gpuMemoryUsage")));
		json_t *g = json_array_get(json_object_get(j, "gpus"), 0);
		CHECK_STR("A \"card\"", json_string_value(json_object_get(g, "name")));
		CHECK_EQ_INT(30, json_integer_value(json_object_get(g, "utilizationGpu")));
		CHECK(i ? !json_object_get(g, "powerMw") : json_is_null(json_object_get(g, "temperatureC")));
		CHECK_EQ_INT(8, json_integer_value(json_object_get(json_array_get(json_object_get(g, "processesPids"), 0), "pid")));
		json_t *mem = json_object_get(j, "mem");
		CHECK_EQ_INT(6, json_integer_value(json_array_get(mem, 1)));
		CHECK_EQ_INT(40, (int)json_number_value(json_array_get(mem, 2)));
		json_decref(j);
		rc_buf_free(&out);
	}
	rc_buf_free(&workers[1].cmdline);
}

/* Where the driver of a GPU is: its figures are within sense, and this process is on no GPU. */
static void gpus(void)
{
	rc_nvml *n = rc_nvml_open();
	if (!n) {
		printf("# SKIP no NVIDIA driver here\n");
		return;
	}
	rc_gpu found[RC_GPUS_MAX];
	size_t count = rc_nvml_read(n, found);
	CHECK(count > 0);
	for (size_t i = 0; i < count; i++) {
		printf("# GPU %d: %s, %s, %d %%, %llu of %llu MB, %d mW, %d C, %zu processes\n", found[i].index, found[i].name, found[i].uuid, found[i].percent,
		       (unsigned long long)found[i].used_mb, (unsigned long long)found[i].total_mb, found[i].power_mw, found[i].celsius, found[i].n_processes);
		CHECK(*found[i].name && !strncmp(found[i].uuid, found[i].index >= 1000 ? "MIG-" : "GPU-", 4));
		CHECK(found[i].total_mb > 1000 && found[i].used_mb <= found[i].total_mb && found[i].percent >= -1 && found[i].percent <= 100);
		rc_gpu_free(&found[i]);
	}
	rc_nvml_close(n);
}

int main(void)
{
	RUN(figures, "figures of the machine and of a process agree with other sources");
	RUN(zombies_are_no_workers, "a process that has ended is not shown");
	RUN(as_json, "a sample is JSON in either release's form");
	RUN(gpus, "GPUs are read by NVML");
	return test_end();
}
