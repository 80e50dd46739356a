#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The forms of starting of docs/cluster.md, each with the simulated GPU under every rank: two ranks that spill, whose losses and
# bytes must be those of a run without Spillway, and one report of the job; then four ranks of which one is killed, where the
# figures of the others and the report must be complete.
#
# Usage: scripts/cluster.sh [BUILD [FORM...]]
#   FORM: shell, torchrun, mpirun, srun, ray, dask, container; all without one. Spillway and the demo's job must be built.
# Python's packages are fetched once, into CLUSTER_CACHE (XDG_CACHE_HOME/spillway-cluster, some gigabytes for torch), unless
# CLUSTER_PYTHON names a Python that has them. CLUSTER_FETCH=no: nothing is fetched. Programs that are not here are named in the
# last column of the table, and their form is skipped.
# KEEP=yes: what was written stays, and the folder is named.
# Exit status: 0 all forms that can run here are right, 1 one is not, 2 wrong usage.
set -uo pipefail

build=$(cd "${1:-build}" && pwd) || exit 2
shift || true
forms=("$@")
[ ${#forms[@]} -gt 0 ] || forms=(shell torchrun mpirun srun ray dask container)
source=$(cd "$(dirname "$0")/.." && pwd)
. "$source/scripts/slurm_start.sh"
tool=$build/spillway library=$build/libspillway.so train=$build/job/train
for file in "$tool" "$library" "$train" "$build/sim/libcuda.so.1"; do
	[ -e "$file" ] || { echo "cluster: $file is not there; build it first" >&2; exit 2; }
done
cache=${CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spillway-cluster}
work=$(mktemp -d /tmp/spillway-cluster.XXXXXX) || exit 1
spec=''
cleanup() {
	[ -z "$spec" ] || rm -f "$spec"
	if [ -n "${KEEP:-}" ]; then
		echo "cluster: all that was written is in $work" >&2
	else
		rm -rf "$work"
	fi
}
trap cleanup EXIT
mkdir -m 700 "$work/run"
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_SET SPILLWAY_TRACE LD_PRELOAD LD_AUDIT RANK LOCAL_RANK WORLD_SIZE
export XDG_RUNTIME_DIR=$work/run SIM_MEMORY=128MiB
steps=${CLUSTER_STEPS:-20}
export CLUSTER_TRAIN="$train 8 $steps" CLUSTER_LONG="$train 8 1000000" CLUSTER_LIBRARY=$library

# What a run without Spillway prints; the simulated GPU has room for it then.
native() { LD_LIBRARY_PATH=$build/sim SIM_MEMORY=1GiB "$train" 8 "$steps"; }
native >"$work/native.out" || { echo 'cluster: the job does not run natively' >&2; exit 1; }

# ---- what a form needs ----

has_module() { "$1" -c "import $2" 2>/dev/null; }

# python MODULE PACKAGE...: prints a Python that has the module; fails if there is none and none can be fetched.
python() {
	local module=$1 python=${CLUSTER_PYTHON:-$cache/venv/bin/python}
	shift
	if has_module "$python" "$module"; then
		echo "$python"
		return
	fi
	[ -z "${CLUSTER_PYTHON:-}" ] && [ "${CLUSTER_FETCH:-yes}" = yes ] || return 1
	{ [ -e "$cache/venv" ] || python3 -m venv "$cache/venv"; } >&2 && "$cache/venv/bin/pip" install -q "$@" >&2 || return 1
	has_module "$python" "$module" && echo "$python"
}

# lacks WHAT: the form cannot run here.
lacks() {
	echo "$1" >"$work/missing"
	return 77
}

# ---- the forms ---- each starts RANKS ranks of test/cluster/rank.sh, and waits for them

rank=$source/test/cluster/rank.sh
run_as() { # the variables of each rank that are the same in all forms
	export CLUSTER_RUN="$tool run --library $library --trace $CLUSTER_OUT/rank%r.trace --set $settings --"
	export LD_LIBRARY_PATH=$build/sim
}

start_shell() { # RANKS
	local number ranks=()
	run_as
	for ((number = 0; number < $1; number++)); do
		RANK=$number WORLD_SIZE=$1 "$rank" &
		ranks+=($!)
	done
	wait "${ranks[@]}"
}

start_torchrun() {
	local python
	python=$(python torch torch numpy) || { lacks 'torch (PyPI)'; return; }
	run_as
	timeout -k 5 300 "$python" -m torch.distributed.run --no-python --nproc-per-node "$1" --rdzv-backend c10d \
		--rdzv-endpoint localhost:0 --rdzv-id "$SPILLWAY_JOB" "$rank"
}

start_mpirun() {
	command -v mpirun >/dev/null || { lacks 'mpirun (openmpi-bin)'; return; }
	local options=(--oversubscribe)
	[ "$(id -u)" != 0 ] || options+=(--allow-run-as-root)
	run_as
	timeout -k 5 300 mpirun "${options[@]}" -np "$1" "$rank"
}

# Where no Slurm answers, and root may start one, it has one of its own, which ends with this form. As torchrun and mpirun do, srun
# ends the other ranks when one dies, because it is told to.
start_srun() {
	local missing
	PATH=$PATH:/usr/sbin:/sbin
	if ! command -v srun >/dev/null || ! sinfo >/dev/null 2>&1; then
		missing=$(slurm_get) || { lacks "a Slurm that answers; $missing"; return; }
		trap slurm_end EXIT
		mkdir -p "$CLUSTER_OUT/slurm"
		slurm_start "$CLUSTER_OUT/slurm" || { tail -n 5 "$CLUSTER_OUT"/slurm/*.log; return 1; }
	fi
	run_as
	timeout -k 5 300 srun --ntasks "$1" --overcommit --kill-on-bad-exit=1 "$rank"
}

start_ray() {
	local python
	python=$(python ray ray) || { lacks 'ray (PyPI)'; return; }
	# The workers have the library; what they start inherits it.
	export LD_LIBRARY_PATH=$build/sim CLUSTER_RUN='' SPILLWAY_SET=$settings SPILLWAY_TRACE=$CLUSTER_OUT/rank%r.trace
	CLUSTER_TEMPORARY=$work/ray timeout -k 5 300 "$python" "$source/test/cluster/ray_job.py" "$1" "$rank"
}

start_dask() {
	local python number scheduler=tcp://127.0.0.1:$((20000 + ($$ * 8 + $1) % 20000)) processes=()
	python=$(python distributed dask distributed) || { lacks 'dask, distributed (PyPI)'; return; }
	# A port of each job, since one that was in use is not free at once.
	timeout -k 5 300 "$python" -m distributed.cli.dask_scheduler --host 127.0.0.1 --port "${scheduler##*:}" --no-dashboard \
		--no-show >"$CLUSTER_OUT/scheduler.log" 2>&1 &
	processes+=($!)
	for ((number = 0; number < $1; number++)); do
		RANK=$number WORLD_SIZE=$1 CLUSTER_RUN='' LD_LIBRARY_PATH=$build/sim timeout -k 5 300 \
			"$tool" run --library "$library" --trace "$CLUSTER_OUT/rank%r.trace" --set "$settings" -- \
			"$python" -m distributed.cli.dask_worker "$scheduler" --no-nanny --nthreads 1 --no-dashboard \
			--local-directory "$work/dask$number" >"$CLUSTER_OUT/worker$number.log" 2>&1 &
		processes+=($!)
	done
	trap 'kill "${processes[@]}" 2>/dev/null' EXIT
	timeout -k 5 300 "$python" "$source/test/cluster/dask_job.py" "$scheduler" "$1" "$rank"
	local status=$?
	kill "${processes[@]}" 2>/dev/null
	wait "${processes[@]}" 2>/dev/null
	return $status
}

# A folder that a container can have as its root: the job, the simulated GPU, a shell, and what they are linked with.
make_root() {
	local file other
	mkdir -p "$work/root"/{bin,sim,out,tmp,dev,proc,sys,etc,run,opt}
	for file in "$train" "$tool" /bin/sh /bin/sleep; do
		cp -L "$file" "$work/root/bin" || return 1
		ldd "$file" | grep -o '/[^ ]*' | grep -v "^$build" | while read -r other; do
			mkdir -p "$work/root${other%/*}"
			cp -L "$other" "$work/root$other"
		done
	done
	cp -L "$build"/sim/* "$work/root/sim" && cp "$rank" "$work/root/bin/rank.sh"
}

start_container() {
	local number ranks=() name=spillway-cluster-$$
	command -v podman >/dev/null && command -v runc >/dev/null || { lacks 'podman and runc'; return; }
	[ -w /var/run ] || { lacks 'the right to write /var/run/cdi'; return; }
	make_root || { lacks 'a folder for the container'; return; }
	mkdir -p /var/run/cdi
	spec=/var/run/cdi/$name.json
	rm -f "$spec"
	"$tool" cdi --library "$library" --set "$settings" --output "$spec" || return 1
	for ((number = 0; number < $1; number++)); do
		timeout -k 5 300 podman run --rm --runtime runc --cgroup-manager=cgroupfs --network=none --ulimit nofile=1024:1024 \
			--ulimit nproc=1000:1000 --device spillway/memory=all --volume "$CLUSTER_OUT:/out" --env RANK=$number \
			--env WORLD_SIZE="$1" --env SPILLWAY_JOB --env SPILLWAY_TRACE=/out/rank%r.trace --env CLUSTER_OUT=/out \
			--env CLUSTER_RUN= --env CLUSTER_VICTIM --env CLUSTER_RANKS --env CLUSTER_TRAIN="/bin/train 8 $steps" \
			--env CLUSTER_LONG="/bin/train 8 1000000" --env SIM_MEMORY \
			--env LD_LIBRARY_PATH=/sim --rootfs "$work/root" /bin/rank.sh &
		ranks+=($!)
	done
	wait "${ranks[@]}"
	local status=$?
	rm -f "$spec"
	return $status
}

# ---- what must hold ----

bad() {
	echo "cluster: $form: $*" >&2
	result=FAILED
}

# What the report of the job says, as `key: value` lines: no JSON reader is needed.
report() { "$tool" report --json "$CLUSTER_OUT"/rank*.trace 2>"$work/report.err"; }

# has_summary RANK [TEXT]: the summary of the rank, with the text. Of a rank that was ended by a signal another process prints it,
# a moment later.
has_summary() {
	local tries=300
	until grep -qs "^spillway: summary of process [0-9]* (rank $1): ${2:-}" "$CLUSTER_OUT/rank$1.err"; do
		((tries-- > 0)) || return 1
		sleep 0.1
	done
}

# Two ranks, all right.
check_right() { # RANKS
	local number said
	for ((number = 0; number < $1; number++)); do
		cmp -s "$CLUSTER_OUT/rank$number.out" "$work/native.out" || bad "rank $number did not print what the job prints natively"
		has_summary "$number" 'spilled: ' || bad "rank $number has no summary that says that it spilled"
	done
	said=$(report) || bad "no report: $(<"$work/report.err")"
	[[ $said = *"\"job\": \"$SPILLWAY_JOB\""*"\"spilling\": $1,"*'"missing": []'* ]] || bad "the report is not that of the job: $said"
	[[ $said != *'"complete": false'* && $said != *'"ended": false'* ]] || bad "a trace is not complete: $said"
}

# Four ranks, one of which was killed. torchrun and mpirun end the others then, by a signal.
check_killed() { # RANKS VICTIM
	local number said
	for ((number = 0; number < $1; number++)); do
		((number == $2)) && continue
		if [[ $form != torchrun && $form != mpirun && $form != srun ]]; then
			cmp -s "$CLUSTER_OUT/rank$number.out" "$work/native.out" || bad "rank $number was not to be touched, but did not go on"
		fi
		has_summary "$number" || bad "with rank $2 killed, rank $number has no summary"
	done
	said=$(report) || bad "with rank $2 killed there is no report: $(<"$work/report.err")"
	[[ $said = *"\"job\": \"$SPILLWAY_JOB\""*'"missing": []'* ]] || bad "with rank $2 killed the report is not complete: $said"
	[[ $(grep -o '"rank": [0-9]' <<<"$said" | sort -u | wc -l) = "$1" ]] || bad "with rank $2 killed a rank is missing: $said"
	[[ $said =~ \"rank\":\ $2,\ \"host\":\ \"[^\"]*\",\ \"complete\":\ [a-z]*,\ \"ended\":\ false ]] ||
		bad "rank $2 is not said to have been killed: $said"
}

# once RANKS VICTIM: 77: it cannot run here
once() {
	export CLUSTER_OUT=$work/$form-$1 SPILLWAY_JOB=cluster-$form-$1 CLUSTER_VICTIM=$2 CLUSTER_RANKS=$1
	mkdir -p "$CLUSTER_OUT"
	settings=device.budget=64MiB,host.budget=256MiB
	("start_$form" "$1") >"$work/$form-$1.log" 2>&1
}

status=0
printf '%-10s %-6s %s\n' form ranks result
for form in "${forms[@]}"; do
	declare -F "start_$form" >/dev/null || { echo "cluster: there is no form $form" >&2; exit 2; }
	result=right
	once 2 none
	case $? in
	77)
		printf '%-10s %-6s skipped: it needs %s\n' "$form" - "$(<"$work/missing")"
		continue
		;;
	0) check_right 2 ;;
	*) bad "it ended with an error: $(tail -3 "$work/$form-2.log")" ;;
	esac
	printf '%-10s %-6s %s\n' "$form" 2 "$result"
	[ "$result" = right ] || status=1
	result=right
	once 4 2 # whatever it ends with: a rank has been killed
	check_killed 4 2
	[ "$result" = right ] || echo "cluster: $form said: $(tail -n 5 "$work/$form-4.log")" >&2
	printf '%-10s %-6s %s\n' "$form" '4, -1' "$result"
	[ "$result" = right ] || status=1
done
exit $status
