#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# api_page_test.sh SOURCE: spillway-api(7) says of every driver function what the list says. The last two parts make sure
# that this test can fail.
set -u
cd "$1" || exit 1
page=tools/man/spillway-api.7
fails=0
say() {
	echo "api_page_test: $*"
	fails=$((fails + 1))
}

in_page=$(mktemp) made=$(mktemp) lists=$(mktemp)
trap 'rm -f "$in_page" "$made" "$lists"' EXIT
table() {
	awk -f scripts/driver_names.awk "$2" | awk -f scripts/api_page.awk "$1" - 2>&1
}

sed -n '/^\.\\" BEGIN TABLE/,/^\.\\" END TABLE/p' "$page" | sed '1d;$d' > "$in_page"
table tools/man/api.txt shim/driver/hooks.def > "$made" || say "api.txt does not fit hooks.def: $(grep ' api.txt' "$made")"
diff "$in_page" "$made" || say "the table is out of date: scripts/api_page.sh --write"

# Every name of the list is there, as a word of its own.
awk -f scripts/driver_names.awk shim/driver/hooks.def | sed -n 's/^[A-Z_]*(\([A-Za-z0-9_]*\),.*/\1/p' | sort > "$lists"
[ "$(wc -l < "$lists")" -gt 600 ] || say "only $(wc -l < "$lists") names were found in the list"
tr ' ' '\n' < "$in_page" | grep '^cu[A-Z]' | sed 's/[.,;:]*$//' | sort -u > "$made"
missing=$(comm -23 "$lists" "$made")
[ -z "$missing" ] || say "not in the page: $missing"

# A row more, and a served one that nobody describes, are noticed.
{ cat shim/driver/hooks.def; echo 'HOOK_ROW(FORWARD, cuMemTeleport, int, a)'; } > "$lists"
table tools/man/api.txt "$lists" | diff -q "$in_page" - > /dev/null && say "a new row was not noticed"
{ cat shim/driver/hooks.def; echo 'HOOK_ROW(SERVE, cuMemTeleport, int, a)'; } > "$lists"
table tools/man/api.txt "$lists" > /dev/null && say "a served row without a description was not noticed"
{ cat tools/man/api.txt; echo 'cuMemTeleport: Beams.'; } > "$lists"
table "$lists" shim/driver/hooks.def > /dev/null && say "a description without a row was not noticed"

if command -v mandoc > /dev/null; then
	mandoc -T lint -W warning "$page" || say "mandoc has found something"
fi
[ "$fails" = 0 ]
