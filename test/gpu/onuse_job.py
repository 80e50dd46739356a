# SPDX-License-Identifier: Apache-2.0
"""A program that reserves nine tenths of what the device has free by one allocation and uses a third of the device:

    SPILLWAY_POLICY=onuse.yaml SPILLWAY_SET=device.budget=50% LD_PRELOAD=libspillway.so python onuse_job.py [--whole]

By the driver alone (libcuda.so.1), without a framework. Parts all over the allocation are set, or written by a kernel
that gets a pointer to their beginning, after spillway_born() has said how long they are; all are read back. --whole: the
kernel also gets a pointer of which nothing is known.

Prints "check NAME equal" for what holds, "free BYTES BYTES" (before, and after the reservation) and "used BYTES". Exit
status 77 without a GPU. What is free may differ by NEAR: other programs may use the device.
"""
import ctypes
import sys

MIB = 1 << 20
NEAR = 64 * MIB
GRAIN = 32 * MIB  # in which memory is taken, at most
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry fill(.param .u64 at, .param .u32 value, .param .u64 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [at];
	ld.param.u32 %r1, [value];
	ld.param.u64 %rd2, [n];
	cvta.to.global.u64 %rd3, %rd1;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mul.wide.u32 %rd4, %r2, %r3;
	cvt.u64.u32 %rd5, %r4;
	add.u64 %rd4, %rd4, %rd5;
	setp.ge.u64 %p1, %rd4, %rd2;
	@%p1 bra done;
	shl.b64 %rd6, %rd4, 2;
	add.u64 %rd7, %rd3, %rd6;
	st.global.u32 [%rd7], %r1;
done:
	ret;
}
"""

try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    print("onuse_job: no driver")
    sys.exit(77)


def must(result, what):
    if result:
        print(f"{what}: error {result}")
        sys.exit(1)


def call(name, *arguments):
    must(getattr(cuda, name)(*arguments), name)


def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def address(value):
    return ctypes.c_uint64(value)


def fill(function, at, value, n):
    """n words, by the kernel."""
    arguments = ctypes.c_uint64(at), ctypes.c_uint32(value), ctypes.c_uint64(n)
    pointers = (ctypes.c_void_p * 3)(*[ctypes.addressof(argument) for argument in arguments])
    call("cuLaunchKernel", function, (n + 255) // 256, 1, 1, 256, 1, 1, 0, None, pointers, None)


def holds(at, value, bytes_):
    """The beginning, the middle and the end of a part."""
    some = min(bytes_, 16 * MIB)
    wanted = value.to_bytes(4, "little") * (some // 4)
    got = ctypes.create_string_buffer(some)
    for offset in (0, (bytes_ - some) // 2 // 4 * 4, bytes_ - some):
        call("cuMemcpyDtoH_v2", got, address(at + offset), ctypes.c_size_t(some))
        if got.raw != wanted:
            return False
    return True


def check(name, good):
    print(f"check {name} {'equal' if good else 'DIFFERENT'}", flush=True)


def main():
    device, context, module, function, block = (ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(),
                                                ctypes.c_uint64())
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        print("onuse_job: no GPU")
        return 77
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"fill")
    born = getattr(ctypes.CDLL(None), "spillway_born", None)
    small = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(small), ctypes.c_size_t(MIB))  # fixes what the library takes for itself
    before, total = info()
    bytes_ = before * 9 // 10 // MIB * MIB
    call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(bytes_))
    after, _ = info()
    print(f"free {before} {after}")
    check("free", abs(after - before) < NEAR)
    parts = 16
    part = total // 3 // parts // MIB * MIB
    step = (bytes_ - part) // (parts - 1) // MIB * MIB
    places = [block.value + i * step for i in range(parts)]
    for i, at in enumerate(places):
        if i % 2 and born:
            must(born(ctypes.c_void_p(at), ctypes.c_uint64(part)), "spillway_born")
            fill(function, at, 1000 + i, part // 4)
        else:
            call("cuMemsetD32_v2", address(at), ctypes.c_uint32(1000 + i), ctypes.c_size_t(part // 4))
    call("cuCtxSynchronize")
    check("contents", all(holds(at, 1000 + i, part) for i, at in enumerate(places)))
    used, _ = info()
    print(f"used {before - used}")
    check("used", parts * part - NEAR < before - used < parts * (part + 2 * GRAIN) + NEAR)
    if "--whole" in sys.argv:
        fill(function, block.value, 7, 1024)
        call("cuCtxSynchronize")
        check("whole", holds(block.value, 7, 4096) and all(holds(at, 1000 + i, part) for i, at in enumerate(places) if i))
    call("cuMemFree_v2", block)
    again, _ = info()
    check("freed", abs(again - before) < NEAR)
    return 0


if __name__ == "__main__":
    sys.exit(main())
