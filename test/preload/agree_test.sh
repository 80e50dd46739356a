#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# agree_test.sh TOOL TRAIN SIM_DIR PRELOAD: of one recorded run of the demo's job, the summary at exit, every output of `spillway
# report` and `replay` name the same peak, the same steps and the same mode.
tool=$1 train=$2
here=$(mktemp -d /tmp/agree_test.XXXXXX) || exit 1
here=$(cd "$here" && pwd -P)
trap 'rm -rf "$here"' EXIT
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_SET SPILLWAY_TRACE LD_AUDIT
export LD_LIBRARY_PATH=$3 XDG_RUNTIME_DIR=$here LC_ALL=C SIM_MEMORY=512MiB
library=$4
cd "$here" || exit 1
failed=0
n=0
steps=100

# is "promise" WHAT EXPECTED
is() {
	n=$((n + 1))
	[ "$2" = "$3" ] && return
	failed=$((failed + 1))
	echo "FAILED: $1: $2, not $3"
}

# A number behind a key of JSON, the first there is.
value() {
	tr -d '\n' <"$2" | grep -o "\"$1\": *[^,}]*" | head -n 1 | sed 's/.*: *//'
}

run() {
	LD_PRELOAD=$library SPILLWAY_TRACE=$here/$1.trace \
		SPILLWAY_SET="device.budget=108MiB,host.budget=256MiB,spill.mode=$1,report.summary=full" "$train" 16 $steps 64 1 >out.txt 2>err.txt
	is "$1: the job ends well" $? 0
	summary=$(sed -n 's/.*the heap held \(.*\) at most, .*/\1/p' err.txt)
}

for mode in static exact fast; do
	run $mode
	"$tool" report $mode.trace >report.txt
	"$tool" report --json $mode.trace | tr -d '\n' >report.json
	"$tool" report --html $mode.trace >report.html
	"$tool" replay $mode.trace >replay.txt 2>/dev/null
	"$tool" replay --json $mode.trace >replay.json 2>/dev/null

	peak=$(value together report.json)
	is "$mode: the summary's peak is that of report" "$(sed -n 's/^  together \([^,]*\),.*/\1/p' report.txt)" "$summary"
	is "$mode: 100 % of what-if is the peak" "$(grep -o '"what_if": *{ *"peak": *[0-9]*' report.json | grep -o '[0-9]*$')" "$peak"
	is "$mode: in words, too" "$(sed -n 's/^  100 % *\([0-9.]* [A-Z]*i*B\) .*/\1/p' report.txt)" "$summary"
	is "$mode: so has the page" "$(value together report.html)" "$peak"
	is "$mode: all allocations together had that peak" \
		"$(grep -o '"total": *{[^}]*' report.json | grep -o '"peak": *[0-9]*' | grep -o '[0-9]*$')" "$peak"
	is "$mode: replay has it in words" "$(sed -n 's/^peak \(.*\) asked for, .*/\1/p' replay.txt)" "$summary"
	is "$mode: and as a number" "$(value peak replay.json)" "$peak"

	is "$mode: replay takes the mode of the trace" "$(grep -o '^mode [a-z]* (as recorded)' replay.txt)" "mode $mode (as recorded)"
	is "$mode: and says so in JSON" "$(value mode replay.json) $(value mode_recorded replay.json)" "\"$mode\" \"$mode\""

	is "$mode: nothing is called full speed that waited for memory" "$(grep -c 'within 10 %' replay.txt)" 0
	is "$mode: which is said" "$(grep -c 'recorded with memory on the host' replay.txt)" 1
	is "$mode: in JSON, too" "$(value full_speed_ms replay.json) $(value full_speed_is_at_most replay.json)" "null true"

	# The last evaluation begins as a step does. How long it takes is not known, so it is not among the whole ones.
	is "$mode: report counts the program's steps" "$(sed -n 's/^  \([0-9]*\) steps of .*/\1/p' report.txt)" $steps
	is "$mode: in JSON, too" "$(grep -o '"step_time": *{ *"n": *[0-9]*' report.json | grep -o '[0-9]*$')" $steps
	submissions=$(sed -n 's/.*allocations, \([0-9]*\) submissions, a step is.*/\1/p' replay.txt)
	a_step=$(value submissions_a_step replay.json)
	is "$mode: what replay takes for a step is a hundredth of them" "$((submissions / a_step / 5 * 5))" $steps
done

run static
is "keys that are set go before the trace" "$("$tool" replay --set spill.mode=fast static.trace | grep -o '^mode .*),')" \
	'mode fast (as --set says),'
is "so does a policy that is named" "$("$tool" replay --policy training-fast static.trace | grep -o '^mode .*),')" \
	'mode fast (as the policy says),'
is "and --mode before all" "$("$tool" replay --policy training-fast --mode exact static.trace | grep -o '^mode .*),')" \
	'mode exact (as asked for),'
is "other keys leave the mode alone" "$("$tool" replay --set host.budget=1GiB static.trace | grep -o '^mode .*),')" \
	'mode static (as recorded),'
echo "$n promises, $failed failed"
[ $failed = 0 ]
