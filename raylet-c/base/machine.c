/* The machine as `ray start` sees it; see machine.h. Control groups: version 1 files have the first say, as in Ray. */
#include "raylet-c/base/machine.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The file's text in a static-free buffer: false when it is not there. */
static bool read_small(const char *root, const char *path, char *text, size_t size)
{
	char *full = rc_sprintf("%s%s", root, path);
	FILE *f = fopen(full, "r");
	size_t n;

	free(full);
	if (f == NULL)
		return false;
	n = fread(text, 1, size - 1, f);
	fclose(f);
	text[n] = '\0';
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		text[--n] = '\0';
	return true;
}

static bool is_digits(const char *s)
{
	return *s != '\0' && strspn(s, "0123456789") == strlen(s);
}

/* "0-3,7" -> 5 */
static int count_set(const char *text)
{
	int n = 0, used, first, last;

	while (sscanf(text, "%d%n", &first, &used) == 1) {
		text += used;
		last = first;
		if (*text == '-' && sscanf(text + 1, "%d%n", &last, &used) == 1)
			text += used + 1;
		n += last >= first ? last - first + 1 : 0;
		if (*text != ',')
			break;
		text++;
	}
	return n;
}

int rc_machine_cpus(const char *root)
{
	char quota[64], period[64], set[4096];
	double granted = 0; /* 0: no limit */
	long all = sysconf(_SC_NPROCESSORS_ONLN);

	if (getenv("RAY_USE_MULTIPROCESSING_CPU_COUNT") != NULL && *getenv("RAY_USE_MULTIPROCESSING_CPU_COUNT") != '\0')
		return (int)all;
	if (read_small(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota) &&
	    read_small(root, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period)) {
		if (atof(quota) > 0 && atof(period) > 0)
			granted = atof(quota) / atof(period);
	} else if (read_small(root, "/sys/fs/cgroup/cpu.max", quota, sizeof quota)) {
		char *space = strchr(quota, ' ');

		if (space != NULL) {
			*space = '\0';
			if (is_digits(quota) && is_digits(space + 1) && atof(space + 1) > 0)
				granted = atof(quota) / atof(space + 1);
		}
	}
	if (read_small(root, "/sys/fs/cgroup/cpuset/cpuset.cpus", set, sizeof set)) {
		int n = count_set(set);

		if (n > 0 && (granted == 0 || n < granted))
			granted = n;
	}
	return granted > 0 ? (int)granted : (int)all;
}

static bool stat_value(const char *text, const char *key, uint64_t *ret)
{
	size_t n = strlen(key);

	for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && (line[n] == ' ' || line[n] == ':')) {
			*ret = strtoull(line + n + 1, NULL, 10);
			return true;
		}
	}
	return false;
}

static bool group_used(const char *root, const char *stat_path, const char *usage_path, const char *prefix, uint64_t *ret)
{
	char stat[16384], usage[64], key[64];
	uint64_t inactive, active, all;

	if (!read_small(root, usage_path, usage, sizeof usage) || !read_small(root, stat_path, stat, sizeof stat))
		return false;
	snprintf(key, sizeof key, "%sinactive_file", prefix);
	if (!stat_value(stat, key, &inactive))
		return false;
	snprintf(key, sizeof key, "%sactive_file", prefix);
	if (!stat_value(stat, key, &active))
		return false;
	all = strtoull(usage, NULL, 10);
	*ret = all > inactive + active ? all - inactive - active : 0;
	return true;
}

