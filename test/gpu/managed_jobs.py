# SPDX-License-Identifier: Apache-2.0
"""Python programs with managed memory of their own, which managed_bars.py runs: python managed_jobs.py KIND ...

  cupy ALLOCATOR          cupy_job.py: managed (each array by itself), pool (CuPy's pool of managed memory), rmm or rmm-pool
  torch PLUG JOB ...      a job of PyTorch with the allocator of managed_samples.cu, built as the library PLUG
  paged direct|copied     a paged optimizer: its state is managed memory that tensors "of the CPU" name and the GPU uses.
                          direct: at the end the CPU reads it, as to save it
  numba direct|copied     numba.cuda.managed_array; direct: the CPU reads the result in place
"""
import ctypes
import hashlib
import os
import runpy
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def run_job(name, *arguments):
    sys.argv = [name, *arguments]
    runpy.run_path(os.path.join(HERE, name), run_name="__main__")


def check(name, data):
    print(f"check {name} {hashlib.sha256(data).hexdigest()[:16]}", flush=True)


def cupy(which):
    import cupy as cp
    if which == "managed":
        cp.cuda.set_allocator(cp.cuda.malloc_managed)
    elif which == "pool":
        cp.cuda.set_allocator(cp.cuda.MemoryPool(cp.cuda.malloc_managed).malloc)
    else:
        import rmm
        from rmm.allocators.cupy import rmm_cupy_allocator
        sizes = {"initial_pool_size": 512 << 20, "maximum_pool_size": 2560 << 20} if which == "rmm-pool" else {}
        rmm.reinitialize(managed_memory=True, pool_allocator=bool(sizes), **sizes)
        cp.cuda.set_allocator(rmm_cupy_allocator)
    run_job("cupy_job.py")


def torch(plug, name, *arguments):
    import torch
    library = ctypes.CDLL(plug)
    library.managed_plug_most.restype = ctypes.c_size_t
    allocator = torch.cuda.memory.CUDAPluggableAllocator(plug, "managed_plug_alloc", "managed_plug_free")
    torch.cuda.memory.change_current_allocator(allocator)
    torch.cuda.max_memory_reserved = library.managed_plug_most  # PyTorch does not count what another allocator gives
    run_job(name, *arguments)


def paged(how):
    global tl  # a kernel finds its names there
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # makes cuBLAS deterministic
    import torch
    import triton
    import triton.language as tl

    runtime = ctypes.CDLL("libcudart.so.13")  # PyTorch has loaded it
    GPU, BLOCK = 0, 1024

    class Location(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]

    def managed(n):
        """A tensor "of the CPU" of so many zeros."""
        at = ctypes.c_void_p()
        assert runtime.cudaMallocManaged(ctypes.byref(at), ctypes.c_size_t(n * 4), 2) == 0  # attached to the host
        made = torch.frombuffer((ctypes.c_char * (n * 4)).from_address(at.value), dtype=torch.float32, count=n)
        fill[(triton.cdiv(n, BLOCK),)](made, n, BLOCK)
        return made

    def prefetch(tensor):
        result = runtime.cudaMemPrefetchAsync(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes),
                                              Location(1, GPU), 0, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        assert result == 0, result

    @triton.jit
    def fill(at, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(at + i, 0.0, mask=i < n)

    @triton.jit
    def adam(weight, gradient, first, second, n, step_size, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(gradient + i, mask=i < n)
        m = 0.9 * tl.load(first + i, mask=i < n) + 0.1 * g
        v = 0.999 * tl.load(second + i, mask=i < n) + 0.001 * g * g
        tl.store(first + i, m, mask=i < n)
        tl.store(second + i, v, mask=i < n)
        tl.store(weight + i, tl.load(weight + i, mask=i < n) - step_size * m / (tl.sqrt(v) + 1e-8), mask=i < n)

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    width = 2560
    model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(width, width), torch.nn.GELU())]).cuda()
    x, y = torch.randn(256, width, device="cuda"), torch.randn(256, width, device="cuda")
    states = [(p, managed(p.numel()), managed(p.numel())) for p in model.parameters()]
    for i in range(12):
        begin = time.perf_counter()
        loss = torch.nn.functional.mse_loss(model(x), y)
        model.zero_grad(set_to_none=True)
        loss.backward()
        for p, first, second in states:
            prefetch(first)
            prefetch(second)
        for p, first, second in states:
            n = p.numel()
            adam[(triton.cdiv(n, BLOCK),)](p, p.grad, first, second, n, 1e-4 * (1 - 0.999**(i + 1))**0.5 / (1 - 0.9**(i + 1)), BLOCK)
        torch.cuda.synchronize()
        print(f"each {i + 1} {(time.perf_counter() - begin) * 1e3:.2f} {loss.item():.9g}", flush=True)
    for number, (p, first, second) in enumerate(states):
        check(f"weights{number}", p.detach().cpu().numpy().tobytes())
        for name, state in ("first", first), ("second", second):
            copy = state.clone() if how == "direct" else torch.empty_like(state)
            if how == "copied":
                assert runtime.cudaMemcpy(ctypes.c_void_p(copy.data_ptr()), ctypes.c_void_p(state.data_ptr()),
                                          ctypes.c_size_t(state.nbytes), 4) == 0
            check(f"{name}{number}", copy.numpy().tobytes())


def numba(how):
    import numpy as np
    from numba import cuda

    @cuda.jit
    def scale(out, values):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = out[i] * 3 + values[i]

    n = 60 << 20
    values, out = cuda.managed_array(n, dtype=np.int32), cuda.managed_array(n, dtype=np.int32)
    values[:] = np.arange(n, dtype=np.int32)
    out[:] = 1
    for i in range(8):
        begin = time.perf_counter()
        scale[(n + 255) // 256, 256](out, values)
        cuda.synchronize()
        print(f"each {i + 1} {(time.perf_counter() - begin) * 1e3:.2f} 0", flush=True)
    check("out", (out.copy_to_host() if how == "copied" else np.array(out)).tobytes())


if __name__ == "__main__":
    {"cupy": cupy, "torch": torch, "paged": paged, "numba": numba}[sys.argv[1]](*sys.argv[2:])
