#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packages_check.sh: makes the .deb and the .rpm anew and looks whether they are what they should be: lintian finds no
# error, the dependencies can be had, the .deb's demo, manual pages and pkg-config file work from a folder of its own, the
# .rpm has the same files and offers nobody a libcuda.so.1. Nothing is installed; with CI set, root installs lintian and rpm
# if they are missing. Prints one row each.
# Exit status: 0 all good, 1 not. What cannot be tried here is a row, too, and no failure.
# shellcheck disable=SC2317 # judge calls functions by their names
set -uo pipefail

cd "$(dirname "$0")/.." || exit 2
root=$PWD
. scripts/common.sh
version=$(spillway_version "$root")
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
bad=0

row() { # NAME RESULT
	printf '%-28s %s\n' "$1" "$2"
	case $2 in good* | 'not tried'*) ;; *) bad=1 ;; esac
}

# judge NAME WORDS COMMAND...: a row that is good if COMMAND succeeds; what it printed if not.
judge() {
	local name=$1 words=$2
	shift 2
	if "$@" >"$here/said" 2>&1; then
		row "$name" "good: $words"
	else
		sed 's/^/  /' "$here/said"
		row "$name" FAILED
	fi
}

# if_here COMMAND NAME WORDS COMMAND...: judge, where COMMAND is installed.
if_here() {
	if command -v "$1" >/dev/null; then
		judge "${@:2}"
	else
		row "$2" "not tried: $1 is not installed"
	fi
}

bare() {
	env -i HOME="$here" PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
}

get_tools() {
	local missing=()
	command -v lintian >/dev/null || missing+=(lintian)
	command -v rpmbuild >/dev/null || missing+=(rpm)
	[ ${#missing[@]} -gt 0 ] && [ -n "${CI:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update -q && apt-get install -q -y --no-install-recommends "${missing[@]}"; } >/dev/null 2>&1 || true
}

# The address of whoever publishes the package is set by DEBEMAIL; without it, it is known that lintian misses one.
run_lintian() {
	local suppressed=()
	[ -n "${DEBEMAIL:-}" ] || suppressed=(--suppress-tags "bogus-mail-host,bogus-mail-host-in-debian-changelog")
	lintian --allow-root --fail-on error "${suppressed[@]}" "$deb"
}

# files of a package, as the .rpm places them, without the documentation, which each kind has as it must.
deb_files() {
	dpkg-deb -c "$deb" | awk '$1 !~ /^d/ { print substr($6, 2) }' |
		sed "s|^/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/|/usr/lib64/|; s|/zsh/vendor-completions/|/zsh/site-functions/|" |
		grep -vE '^/usr/(share/(doc|lintian)|lib/python3)/' | sort
}
rpm_files() {
	rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$rpm" | awk '$1 !~ /^d/ { print $2 }' | grep -v '^/usr/share/doc/' | sort
}
same_files() {
	diff <(deb_files) <(rpm_files)
}
# What `make install` installs, and the demo.
all_installed() {
	local build=${BUILD:-build}/packages/build
	cmake -S . -B "$build" -DSPILLWAY_PACKAGE= -DSPILLWAY_DEMO=OFF -DCMAKE_INSTALL_LIBDIR=lib64 >/dev/null &&
		DESTDIR=$here/plain cmake --install "$build" --prefix /usr >/dev/null || return 1
	diff <(cd "$here/plain" && find . ! -type d | sed -E 's|^\.||; s|(/man/man./.*)|\1.gz|' | sort) \
		<(deb_files | grep -v '^/usr/lib64/spillway/demo/')
}

no_offer() { # of the simulated GPU, nor asked for
	! rpm -qp --provides --requires "$rpm" | grep -E 'lib(cuda|cudart)\.so'
}
unpacked_demo() {
	bare "$tree/usr/bin/spillway" demo
}
unpacked_version() {
	[ "$(bare "$tree/usr/bin/spillway" --version)" = "spillway $version" ]
}
unpacked_page() {
	bare env MANPAGER=cat MANWIDTH=100 man "$tree/usr/share/man/man1/spillway-resume.1.gz" | tail -n 1 | grep -F "Spillway $version"
}
unpacked_pkg_config() {
	local folder
	folder=$(dirname "$(find "$tree" -name spillway.pc)")
	[ -f "$(bare env PKG_CONFIG_PATH="$folder" pkg-config --variable=preload spillway)" ] &&
		[ -f "$(bare env PKG_CONFIG_PATH="$folder" pkg-config --variable=policies spillway)/training.yaml" ] &&
		[ -f "$(bare env PKG_CONFIG_PATH="$folder" pkg-config --variable=python spillway)/spillway.py" ] &&
		[ "$(bare env PKG_CONFIG_PATH="$folder" pkg-config --modversion spillway)" = "$version" ]
}
unpacked_module() {
	bare env PYTHONPATH="$tree/usr/lib/python3/dist-packages" python3 -c 'import spillway; print(spillway.is_active())'
}
dependencies() {
	apt-get -s -o APT::Get::Show-User-Simulation-Note=no install "$deb" | grep -E '^Inst spillway '
}
empty_root() { # dpkg's own view of it, in a root that has nothing else; the files alone, no script is run
	mkdir -p "$here/root/var/lib/dpkg"/{info,updates,triggers}
	touch "$here/root/var/lib/dpkg/status"
	dpkg --root="$here/root" --force-depends --force-not-root --log=/dev/null --unpack "$deb" && dpkg --root="$here/root" -V spillway
}

get_tools
start=$SECONDS
DIST=$here/dist scripts/packages.sh >"$here/said" 2>&1 || {
	cat "$here/said"
	row 'make packages' FAILED
	exit 1
}
row 'make packages' "good: in $((SECONDS - start)) s"
deb=$(find "$here/dist" -name '*.deb')
rpm=$(find "$here/dist" -name '*.rpm')
tree=$here/tree

if [ -z "$deb" ]; then
	row '.deb' 'not tried: no dpkg-dev here'
else
	dpkg-deb -x "$deb" "$tree" || row '.deb' 'FAILED: it cannot be unpacked'
	if_here lintian lintian "no error in ${deb##*/}" run_lintian
	judge 'what make install installs' 'is in the .deb, and the demo' all_installed
	judge 'spillway --version' "$version" unpacked_version
	judge 'spillway demo' 'from the unpacked .deb' unpacked_demo
	if_here man 'manual pages' 'are read compressed' unpacked_page
	if_here pkg-config 'pkg-config' 'names library, policies and Python module' unpacked_pkg_config
	if_here python3 'import spillway' 'works from the unpacked .deb' unpacked_module
	if_here apt-get 'dependencies' 'can be had' dependencies
	judge 'dpkg' 'unpacks it into an empty root' empty_root
fi
if [ -z "$rpm" ]; then
	row '.rpm' 'not tried: no rpmbuild here'
else
	[ -z "$deb" ] || judge 'files of the .rpm' 'those of the .deb' same_files
	judge 'libcuda.so.1 of the demo' 'is for the demo alone' no_offer
fi
exit $bad
