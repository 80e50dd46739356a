#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# checker.sh PROGRAM gpu|sim: checker.c (built as PROGRAM) natively, then under Spillway in every mode at 1.5 and 2 times
# its budget; fast with what launches show, since what they do not may stop it (FAST_KIND=all tries that as well).
# Prints a table; the log is OUT/checker.log.
#
# BUILD: where libspillway.so is; PRELOAD: all of LD_PRELOAD, where that is not enough. MODES="static exact fast" RATIOS="1.5 2" FAST_KIND=visible SEED MIB THREADS ROUNDS LIMIT
# (seconds for all). Exit status: 0 every byte right in all, 1 not. In sim, a mode that this build's policies do not know
# is no failure.
set -uo pipefail

program=$1
where=$2
build=${BUILD:-build}
out=${OUT:-.}
limit=${LIMIT:-300}
seed=${SEED:-$(date +%s)}
if [ "$where" = sim ]; then
	mib=${MIB:-96} threads=${THREADS:-2} rounds=${ROUNDS:-10} each=30
	export LD_LIBRARY_PATH=$build/sim SIM_MEMORY=512MiB SIM_HOST_MEMORY=512MiB
	host=384MiB
else
	mib=${MIB:-6144} threads=${THREADS:-4} rounds=${ROUNDS:-60} each=12
	host=16GiB
fi
log=$out/checker.log
: >"$log"
bad=0

row() {
	printf '%-28s %-10s %s\n' "$@"
}

# run NAME VARIABLES... -- ARGUMENTS...: sets output and status
run() {
	local name=$1 variables=() left=$((limit - SECONDS))
	shift
	while [ "$1" != -- ]; do
		variables+=("$1")
		shift
	done
	shift
	[ "$left" -gt 5 ] || {
		output='' status=124
		return
	}
	output=$(timeout -k 5 $((left < 3 * each ? left : 3 * each)) env "${variables[@]}" "$program" "$@" 2>&1)
	status=$?
	printf '==== %s: %s, exit status %s: %s\n%s\n' "$name" "$*" "$status" "${variables[*]:-}" "$output" >>"$log"
}

said() {
	grep -E '^checker: ' <<<"$output" | tail -n 1 | sed 's/^checker: //'
}

run native -- "$mib" "$threads" "$rounds" "$seed" all "$each"
if [ $status -ne 0 ]; then
	row native FAILED "$(said)"
	exit 1
fi
need=$(awk '$1 == "need" { print int($2 / 1048576) }' <<<"$output")
row "native, $need MiB" right "$(said)"
run spoiled -- 16 1 1 "$seed" spoil 5
[ $status = 1 ] || row 'a spoiled byte' UNSEEN "$(said)"
[ $status = 1 ] || bad=1

for mode in ${MODES:-static exact fast}; do
	for ratio in ${RATIOS:-1.5 2}; do
		name="$mode at $ratio"
		kind=all
		[ "$mode" != fast ] || kind=${FAST_KIND:-visible}
		budget=$(awk -v need="$need" -v ratio="$ratio" 'BEGIN { print int(need / ratio) }')
		run "$name" "LD_PRELOAD=${PRELOAD:-$build/libspillway.so}" SPILLWAY_POLICY=heap \
			"SPILLWAY_SET=device.budget=${budget}MiB,host.budget=$host,spill.mode=$mode,report.summary=full" -- \
			"$mib" "$threads" "$rounds" "$seed" "$kind" "$each"
		if ! grep -q "spill $mode" <<<"$output" && [ $status = 0 ]; then
			row "$name" 'NOT SERVED' "$(grep -m 1 '^spillway:' <<<"$output")"
			[ "$where" = sim ] || bad=1
		elif [ $status = 0 ]; then
			row "$name" right "$(said); $(grep -oE '(spilled .* allocations|moved .* pieces)' <<<"$output" |
				tr '\n' ' ')"
		elif [ $mode-$kind = fast-all ] && grep -q '^spillway:.*spill.mode: exact' <<<"$output"; then
			row "$name" 'stopped' 'as defined: it said why, and what avoids it'
		elif [ $status = 124 ] || [ $status = 137 ]; then
			row "$name" 'TIMED OUT' ''
			bad=1
		else
			row "$name" FAILED "$(said) $(grep '^spillway:' <<<"$output" | grep -vi summary | tail -n 2)"
			bad=1
		fi
	done
done
[ $bad = 0 ] || echo "repeat with SEED=$seed; see $log"
exit $bad
