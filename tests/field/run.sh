#!/usr/bin/env bash
# Runs the scripts of this folder on one Ray release, one after the other, and prints a line of what passed.
#
#   tests/field/run.sh VENV [--only PATTERN] [--logs DIR] [--folder DIR]    VENV: an environment with Ray, and our daemon put in place
#
# --folder: the scripts of another folder instead.
#
# TAP of all scripts goes to stdout; the last line is "N passed, N failed, N skipped". A script that ends without a result line
# counts as failed.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${1:-}
[ -x "$venv/bin/ray" ] || { echo "run.sh: no environment with Ray: '$venv'" >&2; exit 2; }
shift
only=. logs=() folder=$here
while [ $# -gt 0 ]; do
	case $1 in
	--only) only=$2; shift 2 ;;
	--folder) folder=$2; shift 2 ;;
	--logs) logs=(--logs "$2"); shift 2 ;;
	*) echo "run.sh: no such option: $1" >&2; exit 2 ;;
	esac
done
passed=0 failed=0 skipped=0
text=$(mktemp)
trap 'rm -f "$text"' EXIT
for script in "$folder"/[a-z]*.py; do
	name=$(basename "$script" .py)
	[[ $name =~ $only ]] || continue
	nice "$venv/bin/python" "$script" --ray-bin "$venv/bin" ${logs[@]+"${logs[@]}"} 2>&1 | tee "$text"
	rc=${PIPESTATUS[0]}
	bad=$(grep -c '^not ok' "$text")
	skip=$(grep -c '^ok .*# SKIP' "$text")
	good=$(($(grep -c '^ok ' "$text") - skip))
	if [ "$rc" != 0 ] && [ "$bad" = 0 ]; then
		echo "not ok - $name ended with status $rc"
		bad=1
	fi
	passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skip))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
