#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lib_test.sh SOURCE CUDA_INCLUDE: `make lib` and `make install` need nothing that only tests need, and build no test;
# `make` builds the tests in the same folder afterwards, and neither takes them away again. Configured as ever, with the
# real cmake; nothing is built or installed: what cmake is asked to do is written down instead. A gcc that knows no
# cmocka, and no right to install anything.
set -u
source=$1
export CUDA_HOME="${2%/include}"
unset MAKEFLAGS MAKELEVEL MFLAGS CMAKE_FLAGS PREFIX BUILD CI
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
n=0
failed=0

complain() {
	failed=$((failed + 1))
	echo "FAILED: $1"
	sed 's/^/  /' "$here/said"
}

expect() { # WHAT CONDITION...
	what=$1
	shift
	n=$((n + 1))
	"$@" || complain "$what"
}

mkdir "$here/bin"
export real_gcc real_cmake asked
real_gcc=$(command -v gcc) real_cmake=$(command -v cmake) asked=$here/asked
cat > "$here/bin/cmake" <<'FAKE'
#!/bin/sh
case $1 in
--build | --install) echo "$*" >> "$asked" ;;
*) exec "$real_cmake" "$@" ;;
esac
FAKE
cat > "$here/bin/gcc" <<'FAKE'
#!/bin/sh
case "$*" in
'-E -') grep -q cmocka && exit 1 || exit 0 ;;
*cmocka*) echo libcmocka.so ;;
*) exec "$real_gcc" "$@" ;;
esac
FAKE
printf '#!/bin/sh\necho 1000\n' > "$here/bin/id"
printf '#!/bin/sh\necho "apt-get $*" >> "$asked"\nexit 1\n' > "$here/bin/apt-get"
chmod +x "$here"/bin/*
fakes=$here/bin:$PATH

make_() { # TARGET...
	: > "$asked"
	(cd "$source" && PATH=$fakes make -s BUILD="$here/build" "$@") > "$here/said" 2>&1
}

has_tests() {
	ninja -C "$here/build" -t targets all 2> /dev/null | grep -q '_test:'
}

fails() { # COMMAND...
	! "$@"
}

is_asked() { # TEXT: this, once, and nothing else
	[ "$(cat "$asked")" = "$1" ]
}

is_what_is_installed() { # what the target lib is made of, but the plugin for Slurm, which is made where its header is
	[ "$(ninja -C "$here/build" -t query lib | grep -E '^ +(lib)?spillway' | grep -v spillway_slurm | sort | tr -d '\n')" = \
		'    libspillway-audit.so    libspillway.so    spillway' ]
}

expect 'make lib needs no cmocka' make_ lib
expect 'make lib builds one target' is_asked "--build $here/build --target lib"
expect 'make lib knows no test' fails has_tests
expect 'make lib builds the libraries and the tool' is_what_is_installed
expect 'make install needs no cmocka' make_ install "PREFIX=$here/to"
expect 'make install builds what is installed' is_asked "--build $here/build --target lib
--install $here/build --prefix $here/to"
expect 'make install knows no test' fails has_tests
expect 'a package has no tests' cmake -G Ninja -S "$source" -B "$here/package" -DSPILLWAY_TESTS=OFF -DSPILLWAY_DEMO=ON \
	-DCUDA_INCLUDE_DIR="$2"
expect 'make needs cmocka' fails make_ all
expect 'make names cmocka' grep -q 'missing:.* libcmocka-dev' "$here/said"
rm "$here/bin/gcc"
expect 'make builds everything' make_ all
expect 'make asks for everything' is_asked "--build $here/build"
expect 'make knows the tests' has_tests
expect 'make lib leaves a folder with tests as it is' make_ lib
expect 'make lib keeps the tests' has_tests
expect 'make lib builds the same in a folder with tests' is_what_is_installed
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
