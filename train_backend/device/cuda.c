/* The CUDA driver, opened at run time. See cuda.h.
 *
 * The driver's own header is not needed: its functions have had a fixed binary interface since CUDA 11, and the few used here are
 * declared below under the versioned names that the library exports. The names without a suffix for per-thread default streams are
 * taken, so that a NULL stream is the legacy default stream, which is torch's. */
#define _GNU_SOURCE
#include "train_backend/device/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#define MAX_DEVICES 64

enum {
	DRIVER_OK = 0,
	DRIVER_NOT_READY = 600,
	STREAM_NON_BLOCKING = 1,
	EVENT_DISABLE_TIMING = 2,
	ATTRIBUTE_MULTIPROCESSORS = 16,
	ATTRIBUTE_MAJOR = 75,
	ATTRIBUTE_MINOR = 76,
	CAPTURE_NONE = 0,
	CAPTURE_ACTIVE = 1,
	CAPTURE_MODE_THREAD = 1,
};

/* Device addresses are 64-bit numbers in the driver's interface. */
typedef uint64_t address;

static struct {
	int (*cuInit)(unsigned flags);
	int (*cuDriverGetVersion)(int *version);
	int (*cuGetErrorString)(int result, const char **text);
	int (*cuGetErrorName)(int result, const char **text);
	int (*cuDeviceGet)(int *device, int ordinal);
	int (*cuDeviceGetCount)(int *count);
	int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
	int (*cuDevicePrimaryCtxRetain)(void **context, int device);
	int (*cuCtxSetCurrent)(void *context);
	int (*cuCtxGetStreamPriorityRange)(int *least, int *greatest);
	int (*cuStreamCreateWithPriority)(void **stream, unsigned flags, int priority);
	int (*cuStreamDestroy_v2)(void *stream);
	int (*cuStreamSynchronize)(void *stream);
	int (*cuStreamIsCapturing)(void *stream, int *status);
	int (*cuThreadExchangeStreamCaptureMode)(int *mode);
	int (*cuStreamWaitEvent)(void *stream, void *event, unsigned flags);
	int (*cuEventCreate)(void **event, unsigned flags);
	int (*cuEventDestroy_v2)(void *event);
	int (*cuEventRecord)(void *event, void *stream);
	int (*cuEventQuery)(void *event);
	int (*cuMemcpyAsync)(address to, address from, size_t bytes, void *stream);
	int (*cuMemsetD8Async)(address to, unsigned char value, size_t bytes, void *stream);
	int (*cuMemAlloc_v2)(address *memory, size_t bytes);
	int (*cuMemFree_v2)(address memory);
	int (*cuModuleLoadData)(void **module, const void *image);
	int (*cuModuleUnload)(void *module);
	int (*cuModuleGetFunction)(void **function, void *module, const char *name);
	int (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, void *function, int threads, size_t shared_bytes);
	int (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
	                      unsigned block_z, unsigned shared_bytes, void *stream, void **arguments, void **extra);
} driver;

static const struct {
	const char *name;
	void *slot;
} symbols[] = {
#define SYMBOL(name) {#name, &driver.name}
	SYMBOL(cuInit),
	SYMBOL(cuDriverGetVersion),
	SYMBOL(cuGetErrorString),
	SYMBOL(cuGetErrorName),
	SYMBOL(cuDeviceGet),
	SYMBOL(cuDeviceGetCount),
	SYMBOL(cuDeviceGetAttribute),
	SYMBOL(cuDevicePrimaryCtxRetain),
	SYMBOL(cuCtxSetCurrent),
	SYMBOL(cuCtxGetStreamPriorityRange),
	SYMBOL(cuStreamCreateWithPriority),
	SYMBOL(cuStreamDestroy_v2),
	SYMBOL(cuStreamSynchronize),
	SYMBOL(cuStreamIsCapturing),
	SYMBOL(cuThreadExchangeStreamCaptureMode),
	SYMBOL(cuStreamWaitEvent),
	SYMBOL(cuEventCreate),
	SYMBOL(cuEventDestroy_v2),
	SYMBOL(cuEventRecord),
	SYMBOL(cuEventQuery),
	SYMBOL(cuMemcpyAsync),
	SYMBOL(cuMemsetD8Async),
	SYMBOL(cuMemAlloc_v2),
	SYMBOL(cuMemFree_v2),
	SYMBOL(cuModuleLoadData),
	SYMBOL(cuModuleUnload),
	SYMBOL(cuModuleGetFunction),
	SYMBOL(cuOccupancyMaxActiveBlocksPerMultiprocessor),
	SYMBOL(cuLaunchKernel),
#undef SYMBOL
};

