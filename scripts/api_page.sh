#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# api_page.sh [--write]: the table of tools/man/spillway-api.7, from shim/driver/hooks.def and tools/man/api.txt, to standard
# output or into the page, between its two marks. test/unit/api_page_test.sh checks that the two are equal.
set -eu
cd "$(dirname "$0")/.."
page=tools/man/spillway-api.7
table=$(awk -f scripts/driver_names.awk shim/driver/hooks.def | awk -f scripts/api_page.awk tools/man/api.txt -)
if [ "${1:-}" != --write ]; then
	printf '%s\n' "$table"
	exit
fi
new=$(mktemp)
trap 'rm -f "$new"' EXIT
{
	sed '/^\.\\" BEGIN TABLE/q' "$page"
	printf '%s\n' "$table"
	sed -n '/^\.\\" END TABLE/,$p' "$page"
} > "$new"
cat "$new" > "$page"
