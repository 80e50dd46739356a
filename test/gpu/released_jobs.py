# SPDX-License-Identifier: Apache-2.0
"""Released programs at work, which programs_bars.py judges (its part released): python released_jobs.py PROGRAM [OPTION...]

  bitsandbytes  AdamW with states of 8 bits trains a GPT-2 of transformers
  deepspeed     ZeRO of stage 2, one process, trains a GPT-2 of transformers in bf16
  diffusers     a UNet learns to denoise; each fifth step the DDIM pipeline makes images
  flax          a transformer in JAX, trained with optax
  gpytorch      an exact Gaussian process of 14,000 points, by Cholesky
  lightning     its Trainer trains a ResNet-152 of torchvision
  peft          LoRA on all linear layers of a Llama of transformers
  pyg           GraphSAGE of torch_geometric on a whole random graph
  rmm, rmm-async   programs_jobs.py's chain in CuPy with RMM's pool, and with its cudaMallocAsync
  timm          a ViT-Large with an averaged copy of its weights
  tinygrad      a transformer of its own layers, by its own compiler
  x-transformers   a decoder learns; each fifth step it generates tokens

Weights and data are random, seeds fixed, kernels deterministic where PyTorch has such. Two steps warm up; the others go on until
--seconds have passed. Each prints "each STEP MILLISECONDS LOSS". "check weights.STEP DIGEST" sums the bits of all weights, each
tenth step; "check made.STEP DIGEST" those of what was made. First "version NAME VERSION", last "need BYTES": what the program took
of the GPU at most. --small: a trial without a GPU.
"""
import argparse
import importlib.metadata
import os
import time

WARM, MADE_EACH, DIGEST_EACH = 2, 5, 10  # steps


class Job:
    """The options, and what steps print."""

    def __init__(self, options):
        self.options, self.small, self.device = options, options.small, "cpu" if options.small else "cuda"
        self.count, self.start, self.begin = 0, None, None

    def size(self, usual, small):
        return small if self.small else usual

    def begins(self):
        """A step begins. Returns its number, from 0; None if the time is over."""
        self.begin = time.perf_counter()
        if self.count == WARM:
            self.start = self.begin
        return None if self.count > WARM and self.begin - self.start > self.options.seconds else self.count

    def ends(self, loss, **digests):
        """A step has ended. loss: a number that was read from the GPU, and so what it depends on is done."""
        self.count += 1
        print(f"each {self.count} {(time.perf_counter() - self.begin) * 1e3:.2f} {loss}", flush=True)
        for name, digest in digests.items():
            print(f"check {name}.{self.count} {digest}", flush=True)

    # ---- PyTorch ----

    def torch(self):
        """PyTorch, whose tensors are made on the device where nothing else is said."""
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # makes cuBLAS deterministic
        import torch

        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.backends.cudnn.benchmark = False
        torch.set_default_device(self.device)
        return torch

    def bits(self, tensors):
        """The sum of all bits, as words; no order changes it."""
        import torch

        words = {4: torch.int32, 2: torch.int16, 1: torch.int8}
        return sum(int(t.detach().contiguous().view(words[t.element_size()]).sum(dtype=torch.int64)) for t in tensors)

    def train(self, loss_of, parameters, update, make=None):
        """loss_of(): of the step; update(loss): backward pass and optimizer; make(): tensors, each fifth step."""
        import torch

        while (step := self.begins()) is not None:
            loss = loss_of()
            update(loss)
            digests = {}
            if step % DIGEST_EACH == DIGEST_EACH - 1:
                digests["weights"] = self.bits(parameters)
            if make and step % MADE_EACH == MADE_EACH - 1:
                with torch.no_grad():
                    digests["made"] = self.bits([make()])
            self.ends(loss.item(), **digests)
        self.torch_need()

    def torch_need(self):
        import torch

        print("need", 0 if self.small else torch.cuda.max_memory_reserved())

    def updates(self, optimizer):
        def update(loss):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return update

    def autocast(self, function):
        """The function in bf16."""
        import torch

        def under(*arguments, **more):
            with torch.autocast(self.device, torch.bfloat16):
                return function(*arguments, **more)

        return under


