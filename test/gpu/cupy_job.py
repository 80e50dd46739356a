# SPDX-License-Identifier: Apache-2.0
"""CuPy: element-wise work, matrix products, reductions, sorting, an FFT; checksums of the bytes."""
import hashlib

import cupy as cp
import numpy as np


def check(name, array):
    print(f"check {name} {hashlib.sha256(cp.asnumpy(array).tobytes()).hexdigest()[:16]}", flush=True)


pool = cp.get_default_memory_pool()
host = np.random.default_rng(0)
n = 4096
a = cp.asarray(host.standard_normal((n, n), dtype=np.float32))
b = cp.asarray(host.standard_normal((n, n), dtype=np.float32))
long = cp.asarray(host.standard_normal(1 << 25, dtype=np.float32))
counts = cp.asarray(host.integers(0, 1 << 20, 1 << 25, dtype=np.int64))

check("elements", cp.exp(-long * long) * 2 + cp.sqrt(cp.abs(long)))
check("integers", (counts * 7919 + 13) % 1048583)
for i in range(3):
    a = a @ b / cp.float32(64)
    check(f"product{i}", a)
check("sum", counts.sum())
check("rows", a.sum(axis=1))
check("largest", cp.stack([a.max(axis=0), a.min(axis=0)]))
check("sorted", cp.sort(counts))
check("prefix", cp.cumsum(counts))
check("fft", cp.fft.rfft(long[: 1 << 24]))
grid = cp.zeros((2048, 2048), dtype=cp.float32)
grid[512:1536, 512:1536] = 1
for _ in range(50):
    grid[1:-1, 1:-1] = (grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:]) / 4
check("heat", grid)
print(f"need {pool.total_bytes()}")
