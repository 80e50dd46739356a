#!/bin/sh
# arm_list_test.sh LIST CTEST BUILD: every row of arm.txt names a test of this build, in a form that scripts/arm.sh reads.
list=$1
ctest=$2
build=$3
failed=0
n=0

complain() {
	failed=$((failed + 1))
	echo "FAILED: $1"
}

tests=$("$ctest" --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: \([^ ]*\).*/\1/p')
[ "$(echo "$tests" | wc -l)" -ge 100 ] || complain "the tests were not listed: $tests"
while read -r kind name pages reason; do
	case $kind in
	'#'* | '') continue ;;
	esac
	n=$((n + 1))
	echo "$tests" | grep -qxF "$name" || complain "there is no test $name"
	case $kind:$pages in
	run:) ;;
	not:any | not:4 | not:64) [ -n "$reason" ] || complain "$name: no reason" ;;
	*) complain "$name: the row is neither 'run TEST' nor 'not TEST any|4|64 REASON'" ;;
	esac
done <"$list"
[ -z "$(sed '/^#/d; s/^[a-z]* *//; s/ .*//' "$list" | grep . | sort | uniq -d)" ] || complain "a test is named twice"
[ $n -gt 0 ] || complain "no row was read"
echo "$n rows, $failed failed"
[ "$failed" = 0 ]
