#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Made-up programs on the simulated GPU, for a night: one mode after the other, seed after seed, as many at once as there
# are processors, until the time is up or there were enough submissions. A seed stands for a program on a single GPU
# (test/preload/spill_random.c), on several (peer_random.c), of one that makes its memory itself (vmm_random.c), of one
# whose allocator reports births and deaths of tensors (torch_random.c) or of two processes (ipc_random.c), for its settings, and for what befalls it beside
# its work (trouble.h). Each is first run without the library: it must be right natively. Then its bytes, checked one by
# one, must be right with it, too, and its digest, where it has one, the same.
#
# Usage: scripts/nightly.sh BUILD [-t SECONDS] [-n SUBMISSIONS] [-s FIRST_SEED] [-j JOBS] [-m "MODES"] [-p WHICH]
#                                 [-w KINDS] [-x KINDS] [-k FILE]
#        scripts/nightly.sh BUILD -r FILE
#   -t  time for each mode, 3600     -n  submissions in each mode, those of plain runs not counted, 10000000
#   -s  first seed, from the clock   -j  processes at once   -m  modes, default those of BUILD/spill_modes; also off
#   -p  which programs: one (GPU), several, own (memory), tensors, two (processes), or all, the default
#   -w  trouble for all of them, as --trouble of the programs, or none; without it what the seed says
#   -x  kinds of trouble that no seed stands for, separated by commas
#   -k  failures are added to this file, a line each, as -r reads them
#   -r  runs what such a file says, once each: test/preload/random.seeds has those that failed before a defect was mended
# Before them run what takes too long for each commit or fetches from the network (night_tests, night_sanitizers, night_soak
# and night_checks, below), unless -p or -m is given.
# PRELOAD in the environment: all of LD_PRELOAD, where the library alone is not enough (a sanitizer's runtime).
# The last line counts. Exit status 1 when a program failed: all it takes to run it again is printed.
set -uo pipefail

build=${1:?usage: scripts/nightly.sh BUILD [-t SECONDS] [-n SUBMISSIONS] [-s SEED] [-j JOBS] [-m MODES] [-p WHICH] [-w KINDS] [-x KINDS] [-k FILE] [-r FILE]}
build=$(cd "$build" && pwd) || exit 2
shift
limit=3600 wanted=10000000 first=$(date +%s) jobs=$(nproc) modes=$(cat "$build/spill_modes") which=all trouble='' spared='' keep='' replay='' night=yes
while getopts t:n:s:j:m:p:w:x:k:r: option; do
	case $option in
	t) limit=$OPTARG ;;
	n) wanted=$OPTARG ;;
	s) first=$OPTARG ;;
	j) jobs=$OPTARG ;;
	m) modes=$OPTARG night=no ;;
	p) which=$OPTARG night=no ;;
	w) trouble=$OPTARG ;;
	x) spared=$OPTARG ;;
	k) keep=$OPTARG ;;
	r) replay=$OPTARG ;;
	*) exit 2 ;;
	esac
done
read -ra modes <<<"$modes"
[[ $which == one || $which == several || $which == own || $which == tensors || $which == two || $which == all ]] || exit 2

preload=${PRELOAD:-$build/libspillway.so}
programs=$build/test/preload
policies=$(cd "$(dirname "$0")/../test/preload" && pwd) || exit 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LD_LIBRARY_PATH=$build/sim
each=6000 # submissions of one program on one GPU: some seconds

# A program is described by: program, arguments, environment (of the simulated GPU), set (the library's settings).

# How often calls fail with which memory is moved, or for how long nothing can be mapped; whether handles come back.
fail_by() {
	local seed=$1 fails=(1000 200 50)

	environment=(SIM_FILL=0 "SIM_SEED=$seed" "SIM_REUSE=$((seed / 2 % 2))")
	case $((seed / 3 % 8)) in
	0 | 4) environment+=("SIM_FAIL_THREAD=spillway-mover:${fails[seed % 3]}") ;;
	2) environment+=(SIM_FAIL_THREAD=spillway-mover:20000:1500) ;;
	esac
}

