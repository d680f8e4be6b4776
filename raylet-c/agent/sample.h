/* What a node is doing: the figures that go to the head every few seconds and to Prometheus. Sources, units and rules are
 * those of Ray's agents (2.35.0 and 2.60.0: ray/dashboard/modules/reporter/reporter_agent.py, k8s_utils.py, psutil).
 *
 * A sampler remembers what speeds and percentages need. rc_sample_take reads /proc, /sys and NVML, which takes milliseconds: it
 * is for a pool thread, one at a time for one sampler. */
#ifndef RC_AGENT_SAMPLE_H
#define RC_AGENT_SAMPLE_H

#include "raylet-c/agent/gpus.h"
#include "raylet-c/agent/processes.h"

typedef struct rc_disk_usage {
	const char *path; /* borrowed from the options */
	uint64_t total, used, free;
	double percent;
} rc_disk_usage;

typedef struct rc_sample {
	double now, boot; /* seconds since 1970 */
	char hostname[256];
	double cpu_percent; /* of all CPUs */
	int cpus, physical_cpus;
	uint64_t mem_total, mem_used;             /* as the control group allows */
	uint64_t host_used, host_total;
	bool has_cgroup;
	uint64_t cgroup_used, cgroup_total;
	uint64_t shm;
	double load[3];
	rc_disk_usage disks[2];
	size_t n_disks;
	uint64_t disk_io[4];      /* bytes read, bytes written, reads, writes */
	double disk_io_speed[4];  /* a second */
	uint64_t network[2];      /* bytes sent, received, of interfaces whose name begins with e */
	double network_speed[2];
	rc_process_info raylet;
	rc_process_info *workers;
	size_t n_workers;
	rc_gpu *gpus;
	size_t n_gpus;
} rc_sample;

typedef struct rc_sampler_options {
	const char *temp_dir; /* the second file system that is shown; copied */
	bool full_memory;     /* smaps_rollup of each process: 2.35.0 */
} rc_sampler_options;

typedef struct rc_sampler rc_sampler;
rc_sampler *rc_sampler_create(const rc_sampler_options *options);
void rc_sampler_destroy(rc_sampler *s); /* NULL is fine */

/* pids: of the workers and drivers of this node. The caller frees what it gets. */
void rc_sample_take(rc_sampler *s, const pid_t *pids, size_t n_pids, rc_sample *ret);
void rc_sample_free(rc_sample *sample);

#endif
