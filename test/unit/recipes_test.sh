#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# recipes_test.sh TOOL SOURCE_DIR: what docs/recipes.md has to be copied is well-formed: systemd takes the unit as it is, the
# policies are there, the file for compose is YAML whose library lies where it is preloaded from. Nothing of it is run.
tool=$1 page=$2/docs/recipes.md
. "${0%/*}/../expect.sh"
here=$(mktemp -d /tmp/recipes_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1

block() { # FIRST LINE: the block that begins so
	awk -v first="$1" '/^```/ { on = 0; getline; on = $0 == first } on' "$page"
}

block '[Unit]' >train.service
promise 'the page has a unit' grep -q '^ExecStart=/usr/local/bin/spillway run ' train.service
# The command is on no machine of ours; all else is as it stands.
sed -i 's!^\(ExecStart=\)/usr/local/bin/spillway!\1/bin/sh!' train.service
if command -v systemd-analyze >/dev/null; then
	promise 'systemd takes it' sh -c '! systemd-analyze verify ./train.service 2>&1 | grep -F train.service'
fi
for policy in $(grep -oE '(--policy |SPILLWAY_POLICY(=|: ))[a-z-]+' "$page" | sed 's/.*[ =]//' | sort -u); do
	promise "there is a policy $policy" "$tool" check "$policy" >out.txt
done
block 'services:' >compose.yaml
promise 'the page has a file for compose' grep -q 'image:' compose.yaml
if python3 -c 'import yaml' 2>/dev/null; then
	promise 'its library is mounted where it is preloaded from' python3 - <<'END'
import yaml
train = yaml.safe_load(open("compose.yaml"))["services"]["train"]
assert train["volumes"][0].split(":")[1] == train["environment"]["LD_PRELOAD"]
END
fi
promise 'who stands for the library is named first' grep -q '^`/usr/local/lib/libspillway.so` stands for' "$page"
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
