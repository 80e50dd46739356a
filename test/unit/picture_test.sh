#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# picture_test.sh SOURCE: scripts/picture.py draws each job of its table with both of its times, as an image that can be read.
command -v python3 >/dev/null || exit 77
cd "$1" || exit 1
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
python3 scripts/picture.py "$made" || exit 1
times=$(sed -n '/^| job, PART/,/^$/p' docs/results.md | awk -F'|' 'NR > 2 && NF { print $5 $6 }')
n=$(echo "$times" | wc -w)
failed=0
if ! diff "$made/larger-light.svg" docs/larger-light.svg || ! diff "$made/larger-dark.svg" docs/larger-dark.svg; then
	echo "FAILED: the pictures are out of date: scripts/picture.py docs"
	failed=1
fi
for picture in "$made"/larger-light.svg "$made"/larger-dark.svg; do
	python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$picture" || failed=1
	# shellcheck disable=SC2086
	for time in $times; do
		grep -q " ($time ms)<" "$picture" || { echo "FAILED: $picture lacks $time ms"; failed=1; }
	done
	[ "$(grep -c '<rect x=' "$picture")" = "$n" ] || { echo "FAILED: $picture has no bar for each of $n times"; failed=1; }
	[ "$(grep -c ' font-size="13".*></text>' "$picture")" = 0 ] || { echo "FAILED: $picture does not name a job"; failed=1; }
done
[ "$n" -ge 10 ] && [ $failed = 0 ]
