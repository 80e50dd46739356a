#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# site_test.sh TOOL FOLDER SIM_DIR PRELOAD SOURCES: what asks for memory in a Python program is named by its lines: in the
# summary, in a report and for the policy. Each Python of this machine that is known is tried.
tool=$1 folder=$2 sources=$5
. "${0%/*}/lines_start.sh" site_test 512MiB "$folder" "$3"
library=$4
cd "$here" || exit 1
failed=0
n=0

# has "promise" PATTERN FILE
has() {
	n=$((n + 1))
	grep -qE -- "$2" "$3" && return
	failed=$((failed + 1))
	echo "FAILED: $python: $1: no $2 in"
	cat "$3"
}

has_not() {
	n=$((n + 1))
	grep -qE -- "$2" "$3" || return
	failed=$((failed + 1))
	echo "FAILED: $python: $1: there is $2 in"
	cat "$3"
}

job() {
	n=$((n + 1))
	LD_PRELOAD=$library "$python" job.py "$folder" >out.txt 2>err.txt && return
	failed=$((failed + 1))
	echo "FAILED: $python: the job:"
	cat err.txt
}

# A name that is too long for its column stands on a line of its own, its figures on the next.
report() {
	"$tool" report "$1" | awk '/^                    / { printf "%s", $0; next } { printf "%s%s", sep, $0; sep = "\n" } END { print "" }' >report.txt
}

line() {
	grep -n "mark: $1" job.py | cut -d: -f1
}

mkdir -p site-packages/helper
printf 'def through(call, text, n):\n    return call(n)\n' >site-packages/helper/__init__.py
cp "$sources/site_job.py" job.py
# What the line of a call is that goes over several: where its first argument was called from.
call=$(grep -n 'helper.through' job.py | cut -d: -f1)

cat >lines.yaml <<'END'
rules:
- {match: {caller: "job.py:* in forward"}, use: driver}
- {match: {caller: backward}, use: driver}
END

try() {
	rm -f job.trace top.json
	TOP=$tool SPILLWAY_TRACE=$here/job.trace job
	report job.trace
	has 'a line of a function' "^ *job\.py:$(line forward) in forward  *1  *1\.0 MiB" report.txt
	has 'what is installed is passed' "^ *job\.py:$call in step  *1  *2\.0 MiB" report.txt
	has 'what is made at run time is passed' "^ *job\.py:$(line made) in <module>  *1  *3\.0 MiB" report.txt
	has 'autograd' "^ *backward  *1  *4\.0 MiB" report.txt
	has 'a thread without Python' "^ *libsite_user\.so:site_alloc\+0x[0-9a-f]*  *1  *5\.0 MiB" report.txt
	has 'managed memory' "^ *job\.py:$(line managed) in <module>  *1  *6\.0 MiB" report.txt
	has 'memory in stream order' "^ *job\.py:$(line async) in <module>  *1  *7\.0 MiB" report.txt
	has 'a handle' "\"text\": \"job\.py:$(line create) in <module>\"" top.json
	has_not 'no runtime' "libcudart" report.txt
	"$tool" report --json job.trace | tr -d '\n' | sed 's/.*"calls": //' >calls.txt
	has 'what called a line' "\"name\": \"job\.py:$call in step\", *\"callers\": \[ *\"job\.py:[0-9]+ in .u003cmodule.u003e\"\]" calls.txt
	has 'that a line is the outermost' "\"name\": \"job\.py:$(line managed) in .u003cmodule.u003e\", *\"callers\": \[\]" calls.txt
	has 'that callers are not known' "\"name\": \"backward\", *\"callers\": null" calls.txt
	has_not 'nothing is said about this Python' "is not known" err.txt

	SPILLWAY_POLICY=$here/lines.yaml SPILLWAY_TRACE=$here/lines.trace job
	report lines.trace
	has 'rules look at lines' '^ *rule 1  *1  *1\.0 MiB' report.txt
	has 'rules look at threads of autograd' '^ *rule 2  *1  *4\.0 MiB' report.txt
	rm -f lines.trace

	MOVE=1 SPILLWAY_SET="device.budget=64MiB,host.budget=256MiB,report=full" job
	has 'the summary' "costs most: .*asked for at job\.py:$(line moved) in " err.txt
}

# What looks like Python and is none.
for python in unknown wild garbage; do
	rm -f hostile.trace
	n=$((n + 1))
	if ! LD_PRELOAD=$library SPILLWAY_TRACE=$here/hostile.trace "$folder/site_hostile" $python 2>err.txt; then
		failed=$((failed + 1))
		echo "FAILED: $python: the program ended by it"
	fi
	report hostile.trace
	[ $python = garbage ] || has 'native code' "^ *site_hostile:site_wanted\+0x[0-9a-f]*  *300 " report.txt
	[ $python != unknown ] || has 'it is said' 'this Python 3\.15 is not known' err.txt
done

pythons=0
for python in python3 /usr/bin/python3 $SITE_TEST_PYTHONS; do
	is_known "$python" || continue
	try
	pythons=$((pythons + 1))
done
echo "$n checks, $failed failed, $pythons times Python"
[ $failed = 0 ] || exit 1
[ $pythons != 0 ] || exit 77
