/* The probes themselves: they run in a child (probe.h) and write lines. NVML: the driver's documented C interface. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/timex.h>

#include "raylet-c/doctor/probe.h"
#include "raylet-c/fabric/listing.h"

typedef struct telling {
	int out;
	const char *key;
} telling;

static void tell(void *arg, const char *provider)
{
	const telling *t = arg;
	dprintf(t->out, "%s: %s\n", t->key, provider);
}

void rc__probe_libfabric(int out)
{
	rc_error error;
	unsigned major, minor;
	rc_fabric_library *l = rc_fabric_library_open(NULL, &error);
	if (!l) {
		dprintf(out, "error: %s\n", error.text);
		return;
	}
	rc_fabric_library_version(l, &major, &minor);
	dprintf(out, "version: %u.%u\npath: %s\n", major, minor, rc_fabric_library_path(l));
	rc_fabric_list(l, false, tell, &(telling){ out, "provider" });
	rc_fabric_list(l, true, tell, &(telling){ out, "hmem" });
	rc_fabric_library_close(l);
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
