#!/usr/bin/env bash
# Sets up what is missing, builds, and runs the tests.
#
#   bazel/test.sh          unit tests, the same under ASan + UBSan and under TSan, training on CPU ranks against torch's own FSDP,
#                          ten seconds of each fuzz target, and 25 of the acceptance cases and one field report on each Ray
#                          release: 20 minutes on two cores
#   bazel/test.sh --fast   the unit tests of the product build only: the inner loop
#   bazel/test.sh --all    everything: a minute of each fuzz target, all acceptance cases and the field reports on each release,
#                          pods of KubeRay in namespaces, the image recipe: two hours on two cores
#   bazel/test.sh [--all] --stage NAME,...   only these of its stages: unit asan tsan train link fuzz accept train-ray kuberay
#                          field agent (link, train-ray and agent are --all's)
#
# The last line is "N passed, N failed, N skipped" over all of it; the status is 0 when nothing failed. Logs of the run are in
# build/test/. BAZEL_FLAGS holds further options for Bazel (e.g. --jobs=4), BAZEL_STARTUP its start-up options.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

mode= only=
while [ $# -gt 0 ]; do
	case $1 in
	--fast | --all) mode=$1 ;;
	--stage)
		only=${2:-}
		for name in ${only//,/ }; do
			case $name in
			unit | asan | tsan | train | link | fuzz | accept | train-ray | kuberay | field | agent) ;;
			*) echo "test.sh: no such stage: $name (see --help)" >&2; exit 2 ;;
			esac
		done
		[ -n "$only" ] || { echo "test.sh: --stage wants names (see --help)" >&2; exit 2; }
		shift
		;;
	-h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$root/bazel/test.sh"; exit 0 ;;
	*) echo "test.sh: no such option: $1 (see --help)" >&2; exit 2 ;;
	esac
	shift
done
for name in ${only//,/ }; do
	case $mode,$name in
	--all,*) ;;
	*,link | *,train-ray | *,agent) echo "test.sh: stage $name is one of --all's (see --help)" >&2; exit 2 ;;
	esac
done

# Short cases that between them touch every part of a node.
cases='^(tasks/(arguments|nested|retries|cancel_running|wait)|actors/(state|async|named|restart|kill)|generators/streaming'
cases=$cases'|objects/(1mb|spilled|owner_died)|placement/(pack|remove)|scheduling/(custom_resources|gpus|returned)'
cases=$cases'|runtime_env/env_vars|logs/driver|state/nodes|drivers/exit|train/torch|nodes/terminate)$'

out=$root/build/test
rm -rf "$out"
mkdir -p "$out"
bazel="nice bazel ${BAZEL_STARTUP:-}"
fuzz_base=$HOME/.cache/raylet-c-fuzz # another compiler, so another output base: switching would throw away both builds

stage() { echo "== $(date +%H:%M:%S) $*"; }

# Whether a stage is to run; says so.
wanted() { # name, title
	[ "$mode" != --fast ] || [ "$1" = unit ] || return 1
	[ -z "$only" ] || [[ ,$only, == *,$1,* ]] || return 1
	stage "$2"
}

# A stage that could not run counts as a failed test of that name.
not_ok() { # stage, sentence
	echo "not ok - $2" | tee -a "$out/$1.tap"
}

bazel_tests() { # stage, options...
	local name=$1
	shift
	$bazel test --keep_going --build_event_json_file="$out/$name.json" ${BAZEL_FLAGS:-} "$@" >"$out/$name.log" 2>&1
	case $? in
	0) ;;
	1 | 3) grep -vE '^(\[|Loading|Analyzing|INFO)' "$out/$name.log" | tail -n 60 ;;
	*) tail -n 40 "$out/$name.log"; not_ok "$name-build" "bazel test ended with an error: $out/$name.log" ;;
	esac
}

run_fuzzers() { # seconds
	local targets target
	targets=$($bazel query 'filter("/?:fuzz_", kind("cc_binary rule", //raylet-c/...))' 2>"$out/fuzz-query.log")
	[ -n "$targets" ] || { tail -n 5 "$out/fuzz-query.log"; not_ok fuzz "no fuzz target is found"; return; }
	if ! nice bazel --output_base="$fuzz_base" ${BAZEL_STARTUP:-} build --config=fuzz ${BAZEL_FLAGS:-} $targets >"$out/fuzz-build.log" 2>&1; then
		tail -n 30 "$out/fuzz-build.log"
		not_ok fuzz "the fuzz targets do not build"
		return
	fi
	local bin
	bin=$(bazel --output_base="$fuzz_base" ${BAZEL_STARTUP:-} info --config=fuzz bazel-bin 2>/dev/null)
	# Two at a time: each takes one core.
	local running=0
	for target in $targets; do
		run_fuzzer "$bin" "$target" "$1" &
		running=$((running + 1))
		[ $running -lt 2 ] || { wait -n; running=$((running - 1)); }
	done
	wait
	for target in $targets; do
		cat "$out/fuzz-${target##*:fuzz_}.line" || echo "not ok - ${target##*:fuzz_} left no result"
	done | tee "$out/fuzz.tap"
}

