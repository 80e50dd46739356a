# SPDX-License-Identifier: Apache-2.0
"""Programs as people write them, which programs_bars.py judges: python programs_jobs.py KIND ...

  chain ALLOCATOR [--rows N,N] [--times N] [--leave BYTES]   30 filters, joins, sorts and group-bys of a table of int64 in
          CuPy. ALLOCATOR: plain (set_allocator(None)), pool (CuPy's own), async (cudaMallocAsync), rmm (RMM's pool), count
          (plain, and "need BYTES" is what was alive at most) or numpy (a trial without a GPU). --leave: memory is taken
          until so much is free. "first ROWS MS", "each ROWS MS", and a digest of each table that came out
  finder NAME      the largest batch of a training step that ends without out of memory. NAME: accelerate
          (find_executable_batch_size) or lightning (Tuner.scale_batch_size). "check tries BATCH.BATCH...", "check found BATCH"
  model PATH --layers N            writes a Llama for llama.cpp, in GGUF: random weights in fp16, a vocabulary of single bytes
  graph PATH --vertices N --edges N   writes a random graph as EMOGI reads it, PATH.col and PATH.dst: numbers of 8 bytes, two of
          them before the others
"""
import argparse
import struct
import tempfile
import time

COLUMNS = 6
OPERATIONS = 30


# ---- a chain of operations on a table ----

