"""Writes build.ninja for dev.sh: python3 dev_ninja.py ROOT BUILD_FOLDER VARIANT (product, asan or tsan).

One object a source, one archive a folder, the two programs, the module of train_backend, one program a unit test, and the wheel.
The flags are those of bazel/flags.bzl. This is for engineers' edit-compile-run loop; Bazel makes what is shipped.
"""
import glob
import os
import re
import sys

import check_includes


def read_flags(root):
    flags = {}
    with open(os.path.join(root, "bazel/flags.bzl"), encoding="utf-8") as f:
        exec(compile(f.read(), "flags.bzl", "exec"), flags)  # plain assignments of lists
    return flags


def archive(build, folder):
    return "%s/librc_%s.a" % (build, folder)


def link_line(build, table, folders, folder):
    """The folder's archive, then those it may include: a folder that includes more stands before those it includes."""
    below = sorted((f for f in folders if f != folder and f in table[folder]), key=lambda f: -len(table[f]))
    return " ".join(archive(build, f) for f in [folder] + below)


def train_backend(root, build, flags, variant, out, tests, default):
    """The shared library _train.abi3.so: position-independent objects of train_backend/ and of what it uses of raylet-c."""
    top = root + "/train_backend"
    if not os.path.isdir(top):
        return
    objects = {}
    kernels = build + "/gen/train_backend/kernels/kernels.cu.inc"
    out.append("rule embed\n  command = sh %s/bazel/embed.sh $in > $out\n  description = embed $in" % root)
    out.append("build %s: embed %s/kernels/kernels.cu | %s/bazel/embed.sh" % (kernels, top, root))

    def compile_one(source):
        target = "%s/pic/%s.o" % (build, os.path.relpath(source, root)[:-2])
        out.append("build %s: cc %s || %s\n  cflags = $cflags -fPIC" % (target, source, kernels))
        return target

    base = [compile_one("%s/raylet-c/%s.c" % (root, name))
            for name in ("base/status", "base/buf", "fabric/endpoint", "fabric/offer", "fabric/library")]
    for folder in ("device", "comm", "kernels", "fsdp", "module"):
        sources = sorted(glob.glob("%s/%s/*.c" % (top, folder)) +
                         [s for s in glob.glob("%s/%s/*/*.c" % (top, folder)) if s.split("/")[-2] not in ("test", "fuzz")])
        objects[folder] = [compile_one(s) for s in sources]
    below = [o for folder in ("fsdp", "kernels", "comm", "device") for o in objects[folder]] + base
    library = build + "/raylet_c/_train.abi3.so"
    exports = top + "/module/exports.lds"
    options = " ".join(f for f in ldflags(flags, variant) if f != "-Wl,-u,arc4random")
    libs = "-lpthread -lm -ldl -lrt"
    out.append("rule shared\n  command = gcc -shared %s $exports -o $out $in %s\n  description = link $out" % (options, libs))
    out.append("build %s: shared %s | %s\n  exports = -Wl,--version-script=%s" % (library, " ".join(objects["module"] + below), exports, exports))
    # For tests/train/kernels_check.py: the kernels without Python.
    out.append("build %s/libtrain_kernels.so: shared %s" % (build, " ".join(objects["kernels"] + objects["device"] + base)))
    if variant == "product":
        default.append(library)
    # The CUDA kernels as C++ under a driver that runs them on the CPU, for the tests of kernels/.
    fake, kernel_tests = build + "/test/fake/libcuda.so.1", top + "/kernels/test/"
    fake_flags = flags["FAKE_DRIVER_FLAGS"] + flags["FAKE_DRIVER_LINK_FLAGS"] + (["-fsanitize=address"] if variant == "asan" else [])
    out.append("rule fake_driver\n  command = g++ -shared %s -I%s $in -o $out\n  description = link $out" % (" ".join(fake_flags), root))
    out.append("build %s: fake_driver %sfake_driver.cc | %s/kernels/kernels.cu" % (fake, kernel_tests, top))
    # A driver and an NCCL in which collectives only count, for the test of comm/nccl/: one source, two names.
    gpu, gpus = top + "/comm/test/gpu/fake_gpu.c", [build + "/test/fake_gpu/" + name for name in ("libcuda.so.1", "libnccl.so.2")]
    out.append("rule fake_gpu\n  command = gcc $cflags -fPIC -fvisibility=hidden -shared -Wl,-soname,$soname $in -o $out")
    for path in gpus:
        out.append("build %s: fake_gpu %s | %s\n  soname = %s" % (path, gpu, top + "/comm/test/fake_gpu.h", os.path.basename(path)))
    for source in sorted(glob.glob(top + "/*/test/*.c")):
        name = "%s/test/%s_%s" % (build, source.split("/")[-3], os.path.basename(source)[:-2])
        needs = " || " + fake if source.startswith(kernel_tests) else " || " + " ".join(gpus) if source == top + "/comm/test/nccl.c" else ""
        out.append("build %s: link %s %s%s" % (name, compile_one(source), " ".join(below), needs))
        tests.append(name)
        out.append("build test-%s: phony %s" % (os.path.basename(name), name))


