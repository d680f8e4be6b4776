/* The CUDA driver and NVRTC, opened at run time (libcuda.so.1; the libnvrtc that the process or torch's packages have): a host
 * without a GPU loads this code all the same. Every function needs a context current on the calling thread: rc_cuda_enter makes
 * the device's primary context current (the one torch uses). Any thread. */
#ifndef RC_DEVICE_CUDA_H
#define RC_DEVICE_CUDA_H

#include <stdint.h>

#include "raylet-c/base/status.h"
#include "train_backend/device/dtype.h"

/* Opens the driver (once a process) and takes the primary context of a device. RC_E_UNAVAILABLE names what is missing. */
int rc_cuda_open(int device, rc_error *error) RC_WARN_UNUSED;
/* Makes the device's context current on this thread; cheap. */
int rc_cuda_enter(int device, rc_error *error) RC_WARN_UNUSED;

/* priority: 0 or lower; lower is more urgent, clamped to what the device has. */
int rc_cuda_stream_create(int priority, rc_stream *stream, rc_error *error) RC_WARN_UNUSED;
int rc_cuda_stream_destroy(rc_stream stream, rc_error *error);
int rc_cuda_stream_sync(rc_stream stream, rc_error *error) RC_WARN_UNUSED;
int rc_cuda_event_create(rc_event *event, rc_error *error) RC_WARN_UNUSED; /* without timing */
int rc_cuda_event_destroy(rc_event event, rc_error *error);
int rc_cuda_event_record(rc_event event, rc_stream stream, rc_error *error) RC_WARN_UNUSED;
int rc_cuda_event_wait(rc_stream stream, rc_event event, rc_error *error) RC_WARN_UNUSED; /* the stream waits, not the host */
/* 1: all before it is done, 0: not yet, -1: error. */
int rc_cuda_event_done(rc_event event, rc_error *error) RC_WARN_UNUSED;
int rc_cuda_copy(void *to, const void *from, size_t bytes, rc_stream stream, rc_error *error) RC_WARN_UNUSED; /* any direction */
int rc_cuda_zero(void *to, size_t bytes, rc_stream stream, rc_error *error) RC_WARN_UNUSED;
/* Small tables that kernels read; lives until rc_cuda_free. */
int rc_cuda_alloc(size_t bytes, void **memory, rc_error *error) RC_WARN_UNUSED;
int rc_cuda_free(void *memory, rc_error *error);

#endif
