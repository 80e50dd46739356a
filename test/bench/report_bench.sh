#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# report_bench.sh TOOL REPORT_TRACE [EVENTS]: time and memory of `spillway report` on a large trace, by output. The bars of a
# trace of 1,000,000 events: text 2 s, page 5 s, each 512 MiB; the page 5 MiB, which alone decides the exit status: times
# depend on the machine.
tool=$1
make_trace=$2
events=${3:-1000000}
here=$(mktemp -d /tmp/report_bench.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
"$make_trace" "$here/large.trace" "$events" || exit 1
echo "report_bench trace bytes $(wc -c <"$here/large.trace")"
for option in '' --json --html --perfetto; do
	# shellcheck disable=SC2086 # none or one
	if [ -x /usr/bin/time ]; then
		/usr/bin/time -f "%e %U %S %M" -o "$here/time" "$tool" report $option "$here/large.trace" >"$here/out" || exit 1
		read -r wall user system memory <"$here/time"
		echo "report_bench ${option:-text} wall_s $wall user_s $user system_s $system memory_kib $memory bytes $(wc -c <"$here/out")"
	else
		"$tool" report $option "$here/large.trace" >"$here/out" || exit 1
		echo "report_bench ${option:-text} bytes $(wc -c <"$here/out")"
	fi
	[ "$option" != --html ] || [ "$(wc -c <"$here/out")" -le 5242880 ] || exit 1
done
