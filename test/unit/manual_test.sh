#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# manual_test.sh TOOL SOURCE_DIR: every command has a manual page with examples and exit statuses; the options of a page
# are those that the command's --help prints, no more and no less; pages that are named are there.
tool=$1
pages=$2/tools/man
here=$(mktemp -d /tmp/manual_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
failed=0
n=0

complain() {
	failed=$((failed + 1))
	echo "FAILED: $1"
}

commands=$("$tool" --help | awk '/^commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }')
[ "$(echo "$commands" | wc -w)" -ge 7 ] || complain "the commands were not read: $commands"
# These two say no more than spillway.1 does.
for command in help version; do
	n=$((n + 1))
	grep -q "^\.It Cm $command" "$pages/spillway.1" || complain "spillway.1 does not name $command"
done
for command in $(echo "$commands" | grep -vx -e help -e version); do
	n=$((n + 5))
	page=$pages/spillway-$command.1
	[ -e "$page" ] || { complain "$command has no manual page"; continue; }
	"$tool" "$command" --help | awk '/^options:/ { on = 1; next } /^$/ { on = 0 } on && $1 ~ /^--/ { sub(/\[=.*/, "", $1); print $1 }' |
		sort -u >"$here/help"
	sed -n 's/^\.It Fl \(Fl \|-\)\([a-z][a-z-]*\).*/--\2/p' "$page" | grep -vx -- --help | sort -u >"$here/page"
	diff "$here/help" "$here/page" || complain "$command: the options of --help (<) and of its manual page (>)"
	grep -q '^\.Sh EXIT STATUS' "$page" || complain "$page has no exit statuses"
	grep -q '^\.Sh EXAMPLES' "$page" || complain "$page has no examples"
	says=$("$tool" --help | sed -n "s/^  $command  *//p")
	grep -iqx "$says:\{0,1\}" <<END || complain "spillway.1 does not say of $command what --help says: $says"
$(sed -n "/^\.It Cm $command\$/{n;p}" "$pages/spillway.1")
END
	"$tool" "$command" --help | grep -qi 'exit status' || complain "the help of $command does not tell its exit statuses"
done
for file in "$pages"/*.[157]; do
	n=$((n + 1))
	for other in $(sed -n 's/^\.Xr \(spillway[a-z-]*\) \([157]\).*/\1.\2/p' "$file"); do
		[ -e "$pages/$other" ] || complain "$file names $other, which is not there"
	done
	# A page that names another by its place in an installed tree cannot be read here: a link can.
	! grep -q '^\.so ' "$file" || complain "$file is read by way of another file"
	! man --version >/dev/null 2>&1 || [ -n "$(MANPAGER=cat man -l "$file" 2>/dev/null)" ] || complain "man -l $file shows nothing"
	! command -v mandoc >/dev/null || mandoc -T lint -W error "$file" ||
		complain "$file is not well-formed"
done
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
