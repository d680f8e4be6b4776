/* "agent" is this process too: where stock has two processes, a node of ours has one. */
#include "raylet-c/agent/payload.h"

#include <math.h>
#include <string.h>

#include "raylet-c/agent/text.h"

#define LIST(out, format, v, n)                                                  \
	do {                                                                     \
		rc_buf_str(out, "[");                                            \
		for (size_t i_ = 0; i_ < (n); i_++)                              \
			rc_buf_printf(out, "%s" format, i_ ? ", " : "", (v)[i_]); \
		rc_buf_str(out, "]");                                            \
	} while (0)

static double rounded(double v, double places)
{
	return round(v * places) / places;
}

static void key_text(rc_buf *out, const char *key, const char *text)
{
	rc_buf_printf(out, "\"%s\": ", key);
	rc_json_string(out, text, strlen(text));
	rc_buf_str(out, ", ");
}

static void cmdline(rc_buf *out, const rc_process_info *p)
{
	const char *word = (const char *)p->cmdline.p, *end = word + p->cmdline.n;
	rc_buf_str(out, "[");
	for (bool first = true; word && word < end; word += strlen(word) + 1, first = false) {
		rc_buf_str(out, first ? "" : ", ");
		rc_json_string(out, word, strlen(word));
	}
	rc_buf_str(out, "]");
}

static void memory_235(rc_buf *out, const rc_process_info *p, bool full)
{
	rc_buf_printf(out, "{\"rss\": %llu, \"vms\": %llu, \"shared\": %llu, \"text\": %llu, \"lib\": 0, \"data\": %llu, \"dirty\": 0",
	              (unsigned long long)p->rss, (unsigned long long)p->vms, (unsigned long long)p->shared, (unsigned long long)p->text,
	              (unsigned long long)p->data);
	if (full)
		rc_buf_printf(out, ", \"uss\": %llu, \"pss\": %llu, \"swap\": %llu", (unsigned long long)p->uss, (unsigned long long)p->pss,
		              (unsigned long long)p->swap);
	rc_buf_str(out, "}");
}

static void process(rc_buf *out, const rc_process_info *p, bool v235, bool is_worker)
{
	rc_buf_printf(out, "{\"pid\": %d, \"createTime\": %.2f, \"cpuPercent\": %.1f, ", (int)p->pid, p->create_time, p->cpu_percent);
	rc_buf_printf(out, "\"cpuTimes\": {\"user\": %.2f, \"system\": %.2f, \"childrenUser\": %.2f, \"childrenSystem\": %.2f", p->user, p->system,
	              p->children_user, p->children_system);
	if (v235)
		rc_buf_printf(out, ", \"iowait\": %.2f", p->iowait);
	rc_buf_str(out, "}, \"cmdline\": ");
	cmdline(out, p);
	rc_buf_str(out, ", \"memoryInfo\": ");
	if (v235)
		memory_235(out, p, false);
	else
		rc_buf_printf(out, "{\"rss\": %llu.0, \"vms\": %llu.0, \"pfaults\": null, \"pageins\": null}", (unsigned long long)p->rss,
		              (unsigned long long)p->vms);
	rc_buf_str(out, ", \"memoryFullInfo\": ");
	if (v235 && p->has_full)
		memory_235(out, p, true);
	else
		rc_buf_str(out, "null");
	if (p->num_fds >= 0)
		rc_buf_printf(out, ", \"numFds\": %d", p->num_fds);
	else
		rc_buf_str(out, ", \"numFds\": null");
	if (!v235 && is_worker)
		rc_buf_printf(out, ", \"gpuMemoryUsage\": %u, \"gpuUtilization\": %u", p->gpu_memory_mb, p->gpu_percent);
	else if (!v235)
		rc_buf_str(out, ", \"gpuMemoryUsage\": null, \"gpuUtilization\": null");
	rc_buf_str(out, "}");
}

static void number_or_null(rc_buf *out, const char *key, int v)
{
	if (v >= 0)
		rc_buf_printf(out, ", \"%s\": %d", key, v);
	else
		rc_buf_printf(out, ", \"%s\": null", key);
}

static void gpu(rc_buf *out, const rc_gpu *g, bool v235)
{
	rc_buf_printf(out, "{\"index\": %d, ", g->index);
	key_text(out, "name", g->name);
	key_text(out, "uuid", g->uuid);
	rc_buf_printf(out, "\"memoryUsed\": %llu, \"memoryTotal\": %llu", (unsigned long long)g->used_mb, (unsigned long long)g->total_mb);
	number_or_null(out, "utilizationGpu", g->percent);
	rc_buf_str(out, ", \"processesPids\": [");
	for (size_t i = 0; i < g->n_processes; i++) {
		const rc_gpu_process *p = &g->processes[i];
		rc_buf_printf(out, "%s{\"pid\": %d, \"gpuMemoryUsage\": %u", i ? ", " : "", (int)p->pid, p->memory_mb);
		if (!v235)
			number_or_null(out, "gpuUtilization", p->percent);
		rc_buf_str(out, "}");
	}
	rc_buf_str(out, "]");
	if (!v235) {
		number_or_null(out, "powerMw", g->power_mw);
		number_or_null(out, "temperatureC", g->celsius);
	}
	rc_buf_str(out, "}");
}