# Of one GPU: how tight, how many threads, hidden pointers or none, how late, whether its threads end or it leaves them; without
# values that streams wait for; with textures.
shape_of_one() {
	local n=$(($1 * 7901 % 1000003)) budgets=(16MiB 32MiB 48MiB 64MiB 96MiB)

	program=spill_random
	fail_by "$1"
	arguments=(--seed "$1" --threads $((1 + n % 4)) --submissions $each --deadline 600)
	((n / 4 % 3 == 0)) || arguments+=(--no-hidden)
	((n / 4 % 3 == 0 || n / 480 % 4)) || arguments+=(--leave)
	((n / 12 % 8)) || environment+=(SIM_DELAY_US=20)
	((n / 480 % 8)) || environment+=(SIM_STREAM_VALUES=0 SIM_MAP_WAITS=3 SIM_PIECE_US=20)
	environment+=(SIM_MEMORY=768MiB SIM_HOST_MEMORY=2GiB)
	set="device.budget=${budgets[n / 96 % 5]},host.budget=1GiB"
	[[ " ${arguments[*]} " != *" --no-hidden "* ]] || ((n / 3840 % 3)) || arguments+=(--textures)
}

# Of several: how many, wired how, how late, how tight, how much they lend, who serves pools. Each takes its part of a
# number that the seed stands for, so that any may meet any other.
shape_of_several() {
	local n=$(($1 * 7919 % 1000003)) budgets=(12MiB 8MiB 20MiB 32MiB) chunks=(2MiB 4MiB auto)
	local wires=(all none "0-1,2-3,4-5,6-7" "0-1,0-2,3-4" "0-1,0-2,1-2,5-6")
	local lends=("" 6MiB 64MiB 256MiB) lent pools=(driver heap auto)

	program=peer_random
	fail_by "$1"
	environment+=("SIM_DEVICES=$((1 + n % 8))" "SIM_PEERS=${wires[n / 8 % 5]}" SIM_MEMORY=512MiB SIM_HOST_MEMORY=2GiB)
	n=$((n / 40))
	((n % 3)) || environment+=(SIM_DELAY_US=30)
	arguments=(--seed "$1" --threads $((1 + n / 3 % 4)) --operations 1000 --bytes $((20 + n / 12 % 3 * 10)) --deadline 600)
	((n / 36 % 3)) || arguments+=(--no-hidden)
	n=$((n / 108))
	set="device.budget=${budgets[n % 4]},host.budget=1GiB,heap.chunk=${chunks[n / 4 % 3]},async.use=${pools[n / 12 % 3]}"
	lent=${lends[n / 36 % 4]}
	[[ -z $lent ]] || set+=",spill.peers=0 .. 7,spill.peer_budget=$lent"
	environment+=("SPILLWAY_POLICY=$policies/peer_random.yaml")
}

# Of one that makes its memory itself: how much of it, in how many threads, what the policy says of it, how tight; what it
# does besides.
shape_of_own() {
	local n=$(($1 * 7907 % 1000003)) spills=(move move move yes no) budgets=(24MiB 32MiB 48MiB)
	local alsos=("" known ask stray grow known,ask,stray,grow) also

	program=vmm_random
	fail_by "$1"
	arguments=(--seed "$1" --threads $((1 + n % 3)) --operations 3000 --bytes $((64 + n / 3 % 2 * 16)) --deadline 600)
	((n / 6 % 2)) || environment+=(SIM_MAP_WAITS=3)
	set="device.budget=${budgets[n / 12 % 3]},vmm.spill=${spills[n / 36 % 5]}"
	also=${alsos[n / 180 % 6]}
	if [[ -z $also ]]; then
		environment+=(SIM_MEMORY=128MiB)
		set+=,host.budget=96MiB
	else
		arguments+=(--also "$also")
		environment+=(SIM_MEMORY=256MiB "SPILLWAY_POLICY=$policies/vmm_random.yaml")
		((n / 1080 % 2)) || environment+=(SIM_PIECE_US=100)
		set+=,host.budget=192MiB,async.use=heap
	fi
}

