# SPDX-License-Identifier: Apache-2.0
"""Language models with random weights that serve requests: python serve_job.py KIND [OPTION...]. Nothing is downloaded.

static  transformers' generate() with a static cache, greedy, for a batch of prompts
paged   transformers' continuous batching with a paged cache, greedy: all requests are there before it starts, and more of
        them than it takes at once, so the others wait
serve   a server: one thread takes requests from the input ("request FIRST N": N of them; "end"), another one serves them in
        batches, in the order they came, from one static cache that lives as long as the server

static and paged do their work in rounds, of which the last one is timed: in the first one kernels are loaded, and under
Spillway memory spills for the first time. They print "check tokens.ROUND HASH", and "check logits.ROUND HASH" of every
token's logits or "check logprobs.ROUND HASH"; then "rate TOKENS_PER_SECOND" and "need BYTES".

serve prints "need BYTES" and "ready" when it takes requests, and "asked FIRST N" when it has got some; after each token of
a batch "each NUMBER MILLISECONDS WAITING" (WAITING: requests that are in no batch yet); of each request "done NUMBER
SECONDS", from its arrival to its end; and at the end "check tokens HASH", "check logits HASH", "served N", "need BYTES". It
begins a batch when that is full, or the end has come: so which requests share a batch does not depend on when they came.

Exit status 3, and "api none REASON": this transformers has no such thing.
"""
import argparse
import hashlib
import inspect
import os
import sys
import threading
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # makes cuBLAS deterministic; read when it starts

NO_API = 3
# width, width of the MLP, layers, heads, words
SMALL = (2048, 5504, 16, 16, 8192)  # 1.6 GiB in bfloat16, and 128 KiB of cache for each token
LARGE = (4096, 11008, 32, 32, 32000)  # 12.6 GiB, and 512 KiB
TINY = (64, 128, 2, 4, 128)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["static", "paged", "serve"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", type=lambda text: [int(word) for word in text.split(",")],
                        help="WIDTH,MLP,LAYERS,HEADS,WORDS")
    parser.add_argument("--batch", type=int, help="requests at once")
    parser.add_argument("--requests", type=int, default=32, help="of paged, in all")
    parser.add_argument("--prompt", type=int, help="tokens; of paged, of the longest prompt: the shortest has half of it")
    parser.add_argument("--tokens", type=int, help="of each answer")
    parser.add_argument("--length", type=int, default=5632, help="of serve: tokens that the cache has room for, a request")
    parser.add_argument("--blocks", type=int, default=160, help="of the paged cache, of 256 tokens each")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="of paged, at most in one pass")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    large = options.kind == "serve"
    options.model = options.model or (LARGE if large else SMALL)
    options.batch = options.batch or (8 if large else 16)
    options.prompt = options.prompt or (256 if large else 2000)
    options.tokens = options.tokens or 48
    return options


def make_model(options, torch):
    from transformers import LlamaConfig, LlamaForCausalLM
    width, mlp, layers, heads, words = options.model
    config = LlamaConfig(hidden_size=width, intermediate_size=mlp, num_hidden_layers=layers, num_attention_heads=heads,
                         num_key_value_heads=heads, vocab_size=words, max_position_embeddings=8192, bos_token_id=None,
                         eos_token_id=None, pad_token_id=None)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)  # a cumulative sum that only counts has no such form
    torch.backends.cuda.enable_cudnn_sdp(False)  # its attention gives other logits each time (H200), whatever is set
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if options.device == "cpu" else torch.bfloat16)
    try:
        with torch.device(options.device):
            model = LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)
    return model


def prompt_of(number, length, words, torch):
    """The same on every device."""
    return torch.randint(0, words, (length,), generator=torch.Generator().manual_seed(1000 + number))


def finish(options, torch):
    if options.device != "cpu":
        torch.cuda.synchronize()


def say_need(options, torch):
    """Without a GPU the size of a model in float32, for there is nothing to be measured."""
    width, mlp, layers, _, words = options.model
    weights = 4 * (layers * (4 * width * width + 3 * width * mlp) + 2 * width * words)
    print(f"need {weights if options.device == 'cpu' else torch.cuda.max_memory_reserved()}", flush=True)


class Digest:
    """Of tensors, bit for bit."""

    def __init__(self, torch):
        self.torch, self.sum = torch, hashlib.sha256()

    def add(self, tensor):
        self.sum.update(tensor.detach().contiguous().view(self.torch.uint8).cpu().numpy().tobytes())

    def text(self):
        return self.sum.hexdigest()[:16]


# ---- generate() with a static cache ----

