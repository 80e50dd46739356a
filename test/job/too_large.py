# SPDX-License-Identifier: Apache-2.0
"""A job that is too large for its GPU: python3 too_large.py [STEPS], 40 unless said.

Twelve layers need half as much memory again as the GPU has. Each step writes all of them in the forward pass and reads
them in the backward pass, in the other order; what is read is compared with what was written. It needs Python and the
CUDA runtime alone. Exit status: 0 all was right, 1 out of memory or a wrong byte.
"""
import ctypes
import sys
import time

LAYERS = 12
TO_HOST, ON_DEVICE = 2, 3
for name in "libcudart.so.13", "libcudart.so.12", "libcudart.so":
    try:
        cuda = ctypes.CDLL(name)
        break
    except OSError:
        pass
else:
    sys.exit("too_large.py: no libcudart.so is found; set LD_LIBRARY_PATH")


def must(error, what):
    if error == 2:
        sys.exit(f"too_large.py: out of memory: {what}")
    if error:
        sys.exit(f"too_large.py: CUDA error {error}: {what}")


def forward(layers, size, value):
    for layer in layers:
        must(cuda.cudaMemset(layer, value, ctypes.c_size_t(size)), "cudaMemset")


def backward(layers, size, value, scratch):
    read = ctypes.create_string_buffer(4096)
    for layer in reversed(layers):
        must(cuda.cudaMemcpy(scratch, layer, ctypes.c_size_t(size), ON_DEVICE), "cudaMemcpy")
        must(cuda.cudaMemcpy(read, scratch, ctypes.c_size_t(len(read)), TO_HOST), "cudaMemcpy")
        if read.raw != bytes([value]) * len(read):
            sys.exit("too_large.py: a byte is wrong")


def make_layers(size):
    layers = [ctypes.c_void_p() for _ in range(LAYERS)]
    for i, layer in enumerate(layers):
        error = cuda.cudaMalloc(ctypes.byref(layer), ctypes.c_size_t(size))
        must(error, f"layer {i + 1} of {LAYERS}, each of {size >> 20} MiB")
    return layers


def make_scratch(size):
    scratch = ctypes.c_void_p()
    must(cuda.cudaMalloc(ctypes.byref(scratch), ctypes.c_size_t(size)), "scratch")
    return scratch


free, total = ctypes.c_size_t(), ctypes.c_size_t()
must(cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)), "cudaMemGetInfo")
size = total.value * 3 // 2 // LAYERS >> 21 << 21
scratch, model = make_scratch(size), make_layers(size)
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 40):
    begin = time.perf_counter()
    forward(model, size, step % 256)
    backward(model, size, step % 256, scratch)
    must(cuda.cudaDeviceSynchronize(), "cudaDeviceSynchronize")
    if step % 10 == 9:
        print(f"step {step + 1}: {LAYERS} layers of {size >> 20} MiB are right, {1e3 * (time.perf_counter() - begin):.0f} ms")
