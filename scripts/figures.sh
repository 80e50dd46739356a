#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# figures.sh [OPTION...] [PART...]: what counting, tracing and predicting cost and are worth on a real GPU, in one call of
# TOTAL_SECONDS (530) at most. Parts:
#
#   steps replay kill doctor     by test/gpu/figures_bars.py, whose head says what
#   faults                       bytes of page faults and migrations against CUPTI's, 64 MiB of managed memory
#
# None named: steps replay. Options (--times 3 --modes fast,exact --job "1536 16 8 18") go to figures_bars.py. BUILD
# (default ./build) comes ready-made and OUT (default ./gpu-out) takes the logs, as for spill.sh.
#
# Exit status: 0 all bars reached, 1 not, 2 there is no usable GPU or no build.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2

build=$(cd "${BUILD:-$root/build}" 2>/dev/null && pwd) || {
	echo "figures.sh: there is no build in ${BUILD:-$root/build}" >&2
	exit 2
}
out=${OUT:-$root/gpu-out}
total=${TOTAL_SECONDS:-530}
mkdir -p "$out"
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

options=() parts=() faults='' bad=0
while [ $# -gt 0 ]; do
	case $1 in
	--*) options+=("$1" "$2") && shift ;;
	faults) faults=yes ;;
	*) parts+=("$1") ;;
	esac
	shift
done
[ ${#parts[@]} -gt 0 ] || [ -n "$faults" ] || parts=(steps replay)

if ! has_gpu; then
	echo "figures.sh: no NVIDIA GPU with a driver was found here" >&2
	exit 2
fi
echo "GPU: $(gpu_name); spillway: $build/libspillway.so, $(stat -c %y "$build/libspillway.so" | cut -d. -f1)"
if [ -n "$faults" ]; then
	"$build/test/gpu/faults_check" 64 2>&1 | tee "$out/faults.log"
	[ "${PIPESTATUS[0]}" = 0 ] || bad=1
fi
if [ ${#parts[@]} -gt 0 ]; then
	rm -f "$out/figures.log"
	python3 "$root/test/gpu/figures_bars.py" --build "$build" --log "$out/figures.log" --seconds $((total - SECONDS)) \
		"${options[@]}" "${parts[@]}" || bad=1
fi
echo "$SECONDS s in all; logs in $out"
exit $bad
