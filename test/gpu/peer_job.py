# SPDX-License-Identifier: Apache-2.0
"""One process, two GPUs: what programs do with the memory of both. "check NAME VALUE" lines; "need BYTES" of GPU 0.

Copies between the GPUs in every way that PyTorch and CuPy have, kernels of one GPU on memory of the other, and rounds of
work on more than fits, so that what is copied has been elsewhere.

peer_job.py [ROUNDS]; peer_job.py lend GIB, where each GPU has GIB: more than that is used on the first alone, then on the
first while the second needs all that it has, then on the second alone; "check lend N", N words wrong.
"""
import hashlib
import sys

import torch

COUNT, BLOCKS = 8 << 20, 12
if torch.cuda.device_count() < 2:
    sys.exit("two GPUs are needed")


def lend(gib, size=128 << 20):
    """Blocks of `size` bytes, each with the number of its creation and of its uses."""
    blocks, made, wrong = {0: [], 1: []}, 0, 0
    for wanted in ((1.5, 0.1), (1.5, 0.9), (0.3, 0.9), (0.3, 1.5)):
        for gpu, most in enumerate(wanted):
            own, n = blocks[gpu], int(most * gib * (1 << 30) / size)
            del own[n:]
            torch.cuda.empty_cache()
            while len(own) < n:
                made += 1
                own.append([torch.full((size // 4,), made << 10, dtype=torch.int32, device=f"cuda:{gpu}"), made << 10])
        for _ in range(3):
            for block in [block for pair in zip(*blocks.values()) for block in pair] + blocks[0] + blocks[1]:
                block[0].add_(1)
                block[1] += 1
        wrong += sum(int((tensor != value).sum()) for own in blocks.values() for tensor, value in own)
        print(f"used {len(blocks[0])} and {len(blocks[1])} blocks, {wrong} words wrong so far", flush=True)
    print(f"check lend {wrong}")


if sys.argv[1:2] == ["lend"]:
    sys.exit(lend(float(sys.argv[2])))
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 4


def digest(tensor):
    return hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()[:16]


here = [torch.full((COUNT,), i + 1, dtype=torch.int32, device="cuda:0") for i in range(BLOCKS)]
there = [torch.full((COUNT,), 100 + i, dtype=torch.int32, device="cuda:1") for i in range(BLOCKS)]
for turn in range(rounds):
    for i in range(BLOCKS):
        there[i] += here[i].to("cuda:1")
        here[i].copy_(there[(i + 1) % BLOCKS], non_blocking=True)
        here[i] *= 3
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
for i in (0, BLOCKS // 2, BLOCKS - 1):
    print(f"check torch.{i} {digest(here[i])}{digest(there[i])}")
print(f"check can_access {int(torch.cuda.can_device_access_peer(0, 1))}")

try:
    import cupy
except ImportError:
    cupy = None
if cupy:
    pool = cupy.cuda.MemoryPool()
    cupy.cuda.set_allocator(pool.malloc)
    with cupy.cuda.Device(0):
        a = cupy.arange(COUNT, dtype=cupy.int32)
    with cupy.cuda.Device(1):
        b = cupy.full(COUNT, 5, dtype=cupy.int32)
        b.data.copy_from_device(a.data, a.nbytes)
        total = int(b.sum())
    print(f"check cupy.copy {total}")
    if torch.cuda.can_device_access_peer(0, 1):
        with cupy.cuda.Device(1):
            try:
                cupy.cuda.runtime.deviceEnablePeerAccess(0)
            except cupy.cuda.runtime.CUDARuntimeError as error:  # PyTorch has done so
                if "AlreadyEnabled" not in str(error):
                    raise
            kernel = cupy.RawKernel(
                'extern "C" __global__ void add(int *x, int n) { int i = blockDim.x * blockIdx.x + threadIdx.x; '
                "if (i < n) x[i] += 2; }", "add")
            kernel((COUNT // 256,), (256,), (a, COUNT))
            cupy.cuda.Device(1).synchronize()
        with cupy.cuda.Device(0):
            print(f"check cupy.kernel {int(a.astype(cupy.int64).sum())}")
print(f"need {torch.cuda.max_memory_reserved(0)}")
