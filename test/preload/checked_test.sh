#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# checked_test.sh SOURCE BUILD PROGRAM: scripts/checked.sh repeats a program of which two kernels use what they do not name,
# until the run goes through; its table says so. PROGRAM is checked_job.
set -uo pipefail

source=$1 build=$2 program=$3
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0

check() { # check WHAT PATTERN: a line of the output
	grep -Eq "$2" "$here/out" && return
	echo "FAILED: $1: no line like $2"
	failed=1
}

export SIM_MEMORY=256MiB SIM_FILL=0 SPILLWAY_SET=device.budget=128MiB,host.budget=64MiB,report.summary=no
# A process was killed in a check of this one, which may have had other reasons.
printf 'n\t0000000000000001\tlibelse.so\tdies\n?\t0000000000000001\n' >"$here/list"
chmod 600 "$here/list"
# The list is named from this folder, and the program begins in another one.
cd "$here" || exit 1
BUILD=$build "$source/scripts/checked.sh" -o list sh -c 'cd / && exec "$1"' sh "$program" >"$here/out" 2>"$here/err"
status=$?
[[ $status == 1 ]] || { echo "FAILED: status $status"; failed=1; }
check "runs" "^checked: 3 runs, the last one ended with 0"
check "the table" "^checked_job +4 +2 +2 +[0-9]+ +6$"
check "what died" "^libelse.so +0 +0 +0 +0 +0$"
check "its name" "^died in: libelse.so	dies$"
check "one" "^refuted: checked_job	hides$"
check "the other" "^refuted: checked_job	hides_more$"
[[ $(stat -c %a "$here/list") == 600 ]] || { echo "FAILED: the mode of the list"; failed=1; }
((failed == 0)) || { cat "$here/out" "$here/err" "$here/list"; exit 1; }
