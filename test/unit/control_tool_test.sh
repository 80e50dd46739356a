#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# control_tool_test.sh TOOL ACTOR: `spillway list`, `suspend` and `resume` against real control sockets with a fake engine
# behind them (control_actor.c). Nothing of CUDA is needed.
tool=$1
actor=$2
export LSAN_OPTIONS=detect_leaks=0 # the actor reads a policy for its life
here=$(mktemp -d /tmp/control_tool_test.XXXXXX) || exit 1
chmod 700 "$here"
failed=0
n=0
actors=()

expect() { # "promise" STATUS "stdout (a pattern)" "stderr (a pattern)" command...
	local promise=$1 status=$2 out=$3 err=$4 got
	shift 4
	n=$((n + 1))
	[ -e "$here/out.txt" ] && mv "$here/out.txt" "$here/last.txt"
	# Where the machine stalls, the tool has a word more to say, and lists a process that does not answer as busy.
	for _ in {1..30}; do
		"$@" >"$here/out.txt" 2>"$here/err.txt"
		got=$?
		sed -i '/is not done yet/d' "$here/err.txt"
		[[ $* = *" list" && $out != *busy* && $(<"$here/out.txt") = *"  busy  "* ]] || break
	done
	# shellcheck disable=SC2053 # patterns they are
	[[ $got = "$status" && $(<"$here/out.txt") = $out && $(<"$here/err.txt") = $err ]] && return
	failed=$((failed + 1))
	echo "FAILED: $promise: status $got, not $status; wanted \"$out\" and \"$err\""
	sed 's/^/  out: /' "$here/out.txt"
	sed 's/^/  err: /' "$here/err.txt"
}

# start NAME argument...: its process id is in $NAME, ready to be asked; it ends when the write end of its pipe does.
start() {
	local name=$1
	shift
	mkfifo "$here/$name.in" "$here/$name.out"
	"$actor" "$@" <"$here/$name.in" >"$here/$name.out" 2>"$here/$name.err" &
	printf -v "$name" %s $!
	actors+=($!)
	eval "exec {${name}_in}>\"$here/$name.in\""
	read -r _ <"$here/$name.out"
}
trap 'kill "${actors[@]}" 2>/dev/null; rm -rf "$here"' EXIT

export XDG_RUNTIME_DIR=$here
# Other tests of this user may run at the same time and be listed: only ours are looked for.
expect 'nothing to list is no failure' 0 '*' '*' "$tool" list
start one
start two no
id=$(printf "[0-9a-f]%.0s" {1..16})
expect 'list shows pid, state and command' 0 "*PID*STATE*ID*COMMAND*$one  running    $id  $actor*$two  running    $id  $actor no*" '' \
	"$tool" list
expect 'suspend says what came of it' 0 "process $one: suspended, 3.0 MiB of device memory given back" '' \
	"$tool" suspend "$one"
expect 'list shows who is suspended' 0 "*$one  suspended*$two  running *" '' "$tool" list
expect 'what the process refuses is handed on' 1 '' "spillway: process $two: not suspended: no safe point*" \
	"$tool" suspend "$two"
expect 'the others are asked all the same' 1 "process $one: resumed, 3.0 MiB *" "*process $two: not resumed*" \
	"$tool" resume "$two" "$one"
expect 'list shows who goes on' 0 "*$one  running*" '' "$tool" list

expect 'set says what came of it' 0 "process $one: device.budget=0, 3.0 MiB left in 0.31 s" '' \
	"$tool" set "$one" device.budget=0
expect 'set says what could not leave' 1 "process $one: device.budget=2097152, *" "*2.0 MiB are above it still*" \
	"$tool" set "$one" device.budget=2097152
expect 'set does the rest where a key is refused' 1 "process $one: device.budget=0, *" "*not changed: no such key*" \
	"$tool" set "$one" spill.mode=off device.budget=0

id_of() { # PID: the id that list shows of it
	"$tool" list 2>/dev/null | sed -n "s/^ *$1  [a-z]*  *\([0-9a-f]*\)  .*/\1/p"
}
one_id=$(id_of "$one")
expect 'each has an id of its own' 1 '' '' [ "$one_id" = "$(id_of "$two")" ]
expect 'a process can be named by its id' 0 "process $one_id: suspended, 3.0 MiB *" '' "$tool" suspend "$one_id"
expect 'by either name it is the same one' 0 "process $one: resumed*" '' "$tool" resume "$one"
expect 'an id that nobody has is told' 1 '' '*no process with the id 0123456789abcdef *' \
	"$tool" suspend 0123456789abcdef

# The tool need not be in the environment of the process: its own is read.
expect 'a process with another XDG_RUNTIME_DIR is found' 0 "process $one: suspended*" '' \
	env -u XDG_RUNTIME_DIR "$tool" suspend "$one"
mkdir -m 700 "$here/other"
expect 'it is found from any other' 0 "process $one: resumed*" '' \
	env XDG_RUNTIME_DIR="$here/other" "$tool" resume "$one"

