#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers_test.sh SOURCE CUDA_INCLUDE: where there is no CUDA Toolkit, the headers are found in the site-packages of a
# Python, else fetched into the build folder, else what to install is said. The machine's own Toolkit and site-packages are
# hidden; a made-up pip makes up what PyPI would send. Nothing is built.
source=$1
cuda=$2
real=$(command -v python3) || { echo 'skipped: no python3'; exit 77; }
here=$(mktemp -d /tmp/headers_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
n=0
failed=0

expect() { # WHAT STATUS TEXT COMMAND...: COMMAND ends with STATUS, or with any but 0 if that is "not"; it prints TEXT.
	what=$1 status=$2 text=$3
	shift 3
	n=$((n + 1))
	"$@" >"$here/said" 2>&1
	got=$?
	{ [ "$status" = "$got" ] || { [ "$status" = not ] && [ $got != 0 ]; }; } &&
		{ [ -z "$text" ] || tr -s ' \n' ' ' <"$here/said" | grep -qF -e "$text"; } && return
	failed=$((failed + 1))
	echo "FAILED: $what: it ended with $got; wanted: $status, \"$text\""
	sed 's/^/  /' "$here/said"
}

# headers FOLDER HEADER...: this machine's, in a folder of their own.
headers() {
	folder=$1
	shift
	for header; do
		mkdir -p "$(dirname "$folder/$header")"
		ln -s "$cuda/$header" "$folder/$header"
	done
}
all='cuda.h cuda_runtime_api.h crt/host_defines.h cudaProfiler.h'

# A python3 without site-packages but PYTHONPATH, and without pip but for the one that is asked for by FAKE_PIP, or that
# apt-get installs for root (FAKE_UID=0).
mkdir -p "$here/bin" "$here/none"
cat >"$here/bin/python3" <<END
#!/bin/sh
case "\$1 \$2 \$3" in
'-m pip --version') [ -n "\$FAKE_PIP" ] || [ -e "$here/installed" ] ;;
'-m pip download')
	[ "\$FAKE_PIP" = yes ] || [ -e "$here/installed" ] || exit 1
	echo "\$*" >"$here/asked"
	while [ "\$1" != -d ]; do shift; done
	mkdir -p "\$2"
	cp "$here/made.whl" "\$2/" ;;
*) exec "$real" -S "\$@" ;;
esac
END
printf '#!/bin/sh\necho "${FAKE_UID:-1000}"\n' >"$here/bin/id"
printf '#!/bin/sh\n[ "$1" != install ] || echo "$*" >"%s"\n' "$here/installed" >"$here/bin/apt-get"
chmod +x "$here"/bin/*
# shellcheck disable=SC2086
headers "$here/made/nvidia/cu13/include" $all
(cd "$here/made" && "$real" -m zipfile -c "$here/made.whl" nvidia) || exit 1

unset MAKEFLAGS MAKELEVEL CUDA_PATH VIRTUAL_ENV FAKE_PIP CI
export HOME="$here" PATH="$here/bin:$PATH" CUDA_HOME=none PYTHONPATH="$here/none" BUILD="$here/build"

configure() { # FOLDER ARGUMENT...
	folder=$1
	shift
	cmake -G Ninja -S "$source" -B "$folder" "$@" && sed -n 's/^CUDA_INCLUDE_DIR:PATH=/found: /p' "$folder/CMakeCache.txt"
}
setup() {
	"$source/scripts/setup.sh" "$@"
}

# Nothing.
words='pip install nvidia-cuda-runtime==13.0.'
expect 'cmake says what is missing' not "$words" configure "$here/nothing" -DSPILLWAY_TESTS=OFF
expect 'setup.sh names pip, which fetches them' not 'run as root: apt-get install python3-pip' setup --lib
expect 'so does setup.sh for the tests' not 'run as root: apt-get install python3-pip' setup
expect 'setup.sh --headers prints no folder' not "$words" setup --headers

# A site-packages as PyTorch's: all the library needs, but not what the simulated GPU needs.
site=$here/site/nvidia/cu13/include
headers "$site" cuda.h cuda_runtime_api.h
export PYTHONPATH="$here/site"
expect 'cmake finds a site-packages' 0 "found: $site" configure "$here/torch" -DSPILLWAY_TESTS=OFF
expect 'setup.sh is content with it for the library' 0 '' setup --lib
expect 'setup.sh is not for the tests' not 'apt-get install python3-pip' setup
expect 'cmake names the header that the tests lack' not 'has no crt/host_defines.h' configure "$here/torch" -DSPILLWAY_TESTS=ON

# Another with everything, in the active environment.
venv=$here/venv/site-packages/nvidia/cu13/include
# shellcheck disable=SC2086
headers "$venv" $all
mkdir -p "$here/venv/bin"
printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s" "$@"\n' "$here/venv/site-packages" "$here/bin/python3" >"$here/venv/bin/python"
chmod +x "$here/venv/bin/python"
export VIRTUAL_ENV="$here/venv"
expect 'the active environment is looked into' 0 "found: $venv" configure "$here/venv-build" -DSPILLWAY_TESTS=OFF
expect 'setup.sh finds the same' 0 "$venv" setup --headers
unset VIRTUAL_ENV

# A Toolkit comes first, one that is too old does not count.
# shellcheck disable=SC2086
headers "$here/toolkit/include" $all
expect 'a Toolkit comes first' 0 "$here/toolkit/include" env CUDA_HOME="$here/toolkit" "$source/scripts/setup.sh" --headers
mkdir -p "$here/old/nvidia/cu13/include"
echo '#define CUDA_VERSION 12040' >"$here/old/nvidia/cu13/include/cuda.h"
export PYTHONPATH="$here/old"
expect 'old headers are none' not 'are too old: CUDA 12.4' setup --headers

# Fetched.
expect 'setup.sh says that PyPI does not answer' not 'PyPI does not give them' env FAKE_PIP=no "$source/scripts/setup.sh"
expect 'setup.sh fetches the headers' 0 'fetching the headers' env FAKE_PIP=yes "$source/scripts/setup.sh"
expect 'by name and version' 0 'nvidia-cuda-crt==13.0.' cat "$here/asked"
expect 'setup.sh has them from then on' 0 "$here/build/cuda/nvidia/cu13/include" setup --headers
expect 'and fetches nothing more' 0 '' setup
rm -rf "$here/build"
expect 'root: pip is installed, then the headers are fetched' 0 'fetching the headers' env FAKE_UID=0 "$source/scripts/setup.sh" --lib
expect 'pip alone was missing' 0 'install -q -y --no-install-recommends python3-pip' cat "$here/installed"
expect 'cmake finds them in the build folder' 0 "found: $here/build/cuda/nvidia/cu13/include" configure "$here/build"

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
