/* The functions are NVML's documented C interface (nvml.h); structs below are those of its versions named in the symbols. A
 * function that a driver lacks leaves its figure unknown. A GPU in MIG mode is shown as its instances, with the index
 * 1000 * GPU + instance, as 2.60.0's agent does. */
#include "raylet-c/agent/gpus.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/loop.h"

enum { TEMPERATURE_GPU = 0, MB_SHIFT = 20 };
#define NOT_AVAILABLE (~0ull) /* NVML_VALUE_NOT_AVAILABLE */

typedef void *device;
typedef struct memory {
	unsigned long long total, free, used;
} memory;
typedef struct utilization {
	unsigned gpu, memory;
} utilization;
typedef struct process { /* nvmlProcessInfo_v2_t, of the ..._v3 functions too */
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
} process;
typedef struct sample { /* nvmlProcessUtilizationSample_t */
	unsigned pid;
	unsigned long long time_us;
	unsigned sm, memory, encoder, decoder;
} sample;

struct rc_nvml {
	void *library;
	int (*init)(void);
	int (*shutdown)(void);
	int (*count)(unsigned *);
	int (*by_index)(unsigned, device *);
	int (*name)(device, char *, unsigned);
	int (*uuid)(device, char *, unsigned);
	int (*memory_info)(device, memory *);
	int (*rates)(device, utilization *);
	int (*compute)(device, unsigned *, process *);
	int (*graphics)(device, unsigned *, process *);
	int (*process_rates)(device, sample *, unsigned *, unsigned long long);
	int (*power)(device, unsigned *);
	int (*temperature)(device, int, unsigned *);
	int (*mig_mode)(device, unsigned *, unsigned *);
	int (*mig_count)(device, unsigned *);
	int (*mig_device)(device, unsigned, device *);
	unsigned long long seen_us; /* of the newest utilization sample */
};

/* The newest of the names that the driver has; NULL: none. */
static void find(void *library, void *ret, const char *newest, const char *older)
{
	void *f = dlsym(library, newest);
	if (!f && older)
		f = dlsym(library, older);
	memcpy(ret, &f, sizeof(f));
}