static void disks(rc_buf *out, const rc_sample *s)
{
	rc_buf_str(out, "\"disk\": {");
	for (size_t i = 0; i < s->n_disks; i++) {
		const rc_disk_usage *d = &s->disks[i];
		rc_buf_str(out, i ? ", " : "");
		rc_json_string(out, d->path, strlen(d->path));
		rc_buf_printf(out, ": {\"total\": %llu, \"used\": %llu, \"free\": %llu, \"percent\": %.1f}", (unsigned long long)d->total,
		              (unsigned long long)d->used, (unsigned long long)d->free, d->percent);
	}
	rc_buf_str(out, "}, ");
}

static void memory(rc_buf *out, const rc_sample *s, bool v235)
{
	uint64_t available = s->mem_total > s->mem_used ? s->mem_total - s->mem_used : 0;
	double percent = s->mem_total ? rounded((double)s->mem_used / (double)s->mem_total, 1000) * 100 : 0;
	rc_buf_printf(out, "\"mem\": [%llu, %llu, %.1f, %llu], ", (unsigned long long)s->mem_total, (unsigned long long)available, percent,
	              (unsigned long long)s->mem_used);
	if (!v235) {
		rc_buf_printf(out, "\"hostMem\": [%llu, %llu], ", (unsigned long long)s->host_used, (unsigned long long)s->host_total);
		if (s->has_cgroup)
			rc_buf_printf(out, "\"cgroupMem\": [%llu, %llu], ", (unsigned long long)s->cgroup_used, (unsigned long long)s->cgroup_total);
		else
			rc_buf_str(out, "\"cgroupMem\": null, ");
	}
	rc_buf_printf(out, "\"shm\": %llu, ", (unsigned long long)s->shm);
}

static void load(rc_buf *out, const rc_sample *s)
{
	double each[3];
	rc_buf_str(out, "\"loadAvg\": [");
	LIST(out, "%.2f", s->load, 3);
	rc_buf_str(out, ", ");
	for (int i = 0; i < 3; i++)
		each[i] = s->cpus > 0 ? s->load[i] / s->cpus : 0;
	if (s->cpus > 0)
		LIST(out, "%.2f", each, 3);
	else
		rc_buf_str(out, "null");
	rc_buf_str(out, "], ");
}

void rc_payload_write(const rc_sample *s, bool v235, const char *ip, rc_buf *out)
{
	unsigned long long io[4], net[2];
	for (int i = 0; i < 4; i++)
		io[i] = s->disk_io[i];
	for (int i = 0; i < 2; i++)
		net[i] = s->network[i];
	rc_buf_printf(out, "{\"now\": %.3f, ", s->now);
	key_text(out, "hostname", s->hostname);
	key_text(out, "ip", ip);
	rc_buf_printf(out, "\"cpu\": %.1f, \"cpus\": [%d, %d], ", s->cpu_percent, s->cpus, s->physical_cpus);
	memory(out, s, v235);
	rc_buf_str(out, "\"workers\": [");
	for (size_t i = 0; i < s->n_workers; i++) {
		rc_buf_str(out, i ? ", " : "");
		process(out, &s->workers[i], v235, true);
	}
	rc_buf_str(out, "], \"raylet\": ");
	process(out, &s->raylet, v235, false);
	rc_buf_str(out, ", \"agent\": ");
	process(out, &s->raylet, v235, false);
	rc_buf_printf(out, ", \"bootTime\": %.1f, ", s->boot);
	load(out, s);
	disks(out, s);
	rc_buf_str(out, "\"diskIo\": ");
	LIST(out, "%llu", io, 4);
	rc_buf_str(out, ", \"diskIoSpeed\": ");
	LIST(out, "%.3f", s->disk_io_speed, 4);
	rc_buf_str(out, ", \"gpus\": [");
	for (size_t i = 0; i < s->n_gpus; i++) {
		rc_buf_str(out, i ? ", " : "");
		gpu(out, &s->gpus[i], v235);
	}
	rc_buf_str(out, "], ");
	if (!v235)
		rc_buf_str(out, "\"tpus\": [], ");
	rc_buf_str(out, "\"network\": ");
	LIST(out, "%llu", net, 2);
	rc_buf_str(out, ", \"networkSpeed\": ");
	LIST(out, "%.3f", s->network_speed, 2);
	rc_buf_str(out, ", \"cmdline\": ");
	cmdline(out, &s->raylet);
	rc_buf_str(out, v235 ? "}" : ", \"gcs\": null}");
}
