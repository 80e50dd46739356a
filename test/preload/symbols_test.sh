#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols_test.sh LIBRARY HOOKS_DEF SANITIZED: what libspillway.so shows to the loader: the rows of hooks.def, dlsym,
# what spillway.h declares and the door of NVTX, nothing else; that it needs the C library alone, and has no way to end the
# process; that no wait of it or of the tool ends by the time of day; and that each of its locks has a rank.
library=$1
hooks=$2
sanitized=$3
command -v nm >/dev/null && command -v readelf >/dev/null || exit 77
here=$(mktemp -d /tmp/symbols_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
failed=0

awk -f "$(dirname "$hooks")/../../scripts/driver_names.awk" "$hooks" | grep '^HOOK_' | grep -v '^HOOK_USE' |
	sed 's/.*(//; s/,$//' >"$here/rows"
echo dlsym >>"$here/rows"
printf '%s\n' sigaction __sigaction signal bsd_signal ssignal sysv_signal __sysv_signal sigset sigignore >>"$here/rows"
echo InitializeInjectionNvtx2 >>"$here/rows" # entry_api.c
echo _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE >>"$here/rows" # entry_api.c
grep -oE '\bspillway_[a-z_]+\(' "$(dirname "$(dirname "$hooks")")/spillway.h" | tr -d '(' >>"$here/rows"
sort -u "$here/rows" >"$here/wanted"
nm -D --defined-only "$library" | awk '{print $3}' | sort >"$here/exported"
[ -n "$sanitized" ] && grep -v '^__\(asan\|odr_asan\|ubsan\|tsan\|sanitizer\|start\|stop\)' "$here/exported" >"$here/kept" &&
	mv "$here/kept" "$here/exported"
diff "$here/wanted" "$here/exported" || {
	echo "FAILED: the exports are the rows of hooks.def, dlsym and spillway.h (< wanted, > exported)"
	failed=1
}

# Before glibc 2.34 parts of it were libraries of their own.
readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$here/needed"
[ -z "$sanitized" ] && grep -vE '^(libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux.*\.so.*)$' "$here/needed" && {
	echo "FAILED: nothing but the C library is needed"
	failed=1
}

# Nothing that ends the user's process is called, so nothing of the sort is needed.
[ -z "$sanitized" ] && nm -D --undefined-only "$library" | awk '{print $2}' | sed 's/@.*//' |
	grep -xE 'exit|_exit|_Exit|quick_exit|abort|kill|raise|pthread_exit|err|errx|error' && {
	echo "FAILED: no way to end the process"
	failed=1
}

# Nor anything that a child with another C library would miss at its start (libc.h); a reference may be weak.
[ -z "$sanitized" ] && nm -D --undefined-only "$library" | awk '$1 == "U" { print $2 }' | sed 's/@.*//' |
	grep -xE 'dlvsym|__register_atfork|tgkill|__tls_get_addr|__libc_.*|.*_chk|__isoc.*' && {
	echo "FAILED: nothing that musl lacks is needed"
	failed=1
}

# Waits end by CLOCK_MONOTONIC, whatever becomes of the time of day: conditions are waited for by clock.c alone, and of
# what ends by CLOCK_REALTIME nothing is used, nor what glibc 2.28 lacks. The same goes for the tool.
product=$(dirname "$(dirname "$hooks")")
grep -rlE 'pthread_cond(_timedwait|_t\b|attr_)|PTHREAD_COND_' --include='*.[ch]' "$product" "$product/../tools" |
	grep -vE '/shim/base/clock\.[ch]$' && {
	echo "FAILED: conditions are those of clock.h"
	failed=1
}
grep -rnE '\b(sem_timedwait|sem_clockwait|cnd_timedwait|mtx_timedlock|pthread_[a-z]*_(timed|clock)[a-z]*lock|pthread_cond_clockwait|pthread_(timed|clock)join_np|mq_timed[a-z]*|FUTEX_CLOCK_REALTIME)\b *[(|]' \
	--include='*.[ch]' "$product" "$product/../tools" | grep -v ':[[:space:]]*/\?\*' && {
	echo "FAILED: no wait ends by the time of day"
	failed=1
}

# Every lock of the library has a rank: there is no mutex, nor another lock of the C library, but those of lock.h.
grep -rnE '\b(pthread_mutex_t|PTHREAD_[A-Z_]*MUTEX_INITIALIZER[A-Z_]*|pthread_(rwlock|spin)[a-z_]*|mtx_t)\b' \
	--include='*.[ch]' "$product" | grep -vE '/shim/base/(lock|clock)\.[ch]:' && {
	echo "FAILED: a mutex stands in lock.h alone, with a rank"
	failed=1
}

# No version node (glibc would skip the hook silently: docs/facts.md, Reaching the driver), no lazy binding, no text
# relocations.
readelf -V "$library" | grep -q 'Version definition section' && {
	echo "FAILED: no versions are defined"
	failed=1
}
readelf -d "$library" | grep -qE 'BIND_NOW|FLAGS.*NOW' || {
	echo "FAILED: bound at load"
	failed=1
}
readelf -d "$library" | grep -q TEXTREL && {
	echo "FAILED: no text relocations"
	failed=1
}
exit $failed
