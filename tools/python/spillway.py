# SPDX-License-Identifier: Apache-2.0
"""What a Python program may ask of the Spillway library that it runs under (`spillway run -- python train.py`).

With `make install` or a package, `export PYTHONPATH=$(pkg-config --variable=python spillway)` lets every Python find it;
that of Debian finds the .deb's without.

Nothing here loads the library: it is in the process, or it is not (is_active()). Hints (born, discard, prefer_host) do
nothing without it and return False, so that a program can give them always; the other functions raise RuntimeError then.
What the library refuses raises OSError with its errno value; spillway-api(7) says which and why.

A tensor is anything with data_ptr() and nbytes (PyTorch) or __cuda_array_interface__ (CuPy, Numba), contiguous; or a pair
(address, bytes).
"""
import ctypes
import os

__all__ = ["is_active", "version", "suspend", "resume", "born", "discard", "prefer_host", "pin", "unpin", "stats"]

_process = ctypes.CDLL(None)  # calls release the interpreter's lock


def _find(name, *types):
    try:
        function = getattr(_process, name)
    except AttributeError:
        return None
    function.argtypes = types
    function.restype = ctypes.c_int
    return function


_suspend = _find("spillway_suspend")
_resume = _find("spillway_resume")
_discard = _find("spillway_discard", ctypes.c_void_p, ctypes.c_uint64)
_born = _find("spillway_born", ctypes.c_void_p, ctypes.c_uint64)
_prefer_host = _find("spillway_prefer_host", ctypes.c_void_p)
_pin = _find("spillway_pin", ctypes.c_void_p)
_unpin = _find("spillway_unpin", ctypes.c_void_p)
_budget = _find("spillway_budget", ctypes.c_int, *[ctypes.POINTER(ctypes.c_uint64)] * 4)
_version = _find("spillway_version")
if _version:
    _version.restype = ctypes.c_char_p


def _call(function, *arguments):
    if not function:
        raise RuntimeError("this process does not run under Spillway; start it with `spillway run`")
    result = function(*arguments)
    if result < 0:
        raise OSError(-result, os.strerror(-result))


def _range(tensor):
    """(address, bytes) of a tensor. Raises ValueError if it is not contiguous, TypeError if it is none."""
    if isinstance(tensor, tuple):
        address, size = tensor
        return int(address), int(size)
    if hasattr(tensor, "data_ptr") and hasattr(tensor, "nbytes"):
        if not tensor.is_contiguous():
            raise ValueError("the tensor is not contiguous: the bytes between its parts may be somebody else's")
        return tensor.data_ptr(), tensor.nbytes
    interface = getattr(tensor, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError("neither a tensor on the GPU nor a pair (address, bytes)")
    if interface.get("strides") is not None:
        raise ValueError("the array is not contiguous: the bytes between its parts may be somebody else's")
    size = int(interface["typestr"][2:])
    for length in interface["shape"]:
        size *= length
    return interface["data"][0], size


def is_active():
    """Returns whether this process runs under Spillway."""
    return _version is not None


def version():
    """Returns the version of the library, as `spillway --version` prints it; None if the process has no Spillway."""
    return _version().decode() if _version else None


def suspend():
    """Gives the GPU's memory back. Every later call that submits work waits, on any thread, until resume()."""
    _call(_suspend)


def resume():
    """Lets submissions go on after suspend()."""
    _call(_resume)


def _hint(function, tensor):
    """Calls it with the address and the bytes of the tensor, if there is such a function and the tensor is not empty. Returns
    whether it was called."""
    address, size = _range(tensor)
    if not function or not size:
        return False
    _call(function, address, size)
    return True


def born(tensor):
    """A part of a block that the program cuts itself begins to be used and holds nothing yet. It is dead, and moves
    without a copy, from discard() of the same part until it is born again; it must not be used meanwhile. PyTorch's own
    tensors need neither. Returns whether the hint was given."""
    return _hint(_born, tensor)


def discard(tensor):
    """The contents are no longer needed and need not be copied. Returns whether the hint was given."""
    return _hint(_discard, tensor)


def prefer_host(tensor):
    """The block that the tensor lies in should live on the host. Returns whether the hint was given."""
    address, _ = _range(tensor)
    if not _prefer_host:
        return False
    _call(_prefer_host, address)
    return True


def pin(tensor):
    """The block that the tensor lies in stays where it is until unpin() was called as often."""
    _call(_pin, _range(tensor)[0])


def unpin(tensor):
    """Undoes one pin()."""
    _call(_unpin, _range(tensor)[0])


def stats(device=0):
    """Returns what the heap of a device may take and what is in use of it, and the same of the host, in bytes."""
    values = [ctypes.c_uint64() for _ in range(4)]
    _call(_budget, device, *[ctypes.byref(value) for value in values])
    names = ("device_budget", "host_budget", "device_used", "host_used")
    return {name: value.value for name, value in zip(names, values)}
