#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cross_test.sh SOURCE CUDA_INCLUDE YAML_INCLUDE: library and tool compile and link for aarch64, without a warning, and
# show the loader what they show on x86-64. libyaml and zlib are not there for that machine: stand-ins have their names.
# Nothing is run. Skipped without a cross compiler (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross).
source=$1 cuda=$2 yaml=$3
cc=aarch64-linux-gnu-gcc
command -v $cc >/dev/null || {
	echo "cross_test: skipped: there is no $cc (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"
	exit 77
}
echo '#include <stdio.h>' | $cc -E - >/dev/null 2>&1 || {
	echo "cross_test: skipped: $cc has no C library (Debian: libc6-dev-arm64-cross)"
	exit 77
}
here=$(mktemp -d /tmp/cross_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
failed=0
say() {
	echo "FAILED: $*"
	failed=1
}

# libyaml's header alone, or the compiler would find this machine's headers beside it.
mkdir "$here/include"
cp "$yaml/yaml.h" "$here/include" || exit 1
grep -ohE '\byaml_[a-z_]+\(' "$source"/policy/*.c | sort -u | sed 's/\(.*\)(/void \1(void); void \1(void) {}/' >"$here/yaml.c"
$cc -fPIC -c -o "$here/yaml.o" "$here/yaml.c" && aarch64-linux-gnu-ar rc "$here/libyaml.a" "$here/yaml.o" || exit 1
for header in zlib.h zconf.h; do
	path=$(echo "#include <$header>" | cc -E - | sed -n "s/^# 1 \"\(.*\/$header\)\".*/\1/p" | head -n 1)
	cp "$path" "$here/include" || exit 1
done
# inflateInit2() is a macro: the function has another name.
grep -ohE '\b(gz[a-z_]+|inflate[A-Za-z2]*)\(' "$source"/tools/*.c "$source"/tools/*/*.c | sed 's/Init2(/Init2_(/' | sort -u |
	sed 's/\(.*\)(/void \1(void); void \1(void) {}/' >"$here/zlib.c"
$cc -fPIC -c -o "$here/zlib.o" "$here/zlib.c" && aarch64-linux-gnu-ar rc "$here/libz.a" "$here/zlib.o" || exit 1

cmake -G Ninja -S "$source" -B "$here/build" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	-DCMAKE_C_COMPILER=$cc -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="-O1 -DNDEBUG -Werror" -DSPILLWAY_TESTS=OFF \
	-DCUDA_INCLUDE_DIR="$cuda" \
	-DYAML_STATIC="$here/libyaml.a" -DYAML_INCLUDE_DIR="$here/include" \
	-DZLIB_LIBRARY="$here/libz.a" -DZLIB_INCLUDE_DIR="$here/include" >"$here/log" 2>&1 &&
	cmake --build "$here/build" -j 2 >>"$here/log" 2>&1 || {
	grep -E 'FAILED|error|warning' "$here/log" | head -n 40
	say "it does not build"
	exit 1
}

library=$here/build/libspillway.so
for file in "$library" "$here/build/libspillway-audit.so" "$here/build/spillway"; do
	readelf -h "$file" | grep -q AArch64 || say "$file is not for aarch64"
done
awk -f "$source/scripts/driver_names.awk" "$source/shim/driver/hooks.def" | grep '^HOOK_' | grep -v '^HOOK_USE' |
	sed 's/.*(//; s/,$//' >"$here/rows"
echo dlsym >>"$here/rows"
aarch64-linux-gnu-nm -D --defined-only "$library" | awk '{print $3}' | sort >"$here/exported"
[ -z "$(sort -u "$here/rows" | comm -23 - "$here/exported")" ] || say "rows of hooks.def are not exported"
readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc\.so\.6|ld-linux.*\.so.*)$' &&
	say "nothing but the C library is needed"
# dlsym.c must leave by a jump here too.
aarch64-linux-gnu-objdump -d --no-show-raw-insn "$library" | awk '/<dlsym>:$/ { on = 1; next } on && /^$/ { exit } on' |
	grep -qE '\bbr[[:space:]]+x' || say "dlsym does not leave by a jump"
exit $failed
