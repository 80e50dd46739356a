#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# stats_page.sh TOOL [--write]: the tables of spillway-stats(5), from what the tool says of itself (`spillway prom --list`,
# which is stats.def). Prints the page as it should be, or writes it.
set -euo pipefail
tool=${1:?usage: scripts/stats_page.sh TOOL [--write]}
page=$(cd "$(dirname "$0")/.." && pwd)/tools/man/spillway-stats.5

# Between the marks of a kind of figure stands one item for each of them.
made=$("$tool" prom --list | awk -F'\t' '
	NR == FNR {
		unit = $3 == "" ? "" : " Pq " $3
		item = ".It Cm " $2 unit "\n" $5 ".\n.br\n.Li " $4 "\n"
		items[$1] = items[$1] item
		next
	}
	/^\.\\" END / { skip = 0 }
	!skip { print }
	/^\.\\" BEGIN / {
		kind = substr($0, length(".\\\" BEGIN ") + 1)
		printf "%s", items[kind]
		skip = 1
	}' - "$page")
if [ "${2:-}" = --write ]; then
	printf '%s\n' "$made" >"$page"
else
	printf '%s\n' "$made"
fi
