#!/usr/bin/env bash
# Made-up programs on the simulated GPU, for a night: seed after seed, in every mode, as many at once as there are
# processors, until the time is up or there were enough submissions. Every fourth seed is of a program on several GPUs
# (test/preload/peer_random.c), the others of one on a single GPU (spill_random.c). Each is first run without the
# library: it must be right natively. Then its bytes, checked one by one, must be right with it, too, and its digest,
# where it has one, the same.
#
# Usage: scripts/nightly.sh BUILD [-t SECONDS] [-n SUBMISSIONS] [-s FIRST_SEED] [-j JOBS] [-m "MODES"] [-p WHICH]
#   -t  time limit, 3600        -n  submissions in all, those of plain runs not counted, 10000000
#   -s  first seed, from the clock   -j  processes at once   -m  modes, default those of BUILD/spill_modes
#   -p  which programs: one (GPU), several, or both, the default
# The last line counts. Exit status 1 when a program failed: its seed and all it takes to run it again are told.
set -uo pipefail

build=${1:?usage: scripts/nightly.sh BUILD [-t SECONDS] [-n SUBMISSIONS] [-s SEED] [-j JOBS] [-m MODES] [-p WHICH]}
build=$(cd "$build" && pwd) || exit 2
shift
limit=3600 wanted=10000000 first=$(date +%s) jobs=$(nproc) modes=$(cat "$build/spill_modes") which=both
while getopts t:n:s:j:m:p: option; do
	case $option in
	t) limit=$OPTARG ;;
	n) wanted=$OPTARG ;;
	s) first=$OPTARG ;;
	j) jobs=$OPTARG ;;
	m) modes=$OPTARG ;;
	p) which=$OPTARG ;;
	*) exit 2 ;;
	esac
done
read -ra modes <<<"$modes"
[[ $which == one || $which == several || $which == both ]] || exit 2

library=$(echo "$build"/libspillway.so)
preload=$build/test/preload
rules=$(cd "$(dirname "$0")/../test/preload" && pwd)/peer_random.yaml || exit 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LD_LIBRARY_PATH=$build/sim SIM_FILL=0
deadline=$(($(date +%s) + limit))
each=40000 # submissions of one program on one GPU: some seconds

# What a seed stands for beside the program itself, in both: how often calls fail with which memory is moved.
fail_by() {
	local seed=$1 fails=(1000 200 50)

	unset SIM_DELAY_US SIM_FAIL_THREAD
	((seed / 3 % 4)) || export SIM_FAIL_THREAD=spillway-mover:${fails[seed % 3]}
	export SIM_SEED=$seed
}

# Of one GPU: how tight, how many threads, hidden pointers or none, how late.
shape_of_one() {
	local seed=$1 budgets=(16MiB 32MiB 48MiB 64MiB 96MiB)

	program=$preload/spill_random
	arguments=(--seed "$seed" --threads $((1 + seed / 5 % 4)) --submissions $each --deadline 600)
	((seed / 20 % 3)) || arguments+=(--no-hidden)
	fail_by "$seed"
	((seed / 60 % 8)) || export SIM_DELAY_US=20
	export SIM_MEMORY=768MiB SIM_HOST_MEMORY=2GiB
	unset SIM_DEVICES SIM_PEERS SPILLWAY_POLICY
	set="device.budget=${budgets[seed % 5]},host.budget=1GiB"
}

