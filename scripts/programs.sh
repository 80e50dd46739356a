#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# programs.sh [OPTION...] [PART...]: what people run, on a real GPU, in one call of TOTAL_SECONDS (530) at most. Parts:
#
#   chain tight finder llama graphs meters released   by test/gpu/programs_bars.py, whose head says what; the first
#                                                     three where none is named
#
# Options (--ratio 1.5) go to it. BUILD, OUT and exit status: run_bars in common.sh.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2
run_bars programs "$@"
