#!/bin/sh
# sanitizers_test.sh LIST CTEST BUILD: every row of sanitizers.txt names a test of this build, a kind of sanitizer and a
# reason, and no test twice.
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
while read -r name kind reason; do
	case $name in
	'#'* | '') continue ;;
	esac
	n=$((n + 1))
	echo "$tests" | grep -qxF "$name" || complain "there is no test $name"
	case $kind in
	address | thread | any) ;;
	*) complain "$name: the sanitizer is address, thread or any, not '$kind'" ;;
	esac
	[ -n "$reason" ] || complain "$name: no reason"
done <"$list"
[ -z "$(sed '/^#/d; s/ .*//' "$list" | sort | uniq -d)" ] || complain "a test is named twice"
[ $n -gt 0 ] || complain "no row was read"
echo "$n rows, $failed failed"
[ "$failed" = 0 ]