/* Guards opening. Once `ready`, the table and a context that was set are never changed again, so calls take no lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;
static void *contexts[MAX_DEVICES];

static int driver_fail(rc_error *error, int result, const char *call)
{
	const char *name = NULL, *text = NULL;

	driver.cuGetErrorName(result, &name);
	driver.cuGetErrorString(result, &text);
	return rc_fail(error, RC_E_SYSTEM, "CUDA driver: %s: %s (%s, code %d)", call, text ? text : "unknown error", name ? name : "no name",
	               result);
}

/* Calls a driver function and makes an error of anything but success. Only after rc_cuda_open succeeded. */
#define CALL(error, name, ...) call_result(error, ready_result() ? -1 : driver.name(__VA_ARGS__), #name)

static int ready_result(void)
{
	return __atomic_load_n(&ready, __ATOMIC_ACQUIRE) ? 0 : -1;
}

static int call_result(rc_error *error, int result, const char *name)
{
	if (result == DRIVER_OK)
		return 0;
	if (result < 0)
		return rc_fail(error, RC_E_UNAVAILABLE, "CUDA driver: %s before the driver was opened", name);
	return driver_fail(error, result, name);
}

/* With the lock held. */
static int open_driver(rc_error *error)
{
	void *library;
	int result;

	if (ready)
		return 0;
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return rc_fail(error, RC_E_UNAVAILABLE, "CUDA driver: %s", dlerror());
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *symbol = dlsym(library, symbols[i].name);

		if (!symbol) {
			dlclose(library);
			return rc_fail(error, RC_E_UNAVAILABLE, "CUDA driver: libcuda.so.1 has no %s: it is older than CUDA 11", symbols[i].name);
		}
		*(void **)symbols[i].slot = symbol;
	}
	result = driver.cuInit(0);
	if (result != DRIVER_OK) {
		driver_fail(error, result, "cuInit");
		if (error)
			error->code = RC_E_UNAVAILABLE;
		dlclose(library);
		return -1;
	}
	__atomic_store_n(&ready, true, __ATOMIC_RELEASE);
	return 0;
}

/* With the lock held. */
static int open_device(int device, rc_error *error)
{
	int count, handle;
	void *context;

	if (device >= 0 && device < MAX_DEVICES && contexts[device])
		return 0;
	if (CALL(error, cuDeviceGetCount, &count))
		return -1;
	if (device < 0 || device >= count || device >= MAX_DEVICES)
		return rc_fail(error, RC_E_UNAVAILABLE, "CUDA driver: no device %d: %d are visible", device, count);
	if (CALL(error, cuDeviceGet, &handle, device) || CALL(error, cuDevicePrimaryCtxRetain, &context, handle))
		return -1;
	__atomic_store_n(&contexts[device], context, __ATOMIC_RELEASE);
	return 0;
}

int rc_cuda_open(int device, rc_error *error)
{
	int result;

	pthread_mutex_lock(&lock);
	result = open_driver(error) || open_device(device, error) ? -1 : 0;
	pthread_mutex_unlock(&lock);
	return result ? -1 : rc_cuda_enter(device, error);
}

int rc_cuda_enter(int device, rc_error *error)
{
	void *context = device >= 0 && device < MAX_DEVICES ? __atomic_load_n(&contexts[device], __ATOMIC_ACQUIRE) : NULL;

	if (!context)
		return rc_fail(error, RC_E_INVALID, "CUDA driver: device %d was not opened", device);
	return CALL(error, cuCtxSetCurrent, context);
}

int rc_cuda_describe(int device, rc_cuda_device *description, rc_error *error)
{
	rc_cuda_device found;
	int handle;

	if (CALL(error, cuDeviceGet, &handle, device) || CALL(error, cuDeviceGetAttribute, &found.major, ATTRIBUTE_MAJOR, handle) ||
	    CALL(error, cuDeviceGetAttribute, &found.minor, ATTRIBUTE_MINOR, handle) ||
	    CALL(error, cuDeviceGetAttribute, &found.multiprocessors, ATTRIBUTE_MULTIPROCESSORS, handle) ||
	    CALL(error, cuDriverGetVersion, &found.driver))
		return -1;
	*description = found;
	return 0;
}

