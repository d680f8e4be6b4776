#!/usr/bin/env bash
# The demonstration: sets up what is missing, builds, and runs the main job on a stock head with our node, for each supported
# Ray release; beside it the same job on the stock node, and a table of what each cost. Some minutes; nothing stays running.
#
#   bazel/demo.sh [RELEASE...]       default: 2.35.0 2.60.0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for release in "$@"; do
	[ -f "tests/requirements-$release.txt" ] || { echo "demo.sh: no such release: $release (2.35.0, 2.60.0)" >&2; exit 2; }
done
[ $# -gt 0 ] || set -- 2.35.0 2.60.0
bazel/setup.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "building (bazel build //python:wheel)"
nice bazel ${BAZEL_STARTUP:-} build ${BAZEL_FLAGS:-} //python:wheel >"$log" 2>&1 || { tail -n 60 "$log"; echo "demo.sh: the build failed" >&2; exit 1; }
wheel=$(ls "$PWD"/bazel-bin/python/raylet_c-*.whl)
rm -f "$log"
exec python3 bazel/demo.py "$wheel" "$@"
