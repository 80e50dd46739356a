#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# report_page_test.sh TOOL CASES SOURCE_DIR: what `spillway report --html` draws, looked at by Chromium
# (scripts/report_browser.py); skipped where there is none. PICTURES=FOLDER keeps the pictures. PAGES_ALL=1 is for
# the night: more pages, each light and dark at each width, and pages that are wrong on purpose.
tool=$1 cases=$2 source=$3
command -v chromium >/dev/null || { echo "there is no Chromium here"; exit 77; }
command -v python3 >/dev/null || { echo "there is no Python here"; exit 77; }
here=$(mktemp -d /tmp/report_page_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
pictures=${PICTURES:+$(realpath -m "$PICTURES")}
cd "$here" || exit 1
"$cases" . || exit 1
browser() { python3 "$source/scripts/report_browser.py" "$@"; }

"$tool" report --html --output spilling.html spilling.trace &&
	"$tool" report --html --output two.html spilling.trace static.trace || exit 1
[[ -n $PAGES_ALL ]] || { browser -q ${pictures:+-o "$pictures"} ./*.html; exit; }

for case in peers hostile static fitting empty older managed; do
	"$tool" report --html --output $case.html $case.trace || exit 1
done
browser ${pictures:+-o "$pictures"} ./*.html || exit 1

# It can fail: a total that is wrong, an axis that is too long, a part that is too wide.
fails() {
	local what=$1 out
	shift
	sed "$1" spilling.html >wrong.html
	cmp -s spilling.html wrong.html && { echo "FAILED: nothing was changed for: $what"; exit 1; }
	out=$(browser wrong.html) && { echo "FAILED: not found: $what"; exit 1; }
	[[ $out == *"$2"* ]] || { echo "FAILED: $what: said otherwise: $out"; exit 1; }
}
fails 'a total that differs' 's/all\[key\] += rest\[key\]/all[key] += 1e6/' 'of devices'
fails 'an axis that is too long' 's/return most \* 1\.03/return most * 2/' 'an axis ends at'
fails 'something wide' 's/^\.verdict {/.verdict { width: 3000px;/' 'leaves the window'
