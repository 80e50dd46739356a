#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# backward_lines_test.sh TOOL FOLDER SIM_DIR PRELOAD SOURCES C10 C10_CUDA TORCH_CPU: tensors that threads of PyTorch's autograd
# make count for the line of the forward pass that made the node which they run, and otherwise as before.
tool=$1 folder=$2 sources=$5 c10=$6 c10_cuda=$7 torch_cpu=$8
. "${0%/*}/lines_start.sh" backward_lines_test 1GiB "$folder" "$3"
library=$4
cd "$here" || exit 1
python=python3
is_known $python || exit 77
cp "$sources/backward_job.py" job.py
cp "$torch_cpu" libtorch_of_somebody.so

# judge.py KNOWN: MiB of tensors by site, from a report. KNOWN: whether nodes are.
cat >judge.py <<'END'
import json
import sys

MIB = 1 << 20
line = {}
for number, text in enumerate(open("job.py"), 1):
    if "# mark: " in text:
        line[text.split("# mark: ")[1].strip()] = f"job.py:{number} in "
found = {}
for site in json.load(sys.stdin)["sites"]:
    if site["tensor_bytes"]:
        found[site["name"]] = found.get(site["name"], 0) + site["tensor_bytes"] / MIB
wanted = {line["plain"] + "allocate": 6}
wanted.update((line[name] + name, 4) for name in ("first", "second", "third"))
of_lines = {line["second"] + "second [backward]": 6, line["first"] + "first [backward]": 10,
            line["third"] + "third [backward]": 12}
unknown = 2 * (8 + 10 + 12)
if sys.argv[1] == "known":
    wanted.update(of_lines)
else:
    unknown += sum(of_lines.values())
wanted["backward"] = unknown
assert found == wanted, (found, wanted)
END

failed=0 n=0
check() { # check "promise" LIBTORCH LAYOUT KNOWN
	n=$((n + 1))
	rm -f job.trace
	LD_PRELOAD=$library SPILLWAY_TRACE=$here/job.trace SPILLWAY_SET="device.budget=512MiB,spill.mode=fast" \
		$python job.py "$folder" "$c10" "$c10_cuda" "$2" "$3" >out.txt 2>&1 &&
		"$tool" report --json job.trace 2>>out.txt | $python judge.py "$4" >>out.txt 2>&1 && return
	failed=$((failed + 1))
	echo "FAILED: $1:"
	cat out.txt
}

check 'nodes of a shared_ptr' "$torch_cpu" shared known
check 'nodes of an intrusive_ptr' "$torch_cpu" intrusive known
check 'functions that are not PyTorch'"'"'s' "$here/libtorch_of_somebody.so" shared unknown
echo "$n checks, $failed failed"
[ $failed = 0 ]
