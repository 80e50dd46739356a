#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libyaml_test.sh SOURCE CUDA_INCLUDE YAML_INCLUDE YAML_STATIC: the build takes a static libyaml, and where there is none, a
# shared one alone or nothing, CMake and setup.sh say what to install on Debian and on Fedora. In folders made up for it;
# the machine's own are hidden. Nothing is built.
source=$1
cuda=$2
include=$3
static=$4
here=$(mktemp -d /tmp/libyaml_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
n=0
failed=0

expect() { # WHAT STATUS TEXT COMMAND...: COMMAND ends with STATUS and prints TEXT.
	what=$1 status=$2 text=$3
	shift 3
	n=$((n + 1))
	"$@" >"$here/said" 2>&1
	got=$?
	[ "$status" = "$got" ] && tr -s ' \n' ' ' <"$here/said" | grep -qF -e "$text" && return
	failed=$((failed + 1))
	echo "FAILED: $what: it ended with $got; wanted: $status, \"$text\""
	sed 's/^/  /' "$here/said"
}

# configure NAME: with the folder NAME of libraries and headers, and no others.
configure() {
	cmake -G Ninja -S "$source" -B "$here/build-$1" -DCUDA_INCLUDE_DIR="$cuda" -DSPILLWAY_TESTS=OFF \
		-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF \
		-DCMAKE_MAKE_PROGRAM="$(command -v ninja)" -DCMAKE_C_COMPILER="$(command -v "${CC:-cc}")" \
		-DCMAKE_AR="$(command -v ar)" -DCMAKE_PREFIX_PATH="$here/$1" -DZLIB_LIBRARY=z -DZLIB_INCLUDE_DIR="$include" &&
		sed -n 's/^YAML_STATIC:FILEPATH=/found: /p' "$here/build-$1/CMakeCache.txt"
}

for name in static shared header library; do
	mkdir -p "$here/$name/lib" "$here/$name/include"
	[ $name = library ] || ln -s "$include/yaml.h" "$here/$name/include/yaml.h"
done
mkdir "$here/nothing"
ln -s "$static" "$here/static/lib/libyaml.a"
ln -s "$static" "$here/library/lib/libyaml.a"
: >"$here/shared/lib/libyaml.so"

expect 'a static libyaml is taken' 0 "found: $here/static/lib/libyaml.a" configure static
expect 'a shared one alone is named' 1 "only a shared libyaml was found, $here/shared/lib/libyaml.so" configure shared
expect 'what Debian calls it' 1 'apt-get install libyaml-dev' configure shared
expect 'what Fedora calls it' 1 'dnf install libyaml-devel' configure shared
expect 'a header alone' 1 'libyaml.a was not found. Debian' configure header
expect 'a library without its header' 1 'yaml.h, of libyaml, was not found. Debian' configure library
expect 'nothing' 1 'yaml.h, of libyaml, was not found. Debian' configure nothing

# setup.sh, with the commands of a system and a gcc that finds everything but what is in LACKS.
mkdir "$here/debian" "$here/fedora"
for command in bash dirname cat tr grep sed cmake ninja nproc mkdir ldconfig awk readlink; do
	path=$(command -v $command) || continue
	ln -s "$path" "$here/debian/$command"
	ln -s "$path" "$here/fedora/$command"
done
cat >"$here/debian/gcc" <<'END'
#!/bin/sh
[ "$*" != '-E -' ] || ! grep -q "$LACKS_HEADER"; found=$?
case $1 in
-E) exit $found ;;
-print-file-name=libyaml.*) case " $LACKS " in *" ${1#*=} "*) echo "${1#*=}" ;; *) echo "/somewhere/${1#*=}" ;; esac ;;
-print-file-name=*) echo "/somewhere/${1#*=}" ;;
esac
END
printf '#!/bin/sh\necho 1000\n' >"$here/debian/id"
printf '#!/bin/sh\nexit 1\n' >"$here/debian/apt-get"
chmod +x "$here"/debian/gcc "$here"/debian/id "$here"/debian/apt-get
cp "$here/debian/gcc" "$here/debian/id" "$here/fedora/"
cp "$here/debian/apt-get" "$here/fedora/dnf"
setup_on() { # SYSTEM LACKS LACKS_HEADER
	env -i HOME="$here" PATH="$here/$1" CUDA_HOME="${cuda%/include}" LACKS="$2" LACKS_HEADER="$3" BUILD="$here/build" \
		"$here/bash" "$source/scripts/setup.sh" --lib
}
ln -s "$(command -v bash)" "$here/bash"
expect 'setup.sh on Debian, nothing' 1 'apt-get install libyaml-dev' setup_on debian 'libyaml.a libyaml.so' yaml.h
expect 'setup.sh on Debian, shared' 1 'apt-get install libyaml-dev' setup_on debian libyaml.a none.h
expect 'setup.sh on Fedora, nothing' 1 'dnf install libyaml-devel' setup_on fedora 'libyaml.a libyaml.so' yaml.h
expect 'setup.sh on Fedora, shared' 0 'only a shared libyaml was found' setup_on fedora libyaml.a none.h

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
