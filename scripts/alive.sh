#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# alive.sh [OPTION...] [PART...]: what it brings to move only what is alive, on a real GPU, in one call of TOTAL_SECONDS
# (530) at most. Parts:
#
#   gpt expandable async lengths report        by test/gpu/alive_bars.py, whose head says what (one must be named)
#
# Options (--modes fast --ratios 1.5 --steps 12 --set KEY=VALUE,...) go to it. Memory is oversubscribed by Spillway's
# device.budget alone. BUILD, OUT and exit status: run_bars in common.sh.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2
run_bars alive "$@"
