# SPDX-License-Identifier: Apache-2.0
"""Jobs larger than the card, which larger_bars.py judges: python larger_jobs.py KIND [OPTION...]

  train     a full fine-tune of a Llama: fp32 parameters, fused AdamW, bf16 autocast, activation checkpointing
  sharded   the same with the shape of 13B, by FSDP2 on --ranks GPUs; the lines are those of rank 0
  lora      LoRA on a Llama in bf16, with checkpointing
  generate  --what decode: 16 tokens after 64, ms of one token; prompt: one of 2048; batch: 8 tokens after each of 8 x 512

Weights are random; the number of layers is --layers, or what takes --over times the card's memory. Each step is a line of
JSON: ms, ms of the optimizer by events, the loss or a digest of the tokens and, with --top TOOL, what `spillway top` counted
meanwhile: GB copied each way, chunks made and released, within 0.1 s. The last line has the bytes that were alive and
reserved at most. --grow AT BATCH: a training's batch from that step on; what was alive and reserved before is on a line of its
own. --instead is what a user would pick without Spillway: FSDP2's CPU offload for train and sharded, accelerate's device map
(of --budget MiB) for generate. --device cpu --shrink 64 is a trial without a GPU.
"""
import argparse
import atexit
import json
import os
import subprocess
import threading
import time
import zlib

import bars
import ranks

WORDS = 32000
SHAPES = {  # hidden, inner, heads, heads of keys and values; bytes of a parameter with all that belongs to it
    "train": (4096, 11008, 32, 32, 16),
    "sharded": (5120, 13824, 40, 40, 16),
    "lora": (8192, 28672, 64, 8, 2),
    "generate": (4096, 11008, 32, 8, 2),
}


def parameters(kind, layers):
    hidden, inner, heads, few, _ = SHAPES[kind]
    layer = 2 * hidden * hidden + 2 * hidden * hidden * few // heads + 3 * hidden * inner + 2 * hidden
    return layers * layer + 2 * WORDS * hidden + hidden


def layers_for(kind, size):
    """The layers with which parameters and what belongs to them take about that many bytes."""
    fixed = parameters(kind, 0)
    return max(1, round((size / SHAPES[kind][4] - fixed) / (parameters(kind, 1) - fixed)))


