/* One function a line, in the order of the screen. A machine without GPUs and EFA is no fault: such lines are SKIP. */
#include "raylet-c/doctor/lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

typedef struct scene {
	const rc_facts *f;
	const rc_choice *c;
	const rc_line_context *x;
	rc_lines *out;
} scene;

const char *rc_mark_name(rc_mark mark)
{
	static const char *const names[] = { "OK", "WARN", "FAIL", "SKIP" };
	return names[mark];
}

static rc_line *add(scene *s, const char *name, rc_mark mark, const char *format, ...) __attribute__((format(printf, 4, 5)));
static rc_line *add(scene *s, const char *name, rc_mark mark, const char *format, ...)
{
	va_list args;
	rc_line *l = &s->out->v[s->out->n < RC_LINES ? s->out->n++ : RC_LINES - 1];
	*l = (rc_line){ .name = name, .mark = mark };
	va_start(args, format);
	vsnprintf(l->text, sizeof(l->text), format, args);
	va_end(args);
	return l;
}

static void cure(rc_line *l, const char *text)
{
	snprintf(l->cure, sizeof(l->cure), "%s", text);
}

static const char *variable(const scene *s, const char *name)
{
	const char *value = s->x->getenv ? s->x->getenv(name) : getenv(name);
	return value && *value ? value : NULL;
}

static void ray(scene *s)
{
	if (!s->x->ray_release) {
		add(s, "ray", RC_MARK_SKIP, "no ray package: %s", s->x->ray_text ? s->x->ray_text : "not looked for");
		return;
	}
	if (!s->x->ray_supported)
		cure(add(s, "ray", RC_MARK_FAIL, "%s, %s", s->x->ray_release, s->x->ray_text), "install one of the supported releases (raylet-c version)");
	else if (!s->x->ray_enabled)
		cure(add(s, "ray", RC_MARK_WARN, "%s, %s", s->x->ray_release, s->x->ray_text), "raylet-c enable, or raylet-c start");
	else
		add(s, "ray", RC_MARK_OK, "%s, %s", s->x->ray_release, s->x->ray_text);
}

static void kuberay(scene *s)
{
	const char *address = variable(s, "RAY_ADDRESS"), *cluster = variable(s, "RAY_CLUSTER_NAME"), *ip = variable(s, "FQ_RAY_IP");
	if (!variable(s, "KUBERNETES_SERVICE_HOST")) {
		add(s, "kuberay", RC_MARK_SKIP, "not in a pod");
		return;
	}
	if (!cluster && !variable(s, "KUBERAY_GEN_RAY_START_CMD")) {
		add(s, "kuberay", RC_MARK_SKIP, "in a pod, not one of KubeRay's");
		return;
	}
	rc_line *l = add(s, "kuberay", address || ip ? RC_MARK_OK : RC_MARK_WARN, "cluster %s, head %s", cluster ? cluster : "(no RAY_CLUSTER_NAME)",
	                 address ? address : ip ? ip : "not told");
	if (l->mark == RC_MARK_WARN)
		cure(l, "KubeRay sets RAY_ADDRESS and FQ_RAY_IP on worker pods: look at the operator's version");
}

static void gpus(scene *s)
{
	const rc_gpu_facts *g = &s->f->gpu;
	if (g->count == 0)
		add(s, "gpus", RC_MARK_SKIP, "none: %.250s", *g->error ? g->error : "the driver shows no device");
	else
		add(s, "gpus", RC_MARK_OK, "%d x %s, driver %s, CUDA %s%s", g->count, g->product, *g->driver ? g->driver : "?", *g->cuda ? g->cuda : "?",
		    g->nvlink ? ", NVLink" : "");
}

