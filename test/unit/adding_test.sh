#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# adding_test.sh SOURCE CUDA_INCLUDE SIM_DIR YAML_INCLUDE YAML_LIBRARY: the examples of docs/adding.md are true. Each patch
# in docs/adding/ applies by itself; with all of them the library is built, without optimisation, and the lists are
# checked; a program under that library sees the function served, the key obeyed and the figure counted.
set -u
source=$1 cuda=$2 sim=$3 yaml_include=$4 yaml=$5
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
n=0

promise() { # WHAT COMMAND...
	what=$1
	shift
	n=$((n + 1))
	"$@" >"$here/said" 2>&1 && return
	failed=$((failed + 1))
	echo "FAILED: $what"
	sed 's/^/  /' "$here/said"
}

mkdir "$here/tree" "$here/objects" "$here/run"
(cd "$source" && tar cf - shim policy scripts test/libc.h test/test.h test/test_main.c test/unit tools/man) | tar xf - -C "$here/tree"
cd "$here/tree" || exit 1
for patch in "$source"/docs/adding/*.patch; do
	promise "$patch applies by itself" patch -p1 -s -f --dry-run -i "$patch"
done
for patch in "$source"/docs/adding/*.patch; do
	promise "$patch applies" patch -p1 -s -f -i "$patch"
	promise "docs/adding.md names ${patch##*/}" grep -q "${patch##*/}" "$source/docs/adding.md"
done

# compile FLAG... FILE: one object.
export here cuda yaml_include
cat >"$here/compile" <<'END'
for file; do :; done
object=$here/objects/$(echo "$file" | tr / _).o
exec ${CC:-cc} -O0 -w -std=gnu11 -fPIC -fvisibility=hidden -D_GNU_SOURCE -D__CUDA_API_VERSION_INTERNAL \
	-DSPILLWAY_VERSION='"0"' -DPOLICY_FOLDER='"policy"' -I. -isystem "$cuda" -isystem "$yaml_include" "$@" -c -o "$object"
END
build() {
	find shim policy -name '*.c' ! -name audit.c ! -name dlsym.c | xargs -n 1 -P 2 sh "$here/compile" &&
		sh "$here/compile" -O2 -fno-stack-protector -foptimize-sibling-calls shim/entry/dlsym.c &&
		${CC:-cc} -shared -o "$here/libspillway.so" "$here"/objects/*.o "$yaml" -Wl,-Bsymbolic \
			-Wl,--version-script=shim/exports.map -Wl,-z,now -Wl,-z,defs -lpthread -ldl
}
promise 'the library builds with all of them' build
job() {
	${CC:-cc} -O0 -std=gnu11 -D_GNU_SOURCE -D__CUDA_API_VERSION_INTERNAL -I. -isystem "$cuda" -o "$here/job" \
		test/unit/adding_job.c -L"$sim" -l:libcuda.so.1 -ldl
}
promise 'the program builds with its headers' job

coverage() {
	${CC:-cc} -E -P -D__CUDA_API_VERSION_INTERNAL -I"$cuda" test/unit/coverage_headers.h -o "$here/coverage.i" &&
		${CC:-cc} -O0 -w -std=gnu11 -D_GNU_SOURCE -I. -DCOVERAGE_FILE="\"$here/coverage.i\"" -o "$here/coverage" \
			test/unit/coverage_test.c test/test_main.c -lcmocka &&
		"$here/coverage"
}
promise 'every function of cuda.h is in one list' coverage
promise 'the page of the functions is made from the lists' sh test/unit/api_page_test.sh .
promise 'the page of policies has the key' grep -q '^\.It Cm report\.start$' tools/man/spillway-policy.5
promise 'the page of figures has the figure' grep -q '^\.It Cm pitched_allocations$' tools/man/spillway-stats.5

run() { # FILE SETTING...: the job, its standard output and error in FILE
	file=$1
	shift
	env -u SPILLWAY -u SPILLWAY_POLICY XDG_RUNTIME_DIR="$here/run" LD_LIBRARY_PATH="$sim" \
		LD_PRELOAD="$here/libspillway.so" "$@" "$here/job" >"$file" 2>&1
}
chmod 700 "$here/run"
promise 'the program runs' run "$here/out" SPILLWAY_SET=report.start=yes
promise 'the function is served by the library' grep -qx 'cuCtxGetFlags: libspillway.so' "$here/out"
promise 'the figure is counted' grep -qx 'pitched_allocations: 1' "$here/out"
promise 'the key has its effect' grep -q 'the policy .* is in force' "$here/out"
promise 'the program runs with the default' run "$here/out2" SPILLWAY_SET=report.start=no
promise 'without the key there is no line' sh -c '! grep -q "is in force" "$1"' sh "$here/out2"
echo "$n promises, $failed failed"
[ "$failed" = 0 ] || { cat "$here/out"; exit 1; }
