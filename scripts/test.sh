#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run the tests of a build folder. The last line but one says how long it took and how much processor time it used, the
# last one is "N passed, N failed, N skipped".
# Usage: scripts/test.sh [-d] [-b COMMAND] BUILD [ctest arguments]
#   -d  by day: without those that test/nightly.txt leaves to the night
#   -b  builds the folder first; its time counts, too
set -uo pipefail
usage='usage: scripts/test.sh [-d] [-b COMMAND] BUILD [ctest arguments]'

SECONDS=0 build_command='' tier=()
while getopts db: option; do
	case $option in
	d) tier=(-LE '^nightly$') ;;
	b) build_command=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
build=${1:?$usage}
shift
if [[ -n $build_command ]]; then
	bash -c "$build_command" || exit
fi
log=$(mktemp)
used=$(mktemp)
cores=$(mktemp)
trap 'rm -f "$log" "$used" "$cores"' EXIT

# As many at once as the processors have use for: each test has its share of one, in percent (test/costs.txt), and those
# that wait for most of their time run beside those that compute. The shares add up to a fifth more than there is, for none
# is used all the time. Twice as many tests as processors, whatever they do, took 2114 s of CPU on two: the threads of a
# program under test that wait for each other by looking again and again look more often. A sanitizer's build needs
# several times the processor time, so half as many run at once there.
share=120
grep -qs '^SPILLWAY_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" && share=60
slots=$((share * $(nproc)))
((slots >= 100)) || slots=100 # what one test may need
printf '{"version": {"major": 1, "minor": 0}, "local": [{"cores": [{"id": "all", "slots": %d}]}]}\n' $slots >"$cores"
ctest --test-dir "$build" --output-on-failure --parallel $((4 * $(nproc))) --resource-spec-file "$cores" "${tier[@]}" "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

# Those that cannot run under a sanitizer are disabled: with the reason for each.
list=$(cd "$(dirname "$0")/../test" && pwd)/sanitizers.txt
sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .*\*\*\*Not Run \(Disabled\).*/\1/p' "$log" | while read -r name; do
	awk -v name="$name" '$1 == name { $2 = ""; sub(/^[^ ]+ +/, ""); print "not run here: " name ": " $0 }' "$list"
done

# ctest's own summary counts skipped tests as passed; count the lines instead.
skipped=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#.*\*\*\*(Skipped|Not Run \(Disabled\))' "$log")
failed=$(grep -E '^ *[0-9]+/[0-9]+ Test +#.*\*\*\*(Failed|Timeout|Exception|Not Run)' "$log" | grep -vc 'Not Run (Disabled)')
total=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#' "$log")
if ((total == 0)); then
	echo "no test ran" >&2
	exit 1
fi
# Of this shell and all that it started and waited for; not in a subshell, which would count its own.
LC_ALL=C times >"$used"
awk -v seconds=$SECONDS '
	{ for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); sum[i] += 60 * part[1] + part[2] } }
	END { printf "took %d s, and %.0f s of CPU: %.0f s user, %.0f s system\n", seconds, sum[1] + sum[2], sum[1], sum[2] }
' "$used"
echo "$((total - skipped - failed)) passed, $failed failed, $skipped skipped"
exit "$status"
