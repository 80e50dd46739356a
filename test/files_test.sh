#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# files_test.sh FOLDER CTEST BUILD: every file of a test is built and run: there is a test of its name, or it is named in a
# CMake list of its folder. One was not for months, and did not compile any more. Every source file names its licence in the
# first two lines.
tests=$("$2" --test-dir "$3" -N | sed -n 's/^ *Test *#[0-9]*: \([^ ]*\).*/\1/p')
cd "$1" || exit 2
failed=0
n=0
newline='
'
for file in ./*_test.sh */*_test.c */*_test.py */*_test.sh; do
	name=${file##*/}
	name=${name%.*}
	n=$((n + 1))
	case "$newline$tests$newline" in
	*"$newline$name$newline"* | *"$newline${name}_"*) continue ;;
	esac
	cat "${file%/*}"/CMakeLists.txt "${file%/*}"/*.cmake 2>/dev/null | sed 's/#.*//' | grep -qw "$name" && continue
	echo "FAILED: $file is neither a test nor in a CMake list"
	failed=$((failed + 1))
done
cd ..
files=$(find shim tools policy test scripts cmake CMakeLists.txt Makefile .ci/run -type f 2>/dev/null |
	grep -E '\.(c|h|def|cu|js|css|map|sh|py|awk|cmake|bash|fish)$|CMakeLists\.txt$|^Makefile$|^\.ci/run$')
licensed=$(echo "$files" | xargs awk 'FNR <= 2 && /SPDX-License-Identifier: Apache-2\.0/ { print FILENAME } FNR == 2 { nextfile }' | sort -u)
for file in $(printf '%s\n' "$files" "$licensed" | sort | uniq -u); do
	echo "FAILED: $file does not name its licence in the first two lines"
	failed=$((failed + 1))
done
echo "$n files, $failed failed"
[ $failed = 0 ]
