#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fit_test.sh TOOL ACTOR SIM_DIR LIBRARY SOURCES QUICK_POLL: `spillway run --fit` is the program's parent and nothing of that
# shows: status, signals and standard output are the program's. It ends with a policy that check accepts and run takes.
tool=$1 actor=$2 library=$4 sources=$5 quick=$6
. "${0%/*}/../expect.sh"
here=$(mktemp -d /tmp/fit_test.XXXXXX) || exit 1
here=$(cd "$here" && pwd -P)
trap 'rm -rf "$here"' EXIT
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_TRACE SPILLWAY_SET LD_AUDIT
export LD_LIBRARY_PATH=$3 XDG_RUNTIME_DIR=$here LC_ALL=C SIM_MEMORY=128MiB
# A sanitizer wants to be first in LD_PRELOAD, and would speak of what shells leak.
export ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0:$ASAN_OPTIONS"
cd "$here" || exit 1

fit() { "$tool" run --library "$library" --fit "$@"; }
small() { fit --set device.budget=32MiB "$@"; }

# ---- the program ----
expect 'the status is the program'\''s' 7 '' '*nothing was spilled*
spillway: the policy that this run speaks for:
*spill.mode: exact*device.budget: auto*vmm.spill: move' fit -- "$actor" ends_from_main
expect 'standard output is the program'\''s alone' 0 hello '*no process of this run has left figures*' fit -- echo hello
expect 'so is standard input' 0 hello '*' fit -- cat <<<hello
for end in is_terminated:143 is_killed:137 aborts:134 is_interrupted:130 ends_at_once:7; do
	expect "$end: its end, its summary and a policy" "${end#*:}" '' '*summary of process *spilled: 18.0 MiB lay on the host*
spillway: the policy that this run speaks for:*' small -- "$actor" "${end%:*}"
	[ "$(grep -c 'summary of process' err.txt)" = 1 ] || complain 'not one summary'
done
expect 'no summary comes where none is wanted; a policy all the same' 137 '' 'spillway: the policy that this run speaks for:*' \
	small --set report=none -- "$actor" is_killed
expect 'no core file of the tool' 134 '' '*' sh -c 'ulimit -c 0; "$@"' sh "$tool" run --library "$library" --fit -- "$actor" aborts
expect 'a program that is not there is 127' 127 '' 'spillway: nosuch: no such program' fit -- nosuch
expect 'a file that is no program is 126' 126 '' 'spillway: ./out.txt: Permission denied' fit -- ./out.txt
expect 'the program is named without its arguments' 7 '' '*after a run of * s of actor' sh -c '"$@" 2>&1 >/dev/null | grep "Written by" >&2; exit 7' sh "$tool" run --library "$library" --fit -- "$actor" ends_from_main secret
expect 'the figures of children count' 0 '' '*# Of 2 processes that used CUDA memory this is of *' \
	fit -- sh -c "$actor ends_from_main; $actor ends_from_main; exit 0"
expect 'the folder of the figures is closed to others, and gone at the end' 0 '*700' '*' \
	fit -- sh -c 'echo $SPILLWAY_FIGURES; stat -c %a $SPILLWAY_FIGURES'
[ ! -e "$(head -n 1 out.txt)" ] || complain 'it is still there'

# ---- signals ----
mkfifo ready
exec 9<>ready
# begin PROGRAM...: starts it under --fit, and waits until it has written to the pipe. No function, whose process would be another.
begin() {
	"$tool" run --library "$library" --fit -- "$@" >out.txt 2>err.txt &
	pid=$!
	read -r -t 60 -u 9 program || complain 'it has not begun'
}
# is_gone PID, is_stopped PID: waits for it.
state() { awk '/^State/ { print $2 }' "/proc/$1/status" 2>/dev/null; }
wait_until() { # wait_until PID STATES: the name of one of these states; X also where there is no such process
	for _ in $(seq 600); do
		local now
		now=$(state "$1")
		case $2 in *"${now:-X}"*) return ;; esac
		sleep 0.1
	done
	complain "process $1 is in state $now"
}
promise='a signal is passed on'
n=$((n + 1))
begin bash -c 'trap "exit 3" TERM; echo $$ >ready; while :; do sleep 0.05; done'
kill -TERM "$pid"
wait "$pid"
[ $? = 3 ] || complain 'the program did not get it'
promise='stopped together, continued together'
n=$((n + 1))
begin bash -c 'echo $$ >ready; kill -STOP $$; exit 5'
wait_until "$pid" T
kill -CONT "$pid"
wait "$pid"
[ $? = 5 ] || complain 'it did not go on'
promise='if the tool is killed, so is the program'
n=$((n + 1))
begin bash -c 'echo $$ >ready; while :; do sleep 0.05; done'
kill -KILL "$pid"
wait "$pid" 2>/dev/null
wait_until "$program" XZ