def wheel(root, build, out):
    """build/raylet_c-VERSION-...whl, as Bazel makes it but for the debug sections."""
    with open(root + "/raylet-c/base/version.h", encoding="utf-8") as f:
        version = re.search(r'RC_VERSION "([^"]+)"', f.read()).group(1)
    name = "%s/raylet_c-%s-py3-none-manylinux_2_35_x86_64.whl" % (build, version)
    options = {"version-header": root + "/raylet-c/base/version.h", "license": root + "/LICENSE", "readme": root + "/README.md",
               "raylet": build + "/raylet", "command": build + "/raylet-c", "module": build + "/raylet_c/_train.abi3.so",
               "pth": root + "/python/raylet_c.pth"}
    python = sorted(glob.glob(root + "/python/raylet_c/**/*.py", recursive=True))
    script = root + "/python/build_wheel.py"
    words = " ".join("--%s %s" % option for option in options.items())
    out.append("rule wheel\n  command = python3 %s --out $out %s %s\n  description = wheel" % (script, words, " ".join(python)))
    out.append("build %s: wheel %s" % (name, " ".join([script, *options.values(), *python])))
    out.append("build wheel: phony " + name)


def ldflags(flags, variant):
    if variant == "product":
        return flags["PRODUCT_FLAGS"] + flags["LINK_FLAGS"]
    # The sanitizers' run time is shared with gRPC's own needs.
    return flags[variant.upper() + "_FLAGS"] + [f for f in flags["LINK_FLAGS"] if not f.startswith("-static-lib")]


def main():
    root, build, variant = sys.argv[1:4]
    flags = read_flags(root)
    mode = {"product": flags["PRODUCT_FLAGS"], "asan": flags["ASAN_FLAGS"], "tsan": flags["TSAN_FLAGS"]}[variant]
    grpc = flags["GRPC_SHARED"] if variant == "tsan" else flags["GRPC_STATIC"]
    cflags = flags["C_FLAGS"] + mode + ["-I" + root, "-I" + build + "/gen"]
    libs = grpc + flags["C_LIBS"] + flags["SYSTEM_LIBS"]
    join = lambda words: " ".join(w.replace("$", "$$") for w in words)
    out = [
        "cflags = " + join(cflags),
        "ldflags = " + join(ldflags(flags, variant)),
        "libs = " + join(libs),
        "rule cc\n  command = gcc $cflags -MMD -MF $out.d -c $in -o $out\n  depfile = $out.d\n  deps = gcc\n  description = cc $in",
        "rule ar\n  command = rm -f $out && ar crs $out $in\n  description = ar $out",
        "rule link\n  command = gcc $ldflags -Wl,--start-group $in -Wl,--end-group -o $out $libs\n  description = link $out",
        "rule protoc\n  command = cd %s && protoc-c -I. --c_out=%s/gen raylet-c/wire/ray.proto\n  description = protoc-c" % (root, build),
    ]
    proto = build + "/gen/raylet-c/wire/ray.pb-c"
    out.append("build %s.c | %s.h: protoc %s/raylet-c/wire/ray.proto" % (proto, proto, root))

    def compile_one(source):
        relative = os.path.relpath(source, build + "/gen" if source.startswith(build + "/gen/") else root)
        target = "%s/obj/%s.o" % (build, relative[:-2])
        out.append("build %s: cc %s || %s.h" % (target, source, proto))
        return target

    # One archive a folder; a program or test links those of the folders that it may include, so that a folder in the middle
    # of a change stops nobody whose code is not above it.
    table = check_includes.read_table(root + "/raylet-c/README.md")
    folders = [f for f in table if os.path.isdir("%s/raylet-c/%s" % (root, f))]
    mains = {"node": "raylet", "cli": "raylet-c"}
    programs = {}
    for folder in folders:
        sources = sorted(glob.glob("%s/raylet-c/%s/*.c" % (root, folder)) + glob.glob("%s/raylet-c/%s/gen/*.c" % (root, folder)))
        if folder == "wire":
            sources.append(proto + ".c")
        objects = []
        for source in sources:
            target = compile_one(source)
            if os.path.basename(source) == "main.c" and folder in mains:
                programs[mains[folder]] = (folder, target)
            else:
                objects.append(target)
        out.append("build %s: ar %s" % (archive(build, folder), " ".join(objects)))
    default, tests = [], []
    for name, (folder, target) in programs.items():
        out.append("build %s/%s: link %s %s" % (build, name, target, link_line(build, table, folders, folder)))
        default.append(build + "/" + name)
    for source in sorted(glob.glob(root + "/raylet-c/*/test/*.c")):
        folder = source.split("/")[-3]
        name = "%s/test/%s_%s" % (build, folder, os.path.basename(source)[:-2])
        out.append("build %s: link %s %s" % (name, compile_one(source), link_line(build, table, folders, folder)))
        tests.append(name)
        out.append("build test-%s: phony %s" % (os.path.basename(name), name))
    train_backend(root, build, flags, variant, out, tests, default)
    if variant == "product":
        wheel(root, build, out)
    out.append("build tests: phony " + " ".join(tests))
    out.append("build all: phony " + " ".join(default))
    out.append("default all")
    text = "\n".join(out) + "\n"
    path = build + "/build.ninja"
    os.makedirs(build, exist_ok=True)
    os.makedirs(build + "/gen", exist_ok=True)
    old = open(path, encoding="utf-8").read() if os.path.exists(path) else None
    if old != text:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


main()
