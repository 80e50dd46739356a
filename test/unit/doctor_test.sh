#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# doctor_test.sh TOOL SOURCE_DIR SIM_DIR JSON_VALID BAD_DRIVER MANY_DRIVER: what `spillway doctor` says of made-up machines: folders
# with a /proc, /sys, /dev in them, and the simulated GPU as driver. Whole texts are compared for some machines
# (test/data/doctor; DOCTOR_GOLDEN=write makes them anew), single findings for others.
tool=$1
source=$2
sim=$3
valid=$4
bad_driver=$5
many_driver=$6
golden=$source/test/data/doctor
here=$(mktemp -d /tmp/doctor_test.XXXXXX) || exit 1
here=$(cd "$here" && pwd -P)
trap 'rm -rf "$here"' EXIT
for name in $(env | sed -n 's/^\(\(SPILLWAY\|SIM\|CUDA\|NVIDIA\|NVTX\|NSYS\|LD\)[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done
export LC_ALL=C XDG_RUNTIME_DIR=$here
failed=0
n=0

complain() {
	failed=$((failed + 1))
	echo "FAILED: $promise: $1"
	grep -v '"status": "ok"' "$here/out" | cut -c1-300 | sed 's/^/  out: /'
	sed 's/^/  err: /' "$here/err"
}

# ---- machines ---- each in a folder of its own

put() { # PATH: what comes on standard input
	mkdir -p "$(dirname "$root/$1")"
	cat >"$root/$1"
}

# A machine without a GPU.
plain() {
	root=$here/$1
	mkdir -p "$root"
	printf 'MemTotal:       65536000 kB\nMemAvailable:   60000000 kB\n' | put proc/meminfo
	printf '0::/user.slice\n' | put proc/self/cgroup
	printf '0::/init.scope\n' | put proc/1/cgroup
	put proc/self/limits <<-'END'
		Limit                     Soft Limit           Hard Limit           Units
		Max address space         unlimited            unlimited            bytes
		Max locked memory         unlimited            unlimited            bytes
	END
	printf 'proc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,nodev,size=32768000k 0 0\n' | put proc/self/mounts
	echo 6.1.0-test | put proc/sys/kernel/osrelease
	echo 'PRETTY_NAME="Testix 1"' | put etc/os-release
	echo 'GNU C Library (Testix GLIBC 2.39-1) stable release version 2.39.' | put lib64/libc.so.6
}

# One with the driver, its device nodes and a card in a full slot.
with_gpu() {
	plain "$1"
	put proc/driver/nvidia/version <<-'END'
		NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159  Release Build  (root@test)
		GCC version:  gcc version 12.2.0
	END
	for node in nvidiactl nvidia0 nvidia-uvm nvidia-uvm-tools; do put dev/$node </dev/null; done
	mkdir -p "$root/usr/lib" "$root/proc/driver/nvidia/gpus/0000:01:00.0"
	ln -s "$sim/libcuda.so.1" "$root/usr/lib/libcuda.so.1"
	slot 32.0 16
}

slot() { # SPEED WIDTH of now; the card can do 32 GT/s on 16 lanes
	for pair in "current_link_speed $1 GT/s PCIe" "current_link_width $2" 'max_link_speed 32.0 GT/s PCIe' 'max_link_width 16'; do
		echo "${pair#* }" | put "sys/bus/pci/devices/0000:01:00.0/${pair%% *}"
	done
}

# ---- what is expected ----

doctor() { # options...; variables may stand in front, as with env
	local variables=()
	while [[ $1 == *=* ]]; do
		variables+=("$1")
		shift
	done
	env "${variables[@]}" "$tool" doctor --root "$root" "$@" >"$here/out" 2>"$here/err"
	got=$?
}

# What differs between machines and builds is written the same everywhere.
plainly() {
	sed -e "s|$here|HERE|g" -e "s|$sim|SIM|g" -e 's|^\( *library  *\)/.*|\1LIBRARY|' -e 's/, \(x86_64\|aarch64\)$/, CPU/' \
		-e 's/^spillway [0-9.]* doctor/spillway VERSION doctor/'
}

# whole NAME STATUS options...: the text is that of test/data/doctor/NAME.txt
whole() {
	local name=$1 status=$2
	promise="the whole text for $name"
	n=$((n + 1))
	shift 2
	doctor "$@" --no-measure
	plainly <"$here/out" >"$here/plain"
	[ "$DOCTOR_GOLDEN" = write ] && mkdir -p "$golden" && cp "$here/plain" "$golden/$name.txt"
	diff "$golden/$name.txt" "$here/plain" || complain 'it differs (< wanted, > got)'
	[ $got = "$status" ] || complain "exit status $got, not $status"
}

# finds "promise" STATUS ID "what the finding's line of JSON looks like" options...
finds() {
	local status=$2 id=$3 pattern=$4 line
	promise=$1
	n=$((n + 1))
	shift 4
	doctor "$@" --json --no-measure
	line=$(grep "^ *{\"id\": \"$id\"" "$here/out")
	# shellcheck disable=SC2254 # patterns they are
	case $got in $status) ;; *) complain "exit status $got, not $status" ;; esac
	# shellcheck disable=SC2254
	case $line in
	$pattern) ;;
	*) complain "$id is not as wanted ($pattern): $line" ;;
	esac
	"$valid" <"$here/out" || complain 'it is no JSON'
}

