"""What stands behind ``agent bench``: the runtime's own figures together with those of the sandboxes below it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orienteer.agents.runtime.bench import bench, figure
from orienteer.errors import MissingPrerequisite, OrienteerError


def runtime_figures(steps: int = 1000) -> dict[str, Any]:
    """Measure loop, start-up, memory and the start of a candidate in a warm worker; see ``agents/runtime/bench.py``."""
    return bench(steps, extra=(worker_start,))


def worker_start() -> list[dict[str, Any]]:
    """Measure a candidate's start in a worker that holds torch and triton, and the worker's memory.

    Raises:
        MissingPrerequisite: torch and triton, or a sandbox, are missing.
        OrienteerError: a job of the measurement failed.
    """
    import importlib.util

    from orienteer.environments.execution.bench import measure_worker_start

    if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
        raise MissingPrerequisite("torch and triton are not installed", "pip install 'orienteer[npu]'")
    try:
        found = measure_worker_start("auto")
    except RuntimeError as error:
        raise OrienteerError(str(error), "see `agent doctor`") from error
    how = f"{found['rounds']} empty jobs in a {found['backend']} worker with torch and triton ({found['isolation']})"
    return [
        figure("candidate_start_cpu", found["job_cpu_ms"], "ms", 50, how),
        figure(
            "candidate_start_wall", found["job_wall_ms"]["median"], "ms", 50, f"median; {how}, load {found['load']}"
        ),
        figure("worker_memory", found["worker_mb"], "MiB", 1500, "right after its start"),
    ]


def ladder_figures(chip: str, home: Path) -> list[dict[str, Any]]:
    """Compile the ladder of known-better kernels and compare what the latency model says; see its docstring.

    Raises:
        MissingPrerequisite: the Ascend compiler is not installed.
    """
    from orienteer.environments.kernel import targets, toolchain
    from orienteer.environments.kernel.world import KernelWorld
    from orienteer.evaluators.kernel.latency.ladder import ladder

    wanted = targets.chip(chip)
    found = toolchain.require(home)
    world = KernelWorld.open("auto")
    try:
        return ladder(wanted, world, found)
    finally:
        world.close()


def throughput_figures(tasks: Sequence[str], home: Path) -> dict[str, Any]:
    """Measure verifications a second and core for the Ascend target; see ``evaluators/kernel/bench.py``."""
    from orienteer.evaluators.kernel.bench import throughput

    return throughput(tasks, "npu", home)


def coverage_figures(tasks: Sequence[str], target: str, workers: int, home: Path) -> dict[str, Any]:
    """Measure which operators the offline proposer proves; see ``evaluators/kernel/coverage.py``."""
    from orienteer.evaluators.kernel.coverage import coverage

    return coverage(tasks, target, workers, home)
