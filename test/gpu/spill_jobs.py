# SPDX-License-Identifier: Apache-2.0
"""Jobs that scripts/spill.sh measures: python spill_jobs.py JOB STEPS. After every step "each STEP MILLISECONDS LOSS", at
the end "need BYTES". Fixed seeds.

twice    the GPT of gpt.py with twice the compute per byte: every matrix product and every attention is done twice into
         the same memory, so that the bytes touched, and their order, stay what they were
conv     ResNet-50 in channels_last, written out; deterministic algorithms, so its losses should be equal bit for bit
lengths  a GPT whose sequences are of another length in every step: no two steps in a row are alike
graph    a GPT's whole step captured in a CUDA graph, then replayed
random   matrix products, gathers and sums over tensors chosen at random: no period at all
hold     STEPS GiB in 64 MiB tensors, each changed and checked in every step, until it is ended from outside
"""
import random
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

job, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True


class Twice(torch.autograd.Function):
    """x @ weight.T + bias, each product of it and of its gradient done twice."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.bfloat16)
    def forward(ctx, x, weight, bias):
        flat = x.flatten(0, -2)
        ctx.save_for_backward(flat, weight)
        out = torch.addmm(bias, flat, weight.t())
        torch.addmm(bias, flat, weight.t(), out=out)
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        flat, weight = ctx.saved_tensors
        g = gradient.flatten(0, -2)
        gx, gw = g @ weight, g.t() @ flat
        torch.mm(g, weight, out=gx)
        torch.mm(g.t(), flat, out=gw)
        return gx.view(*gradient.shape[:-1], -1), gw, g.sum(0)


class Linear(nn.Linear):
    def forward(self, x):
        return Twice.apply(x, self.weight, self.bias) if job == "twice" else super().forward(x)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = Linear(width, 3 * width), Linear(width, width)
        self.up, self.down = Linear(width, 4 * width), Linear(4 * width, width)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.width // 64, 64).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, self.width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Bottleneck(nn.Module):
    def __init__(self, inputs, inner, stride):
        super().__init__()
        outputs = 4 * inner
        self.body = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
            nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x), inplace=True)


def resnet(classes):
    layers, inputs = [nn.Conv2d(3, 64, 7, 4, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)], 64
    for inner, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(inputs, inner, stride if i == 0 else 1))
            inputs = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def gpt(width, layers, vocabulary=8192):
    return nn.Sequential(*[Block(width) for _ in range(layers)], nn.LayerNorm(width), nn.Linear(width, vocabulary)).cuda()


def report(i, start, loss):
    """The time of a step that is done, and its loss."""
    print(f"each {i + 1} {(time.perf_counter() - start) * 1e3:.2f} {loss:.9g}", flush=True)


def train(model, optimizer, batch_of, before_steps=3):
    """batch_of(i): inputs and targets of step i. Targets are classes of the last dimension."""
    for i in range(before_steps + steps):
        x, y = batch_of(i)
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            out = model(x)
            loss = F.cross_entropy(out.flatten(0, -2).float(), y.flatten())
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        report(i, start, loss.item())


def run_twice():
    width, batch, length = 1536, 8, 1024
    model = gpt(width, 16)
    x = torch.randn(batch, length, width, device="cuda")
    y = torch.randint(0, 8192, (batch, length), device="cuda")
    attention = F.scaled_dot_product_attention

    def attend(q, k, v, is_causal):
        with torch.no_grad():
            attention(q, k, v, is_causal=is_causal)  # its memory is free again, and is what the next one gets
        return attention(q, k, v, is_causal=is_causal)

    F.scaled_dot_product_attention = attend
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-4), lambda i: (x, y))


def run_conv():
    torch.backends.cudnn.deterministic = True
    batch = 192
    model = resnet(1000).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (batch,), device="cuda")
    train(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), lambda i: (x, y))


def run_lengths():
    width, batch, longest = 1280, 8, 1024
    model = gpt(width, 16)
    x = torch.randn(batch, longest, width, device="cuda")
    y = torch.randint(0, 8192, (batch, longest), device="cuda")
    chosen = random.Random(1)
    lengths = [longest] + [chosen.randrange(longest // 2, longest + 1, 64) for _ in range(steps + 2)]

    def batch_of(i):
        return x[:, :lengths[i]], y[:, :lengths[i]]

    train(model, torch.optim.AdamW(model.parameters(), lr=1e-4), batch_of)


def run_graph():
    width, batch, length = 1024, 8, 1024
    model = gpt(width, 12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    x = torch.randn(batch, length, width, device="cuda")
    y = torch.randint(0, 8192, (batch, length), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for i in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        report(i, start, loss.item())


def run_random():
    chosen = random.Random(2)
    side = [chosen.choice((4096, 5120, 6144, 8192)) for _ in range(80)]  # 64 to 256 MiB each, in fp32
    tensors = [torch.randn(n, n, device="cuda") for n in side]
    for i in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(6):
            a, b, c = (chosen.choice(tensors) for _ in range(3))
            n = min(a.shape[0], b.shape[0], c.shape[0])
            kind = chosen.randrange(3)
            if kind == 0:
                torch.mm(a[:n, :n], b[:n, :n], out=torch.empty(n, n, device="cuda")).mul_(0.01)
            elif kind == 1:
                rows = torch.tensor([chosen.randrange(a.shape[0]) for _ in range(256)], device="cuda")
                b[:256].mul_(0.5).add_(a[rows][:, :1].mean())
            else:
                c[:n, :n].mul_(0.9).add_(a[:n, :n], alpha=0.1)
        torch.cuda.synchronize()
        report(i, start, sum(t[::997, ::991].double().sum() for t in tensors[:8]).item())


def run_hold():
    tensors = [torch.full((16 << 20,), i, dtype=torch.int32, device="cuda") for i in range(steps * 16)]
    print(f"need {len(tensors) << 26}", flush=True)
    for i in range(100000):
        start = time.perf_counter()
        bad = sum((tensor.add_(1) != k + i + 1).sum() for k, tensor in enumerate(tensors)).item()
        if bad:
            print(f"wrong {bad} words at step {i + 1}", flush=True)
            break
        report(i, start, 0.0)


globals()[f"run_{job}"]()
print(f"need {torch.cuda.max_memory_reserved()}")