ok='*"status": "ok"*' note='*"status": "note"*' problem='*"status": "problem"*'

# ---- whole texts ----
plain no_gpu
whole no_gpu 3
with_gpu good
whole good 0
with_gpu container
put .dockerenv </dev/null
rm "$root"/dev/nvidia*
printf '1048576\n' | put sys/fs/cgroup/user.slice/memory.max
printf '524288\n' | put sys/fs/cgroup/user.slice/memory.current
sed -i 's/\(locked memory  *\)unlimited/\165536    /' "$root/proc/self/limits"
sed -i 's/size=32768000k/size=65536k,noexec/' "$root/proc/self/mounts"
whole container 3 SIM_FAIL=cuInit:1:100

# ---- the driver ----
with_gpu m1
finds 'a good machine has no problem' 0 driver.start "$ok"
finds 'an error of cuInit is named, with what to do' 3 driver.start "*CUDA_ERROR_SYSTEM_NOT_READY (802)*fabric manager*systemctl start*" \
	SIM_FAIL=cuInit:1:802
finds 'a device in prohibited mode, no VMM: nothing can spill' 3 gpu.vmm "*problem*no virtual memory*SPILLWAY_POLICY=managed*" SIM_VMM=0
finds 'no host VMM: nothing can spill' 3 gpu.host_vmm "*problem*no host memory at GPU addresses*" SIM_HOST_VMM=0
finds 'no concurrent managed access is a restriction' 0 gpu.managed "$note" SIM_CONCURRENT_MANAGED=0
finds 'HMM is told' 0 gpu.pageable "*$ok*" SIM_PAGEABLE=1
finds 'each device is looked at' 0 gpu.name '*"device": 0,*
*"device": 1,*' SIM_DEVICES=2
finds 'which GPUs reach which is told' 0 gpu.peers '*reaches the memory of 1, 2:*
*reaches the memory of 0:*
*reaches the memory of 0:*' SIM_DEVICES=3 SIM_PEERS=0-1,0-2
finds 'a GPU on its own among others is a restriction' 0 gpu.peers "*$note*reaches no other GPU*spill.peers*" SIM_DEVICES=2 SIM_PEERS=none
finds 'what the links are is told, as far as the driver says' 0 gpu.peer_link '*"NVLink (native atomics) to 1, performance rank 0; PCIe (no native atomics) to 2, performance rank 1; none to 3"*
*"NVLink (native atomics) to 0, performance rank 0; none to 2, 3"*
*"PCIe (no native atomics) to 0, performance rank 1; none to 1, 3"*
*"none to 0, 1, 2"*' SIM_DEVICES=4 SIM_PEERS=0-1,0-2 SIM_PCIE=0-2
finds 'a link that the driver does not tell of is not named' 0 gpu.peer_link '*"unknown (the driver does not tell) to 1, performance rank 0"*
*"NVLink (native atomics) to 0, performance rank 0"*' SIM_DEVICES=2 SIM_FAIL=cuDeviceGetP2PAttribute:2:1
grep -q '"links": \[{"device": 1, "link": null, "performance_rank": 0, "native_atomics": null, "bytes_per_second": null}\]' "$here/out" ||
	complain 'what is not known is null'
