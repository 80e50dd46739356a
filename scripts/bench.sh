#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh [BUILD]: what Spillway costs. Runs build/bench/bench natively and under Spillway in turn, so that both meet the
# same machine, and makes one table. ROUNDS=5 sets how often; no round begins after LIMIT seconds (0 = no limit). The bars
# are the project's targets; a missed bar is printed, and decides nothing: the exit status is 0 when there are results.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
. "$root/scripts/common.sh"

rounds=${ROUNDS:-5}
limit=${LIMIT:-0}
bench=$build/bench/bench
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Variables of both sides, and of Spillway's side alone. They go to the measured programs only, not to this script.
both=()
shim=("LD_PRELOAD=$build/libspillway.so" SPILLWAY_POLICY=heap SPILLWAY_SET=report.summary=no)

choose_gpu() {
	if has_gpu; then
		starts=12
		echo "Benchmarks on a real GPU: $(gpu_name)"
	else
		starts=10
		both=("LD_LIBRARY_PATH=$build/sim" SIM_MEMORY=8GiB SIM_HOST_MEMORY=8GiB)
		cat <<-'TEXT'
			Benchmarks on the SIMULATED GPU. Its driver is CPU code of ours: the absolute figures below are not those of any
			GPU or driver, ratios to them say little, and only differences (what Spillway adds) and growth mean something.
		TEXT
	fi
}

# measure SIDE VARIABLE...: all groups once. A group that fails leaves its rows empty and a line in the log.
measure() {
	local side=$1 groups
	shift
	for groups in "launch alloc query submit" live memory; do
		# shellcheck disable=SC2086 # several groups are several words
		timeout 60 env "$@" "$bench" $groups >>"$work/$side" 2>>"$work/log" || echo "$side: $groups: failed" >>"$work/log"
	done
	# Each of these processes prints its start_parts, too.
	spawned "$side" start_use "$starts" "$@" "$bench" use
	spawned "$side" start_true 40 "$@" /bin/true
}

spawned() { # SIDE NAME COUNT VARIABLE... PROGRAM...
	local side=$1 name=$2
	shift 2
	timeout 60 "$bench" spawn "$@" 2>>"$work/log" | sed "s/^spawn /$name /" >>"$work/$side" ||
		echo "$side: $name: failed" >>"$work/log"
}

# The median of the rounds' medians, and the least and most of them: "median least most unit", or nothing.
over_rounds() { # SIDE NAME
	awk -v name="$2" '$1 == name { print $2, $5 }' "$work/$1" 2>/dev/null | sort -n |
		awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)], v[1], v[NR], $2 }'
}

