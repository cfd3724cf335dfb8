"""The search space of the offline proposer for C++: which schedules a traced operator can be written under."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orienteer.kernels.blocks.graph import Graph
from orienteer.kernels.blocks.search import Draft, family
from orienteer.kernels.cpp.module import assemble, lower
from orienteer.kernels.cpp.schedule import CpuSchedule, from_mapping

#: Every parameter's values in order; those that do not change an operator's program are left out of its space.
VALUES: Mapping[str, tuple[int, ...]] = {
    "chunk": (512, 1024, 2048, 4096, 8192, 16384),
    "simdlen": (0, 16, 32, 64),
    "stream": (0, 1),
    "keep": (0, 1),
    "rows": (0, 1, 4, 16),
    "columns": (16, 32, 64, 128, 256, 512),
    "tile": (8, 16, 32, 64, 128),
    "mr": (2, 4, 6, 8, 10, 12, 14),
    "nv": (1, 2, 3, 4),
    "vector": (16, 32, 64),
    "tile_m": (48, 96, 112, 168, 252, 336),
    "tile_n": (64, 128, 256, 512, 1024),
    "tile_k": (128, 256, 512, 1024, 4096),
    "swap": (0, 1),
}


class CppSearch:
    """The offline proposer for the cpu target.

    Args:
        cores: most threads; default: the cores that this process may use.
    """

    def __init__(self, cores: int | None = None) -> None:
        self.cores = cores or len(os.sched_getaffinity(0))

    @staticmethod
    def family(graph: Graph) -> str:
        """Return the operator's class; see :func:`orienteer.kernels.blocks.search.family`."""
        return family(graph)

    def first(self, graph: Graph) -> dict[str, Any]:
        """Return the schedule to begin with: plain loops that any compiler vectorises, all threads."""
        return CpuSchedule().describe()

    def fallbacks(self, graph: Graph) -> list[dict[str, Any]]:
        """Return safer schedules, for what the compiler rejected or the clock found hanging."""
        return [{**self.first(graph), "vector": 16}, {**self.first(graph), "threads": 1}]

    def space(self, graph: Graph, task_name: str, task_source: str) -> dict[str, list[Any]]:
        """Return the parameters that change this operator's program, each with its values in order.

        Values that give the same text as another one are dropped, so that every step in the space is a new program.
        """
        base = CpuSchedule()
        # 0 stands last: as many threads as the caller allows.
        threads = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < self.cores]
        out: dict[str, list[Any]] = {}
        for name, values in {**VALUES, "threads": (*threads, 0)}.items():
            # The first schedule's own value is always there; another one of the same text is not.
            seen = {self._text(graph, task_name, base)}
            kept = []
            for value in values:
                own = value == getattr(base, name)
                text = self._text(graph, task_name, replace(base, **{name: value}))
                if own or text not in seen:
                    kept.append(value)
                seen.add(text)
            if len(kept) > 1:
                out[name] = kept
        return out

    @staticmethod
    def _text(graph: Graph, task_name: str, schedule: CpuSchedule) -> str:
        return assemble(graph, lower(graph, schedule, task_name), task_name)

    def write(self, graph: Graph, task_name: str, task_source: str, schedule: Mapping[str, Any]) -> Draft:
        """Write the candidate of a schedule; parameters that it does not name have their first value.

        Raises:
            Unsupported: there is no building block for an operator of the graph.
        """
        known = set(CpuSchedule().describe())
        current = from_mapping({key: value for key, value in schedule.items() if key in known})
        plan = lower(graph, current, task_name)
        title = f"{task_name}: {', '.join(dict.fromkeys(plan.blocks))} (offline proposer)"
        return Draft(assemble(graph, plan, title), family(graph), tuple(plan.blocks), current.describe())


__all__ = ["CppSearch", "Draft", "family"]