grep -q '"links": \[{"device": 0, "link": "nvlink", "performance_rank": 0, "native_atomics": true, "bytes_per_second": null}\]' "$here/out" ||
	complain 'the link of the other is in the JSON'
finds 'without measuring the rates between GPUs are n/a' 0 gpu.peer_rate '*"status": "unknown", "fact": "n/a (--no-measure)"*' SIM_DEVICES=2
finds 'one GPU has no links to others' 0 gpu.peer_link ''
finds 'without measuring the rate is n/a' 0 gpu.rate '*"status": "unknown", "fact": "n/a (--no-measure)"*'
grep -q '"to_device_bytes_per_second": null' "$here/out" || complain 'what was not measured is null'
ln -sf "$bad_driver" "$root/usr/lib/libcuda.so.1"
finds 'a driver that hangs is a problem, not our end' 3 driver.start '*does not answer*' BAD_DRIVER=hang --timeout 1
finds 'a driver that crashes is a problem, not our end' 3 driver.start '*crashed*' BAD_DRIVER=crash
finds 'an error without a known name has its number' 3 driver.start '*error 77 (77)*' BAD_DRIVER=77
finds 'versions of the library and the kernel are told apart' 3 driver.cuda '*11.0: no virtual memory management*' BAD_DRIVER=100
mkdir "$root/usr/lib/stubs"
cp "$bad_driver" "$root/usr/lib/stubs/libcuda.so.1"
ln -sf stubs/libcuda.so.1 "$root/usr/lib/libcuda.so.1"
finds 'a stub is told' 3 driver.library '*a stub to link with*' BAD_DRIVER=34
cp "$bad_driver" "$root/usr/lib/libcuda.so.570.1"
ln -sf libcuda.so.570.1 "$root/usr/lib/libcuda.so.1"
finds 'libcuda of another version than the kernel is a problem' 3 driver.same '*libcuda is 570.1, the kernel has 580.159*reboot*' BAD_DRIVER=803

# A driver before CUDA 12.5 is the simulated one without the functions that moving needs.
if ${CC:-cc} -shared -fPIC -o "$here/old.so" -x c - 2>/dev/null <<-'END'; then
	int cuInit(unsigned f) { return (int)f; }
	int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
	int cuDeviceGetCount(int *n) { *n = 1; return 0; }
	int cuMemCreate(void) { return 0; }
	int cuMemMap(void) { return 0; }
	int cuDeviceGetAttribute(int *v, int which, int d) { *v = which == 20 ? 2 : 1; return d; }
END
	ln -sf "$here/old.so" "$root/usr/lib/libcuda.so.1"
	finds 'a driver before 12.5 does not move, and that is said' 3 driver.cuda '*"note", "fact": "12.4: older than 12.5"*static*'
	finds 'a prohibited device is a problem' 3 gpu.mode '*prohibited*nvidia-smi -i 0 -c DEFAULT*'
fi

