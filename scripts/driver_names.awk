# SPDX-License-Identifier: Apache-2.0
# Every function of shim/driver/hooks.def on a line of its own, and the comments between them: HOOK_KIND(name, or
# EXEMPT(name, REASON).
/^\/\*/ { print }

/^(HOOK_ROW|HOOK_TWINS|HOOK_FOUR)\(/ {
	split($0, part, /[(,] */)
	sub(/\).*/, "", part[4])
	sub(/^WRAP_/, "", part[2])
	print "HOOK_" part[2] "(" part[3] ","
	if (part[1] != "HOOK_ROW")
		print "HOOK_" part[2] "(" part[3] part[4] ","
	if (part[1] == "HOOK_FOUR") {
		print "HOOK_" part[2] "(" part[3] part[5] ","
		print "HOOK_" part[2] "(" part[3] part[5] part[4] ","
	}
}

/^EXEMPT_ROW\(/ {
	exempt = 1
	reason = $0
	sub(/^[^(]*\(/, "", reason)
	sub(/,.*/, "", reason)
	sub(/^[^,]*,/, "")
}

exempt {
	n = split($0, name, /[^A-Za-z0-9_]+/)
	for (i = 1; i <= n; i++)
		if (name[i] != "")
			print "EXEMPT(" name[i] ", " reason ")"
	exempt = !/\)/
}
