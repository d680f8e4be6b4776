#!/usr/bin/env bash
# Brings a Debian 12 machine with Python 3.11 to the state that build and tests need; run again, it does only what is missing.
#
#   bazel/setup.sh           packages of the system, and one environment for each supported Ray release
#   bazel/setup.sh build     the packages only: what a build needs
#
# The environments are .venv-2.35.0 and .venv-2.60.0 in the top folder (tests/requirements-*.txt, every version pinned).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

releases="2.35.0 2.60.0"
packages="bazel-bootstrap bazel-rules-java bazel-rules-proto binutils clang-14 g++ gcc git libclang-rt-14-dev libfabric-dev libgrpc-dev
	libhiredis-dev libjansson-dev libmsgpack-dev libprotobuf-c-dev libssl-dev libuv1-dev ninja-build procps redis-tools
	protobuf-c-compiler protobuf-compiler python3 python3-dev python3-venv"

die() { echo "setup.sh: $*" >&2; exit 1; }

install_packages() {
	local missing=() p
	for p in $packages; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || die "these packages of Debian 12 are needed, and there is no apt-get: ${missing[*]}"
	local sudo=
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || die "these packages are needed; install them as root: apt-get install ${missing[*]}"
		sudo=sudo
	fi
	echo "setup.sh: installing ${missing[*]}"
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null || die "apt-get update failed"
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null ||
		die "apt-get install failed; needed are: ${missing[*]}"
}

find_python() {
	local p
	for p in /usr/bin/python3 python3.11 python3; do
		if "$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
			command -v "$p"
			return
		fi
	done
	die "Python 3.11 with venv is needed (Debian 12's python3 and python3-venv)"
}

make_environment() { # release
	local folder=.venv-$1 wanted=tests/requirements-$1.txt
	if cmp -s "$wanted" "$folder/requirements.txt"; then return 0; fi
	echo "setup.sh: making the environment for Ray $1 (some minutes)"
	[ -x "$folder/bin/python" ] || "$python" -m venv --clear "$folder" || die "cannot make $folder"
	"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$wanted" ||
		die "cannot install $wanted into $folder"
	cp "$wanted" "$folder/requirements.txt" # last: a half-made environment is made again
}

[ -r /etc/debian_version ] || die "this is not a Debian system; needed are, by their Debian 12 names: $(echo $packages)"
install_packages
[ "${1:-all}" != build ] || exit 0
python=$(find_python)
for release in $releases; do make_environment "$release"; done
