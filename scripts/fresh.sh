#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fresh.sh RELEASE [STEP...]: Spillway on a bare system, as a newcomer meets it. Makes a root of RELEASE (bookworm, trixie,
# jammy, noble) by debootstrap, minbase with make, git and ca-certificates, and in it a clone of the last commit.
#   demo   root: make demo, and make lib says what to type next (without STEP, this alone)
#   test   root: make test
#   user   without root: make lib names one line; root types it, and nothing else is needed for make demo
#   image  the steps of docs/cluster/Dockerfile, whose system RELEASE must be
# Each step begins with a new root, but test goes on with that of demo. Needs root, and debootstrap (with CI set it is
# installed). Nothing is mounted outside of a mount namespace that ends with the step, so that removing the folder reaches
# nothing else. FRESH: where the folder is made (/var/tmp). SSL_CERT_FILE: this file of certificates holds inside, too.
# Prints a row for each step. Exit status: 0 all good, 1 not, 2 wrong usage, 77 it cannot be tried here.
set -uo pipefail

cd "$(dirname "$0")/.." || exit 2
source=$PWD
. scripts/common.sh
usage='usage: fresh.sh bookworm|trixie|jammy|noble [demo|test|user|image]...'
release=${1:?$usage}
shift
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(demo)

cannot() {
	echo "fresh: not tried: $*"
	exit 77
}

case $release in
bookworm | trixie) mirror=http://deb.debian.org/debian keyring=debian-archive-keyring suite='' components=main script=$release ;;
jammy | noble) mirror=http://archive.ubuntu.com/ubuntu keyring=ubuntu-keyring suite=trixie components=main,universe script=jammy ;;
*)
	echo "$usage" >&2
	exit 2
	;;
esac
[ "$(id -u)" = 0 ] || cannot 'only root can make a root'
if [ -n "${CI:-}" ] && ! command -v debootstrap >/dev/null; then
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends debootstrap; } >/dev/null 2>&1
fi
command -v debootstrap >/dev/null || cannot 'debootstrap is missing; root: apt-get install debootstrap'
unshare --mount --pid --fork true 2>/dev/null || cannot 'no namespace of mounts can be made here'

here=$(mktemp -d "${FRESH:-/var/tmp}/spillway-fresh.XXXXXX") || exit 1
bad=0

# Only once nothing is mounted below it, which the kernel is asked for.
finish() {
	if grep -qF " $here/" /proc/self/mountinfo; then
		echo "fresh: something is mounted below $here, which therefore stays" >&2
	else
		rm -rf --one-file-system "$here"
	fi
}
trap finish EXIT

row() { # STEP RESULT
	printf '%-10s %-6s %s\n' "$release" "$1" "$2"
	[[ $2 == good* ]] || bad=1
}

# The archive's keys, from a package whose own signature Debian's keys of this machine check; Debian 13 has Ubuntu's.
base_root() {
	SUITE=$suite unpack_debian "$here/keys" "$(dpkg --print-architecture)" $keyring || return 1
	debootstrap --variant=minbase --components=$components --keyring="$(echo "$here"/keys/root/usr/share/keyrings/*-archive-keyring.gpg)" \
		"$release" "$here/base" $mirror "/usr/share/debootstrap/scripts/$script"
}

# inside NAME COMMAND: as root in the root NAME, with no more of this machine than the network. What is mounted, and what
# is still running, ends with it.
inside() {
	unshare --mount --pid --fork --kill-child -- bash -c '
		mount -t proc proc "$1/proc" && mount -t sysfs -o ro sys "$1/sys" && mount -t devpts -o newinstance,ptmxmode=0666 pts "$1/dev/pts" &&
			mkdir -p "$1/dev/shm" && mount -t tmpfs -o mode=1777 shm "$1/dev/shm" || exit 125
		certificates=()
		[ -z "${SSL_CERT_FILE:-}" ] || { cp "$SSL_CERT_FILE" "$1/etc/ssl/host.crt" && certificates=({PIP_CERT,SSL_CERT_FILE}=/etc/ssl/host.crt); }
		exec chroot "$1" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${certificates[@]}" sh -c "$2"
	' - "$here/$1" "$2"
}

# A root of its own, with what is promised to be enough.
new_root() { # NAME
	rm -rf --one-file-system "${here:?}/$1"
	cp -a "$here/base" "$here/$1" && mkdir -p "$here/$1/etc/ssl"
}
new_machine() { # NAME
	new_root "$1" &&
		inside "$1" 'apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends make git ca-certificates' &&
		git clone -q --no-hardlinks "$source" "$here/$1/srv/spillway"
}

step_demo() {
	new_machine machine && inside machine 'cd /srv/spillway && make demo && make lib' && grep -q 'Next: build/spillway doctor' "$log"
}

step_test() {
	[ -e "$here/machine" ] || step_demo && inside machine 'cd /srv/spillway && make test'
}

as_user() {
	inside user "su someone -c 'cd /srv/spillway && make $1'"
}

step_user() {
	local line
	new_machine user && inside user 'useradd -m someone && chown -R someone: /srv/spillway' || return
	as_user demo >"$here/said" 2>&1 && return 1
	cat "$here/said"
	line=$(sed -nE 's/.*run as root: (apt-get install .*)/\1/p' "$here/said")
	[ "$(grep -c . <<<"$line")" = 1 ] && inside user "$line -y --no-install-recommends" && as_user demo
}

# Of a Dockerfile: FROM, RUN, COPY and CMD, as far as ours uses them. Each stage has a root of its own.
step_image() {
	local word rest words files name='' from
	while read -r word rest; do
		read -ra words <<<"$rest"
		case $word in
		FROM)
			[[ $release == bookworm && ${words[0]} == debian:12* ]] || return 1
			name=${words[2]:-image}
			new_root "$name" || return
			;;
		RUN) inside "$name" "$rest" || return ;;
		COPY)
			from=$here/${words[0]#--from=}
			mkdir -p "$here/$name${words[-1]}"
			if [[ ${words[0]} == . ]]; then
				git clone -q --no-hardlinks "$source" "$here/$name${words[-1]}" || return
			else
				files=("${words[@]:1:${#words[@]}-2}")
				cp -a "${files[@]/#/$from}" "$here/$name${words[-1]}" || return
			fi
			;;
		CMD) inside "$name" "mkdir /spillway && $(tr -d '[],"' <<<"$rest") && /spillway/spillway --version" || return ;;
		esac
	done <docs/cluster/Dockerfile
}

log=$here/log
base_root >"$log" 2>&1 || {
	tail -n 20 "$log" "$here"/base/debootstrap/debootstrap.log 2>/dev/null
	cannot "no root of $release can be made"
}
for step in "${steps[@]}"; do
	[[ $step =~ ^(demo|test|user|image)$ ]] || {
		echo "$usage" >&2
		exit 2
	}
	begun=$SECONDS
	if "step_$step" >"$log" 2>&1; then
		row "$step" "good: $((SECONDS - begun)) s$(sed -nE 's/^([0-9]+ passed, .*)/, \1/p' "$log" | tail -n 1)"
	else
		tail -n 60 "$log" | sed 's/^/  /'
		row "$step" "FAILED, $((SECONDS - begun)) s"
	fi
done
exit $bad
