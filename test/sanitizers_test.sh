#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitizers_test.sh LIST CTEST BUILD: every row of sanitizers.txt names a test of this build, a kind of sanitizer and a
# reason, and no test twice.
. "$(dirname "$0")/list_of_tests.sh"

while read -r name kind reason; do
	case $name in
	'#'* | '') continue ;;
	esac
	row_of "$name"
	case $kind in
	address | thread | any) ;;
	*) complain "$name: the sanitizer is address, thread or any, not '$kind'" ;;
	esac
	[ -n "$reason" ] || complain "$name: no reason"
done <"$list"
end_of_list <<END
$(sed '/^#/d; s/ .*//' "$list")
END
