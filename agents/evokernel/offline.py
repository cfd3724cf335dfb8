"""The offline kernel proposer: no model, a serious baseline.

It traces the operator, classifies it by what anchors its graph, and assembles kernels from the building blocks in
``kernels/blocks`` under one schedule after another, larger blocks first. Where it has no block for an operator it says
which one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orienteer.kernels.blocks.emit import MATMULS, ORDERED, REDUCTIONS, Unsupported
from orienteer.kernels.blocks.graph import Graph
from orienteer.kernels.blocks.lower import lower
from orienteer.kernels.blocks.module import assemble
from orienteer.kernels.blocks.schedule import Schedule

#: Schedules are tried in this order: each entry changes some parameters of the target's first one.
_STEPS: dict[str, tuple[dict[str, Any], ...]] = {
    "element": ({}, {"flat_block": 1024}, {"flat_block": 256}, {"flat_block": 64}),
    "reduction": (
        {},
        {"whole_row": 1, "row_block": 2048},
        {"whole_row": 1, "row_block": 1024},
        {"whole_row": 1, "row_block": 256},
    ),
    "scan": ({}, {"whole_row": 1, "row_block": 1024}, {"whole_row": 1, "row_block": 256}),
    "matmul": (
        {},
        {"tile_m": 128, "tile_n": 128, "tile_k": 64},
        {"tile_m": 32, "tile_n": 32, "tile_k": 32},
        {"tile_m": 16, "tile_n": 16, "tile_k": 16},
    ),
    "tile": ({}, {"tile_copy": 64}, {"tile_copy": 16}),
}


@dataclass(frozen=True)
class Draft:
    """A candidate as the offline proposer made it."""

    source: str
    family: str
    blocks: tuple[str, ...]
    schedule: Schedule


def first_schedule(target: str, vector_cores: int = 40) -> Schedule:
    """Return the schedule that suits a target.

    On Ascend an instance per core that loops over its work is the recommended launch; on a GPU many instances hide
    latency.
    """
    if target == "npu":
        return Schedule(flat_block=4096, whole_row=4096, row_block=2048, programs=vector_cores)
    return Schedule(flat_block=1024, whole_row=8192, row_block=4096, programs=65535)


def family(graph: Graph) -> str:
    """Classify an operator by what anchors its graph: matmul, scan, reduction, tile (a transposing copy) or element."""
    found = {node.op for node in graph.nodes.values()}
    if found & MATMULS:
        return "matmul"
    if found & ORDERED:
        return "scan"
    if found & REDUCTIONS:
        return "reduction"
    if found & {"aten.permute", "aten.transpose", "aten.t"}:
        return "tile"
    return "element"


def drafts(graph: Graph, task_name: str, task_source: str, schedule: Schedule) -> Iterator[Draft]:
    """Yield candidates under one schedule after another, each text once.

    Raises:
        Unsupported: there is no building block for an operator of the graph.
    """
    kind = family(graph)
    seen: set[str] = set()
    for change in _STEPS[kind]:
        current = replace(schedule, **change)
        plan = lower(graph, current, task_name)
        title = f"{task_name}: {', '.join(dict.fromkeys(plan.blocks))} (offline proposer)"
        source = assemble(graph, plan, current, task_source, title)
        if source not in seen:
            seen.add(source)
            yield Draft(source, kind, tuple(plan.blocks), current)


def draft(graph: Graph, task_name: str, task_source: str, schedule: Schedule, attempt: int) -> Draft | None:
    """Return the candidate of one attempt (from 0), or None when the schedules are exhausted.

    Raises:
        Unsupported: as :func:`drafts`.
    """
    for number, item in enumerate(drafts(graph, task_name, task_source, schedule)):
        if number == attempt:
            return item
    return None


__all__: Sequence[str] = ["Draft", "Unsupported", "draft", "drafts", "family", "first_schedule"]
