#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# memory.sh [OPTION...] [PART...]: the kinds of memory on a real GPU, in one call of TOTAL_SECONDS (530) at most. Parts:
#
#   off plugs view managed vmm async onuse llm tools    by test/gpu/memory_bars.py, whose head says what (all when none is named)
#
# Options (--rounds 3 --steps 10 --tokens 24 --uses auto,heap) go to it. Managed and system memory stay below 256 MiB;
# memory is oversubscribed by Spillway's device.budget alone. BUILD, OUT and exit status: run_bars in common.sh.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2
run_bars memory "$@"
