/* The CUDA driver, opened at run time (libcuda.so.1): a host without a GPU loads this code all the same. Every function but
 * rc_cuda_open and rc_cuda_enter needs a context current on the calling thread: rc_cuda_enter makes the device's primary context
 * current (the one torch uses). Nothing here waits for the device but rc_cuda_stream_sync. Any thread. */
#ifndef RC_DEVICE_CUDA_H
#define RC_DEVICE_CUDA_H

#include <stdint.h>

#include "raylet-c/base/status.h"
#include "train_backend/device/dtype.h"

/* Opens the driver (once a process) and takes the primary context of a device, for the life of the process; makes it current.
 * RC_E_UNAVAILABLE names what is missing. */
int rc_cuda_open(int device, rc_error *error) RC_WARN_UNUSED;
/* Makes the device's context current on this thread; cheap. */
int rc_cuda_enter(int device, rc_error *error) RC_WARN_UNUSED;

/* What kernels are built and sized for. */
typedef struct rc_cuda_device {
	int major, minor;    /* compute capability */
	int multiprocessors;
	int driver;          /* the newest CUDA version that the driver serves: 13000 for 13.0 */
} rc_cuda_device;
int rc_cuda_describe(int device, rc_cuda_device *description, rc_error *error) RC_WARN_UNUSED;

/* priority: 0 or lower; lower is more urgent, clamped to what the device has. The stream does not wait for the default stream. */
int rc_cuda_stream_create(int priority, rc_stream *stream, rc_error *error) RC_WARN_UNUSED;
int rc_cuda_stream_destroy(rc_stream stream, rc_error *error);
int rc_cuda_stream_sync(rc_stream stream, rc_error *error) RC_WARN_UNUSED;
/* 1: a graph is being captured from the stream, 0: not, -1: error (a capture that went wrong too). */
int rc_cuda_stream_capturing(rc_stream stream, rc_error *error) RC_WARN_UNUSED;
/* From now on calls of this thread are not refused while another thread captures a graph: for threads that only watch. */
int rc_cuda_ignore_captures(rc_error *error) RC_WARN_UNUSED;
int rc_cuda_event_create(rc_event *event, rc_error *error) RC_WARN_UNUSED; /* without timing */
int rc_cuda_event_destroy(rc_event event, rc_error *error);
int rc_cuda_event_record(rc_event event, rc_stream stream, rc_error *error) RC_WARN_UNUSED;
int rc_cuda_event_wait(rc_stream stream, rc_event event, rc_error *error) RC_WARN_UNUSED; /* the stream waits, not the host */
/* 1: all before it is done, 0: not yet, -1: error. */
int rc_cuda_event_done(rc_event event, rc_error *error) RC_WARN_UNUSED;
/* Any direction. Host memory that is not pinned may be freed at return. */
int rc_cuda_copy(void *to, const void *from, size_t bytes, rc_stream stream, rc_error *error) RC_WARN_UNUSED;
int rc_cuda_zero(void *to, size_t bytes, rc_stream stream, rc_error *error) RC_WARN_UNUSED;
/* Small tables that kernels read; lives until rc_cuda_free, which waits for what uses it. Not while a graph is captured. */
int rc_cuda_alloc(size_t bytes, void **memory, rc_error *error) RC_WARN_UNUSED;
int rc_cuda_free(void *memory, rc_error *error); /* accepts NULL */

/* Compiled code. A function lives as long as its module. */
typedef void *rc_cuda_module;
typedef void *rc_cuda_function;
int rc_cuda_module_load(const void *image, rc_cuda_module *module, rc_error *error) RC_WARN_UNUSED;
int rc_cuda_module_unload(rc_cuda_module module, rc_error *error); /* accepts NULL */
int rc_cuda_module_function(rc_cuda_module module, const char *name, rc_cuda_function *function, rc_error *error) RC_WARN_UNUSED;
/* How many blocks of `threads` run on one multiprocessor at a time. */
int rc_cuda_occupancy(rc_cuda_function function, unsigned threads, int *blocks, rc_error *error) RC_WARN_UNUSED;
/* One row of blocks of `threads`; arguments[i] points to the value of parameter i. */
int rc_cuda_launch(rc_cuda_function function, unsigned blocks, unsigned threads, void **arguments, rc_stream stream, rc_error *error)
	RC_WARN_UNUSED;

#endif
