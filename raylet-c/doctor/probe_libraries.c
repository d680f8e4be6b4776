/* The probes themselves: they run in a child (probe.h) and write lines.
 *
 * libfabric: fi_getinfo by symbol version FABRIC_1.3, whose structs the headers of 1.17 have; libraries from 1.5 to 2.x keep it
 * (fi_getinfo(3), fabric.map). NVML: the driver's documented C interface. */
#define _GNU_SOURCE /* dlvsym */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>

#include "raylet-c/doctor/probe.h"

typedef int (*getinfo_fn)(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                          struct fi_info **info);

/* Each provider once, without the layers that libfabric puts over it. */
static void tell_providers(int out, const char *key, const struct fi_info *list)
{
	char seen[32][32];
	size_t n = 0;
	for (const struct fi_info *i = list; i && n < 32; i = i->next) {
		const char *name = i->fabric_attr && i->fabric_attr->prov_name ? i->fabric_attr->prov_name : "";
		char core[32];
		size_t k = 0;
		snprintf(core, sizeof(core), "%.*s", (int)strcspn(name, ";"), name);
		while (k < n && strcmp(seen[k], core) != 0)
			k++;
		if (k < n || !*core)
			continue;
		strcpy(seen[n++], core);
		dprintf(out, "%s: %s\n", key, core);
	}
}

void rc__probe_libfabric(int out)
{
	static const char *const places[] = { "/opt/amazon/efa/lib64/libfabric.so.1", "/opt/amazon/efa/lib/libfabric.so.1", "libfabric.so.1" };
	const char *own = getenv("RAYLET_C_LIBFABRIC");
	void *library = own ? dlopen(own, RTLD_NOW | RTLD_LOCAL) : NULL;
	for (size_t i = 0; !own && !library && i < sizeof(places) / sizeof(places[0]); i++)
		library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		dprintf(out, "error: %s\n", dlerror());
		return;
	}
	uint32_t (*version)(void);
	getinfo_fn getinfo;
	Dl_info where;
	*(void **)&version = dlsym(library, "fi_version");
	*(void **)&getinfo = dlvsym(library, "fi_getinfo", "FABRIC_1.3");
	if (!version || !getinfo) {
		dprintf(out, "error: the library has no fi_getinfo of FABRIC_1.3\n");
		return;
	}
	uint32_t v = version();
	dprintf(out, "version: %u.%u\n", FI_MAJOR(v), FI_MINOR(v));
	if (dladdr(*(void **)&version, &where))
		dprintf(out, "path: %s\n", where.dli_fname);
	uint32_t api = v < FI_VERSION(1, 17) ? v : FI_VERSION(1, 17);
	struct fi_info *list = NULL;
	if (getinfo(api, NULL, NULL, 0, NULL, &list) == 0)
		tell_providers(out, "provider", list);
	struct fi_domain_attr domain = { .mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM };
	struct fi_ep_attr ep = { .type = FI_EP_RDM };
	struct fi_info hints = { .caps = FI_MSG | FI_HMEM, .mode = ~UINT64_C(0), .ep_attr = &ep, .domain_attr = &domain };
	list = NULL;
	if (getinfo(api, NULL, NULL, 0, &hints, &list) == 0)
		tell_providers(out, "hmem", list);
}

void rc__probe_nvml(int out)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	int (*init)(void), (*count)(unsigned *), (*by_index)(unsigned, void **), (*name)(void *, char *, unsigned);
	int (*driver)(char *, unsigned), (*cuda)(int *), (*link)(void *, unsigned, unsigned *);
	unsigned n = 0, on;
	char text[96];
	int number;
	void *device;
	if (!library) {
		dprintf(out, "error: no NVIDIA driver (%s)\n", dlerror());
		return;
	}
	*(void **)&init = dlsym(library, "nvmlInit_v2");
	*(void **)&count = dlsym(library, "nvmlDeviceGetCount_v2");
	*(void **)&by_index = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&name = dlsym(library, "nvmlDeviceGetName");
	*(void **)&driver = dlsym(library, "nvmlSystemGetDriverVersion");
	*(void **)&cuda = dlsym(library, "nvmlSystemGetCudaDriverVersion_v2");
	*(void **)&link = dlsym(library, "nvmlDeviceGetNvLinkState");
	if (!init || !count || !by_index || !name || (number = init()) != 0) {
		dprintf(out, "error: NVML does not start (%d)\n", init ? number : -1);
		return;
	}
	if (driver && driver(text, sizeof(text)) == 0)
		dprintf(out, "driver: %s\n", text);
	if (cuda && cuda(&number) == 0)
		dprintf(out, "cuda: %d.%d\n", number / 1000, number % 1000 / 10);
	if (count(&n) != 0)
		n = 0;
	for (unsigned i = 0; i < n && i < 64; i++)
		if (by_index(i, &device) == 0 && name(device, text, sizeof(text)) == 0) {
			dprintf(out, "gpu: %s\n", text);
			if (i == 0 && link && link(device, 0, &on) == 0)
				dprintf(out, "nvlink: %u\n", on);
		}
}

void rc__probe_addresses(int out)
{
	struct ifaddrs *list;
	if (getifaddrs(&list) != 0)
		return;
	for (struct ifaddrs *a = list; a; a = a->ifa_next) {
		char text[NI_MAXHOST];
		if (!a->ifa_addr || !(a->ifa_flags & IFF_UP) || (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6))
			continue;
		socklen_t n = a->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
		if (getnameinfo(a->ifa_addr, n, text, sizeof(text), NULL, 0, NI_NUMERICHOST) == 0)
			dprintf(out, "address: %s %.*s\n", a->ifa_name, (int)strcspn(text, "%"), text);
	}
	freeifaddrs(list);
}

void rc__probe_clock(int out)
{
	struct timex t = { 0 };
	int state = adjtimex(&t);
	if (state < 0)
		return;
	dprintf(out, "clock: %d\nerror_us: %ld\n", state != TIME_ERROR && !(t.status & STA_UNSYNC), t.maxerror);
}
