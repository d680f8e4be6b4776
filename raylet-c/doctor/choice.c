#include "raylet-c/doctor/choice.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCK_ENOUGH (UINT64_C(1) << 30) /* the provider's buffers of one process and some headroom */

const char *rc_via_name(rc_via via)
{
	static const char *const names[] = { "none", "shm", "nvlink", "tcp", "efa" };
	return names[via];
}

bool rc_choice_may_lock(const rc_facts *f)
{
	return f->ipc_lock || !f->limits_known || f->locked_memory >= LOCK_ENOUGH;
}

static bool older_than(const char *version, int major, int minor)
{
	int a = 0, b = 0;
	return sscanf(version, "%d.%d", &a, &b) == 2 && (a < major || (a == major && b < minor));
}

/* Families whose EFA cannot reach GPUs' memory. */
static bool lacks_gpu_direct(const char *instance)
{
	static const char *const families[] = { "g4dn.", "g5.", "g6.", "g6e.", "gr6.", "p3dn.", "g7e.8xlarge" };
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		if (strncmp(instance, families[i], strlen(families[i])) == 0)
			return true;
	return false;
}

static bool missing(rc_choice *c, const char *cure, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool missing(rc_choice *c, const char *cure, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(c->why_not_efa, sizeof(c->why_not_efa), format, args);
	va_end(args);
	snprintf(c->cure, sizeof(c->cure), "%s", cure);
	return false;
}

/* EFA as such, whoever uses it. */
static bool efa_works(const rc_facts *f, rc_choice *c)
{
	if (f->efa.opened == 0)
		return missing(c, "give the pod or container the devices: resource vpc.amazonaws.com/efa, or --device /dev/infiniband/uverbs0 ...",
		               "%s", f->efa.open_error);
	if (!*f->libfabric.version)
		return missing(c, "install libfabric with AWS's EFA installer", "no libfabric: %.200s", f->libfabric.error);
	if (!f->libfabric.efa)
		return missing(c, "install AWS's EFA installer (its libfabric is in /opt/amazon/efa), or name it by RAYLET_C_LIBFABRIC",
		               "libfabric %s (%.200s) finds no efa, only %.100s", f->libfabric.version, f->libfabric.path, f->libfabric.providers);
	if (!rc_choice_may_lock(f))
		return missing(c, "ulimit -l unlimited before ray start; in a pod: capability IPC_LOCK, or the container runtime's memlock",
		               "only %llu KiB of memory may be locked (ulimit -l)", (unsigned long long)(f->locked_memory / 1024));
	return true;
}

static bool nccl_can_use_efa(const rc_facts *f, rc_choice *c)
{
	char theirs[96], ours[96];
	if (!*f->plugin.path && *f->plugin_error)
		return missing(c, "install aws-ofi-nccl anew", "the NCCL plugin cannot be used: %.250s", f->plugin_error);
	if (!*f->plugin.path)
		return missing(c, "install aws-ofi-nccl (part of AWS's EFA installer from 1.37 on), or set NCCL_NET_PLUGIN", "there is no NCCL plugin libnccl-net.so");
	if (*f->nccl.path && rc_library_common_net(&f->nccl, &f->plugin) == 0) {
		rc_library_net_text(f->nccl.net_looked_for, ours);
		rc_library_net_text(f->plugin.net_exported, theirs);
		return missing(c, "install an aws-ofi-nccl made for this NCCL", "NCCL %s looks for plugin interfaces %s, aws-ofi-nccl %s has %s",
		               f->nccl.version, ours, f->plugin.version, theirs);
	}
	return true;
}

void rc_choose(const rc_facts *f, rc_choice *ret)
{
	rc_choice c = { .efa_there = f->efa.devices > 0, .no_gpu_direct = lacks_gpu_direct(f->instance) };
	const rc_interface *own = rc_facts_own(f);
	if (own)
		snprintf(c.interface, sizeof(c.interface), "%s", own->name);
	bool efa = c.efa_there && efa_works(f, &c);
	c.fabric_between = efa ? RC_VIA_EFA : RC_VIA_TCP;
	c.fabric_within = RC_VIA_SHM;
	c.nccl_between = efa && nccl_can_use_efa(f, &c) ? RC_VIA_EFA : RC_VIA_TCP;
	c.nccl_within = f->gpu.count < 2 ? RC_VIA_NONE : f->gpu.nvlink ? RC_VIA_NVLINK : RC_VIA_SHM;
	c.gpu_direct = c.nccl_between == RC_VIA_EFA && f->libfabric.efa_gpu_memory && f->efa.peer_memory && !c.no_gpu_direct;
	*ret = c;
}

static void add(rc_choice_env *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(rc_choice_env *e, const char *format, ...)
{
	va_list args;
	if (e->n == RC_CHOICE_WORDS)
		return;
	va_start(args, format);
	int n = vsnprintf(e->v[e->n], sizeof(e->v[e->n]), format, args);
	va_end(args);
	if (n > 0 && (size_t)n < sizeof(e->v[e->n]) && !strchr(e->v[e->n], '\n'))
		e->n++;
}

void rc_choice_environment(const rc_facts *f, const rc_choice *c, bool require_efa, rc_choice_env *ret)
{
	ret->n = 0;
	if (*c->interface) {
		add(ret, "NCCL_SOCKET_IFNAME==%s", c->interface); /* "=NAME": this one, not those that begin so */
		add(ret, "GLOO_SOCKET_IFNAME=%s", c->interface);
	}
	if (c->nccl_between != RC_VIA_EFA)
		return;
	add(ret, "FI_PROVIDER=efa");
	add(ret, older_than(f->libfabric.version, 1, 13) ? "RDMAV_FORK_SAFE=1" : "FI_EFA_FORK_SAFE=1");
	add(ret, "FI_EFA_USE_HUGE_PAGE=0"); /* data loaders fork */
	if (c->gpu_direct && older_than(f->libfabric.version, 1, 18))
		add(ret, "FI_EFA_USE_DEVICE_RDMA=1");
	if (!f->plugin_in_cache)
		add(ret, "NCCL_NET_PLUGIN=%s", f->plugin.path);
	if (!f->plugin.guards_protocol)
		add(ret, "NCCL_PROTO=simple");
	if (require_efa && *f->plugin.net_name)
		add(ret, "NCCL_NET=%s", f->plugin.net_name);
}
