#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# watcher_test.sh TOOL ACTOR SIM_DIR PRELOAD: a program under `spillway run` that is ended by a signal, or by _exit(), ends as it
# would without it, and its summary is printed all the same, once. Whatever was printed is read up to the end of the pipe, which
# the process that prints holds: nothing is waited for by time.
tool=$1 actor=$2 library=$4
here=$(mktemp -d /tmp/watcher_test.XXXXXX) || exit 1
here=$(cd "$here" && pwd -P)
trap 'rm -rf "$here"' EXIT
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_TRACE LD_AUDIT
export LD_LIBRARY_PATH=$3 XDG_RUNTIME_DIR=$here LC_ALL=C SIM_MEMORY=128MiB SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB
cd "$here" || exit 1
failed=0
n=0

# expect "promise" STATUS SUMMARIES command...: the status, as a shell tells it, and how often the three lines were printed.
expect() {
	promise=$1 status=$2 summaries=$3
	shift 3
	n=$((n + 1))
	said=$({ "$@" >out.txt; echo $? >status.txt; } 2>&1)
	[ "$(cat status.txt)" = "$status" ] || complain "status $(cat status.txt), not $status"
	for line in 'summary of process [0-9]*: ' '  cost: ' '  change: '; do
		[ "$(grep -c "^spillway: $line" <<<"$said")" = "$summaries" ] || complain "\"$line\" not $summaries times"
	done
}

complain() {
	failed=$((failed + 1))
	echo "FAILED: $promise: $1"
	sed 's/^/  /' <<<"$said"
}

run() { "$tool" run --library "$library" "$@"; }

expect 'a program that ends by itself has one summary' 7 1 run -- "$actor" ends_from_main
expect 'SIGTERM is a SIGTERM, and the summary comes' 143 1 run -- "$actor" is_terminated
grep -q 'spilled: 18.0 MiB lay on the host at most, of 48.0 MiB in all' <<<"$said" || complain 'not what the program had'
expect 'so it is with abort()' 134 1 run -- "$actor" aborts
expect 'and with _exit()' 7 1 run -- "$actor" ends_at_once
expect 'SIGINT is a SIGINT' 130 1 run -- "$actor" is_interrupted
expect 'SIGKILL is a SIGKILL' 137 1 run -- "$actor" is_killed
# The watcher's own descriptors lie where the closed ones were.
no_input() { run -- "$actor" is_terminated <&-; }
no_output() { run -- "$actor" is_terminated >&-; }
neither() { run -- "$actor" is_terminated <&- >&-; }
for closed in no_input no_output neither; do
	expect "the summary comes with $closed" 143 1 "$closed"
done
expect 'the figures come if they are asked for' 143 1 run --set report=full,host.budget=64MiB -- "$actor" is_terminated
grep -q ' live at exit, ' <<<"$said" || complain 'no figures'
expect 'nothing comes if nothing is to be reported' 143 0 run --set report=none -- "$actor" is_terminated
expect 'nor without CUDA' 143 0 run -- sh -c 'kill -TERM $$'
[ -z "$said" ] || complain 'something was said'
# It is found where a look meets it; on a busy machine that takes longer.
unset_for() { { sleep "$1"; echo; } | run --set report="$2" -- sh -c 'env -u LD_PRELOAD "$1" ends_when_told; exit $?' sh "$actor"; }
for seconds in 0.2 1 5 25; do
	expect 'who loses the library below run is named, once' 7 0 unset_for $seconds summary
	[ -z "$said" ] || break
done
[[ $said =~ ^spillway:\ process\ [0-9]+\ \(actor\)\ used\ CUDA\ without\ the\ library:\ [^$'\n']*LD_PRELOAD[^$'\n']*$ ]] ||
	complain 'not who'
expect 'not where nothing is to be reported' 7 0 unset_for $seconds none
[ -z "$said" ] || complain 'something was said'
expect 'nor without CUDA' 0 0 run -- env -u LD_PRELOAD sleep 0.2
[ -z "$said" ] || complain 'something was said'
with_it() { { sleep "$1"; echo; } | run -- sh -c '"$1" ends_when_told; exit $?' sh "$actor"; }
expect 'nor of who has it' 7 1 with_it $seconds
! grep -q without <<<"$said" || complain 'it was said'
expect 'what a program starts is ended as it would be' 0 0 run -- sh -c "trap 'exit 0' TERM; kill -TERM \$\$; exit 1"
expect 'a signal that is ignored stays ignored' 0 0 run -- sh -c "trap '' TERM; kill -TERM \$\$; exit 0"
expect 'without run nobody is there to print it' 143 0 env LD_PRELOAD="$library" "$actor" is_terminated

# Who started the program without run can ask for it afterwards.
sh -c 'echo $$ >killed.txt; exec env LD_PRELOAD="$1" "$2" is_killed' sh "$library" "$actor" 2>/dev/null
expect 'a summary can be asked for' 0 1 "$tool" run --summary-of "$(cat killed.txt)"
expect 'of a process that runs there is none' 0 0 "$tool" run --summary-of $$
expect 'nor of one that is no process' 2 0 "$tool" run --summary-of 1x

# The program has no child that it did not make, and standard output has no other writer.
expect 'the program has no child' 0 0 run -- sh -c 'cat /proc/$$/task/$$/children >children.txt; kill -0 $$'
[ "$(wc -w <children.txt)" -le 1 ] || complain "children: $(cat children.txt)"
echo "$n promises, $failed failed"
[ $failed = 0 ]
