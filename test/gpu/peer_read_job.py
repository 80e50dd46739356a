# SPDX-License-Identifier: Apache-2.0
"""Two GPUs read the same memory at the same time: peer_read_job.py MIB [ROUNDS [managed]].

One block of MIB MiB is written by GPU 0, and then all of it is read by both GPUs in each round, in one kernel each. The
block comes from cudaMalloc, or cudaMallocManaged. Prints "check sums N", N sums that are wrong, and by GPU the rate at
which it read: "gpu0 MEDIAN LEAST MOST GB/s"; "first" is the first round of both, in which managed memory moves.
"""
import statistics
import sys

import cupy
import numpy

CODE = """extern "C" {
__global__ void fill(unsigned *x, size_t n) {
    for (size_t i = (size_t)blockDim.x * blockIdx.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        x[i] = (unsigned)i * 2654435761u;
}
__global__ void sum(const uint4 *x, size_t n, unsigned long long *to) {
    unsigned long long own = 0;
    for (size_t i = (size_t)blockDim.x * blockIdx.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint4 word = x[i];
        own += (unsigned long long)word.x + word.y + word.z + word.w;
    }
    atomicAdd(to, own);
} }"""
GPUS, BLOCKS, THREADS, WORD = (0, 1), 2048, 256, 4


def main(mib, rounds=12, managed=False):
    runtime = cupy.cuda.runtime
    if runtime.getDeviceCount() < 2:
        sys.exit("two GPUs are needed")
    count = (mib << 20) // WORD
    for gpu in GPUS:
        with cupy.cuda.Device(gpu):
            runtime.deviceEnablePeerAccess(1 - gpu)
    with cupy.cuda.Device(0):
        block = runtime.mallocManaged(count * WORD) if managed else runtime.malloc(count * WORD)
        cupy.RawKernel(CODE, "fill")((BLOCKS,), (THREADS,), (numpy.uint64(block), numpy.uint64(count)))
        runtime.deviceSynchronize()
    words = numpy.arange(count, dtype=numpy.uint32)
    words *= numpy.uint32(2654435761)
    whole = int(words.sum(dtype=numpy.uint64))
    own = {}
    for gpu in GPUS:
        with cupy.cuda.Device(gpu):
            own[gpu] = (cupy.cuda.Stream(non_blocking=True), cupy.zeros(1, dtype=numpy.uint64), cupy.RawKernel(CODE, "sum"),
                        [cupy.cuda.Event() for _ in range(2)])
            own[gpu][2].compile()
            runtime.deviceSynchronize()
    times, wrong = {gpu: [] for gpu in GPUS}, 0
    for _ in range(rounds):
        for gpu in GPUS:
            stream, total, kernel, (begins, ends) = own[gpu]
            with cupy.cuda.Device(gpu), stream:
                total.fill(0)
                begins.record(stream)
                kernel((BLOCKS,), (THREADS,), (numpy.uint64(block), numpy.uint64(count // 4), total))
                ends.record(stream)
        for gpu in GPUS:
            stream, total, _, events = own[gpu]
            with cupy.cuda.Device(gpu), stream:
                stream.synchronize()
                times[gpu].append(cupy.cuda.get_elapsed_time(*events))
                wrong += int(total.get()[0]) != whole
    print(f"check sums {wrong}")
    for gpu in GPUS:
        rates = [count * WORD / 1e6 / ms for ms in times[gpu]]
        print(f"gpu{gpu} {statistics.median(rates[2:]):.1f} {min(rates[2:]):.1f} {max(rates[2:]):.1f} GB/s")
    first = min(count * WORD / 1e6 / times[gpu][0] for gpu in GPUS)
    print(f"first {first:.1f} {first:.1f} {first:.1f} GB/s")


main(int(sys.argv[1]), *map(int, sys.argv[2:3]), managed=sys.argv[3:] == ["managed"])
