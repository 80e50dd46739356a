#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# release_test.sh SOURCE BUILD: the version that CMakeLists.txt has is that of the command, the library, the pkg-config
# file, the manual pages as they are installed, the wheel, and of the first entry of docs/changelog.md. Nothing else in
# the sources states it.
source=$1
build=$2
. "$source/scripts/common.sh"
here=$(mktemp -d /tmp/release_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
. "${0%/*}/../expect.sh"

version=$(spillway_version "$source")
promise "CMakeLists.txt has a version: $version" test -n "$version"
promise 'the command' test "$("$build/spillway" --version)" = "spillway $version"
promise 'the library' grep -aqwF "$version" "$build/libspillway.so"
promise 'the pkg-config file' grep -qx "Version: $version" "$build/spillway.pc"
promise 'the changelog' test "$(sed -nE 's/^## ([0-9.]+), 20[0-9]{2}-[0-9]{2}-[0-9]{2}$/\1/p' "$source/docs/changelog.md" | head -n 1)" = "$version"
# shellcheck disable=SC2016 # the text of the script
promise 'the wheel asks the same place' grep -q 'version=$(spillway_version "$root")' "$source/scripts/wheel.sh"

# What is installed of the manual pages: the same as in the sources but for the version; links are links still.
for page in "$source"/tools/man/*.[157]; do
	made=$build/man/${page##*/}
	if [ -L "$page" ]; then
		promise "$made is the same link" test "$(readlink "$page")" = "$(readlink "$made")"
		continue
	fi
	promise "$made names the version" grep -qx "\.Os Spillway $version" "$made"
	sed "s/^\.Os\$/.Os Spillway $version/" "$page" >"$here/page"
	promise "$made is of these sources" cmp -s "$here/page" "$made"
done
DESTDIR=$here/root cmake --install "$build" --prefix /usr >"$here/log" 2>&1 || cat "$here/log"
promise 'they are what is installed' cmp -s "$build/man/spillway.1" "$here/root/usr/share/man/man1/spillway.1"

found=$(cd "$source" && grep -rnwF "$version" --include='*.c' --include='*.h' --include='*.sh' --include='*.py' --include='*.txt' \
	--include='*.[157]' --include='*.in' --include=Makefile --include=README.md shim policy tools scripts Makefile README.md |
	grep -vE 'CDI_VERSION|Container Device Interface') # its own
promise "only CMakeLists.txt states it: $found" test -z "$found"
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
