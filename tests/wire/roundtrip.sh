#!/usr/bin/env bash
# The tables in gen/ are what the tool makes, and every message goes both ways on each release that has an environment
# (.venv-*, made by bazel/setup.sh). Without any there is nothing to compare with: skipped.
set -euo pipefail
echo_program=$PWD/$1
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
environments=("$root"/.venv-*/bin/python)
if [ ! -x "${environments[0]}" ]; then
	echo "1..0 # SKIP no environment with Ray: run bazel/setup.sh"
	exit 0
fi
folders=()
for python in "${environments[@]}"; do folders+=("${python%/bin/python}"); done
python=${environments[0]}
"$python" "$root/bazel/dialect.py" --check "${folders[@]}"
exec "$python" "$root/tests/wire/roundtrip.py" "$echo_program" "${folders[@]}"
