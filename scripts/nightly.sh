#!/usr/bin/env bash
# Made-up programs on the simulated GPU (test/preload/spill_random.c), for a night: seed after seed, in every mode, as
# many at once as there are processors, until the time is up or there were enough submissions. Each is first run without
# the library; then its bytes, checked one by one, and its digest must be the same with it.
#
# Usage: scripts/nightly.sh BUILD [-t SECONDS] [-n SUBMISSIONS] [-s FIRST_SEED] [-j JOBS] [-m "MODES"]
#   -t  time limit, 3600        -n  submissions in all, those of plain runs not counted, 10000000
#   -s  first seed, from the clock   -j  processes at once   -m  modes, default those of BUILD/spill_modes
# The last line counts. Exit status 1 when a program failed: its seed and all it takes to run it again are told.
set -uo pipefail

build=${1:?usage: scripts/nightly.sh BUILD [-t SECONDS] [-n SUBMISSIONS] [-s FIRST_SEED] [-j JOBS] [-m MODES]}
build=$(cd "$build" && pwd) || exit 2
shift
limit=3600 wanted=10000000 first=$(date +%s) jobs=$(nproc) modes=$(cat "$build/spill_modes")
while getopts t:n:s:j:m: option; do
	case $option in
	t) limit=$OPTARG ;;
	n) wanted=$OPTARG ;;
	s) first=$OPTARG ;;
	j) jobs=$OPTARG ;;
	m) modes=$OPTARG ;;
	*) exit 2 ;;
	esac
done
read -ra modes <<<"$modes"

library=$(echo "$build"/libspillway.so)
program=$build/test/preload/spill_random
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LD_LIBRARY_PATH=$build/sim SIM_FILL=0
deadline=$(($(date +%s) + limit))
each=40000 # submissions of one program: some seconds

# What a seed stands for beside the program itself: how tight, how many threads, hidden pointers or none, how late, and
# how often calls fail with which memory is moved.
shape_of() {
	local seed=$1 budgets=(16MiB 32MiB 48MiB 64MiB 96MiB) fails=(1000 200 50)

	budget=${budgets[seed % 5]}
	arguments=(--seed "$seed" --threads $((1 + seed / 5 % 4)) --submissions $each --deadline 600)
	((seed / 20 % 3)) || arguments+=(--no-hidden)
	export SIM_MEMORY=768MiB SIM_HOST_MEMORY=2GiB SIM_SEED=$seed
	unset SIM_DELAY_US SIM_FAIL_THREAD
	((seed / 60 % 8)) || export SIM_DELAY_US=20
	((seed / 3 % 4)) || export SIM_FAIL_THREAD=spillway-mover:${fails[seed % 3]}
}

# The defined stop: only in fast, only where a pointer is hidden, and told as it must be (spill_random ends with 3).
is_the_defined_stop() {
	[[ $1 == fast && $2 == 3 && " ${arguments[*]} " != *" --no-hidden "* ]] && grep -q 'spill.mode: exact' "$3"
}

run_mode() {
	local mode=$1 out=$2 err=$3

	LD_PRELOAD=$library \
	SPILLWAY_SET="spill.mode=$mode,device.budget=$budget,host.budget=1GiB,report.summary=no" \
		"$program" "${arguments[@]}" >"$out" 2>"$err"
}

# One seed in all modes. Adds a line to the folder's `done` for each mode: mode, submissions, ok | stopped | FAILED.
run_seed() {
	local seed=$1 plain=$folder/$1.plain n status mode

	shape_of "$seed"
	if ! "$program" "${arguments[@]}" >"$plain" 2>"$plain.err"; then
		echo "plain 0 FAILED seed $seed" >>"$folder/done"
		cat "$plain.err" >&2
		return
	fi
	n=$(sed -n 's/.*, \([0-9]*\) submissions.*/\1/p' "$plain")
	for mode in "${modes[@]}"; do
		run_mode "$mode" "$folder/$seed.out" "$folder/$seed.err"
		status=$?
		if [[ $status == 0 ]] && cmp -s "$plain" "$folder/$seed.out"; then
			echo "$mode $n ok" >>"$folder/done"
		elif is_the_defined_stop "$mode" $status "$folder/$seed.err"; then
			echo "$mode 0 stopped" >>"$folder/done"
		else
			echo "$mode 0 FAILED seed $seed" >>"$folder/done"
			echo "FAILED with status $status: SIM_SEED=$seed ${SIM_DELAY_US:+SIM_DELAY_US=$SIM_DELAY_US }" \
				"${SIM_FAIL_THREAD:+SIM_FAIL_THREAD=$SIM_FAIL_THREAD }LD_PRELOAD=$library" \
				"SPILLWAY_SET=spill.mode=$mode,device.budget=$budget,host.budget=1GiB $program ${arguments[*]}" >&2
			tail -5 "$folder/$seed.err" >&2
		fi
	done
	rm -f "$folder/$seed".*
}

submitted() {
	awk '{n += $2} END {print n + 0}' "$folder/done"
}

: >"$folder/done"
seed=$first
while (($(date +%s) < deadline)) && (($(submitted) < wanted)); do
	while (($(jobs -rp | wc -l) >= jobs)); do
		wait -n
	done
	run_seed "$seed" &
	seed=$((seed + 1))
done
wait

for mode in "${modes[@]}"; do
	awk -v mode="$mode" '$1 == mode {n += $2; all++; stopped += $3 == "stopped"} END {
		printf "%s: %d submissions in %d programs, %d stopped as defined\n", mode, n, all, stopped}' "$folder/done"
done
failed=$(grep -c FAILED "$folder/done")
echo "seeds $first to $((seed - 1)): $(submitted) submissions, $failed failed"
((failed == 0))
