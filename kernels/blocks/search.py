"""The search space of the offline proposer for Triton: which schedules a traced operator can be written under.

``first`` is the schedule that suits the target, ``fallbacks`` are safer ones for what a compiler rejected, and
``space`` holds the parameters that change this operator's program, each with its values in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from orienteer.kernels.blocks.emit import MATMULS, ORDERED, REDUCTIONS, SELECTIONS
from orienteer.kernels.blocks.graph import Graph
from orienteer.kernels.blocks.lower import lower
from orienteer.kernels.blocks.module import assemble
from orienteer.kernels.blocks.schedule import Schedule


@dataclass(frozen=True)
class Draft:
    """A candidate as an offline proposer wrote it."""

    source: str
    family: str
    #: Names of the building blocks, in launch order.
    blocks: tuple[str, ...]
    #: Parameter -> value: what made it.
    schedule: Mapping[str, Any]


#: One tile at a time, small blocks: what fits into every buffer.
_SMALL = {"row_tile": 1, "column_rows": 1, "line_tile": 1}
#: Safer schedules for what did not compile: each entry changes some parameters of the first one.
_FALLBACKS: dict[str, tuple[dict[str, Any], ...]] = {
    "element": ({**_SMALL, "flat_block": 1024}, {**_SMALL, "flat_block": 256}, {**_SMALL, "flat_block": 64}),
    "reduction": (
        {**_SMALL, "whole_row": 1, "row_block": 2048},
        {**_SMALL, "whole_row": 1, "row_block": 1024, "flat_block": 1024},
        {**_SMALL, "whole_row": 1, "row_block": 256, "flat_block": 256, "tile_m": 32, "tile_n": 32, "tile_k": 32},
        {**_SMALL, "whole_row": 1, "row_block": 64, "flat_block": 64, "tile_m": 16, "tile_n": 16, "tile_k": 16},
    ),
    "scan": (
        {**_SMALL, "whole_row": 1, "row_block": 1024},
        {**_SMALL, "whole_row": 1, "row_block": 256, "flat_block": 256},
    ),
    "matmul": (
        {**_SMALL, "tile_m": 64, "tile_n": 64, "tile_k": 32},
        {**_SMALL, "tile_m": 32, "tile_n": 32, "tile_k": 32, "flat_block": 1024, "row_block": 1024, "whole_row": 1},
        {**_SMALL, "tile_m": 16, "tile_n": 16, "tile_k": 16, "flat_block": 256, "row_block": 256, "whole_row": 1},
    ),
    "tile": ({"tile_copy": 64}, {"tile_copy": 16}, {**_SMALL, "tile_copy": 16, "flat_block": 256}),
}
_FALLBACKS["convolution"] = (
    {"tile_m": 32, "tile_n": 32, "tile_k": 32, "row_tile": 1, "line_tile": 1024},
    *_FALLBACKS["reduction"][1:],
    {**_SMALL, "direct_conv": 0, "tile_m": 32, "tile_n": 32, "tile_k": 32, "flat_block": 256, "row_block": 256},
)


def family(graph: Graph) -> str:
    """Classify an operator by what anchors its graph.

    One of convolution, matmul, scan, reduction, tile (a transposing copy) and element.
    """
    found = {node.op for node in graph.nodes.values()}
    if "aten.convolution" in found:
        return "convolution"
    if found & MATMULS:
        return "matmul"
    if found & ORDERED:
        return "scan"
    if found & (REDUCTIONS | SELECTIONS):
        return "reduction"
    if found & {"aten.permute", "aten.transpose", "aten.t"}:
        return "tile"
    return "element"


class TritonSearch:
    """The offline proposer for one target.

    Args:
        target: ``npu`` or ``triton``.
        vector_cores: of the Ascend chip. An instance per core that loops over its work is the recommended launch
            there; on a GPU many instances hide latency.
        plain: begin with the schedule of a textbook (one block of 256 elements per instance, rows in blocks, tiles of
            32) instead of the one that suits the target.
    """

    def __init__(self, target: str, vector_cores: int = 40, *, plain: bool = False) -> None:
        self.target = target
        self.cores = vector_cores
        if plain:
            self._first = Schedule(
                flat_block=256, whole_row=1, row_block=256, tile_m=32, tile_n=32, tile_k=32, tile_copy=16, programs=4096
            )
        elif target == "npu":
            self._first = Schedule(
                flat_block=4096,
                whole_row=4096,
                row_block=2048,
                row_tile=4096,
                column_rows=16,
                line_tile=4096,
                tile_m=128,
                tile_n=128,
                tile_k=64,
                two_steps=1,
                direct_conv=1,
                turn_tiles=1,
                programs=vector_cores,
            )
        else:
            self._first = Schedule(
                flat_block=1024, whole_row=8192, row_block=4096, two_steps=1, direct_conv=1, programs=65535
            )

    @staticmethod
    def family(graph: Graph) -> str:
        """Return the operator's class; see :func:`family`."""
        return family(graph)

    def first(self, graph: Graph) -> dict[str, Any]:
        """Return the schedule to begin with."""
        return self._first.describe()

    def fallbacks(self, graph: Graph) -> list[dict[str, Any]]:
        """Return safer schedules, for what the target's compiler rejected."""
        return [{**self.first(graph), **change} for change in _FALLBACKS[family(graph)]]

    def _values(self, graph: Graph) -> dict[str, list[Any]]:
        common: dict[str, list[Any]] = {
            "flat_block": [64, 256, 512, 1024, 2048, 4096, 8192, 16384],
            "row_block": [256, 512, 1024, 2048, 4096, 8192],
            "whole_row": [1, 1024, 2048, 4096, 8192, 16384],
            "row_tile": [1, 1024, 2048, 4096, 8192, 16384],
            "column_rows": [1, 4, 8, 16, 32],
            "line_tile": [1, 512, 1024, 2048, 4096, 8192],
            "store_statistics": [0, 1],
            "two_steps": [0, 1],
            "direct_conv": [0, 1],
            "turn_tiles": [0, 1],
            "split_k": [1, 2, 4, 8],
            "group_m": [1, 4, 8],
            "tile_m": [16, 32, 64, 128, 256],
            "tile_n": [16, 32, 64, 128, 256],
            "tile_k": [16, 32, 64, 128, 256],
            "tile_copy": [16, 32, 64, 128],
        }
        if self.target == "npu":
            common["programs"] = sorted({max(1, self.cores // 2), self.cores, 2 * self.cores, 8 * self.cores, 4096})
        else:
            common["programs"] = [132, 264, 1056, 4096, 65535]
            common["num_warps"] = [1, 2, 4, 8, 16]
            if MATMULS & {node.op for node in graph.nodes.values()}:
                common["num_stages"] = [1, 2, 3, 4, 5]
        return common

    def space(self, graph: Graph, task_name: str, task_source: str) -> dict[str, list[Any]]:
        """Return the parameters that change this operator's program, each with its values in order.

        Values that give the same text as another one are dropped, so that every step in the space is a new program.
        """
        # Some parameters matter only where a row is walked in blocks.
        starts = (self._first, replace(self._first, whole_row=1))
        out: dict[str, list[Any]] = {}
        for name, values in self._values(graph).items():
            kept = {getattr(self._first, name)}
            for start in starts:
                base = replace(start, **{name: getattr(self._first, name)})
                seen = {self._text(graph, task_name, task_source, base)}
                for value in values:
                    text = self._text(graph, task_name, task_source, replace(start, **{name: value}))
                    if text not in seen:
                        seen.add(text)
                        kept.add(value)
            if len(kept) > 1:
                out[name] = sorted(kept)
        return out

    @staticmethod
    def _text(graph: Graph, task_name: str, task_source: str, schedule: Schedule) -> str:
        return assemble(graph, lower(graph, schedule, task_name), schedule, task_source, task_name)

    def write(self, graph: Graph, task_name: str, task_source: str, schedule: Mapping[str, Any]) -> Draft:
        """Write the candidate of a schedule; parameters that it does not name have their first value.

        Raises:
            Unsupported: there is no building block for an operator of the graph.
        """
        known = {item.name for item in fields(Schedule)}
        current = replace(self._first, **{key: value for key, value in schedule.items() if key in known})
        plan = lower(graph, current, task_name)
        title = f"{task_name}: {', '.join(dict.fromkeys(plan.blocks))} (offline proposer)"
        source = assemble(graph, plan, current, task_source, title)
        return Draft(source, family(graph), tuple(plan.blocks), current.describe())


__all__: Sequence[str] = ["Draft", "TritonSearch", "family"]
