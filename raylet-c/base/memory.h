/* How much memory there is. Any thread. */
#ifndef RC_BASE_MEMORY_H
#define RC_BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Used and total bytes of the tighter of host and control group (version 2, then 1). False: /proc cannot be read. */
bool rc_memory_read(int64_t *ret_used, int64_t *ret_total);

#endif
