#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# picture_test.sh SOURCE: scripts/picture.py draws each job of its table with both of its times, and each way to grow an array, as
# images that can be read.
command -v python3 >/dev/null || exit 77
cd "$1" || exit 1
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
python3 scripts/picture.py "$made" || exit 1
times=$(sed -n '/^| job, PART/,/^$/p' docs/results.md | awk -F'|' 'NR > 2 && NF { print $5 $6 }')
n=$(echo "$times" | wc -w)
failed=0
for picture in "$made"/*.svg; do
	diff "$picture" "docs/${picture##*/}" || { echo "FAILED: ${picture##*/} is out of date: scripts/picture.py docs"; failed=1; }
	python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$picture" || failed=1
done
for picture in "$made"/larger-light.svg "$made"/larger-dark.svg; do
	# shellcheck disable=SC2086
	for time in $times; do
		grep -q " ($time ms)<" "$picture" || { echo "FAILED: $picture lacks $time ms"; failed=1; }
	done
	[ "$(grep -c '<rect x=' "$picture")" = "$n" ] || { echo "FAILED: $picture has no bar for each of $n times"; failed=1; }
	[ "$(grep -c ' font-size="13".*></text>' "$picture")" = 0 ] || { echo "FAILED: $picture does not name a job"; failed=1; }
done
for picture in "$made"/growth-light.svg "$made"/growth-dark.svg; do
	[ "$(grep -o '<polyline points="[^"]*"' "$picture" | tr ' ' '\n' | grep -c ,)" = 12 ] || { echo "FAILED: $picture lacks a time"; failed=1; }
	for time in 1630 186 3854; do
		grep -q ">$time us<" "$picture" || { echo "FAILED: $picture lacks $time us"; failed=1; }
	done
done
[ "$n" -ge 10 ] && [ $failed = 0 ]
