#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# arm_list_test.sh LIST CTEST BUILD: every row of arm.txt names a test of this build, in a form that scripts/arm.sh reads.
. "$(dirname "$0")/list_of_tests.sh"

while read -r kind name pages reason; do
	case $kind in
	'#'* | '') continue ;;
	esac
	row_of "$name"
	case $kind:$pages in
	run:) ;;
	not:any | not:4 | not:64) [ -n "$reason" ] || complain "$name: no reason" ;;
	*) complain "$name: the row is neither 'run TEST' nor 'not TEST any|4|64 REASON'" ;;
	esac
done <"$list"
end_of_list <<END
$(sed '/^#/d; s/^[a-z]* *//; s/ .*//' "$list" | grep .)
END
