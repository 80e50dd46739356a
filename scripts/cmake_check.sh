#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake_check.sh: does the oldest CMake that CMakeLists.txt admits do? Fetches that version from PyPI into a virtual
# environment, configures the tests with it, and builds and installs what a user needs. CMAKE_FLAGS: more settings.
# Exit status: 0 yes, 1 no, 77 it cannot be had here.
set -uo pipefail

cd "$(dirname "$0")/.." || exit 2
root=$PWD
oldest=$(sed -nE 's/^cmake_minimum_required\(VERSION ([0-9]+\.[0-9]+)\)$/\1/p' CMakeLists.txt)
[ -n "$oldest" ] || {
	echo 'cmake_check: CMakeLists.txt does not say which version it needs' >&2
	exit 1
}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT

{ python3 -m venv "$here/venv" && "$here/venv/bin/pip" install -q --disable-pip-version-check "cmake==$oldest.*"; } \
	>"$here/log" 2>&1 || {
	echo "cmake_check: not tried, PyPI does not give CMake $oldest: $(tail -n 1 "$here/log")"
	exit 77
}
cmake=$here/venv/bin/cmake
read -ra flags <<<"${CMAKE_FLAGS:-}"
start=$SECONDS
{
	"$cmake" -G Ninja -S "$root" -B "$here/build" -DSPILLWAY_TESTS=ON \
		"${flags[@]}" &&
		"$cmake" --build "$here/build" --target lib &&
		"$cmake" -G Ninja -S "$root" -B "$here/build" -DSPILLWAY_TESTS=OFF &&
		"$cmake" --install "$here/build" --prefix "$here/installed" &&
		"$here/installed/bin/spillway" --version
} >"$here/log" 2>&1 || {
	cat "$here/log"
	echo "cmake_check: FAILED with $("$cmake" --version | head -n 1)"
	exit 1
}
echo "cmake_check: good, $("$cmake" --version | head -n 1), in $((SECONDS - start)) s"
