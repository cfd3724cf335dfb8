"""What a kernel can be for: chips, how they are named, what their compilers and their runtimes allow."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TypeVar

from orienteer.errors import UsageError

_T = TypeVar("_T")


@dataclass(frozen=True)
class AscendChip:
    """An Ascend AI processor as the vendor's compiler names it (``--target``)."""

    name: str
    #: Cores as the compiler's own device table prints them.
    cube_cores: int
    vector_cores: int
    #: Uses the ``-a5`` compiler and the adapter's 910_95 mode.
    a5: bool = False


@dataclass(frozen=True)
class GpuArch:
    """A GPU architecture that Triton compiles for without a device."""

    name: str
    backend: str
    arch: int | str
    warp_size: int
    #: Shared memory that one block may use, bytes.
    shared_bytes: int


#: Largest product of the grid's sizes on Ascend.
ASCEND_MAX_GRID = 65535

CHIPS = {
    chip.name: chip
    for chip in (
        AscendChip("Ascend910B1", 24, 48),
        AscendChip("Ascend910B2", 24, 48),
        AscendChip("Ascend910B3", 20, 40),
        AscendChip("Ascend910B4", 20, 40),
        AscendChip("Ascend910_9382", 24, 48),
        AscendChip("Ascend950PR_9589", 32, 64, a5=True),
    )
}
ARCHS = {
    arch.name: arch
    for arch in (
        GpuArch("sm_80", "cuda", 80, 32, 163 * 1024),
        GpuArch("sm_90", "cuda", 90, 32, 227 * 1024),
        GpuArch("sm_100", "cuda", 100, 32, 227 * 1024),
        GpuArch("gfx942", "hip", "gfx942", 64, 64 * 1024),
    )
}
TARGETS = {
    "npu": "Triton kernels for Ascend NPUs, compiled to HIVM by the vendor's compiler",
    "triton": "Triton kernels for NVIDIA and AMD GPUs, compiled to cubin and hsaco",
    "cpu": "C++ with OpenMP for this machine's processor, compiled by its compiler and measured",
}


def chip(name: str) -> AscendChip:
    """Return a chip by name.

    Raises:
        UsageError: there is none of that name.
    """
    return _lookup(CHIPS, name, "chip")


def arch(name: str) -> GpuArch:
    """Return a GPU architecture by name.

    Raises:
        UsageError: there is none of that name.
    """
    return _lookup(ARCHS, name, "architecture")


def check_target(name: str) -> str:
    """Return the name of a target.

    Raises:
        UsageError: there is none of that name.
    """
    _lookup(TARGETS, name, "target")
    return name


def _lookup(table: dict[str, _T], name: str, what: str) -> _T:
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"unknown {what} {name!r}", f"{hint}there are: {', '.join(table)}")
    return table[name]