# ---- device nodes ----
with_gpu m2
rm "$root/dev/nvidia-uvm-tools"
finds 'without uvm-tools faults are not counted' 0 nodes.uvm_tools "*note*page faults*nvidia-modprobe -u*"
put .dockerenv </dev/null
finds 'in a container it must be handed in' 0 nodes.uvm_tools '*docker run*--device /dev/nvidia-uvm-tools*'
rm "$root/dev/nvidia-uvm"
finds 'a container without nvidia-uvm is a problem' 3 nodes.uvm '*problem*docker run --gpus all*'
finds 'a container with no GPU is told by its variable' 3 system.container '*NVIDIA_VISIBLE_DEVICES=void*' NVIDIA_VISIBLE_DEVICES=void
finds 'a container without the compute part is told' 3 system.container '*NVIDIA_DRIVER_CAPABILITIES=utility*' \
	NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility

# ---- the link ----
with_gpu m3
slot 2.5 16
finds 'a link that saves power is no finding' 0 gpu.link '*"ok", "fact": "PCIe 5 x16, up to 63.0 GB/s each way"*'
slot 32.0 4
finds 'a slot with few lanes is' 0 gpu.link '*"note", "fact": "PCIe 5 x4, up to 15.8 GB/s*x16*4 times*'

# ---- memory ----
with_gpu m4
finds 'no limit of a cgroup' 0 memory.cgroup "$ok"
put .dockerenv </dev/null
finds 'a container without a limit has a host budget of its own' 0 memory.cgroup \
	'*"note", "fact": "no limit"*host.total is handed out again*docker run --memory*/dev/shm*'
rm "$root/.dockerenv"
printf '5:memory:/job\n1:name=x:/\n' | put proc/self/cgroup
echo 2147483648 | put sys/fs/cgroup/memory/job/memory.limit_in_bytes
echo 1610612736 | put sys/fs/cgroup/memory/job/memory.usage_in_bytes
finds 'version 1 of cgroups limits' 0 memory.cgroup '*"note", "fact": "512.0 MiB left*'
finds 'and with it the host budget' 0 memory.host '*"note"*host.budget is 256.0 MiB unless set*'
with_gpu m5
sed -i 's/\(locked memory  *\)unlimited/\165536    /; s/\(address space  *\)unlimited/\18589934592/' "$root/proc/self/limits"
finds 'a low limit of locked memory is a restriction' 3 memory.locked '*"note", "fact": "64.0 KiB"*RDMA*ulimit -l*'
finds 'a limit of addresses is a problem' 3 memory.addresses '*"problem", "fact": "limited to 8.0 GiB"*'
with_gpu m6
sed -i 's/size=32768000k/size=65536k/' "$root/proc/self/mounts"
finds 'a small /dev/shm is a restriction' 0 memory.shm '*"note", "fact": "64.0 MiB"*--shm-size*'
sed -i 's/size=65536k/size=32768000k,noexec/' "$root/proc/self/mounts"
finds 'noexec is one for some' 0 memory.shm '*note*noexec*'
sed -i /shm/d "$root/proc/self/mounts"
finds 'no /dev/shm' 0 memory.shm '*note*nothing is mounted*'

