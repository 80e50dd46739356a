#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# layers_test.sh BUILD SOURCE: calls and includes go one way. SOURCE/shim/rooms.txt and SOURCE/tools/rooms.txt list the
# folders from the ground up. Read from the symbols of the real objects and from the include lines:
#   - no file uses a folder that stands below its own in the list;
#   - the files of one folder form no circle, by calls;
#   - functions that take callbacks for later are called by lifecycle/ alone;
#   - few files of shim/ and policy/ define variables: what a room keeps for the process is gathered in its state file;
#   - the other folders' headers that a file includes exist, and few files lie outside the folders.
# Last line: how many promises were checked, and how many failed.
set -uo pipefail

build=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
checked=0 failed=0
most_stateful=25 # files that define variables
setters='control_give|process_make_fork_page|trace_start|.*_set_hooks' # what hands a room functions to call upwards

check() { # check WHAT COMMAND...: what the command prints is what is wrong
	local what=$1 wrong
	shift
	checked=$((checked + 1))
	wrong=$("$@")
	[[ -z $wrong ]] && return
	failed=$((failed + 1))
	echo "FAILED: $what:"
	echo "$wrong" | sed 's/^/  /'
}

# objects TREE: the objects whose sources lie in TREE. One that a source left behind which is gone now, or lies in
# another folder, does not count.
objects() {
	find "$build/$1" -path '*.dir/*' -name '*.c.o' -printf '%p\n' | sort | while read -r object; do
		file=${object#*.dir/}
		[[ -e $source/$1/${file%.o} ]] && echo "$object"
	done
}

# symbols TREE: lines "file D symbol T" (T: a function, D: a variable) and "file U symbol" of all objects.
symbols() {
	objects "$1" | xargs nm -A | sed 's|^[^:]*\.dir/\([^:]*\)\.c\.o:|\1 |' |
		awk 'NF == 4 && $3 ~ /[TDBRVWC]/ { print $1, "D", $4, $3 ~ /[TW]/ ? "T" : "D" } NF == 3 && $2 == "U" { print $1, "U", $3 }'
}

# edges TREE: "file file symbol T", who uses whose symbol.
edges() {
	symbols "$1" | sort -u >"$folder/symbols"
	awk '$2 == "D" { home[$3] = $1; kind[$3] = $4; next } FNR != NR && $2 == "U" && ($3 in home) && home[$3] != $1 { print $1, home[$3], $3, kind[$3] }' \
		"$folder/symbols" "$folder/symbols" | sort -u
}

# variables TREE: lines "file variable" of what can be written and every thread sees, static ones in functions included,
# but not log_said of log_once(), which says that a line was written, nor what a sanitizer adds. A variable is an object
# in a section that objdump calls .data or .bss, with what follows the name (.data.rel.local); .data.rel.ro is constant.
variables() {
	objects "$1" | LC_ALL=C xargs objdump -t | awk -v tree="$1" '
		/file format/ { file = $1; sub(/:$/, "", file); sub(/.*\.dir\//, tree "/", file); sub(/\.o$/, "", file) }
		match($0, / O \.l?(data|bss)[^ \t]*/) {
			section = substr($0, RSTART + 3, RLENGTH - 3)
			if (section !~ /^\.data\.rel\.ro/ && $NF !~ /^(log_said(\.|$)|__odr_asan\.)/) print file, $NF
		}' | sort -u
}

# too_many MOST: of lines "file variable" on standard input the files and their variables, if they are more files.
too_many() {
	awk -v most="$1" '!($1 in list) { n++ } { list[$1] = list[$1] " " $2 }
		END { if (n > most) { print n " files"; for (file in list) print file ":" list[file] | "sort" } }'
}

# upward ROOMS: of lines "file file what" on standard input those that lead to a later row.
upward() {
	awk 'NR == FNR { if ($0 ~ /^[a-z]/) rank[$1] = ++n; next }
		{ split($1, a, "/"); split($2, b, "/") }
		(a[1] in rank) && (b[1] in rank) && rank[a[1]] < rank[b[1]] { print $1 " uses " $3 " of " $2 }' "$1" -
}

# circles: of the same lines the files of one folder that call each other in a circle. Whose file defines what the room
# keeps is no matter.
circles() {
	awk '$4 == "T" { split($1, a, "/"); split($2, b, "/"); if (a[1] == b[1]) print $1, $2 }' | sort -u | tsort 2>&1 >/dev/null |
		sed -n 's/^tsort: \([a-z].*\)/\1/p'
}

# includes TREE: "file file header".
includes() {
	(cd "$source/$1" && grep -rnoE "^#include \"$1/[a-z_]+/[a-z_]+\.(h|def)\"" --include='*.[ch]' .) |
		sed -nE "s|^\./([^:]+)\.[ch]:[0-9]+:#include \"$1/(([a-z_]+)/[a-z_]+)\.(h\|def)\"|\1 \2 \2.\4|p"
}

for tree in shim tools; do
	rooms=$source/$tree/rooms.txt
	edges $tree >"$folder/edges"
	[[ $(wc -l <"$folder/edges") -gt 100 ]] || { echo "FAILED: no symbols of $tree were read"; exit 1; }
	check "calls of $tree/ that lead upwards" upward "$rooms" <"$folder/edges"
	check "circles of files inside a folder of $tree/" circles <"$folder/edges"
	[[ $tree != shim ]] || check "callbacks that are set outside lifecycle/" awk \
		'$3 ~ /^('"$setters"')$/ && $1 !~ /^lifecycle\// { print $1 " calls " $3 }' "$folder/edges"
	includes $tree >"$folder/includes"
	[[ $(wc -l <"$folder/includes") -gt 100 ]] || { echo "FAILED: no includes of $tree were read"; exit 1; }
	check "includes of $tree/ that lead upwards" upward "$rooms" <"$folder/includes"
	check "folders of $tree/ that rooms.txt does not list" comm -23 \
		<(cd "$source/$tree" && find . -mindepth 2 -name '*.c' | cut -d/ -f2 | sort -u) <(awk '/^[a-z]/ { print $1 }' "$rooms" | sort)
	check "files directly in $tree/ are more than 8" awk 'END { if (NR > 8) print NR }' \
		<(find "$source/$tree" -maxdepth 1 -type f)
done
for tree in shim policy; do variables $tree; done >"$folder/variables"
grep -q '^shim/submit/submit_state\.c submit_state$' "$folder/variables" ||
	{ echo "FAILED: no variables of shim were read"; exit 1; }
check "more than $most_stateful files of shim/ and policy/ define variables" \
	too_many "$most_stateful" <"$folder/variables"
check "files of more than 800 lines" awk '$1 > 800 && $2 != "total" { print $2 ": " $1 }' \
	<(cd "$source" && find shim tools policy test -name '*.[ch]' -print0 | xargs -0 wc -l)
echo "$checked promises, $failed failed"
((failed == 0))
