#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# trace_page_test.sh SOURCE_DIR: every kind of event and its fields stand in spillway-trace(5) as in trace.def, in its order.
page=$1/tools/man/spillway-trace.5
rows=$(sed -n 's/^EVENT(\([a-z]*\), "[^"]*", \(.*\))$/\1 \2/p' "$1/shim/trace/trace.def" | tr -d ,)
items=$(sed -n 's/^\.It Cm \([a-z]*\) Fa \(.*\)$/\1 \2/p' "$page")
[ "$(echo "$rows" | wc -l)" -ge 21 ] || { echo 'trace.def was not read'; exit 1; }
[ "$rows" = "$items" ] && exit 0
echo "trace.def says:"
echo "$rows"
echo "$page says:"
echo "$items"
exit 1
