#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# arm.sh [-a] [-p "SIZES"] [-j JOBS] [-R REGEX]: the tests on 64-bit Arm, emulated by qemu: unit tests, those of the
# simulated GPU, those under the library that test/arm.txt names, and the demo's job in three modes; with pages of 4 KiB and of
# 64 KiB. Prints a table. A test of test/arm.txt that emulation cannot run is left out.
#   -a  run only those that are left out, to see which of them could run now; their failures do not count
#   -p  pages in KiB, default "4 64"     -j  tests at once, default the processors     -R  only tests that match
# BUILD: the build folder, default build-arm. QEMU: see has_emulator.
# Needs no root if the cross compiler is there: Debian's libraries for Arm, its emulator, and that of Ubuntu for other pages than
# this machine's, are fetched to the build folder.
# The kernel starts programs for Arm by a table (binfmt_misc) that is mounted in a user namespace, so that the machine's
# own table does not change; Linux 6.7 or newer can do that.
# Exit status: 0 all passed, 1 not, 77 what is needed is not there, which is said.
set -euo pipefail

cd "$(dirname "$0")/.."
root=$PWD
. scripts/common.sh
build=$(realpath -m "${BUILD:-build-arm}")
work=$build/arm
sizes='4 64' jobs=$(nproc) only='' left_out=no
while getopts ap:j:R: option; do
	case $option in
	a) left_out=yes ;;
	p) sizes=$OPTARG ;;
	j) jobs=$OPTARG ;;
	R) only=$OPTARG ;;
	*) exit 2 ;;
	esac
done

lacks() {
	echo "arm: skipped: $*" >&2
	exit 77
}

get_compiler() {
	command -v aarch64-linux-gnu-gcc >/dev/null && return
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
		lacks 'there is no aarch64-linux-gnu-gcc; root: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross'
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update -q && apt-get install -q -y --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross; } >/dev/null 2>&1 ||
		lacks 'there is no aarch64-linux-gnu-gcc, and apt-get cannot install gcc-aarch64-linux-gnu'
}

# Debian's packages for Arm. Of the headers only those of the libraries: the compiler brings those of the C library.
get_libraries() {
	local folder=$work/libraries name
	[ ! -e "$folder/done" ] || return 0
	unpack_debian "$folder" arm64 libc6 libgcc-s1 libyaml-dev libyaml-0-2 zlib1g-dev zlib1g libncurses-dev libncursesw6 libtinfo6 \
		libcmocka-dev libcmocka0 || lacks "Debian's packages for arm64 cannot be fetched"
	mkdir -p "$folder/include"
	for name in yaml zlib zconf curses ncurses_dll unctrl term cmocka cmocka_pbc; do
		find "$folder/root/usr/include" -name "$name.h" -exec cp {} "$folder/include/" \;
	done
	touch "$folder/done"
}

# qemu 7.2, of Debian 12, has a table of all pages of an address space: a reservation of a terabyte takes it minutes and 9 GB.
# Since 8.0 it keeps ranges. The emulator of Debian 13 is linked statically and runs on any release.
get_emulator() {
	[ ! -e "$work/trixie/done" ] || return 0
	SUITE=trixie unpack_debian "$work/trixie" "$(dpkg --print-architecture)" qemu-user || lacks "the emulator, qemu-user of Debian 13, cannot be fetched"
	"$work/trixie/root/usr/bin/qemu-aarch64" --version >/dev/null || lacks "the emulator does not start"
	touch "$work/trixie/done"
}

# The emulator of Debian 13 has the pages of this machine only (in 10.0 -p is without effect). That of Ubuntu 24.04 (8.2.2, linked
# statically) gives programs others. It is a file of the release, which does not change, so that its hash says what it is.
paged=http://archive.ubuntu.com/ubuntu/pool/universe/q/qemu/qemu-user-static_8.2.2+ds-0ubuntu1_amd64.deb
paged_hash=83ad62bfe0e28a5645cb6a40d8b99e7a629fdac9e1a9cea9949d1c59a01322c7
get_paged_emulator() {
	[ ! -e "$work/noble/done" ] || return 0
	mkdir -p "$work/noble"
	[ "$(dpkg --print-architecture)" = amd64 ] &&
		/usr/lib/apt/apt-helper download-file "$paged" "$work/noble/qemu.deb" "SHA256:$paged_hash" >/dev/null 2>&1 &&
		dpkg-deb -x "$work/noble/qemu.deb" "$work/noble/root" || return 1
	touch "$work/noble/done"
}

