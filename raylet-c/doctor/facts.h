/* What a machine is, as far as training and its network care: the input of the choice (choice.h) and of the doctor's lines.
 *
 * Sources: Linux' sysfs and procfs, the EFA driver's own files (amzn-drivers 2.x: kernel/linux/efa/src/efa_sysfs.c, README),
 * what probe.h tells, the bytes of NCCL and its plugin (library.h). Nothing is kept. From a process with one thread. */
#ifndef RC_DOCTOR_FACTS_H
#define RC_DOCTOR_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/doctor/library.h"

enum { RC_FACTS_INTERFACES = 32, RC_FACTS_ADDRESSES = 64 };

typedef struct rc_efa_facts {
	int devices;
	char first[64];        /* "rdmap16s27" */
	char firmware[40], driver[40]; /* "": not told */
	unsigned pci_id;       /* 0xefa0 to 0xefa3; 0: not told */
	int opened;            /* devices whose /dev/infiniband/uverbsN this user may open */
	char open_error[128];  /* of the first that may not be opened */
	bool peer_memory;      /* the driver can reach memory of GPUs (sysfs p2p or gdr) */
} rc_efa_facts;

typedef struct rc_libfabric_facts {
	char path[256], version[16]; /* "": there is none, error says why */
	char providers[200];   /* "efa, tcp, shm" */
	bool efa, tcp, shm;
	bool efa_gpu_memory;   /* efa takes memory of GPUs (FI_HMEM) */
	char error[256];
} rc_libfabric_facts;

typedef struct rc_gpu_facts {
	int count;             /* 0: none, or error */
	char product[96], driver[40], cuda[16];
	bool nvlink;           /* the first has an active link */
	char error[256];
	bool peer_module, gdrdrv, dmabuf; /* nvidia_peermem; gdrdrv; the open kernel modules, which export dma-buf */
} rc_gpu_facts;

typedef struct rc_interface {
	char name[16], address[64]; /* address "": none */
	bool up, device;       /* device: hardware or what the hypervisor shows as such; not a bridge, veth, tunnel, lo */
	long long mbits;       /* -1: not told */
	bool of_node;          /* has the node's own address */
} rc_interface;

typedef struct rc_facts {
	char instance[64];     /* "p5.48xlarge" on EC2, else "" */
	int kernel_major, kernel_minor;
	rc_efa_facts efa;
	rc_libfabric_facts libfabric;
	rc_gpu_facts gpu;
	rc_library nccl, plugin;
	char plugin_error[256]; /* a file was there and could not be used */
	bool plugin_in_cache;  /* the system's loader finds it by its name */

	uint64_t locked_memory; /* bytes; UINT64_MAX: unlimited */
	bool limits_known, ipc_lock; /* CAP_IPC_LOCK: the limit does not count */
	uint64_t open_files;
	long long huge_total, huge_free, huge_kib;
	uint64_t shm_bytes, shm_free; /* of /dev/shm; 0: there is none */
	uint64_t memory_bytes, group_memory; /* group_memory: the control group's limit, 0: none */
	double group_cpus;     /* 0: no limit */
	long cpus;

	rc_interface interfaces[RC_FACTS_INTERFACES];
	size_t n_interfaces;
	bool clock_known, clock_synchronised;
	long clock_error_us;
} rc_facts;

typedef struct rc_facts_options {
	const char *root;          /* "": this machine; else a folder that describes one */
	const char *address;       /* the node's own; NULL: not known */
	const char *site_packages; /* where the workers' Python has its packages; NULL: not known */
	const char *library_path;  /* LD_LIBRARY_PATH of the workers; NULL: none */
	bool brief;                /* only what the choice needs: no GPUs, clock or NCCL; libfabric only where EFA is */
} rc_facts_options;

void rc_facts_gather(const rc_facts_options *options, rc_facts *ret);
/* The interface with the node's own address; NULL: none has it, or it is not known. */
const rc_interface *rc_facts_own(const rc_facts *f);

#endif