def base_table(xp, rows):
    """Columns of int64: a key, a group, and values."""
    index = xp.arange(rows, dtype=xp.int64)
    scattered = [(index * factor + 12345) % 2147483647 for factor in (48271, 69621, 16807, 40692, 52774, 39373)]
    return [scattered[0] % (rows // 2), scattered[1] % (rows // 64), *scattered[2:COLUMNS]]


def filtered(xp, table, step, _):
    kept = xp.flatnonzero(table[2] % 32 != step % 32)
    return [column[kept] for column in table]


def joined(xp, table, step, rows):
    """With a table of unique keys, of which one in 16 is missing."""
    keys = xp.arange(rows // 2, dtype=xp.int64)
    keys = keys[keys % 16 != step % 16]
    payload = (keys * 31 + step) % 1000003
    where = xp.minimum(xp.searchsorted(keys, table[0]), len(keys) - 1)
    matched = xp.flatnonzero(keys[where] == table[0])
    found = [column[matched] for column in table]
    found[3] = found[3] ^ payload[where[matched]]
    return found


def ordered(xp, table, step, _):
    order = xp.argsort(table[step % COLUMNS])
    return [column[order] for column in table]


def grouped(xp, table, *_):
    """Each row learns the sum of its group. Sums of int64 are the same in each order."""
    order = xp.argsort(table[1])
    groups, sums = table[1][order], xp.cumsum(table[4][order])
    last = xp.concatenate([xp.flatnonzero(groups[1:] != groups[:-1]), xp.asarray([len(groups) - 1])])
    names, totals = groups[last], sums[last]
    totals[1:] = totals[1:] - sums[last][:-1]
    return [*table[:5], (table[5] + totals[xp.searchsorted(names, table[1])]) % 2147483647]


def chain(xp, base):
    """A digest that no order of equal keys changes."""
    table = base
    for step in range(OPERATIONS):
        table = (filtered, joined, ordered, grouped)[step % 4](xp, table, step, len(base[0]))
    mixed = table[0] + 3 * table[1] + 5 * table[2] + 7 * table[3] + 11 * table[4] + 13 * table[5]
    return f"{len(table[0])}.{int((mixed % 1000003).sum())}.{int((mixed * mixed % 998244353).sum())}"


def allocator(cp, name):
    """Sets CuPy's. Returns a function that says what was alive at most, or None."""
    if name == "pool":
        return None
    if name == "rmm":
        import rmm
        from rmm.allocators.cupy import rmm_cupy_allocator
        rmm.reinitialize(pool_allocator=True)
        cp.cuda.set_allocator(rmm_cupy_allocator)
        return None
    if name == "async":
        cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)
        return None
    if name == "plain":
        cp.cuda.set_allocator(None)
        return None
    sizes, alive = {}, [0, 0]

    def malloc(size, _):
        address = cp.cuda.runtime.malloc(size)
        sizes[address] = size
        alive[:] = alive[0] + size, max(alive[1], alive[0] + size)
        return address

    def free(address, _):
        alive[0] -= sizes.pop(address)
        cp.cuda.runtime.free(address)

    cp.cuda.set_allocator(cp.cuda.PythonFunctionAllocator(malloc, free).malloc)
    return lambda: alive[1]


def run_chain(options):
    if options.what == "numpy":
        import numpy as xp
        wait, most = (lambda: None), None
    else:
        import cupy as xp
        wait = xp.cuda.runtime.deviceSynchronize
        if options.leave and options.what == "rmm":  # its pool takes half of what is free when it is made
            leave_free(xp, options.leave)
        most = allocator(xp, options.what)
        chain(xp, base_table(xp, 4096))  # kernels are loaded
        if options.leave and options.what != "rmm":
            xp.get_default_memory_pool().free_all_blocks()
            leave_free(xp, options.leave)
    for rows in options.rows:
        base = base_table(xp, rows)
        for turn in range(options.times + 1):
            wait()
            start = time.perf_counter()
            digest = chain(xp, base)
            wait()
            print("each" if turn else "first", rows, f"{(time.perf_counter() - start) * 1e3:.2f}", flush=True)
        print(f"check chain.{rows} {digest}", flush=True)
        del base
    if most:
        print(f"need {most()}")


def leave_free(cp, left):
    """Take the device's memory but for so many bytes."""
    size = cp.cuda.runtime.memGetInfo()[0] - left
    if size > 0:
        cp.cuda.runtime.malloc(size)


# ---- finders of batch sizes ----

WIDTH, TOKENS, LAYERS = 1024, 512, 24  # each sample keeps about 96 MiB for the backward pass


def run_finder(options):
    import torch

    torch.manual_seed(0)
    layers = torch.nn.Sequential(*[layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())])
    tries = []

    def loss_of(batch, device):
        tries.append(batch)
        return layers(torch.ones(batch, TOKENS, WIDTH, device=device)).square().mean()

    found = {"accelerate": with_accelerate, "lightning": with_lightning}[options.what](torch, layers, loss_of, options.device)
    print("check tries", ".".join(map(str, tries)))
    print("check found", found)


def with_accelerate(_, layers, loss_of, device):
    from accelerate.utils import find_executable_batch_size

    layers.to(device)

    def train(batch):
        layers.zero_grad(set_to_none=True)
        loss_of(batch, device).backward()
        return batch

    return find_executable_batch_size(train, starting_batch_size=1024)()


def with_lightning(torch, layers, loss_of, device):
    import pytorch_lightning as lightning
    from pytorch_lightning.tuner import Tuner
    from torch.utils.data import DataLoader, TensorDataset

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.batch_size, self.layers = 2, layers

        def training_step(self, batch, _):
            return loss_of(len(batch[0]), self.device)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-9)

        def train_dataloader(self):
            return DataLoader(TensorDataset(torch.ones(1 << 13, 1)), self.batch_size)

    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(accelerator="cpu" if device == "cpu" else "gpu", devices=1, max_epochs=1, logger=False,
                                    enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder)
        return Tuner(trainer).scale_batch_size(Module(), mode="binsearch", steps_per_trial=1)


# ---- a model for llama.cpp ----

HIDDEN, INNER, HEADS, FEW, WORDS = 4096, 11008, 32, 8, 32000
LAYER = [("attn_q", HIDDEN, HIDDEN), ("attn_k", HIDDEN, HIDDEN * FEW // HEADS), ("attn_v", HIDDEN, HIDDEN * FEW // HEADS),
         ("attn_output", HIDDEN, HIDDEN), ("ffn_gate", HIDDEN, INNER), ("ffn_up", HIDDEN, INNER), ("ffn_down", INNER, HIDDEN)]
GGUF_ALIGN = 32
GGUF_TYPES = {"u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f")}


def tensors_of(layers):
    """[(name, sizes, the fastest first)] of a Llama. Those with one size are fp32 and all ones."""
    found = [("token_embd", (HIDDEN, WORDS)), ("output_norm", (HIDDEN,)), ("output", (HIDDEN, WORDS))]
    for layer in range(layers):
        found += [(f"blk.{layer}.{name}", (HIDDEN,)) for name in ("attn_norm", "ffn_norm")]
        found += [(f"blk.{layer}.{name}", (inner, outer)) for name, inner, outer in LAYER]
    return [(name + ".weight", sizes) for name, sizes in found]


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text


