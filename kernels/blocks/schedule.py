"""Schedules: the parameters of a generated kernel that change its speed and its footprint, never its result."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Schedule:
    """Tile sizes and launch shape. All blocks are powers of two, as Triton demands."""

    #: Elements per turn of a flat elementwise loop.
    flat_block: int = 1024
    #: Elements of a row held at once where the loop over a row is blocked.
    row_block: int = 1024
    #: Rows no longer than this (rounded up to a power of two) are held whole, without a loop.
    whole_row: int = 4096
    #: Elements of a tile of several short rows that are reduced together; 1 takes row by row.
    row_tile: int = 1
    #: Rows that are walked together where a reduction runs down columns; 1 takes row by row.
    column_rows: int = 1
    #: Elements of a tile of several short lines of a picture; 1 takes line by line.
    line_tile: int = 1
    #: 1 stores the results of reductions and applies them in a kernel of their own, 0 does both in one kernel.
    store_statistics: int = 0
    #: 1 reduces everything to one number in two kernels, the first of them on all cores.
    two_steps: int = 0
    #: 1 reads a transposed operand of a matrix product along its memory and turns the tile, 0 reads it element-wise.
    turn_tiles: int = 1
    #: Parts into which the inner dimension of a matrix product is cut; their sums are added by a second kernel.
    split_k: int = 1
    #: Rows of output tiles that are walked together, so that they share what the cache holds.
    group_m: int = 1
    #: 1 adds up a convolution tap by tap over shifted pictures, 0 gathers patches for one matrix product.
    direct_conv: int = 0
    #: Output tile and reduction step of a matrix product.
    tile_m: int = 64
    tile_n: int = 64
    tile_k: int = 32
    #: Edge of the square tile of a transposing copy.
    tile_copy: int = 32
    #: Most program instances of a launch; each takes several pieces of work in turn. Ascend limits the product of the
    #: grid to 65,535 and runs best with one instance a core.
    programs: int = 4096
    #: Options of a GPU launch: warps of an instance, and stages of a pipelined loop.
    num_warps: int = 4
    num_stages: int = 3

    @property
    def options(self) -> dict[str, int]:
        """Return the launch options that differ from Triton's own defaults."""
        given = {"num_warps": (self.num_warps, 4), "num_stages": (self.num_stages, 3)}
        return {name: value for name, (value, default) in given.items() if value != default}

    def describe(self) -> dict[str, Any]:
        """Return the parameters as plain data."""
        return asdict(self)
