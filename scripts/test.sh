#!/usr/bin/env bash
# Run every test of a build folder and end in one line: "N passed, N failed, N skipped".
# Usage: scripts/test.sh BUILD [ctest arguments]
set -uo pipefail

build=${1:?usage: scripts/test.sh BUILD [ctest arguments]}
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT

ctest --test-dir "$build" --output-on-failure --parallel "$(nproc)" "$@" 2>&1 | tee "$log"
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
echo "$((total - skipped - failed)) passed, $failed failed, $skipped skipped"
exit "$status"
