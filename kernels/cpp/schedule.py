"""Schedules of C++ kernels: the parameters that change a kernel's speed, never its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class CpuSchedule:
    """How a generated kernel walks over its work."""

    #: Most threads of a team; 0 takes as many as the caller allows.
    threads: int = 0
    #: Elements of a flat loop that a thread takes at a time.
    chunk: int = 4096
    #: Lanes that a vectorised loop is asked to work on together; 0 leaves it to the compiler.
    simdlen: int = 0
    #: Stores that go past the caches (1): right for outputs larger than they are.
    stream: int = 0
    #: What a pass over a row has computed is kept for the next one (1) rather than computed again (0).
    keep: int = 0
    #: Rows dealt out to a thread at a time; 0 gives every thread one run of neighbouring rows.
    rows: int = 0
    #: Columns walked together where the reduced dimension is not the last.
    columns: int = 64
    #: Edge of the square tile of a transposing copy.
    tile: int = 32
    #: Register tile of a matrix product: rows, and vectors of columns.
    mr: int = 6
    nv: int = 2
    #: Bytes of a vector in the register tile.
    vector: int = 32
    #: Rows and columns of a matrix product's block, and how much of the inner dimension is done at a time.
    tile_m: int = 96
    tile_n: int = 256
    tile_k: int = 256
    #: Which operand is walked by the register tile's rows: 0 as written, 1 the product transposed.
    swap: int = 0

    def describe(self) -> dict[str, Any]:
        """Return the parameters as plain data."""
        return asdict(self)


def from_mapping(values: Mapping[str, Any]) -> CpuSchedule:
    """Build a schedule from parameters by name; unknown ones are an error.

    Raises:
        ValueError: there is no parameter of a name, or a value is no whole number.
    """
    known = {item.name for item in fields(CpuSchedule)}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"no schedule parameter {name!r}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"the schedule parameter {name} must be a whole number, not {value!r}")
    return CpuSchedule(**values)
