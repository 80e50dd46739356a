#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pod_test.sh SOURCE_DIR: the pod's manifest and the Dockerfile of docs/cluster are held against rules, and each rule that is
# broken is found. Skipped (status 77) without python3.
source=$1
command -v python3 >/dev/null || exit 77
. "${0%/*}/../expect.sh"
here=$(mktemp -d /tmp/pod_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
pod=$source/docs/cluster/pod.json docker=$source/docs/cluster/Dockerfile
expect 'they are good' 0 '' '' python3 "$source/test/unit/pod_check.py" "$pod" "$docker"
broken() { # WHAT SED MESSAGE
	sed "$2" "$pod" >broken.json
	expect "the check finds $1" 1 '' "*$3*" python3 "$source/test/unit/pod_check.py" broken.json "$docker"
}
broken 'a key that is not known' 's/"emptyDir"/"emptyDirectory"/' 'which is not known'
broken 'a size without a unit' 's/"1Gi"/"1"/' 'no quantity'
broken 'a volume that is not there' 's/{"name": "shm", "mountPath"/{"name": "shn", "mountPath"/' 'no volume shn'
broken 'a library elsewhere' 's,/spillway/libspillway.so,/opt/libspillway.so,' 'not in the volume'
broken 'a number as a text' 's/"runAsUser": 1000/"runAsUser": "1000"/' 'is no int'
sed 's,/opt/spillway/$,/usr/lib/,' "$docker" >Dockerfile
expect 'and an image that has it elsewhere' 1 '' '*not where the init container takes it*' \
	python3 "$source/test/unit/pod_check.py" "$pod" Dockerfile
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
