"""Imported by a compiling worker before its first job: pays once for what torch loads at the first trace.

A first use of shape-only tensors and of tracing imports some hundred modules and builds tables, about a second of
processor time; a job that starts from a process which has done it inherits all of that.
"""

from __future__ import annotations

import sys
import warnings

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from orienteer.environments.execution.results import Message
from orienteer.environments.kernel import compile_job, task_job, trace_job

_TASK = """
import torch
import torch.nn as nn

rows = 64
cols = 32


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return torch.softmax(self.norm(x), dim=-1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]
"""
_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        copy_kernel[(1,)](x, out, x.numel(), BLOCK=16)
        return out
"""


def rehearse() -> None:
    """Inspect, trace and lower a small operator of our own, and throw the results away."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = task_job.inspect_task(Message({"source": _TASK})).header
        task_job.reference_cases(
            Message({"cases": [{"source": _TASK, "seed": 0, "distribution": "given", "calls": 1}]})
        )
        trace_job.trace_task(
            Message(
                {
                    "cases": [_TASK],
                    "true_inputs": found["inputs"],
                    "true_state": {item["name"]: item for item in found["state"]},
                    "true_outputs": found["outputs"],
                }
            )
        )
        header = {"source": _KERNEL, "init": [[], {}], "inputs": found["inputs"], "arch": ["cuda", 90, 32]}
        kept = JITFunction.run, Autotuner.run
        compile_job.lower_launches(Message(header))
        # The jobs put their own recorders there.
        JITFunction.run, Autotuner.run = kept
        for name in ("task", "candidate"):
            sys.modules.pop(name, None)


rehearse()