has_pages() { [ "$1" = $(($(getconf PAGESIZE) / 1024)) ]; }

# has_emulator PAGES: sets emulator. QEMU names one for other pages than this machine's; it has to be from 8.0 to 8.2.
has_emulator() {
	emulator=$work/trixie/root/usr/bin/qemu-aarch64
	! has_pages "$1" || return 0
	emulator=${QEMU:-$work/noble/root/usr/bin/qemu-aarch64-static}
	[ -n "${QEMU:-}" ] || get_paged_emulator || return 1
	"$emulator" --version | grep -qE 'version 8\.'
}

build_all() {
	local libraries=$work/libraries/root/usr/lib/aarch64-linux-gnu headers
	headers=$(BUILD=$build scripts/setup.sh --headers) || exit 1
	cmake -S . -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$root/scripts/arm.cmake" -DSPILLWAY_TESTS=ON -DSPILLWAY_EMULATED=ON \
		-DCUDA_INCLUDE_DIR="$headers" -DYAML_STATIC="$libraries/libyaml.a" -DYAML_INCLUDE_DIR="$work/libraries/include" \
		-DYAML_SHARED="$libraries/libyaml.so" -DZLIB_LIBRARY="$libraries/libz.a" -DZLIB_INCLUDE_DIR="$work/libraries/include" \
		-DCURSES_INCLUDE_DIR="$work/libraries/include" -DCURSES_LIBRARY="$libraries/libncursesw.a" \
		-DTINFO_LIBRARY="$libraries/libtinfo.a" -DCMOCKA_INCLUDE_DIR="$work/libraries/include" \
		-DCMOCKA_LIBRARY="$libraries/libcmocka.so" ${CMAKE_FLAGS:-} >"$build/arm.log" 2>&1 &&
		cmake --build "$build" -j "$jobs" >>"$build/arm.log" 2>&1 || {
		grep -E 'FAILED|error|warning' "$build/arm.log" | head -n 40
		echo "arm: the build failed; all of its output is in $build/arm.log" >&2
		exit 1
	}
}

# fill_pages PAGES: prepares what runs for pages that are larger than this machine's (elf_pages.py). With smaller ones it runs as well.
fill_pages() {
	local file
	! has_pages "$1" || return 0
	find "$build" -type f \( -name '*.so*' -o -perm -u+x \) | while read -r file; do
		case $file in
		"$work/trixie"/* | "$work/noble"/*) ;;
		*) echo "$file" ;;
		esac
	done | xargs -d '\n' python3 scripts/elf_pages.py
}

# What the kernel looks at: an ELF file of 64 bits for machine 183, little-endian, a program or a shared object.
# P: the program keeps its argv[0]; F: the emulator is opened now.
entry=":aarch64:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00"
entry+=":\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff"

# inside COMMAND...: in namespaces in which the kernel starts programs for Arm. The user is who it was: root has all users
# and groups that it has outside, because tests give files away; another user has a second namespace inside the first.
inside() {
	local pipe status=0 pid
	pipe=$(mktemp -d "$work/pipe.XXXXXX")
	mkfifo "$pipe/made" "$pipe/mapped"
	# shellcheck disable=SC2016
	unshare --user --mount bash -c '
		echo >"$1/made"; read -r <"$1/mapped"; shift
		exec bash -c "
			mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc && printf %s \"\$1:\$2:PF\" >/proc/sys/fs/binfmt_misc/register || exit 77
			user=\$3 group=\$4; shift 4
			[ \$user = 0 ] || exec unshare --user --map-user=\$user --map-group=\$group \"\$@\"
			exec \"\$@\"" inside "$@"' inside "$pipe" "$entry" "$emulator" "$(id -u)" "$(id -g)" "$@" &
	pid=$!
	if read -r -t 20 <"$pipe/made"; then
		if [ "$(id -u)" = 0 ]; then
			awk '{ print $1, $1, $3 }' /proc/self/uid_map >"/proc/$pid/uid_map"
			awk '{ print $1, $1, $3 }' /proc/self/gid_map >"/proc/$pid/gid_map"
		else
			echo "0 $(id -u) 1" >"/proc/$pid/uid_map"
			echo deny >"/proc/$pid/setgroups"
			echo "0 $(id -g) 1" >"/proc/$pid/gid_map"
		fi
		echo >"$pipe/mapped"
	fi
	wait $pid || status=$?
	rm -rf "$pipe"
	return $status
}

# rows KIND [PAGES]: the names in test/arm.txt of one kind.
rows() {
	awk -v kind="$1" -v pages="${2:-any}" '$1 == kind && (kind == "run" || $3 == "any" || $3 == pages) { print $2 }' test/arm.txt
}

names_of() { # ctest's arguments
	ctest --test-dir "$build" -N "$@" | sed -n 's/^ *Test *#[0-9]*: \([^ ]*\).*/\1/p'
}

