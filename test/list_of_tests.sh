# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What tests of lists of tests share: LIST CTEST BUILD are the arguments of the test. Sourced; the test calls row_of() for
# each row, and ends with end_of_list().
list=$1
failed=0
n=0

complain() {
	failed=$((failed + 1))
	echo "FAILED: $1"
}

tests=$("$2" --test-dir "$3" -N | sed -n 's/^ *Test *#[0-9]*: \([^ ]*\).*/\1/p')
[ -n "$tests" ] || complain "the tests were not listed"

# row_of NAME: a row is for this test
row_of() {
	n=$((n + 1))
	echo "$tests" | grep -qxF "$1" || complain "there is no test $1"
}

# end_of_list: reads the names of all rows, a line each. Returns whether all was right.
end_of_list() {
	[ -z "$(sort | uniq -d)" ] || complain "a test is named twice"
	[ $n -gt 0 ] || complain "no row was read"
	echo "$n rows, $failed failed"
	[ "$failed" = 0 ]
}
