# SPDX-License-Identifier: Apache-2.0
"""PyTorch where memory dies and comes to life in other ways than in a plain training step, with fixed seeds:
python torch_alive.py trees|ddp|fsdp|generate|infer.

trees     CUDA graph trees (torch.compile, reduce-overhead): outputs that are alive while other graphs are replayed and
          new ones are recorded
ddp       a model in DistributedDataParallel, one rank: gradients live in buckets
fsdp      one in fully_shard, one rank: parameters are gathered and given up
generate  transformers: text is generated, the cache of keys and values grows token by token
infer     inference on batches of many lengths, two of them at once on streams of their own
"""
import hashlib
import os
import sys
import tempfile

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # makes cuBLAS deterministic; read when it starts

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


def check(name, tensor):
    data = tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes()
    print(f"check {name} {hashlib.sha256(data).hexdigest()[:16]}", flush=True)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def blocks(width, layers):
    return nn.Sequential(*[Block(width) for _ in range(layers)]).cuda()


def run_trees():
    width = 1024
    model = blocks(width, 4)
    weight = torch.randn(width, width, device="cuda") / width**0.5

    @torch.compile(mode="reduce-overhead")
    def head(x):
        return model(x)

    @torch.compile(mode="reduce-overhead")
    def left(x):
        return torch.relu(x @ weight)

    @torch.compile(mode="reduce-overhead")
    def right(x):
        return torch.tanh(x @ weight).sum(-1)

    inputs = [torch.randn(rows, width, device="cuda") for rows in (2048, 4096)]
    with torch.no_grad():
        for i in range(24):
            torch.compiler.cudagraph_mark_step_begin()
            first = head(inputs[i // 8 % 2])  # alive until the step ends, whatever follows it
            one = left(first) if i % 3 else right(first)
            two = right(first) if i % 2 else left(first * 0.5)
            check(f"first{i}", first)
            check(f"one{i}", one)
            check(f"two{i}", two)


def train(model, width, steps=10):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(4096, width, device="cuda")
    y = torch.randint(0, width, (4096,), device="cuda")
    for i in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"check loss{i} {loss.item():.9g}", flush=True)


def with_one_rank(work):
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1,
                                device_id=torch.device("cuda", 0))
        work()
        dist.destroy_process_group()


def run_ddp():
    from torch.nn.parallel import DistributedDataParallel

    with_one_rank(lambda: train(DistributedDataParallel(blocks(1024, 6), device_ids=[0], gradient_as_bucket_view=True), 1024))


def run_fsdp():
    from torch.distributed.fsdp import fully_shard

    def work():
        model = blocks(1024, 6)
        for block in model:
            fully_shard(block)
        fully_shard(model)
        train(model, 1024)

    with_one_rank(work)


def run_generate():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.use_deterministic_algorithms(False)  # a cumulative sum that only counts positions has no such form
    config = GPT2Config(n_layer=12, n_embd=1024, n_head=16, vocab_size=8192, n_positions=1024)
    model = GPT2LMHeadModel(config).cuda().eval()
    for i, rows in enumerate((16, 4, 24)):
        prompt = torch.randint(0, 8192, (rows, 128), device="cuda")
        tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=48, do_sample=False,
                                pad_token_id=0, eos_token_id=None)
        check(f"tokens{i}", tokens)


def run_infer():
    width = 1024
    model = blocks(width, 6).eval()
    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [torch.randn(rows, width, device="cuda") for rows in (512, 8192, 1024, 4096, 2048, 6144)]
    torch.cuda.synchronize()
    with torch.no_grad():
        for i in range(18):
            outputs = []
            for k, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    outputs.append(model(inputs[(i + 3 * k) % len(inputs)]))
            for k, (stream, output) in enumerate(zip(streams, outputs)):
                torch.cuda.current_stream().wait_stream(stream)
                output.record_stream(torch.cuda.current_stream())
                check(f"output{i}.{k}", output.sum(-1))


JOBS = {"trees": run_trees, "ddp": run_ddp, "fsdp": run_fsdp, "generate": run_generate, "infer": run_infer}
JOBS[sys.argv[1]]()
print(f"need {torch.cuda.max_memory_reserved()}")
