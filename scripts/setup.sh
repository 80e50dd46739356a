#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh: what the build needs and a bare Debian or Ubuntu lacks. Installs missing packages when it can, says what to do when
# it cannot, and is quiet when all is there. `setup.sh --lib` leaves out what only tests need; `setup.sh --headers` prints
# the folder of CUDA's headers and does no more. BUILD: the build folder, into which it fetches those headers if it must.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/common.sh"
build=${BUILD:-$root/build}

has_header() {
	printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <%s>\n' "$1" |
		gcc -E - >/dev/null 2>&1
}

# gcc answers with a path when it finds the file, else with the bare name.
has_library() {
	[ "$(gcc -print-file-name="$1" 2>/dev/null)" != "$1" ]
}

# The things themselves are looked for, not the packages: a cmake from elsewhere is as good.
missing_packages() {
	command -v gcc >/dev/null || echo gcc
	command -v cmake >/dev/null || echo cmake
	command -v ninja >/dev/null || echo ninja-build
	has_header stdio.h || echo libc6-dev
	{ has_header yaml.h && has_library libyaml.a; } || echo libyaml-dev
	[ $tests = no ] || { has_header cmocka.h && has_library libcmocka.so; } || echo libcmocka-dev
	[ $tests = no ] || command -v patch >/dev/null || echo patch
	has_header zlib.h || echo zlib1g-dev
	has_headers || has_pip || echo python3-pip # which fetches the headers of CUDA
}

# For the screen of `spillway top`, which has plain text without it.
missing_screen() {
	{ has_header curses.h && has_library libncursesw.so; } || echo libncurses-dev
}

# For tests that are skipped without them. gcc-multilib cannot be beside a cross compiler in Debian 12, and is not here.
missing_extras() {
	command -v aarch64-linux-gnu-gcc >/dev/null || echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	command -v musl-gcc >/dev/null || echo musl-tools
	command -v zsh >/dev/null || echo zsh
	command -v fish >/dev/null || echo fish
	command -v python3 >/dev/null || echo python3
}

# Where that can be done without asking; what fails is no error.
install_extras() {
	local packages
	read -ra packages <<<"$(missing_extras | tr '\n' ' ')"
	[ ${#packages[@]} -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
	[ -n "${CI:-}" ] || return 0
	echo "setup: installing ${packages[*]} for some of the tests"
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update -q && apt-get install -q -y --no-install-recommends "${packages[@]}"; } >/dev/null 2>&1 ||
		echo "setup: they cannot be had; those tests are skipped"
}

# What Fedora calls Debian's packages.
fedora_packages() { # PACKAGE...
	local package
	for package; do
		case $package in
		libc6-dev) echo glibc-devel ;;
		libyaml-dev) echo libyaml-devel ;;
		libcmocka-dev) echo libcmocka-devel ;;
		zlib1g-dev) echo zlib-devel ;;
		*) echo "$package" ;;
		esac
	done
}

install_missing() {
	local packages said
	mapfile -t packages < <(missing_packages)
	if [ ${#packages[@]} = 0 ] && [ -z "$(missing_screen)" ]; then
		return 0
	fi
	if ! command -v apt-get >/dev/null && command -v dnf >/dev/null; then
		mapfile -t packages < <(fedora_packages "${packages[@]}")
		# The static libyaml is no package there. CMake, which is given its place, says where it comes from.
		if has_header yaml.h && ! has_library libyaml.a && has_library libyaml.so; then
			echo 'setup: only a shared libyaml was found; cmake says what to do unless it is given -DYAML_STATIC' >&2
			mapfile -t packages < <(printf '%s\n' "${packages[@]}" | grep -vx libyaml-devel)
		fi
		[ ${#packages[@]} -gt 0 ] || return 0
		echo "setup: missing: ${packages[*]}; run as root: dnf install ${packages[*]}" >&2
		return 1
	fi
	if ! command -v apt-get >/dev/null; then
		[ ${#packages[@]} -gt 0 ] || return 0
		echo "setup: this system has no apt-get; please install by hand: ${packages[*]}" >&2
		return 1
	fi
	if [ "$(id -u)" = 0 ]; then
		mapfile -t packages < <(missing_packages; missing_screen)
		echo "setup: installing ${packages[*]}"
		export DEBIAN_FRONTEND=noninteractive
		said=$(apt-get update -q 2>&1 && apt-get install -q -y --no-install-recommends "${packages[@]}" 2>&1) || echo "$said" >&2
		mapfile -t packages < <(missing_packages)
		[ ${#packages[@]} = 0 ] || {
			echo "setup: still not found: ${packages[*]}" >&2
			return 1
		}
	elif [ ${#packages[@]} -gt 0 ]; then
		mapfile -t packages < <(missing_packages; missing_screen)
		echo "setup: missing: ${packages[*]}; run as root: apt-get install ${packages[*]}" >&2
		return 1
	fi
	[ -z "$(missing_screen)" ] ||
		echo "setup: without libncurses-dev \`spillway top\` has no screen, but plain text; root: apt-get install libncurses-dev"
}

# Are the headers here that this build needs?
has_headers() {
	local folder
	folder=$(cuda_headers "$build") && { [ $tests = no ] || has_all_headers "$folder"; }
}

has_pip() {
	python3 -m pip --version >/dev/null 2>&1
}

say_headers() {
	local folder version
	while read -r folder; do
		if version=$(headers_version "$folder") && [ "$version" -lt 13000 ]; then
			echo "setup: the headers in $folder are too old: CUDA $((version / 1000)).$((version % 1000 / 10))"
		fi
	done < <(header_folders "$build")
	cat <<-'TEXT'
		setup: the headers of CUDA 13.0 or newer (cuda.h, cuda_runtime_api.h) were not found. A GPU or a Toolkit is not needed.
		  Looked in CUDA_HOME, CUDA_PATH, /usr/local/cuda, beside nvcc, in /usr/include and in the site-packages of python3.
		  Without root, in a virtual environment (setup.sh does the same where python3 has pip):
	TEXT
	echo "    pip install ${header_packages[*]}"
	cat <<-'TEXT'
		  As root: the packages cuda-cudart-dev-13-0, cuda-crt-13-0, cuda-driver-dev-13-0 and cuda-profiler-api-13-0 from
		    developer.download.nvidia.com/compute/cuda/repos (Debian 12: first get cuda-keyring from debian12/x86_64 there,
		    dpkg -i it, apt-get update). Or set CUDA_HOME to a Toolkit that is elsewhere.
	TEXT
}

get_headers() {
	has_headers && return 0
	if has_pip; then
		echo "setup: fetching the headers of CUDA from PyPI: ${header_packages[*]}"
		mkdir -p "$build"
		fetch_headers python3 "$build/cuda" || echo 'setup: PyPI does not give them' >&2
		has_headers && return 0
	fi
	say_headers >&2
	return 1
}

tests=yes
case ${1:-} in
--headers)
	cuda_headers "$build" || {
		say_headers >&2
		exit 1
	}
	exit
	;;
--lib) tests=no ;;
esac
install_missing
[ $tests = no ] || install_extras
get_headers
