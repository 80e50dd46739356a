#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# replay_tool_test.sh TOOL CASES SOURCE_DIR: what `spillway replay` promises, on the recorded GPT job and on small ones.
tool=$1
cases=$2
gpt=$3/test/data/gpt-h200.trace.gz
. "${0%/*}/../expect.sh"
here=$(mktemp -d /tmp/replay_tool_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
replay() { "$tool" replay "$@"; }

# Twelve blocks of 64 MiB, named in turn, without times (turn); one of 100 and one of 50 MiB that nothing names (two).
"$cases" . || exit 1
printf 'version: 1\nspill.mode: fast\nhost.budget: 64GiB\nrules:\n- {name: large things, match: {size: ">= 90MiB"}, use: deny}\n' \
	>deny.yaml
printf 'version: 1\nspill.mode: static\ndevice.budget: 512MiB\n' >own.yaml

expect 'the GPT job is read, its step found, its smallest good budget said' 0 \
	'*269 allocations, 9186 submissions, a step is 1099 of them*peak 14.5 GiB*70.0 ms*mode fast*\
*14.5 GiB 100.0 %*100 %*5.8 GiB  40.0 %*predicted*is the smallest budget within 10 % of full speed*' '' \
	replay --mode fast --step-time 70 "$gpt"
expect 'budgets may be sizes and shares' 0 '*  7.0 GiB *  5.8 GiB  40.0 %*' '' \
	replay --mode fast --step-time 70 --budget 40%,7GiB "$gpt"
expect 'the mode is exact where nothing says otherwise' 0 '*mode exact*' '' replay --step-time 1 turn.trace
expect 'a trace without times says so and what to do' 0 '*n/a*say --step-time*' '' replay turn.trace
expect 'a trace of allocations alone has a peak and no times' 0 '*peak 150.0 MiB*n/a*allocations only*' '' replay two.trace
expect 'and can fail to fit' 1 '*cannot run*' \
	'*with 120.0 MiB of device memory it cannot run: allocation 2 (event 2) of 50.0 MiB, no rule: no device memory, 100.0 MiB*' \
	replay --mode off --budget 120MiB two.trace
expect 'over device and host budget is told by its event' 1 '*cannot run*' \
	'*allocation 9 (event 9) of 64.0 MiB, no rule: no memory, 512.0 MiB of 512.0 MiB on the device and 0 B of 32.0 MiB on the host*' \
	replay --mode exact --host-budget 32MiB --budget 512MiB turn.trace
expect 'a rule that denies is named' 1 '*cannot run*' '*allocation 1 (event 1) of 100.0 MiB, rule large things: the policy gives*' \
	replay --policy deny.yaml two.trace
expect 'a budget that is asked for and cannot run ends with 1, others are answered' 1 '*1.0 GiB *100 %*cannot run*' '*' \
	replay --mode off --step-time 9 --budget 1GiB,256MiB turn.trace
expect 'a sweep ends with 0 as long as its largest budget runs, and says once why others do not' 0 '*cannot run*' \
	'spillway: with 7[0-9][0-9].0 MiB *cannot run: allocation 12 *spill.mode is off' replay --mode off turn.trace
for policy in observe passthrough; do
	expect "what $policy leaves to the driver no budget makes smaller" 0 \
		'*768.0 MiB of it outside the heap*70.* %*less than what lies outside the heap*No budget below what all of it takes*' '' \
		replay --policy $policy --step-time 9 turn.trace
done
expect 'the policy says the mode, and its budget is among the lines' 0 '*mode static*512.0 MiB  66.7 %*' '' \
	replay --policy own.yaml turn.trace
expect 'keys may be set on top' 0 '*mode fast*' '' replay --policy own.yaml --set spill.mode=fast turn.trace
expect '--mode goes before the policy' 0 '*mode exact*' '' replay --policy own.yaml --mode exact turn.trace
expect 'JSON has a line for each budget, and null for what is not known' 0 \
	'{"schema": 1, "trace": "two.trace", *"submissions": 0, *"full_speed_ms": null, *"best_budget": null, *"budget": 134217728, "runs": true, "step_ms": null*' \
	'' replay --json --budget 128MiB two.trace
expect 'JSON of what cannot run says why' 1 '*"runs": false, "step_ms": null*"problem": "allocation 2 *' '*' \
	replay --json --mode off --budget 128MiB two.trace
if command -v python3 >/dev/null; then
	replay --json --mode fast --step-time 70 --budget 80%,50% "$gpt" >good.json
	expect 'JSON is JSON' 0 '*' '' python3 -m json.tool good.json
fi

# What the pages print as predictions of that job is what is predicted.
for mode in fast exact static; do
	replay --json --mode $mode --step-time 70 --budget 11803MiB,9836MiB,7377MiB "$gpt" |
		sed -n 's/.*"budget": \(12376342528\|10313793536\|7735345152\),.*"step_ms": \([0-9.]*\),.*/\2/p'
done | awk '{ printf "%.0f\n", $1 }' >said.txt
said=$(tr '\n' ' ' <said.txt)
expect 'replay(1) prints its predictions' 0 "$said" '' \
	sh -c 'sed -n "s/^\.It .* Ta [12][0-9.]* Ta \([0-9]*\) Ta [0-9]*$/\1/p" "$1" | tr "\n" " "' sh "$3/tools/man/spillway-replay.1"
expect 'so does tuning.md, of fast and exact' 0 "$(head -n 6 said.txt | tr '\n' ' ')" '' \
	awk -F ' *[|] *' '$2 ~ /^(1.25|1.5|2.0)$/ { f = f $5 " "; e = e $3 " " } END { printf "%s%s", f, e }' "$3/docs/tuning.md"
expect 'and results.md' 0 "$said" '' \
	sh -c 'sed -n "/^## What replay/,/^## Other/p" "$1" | grep "^| .\(fast\|exact\|static\)." | grep -o "[0-9][0-9]* (" | tr -d "(\n"' sh \
	"$3/docs/results.md"

expect 'help' 0 'usage: spillway replay *' '' replay --help
expect 'a trace is needed' 2 '' '*one trace is needed*' replay
expect 'one trace' 2 '' '*one trace is needed*' replay a b
expect 'unknown options are told' 2 '' '*unknown option "--bugdet"*' replay --bugdet 5 turn.trace
expect 'a missing value is told' 2 '' '*needs a value*' replay turn.trace --mode
for budget in 5 0% -5% 1001% 5GB, 1KiB 1.5.5% '' % 5x; do
	expect "the budget '$budget' is told" 2 '' 'spillway: --budget: *' replay --budget "$budget" turn.trace
done
for time in 0 -1 x 1e9 1.234 '' 7ms; do
	expect "the time '$time' is told" 2 '' 'spillway: --step-time: *' replay --step-time "$time" turn.trace
done
expect 'modes are told' 2 '' '*--mode: "quick" is none of off, static, exact and fast' replay --mode quick turn.trace
expect 'steps are counted from 1' 2 '' '*--steps: *' replay --steps 0 turn.trace
expect 'a device that has nothing is told' 2 '' '*nothing was allocated on device 3*' replay --device 3 turn.trace
expect 'a policy with an error is told' 2 '' '*nosuch*' replay --policy ./nosuch.yaml turn.trace
expect 'a missing trace is told' 2 '' '*"none": cannot be opened: No such file*' replay none
head -c 30000 "$gpt" >half.gz
expect 'of half a gzipped file what can be read is used, and that is told' 0 '*' '*the trace is cut off at its end*' replay half.gz
printf 'SPLWTRC\nmore' | gzip >packed.trace
expect 'what a gzipped file holds is looked at as any other' 2 '' '*"packed.trace": its head is not whole' replay packed.trace
expect 'what does not fit is told with its number' 0 '*' '*1 events do not fit*event 2*' replay strange.trace

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