run_fuzzer() { # folder of programs, target, seconds
	local name=${2##*:fuzz_} folder=${2#//} rc seeds=()
	folder=${folder%%:*}
	mkdir -p "$out/corpus/$name"
	[ ! -d "$folder/fuzz/corpus/fuzz_$name" ] || seeds=("$folder/fuzz/corpus/fuzz_$name")
	nice "$1/$folder/fuzz_$name" -max_total_time="$3" -rss_limit_mb=2048 -artifact_prefix="$out/" -print_final_stats=1 \
		"$out/corpus/$name" ${seeds[@]+"${seeds[@]}"} >"$out/fuzz-$name.log" 2>&1
	rc=$?
	if [ $rc = 0 ]; then
		echo "ok - $name: $(sed -n 's/.*number_of_executed_units: *//p' "$out/fuzz-$name.log") inputs in $3 seconds"
	else
		tail -n 30 "$out/fuzz-$name.log"
		echo "not ok - $name ended with $rc; the input is in $out"
	fi >"$out/fuzz-$name.line"
}

enabled=
disable_all() {
	local venv
	for venv in $enabled; do "$root/build/test/bin/raylet-c" disable --ray-dir "$venv" >/dev/null; done
	enabled=
}
trap disable_all EXIT

# Puts the daemon that was built in place, for each Ray release, and calls a function with the release and its environment.
with_our_daemon() { # stage, function, words...
	local stage=$1 what=$2 release venv
	shift 2
	mkdir -p "$out/bin" "$out/home" # a token file in the user's home would switch Ray 2.60.0 to token mode
	cp -f bazel-bin/raylet-c/node/raylet bazel-bin/raylet-c/cli/raylet-c "$out/bin/" || { not_ok "$stage" "the programs are not built"; return; }
	for release in 2.35.0 2.60.0; do
		venv=$root/.venv-$release
		if ! "$out/bin/raylet-c" enable --ray-dir "$venv"; then
			not_ok "$stage-$release" "raylet-c enable fails"
			continue
		fi
		enabled="$enabled $venv"
		$what "$release" "$venv" "$@"
		disable_all
	done
}

accept() { # release, environment, pattern
	HOME="$out/home" "$2/bin/python" tests/accept/run_cases.py --ray-bin "$2/bin" --only "$3" --json "$out/accept-$1.results" \
		--logs "$out/accept-$1-logs" | tee "$out/accept-$1.tap"
}

run_field() { # release, environment, pattern
	HOME="$out/home" FIELD_RAYLET_C="$out/bin/raylet-c" tests/field/run.sh "$2" --only "$3" --logs "$out/field-$1-logs" | tee "$out/field-$1.tap"
}

field() { # release, environment, pattern
	with_wheel field "$1" "$2" run_field "$@"
}

# Manifests and options always; pods and the image recipe, which take minutes, with --all.
kuberay() { # release, environment
	local test
	for test in manifest flags pod; do
		[ "$test" != pod ] || [ "$mode" = --all ] || continue
		HOME="$out/home" nice "$2/bin/python" "tests/kuberay/${test}_test.py" \
			$([ "$test" = manifest ] || echo --env "$2" --raylet-c "$out/bin/raylet-c") \
			$([ "$test" != pod ] || echo --logs "$out/kuberay-$1-logs") >"$out/kuberay-$test-$1.tap" 2>&1
		case $? in
		0 | 1) ;;
		*) not_ok "kuberay-$test-$1" "tests/kuberay/${test}_test.py ended with an error" ;;
		esac
		grep -v '^ok' "$out/kuberay-$test-$1.tap"
	done
	[ "$mode" = --all ] || return 0
	nice python3 tests/kuberay/image_test.py --release "$1" --wheel "$(ls bazel-bin/python/raylet_c-*.whl)" | tee "$out/kuberay-image-$1.tap"
}

# As users have it: with our wheel in the environment, which is taken out again.
with_wheel() { # stage, release, environment, command...
	local wheel
	wheel=$(ls "$root"/bazel-bin/python/raylet_c-*.whl) && "$3/bin/python" -m pip install --quiet --disable-pip-version-check --no-index \
		--no-deps --force-reinstall "$wheel" || { not_ok "$1-$2" "the wheel cannot be installed"; return; }
	"${@:4}"
	"$3/bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes raylet-c
}

run_train_through_ray() { # release, environment
	HOME="$out/home" FIELD_RAYLET_C="$out/bin/raylet-c" nice "$2/bin/python" tests/train/ray_test.py --ray-bin "$2/bin" \
		--logs "$out/train-ray-$1-logs" | tee "$out/train-ray-$1.tap"
}

train_through_ray() { # release, environment
	with_wheel train-ray "$1" "$2" run_train_through_ray "$1" "$2"
}

agent() { # release, environment
	HOME="$out/home" FIELD_RAYLET_C="$out/bin/raylet-c" tests/field/run.sh "$2" --folder tests/agent --only '^(pages|figures|services)$' \
		--logs "$out/agent-$1-logs" | tee "$out/agent-$1.tap"
}

