#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# spill.sh [OPTION...] [PART...]: the spill engine on a real GPU, correctness first, in one call of TOTAL_SECONDS (530) at
# most; part of it at a time is usual. Parts:
#
#   checker   a program whose kernels follow pointers that no launch names: every byte, in static, exact and fast
#   correct   real programs, every mode, half and two thirds of what they need: losses equal to native
#   rate gpt bits jobs graph random fits launch first suspend the bars, by test/gpu/spill_bars.py, whose head says what
#
# None named: checker rate gpt. Options (--ratios 1.25,1.5 --modes fast --static --record --steps N ...) go to
# spill_bars.py, --modes and --apps to correct.py. BUILD (default ./build) comes ready-made and OUT (default ./gpu-out)
# takes the logs, as for gpu.sh; only the checker is built here, where there is no build/job/checker_gpu.
# Memory is oversubscribed by Spillway's device.budget alone; managed memory and the GPU's settings are left alone.
#
# Exit status: 0 all bars reached, 1 not, 2 there is no usable GPU or no build.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2

build=$(cd "${BUILD:-$root/build}" 2>/dev/null && pwd) || {
	echo "spill.sh: there is no build in ${BUILD:-$root/build}" >&2
	exit 2
}
out=${OUT:-$root/gpu-out}
total=${TOTAL_SECONDS:-530}
mkdir -p "$out"
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

left() {
	local left=$((total - SECONDS))
	echo $((left > 0 ? left : 0))
}

options=() modes=() apps=() measured=() correctness=() bad=0
while [ $# -gt 0 ]; do
	case $1 in
	--static | --record) options+=("$1") ;;
	--modes) modes=("$1" "$2") && shift ;;
	--apps) apps=("$1" "$2") && shift ;;
	--*) options+=("$1" "$2") && shift ;;
	checker | correct) correctness+=("$1") ;;
	*) measured+=("$1") ;;
	esac
	shift
done
if [ ${#measured[@]} = 0 ] && [ ${#correctness[@]} = 0 ]; then
	correctness=(checker)
	measured=(rate gpt)
fi

if ! has_gpu; then
	echo "spill.sh: no NVIDIA GPU with a driver was found here" >&2
	exit 2
fi
echo "GPU: $(gpu_name); spillway: $build/libspillway.so, $(stat -c %y "$build/libspillway.so" | cut -d. -f1)"

checker() {
	local nvcc program=$build/job/checker_gpu
	if [ -x "$program" ]; then
		BUILD=$build LIMIT=$(left) OUT=$out "$root/test/gpu/checker.sh" "$program" gpu
		return
	fi
	if ! nvcc=$(find_nvcc); then
		echo 'checker: no nvcc here'
		return 1
	fi
	mkdir -p "$(dirname "$program")"
	"$nvcc" -x cu -cudart static -O2 -I"$root" -o "$program" "$root/test/gpu/checker.c" >"$out/checker-build.log" 2>&1 || {
		tail -n 20 "$out/checker-build.log"
		return 1
	}
	BUILD=$build LIMIT=$(left) OUT=$out "$root/test/gpu/checker.sh" "$program" gpu
}

for part in "${correctness[@]}"; do
	case $part in
	checker) checker || bad=1 ;;
	correct)
		python3 "$root/test/gpu/correct.py" --build "$build" --log "$out/correct.log" --seconds "$(left)" "${modes[@]}" \
			"${apps[@]}" || bad=1
		;;
	esac
done
if [ ${#measured[@]} -gt 0 ]; then
	rm -f "$out/spill.log" "$out/spill.log.json"
	python3 "$root/test/gpu/spill_bars.py" --build "$build" --log "$out/spill.log" --seconds "$(left)" "${modes[@]}" \
		"${options[@]}" "${measured[@]}" || bad=1
fi
echo "$SECONDS s in all; logs in $out"
exit $bad
