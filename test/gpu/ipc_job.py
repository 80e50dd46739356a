# SPDX-License-Identifier: Apache-2.0
"""A CUDA tensor of one process in another, by torch.multiprocessing, both under Spillway:

    SPILLWAY_SET=ipc=yes LD_PRELOAD=libspillway.so python ipc_job.py

Exit status 0 when each side reads the bytes that the other one wrote, 77 without PyTorch or a GPU.
"""
import sys

try:
    import torch
    import torch.multiprocessing as mp
except ImportError:
    print("ipc_job: no PyTorch")
    sys.exit(77)

# In a slab, in a chunk of its own, in several chunks.
SIZES = 1000, 4 << 20, 300 << 20


def pattern(n, seed):
    """n bytes that say where they lie."""
    return ((torch.arange(n, device="cuda", dtype=torch.int64) * 31 + seed) % 251).to(torch.uint8)


def take(tensors, answers):
    for i, n in enumerate(SIZES):
        tensor = tensors.get()
        good = tensor.is_cuda and torch.equal(tensor, pattern(n, i))
        tensor.copy_(pattern(n, 100 + i))
        torch.cuda.synchronize()
        del tensor
        answers.put(good)


def main():
    if not torch.cuda.is_available():
        print("ipc_job: no GPU")
        return 77
    mp.set_start_method("spawn")
    tensors, answers = mp.Queue(), mp.Queue()
    taker = mp.Process(target=take, args=(tensors, answers))
    taker.start()
    bad = 0
    for i, n in enumerate(SIZES):
        tensor = pattern(n, i)
        torch.cuda.synchronize()
        tensors.put(tensor)
        there = answers.get(timeout=120)
        here = torch.equal(tensor, pattern(n, 100 + i))
        print(f"{n} bytes: read there {there}, read here {here}")
        bad += not (there and here)
    taker.join(60)
    if taker.exitcode != 0:
        print(f"the other process ended with {taker.exitcode}")
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
