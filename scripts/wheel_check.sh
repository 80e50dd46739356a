#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel_check.sh [WHEEL]: is a wheel of x86_64 (by default that of dist/) what it should be where nothing else is? In a bare
# virtual environment: `pip install`, the demo, the module. Then with older C libraries, Debian 11's and Ubuntu 18.04's,
# in a folder that is all the demo sees: their packages are fetched and unpacked, not installed. What is fetched runs here,
# so its origin is checked: by the archive's signature or by a digest. Prints one row each.
# Exit status: 0 all good, 1 not. What cannot be tried here is a row, too, and no failure.
# shellcheck disable=SC2317 # with_glibc calls functions by their names
set -uo pipefail

cd "$(dirname "$0")/.." || exit 2
wheel=$(realpath -e "${1:-$(ls -t dist/spillway_gpu-*x86_64.whl 2>/dev/null | head -n 1)}") || {
	echo 'wheel_check.sh: there is no wheel; `make wheel` makes one' >&2
	exit 2
}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
bad=0

row() { # NAME RESULT
	printf '%-28s %s\n' "$1" "$2"
	case $2 in good* | 'not tried'*) ;; *) bad=1 ;; esac
}

# Its own environment: nothing of the caller's Python, of its PATH or of Spillway's variables.
bare() {
	env -i HOME="$here" PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
}

in_venv() {
	local start=$SECONDS
	bare python3 -m venv "$here/venv" >"$here/log" 2>&1 || {
		row 'virtual environment' "not tried: $(tail -n 1 "$here/log")"
		return
	}
	bare "$here/venv/bin/pip" install -q --disable-pip-version-check --no-index "$wheel" >"$here/log" 2>&1 &&
		bare "$here/venv/bin/spillway" demo >>"$here/log" 2>&1 || {
		cat "$here/log"
		row 'virtual environment' FAILED
		return
	}
	row 'virtual environment' "good: pip install and the demo in $((SECONDS - start)) s"
	[ "$(bare "$here/venv/bin/python" -c 'import spillway; print(spillway.version())')" = None ] &&
		[ "$(bare "$here/venv/bin/spillway" run -- "$here/venv/bin/python" -c 'import spillway; print(spillway.version())')" = \
			"$(bare "$here/venv/bin/spillway" --version | cut -d' ' -f2)" ] && row 'import spillway' good || row 'import spillway' FAILED
}

# get_debian FOLDER RELEASE: the C library of a release of Debian, whose signature apt checks.
get_debian() {
	local folder=$1 options keys=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -e "$keys" ] || {
		echo 'debian-archive-keyring is not installed'
		return 77
	}
	command -v apt-get >/dev/null || {
		echo 'there is no apt-get here'
		return 77
	}
	mkdir -p "$folder"/{lists/partial,cache/archives/partial}
	touch "$folder/status"
	echo "deb [signed-by=$keys] http://deb.debian.org/debian $2 main" >"$folder/sources"
	options=(-oAPT::Architecture=amd64 -oAPT::Architectures=amd64 "-oDir::State::Lists=$folder/lists"
		"-oDir::State::status=$folder/status" "-oDir::Cache=$folder/cache" "-oDir::Etc::SourceList=$folder/sources"
		-oDir::Etc::SourceParts=/dev/null -oAcquire::Languages=none -oDebug::NoLocking=1 -oAPT::Sandbox::User=)
	apt-get "${options[@]}" -q update >"$folder/log" 2>&1 &&
		(cd "$folder" && apt-get "${options[@]}" -q download libc6 >>"$folder/log" 2>&1) || {
		# With a signature that is wrong apt takes the archive for one that has no such package: it says why before.
		if grep -qE 'NO_PUBKEY|BADSIG|not signed|EXPKEYSIG' "$folder/log"; then
			grep -E 'NO_PUBKEY|BADSIG|not signed|EXPKEYSIG' "$folder/log" | tail -n 1
			return 1
		fi
		echo 'its archive does not answer'
		return 77
	}
}

# get_file FOLDER SHA256 ADDRESS: one package, which must have this digest.
get_file() {
	local file=$1/libc6_${3##*/libc6_}
	python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' "$3" "$file" 2>/dev/null || {
		echo 'its archive does not answer'
		return 77
	}
	echo "$2  $file" | sha256sum -c --status || {
		echo "$3 has another digest than it had"
		return 1
	}
}

with_glibc() { # NAME COMMAND ARGUMENT...: COMMAND FOLDER ARGUMENT... fetches; 77: it cannot, and prints why
	local root=$here/$1/root version words
	mkdir -p "$root"
	words=$("$2" "$here/$1" "${@:3}")
	case $? in
	0) ;;
	77)
		row "$1" "not tried: $words"
		return
		;;
	*)
		row "$1" "FAILED: $words"
		return
		;;
	esac
	dpkg-deb -x "$here/$1"/libc6_*.deb "$root" || {
		row "$1" 'FAILED: the package cannot be unpacked'
		return
	}
	mkdir -p "$root"/{proc,dev,tmp,opt}
	[ -e "$root/lib64" ] || ln -s usr/lib64 "$root/lib64"
	[ -e "$root/lib" ] || ln -s usr/lib "$root/lib"
	bare python3 - "$wheel" "$root/opt" <<'PYTHON' || return
import os, sys, zipfile
for item in zipfile.ZipFile(sys.argv[1]).infolist():
    room, _, rest = item.filename.partition(".data/")
    if not rest:
        continue
    path = os.path.join(sys.argv[2], rest.replace("scripts/", "bin/", 1) if rest.startswith("scripts/") else rest[len("data/"):])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(zipfile.ZipFile(sys.argv[1]).read(item))
    os.chmod(path, 0o755)
PYTHON
	version=$(find "$root" -name 'libc-2.*.so' | head -n 1 | sed 's|.*/||')
	if ! bare unshare -Urm true 2>/dev/null; then
		row "$1" 'not tried: no namespaces of users here'
	elif bare unshare -Urm sh -c "mount --rbind /proc '$root/proc' && mount --rbind /dev '$root/dev' &&
		exec env SIM_MEMORY=64MiB LD_LIBRARY_PATH=/opt/lib/spillway/demo chroot '$root' /opt/bin/spillway run \
			--set device.budget=56MiB -- /opt/lib/spillway/demo/train 64 100" >"$here/log" 2>&1; then
		row "$1" "good: the demo's job, with $version"
	else
		cat "$here/log"
		row "$1" 'FAILED'
	fi
}

in_venv
with_glibc 'Debian 11' get_debian bullseye
# Debian has no keys of Ubuntu. The digest is the one in Ubuntu's list of bionic, whose signature is that of Ubuntu's key of
# 2012, 790B C727 7767 219C 42C8 6F93 3B4F E6AC C0B2 1F32; a released version does not change.
with_glibc 'Ubuntu 18.04' get_file 1e1eb86fd646aa68f7144ec692b837b6b352d215880c6a2d0c92c19d36938427 \
	http://archive.ubuntu.com/ubuntu/pool/main/g/glibc/libc6_2.27-3ubuntu1_amd64.deb
exit $bad
