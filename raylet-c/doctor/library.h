/* What a shared library says about itself in its bytes, without being loaded: NCCL, its network plugins. NCCL looks for the
 * symbol ncclNetPlugin_vN of a plugin, newest N that it knows first, so the names stand among its constants; the plugin exports
 * those that it serves (NCCL 2.17 to 2.28: src/plugin/net.cc, ext-net/README.md; aws-ofi-nccl 1.7 to 1.16). Any thread. */
#ifndef RC_DOCTOR_LIBRARY_H
#define RC_DOCTOR_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/status.h"

typedef struct rc_library {
	char path[256];       /* "": there is none */
	char version[40];     /* "2.21.5+cuda12.4", "1.13.2-aws"; "": not told */
	uint32_t net_looked_for; /* bit N: looks for ncclNetPlugin_vN */
	uint32_t net_exported;   /* bit N: exports ncclNetPlugin_vN */
	bool guards_protocol; /* knows NCCL_PROTO, so it turns unsafe protocols off by itself */
	char net_name[40];    /* as NCCL_NET wants it: "AWS Libfabric", "Libfabric" */
} rc_library;

/* Fills all but path from the bytes of an ELF64 file. */
int rc_library_parse(rc_view file, rc_library *ret, rc_error *error) RC_WARN_UNUSED;
/* The file at path, of which only the pages that are looked at are read. */
int rc_library_read(const char *path, rc_library *ret, rc_error *error) RC_WARN_UNUSED;

/* The newest plugin interface that both know: 0: none, NCCL cannot use the plugin. */
int rc_library_common_net(const rc_library *nccl, const rc_library *plugin);
/* "v9, v10" */
void rc_library_net_text(uint32_t versions, char ret[96]);

#endif
