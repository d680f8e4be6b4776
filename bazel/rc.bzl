"""Rules of this tree: a folder of raylet-c or train_backend is one library, with its subfolders, one test a file in test/, one fuzz
target a file in fuzz/."""

load(
    "//bazel:flags.bzl",
    "ASAN_FLAGS",
    "C_FLAGS",
    "FUZZ_FLAGS",
    "LINK_FLAGS",
    "MODULE_LINK_FLAGS",
    "PRODUCT_FLAGS",
    "TSAN_FLAGS",
)

RC_COPTS = C_FLAGS + select({
    "//bazel:asan": ASAN_FLAGS,
    "//bazel:tsan": TSAN_FLAGS,
    "//bazel:fuzz": FUZZ_FLAGS,
    "//conditions:default": PRODUCT_FLAGS,
})

RC_LINKOPTS = select({
    "//bazel:asan": ASAN_FLAGS,
    "//bazel:tsan": TSAN_FLAGS,
    "//bazel:fuzz": FUZZ_FLAGS,
    "//conditions:default": LINK_FLAGS,
})

RC_MODULE_LINKOPTS = select({
    "//bazel:asan": ASAN_FLAGS,
    "//bazel:tsan": TSAN_FLAGS,
    "//bazel:fuzz": FUZZ_FLAGS,
    "//conditions:default": MODULE_LINK_FLAGS,
})

NOT_OF_LIBRARY = ["test/*", "fuzz/*", "bench/*"]

def rc_library(name, deps = [], extra_srcs = [], extra_hdrs = [], exclude = ["main.c"], test_data = [], test_deps = [], replay_deps = [],
               not_under_tsan = [], outside_sandbox = [], only_with_all = []):
    """The library of a folder, its unit tests, fuzz targets and the list of its files.

    Args:
      name: the folder's name.
      deps: libraries that its code includes.
      extra_srcs: generated sources.
      extra_hdrs: generated headers.
      exclude: sources that are programs.
      test_data: files that the tests read, besides test/data.
      test_deps: libraries that only its tests include.
      replay_deps: libraries that only its fuzz targets include.
      not_under_tsan: tests that cannot hold there; bazel/test.sh says which and why.
      only_with_all: tests that take minutes on few cores: bazel/test.sh --all runs them, in the product's build only.
      outside_sandbox: tests of libfabric: shm names memory by the process id, which sandboxes have in common.
    """
    native.cc_library(
        name = name,
        srcs = native.glob(["*.c", "*/*.c"], exclude = exclude + NOT_OF_LIBRARY, allow_empty = True) + extra_srcs,
        hdrs = native.glob(["*.h", "*/*.h", "*.inc"], exclude = NOT_OF_LIBRARY, allow_empty = True) + extra_hdrs,
        copts = RC_COPTS,
        linkstatic = True,
        visibility = ["//visibility:public"],
        deps = deps,
    )
    native.filegroup(
        name = "files",
        srcs = native.glob(["**"], allow_empty = True),
        visibility = ["//visibility:public"],
    )
    native.cc_library(
        name = "test_headers",
        hdrs = native.glob(["test/*.h", "fuzz/*.h"], allow_empty = True),
        visibility = ["//visibility:public"],
    )
    for source in native.glob(["test/*.c"], allow_empty = True):
        native.cc_test(
            name = name + "_" + source[len("test/"):-len(".c")] + "_test",
            size = "large" if source[len("test/"):-len(".c")] in only_with_all else "medium",
            srcs = [source],
            copts = RC_COPTS,
            data = native.glob(["test/data/**"], allow_empty = True) + test_data,
            linkopts = RC_LINKOPTS,
            linkstatic = True,
            tags = (["not_under_tsan"] if source[len("test/"):-len(".c")] in not_under_tsan else []) +
                   (["local"] if source[len("test/"):-len(".c")] in outside_sandbox else []) +
                   (["manual"] if source[len("test/"):-len(".c")] in only_with_all else []),
            deps = [":" + name, ":test_headers", "//bazel:tsan_suppressions"] + deps + test_deps,
        )
    for source in native.glob(["fuzz/*.c"], allow_empty = True):
        stem = source[len("fuzz/"):-len(".c")]
        target = stem[len("fuzz_"):] if stem.startswith("fuzz_") else stem
        corpus = native.glob(["fuzz/corpus/" + stem + "/**"], allow_empty = True)

        # For libFuzzer: bazel build --config=fuzz. bazel/test.sh runs each of them.
        native.cc_binary(
            name = "fuzz_" + target,
            testonly = True,
            srcs = [source],
            copts = RC_COPTS,
            linkopts = RC_LINKOPTS + ["-fsanitize=fuzzer"],
            linkstatic = True,
            tags = ["manual"],
            deps = [":" + name, ":test_headers"] + deps + replay_deps,
        )

        # The seeds, and what the fuzzer once found, as a test of every build.
        native.cc_test(
            name = "replay_" + target + "_test",
            size = "medium",
            srcs = [source, "//bazel:fuzz_replay.c"],
            args = ["$(location %s)" % f for f in corpus],
            copts = RC_COPTS,
            data = corpus,
            linkopts = RC_LINKOPTS,
            linkstatic = True,
            deps = [":" + name, ":test_headers", "//bazel:tsan_suppressions"] + deps + replay_deps,
        )

def rc_binary(name, src, deps):
    """A program: one source, the libraries under it."""
    if native.glob([src], allow_empty = True):
        native.cc_binary(
            name = name,
            srcs = [src],
            copts = RC_COPTS,
            linkopts = RC_LINKOPTS,
            linkstatic = True,
            visibility = ["//visibility:public"],
            deps = deps,
        )

def rc_module(name, exports, deps):
    """An extension of Python: a shared library that shows what the linker script `exports` names, and holds only what that needs."""
    native.cc_binary(
        name = name,
        features = ["-legacy_whole_archive"],
        linkopts = RC_MODULE_LINKOPTS + [
            "-Wl,--version-script=$(location %s)" % exports,
            "-Wl,-u,PyInit_" + name.split(".")[0],
        ],
        linkshared = True,
        linkstatic = True,
        visibility = ["//visibility:public"],
        deps = deps + [exports],
    )

# What is shipped.
PROGRAMS = [
    "//raylet-c/cli:raylet-c",
    "//raylet-c/node:raylet",
    "//train_backend/module:_train.abi3.so",
]
