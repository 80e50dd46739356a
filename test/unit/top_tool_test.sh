#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# top_tool_test.sh TOOL SOURCE: the command lines of `spillway top` and `spillway prom`, where prom writes and where not,
# and the manual, which must have every figure. No process is needed; others of this user may run meanwhile.
tool=$1
source=$2
here=$(mktemp -d /tmp/top_tool_test.XXXXXX) || exit 1
chmod 700 "$here"
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
export XDG_RUNTIME_DIR=$here
failed=0
n=0

expect() { # "promise" STATUS "stdout (a pattern)" "stderr (a pattern)" command...
	local promise=$1 status=$2 out=$3 err=$4 got
	shift 4
	n=$((n + 1))
	"$@" >out.txt 2>err.txt
	got=$?
	# shellcheck disable=SC2053 # patterns they are
	[[ $got = "$status" && $(<out.txt) = $out && $(<err.txt) = $err ]] && return
	failed=$((failed + 1))
	echo "FAILED: $promise: status $got, not $status; wanted \"$out\" and \"$err\""
	sed 's/^/  out: /' out.txt | head -n 40
	sed 's/^/  err: /' err.txt
}

expect 'help of top goes to stdout with an example' 0 'usage: spillway top*examples:*' '' "$tool" top --help
expect 'no process is no failure, but told' 0 'spillway top, *, 0 processes*' 'spillway: process 1 shows no figures: *' "$tool" top --once 1
expect 'JSON of no process' 0 '{"schema": 2, *"processes": \[\]}' '' "$tool" top --once --json 1
expect 'plain text where there is no terminal; so many readings' 0 '*0 processes*0 processes*' '' \
	"$tool" top --interval 0.1 --count 2 1
for wrong in '--interval 0' '--interval x' '--interval 1e9' '--interval 0x1' '--count 0' '--count -1' '--sort size' \
	'--user nobody-of-this-name' '--gone=0' '--gone=x' '0' '-- -1' '12x' '99999999999'; do
	# shellcheck disable=SC2086 # several words they are
	expect "top $wrong is wrong usage" 2 '' 'spillway: "*" is no *; *' "$tool" top --once $wrong
done
expect 'an unknown option is wrong usage' 2 '' '*unknown option "--josn"*--help*' "$tool" top --josn
expect 'an option without its value is wrong usage' 2 '' '*"--sort" needs a value*' "$tool" top --sort
for two in '--json --plain' '--json --details' '--plain --details' '--json --once --plain'; do
	# shellcheck disable=SC2086 # several words they are
	expect "top $two is wrong usage" 2 '' '*only one of --json, --plain and --details*' "$tool" top $two
done
expect 'so is one reading, and several' 2 '' '*--once is one reading, --count 3 are more*' "$tool" top --once --count 3
expect 'so many killed ones' 0 '*0 processes*' '*' "$tool" top --once --gone=3 1
expect 'all killed ones' 0 '*0 processes*' '*' "$tool" top --once --gone=all 1
expect 'one reading said twice is none' 0 '*0 processes*' '*' "$tool" top --once --count 1 1
expect 'prom --list takes no interval' 2 '' '*leave --interval away*' "$tool" prom --list --interval 3
expect 'output that cannot be written is a failure' 1 '' '*could not be written*' sh -c '"$1" top --once >/dev/full' sh "$tool"

expect 'help of prom goes to stdout with an example' 0 'usage: spillway prom*examples:*' '' "$tool" prom --help
expect 'prom writes a file' 0 '' '' "$tool" prom good.prom
expect 'that every user can read' 0 '644' '' stat -c %a good.prom
expect 'and nothing else' 0 'err.txt
good.prom
out.txt' '' ls -A
expect 'to stdout' 0 '# HELP spillway_processes *' '' "$tool" prom -
expect 'a name that the collector does not read is said' 0 '' '*names end in .prom; plain does not' "$tool" prom plain
ln -s good.prom link.prom
expect 'prom follows no link' 1 '' '*"link.prom" is a symbolic link; *' "$tool" prom link.prom
expect 'the link is still there' 0 good.prom '' readlink link.prom
ln -s nowhere.prom lost.prom
expect 'nor one that leads nowhere' 1 '' '*"lost.prom" is a symbolic link; *' "$tool" prom lost.prom
mkdir folder.prom
expect 'a folder is no file' 1 '' '*"folder.prom" is a folder*' "$tool" prom folder.prom
expect 'nor with a slash' 1 '' '*is a folder; name a file in it*' "$tool" prom folder.prom/
mkfifo pipe.prom
expect 'nor is a pipe' 1 '' '*no regular file*' "$tool" prom pipe.prom
expect 'a folder that is not there' 1 '' '*its folder cannot be opened: No such file*' "$tool" prom nowhere/x.prom
expect 'no file is wrong usage' 2 '' '*one file is needed*' "$tool" prom
expect 'two are, too' 2 '' '*one file is needed*' "$tool" prom a.prom b.prom
expect 'an interval that is none' 2 '' '*"0" is no interval*' "$tool" prom --interval 0 a.prom
expect 'nothing half-made is left' 1 '' '' sh -c 'ls -A | grep "^\.g\|^\.l\|^\.p"'

expect 'the manual has every figure with unit, name and text, and no other' 0 '' '' \
	sh -c '"$1/scripts/stats_page.sh" "$2" | diff "$1/tools/man/spillway-stats.5" -' sh "$source" "$tool"
# All that stats.def has, read in another way: names alone.
sed -n 's/^\(STAT\|FIGURE\|HISTOGRAM\)(\([a-z0-9_]*\),.*/\2/p; s/^\(PLACE\|FAULT\|LINK\)([A-Z_]*, \([a-z_]*\),.*/\2/p' \
	"$source/shim/stats/stats.def" | sort >def.txt
sed -n 's/^\.It Cm \([a-z0-9_]*\)\( Pq .*\)\{0,1\}$/\1/p' "$source/tools/man/spillway-stats.5" | sort >page.txt
expect 'stats.def was read' 0 '' '' test "$(wc -l <def.txt)" -ge 60
expect 'every name of stats.def is an item of the page' 0 '' '' diff def.txt page.txt
for column in $("$tool" top --help | sed -n '/one of:$/{n;p}'); do
	expect "the manual has the column $column" 0 '*' '' grep -w -- "$column" "$source/tools/man/spillway-top.1"
	expect "top sorts by $column" 0 '*' '' "$tool" top --once --sort "$column"
done
if command -v mandoc >/dev/null; then
	expect 'mandoc finds nothing' 0 '' '' mandoc -T lint -W warning "$source/tools/man/spillway-stats.5" "$source/tools/man/spillway-top.1"
fi

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
