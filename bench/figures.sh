#!/usr/bin/env bash
# Figures of a stock node (a) and of ours (b) under one stock head, in turns, for each Ray release, and of the daemons alone.
#
#   bench/figures.sh                    both releases, 3 rounds
#   bench/figures.sh 2.60.0 --rounds 5  one release; further options go to tests/accept/node_figures.py
#
# Needs bazel/setup.sh and a build (bazel/dev.sh or bazel build //raylet-c/...). Leaves build/bench/<release>.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
releases="2.35.0 2.60.0"
case ${1:-} in [0-9]*) releases=$1; shift ;; esac
bin=${RAYLET_C_BIN:-build}
[ -x "$bin/raylet" ] || { echo "figures.sh: no $bin/raylet: run bazel/dev.sh, or name the folder in RAYLET_C_BIN" >&2; exit 1; }
mkdir -p build/bench
for release in $releases; do
	venv=$PWD/.venv-$release
	"$bin/raylet-c" enable --ray-dir "$venv" --daemon "$bin/raylet" >/dev/null
	trap '"$bin/raylet-c" disable --ray-dir "$venv" >/dev/null' EXIT
	node='ray start --address={address} --node-ip-address={ip} --num-cpus={num_cpus} --disable-usage-stats --min-worker-port=0 --max-worker-port=0'
	echo "== Ray $release: a stock, b ours"
	"$venv/bin/python" tests/accept/node_figures.py --ray-bin "$venv/bin" --a "RAYLET_C=0 $node" --b "$node" \
		--json "build/bench/$release.json" "$@"
	"$venv/bin/python" bench/daemon.py --ray-bin "$venv/bin"
	"$bin/raylet-c" disable --ray-dir "$venv" >/dev/null
	trap - EXIT
done
