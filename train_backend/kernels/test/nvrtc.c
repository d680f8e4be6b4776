/* The CUDA source compiles with the NVRTC at hand for the architectures we name, and the cache keeps what was compiled. Needs no
 * GPU. Where there is no NVRTC (RAYLET_C_NVRTC names one, e.g. of the wheel nvidia-cuda-nvrtc-cu12), the reason is printed. */
#define _GNU_SOURCE
#include "train_backend/device/nvrtc.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static const char source[] =
#include "train_backend/kernels/kernels.cu.inc"
	;
static const char small[] = "extern \"C\" __global__ void nothing(int *x) { *x = 1; }\n";

static const char *named; /* what RAYLET_C_NVRTC was at the start */
static char cache[] = "/tmp/rc-nvrtc-XXXXXX";

/* The one file in the cache; empty: none, or several. */
static const char *cached_file(void)
{
	static char path[512];
	char folder[64];
	struct dirent *entry;
	int count = 0;
	DIR *files;

	path[0] = 0;
	snprintf(folder, sizeof folder, "%s/raylet-c", cache);
	files = opendir(folder);
	while (files && (entry = readdir(files)))
		if (entry->d_name[0] != '.' && ++count)
			snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
	if (files)
		closedir(files);
	return count == 1 ? path : "";
}

static void empty_cache(void)
{
	char command[128];

	snprintf(command, sizeof command, "rm -rf '%s/raylet-c'", cache);
	CHECK_EQ_INT(0, system(command));
}

static bool build(const char *text, int major, int minor, rc_nvrtc_code *code)
{
	rc_nvrtc_target target = {major, minor, 0};
	rc_error error = {0};

	if (!rc_nvrtc_build(text, "test.cu", &target, code, &error))
		return true;
	printf("# %s\n", error.text);
	return false;
}

static void compiles_for_each(void)
{
	static const int architectures[][2] = {{7, 5}, {8, 0}, {8, 9}, {9, 0}};

	for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
		int major = architectures[i][0], minor = architectures[i][1];
		rc_nvrtc_code code = {0};

		CHECK(build(source, major, minor, &code));
		CHECK(code.image && code.size > 10000 && !code.portable && !memcmp(code.image, "\177ELF", 4));
		printf("# sm_%d%d by %s: %zu bytes\n", major, minor, code.library, code.size);
		free(code.image);
	}
}

static void serves_a_newer_device(void)
{
	rc_nvrtc_code code = {0};

	CHECK(build(small, 99, 9, &code));
	CHECK(code.portable && strstr(code.image, ".entry nothing") != NULL);
	free(code.image);
}

static void refuses_an_old_device(void)
{
	rc_nvrtc_target target = {2, 0, 0};
	rc_nvrtc_code code;
	rc_error error;

	CHECK_EQ_INT(-1, rc_nvrtc_build(small, "test.cu", &target, &code, &error));
	CHECK_EQ_INT(RC_E_UNSUPPORTED, error.code);
}

static void keeps_code(void)
{
	rc_nvrtc_code first = {0}, second = {0}, other = {0};
	char changed[sizeof small + 8];

	empty_cache();
	CHECK(build(small, 8, 0, &first) && !first.from_cache);
	CHECK(build(small, 8, 0, &second) && second.from_cache);
	CHECK(first.size == second.size && !memcmp(first.image, second.image, first.size));
	CHECK(build(small, 9, 0, &other) && !other.from_cache);
	free(other.image);
	snprintf(changed, sizeof changed, "%s//\n", small);
	CHECK(build(changed, 8, 0, &other) && !other.from_cache);
	free(first.image), free(second.image), free(other.image);
}

static void damaged_code_is_made_anew(void)
{
	rc_nvrtc_code code = {0};
	struct stat info;

	for (int kind = 0; kind < 4; kind++) {
		int fd;

		empty_cache();
		CHECK(build(small, 8, 0, &code));
		free(code.image);
		fd = open(cached_file(), O_RDWR);
		CHECK(fd >= 0 && fstat(fd, &info) == 0);
		if (fd < 0)
			return;
		if (kind == 0)
			CHECK(!ftruncate(fd, info.st_size / 2));
		else if (kind == 1)
			CHECK(!ftruncate(fd, 0));
		else if (kind == 2)
			CHECK_EQ_INT(1, pwrite(fd, "\xa5", 1, info.st_size - 100));
		else
			CHECK_EQ_INT(8, pwrite(fd, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8, 16)); /* the header's size */
		close(fd);
		CHECK(build(small, 8, 0, &code) && !code.from_cache);
		free(code.image);
		CHECK(build(small, 8, 0, &code) && code.from_cache);
		free(code.image);
	}
}

static void several_processes_share_the_cache(void)
{
	int status;

	empty_cache();
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			rc_nvrtc_code code = {0};

			_exit(build(small, 8, 0, &code) && code.size ? 0 : 1);
		}
	for (int i = 0; i < 4; i++)
		CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(*cached_file() != 0); /* one file, no rest of a temporary one */
}

