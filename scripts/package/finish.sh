#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# finish.sh PREFIX DEB|RPM VERSION CONTACT: what a package has beside what `make install` installs: licence and changelog,
# compressed manual pages, and for Debian its changelog, the reasons for lintian, and the folders of zsh and python3. CPack calls it when
# everything else lies in PREFIX.
set -euo pipefail

prefix=$1 kind=$2 version=$3 contact=$4
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
umask 022
doc=$prefix/share/doc/spillway
day=$(sed -nE "s/^## $version, ([0-9-]+)\$/\1/p" "$root/docs/changelog.md")
[ -n "$day" ] || {
	echo "finish.sh: docs/changelog.md has no version $version" >&2
	exit 1
}

mkdir -p "$doc"
gzip -9n <"$root/docs/changelog.md" >"$doc/changelog.gz"
for page in "$prefix"/share/man/man?/*.[157]; do
	if [ -L "$page" ]; then
		ln -sf "$(readlink "$page").gz" "$page.gz"
		rm "$page"
	else
		gzip -9nf "$page"
	fi
done
# What is linked in. Where the system keeps the notices: Debian, Fedora.
mkdir -p "$doc/notices"
for notice in libyaml:libyaml-dev/copyright libyaml:libyaml/License ncurses:libncurses-dev/copyright ncurses:ncurses-base/COPYING; do
	for folder in /usr/share/doc /usr/share/licenses; do
		[ ! -e "$folder/${notice#*:}" ] || cp -L "$folder/${notice#*:}" "$doc/notices/${notice%%:*}"
	done
done
[ -e "$doc/notices/libyaml" ] || {
	echo 'finish.sh: the copyright notice of libyaml, which is linked in, was not found in /usr/share/doc or /usr/share/licenses' >&2
	exit 1
}
chmod 644 "$doc"/notices/*
if [ "$kind" = RPM ]; then
	cp "$root/LICENSE" "$doc/LICENSE"
	exit
fi

cp "$here/copyright" "$doc/copyright"
gzip -9n >"$doc/changelog.Debian.gz" <<TEXT
spillway ($version-1) unstable; urgency=medium

  * What a user sees of this version is in changelog.gz.

 -- $contact  $(LC_ALL=C date -u -R -d "$day")
TEXT
mkdir -p "$prefix/share/lintian/overrides" "$prefix/share/zsh/vendor-completions"
cp "$here/lintian-overrides" "$prefix/share/lintian/overrides/spillway"
mv "$prefix/share/zsh/site-functions/_spillway" "$prefix/share/zsh/vendor-completions/"
rmdir "$prefix/share/zsh/site-functions"
# Where Debian's python3 looks, whatever its version.
mkdir -p "$prefix/lib/python3/dist-packages"
ln -s ../../../share/spillway/python/spillway.py "$prefix/lib/python3/dist-packages/spillway.py"
