# SPDX-License-Identifier: Apache-2.0
"""Jobs that scripts/memory.sh measures: python memory_jobs.py JOB [STEPS].

small  a training step that needs less than 100 MiB, for memory of the kinds that must stay small on a shared GPU. After
       every step "each STEP MILLISECONDS LOSS", at the end "need BYTES"
view   one array of CuPy seen by the CPU at its own address, and by PyTorch without a copy: each side writes, all read.
       Under a policy that serves managed memory
llm    a language model with random weights generates; its cache grows. "each TOKEN MILLISECONDS", "check tokens HASH",
       "need BYTES"
"""
import ctypes
import hashlib
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # makes cuBLAS deterministic; read when it starts

job, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
LLM = {"hidden_size": 2048, "intermediate_size": 5504, "num_hidden_layers": 16, "num_attention_heads": 16,
       "num_key_value_heads": 16, "vocab_size": 8192}
LLM_BATCH, LLM_PROMPT = 16, 2048


def small():
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    width = 384
    model = nn.Sequential(*[m for _ in range(2) for m in (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x, y = torch.randn(512, width, device="cuda"), torch.randn(512, width, device="cuda")
    for i in range(steps):
        start = time.perf_counter()
        for _ in range(20):  # one alone is over too soon to be timed
            optimizer.zero_grad(set_to_none=True)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        print(f"each {i + 1} {(time.perf_counter() - start) * 1e3:.2f} {loss.item():.9g}", flush=True)
    need = torch.cuda.max_memory_reserved()
    assert need < 100 << 20, need
    print(f"need {need}")


def view():
    import cupy as cp
    import numpy as np
    import torch
    n = 4 << 20
    array = cp.zeros(n, dtype=cp.float32)
    cpu = np.ctypeslib.as_array(ctypes.cast(array.data.ptr, ctypes.POINTER(ctypes.c_float)), (n,))
    tensor = torch.as_tensor(array, device="cuda")
    assert tensor.data_ptr() == array.data.ptr
    cpu[:] = np.arange(n, dtype=np.float32)
    array += 1
    cp.cuda.runtime.deviceSynchronize()
    tensor *= 2
    torch.cuda.synchronize()
    cpu += 3
    wanted = (np.arange(n, dtype=np.float32) + 1) * 2 + 3
    print("check cpu", "equal" if np.array_equal(cpu, wanted) else "DIFFERENT")
    print("check cupy", "equal" if np.array_equal(cp.asnumpy(array), wanted) else "DIFFERENT")
    print("check torch", "equal" if np.array_equal(tensor.cpu().numpy(), wanted) else "DIFFERENT")


def llm():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    config = LlamaConfig(**LLM, max_position_embeddings=LLM_PROMPT + steps + 8)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    prompt = torch.randint(0, config.vocab_size, (LLM_BATCH, LLM_PROMPT), device="cuda")
    times = []

    class Clock(LogitsProcessor):
        """Called once a token, the first time after the prompt."""

        def __call__(self, ids, scores):
            torch.cuda.synchronize()
            times.append(time.perf_counter())
            if len(times) > 1:
                print(f"each {len(times) - 1} {(times[-1] - times[-2]) * 1e3:.2f} 0", flush=True)
            return scores

    with torch.no_grad():
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=steps, min_new_tokens=steps,
                             do_sample=False, pad_token_id=0, logits_processor=LogitsProcessorList([Clock()]))
    print("check tokens", hashlib.sha256(out.cpu().numpy().tobytes()).hexdigest()[:16])
    print(f"need {torch.cuda.max_memory_reserved()}")


{"small": small, "view": view, "llm": llm}[job]()