def static(options, torch):
    from transformers import LogitsProcessor, LogitsProcessorList
    model = make_model(options, torch)
    prompt = torch.stack([prompt_of(i, options.prompt, options.model[4], torch) for i in range(options.batch)])
    prompt = prompt.to(options.device)
    print("api generate, cache_implementation=static, not compiled", flush=True)

    class Watch(LogitsProcessor):
        """Called once a token, the first time after the prompt."""

        def __init__(self):
            self.logits, self.times = Digest(torch), []

        def __call__(self, ids, scores):
            self.logits.add(scores)  # waits for it
            self.times.append(time.perf_counter())
            return scores

    for i in range(options.rounds):
        watch = Watch()
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=options.tokens,
                             min_new_tokens=options.tokens, do_sample=False, pad_token_id=0, eos_token_id=None,
                             cache_implementation="static", disable_compile=True,
                             logits_processor=LogitsProcessorList([watch]))
        finish(options, torch)
        tokens = Digest(torch)
        tokens.add(out)
        print(f"check tokens.{i} {tokens.text()}\ncheck logits.{i} {watch.logits.text()}", flush=True)
    seconds = watch.times[-1] - watch.times[0]
    print(f"rate {options.batch * (options.tokens - 1) / seconds:.6g}")


# ---- continuous batching with a paged cache ----

def none(reason):
    import transformers
    print(f"api none {reason} (transformers {transformers.__version__})", flush=True)
    sys.exit(NO_API)


def known(kind, settings):
    """Of the settings those that this version's class has."""
    names = inspect.signature(kind).parameters
    return {name: value for name, value in settings.items() if name in names}


