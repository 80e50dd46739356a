# SPDX-License-Identifier: Apache-2.0
"""Tensors of the forward pass, each with a node of autograd, and then tensors that threads of autograd make while they run
these nodes (fake_torch_cpu.c); backward_lines_test.sh finds the lines by their marks. Arguments: folder of site_user and its
runtime, libc10.so, libc10_cuda.so, a libtorch_cpu.so or a copy of it, "shared" or "intrusive".
"""
import ctypes
import os
import sys
import threading

MIB = 1 << 20
folder, c10, c10_cuda, torch_cpu, layout = sys.argv[1:]
user = ctypes.CDLL(os.path.join(folder, "libsite_user.so"))
runtime = ctypes.CDLL(os.path.join(folder, "libcudart_site.so"))


class Functions(ctypes.Structure):
    """The first of struct fake_torch_functions."""

    _fields_ = [("open", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)),
                ("allocate", ctypes.CFUNCTYPE(ctypes.c_ulonglong, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
                                              ctypes.c_void_p))]


class Backward(ctypes.Structure):
    """struct backward"""

    _fields_ = [("node", ctypes.c_void_p), ("make_current", ctypes.c_void_p), ("allocate", ctypes.c_void_p),
                ("torch", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


if user.site_start():
    sys.exit("there is no device")
cpu = ctypes.CDLL(torch_cpu)
cpu.fake_autograd_layout(layout == "intrusive")
cpu.fake_node.restype = ctypes.c_void_p
cpu.fake_node_references.argtypes = [ctypes.c_void_p]
cpu.fake_node_number.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong]
cpu.fake_backward.restype = ctypes.c_ulonglong
ctypes.CDLL(c10)
torch = Functions.in_dll(ctypes.CDLL(c10_cuda), "fake_torch_functions")
cache = torch.open(0)
nodes = {}


def allocate(n):
    return torch.allocate(cache, n, None, None)  # mark: plain


def first():
    nodes["first"], _ = cpu.fake_node(), torch.allocate(cache, 4 * MIB, None, None)  # mark: first
    nodes["view"] = cpu.fake_node()


def second():
    nodes["second"], _ = cpu.fake_node(), torch.allocate(cache, 4 * MIB, None, None)  # mark: second
    allocate(2 * MIB)


def third():
    nodes["third"], _ = cpu.fake_node(), torch.allocate(cache, 4 * MIB, None, None)  # mark: third
    nodes["far"] = cpu.fake_node()
    cpu.fake_node_number(nodes["far"], 1 << 20)


def forward(*lines):
    runtime.runtime_current()
    allocate(2 * MIB)
    for line in lines:
        line()


def backward(name, n):
    what = Backward(nodes[name], ctypes.cast(runtime.runtime_current, ctypes.c_void_p).value,
                    ctypes.cast(torch.allocate, ctypes.c_void_p).value, cache, n)
    if not cpu.fake_backward(ctypes.byref(what)):
        sys.exit("there is no memory")


forward(first, second)
other = threading.Thread(target=forward, args=[third])  # its nodes have the numbers of the others
other.start()
other.join()
nodes["none"] = None
for _ in range(2):
    backward("second", 3 * MIB)
    backward("first", 5 * MIB)
    backward("third", 6 * MIB)
    backward("view", 8 * MIB)
    backward("far", 10 * MIB)
    backward("none", 12 * MIB)
if any(cpu.fake_node_references(node) != 1 for node in nodes.values() if node):
    sys.exit("references to nodes are lost")
