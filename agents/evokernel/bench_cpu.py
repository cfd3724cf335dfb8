"""``agent bench evokernel-cpu``: what refining gains on this machine, and how its kernels compare with PyTorch.

The search picks the best of many noisy measurements, so what it saw while searching flatters it. First draft and best
kernel are therefore measured again afterwards, one right after the other, on fresh inputs.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orienteer.agents.evokernel import kits, results
from orienteer.agents.runtime.config import RunConfig
from orienteer.agents.runtime.engine import start_run
from orienteer.environments.kernel.tasks import find_tasks
from orienteer.environments.kernel.world import BadTask, KernelWorld
from orienteer.evaluators.kernel.verdict import Latency, quartiles

#: Measurements of each kernel after the search; the median of their ratios counts.
_AGAIN = 2


def measured(tasks: Sequence[str], iterations: int, seed: int, threads: int | None = None) -> dict[str, Any]:
    """Search on the cpu target and measure the outcome again.

    Args:
        tasks: as ``agent run --task``; none means all shipped ones.
        iterations: verifications per task (T).
        seed: of the run; the second measurement has inputs of another one.
        threads: of kernels and reference; None: every core.

    Returns:
        ``rows`` for people, ``tasks`` (name, ``over_draft``, ``over_reference``, ``status``) and ``summary``: median
        and quartiles of both ratios over the proven tasks.
    """
    with tempfile.TemporaryDirectory(prefix="orienteer-bench-") as folder:
        settings = {"iterations": iterations, "memory": "run", "threads": threads}
        config = RunConfig("evokernel", tuple(tasks), "cpu", settings, seed, "offline", workers=1, home=Path(folder))
        report = start_run(replace(config, handle_signals=False))
        found = _again(report.result["tasks"], tasks, seed + 1, Path(folder), threads)
    rows = [
        {
            "task": item["task"],
            "status": item["status"],
            "draft": results.seconds(item.get("draft_s")),
            "best": results.seconds(item.get("best_s")),
            "PyTorch": results.seconds(item.get("reference_s")),
            "x draft": results.times(item.get("over_draft")),
            "x PyTorch": results.times(item.get("over_reference")),
            "attempts": str(item["attempts"]),
        }
        for item in found
    ]
    summary = {
        name: summarise([item[key] for item in found if item.get(key) is not None])
        for name, key in (("best over first draft", "over_draft"), ("best over PyTorch eager", "over_reference"))
    }
    return {"iterations": iterations, "threads": threads, "rows": rows, "tasks": found, "summary": summary}


def _again(
    proven: Sequence[dict[str, Any]], specs: Sequence[str], seed: int, home: Path, threads: int | None
) -> list[dict[str, Any]]:
    sources = {task.name: task for task in find_tasks(specs)}
    world = KernelWorld.open("auto")
    found: list[dict[str, Any]] = []
    try:
        kit = kits.open_kit(kits.Request("cpu", "", (), 1, seed, threads=threads), world, home)
        for row in proven:
            item: dict[str, Any] = {"task": row["task"], "status": row["status"], "attempts": row["attempts"]}
            found.append(item)
            if row["status"] != "proven":
                continue
            best = Path(row["kernel"]).read_text(encoding="utf-8")
            draft = Path(row["draft_kernel"]).read_text(encoding="utf-8") if row["draft_kernel"] else best
            try:
                info = world.inspect(sources[row["task"]])
                hidden = kit.verifier.hidden_cases(info)
            except BadTask as error:
                item["status"] = str(error)
                continue
            pairs = []
            for _ in range(_AGAIN):
                first = kit.verifier.judge(info, hidden, draft).latency
                last = kit.verifier.judge(info, hidden, best).latency
                if first is not None and last is not None:
                    pairs.append((first, last))
            if pairs:
                item |= _compared(pairs, same=draft == best)
    finally:
        world.close()
    return found


def _compared(pairs: Sequence[tuple[Latency, Latency]], same: bool) -> dict[str, Any]:
    return {
        "draft_s": statistics.median(first.seconds for first, _ in pairs),
        "best_s": statistics.median(last.seconds for _, last in pairs),
        "reference_s": statistics.median(last.baseline_s or 0.0 for _, last in pairs),
        "over_draft": 1.0 if same else statistics.median(_speedup(last) / _speedup(first) for first, last in pairs),
        "over_reference": statistics.median(_speedup(last) for _, last in pairs),
    }


def _speedup(latency: Latency) -> float:
    return float(latency.facts["speedup"])


def summarise(values: Sequence[float]) -> dict[str, float]:
    """Return median, quartiles and number of values (quartiles by linear interpolation, the ends included)."""
    if not values:
        return {"median": float("nan"), "q1": float("nan"), "q3": float("nan"), "of": 0}
    first, middle, third = quartiles(values)
    return {"median": middle, "q1": first, "q3": third, "of": len(values)}
