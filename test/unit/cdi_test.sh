#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cdi_test.sh TOOL SOURCE_DIR LIBRARY: `spillway cdi` writes what engines read, over nothing, and refuses what a container could
# not use. Where python3 is, its spec is held against the rules of the interface. scripts/cluster.sh starts a container by it.
tool=$1 source=$2 library=$3
. "${0%/*}/../expect.sh"
here=$(mktemp -d /tmp/cdi_test.XXXXXX) || exit 1
here=$(cd "$here" && pwd -P)
trap 'rm -rf "$here"' EXIT
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_SET LD_PRELOAD XDG_RUNTIME_DIR
cd "$here" || exit 1
cdi() { "$tool" cdi --library "$library" "$@"; }
# The words of the file spec.json without line ends.
spec() { tr -d '\n' <spec.json; }
# good "promise" option...: writes spec.json, which is a spec.
good() {
	what=$1
	shift
	rm -f spec.json
	expect "$what" 0 '' '' cdi --output spec.json "$@"
	if command -v python3 >/dev/null; then
		expect "$what: the interface's rules" 0 '' '' python3 "$source/test/unit/cdi_check.py" spec.json
	fi
}

good 'it is written'
expect 'to the letter' 0 "{\"cdiVersion\": \"0.3.0\",\"kind\": \"spillway/memory\",\"devices\": [[]{\"name\": \"all\",\"containerEdits\": {\"env\": [[]\"LD_PRELOAD=/opt/spillway/libspillway.so\",\"NVTX_INJECTION64_PATH=/opt/spillway/libspillway.so\"],\"mounts\": [[]{\"hostPath\": \"$library\",\"containerPath\": \"/opt/spillway/libspillway.so\",\"options\": [[]\"ro\",\"nosuid\",\"nodev\",\"bind\"]},{\"hostPath\": \"$tool\",\"containerPath\": \"/opt/spillway/spillway\",\"options\": *}]}}]}" '' spec
expect 'everybody can read it' 0 644 '' stat -c %a spec.json
expect 'without --output it is printed' 0 "$(sed 's/\[/[[]/g' spec.json)" '' cdi
expect 'a file that is there stays' 2 '' '*is there already*' cdi --output spec.json
expect 'a folder that is not there' 1 '' '*nosuch/spec.json*' cdi --output nosuch/spec.json
printf 'include: training\ndevice.budget: 1GiB\n' >job.yaml
install -d -m 700 run
good 'a policy, settings, a folder, another place and name' --policy job.yaml --set 'host.budget=1GiB,spill.mode=fast' --run-folder run \
	--at /s --name half.1
expect 'they are in it' 0 "*\"name\": \"half.1\"*\"LD_PRELOAD=/s/libspillway.so\"*\"SPILLWAY_POLICY=/s/policy.yaml\",\"SPILLWAY_SET=host.budget=1GiB,spill.mode=fast\",\"XDG_RUNTIME_DIR=/s/run\"]*{\"hostPath\": \"$here/job.yaml\",\"containerPath\": \"/s/policy.yaml\",\"options\": [[]\"ro\"*{\"hostPath\": \"$here/run\",\"containerPath\": \"/s/run\",\"options\": [[]\"rw\"*" '' spec
good 'a built-in policy by its name' --policy training
expect 'which is in it, and no mount of it' 0 '*"SPILLWAY_POLICY=training"]*' '' spec
case $(spec) in *policy.yaml*) complain 'a file is mounted' ;; esac
printf 'include: job.yaml\n' >outer.yaml
expect 'a policy of several files' 2 '' '*includes other files*write it as one*' cdi --policy outer.yaml
expect 'a bad policy' 2 '' '*error: *' cdi --set x=1
expect 'a folder that others can read' 2 '' '*must be a folder of the user*0700*' sh -c 'chmod 755 run; "$@"' sh "$tool" cdi --library "$library" --run-folder run
expect 'no folder' 2 '' '*--run-folder: nosuch: No such file*' cdi --run-folder nosuch
for name in '' -a a- 'a b' a/b; do
	expect "\"$name\" is no name" 2 '' '*no name of a device*' cdi --name "$name"
done
for at in s '/a b' /a:b ''; do
	expect "\"$at\" is no place" 2 '' '*no full path without blanks and colons*' cdi --at "$at"
done
expect 'an argument' 2 '' '*takes no argument, but was given "x"' cdi x
expect 'no library' 2 '' '*--library: nosuch: *' "$tool" cdi --library nosuch
# The rules themselves: each broken one is found.
if command -v python3 >/dev/null; then
	broken() {
		sed "$2" "$here/spec.json" >broken.json
		expect "the check finds $1" 1 '' "*$3*" python3 "$source/test/unit/cdi_check.py" broken.json
	}
	good 'one to break'
	broken 'another name of the version' 's/cdiVersion/specVersion/' 'no cdiVersion'
	broken 'a version that is not known' 's/0\.3\.0/9/' 'is not known'
	broken 'a kind without a class' 's,spillway/memory,spillway,' 'not VENDOR/CLASS'
	broken 'a key that the schema does not know' 's/"mounts"/"mount"/' 'does not know'
	broken 'a path that is not full' 's,"/opt/spillway/spillway","spillway",' 'no full path'
	broken 'a variable without a value' 's/LD_PRELOAD=/LD_PRELOAD /' 'no NAME=VALUE'
fi
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