def gpt2(job, torch, batch, length):
    """(a GPT-2 of transformers, a function that says its loss on fixed tokens)"""
    from transformers import GPT2Config, GPT2LMHeadModel

    width = job.size(1024, 64)
    words = job.size(50257, 99)
    model = GPT2LMHeadModel(GPT2Config(n_embd=width, n_layer=job.size(24, 2), n_head=job.size(16, 2), vocab_size=words,
                                       resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False,
                                       attn_implementation="eager")).to(job.device)  # whose sums have one order
    tokens = torch.randint(0, words, (batch, length))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


def run_bitsandbytes(job):
    import bitsandbytes

    torch = job.torch()
    model, loss_of = gpt2(job, torch, job.size(4, 2), job.size(768, 16))
    kind = torch.optim.AdamW if job.small else bitsandbytes.optim.AdamW8bit  # on a CPU it has none
    job.train(job.autocast(loss_of), list(model.parameters()), job.updates(kind(model.parameters(), lr=1e-4)))


def run_deepspeed(job):
    port = 20000 + os.getpid() % 20000
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import deepspeed

    torch = job.torch()
    model, _ = gpt2(job, torch, 1, 16)
    batch = job.size(4, 2)
    tokens = torch.randint(0, job.size(50257, 99), (batch, job.size(768, 16)))
    torch.set_default_device("cpu")  # as it expects
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": batch, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}, "zero_allow_untested_optimizer": True})

    def update(loss):
        engine.backward(loss)
        engine.step()

    job.train(lambda: engine(input_ids=tokens, labels=tokens).loss, list(model.parameters()), update)


