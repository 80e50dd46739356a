# SPDX-License-Identifier: Apache-2.0
"""kernel_start.py NAME: starts the kernel of that name as Jupyter does, lets it allocate more than the simulated GPU has, and
prints what came of it. Needs jupyter_client and ipykernel."""
import sys

from jupyter_client.manager import start_new_kernel

CODE = """
import ctypes, os
cuda = ctypes.CDLL("libcudart.so.13")
block = ctypes.c_void_p()
errors = [cuda.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(16 << 20)) for _ in range(12)]
print("preloaded", "libspillway" in os.environ["LD_PRELOAD"], "errors", sum(errors), "parent is Jupyter", os.getppid() == %d)
"""
manager, client = start_new_kernel(startup_timeout=60, kernel_name=sys.argv[1])
try:
    import os
    reply = client.execute_interactive(CODE % os.getpid(), timeout=60)
    sys.exit(reply["content"]["status"] != "ok")
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
