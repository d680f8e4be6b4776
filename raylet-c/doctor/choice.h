/* Which transport trainers use within a node and between nodes, why not the better one, and the environment that makes NCCL and
 * libfabric use it. Pure: facts in, words out. Any thread.
 *
 * Facts behind the rules:
 * - EFA under NCCL takes three parts: devices that this user may open, a libfabric with the efa provider, a network plugin
 *   (aws-ofi-nccl) with an interface that this NCCL looks for. One missing: NCCL takes TCP sockets and says so in debug logs only.
 * - EFA registers memory: with a small limit of locked memory and without CAP_IPC_LOCK it fails when it posts buffers.
 * - GPUs' memory is reached by EFA itself (GPUDirect RDMA) on EC2's P series from p4d on, not on g4dn, g5, g6, g6e
 *   (aws-ofi-nccl, issue 547, August 2025); there NCCL copies through memory of the host.
 * - fork: the efa provider of libfabric 1.13 to 2.x ends a process that forks, unless FI_EFA_FORK_SAFE is set or kernel (5.13) and
 *   rdma-core (35) copy pinned pages; before 1.13 the variable is RDMAV_FORK_SAFE (fi_efa(7), prov/efa/src/efa_fork_support.c).
 *   Its bounce buffers in huge pages make fork fail with out-of-memory when those run out: FI_EFA_USE_HUGE_PAGE.
 * - Before libfabric 1.18 GPUDirect needs FI_EFA_USE_DEVICE_RDMA=1.
 * - NCCL's protocols LL and LL128 need bytes to arrive in order. Plugins from 1.7 on turn them off by themselves where EFA does not
 *   promise that (NCCL_PROTO=simple); older ones do not. */
#ifndef RC_DOCTOR_CHOICE_H
#define RC_DOCTOR_CHOICE_H

#include "raylet-c/doctor/facts.h"

typedef enum rc_via { RC_VIA_NONE, RC_VIA_SHM, RC_VIA_NVLINK, RC_VIA_TCP, RC_VIA_EFA } rc_via;
const char *rc_via_name(rc_via via); /* "none", "shm", "nvlink", "tcp", "efa" */

typedef struct rc_choice {
	rc_via nccl_within, nccl_between;     /* nccl_within none: fewer than two GPUs */
	rc_via fabric_within, fabric_between; /* of raylet-c/fabric: objects, CPU ranks */
	bool gpu_direct;         /* EFA reaches the GPUs' memory itself */
	bool no_gpu_direct;      /* this kind of machine's EFA cannot */
	bool efa_there;          /* devices are, whether used or not */
	char interface[16];      /* for TCP and NCCL's bootstrap; "": not known */
	char why_not_efa[400];   /* efa_there and not used by NCCL: what is missing; else "" */
	char cure[200];          /* beside why_not_efa */
} rc_choice;

void rc_choose(const rc_facts *facts, rc_choice *ret);

/* Enough memory may be locked for EFA. */
bool rc_choice_may_lock(const rc_facts *facts);

enum { RC_CHOICE_WORDS = 16 };
typedef struct rc_choice_env {
	char v[RC_CHOICE_WORDS][320]; /* NAME=value */
	size_t n;
} rc_choice_env;
/* Defaults for train workers: for variables that the user has not set. require_efa: NCCL is to fail rather than take another. */
void rc_choice_environment(const rc_facts *facts, const rc_choice *choice, bool require_efa, rc_choice_env *ret);

#endif
