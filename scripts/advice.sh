#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# advice.sh [--update | --record]: what the end of a run says to change, the line that costs most, and the policy that --fit
# would write, for the recorded jobs in test/data/recorded, compared with the texts beside them. --update writes the texts
# anew; look at them with git diff.
# --record runs the jobs again, on the simulated GPU, and then updates. BUILD is the build folder (build).
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${BUILD:-build}")
golden=test/data/recorded
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT

# record NAME MEMORY SETTINGS PROGRAM...: its figures, and what it was.
record() {
	local name=$1 memory=$2 set=$3
	shift 3
	rm -rf "$here/left"
	mkdir -m 700 "$here/left" "$here/left/spillway"
	LD_LIBRARY_PATH=$build/sim XDG_RUNTIME_DIR=$here SPILLWAY_FIGURES=$here/left SIM_MEMORY=$memory \
		"$build/spillway" run --set "$set" -- "$@" >"$here/out.txt"
	{
		echo "# recorded on the simulated GPU by scripts/advice.sh: $set; ${*//$build/build}"
		"$build/test/unit/recorded" write "$here"/left/spillway/*.stats
	} >"$golden/$name.figures"
}

case ${1:-} in
'') exec test/unit/recorded_test.sh "$build/test/unit/recorded" . ;;
--update) exec test/unit/recorded_test.sh "$build/test/unit/recorded" . --update ;;
--record) ;;
*)
	echo "usage: scripts/advice.sh [--update | --record]" >&2
	exit 2
	;;
esac
mkdir -p "$golden"
record layers-exact 128MiB spill.mode=exact python3 test/job/too_large.py 40
record layers-fast 128MiB spill.mode=fast python3 test/job/too_large.py 40
record train-exact 64MiB spill.mode=exact,device.budget=56MiB "$build/job/train" 64 100
exec test/unit/recorded_test.sh "$build/test/unit/recorded" . --update
