/* Each function fills one part; what is not there stays zero. */
#define _GNU_SOURCE /* memmem, strsep */
#include "raylet-c/doctor/facts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "raylet-c/doctor/probe.h"
#include "raylet-c/doctor/root.h"

enum { CAP_IPC_LOCK = 14, PCI_AMAZON = 0x1d0f };

/* "key:   12 kB" or "key 12" in a text of lines. */
static bool line_number(const char *text, const char *key, uint64_t *ret)
{
	size_t n = strlen(key);
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && (line[n] == ':' || line[n] == ' ')) {
			*ret = strtoull(line + n + 1 + strspn(line + n + 1, " \t"), NULL, 10);
			return true;
		}
	}
	return false;
}

/* ---- EFA ---- */

static bool is_efa(const char *root, const char *name)
{
	char driver[64];
	long long vendor, id;
	if (rc__root_number(root, &vendor, "/sys/class/infiniband/%s/device/vendor", name) &&
	    rc__root_number(root, &id, "/sys/class/infiniband/%s/device/device", name))
		return vendor == PCI_AMAZON && (id & 0xfff0) == 0xefa0;
	return rc__root_read(root, driver, sizeof(driver), "/sys/class/infiniband/%s/device/uevent", name) && strstr(driver, "DRIVER=efa");
}

/* The device file of an RDMA device is the uverbs whose ibdev has its name. */
static void open_one(const char *root, const char *name, rc_efa_facts *efa)
{
	rc__root_names verbs;
	char device[64];
	rc__root_list(root, "/sys/class/infiniband_verbs", &verbs);
	for (size_t i = 0; i < verbs.n; i++) {
		if (!rc__root_read(root, device, sizeof(device), "/sys/class/infiniband_verbs/%s/ibdev", verbs.v[i]) || strcmp(device, name) != 0)
			continue;
		char *path = rc_sprintf("%s/dev/infiniband/%s", root, verbs.v[i]);
		int fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0)
			efa->opened++;
		else if (!*efa->open_error)
			snprintf(efa->open_error, sizeof(efa->open_error), "/dev/infiniband/%s: %s", verbs.v[i], strerror(errno));
		if (fd >= 0)
			close(fd);
		free(path);
		return;
	}
	if (!*efa->open_error)
		snprintf(efa->open_error, sizeof(efa->open_error), "%s has no device in /sys/class/infiniband_verbs (is ib_uverbs loaded?)", name);
}

static void gather_efa(const char *root, rc_efa_facts *efa)
{
	rc__root_names devices;
	char text[64];
	long long id;
	rc__root_list(root, "/sys/class/infiniband", &devices);
	for (size_t i = 0; i < devices.n; i++) {
		const char *name = devices.v[i];
		if (!is_efa(root, name))
			continue;
		if (efa->devices++ == 0) {
			snprintf(efa->first, sizeof(efa->first), "%s", name);
			rc__root_read(root, efa->firmware, sizeof(efa->firmware), "/sys/class/infiniband/%s/fw_ver", name);
			if (rc__root_number(root, &id, "/sys/class/infiniband/%s/device/device", name))
				efa->pci_id = (unsigned)id;
			efa->peer_memory = rc__root_read(root, text, sizeof(text), "/sys/class/infiniband/%s/device/p2p", name)
			                           ? *text && strcmp(text, "NONE") != 0
			                           : rc__root_exists(root, "/sys/class/infiniband/%s/device/gdr", name);
		}
		open_one(root, name, efa);
	}
	if (efa->devices)
		rc__root_read(root, efa->driver, sizeof(efa->driver), "/sys/module/efa/version");
}

/* ---- libraries ---- */

static void add_word(char *list, size_t size, const char *word)
{
	size_t n = strlen(list);
	snprintf(list + n, size - n, "%s%s", n ? ", " : "", word);
}

static void gather_libfabric(const char *root, rc_libfabric_facts *l)
{
	rc_buf text = { 0 };
	rc_error error;
	char key[32], value[256];
	if (rc__probe(root, "libfabric", rc__probe_libfabric, RC__PROBE_SECONDS, &text, &error) != 0)
		snprintf(l->error, sizeof(l->error), "%.250s", error.text);
	for (const char *at = rc_buf_cstr(&text); rc__probe_line(&at, key, value);) {
		if (strcmp(key, "version") == 0)
			snprintf(l->version, sizeof(l->version), "%.15s", value);
		else if (strcmp(key, "path") == 0)
			snprintf(l->path, sizeof(l->path), "%s", value);
		else if (strcmp(key, "error") == 0)
			snprintf(l->error, sizeof(l->error), "%s", value);
		else if (strcmp(key, "hmem") == 0)
			l->efa_gpu_memory |= strcmp(value, "efa") == 0;
		else if (strcmp(key, "provider") == 0) {
			add_word(l->providers, sizeof(l->providers), value);
			l->efa |= strcmp(value, "efa") == 0;
			l->tcp |= strcmp(value, "tcp") == 0;
			l->shm |= strcmp(value, "shm") == 0;
		}
	}
	rc_buf_free(&text);
}