int rc_machine_memory(const char *root, rc_memory *ret, rc_error *error)
{
	char info[16384], limit[64];
	uint64_t total, available_free, buffers = 0, cached = 0, reclaimable = 0;

	if (!read_small(root, "/proc/meminfo", info, sizeof info) || !stat_value(info, "MemTotal", &total) ||
	    !stat_value(info, "MemFree", &available_free))
		return rc_fail(error, RC_E_SYSTEM, "%s/proc/meminfo has no MemTotal and MemFree", root);
	stat_value(info, "Buffers", &buffers);
	stat_value(info, "Cached", &cached);
	stat_value(info, "SReclaimable", &reclaimable);
	uint64_t idle = available_free + buffers + cached + reclaimable;
	ret->total = total * 1024;
	ret->used = (total > idle ? total - idle : total - available_free) * 1024;
	if ((read_small(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", limit, sizeof limit) ||
	     read_small(root, "/sys/fs/cgroup/memory.max", limit, sizeof limit)) &&
	    is_digits(limit) && strtoull(limit, NULL, 10) < ret->total)
		ret->total = strtoull(limit, NULL, 10);
	if (!group_used(root, "/sys/fs/cgroup/memory/memory.stat", "/sys/fs/cgroup/memory/memory.usage_in_bytes", "total_", &ret->used))
		group_used(root, "/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/memory.current", "", &ret->used);
	return 0;
}

int rc_machine_free_bytes(const char *path, uint64_t *ret, rc_error *error)
{
	struct statvfs st;

	if (statvfs(path, &st) != 0)
		return rc_fail_errno(error, "cannot look at %s", path);
	*ret = (uint64_t)st.f_bsize * st.f_bavail;
	return 0;
}

/* A word, white space, then the model: the words of capitals before it and the token with a digit. Ray's rule of 2.60.0 is
 * the regular expression \w+\s+((?:[A-Z]+\s+)*[A-Z0-9]*\d[A-Z0-9]*), of 2.35.0 \w+\s+([A-Z0-9]+). */
void rc_gpu_type(const char *product, bool fallback, char ret[64])
{
	const char *p = product, *start;
	size_t n = 0;

	ret[0] = '\0';
	while (isalnum((unsigned char)*p) || *p == '_')
		p++;
	if (p == product || !isspace((unsigned char)*p))
		p = "";
	while (isspace((unsigned char)*p))
		p++;
	start = p;
	for (;;) {
		const char *word = p;
		bool digit = false;

		while (isupper((unsigned char)*p) || isdigit((unsigned char)*p))
			digit = isdigit((unsigned char)*p++) || digit;
		if (p == word)
			break;
		if (digit || !fallback) {
			n = (size_t)(p - start);
			break;
		}
		if (!isspace((unsigned char)*p)) /* "GeForce": capitals go on in small letters */
			break;
		while (isspace((unsigned char)*p))
			p++;
	}
	if (n == 1 && fallback)
		n = 0;
	if (n == 0 && fallback) {
		start = strncmp(product, "NVIDIA ", 7) == 0 ? product + 7 : product;
		n = strlen(start);
	}
	if (n >= 64)
		n = 63;
	for (size_t i = 0; i < n; i++)
		ret[i] = start[i] == ' ' ? '-' : start[i];
	ret[n] = '\0';
}

/* NVML by its documented C interface, from the driver's library. */
rc_gpus rc_machine_gpus(void)
{
	rc_gpus gpus = { 0 };
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	int (*init)(void), (*shut)(void), (*count)(unsigned *), (*by_index)(unsigned, void **), (*name)(void *, char *, unsigned);
	unsigned n = 0;
	void *device;

	if (library == NULL)
		return gpus;
	*(void **)&init = dlsym(library, "nvmlInit_v2");
	*(void **)&shut = dlsym(library, "nvmlShutdown");
	*(void **)&count = dlsym(library, "nvmlDeviceGetCount_v2");
	*(void **)&by_index = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&name = dlsym(library, "nvmlDeviceGetName");
	if (init != NULL && shut != NULL && count != NULL && by_index != NULL && name != NULL && init() == 0) {
		if (count(&n) == 0)
			gpus.count = (int)n;
		if (gpus.count > 0 && by_index(0, &device) == 0)
			name(device, gpus.product, sizeof gpus.product);
		shut();
	}
	dlclose(library);
	return gpus;
}

bool rc_is_localhost(const char *host)
{
	return strcmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 || strcmp(host, "::1") == 0;
}

void rc_machine_ip_towards(const char *host, int port, char ret[64])
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM }, *list = NULL;
	char service[16];
	int fd = -1;
	struct sockaddr_storage own;
	socklen_t n = sizeof own;

	strcpy(ret, "127.0.0.1");
	snprintf(service, sizeof service, "%d", port);
	if (getaddrinfo(host, service, &hints, &list) != 0)
		return;
	for (struct addrinfo *a = list; a != NULL; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&own, &n) == 0 &&
		    getnameinfo((struct sockaddr *)&own, n, ret, 64, NULL, 0, NI_NUMERICHOST) == 0) {
			close(fd);
			break;
		}
		if (fd >= 0)
			close(fd);
		strcpy(ret, "127.0.0.1");
	}
	freeaddrinfo(list);
}