rc_nvml *rc_nvml_open(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return NULL;
	rc_nvml *n = rc_alloc(sizeof(*n));
	n->library = library;
	find(library, &n->init, "nvmlInit_v2", NULL);
	find(library, &n->shutdown, "nvmlShutdown", NULL);
	find(library, &n->count, "nvmlDeviceGetCount_v2", NULL);
	find(library, &n->by_index, "nvmlDeviceGetHandleByIndex_v2", NULL);
	find(library, &n->name, "nvmlDeviceGetName", NULL);
	find(library, &n->uuid, "nvmlDeviceGetUUID", NULL);
	find(library, &n->memory_info, "nvmlDeviceGetMemoryInfo", NULL);
	find(library, &n->rates, "nvmlDeviceGetUtilizationRates", NULL);
	find(library, &n->compute, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
	find(library, &n->graphics, "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2");
	find(library, &n->process_rates, "nvmlDeviceGetProcessUtilization", NULL);
	find(library, &n->power, "nvmlDeviceGetPowerUsage", NULL);
	find(library, &n->temperature, "nvmlDeviceGetTemperature", NULL);
	find(library, &n->mig_mode, "nvmlDeviceGetMigMode", NULL);
	find(library, &n->mig_count, "nvmlDeviceGetMaxMigDeviceCount", NULL);
	find(library, &n->mig_device, "nvmlDeviceGetMigDeviceHandleByIndex", NULL);
	if (!n->init || !n->shutdown || !n->count || !n->by_index || !n->memory_info || n->init() != 0) {
		dlclose(library);
		free(n);
		return NULL;
	}
	return n;
}

void rc_nvml_close(rc_nvml *n)
{
	if (!n)
		return;
	n->shutdown();
	dlclose(n->library);
	free(n);
}

static void add_processes(rc_gpu *g, int (*list)(device, unsigned *, process *), device d)
{
	process found[RC_GPU_PROCESSES_MAX];
	unsigned count = RC_GPU_PROCESSES_MAX;
	if (!list || list(d, &count, found) != 0)
		return;
	g->processes = rc_realloc(g->processes, (g->n_processes + count + 1) * sizeof(*g->processes));
	for (unsigned i = 0; i < count; i++) {
		unsigned long long used = found[i].used == NOT_AVAILABLE ? 0 : found[i].used;
		g->processes[g->n_processes++] = (rc_gpu_process){ .pid = (pid_t)found[i].pid, .memory_mb = (unsigned)(used >> MB_SHIFT), .percent = -1 };
	}
}

static void add_rates(rc_nvml *n, rc_gpu *g, device d)
{
	sample samples[RC_GPU_PROCESSES_MAX];
	unsigned count = RC_GPU_PROCESSES_MAX;
	if (!n->process_rates || !g->n_processes || n->process_rates(d, samples, &count, n->seen_us) != 0)
		return;
	for (unsigned i = 0; i < count; i++)
		for (size_t k = 0; k < g->n_processes; k++)
			if (g->processes[k].pid == (pid_t)samples[i].pid && samples[i].sm <= 100)
				g->processes[k].percent = (int)samples[i].sm;
}

static bool read_device(rc_nvml *n, device d, int index, bool mig, rc_gpu *g)
{
	memory m;
	utilization u;
	unsigned v;
	*g = (rc_gpu){ .index = index, .percent = -1, .power_mw = -1, .celsius = -1 };
	if (n->memory_info(d, &m) != 0)
		return false;
	g->used_mb = m.used >> MB_SHIFT;
	g->total_mb = m.total >> MB_SHIFT;
	if (n->name)
		n->name(d, g->name, sizeof(g->name));
	if (n->uuid)
		n->uuid(d, g->uuid, sizeof(g->uuid));
	if (n->rates && n->rates(d, &u) == 0)
		g->percent = (int)u.gpu;
	add_processes(g, n->compute, d);
	add_processes(g, n->graphics, d);
	if (mig)
		return true;
	add_rates(n, g, d);
	if (n->power && n->power(d, &v) == 0)
		g->power_mw = (int)v;
	if (n->temperature && n->temperature(d, TEMPERATURE_GPU, &v) == 0)
		g->celsius = (int)v;
	return true;
}

static size_t read_instances(rc_nvml *n, device d, int index, rc_gpu *gpus, size_t room)
{
	unsigned count = 0;
	size_t found = 0;
	if (!n->mig_count || !n->mig_device || n->mig_count(d, &count) != 0)
		return 0;
	for (unsigned i = 0; i < count && found < room; i++) {
		device instance;
		if (n->mig_device(d, i, &instance) == 0 && read_device(n, instance, index * 1000 + (int)i, true, &gpus[found]))
			found++;
	}
	return found;
}

size_t rc_nvml_read(rc_nvml *n, rc_gpu *gpus)
{
	unsigned count = 0;
	size_t found = 0;
	unsigned long long now_us = rc_wall_ms() * 1000;
	if (n->count(&count) != 0)
		return 0;
	for (unsigned i = 0; i < count && found < RC_GPUS_MAX; i++) {
		device d;
		unsigned mode = 0, pending;
		if (n->by_index(i, &d) != 0)
			continue;
		if (n->mig_mode && n->mig_mode(d, &mode, &pending) == 0 && mode)
			found += read_instances(n, d, (int)i, gpus + found, RC_GPUS_MAX - found);
		else if (read_device(n, d, (int)i, false, &gpus[found]))
			found++;
	}
	n->seen_us = now_us;
	return found;
}

void rc_gpu_free(rc_gpu *g)
{
	free(g->processes);
	g->processes = NULL;
}
