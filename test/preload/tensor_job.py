# SPDX-License-Identifier: Apache-2.0
"""Tensors of several lines that share segments of an allocator like PyTorch's (fake_torch.h); tensor_lines_test.sh finds
the lines by their marks. Arguments: folder of site_user and its runtime, libc10.so, libc10_cuda.so.

What asks the driver for a segment is always the line `first`: it has the first 2 of 8 MiB of each. `second` has 4, and
after half of the run `third` has these in its place. With EXPAND segments are expandable.
"""
import ctypes
import json
import os
import subprocess
import sys
import time

MIB = 1 << 20
folder, c10, c10_cuda = sys.argv[1:]
user = ctypes.CDLL(os.path.join(folder, "libsite_user.so"))
runtime = ctypes.CDLL(os.path.join(folder, "libcudart_site.so"))
runtime.runtime_set.argtypes = [ctypes.c_ulonglong, ctypes.c_size_t]


class Functions(ctypes.Structure):
    """struct fake_torch_functions, up to the last that is used."""

    _fields_ = [("open", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)),
                ("allocate", ctypes.CFUNCTYPE(ctypes.c_ulonglong, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
                                              ctypes.c_void_p)),
                ("release", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ulonglong)),
                ("between", ctypes.c_void_p * 7),
                ("expand", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t))]


if user.site_start():
    sys.exit("there is no device")
ctypes.CDLL(c10)
torch = Functions.in_dll(ctypes.CDLL(c10_cuda), "fake_torch_functions")
cache = torch.open(0)
if os.environ.get("EXPAND"):
    torch.expand(cache, 2 * MIB)


def first(n):
    return torch.allocate(cache, n, None, None)  # mark: first


def second(n):
    return torch.allocate(cache, n, None, None)  # mark: second


def third(n):
    return torch.allocate(cache, n, None, None)  # mark: third


def use(tensors):
    for address, n in tensors:
        if runtime.runtime_set(address, n):
            sys.exit("the memory cannot be set")


def put_away(name):
    """All memory leaves the device; what the budget has room for comes back."""
    process = ctypes.CDLL(None)
    if process.spillway_suspend() or process.spillway_resume():
        sys.exit("the process cannot be suspended")
    use(before + middle + after)
    for _ in range(600):
        with open(name, "w") as out:
            subprocess.run([os.environ["TOP"], "top", "--once", "--json", str(os.getpid())], stdout=out, check=True)
        with open(name) as file:
            device = json.load(file)["processes"][0]["devices"][0]
        if device["figures"]["live"] > device["budget"] or device["places"]["device"]["live"] >= device["figures"]["live"]:
            return
        use(before + middle + after)
        time.sleep(0.05)
    sys.exit("the memory does not come back")


before, middle, after = [], [], []
for _ in range(12):
    before.append((first(2 * MIB), 2 * MIB))
    middle.append((second(4 * MIB), 4 * MIB))
    after.append((first(2 * MIB), 2 * MIB))
if not all(address for address, _ in before + middle + after):
    sys.exit("there is no memory")
use(before + middle + after)
put_away("before.json")
for address, _ in middle:
    torch.release(cache, address)
use(before)
middle = [(third(4 * MIB), 4 * MIB) for _ in middle]
use(before + middle + after)
put_away("after.json")
