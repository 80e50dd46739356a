# SPDX-License-Identifier: Apache-2.0
"""Allocates at lines that site_test.sh finds by their marks. Arguments: folder of site_user and its runtime."""
import ctypes
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.getcwd(), "site-packages"))
import helper  # noqa: E402

MIB = 1 << 20
user = ctypes.CDLL(os.path.join(sys.argv[1], "libsite_user.so"))
runtime = ctypes.CDLL(os.path.join(sys.argv[1], "libcudart_site.so"))
user.site_alloc.argtypes = [ctypes.c_size_t]
user.site_alloc.restype = ctypes.c_ulonglong
user.site_thread.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
runtime.runtime_set.argtypes = [ctypes.c_ulonglong, ctypes.c_size_t]


def forward(n):
    first = "a line before"
    return user.site_alloc(n)  # mark: forward


class Net:
    def step(self, n):
        return helper.through(
            user.site_alloc,
            "an argument",
            n)


def moved():
    blocks = [user.site_alloc(16 * MIB) for _ in range(5)]  # mark: moved
    for _ in range(20):
        for block in blocks:
            if runtime.runtime_set(block, 16 * MIB):
                sys.exit("the memory cannot be set")


if user.site_start():
    sys.exit("there is no device")
if not (forward(1 * MIB) and Net().step(2 * MIB)):
    sys.exit("there is no memory")
exec("user.site_alloc(3 * MIB)")  # mark: made
if user.site_thread(b"pt_autograd_0", 4 * MIB) or user.site_thread(b"worker", 5 * MIB):
    sys.exit("a thread has failed")
for call in runtime.runtime_managed, runtime.runtime_async:
    call.argtypes = [ctypes.c_size_t]
    call.restype = ctypes.c_ulonglong
runtime.runtime_create.argtypes = [ctypes.c_size_t]
if not runtime.runtime_managed(6 * MIB):  # mark: managed
    sys.exit("there is no managed memory")
if not runtime.runtime_async(7 * MIB):  # mark: async
    sys.exit("there is no memory in stream order")
if runtime.runtime_create(8 * MIB):  # mark: create
    sys.exit("there is no handle")
if os.environ.get("TOP"):
    with open("top.json", "w") as out:
        subprocess.run([os.environ["TOP"], "top", "--once", "--json", str(os.getpid())], stdout=out)
if os.environ.get("MOVE"):
    moved()
