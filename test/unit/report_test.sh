#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# report_test.sh TOOL CASES SOURCE_DIR: what `spillway report` promises, on traces made by hand. Texts are compared with those
# in test/data/report; UPDATE=1 writes them anew, to be looked at with git diff.
tool=$1
cases=$2
source=$3
golden=$source/test/data/report
. "${0%/*}/../expect.sh"
here=$(mktemp -d /tmp/report_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
# same NAME: what the last command printed is test/data/report/NAME
same() {
	[ -n "$UPDATE" ] && cp out.txt "$golden/$1"
	cmp -s out.txt "$golden/$1" || { complain "it is not $golden/$1"; diff "$golden/$1" out.txt | head -20; }
}

# in_no_line "promise" PATTERN FILE
in_no_line() {
	n=$((n + 1))
	promise=$1
	! LC_ALL=C grep -q "$2" "$3" || complain "found in $3: $2"
}

"$cases" . || exit 1
report() { "$tool" report "$@"; }

for case in spilling static peers tensors fitting empty; do
	expect "text of $case" 0 '*' '' report $case.trace
	same $case.txt
done
expect 'two runs beside each other' 0 '*' '' report spilling.trace static.trace
same compare.txt
expect 'moves say which device lent in the view for Perfetto' 0 '*"from other GPUs 1"*"lender":1*"other GPUs":134217728}*"lent to other GPUs"*' '' \
	report --perfetto peers.trace
expect 'what is alive over time is in the view for Perfetto' 0 \
	'*"not copied":33554432*allocator, bytes*"alive":58720256,"dead":0,"never used":8388608}*"alive":16777216,"dead":41943040,"never used":8388608}*"alive":0,"dead":0,"never used":0}*' '' \
	report --perfetto tensors.trace
expect 'and in JSON' 0 \
	'*"cache": 67108864,*"cache_alive": 58720256,*"cache_dead": 41943040*"uncopied_bytes_in": 8388608,*"uncopied_bytes_out": 33554432,*"cache_alive": [[]58720256,*16777216,*58720256,*16777216[]]*' '' \
	report --json tensors.trace
expect 'of which nobody reports that is null, as is what an older trace does not say' 0 \
	'*"cache_alive": null,*"uncopied_bytes_in": null,*"cache_alive": null,*' '' report --json older.trace
expect 'an older trace does not tell, and that is said' 0 '*Links (this trace does not tell other GPUs from the host):*' '' \
	report older.trace
expect 'nor does its JSON' 0 '*"on_peers": null,*"peer_bytes_in": null,*"peer_bytes_out": null,*' '' report --json older.trace
expect 'n/a beside one that does' 0 '*on other GPUs at most *n/a *128.0 MiB*in from other GPUs *n/a *119.2 MiB*' '' \
	report older.trace peers.trace
expect 'what the CPU left alone of managed memory' 0 \
	'*a.py:1*not touched by the CPU after the GPU*Managed memory that a GPU used*at 1 site it touched memory, and 64.0 KiB came back*at 1 site it touched nothing (use: heap may fit)*' '' \
	report managed.trace
expect 'so has JSON' 0 '*"managed_used": 2,*"managed_touches": 1,*"managed_back": 65536*' '' report --json managed.trace
expect 'a view for Perfetto' 0 '*' '' report --perfetto spilling.trace
same perfetto.json


# 80 columns where standard output is no terminal.
cut_columns() { LC_ALL=C tr -d '\200-\277'; }
for case in spilling static peers fitting empty older hostile; do
	report $case.trace 2>/dev/null | cut_columns >narrow.txt
	in_no_line "no line of $case has more than 80 columns" '.\{81\}' narrow.txt
	[ -s narrow.txt ] || complain 'nothing was printed'
done
report spilling.trace static.trace peers.trace older.trace hostile.trace | cut_columns >narrow.txt
in_no_line 'nor has one of five runs beside each other' '.\{81\}' narrow.txt
expect 'which are all there' 0 '5' '' awk '/^submissions/ { n += NF - 1 } END { print n }' narrow.txt

# JSON, as far as a shell can look at it, and a parser where there is one.
expect 'JSON' 0 '{*"schema": 2,*}' '' report --json spilling.trace
grep -o '"[a-z_]*": ' out.txt | tr -d '": ' | sort -u >keys.txt
[ "$(wc -l <keys.txt)" -ge 100 ] || complain 'keys were not found'
sed -n 's/^\.\(It \)\{0,1\}Cm //p' "$source/tools/man/spillway-report.1" | tr ' ' '\n' | sort -u >page.txt
expect 'every key of JSON is in the manual page' 0 '' '' sh -c 'comm -23 keys.txt page.txt'
expect 'links are there, with the host and between devices' 0 \
	'*"device": 0,*"lender": null,*"bytes_out": 250000000,*"in_ns": 250000000,*"device": 0,*"lender": 1,*"bytes_in": 125000000,*' '' \
	report --json peers.trace
expect 'so is what called a site, from the inside out' 0 \
	'*"calls": [[]*"callers": [[]"train.py:80 in step","train.py:97 in main","..."[]]*' '' report --json spilling.trace
expect 'the name of the GPU is there' 0 '*"name": "Some GPU",*"memory": 1073741824,*' '' report --json spilling.trace
expect 'JSON of several is a list' 0 '[[]{*},{*}]' '' report --json spilling.trace static.trace
if command -v python3 >/dev/null; then
	for case in spilling static peers tensors fitting hostile empty; do
		for option in --json --perfetto; do
			expect "$option of $case is well formed" 0 '' '' \
				sh -c '"$1" report '$option' '$case'.trace | python3 -c "import json, sys; json.load(sys.stdin)"' sh "$tool"
		done
	done
fi

expect 'the page' 0 '<!doctype html>*</html>' '' report --html spilling.trace
cp out.txt page.html
in_no_line 'the page has all its parts' '^@.*@$' page.html
in_no_line 'the page names no place on a network' 'https\{0,1\}:' page.html
expect '--output makes a file of the same, for the owner alone' 0 '' '' report --html --output new.html spilling.trace
cmp -s page.html new.html || complain 'it is another'
[ "$(stat -c %a new.html)" = 600 ] || complain "its mode is $(stat -c %a new.html)"
expect 'so does a page that is named before the traces' 0 '' '' report --html first.html spilling.trace
cmp -s page.html first.html || complain 'it is another'
expect 'of which there must be one' 2 '' '*no trace given*' report --html first.html
ln -s elsewhere link.html
expect '--output follows no link' 1 '' '*link.html*cannot be written*' report --html --output link.html spilling.trace

# Texts of strangers.
for option in '' --json --html --perfetto; do
	# shellcheck disable=SC2086 # none or one
	expect "hostile texts do not stop ${option:-text}" 0 '*' '' report $option hostile.trace
	in_no_line "nor bring control characters into ${option:-text}" "$(printf '[\001-\010\013-\037\177]')" out.txt
	iconv -f UTF-8 -t UTF-8 out.txt >/dev/null || complain "${option:-text} is not UTF-8"
	case $option in
	--html) in_no_line 'nor end the script of the page' '<script>alert\|<img' out.txt ;;
	esac
