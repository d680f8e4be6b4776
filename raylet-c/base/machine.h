/* What `ray start` finds out about the machine when no flag says it, by the same rules (2.35.0 and 2.60.0:
 * ray/_private/utils.py, resource_spec.py, accelerators/nvidia_gpu.py): CPUs and memory as the control group allows them,
 * free shared memory, NVIDIA devices, the address by which the head would be reached. Nothing is kept; any thread.
 * `root` is put before /sys and /proc: "" but in tests. */
#ifndef RC_BASE_MACHINE_H
#define RC_BASE_MACHINE_H

#include <stdint.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/status.h"

/* Whole CPUs: the smaller of the machine's and what cpu.max (or quota and period, and cpuset, of version 1) grants; a grant
 * below one counts as 0, as Ray has it. RAY_USE_MULTIPROCESSING_CPU_COUNT in the environment: the machine's. */
int rc_machine_cpus(const char *root);

typedef struct rc_memory {
	uint64_t total, used; /* bytes; the control group's where it has a limit or counts */
} rc_memory;
int rc_machine_memory(const char *root, rc_memory *ret, rc_error *error) RC_WARN_UNUSED;

/* Free bytes of the file system at path (/dev/shm). */
int rc_machine_free_bytes(const char *path, uint64_t *ret, rc_error *error) RC_WARN_UNUSED;

typedef struct rc_gpus {
	int count;        /* by NVML; 0 without a driver */
	char product[96]; /* of the first: "NVIDIA A100-SXM4-40GB"; "" when there is none */
} rc_gpus;
rc_gpus rc_machine_gpus(void);
/* "NVIDIA A100-SXM4-40GB" -> "A100". fallback: 2.60.0 names consumer cards by their product name, 2.35.0 not at all. */
void rc_gpu_type(const char *product, bool fallback, char ret[64]);

/* The local address of a UDP socket connected towards host (nothing is sent); 127.0.0.1 when there is no route. */
void rc_machine_ip_towards(const char *host, int port, char ret[64]);
/* 127.0.0.1, localhost, ::1 are no address for others: replaced by the address towards the outside. */
bool rc_is_localhost(const char *host);

#endif
