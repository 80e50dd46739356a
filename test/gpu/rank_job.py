# SPDX-License-Identifier: Apache-2.0
"""One rank of a job on several GPUs: torchrun --nproc-per-node N rank_job.py WHAT [STEPS]

  nccl   what torch.distributed does by NCCL (the functions of collectives()), on int32, checked element by element;
         "check nccl.NAME RANK" lines
  ddp    a transformer, the whole model on every GPU; "each STEP MILLISECONDS LOSS" from rank 0
  fsdp   the same, its parameters spread over the GPUs

Runs with SPILLWAY or without; says "need BYTES", the most that the framework reserved on one GPU.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WIDTH, LAYERS, BATCH, LENGTH, VOCABULARY = 1024, 12, 8, 1024, 8192
COUNT = 8 << 20  # elements of a collective's buffer: 32 MiB of int32

what = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 12
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)


def say(*words):
    print(*words, flush=True)


# ---- collectives ----


def ramp(of, n=COUNT):
    """What rank `of` begins with: every element tells who and where."""
    return torch.arange(n, dtype=torch.int32, device=device) % 1000003 + of * 7


def collectives():
    total = sum(ramp(r) for r in range(ranks))
    part = COUNT // ranks
    mine = slice(rank * part, (rank + 1) * part)

    def all_reduce():
        x = ramp(rank)
        dist.all_reduce(x)
        return x, total

    def broadcast():
        x = ramp(rank)
        dist.broadcast(x, 1)
        return x, ramp(1)

    def reduce():
        x = ramp(rank)
        dist.reduce(x, 0)
        return (x, total) if rank == 0 else (x[:1] * 0, x[:1] * 0)

    def all_gather():
        x = torch.empty(COUNT * ranks, dtype=torch.int32, device=device)
        dist.all_gather_into_tensor(x, ramp(rank))
        return x, torch.cat([ramp(r) for r in range(ranks)])

    def reduce_scatter():
        x = torch.empty(part, dtype=torch.int32, device=device)
        dist.reduce_scatter_tensor(x, ramp(rank)[:part * ranks])
        return x, total[mine]

    def all_to_all():
        x = torch.empty(part * ranks, dtype=torch.int32, device=device)
        dist.all_to_all_single(x, ramp(rank)[:part * ranks])
        return x, torch.cat([ramp(r)[mine] for r in range(ranks)])

    def send_recv():
        x = torch.empty(COUNT, dtype=torch.int32, device=device)
        work = dist.batch_isend_irecv([dist.P2POp(dist.isend, ramp(rank), (rank + 1) % ranks),
                                       dist.P2POp(dist.irecv, x, (rank - 1) % ranks)])
        for request in work:
            request.wait()
        return x, ramp((rank - 1) % ranks)

    def gather():
        got = [torch.empty(COUNT, dtype=torch.int32, device=device) for _ in range(ranks)] if rank == 0 else None
        dist.gather(ramp(rank), got, 0)
        nothing = torch.zeros(1, dtype=torch.int32, device=device)
        return (torch.cat(got), torch.cat([ramp(r) for r in range(ranks)])) if rank == 0 else (nothing, nothing)

    def scatter():
        x = torch.empty(COUNT, dtype=torch.int32, device=device)
        dist.scatter(x, [ramp(r) for r in range(ranks)] if rank == 1 else None, 1)
        return x, ramp(rank)

    return [all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, send_recv, gather, scatter]


def nccl():
    # More than fits at half the budget, so that what NCCL works on has been elsewhere.
    ballast = [torch.full((COUNT,), i, dtype=torch.int32, device=device) for i in range(16)]
    for turn in range(steps):
        for operation in collectives():
            got, expected = operation()
            torch.cuda.synchronize()
            if not torch.equal(got, expected):
                say(f"check nccl.{operation.__name__}.{rank} wrong")
                sys.exit(1)
        for i, block in enumerate(ballast):
            block += 1
            if int(block[-1]) != i + turn + 1 or int(block[0]) != i + turn + 1:
                say(f"check nccl.ballast.{rank} wrong")
                sys.exit(1)
    say(f"check nccl.{rank} right")


# ---- training ----


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, WIDTH // 64, 64).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def train():
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(LAYERS)], nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)).to(device)
    if what == "ddp":
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    else:
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            if isinstance(layer, Block):
                fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(1 + rank)
    x = torch.randn(BATCH, LENGTH, WIDTH, device=device)
    y = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device=device)
    for step in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        took = time.perf_counter() - start
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            say(f"each {step + 1} {took * 1e3:.2f} {mean.item() / ranks:.9g}")


if what == "nccl":
    nccl()
else:
    train()
dist.barrier()
if rank == 0:
    say(f"need {torch.cuda.max_memory_reserved()}")
dist.destroy_process_group()
