"""Imported by a worker before its first job: lets torch look at the processor while it can still be seen.

Jobs have neither ``/proc/cpuinfo`` nor ``/sys``. The library with which torch chooses its kernels (for half precision
and for convolutions) reads both once, at first use, and fails where they are missing; what it found is inherited by
the jobs.
"""

from __future__ import annotations

import torch


def look_at_the_processor() -> None:
    """Use one operator of every family that asks for the processor's features."""
    torch.set_num_threads(1)
    with torch.no_grad():
        torch.ones(16).half().float()
        torch.ones(16).bfloat16().float()
        torch.nn.functional.conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 3, 3))
        torch.ones(2, 2) @ torch.ones(2, 2)


look_at_the_processor()
