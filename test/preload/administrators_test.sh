#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# administrators_test.sh TOOL ACTOR SIM_DIR PRELOAD SOURCE: the files and sockets of docs/administrators.md are those that there
# are, with the modes that it says, while a process runs and after it; and so are the versions and the lines of the log that it
# names. In namespaces of the test's own, because processes of this user elsewhere share such files. Skipped (status 77) where
# there are none.
if [ "$ADMINISTRATORS_TEST_INSIDE" != 1 ]; then
	unshare -Urm true 2>/dev/null || {
		echo 'skipped: no user and mount namespaces can be made here'
		exit 77
	}
	ADMINISTRATORS_TEST_INSIDE=1 exec unshare -Urm "$0" "$@"
fi
tool=$1 actor=$2 library=$4 source=$5
page=$source/docs/administrators.md
. "${0%/*}/../expect.sh"
# It goes with the namespace.
mount -t tmpfs tmpfs /dev/shm && mkdir -m 700 /dev/shm/test && cd /dev/shm/test || exit 1
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_TRACE SPILLWAY_SET XDG_RUNTIME_DIR LD_AUDIT LD_PRELOAD
export LD_LIBRARY_PATH="$3" LC_ALL=C SIM_MEMORY=128MiB SIM_HOST_MEMORY=1GiB
umask 0
mkfifo told
exec 9<>told

# The rows of the table: name, mode, kind.
sed -n '/^## Files and sockets/,/^## /p' "$page" |
	sed -nE 's!^\| (\*S\*/)?`?([^`|]*[^`| ])`? \| ([0-9]+)(, a (s)ocket)? \|.*!\2 \3 \5!p' | sed 's/ $/ f/' >rows.txt
promise 'the page has rows of files' [ "$(wc -l <rows.txt)" -ge 8 ]

# begin [option...]: a process that shares host memory and the GPU, and waits to be told its end.
begin() {
	"$tool" run --library "$library" --set device.budget=32MiB,device.total=64MiB,host.total=256MiB "$@" -- "$actor" \
		ends_when_told <told 2>err.txt &
	pid=$!
	for _ in $(seq 600); do
		grep -q 'SPILLING BEGINS' err.txt && kinds "$@" | grep -q quota && return
		sleep 0.1
	done
}

kinds() { # what there is: name as in the table, mode, kind
	find spillway /dev/shm/spillway-0 /tmp/spillway-0 -printf '%f %m %y\n' 2>/dev/null |
		sed -nE "s/^$pid-[0-9a-f]{16}(\.ctl.*)/PID-ID\1/p; s/^$pid-[0-9]+(\.stats.*)/PID-START\1/p; s/^(host)-[0-9a-f]+(\.quota.*)/\1-DOMAIN\2/p
			s/^(host\.quota.*)/\1/p; s/^gpu-[0-9a-f]{32}(\.account.*)/gpu-UUID\1/p" | sort
}

as_the_page_says() { # WHERE
	for what in PID-START.stats PID-ID.ctl quota gpu-UUID.account; do
		promise "there is $what, $1" grep -q "$what" now.txt
	done
	while read -r row; do
		promise "the page has, $1: $row" grep -qxF "$row" rows.txt
	done <now.txt
}

# ---- while it runs, and after ----
export XDG_RUNTIME_DIR=$PWD
begin --trace job.trace
for _ in $(seq 600); do
	[ -e job.trace ] && break || sleep 0.1
done
kinds >now.txt
as_the_page_says 'with XDG_RUNTIME_DIR'
promise 'a trace has the mode that the page says' grep -qxF "$(stat -c 'traces, policies written, reports %a f' job.trace)" rows.txt
promise 'the folder is closed to others' [ "$(stat -c %a spillway)" = 700 ]
mode=$(sed -n 's/PID-START.stats \([0-9]*\) f/\1/p' now.txt)
for other in docs/design.md tools/man/spillway-stats.5 tools/man/spillway-limits.7 shim/stats/stats_page.h; do
	promise "$other has the mode of a page of figures: 0$mode" grep -q "mode 0$mode" "$source/$other"
done
echo >&9
wait $pid
promise 'it has ended by itself' [ $? = 7 ]
promise 'a process that spills writes five lines' [ "$(grep -c '^spillway: ' err.txt)" = 5 ]
promise 'with the last one its folder is gone' [ ! -e spillway ]

begin
kill -KILL $pid
wait $pid 2>/dev/null
kinds >now.txt
promise 'what a killed process leaves is its figures, its socket, and what it shared' [ "$(wc -l <now.txt)" = 4 ]
"$tool" run --library "$library" --set device.budget=32MiB,device.total=64MiB,host.total=256MiB -- "$actor" ends_from_main 2>/dev/null
kinds >now.txt
promise 'of that the last one that shares removes its part' [ "$(wc -l <now.txt)" = 2 ]

# /tmp is the machine's, and another user may have a folder of this name there.
if [ ! -e /tmp/spillway-0 ] || [ -O /tmp/spillway-0 ]; then
	unset XDG_RUNTIME_DIR
	begin
	kinds >now.txt
	as_the_page_says 'without XDG_RUNTIME_DIR'
	promise 'sockets are in /tmp then' test -S "$(echo /tmp/spillway-0/$pid-*.ctl)"
	promise 'and figures in /dev/shm' test -f "$(echo /dev/shm/spillway-0/$pid-*.stats)"
	echo >&9
	wait $pid
fi

# ---- versions, and what is said ----
same() { # ROW MACRO FILE
	number=$(sed -nE "s/^#define $2 +([0-9]+)$/\1/p" "$source/$3")
	promise "the page has the version of $2: $number" grep -qF "| $1 | $number |" "$page"
}
same 'control socket' CONTROL_VERSION shim/serve/control.h
same 'page of figures' STATS_VERSION shim/stats/stats_page.h
same '`host.quota`' QUOTA_VERSION shim/accounting/quota.h
same '`gpu-UUID.account`' GPU_ACCOUNT_VERSION shim/accounting/gpu_account.h
same 'handles of memory (`ipc`)' IPC_VERSION shim/serve/ipc.c
same trace TRACE_VERSION shim/trace/trace_code.h
reasons=$(cat "$source"/shim/*/*.c | grep -c 'log_once(')
promise "about a hundred reasons are said once ($reasons)" [ "$reasons" -ge 80 -a "$reasons" -le 130 ]
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
