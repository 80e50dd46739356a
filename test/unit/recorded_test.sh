#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# recorded_test.sh RECORDED SOURCE_DIR [--update]: what the end of a run says to change, the line that costs most, and the policy
# that --fit would write, for the recorded jobs of test/data/recorded, compared to the letter. --update writes the texts anew,
# to be looked at with git diff.
# scripts/advice.sh --record says how the jobs were recorded.
recorded=$1 golden=$2/test/data/recorded update=$3
failed=0
n=0
for job in "$golden"/*.figures; do
	n=$((n + 1))
	said=$("$recorded" say "$job" 2>&1) || { failed=$((failed + 1)); echo "FAILED: $job: $said"; continue; }
	[ "$update" = --update ] && echo "$said" >"${job%.figures}.txt"
	for line in 'summary of process' '  cost: ' '  change: ' '  costs most: '; do
		grep -q "^$line" <<<"$said" || { failed=$((failed + 1)); echo "FAILED: $job: no line \"$line\""; }
	done
	diff "${job%.figures}.txt" - <<<"$said" || { failed=$((failed + 1)); echo "FAILED: $job says something else (>)"; }
done
[ $n -ge 3 ] || { failed=$((failed + 1)); echo "FAILED: $n recorded jobs"; }
echo "$n promises, $failed failed"
[ $failed = 0 ]
