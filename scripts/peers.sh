#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peers.sh [OPTION...] [PART...]: the bars of several GPUs on two real ones, in one call of TOTAL_SECONDS (530) at most. Parts and
# options (--kinds fsdp2 --runs 10 --nccl-tests FOLDER ...) are those of test/gpu/peers_bars.py, whose head says what they are.
# BUILD, OUT and exit status: run_bars in common.sh.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
cd "$root" || exit 2
run_bars peers "$@"
