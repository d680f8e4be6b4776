#!/usr/bin/env bash
# The quick build for the edit-compile-run loop: gcc and ninja, seconds instead of Bazel's start-up, the flags of
# bazel/flags.bzl. Makes build/raylet (the daemon), build/raylet-c (the command) and build/raylet_c/_train.abi3.so (the engine).
#
#   bazel/dev.sh                    build all three
#   bazel/dev.sh wheel              also the wheel, which puts all of it, the seam too, into an environment: build/raylet_c-*.whl
#   bazel/dev.sh test [PATTERN]     build and run the unit tests whose folder_name matches (a grep pattern)
#   bazel/dev.sh TARGET...          ninja targets, e.g. build/obj/raylet-c/base/buf.o, test-wire_dialect
#   ASAN=1 bazel/dev.sh ...         ASan + UBSan, in build-asan/;  TSAN=1: thread sanitizer with shared gRPC, in build-tsan/
#   JOBS=4 BUILD=/some/folder       how many compilers at once (default 2); another build folder
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for tool in gcc ninja protoc-c python3; do
	command -v $tool >/dev/null || { echo "dev.sh: $tool is missing: run bazel/setup.sh" >&2; exit 1; }
done
variant=product
folder=$root/build
if [ "${ASAN:-0}" = 1 ]; then variant=asan folder=$root/build-asan; fi
if [ "${TSAN:-0}" = 1 ]; then variant=tsan folder=$root/build-tsan; fi
build=${BUILD:-$folder}
python3 "$root/bazel/dev_ninja.py" "$root" "$build" $variant
run_ninja() { nice ninja -C "$build" -j "${JOBS:-2}" --quiet "$@"; }

if [ "${1:-}" != test ]; then
	targets=()
	for t in "$@"; do
		case $t in build*/*) t=$build/${t#build*/} ;; esac
		targets+=("$t")
	done
	run_ninja ${targets[@]+"${targets[@]}"}
	exit
fi
names=$(sed -n 's/^build test-\([^:]*\):.*/\1/p' "$build/build.ninja" | grep -E "${2:-.}" || true)
[ -n "$names" ] || { echo "dev.sh: no unit test matches ${2:-.}" >&2; exit 1; }
run_ninja $(printf 'test-%s ' $names)
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$root/bazel/tsan.supp}
failed=0
for name in $names; do
	echo "# $name"
	(cd "$root" && "$build/test/$name") || { echo "not ok - $name ended with code $?"; failed=1; }
done
exit $failed