# ---- the policy ----
expect 'what was spilled is named, with the budget of the run' 7 '' '*# because it never stops a job; moving memory cost *
*# because --set, or SPILLWAY_SET, said so
spillway:   device.budget: "32MiB"*' small --write-policy job.yaml -- "$actor" ends_from_main
expect 'it is written for its owner alone' 0 600 '' stat -c %a job.yaml
expect 'check accepts it' 0 'job.yaml: ok' '' "$tool" check job.yaml
expect 'and run takes it' 7 '' '*device budget 32.0 MiB *, spill exact, policy */job.yaml*spilled: 18.0 MiB lay*' \
	"$tool" run --library "$library" --policy job.yaml -- "$actor" ends_from_main
promise='each key has its reason'
n=$((n + 1))
awk '/^[a-z]/ && !/^version/ && last !~ /^# because / { bad = 1 } { last = $0 } END { exit bad }' job.yaml || complain "$(cat job.yaml)"
expect 'managed memory that the CPU left alone gets a rule' 7 '' '*a GPU used that of 2 sites; of 1 the CPU touched nothing after that (use: heap may fit); of 1 the CPU brought back 1.0 MiB*
spillway:   rules:*1 allocation that a GPU used*match: {api: managed, caller: "actor+0x*"}*use: heap*' \
	fit --set report=full --write-policy managed.yaml -- "$actor" uses_managed_memory
[ "$(grep -c 'use: heap' managed.yaml)" = 1 ] || complain "not one rule: $(cat managed.yaml)"
expect 'check accepts that, too' 0 'managed.yaml: ok' '' "$tool" check managed.yaml
expect 'and the next run has it on the heap' 7 '' '*the heap held 2.0 MiB at most*' \
	env SPILLWAY_SET=report=full "$tool" run --library "$library" --policy managed.yaml -- "$actor" uses_managed_memory
expect 'not without events' 7 '' '*not known whether the CPU touches it*' \
	fit --set report=full,faults=auto --write-policy auto.yaml -- "$actor" uses_managed_memory
grep -q 'use: heap' auto.yaml && complain "$(cat auto.yaml)"
SPILLWAY_SET=spill.mode=static expect 'the mode of the variable stays' 7 '' '*spill static*spill.mode: "static"*' fit -- "$actor" ends_from_main
expect 'a file that is there is not overwritten, and nothing is started' 2 '' '*"job.yaml" is there already*' \
	fit --write-policy job.yaml -- echo started
ln -s nowhere.yaml link.yaml
expect 'no link is followed' 2 '' '*"link.yaml" is there already*' fit --write-policy link.yaml -- echo started
expect 'one that cannot be written is an error' 1 '*' '*"nosuch/job.yaml" cannot be made: No such file*' \
	fit --write-policy nosuch/job.yaml -- "$actor" first_allocation
expect 'without figures there is none' 1 '' '*there is no policy to write' fit --write-policy none.yaml -- true
[ ! -e none.yaml ] || complain 'it was written'

# ---- wrong usage ----
expect '--write-policy alone' 2 '' '*--write-policy needs --fit*' "$tool" run --library "$library" --write-policy x.yaml -- echo started
expect 'with a policy' 2 '' '*--policy names one*' fit --policy heap -- echo started
SPILLWAY_POLICY=heap expect 'with one in the environment' 2 '' '*SPILLWAY_POLICY names one*' fit -- echo started
SPILLWAY=0 expect 'switched off' 2 '' '*SPILLWAY=0 is set*' fit -- echo started

# ---- a terminal ----
if command -v python3 >/dev/null; then
	expect 'a terminal is told once a minute, of what the program has started, too' 7 '*spillway: fit: 18.0 MiB of 48.0 MiB are spilled (the device budget is 32.0 MiB); moving memory cost *' '' \
		python3 "$sources/fit_terminal.py" "$quick" '18.0 MiB of 48.0 MiB are spilled' "$tool" run --library "$library" --fit --set device.budget=32MiB -- sh -c "$actor ends_when_told; exit \$?"
fi
expect 'nobody else is' 7 '' '*' env LD_PRELOAD="$quick" "$tool" run --library "$library" --fit -- sh -c "sleep 0.3; $actor ends_from_main"
grep -q 'spillway: fit: ' err.txt && complain 'it was said'

echo "$n promises, $failed failed"
[ $failed = 0 ]
