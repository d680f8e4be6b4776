/* What the store reads from Ray's system config: the JSON text of GetInternalConfig, which the head's configuration fills
 * (2.35.0 and 2.60.0; names and defaults: ray_config_def.h). RAY_<name> in the environment counts for names that it lacks. */
#ifndef RC_STORE_CONFIG_H
#define RC_STORE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raylet-c/base/status.h"

typedef struct rc_store_config {
	char *spill_type;          /* "filesystem", "smart_open", ..; NULL: no object_spilling_config */
	char **spill_dirs;         /* filesystem: params.directory_path, a text or a list of texts */
	size_t n_spill_dirs;
	bool spilling;             /* automatic_object_spilling_enabled: true */
	double spilling_threshold; /* object_spilling_threshold: 0.8 of the capacity */
	uint64_t min_spilling_size;       /* 100 MiB */
	uint64_t max_fused_objects;       /* max_fused_object_count: 2000 */
	uint64_t max_spilling_file_size;  /* max_spilling_file_size_bytes (2.60.0): 0, no limit */
	unsigned max_io_workers;          /* 4 */
	uint64_t grace_ms;                /* oom_grace_period_s: 2 */
	double fs_capacity_threshold;     /* local_fs_capacity_threshold: 0.95 */
} rc_store_config;

/* system_config may be NULL or "". -1: not JSON, or a value of a wrong kind or out of range; the text names it. */
int rc_store_config_read(const char *system_config, rc_store_config *ret, rc_error *e) RC_WARN_UNUSED;
void rc_store_config_free(rc_store_config *c);

#endif
