#define _GNU_SOURCE
#include "raylet-c/agent/sample.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "raylet-c/base/loop.h"
#include "raylet-c/base/machine.h"

enum { HISTORY = 7, SECTOR = 512, NVML_AGAIN_MS = 60 * 1000 };

typedef struct past {
	double at;
	uint64_t disk_io[4], network[2];
} past;

struct rc_sampler {
	rc_process_table *processes;
	char *temp_dir;
	bool full_memory, in_pod, pod_disk;
	past history[HISTORY];
	size_t n_history;
	uint64_t cpu_busy, cpu_all; /* at the last look; clock ticks, or ns in a pod */
	bool have_cpu;
	int physical_cpus;
	rc_nvml *nvml;
	uint64_t nvml_tried_ms;
};

static bool read_text(const char *path, rc_buf *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = 1;
	while (n > 0 && out->n < (4 << 20)) {
		uint8_t *to = rc_buf_grow(out, 16384);
		n = read(fd, to, 16384);
		out->n -= 16384 - (n > 0 ? (size_t)n : 0);
	}
	close(fd);
	rc_buf_cstr(out);
	return n >= 0;
}

static uint64_t field_kb(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

/* ---- processors ---- */

/* Cores, not their threads: distinct sets of sibling threads. */
static int count_cores(void)
{
	char path[96];
	char *lists[1024];
	int n = 0;
	for (int cpu = 0; cpu < 1024; cpu++) {
		rc_buf text = { 0 };
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/core_cpus_list", cpu);
		if (!read_text(path, &text)) {
			rc_buf_free(&text);
			if (cpu)
				break;
			continue;
		}
		bool known = false;
		for (int i = 0; i < n && !known; i++)
			known = !strcmp(lists[i], (char *)text.p);
		if (!known)
			lists[n++] = rc_strdup((char *)text.p);
		rc_buf_free(&text);
	}
	for (int i = 0; i < n; i++)
		free(lists[i]);
	return n ? n : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static bool group_cpu_ns(uint64_t *ret)
{
	rc_buf text = { 0 };
	bool ok = read_text("/sys/fs/cgroup/cpuacct/cpuacct.usage", &text);
	if (ok) {
		*ret = strtoull((char *)text.p, NULL, 10);
	} else if (read_text("/sys/fs/cgroup/cpu.stat", &text) && !strncmp((char *)text.p, "usage_usec ", 11)) {
		*ret = strtoull((char *)text.p + 11, NULL, 10) * 1000;
		ok = true;
	}
	rc_buf_free(&text);
	return ok;
}

/* The host's busy share since the last look; in a pod its own share of the CPUs that it may use. */
static void cpu(rc_sampler *s, rc_sample *r)
{
	unsigned long long v[10] = { 0 };
	rc_buf text = { 0 };
	if (read_text("/proc/stat", &text) &&
	    sscanf((char *)text.p, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) >= 7) {
		uint64_t all = 0, busy;
		for (int i = 0; i < (s->in_pod ? 7 : 8); i++)
			all += v[i];
		busy = all - v[3] - v[4];
		if (s->in_pod) {
			all *= 10000000;
			if (!group_cpu_ns(&busy))
				busy = 0;
		}
		if (s->have_cpu && all > s->cpu_all && busy >= s->cpu_busy) {
			double share = (double)(busy - s->cpu_busy) / (double)(all - s->cpu_all);
			if (s->in_pod)
				share *= r->cpus > 0 ? (double)sysconf(_SC_NPROCESSORS_CONF) / r->cpus : 0;
			r->cpu_percent = share > 1 ? 100 : share * 100;
		}
		s->cpu_all = all;
		s->cpu_busy = busy;
		s->have_cpu = true;
		const char *btime = strstr((char *)text.p, "\nbtime ");
		r->boot = btime ? strtod(btime + 7, NULL) : 0;
	}
	rc_buf_free(&text);
}

/* ---- memory ---- */

static bool number_of(const char *path, uint64_t *ret)
{
	rc_buf text = { 0 };
	bool ok = read_text(path, &text) && isdigit(text.p[0]);
	if (ok)
		*ret = strtoull((char *)text.p, NULL, 10);
	rc_buf_free(&text);
	return ok;
}

static void memory(rc_sample *r)
{
	rc_buf text = { 0 };
	rc_memory group;
	rc_error ignored;
	uint64_t unused;
	if (read_text("/proc/meminfo", &text)) {
		const char *t = (char *)text.p;
		r->host_total = field_kb(t, "MemTotal:");
		r->host_used = r->host_total - field_kb(t, "MemAvailable:");
		r->shm = field_kb(t, "Shmem:");
	}
	rc_buf_free(&text);
	r->mem_total = r->host_total;
	r->mem_used = r->host_used;
	if (rc_machine_memory("", &group, &ignored) == 0) {
		r->mem_total = group.total;
		r->mem_used = group.used < group.total ? group.used : group.total;
	}
	r->has_cgroup = number_of("/sys/fs/cgroup/memory/memory.usage_in_bytes", &unused) || number_of("/sys/fs/cgroup/memory.current", &unused);
	r->cgroup_used = r->mem_used;
	r->cgroup_total = r->mem_total;
}

/* ---- disks and networks ---- */

static void disk_usage(rc_sampler *s, rc_sample *r)
{
	const char *const paths[] = { "/", s->temp_dir };
	if (s->in_pod && !s->pod_disk) { /* what the host has is not the pod's */
		r->disks[r->n_disks++] = (rc_disk_usage){ .path = "/", .total = 1, .free = 1 };
		return;
	}
	for (size_t i = 0; i < 2; i++) {
		struct statvfs st;
		if (statvfs(paths[i], &st) != 0 || (i && !strcmp(paths[i], "/")))
			continue;
		rc_disk_usage *d = &r->disks[r->n_disks++];
		*d = (rc_disk_usage){ .path = paths[i], .total = st.f_blocks * st.f_frsize, .free = st.f_bavail * st.f_frsize };
		d->used = d->total - st.f_bfree * st.f_frsize;
		d->percent = d->used + d->free ? (double)d->used * 100 / (double)(d->used + d->free) : 0;
	}
}

/* Disks, not their partitions. */
static bool is_disk(const char *name)
{
	char path[160];
	snprintf(path, sizeof(path), "/sys/block/%s", name);
	for (char *p = path + 11; *p; p++)
		if (*p == '/')
			*p = '!';
	return access(path, F_OK) == 0;
}

static void disk_io(rc_sample *r)
{
	rc_buf text = { 0 };
	char *save = NULL;
	read_text("/proc/diskstats", &text);
	for (char *line = text.p ? strtok_r((char *)text.p, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		char name[128];
		unsigned long long reads, read_sectors, writes, written_sectors;
		if (sscanf(line, "%*u %*u %127s %llu %*u %llu %*u %llu %*u %llu", name, &reads, &read_sectors, &writes, &written_sectors) != 5 || !is_disk(name))
			continue;
		r->disk_io[0] += read_sectors * SECTOR;
		r->disk_io[1] += written_sectors * SECTOR;
		r->disk_io[2] += reads;
		r->disk_io[3] += writes;
	}
	rc_buf_free(&text);
}

static void network(rc_sample *r)
{
	rc_buf text = { 0 };
	char *save = NULL;
	read_text("/proc/net/dev", &text);
	for (char *line = text.p ? strtok_r((char *)text.p, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		unsigned long long received, sent;
		while (*line == ' ')
			line++;
		char *colon = strchr(line, ':');
		if (*line != 'e' || !colon || sscanf(colon + 1, "%llu %*u %*u %*u %*u %*u %*u %*u %llu", &received, &sent) != 2)
			continue;
		r->network[0] += sent;
		r->network[1] += received;
	}
	rc_buf_free(&text);
}

/* Speeds over the last looks, up to HISTORY of them: a single quiet second does not read as silence. */
static void speeds(rc_sampler *s, rc_sample *r)
{
	if (s->n_history == HISTORY)
		memmove(s->history, s->history + 1, --s->n_history * sizeof(s->history[0]));
	past *now = &s->history[s->n_history++];
	now->at = r->now;
	memcpy(now->disk_io, r->disk_io, sizeof(now->disk_io));
	memcpy(now->network, r->network, sizeof(now->network));
	const past *then = &s->history[0];
	double passed = now->at - then->at;
	for (int i = 0; passed > 0 && i < 4; i++)
		r->disk_io_speed[i] = ((double)now->disk_io[i] - (double)then->disk_io[i]) / passed;
	for (int i = 0; passed > 0 && i < 2; i++)
		r->network_speed[i] = ((double)now->network[i] - (double)then->network[i]) / passed;
}

/* ---- processes and GPUs ---- */

static void gpus(rc_sampler *s, rc_sample *r)
{
	uint64_t now = rc_now_ms();
	if (!s->nvml && (!s->nvml_tried_ms || now - s->nvml_tried_ms > NVML_AGAIN_MS)) {
		s->nvml = rc_nvml_open();
		s->nvml_tried_ms = now;
	}
	if (!s->nvml)
		return;
	r->gpus = rc_alloc(RC_GPUS_MAX * sizeof(*r->gpus));
	r->n_gpus = rc_nvml_read(s->nvml, r->gpus);
}

static void add_gpu_shares(rc_sample *r, rc_process_info *p)
{
	for (size_t i = 0; i < r->n_gpus; i++)
		for (size_t k = 0; k < r->gpus[i].n_processes; k++) {
			const rc_gpu_process *g = &r->gpus[i].processes[k];
			if (g->pid != p->pid)
				continue;
			p->gpu_memory_mb += g->memory_mb;
			p->gpu_percent += g->percent > 0 ? (unsigned)g->percent : 0;
		}
}

static void processes(rc_sampler *s, const pid_t *pids, size_t n, rc_sample *r)
{
	rc_process_look(s->processes, getpid(), s->full_memory, &r->raylet);
	r->workers = rc_alloc((n + 1) * sizeof(*r->workers));
	for (size_t i = 0; i < n; i++) {
		rc_process_info *p = &r->workers[r->n_workers];
		if (rc_process_look(s->processes, pids[i], s->full_memory, p)) {
			add_gpu_shares(r, p);
			r->n_workers++;
		} else {
			rc_process_info_free(p);
		}
	}
	rc_process_table_sweep(s->processes);
	if (s->in_pod) { /* the pod's start, not the host's */
		rc_process_info first;
		if (rc_process_look(s->processes, 1, false, &first))
			r->boot = first.create_time;
		rc_process_info_free(&first);
	}
}

/* ---- the whole ---- */

rc_sampler *rc_sampler_create(const rc_sampler_options *o)
{
	rc_sampler *s = rc_alloc(sizeof(*s));
	const char *disk = getenv("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE");
	*s = (rc_sampler){ .processes = rc_process_table_create(), .temp_dir = rc_strdup(o->temp_dir), .full_memory = o->full_memory };
	s->in_pod = getenv("KUBERNETES_SERVICE_HOST") != NULL;
	s->pod_disk = disk && !strcmp(disk, "1");
	return s;
}

void rc_sampler_destroy(rc_sampler *s)
{
	if (!s)
		return;
	rc_process_table_destroy(s->processes);
	rc_nvml_close(s->nvml);
	free(s->temp_dir);
	free(s);
}

void rc_sample_take(rc_sampler *s, const pid_t *pids, size_t n_pids, rc_sample *ret)
{
	*ret = (rc_sample){ .now = (double)rc_wall_ms() / 1000, .cpus = rc_machine_cpus("") };
	if (!s->physical_cpus)
		s->physical_cpus = count_cores();
	ret->physical_cpus = s->physical_cpus;
	gethostname(ret->hostname, sizeof(ret->hostname) - 1);
	cpu(s, ret);
	memory(ret);
	if (getloadavg(ret->load, 3) != 3)
		memset(ret->load, 0, sizeof(ret->load));
	disk_usage(s, ret);
	disk_io(ret);
	network(ret);
	speeds(s, ret);
	gpus(s, ret);
	processes(s, pids, n_pids, ret);
}

void rc_sample_free(rc_sample *r)
{
	rc_process_info_free(&r->raylet);
	for (size_t i = 0; i < r->n_workers; i++)
		rc_process_info_free(&r->workers[i]);
	free(r->workers);
	for (size_t i = 0; i < r->n_gpus; i++)
		rc_gpu_free(&r->gpus[i]);
	free(r->gpus);
	*r = (rc_sample){ 0 };
}
