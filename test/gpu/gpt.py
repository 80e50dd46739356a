# SPDX-License-Identifier: Apache-2.0
"""A GPT training job: python gpt.py WIDTH LAYERS BATCH STEPS [each] [deterministic] [pause], e.g. 1536 16 8 18.

Prints the median time of the last half of the steps (each synchronised), the last loss, and what the framework reserved
("need"). With "each" also a line "each STEP MILLISECONDS LOSS" after every step, from the first one on.
With "deterministic" only kernels that always add in the same order: losses of two runs are equal bit for bit.
With "pause" also a line "alive BYTES" after every step, and then a second in which it does nothing.
"""
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

width, layers, batch, steps = (int(a) for a in sys.argv[1:5])
each, pause = "each" in sys.argv[5:], "pause" in sys.argv[5:]
length, vocabulary = 1024, 8192
if "deterministic" in sys.argv[5:]:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # torch asks for it
    torch.use_deterministic_algorithms(True)
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


model = nn.Sequential(*[Block() for _ in range(layers)], nn.LayerNorm(width), nn.Linear(width, vocabulary)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(batch, length, width, device="cuda")
y = torch.randint(0, vocabulary, (batch, length), device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())
    loss.backward()
    optimizer.step()
    return loss


times = []
for i in range(3 + steps):
    start = time.perf_counter()
    loss = step()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - start)
    if each:
        print(f"each {i + 1} {times[-1] * 1e3:.2f} {loss.item():.9g}", flush=True)
    if pause:
        print(f"alive {torch.cuda.memory_allocated()}", flush=True)
        time.sleep(1)
median = statistics.median(times[-(steps // 2):])
reserved = torch.cuda.max_memory_reserved() >> 20
print(f"gpt {width}x{layers} batch {batch}: {median * 1e3:.1f} ms/step, loss {loss.item():.9f}, reserved {reserved} MiB", flush=True)