# ---- the C library, preloads, neighbours ----
with_gpu m7
echo 'GNU C Library (Testix GLIBC 2.17-1) stable release version 2.17, by Roland McGrath et al.' | put lib64/libc.so.6
finds 'a glibc older than the library needs is a problem' 3 system.glibc '*problem*2.17; libspillway.so was built for 2.*'
rm "$root/lib64/libc.so.6"
finds 'no glibc is not known, not wrong' 0 system.glibc '*unknown*'
with_gpu m8
put etc/ld.so.preload <<<"/opt/other.so"
finds 'a preload that is not there' 0 preload.others '*note*/opt/other.so: cannot be read*'
cp "$sim/libcuda.so.1" "$root/libvgpu.so"
put etc/ld.so.preload <<<"/libvgpu.so"
finds 'another library in front of the driver' 0 preload.others '*note*/libvgpu.so: has a cu*first*'
finds 'ours is no other' 0 preload.audits '*note*LD_AUDIT: x.so*' LD_AUDIT=x.so
rm "$root/etc/ld.so.preload"
finds 'SPILLWAY=0 is a problem' 3 preload.off "$problem" SPILLWAY=0
finds 'a bad policy is a problem' 3 preload.policy '*problem*spillway check*' SPILLWAY_SET=nosuch=1
finds 'hidden GPUs are a problem' 3 preload.visible '*unset CUDA_VISIBLE_DEVICES*' CUDA_VISIBLE_DEVICES=
finds 'a profiler is told' 0 neighbour.profiler '*note*CUPTI*CUDA_INJECTION64_PATH*' CUDA_INJECTION64_PATH=/x.so
finds 'Spillway itself is no profiler' 0 neighbour.profiler "$ok" NVTX_INJECTION64_PATH=/lib/libspillway.so
finds 'a runtime folder' 0 preload.runtime '*"ok", "fact": "below /run/me"*' XDG_RUNTIME_DIR=/run/me
put run/me/spillway </dev/null
finds 'something else in its place' 0 preload.runtime '*note*/run/me/spillway is no folder*' XDG_RUNTIME_DIR=/run/me
mkdir -p "$root/tmp/spillway-$(id -u)"
chmod 755 "$root/tmp/spillway-$(id -u)"
finds 'one that others may enter' 0 preload.runtime '*note*is open to others*rm -r*' XDG_RUNTIME_DIR=/run/you
put mps/control </dev/null
finds 'an MPS server is told' 0 neighbour.mps '*note*/mps*fast*' CUDA_MPS_PIPE_DIRECTORY=/mps
put tmp/nvidia-mps/control </dev/null
finds 'one at its usual place, too' 0 neighbour.mps "$note"
mkdir -p "$root/proc/driver/nvidia/capabilities/gpu0/mig/gi1"
finds 'MIG is told' 0 neighbour.mig '*note*1 GPU instance"*'
finds 'without a vGPU nothing is said of one' 0 neighbour.vgpu ''
put etc/nvidia/gridd.conf </dev/null
finds 'a guest with a vGPU is told' 0 neighbour.vgpu '*note*gridd.conf*not been tried*'
rm "$root/etc/nvidia/gridd.conf"
finds 'without limits of others nothing is said of them' 0 neighbour.limits ''
finds 'HAMi is told by its limits' 0 neighbour.limits '*note*CUDA_DEVICE_MEMORY_LIMIT_0=4g*not been tried together*' CUDA_DEVICE_MEMORY_LIMIT_0=4g

# ---- odd machines ---- nothing of this may crash, hang, or be no JSON
root=$here/empty
mkdir "$root"
finds 'an empty machine' 3 driver.kernel "$problem"
with_gpu odd
head -c 100000 /dev/zero | put proc/driver/nvidia/version
printf 'Max locked memory' | put proc/self/limits
printf '\377\376"\\\n' | put etc/os-release
printf 'PRETTY_NAME="\377\001"' | put etc/os-release
head -c 300000 /dev/urandom | put proc/self/mounts
head -c 5000 /dev/urandom | put proc/self/cgroup
head -c 5000 /dev/urandom | put etc/ld.so.preload
rm "$root/proc/meminfo"
mkfifo "$root/proc/meminfo2" && mkdir "$root/proc/meminfo"
finds 'garbage everywhere' '[03]' driver.start "$ok"
promise='no control characters go to a terminal'
n=$((n + 1))
doctor --no-measure
! LC_ALL=C grep -q '[[:cntrl:]]' <(tr -d '\n' <"$here/out") || complain 'they do'

# ---- measuring, and usage ----
with_gpu m9
promise='the rate is measured, on every device'
n=$((n + 1))
doctor SIM_DEVICES=2 --json
[ $got = 0 ] || complain "exit status $got"
[ "$(grep -c '"to_device_bytes_per_second": [1-9][0-9]*, "to_host_bytes_per_second": [1-9][0-9]*, "both_bytes_per_second": [1-9]' "$here/out")" = 2 ] ||
	complain 'rates are missing'
