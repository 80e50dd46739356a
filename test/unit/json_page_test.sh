#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# json_page_test.sh TOOL CASES SOURCE_DIR SIM_DIR: the keys of every command's JSON are those of the section JSON of its manual page,
# where keys are Cm and values are not; each begins with "schema". What `spillway top` says of a process: top_json_test.
tool=$1
cases=$2
source=$3
sim=$4
here=$(mktemp -d /tmp/json_page_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
failed=0
n=0

# show COMMAND argument...: what it prints as JSON, behind what was printed since the last keys()
show() {
	"$tool" "$@" >>all.json 2>err.txt
}

# keys COMMAND: of all that was printed
keys() {
	n=$((n + 2))
	grep -o '"[a-z_0-9]*": ' all.json | tr -d '": ' | sort -u >keys.txt
	sed -n '/^\.Sh JSON/,/^\.Sh EXIT/s/^\.\(It \)\{0,1\}Cm //p' "$source/tools/man/spillway-$1.1" | tr ' ' '\n' |
		grep -v '[^a-z_0-9]' | sort -u >page.txt
	diff keys.txt page.txt >difference.txt || {
		failed=$((failed + 1))
		echo "FAILED: $1: keys of its JSON (<), and of its manual page (>)"
		cat difference.txt
	}
	tr -d '\n' <all.json | grep -q '^\[\{0,1\} *{ *"schema": [12],' || {
		failed=$((failed + 1))
		echo "FAILED: $1: its JSON does not begin with the schema: $(head -c 100 all.json)"
	}
	rm all.json
}

"$cases" . || exit 1
printf 'version: 1\nrules:\n- {name: x, match: {size: "< 1MiB"}, use: managed}\n' >good.yaml
printf 'version: 3\n' >bad.yaml
for case in spilling static fitting; do
	show report --json $case.trace
done
printf 'nothing' >rank3.trace
show report --json rank0.trace rank1.trace rank3.trace
keys report
show replay --json --step-time 70 --budget 80%,50% "$source/test/data/gpt-h200.trace.gz"
keys replay
show check --json bad.yaml good.yaml
keys check
show explain --json good.yaml
keys explain
mkdir -p root/usr/lib
ln -s "$sim/libcuda.so.1" root/usr/lib/libcuda.so.1
SIM_DEVICES=2 show doctor --json --root "$here/root" --no-measure
keys doctor

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
