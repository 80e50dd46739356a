#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# managed.sh [OPTION...] [PART...]: programs with managed memory of their own, on a real GPU, in one call of TOTAL_SECONDS (480)
# at most. Parts:
#
#   programs reserve times over words   by test/gpu/managed_bars.py, whose head says what (all when none is named)
#
# Options (--only cupy-pool) go to it. Needs nvcc. BUILD, OUT and exit status: run_bars in common.sh.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2
TOTAL_SECONDS=${TOTAL_SECONDS:-480} run_bars managed --nvcc "$(find_nvcc)" "$@"