# Of one whose allocator reports: how much of its memory is alive, in how many threads, how tight.
shape_of_tensors() {
	local n=$(($1 * 7927 % 1000003)) budgets=(16MiB 24MiB 48MiB 64MiB)

	program=torch_random
	fail_by "$1"
	arguments=(--seed "$1" --threads $((1 + n % 3)) --operations 3000 --bytes $((48 + n / 3 % 2 * 24)) --deadline 600)
	((n / 6 % 2)) || environment+=(SIM_MAP_WAITS=3)
	((n / 12 % 3)) || environment+=(SIM_DELAY_US=20)
	environment+=(SIM_MEMORY=512MiB)
	set="device.budget=${budgets[n / 36 % 4]},host.budget=512MiB"
	if ((n / 144 % 2)); then # with expandable segments, whose handles the library serves
		arguments+=(--expandable $((2 << n / 288 % 3)))
		set+=,vmm.spill=move
	fi
	((n / 864 % 2)) || arguments+=(--suspend 40)
	# Addresses in memory, where no mode stops a program for them (spillway-limits(7)).
	[[ $mode == fast || ,$trouble, == *,mode,* ]] || ((n / 1728 % 2)) || arguments+=(--hidden)
}

# Of two processes, one of which opens what the other one has: how late work is, and which unmapping is refused.
shape_of_two() {
	local n=$(($1 * 7933 % 1000003)) budgets=(12MiB 24MiB 48MiB)

	program=ipc_random
	fail_by "$1"
	arguments=(--seed "$1" --operations 1800 --deadline 600)
	((n % 3)) || environment+=(SIM_DELAY_US=20)
	((n / 3 % 3)) || environment+=("SIM_FAIL=cuMemUnmap:$((1 + n / 9 % 20)):999")
	set="device.budget=${budgets[n / 180 % 3]},host.budget=256MiB,ipc=yes"
}

# What befalls it: nothing, one kind, or each with an even chance.
trouble_of() {
	local n=$(($1 * 104729 % 1000003)) kinds=(clock stop stall refuse files folder stack) kind word list='' all

	[[ $program != ipc_random ]] || return # it takes none
	if [[ -n $trouble ]]; then
		[[ $trouble == none ]] || list=$trouble
	elif ((n % 3 == 1)); then
		list=${kinds[n / 3 % 7]}
	elif ((n % 3 == 2)); then
		n=$((n / 3))
		for kind in "${kinds[@]}"; do
			((n % 2)) && list+=,$kind
			n=$((n / 2))
		done
		list=${list#,}
	fi
	if [[ -z $trouble && -n $list && -n $spared ]]; then
		all=$list list=''
		for word in ${all//,/ }; do
			[[ ,$spared, == *,$word,* ]] || list+=,$word
		done
		list=${list#,}
	fi
	[[ -z $list ]] || arguments+=(--trouble "$list")
}

shape_of() {
	local seed=$1 kind=$which

	if [[ $kind == all ]]; then
		case $((seed % 12)) in
		0 | 6) kind=several ;;
		1 | 7) kind=own ;;
		2 | 8) kind=tensors ;;
		3) kind=two ;;
		*) kind=one ;;
		esac
	fi
	"shape_of_$kind" "$seed"
	trouble_of "$seed"
}

# The defined stop: only in fast, only where a pointer is hidden, and told as it must be (the programs end with 3), if
# its standard error has not been closed.
is_the_defined_stop() {
	[[ $1 == fast && $2 == 3 && $program != vmm_random && $program != torch_random ]] &&
		[[ " ${arguments[*]} " != *" --no-hidden "* ]] &&
		{ [[ " ${arguments[*]} " =~ files ]] || grep -q 'spill.mode: exact' "$3"; }
}

