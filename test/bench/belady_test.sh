#!/usr/bin/env bash
# belady_test.sh BELADY FOLDER: the rule on a trace small enough to count by hand, and on the recorded GPT step, whose
# bytes are known from a program of another hand (docs/facts.md, Moving memory: 5.96, 10.0 and 17.1 GB a step).
set -uo pipefail

belady=$1
trace=$2/test/data/gpt-h200.trace.gz
bad=0

field() { # NAME RATIO < output
	awk -v name="$1" -v ratio="$2" '$1 == "belady" && $5 + 0 == ratio { for (i = 1; i < NF; i++) if ($i == name) print $(i + 1) }'
}

expect() { # WHAT GOT LEAST MOST
	if ! awk -v got="$2" -v least="$3" -v most="$4" 'BEGIN { exit !(got != "" && got >= least && got <= most) }'; then
		echo "$1: $2, not within $3 .. $4"
		bad=1
	fi
}

# Three blocks of 1 GB used in turn, room for two: after the first round each round of three uses misses by turns, which
# makes one and a half a round for the rule that knows the future, and three for one that takes the oldest.
rounds=9
small=$({
	for id in 0 1 2; do echo "A $id 1000000000"; done
	for ((round = 0; round < rounds; round++)); do
		for id in 0 1 2; do echo "L $id$id $id:0"; done
	done
} | "$belady" --steps $rounds --ratio 1.5)
expect 'three in turn' "$(field in_gb 1.5 <<<"$small")" 1.2 1.8
expect 'submissions a step' "$(field launches 1.5 <<<"$small")" 3 3

# A block that ends gives its room back and is not brought in; what never was written is not, either.
freed=$({
	for ((round = 0; round < rounds; round++)); do
		printf 'A %s 1000000000\nL 1 %s:0\nF %s\n' $round $round $round
	done
} | "$belady" --steps $rounds --budget 1000000000)
expect 'freed blocks' "$(field in_gb 1 <<<"$freed")" 0 0
expect 'freed blocks fit' "$(field over 1 <<<"$freed")" 0 0

# What does not fit at all is counted, and goes over the link each time.
large=$({
	echo 'A 0 2000000000'
	for ((round = 0; round < rounds; round++)); do echo 'L 1 0:0'; done
} | "$belady" --steps $rounds --ratio 2)
expect 'too large' "$(field in_gb 2 <<<"$large")" 2 2

job=$(gzip -dc "$trace" | "$belady" --steps 8 --ratio 1.25 --ratio 1.5 --ratio 2)
expect 'GPT 1.25' "$(field in_gb 1.25 <<<"$job")" 5.90 6.02
expect 'GPT 1.5' "$(field in_gb 1.5 <<<"$job")" 9.9 10.1
expect 'GPT 2' "$(field in_gb 2 <<<"$job")" 16.9 17.2
expect 'GPT submissions a step' "$(field launches 2 <<<"$job")" 1099 1099
fine=$(gzip -dc "$trace" | "$belady" --grain 2MiB --steps 8 --ratio 2)
expect 'GPT 2 at 2 MiB is less' "$(field in_gb 2 <<<"$fine")" 8 17

if ((bad)); then
	printf '%s\n' "$small" "$freed" "$large" "$job" "$fine"
fi
exit $bad