"$valid" <"$here/out" || complain 'it is no JSON'
[ ! -s "$here/err" ] || complain 'progress is shown where there is no terminal'

# measures "promise" "what the lines of gpu.peer_rate look like, of all devices" options...
# PATIENCE in the environment: seconds that the driver may take, where it is slower than in the plain build.
measures() {
	promise=$1
	n=$((n + 1))
	local pattern=$2 lines
	shift 2
	[[ " $* " == *" --timeout "* ]] || set -- "$@" --timeout "${PATIENCE:-60}"
	doctor "$@" --json
	lines=$(grep '^ *{"id": "gpu.peer_rate"' "$here/out" | sed 's/.*"fact": "\([^"]*\)".*/\1/; s/[1-9][0-9]*\.[0-9] GB/R GB/g; s/0\.[1-9] GB/R GB/g; s/0\.0[0-9]*[1-9][0-9]* GB/R GB/g')
	[ $got = 0 ] || complain "exit status $got"
	[ "$lines" = "$pattern" ] || complain "not as wanted ($pattern): $lines"
	"$valid" <"$here/out" || complain 'it is no JSON'
}
measures 'copies between each two GPUs are measured, also where neither reaches the other' 'R GB/s to 1, R GB/s to 2
R GB/s to 0, R GB/s to 2 (by way of the host)
R GB/s to 0, R GB/s to 1 (by way of the host)' SIM_DEVICES=3 SIM_PEERS=0-1,0-2 SIM_MAX_PEERS=1 SIM_LOG="$here/log"
[ "$(grep -o '"native_atomics": [a-z]*, "bytes_per_second": [1-9]' "$here/out" | wc -l)" = 6 ] || complain 'rates are missing in the JSON'
for pair in 'cuCtxEnablePeerAccess 4' 'cuCtxDisablePeerAccess 4' 'cuDevicePrimaryCtxRetain 3' 'cuDevicePrimaryCtxRelease 3' \
	'cuMemAlloc 6' 'cuMemFree 6' 'cuStreamCreate 6' 'cuStreamDestroy 6'; do
	[ "$(grep -c " ${pair% *}\(_v2\)\{0,1\} " "$here/log")" = "${pair#* }" ] || complain "not ${pair#* } times ${pair% *}"
done
measures 'without the access that it should have, a copy is not measured' 'R GB/s to 2; n/a (the driver answered error 999) to 1
R GB/s to 2; n/a (the driver answered error 999) to 0
R GB/s to 0, R GB/s to 1' SIM_DEVICES=3 SIM_FAIL=cuCtxEnablePeerAccess:1:999
measures 'a copy that fails is said' 'n/a (the driver answered error 719) to 1
R GB/s to 0' SIM_DEVICES=2 SIM_FAIL=cuMemcpyPeerAsync:2:719
measures 'a GPU that is not measured has no rates, nor have those to it' 'R GB/s to 2; n/a (GPU 1: no context: error 2) to 1
n/a (GPU 1: no context: error 2) to 0, 2
R GB/s to 0; n/a (GPU 1: no context: error 2) to 1' SIM_DEVICES=3 SIM_FAIL=cuDevicePrimaryCtxRetain:2:2
# Allocations 1 and 2 are those of the first GPU.
measures 'a GPU that has no memory for it has none either' 'n/a (GPU 1: the driver answered error 2) to 1
n/a (GPU 1: the driver answered error 2) to 0' SIM_DEVICES=2 SIM_FAIL=cuMemAlloc_v2:3:2
ln -sf "$many_driver" "$root/usr/lib/libcuda.so.1"
measures 'of many GPUs the first eight are measured' "$(for i in 0 1 2 3 4 5 6 7; do
	text=
	for other in 0 1 2 3 4 5 6 7; do [ $i = $other ] || text="$text${text:+, }R GB/s to $other"; done
	echo "$text; n/a (only the first 8 GPUs are measured) to 8, 9"
