# SPDX-License-Identifier: Apache-2.0
"""A job on several GPUs, a rank on each: python rank_job.py KIND[,KIND...] [STEPS] [OPTION...] starts its --ranks itself, and is
a rank where a launcher has set RANK.

  nccl      what torch.distributed does by NCCL (the functions of collectives()), on int32, checked element by element;
            "check nccl.RANK right"
  ddp       a transformer, the whole model on every GPU
  fsdp1     the same, its parameters spread over the GPUs by FullyShardedDataParallel
  fsdp2     by fully_shard
  pipeline  its layers one after the other on the GPUs, four parts of a batch on their way (torch.distributed.pipelining)
  tensor    each of its matrices in parts on all GPUs (torch.distributed.tensor.parallel)

All but nccl print "job KIND", "each STEP MILLISECONDS LOSS" from rank 0, and "need BYTES": the most that the framework reserved
on one GPU. With --calls they do CALLS steps more under PyTorch's profiler, and print "calls NAME COUNT MICROSECONDS" for each
function of CUDA that rank 0 called in one of them. A collective that takes longer than --patience seconds ends the rank.
--device cpu --shrink 16 is a trial without a GPU. Runs with Spillway or without.
"""
import argparse
import datetime
import gc
import os
import sys
import time

import ranks as launcher

parser = argparse.ArgumentParser()
parser.add_argument("kinds", type=lambda text: text.split(","))
parser.add_argument("steps", type=int, nargs="?", default=12)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--calls", action="store_true")
parser.add_argument("--patience", type=float, default=60)
parser.add_argument("--device", default="cuda")
parser.add_argument("--shrink", type=int, default=1)
options = parser.parse_args()
launcher.start(options.ranks)
os.environ.setdefault("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1000")  # a rank that gives up ends; else a minute later

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

SHRINK = options.shrink
WIDTH, LAYERS, BATCH, LENGTH, VOCABULARY = 1024 // SHRINK, 12, 8, 1024 // SHRINK, 8192 // SHRINK
HEAD = 64 // SHRINK
COUNT = 8 << 20  # elements of a collective's buffer: 32 MiB of int32
CALLS = 10

steps, gpu = options.steps, options.device == "cuda"
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank))) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo", device_id=device if gpu else None,
                        timeout=datetime.timedelta(seconds=options.patience))


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # in one piece: other ranks write there, too
    sys.stdout.flush()


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
        # Where the matrices are in parts, there are fewer heads.
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, -1, HEAD).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def loss_of(found, expected):
    return F.cross_entropy(found.flatten(0, 1).float(), expected.flatten())


def plain(model, x, y):
    """A function that computes the loss and the gradients of the whole batch, and returns the loss."""
    def run():
        loss = loss_of(model(x), y)
        loss.backward()
        return loss.detach()

    return model, run


def ddp(model, x, y):
    return plain(nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if gpu else None), x, y)


def fsdp1(model, x, y):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return plain(FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=device,
                                          use_orig_params=True), x, y)


def fsdp2(model, x, y):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.init_device_mesh(options.device, (ranks,))
    for layer in model:
        if isinstance(layer, Block):
            fully_shard(layer, mesh=mesh)
    return plain(fully_shard(model, mesh=mesh), x, y)


def pipeline(model, x, y):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    layers = list(model)
    cuts = [len(layers) * i // ranks for i in range(ranks + 1)]
    part = nn.Sequential(*layers[cuts[rank]:cuts[rank + 1]])
    schedule = Schedule1F1B(PipelineStage(part, rank, ranks, device), max(4, ranks), loss_fn=loss_of)

    def run():
        losses = []
        schedule.step(*([x] if rank == 0 else []), **({"target": y, "losses": losses} if rank == ranks - 1 else {}))
        # The mean over the ranks is printed, and only the last one has a loss.
        return torch.stack(losses).mean() * ranks if losses else torch.zeros((), device=device)

    return part, run


def tensor(model, x, y):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = dist.device_mesh.init_device_mesh(options.device, (ranks,))
    for layer in model:
        if isinstance(layer, Block):
            parallelize_module(layer, mesh, {"qkv": ColwiseParallel(), "proj": RowwiseParallel(), "up": ColwiseParallel(),
                                             "down": RowwiseParallel()})
    return plain(model, x, y)


def optimizer_of(model):
    """Kinds of parameters that no function takes together are groups of their own."""
    groups = {}
    for parameter in model.parameters():
        groups.setdefault(type(parameter.data), []).append(parameter)
    return torch.optim.AdamW([{"params": group} for group in groups.values()], lr=1e-4)


def synchronize():
    if gpu:
        torch.cuda.synchronize()


def train(kind):
    torch.manual_seed(0)
    with device:
        whole = nn.Sequential(*[Block() for _ in range(LAYERS)], nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))
    # Where the GPUs work on one batch together, all of them have the same one.
    torch.manual_seed(1 + (0 if kind in (pipeline, tensor) else rank))
    x = torch.randn(BATCH, LENGTH, WIDTH, device=device)
    y = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device=device)
    model, run = kind(whole, x, y)
    del whole
    optimizer = optimizer_of(model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(options.device, torch.bfloat16):
            loss = run()
        optimizer.step()
        synchronize()
        return loss

    for number in range(steps):
        start = time.perf_counter()
        mean = step()
        took = time.perf_counter() - start
        dist.all_reduce(mean)
        if rank == 0:
            say(f"each {number + 1} {took * 1e3:.2f} {mean.item() / ranks:.9g}")
    if options.calls:
        calls_of(step)


def calls_of(step):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]) as profiler:
        for _ in range(CALLS):
            step()
    for event in profiler.key_averages() if rank == 0 else []:
        if event.key.startswith("cu"):
            say(f"calls {event.key} {event.count / CALLS:g} {event.self_cpu_time_total / CALLS:.1f}")


KINDS = {kind.__name__: kind for kind in (ddp, fsdp1, fsdp2, pipeline, tensor)}
say(f"rank {rank} {os.getpid()}")
for name in options.kinds:
    if rank == 0:
        say(f"job {name}")
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    nccl() if name == "nccl" else train(KINDS[name])
    need = torch.tensor(torch.cuda.max_memory_reserved() if gpu else 1, device=device)
    dist.all_reduce(need, dist.ReduceOp.MAX)
    if rank == 0:
        say(f"need {need.item()}")
    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
dist.destroy_process_group()
