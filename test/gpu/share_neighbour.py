# SPDX-License-Identifier: Apache-2.0
"""A neighbour on the GPU that takes plain device memory (cuMemAlloc), and knows nothing of Spillway. It needs the driver
alone. It ends with the process that has started it.

  share_neighbour.py hold LEAVE SECONDS
      takes all of what is free but LEAVE GiB, says "holds BYTES", and for SECONDS then, whenever what is free has changed,
      "free BYTES TIME" (CLOCK_MONOTONIC, s), as seen every 5 ms
  share_neighbour.py grow GIB STEPS PAUSE SECONDS
      takes GIB GiB STEPS times, with a pause of PAUSE s between, and keeps them for SECONDS: "took N FREE" for each, or
      "failed N CODE", and "ended" at last
"""
import ctypes
import signal
import sys
import time

GIB, MIB = 1 << 30, 1 << 20
PDEATHSIG = 1  # prctl
LOOK = 0.005  # s
CHANGE = 16 * MIB  # what is less is not told

cuda = ctypes.CDLL("libcuda.so.1")


def must(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: error {code}")


def start():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    must("cuInit", 0)
    must("cuDeviceGet", ctypes.byref(device), 0)
    must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    must("cuCtxSetCurrent", context)


def free_bytes():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def take(size):
    """The driver's result, 0: taken."""
    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size))


def say(*words):
    print(*words, flush=True)


def hold(leave, seconds):
    held = 0
    for piece in 4 * GIB, 256 * MIB, 16 * MIB:
        while free_bytes() >= leave * GIB + piece and not take(piece):
            held += piece
    say("holds", held)
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        free = free_bytes()
        if last is None or abs(free - last) >= CHANGE:
            last = free
            say("free", free, f"{time.monotonic():.4f}")
        time.sleep(LOOK)


def grow(size, steps, pause, seconds):
    due = time.monotonic()
    for i in range(int(steps)):
        time.sleep(max(0, due - time.monotonic()))
        due += pause
        code = take(int(size * GIB))
        say("failed" if code else "took", i + 1, code or free_bytes())
    time.sleep(seconds)
    say("ended")


ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
what, *numbers = sys.argv[1:]
start()
{"hold": hold, "grow": grow}[what](*map(float, numbers))
