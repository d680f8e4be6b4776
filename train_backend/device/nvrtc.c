/* NVRTC, opened at run time, and its cache. See nvrtc.h. */
#define _GNU_SOURCE
#include "train_backend/device/nvrtc.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ARCHITECTURES 64

/* ---- the library ---- */

struct library {
	void *handle; /* NULL: not open */
	int major, minor;
	int (*nvrtcVersion)(int *major, int *minor);
	int (*nvrtcGetNumSupportedArchs)(int *count);
	int (*nvrtcGetSupportedArchs)(int *architectures);
	int (*nvrtcCreateProgram)(void **program, const char *source, const char *name, int headers, const char *const *texts,
	                          const char *const *names);
	int (*nvrtcDestroyProgram)(void **program);
	int (*nvrtcCompileProgram)(void *program, int count, const char *const *options);
	int (*nvrtcGetProgramLogSize)(void *program, size_t *size);
	int (*nvrtcGetProgramLog)(void *program, char *log);
	int (*nvrtcGetCUBINSize)(void *program, size_t *size);
	int (*nvrtcGetCUBIN)(void *program, char *image);
	int (*nvrtcGetPTXSize)(void *program, size_t *size);
	int (*nvrtcGetPTX)(void *program, char *image);
	const char *(*nvrtcGetErrorString)(int result);
};

/* Guards the library and, since versions before 12 are not safe for threads, compiling. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct library opened;

/* Why each place was passed over, for the error. */
struct trail {
	int driver;
	char text[300];
};

static void note(struct trail *trail, const char *place, const char *why)
{
	size_t used = strlen(trail->text);

	snprintf(trail->text + used, sizeof trail->text - used, "%s%s%s%s", used ? "; " : "", place, *why ? ": " : "", why);
}

