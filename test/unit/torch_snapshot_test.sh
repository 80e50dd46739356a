#!/bin/sh
# torch_snapshot_test.sh TOOL SOURCE_DIR: tools/torch_snapshot.py reads plain data and runs nothing, and what it writes is
# read by `spillway replay`. Skipped without python3.
tool=$1
script=$2/tools/torch_snapshot.py
command -v python3 >/dev/null || exit 77
. "${0%/*}/../expect.sh"
here=$(mktemp -d /tmp/torch_snapshot_test.XXXXXX) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
convert() { python3 "$script" "$@"; }

python3 - <<'END' || exit 1
import os, pickle

def save(name, what):
    with open(name, "wb") as file:
        file.write(what if isinstance(what, bytes) else pickle.dumps(what))

def entry(action, address, size):
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": [{"name": "f", "line": 1}]}

base, mib = 0x7f0000000000, 1 << 20
good = {
    "segments": [
        {"device": 0, "address": base, "total_size": 20 * mib, "blocks": [
            {"size": 4 * mib, "state": "active_allocated"}, {"size": 16 * mib, "state": "inactive"}]},
        {"device": 0, "address": base + 64 * mib, "total_size": 8 * mib, "blocks": []},
    ],
    "device_traces": [[
        entry("segment_alloc", base, 20 * mib),
        entry("alloc", base, 4 * mib),
        entry("segment_free", base + 128 * mib, 32 * mib),
        entry("oom", 0, 999 * mib),
        entry("snapshot", 0, 0),
    ]],
}
save("good.pickle", good)
save("two.pickle", {"segments": [], "device_traces": [[entry("segment_alloc", base, mib)],
                                                        [entry("segment_alloc", base + mib, 2 * mib)]]})
whole = pickle.dumps(good)
save("short.pickle", whole[: len(whole) // 2])
save("empty.pickle", b"")
save("garbage.pickle", bytes(range(256)) * 20)
save("list.pickle", [1, 2, 3])
save("nothing.pickle", {"segments": [], "device_traces": [[]]})
save("entry.pickle", {"segments": [], "device_traces": [[7]]})
save("size.pickle", {"segments": [], "device_traces": [[entry("segment_alloc", base, "large")]]})
save("range.pickle", {"segments": [], "device_traces": [[entry("segment_alloc", -1, 5)]]})

class Evil:
    def __reduce__(self):
        return (os.system, ("touch executed",))

good["extra"] = Evil()
for protocol in range(6):
    save(f"evil{protocol}.pickle", pickle.dumps(good, protocol))
save("inst.pickle", b"(S'touch executed'\nios\nsystem\n.")
save("extension.pickle", b"\x80\x02\x82\x01.")
save("outside.pickle", b"\x80\x02X\x01\x00\x00\x00aQ.")
# A place in the memo that would need 64 GiB of pointers, and text that says it is 4 EiB long.
save("memo.pickle", b"\x80\x04Nr\xff\xff\xff\xff.")
save("long.pickle", b"\x80\x04\x8d\x00\x00\x00\x00\x00\x00\x00\x40abc")
END

expect 'a snapshot becomes a log of segments' 0 'out.csv: 5 events*' '' convert good.pickle out.csv
expect 'what was there before comes first, failures are kept' 0 'Action,Pointer,Size,Device
allocate,0x7f0008000000,33554432,0
allocate,0x7f0004000000,8388608,0
allocate,0x7f0000000000,20971520,0
free,0x7f0008000000,33554432,0
allocate failure,0x0,1047527424,0' '' cat out.csv
expect 'it is for its owner alone' 0 600 '' stat -c %a out.csv
expect 'replay reads it and says the peak' 0 '*3 allocations, 0 submissions*peak 60.0 MiB*n/a*' \
	'*1 allocations failed when this was recorded*' "$tool" replay out.csv
expect 'a file is not overwritten' 1 '' '*is there already*' convert good.pickle out.csv
expect 'tensors may be asked for instead' 0 'tensors.csv: 2 events*' '' convert --tensors good.pickle tensors.csv
expect 'devices are kept apart' 0 '*' '' convert two.pickle two.csv
expect 'and replay says which one it takes' 0 '*peak 2.0 MiB*' '*of 2 devices; this is about device 1*' \
	"$tool" replay two.csv
for protocol in 0 1 2 3 4 5; do
	expect "code in a pickle of protocol $protocol is refused" 2 '' '*plain data alone' \
		convert evil$protocol.pickle evil.csv
done
for name in inst extension; do
	expect "code in another guise ($name) is refused" 2 '' "*$name.pickle: it *" \
		convert $name.pickle evil.csv
done
expect 'references to the outside are refused' 2 '' '*plain data alone' convert outside.pickle evil.csv
expect 'nothing of all that was run' 1 '' '' test -e executed
expect 'and nothing was written' 1 '' '' test -e evil.csv
expect 'a place far out in the memo is refused' 2 '' '*memo.pickle: it *' convert memo.pickle x.csv
expect 'text that says it is too long is refused' 2 '' '*long.pickle: it *' convert long.pickle x.csv
for name in short empty garbage; do
	expect "half a pickle, none and garbage are told ($name)" 2 '' "*$name.pickle: it *" convert $name.pickle x.csv
done
expect 'other data is told' 2 '' '*neither segments nor device_traces' convert list.pickle x.csv
expect 'an empty snapshot is told' 2 '' '*nothing was allocated*' convert nothing.pickle x.csv
for name in entry size range; do
	expect "a wrong entry is told ($name)" 2 '' "*$name.pickle: *" convert $name.pickle x.csv
done
expect 'a missing file is told' 2 '' '*No such file*' convert none.pickle x.csv
expect 'usage is told' 2 '' 'usage: *' convert good.pickle
expect 'replay says what to do with a pickle' 2 '' '*make a trace of it with torch_snapshot.py' \
	"$tool" replay good.pickle

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
