#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# count_test.sh SOURCE: the project does not grow unnoticed. The figures below are those of scripts/count.sh, and the files of
# shim/; they may rise only in a commit that changes them here and names the feature. No line of C has more than 120 columns
# but those of tables (*.def) and of macros that list a table.
set -uo pipefail

cd "$1"
most_shim=45533 most_tools=19072 most_policy=3896 most_files=206 most_long=0
failed=0

at_most() { # at_most WHAT MOST IS
	[[ $3 -le $2 ]] && return
	echo "FAILED: $1: $3, at most $2"
	failed=$((failed + 1))
}

lines=$(scripts/count.sh)
of() { awk -v what="$1" '$2 == "all" && $4 == what { print $1 }' <<<"$lines"; }
at_most "lines of shim/" $most_shim "$(of shim)"
at_most "lines of tools/" $most_tools "$(of tools)"
at_most "lines of policy/" $most_policy "$(of policy)"
at_most "files in shim/" $most_files "$(find shim -mindepth 2 -name '*.[ch]' -o -mindepth 2 -name '*.def' | wc -l)"
at_most "lines with more than 120 columns" $most_long \
	"$(find shim policy tools -name '*.[ch]' -print0 | xargs -0 cat | expand | awk 'length > 120 && !/\\$/' | wc -l)"
((failed == 0))
