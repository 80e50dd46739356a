#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tensor_lines_test.sh TOOL FOLDER SIM_DIR PRELOAD SOURCES C10 C10_CUDA: what moves is counted for the lines at which tensors
# were born, although they share segments that another line has asked for: in top's JSON, in the summary and in a report.
tool=$1 folder=$2 sources=$5 c10=$6 c10_cuda=$7
. "${0%/*}/lines_start.sh" tensor_lines_test 512MiB "$folder" "$3"
library=$4
cd "$here" || exit 1
python=python3
is_known $python || exit 77
cp "$sources/tensor_job.py" job.py

# judge FILE CHECK: CHECK is Python about `out`, the bytes that left the device by line of tensors, `all`, those of all
# memory, and `rest`, those that count for allocations.
cat >judge.py <<'END'
import json
import sys

MIB = 1 << 20
lines, rest = {"first": [0, 0], "second": [0, 0], "third": [0, 0]}, [0, 0]
process = json.load(open(sys.argv[1]))["processes"][0]


def moved(figures):
    return figures["moved_out_bytes"], figures["moved_in_bytes"]


for site in process["sites"]:
    figures, which = site["figures"], rest
    if site.get("tensors"):
        assert not figures["allocations"] and not figures["live"], site
        which = lines[site["text"].split(" in ")[1]]
    for way in 0, 1:
        which[way] += moved(figures)[way]
all = moved(process["devices"][0]["figures"])
for way in 0, 1:
    assert sum(line[way] for line in lines.values()) + rest[way] == all[way], (lines, rest, all)
out = {name: line[0] for name, line in lines.items()}
assert eval(sys.argv[2]), (sys.argv[2], lines, rest, all)
END

# The same of what left, by lines of the program, in a report of the last job.
cat >judge_report.py <<'END'
import json
import sys

MIB = 1 << 20
out = {}
for site in json.load(sys.stdin)["sites"]:
    file, _, function = site["name"].partition(" in ")
    out[file.split(":")[0], function] = out.get((file.split(":")[0], function), 0) + site["bytes_out"]
assert eval(sys.argv[1]), (sys.argv[1], out)
END

report() {
	"$tool" report --json job.trace | $python judge_report.py "$1"
}

failed=0 n=0
check() { # check "promise" COMMAND...
	local what=$1
	shift
	n=$((n + 1))
	"$@" >out.txt 2>&1 && return
	failed=$((failed + 1))
	echo "FAILED: $mode: $what:"
	cat out.txt err.txt
}

job() { # job BUDGET SETTINGS
	rm -f job.trace
	LD_PRELOAD=$library TOP=$tool SPILLWAY_TRACE=$here/job.trace SPILLWAY_SET="device.budget=$1,host.budget=256MiB,report=full,spill.mode=$mode$2" \
		$python job.py "$folder" "$c10" "$c10_cuda" 2>err.txt
}

for mode in exact fast; do
	# All fits, so nothing leaves but what a suspension puts away, twice. Of each segment the first two lines have a half;
	# the second time the third line has what the second had.
	first='rest == [0, 0] and out == {"first": 48 * MIB, "second": 48 * MIB, "third": 0}'
	later='rest == [0, 0] and out["second"] == 48 * MIB and out["third"] == out["first"] - 48 * MIB == 48 * MIB'
	check 'the job' job 128MiB ''
	check 'two lines that share segments' $python judge.py before.json "$first"
	check 'ranges that were born again elsewhere' $python judge.py after.json "$later"
	check 'the report' report 'out["job.py", "second"] == 48 * MIB and out["job.py", "third"] == 48 * MIB == out["job.py", "first"] - 48 * MIB'
	check 'the job that copies all' job 128MiB ',contents=all'
	check 'lines by the latest birth of each unit' $python judge.py before.json "$first"
	check 'the same when they were born again elsewhere' $python judge.py after.json "$later"
	if [ $mode = fast ]; then
		EXPAND=1 check 'the job with expandable segments' job 128MiB ',vmm.spill=move'
		check 'lines in memory that the program maps itself' $python judge.py after.json "$later"
	fi
	check 'the job that spills' job 48MiB ''
	check 'the summary' grep -E 'costs most: tensors born at job\.py:[0-9]+ in (first|second|third): ' err.txt
done
echo "$n checks, $failed failed"
[ $failed = 0 ]