static void efa(scene *s)
{
	const rc_efa_facts *e = &s->f->efa;
	if (e->devices == 0) {
		rc_line *l = add(s, "efa", s->x->require_efa ? RC_MARK_FAIL : RC_MARK_SKIP, "no EFA device in /sys/class/infiniband%s%s",
		                 *s->f->instance ? " on " : "", s->f->instance);
		if (s->x->require_efa)
			cure(l, "attach an EFA interface (instance type that has it, security group with all traffic to itself), load the efa driver");
		return;
	}
	rc_line *l = add(s, "efa", e->opened == e->devices ? RC_MARK_OK : RC_MARK_FAIL, "%d x %s (0x%x), firmware %s, driver %s", e->devices, e->first,
	                 e->pci_id, *e->firmware ? e->firmware : "?", *e->driver ? e->driver : "the kernel's own");
	if (e->opened == e->devices)
		return;
	size_t n = strlen(l->text);
	snprintf(l->text + n, sizeof(l->text) - n, "; %d of them cannot be opened: %s", e->devices - e->opened, e->open_error);
	cure(l, "in a pod: resource vpc.amazonaws.com/efa; in a container: --device /dev/infiniband/uverbs0 ...; the files' mode is 0666");
}

static void libfabric(scene *s)
{
	const rc_libfabric_facts *l = &s->f->libfabric;
	bool wanted = s->f->efa.devices > 0;
	if (!*l->version) {
		rc_line *line = add(s, "libfabric", wanted ? RC_MARK_FAIL : RC_MARK_WARN, "none: %s", *l->error ? l->error : "not found");
		cure(line, wanted ? "AWS's EFA installer" : "install libfabric1: objects between nodes of ours go over gRPC without it");
	} else if (wanted && !l->efa) {
		cure(add(s, "libfabric", RC_MARK_FAIL, "%s (%s) has no efa: %s", l->version, l->path, l->providers),
		     "AWS's EFA installer (/opt/amazon/efa), or name that library by RAYLET_C_LIBFABRIC");
	} else {
		add(s, "libfabric", RC_MARK_OK, "%s (%s): %s", l->version, l->path, l->providers);
	}
}

static void gpu_direct(scene *s)
{
	const rc_facts *f = s->f;
	if (f->gpu.count == 0 || f->efa.devices == 0) {
		add(s, "gpudirect", RC_MARK_SKIP, "needs GPUs and EFA");
		return;
	}
	char parts[200];
	snprintf(parts, sizeof(parts), "efa driver %s, libfabric's efa %s FI_HMEM, %s", f->efa.peer_memory ? "with peer memory" : "without peer memory",
	         f->libfabric.efa_gpu_memory ? "with" : "without",
	         f->gpu.peer_module ? "nvidia_peermem" : f->gpu.dmabuf ? "dma-buf" : f->gpu.gdrdrv ? "gdrdrv" : "no nvidia_peermem or dma-buf");
	if (s->c->no_gpu_direct)
		add(s, "gpudirect", RC_MARK_OK, "not on %s, whose GPUs' data goes through memory of the host (%s)", f->instance, parts);
	else if (s->c->gpu_direct)
		add(s, "gpudirect", RC_MARK_OK, "%s", parts);
	else if (s->c->nccl_between != RC_VIA_EFA)
		add(s, "gpudirect", RC_MARK_SKIP, "NCCL does not use EFA: see the line transport");
	else
		cure(add(s, "gpudirect", RC_MARK_WARN, "not usable: %s", parts), "efa driver and libfabric of AWS's EFA installer after the NVIDIA driver");
}

