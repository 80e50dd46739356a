#!/usr/bin/env bash
# demo.sh [BUILD]: a training program that needs more device memory than there is. Three runs of one binary: with enough
# memory, with too little, and with too little under Spillway; then the losses are compared bit for bit.
# Exit status: 0 all went as it should, 1 it did not.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
. "$root/scripts/common.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

limit=64MiB  # what the job may have in the limited runs; it asks for about twice that
budget=56MiB # what Spillway keeps for blocks on the simulated GPU, whose driver needs a little of the 64 MiB too

if [ -t 1 ]; then
	bold=$'\033[1m' plain=$'\033[0m'
else
	bold='' plain=''
fi

head_line() {
	printf '\n%s%s%s\n' "$bold" "$1" "$plain"
}

arguments=()

# A real GPU when the job can be built for it and one step runs there; else the simulated one, and why.
choose_gpu() {
	local nvcc why
	gpu=simulated
	if ! has_gpu; then
		why='no NVIDIA GPU was found here'
	elif ! nvcc=$(find_nvcc); then
		why='there is an NVIDIA GPU, but no nvcc to build the job for it'
	elif ! build_gpu_job "$nvcc" "$root" "$build/job/train_gpu" >"$work/nvcc" 2>&1; then
		why="nvcc could not build the job: $(tail -n 1 "$work/nvcc")"
	elif ! "$build/job/train_gpu" 8 1 >"$work/try" 2>&1; then
		why="the job does not run on the GPU here: $(tail -n 1 "$work/try")"
	else
		gpu=real job=$build/job/train_gpu
		echo "GPU: a real one, $(gpu_name). The job was built by nvcc with the CUDA runtime linked statically."
		return
	fi
	job=$build/job/train
	arguments=(64 100) # 100 of its 300 steps: the CPU copies what moves, too
	echo "GPU: simulated ($why). The arithmetic and the data are real, done by the CPU."
	export LD_LIBRARY_PATH=$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# run NAME COMMAND...: its output goes to $work/NAME.out, what it says on stderr to $work/NAME.err
run() {
	local name=$1 shown
	shift
	shown=${*//"$root/"/}
	echo "  \$ ${shown//"$build/"/build/}"
	status=0
	"$@" >"$work/$name.out" 2>"$work/$name.err" || status=$?
}

# A few of the losses; all are compared at the end.
show_losses() {
	awk '/^device memory asked/ || /^final/ || (/loss/ && ($2 == 1 || $2 % 100 == 0)) { print "    " $0 }' "$work/$1.out"
}

unlimited() {
	head_line '1. Enough memory'
	if [ $gpu = real ]; then
		run unlimited "$job" "${arguments[@]}"
	else
		run unlimited env SIM_MEMORY=1GiB "$job" "${arguments[@]}"
	fi
	show_losses unlimited
	[ $status = 0 ] && return
	sed 's/^/    /' "$work/unlimited.err"
	return 1
}

# A real GPU cannot be made smaller, so there the limit is Spillway's budget with spilling switched off.
too_small() {
	if [ $gpu = real ]; then
		head_line "2. Only $limit, nothing may spill"
		echo "  (A real GPU cannot be made smaller: Spillway sets the limit here, as a budget with spilling off.)"
		run small "$build/spillway" run --policy heap --set "device.budget=$limit" --set spill.mode=off -- "$job" "${arguments[@]}"
	else
		head_line "2. Only $limit, without Spillway"
		run small env SIM_MEMORY=$limit "$job" "${arguments[@]}"
	fi
	grep -h 'out of memory' "$work/small.err" | head -n 1 | sed 's/^/    /' || true
	echo "    exit status $status"
	[ $status = 1 ] && grep -q 'train: out of memory' "$work/small.err"
}

with_spillway() {
	head_line "3. Only $limit, with Spillway: the very same binary, LD_PRELOAD of libspillway.so"
	if [ $gpu = real ]; then
		run spilled "$build/spillway" run --policy heap --set "device.budget=$limit" -- "$job" "${arguments[@]}"
	else
		run spilled env SIM_MEMORY=$limit "$build/spillway" run --policy heap --set "device.budget=$budget" -- "$job" "${arguments[@]}"
	fi
	show_losses spilled
	echo
	sed 's/^/    /' "$work/spilled.err"
	[ $status = 0 ] && return
	echo "    exit status $status"
	return 1
}

compare() {
	local n
	grep -E '^(step|final)' "$work/unlimited.out" >"$work/a" || true
	grep -E '^(step|final)' "$work/spilled.out" >"$work/b" || true
	n=$(grep -c loss "$work/a" || true)
	if [ "$n" -gt 0 ] && cmp -s "$work/a" "$work/b"; then
		echo "  The $n losses printed by runs 1 and 3 and their accuracies are equal bit for bit."
		return
	fi
	echo "  The losses of runs 1 and 3 differ:"
	diff "$work/a" "$work/b" | head -n 10 | sed 's/^/    /' || true
	return 1
}

echo "${bold}Spillway demo${plain}: training with more device memory than there is"
choose_gpu
good=yes
unlimited || good='run 1 did not finish'
if [ "$good" = yes ]; then
	too_small || good='run 2 was to end with out of memory and did not'
	with_spillway || good='run 3 did not finish'
	head_line 'Comparison'
	compare || [ "$good" != yes ] || good='the losses differ'
fi
if [ "$good" = yes ]; then
	head_line "Verdict: good. Out of memory without Spillway; with it the job finished, with the same results."
else
	head_line "Verdict: FAILED: $good."
	exit 1
fi