# Of several: how many, wired how, how late, how tight, how much they lend, who serves pools. Each takes its part of a
# number that the seed stands for, so that any may meet any other.
shape_of_several() {
	local n=$(($1 * 7919 % 1000003)) budgets=(12MiB 8MiB 20MiB 32MiB) chunks=(2MiB 4MiB auto)
	local wires=(all none "0-1,2-3,4-5,6-7" "0-1,0-2,3-4" "0-1,0-2,1-2,5-6")
	local lends=("" 6MiB 64MiB 256MiB) lent pools=(driver heap auto)

	program=$preload/peer_random
	fail_by "$1"
	export SIM_DEVICES=$((1 + n % 8)) SIM_PEERS=${wires[n / 8 % 5]} SIM_MEMORY=512MiB SIM_HOST_MEMORY=2GiB
	n=$((n / 40))
	((n % 3)) || export SIM_DELAY_US=30
	arguments=(--seed "$1" --threads $((1 + n / 3 % 4)) --operations 2000 --bytes $((20 + n / 12 % 3 * 10)) --deadline 600)
	((n / 36 % 3)) || arguments+=(--no-hidden)
	n=$((n / 108))
	set="device.budget=${budgets[n % 4]},host.budget=1GiB,heap.chunk=${chunks[n / 4 % 3]},async.use=${pools[n / 12 % 3]}"
	lent=${lends[n / 36 % 4]}
	[[ -z $lent ]] || set+=",spill.peers=0 .. 7,spill.peer_budget=$lent"
	export SPILLWAY_POLICY=$rules
}

shape_of() {
	if [[ $which == several ]] || { [[ $which == both ]] && (($1 % 4 == 0)); }; then
		shape_of_several "$1"
	else
		shape_of_one "$1"
	fi
}

# The defined stop: only in fast, only where a pointer is hidden, and told as it must be (the programs end with 3).
is_the_defined_stop() {
	[[ $1 == fast && $2 == 3 && " ${arguments[*]} " != *" --no-hidden "* ]] && grep -q 'spill.mode: exact' "$3"
}

run_mode() {
	local mode=$1 out=$2 err=$3

	LD_PRELOAD=$library SPILLWAY_SET="spill.mode=$mode,$set,report.summary=no" \
		"$program" "${arguments[@]}" >"$out" 2>"$err"
}

# What those on several GPUs do depends on when their threads open memory to each other, too: they count alone.
is_right() {
	[[ $program == */peer_random ]] || cmp -s "$1" "$2"
}

# All it takes to run it again.
tell() {
	local name

	for name in LD_LIBRARY_PATH SIM_SEED SIM_DEVICES SIM_PEERS SIM_MEMORY SIM_HOST_MEMORY SIM_FILL SIM_DELAY_US \
		SIM_FAIL_THREAD SPILLWAY_POLICY; do
		[[ -z ${!name:-} ]] || printf '%s=%s ' "$name" "${!name}"
	done
	echo "LD_PRELOAD=$library SPILLWAY_SET='spill.mode=$1,$set' $program ${arguments[*]}"
}

# One seed in all modes. Adds a line to the folder's `done` for each mode: mode, submissions, ok | stopped | FAILED,
# seed, program.
run_seed() {
	local seed=$1 plain=$folder/$1.plain n status mode

	shape_of "$seed"
	if ! "$program" "${arguments[@]}" >"$plain" 2>"$plain.err"; then
		echo "plain 0 FAILED $seed ${program##*/}" >>"$folder/done"
		echo "FAILED natively: $(tell off)" >&2
		cat "$plain.err" >&2
		return
	fi
	n=$(sed -n 's/.*, \([0-9]*\) submissions.*/\1/p' "$plain")
	for mode in "${modes[@]}"; do
		run_mode "$mode" "$folder/$seed.out" "$folder/$seed.err"
		status=$?
		if [[ $status == 0 ]] && is_right "$plain" "$folder/$seed.out"; then
			echo "$mode $n ok $seed ${program##*/}" >>"$folder/done"
		elif is_the_defined_stop "$mode" $status "$folder/$seed.err"; then
			echo "$mode 0 stopped $seed ${program##*/}" >>"$folder/done"
		else
			echo "$mode 0 FAILED $seed ${program##*/}" >>"$folder/done"
			echo "FAILED with status $status: $(tell "$mode")" >&2
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
	awk -v mode="$mode" '$1 == mode {
		where = $5 == "peer_random" ? "several GPUs" : "one GPU"
		n[where] += $2; all[where]++; stopped[where] += $3 == "stopped"
	} END {
		for (where in all)
			printf "%s, %s: %d submissions in %d programs, %d stopped as defined\n", mode, where, n[where],
				all[where], stopped[where]
	}' "$folder/done" | sort
done
failed=$(grep -c FAILED "$folder/done")
echo "seeds $first to $((seed - 1)): $(submitted) submissions, $failed failed"
((failed == 0))
