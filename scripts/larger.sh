#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# larger.sh [OPTION...] PART...: jobs larger than the card against their limits on a real GPU, in one call of TOTAL_SECONDS
# (530) at most. Parts:
#
#   train sharded lora decode prompt batch blocks binary insurance   by test/gpu/larger_bars.py, whose head says what. One must
#   be named.
#
# Options (--modes fast --set heap.chunk=128MiB --against OLDER ...) go to it. BUILD, OUT and exit status: run_bars in
# common.sh.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2
run_bars larger "$@"