class Counters:
    """What `spillway top` counts of this process, running beside it."""

    def __init__(self, tool):
        self.line, self.last = "", None
        if tool:
            environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
            top = subprocess.Popen([tool, "top", "--json", "--interval", "0.1", str(os.getpid())], text=True, env=environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            atexit.register(top.kill)
            threading.Thread(target=self.read, args=[top.stdout], daemon=True).start()

    def read(self, lines):
        for line in lines:
            self.line = line

    def since(self):
        """What was counted since the last call; nothing if that is not known."""
        found = [process["counters"] for process in json.loads(self.line or '{"processes": []}')["processes"]
                 if process["pid"] == os.getpid()]
        before, self.last = self.last, found[0] if found else None
        if not before or not self.last:
            return {}
        grown = {name: value - before.get(name, 0) for name, value in self.last.items()}
        came, went = bars.copied(grown)
        return {"in_gb": round(came, 3), "out_gb": round(went, 3), "chunks_made": grown["chunks_made"],
                "chunks_released": grown["chunks_released"]}


def configuration(options, layers):
    from transformers import LlamaConfig
    hidden, inner, heads, few, _ = SHAPES[options.kind]
    n = options.shrink
    return LlamaConfig(hidden_size=hidden // n, intermediate_size=inner // n, num_hidden_layers=layers, vocab_size=WORDS // n,
                       num_attention_heads=max(1, heads // n), num_key_value_heads=max(1, few // n),
                       max_position_embeddings=8192, use_cache=options.kind == "generate")


def sharded(torch, options, config):
    """The model in parts on the ranks' GPUs, where FSDP2 gathers layer after layer; instead on their CPUs. The weights are made
    by shards on the GPUs: the same ones either way."""
    import torch.distributed
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
    from transformers import LlamaForCausalLM
    gpu = options.device == "cuda"
    if "RANK" not in os.environ:
        os.environ.update(ranks.environment(0, 1, ranks.free_ports(1)[0]))
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    mesh = torch.distributed.device_mesh.init_device_mesh(options.device, (int(os.environ["WORLD_SIZE"]),))
    for module in [*model.model.layers, model]:
        fully_shard(module, mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=True) if options.instead else OffloadPolicy())
    model.to_empty(device="cpu" if options.instead else options.device)
    torch.manual_seed(int(os.environ["RANK"]))
    for parameter in model.parameters():
        shard = parameter.data.to_local()
        shard.copy_(torch.empty(shard.shape, device=options.device).normal_(std=0.02))
    model.model.rotary_emb = type(model.model.rotary_emb)(config, device=options.device)
    return model


def adapt(torch, model, rank):
    """Only small matrices beside those of queries and values learn."""
    class Adapted(torch.nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.linear = linear
            like = {"device": linear.weight.device, "dtype": linear.weight.dtype}
            self.down = torch.nn.Parameter(torch.randn(rank, linear.in_features, **like) * 0.02)
            self.up = torch.nn.Parameter(torch.zeros(linear.out_features, rank, **like))

        def forward(self, x):
            return self.linear(x) + x @ self.down.t() @ self.up.t()

    model.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj, layer.self_attn.v_proj = Adapted(layer.self_attn.q_proj), Adapted(layer.self_attn.v_proj)


def trainer(torch, options, model):
    """A function that does a step: (loss, ms of the optimizer or None)."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-5, fused=True)
    size = max(options.batch, options.grow[1] if options.grow else 0)
    every = torch.randint(0, WORDS // options.shrink, (size, options.length), device=options.device)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if options.device == "cuda" else []

    def step(number):
        tokens = every if options.grow and number >= options.grow[0] else every[:options.batch]
        with torch.autocast(options.device, torch.bfloat16):
            if options.instead or options.kind == "sharded":  # FSDP2 gathers the root's parameters in the root's forward only
                loss = model(input_ids=tokens, labels=tokens).loss
            else:
                hidden = model.model(tokens).last_hidden_state
                loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[:, :-1]).flatten(0, 1).float(),
                                                         tokens[:, 1:].flatten())
        loss.backward()
        if marks:
            marks[0].record()
        optimizer.step()
        if marks:
            marks[1].record()
        optimizer.zero_grad(set_to_none=True)
        return lambda: (repr(loss.item()), marks[0].elapsed_time(marks[1]) if marks else None)

    return step


def generator(torch, options, model):
    """A function that generates once: (digest of the tokens, None)."""
    rows, length, new = {"decode": (1, 64, 16), "prompt": (1, 2048, 1), "batch": (8, 512, 8)}[options.what]
    tokens = torch.randint(0, WORDS // options.shrink, (rows, length), device=options.device)
    model.eval()

    def step(_):
        with torch.no_grad():
            found = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, min_new_tokens=new,
                                   do_sample=False, pad_token_id=0)
        return lambda: (f"{zlib.crc32(repr(found.tolist()).encode()):08x}", None)

    return step


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=SHAPES)
    parser.add_argument("--what", choices=["decode", "prompt", "batch"], default="decode")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--over", type=float, default=1.25)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--rank", type=int, default=16, help="of lora")
    parser.add_argument("--ranks", type=int, default=2, help="of sharded")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--top", metavar="TOOL")
    parser.add_argument("--instead", action="store_true")
    parser.add_argument("--budget", type=int, help="MiB")
    parser.add_argument("--grow", type=int, nargs=2, metavar=("AT", "BATCH"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shrink", type=int, default=1)
    return parser.parse_args()


def main():
    options = arguments()
    if options.kind == "sharded":
        ranks.start(options.ranks)
    first = os.environ.get("RANK", "0") == "0"
    import torch
    from transformers import LlamaForCausalLM
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    gpu = options.device == "cuda"
    cards = options.ranks if options.kind == "sharded" else 1
    layers = options.layers or layers_for(options.kind, options.over * cards * torch.cuda.get_device_properties(0).total_memory)
    config = configuration(options, layers)
    by_parts = options.kind == "sharded" or options.instead and options.kind == "train"
    if by_parts:
        model = sharded(torch, options, config)
    else:
        if options.kind != "train":
            torch.set_default_dtype(torch.bfloat16)
        with torch.device("cpu" if options.instead else options.device):
            model = LlamaForCausalLM(config)
        if options.kind == "lora":
            adapt(torch, model, options.rank)
    if options.instead and options.kind == "generate":
        from accelerate import dispatch_model, infer_auto_device_map
        where = infer_auto_device_map(model, max_memory={0: options.budget << 20, "cpu": 1 << 40},
                                      no_split_module_classes=["LlamaDecoderLayer"])
        model = dispatch_model(model, device_map=where)
    step = (generator if options.kind == "generate" else trainer)(torch, options, model)
    counters = Counters(options.top)
    time.sleep(0.5 if options.top else 0)
    counters.since()

    def say(line):
        if first:
            print(json.dumps(line), flush=True)

    def most(**more):
        say({**more, "alive": torch.cuda.max_memory_allocated() if gpu else 0,
             "reserved": torch.cuda.max_memory_reserved() if gpu else 0})

    for i in range(options.steps):
        if options.grow and i + 1 == options.grow[0]:
            most(before_growing=True)
        begun = time.perf_counter()
        read = step(i + 1)
        if gpu:
            torch.cuda.synchronize()
        ms = (time.perf_counter() - begun) * 1e3
        value, optimizer_ms = read()
        shared = 16 if options.kind == "generate" and options.what == "decode" else 1
        said = {"step": i + 1, "ms": round(ms / shared, 2), "optimizer_ms": optimizer_ms, "value": value}
        say({**said, **counters.since()})
    most(layers=layers)
    if by_parts or options.instead:
        os._exit(0)  # its process group would be waited for


if __name__ == "__main__":
    main()
