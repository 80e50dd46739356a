#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# machine_test.sh TOOL ACTOR SIM_DIR PRELOAD: the machine's policy in /etc/spillway, as root has written it: in namespaces of the
# test's own, where /etc is another folder. Skipped (status 77) where there are none. The library takes no more than the limits,
# whatever policy, setting, share or request asks for more, and the tool says what was cut.
if [ "$MACHINE_TEST_INSIDE" != 1 ]; then
	unshare -Urm true 2>/dev/null || {
		echo 'skipped: no user and mount namespaces can be made here'
		exit 77
	}
	MACHINE_TEST_INSIDE=1 exec unshare -Urm "$0" "$@"
fi
tool=$1 actor=$2 library=$4
. "${0%/*}/../expect.sh"
here=$(mktemp -d /tmp/machine_test.XXXXXX) || exit 1
here=$(cd "$here" && pwd -P)
trap 'umount /etc; rm -rf "$here"' EXIT
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_TRACE SPILLWAY_SET LD_AUDIT LD_PRELOAD
export LD_LIBRARY_PATH="$3" XDG_RUNTIME_DIR="$here" LC_ALL=C SIM_MEMORY=128MiB SIM_HOST_MEMORY=1GiB
mkdir -m 755 "$here/etc" "$here/etc/spillway"
[ ! -e /etc/ld.so.cache ] || cp /etc/ld.so.cache "$here/etc"
mount --bind "$here/etc" /etc || exit 1
cd "$here" || exit 1

machine() {
	cat >/etc/spillway/policy.yaml
	chmod 644 /etc/spillway/policy.yaml
}

run() { "$tool" run --library "$library" "$@"; }

# fits "promise" BLOCKS SETTING [option...]: so many blocks of 8 MiB are what the program gets before it is out of memory.
fits() {
	what=$1 blocks=$2 set=$3
	shift 3
	expect "$what" 0 "$blocks *" '*' run --set "report=none${set:+,$set}" "$@" -- "$actor" fills_up
}

machine <<'END'
limits:
  device.budget: 25%
  host.budget: 48MiB
  spill.mode: exact
END
fits 'a size of the device is cut where the device is known, and one of the host stays below' 9 device.budget=64MiB,host.budget=40MiB
fits 'what --for sets is within the budgets of the machine' 5 '' --for batch-finder
fits 'a share of the host is cut, and what nobody wrote' 10 host.budget=90%
fits 'a smaller share holds' 8 device.budget=12.5%
fits 'a budget that follows what is free stays below' 10 device.budget=auto
grep -q 'spill exact' err.txt || complain 'not the mode that is left'
fits 'a mode is cut, and that is said' 10 spill.mode=fast
grep -q "^--set:1:13: warning: spill.mode: fast is more than this machine allows; exact holds (limits of /etc/spillway/policy.yaml)$" \
	err.txt || complain 'the cut is not said'
grep -q 'spill exact' err.txt || complain 'not the mode that is left'
expect 'a variable is cut, too, without the tool' 0 '10 *' \
	'*SPILLWAY_SET:1:1: warning: host.budget: 64MiB is more than this machine allows; 48MiB holds*' \
	env SPILLWAY_SET=host.budget=64MiB LD_PRELOAD="$library" "$actor" fills_up
grep -q "what to raise: host.budget to 56MiB or more" err.txt || complain 'not the key that is limited'
grep -q "/etc/spillway/policy.yaml limits what a policy on this machine can have" err.txt || complain 'the limits are not named'
expect 'it is no boundary: a policy that leaves everything to the driver does' 0 '16 *' '*' run --policy passthrough -- "$actor" fills_up
expect 'so does a process without the library' 0 '16 *' '' env SPILLWAY=0 LD_PRELOAD="$library" "$actor" fills_up
expect 'check says what holds, where it comes from and what was cut' 0 \
	"heap: ok, 1 warning*  device.budget: start (heap:5); /etc/spillway/policy.yaml limits it to 25%*  host.budget: 48MiB (--set); cut from 1GiB: /etc/spillway/policy.yaml limits it to 48MiB*" \
	'--set:1:1: warning: host.budget: 1GiB is more*' "$tool" check --settings --set host.budget=1GiB heap
expect 'so it does in JSON' 0 \
	'*"settings": *{"key": "host.budget", "value": "48MiB", "file": "SPILLWAY_SET", "line": null, "limit": "48MiB", "cut": "1GiB"}*' '*' \
	"$tool" check --json --set host.budget=1GiB heap
expect 'explain says so of what is limited' 0 \
	'*device.budget: start (heap:5); /etc*host.budget: 48MiB (--set); cut from 1GiB*spill.mode: exact (heap:7); /etc*' '*' \
	"$tool" explain --set host.budget=1GiB heap
expect 'and of all that is set where that is asked for' 0 '*async.use: auto (heap:10)*' '*' "$tool" explain --settings heap
expect 'containers get it, too' 0 '*"hostPath": "/etc/spillway",?"containerPath": "/etc/spillway",?"options": [[]"ro"*' '' \
	"$tool" cdi --library "$library"
# A request from outside: the process stands still until it is told, and its budget stays what it was.
mkfifo tell
run --set report=none -- "$actor" ends_when_told <tell >out.txt 2>&1 &
exec 9>tell
tries=0 # for 30 s at most
until "$tool" list 2>/dev/null | grep -q actor || [ $tries = 300 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
pid=$("$tool" list | sed -n 's/^ *\([0-9][0-9]*\) .*actor.*/\1/p')
expect 'spillway set is refused what the limit forbids' 1 '*' '*host.budget: 64MiB is more than this machine allows*' \
	"$tool" set "$pid" host.budget=64MiB
expect 'and gets what it allows' 0 '*' '*' "$tool" set "$pid" host.budget=40MiB
echo >&9
exec 9>&-
wait

machine <<'END'
limits: {host.total: 24MiB}
END
fits 'what all have together is counted also of who shares nothing' 11 host.share=off,host.budget=48MiB

machine <<'END'
device.budget: 16MiB
host.budget: 8MiB
END
fits 'who names no policy gets that of the machine' 3 ''
fits 'with settings on top' 4 host.budget=16MiB
fits 'who names one gets that' 3 device.budget=8MiB,host.budget=16MiB --policy heap
expect 'doctor names it' '*' '*policy *  /etc/spillway/policy.yaml (the machine*; no other is set)*' '*' "$tool" doctor --no-measure

chmod 666 /etc/spillway/policy.yaml
fits 'a file that others can write is none of the machine, and that is said' 2 device.budget=8MiB,host.budget=8MiB
grep -q "^/etc/spillway/policy.yaml: warning: the file and its folder must be root's, and nobody else may write there" err.txt ||
	complain 'not said'
expect 'doctor says so' '*' '*policy *policy.yaml: the file and its folder must*' '*' "$tool" doctor --no-measure

machine <<'END'
limits: {host.budget: much}
END
expect 'limits that cannot be read are not taken for none' 2 '' '/etc/spillway/policy.yaml:1:23: error: limits: host.budget: *' \
	run --policy heap -- "$actor" fills_up
expect 'nor without the tool' 0 '16 *' '*/etc/spillway/policy.yaml:1:23: error: *passed through*' env LD_PRELOAD="$library" "$actor" fills_up

echo "$n promises, $failed not held"
[ $failed = 0 ]