# run_in MODE NAME: the program, with a run folder of its own; native is without the library.
run_in() {
	local mode=$1 name=$folder/$2 all=("${environment[@]}") status

	mkdir -p "$name.run"
	all+=("XDG_RUNTIME_DIR=$name.run" "TMPDIR=$folder")
	case $mode in
	native) ;;
	off) all+=("LD_PRELOAD=$preload" SPILLWAY=off) ;;
	*) all+=("LD_PRELOAD=$preload" "SPILLWAY_SET=spill.mode=$mode,$set,report.summary=no") ;;
	esac
	timeout -k 10 900 env "${all[@]}" "$programs/$program" "${arguments[@]}" >"$name.out" 2>"$name.err"
	status=$?
	rm -rf "$name.run"
	return $status
}

# What those on several GPUs do depends on when their threads open memory to each other, too: they count alone.
is_right() {
	[[ $program == peer_random ]] || cmp -s "$1" "$2"
}

# As -r reads it: MODE SET PROGRAM ENVIRONMENT... -- ARGUMENTS..., words that need it quoted for the shell.
row() {
	local name=() all

	for all in "${environment[@]}"; do
		[[ $all == SPILLWAY_POLICY=* ]] && all=SPILLWAY_POLICY=${all##*/}
		name+=("$all")
	done
	printf '%q ' "$1" "$set" "$program" "${name[@]}" -- "${arguments[@]}"
	echo
}

# failed MODE STATUS NAME: prints and keeps it.
failed() {
	echo "FAILED with status $2: $(row "$1")" >&2
	tail -5 "$folder/$3.err" >&2
	[[ -z $keep || $1 == native ]] || {
		echo "# status $2: $(tail -1 "$folder/$3.err" | cut -c 1-200)"
		row "$1"
	} >>"$keep"
}

# judge MODE NAME: one program in one mode, beside what it prints natively. Adds a line to the folder's `done`: mode,
# submissions, ok | stopped | FAILED, program.
judge() {
	local mode=$1 name=$2 n status

	if [[ ! -e $folder/$name.plain ]]; then
		run_in native "$name"
		status=$?
		if [[ $status != 0 ]]; then
			echo "native 0 FAILED $program" >>"$folder/done"
			failed native $status "$name"
			return
		fi
		cp "$folder/$name.out" "$folder/$name.plain"
	fi
	run_in "$mode" "$name"
	status=$?
	n=$(sed -nE 's/.*, ([0-9]+) (submissions|operations).*/\1/p' "$folder/$name.out" | tail -1)
	if [[ $status == 0 ]] && is_right "$folder/$name.plain" "$folder/$name.out"; then
		echo "$mode ${n:-0} ok $program" >>"$folder/done"
	elif is_the_defined_stop "$mode" $status "$folder/$name.err"; then
		echo "$mode 0 stopped $program" >>"$folder/done"
	else
		echo "$mode 0 FAILED $program" >>"$folder/done"
		failed "$mode" $status "$name"
	fi
	rm -f "$folder/$name.out" "$folder/$name.err"
}

submitted() {
	awk -v mode="$1" '$1 == mode || mode == "all" { n += $2 } END { print n + 0 }' "$folder/done"
}

: >"$folder/done"

if [[ -n $replay ]]; then
	n=0
	while read -r line; do
		[[ -z $line || $line == '#'* ]] && continue
		n=$((n + 1))
		eval "words=($line)" # written by row()
		mode=${words[0]} set=${words[1]} program=${words[2]} environment=() arguments=()
		words=("${words[@]:3}")
		while [[ ${#words[@]} -gt 0 && ${words[0]} != -- ]]; do
			environment+=("${words[0]/#SPILLWAY_POLICY=/SPILLWAY_POLICY=$policies/}")
			words=("${words[@]:1}")
		done
		arguments=("${words[@]:1}")
		judge "$mode" "row.$n"
	done <"$replay"
	bad=$(grep -c FAILED "$folder/done")
	echo "$n kept programs: $(submitted all) submissions, $bad failed"
	((bad == 0))
	exit
fi

# All tests, and what they leave out even in `make test-all`, with its seconds on 2 cores (measured when its scenes were a
# third larger):
#   spill_fault_test, all parts and modes, with the calls 3, 7 and 20 beside 1 and 2 (FAULT_ALL): 1100 s
#   share_bars_test with the parts of share_more_bars.py on the simulated GPU (SHARE_ALL): 120 s
night_tests() (
	unset LD_LIBRARY_PATH
	FAULT_ALL=1 PAGES_ALL=1 SHARE_ALL=1 "$(dirname "$0")/test.sh" "$build"
)

# All tests under the sanitizers, in builds of their own.
night_sanitizers() {
	local bad=0 kind

	for kind in asan tsan; do
		env -u LD_LIBRARY_PATH make --no-print-directory -C "$(dirname "$0")/.." $kind || bad=1
	done
	return $bad
}

# Turns (turns_soak.c), for as long as each mode. `make test-all` has 12 seconds of it.
night_soak() {
	TEST_PRELOAD=$preload "$programs/turns_soak" --seconds "$limit" --jobs 8 --seed "$first"
}

# What only holds where other things are installed than here: they are fetched. 77: they could not be had, which is said.
night_checks() (
	scripts=$(dirname "$0") bad=0
	unset LD_LIBRARY_PATH
	export BUILD=$build
	for check in cmake_check packages_check slurm; do
		"$scripts/$check.sh" || (($? == 77)) || bad=1
	done
	for release in bookworm trixie jammy noble; do
		"$scripts/fresh.sh" $release demo test user || (($? == 77)) || bad=1
	done
	"$scripts/fresh.sh" bookworm image || (($? == 77)) || bad=1
	"$scripts/cluster.sh" "$build" || bad=1
	BUILD=$folder/arm "$scripts/arm.sh" || (($? == 77)) || bad=1
	if DIST=$folder/dist "$scripts/wheel.sh" x86_64; then
		"$scripts/wheel_check.sh" "$folder"/dist/*.whl || bad=1
	else
		(($? == 77)) || bad=1
	fi
	exit $bad
)

night_status=0
if [[ $night == yes ]]; then
	night_tests || night_status=1
	night_sanitizers || night_status=1
	night_soak || night_status=1
	night_checks || night_status=1
fi

last=$first
for mode in "${modes[@]}"; do
	begun=$(date +%s) seed=$first
	while (($(date +%s) < begun + limit)) && (($(submitted "$mode") < wanted)); do
		while (($(jobs -rp | wc -l) >= jobs)); do
			wait -n
		done
		(
			shape_of "$seed"
			judge "$mode" "$seed"
		) &
		seed=$((seed + 1))
	done
	wait
	((seed <= last)) || last=$seed
	awk -v mode="$mode" -v seconds=$(($(date +%s) - begun)) -v jobs="$jobs" -v seeds="$first to $((seed - 1))" '
		$1 == mode { n[$4] += $2; all[$4]++; stopped[$4] += $3 == "stopped"; failed[$4] += $3 == "FAILED" }
		END {
			printf "%s: %d seconds, %d at once, seeds %s\n", mode, seconds, jobs, seeds
			for (program in all)
				printf "%s, %s: %d submissions in %d programs, %d stopped as defined, %d failed\n", mode, program,
					n[program], all[program], stopped[program], failed[program]
		}' "$folder/done" | sort
done
bad=$(grep -c FAILED "$folder/done")
echo "seeds $first to $((last - 1)): $(submitted all) submissions, $bad failed"
((bad == 0 && night_status == 0))
