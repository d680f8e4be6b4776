/* Sums of several ranks' data, in the order of ranks, with the widest vectors that the processor has. Any thread. */
#ifndef RC_COMM_SUM_H
#define RC_COMM_SUM_H

#include "train_backend/device/dtype.h"

/* to[i] = (from[0][i] + from[1][i] + ...) * scale for i < count; bf16 and f16 are summed and scaled in f32 and rounded once (nearest
 * even). Each step is one rounded operation, so the bits do not depend on the processor. to may be one of from. 1 <= sources. */
void rc__sum(void *to, const void *const *from, int sources, size_t count, rc_dtype dtype, double scale);

#endif