static void nccl(scene *s)
{
	const rc_facts *f = s->f;
	char common[16], theirs[96];
	if (!*f->nccl.path)
		add(s, "nccl", f->gpu.count ? RC_MARK_WARN : RC_MARK_SKIP, "no libnccl.so.2 beside torch or in the system");
	else {
		rc_library_net_text(f->nccl.net_looked_for, theirs);
		add(s, "nccl", RC_MARK_OK, "%s (%s), plugin interfaces %s", *f->nccl.version ? f->nccl.version : "version not told", f->nccl.path, theirs);
	}
	if (s->out->v[s->out->n - 1].mark == RC_MARK_WARN)
		cure(&s->out->v[s->out->n - 1], "pip install torch for CUDA brings it");
	if (!*f->plugin.path && !*f->plugin_error) {
		rc_line *l = add(s, "nccl_plugin", f->efa.devices ? RC_MARK_FAIL : RC_MARK_SKIP, "no libnccl-net.so");
		if (f->efa.devices)
			cure(l, "install aws-ofi-nccl (part of AWS's EFA installer from 1.37 on), or name it by NCCL_NET_PLUGIN");
		return;
	}
	if (!*f->plugin.path) {
		cure(add(s, "nccl_plugin", RC_MARK_FAIL, "%s", f->plugin_error), "install aws-ofi-nccl anew");
		return;
	}
	rc_library_net_text(f->plugin.net_exported, theirs);
	int version = rc_library_common_net(&f->nccl, &f->plugin);
	snprintf(common, sizeof(common), "v%d", version);
	if (*f->nccl.path && version == 0)
		cure(add(s, "nccl_plugin", RC_MARK_FAIL, "%s (%s) has %s, and this NCCL looks for none of them",
		         *f->plugin.version ? f->plugin.version : "version not told", f->plugin.path, theirs),
		     "install an aws-ofi-nccl made for this NCCL");
	else
		add(s, "nccl_plugin", RC_MARK_OK, "%s (%s)%s%s%s%s", *f->plugin.version ? f->plugin.version : "version not told", f->plugin.path,
		    version ? ", fits this NCCL by " : "", version ? common : "", f->plugin_in_cache ? "" : ", named to NCCL by its path",
		    f->plugin.guards_protocol ? "" : ", NCCL_PROTO=simple is set for it");
}

static void transport(scene *s)
{
	const rc_choice *c = s->c;
	char between[64], within[32];
	if (c->nccl_between == RC_VIA_TCP)
		snprintf(between, sizeof(between), "TCP on %s", *c->interface ? c->interface : "the interface that NCCL finds");
	else
		snprintf(between, sizeof(between), "EFA %s GPUDirect RDMA", c->gpu_direct ? "with" : "without");
	snprintf(within, sizeof(within), "%s", c->nccl_within == RC_VIA_NVLINK ? "NVLink" : c->nccl_within == RC_VIA_SHM ? "shared memory" : "-");
	rc_mark mark = *c->why_not_efa ? (s->x->require_efa ? RC_MARK_FAIL : RC_MARK_WARN) :
	               s->x->require_efa && c->nccl_between != RC_VIA_EFA ? RC_MARK_FAIL : RC_MARK_OK;
	rc_line *l = add(s, "transport", mark, "NCCL: within the node %s, between nodes %s; objects: within %s, between %s", within, between,
	                 rc_via_name(c->fabric_within), rc_via_name(c->fabric_between));
	size_t n = strlen(l->text);
	if (*c->why_not_efa) {
		snprintf(l->text + n, sizeof(l->text) - n, "; EFA is there and not used: %.300s", c->why_not_efa);
		cure(l, c->cure);
	} else if (mark == RC_MARK_FAIL) {
		cure(l, "EFA was asked for (--require-efa): see the line efa");
	}
}

static void interfaces(scene *s)
{
	char list[300] = "";
	const rc_interface *own = rc_facts_own(s->f);
	for (size_t i = 0; i < s->f->n_interfaces; i++) {
		const rc_interface *it = &s->f->interfaces[i];
		size_t n = strlen(list);
		if (it == own || (!*it->address && !it->device) || strcmp(it->name, "lo") == 0)
			continue;
		snprintf(list + n, sizeof(list) - n, "%s%s%s", n ? ", " : "", it->name, it->device ? "" : " (no device)");
	}
	if (!own) {
		cure(add(s, "interface", RC_MARK_WARN, "none has the node's own address; there are %s", *list ? list : "none but lo"),
		     "name the address that other nodes reach: raylet-c doctor --node-ip-address IP, and the same for ray start");
		return;
	}
	char speed[32] = "";
	if (own->mbits > 0)
		snprintf(speed, sizeof(speed), ", %lld Mbit/s", own->mbits);
	add(s, "interface", RC_MARK_OK, "%s has the node's own address%s%s%s", own->name, speed, *list ? "; not used: " : "", list);
}

