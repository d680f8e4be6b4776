/* See library.h. */
#define _GNU_SOURCE
#include "raylet-c/fabric/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/fabric/internal.h"

static const char *const places[] = { "/opt/amazon/efa/lib64/libfabric.so.1", "/opt/amazon/efa/lib/libfabric.so.1", "libfabric.so.1" };

/* The versions are those that the functions had in libfabric 1.8 and have kept since (libfabric.map). */
static int find_symbols(rc_fabric_library *l, rc_error *e)
{
	uint32_t (*version)(void);
	const struct {
		const char *name, *version;
		void **to;
	} wanted[] = {
		{ "fi_getinfo", "FABRIC_1.3", (void **)(void *)&l->getinfo }, { "fi_freeinfo", "FABRIC_1.3", (void **)(void *)&l->freeinfo },
		{ "fi_dupinfo", "FABRIC_1.3", (void **)(void *)&l->dupinfo }, { "fi_fabric", "FABRIC_1.1", (void **)(void *)&l->fabric },
		{ "fi_strerror", "FABRIC_1.0", (void **)(void *)&l->strerror }, { "fi_version", "FABRIC_1.0", (void **)(void *)&version },
	};

	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		*wanted[i].to = dlvsym(l->handle, wanted[i].name, wanted[i].version);
		if (!*wanted[i].to)
			return rc_fail(e, RC_E_UNSUPPORTED, "%s has no %s of version %s", l->path, wanted[i].name, wanted[i].version);
	}
	l->version = version();
	l->api = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
	if (FI_VERSION_LT(l->version, l->api))
		l->api = l->version;
	return 0;
}

void rc__signals_keep(rc__signals *s)
{
	for (int i = 1; i < RC__SIGNALS; i++)
		if (sigaction(i, NULL, &s->old[i]) < 0)
			s->old[i].sa_handler = SIG_DFL;
}

void rc__signals_restore(const rc__signals *s)
{
	struct sigaction now;

	for (int i = 1; i < RC__SIGNALS; i++)
		if (i != SIGKILL && i != SIGSTOP && sigaction(i, NULL, &now) == 0 && now.sa_handler != s->old[i].sa_handler)
			sigaction(i, &s->old[i], NULL);
}

static rc_fabric_library *open_one(const char *path, rc_error *e)
{
	rc_fabric_library *l;
	rc__signals signals;
	void *handle;

	rc__signals_keep(&signals);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	rc__signals_restore(&signals);

	if (!handle) {
		rc_fail(e, RC_E_NOT_FOUND, "%s", dlerror());
		return NULL;
	}
	l = rc_alloc(sizeof *l);
	l->handle = handle;
	l->path = rc_strdup(path);
	if (find_symbols(l, e) < 0) {
		rc_fabric_library_close(l);
		return NULL;
	}
	return l;
}

rc_fabric_library *rc_fabric_library_open(const char *path, rc_error *e)
{
	rc_buf tried = { 0 };
	rc_fabric_library *l = NULL;
	rc_error one;

	path = path ? path : getenv("RAYLET_C_LIBFABRIC");
	if (path && *path)
		return open_one(path, e);
	for (size_t i = 0; i < sizeof places / sizeof *places && !l; i++) {
		l = open_one(places[i], &one);
		if (!l)
			rc_buf_printf(&tried, "%s%s", i ? "; " : "", one.text);
	}
	if (!l)
		rc_fail(e, RC_E_NOT_FOUND, "no libfabric: %s", rc_buf_cstr(&tried));
	rc_buf_free(&tried);
	return l;
}

void rc_fabric_library_close(rc_fabric_library *l)
{
	if (!l)
		return;
	free(l->path);
	free(l);
}

const char *rc_fabric_library_path(const rc_fabric_library *l)
{
	return l->path;
}

void rc_fabric_library_version(const rc_fabric_library *l, unsigned *ret_major, unsigned *ret_minor)
{
	*ret_major = FI_MAJOR(l->version);
	*ret_minor = FI_MINOR(l->version);
}
