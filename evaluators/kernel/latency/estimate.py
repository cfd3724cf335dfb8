"""From a compiled candidate to its latency: the model of the target with the task's floor."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orienteer.environments.kernel.targets import AscendChip, GpuArch
from orienteer.environments.kernel.world import KernelWorld, TaskInfo
from orienteer.evaluators.kernel.latency import gpu, npu
from orienteer.evaluators.kernel.latency.roofline import Floor, floor
from orienteer.evaluators.kernel.verdict import Latency


class LatencyModels:
    """Models candidates of many tasks; a task's floor is computed once.

    Args:
        world: where operators are traced.
    """

    def __init__(self, world: KernelWorld) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._floors: dict[str, Floor] = {}

    def floor(self, info: TaskInfo) -> Floor:
        """Return the least work of a task."""
        with self._lock:
            known = self._floors.get(info.task.sha)
            if known is None:
                graph = self._world.trace(info)
                known = floor(info, None if isinstance(graph, str) else graph)
                self._floors[info.task.sha] = known
            return known

    def ascend(
        self, info: TaskInfo, kernels: Sequence[Mapping[str, Any]], modules: Sequence[str], chip: AscendChip
    ) -> tuple[Latency | None, str]:
        """Model launches on an Ascend chip; returns the latency, or None with the reason."""
        return npu.model(kernels, modules, chip, self.floor(info))

    def gpu(
        self, info: TaskInfo, kernels: Sequence[Mapping[str, Any]], archs: Sequence[GpuArch]
    ) -> tuple[Latency | None, str]:
        """Estimate launches on a GPU: the first architecture counts, the others are facts of it.

        Returns:
            The latency, or None with the reason.
        """
        found, reason = gpu.estimate(kernels, archs[0], self.floor(info))
        if found is None:
            return None, reason
        others = {}
        for arch in archs[1:]:
            other, _ = gpu.estimate(kernels, arch, self.floor(info))
            if other is not None:
                others[arch.name] = {"seconds": other.seconds, "bottleneck": other.bottleneck, "floor_s": other.floor_s}
        return replace(found, facts={**found.facts, "others": others}), ""
