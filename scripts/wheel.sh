#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel.sh [ARCHITECTURE...]: a wheel and a tarball of each architecture (x86_64 and aarch64), in dist/, that run where
# glibc is 2.28 or newer. Needs no root, and beside CMake, Ninja and Python only what it fetches itself: the compiler
# (ziglang), auditwheel and, where there are none, CUDA's headers from PyPI; the static libraries that go into the
# tool and the library from Debian's archive, by apt-get, without installing them.
# The wheels are checked: what they need of glibc, what the libraries export, and by auditwheel.
# Exit status: 0 all made and good, 1 not, 77 something could not be fetched.
set -euo pipefail

cd "$(dirname "$0")/.."
root=$PWD
. scripts/common.sh
work=$(realpath -m "${BUILD:-build}")/wheel
target=$(realpath -m "${DIST:-dist}")
glibc=2.28
python_packages=(ziglang==0.17.1 auditwheel==6.8.2 wheel==0.48.0)
version=$(spillway_version "$root")

fail() {
	echo "wheel: $*" >&2
	exit 1
}

cannot_fetch() {
	echo "wheel: $*" >&2
	exit 77
}

get_python() {
	[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv" || fail 'python3 -m venv does not work (Debian: python3-venv)'
	"$work/venv/bin/pip" install -q --disable-pip-version-check "${python_packages[@]}" || cannot_fetch 'PyPI does not answer'
}

# The folder with cuda.h: where the build finds it, or headers from PyPI.
get_headers() {
	local folder
	if folder=$(cuda_headers) && has_all_headers "$folder"; then
		echo "$folder"
		return
	fi
	fetch_headers "$work/venv/bin/python" "$work/cuda" || cannot_fetch "PyPI has no ${header_packages[*]}"
	echo "$work/cuda/nvidia/cu13/include"
}

# get_debian ARCHITECTURE: Debian's static libraries, unpacked, and their notices: those of ncurses are in libtinfo6.
get_debian() {
	local folder=$work/debian-$1 status=0
	[ ! -e "$folder/done" ] || [ ! -e "$folder/root/usr/share/doc/libtinfo6" ] || return 0
	unpack_debian "$folder" "$1" libyaml-dev zlib1g-dev libncurses-dev libtinfo6 || status=$?
	case $status in
	0) ;;
	1) cannot_fetch "Debian's archive does not answer" ;;
	*) fail "Debian's archive has not all of libyaml-dev, zlib1g-dev and libncurses-dev for $1" ;;
	esac
	# Only these headers: the compiler brings those of the C library.
	mkdir -p "$folder/include"
	cp "$folder"/root/usr/include/{yaml,zlib,curses,ncurses_dll,unctrl,term}.h "$folder/include/"
	find "$folder/root/usr/include" -name zconf.h -exec cp {} "$folder/include/" \;
	touch "$folder/done"
}

# build_for MACHINE DEBIAN: builds and installs into $work/stage-MACHINE.
build_for() {
	local machine=$1 debian=$work/debian-$2 build=$work/build-$1 libraries notices
	libraries=$debian/root/usr/lib/$machine-linux-gnu
	printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s-linux-gnu.%s "$@"\n' "$work/venv/bin/python" "$machine" $glibc \
		>"$work/cc-$machine"
	chmod +x "$work/cc-$machine"
	cmake -G Ninja -S . -B "$build" -DCMAKE_C_COMPILER="$work/cc-$machine" -DCMAKE_SYSTEM_NAME=Linux \
		-DCMAKE_SYSTEM_PROCESSOR="$machine" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG" \
		-DCUDA_INCLUDE_DIR="$cuda" -DSPILLWAY_TESTS=OFF -DSPILLWAY_DEMO=ON -DCMAKE_INSTALL_LIBDIR=lib \
		-DYAML_STATIC="$libraries/libyaml.a" -DYAML_INCLUDE_DIR="$debian/include" \
		-DZLIB_LIBRARY="$libraries/libz.a" -DZLIB_INCLUDE_DIR="$debian/include" \
		-DCURSES_INCLUDE_DIR="$debian/include" -DCURSES_LIBRARY="$libraries/libncursesw.a" \
		-DTINFO_LIBRARY="$libraries/libtinfo.a" >"$build.log" 2>&1 &&
		cmake --build "$build" --target lib demo_parts >>"$build.log" 2>&1 || {
		tail -30 "$build.log" >&2
		fail "the build for $machine failed; all of its output is in $build.log"
	}
	rm -rf "$work/stage-$machine"
	cmake --install "$build" --prefix "$work/stage-$machine" --strip >/dev/null 2>&1 ||
		cmake --install "$build" --prefix "$work/stage-$machine" >/dev/null
	notices=$work/stage-$machine/share/doc/spillway/notices
	mkdir -p "$notices"
	cp "$debian/root/usr/share/doc/libyaml-dev/copyright" "$notices/libyaml"
	cp "$debian/root/usr/share/doc/zlib1g-dev/copyright" "$notices/zlib"
	cp "$debian/root/usr/share/doc/libtinfo6/copyright" "$notices/ncurses"
}

# Returns the newest version of glibc that these files need.
needs() {
	readelf --version-info -W "$@" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -Vu | tail -n 1
}

files_of() { # WHEEL: the names of its files, one a line
	"$work/venv/bin/python" -c 'import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep="\n")' "$1"
}

check() { # MACHINE WHEEL
	local stage=$work/stage-$1 needed notice
	needed=$(needs "$stage"/bin/spillway "$stage"/lib/*.so "$stage"/lib/spillway/demo/*)
	[ "$(printf '%s\n%s\n' "$needed" $glibc | sort -V | tail -n 1)" = $glibc ] || fail "$1 needs glibc $needed"
	test/preload/symbols_test.sh "$stage/lib/libspillway.so" "$root/shim/driver/hooks.def" >&2 ||
		fail "$1: the library does not export what it should"
	"$work/venv/bin/auditwheel" show "$2" | tr '\n' ' ' | grep -q "manylinux_2_[0-9]*_$1" ||
		{ "$work/venv/bin/auditwheel" show "$2" >&2; fail "auditwheel does not find it fit for manylinux"; }
	for notice in libyaml zlib ncurses; do
		files_of "$2" | grep "/share/doc/spillway/notices/$notice\$" >/dev/null || fail "$2 has no copyright notice of $notice, which is linked in"
	done
	echo "$1: needs glibc $needed"
}

mkdir -p "$work" "$target"
[ $# -gt 0 ] || set -- x86_64 aarch64
get_python
cuda=$(get_headers)
for machine; do
	case $machine in
	x86_64) debian=amd64 ;;
	aarch64) debian=arm64 ;;
	*) fail "no wheel is made for $machine, only for x86_64 and aarch64" ;;
	esac
	get_debian $debian
	build_for "$machine" $debian
	wheel=$("$work/venv/bin/python" scripts/pack_wheel.py "$work/stage-$machine" "$version" "$machine" $glibc "$target")
	check "$machine" "$wheel"
	tar -C "$work" --owner=0 --group=0 --transform "s|^stage-$machine|spillway-$version|" -czf \
		"$target/spillway-$version-linux-$machine.tar.gz" "stage-$machine"
	ls -l "$wheel" "$target/spillway-$version-linux-$machine.tar.gz" | awk '{ print $NF ": " $5 " bytes" }'
done