done

# Files that are not whole.
head -c 700 spilling.trace >cut.trace
expect 'a cut trace is shown as far as it goes, and that is said' 0 '*NOT COMPLETE*' '*cut off*' report cut.trace
{ head -c 500 spilling.trace; printf 'garbage'; tail -c +508 spilling.trace; } >damaged.trace
expect 'so is a damaged one' 0 '*NOT COMPLETE: the file is damaged*' '*damaged*' report damaged.trace
{ cat spilling.trace; printf FRAM; } >late.trace
expect 'replay says so of a cut one' 0 '*' '*the trace is cut off at its end: *' "$tool" replay late.trace
{ cat spilling.trace; printf 'garbage%0300d' 0; } >late.trace
expect 'and of a damaged one' 0 '*' '*the trace is damaged, *: the prediction*' "$tool" replay late.trace
expect 'replay says that it leaves out what other GPUs lent' 0 '*"peers_left_out": true,*' \
	'*(spill.peers) is left out, though the job had some when it was recorded: *' "$tool" replay --json peers.trace
expect 'or would lend by the policy' 0 '*' '*(spill.peers) is left out: *' "$tool" replay --set spill.peers=1 spilling.trace
expect 'and nothing of it where there is none' 0 '*"peers_left_out": false,*' '*1 allocations failed*prediction' "$tool" replay --json spilling.trace
expect 'what strangers say of tensors does not stop replay' '0' '*' '*' sh -c '"$1" replay hostile.trace || [ $? -le 2 ]' sh "$tool"
i=1
while [ $i -lt "$(wc -c <hostile.trace)" ]; do
	head -c $i hostile.trace >part.trace
	"$tool" report part.trace >out.txt 2>err.txt
	got=$?
	n=$((n + 1))
	promise="$i bytes of a trace are shown or refused"
	[ $got = 0 ] || [ $got = 2 ] || complain "exit status $got"
	i=$((i + 37))
