#!/bin/sh
# manual_test.sh TOOL SOURCE_DIR: every command has a manual page with examples and exit statuses; the options of a page
# are those that the command's --help prints, no more and no less; pages that are named are there.
tool=$1
pages=$2/tools
here=$(mktemp -d /tmp/manual_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
failed=0
n=0

complain() {
	failed=$((failed + 1))
	echo "FAILED: $1"
}

# The page's file; where it is only another name of a page, that one's.
page_of() {
	page=$pages/spillway-$1.1
	[ -e "$page" ] && other=$(sed -n '1s/^\.so man1\///p' "$page") && [ -n "$other" ] && page=$pages/$other
	echo "$page"
}

commands=$("$tool" --help | awk '/^commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }')
[ "$(echo "$commands" | wc -w)" -ge 7 ] || complain "the commands were not read: $commands"
for command in $commands; do
	n=$((n + 5))
	page=$(page_of "$command")
	[ -e "$page" ] || { complain "$command has no manual page"; continue; }
	"$tool" "$command" --help | awk '/^options:/ { on = 1; next } /^$/ { on = 0 } on && $1 ~ /^--/ { sub(/\[=.*/, "", $1); print $1 }' |
		sort -u >"$here/help"
	sed -n 's/^\.It Fl \(Fl \|-\)\([a-z][a-z-]*\).*/--\2/p' "$page" | grep -vx -- --help | sort -u >"$here/page"
	diff "$here/help" "$here/page" || complain "$command: the options of --help (<) and of its manual page (>)"
	grep -q '^\.Sh EXIT STATUS' "$page" || complain "$page has no exit statuses"
	grep -q '^\.Sh EXAMPLES' "$page" || complain "$page has no examples"
	grep -q "^\.It Cm $command\$" "$pages/spillway.1" || complain "spillway.1 does not name $command"
	"$tool" "$command" --help | grep -qi 'exit status' || complain "the help of $command does not tell its exit statuses"
done
for file in "$pages"/*.[157]; do
	n=$((n + 1))
	for other in $(sed -n 's/^\.Xr \(spillway[a-z-]*\) \([157]\).*/\1.\2/p' "$file"); do
		[ -e "$pages/$other" ] || complain "$file names $other, which is not there"
	done
	! command -v mandoc >/dev/null || grep -q '^\.so ' "$file" || mandoc -T lint -W error "$file" ||
		complain "$file is not well-formed"
done
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
