# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What tests of commands share. Sourced, by sh and bash; then the test goes to a folder of its own, and ends with
# [ $failed = 0 ].
n=0
failed=0

# expect "promise" STATUS "stdout (a pattern)" "stderr (a pattern)" command...
expect() {
	promise=$1 status=$2 out=$3 err=$4
	shift 4
	n=$((n + 1))
	"$@" >out.txt 2>err.txt
	got=$?
	case $got in $status) ;; *) complain "exit status $got, not $status" ;; esac
	case $(cat out.txt) in $out) ;; *) complain "stdout is not $out" ;; esac
	case $(cat err.txt) in $err) ;; *) complain "stderr is not $err" ;; esac
}

# promise "what" COMMAND...: COMMAND succeeds. For tests that do not look at what it prints.
promise() {
	what=$1
	shift
	n=$((n + 1))
	"$@" || {
		failed=$((failed + 1))
		echo "FAILED: $what"
	}
}

complain() {
	failed=$((failed + 1))
	echo "FAILED: $promise: $1"
	head -c 20000 out.txt | sed 's/^/  out: /'
	head -c 20000 err.txt | sed 's/^/  err: /'
}
