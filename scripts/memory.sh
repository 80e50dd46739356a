#!/usr/bin/env bash
# memory.sh [OPTION...] [PART...]: the kinds of memory on a real GPU, in one call of TOTAL_SECONDS (530) at most. Parts:
#
#   off plugs view managed async llm tools     by test/gpu/memory_bars.py, whose head says what (all when none is named)
#
# Options (--rounds 3 --steps 10 --tokens 24 --uses auto,heap) go to it. BUILD (default ./build) comes ready-made and OUT (default
# ./gpu-out) takes the logs, as for spill.sh. Managed and system memory stay below 256 MiB; memory is oversubscribed by
# Spillway's device.budget alone.
#
# Exit status: 0 all bars reached, 1 not, 2 there is no usable GPU or no build.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2

build=$(cd "${BUILD:-$root/build}" 2>/dev/null && pwd) || {
	echo "memory.sh: there is no build in ${BUILD:-$root/build}" >&2
	exit 2
}
out=${OUT:-$root/gpu-out}
mkdir -p "$out"
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

if ! has_gpu; then
	echo "memory.sh: no NVIDIA GPU with a driver was found here" >&2
	exit 2
fi
echo "GPU: $(gpu_name); spillway: $build/libspillway.so, $(stat -c %y "$build/libspillway.so" | cut -d. -f1)"
rm -f "$out/memory.log" "$out/memory.log.json"
bad=0
python3 "$root/test/gpu/memory_bars.py" --build "$build" --log "$out/memory.log" --seconds "${TOTAL_SECONDS:-530}" "$@" || bad=1
echo "$SECONDS s in all; logs in $out"
exit $bad
