#!/usr/bin/env bash
# How many source files does a reader pass: from cuMemAlloc to the first chunk, and from a launch under pressure to the
# planner? The library of a commit is built with -finstrument-functions and runs test/bench/walk_job.c on the simulated
# GPU. Files entered are counted once each, headers with inline functions too.
# Usage: scripts/walk.sh COMMIT [-l]      -l: list the files in the order in which they are entered
#   alloc   from the entry of cuMemAlloc_v2 to the first function of heap/chunk.c, on the program's thread
#   launch  the median of 21: from the entry of a launch (a set), when something has spilled, to its return on the
#           program's thread, and on the mover's thread from there to the first function of plan.c
set -euo pipefail

commit=${1:?usage: scripts/walk.sh COMMIT [-l]} list=${2:-}
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
export LD_LIBRARY_PATH=$folder/build/sim SIM_MEMORY=256MiB
WALK=$folder/steps LD_PRELOAD="$folder/walk.so $folder/build/libspillway.so" \
	SPILLWAY_SET=device.budget=32MiB,host.budget=64MiB,spill.mode=fast,report.summary=no "$folder/job" 2>/dev/null

# thread depth function file
cut -d' ' -f3 "$folder/steps" | sort -u >"$folder/addresses"
addr2line -f -e "$folder/build/libspillway.so" <"$folder/addresses" | paste - - |
	sed 's|[^\t]*/tree/||; s|:[0-9?]*\( .*\)*$||' | paste "$folder/addresses" - >"$folder/names"
awk 'NR == FNR { name[$1] = $2 " " $3; next } { print $1, $2, name[$3] }' "$folder/names" "$folder/steps" >"$folder/walked"

# What is walked, by file, in order. The first allocation also reads the policy; the third is followed.
alloc() {
	awk '$3 == "cuMemAlloc_v2" && ++n == 3 { thread = $1 }
		n >= 3 && $1 == thread { if (!seen[$4]++) print $4; if ($4 ~ /heap\/chunk\.c$/) exit }' "$folder/walked"
}

# launch N: the Nth launch: the program's thread until it has returned, and the mover's until it asks the planner.
launch() {
	awk -v wanted="$1" '$2 == 0 && $3 ~ /^(submit_)?cuMemsetD8Async$/ { n++; if (n == wanted) thread = $1 }
		n == wanted && $1 == thread && !seen[$4]++ { print $4 }
		n >= wanted && $1 != thread { if (!seen[$4]++) print $4; if ($4 ~ /\/plan\.c$/) exit }' "$folder/walked"
}

alloc >"$folder/alloc"
echo "alloc: $(wc -l <"$folder/alloc") files"
[[ $list != -l ]] || sed 's/^/  /' "$folder/alloc"
# What the mover is in the middle of when a launch comes differs from launch to launch: the median of several counts.
for n in $(seq 100 5 200); do
	launch "$n" >"$folder/launch.$n"
	echo "$(wc -l <"$folder/launch.$n") $n"
done | sort -n >"$folder/launches"
read -r files n < <(sed -n 11p "$folder/launches")
echo "launch: $files files ($(head -1 "$folder/launches" | cut -d' ' -f1) .. $(tail -1 "$folder/launches" | cut -d' ' -f1) in 21 launches)"
[[ $list != -l ]] || sed 's/^/  /' "$folder/launch.$n"
