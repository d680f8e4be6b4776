/* The CUDA half of kernels.h. */
#include "train_backend/kernels/internal.h"

int rc__cuda_kernels_create(int device, rc__cuda_kernels **kernels, rc_error *error)
{
	(void)kernels;
	return rc_fail(error, RC_E_UNSUPPORTED, "kernels: this build has no CUDA kernels (device %d)", device);
}

void rc__cuda_kernels_destroy(rc__cuda_kernels *kernels)
{
	(void)kernels;
}

int rc__cuda_layout_create(rc_kernels *kernels, const rc_layout *layout, rc__cuda_layout **table, rc_error *error)
{
	(void)layout, (void)table;
	return rc_fail(error, RC_E_UNSUPPORTED, "kernels: this build has no CUDA kernels (device %d)", kernels->device);
}

void rc__cuda_layout_destroy(rc_kernels *kernels, rc__cuda_layout *table)
{
	(void)kernels, (void)table;
}

const rc__backend rc__cuda_backend = {0};