static void gather_gpus(const char *root, rc_gpu_facts *g)
{
	rc_buf text = { 0 };
	rc_error error;
	char key[32], value[256];
	if (rc__probe(root, "nvml", rc__probe_nvml, RC__PROBE_SECONDS, &text, &error) != 0)
		snprintf(g->error, sizeof(g->error), "%.250s", error.text);
	for (const char *at = rc_buf_cstr(&text); rc__probe_line(&at, key, value);) {
		if (strcmp(key, "driver") == 0)
			snprintf(g->driver, sizeof(g->driver), "%.39s", value);
		else if (strcmp(key, "cuda") == 0)
			snprintf(g->cuda, sizeof(g->cuda), "%.15s", value);
		else if (strcmp(key, "nvlink") == 0)
			g->nvlink = strcmp(value, "1") == 0;
		else if (strcmp(key, "error") == 0)
			snprintf(g->error, sizeof(g->error), "%s", value);
		else if (strcmp(key, "gpu") == 0 && g->count++ == 0)
			snprintf(g->product, sizeof(g->product), "%.95s", value);
	}
	rc_buf_free(&text);
	g->peer_module = rc__root_exists(root, "/sys/module/nvidia_peermem") || rc__root_exists(root, "/sys/module/nv_peer_mem");
	g->gdrdrv = rc__root_exists(root, "/sys/module/gdrdrv");
	char version[512];
	g->dmabuf = rc__root_read(root, version, sizeof(version), "/proc/driver/nvidia/version") && strstr(version, "Open Kernel Module");
}

/* The first of these names in a folder; path is without the root. */
static bool find_in(const char *root, const char *folder, const char *const *names, char path[256])
{
	for (; *folder && *names; names++)
		if (rc__root_exists(root, "%s/%s", folder, *names)) {
			snprintf(path, 256, "%s/%s", folder, *names);
			return true;
		}
	return false;
}

static bool find_in_path(const char *root, const char *folders, const char *const *names, char path[256])
{
	char *copy = rc_strdup(folders ? folders : ""), *rest = copy, *folder;
	bool found = false;
	while (!found && (folder = strsep(&rest, ":")))
		found = find_in(root, folder, names, path);
	free(copy);
	return found;
}

static bool read_library(const char *root, const char *path, rc_library *ret, char *why, size_t size)
{
	rc_error error;
	char *full = rc_sprintf("%s%s", root, path);
	int rc = rc_library_read(full, ret, &error);
	if (rc == 0)
		snprintf(ret->path, sizeof(ret->path), "%s", path);
	else if (why)
		snprintf(why, size, "%.250s", error.text);
	free(full);
	return rc == 0;
}

/* torch's packages bring NCCL; else the system's. */
static void gather_nccl(const rc_facts_options *o, rc_library *nccl)
{
	static const char *const names[] = { "libnccl.so.2", NULL };
	static const char *const folders[] = { "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/lib64", "/usr/local/lib" };
	char path[256];
	bool found = false;
	if (o->site_packages) {
		static const char *const inside[] = { "nvidia/nccl/lib", "torch/lib" };
		for (size_t i = 0; !found && i < sizeof(inside) / sizeof(inside[0]); i++) {
			char *folder = rc_sprintf("%s/%s", o->site_packages, inside[i]);
			found = find_in(o->root, folder, names, path);
			free(folder);
		}
	}
	found = found || find_in_path(o->root, o->library_path, names, path);
	for (size_t i = 0; !found && i < sizeof(folders) / sizeof(folders[0]); i++)
		found = find_in(o->root, folders[i], names, path);
	if (found)
		read_library(o->root, path, nccl, NULL, 0);
}

/* Does the cache of the system's loader name this file? The names stand in it as plain texts. */
static bool in_loader_cache(const char *root, const char *path)
{
	char *full = rc_sprintf("%s/etc/ld.so.cache", root);
	FILE *f = fopen(full, "re");
	bool found = false;
	free(full);
	if (!f)
		return false;
	rc_buf b = { 0 };
	size_t n, limit = 8 << 20;
	while (b.n < limit && (n = fread(rc_buf_grow(&b, 65536), 1, 65536, f)) != 0)
		b.n -= 65536 - n;
	fclose(f);
	found = memmem(b.p, b.n, path, strlen(path) + 1) != NULL;
	rc_buf_free(&b);
	return found;
}