# The FSDP engine against torch's own, on CPU ranks of this host. What needs GPUs cannot run here.
train() {
	local test name part
	$bazel build ${BAZEL_FLAGS:-} //train_backend/module:_train.abi3.so >>"$out/build.log" 2>&1
	for test in tests/train/*_test.py; do
		name=$(basename "$test" .py) part=()
		case $name in
		fsdp1_test | fsdp2_test | optim_test) # other numbers of ranks take as long again
			[ "$mode" = --all ] || part=("2 ranks")
			;;
		# Short ones always; the rest needs Ray, packages that the environment lacks, or minutes more.
		comm_test | faults_test | schedule_test) ;;
		ray_test) continue ;; # has a stage of its own
		*) [ "$mode" = --all ] || continue ;;
		esac
		local began=$SECONDS
		RAYLET_C_MODULE="$root/bazel-bin/train_backend/module" HOME="$out/home" nice .venv-2.60.0/bin/python "$test" ${part[@]+"${part[@]}"} >"$out/train-$name.tap" 2>&1
		case $? in
		0 | 1) ;;
		*) not_ok "train-$name" "$test ended with an error" ;;
		esac
		echo "# $name${part:+, only $part}: $((SECONDS - began)) s"
		grep -v '^ok' "$out/train-$name.tap"
	done
	if [ "$mode" = --all ]; then
		HOME="$out/home" RAYLET_C_MODULE="$root/bazel-bin/train_backend/module" nice tests/train/versions.sh | tee "$out/train-versions.tap"
	fi
	for test in tests/train/*_check.py; do echo "ok - $test # SKIP needs GPUs" | tee -a "$out/train-gpu.tap"; done
}

stage "set up"
if [ "$mode" = --fast ]; then bazel/setup.sh build || exit 1; else bazel/setup.sh || exit 1; fi
stage "build"
$bazel build ${BAZEL_FLAGS:-} //raylet-c/... //train_backend/... //python:wheel >"$out/build.log" 2>&1 ||
	{ grep -E 'error|ERROR|FAILED' -A 8 "$out/build.log" | head -n 60; not_ok build "the product does not build: $out/build.log"; }
if wanted unit "unit tests"; then
	bazel_tests unit //...
	if [ "$mode" = --all ]; then
		bazel_tests unit-fabric //train_backend/comm:comm_fabric_test
	else
		echo "left out is comm_fabric_test, which takes minutes: --all runs it. ASan finds what libfabric itself keeps in it"
	fi
fi
if wanted asan "ASan and UBSan"; then
	bazel_tests asan --config=asan --test_tag_filters=-product -- //raylet-c/... //train_backend/...
fi
if wanted tsan "TSan"; then
	# The child of a vfork tells its parent by shared memory what failed before exec; TSan makes a fork of it.
	echo "TSan: left out are procs_process_test and procs_pool_test: TSan turns vfork into fork"
	echo "TSan: left out is fabric_fabric_test: TSan lets no fork of a process with threads start threads"
	echo "TSan: left out is objects_fabric_test: libfabric is not built for TSan, its reads stall"
	bazel_tests tsan --config=tsan --test_tag_filters=-product,-not_under_tsan -- //raylet-c/... //train_backend/...
fi
if wanted train "training"; then
	mkdir -p "$out/home"
	train
fi
if [ "$mode" = --all ] && wanted link "fabric over a link"; then
	$bazel build ${BAZEL_FLAGS:-} //raylet-c/fabric:link >>"$out/build.log" 2>&1
	python3 tests/fabric_link.py --program bazel-bin/raylet-c/fabric/link | tee "$out/fabric-link.tap"
fi
if wanted fuzz "fuzz targets"; then
	run_fuzzers $([ "$mode" = --all ] && echo 60 || echo 10)
fi
# The tests have built the sanitizers' variants since.
[ "$mode" = --fast ] || $bazel build ${BAZEL_FLAGS:-} //raylet-c/node:raylet //raylet-c/cli:raylet-c //python:wheel >>"$out/build.log" 2>&1
if wanted accept "acceptance cases"; then
	with_our_daemon accept accept "$([ "$mode" = --all ] && echo . || echo "$cases")"
fi
if [ "$mode" = --all ] && wanted train-ray "training through Ray"; then
	with_our_daemon train-ray train_through_ray
fi
if wanted kuberay "KubeRay"; then
	with_our_daemon kuberay kuberay
fi
if wanted field "field reports"; then
	with_our_daemon field field "$([ "$mode" = --all ] && echo . || echo '^driver_left$')"
fi
if [ "$mode" = --all ] && wanted agent "native agent"; then
	with_our_daemon agent agent
fi
if [ "${CI:-}" = true ]; then # leave no server behind
	$bazel shutdown >/dev/null 2>&1
	bazel --output_base="$fuzz_base" ${BAZEL_STARTUP:-} shutdown >/dev/null 2>&1
fi
stage "results"
python3 bazel/tally.py "$out"
