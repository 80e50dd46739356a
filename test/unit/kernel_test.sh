#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kernel_test.sh TOOL SOURCE_DIR SIM_DIR JSON_VALID: `spillway kernel install` writes what Jupyter reads, where it looks for it,
# and over nothing. Where KERNEL_TEST_PYTHON, or python3, has jupyter_client and ipykernel, such a kernel is started.
tool=$1 source=$2 sim=$3 valid=$4
. "${0%/*}/../expect.sh"
here=$(mktemp -d /tmp/kernel_test.XXXXXX) || exit 1
here=$(cd "$here" && pwd -P)
trap 'rm -rf "$here"' EXIT
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_SET LD_PRELOAD JUPYTER_DATA_DIR XDG_DATA_HOME JUPYTER_PATH
python=${KERNEL_TEST_PYTHON:-$(command -v python3)}
export HOME=$here/home
mkdir "$here/home" "$here/work"
cd "$here/work" || exit 1
install() { "$tool" kernel install --python ./py "$@"; }
printf '#!/bin/sh\n[ "$*" = "-c import ipykernel" ]\n' >py
printf '#!/bin/sh\nexit 1\n' >bare
chmod +x py bare
printf 'version: 1\n' >job.yaml
spec=$here/home/.local/share/jupyter/kernels/spillway/kernel.json

expect 'it is written for the user, and named' 0 "$spec" '' install
expect 'it is JSON' 0 '*' '' sh -c '"$1" <"$2"' sh "$valid" "$spec"
expect 'to the letter' 0 "{\"argv\": [[]\"$tool\", \"run\", \"--\", \"$here/work/./py\", \"-m\", \"ipykernel_launcher\", \"-f\", \"{connection_file}\"], \"display_name\": \"Python 3 with Spillway\", \"language\": \"python\", \"metadata\": {\"debugger\": true}}" '' cat "$spec"
expect 'others can read it' 0 644 '' stat -c %a "$spec"
expect 'a spec that is there stays' 1 '' '*/kernel.json is there already*kernelspec remove spillway' install
expect 'options are passed on, a policy by its path' 0 '*/few/kernel.json' '' \
	install --name few --display-name 'a "few"' --policy job.yaml --set device.budget=90% --set spill.mode=static
expect 'they are in it' 0 "*\"run\", \"--policy\", \"$here/work/job.yaml\", \"--set\", \"device.budget=90%\", \"--set\", \"spill.mode=static\", \"--\",*\"display_name\": \"a \\\\\"few\\\\\"\",*" '' \
	cat "${spec%spillway/*}few/kernel.json"
expect 'it is JSON, too' 0 '*' '' sh -c '"$1" <"$2"' sh "$valid" "${spec%spillway/*}few/kernel.json"
expect 'a built-in policy by its name' 0 '*' '' install --name trained --policy training
expect 'which is in it' 0 '*"--policy", "training"*' '' cat "${spec%spillway/*}trained/kernel.json"
expect 'a prefix' 0 'tree/share/jupyter/kernels/spillway/kernel.json' '' install --prefix tree
expect 'the folder of Jupyter, if it is named' 0 "$here/data/kernels/spillway/kernel.json" '' \
	env JUPYTER_DATA_DIR="$here/data" "$tool" kernel install --python ./py
expect 'the folder of data' 0 "$here/xdg/jupyter/kernels/spillway/kernel.json" '' \
	env XDG_DATA_HOME="$here/xdg" "$tool" kernel install --python ./py
expect 'a Python without ipykernel is said' 0 '*' '*/bare has no ipykernel*pip install ipykernel' "$tool" kernel install --name bare --python ./bare
expect 'no Python' 2 '' '*--python: nosuch: no such program' "$tool" kernel install --name none --python nosuch
expect 'a bad policy is not installed' 2 '' '*error: *' install --name bad --set x=1
[ ! -e "${spec%spillway/*}bad" ] || complain 'its folder was made'
expect 'two places' 2 '' '*name one*' install --name two --user --prefix tree
for name in '' A ../x 'a b' .hidden; do
	expect "\"$name\" is no name" 2 '' '*no name of a kernel*' install --name "$name"
done
expect 'a folder that cannot be made' 1 '' '*job.yaml/share cannot be made: Not a directory' install --prefix job.yaml
expect 'what to do has to be said' 2 '' '*write `spillway kernel install*' "$tool" kernel
expect 'nothing else is known' 2 '' '*write `spillway kernel install*' "$tool" kernel remove

if "$python" -c 'import jupyter_client, ipykernel' 2>/dev/null; then
	expect 'a spec for that Python' 0 '*' '' "$tool" kernel install --name real --python "$python" --set device.budget=64MiB
	expect 'Jupyter starts it, and it has more memory than the GPU' 0 'preloaded True errors 0 parent is Jupyter True' '*' \
		env LD_LIBRARY_PATH="$sim" SIM_MEMORY=128MiB XDG_RUNTIME_DIR="$here" "$python" "$source/test/unit/kernel_start.py" real
else
	echo "$python has no jupyter_client and ipykernel: no kernel was started"
fi
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
