#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# neighbours_test.sh SOURCE: every row of test/neighbours.md names tests that exist and are run, or says why none can.
# It has as many rows as the list in docs/facts.md.
set -u
cd "$1" || exit 1
list=test/neighbours.md
fails=0
say() {
	echo "neighbours_test: $*"
	fails=$((fails + 1))
}

# A test in C is a TEST(), or a function in the table of its file; in a script it is the message with which it fails.
is_there() {
	case $1 in
	*.c) grep -qE "^[A-Z_]*TEST[A-Z_]*\($2[,)]" "$1" || {
		grep -q "^static void $2(void \*\*state)" "$1" && grep -qE "(cmocka_unit_test[a-z_]*|[A-Z]+)\($2[,)]" "$1"
	} ;;
	*.sh) grep -qF "FAILED: $2" "$1" ;;
	*) false ;;
	esac
}

# The file is named where tests are made: by its own name, or as the subject of a loop.
is_built() {
	name=$(basename "$1" | sed 's/_test\.[a-z]*$//')
	grep -qE "(^|[^a-z_])$name(_test|[^a-z_])" "$(dirname "$1")"/*CMakeLists.txt "$(dirname "$1")"/*.cmake 2> /dev/null
}

# check TABLE: a line for each thing that is wrong with it.
check() {
	sed -n '/^|---/,$p' "$1" | sed 1d | while IFS= read -r row; do
		tests=$(printf '%s\n' "$row" | awk -F'|' '{print $(NF - 1)}')
		named=$(printf '%s\n' "$tests" | grep -o '`test/[^`]*: [^`]*`' | tr -d '`')
		case $tests in
		*'cannot apply: '*) continue ;;
		esac
		[ -n "$named" ] || echo "no test and no reason: $row"
		printf '%s\n' "$named" | while IFS= read -r one; do
			[ -n "$one" ] || continue
			file=${one%%: *} name=${one#*: }
			[ -f "$file" ] && is_there "$file" "$name" || echo "there is no test $one"
			is_built "$file" || echo "nothing runs $file"
		done
	done
}

wrong=$(check "$list")
[ -z "$wrong" ] || say "$wrong"
rows=$(sed -n '/^|---/,$p' "$list" | sed 1d | grep -c '^|')
[ "$rows" -ge 20 ] || say "only $rows rows"
facts=docs/facts.md
known=$(sed -n '/^## Failures of other projects/,$p' "$facts" | sed -n '/^|---/,$p' | sed 1d | grep -c '^|')
[ "$rows" = "$known" ] || say "$rows rows, $facts has $known"

# This test can fail.
made_up=$(mktemp)
trap 'rm -f "$made_up"' EXIT
for row in '`test/preload/doors_test.c: no_such_test`' '`test/preload/no_such_test.c: a`' 'nothing at all'; do
	printf '|---|---|---|\n| a | b | %s |\n' "$row" > "$made_up"
	[ -n "$(check "$made_up")" ] || say "\"$row\" was not noticed"
done
[ "$fails" = 0 ]
