#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# checked.sh [-o FILE] PROGRAM [ARG...]: runs a program in `fast` with checked launches (spillway-limits(7)), again and again until
# no run refutes another function, and prints by origin how many functions were launched, checked and refuted in the last run,
# then what was not checked, and the refuted functions. FILE: the list, which is kept and may be gone on with.
# BUILD: the folder of libspillway.so (build). CHECKED_RUNS: the most runs (100).
# Exit status: 0 nothing was refuted; 1 something was; 2 wrong usage, or the program fails although nothing new was refuted.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${BUILD:-$root/build}" && pwd) || exit 2
list=
while getopts o: option; do
	case $option in
	o) list=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
(($#)) || { echo "usage: checked.sh [-o FILE] PROGRAM [ARG...]" >&2; exit 2; }
if [[ -z $list ]]; then
	folder=$(mktemp -d) || exit 2
	trap 'rm -rf "$folder"' EXIT
	list=$folder/list
fi
(umask 077 && touch "$list") && list=$(realpath -s "$list") || exit 2

# What is refuted, or was being checked when a process was killed: STATE and HASH, one a line.
refuted() {
	awk -F'\t' '$1 ~ /^[?!-]$/ && state[$2] != "!" { state[$2] = $1 }
		END { for (hash in state) if (state[hash] != "-") print state[hash], hash }' "$list" | sort
}

for ((run = 1; run <= ${CHECKED_RUNS:-100}; run++)); do
	before=$(refuted) size=$(stat -c %s "$list")
	SPILLWAY_CHECK=$list SPILLWAY_SET=${SPILLWAY_SET:+$SPILLWAY_SET,}spill.mode=fast \
		LD_PRELOAD=$build/libspillway.so${LD_PRELOAD:+:$LD_PRELOAD} "$@"
	status=$?
	[[ $(refuted) != "$before" ]] || break
	echo "checked: run $run ended with $status and refuted $(comm -13 <(echo "$before") <(refuted) | wc -l) more" >&2
done

echo "checked: $run runs, the last one ended with $status"
awk -F'\t' '
	function origin(library) {
		if (library ~ /^libcublas/) return "cuBLAS"
		if (library ~ /^libcudnn/) return "cuDNN"
		if (library ~ /^lib(torch|c10)/) return "PyTorch"
		if (library ~ /triton/) return "Triton"
		return library
	}
	$1 == "n" { from[$2] = origin($3); name[$2] = $4 }
	$1 ~ /^[?!-]$/ && state[$2] != "!" { state[$2] = $1 }
	FNR == NR { next }
	$1 == "=" { launches[$2] += $3; checked[$2] += $4 }
	$1 == "+" { left[$2] += $3 }
	END {
		for (hash in launches) {
			o = from[hash]
			functions[o]++
			of[o] += launches[hash]
			checks[o] += checked[hash]
			n_checked[o] += checked[hash] > 0
		}
		for (hash in state)
			if (state[hash] != "-") n_refuted[from[hash]] += state[hash] == "!"
		printf "%-28s %10s %10s %10s %10s %10s\n", "origin", "functions", "checked", "refuted", "launches", "checked"
		for (o in n_refuted) functions[o] += 0
		for (o in functions)
			printf "%-28s %10d %10d %10d %10d %10d\n", o, functions[o], n_checked[o], n_refuted[o], of[o], checks[o] | "sort"
		close("sort")
		for (reason in left) printf "not checked: %d, %s\n", left[reason], reason | "sort"
		close("sort")
		for (hash in state)
			if (state[hash] != "-")
				printf "%s: %s\t%s\n", state[hash] == "!" ? "refuted" : "died in", from[hash], name[hash] | "sort"
	}' "$list" <(tail -c +$((size + 1)) "$list")
[[ $status == 0 ]] || exit 2
[[ -z $(refuted) ]]
