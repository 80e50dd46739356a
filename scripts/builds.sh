#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# builds.sh --against OLDER [OPTION...] PART...: two builds in turn on a real GPU, in one call of TOTAL_SECONDS (530) at
# most; OLDER is the folder of the older build. Parts:
#
#   gpt plain lengths conv                     by test/gpu/builds_bars.py, whose head says what (one must be named)
#
# Options (--modes fast --ratios 1.5 --times 3 --set KEY=VALUE,...) go to it. Memory is oversubscribed by Spillway's
# device.budget alone. BUILD, OUT and exit status: run_bars in common.sh.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2
run_bars builds "$@"