done
printf 'no trace' >no.trace
expect 'what is no trace is refused' 2 '' 'spillway: "no.trace": *' report no.trace
expect 'a file that is not there, too' 2 '' 'spillway: "nowhere.trace": *' report nowhere.trace
# A job: the order is that of the ranks. One of them was killed, one left nothing that is a trace, one left no file.
head -c $(($(wc -c <rank1.trace) / 2)) rank1.trace >killed.trace
printf 'nothing' >rank3.trace
expect 'the traces of the ranks of a job are shown as one' 0 '*' '*killed.trace*rank3.trace*' report rank2.trace killed.trace rank3.trace rank0.trace
same job.txt
expect 'so they are for programs' 0 '{"schema": 1, "job": "4711", "hosts": 1, "spilling": 2, "slowest": 0, "imbalance": 1.000, *"missing": [[]3, 4], "ranks": [[]{"path": "rank0.trace", *"complete": true*{"path": "killed.trace", *"complete": false*{"path": "rank2.trace", *{"path": "rank3.trace", "problem": "*", "rank": null*]}' '*' \
	report --json rank2.trace killed.trace rank3.trace rank0.trace
expect 'they may be more than can be compared' 0 'job 4711: 2 ranks*' '*' report rank0.trace rank2.trace \
	$(yes rank3.trace | head -20)
expect 'one rank twice is no job' 0 '1: rank0.trace*' '' report rank0.trace rank0.trace
expect 'nor are two jobs' 0 '1: rank0.trace*' '' report rank0.trace other.trace
expect 'nor is one without a rank' 0 '1: rank0.trace*' '' report rank0.trace spilling.trace
expect 'and then not so many' 2 '' '*17 traces are too many*not those of the ranks of one job*' report \
	$(yes spilling.trace | head -17)
expect 'one bad trace of two shows nothing' 2 '' '*no.trace*' report spilling.trace no.trace
expect 'no trace is wrong usage' 2 '' '*no trace given*' report
expect 'an unknown option is wrong usage' 2 '' '*unknown option "--hmtl"*' report --hmtl spilling.trace
expect 'two outputs are wrong usage' 2 '' '*only one of*' report --json --html spilling.trace
expect 'a page of three runs is wrong usage' 2 '' '*3 traces are too many for a page*' \
	report --html spilling.trace static.trace peers.trace
expect 'a page of two runs has both' 0 '<!doctype html>*"path": "spilling.trace"*"path": "static.trace"*</html>' '' \
	report --html spilling.trace static.trace
expect 'and --perfetto leaves no file of them' 2 '' '*--perfetto takes one*' \
	report --perfetto --output two.out spilling.trace static.trace
expect 'none at all' 1 '' '' test -e two.out
echo precious >kept.out
expect 'a trace that cannot be read leaves the output as it was' 2 '' '*"nosuch.trace"*' report --html --output kept.out nosuch.trace
expect 'so does a report that fails half way' 1 '' '*could not be written: File too large' \
	sh -c 'ulimit -f 1; "$1" report --html --output kept.out spilling.trace' sh "$tool"
expect 'to the byte' 0 precious '' cat kept.out
expect 'and nothing beside it' 0 '' '' sh -c 'ls -A | grep ^.kept.out. || true'
chmod 640 kept.out
expect 'one that succeeds takes its place' 0 '' '' report --html --output kept.out spilling.trace
cmp -s page.html kept.out || complain 'it is another'
[ "$(stat -c %a kept.out)" = 640 ] || complain "its mode is $(stat -c %a kept.out), not what it was"
expect '- is standard output' 0 'spilling.trace: *' '' report --output - spilling.trace
gzip -c spilling.trace >packed.trace.gz
report spilling.trace | sed 's/spilling\.trace/packed.trace.gz/' >plain.txt
expect 'a gzipped trace is shown as the plain one' 0 '*' '' report packed.trace.gz
promise='to the letter'
cmp -s out.txt plain.txt || complain 'it is another text'
cp spilling.trace mine.trace
expect 'no trace is written over' 2 '' '*--output: "./mine.trace" is the trace*' report --output ./mine.trace mine.trace
expect 'it is as it was' 0 '' '' cmp spilling.trace mine.trace
for output in --html --json --perfetto; do
	expect "half of $output is taken away again" 1 '' 'spillway: "half" could not be written: File too large' \
		sh -c 'ulimit -f 1; "$1" report $2 --output half spilling.trace' sh "$tool" $output
	expect 'nothing is left of it' 1 '' '' test -e half
done
echo old >half
expect 'half of one that was there, too' 1 '' 'spillway: "half" could not be written: File too large' \
	sh -c 'ulimit -f 4; "$1" report --html --output half spilling.trace' sh "$tool"
expect 'leaves what was there as it was' 0 old '' cat half
expect 'a full device is named' 1 '' 'spillway: "/dev/full" could not be written: No space left on device' \
	report --html --output /dev/full spilling.trace
expect 'and stays' 0 '' '' test -c /dev/full
expect 'no signal ends it where the shell writes the file' 1 '' '*could not be written: File too large' \
	sh -c 'ulimit -f 4; "$1" report --html spilling.trace >half' sh "$tool"
rm half
expect 'help has examples' 0 'usage: *examples:*' '' report --help
expect 'a full disk is an error' 1 '' '*could not be written*' sh -c '"$1" report spilling.trace >/dev/full' sh "$tool"

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
