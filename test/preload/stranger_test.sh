#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stranger_test.sh LIBRARY musl|m32: a program that was built for another C library, or for the 32-bit processor, and
# inherits LD_PRELOAD (from a shell that runs under the library, as compilers and scripts are started by frameworks), does
# what it always did: output, exit status, and its own dlsym(). Skipped where no such program can be built or run.
library=$1 kind=$2
here=$(mktemp -d /tmp/stranger_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
skip() {
	echo "stranger_test: skipped: $1"
	exit 77
}

cat >"$here/hello.c" <<'TEXT'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
	int (*say)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "puts");
	if (!say || dlsym(RTLD_DEFAULT, "no such thing"))
		return 1;
	say(getenv("LD_PRELOAD") ? "with" : "without");
	return 7;
}
TEXT
case $kind in
musl)
	command -v musl-gcc >/dev/null || skip 'there is no musl-gcc (Debian: musl-tools)'
	musl-gcc -o "$here/hello" "$here/hello.c" || skip 'musl-gcc cannot link'
	;;
m32)
	gcc -m32 -o "$here/hello" "$here/hello.c" -ldl 2>/dev/null || skip 'gcc -m32 cannot link (Debian: gcc-multilib)'
	;;
esac
env -u LD_PRELOAD "$here/hello" >"$here/out" 2>&1
[ $? = 7 ] || skip 'such a program cannot be run here'

LD_PRELOAD=$library sh -c '"$1"; exit $?' sh "$here/hello" >"$here/out" 2>"$here/err"
status=$?
# glibc's loader itself says that a library is for another kind of processor; nobody can keep it from that.
[ "$kind" = m32 ] && sed -i '/cannot be preloaded.*: ignored\.$/d' "$here/err"
if [ $status != 7 ] || [ "$(cat "$here/out")" != with ] || [ -s "$here/err" ]; then
	echo "FAILED: exit status $status, stdout and stderr:"
	cat "$here/out" "$here/err"
	exit 1
fi