start three slow
"$tool" suspend "$three" >"$here/slow.txt" 2>&1 &
slow=$!
for _ in {1..60}; do
	grep -q 'is not done yet' "$here/slow.txt" && break
	sleep 0.5
done
expect 'list does not wait for a process that is being suspended' 0 "*$three  busy *" '' "$tool" list
# Who has given up waits in the kernel's queue all the same, until the process comes to it.
gave_up=()
for _ in {1..8}; do
	"$tool" list >/dev/null 2>&1 &
	gave_up+=($!)
done
wait "${gave_up[@]}"
expect 'it is listed however many have asked meanwhile' 0 "*$three  busy *" '' "$tool" list
"$tool" resume "$three" >"$here/next.txt" 2>&1 &
next=$!
for _ in {1..60}; do
	[ -s "$here/next.txt" ] && break
	sleep 0.5
done
# shellcheck disable=SC2154 # start() made it
echo >&"$three_in"
wait $slow
wait $next
expect 'and does what it is told next' 0 '*' '' grep -q "process $three: resumed" "$here/next.txt"
n=$((n + 1))
[[ $(<"$here/slow.txt") = *"process $three is not done yet"*"process $three: suspended, "* ]] || {
	failed=$((failed + 1))
	echo "FAILED: a suspension that takes long is waited for, with a word: $(<"$here/slow.txt")"
}

# A job: all of its processes, or none.
SPILLWAY_JOB=all.$$ start four
SPILLWAY_JOB=all.$$ RAY_JOB_ID=1 start five
SPILLWAY_JOB=some.$$ start six
SPILLWAY_JOB=some.$$ start seven no
expect 'a job is suspended as a whole' 0 "*process *: suspended, *job all.$$: 2 processes suspended" '' "$tool" suspend --job "all.$$"
# shellcheck disable=SC2154 # start() made them
expect 'both of it are' 0 "*$four  suspended*$five  suspended*$six  running*" '' "$tool" list
expect 'list shows a job alone' 0 "*$four  suspended*$five  suspended*" '' "$tool" list --job "all.$$"
n=$((n + 1))
[[ $(<"$here/out.txt") != *"$one  "* ]] || { failed=$((failed + 1)); echo 'FAILED: and nobody else'; }
expect 'it may be said again' 0 "*job all.$$: 2 processes suspended" '' "$tool" suspend --job "all.$$"
expect 'a job goes on as a whole' 0 "*job all.$$: 2 processes resumed" '' "$tool" resume --job "all.$$"
expect 'if one refuses, none is suspended' 1 "*process $six: suspended, *process $six: resumed, *" \
	"*process $seven: not suspended: *job \"some.$$\": not suspended: of its 2 processes one could not be; the others are as they were" \
	"$tool" suspend --job "some.$$"
expect 'as the list says' 0 "*$six  running*$seven  running*" '' "$tool" list
expect 'one that was suspended before stays so' 0 "process $six: suspended*" '' "$tool" suspend "$six"
expect 'though the job as a whole is not' 1 "*" "*job \"some.$$\": not suspended*" "$tool" suspend --job "some.$$"
expect 'which the list says, too' 0 "*$six  suspended*$seven  running*" '' "$tool" list
expect 'a job that is not here is told' 1 '' "*no process of this user here is of the job \"none.$$\"*" "$tool" resume --job "none.$$"
expect 'a job and a process are two things' 2 '' '*--job takes one name*' "$tool" suspend --job a 1
eval "exec {four_in}>&- {five_in}>&- {six_in}>&- {seven_in}>&-"
wait "$four" "$five" "$six" "$seven"

# The library waits for a request for a second, and the tool as long for its place in a queue.
export XDG_RUNTIME_DIR=$here/other
start before full
start eight
start after full
# shellcheck disable=SC2154 # start() made it
expect 'a process is asked before others hold the tool up' 0 "process $eight: suspended, *" '' \
	"$tool" suspend "$eight"
export XDG_RUNTIME_DIR=$here
# Each has the standard input of those before it open, too.
eval "exec {before_in}>&- {eight_in}>&- {after_in}>&-"
# shellcheck disable=SC2154
wait "$before" "$eight" "$after"

kill -KILL "$two"
wait "$two" 2>/dev/null
expect 'a killed process is not listed' 0 "*$one *" '' "$tool" list
expect 'its command is not either' 1 '' '' grep -F "$actor no" "$here/last.txt"
expect 'a killed process is not there' 1 '' "*there is no process $two" "$tool" suspend "$two"
eval "exec {one_in}>&- {three_in}>&-"
wait "$one" "$three"
touch -c -d '1 minute ago' "$here"/spillway/*.ctl
expect 'list looks round again' 0 '*' '*' "$tool" list
expect 'nothing is left to list' 1 '' '' grep -F "$actor" "$here/last.txt"
# So may the folder be: the last process to end removes an empty one.
expect 'what the killed process left is gone' 1 '' '' grep -q . <<<"$(ls -A "$here/spillway" 2>/dev/null)"

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
