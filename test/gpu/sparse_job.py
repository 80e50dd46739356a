# SPDX-License-Identifier: Apache-2.0
"""Threads, each on a stream of its own, multiply by a sparse matrix of ones whose products must stay ones.

    python sparse_job.py THREADS ITERATIONS TRIALS SIZE

The work of PyTorch's test_cusparse_multiple_threads_same_device. Its sorts overlap kernels by programmatic dependent
launch and read before they may (CCCL issue 5297), which memory behind a link shows. With HOST_PLUG=path/host_plug.so
every second block lies in pinned host memory.

Exit status: 0 all ones, 3 a CUDA error, 4 wrong numbers.
"""
import os
import sys
import threading

import torch

threads, iterations, trials, size = (int(a) for a in sys.argv[1:5])
if os.environ.get("HOST_PLUG"):
    plug = torch.cuda.memory.CUDAPluggableAllocator(os.environ["HOST_PLUG"], "host_plug_alloc", "host_plug_free")
    torch.cuda.memory.change_current_allocator(plug)

index = torch.arange(size)
weight = torch.sparse_coo_tensor(torch.cartesian_prod(index, index).t(), torch.ones(size * size)).to("cuda")
results = [None] * threads
errors = []


def work(number, barrier):
    try:
        stream = torch.cuda.Stream()
        barrier.wait()
        with torch.cuda.stream(stream):
            for _ in range(iterations):
                results[number] = weight.mm(results[number])
                results[number].div_(float(size))
        stream.synchronize()
    except Exception as error:
        errors.append(str(error).splitlines()[0])


wrong = 0
for trial in range(trials):
    results = [torch.ones((size, size), device="cuda") for _ in range(threads)]
    torch.cuda.synchronize()
    barrier = threading.Barrier(threads)
    workers = [threading.Thread(target=work, args=(number, barrier)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        print(f"trial {trial}: {errors[0]}", flush=True)
        os._exit(3)
    try:
        wrong += sum((result != 1).sum().item() for result in results)
    except Exception as error:
        print(f"trial {trial}: {str(error).splitlines()[0]}", flush=True)
        os._exit(3)
print(f"{wrong} wrong numbers", flush=True)
os._exit(4 if wrong else 0)
