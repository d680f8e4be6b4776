/* NVIDIA GPUs by NVML, the driver's library, opened when asked. Units as Ray's agents publish them: MB of 2^20 bytes, percent,
 * milliwatts, degrees Celsius. One user at a time; any thread. */
#ifndef RC_AGENT_GPUS_H
#define RC_AGENT_GPUS_H

#include <stddef.h>
#include <sys/types.h>

#include "raylet-c/base/buf.h"

enum { RC_GPUS_MAX = 64, RC_GPU_PROCESSES_MAX = 256 };

typedef struct rc_gpu_process {
	pid_t pid;
	unsigned memory_mb;
	int percent; /* -1: not known */
} rc_gpu_process;

typedef struct rc_gpu {
	int index;
	char name[96], uuid[96];
	int percent;             /* -1: not known */
	uint64_t used_mb, total_mb;
	int power_mw, celsius;   /* -1: not known */
	rc_gpu_process *processes;
	size_t n_processes;
} rc_gpu;

typedef struct rc_nvml rc_nvml;
/* NULL: no driver here. That is looked at once a minute at most by the caller's choice. */
rc_nvml *rc_nvml_open(void);
void rc_nvml_close(rc_nvml *n); /* NULL is fine */
/* Fills gpus (room for RC_GPUS_MAX), returns how many; each has its processes to be freed by rc_gpu_free. */
size_t rc_nvml_read(rc_nvml *n, rc_gpu *gpus);
void rc_gpu_free(rc_gpu *g);

#endif
