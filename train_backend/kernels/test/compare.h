/* Contents to test with, and comparisons. */
#ifndef RC_KERNELS_TEST_COMPARE_H
#define RC_KERNELS_TEST_COMPARE_H

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "raylet-c/base/test.h"
#include "train_backend/kernels/oracle.h"

/* The CUDA kernels under the fake driver (fake_driver.cc): fake/libcuda.so.1 beside this program. NULL, with the reason printed:
 * there is none, or it does not work, which counts as a failed test where the file exists. */
static inline rc_kernels *fake_cuda_kernels(void)
{
	char program[PATH_MAX] = {0}, path[PATH_MAX + 32];
	rc_kernels *made = NULL;
	rc_error error;

	if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
		return NULL;
	snprintf(path, sizeof path, "%s/fake/libcuda.so.1", dirname(program));
	if (access(path, R_OK)) {
		printf("# the CUDA kernels are not tested: there is no %s\n", path);
		return NULL;
	}
	setenv("RAYLET_C_NVRTC", path, 1);
	setenv("XDG_CACHE_HOME", "/proc/nothing", 1);
	/* By its name in the library, this is what rc_cuda_open finds. */
	if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL) || rc_kernels_create(0, &made, &error)) {
		printf("not ok - the fake driver at %s: %s\n", path, made ? error.text : "cannot be opened");
		exit(1);
	}
	return made;
}

static const rc_dtype all_types[] = {RC_F32, RC_F16, RC_BF16, RC_F64};
static const char *const type_names[] = {"u8", "f32", "f16", "bf16", "f64"};

#define TYPES (sizeof all_types / sizeof *all_types)

static uint64_t random_state = 88172645463325252u;

static inline uint64_t random_bits(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state * 0x2545f4914f6cdd1du;
}

static inline size_t random_below(size_t limit)
{
	return (size_t)(random_bits() >> 33) % limit;
}

static inline double random_normal(void)
{
	double sum = 0;

	for (int i = 0; i < 6; i++)
		sum += (double)(random_bits() >> 11) * 0x1p-53;
	return (sum - 3) * 1.4;
}

/* Any bits: NaNs, infinities, subnormals and all sizes come. Kept apart from what the elements are, so that the code under test is
 * not needed to make them. */
static inline void fill_bits(void *data, rc_dtype type, size_t count)
{
	for (size_t i = 0; i < count * rc_dtype_size(type); i++)
		((unsigned char *)data)[i] = (unsigned char)(random_bits() >> 40);
	/* Halves and their neighbours, where rounding is decided. */
	for (size_t i = 0; type == RC_F32 && i < count; i += 3)
		((uint32_t *)data)[i] = (((uint32_t *)data)[i] & 0xffff0000) + 0x7fff + (uint32_t)random_below(3);
	for (size_t i = 1; type == RC_F32 && i < count; i += 5)
		((uint32_t *)data)[i] = (uint32_t)(random_bits() & 0x80000000) + 0x33000000 + (uint32_t)random_below(0x15000000) / 0x1000 * 0x1000;
}

static inline void fill_normal(void *data, rc_dtype type, size_t count, double size)
{
	for (size_t i = 0; i < count; i++)
		rc_oracle_put(data, type, i, random_normal() * size);
}

/* Elements with NaN or infinity in them. */
static inline void fill_wild(void *data, rc_dtype type, size_t count, double size)
{
	static const double wild[] = {INFINITY, -INFINITY, NAN, 0, -0.0, 1e-42, 65504, 3e38};

	fill_normal(data, type, count, size);
	for (size_t i = 0; i < count; i++)
		if (random_below(50) == 0)
			rc_oracle_put(data, type, i, wild[random_below(sizeof wild / sizeof *wild)]);
}

/* The same bits, or both NaN; -0 is not 0. */
static inline bool same_element(const void *one, const void *other, rc_dtype type, size_t i)
{
	size_t size = rc_dtype_size(type);

	if (memcmp((const char *)one + i * size, (const char *)other + i * size, size) == 0)
		return true;
	return type != RC_U8 && isnan(rc_oracle_get(one, type, i)) && isnan(rc_oracle_get(other, type, i));
}

static inline bool same(const char *what, const void *want, const void *got, rc_dtype type, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!same_element(want, got, type, i)) {
			printf("# %s: element %zu of %zu (%s) is %.9g, not %.9g\n", what, i, count, type_names[type], rc_oracle_get(got, type, i),
			       rc_oracle_get(want, type, i));
			return false;
		}
	return true;
}

static inline void *copy_of(const void *data, size_t bytes)
{
	void *made = malloc(bytes ? bytes : 1);

	return memcpy(made, data, bytes);
}

#endif
