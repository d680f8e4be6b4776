#!/usr/bin/env bash
# The engine under other releases of torch and other CPythons: makes an environment for each, in VERSIONS_DIR (default: a temporary folder
# that is removed at the end), and runs tests of this folder in it. Prints TAP; what cannot be had is skipped with the reason.
#
#   tests/train/versions.sh                       the releases below, the short set of tests
#   tests/train/versions.sh 2.6.0:3.13 ...        TORCH:PYTHON
#   TESTS="fsdp1_test methods_test" ...           other tests than the short set, versions.py
#
# PyPI's wheels of torch are made for CUDA and link a gigabyte or two of libraries that no CPU test calls. Instead of those, empty libraries of
# the same names are put beside torch's own; only the CUDA runtime, which registers kernels at load time, is the real one.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
releases=${*:-2.4.1:3.9 2.6.0:3.13 2.8.0:3.10 2.9.1:3.12 newest:3.13}
tests=${TESTS:-versions}
if [ -n "${VERSIONS_DIR:-}" ]; then
	folder=$VERSIONS_DIR
	mkdir -p "$folder"
else
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
fi
number=0 failed=0

ok() { number=$((number + 1)); echo "ok $number - $*"; }
not_ok() { number=$((number + 1)) failed=$((failed + 1)); echo "not ok $number - $*"; }

# A program python3.N that starts: of the PATH, or of pyenv.
python_of() { # version
	local python
	for python in "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
		[ -x "$python" ] && "$python" -c "import ssl, venv" 2>/dev/null && { echo "$python"; return; }
	done
	return 1
}

# Libraries that torch links and nobody has: empty ones that link one with all functions that torch wants of them, each of which fails. (In a
# library of the right name, without versions of symbols, the loader would refuse them.)
fill_in() { # site-packages
	local lib name lib_folder=$1/torch/lib
	for lib in "$lib_folder"/*.so; do nm -D --undefined-only "$lib"; done |
		sed -nE 's/^ *U ((cublas|cudnn|cudss|cufft|cuFile|cupti|curand|cusolver|cusparse|nccl|nvrtc|nvshmem|nvtx|nvJitLink)[A-Za-z0-9_]*).*/\1/p' |
		sort -u | sed 's/.*/int &(void); int &(void) { return 1; }/' >"$lib_folder/absent.c"
	gcc -shared -fPIC "$lib_folder/absent.c" -o "$lib_folder/libabsent.so" -Wl,-soname,libabsent.so || return 1
	for name in $(for lib in "$lib_folder"/*.so; do readelf -d "$lib"; done | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
		if [ "$name" != libcuda.so.1 ] && [ ! -e "$lib_folder/$name" ] && ! ls "$1"/nvidia/*/lib/"$name" >/dev/null 2>&1 &&
			! ldconfig -p | grep -qF "$name "; then
			gcc -shared -x c /dev/null -o "$lib_folder/$name" -Wl,-soname,"$name" -Wl,--no-as-needed -L"$lib_folder" -labsent \
				-Wl,-rpath,'$ORIGIN' || return 1
		fi
	done
}

pip() { # environment, packages...; prints the reason when they cannot be installed
	local text
	text=$("$1/bin/pip" install -q --no-deps "${@:2}" 2>&1) || { grep -m 1 -E 'user requested|ERROR' <<<"$text"; return 1; }
}

environment() { # torch, python program, folder; prints why it cannot be made
	local site runtime
	"$2" -m venv "$3" || return 1
	pip "$3" "torch$([ "$1" = newest ] || echo "==$1")" || return 1
	site=$("$3/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
	runtime=$(sed -nE 's/^Requires-Dist: *(nvidia-cuda-runtime[-cu0-9]*) *\(?(==[0-9.]*).*/\1\2/p' "$site"/torch-*.dist-info/METADATA | head -n 1)
	# What torch needs on the CPU; numpy of its time: extensions of numpy 1 do not load numpy 2.
	pip "$3" typing-extensions 'sympy<1.14' mpmath networkx jinja2 markupsafe fsspec filelock setuptools $runtime \
		"numpy$(case $1 in 2.[0-3].*) echo '<2' ;; esac)" || return 1
	fill_in "$site" || return 1
	"$3/bin/python" -c 'import torch, numpy; torch.zeros(1).numpy()' 2>&1 | tail -n 1
	return "${PIPESTATUS[0]}"
}

for release in $releases; do
	torch=${release%:*} version=${release#*:}
	name="torch $torch, CPython $version"
	python=$(python_of "$version") || { ok "$name # SKIP no python$version here"; continue; }
	venv=$folder/$torch-$version
	if [ ! -e "$venv/ready" ]; then
		rm -rf "$venv"
		reason=$(environment "$torch" "$python" "$venv") || { ok "$name # SKIP the environment cannot be made: $reason"; continue; }
		touch "$venv/ready"
	fi
	name="torch $("$venv/bin/python" -c 'import torch; print(torch.__version__)'), CPython $version"
	for test in $tests; do
		"$venv/bin/python" "$here/$test.py" >"$venv/$test.tap" 2>&1
		rc=$?
		passed=$(grep -c '^ok' "$venv/$test.tap")
		if [ $rc = 0 ]; then
			ok "$name: $test, $passed cases"
		else
			grep -v '^ok' "$venv/$test.tap" | tail -n 40 | sed 's/^/# /'
			not_ok "$name: $test, $passed cases right, $(grep -c '^not ok' "$venv/$test.tap") wrong"
		fi
	done
	[ -n "${VERSIONS_DIR:-}" ] || rm -rf "$venv"
done
echo "1..$number"
[ $failed = 0 ]
