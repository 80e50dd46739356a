# SPDX-License-Identifier: Apache-2.0
"""PyTorch without its caching allocator: every tensor is a block of Spillway's heap. `spillway run -- python torch_plug.py`"""
import os
import re

import torch

library = next(p for p in re.split("[: ]", os.environ["LD_PRELOAD"]) if p.endswith("libspillway.so"))
plug = torch.cuda.memory.CUDAPluggableAllocator(library, "spillway_torch_alloc", "spillway_torch_free")
torch.cuda.memory.change_current_allocator(plug)
a = torch.ones(4096, 4096, device="cuda")
print("sum", (a @ a).sum().item())
