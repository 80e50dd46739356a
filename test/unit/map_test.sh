#!/bin/sh
# map_test.sh SOURCE_DIR: the map in shim/README.md names every file of the library, and nothing that is not there.
source=$1
failed=0
n=0

complain() {
	failed=$((failed + 1))
	echo "FAILED: $1"
}

set -f
# Of a row's first column: `a.c b_*.c`. A folder's name stands for the row's other files as well.
patterns=$(sed -n 's/^| \(`[^|]*\)|.*/\1/p' "$source/shim/README.md" | tr '`' ' ' | sed 's|[a-z]*/\([a-z]\)|\1|g')
[ "$(echo "$patterns" | wc -w)" -ge 50 ] || complain "the map was not read: $patterns"

# named FILE: is it in the map, or in a folder that a row names as a whole?
named() {
	for pattern in $patterns; do
		case $1 in
		"$source/shim/$pattern"*) case $pattern in */) return 0 ;; esac ;;
		esac
		case ${1##*/} in
		$pattern) return 0 ;;
		esac
	done
	return 1
}

for file in $(find "$source/shim" -name '*.c' | sort); do
	n=$((n + 1))
	named "$file" || complain "shim/README.md does not name ${file#"$source"/}"
done
for pattern in $patterns; do
	n=$((n + 1))
	case $pattern in
	*/) [ -d "$source/shim/$pattern" ] ;;
	*) [ -n "$(find "$source/shim" -name "$pattern" -type f | head -n 1)" ] ;;
	esac || complain "shim/README.md names $pattern, which is not there"
done
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
