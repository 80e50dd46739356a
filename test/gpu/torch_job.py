# SPDX-License-Identifier: Apache-2.0
"""A PyTorch training job with fixed seeds: python torch_job.py eager|compile|graph.

eager    a transformer, AdamW, plain kernels: over a GiB with the optimizer's state
compile  a smaller one through torch.compile (Triton kernels)
graph    the whole step of a smaller one captured in a CUDA graph and replayed
"""
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # makes cuBLAS deterministic; read when it starts

import torch
import torch.nn as nn
import torch.nn.functional as F

mode = sys.argv[1]
width, layers, batch, steps = {"eager": (1024, 6, 4, 15), "compile": (512, 3, 4, 10), "graph": (768, 4, 4, 20)}[mode]
length, classes = 256, 1000
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
        # Written out: the fused attention's backward is not deterministic.
        a = torch.softmax(q @ k.transpose(-1, -2) / 8.0, dim=-1) @ v
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


model = nn.Sequential(*[Block() for _ in range(layers)], nn.LayerNorm(width), nn.Linear(width, classes)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=mode == "graph")
x = torch.randn(batch, length, width, device="cuda")
y = torch.randint(0, classes, (batch, length), device="cuda")
forward = torch.compile(model) if mode == "compile" else model


def step():
    optimizer.zero_grad(set_to_none=mode != "graph")
    loss = F.cross_entropy(forward(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    return loss


if mode == "graph":
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()

    def step():
        graph.replay()
        return captured


for i in range(steps):
    print(f"check loss{i} {step().item():.9g}", flush=True)
total = sum(p.double().sum() for p in model.parameters()).item()
print(f"check weights {total:.17g}")
print(f"need {torch.cuda.max_memory_reserved()}")
