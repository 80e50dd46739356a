# SPDX-License-Identifier: Apache-2.0
"""CuPy without its pool: every array is a block of Spillway's heap. `spillway run -- python cupy_plug.py`"""
import ctypes

import cupy as cp

spillway = ctypes.CDLL(None)  # preloaded
malloc, free = (ctypes.cast(f, ctypes.c_void_p).value for f in (spillway.spillway_cupy_malloc, spillway.spillway_cupy_free))
cp.cuda.set_allocator(cp.cuda.CFunctionAllocator(0, malloc, free, spillway).malloc)
a = cp.ones((4096, 4096), dtype=cp.float32)
print("sum", float((a @ a).sum()))
