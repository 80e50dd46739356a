# SPDX-License-Identifier: Apache-2.0
"""One rank of a GPT job of several: python share_rank.py WIDTH LAYERS BATCH STEPS [WORD...] runs gpt.py, which knows nothing of
it, with the variables that torchrun sets. Each rank has weights and data of its own. No rank goes on alone, and the losses of
each depend on all: in every step the ranks add up gradients. All are on one GPU, and add up those of biases and norms by the
CPU; with the word "nccl" each has a GPU of its own, and they add up all of them by NCCL."""
import os
import runpy
import sys

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

nccl = "nccl" in sys.argv[5:]
if nccl:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if nccl else "gloo")
manual_seed = torch.manual_seed
torch.manual_seed = lambda seed: manual_seed(seed + dist.get_rank())


def add_up(optimizer, *_):
    """By the CPU it is less than a megabyte, so that the GPU has nothing to do for some milliseconds only."""
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if nccl or p.dim() == 1]
    if nccl:
        for grad in grads:
            dist.all_reduce(grad)
        return
    total = torch.cat([grad.flatten() for grad in grads]).cpu()
    dist.all_reduce(total)
    for grad, part in zip(grads, total.cuda().split([grad.numel() for grad in grads])):
        grad.copy_(part.view_as(grad))


register_optimizer_step_pre_hook(add_up)
job = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt.py")
sys.argv[0] = job
runpy.run_path(job, run_name="__main__")
dist.destroy_process_group()
