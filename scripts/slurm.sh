#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm.sh: the plugin for Slurm under a real slurmctld, slurmd and munge on this machine, with the simulated GPU under every
# rank: two ranks that spill and check every byte, budgets of memory and GRES, scancel, suspend and resume. All that it
# starts has its own configuration, key, sockets and ports in a temporary folder, and is ended with it.
# KEEP=yes: the folder stays, with the logs.
# BUILD: a build folder with tests, default build; it must have been configured where Slurm's header is. Needs root, since
# slurmd starts what users submit; installs slurm-wlm, munge and libslurm-dev by apt-get where they are missing.
# Exit status: 0 all was right, 1 it was not, 77 what is needed is not there, which is said.
set -uo pipefail

cd "$(dirname "$0")/.."
. test/expect.sh
. scripts/slurm_start.sh
build=$(realpath -m "${BUILD:-build}")

lacks() {
	echo "slurm: skipped: $*" >&2
	exit 77
}

PATH=$PATH:/usr/sbin:/sbin
missing=$(slurm_get) || lacks "$missing"
cmake -S . -B "$build" >/dev/null 2>&1 &&
	cmake --build "$build" --target spillway_slurm libspillway spillway_tool train_sim spill_random >/dev/null || {
	echo "slurm: $build cannot be built; it has to be configured first (make)" >&2
	exit 1
}