static void gather_plugin(const rc_facts_options *o, rc_facts *f)
{
	static const char *const names[] = { "libnccl-net.so", "libnccl-net-ofi.so", "libnccl-net-aws-ofi.so", NULL };
	static const char *const folders[] = { "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", "/opt/amazon/ofi-nccl/lib64", "/opt/amazon/ofi-nccl/lib",
		                               "/opt/aws-ofi-nccl/lib", "/opt/aws-ofi-nccl/install/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
		                               "/usr/local/lib" };
	char path[256];
	bool found = find_in_path(o->root, o->library_path, names, path);
	for (size_t i = 0; !found && i < sizeof(folders) / sizeof(folders[0]); i++)
		found = find_in(o->root, folders[i], names, path);
	if (!found || !read_library(o->root, path, &f->plugin, f->plugin_error, sizeof(f->plugin_error)))
		return;
	f->plugin_in_cache = strcmp(strrchr(path, '/') + 1, names[0]) == 0 && in_loader_cache(o->root, path);
}

/* ---- limits, memory, kernel ---- */

static void gather_limits(const char *root, rc_facts *f)
{
	char text[8192], word[32];
	uint64_t capabilities;
	if (rc__root_read(root, text, sizeof(text), "/proc/self/limits")) {
		const char *locked = strstr(text, "Max locked memory"), *files = strstr(text, "Max open files");
		if (locked && sscanf(locked + strlen("Max locked memory"), "%31s", word) == 1) {
			f->limits_known = true;
			f->locked_memory = strcmp(word, "unlimited") == 0 ? UINT64_MAX : strtoull(word, NULL, 10);
		}
		if (files && sscanf(files + strlen("Max open files"), "%31s", word) == 1)
			f->open_files = strcmp(word, "unlimited") == 0 ? UINT64_MAX : strtoull(word, NULL, 10);
	}
	if (rc__root_read(root, text, sizeof(text), "/proc/self/status")) {
		const char *effective = strstr(text, "CapEff:");
		capabilities = effective ? strtoull(effective + 7, NULL, 16) : 0;
		f->ipc_lock = capabilities >> CAP_IPC_LOCK & 1;
	}
}

static void gather_memory(const char *root, rc_facts *f)
{
	char text[8192];
	uint64_t number;
	if (rc__root_read(root, text, sizeof(text), "/proc/meminfo")) {
		if (line_number(text, "MemTotal", &number))
			f->memory_bytes = number * 1024;
		if (line_number(text, "HugePages_Total", &number))
			f->huge_total = (long long)number;
		if (line_number(text, "HugePages_Free", &number))
			f->huge_free = (long long)number;
		if (line_number(text, "Hugepagesize", &number))
			f->huge_kib = (long long)number;
	}
	char *shm = rc_sprintf("%s/dev/shm", root);
	struct statvfs st;
	if (statvfs(shm, &st) == 0) {
		f->shm_bytes = (uint64_t)st.f_frsize * st.f_blocks;
		f->shm_free = (uint64_t)st.f_frsize * st.f_bavail;
	}
	free(shm);
}

