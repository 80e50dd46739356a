#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How deep does a call go? Four flows, each on its own thread from its first function to its last, as medians: calls,
# different functions, different files (headers with inline functions too), and depth. The library of a commit is built
# with -finstrument-functions and runs test/bench/walk_job.c on the simulated GPU.
# Usage: scripts/walk.sh COMMIT [FLOW]      FLOW: also lists the files of that flow, as they are entered
#   allocation  cuMemAlloc_v2 of 2 MiB, which makes a chunk, mostly on the host
#   launch      a submission that is tracked, while memory is spilled
#   migration   the beginning of a move, beside running kernels
#   gap         what exact does in a gap in which two pieces are exchanged
set -euo pipefail

commit=${1:?usage: scripts/walk.sh COMMIT [FLOW]} list=${2:-}
cd "$(dirname "$0")/.."
include=$(scripts/setup.sh --headers)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

mkdir "$folder/tree"
git archive "$commit" | tar -x -C "$folder/tree"
# dlsym.c must leave by a jump, which a call at its end would prevent.
cmake -G Ninja -S "$folder/tree" -B "$folder/build" -DCUDA_INCLUDE_DIR="$include" \
	-DCMAKE_C_FLAGS="-finstrument-functions -finstrument-functions-exclude-file-list=dlsym.c,test/" \
	${CMAKE_FLAGS:-} >"$folder/log" 2>&1 && ninja -C "$folder/build" libspillway sim_cuda >>"$folder/log" 2>&1 ||
	{ tail -20 "$folder/log" >&2; exit 2; }
gcc -O1 -shared -fPIC -o "$folder/walk.so" test/bench/walk.c
gcc -O1 -I. -I"$include" -o "$folder/job" test/bench/walk_job.c -L"$folder/build/sim" -l:libcuda.so.1

# walk MODE MIB BLOCKS: prints thread, depth, function and file of each function entered.
walk() {
	LD_LIBRARY_PATH=$folder/build/sim SIM_MEMORY=256MiB WALK=$folder/steps \
		LD_PRELOAD="$folder/walk.so $folder/build/libspillway.so" \
		SPILLWAY_SET=device.budget=32MiB,host.budget=128MiB,spill.mode=$1,report.summary=no "$folder/job" "$2" "$3" 2>/dev/null
	cut -d' ' -f3 "$folder/steps" | sort -u >"$folder/addresses"
	addr2line -f -e "$folder/build/libspillway.so" <"$folder/addresses" | paste - - |
		sed 's|[^\t]*/tree/||; s|:[0-9?]*\( .*\)*$||' | paste "$folder/addresses" - >"$folder/names"
	awk 'NR == FNR { name[$1] = $2 " " $3; next } { print $1, $2, name[$3] }' "$folder/names" "$folder/steps"
}

# flow NAME FIRST LAST MARK TIMES: the walks from an entry of FIRST to that of LAST (-: to the return of FIRST) in which
# MARK is entered so many times (0: any), and the median of each figure.
flow() {
	awk -v first="^($2)\$" -v last="$3" -v mark="$4" -v times="$5" -v list="$([[ $list != "$1" ]] || echo 1)" '
	function leave(t) {
		if (!times || marks[t] == times) print calls[t], functions[t], files[t], deepest[t], order[t]
		walks[t] = 0
	}
	walks[$1] && $2 <= start[$1] { if (last == "-") leave($1); walks[$1] = 0 }
	!walks[$1] && $3 ~ first {
		start[$1] = $2
		walks[$1] = ++n
		calls[$1] = functions[$1] = files[$1] = deepest[$1] = marks[$1] = 0
		order[$1] = ""
	}
	walks[$1] {
		calls[$1]++
		functions[$1] += !seen[walks[$1] " " $3 " " $4]++
		if (!seen[walks[$1] " " $4]++) { files[$1]++; if (list) order[$1] = order[$1] " " $4 }
		if ($2 - start[$1] + 1 > deepest[$1]) deepest[$1] = $2 - start[$1] + 1
		marks[$1] += $3 == mark
		if ($3 == last) leave($1)
	}' "$folder/walked" >"$folder/$1"
	local n figure
	n=$(wc -l <"$folder/$1")
	((n)) || { echo "$1: never seen"; return 1; }
	printf '%-12s' "$1"
	for figure in 1 2 3 4; do printf '%10d' "$(sort -nk$figure "$folder/$1" | sed -n "$(((n + 1) / 2))p" | cut -d' ' -f$figure)"; done
	printf '%10d\n' "$n"
	[[ $list != "$1" ]] || sed -n 1p "$folder/$1" | cut -d' ' -f5- | tr -s ' ' '\n' | sed 's/^/  /'
}

printf '%-12s%10s%10s%10s%10s%10s\n' flow calls functions files depth 'median of'
walk fast 2 48 >"$folder/walked"
flow allocation cuMemAlloc_v2 - chunk_create 1
walk fast 8 6 >"$folder/walked"
flow launch 'submit_cuMemsetD8Async|cuMemsetD8Async' - - 0
flow migration migrate_begin - link_copy 1
walk exact 4 12 >"$folder/walked"
flow gap quiesce_fetch_wishes - migration_exchange 2