def gguf_value(kind, value):
    if kind == "text":
        return struct.pack("<I", 8) + gguf_text(value)
    if kind == "texts":
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_text, value))
    if isinstance(value, list):
        number, form = GGUF_TYPES[kind]
        return struct.pack("<IIQ", 9, number, len(value)) + b"".join(struct.pack(form, one) for one in value)
    number, form = GGUF_TYPES[kind]
    return struct.pack("<I", number) + struct.pack(form, value)


def gguf_header(layers):
    """What comes before the tensors' bytes, and [(count, is fp16)] of each tensor."""
    words = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    kinds = [2, 3, 3] + 256 * [6] + (WORDS - len(words)) * [1]
    words += [b"w%d" % number for number in range(len(words), WORDS)]
    keys = [("general.architecture", "text", b"llama"), ("general.file_type", "u32", 1), ("general.alignment", "u32", GGUF_ALIGN),
            ("llama.context_length", "u32", 4096), ("llama.embedding_length", "u32", HIDDEN), ("llama.block_count", "u32", layers),
            ("llama.feed_forward_length", "u32", INNER), ("llama.attention.head_count", "u32", HEADS),
            ("llama.attention.head_count_kv", "u32", FEW), ("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5),
            ("llama.rope.dimension_count", "u32", HIDDEN // HEADS), ("llama.vocab_size", "u32", WORDS),
            ("tokenizer.ggml.model", "text", b"llama"), ("tokenizer.ggml.tokens", "texts", words),
            ("tokenizer.ggml.scores", "f32", [0.0] * WORDS), ("tokenizer.ggml.token_type", "i32", kinds),
            ("tokenizer.ggml.unknown_token_id", "u32", 0), ("tokenizer.ggml.bos_token_id", "u32", 1),
            ("tokenizer.ggml.eos_token_id", "u32", 2)]
    tensors = tensors_of(layers)
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    header += b"".join(gguf_text(name.encode()) + gguf_value(kind, value) for name, kind, value in keys)
    offset, counts = 0, []
    for name, sizes in tensors:
        half = len(sizes) > 1
        count = sizes[0] * (sizes[1] if half else 1)
        header += gguf_text(name.encode()) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, int(half), offset)
        offset += -(-count * (2 if half else 4) // GGUF_ALIGN) * GGUF_ALIGN
        counts.append((count, half))
    return header + bytes(-len(header) % GGUF_ALIGN), counts


def run_model(options):
    """Random numbers are made once, and each tensor begins elsewhere in them: 8 GiB are written in seconds."""
    import numpy as np

    header, counts = gguf_header(options.layers)
    most = max(count for count, _ in counts)
    block = (np.random.default_rng(1).standard_normal((1 << 24) + 4099, dtype=np.float32) * 0.02).astype(np.float16)
    numbers = np.tile(block, 2 + most // len(block))
    with open(options.what, "wb") as file:
        file.write(header)
        for index, (count, half) in enumerate(counts):
            start = index * 65537 % len(block)
            (numbers[start:start + count] if half else np.ones(count, np.float32)).tofile(file)
            file.write(bytes(-file.tell() % GGUF_ALIGN))
    print(f"written {options.what}")


def run_graph(options):
    """The numbers of edges differ at random, so that some vertices have many."""
    import numpy as np

    random, vertices, edges = np.random.default_rng(1), options.vertices, options.edges
    ends = np.sort(random.integers(0, edges + 1, vertices - 1))
    with open(options.what + ".col", "wb") as file:
        np.concatenate([[vertices + 1, 0, 0], ends, [edges]]).astype(np.int64).tofile(file)
    with open(options.what + ".dst", "wb") as file:
        np.asarray([edges, 0], dtype=np.int64).tofile(file)
        for begin in range(0, edges, 1 << 26):
            random.integers(0, vertices, min(1 << 26, edges - begin)).tofile(file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["chain", "finder", "model", "graph"])
    parser.add_argument("what")
    parser.add_argument("--rows", type=lambda text: [int(word) for word in text.split(",")], default=[1 << 20])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--leave", type=int, default=0)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--vertices", type=int, default=1000)
    parser.add_argument("--edges", type=int, default=20000)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    {"chain": run_chain, "finder": run_finder, "model": run_model, "graph": run_graph}[options.kind](options)


if __name__ == "__main__":
    main()
