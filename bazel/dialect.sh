#!/usr/bin/env bash
# bazel run //bazel:dialect -- [--write|--check] RAY...: bazel/dialect.py with a Python that has protobuf (any Ray environment).
set -euo pipefail
root=${BUILD_WORKSPACE_DIRECTORY:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
python=
for candidate in "$root"/.venv-*/bin/python python3; do
	if "$candidate" -c 'import google.protobuf' 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || { echo "dialect: no Python with the protobuf package: run bazel/setup.sh" >&2; exit 1; }
cd "${BUILD_WORKING_DIRECTORY:-.}"
exec "$python" "$root/bazel/dialect.py" "$@"
