# SPDX-License-Identifier: Apache-2.0
"""A job of bursts: python share_job.py GIB SECONDS PERIOD_MS BURST_MS. It keeps GIB of tensors, and every PERIOD_MS works
on all of them for about BURST_MS. Prints "burst MILLISECONDS" for each, from its arrival to its end, a checksum at the end
("check sum N"), and what it needs ("need BYTES")."""
import sys
import time

import torch

gib, seconds, period, burst = (float(a) for a in sys.argv[1:5])
torch.manual_seed(0)
n = int(gib * 1024) // 64
tensors = [torch.full((16 << 20,), float(i % 7), device="cuda") for i in range(n)]
a = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()


def work(products):
    for tensor in tensors:
        tensor.add_(1)
    for _ in range(products):
        torch.mm(a, a)
    torch.cuda.synchronize()


work(1)
start = time.perf_counter()
work(200)
products = max(1, int(200 * burst / 1e3 / (time.perf_counter() - start)))
rounds, due = 2, time.perf_counter()
while due + period / 1e3 < start + seconds:
    due += period / 1e3
    time.sleep(max(0, due - time.perf_counter()))
    work(products)
    rounds += 1
    print(f"burst {(time.perf_counter() - due) * 1e3:.1f}", flush=True)
wrong = sum(int(not bool((tensor == i % 7 + rounds).all())) for i, tensor in enumerate(tensors))
print(f"check wrong {wrong}")
print(f"need {torch.cuda.max_memory_reserved()}", flush=True)