static void works_without_a_cache(void)
{
	rc_nvrtc_code code = {0};

	setenv("XDG_CACHE_HOME", "/proc/nothing", 1);
	CHECK(build(small, 8, 0, &code) && !code.from_cache);
	free(code.image);
	CHECK(build(small, 8, 0, &code) && !code.from_cache);
	free(code.image);
	setenv("XDG_CACHE_HOME", cache, 1);
}

static void tells_what_is_wrong(void)
{
	rc_nvrtc_target target = {8, 0, 0};
	rc_nvrtc_code code;
	rc_error error;

	CHECK_EQ_INT(-1, rc_nvrtc_build("__global__ void f() { undeclared(); }", "wrong.cu", &target, &code, &error));
	CHECK(strstr(error.text, "wrong.cu") != NULL && strstr(error.text, "undeclared") != NULL);
	target.driver = 3000;
	CHECK_EQ_INT(-1, rc_nvrtc_build(small, "test.cu", &target, &code, &error));
	CHECK_EQ_INT(RC_E_UNAVAILABLE, error.code);
	CHECK(strstr(error.text, "newer than the driver") != NULL);
}

/* SITE/torch/lib/libtorch_cpu.so or SITE/nvidia/.../libcudart.so is mapped into the process, and NVRTC lies in its package beside
 * it. In a process of its own, where no NVRTC was opened before. */
static bool found_beside(const char *mapped, const char *package)
{
	char path[600], site[64], command[1400], *slash = strrchr(named, '/');
	int status = -1;

	snprintf(site, sizeof site, "%s/site", cache);
	snprintf(command, sizeof command,
	         "rm -rf '%s' && mkdir -p \"$(dirname '%s/%s')\" '%s/%s' && echo something > '%s/%s' && ln -s '%.*s'/* '%s/%s/'",
	         site, site, mapped, site, package, site, mapped, (int)(slash - named), named, site, package);
	if (system(command))
		return false;
	if (fork() == 0) {
		rc_nvrtc_code code = {0};
		int fd;

		unsetenv("RAYLET_C_NVRTC");
		snprintf(path, sizeof path, "%s/%s", site, mapped);
		fd = open(path, O_RDONLY);
		if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			_exit(2);
		_exit(build(small, 8, 0, &code) ? 0 : 1);
	}
	wait(&status);
	snprintf(command, sizeof command, "rm -rf '%s'", site);
	return system(command) == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void finds_the_packages(void)
{
	if (found_beside("other/lib/libother.so", "nvidia/cuda_nvrtc/lib")) {
		printf("# the system has an NVRTC, which would be found anyway: not tested\n");
		return;
	}
	CHECK(found_beside("torch/lib/libtorch_cpu.so", "nvidia/cuda_nvrtc/lib"));
	CHECK(found_beside("torch/lib/libtorch_cpu.so", "nvidia/cu13/lib"));
	CHECK(found_beside("nvidia/cuda_runtime/lib/libcudart.so.12", "nvidia/cuda_nvrtc/lib"));
	CHECK(found_beside("cuda/lib64/libcudart.so.12", "cuda/lib64"));
}

int main(void)
{
	rc_nvrtc_target target = {8, 0, 0};
	rc_nvrtc_code code = {0};
	rc_error error;

	if (!mkdtemp(cache))
		return 1;
	setenv("XDG_CACHE_HOME", cache, 1);
	named = getenv("RAYLET_C_NVRTC");
	if (named && strchr(named, '/'))
		RUN(finds_the_packages, "NVRTC is found beside the loaded torch and CUDA runtime");
	else
		printf("# RAYLET_C_NVRTC names no file: looking beside torch is not tested\n");
	if (rc_nvrtc_build(small, "test.cu", &target, &code, &error)) {
		printf("1..0 # skip: %s\n", error.text);
		return error.code == RC_E_UNAVAILABLE && !getenv("RAYLET_C_NVRTC") ? 0 : 1;
	}
	free(code.image);
	RUN(compiles_for_each, "the kernels compile for sm_75, sm_80, sm_89 and sm_90");
	RUN(serves_a_newer_device, "a device newer than NVRTC gets code that its driver translates");
	RUN(refuses_an_old_device, "a device older than NVRTC's oldest is refused");
	RUN(keeps_code, "code is kept by source and architecture");
	RUN(damaged_code_is_made_anew, "a damaged file is compiled anew");
	RUN(several_processes_share_the_cache, "processes that compile at once leave one whole file");
	RUN(works_without_a_cache, "without a folder to keep it in, code is compiled each time");
	RUN(tells_what_is_wrong, "the error has the compiler's words, or what is wrong with the library");
	empty_cache();
	rmdir(cache);
	return test_end();
}
