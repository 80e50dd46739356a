#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# doctor_doors_test.sh TOOL SIM_DIR JSON_VALID PROGRAMS_DIR DRIVER_COPY: `spillway doctor -- PROGRAM` names the door by
# which each library came to the driver's functions, and those that go round Spillway.
tool=$1
valid=$3
programs=$4
copy=$5
here=$(mktemp -d /tmp/doctor_doors_test.XXXXXX) || exit 1
here=$(cd "$here" && pwd -P)
trap 'rm -rf "$here"' EXIT
unset SPILLWAY SPILLWAY_POLICY SPILLWAY_SET LD_PRELOAD LD_AUDIT
export LD_LIBRARY_PATH=$2 TMPDIR=$here XDG_RUNTIME_DIR=$here LC_ALL=C
mkdir "$here/root"
failed=0
n=0

complain() {
	failed=$((failed + 1))
	echo "FAILED: $promise: $1"
	grep '"subject": "program"' "$here/out" | cut -c1-400 | sed 's/^/  out: /'
	sed 's/^/  err: /' "$here/err"
}

# runs "promise" STATUS [--audit] program argument...: the root is an empty machine, so its problems are none of these
runs() {
	promise=$1
	local status=$2 audit=()
	shift 2
	[ "$1" = --audit ] && audit=(--audit) && shift
	n=$((n + 1))
	"$tool" doctor --json --no-measure "${audit[@]}" -- "$@" >"$here/out" 2>"$here/err"
	got=$?
	# A machine without a GPU may have problems of its own; this is about the program.
	problems=$(grep '"subject": "program"' "$here/out" | grep -c '"status": "problem"')
	[ "$problems" = "$status" ] || complain "$problems problems of the program, not $status"
	[ $got = 0 ] || [ $got = 3 ] || complain "exit status $got"
	"$valid" <"$here/out" || complain 'it is no JSON'
	[ -z "$(ls "$here"/spillway-doors-* 2>/dev/null)" ] || complain 'a file is left behind'
}

# says ID FILE "pattern of the fact": a finding of that library
says() {
	local line
	line=$(grep "^ *{\"id\": \"$1\".*\"object\": \"[^\"]*$2\"" "$here/out")
	# shellcheck disable=SC2254 # a pattern it is
	case $line in
	*"\"fact\": \""$3'"'*) ;;
	*) complain "$1 of $2 does not say \"$3\"" ;;
	esac
}
says_not() { ! grep -q "^ *{\"id\": \"$1\".*\"object\": \"[^\"]*$2\"" "$here/out" || complain "$1 of $2 is there"; }
fact() { # ID "pattern"
	# shellcheck disable=SC2254
	case $(grep "^ *{\"id\": \"$1\"" "$here/out") in *"\"fact\": \""$2'"'*) ;; *) complain "$1 does not say \"$2\"" ;; esac
}

runs 'a program linked to the driver' 0 "$programs/door_linked"
says program.door door_linked 'through Spillway: [1-9]*, past it: 0, unbound: *'
fact program.process '*door_linked: Spillway is loaded*'
fact program.end 'with status 0'
runs 'its status is told' 0 "$programs/door_linked" seven
fact program.end 'with status 7'
runs 'dlsym' 0 "$programs/door_user" dlsym
says program.door door_user 'through Spillway: 3, past it: 0, unbound: 0'
runs 'cuGetProcAddress' 0 "$programs/door_user" proc
says program.door door_user 'through Spillway: 3, past it: 0, unbound: 0'
runs 'a CUDA runtime in the program itself' 0 "$programs/door_static"
says program.door door_static 'through Spillway: [1-9]*, past it: 0, unbound: 0'
runs 'the shared runtime' 0 "$programs/door_shared"
says program.door 'libcudart\.so\.13' 'through Spillway: [1-9]*, past it: 0, unbound: 0'
runs 'a library that the program opens' 0 "$programs/door_user" plain "$programs/libaudit_lib_lazy.so"
says program.door libaudit_lib_lazy.so 'through Spillway: [1-9]*, past it: 0, unbound: *'
runs 'a library that is opened and does nothing' 0 "$programs/door_user" load "$programs/libaudit_lib_lazy.so"
says program.silent libaudit_lib_lazy.so 'can use the driver, and asked for nothing in this run'
for bound in lazy now; do
	runs "RTLD_DEEPBIND goes round, and that is a problem ($bound)" 1 "$programs/door_user" deep "$programs/libaudit_lib_$bound.so"
	says program.past libaudit_lib_$bound.so 'through Spillway: *, past it: [1-9]*, unbound: *'
	grep -q '"fix": "spillway run --audit' "$here/out" || complain 'it does not say what to do'
	runs "with --audit it does not ($bound)" 0 --audit "$programs/door_user" deep "$programs/libaudit_lib_$bound.so"
	says program.door libaudit_lib_$bound.so 'through Spillway: [1-9]*, past it: 0, unbound: *'
	says_not program.past libaudit_lib_$bound.so
