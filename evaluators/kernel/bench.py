"""How many candidates a second and core the verifier judges: static check, E1 and E0 with warm workers.

The candidates are the first drafts of the offline proposer. What counts is processor time of everything that a
verdict needs (this process, the jobs in the workers, the compilers), so that a busy machine changes little. Inspecting
a task, tracing it and computing its reference are done once a task, not once a candidate, and are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orienteer.environments.kernel import targets, toolchain
from orienteer.environments.kernel.jobs import MachineryFault
from orienteer.environments.kernel.tasks import KernelTask, find_tasks, shipped_folder
from orienteer.environments.kernel.world import BadTask, KernelWorld
from orienteer.evaluators.kernel.gates import KernelVerifier
from orienteer.kernels.blocks.lower import Unsupported
from orienteer.kernels.blocks.search import TritonSearch

#: Candidates a second and core.
GOAL = 2.0


class _Meter:
    """Adds up the processor seconds of what passes through a pool or a sandbox."""

    def __init__(self, inner: Any, spent: dict[str, float], name: str) -> None:
        self._inner, self._spent, self._name = inner, spent, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _counted(self, result: Any) -> Any:
        self._spent[self._name] = self._spent.get(self._name, 0.0) + result.cpu_s
        return result

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._counted(self._inner.run(*args, **kwargs))

    def exec(self, *args: Any, **kwargs: Any) -> Any:
        return self._counted(self._inner.exec(*args, **kwargs))


class _MeteredWorld(KernelWorld):
    """A world that knows what its jobs and programs cost."""

    def __init__(self, sandbox: Any, **options: Any) -> None:
        self.spent: dict[str, float] = {}
        super().__init__(_Meter(sandbox, self.spent, "compilers"), **options)

    def _pool(self, kind: str) -> Any:
        return _Meter(super()._pool(kind), self.spent, kind)


def throughput(tasks: Sequence[str], target: str, home: Path) -> dict[str, Any]:
    """Judge the offline proposer's first draft of each task and add up the processor time.

    Args:
        tasks: names or files; empty for all that are shipped.
        target: ``npu`` or ``triton`` (sm_90).
        home: where the Ascend compiler is installed.

    Returns:
        ``candidates``, ``cpu_s``, ``per_second`` (candidates a second and core), ``goal``, ``met``, ``parts`` (seconds
        by part) and ``rows`` (a text for each task: verdict and milliseconds).

    Raises:
        MissingPrerequisite: the Ascend compiler, or a sandbox, is missing.
    """
    chosen = find_tasks(tasks or [str(shipped_folder())])
    world = _MeteredWorld.open("auto")
    assert isinstance(world, _MeteredWorld)
    try:
        verifier = standard_verifier(world, target, home)
        world.warm()
        search = TritonSearch(target, verifier.chip.vector_cores if verifier.chip is not None else 0)
        rows, parts, judged, spent = [], dict[str, float](), 0, 0.0
        for task in chosen:
            row, used = _one(world, verifier, search, task)
            rows.append(row)
            for name, seconds in used.items():
                parts[name] = parts.get(name, 0.0) + seconds
            judged += bool(used)
            spent += sum(used.values())
    finally:
        world.close()
    rate = judged / spent if spent else 0.0
    return {
        "candidates": judged,
        "cpu_s": spent,
        "per_second": rate,
        "goal": GOAL,
        "met": judged > 0 and rate >= GOAL,
        "parts": {name: round(seconds, 3) for name, seconds in parts.items()},
        "rows": rows,
    }


def standard_verifier(world: KernelWorld, target: str, home: Path) -> KernelVerifier:
    """Return the verifier that benchmarks judge with: the default chip for ``npu``, sm_90 for ``triton``.

    Raises:
        MissingPrerequisite: the Ascend compiler is not installed.
    """
    if target == "triton":
        return KernelVerifier(world, archs=[targets.arch("sm_90")])
    return KernelVerifier(world, chip=targets.chip("Ascend910B3"), toolchain=toolchain.require(home))


def _one(
    world: _MeteredWorld, verifier: KernelVerifier, search: TritonSearch, task: KernelTask
) -> tuple[dict[str, str], dict[str, float]]:
    """Judge one first draft; returns its row and the processor seconds by part, empty where none was judged."""
    try:
        info = world.inspect(task)
        graph = world.trace(info)
        if isinstance(graph, str):
            raise Unsupported(graph)
        source = search.write(graph, task.name, task.source, search.first(graph)).source
        hidden = verifier.hidden_cases(info)
        verifier.prepare(info)
    except (BadTask, Unsupported) as error:
        return {"task": task.name, "verdict": "none", "ms": "-", "run ms": "-", "why": str(error)[:80]}, {}
    world.spent.clear()
    began = time.process_time()
    try:
        verdict = verifier.judge(info, hidden, source)
    except MachineryFault as error:
        return {"task": task.name, "verdict": "ours", "ms": "-", "run ms": "-", "why": str(error)[:80]}, {}
    used = {"verifier": time.process_time() - began, **world.spent}
    failed = verdict.failed
    return {
        "task": task.name,
        "verdict": failed.kind if failed is not None else verdict.evidence,
        "ms": f"{1e3 * sum(used.values()):.0f}",
        "run ms": f"{1e3 * used.get('interpreter', 0.0):.0f}",
        "why": failed.detail[:80] if failed is not None else "",
    }, used