int rc_cuda_stream_create(int priority, rc_stream *stream, rc_error *error)
{
	int least, greatest;

	if (CALL(error, cuCtxGetStreamPriorityRange, &least, &greatest))
		return -1;
	if (priority < greatest)
		priority = greatest;
	if (priority > least)
		priority = least;
	return CALL(error, cuStreamCreateWithPriority, stream, STREAM_NON_BLOCKING, priority);
}

int rc_cuda_stream_destroy(rc_stream stream, rc_error *error)
{
	return stream ? CALL(error, cuStreamDestroy_v2, stream) : 0;
}

int rc_cuda_stream_sync(rc_stream stream, rc_error *error)
{
	return CALL(error, cuStreamSynchronize, stream);
}

int rc_cuda_stream_capturing(rc_stream stream, rc_error *error)
{
	int status;

	if (CALL(error, cuStreamIsCapturing, stream, &status))
		return -1;
	if (status != CAPTURE_NONE && status != CAPTURE_ACTIVE)
		return rc_fail(error, RC_E_CANCELLED, "CUDA driver: the stream's capture has become invalid");
	return status == CAPTURE_ACTIVE;
}

int rc_cuda_ignore_captures(rc_error *error)
{
	int mode = CAPTURE_MODE_THREAD;

	return CALL(error, cuThreadExchangeStreamCaptureMode, &mode);
}

int rc_cuda_event_create(rc_event *event, rc_error *error)
{
	return CALL(error, cuEventCreate, event, EVENT_DISABLE_TIMING);
}

int rc_cuda_event_destroy(rc_event event, rc_error *error)
{
	return event ? CALL(error, cuEventDestroy_v2, event) : 0;
}

int rc_cuda_event_record(rc_event event, rc_stream stream, rc_error *error)
{
	return CALL(error, cuEventRecord, event, stream);
}

int rc_cuda_event_wait(rc_stream stream, rc_event event, rc_error *error)
{
	return CALL(error, cuStreamWaitEvent, stream, event, 0);
}

int rc_cuda_event_done(rc_event event, rc_error *error)
{
	int result = ready_result() ? -1 : driver.cuEventQuery(event);

	if (result == DRIVER_NOT_READY)
		return 0;
	return call_result(error, result, "cuEventQuery") ? -1 : 1;
}

int rc_cuda_copy(void *to, const void *from, size_t bytes, rc_stream stream, rc_error *error)
{
	return bytes ? CALL(error, cuMemcpyAsync, (address)(uintptr_t)to, (address)(uintptr_t)from, bytes, stream) : 0;
}

int rc_cuda_zero(void *to, size_t bytes, rc_stream stream, rc_error *error)
{
	return bytes ? CALL(error, cuMemsetD8Async, (address)(uintptr_t)to, 0, bytes, stream) : 0;
}

int rc_cuda_alloc(size_t bytes, void **memory, rc_error *error)
{
	address found;

	/* The driver refuses 0 bytes. */
	if (CALL(error, cuMemAlloc_v2, &found, bytes ? bytes : 1))
		return -1;
	*memory = (void *)(uintptr_t)found;
	return 0;
}

int rc_cuda_free(void *memory, rc_error *error)
{
	return memory ? CALL(error, cuMemFree_v2, (address)(uintptr_t)memory) : 0;
}

int rc_cuda_module_load(const void *image, rc_cuda_module *module, rc_error *error)
{
	return CALL(error, cuModuleLoadData, module, image);
}

int rc_cuda_module_unload(rc_cuda_module module, rc_error *error)
{
	return module ? CALL(error, cuModuleUnload, module) : 0;
}

int rc_cuda_module_function(rc_cuda_module module, const char *name, rc_cuda_function *function, rc_error *error)
{
	return CALL(error, cuModuleGetFunction, function, module, name);
}

int rc_cuda_occupancy(rc_cuda_function function, unsigned threads, int *blocks, rc_error *error)
{
	return CALL(error, cuOccupancyMaxActiveBlocksPerMultiprocessor, blocks, function, (int)threads, 0);
}

int rc_cuda_launch(rc_cuda_function function, unsigned blocks, unsigned threads, void **arguments, rc_stream stream, rc_error *error)
{
	return CALL(error, cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL);
}
