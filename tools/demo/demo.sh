#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh TOOL [option...]: `spillway demo`. Trains a small network three times with one program: with enough device memory,
# with too little, and with too little under Spillway; then compares what the first and the third run printed. The program
# and a simulated GPU lie in a folder that no loader searches, so that nobody else finds that libcuda.so.1.
limit=64MiB  # what the job may have in the limited runs; it asks for about twice that
budget=56MiB # what Spillway keeps for blocks on the simulated GPU, whose driver needs a little of the limit, too
size='64 100' # width and steps on the simulated GPU, where the CPU also copies what moves

refuse() {
	echo "spillway: $1" >&2
	exit 2
}

print_help() {
	cat <<'END'
usage: spillway demo [option...]

Trains a small network with more device memory than there is, without and with Spillway, on a simulated GPU:
the arithmetic and the data are real, done by the CPU. No GPU is needed.

options:
  --job PROGRAM  the job, built for this machine's GPU (test/job/train.c), instead of the simulated GPU and its job

Exit status: 0 the job ran out of memory without Spillway and printed the same losses with it, 1 it did not,
2 wrong usage, or the demo is not installed.

example:
  spillway demo
END
	exit 0
}

tool=$1 job=
shift
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) print_help ;;
	--job=*) job=${1#--job=} ;;
	--job)
		[ $# -gt 1 ] || refuse '"--job" needs a value; `spillway demo --help` gives an example'
		job=$2
		shift
		;;
	-*) refuse "unknown option \"$1\"; \`spillway demo --help\` lists them" ;;
	*) refuse "$1 is one argument too many; \`spillway demo --help\` says what there is" ;;
	esac
	shift
done

# The build folder, then an installed tree.
folder=${tool%/*} simulated=
if [ -n "$job" ]; then
	[ -e "$job" ] || refuse "--job: $job: No such file or directory"
	case $job in /*) ;; *) job=$PWD/$job ;; esac
elif [ -x "$folder/job/train" ]; then
	job=$folder/job/train simulated=$folder/sim
else
	for place in "$folder"/../lib "$folder"/../lib64 "$folder"/../lib/*; do
		[ -x "$place/spillway/demo/train" ] || continue
		simulated=$place/spillway/demo job=$place/spillway/demo/train
		break
	done
	[ -n "$job" ] || refuse "the demo's job is not installed beside this tool; \`make demo\` builds it"
fi

here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
trap 'exit 130' INT
bold='' plain=''
[ ! -t 1 ] || { bold=$(printf '\033[1m') plain=$(printf '\033[0m'); }
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_SET

head_line() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
indented() { sed 's/^/    /' "$1"; }

# run NAME MEMORY [COMMAND...]: the job, by COMMAND; its output in $here/NAME.out and .err, its exit status in $status
run() {
	name=$1 memory=$2
	shift 2
	if [ -n "$simulated" ]; then
		# shellcheck disable=SC2086 # two arguments
		SIM_MEMORY=$memory LD_LIBRARY_PATH=$simulated${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@" "$job" $size
	else
		"$@" "$job"
	fi >"$here/$name.out" 2>"$here/$name.err"
	status=$?
}

# The losses of a few steps; all are compared.
print_losses() {
	awk '/^step / { n = $2 + 0 } /^step / && (n == 1 || (n && n % 100 == 0)) || /^final/ || /^device memory asked/ { print "    " $0 }' \
		"$here/$1.out"
}

fail() { # WHAT WENT WRONG
	head_line 'Verdict: FAILED'
	echo "  $1."
	exit 1
}

echo 'Spillway demo: training with more device memory than there is'
[ -z "$simulated" ] || echo 'GPU: simulated. The arithmetic and the data are real, done by the CPU.'

head_line '1. Enough memory'
run enough 1GiB
print_losses enough
[ $status = 0 ] || {
	indented "$here/enough.err"
	fail 'run 1 did not finish'
}

if [ -n "$simulated" ]; then
	head_line "2. Only $limit, without Spillway"
	run little $limit
else
	head_line "2. Only $limit, nothing may spill"
	echo '  (A real GPU cannot be made smaller: Spillway sets the limit here, as a budget with spilling off.)'
	budget=$limit
	run little $limit "$tool" run --policy heap --set "device.budget=$limit,spill.mode=off" --
fi
grep -o -m 1 'train: out of memory.*' "$here/little.err" | sed 's/^/    /'
echo "    exit status $status"
[ $status = 1 ] && grep -q 'train: out of memory' "$here/little.err" ||
	fail 'run 2 was to end with out of memory and did not'

head_line "3. Only $limit, with Spillway: the very same binary, LD_PRELOAD of libspillway.so"
run spilled $limit "$tool" run --policy heap --set "device.budget=$budget" --
print_losses spilled
echo
indented "$here/spilled.err"
[ $status = 0 ] || {
	echo "    exit status $status"
	fail 'run 3 did not finish'
}

head_line Comparison
for name in enough spilled; do grep -E '^(step|final)' "$here/$name.out" >"$here/$name"; done
if [ -s "$here/enough" ] && cmp -s "$here/enough" "$here/spilled"; then
	echo "  The $(($(wc -l <"$here/enough"))) lines of losses and accuracies that runs 1 and 3 printed are equal bit for bit."
	head_line 'Verdict: good'
	echo '  Out of memory without Spillway; with it the job finished, with the same results.'
	exit 0
fi
echo '  The losses of runs 1 and 3 differ.'
fail 'the losses differ'