# chosen PAGES: the tests to run, as one regular expression.
chosen() {
	{
		if [ $left_out = yes ]; then
			rows not "$1"
		else
			{ names_of -L '^(unit|sim)$'; rows run; } | grep -vxFf <(rows not "$1")
		fi
	} | { [ -z "$only" ] && cat || grep -E "$only" || true; } | sort -u | paste -sd '|' | sed 's/.*/^(&)$/'
}

# demo PAGES: the losses that the demo's job prints with enough memory, and with half of it in three modes.
demo() {
	local mode status=0
	export LD_LIBRARY_PATH=$build/sim
	SIM_MEMORY=256MiB inside "$build/job/train" >"$work/demo.enough" 2>"$work/demo.err" || return 1
	for mode in static exact fast; do
		if ! SIM_MEMORY=64MiB LD_PRELOAD=$build/libspillway.so SPILLWAY_SET=spill.mode=$mode inside "$build/job/train" \
			>"$work/demo.$mode" 2>"$work/demo.err" || ! grep -q '^spillway: SPILLING BEGINS' "$work/demo.err" ||
			! cmp <(grep -E '^(step|final)' "$work/demo.enough") <(grep -E '^(step|final)' "$work/demo.$mode"); then
			echo "demo in $mode, pages of $1 KiB: failed"
			tail -5 "$work/demo.err"
			status=1
		fi
	done
	return $status
}

mkdir -p "$work"
command -v unshare >/dev/null || lacks 'there is no unshare (Debian: util-linux)'
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || lacks 'the libraries for Arm are fetched by apt-get, which is not here'
get_compiler
get_libraries
get_emulator
has_emulator "$(($(getconf PAGESIZE) / 1024))"
inside true 2>/dev/null || lacks 'binfmt_misc cannot be mounted in a user namespace here (Linux 6.7 or newer, and user namespaces)'
build_all

bad=0 table=''
# The emulator's own settings; all that is started below inherits them.
export QEMU_LD_PREFIX=$work/libraries/root
for size in $sizes; do
	unset QEMU_PAGESIZE QEMU_CPU
	if ! has_emulator "$size"; then
		echo "pages of $size KiB are left out: the emulator for them cannot be fetched; QEMU may name a qemu-aarch64 8.0 to 8.2, linked statically"
		continue
	fi
	# The emulator's own processor has instructions (FEAT_MOPS) by which it ends itself where memory is protected.
	has_pages "$size" || export QEMU_PAGESIZE=$((size * 1024)) QEMU_CPU=neoverse-n1
	fill_pages "$size" || exit 1
	log=$work/$size.log begun=$SECONDS
	tests=$(chosen "$size")
	inside ctest --test-dir "$build" -R "$tests" --output-on-failure -j "$jobs" >"$log" 2>&1 || [ $left_out = yes ] || bad=1
	# ctest counts what was skipped as passed.
	failed=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#.*\*\*\*(Failed|Timeout|Exception|Not Run)' "$log" || true)
	skipped=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#.*\*\*\*Skipped' "$log" || true)
	total=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#' "$log" || true)
	((total > 0)) || { echo "arm: no test ran with pages of $size KiB" >&2; bad=1; }
	grep -E '^ *[0-9]+/[0-9]+ Test +#.*\*\*\*' "$log" || true
	job=-
	if [ $left_out = no ] && [ -z "$only" ]; then
		job=equal
		demo "$size" || { job=FAILED bad=1; }
	fi
	table+=$(printf '%8s %7d %7d %8d %9d  %-7s %7d' "$size KiB" $((total - failed - skipped)) "$failed" "$skipped" \
		"$(rows not "$size" | wc -l)" $job $((SECONDS - begun)))$'\n'
done
echo '   pages  passed  failed  skipped  left out  demo    seconds'
printf '%s' "$table"
times >"$work/times" # not in a subshell, which would count its own
awk -v logs="$work" 'NR == 2 { print "all of that took " $1 " user, " $2 " system; the logs are in " logs }' "$work/times"
exit $bad
