#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh: a .deb and a .rpm of this machine's architecture, in dist/. They are built for this machine's C library and
# newer ones; the wheel (wheel.sh) runs with older ones, too. DEBFULLNAME, DEBEMAIL: who makes them; without an address they
# are for this machine only, not to be published. DIST: another folder for them. CMAKE_FLAGS: more settings.
# A kind whose tools are not here is left out with a word; exit status 1 if that is both of them.
set -euo pipefail

cd "$(dirname "$0")/.."
root=$PWD
. scripts/common.sh
work=$(realpath -m "${BUILD:-build}")/packages
target=$(realpath -m "${DIST:-dist}")
umask 022
day=$(sed -nE "s/^## $(spillway_version "$root"), ([0-9-]+)\$/\1/p" docs/changelog.md)
SOURCE_DATE_EPOCH=$(date -u -d "$day" +%s)
export SOURCE_DATE_EPOCH

fail() {
	echo "packages: $*" >&2
	exit 1
}

get_headers() {
	cuda=$(cuda_headers "$(dirname "$work")") && has_all_headers "$cuda" && return 0
	fetch_headers python3 "$work/cuda" || fail 'the headers of CUDA are not here, and PyPI does not give them'
	cuda=$work/cuda/nvidia/cu13/include
}

# make_package KIND SETTING...: the objects are shared; what differs is where things are installed.
make_package() {
	local kind=$1 flags made
	shift
	read -ra flags <<<"${CMAKE_FLAGS:-}"
	rm -rf "$work/made"
	echo "packages: the .${kind,,}; what is built and packed is written to $work/$kind.log, too"
	{
		cmake -G Ninja -S . -B "$work/build" -DCUDA_INCLUDE_DIR="$cuda" -DSPILLWAY_TESTS=OFF -DSPILLWAY_DEMO=ON \
			-DCMAKE_INSTALL_PREFIX=/usr "-DCMAKE_C_FLAGS=-ffile-prefix-map=$root=. ${CFLAGS:-}" -DSPILLWAY_PACKAGE="$kind" \
			"-DSPILLWAY_CONTACT=${DEBFULLNAME:-Spillway maintainers} <${DEBEMAIL:-spillway@localhost.localdomain}>" "$@" "${flags[@]}" &&
			cmake --build "$work/build" --target lib demo_parts &&
			(cd "$work/build" && cpack -G "$kind" -B "$work/made")
	} 2>&1 | tee "$work/$kind.log" || fail "the $kind failed; all of its output is in $work/$kind.log"
	for made in "$work"/made/*."${kind,,}"; do
		cp "$made" "$target/"
		echo "$target/${made##*/}: $(stat -c %s "$made") bytes"
	done
}

mkdir -p "$work" "$target"
get_headers
made=no
if command -v dpkg-shlibdeps >/dev/null; then
	make_package DEB -DCMAKE_INSTALL_LIBDIR="lib/$(gcc -print-multiarch)" -DCMAKE_INSTALL_SO_NO_EXE=1
	made=yes
else
	echo 'packages: no .deb without dpkg-shlibdeps; root: apt-get install dpkg-dev'
fi
if command -v rpmbuild >/dev/null; then
	make_package RPM -DCMAKE_INSTALL_LIBDIR=lib64 -DCMAKE_INSTALL_SO_NO_EXE=0
	made=yes
else
	echo 'packages: no .rpm without rpmbuild; root: apt-get install rpm, dnf install rpm-build'
fi
[ $made = yes ]
