# SPDX-License-Identifier: Apache-2.0
"""The module of tools/python: python_module_test.py FOLDER; first without the library (it runs itself again under it).

Everything is said of made-up tensors whose memory is real, on the simulated GPU.
"""
import ctypes
import os
import subprocess
import sys
import threading
import unittest

FOLDER = sys.argv.pop(1)
sys.path.insert(0, FOLDER)
import spillway

MIB = 1 << 20


class Torch:
    """As a tensor of PyTorch."""

    def __init__(self, address, nbytes, contiguous=True):
        self.nbytes, self.address, self.contiguous = nbytes, address, contiguous

    def data_ptr(self):
        return self.address

    def is_contiguous(self):
        return self.contiguous


class Array:
    """As an array of CuPy."""

    def __init__(self, address, shape, strides=None):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": shape, "typestr": "<f4", "strides": strides,
                                         "version": 3}


class Without(unittest.TestCase):
    def test_hints_do_nothing_and_the_rest_says_why(self):
        self.assertFalse(spillway.is_active())
        self.assertIsNone(spillway.version())
        self.assertFalse(spillway.discard((1 << 30, MIB)))
        self.assertFalse(spillway.born((1 << 30, MIB)))
        self.assertFalse(spillway.prefer_host(Torch(1 << 30, MIB)))
        for call in spillway.suspend, spillway.resume, spillway.stats, lambda: spillway.pin((1, 1)):
            with self.assertRaisesRegex(RuntimeError, "spillway run"):
                call()

    def test_what_is_no_tensor_is_refused_all_the_same(self):
        with self.assertRaises(TypeError):
            spillway.discard([1, 2])
        with self.assertRaises(ValueError):
            spillway.discard(Torch(1 << 30, MIB, contiguous=False))
        with self.assertRaises(ValueError):
            spillway.discard(Array(1 << 30, (2, 3), strides=(4, 16)))


class Under(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cuda = ctypes.CDLL("libcuda.so.1")
        cls.context = ctypes.c_void_p()
        assert cls.cuda.cuInit(0) == 0
        assert cls.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(cls.context), 0) == 0
        assert cls.cuda.cuCtxSetCurrent(cls.context) == 0

    def allocate(self, nbytes):
        address = ctypes.c_uint64()
        self.assertEqual(self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)), 0)
        self.addCleanup(self.cuda.cuMemFree_v2, address)
        return address.value

    def test_it_is_there(self):
        self.assertTrue(spillway.is_active())
        self.assertRegex(spillway.version(), r"^\d+\.\d+\.\d+$")

    def test_stats(self):
        before = spillway.stats()
        self.allocate(8 * MIB)
        after = spillway.stats()
        self.assertEqual(after["device_budget"], 64 * MIB)
        self.assertEqual(after["host_budget"], 128 * MIB)
        self.assertGreaterEqual(after["device_used"], before["device_used"] + 8 * MIB)
        self.assertEqual(spillway.stats(0), after)
        with self.assertRaises(OSError):
            spillway.stats(99)

    def test_hints_of_each_kind_of_tensor(self):
        block = self.allocate(8 * MIB)
        self.assertTrue(spillway.born(Torch(block, 4 * MIB)))
        self.assertFalse(spillway.born((block, 0)))
        with self.assertRaises(OSError):
            spillway.born((block + MIB, 8 * MIB))
        self.assertTrue(spillway.discard(Torch(block, 4 * MIB)))
        self.assertTrue(spillway.discard(Array(block, (256, 1024))))
        self.assertTrue(spillway.discard((block, 8 * MIB)))
        self.assertFalse(spillway.discard((block, 0)))
        with self.assertRaises(OSError):
            spillway.discard(Array(block, (3, MIB)))  # 12 MiB of 8
        self.assertTrue(spillway.prefer_host(Torch(block, MIB)))

    def test_pins_are_counted(self):
        block = self.allocate(8 * MIB)
        spillway.pin(Torch(block, MIB))
        spillway.unpin(Torch(block, MIB))
        with self.assertRaises(OSError):
            spillway.unpin(Torch(block, MIB))

    def test_suspended_work_waits_and_goes_on(self):
        block = self.allocate(8 * MIB)
        spillway.suspend()
        results = []

        def work():
            results.append(self.cuda.cuCtxSetCurrent(self.context))
            results.append(self.cuda.cuMemsetD8_v2(ctypes.c_uint64(block), 1, ctypes.c_size_t(MIB)))

        thread = threading.Thread(target=work)
        thread.start()
        self.assertLess(len(results), 2)
        spillway.resume()
        thread.join(60)
        self.assertEqual(results, [0, 0])


if __name__ == "__main__":
    if not spillway.is_active() and "TEST_PRELOAD" in os.environ:
        status = subprocess.run([sys.executable, __file__, FOLDER, "Under"],
                                env={**os.environ, "LD_PRELOAD": os.environ["TEST_PRELOAD"]}).returncode
        if status:
            sys.exit(status)
    unittest.main(defaultTest="Under" if spillway.is_active() else "Without")