static void locked_memory(scene *s)
{
	const rc_facts *f = s->f;
	char limit[48];
	if (!f->limits_known) {
		add(s, "locked_memory", RC_MARK_SKIP, "/proc/self/limits cannot be read");
		return;
	}
	if (f->locked_memory == UINT64_MAX)
		snprintf(limit, sizeof(limit), "unlimited");
	else
		snprintf(limit, sizeof(limit), "%llu KiB", (unsigned long long)(f->locked_memory / 1024));
	if (rc_choice_may_lock(f))
		add(s, "locked_memory", RC_MARK_OK, "%s%s", limit, f->ipc_lock ? ", and CAP_IPC_LOCK" : "");
	else
		cure(add(s, "locked_memory", f->efa.devices ? RC_MARK_FAIL : RC_MARK_WARN, "%s, without CAP_IPC_LOCK: EFA and pinned buffers need more", limit),
		     "ulimit -l unlimited before ray start; in a pod: capability IPC_LOCK, or the container runtime's memlock");
}

static void hugepages(scene *s)
{
	const rc_facts *f = s->f;
	const char *set = variable(s, "FI_EFA_USE_HUGE_PAGE");
	rc_mark mark = f->efa.devices && set && strcmp(set, "0") != 0 ? RC_MARK_WARN : RC_MARK_OK;
	rc_line *l = add(s, "hugepages", mark, "%lld of %lld free, of %lld KiB; %s%s", f->huge_free, f->huge_total, f->huge_kib,
	                 set ? "FI_EFA_USE_HUGE_PAGE is set to " : "none are needed", set ? set : "");
	if (mark == RC_MARK_WARN)
		cure(l, "unset it: a process that forks (data loaders) runs out of huge pages and gets `Cannot allocate memory`");
}

static void fork_safety(scene *s)
{
	const rc_facts *f = s->f;
	const char *set = variable(s, "FI_EFA_FORK_SAFE"), *old = variable(s, "RDMAV_FORK_SAFE");
	bool copies = f->kernel_major > 5 || (f->kernel_major == 5 && f->kernel_minor >= 13);
	if (!f->efa.devices) {
		add(s, "fork_safety", RC_MARK_SKIP, "without EFA nothing forbids fork");
	} else if (set && strcmp(set, "0") == 0 && !copies) {
		cure(add(s, "fork_safety", RC_MARK_WARN, "FI_EFA_FORK_SAFE is set to 0, and kernel %d.%d does not copy pinned pages: a fork ends the process",
		         f->kernel_major, f->kernel_minor),
		     "unset it: train workers then get 1");
	} else if (variable(s, "RDMAV_HUGEPAGES_SAFE")) {
		cure(add(s, "fork_safety", RC_MARK_WARN, "RDMAV_HUGEPAGES_SAFE is set: the efa provider refuses it together with fork support"), "unset it");
	} else {
		add(s, "fork_safety", RC_MARK_OK, "%s; kernel %d.%d %s pinned pages at a fork", set || old ? "set by the environment" : "train workers get FI_EFA_FORK_SAFE=1",
		    f->kernel_major, f->kernel_minor, copies ? "copies" : "does not copy");
	}
}

static void protocol(scene *s)
{
	const char *set = variable(s, "NCCL_PROTO");
	if (s->c->nccl_between != RC_VIA_EFA)
		add(s, "nccl_protocol", RC_MARK_SKIP, "a matter of EFA");
	else if (set && strstr(set, "LL") && !strchr(set, '^'))
		cure(add(s, "nccl_protocol", RC_MARK_WARN, "NCCL_PROTO=%s is set: EFA does not promise the order of bytes that LL and LL128 need", set),
		     "unset it, or NCCL_PROTO=simple");
	else
		add(s, "nccl_protocol", RC_MARK_OK, "%s", set ? "set by the environment" : s->f->plugin.guards_protocol ? "guarded by the plugin" : "train workers get simple");
}

