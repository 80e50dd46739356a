#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh [PHASE...]: everything that needs a real GPU, in one call of TOTAL_SECONDS (530) at most. Phases: rules tests
# bench gpt apps (all, in this order, when none is named; timings first, while the machine has nothing else to do).
#
# Nothing is built here but the demo job: BUILD (default ./build) comes ready-made, perhaps from another machine, and
# EXTRA_LIBRARIES may name a folder with libraries of the tests that this one lacks (cmocka, libyaml).
# Logs go to OUT (default ./gpu-out). The last lines are one table. A failure is a row in it, never the end of the run.
# Memory is oversubscribed by Spillway's device.budget alone; managed memory and the GPU's settings are left alone.
#
# Exit status: 0 all phases good, 1 not, 2 there is no usable GPU or no build.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2

build=$(cd "${BUILD:-$root/build}" 2>/dev/null && pwd) || {
	echo "gpu.sh: there is no build in ${BUILD:-$root/build}" >&2
	exit 2
}
extra=${EXTRA_LIBRARIES:-}
out=${OUT:-$root/gpu-out}
total=${TOTAL_SECONDS:-530}
mkdir -p "$out"
rm -f "$out"/{rules,tests,bench,gpt,apps,gpt-runs,apps-runs}.log
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

rows=()

row() { # PHASE NAME RESULT
	rows+=("$(printf '%-6s %-34s %s' "$1" "$2" "$3")")
}

# Seconds left, and no more than $1.
seconds_left() {
	local left=$((total - SECONDS))
	[ "$left" -gt 0 ] || left=0
	echo $((left < $1 ? left : $1))
}

# one PHASE NAME SECONDS COMMAND...: a program of its own, with its own time; its row says how it went
one() {
	local phase=$1 name=$2 limit status=0 start=$SECONDS
	limit=$(seconds_left "$3")
	shift 3
	if [ "$limit" -lt 5 ]; then
		row "$phase" "$name" 'no time left'
		bad=1
		return
	fi
	echo "==== $name: $*" >>"$out/$phase.log"
	timeout -k 5 "$limit" "$@" >>"$out/$phase.log" 2>&1 </dev/null || status=$?
	case $status in
	0) row "$phase" "$name" "passed, $((SECONDS - start)) s" ;;
	77) row "$phase" "$name" skipped ;;
	124 | 137) row "$phase" "$name" "TIMED OUT after $limit s" && bad=1 ;;
	*)
		row "$phase" "$name" "FAILED, exit status $status"
		bad=1
		case $phase in rules | tests)
			echo "-- end of $name:"
			tail -n 25 "$out/$phase.log"
			;;
		esac
		;;
	esac
}

report_machine() {
	echo "GPU: $(nvidia-smi --query-gpu=name,memory.total,memory.used,driver_version --format=csv,noheader | head -n 1)"
	echo "host: $(uname -srm), $(nproc) cores, $(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)," \
		"$(getconf GNU_LIBC_VERSION)"
	echo "nvcc: $("$(find_nvcc)" --version 2>/dev/null | awk -F'release ' '/release/ { print $2 }')"
	python3 - <<-'PYTHON'
		from importlib import metadata
		for name in "torch", "triton", "cupy-cuda13x", "jax", "numpy":
		    try:
		        print(f"{name} {metadata.version(name)}", end="  ")
		    except metadata.PackageNotFoundError:
		        print(f"{name} missing", end="  ")
		print()
	PYTHON
	echo "spillway: $build/libspillway.so, $(stat -c %y "$build/libspillway.so" | cut -d. -f1)"
}

# The rules that the simulated GPU enforces, against the real driver: its folder goes before the simulation's.
phase_rules() {
	local library name
	library=$(libcuda_folder)
	for name in rules_memory_test rules_order_test rules_capture_test rules_running_test rules_green_test rules_pool_test rules_graph_test rules_peer_test; do
		if [ -x "$build/test/sim/$name" ]; then
			one rules "$name" 90 env "LD_LIBRARY_PATH=$library${extra:+:$extra}" "$build/test/sim/$name"
		else
			row rules "$name" 'not built'
		fi
	done
}

# Test programs that need nothing of the simulation: each line of gpu.list is a command, by their CMakeLists.txt.
phase_tests() {
	local line library list=$build/test/preload/gpu.list
	library=$(libcuda_folder)
	if [ ! -e "$list" ]; then
		row tests - 'none built'
		return
	fi
	while read -r line; do
		one tests "$(sed 's/.*preload\///' <<<"$line") $(grep -oE 'CAPACITY=[^ ]*|DRIVER_DOOR=[^ ]*' <<<"$line" || true)" 60 \
			env "LD_LIBRARY_PATH=$library${extra:+:$extra}" "BUILD=$build" bash -c "exec env $line"
	done <"$list"
	row tests 'need the simulated GPU' "skipped: $(tr '\n' ' ' <"$build/test/preload/gpu.skipped")"
}

phase_bench() {
	one bench bench.sh 150 env "LIMIT=$(seconds_left 80)" "$root/scripts/bench.sh" "$build"
	bench_table=yes
}

phase_gpt() {
	one gpt 'gpt 1536 16 8 18' 180 python3 "$root/test/gpu/steps.py" --build "$build" --log "$out/gpt-runs.log" \
		--seconds "$(seconds_left 170)" python3 "$root/test/gpu/gpt.py" 1536 16 8 18
}

phase_apps() {
	local nvcc
	if nvcc=$(find_nvcc); then
		build_gpu_job "$nvcc" "$root" "$build/job/train_gpu" >>"$out/apps.log" 2>&1 || row apps train_gpu 'nvcc FAILED'
	fi
	# shellcheck disable=SC2086 # APPS is a list of names
	one apps apps.py "$(seconds_left 600)" python3 "$root/test/gpu/apps.py" --build "$build" --log "$out/apps-runs.log" \
		--seconds "$(($(seconds_left 600) - 10))" ${APPS:-}
}

# The tables that programs made are shown whole; what led to them stays in the logs.
print_tables() {
	[ "${bench_table:-}" != yes ] || sed -n '/^Benchmarks/,$p' "$out/bench.log"
	[ ! -e "$out/rules.log" ] || grep '^rule: ' "$out/rules.log"
	[ ! -e "$out/gpt.log" ] || sed 1d "$out/gpt.log"
	[ ! -e "$out/apps.log" ] || sed -n '/^app  /,$p' "$out/apps.log"
	echo
	printf '%s\n' "${rows[@]}"
	echo "$SECONDS s in all; logs in $out"
}

if ! has_gpu; then
	echo "gpu.sh: no NVIDIA GPU with a driver was found here" >&2
	exit 2
fi
bad=0
report_machine | tee "$out/summary.txt"
[ $# -gt 0 ] || set -- rules tests bench gpt apps
for phase in "$@"; do
	case $phase in
	rules) phase_rules ;;
	tests) phase_tests ;;
	bench) phase_bench ;;
	gpt) phase_gpt ;;
	apps) phase_apps ;;
	*) row "$phase" - 'no such phase' && bad=1 ;;
	esac
done
print_tables 2>&1 | tee -a "$out/summary.txt"
exit $bad