/* The library's second half lies beside it, and the library asks for it by its bare name: it must be in the process before. */
static void open_builtins(const char *path)
{
	char pattern[PATH_MAX];
	const char *slash = strrchr(path, '/');
	glob_t found;

	if (!slash || snprintf(pattern, sizeof pattern, "%.*s/libnvrtc-builtins.so.*", (int)(slash - path), path) >= (int)sizeof pattern)
		return;
	if (glob(pattern, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
	globfree(&found);
}

/* 0: *library is open and good for the driver. */
static int try_library(const char *path, struct trail *trail, struct library *library)
{
	const struct {
		const char *name;
		void *slot;
	} symbols[] = {
#define SYMBOL(name) {#name, &library->name}
		SYMBOL(nvrtcVersion),
		SYMBOL(nvrtcGetNumSupportedArchs),
		SYMBOL(nvrtcGetSupportedArchs),
		SYMBOL(nvrtcCreateProgram),
		SYMBOL(nvrtcDestroyProgram),
		SYMBOL(nvrtcCompileProgram),
		SYMBOL(nvrtcGetProgramLogSize),
		SYMBOL(nvrtcGetProgramLog),
		SYMBOL(nvrtcGetCUBINSize),
		SYMBOL(nvrtcGetCUBIN),
		SYMBOL(nvrtcGetPTXSize),
		SYMBOL(nvrtcGetPTX),
		SYMBOL(nvrtcGetErrorString),
#undef SYMBOL
	};
	void *handle;

	open_builtins(path);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		note(trail, path, "cannot be opened");
		return -1;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *symbol = dlsym(handle, symbols[i].name);

		if (!symbol) {
			note(trail, path, "older than 11.2");
			dlclose(handle);
			return -1;
		}
		*(void **)symbols[i].slot = symbol;
	}
	if (library->nvrtcVersion(&library->major, &library->minor) || (trail->driver && library->major > trail->driver / 1000)) {
		note(trail, path, "newer than the driver");
		dlclose(handle);
		return -1;
	}
	library->handle = handle;
	return 0;
}

/* Tries what matches folder/name; names with the highest version last, tried first. */
static int try_pattern(const char *folder, int length, const char *name, struct trail *trail, struct library *library)
{
	char pattern[PATH_MAX];
	glob_t found;
	int result = -1;

	if (snprintf(pattern, sizeof pattern, "%.*s/%s", length, folder, name) >= (int)sizeof pattern || glob(pattern, 0, NULL, &found))
		return -1;
	for (size_t i = found.gl_pathc; i-- && result;)
		result = try_library(found.gl_pathv[i], trail, library);
	globfree(&found);
	return result;
}

/* `path` without its last `count` names; the length, or 0. */
static int parent(const char *path, int count)
{
	int length = (int)strlen(path);

	while (count--) {
		while (length > 0 && path[length - 1] != '/')
			length--;
		if (length > 0)
			length--;
	}
	return length;
}

/* What the process has mapped: torch's libraries (SITE/torch/lib), the CUDA runtime (SITE/nvidia/cuda_runtime/lib,
 * SITE/nvidia/cu13/lib or a toolkit's lib64), or NVRTC itself. */
enum mapped {
	MAPPED_NVRTC,
	MAPPED_TORCH,
	MAPPED_RUNTIME,
	MAPPED_KINDS,
};

static int try_beside(enum mapped kind, const char *path, struct trail *trail, struct library *library)
{
	static const char *const in_site[] = {"nvidia/cu[0-9]*/lib/libnvrtc.so.*", "nvidia/cuda_nvrtc/lib/libnvrtc.so.*",
	                                      "torch/lib/libnvrtc[.-]*so*"};
	int folder = parent(path, 1), site = parent(path, 3);

	if (kind == MAPPED_NVRTC)
		return try_library(path, trail, library);
	if (kind == MAPPED_RUNTIME) {
		if (!try_pattern(path, folder, "libnvrtc.so.*", trail, library))
			return 0;
		site = parent(path, 4);
	}
	for (size_t i = 0; i < sizeof in_site / sizeof *in_site; i++)
		if (!try_pattern(path, site, in_site[i], trail, library))
			return 0;
	return -1;
}

static bool begins(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

static int try_process(struct trail *trail, struct library *library)
{
	char found[MAPPED_KINDS][PATH_MAX] = {{0}}, line[PATH_MAX + 128];
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && fgets(line, sizeof line, maps)) {
		char *path = strchr(line, '/'), *name;

		if (!path)
			continue;
		path[strcspn(path, "\n")] = 0;
		name = strrchr(path, '/') + 1;
		enum mapped kind = begins(name, "libnvrtc.so") || begins(name, "libnvrtc-") ? MAPPED_NVRTC
		                   : begins(name, "libtorch") || begins(name, "libc10.so")  ? MAPPED_TORCH
		                   : begins(name, "libcudart.so")                           ? MAPPED_RUNTIME
		                                                                            : MAPPED_KINDS;

		if (kind < MAPPED_KINDS && !begins(name, "libnvrtc-builtins") && !*found[kind] && strlen(path) < PATH_MAX)
			strcpy(found[kind], path);
	}
	if (maps)
		fclose(maps);
	for (int kind = 0; kind < MAPPED_KINDS; kind++)
		if (*found[kind] && !try_beside(kind, found[kind], trail, library))
			return 0;
	return -1;
}

/* With the lock held. */
static int open_library(int driver, rc_error *error)
{
	static const char *const system[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
	const char *named = getenv("RAYLET_C_NVRTC");
	struct trail trail = {.driver = driver};
	struct library library = {0};

	if (opened.handle && (!driver || opened.major <= driver / 1000))
		return 0;
	if (named && *named) {
		if (!try_library(named, &trail, &library))
			goto found;
		return rc_fail(error, RC_E_UNAVAILABLE, "NVRTC: RAYLET_C_NVRTC names %s", trail.text);
	}
	if (!try_process(&trail, &library))
		goto found;
	for (size_t i = 0; i < sizeof system / sizeof *system; i++)
		if (!try_library(system[i], &trail, &library))
			goto found;
	if (!try_pattern("/usr/local/cuda/lib64", INT_MAX, "libnvrtc.so.*", &trail, &library))
		goto found;
	return rc_fail(error, RC_E_UNAVAILABLE, "NVRTC is in none of the process, torch's packages and the system (%s)", trail.text);

found:
	opened = library;
	return 0;
}

/* ---- the cache ---- */

/* A file: this, `key` bytes of the key, `size` bytes of code. */
struct header {
	char magic[8];
	uint64_t key, size, checksum;
};

static const char magic[8] = "rc-cuda1";

/* FNV-1a. */
static uint64_t hash(const void *bytes, size_t size, uint64_t from)
{
	for (size_t i = 0; i < size; i++)
		from = (from ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
	return from;
}

#define HASH_START 0xcbf29ce484222325u

/* Makes the folder; false: there is none to use. Only folders and files of this user are trusted: the code in them is run. */
static bool cache_folder(char path[PATH_MAX])
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	struct stat info;
	int length;

	if (base && *base == '/') {
		length = snprintf(path, PATH_MAX, "%s", base);
	} else {
		if (!home || *home != '/')
			return false;
		length = snprintf(path, PATH_MAX, "%s/.cache", home);
	}
	if (length >= PATH_MAX - 64)
		return false;
	mkdir(path, 0700);
	strcat(path, "/raylet-c");
	mkdir(path, 0700);
	return lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

static bool read_all(int fd, void *to, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = read(fd, (char *)to + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static bool write_all(int fd, const void *from, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = write(fd, (const char *)from + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

/* The code of the file at path if it is whole and was made for this key; else NULL. */
static void *cache_read(const char *path, const char *key, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	size_t length = strlen(key);
	struct header header;
	struct stat info;
	char *found = NULL;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() && read_all(fd, &header, sizeof header) &&
	    memcmp(header.magic, magic, sizeof magic) == 0 && header.key == length && header.size < (size_t)info.st_size &&
	    (size_t)info.st_size == sizeof header + length + header.size)
		found = malloc(length + header.size);
	if (found && (!read_all(fd, found, length + header.size) || memcmp(found, key, length) != 0 ||
	              hash(found, length + header.size, HASH_START) != header.checksum)) {
		free(found);
		found = NULL;
	}
	close(fd);
	if (!found)
		return NULL;
	memmove(found, found + length, header.size);
	*size = header.size;
	return found;
}

/* Readers see the whole file or none, whoever else writes it. A full disk only costs the next process the compiling. */
static void cache_write(const char *path, const char *key, const void *code, size_t size)
{
	struct header header = {.key = strlen(key), .size = size};
	char temporary[PATH_MAX];
	bool whole;
	int fd;

	memcpy(header.magic, magic, sizeof magic);
	header.checksum = hash(code, size, hash(key, header.key, HASH_START));
	if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= (int)sizeof temporary)
		return;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return;
	whole = write_all(fd, &header, sizeof header) && write_all(fd, key, header.key) && write_all(fd, code, size);
	if (close(fd) || !whole || rename(temporary, path))
		unlink(temporary);
}

/* ---- compiling ---- */

/* The newest architecture that both the device and the library know; 0: none. */
static int best_architecture(const rc_nvrtc_target *target)
{
	int all[MAX_ARCHITECTURES], count = 0, best = 0;

	if (opened.nvrtcGetNumSupportedArchs(&count) || count > MAX_ARCHITECTURES || opened.nvrtcGetSupportedArchs(all))
		return 0;
	for (int i = 0; i < count; i++)
		if (all[i] <= target->major * 10 + target->minor && all[i] > best)
			best = all[i];
	return best;
}

static int compile_fail(rc_error *error, void *program, const char *name, const char *what, int result)
{
	char *log = NULL;
	size_t size = 0;

	if (program && opened.nvrtcGetProgramLogSize(program, &size) == 0 && size > 1 && (log = calloc(1, size + 1)))
		opened.nvrtcGetProgramLog(program, log);
	rc_fail(error, RC_E_SYSTEM, "NVRTC %d.%d: %s: %s: %s%s%s", opened.major, opened.minor, name, what, opened.nvrtcGetErrorString(result),
	        log ? ": " : "", log ? log : "");
	free(log);
	return -1;
}

/* With the lock held. */
static int compile(const char *source, const char *name, const char *const *options, int count, rc_nvrtc_code *code, rc_error *error)
{
	void *program = NULL;
	char *image = NULL;
	size_t size = 0;
	int result = opened.nvrtcCreateProgram(&program, source, name, 0, NULL, NULL);

	if (result)
		return compile_fail(error, NULL, name, "nvrtcCreateProgram", result);
	result = opened.nvrtcCompileProgram(program, count, options);
	if (result) {
		compile_fail(error, program, name, "compiling", result);
		goto end;
	}
	result = code->portable ? opened.nvrtcGetPTXSize(program, &size) : opened.nvrtcGetCUBINSize(program, &size);
	if (result || !size) {
		result = compile_fail(error, NULL, name, "the code's size", result);
		goto end;
	}
	image = malloc(size);
	if (!image) {
		result = rc_fail(error, RC_E_NO_MEMORY, "NVRTC: no memory for %zu bytes of code", size);
		goto end;
	}
	result = code->portable ? opened.nvrtcGetPTX(program, image) : opened.nvrtcGetCUBIN(program, image);
	if (result) {
		free(image);
		compile_fail(error, NULL, name, "the code", result);
		goto end;
	}
	code->image = image;
	code->size = size;
end:
	opened.nvrtcDestroyProgram(&program);
	return result ? -1 : 0;
}

/* With the lock held. */
static int build(const char *source, const char *name, const rc_nvrtc_target *target, rc_nvrtc_code *code, rc_error *error)
{
	char architecture[48], key[256], folder[PATH_MAX], path[PATH_MAX + 128];
	/* The kernels' arithmetic is that of the CPU: a product and a sum are two roundings unless fmaf is written. */
	const char *const options[] = {architecture, "--fmad=false", "--std=c++17"};
	rc_nvrtc_code made = {0};
	bool cached;
	int best;

	if (open_library(target->driver, error))
		return -1;
	best = best_architecture(target);
	if (!best)
		return rc_fail(error, RC_E_UNSUPPORTED, "NVRTC %d.%d makes no code for compute capability %d.%d", opened.major, opened.minor,
		               target->major, target->minor);
	made.portable = best != target->major * 10 + target->minor;
	snprintf(made.library, sizeof made.library, "NVRTC %d.%d", opened.major, opened.minor);
	snprintf(architecture, sizeof architecture, "--gpu-architecture=%s_%d", made.portable ? "compute" : "sm", best);
	snprintf(key, sizeof key, "%.100s %016llx %s %s %s %s\n", name, (unsigned long long)hash(source, strlen(source), HASH_START),
	         made.library, options[0], options[1], options[2]);
	cached = cache_folder(folder);
	if (cached) {
		snprintf(path, sizeof path, "%s/%016llx-%s%d", folder, (unsigned long long)hash(key, strlen(key), HASH_START),
		         made.portable ? "compute" : "sm", best);
		made.image = cache_read(path, key, &made.size);
		made.from_cache = made.image != NULL;
	}
	if (!made.image) {
		if (compile(source, name, options, sizeof options / sizeof *options, &made, error))
			return -1;
		if (cached)
			cache_write(path, key, made.image, made.size);
	}
	*code = made;
	return 0;
}

int rc_nvrtc_build(const char *source, const char *name, const rc_nvrtc_target *target, rc_nvrtc_code *code, rc_error *error)
{
	int result;

	pthread_mutex_lock(&lock);
	result = build(source, name, target, code, error);
	pthread_mutex_unlock(&lock);
	return result;
}