done
runs 'a namespace of its own goes round' 1 "$programs/door_user" apart "$programs/libaudit_lib_lazy.so"
says program.past 'libcuda\.so\.1[.0-9]*' '*; it is in a namespace of its own (dlmopen)*'
runs 'a program that could, and did not' 0 "$programs/door_user" none
says program.silent door_user 'can use the driver, and asked for nothing in this run'
runs 'a second driver goes round' 1 "$programs/door_user" copy "$copy"
says program.past door_user 'through Spillway: *, past it: [1-9]*, unbound: *'
runs 'a program without CUDA' 0 true
fact program.effect '*none had to do with CUDA'
runs 'one that ends by a signal' 0 "$programs/door_linked" signal
fact program.end 'by signal 9*'
says program.door door_linked 'through Spillway: [1-9]*, past it: 0, unbound: *'
runs 'one that ends by _exit' 0 "$programs/door_linked" _exit
says program.door door_linked 'through Spillway: [1-9]*, past it: 0, unbound: *'
runs 'one that becomes another' 0 "$programs/door_linked" exec
says program.door door_linked 'through Spillway: [1-9]*, past it: 0, unbound: *'
runs 'a child made by fork' 0 "$programs/door_linked" fork
grep -q '"a child by fork' "$here/out" || fact program.process '*a child by fork*'
runs 'a child that is started' 0 sh -c "'$programs/door_user' dlsym; true"
says program.door door_user 'through Spillway: 3, past it: 0, unbound: 0'
runs 'output of the program goes to standard error' 0 echo the words
grep -qx 'the words' "$here/err" || complain 'it did not'

printf 'int main(void) { return 5; }\n' >"$here/five.c"
if ${CC:-cc} -static -o "$here/five" "$here/five.c" 2>/dev/null; then
	runs 'a static program is told' 2 "$here/five"
	fact program.target '*it is statically linked'
	fact program.effect 'no process had the library in it'
fi
if command -v musl-gcc >/dev/null && musl-gcc -o "$here/musl" "$here/five.c" 2>/dev/null; then
	runs 'a program for musl is told' 1 "$here/musl"
	fact program.target '*built for musl*'
fi
if ${CC:-cc} -m32 -nostdlib -static -Wl,-e,main -o "$here/five32" "$here/five.c" 2>/dev/null; then
	runs 'a 32-bit program is told' 2 "$here/five32"
	fact program.target '*it is a 32-bit program'
fi
if [ "$(id -u)" = 0 ] && cp "$programs/door_user" "$here/rights" && chown 1 "$here/rights" && chmod u+s "$here/rights"; then
	runs 'a set-user-ID program is told' 2 "$here/rights" none
	fact program.target '*more rights than you have*'
fi
printf '#!/bin/sh\nexec "$@"\n' >"$here/sudo"
chmod +x "$here/sudo"
runs 'a program that takes the environment away is told' 1 "$here/sudo" true
fact program.target '*environment of its own*'

# ---- the file of doors ---- what the library does with it, without the tool
promise='no file is made, no link is followed, nothing but a file is written to'
n=$((n + 1))
library=${tool%/*}/libspillway.so
doors() { SPILLWAY_DOORS=$1 LD_PRELOAD=$library "$programs/door_user" dlsym >"$here/out" 2>"$here/err"; }
doors "$here/nosuch" || complain 'the program failed'
[ ! -e "$here/nosuch" ] || complain 'it was made'
: >"$here/aim"
ln -s "$here/aim" "$here/link"
doors "$here/link" || complain 'the program failed'
[ ! -s "$here/aim" ] || complain 'the link was followed'
mkfifo "$here/pipe"
doors "$here/pipe" || complain 'the program failed'
promise='without the variable nothing is written, with it all is said in whole lines'
n=$((n + 1))
LD_PRELOAD=$library "$programs/door_user" dlsym >"$here/out" 2>"$here/err"
[ ! -s "$here/err" ] || complain 'it says something'
doors "$here/aim"
[ "$(cut -f2 "$here/aim" | sort -u | tr '\n' ' ')" = 'end look object start ' ] || complain "lines are missing: $(cut -f2 "$here/aim" | sort -u)"

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
