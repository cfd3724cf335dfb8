"""``agent bench runtime``: what the loop itself costs, measured in a fresh process.

Every figure is a plain dict: ``name``, ``value``, ``unit``, ``goal`` (the most it may be, or None), ``met``, ``how``.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orienteer.agents.runtime.method import Ask, Candidate, Evaluation, Method, Outcome, Plain, Proposal
from orienteer.errors import OrienteerError

#: A further measurement: returns one figure or several.
Measurement = Callable[[], "dict[str, Any] | Sequence[dict[str, Any]]"]

_MIB = 1 << 20


def figure(name: str, value: float | None, unit: str, goal: float | None, how: str) -> dict[str, Any]:
    """Return one figure; ``met`` is None where there is no value or no goal."""
    met = None if value is None or goal is None else value <= goal
    rounded = None if value is None else round(value, 4)
    return {"name": name, "value": rounded, "unit": unit, "goal": goal, "met": met, "how": how}


def bench(steps: int = 1000, extra: Sequence[Measurement] = ()) -> dict[str, Any]:
    """Measure the runtime.

    Args:
        steps: loop iterations of the measured run (one proposal and one evaluation each, everything recorded).
        extra: further measurements, run afterwards; one that fails is reported with its reason and no value.

    Returns:
        ``{"steps", "machine", "figures": [...], "met": bool}``; ``met`` is whether every figure
        with a goal was measured and met it.
    """
    figures = _loop(steps)
    figures.append(_help())
    unmeasured = False
    for measurement in extra:
        try:
            found = measurement()
        except OrienteerError as exc:
            figures.append(figure(getattr(measurement, "__name__", "extra"), None, "", None, f"not measured: {exc}"))
            unmeasured = True
            continue
        figures.extend([found] if isinstance(found, dict) else found)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "platform": platform.platform()}
    with_goal = [item for item in figures if item["goal"] is not None]
    return {
        "steps": steps,
        "machine": machine | {"load": [round(x, 2) for x in os.getloadavg()]},
        "figures": figures,
        "met": not unmeasured and all(item["met"] for item in with_goal),
    }


class Trivial(Method):
    """One new candidate and one score per step; nothing of its own costs anything."""

    name = "trivial"

    def plan(self, run: Any, state: Plain) -> Sequence[Ask]:
        """Ask for one candidate until the steps are done."""
        return [Ask(task="nothing", directive={"n": run.step})] if run.step < run.options["steps"] else []

    def propose(self, run: Any, ask: Ask) -> Proposal:
        """Give the number of the step, padded to the size of a small program."""
        return Proposal(content=f"# {ask.step}\n" + "x = 1\n" * 100, notes={"n": ask.step})

    def evaluate(self, run: Any, candidate: Candidate) -> Evaluation:
        """Give a score."""
        return Evaluation("ok", score=float(candidate.step), evidence="none", metrics={"length": 600})

    def learn(self, run: Any, state: Plain, outcomes: Sequence[Outcome]) -> Plain:
        """Measure now and then, count otherwise."""
        if run.step + 1 in run.options["marks"]:
            _MARKS.append((run.step + 1, time.process_time(), time.perf_counter(), _database_bytes(run)))
        return {"n": state.get("n", 0) + 1}


_MARKS: list[tuple[int, float, float, int]] = []


def _database_bytes(run: Any) -> int:
    """Return the size of run database and checkpoints as their pages, write-ahead logs included."""
    total = 0
    for path in (run.db.file, run.db.file.with_name("checkpoints.sqlite")):
        conn = sqlite3.connect(path)
        try:
            total += conn.execute("PRAGMA page_count").fetchone()[0] * conn.execute("PRAGMA page_size").fetchone()[0]
        finally:
            conn.close()
    return total


def _measured_run(folder: str, steps: int) -> dict[str, Any]:
    """Run in the child: the whole parent side of a run, with everything imported that a model run imports."""
    import openai  # noqa: F401

    from orienteer.agents.runtime.config import RunConfig
    from orienteer.agents.runtime.engine import start_run

    # The first steps fill caches and make tables grow out of their empty pages.
    marks = [max(1, steps // 20), steps // 2, steps]
    report = start_run(
        RunConfig(
            f"{__name__}:Trivial" if __name__ != "__main__" else "orienteer.agents.runtime.bench:Trivial",
            options={"steps": steps, "marks": marks},
            model="offline",
            workers=1,
            home=folder,
        )
    )
    from orienteer.agents.runtime import bench as module

    return {
        "status": report.status,
        "marks": module._MARKS,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "evaluations": report.counts["evaluations"],
    }


def _loop(steps: int) -> list[dict[str, Any]]:
    code = "import json,sys; from orienteer.agents.runtime.bench import _measured_run as m; "
    code += "json.dump(m(sys.argv[1], int(sys.argv[2])), sys.stdout)"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code, folder, str(steps)], capture_output=True, text=True, cwd=folder, check=False
        )
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines()[-1:] or ["no output"]
            raise OrienteerError(f"the measured run ended with status {done.returncode}", reason[0])
        stored = sum(path.stat().st_size for path in Path(folder, "artifacts").rglob("*.zst"))
        found = json.loads(done.stdout)
    first, middle, last = found["marks"]
    count = last[0] - first[0]
    early = (middle[3] - first[3]) / (middle[0] - first[0])
    late = (last[3] - middle[3]) / (last[0] - middle[0])
    per_1000 = (last[3] - first[3]) / count * 1000 / _MIB
    return [
        figure("cpu_per_step", (last[1] - first[1]) / count * 1e3, "ms", 5.0, "process CPU, sqlite checkpoints"),
        figure("wall_per_step", (last[2] - first[2]) / count * 1e3, "ms", None, "one proposal, one evaluation"),
        figure("database_per_1000_steps", per_1000, "MiB", 10.0, "run database and checkpoints, without artifacts"),
        figure(
            "database_growth_ratio", late / early if early else None, "", 1.25, "second half over first half of the run"
        ),
        figure("artifacts_per_1000_steps", stored / steps * 1000 / _MIB, "MiB", None, "compressed, as stored"),
        figure("peak_memory", found["peak_bytes"] / _MIB, "MiB", 400.0, "parent of a run, openai imported"),
    ]


def _help(times: int = 5) -> dict[str, Any]:
    """CPU of ``agent --help`` in a fresh process; the median of several."""
    script = Path(sys.executable).with_name("agent")
    if not script.exists():
        return figure("help_cpu", None, "s", 0.3, "not measured: there is no `agent` beside this Python")
    used = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([str(script), "--help"], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            return figure("help_cpu", None, "s", 0.3, "not measured: `agent --help` failed")
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return figure("help_cpu", sorted(used)[times // 2], "s", 0.3, f"median of {times} starts of `agent --help`")
