"""The one list of compiler and linker flags: the BUILD files load it, and dev.sh evaluates it as Python.

Only plain assignments of lists of strings belong here, so that both readers understand it; a list may be a sum of two.
"""

# Nobody asks errno about sqrt, and loops with it are vectorised only without.
C_FLAGS = [
    "-std=gnu11",
    "-g",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-Werror",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-math-errno",
]

# Position-independent (the compiler's default on Debian), though it costs 1.1 MB: a process that peers can reach has random addresses.
PRODUCT_FLAGS = ["-O2", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2"]

# Under a sanitizer gcc's flow-dependent warnings see the inserted checks and guess wrong; the product build has them as errors.
SANITIZER_WARNINGS = ["-Wno-nonnull", "-Wno-format-truncation", "-Wno-format-overflow", "-Wno-maybe-uninitialized", "-Wno-stringop-overflow"]

ASAN_FLAGS = SANITIZER_WARNINGS + ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]

TSAN_FLAGS = SANITIZER_WARNINGS + ["-O1", "-fsanitize=thread", "-fno-omit-frame-pointer"]

# clang's own warnings differ: the product build judges.
FUZZ_FLAGS = ["-Wno-error", "-O1", "-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]

# Every symbol version must exist in glibc 2.35 and nothing but glibc may be needed: what is under gRPC, and libstdc++ below
# that, comes from archives, with unused sections dropped.
MODULE_LINK_FLAGS = ["-Wl,--gc-sections", "-Wl,--as-needed", "-Wl,-z,relro", "-Wl,-z,now", "-static-libgcc"]

LINK_FLAGS = MODULE_LINK_FLAGS + ["-Wl,-u,arc4random"]

# train_backend/kernels/test/fake_driver.cc, C++ as the kernels are: a shared library that stands for libcuda.so.1. Misaligned
# vectors, which a GPU refuses, stop the program.
FAKE_DRIVER_FLAGS = [
    "-std=c++17",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Wno-unknown-pragmas",
    "-Werror",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fsanitize=alignment",
    "-fsanitize-undefined-trap-on-error",
]

FAKE_DRIVER_LINK_FLAGS = ["-Wl,-soname,libcuda.so.1"]

GRPC_STATIC = [
    "-Wl,--start-group",
    "-l:libgrpc.a",
    "-l:libgpr.a",
    "-l:libaddress_sorting.a",
    "-l:libupb.a",
    "-l:libre2.a",
    "-l:libcares.a",
    "-l:libz.a",
    "-l:libssl.a",
    "-l:libcrypto.a",
    "-l:libabsl_bad_optional_access.a",
    "-l:libabsl_bad_variant_access.a",
    "-l:libabsl_base.a",
    "-l:libabsl_city.a",
    "-l:libabsl_civil_time.a",
    "-l:libabsl_cord.a",
    "-l:libabsl_cord_internal.a",
    "-l:libabsl_cordz_functions.a",
    "-l:libabsl_cordz_handle.a",
    "-l:libabsl_cordz_info.a",
    "-l:libabsl_debugging_internal.a",
    "-l:libabsl_demangle_internal.a",
    "-l:libabsl_exponential_biased.a",
    "-l:libabsl_graphcycles_internal.a",
    "-l:libabsl_hash.a",
    "-l:libabsl_hashtablez_sampler.a",
    "-l:libabsl_int128.a",
    "-l:libabsl_log_severity.a",
    "-l:libabsl_low_level_hash.a",
    "-l:libabsl_malloc_internal.a",
    "-l:libabsl_random_distributions.a",
    "-l:libabsl_random_internal_platform.a",
    "-l:libabsl_random_internal_pool_urbg.a",
    "-l:libabsl_random_internal_randen.a",
    "-l:libabsl_random_internal_randen_hwaes.a",
    "-l:libabsl_random_internal_randen_hwaes_impl.a",
    "-l:libabsl_random_internal_randen_slow.a",
    "-l:libabsl_random_internal_seed_material.a",
    "-l:libabsl_random_seed_gen_exception.a",
    "-l:libabsl_random_seed_sequences.a",
    "-l:libabsl_raw_hash_set.a",
    "-l:libabsl_raw_logging_internal.a",
    "-l:libabsl_spinlock_wait.a",
    "-l:libabsl_stacktrace.a",
    "-l:libabsl_status.a",
    "-l:libabsl_statusor.a",
    "-l:libabsl_str_format_internal.a",
    "-l:libabsl_strerror.a",
    "-l:libabsl_strings.a",
    "-l:libabsl_strings_internal.a",
    "-l:libabsl_symbolize.a",
    "-l:libabsl_synchronization.a",
    "-l:libabsl_throw_delegate.a",
    "-l:libabsl_time.a",
    "-l:libabsl_time_zone.a",
    "-l:libstdc++.a",
    "-Wl,--end-group",
]

GRPC_SHARED = ["-lgrpc", "-lgpr", "-lssl", "-lcrypto"]

# The small C libraries, from archives too.
C_LIBS = [
    "-l:libprotobuf-c.a",
    "-l:libuv_a.a",
    "-l:libjansson.a",
    "-l:libmsgpackc.a",
    "-l:libhiredis.a",
]

SYSTEM_LIBS = ["-lpthread", "-lm", "-ldl", "-lrt"]