def run_diffusers(job):
    import diffusers

    torch = job.torch()
    side, batch = job.size((64, 16), (16, 2))
    channels = job.size((224, 448, 672, 896), (32, 32, 64, 64))
    unet = diffusers.UNet2DModel(sample_size=side, layers_per_block=2, block_out_channels=channels,
                                 down_block_types=("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
                                 up_block_types=("AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
                                 attention_head_dim=32).to(job.device)
    images = torch.randn(batch, 3, side, side)
    torch.set_default_device("cpu")  # as schedulers expect
    noises = diffusers.DDPMScheduler()
    pipeline = diffusers.DDIMPipeline(unet, diffusers.DDIMScheduler())
    pipeline.set_progress_bar_config(disable=True)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)

    def loss_of():
        noise = torch.randn_like(images)
        times = torch.randint(0, 1000, (batch,), device=job.device)
        return torch.nn.functional.mse_loss(unet(noises.add_noise(images, noise, times), times).sample, noise)

    def make():
        noise = torch.Generator(job.device).manual_seed(1)
        made = pipeline(batch_size=batch, num_inference_steps=2, output_type="np", generator=noise)
        return torch.from_numpy(made.images)

    job.train(job.autocast(loss_of), list(unet.parameters()), job.updates(optimizer), job.autocast(make))


def run_flax(job):
    os.environ.setdefault("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen

    width, layers, length, words = job.size((1536, 8, 512, 8192), (64, 2, 16, 99))

    class Block(linen.Module):
        @linen.compact
        def __call__(self, x):
            mask = linen.make_causal_mask(x[..., 0])
            x = x + linen.MultiHeadDotProductAttention(num_heads=width // 64)(linen.LayerNorm()(x), mask=mask)
            return x + linen.Dense(width)(linen.gelu(linen.Dense(4 * width)(linen.LayerNorm()(x))))

    class Model(linen.Module):
        @linen.compact
        def __call__(self, tokens):
            x = linen.Embed(words, width)(tokens)
            for _ in range(layers):
                x = Block()(x)
            return linen.Dense(words)(x)

    model, optimizer = Model(), optax.adamw(1e-4)
    tokens = jax.random.randint(jax.random.PRNGKey(0), (job.size(4, 2), length), 0, words)
    weights = jax.jit(model.init)(jax.random.PRNGKey(1), tokens)
    state = jax.jit(optimizer.init)(weights)

    def advance(weights, state):
        loss, gradient = jax.value_and_grad(
            lambda w: optax.softmax_cross_entropy_with_integer_labels(model.apply(w, tokens)[:, :-1], tokens[:, 1:]).mean())(weights)
        change, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state, loss

    step = jax.jit(advance, donate_argnums=(0, 1)).lower(weights, state).compile()
    size = step.memory_analysis()
    while job.begins() is not None:
        weights, state, loss = step(weights, state)
        job.ends(float(loss))
    stats = jax.devices()[0].memory_stats() or {}
    print("need", stats.get("peak_bytes_in_use") or size.argument_size_in_bytes + size.temp_size_in_bytes)


def run_gpytorch(job):
    import gpytorch

    torch = job.torch()
    points = job.size(14000, 200)
    x, y = torch.rand(points, 8), torch.randn(points)

    class Process(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5))

        def forward(self, where):
            return gpytorch.distributions.MultivariateNormal(self.mean(where), self.kernel(where))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    process = Process(likelihood)
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)
    optimizer = torch.optim.Adam(process.parameters(), lr=0.05)
    with gpytorch.settings.max_cholesky_size(points + 1), gpytorch.settings.fast_computations(False, False, False):
        job.train(lambda: -evidence(process(x), y), list(process.parameters()), job.updates(optimizer))


def run_lightning(job):
    import pytorch_lightning as lightning
    import torchvision

    torch = job.torch()
    batch, side = job.size((48, 224), (2, 32))
    images, classes = torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,))

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torchvision.models.resnet152() if not job.small else torchvision.models.resnet18()

        def training_step(self, *_):
            return torch.nn.functional.cross_entropy(self.net(images), classes)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(range(1 << 20), generator=torch.Generator())

        def on_train_batch_start(self, *_):
            return -1 if job.begins() is None else None  # the epoch ends

        def on_train_batch_end(self, outputs, *_):
            digested = job.count % DIGEST_EACH == DIGEST_EACH - 1
            job.ends(outputs["loss"].item(), **({"weights": job.bits(self.parameters())} if digested else {}))

    torch.set_default_device("cpu")  # its loader counts there
    lightning.Trainer(accelerator="cpu" if job.small else "gpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False, precision="bf16-mixed").fit(Module())
    job.torch_need()


def run_peft(job):
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch = job.torch()
    width, inner, layers, words = job.size((2048, 5504, 14, 32000), (64, 128, 2, 99))
    base = LlamaForCausalLM(LlamaConfig(hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, vocab_size=words,
                                        num_attention_heads=width // 32, use_cache=False)).to(job.device, torch.bfloat16)
    model = get_peft_model(base, LoraConfig(r=16, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"))
    tokens = torch.randint(0, words, (job.size(4, 2), job.size(512, 16)))
    learned = [p for p in model.parameters() if p.requires_grad]
    job.train(lambda: model(input_ids=tokens, labels=tokens).loss, list(model.parameters()),
              job.updates(torch.optim.AdamW(learned, lr=1e-4)))


def run_pyg(job):
    import torch_geometric

    torch = job.torch()
    nodes, edges, width = job.size((200_000, 1_500_000, 256), (400, 2000, 16))
    graph = torch_geometric.EdgeIndex(torch.randint(0, nodes, (2, edges)), sparse_size=(nodes, nodes)).sort_by("col")[0]
    features, classes = torch.randn(nodes, width), torch.randint(0, 40, (nodes,))
    model = torch_geometric.nn.GraphSAGE(width, width, num_layers=3, out_channels=40, norm="LayerNorm").to(job.device)
    for layer in model.convs:
        layer.fuse = False  # so that PyTorch sums the messages; cuSPARSE's sums differ from run to run
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    job.train(lambda: torch.nn.functional.cross_entropy(model(features, graph), classes), list(model.parameters()),
              job.updates(optimizer))


def run_rmm(job):
    if job.small:
        import numpy as xp
        most = (lambda: 0)
    else:
        import cupy as xp
        import rmm
        from rmm.allocators.cupy import rmm_cupy_allocator

        source = rmm.mr.CudaAsyncMemoryResource() if job.options.program == "rmm-async" else \
            rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=1 << 28)
        counted = rmm.mr.StatisticsResourceAdaptor(source)
        rmm.mr.set_current_device_resource(counted)
        xp.cuda.set_allocator(rmm_cupy_allocator)
        most = (lambda: counted.allocation_counts.peak_bytes)
    import programs_jobs

    base = programs_jobs.base_table(xp, job.size(5 << 22, 4096))
    while job.begins() is not None:
        job.ends(programs_jobs.chain(xp, base))
    print("need", most())


def run_timm(job):
    import timm
    import timm.loss
    import timm.optim
    import timm.utils

    torch = job.torch()
    side, batch = job.size((224, 16), (32, 2))
    model = timm.create_model(job.size("vit_large_patch16_224", "vit_tiny_patch16_224"), img_size=side).to(job.device)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-4)
    average = timm.utils.ModelEmaV3(model, decay=0.9)
    criterion = timm.loss.LabelSmoothingCrossEntropy()
    images, classes = torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,))
    step = job.updates(optimizer)

    def update(loss):
        step(loss)
        average.update(model)

    weights = [*model.parameters(), *average.module.parameters()]
    job.train(job.autocast(lambda: criterion(model(images), classes)), weights, update)


def run_tinygrad(job):
    os.environ.setdefault("DEV", job.size("CUDA", "CPU"))
    from tinygrad import Context, Device, Tensor, TinyJit, nn

    allocator = Device[Device.DEFAULT].allocator
    take, drop, alive = allocator._alloc, allocator._free, [0, 0]
    sizes = {}

    def taken(size, options):
        block = take(size, options)
        if not options.host:
            sizes[id(block)] = size
            alive[:] = alive[0] + size, max(alive[1], alive[0] + size)
        return block

    def dropped(block, options):
        alive[0] -= sizes.pop(id(block), 0)
        drop(block, options)

    allocator._alloc, allocator._free = taken, dropped
    width, layers, length, words, batch = job.size((1280, 6, 512, 4096, 8), (32, 1, 16, 99, 2))
    Tensor.manual_seed(0)

    class Block:
        def __init__(self):
            self.norms = [nn.LayerNorm(width), nn.LayerNorm(width)]
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def __call__(self, x):
            parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
            q, k, v = (part.reshape(batch, length, width // 32, 32).transpose(1, 2) for part in parts)
            a = q.scaled_dot_product_attention(k, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(self.up(self.norms[1](x)).gelu())

    class Model:
        def __init__(self):
            self.embed, self.blocks, self.head = nn.Embedding(words, width), [Block() for _ in range(layers)], nn.Linear(width, words)

        def __call__(self, tokens):
            return self.head(self.embed(tokens).sequential(self.blocks))

    model = Model()
    optimizer = nn.optim.AdamW(nn.state.get_parameters(model), lr=1e-4)
    tokens = Tensor.randint(batch, length, high=words).realize()

    @TinyJit
    def step():
        optimizer.zero_grad()
        loss = model(tokens)[:, :-1].sparse_categorical_crossentropy(tokens[:, 1:]).backward()
        return loss.realize(*optimizer.schedule_step())

    with Context(TRAINING=1):
        while job.begins() is not None:
            job.ends(step().item())
    print("need", alive[1])


def run_x_transformers(job):
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    torch = job.torch()
    words, length, batch = job.size((16384, 512, 4), (99, 16, 2))
    decoder = Decoder(dim=job.size(1280, 64), depth=job.size(12, 2), heads=job.size(16, 2), rotary_pos_emb=True, ff_swish=True,
                      ff_glu=True)
    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=words, max_seq_len=length, attn_layers=decoder)).to(job.device)
    tokens = torch.randint(0, words, (batch, length + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def make():
        model.eval()
        made = model.generate(tokens[:, :4], 16, temperature=0.0)
        model.train()
        return made.int()

    job.train(job.autocast(lambda: model(tokens)), list(model.parameters()), job.updates(optimizer), job.autocast(make))


# What runs, and the distribution whose version is told.
PROGRAMS = {"bitsandbytes": (run_bitsandbytes, "bitsandbytes"), "deepspeed": (run_deepspeed, "deepspeed"),
            "diffusers": (run_diffusers, "diffusers"), "flax": (run_flax, "flax"), "gpytorch": (run_gpytorch, "gpytorch"),
            "lightning": (run_lightning, "pytorch-lightning"), "peft": (run_peft, "peft"), "pyg": (run_pyg, "torch-geometric"),
            "rmm": (run_rmm, "rmm-cu13"), "rmm-async": (run_rmm, "rmm-cu13"), "timm": (run_timm, "timm"),
            "tinygrad": (run_tinygrad, "tinygrad"), "x-transformers": (run_x_transformers, "x-transformers")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    run, distribution = PROGRAMS[options.program]
    try:
        print("version", distribution, importlib.metadata.version(distribution), flush=True)
    except importlib.metadata.PackageNotFoundError:
        print("version", distribution, "unknown", flush=True)
    run(Job(options))


if __name__ == "__main__":
    main()
