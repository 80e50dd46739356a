#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo_test.sh TOOL: `spillway demo` is good where all is well, and says what is not where it is not: a job that does
# not run out of memory, one that prints other losses under Spillway, one that is not there.
tool=$1
here=$(mktemp -d /tmp/demo_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
failed=0
n=0

# wants STATUS TEXT COMMAND...
wants() {
	local_status=$1 text=$2
	shift 2
	n=$((n + 1))
	"$@" >"$here/out" 2>&1
	status=$?
	[ "$status" = "$local_status" ] && grep -q -e "$text" "$here/out" && return
	failed=$((failed + 1))
	echo "FAILED: $* ended with $status, wanted $local_status and \"$text\":"
	cat "$here/out"
}

# A job as the demo calls one: the three runs are known by their environment.
pretend() {
	cat >"$here/$1"
	chmod +x "$here/$1"
}
pretend good <<'END'
#!/bin/sh
case $SPILLWAY_SET in *mode=off*) echo "train: out of memory" >&2; exit 1 ;; esac
echo "step 1 loss 1"
echo "final 2"
END
pretend fits <<'END'
#!/bin/sh
echo "step 1 loss 1"
END
pretend differs <<'END'
#!/bin/sh
case $SPILLWAY_SET in *mode=off*) echo "train: out of memory" >&2; exit 1 ;; esac
echo "step 1 loss 1"
[ -z "$SPILLWAY_SET" ] && echo "step 2 loss 1" || echo "step 2 loss 2"
END
pretend short <<'END'
#!/bin/sh
case $SPILLWAY_SET in *mode=off*) echo "train: out of memory" >&2; exit 1 ;; esac
echo "step 1 loss 1"
[ -n "$SPILLWAY_SET" ] || echo "step 2 loss 1"
END
pretend crashes <<'END'
#!/bin/sh
kill -9 $$
END

wants 0 'runs 1 and 3 printed are equal bit for bit' env SPILLWAY=0 SPILLWAY_SET=device.budget=1KiB SPILLWAY_POLICY=nothing.yaml "$tool" demo
wants 0 'The 2 lines' "$tool" demo --job "$here/good"
wants 1 'run 2 was to end with out of memory' "$tool" demo --job "$here/fits"
wants 1 'the losses differ' "$tool" demo --job "$here/differs"
wants 1 'the losses differ' "$tool" demo --job "$here/short"
wants 1 'run 1 did not finish' "$tool" demo --job "$here/crashes"
wants 2 'no/such: No such file' "$tool" demo --job no/such
wants 2 'one argument too many' "$tool" demo more

# A job of an installed tree: the three runs are known by what the simulated GPU there is told, and by the library.
pretend installed <<'END'
#!/bin/sh
[ -e "${LD_LIBRARY_PATH%%:*}/libcuda.so.1" ] && [ -e "${LD_LIBRARY_PATH%%:*}/libcudart.so.13" ] || exit 9
case $SIM_MEMORY,$LD_PRELOAD in
1GiB,) ;;
64MiB,) echo "train: out of memory" >&2 && exit 1 ;;
64MiB,*libspillway.so*) ;;
*) exit 9 ;;
esac
echo "step 1 loss 1"
END

# An installed tree without the demo, and one with it.
mkdir -p "$here/bin" "$here/lib/spillway/demo" "$here/share/spillway"
cp "$tool" "$here/bin/"
cp "$(dirname "$tool")/demo.sh" "$here/share/spillway/"
cp "$(dirname "$tool")/libspillway.so" "$here/lib/"
wants 2 'is not installed' "$here/bin/spillway" demo
cp "$here/installed" "$here/lib/spillway/demo/train"
cp "$(dirname "$tool")"/sim/libcuda.so.1 "$(dirname "$tool")"/sim/libcudart.so.13 "$here/lib/spillway/demo/"
wants 0 'The 1 lines.*equal bit for bit' "$here/bin/spillway" demo

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