static void gather_group(const char *root, rc_facts *f)
{
	char text[128], *end;
	long long quota, period;
	if (rc__root_read(root, text, sizeof(text), "/sys/fs/cgroup/memory.max") ||
	    rc__root_read(root, text, sizeof(text), "/sys/fs/cgroup/memory/memory.limit_in_bytes")) {
		unsigned long long limit = strtoull(text, &end, 10);
		if (end != text && *end == '\0' && (f->memory_bytes == 0 || limit < f->memory_bytes)) /* more than there is: none */
			f->group_memory = limit;
	}
	if (rc__root_read(root, text, sizeof(text), "/sys/fs/cgroup/cpu.max")) {
		if (sscanf(text, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
			f->group_cpus = (double)quota / (double)period;
	} else if (rc__root_number(root, &quota, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us") &&
	           rc__root_number(root, &period, "/sys/fs/cgroup/cpu/cpu.cfs_period_us") && quota > 0 && period > 0) {
		f->group_cpus = (double)quota / (double)period;
	}
	f->cpus = sysconf(_SC_NPROCESSORS_ONLN);
}

static void gather_kernel(const char *root, rc_facts *f)
{
	char text[64], vendor[64];
	if (rc__root_read(root, text, sizeof(text), "/proc/sys/kernel/osrelease"))
		sscanf(text, "%d.%d", &f->kernel_major, &f->kernel_minor);
	if (rc__root_read(root, vendor, sizeof(vendor), "/sys/devices/virtual/dmi/id/sys_vendor") && strncmp(vendor, "Amazon EC2", 10) == 0)
		rc__root_read(root, f->instance, sizeof(f->instance), "/sys/devices/virtual/dmi/id/product_name");
}

/* ---- interfaces, clock ---- */

static void gather_interfaces(const char *root, const char *address, rc_facts *f)
{
	rc__root_names names;
	rc_buf text = { 0 };
	rc_error error;
	char key[32], value[256], name[16], ip[64], state[32];
	rc__root_list(root, "/sys/class/net", &names);
	for (size_t i = 0; i < names.n && f->n_interfaces < RC_FACTS_INTERFACES; i++) {
		rc_interface *it = &f->interfaces[f->n_interfaces];
		if (strlen(names.v[i]) >= sizeof(it->name) || !rc__root_read(root, state, sizeof(state), "/sys/class/net/%s/operstate", names.v[i]))
			continue;
		*it = (rc_interface){ .up = strcmp(state, "down") != 0, .mbits = -1 };
		strcpy(it->name, names.v[i]);
		it->device = rc__root_exists(root, "/sys/class/net/%s/device", names.v[i]);
		if (!rc__root_number(root, &it->mbits, "/sys/class/net/%s/speed", names.v[i]) || it->mbits <= 0)
			it->mbits = -1;
		f->n_interfaces++;
	}
	if (rc__probe(root, "addresses", rc__probe_addresses, RC__PROBE_SECONDS, &text, &error) != 0)
		return;
	for (const char *at = rc_buf_cstr(&text); rc__probe_line(&at, key, value);) {
		if (strcmp(key, "address") != 0 || sscanf(value, "%15s %63s", name, ip) != 2)
			continue;
		size_t known = 0;
		while (known < f->n_interfaces && strcmp(f->interfaces[known].name, name) != 0)
			known++;
		if (known == f->n_interfaces && known < RC_FACTS_INTERFACES) { /* /sys can be that of another network namespace */
			f->interfaces[f->n_interfaces++] = (rc_interface){ .up = true, .mbits = -1 };
			strcpy(f->interfaces[known].name, name);
		}
		if (known == f->n_interfaces)
			continue;
		rc_interface *it = &f->interfaces[known];
		bool own = address && strcmp(ip, address) == 0;
		if (!*it->address || own)
			snprintf(it->address, sizeof(it->address), "%s", ip);
		it->of_node |= own;
	}
	rc_buf_free(&text);
	/* 127.0.0.2 and the like are of lo without being listed. */
	for (size_t i = 0; address && strncmp(address, "127.", 4) == 0 && !rc_facts_own(f) && i < f->n_interfaces; i++)
		f->interfaces[i].of_node = strcmp(f->interfaces[i].name, "lo") == 0;
}

const rc_interface *rc_facts_own(const rc_facts *f)
{
	for (size_t i = 0; i < f->n_interfaces; i++)
		if (f->interfaces[i].of_node)
			return &f->interfaces[i];
	return NULL;
}

static void gather_clock(const char *root, rc_facts *f)
{
	rc_buf text = { 0 };
	rc_error error;
	char key[32], value[256];
	if (rc__probe(root, "clock", rc__probe_clock, RC__PROBE_SECONDS, &text, &error) != 0)
		return;
	for (const char *at = rc_buf_cstr(&text); rc__probe_line(&at, key, value);) {
		if (strcmp(key, "clock") == 0) {
			f->clock_known = true;
			f->clock_synchronised = strcmp(value, "1") == 0;
		} else if (strcmp(key, "error_us") == 0) {
			f->clock_error_us = atol(value);
		}
	}
	rc_buf_free(&text);
}

void rc_facts_gather(const rc_facts_options *o, rc_facts *ret)
{
	*ret = (rc_facts){ 0 };
	gather_kernel(o->root, ret);
	gather_efa(o->root, &ret->efa);
	gather_limits(o->root, ret);
	gather_interfaces(o->root, o->address, ret);
	if (!o->brief || ret->efa.devices > 0) {
		gather_libfabric(o->root, &ret->libfabric);
		gather_plugin(o, ret);
		gather_nccl(o, &ret->nccl);
	}
	if (o->brief)
		return;
	gather_gpus(o->root, &ret->gpu);
	gather_memory(o->root, ret);
	gather_group(o->root, ret);
	gather_clock(o->root, ret);
}