# row LABEL KIND BAR NAME [NAME2]
#   ratio  NAME, shim / native, at most BAR     added  shim - native in NAME's unit, at most BAR
#   growth NAME2 / NAME under the shim, at most BAR; beside it the native one
#   alone  NAME under the shim, which is a difference measured in one process, at most BAR
#   heap   as added; the bar grows by 64 B for each 2 MiB of the heap of NAME2
row() {
	{
		over_rounds native "$4" | sed 's/^/native /'
		over_rounds shim "$4" | sed 's/^/shim /'
		[ -z "${5:-}" ] || over_rounds native "$5" | sed 's/^/native2 /'
		[ -z "${5:-}" ] || over_rounds shim "$5" | sed 's/^/shim2 /'
	} | awk -v label="$1" -v kind="$2" -v bar="$3" '
		# The unit that suits a value: sets scale and name.
		function fit(value, unit) {
			if (value < 0) value = -value
			scale = 1; name = unit
			if (unit == "ns" && value >= 1e6) { scale = 1e6; name = "ms" }
			else if (unit == "ns" && value >= 1e3) { scale = 1e3; name = "us" }
			else if (unit == "us" && value >= 1e3) { scale = 1e3; name = "ms" }
			else if (unit == "KiB" && value >= 1024) { scale = 1024; name = "MiB" }
		}
		function short(value) { return sprintf(scale == 1 ? "%.0f" : "%.2f", value / scale) }
		function human(value) { fit(value, unit); return short(value) " " name }
		function spread(side) {
			if (!(side in median)) return "n/a"
			fit(median[side], unit)
			return short(median[side]) " (" short(least[side]) " .. " short(most[side]) ") " name
		}
		function growth(side) {
			if (!(side in median) || !((side 2) in median)) return "n/a"
			return human(median[side]) " -> " human(median[side 2])
		}
		{ median[$1] = $2; least[$1] = $3; most[$1] = $4; unit = unit ? unit : $5 }
		END {
			native = spread("native"); shim = spread("shim")
			limit = bar == "" ? "-" : (kind == "ratio" || kind == "growth") ? sprintf("<= x %.2f", bar) : ""
			if (kind == "growth") {
				native = growth("native"); shim = growth("shim")
				known = shim != "n/a"
				value = known && median["shim"] ? median["shim2"] / median["shim"] : 0
				text = sprintf("x %.2f", value)
			} else if (kind == "alone") {
				known = "shim" in median
				native = "-"
				value = median["shim"]
				text = (value < 0 ? "" : "+") human(value)
				limit = "<= " human(bar)
			} else if (kind == "ratio") {
				known = "native" in median && "shim" in median
				value = known && median["native"] ? median["shim"] / median["native"] : 0
				text = sprintf(value < 0.1 ? "x %.4f" : "x %.2f", value)
			} else {
				known = "native" in median && "shim" in median && (kind != "heap" || "shim2" in median)
				if (kind == "heap") bar += median["shim2"] / 2048 * 64 / 1024
				value = median["shim"] - median["native"]
				text = (value < 0 ? "" : "+") human(value)
				if (bar != "") limit = "<= " human(bar)
			}
			met = bar == "" ? "" : !known ? "n/a" : value <= bar ? "yes" : "NO"
			printf "%-32s %-26s %-26s %-10s %-12s %s\n", label, native, shim, known ? text : "n/a", limit, met
		}'
}

table() {
	printf '\n%-32s %-26s %-26s %-10s %-12s %s\n' what native Spillway change bar met
	row 'kernel launch' added '' launch
	row 'added to it, in one process' alone 20 launch_added
	row 'alloc + free 4 KiB' ratio '' alloc_4KiB
	row 'alloc + free 64 KiB' ratio 1.0 alloc_64KiB
	row 'alloc + free 1 MiB' ratio '' alloc_1MiB
	row 'alloc + free 2 MiB' ratio '' alloc_2MiB
	row 'alloc + free 64 MiB' ratio 0.10 alloc_64MiB
	row 'alloc + free 1 GiB' ratio '' alloc_1GiB
	row 'pair, 100 -> 100,000 live' growth 1.5 live_100 live_100000
	row 'host memory per live allocation' added '' live_memory
	row 'pointer query: type' ratio 1.0 query_type
	row 'pointer query: range start' ratio 1.0 query_range
	row 'pointer query: four at once' ratio 1.0 query_four
	row "call of memset, $size" ratio 2.0 submit_set
	row "call of copy DtoD, $size" ratio 2.0 submit_DtoD
	row "call of copy HtoD, $size" ratio 2.0 submit_HtoD
	row 'host memory, large heap' heap 16384 memory memory_heap
	row 'start: names, first allocation' added 5000 start_parts
	row 'process start with CUDA' added 5000 start_use
	row 'process start without CUDA' added 1000 start_true
}

choose_gpu
size='1 GiB'
[ ${#both[@]} = 0 ] || size='64 MiB'
for ((round = 0; round < rounds; round++)); do
	[ "$limit" = 0 ] || [ $round = 0 ] || [ $SECONDS -lt "$limit" ] || break
	measure native "${both[@]}"
	measure shim "${both[@]}" "${shim[@]}"
done
table
echo
echo "Medians of $round rounds, native and Spillway in turn; in brackets the least and most of the rounds' medians."
echo "The step of a training job (target: at most x 1.01) is measured by scripts/gpu.sh gpt."
if [ -s "$work/log" ]; then
	echo "What went wrong on the way:"
	sort "$work/log" | uniq -c | head -n 20
fi
[ -s "$work/native" ] && [ -s "$work/shim" ]
