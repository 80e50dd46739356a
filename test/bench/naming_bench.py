# SPDX-License-Identifier: Apache-2.0
"""What it costs to name the place in a Python program: naming_bench.py LIBRARY (naming.c). Prints rows "name ns", of each the
least of five. naming_of_N: behind N frames of a framework."""
import ctypes
import functools
import os
import sys
import tempfile

library = ctypes.CDLL(sys.argv[1])
for name in "bind", "names", "recognized", "left_out", "birth_and_death":
    getattr(library, "naming_" + name).restype = ctypes.c_double

with tempfile.TemporaryDirectory() as folder:
    packages = os.path.join(folder, "site-packages")
    os.makedirs(os.path.join(packages, "torch"))
    with open(os.path.join(packages, "torch", "__init__.py"), "w") as file:
        file.write("def through(n, call):\n    return through(n - 1, call) if n else call()\n")
    sys.path.insert(0, packages)
    import torch


def least(call):
    ns = min(call() for _ in range(5))
    if ns < 0:
        sys.exit("there is no name: is this Python known?")
    return ns


print(f"naming_bind {library.naming_bind():.0f}")
print(f"naming_own {least(functools.partial(library.naming_names, 1000)):.0f}")
for n in 1, 5, 10:
    print(f"naming_of_{n} {least(functools.partial(torch.through, n - 1, functools.partial(library.naming_names, 1000))):.0f}")
print(f"birth_recognized {least(functools.partial(library.naming_recognized, 20000)):.0f}")
print(f"birth_left_out {library.naming_left_out(100000):.0f}")
print(f"birth_and_death {least(functools.partial(library.naming_birth_and_death, 200000)):.0f}")
