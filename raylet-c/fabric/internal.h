/* libfabric as this folder sees it; no other folder includes this.
 *
 * The library is opened at run time (library.c): a node without it works over gRPC. Most of libfabric's calls are inline
 * functions of its headers that go through tables in the objects; only the few functions here are looked up. They are taken by
 * symbol version, since a newer library has functions of the same name for larger structs. */
#ifndef RC_FABRIC_INTERNAL_H
#define RC_FABRIC_INTERNAL_H

#include <rdma/fabric.h>
#include <signal.h>

#include "raylet-c/fabric/offer.h"

enum { RC__SIGNALS = 32 };

struct rc_fabric_library {
	void *handle;
	char *path;
	uint32_t version; /* FI_VERSION(major, minor) of the library */
	uint32_t api;     /* what is asked for: at most that of the headers */
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
	               struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	const char *(*strerror)(int error);
};

/* What an endpoint of ours asks of a provider: libfabric's answers, best first by the provider's own order. NULL: none (the
 * error says why). Freed by l->freeinfo. */
struct fi_info *rc__fabric_info(const rc_fabric_library *l, const char *provider, const char *ip, rc_error *e);
/* The offer that an answer stands for. */
void rc__fabric_offer_of(const struct fi_info *info, rc_fabric_offer *ret);

/* libraries below libfabric (psm) take over the process' signals when they are loaded or opened, SIGTERM too: around such a call
 * the handlers are kept and put back. */
typedef struct rc__signals {
	struct sigaction old[RC__SIGNALS];
} rc__signals;
void rc__signals_keep(rc__signals *s);
void rc__signals_restore(const rc__signals *s);

#endif
