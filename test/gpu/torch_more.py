# SPDX-License-Identifier: Apache-2.0
"""PyTorch where pointers are hard to see, with fixed seeds: python torch_more.py grouped|threads.

grouped  batched and grouped matrix products and factorisations: libraries keep arrays of pointers in device memory
threads  several threads train, each a model and a stream of its own; backward runs on threads of the framework
"""
import hashlib
import os
import sys
import threading

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # makes cuBLAS deterministic; read when it starts

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


def check(name, tensor):
    data = tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes()
    print(f"check {name} {hashlib.sha256(data).hexdigest()[:16]}", flush=True)


def attempt(name, work):
    """What this version of PyTorch has; natively and under Spillway the same things are left out."""
    try:
        result = work()
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        print(f"check {name} left-out-{type(error).__name__}", flush=True)
        return
    except RuntimeError as error:
        if "CUDA error" in str(error) or "out of memory" in str(error):
            raise
        print(f"check {name} left-out-RuntimeError", flush=True)
        return
    check(name, result)


def run_grouped():
    n, size = 96, 512
    a = [torch.randn(n, size, size, device="cuda") for _ in range(3)]
    experts = torch.randn(16, 1024, 2048, device="cuda", dtype=torch.bfloat16)
    tokens = torch.randn(8192, 1024, device="cuda", dtype=torch.bfloat16)
    ends = torch.arange(512, 8193, 512, device="cuda", dtype=torch.int32)
    unit = torch.eye(size, device="cuda") * size
    for i in range(8):
        product = torch.bmm(a[i % 3], a[(i + 1) % 3]) / size**0.5
        check(f"bmm{i}", product)
        a[i % 3] = product
        attempt(f"lu{i}", lambda: torch.linalg.lu_factor_ex(a[(i + 1) % 3] + unit)[0])
        attempt(f"solve{i}", lambda: torch.linalg.solve_triangular((a[(i + 2) % 3] + unit).tril(), a[i % 3], upper=False))
        attempt(f"grouped{i}", lambda: torch._grouped_mm(tokens, experts, offs=ends))
        attempt(f"grouped_back{i}", lambda: torch._grouped_mm(tokens.t(), tokens[:, :256].contiguous(), offs=ends))


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.up = nn.ModuleList([nn.Linear(width, 4 * width) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(4 * width, width) for _ in range(layers)])

    def forward(self, x):
        for up, down in zip(self.up, self.down):
            x = x + down(F.gelu(up(F.layer_norm(x, x.shape[-1:]))))
        return x


def run_threads():
    width, layers, batch, steps, threads = 1024, 3, 2048, 12, 4
    models = [Model(width, layers).cuda() for _ in range(threads)]
    inputs = [torch.randn(batch, width, device="cuda") for _ in range(threads)]
    targets = [torch.randint(0, width, (batch,), device="cuda") for _ in range(threads)]
    losses = [[] for _ in range(threads)]
    torch.cuda.synchronize()

    def train(k):
        with torch.cuda.stream(torch.cuda.Stream()):
            optimizer = torch.optim.AdamW(models[k].parameters(), lr=1e-4)
            for _ in range(steps):
                optimizer.zero_grad(set_to_none=True)
                loss = F.cross_entropy(models[k](inputs[k]), targets[k])
                loss.backward()
                optimizer.step()
                losses[k].append(loss.item())
            torch.cuda.current_stream().synchronize()

    workers = [threading.Thread(target=train, args=(k,)) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for k in range(threads):
        for i, loss in enumerate(losses[k]):
            print(f"check thread{k}.loss{i} {loss:.9g}", flush=True)
        check(f"thread{k}.weights", torch.cat([p.detach().flatten() for p in models[k].parameters()]))


{"grouped": run_grouped, "threads": run_threads}[sys.argv[1]]()
print(f"need {torch.cuda.max_memory_reserved()}")
