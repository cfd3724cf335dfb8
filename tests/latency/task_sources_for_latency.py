"""A task of a size that fills all cores, and a right kernel for it."""

from task_sources import GOOD

TASK = GOOD.replace("n = 300\n", "n = 300000\n")

DOUBLE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    for b in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        i = b * BLOCK + tl.arange(0, BLOCK)
        tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * 2.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        o = torch.empty(x.shape, device=x.device)
        if x.numel() > 0:
            double[(min(40, triton.cdiv(x.numel(), 1024)),)](x, o, x.numel(), BLOCK=1024)
        return o
"""