here=$(mktemp -d /tmp/slurm.XXXXXX) || exit 1
slurm_started=()
end_all() {
	slurm_end
	[ -n "${KEEP:-}" ] || rm -rf "$here"
}
trap end_all EXIT
slurm_start "$here" "required $build/spillway_slurm.so library=$build/libspillway.so tool=$build/spillway" || {
	echo 'slurm: the node is not ready' >&2
	tail -n 20 "$here"/slurmctld.log "$here"/slurmd.log "$here"/*.out
	exit 1
}

# until_is "what" SECONDS COMMAND...: waits until the command succeeds.
until_is() {
	local what=$1 tries=$(($2 * 5))
	shift 2
	while ! "$@" >/dev/null 2>&1; do
		((tries-- > 0)) || {
			promise=$what
			complain 'it did not happen in time'
			return 1
		}
		sleep 0.2
	done
}
cd "$here"
: >out.txt
: >err.txt

unset SPILLWAY SPILLWAY_POLICY SPILLWAY_SET SPILLWAY_TRACE LD_PRELOAD
mkdir -m 700 "$here/run"
export LD_LIBRARY_PATH=$build/sim XDG_RUNTIME_DIR=$here/run LC_ALL=C SIM_MEMORY=768MiB SIM_HOST_MEMORY=2GiB
srun=(srun --quiet --mem=1024 --gres=gpu:1)
random="$build/test/preload/spill_random --seed 7 --submissions 2000 --threads 2 --no-hidden"

# shellcheck disable=SC2016
expect 'a step without the option is left alone' 0 'none none none' '' "${srun[@]}" sh -c \
	'echo ${LD_PRELOAD:-none} ${SPILLWAY_SET:-none} ${SPILLWAY_POLICY:-none}'
# shellcheck disable=SC2016
expect 'the option sets the environment; host.budget is half of --mem for both tasks, the GPU is shared' 0 \
	"$build/libspillway.so|host.budget=256MiB,device.budget=45%|none*" '' "${srun[@]}" -n 2 --spillway sh -c \
	'echo "$LD_PRELOAD|$SPILLWAY_SET|${SPILLWAY_POLICY:-none}"'
# shellcheck disable=SC2016
expect 'a policy and settings' 0 'managed|host.budget=512MiB,spill.mode=fast,heap.chunk=2MiB' '' "${srun[@]}" --spillway=managed \
	--spillway-set=spill.mode=fast --spillway-set heap.chunk=2MiB sh -c 'echo "$SPILLWAY_POLICY|$SPILLWAY_SET"'
# shellcheck disable=SC2016
expect 'a setting replaces that of the environment' 0 'host.budget=512MiB,report=none,spill.mode=exact' '' \
	env SPILLWAY_SET=spill.mode=fast,report=none "${srun[@]}" --spillway-set=spill.mode=exact sh -c 'echo "$SPILLWAY_SET"'
expect 'what is no setting is refused' '[1-9]*' '' '*KEY=VALUE*' "${srun[@]}" --spillway-set=nothing true
cat >batch.sh <<'END'
#!/bin/sh
echo "batch: $SPILLWAY_SET"
srun --quiet --spillway=host sh -c 'echo "step: $SPILLWAY_POLICY"'
END
expect 'sbatch takes it, too' 0 '*' '' sbatch --quiet --wait --mem=1024 --gres=gpu:1 --output="$here/batch.out" \
	--spillway-set=device.budget=1GiB batch.sh
promise 'and gives it to the script' grep -qx 'batch: host.budget=512MiB,device.budget=1GiB' batch.out
promise 'whose steps may have their own' grep -qx 'step: host' batch.out

# Two ranks that spill: each compares all of its bytes, and prints what it prints natively.
# shellcheck disable=SC2086
$random >native.txt 2>native.err || { promise='the program is right natively'; complain "status $?"; }
# shellcheck disable=SC2086
expect 'two ranks that spill' 0 '' '' "${srun[@]}" -n 2 --output="$here/rank%t.txt" --error="$here/rank%t.err" \
	--spillway-set=device.budget=32MiB $random
promise 'the bytes of rank 0 are right' cmp native.txt rank0.txt
promise 'the bytes of rank 1 are right' cmp native.txt rank1.txt
both_say() { # TEXT FILE FILE: each of the files has one line with it
	[ "$(grep -c "$1" "$2")" = 1 ] && [ "$(grep -c "$1" "$3")" = 1 ]
}
promise 'both spill' both_say 'SPILLING BEGINS' rank0.err rank1.err
promise 'each has its summary' both_say '^spillway: summary of process' rank0.err rank1.err

# start_job NAME STEPS: two ranks of the demo's job with half of the memory that they need; sets job, waits until both spill.
start_job() {
	SIM_MEMORY=64MiB "${srun[@]}" -n 2 --job-name="$1" --output="$here/$1%t.txt" --error="$here/$1%t.err" \
		--spillway-set=device.budget=48MiB,spill.mode=static \
		"$build/job/train" 64 "$2" >"$1.out" 2>&1 &
	waiting=$!
	until_is "both ranks of $1 spill" 60 both_say 'SPILLING BEGINS' "$1"0.err "$1"1.err
	job=$(squeue -h -n "$1" -o %A)
}
state_is() { [ "$(squeue -h -j "$job" -o %T)" = "$1" ]; }

# A job that is cancelled: the program is killed by SIGTERM, so it cannot print its summary itself.
start_job cancelled 1000000
scancel "$job"
wait $waiting
cat cancelled?.err cancelled.out >said.txt
promise 'scancel: both ranks have their summary' [ "$(grep -c 'spillway: summary of process' said.txt)" = 2 ]
promise 'with what they spilled' [ "$(grep -c 'lay on the host at most' said.txt)" = 2 ]

# A job that is stopped and goes on. Slurm keeps its GPU meanwhile, as any GRES.
SIM_MEMORY=256MiB "$build/job/train" 64 200 >job.txt 2>job.err || { promise='the job runs natively'; complain "status $?"; }
start_job stopped 200
scontrol suspend "$job"
until_is 'the job is suspended' 20 state_is SUSPENDED
all_stop() { # every thread of both ranks
	local states
	states=$(pgrep -f "^$build/job/train 64 200" | sed 's|.*|/proc/&/stat|' | xargs sed 's/.*) //; s/ .*//')
	[ "$(echo "$states" | sort | uniq -c | tr -d ' \n')" = 2T ]
}
until_is 'both ranks stand still' 20 all_stop
expect 'another job has the processors, and no GPU' '[1-9]*' '' '*' timeout 20 srun --quiet --immediate=3 --mem=64 --gres=gpu:1 true
expect 'but it can have the processors' 0 '' '' timeout 20 srun --quiet --immediate=10 --mem=64 true
scontrol resume "$job"
wait $waiting || { promise='the job goes on and ends'; complain "status $?"; }
for rank in 0 1; do
	promise "its losses are right, rank $rank" cmp <(grep -E '^(step|final)' job.txt) <(grep -E '^(step|final)' stopped$rank.txt)
done

echo "$n promises, $failed failed"
[ $failed = 0 ]