static void shared_memory(scene *s)
{
	const rc_facts *f = s->f;
	double total = (double)f->shm_bytes / (double)GIB, left = (double)f->shm_free / (double)GIB;
	if (f->shm_bytes == 0)
		cure(add(s, "shared_memory", RC_MARK_FAIL, "there is no /dev/shm"), "mount a tmpfs there; in a pod: an emptyDir with medium Memory");
	else if (f->shm_bytes < GIB)
		cure(add(s, "shared_memory", RC_MARK_FAIL, "/dev/shm has %.2f GiB, too little for an object store and NCCL", total),
		     "docker run --shm-size=8g; in a pod: an emptyDir with medium Memory at /dev/shm");
	else if (f->memory_bytes && f->shm_bytes < f->memory_bytes / 10 * 3)
		cure(add(s, "shared_memory", RC_MARK_WARN, "/dev/shm has %.1f GiB, %.1f free: less than the 0.3 of memory that Ray takes for objects", total, left),
		     "a larger one, or --object-store-memory; Ray falls back to /tmp otherwise");
	else
		add(s, "shared_memory", RC_MARK_OK, "/dev/shm has %.1f GiB, %.1f free", total, left);
}

static void groups(scene *s)
{
	const rc_facts *f = s->f;
	char memory[64] = "no memory limit", cpus[64] = "no CPU limit";
	if (f->group_memory)
		snprintf(memory, sizeof(memory), "memory %.1f GiB", (double)f->group_memory / (double)GIB);
	if (f->group_cpus > 0)
		snprintf(cpus, sizeof(cpus), "%.2f CPUs", f->group_cpus);
	rc_line *l = add(s, "cgroup", f->group_cpus > 0 && f->group_cpus < 1 ? RC_MARK_WARN : RC_MARK_OK, "%s, %s", memory, cpus);
	if (l->mark == RC_MARK_WARN)
		cure(l, "Ray counts a grant below one CPU as none: --num-cpus, or a larger limit");
}

static void open_files(scene *s)
{
	const rc_facts *f = s->f;
	if (f->open_files == 0)
		return;
	rc_line *l = add(s, "open_files", f->open_files < 8192 ? RC_MARK_WARN : RC_MARK_OK, f->open_files == UINT64_MAX ? "unlimited" : "%llu",
	                 (unsigned long long)f->open_files);
	if (l->mark == RC_MARK_WARN)
		cure(l, "ulimit -n 65536 before ray start");
}

static void clock_line(scene *s)
{
	const rc_facts *f = s->f;
	if (!f->clock_known)
		add(s, "clock", RC_MARK_SKIP, "the kernel does not tell");
	else if (f->clock_synchronised)
		add(s, "clock", RC_MARK_OK, "synchronised, at most %.1f ms off", (double)f->clock_error_us / 1000);
	else
		cure(add(s, "clock", RC_MARK_WARN, "nothing keeps it right: log lines and time limits of several nodes will not fit together"),
		     "run chrony or systemd-timesyncd on the host");
}

void rc_lines_make(const rc_facts *facts, const rc_choice *choice, const rc_line_context *context, rc_lines *ret)
{
	scene s = { .f = facts, .c = choice, .x = context, .out = ret };
	void (*const all[])(scene *) = { ray, kuberay, gpus, efa, libfabric, gpu_direct, nccl, transport, protocol, interfaces, locked_memory,
		                         hugepages, fork_safety, shared_memory, groups, open_files, clock_line };
	ret->n = 0;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		all[i](&s);
}

bool rc_lines_failed(const rc_lines *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].mark == RC_MARK_FAIL)
			return true;
	return false;
}
