#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh [BUILD]: `spillway demo`, on the real GPU where the demo's job can be built for it and one step runs there.
# Exit status: 0 all went as it should, 1 it did not.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
. "$root/scripts/common.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

choose_gpu() {
	local nvcc why
	if ! has_gpu; then
		why='no NVIDIA GPU was found here'
	elif ! nvcc=$(find_nvcc); then
		why='there is an NVIDIA GPU, but no nvcc to build the job for it'
	elif ! build_gpu_job "$nvcc" "$root" "$build/job/train_gpu" >"$work/nvcc" 2>&1; then
		why="nvcc could not build the job: $(tail -n 1 "$work/nvcc")"
	elif ! "$build/job/train_gpu" 8 1 >"$work/try" 2>&1; then
		why="the job does not run on the GPU here: $(tail -n 1 "$work/try")"
	else
		job=(--job "$build/job/train_gpu")
		echo "A real GPU: $(gpu_name). The job was built by nvcc with the CUDA runtime linked statically."
		return
	fi
	echo "No real GPU: $why."
}

job=()
choose_gpu
"$build/spillway" demo "${job[@]}"
