/* See library.h. */
#define _GNU_SOURCE
#include "train_backend/comm/nccl/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rc__nccl library;
static bool opened;
static rc_error failure;

static const struct {
	const char *name;
	void *slot;
	bool wanted; /* there is no use of a library without it */
} symbols[] = {
#define SYMBOL(name, wanted) { #name, &library.name, wanted }
	SYMBOL(ncclGetVersion, true),
	SYMBOL(ncclGetUniqueId, true),
	SYMBOL(ncclCommInitRank, true),
	SYMBOL(ncclCommDestroy, true),
	SYMBOL(ncclCommAbort, true),
	SYMBOL(ncclCommGetAsyncError, true),
	SYMBOL(ncclGetErrorString, true),
	SYMBOL(ncclAllGather, true),
	SYMBOL(ncclReduceScatter, true),
	SYMBOL(ncclAllReduce, true),
	SYMBOL(ncclBroadcast, true),
	SYMBOL(ncclSend, true),
	SYMBOL(ncclRecv, true),
	SYMBOL(ncclGroupStart, true),
	SYMBOL(ncclGroupEnd, true),
	SYMBOL(ncclGetLastError, false),
	SYMBOL(ncclMemAlloc, false),
	SYMBOL(ncclMemFree, false),
	SYMBOL(ncclCommRegister, false),
	SYMBOL(ncclCommDeregister, false),
	SYMBOL(ncclCommWindowRegister, false),
	SYMBOL(ncclCommWindowDeregister, false),
#undef SYMBOL
};

/* A copy that is loaded under another name than its own: the path of its file, or NULL. Free it. */
static char *loaded_path(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char *line = NULL, *found = NULL;
	size_t size = 0;

	while (maps && !found && getline(&line, &size, maps) > 0) {
		char *path = strchr(line, '/');

		if (path && strstr(path, "/libnccl.so")) {
			path[strcspn(path, "\n")] = 0;
			found = strdup(path);
		}
	}
	free(line);
	if (maps)
		fclose(maps);
	return found;
}

static void *find_library(void)
{
	void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
	char *path;

	if (handle)
		return handle;
	path = loaded_path();
	if (path)
		handle = dlopen(path, RTLD_NOW);
	free(path);
	return handle ? handle : dlopen("libnccl.so.2", RTLD_NOW);
}

static void open_once(void)
{
	void *handle = find_library();

	if (!handle) {
		rc_fail(&failure, RC_E_UNAVAILABLE, "NCCL cannot be opened: %s", dlerror());
		return;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *address = dlsym(handle, symbols[i].name);

		if (!address && symbols[i].wanted) {
			rc_fail(&failure, RC_E_UNAVAILABLE, "this process' NCCL has no %s", symbols[i].name);
			return;
		}
		memcpy(symbols[i].slot, &address, sizeof address);
	}
	if (library.ncclGetVersion(&library.version) != RC__NCCL_OK) {
		rc_fail(&failure, RC_E_UNAVAILABLE, "NCCL does not tell its version");
		return;
	}
	opened = true;
}

int rc__nccl_open(const rc__nccl **ret, rc_error *error)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, open_once);
	if (!opened)
		return rc_fail(error, failure.code, "%s", failure.text);
	*ret = &library;
	return 0;
}

int rc__nccl_type(rc_dtype dtype)
{
	static const int types[] = { [RC_U8] = 1, [RC_F16] = 6, [RC_F32] = 7, [RC_F64] = 8, [RC_BF16] = 9 };

	return types[dtype];
}
