# SPDX-License-Identifier: Apache-2.0
# lines_start.sh: for the tests of lines of Python programs, which source it as `. lines_start.sh NAME MEMORY FOLDER SIM_DIR`:
# a folder of its own to work in, `here`, and an environment without what the user has set.
here=$(mktemp -d "/tmp/$1.XXXXXX") || exit 1
here=$(cd "$here" && pwd -P)
trap 'rm -rf "$here"' EXIT
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_SET SPILLWAY_TRACE LD_AUDIT PYTHONPATH PYTHONHOME
export LD_LIBRARY_PATH=$4:$3 XDG_RUNTIME_DIR=$here LC_ALL=C SIM_MEMORY=$2 PYTHONDONTWRITEBYTECODE=1
# Python leaks at its end, which the address sanitizer would say of it.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

# is_known PYTHON: whether it is there, and of a version whose frames the library can read.
is_known() {
	command -v "$1" >/dev/null && "$1" -c 'import sys, ctypes
sys.exit(not ((3, 9) <= sys.version_info < (3, 15) and sys.implementation.name == "cpython"
              and not hasattr(sys, "gettotalrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()))' 2>/dev/null
}
