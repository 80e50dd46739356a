#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# serve.sh [OPTION...] [PART...]: language models that serve requests, on a real GPU, in one call of TOTAL_SECONDS (530) at
# most. Parts:
#
#   suspend static paged        by test/gpu/serve_bars.py, whose head says what (all when none is named)
#
# Options (--modes static,exact) go to it. Memory is oversubscribed by Spillway's device.budget alone. BUILD, OUT and exit
# status: run_bars in common.sh.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2
run_bars serve "$@"
