#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# package_test.sh SOURCE BUILD: what scripts/package/finish.sh makes of an installed tree for a .deb and for a .rpm. The
# packages themselves take a build of their own: scripts/packages_check.sh. What is installed is uninstalled, too.
source=$1
build=$2
. "$source/scripts/common.sh"
[ -e /usr/share/doc/libyaml-dev/copyright ] || [ -e /usr/share/licenses/libyaml/License ] ||
	{ echo 'skipped: the system does not keep the notices of libyaml'; exit 77; }
here=$(mktemp -d /tmp/package_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
. "${0%/*}/../expect.sh"
version=$(spillway_version "$source")

fails() { ! "$@"; }
none() { [ -z "$(cat)" ]; }

for kind in DEB RPM; do
	tree=$here/$kind doc=$here/$kind/share/doc/spillway
	cmake --install "$build" --prefix "$tree" >"$here/log" 2>&1 || cat "$here/log"
	pages=$(find "$tree/share/man" -name '*.[157]' | sed "s|^$tree/||" | sort)
	promise "$kind: finish.sh" "$source/scripts/package/finish.sh" "$tree" $kind "$version" 'Some One <one@example.org>'
	promise "$kind: each manual page is compressed, none is lost" \
		test "$(find "$tree/share/man" ! -type d | sed "s|^$tree/||; s|\.gz\$||" | sort)" = "$pages"
	promise "$kind: nothing else is a page" none < <(find "$tree/share/man" ! -type d ! -name '*.gz')
	promise "$kind: a link among them leads to a page" gzip -t "$tree/share/man/man1/spillway-resume.1.gz"
	promise "$kind: it is a link" test -L "$tree/share/man/man1/spillway-resume.1.gz"
	promise "$kind: a page is what it was" cmp -s <(gzip -dc "$tree/share/man/man1/spillway.1.gz") "$build/man/spillway.1"
	promise "$kind: the changelog" cmp -s <(gzip -dc "$doc/changelog.gz") "$source/docs/changelog.md"
	promise "$kind: the Python module" cmp -s "$tree/share/spillway/python/spillway.py" "$source/tools/python/spillway.py"
	promise "$kind: the notices of what is linked in" grep -q 'Simonov' "$doc/notices/libyaml"
done

deb=$here/DEB doc=$here/DEB/share/doc/spillway
promise 'DEB: copyright' grep -q '^License: Apache-2.0' "$doc/copyright"
if command -v dpkg-parsechangelog >/dev/null; then
	gzip -dc "$doc/changelog.Debian.gz" >"$here/changelog"
	promise "DEB: Debian's changelog is of this version" \
		test "$(dpkg-parsechangelog -l "$here/changelog" -S Version 2>"$here/log")" = "$version-1"
	promise "DEB: Debian's changelog is well-formed: $(cat "$here/log")" test ! -s "$here/log"
fi
promise "DEB: zsh's completion lies where Debian's zsh looks" test -f "$deb/share/zsh/vendor-completions/_spillway"
promise 'DEB: and nowhere else' test ! -e "$deb/share/zsh/site-functions"
promise "DEB: Debian's python3 finds the module" cmp -s "$deb/lib/python3/dist-packages/spillway.py" "$source/tools/python/spillway.py"
promise 'DEB: the reasons for lintian' test -s "$deb/share/lintian/overrides/spillway"
promise "RPM: zsh's completion lies where zsh looks" test -f "$here/RPM/share/zsh/site-functions/_spillway"
promise 'RPM: the licence' cmp -s "$source/LICENSE" "$here/RPM/share/doc/spillway/LICENSE"
promise 'RPM: nothing of Debian' test ! -e "$here/RPM/share/lintian"
promise 'no package of a version that the changelog has not' \
	fails "$source/scripts/package/finish.sh" "$here/RPM" DEB 9.9.9 'Some One <one@example.org>' 2>"$here/log"
promise 'no script takes packages from an archive whose signature is not checked' \
	fails grep -rnE 'trusted=yes|allow-insecure|AllowInsecure|AllowUnauthenticated|allow-unauthenticated' "$source/scripts"

# make uninstall: what make install put beside a file of somebody else's.
unset MAKEFLAGS MAKELEVEL DESTDIR
gone=$here/gone
mkdir -p "$gone/lib" && : >"$gone/lib/other"
cmake --install "$build" --prefix "$gone" >"$here/log" 2>&1 || cat "$here/log"
promise 'make uninstall of another PREFIX removes nothing' \
	fails make -s -C "$source" uninstall BUILD="$build" PREFIX="$here/another" >"$here/log" 2>&1
promise 'it says so' grep -q 'the last make install from here was not to' "$here/log"
promise 'what was installed is still there' test -x "$gone/bin/spillway"
promise 'make uninstall' make -s -C "$source" uninstall BUILD="$build" PREFIX="$gone" >"$here/log" 2>&1
promise 'make uninstall leaves what is not ours' test "$(find "$gone" ! -type d)" = "$gone/lib/other"
promise 'make uninstall leaves no folder of ours' test ! -e "$gone/share/spillway"
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