done)
n/a (only the first 8 GPUs are measured) to 0, 1, 2, 3, 4, 5, 6, 7, 9
n/a (only the first 8 GPUs are measured) to 0, 1, 2, 3, 4, 5, 6, 7, 8" MANY_DEVICES=10
grep -q '"device": 9, "link": null, "performance_rank": null, "native_atomics": null, "bytes_per_second": null' "$here/out" ||
	complain 'what the driver has no function for is null'
# They have a third of the time, and what comes before them, on a machine with no time for us, two thirds.
measures 'links that are too slow do not hold it up' 'R GB/s to 1; n/a (the time for it was over) to 2
R GB/s to 0; n/a (the time for it was over) to 2
n/a (the time for it was over) to 0, 1' MANY_DEVICES=3 MANY_LATE=7 --timeout 18
promise='copies between GPUs that never end are a problem, and the rates to the host are still told'
n=$((n + 1))
doctor MANY_DEVICES=2 MANY_HANG=1 --timeout 15 --json
[ $got = 3 ] || complain "exit status $got"
[ "$(grep -c '"problem", "fact": "the driver does not come back from copies between GPUs"' "$here/out")" = 2 ] || complain 'it is not said'
[ "$(grep -c '"to_device_bytes_per_second": [1-9].*"bytes_per_second": null' "$here/out")" = 2 ] || complain 'rates to the host are missing'
promise='a driver that crashes in them is a problem'
n=$((n + 1))
doctor MANY_DEVICES=2 MANY_CRASH=1 --json
[ $got = 3 ] && grep -q '"problem", "fact": "the driver crashed in copies between GPUs"' "$here/out" || complain 'it is not said'
ln -sf "$sim/libcuda.so.1" "$root/usr/lib/libcuda.so.1"

promise='what cannot be measured is said'
n=$((n + 1))
doctor SIM_MEMORY=64MiB --json
grep -q '"n/a (less than 128 MiB of its memory are free)"' "$here/out" || complain 'no reason'

promise='progress is shown on a terminal, and gone at the end'
ln -sf "$bad_driver" "$root/usr/lib/libcuda.so.1"
if command -v script >/dev/null; then
	n=$((n + 1))
	TERM=xterm BAD_DRIVER=hang script -qec "'$tool' doctor --root '$root' --no-measure --timeout 3 >/dev/null" "$here/out" >"$here/err"
	grep -q 'asking the driver' "$here/err" || complain 'it is not shown'
	[ "$(tail -c 4 "$here/err" | od -An -c | tr -d ' ')" = '\r033[K' ] || complain 'it is not gone'
fi

# usage "promise" STATUS "stderr" argument...
usage() {
	promise=$1
	n=$((n + 1))
	local status=$2 err=$3
	shift 3
	"$tool" doctor "$@" >"$here/out" 2>"$here/err"
	got=$?
	[ $got = "$status" ] || complain "exit status $got, not $status"
	grep -q -- "$err" "$here/err" || complain "it does not say $err"
}
usage 'an unknown option is wrong usage' 2 'unknown option "--jsom"' --jsom
usage 'an option without its value' 2 '"--timeout" needs a value' --timeout
usage 'a bad value' 2 'number of seconds' --timeout 0
usage '--audit needs a program' 2 'needs a program' --audit
usage 'a library that is not there' 2 nosuch.so --library nosuch.so
usage 'a program that is not there is 127' 127 'no such program' --root "$root" --no-measure -- nosuch
promise='output that cannot be written is an error'
n=$((n + 1))
"$tool" doctor --root "$root" --no-measure >/dev/full 2>"$here/err"
[ $? = 1 ] || complain 'it was none'

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
