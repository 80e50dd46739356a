#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# others.sh [BUDGET...]: cuFFT's plans, whose tables no launch names, on a real GPU: test/gpu/fft_plans.c natively and in each
# mode under each device budget (default 64MiB 128MiB), the digests compared. Whole suites of tests: test/gpu/others.py.
# BUILD (default ./build) comes ready-made, OUT (default ./gpu-out) takes the logs; nvcc and libcufft, of the Toolkit or of
# pip's nvidia-cufft, must be there. POLICY is a built-in policy (default heap).
#
# Exit status: 0 all as natively, 1 not, 2 there is no usable GPU, build, nvcc or libcufft.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2

build=$(cd "${BUILD:-$root/build}" 2>/dev/null && pwd) || exit 2
out=${OUT:-$root/gpu-out}
mkdir -p "$out"
budgets=("$@")
[ $# -gt 0 ] || budgets=(64MiB 128MiB)
if ! has_gpu || ! nvcc=$(find_nvcc); then
	echo "others.sh: no NVIDIA GPU with a driver, or no nvcc, was found here" >&2
	exit 2
fi
cufft=$(python3 -c 'import glob, sysconfig
places = [sysconfig.get_path("purelib") + "/nvidia/*/lib", "/usr/local/cuda/lib64"]
print(next((path for place in places for path in glob.glob(place + "/libcufft.so.*")), ""))')
[ -n "$cufft" ] || {
	echo "others.sh: no libcufft was found here" >&2
	exit 2
}
folder=$(dirname "$cufft")
program=$out/fft_plans
"$nvcc" -x cu -cudart static -O2 -I"$folder/../include" -o "$program" "$root/test/gpu/fft_plans.c" -Xlinker "$cufft" \
	-Xlinker -rpath -Xlinker "$folder" >"$out/fft_plans-build.log" 2>&1 || {
	tail -n 20 "$out/fft_plans-build.log" >&2
	exit 2
}

digest() { sed -n 's/^check digest //p' "$1"; }

timeout 100 "$program" >"$out/fft-native.log" 2>&1 || {
	cat "$out/fft-native.log"
	exit 1
}
cat "$out/fft-native.log"
bad=0
for budget in "${budgets[@]}"; do
	for mode in static exact fast; do
		log=$out/fft-$mode-$budget.log verdict=equal
		timeout 200 "$build/spillway" run --policy "${POLICY:-heap}" --set "spill.mode=$mode,device.budget=$budget" -- \
			"$program" >"$log" 2>&1 || verdict="exit $?: $(grep -m 1 'in transit' "$log")"
		[ "$(digest "$log")" = "$(digest "$out/fft-native.log")" ] || verdict="DIFFERS, $verdict"
		grep -q 'SPILLING BEGINS' "$log" || verdict="NOTHING SPILLED, $verdict"
		[ "$verdict" = equal ] || bad=1
		echo "$mode $budget: $verdict; $(grep -m 1 ' moved ' "$log")"
	done
done
exit $bad
