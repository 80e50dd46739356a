#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nightly_test.sh LIST CTEST BUILD: nightly.txt is in the form that test/CMakeLists.txt reads, each row of it names a test,
# and what it labels `nightly` runs by day in another way or says why it does not. What has no label runs by day, so no test
# is in neither tier.
day=$("$2" --test-dir "$3" -N -LE nightly | sed -n 's/^ *Test *#[0-9]*: \([^ ]*\).*/\1/p')

{ echo "$day"; echo; cat "$1"; echo ---; "$2" --test-dir "$3" -N -V; } | awk '
	function complain(text) { failed++; print "FAILED: " text }
	part == 0 && $0 == "" { part = 1; next }
	part == 0 { day[$1]; next }
	part == 1 && $0 == "---" { part = 2; next }
	part == 1 && (/^#/ || !NF) { next }
	part == 1 {
		if (!($1 == "again" && NF == 2 || $1 == "alone" && NF > 2))
			complain("neither \"again REGEX\" nor \"alone REGEX REASON\": " $0)
		kind[++rows] = $1; regex[rows] = $2
		next
	}
	/^[0-9]+: Test command: / { program = $4 ~ /\/(sh|python3[^\/]*)$/ ? $0 : $4 }
	/^ *Test *#[0-9]+: / {
		n++; command[$3] = program
		if ($3 in day) by_day[program] = $3
	}
	END {
		for (test in command) {
			alone = listed = 0
			for (i = 1; i <= rows; i++)
				if (test ~ "^(" regex[i] ")$") { used[i] = 1; listed = 1; alone += kind[i] == "alone" }
			if (listed == (test in day))
				complain(test ": the label is not what the list says")
			if (listed && !alone && !(command[test] in by_day))
				complain(test ": its program does not run by day")
		}
		for (i = 1; i <= rows; i++)
			if (!used[i]) complain("there is no test " regex[i])
		if (!n || !rows) complain("no tests, or no rows, were read")
		print rows " rows, " n " tests, " failed + 0 " failed"
		exit failed > 0
	}'