def manager_of(model, options):
    """A manager of continuous batching, and how it was had."""
    import transformers
    from transformers import GenerationConfig
    if not hasattr(model, "init_continuous_batching"):
        none("the model has no init_continuous_batching")
    plain = {"max_new_tokens": options.tokens, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
    # A cache that is larger than what is free is refused otherwise, and that is what is to be measured.
    paged = {"max_memory_percent": 100.0, "block_size": 256, "num_blocks": options.blocks, "max_batch_tokens": options.batch_tokens,
             "max_requests_per_batch": options.batch, "allow_block_sharing": False, "use_cuda_graph": False,
             "use_async_batching": False, "max_blocks_per_request": 0, "return_logprobs": True, "seed": 0}
    takes = inspect.signature(model.init_continuous_batching).parameters
    if "continuous_batching_config" in takes:
        from transformers.generation.configuration_utils import ContinuousBatchingConfig
        config = ContinuousBatchingConfig(**known(ContinuousBatchingConfig, paged))
        manager = model.init_continuous_batching(generation_config=GenerationConfig(**plain),
                                                 continuous_batching_config=config)
        how = "ContinuousBatchingConfig"
    elif "generation_config" in takes:  # in 4.5x the settings are attributes of the generation's
        generation = GenerationConfig(**plain)
        for name, value in paged.items():
            setattr(generation, name, value)
        manager = model.init_continuous_batching(generation_config=generation, **known(
            model.init_continuous_batching, {"manual_eviction": False, "max_queue_size": 0}))
        how = "GenerationConfig"
    else:
        none(f"init_continuous_batching takes {', '.join(takes)}")
    for name in "add_request", "start", "get_result", "stop":
        if not hasattr(manager, name):
            none(f"its manager has no {name}")
    print(f"api transformers {transformers.__version__}, init_continuous_batching by {how}, "
          f"{model.config._attn_implementation}", flush=True)
    return manager


def take_paged_attention(model):
    for name in "paged|sdpa", "sdpa_paged":
        try:
            model.set_attn_implementation(name)
            return
        except (ValueError, ImportError, KeyError, AttributeError):
            continue
    none("no paged attention by scaled_dot_product_attention")


def one_round(model, options, prompts):
    """Seconds, and by request the tokens and the logarithms of their probabilities, where this version returns them. All
    requests are there before the first one is served."""
    manager = manager_of(model, options)
    for i, prompt in enumerate(prompts):
        manager.add_request(prompt, request_id=f"r{i}", max_new_tokens=options.tokens)
    found, start = {}, time.perf_counter()
    manager.start()
    try:
        while len(found) < len(prompts):
            result = manager.get_result(timeout=1)
            if result is None:
                if not manager.is_running():
                    raise RuntimeError(f"it stopped after {len(found)} of {len(prompts)} requests")
            elif not hasattr(result, "is_finished") or result.is_finished():  # without it, nothing else is handed out
                if getattr(result, "error", None):
                    raise RuntimeError(f"{result.request_id}: {result.error}")
                found[result.request_id] = list(result.generated_tokens), list(getattr(result, "logprobs", None) or [])
        return time.perf_counter() - start, found
    finally:
        manager.stop(block=True, timeout=20)


def paged(options, torch):
    model = make_model(options, torch)
    take_paged_attention(model)
    words, step = options.model[4], options.prompt // (2 * options.requests)
    prompts = [prompt_of(i, options.prompt - i * step, words, torch).tolist() for i in range(options.requests)]
    for i in range(options.rounds):
        seconds, found = one_round(model, options, prompts)
        short = [name for name in found if len(found[name][0]) != options.tokens]
        if short:
            raise RuntimeError(f"{len(short)} answers are not of {options.tokens} tokens")
        for what, of in ("tokens", 0), ("logprobs", 1):
            if not any(answer[of] for answer in found.values()):
                continue
            text = " ".join(f"{name}:{found[name][of]}" for name in sorted(found))
            print(f"check {what}.{i} {hashlib.sha256(text.encode()).hexdigest()[:16]}", flush=True)
    print(f"rate {options.requests * options.tokens / seconds:.6g}")


# ---- a server ----

class Requests:
    """The queue. Its thread reads the input."""

    def __init__(self):
        self.waiting, self.changed, self.ended = [], threading.Condition(), False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in sys.stdin:
            words = line.split()
            if words[:1] == ["request"]:
                first, n = int(words[1]), int(words[2])
                with self.changed:
                    self.waiting += [(number, time.perf_counter()) for number in range(first, first + n)]
                    self.changed.notify_all()
                print(f"asked {first} {n}", flush=True)
            elif words == ["end"]:
                break
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def take(self, n):
        """The next n, or what is left at the end: [(number, when it came)]"""
        with self.changed:
            self.changed.wait_for(lambda: len(self.waiting) >= n or self.ended)
            taken, self.waiting = self.waiting[:n], self.waiting[n:]
            return taken

    def n_waiting(self):
        with self.changed:
            return len(self.waiting)


def make_cache(model, options):
    """Of all its layers, now: a server has it before the first request."""
    from transformers import StaticCache
    width, _, _, heads, _ = options.model
    settings = known(StaticCache, {"config": model.config, "max_batch_size": options.batch, "max_cache_len": options.length,
                                   "device": options.device, "dtype": model.dtype})
    cache = StaticCache(**settings)
    if hasattr(cache, "early_initialization"):
        early = {"batch_size": options.batch, "num_heads": heads, "head_dim": width // heads, "dtype": model.dtype,
                 "device": model.device}
        cache.early_initialization(**known(cache.early_initialization, early))
    return cache


def step(model, cache, tokens, at, torch):
    """The logits of the last position. at: where in the cache the tokens go."""
    position = torch.arange(at, at + tokens.shape[1], device=tokens.device)
    out = model(input_ids=tokens, past_key_values=cache, use_cache=True, position_ids=position.unsqueeze(0),
                **known(model.forward, {"cache_position": position, "logits_to_keep": 1}))
    return out.logits[:, -1]


def serve(options, torch):
    model = make_model(options, torch)
    cache = make_cache(model, options)
    requests, sums = Requests(), (Digest(torch), Digest(torch))
    number = served = 0
    finish(options, torch)
    say_need(options, torch)
    print(f"api StaticCache of {options.batch} x {options.length} tokens\nready", flush=True)
    while True:
        batch = requests.take(options.batch)
        if not batch:
            break
        # A batch that is not full is filled up with its first request, so that all of them have one shape.
        numbers = [request[0] for request in batch] + [batch[0][0]] * (options.batch - len(batch))
        tokens = torch.stack([prompt_of(i, options.prompt, options.model[4], torch) for i in numbers]).to(options.device)
        cache.reset()
        at = 0
        for _ in range(options.tokens):
            start = time.perf_counter()
            logits = step(model, cache, tokens, at, torch)
            at += tokens.shape[1]
            tokens = logits.argmax(-1, keepdim=True)
            for digest, tensor in zip(sums, (tokens, logits)):
                digest.add(tensor)  # waits for it
            number += 1
            print(f"each {number} {(time.perf_counter() - start) * 1e3:.2f} {requests.n_waiting()}", flush=True)
        served += len(batch)
        for request, came in batch:
            print(f"done {request} {time.perf_counter() - came:.3f}", flush=True)
    print(f"check tokens {sums[0].text()}\ncheck logits {sums[1].text()}\nserved {served}")


def main():
    options = arguments()
    import torch
    with torch.no_grad():
        {"static": static, "paged": paged, "serve": serve}[options.kind](options, torch)
    say_need(options, torch)


if __name__ == "__main__":
    main()
