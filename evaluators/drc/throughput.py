"""How fast decks run: the same pairs of deck and layout through every backend, with identical results or none at all.

Processor time counts everything: the caller, servers, their children, and for ``strmrun`` the sandbox's own processes.
For the process per run only the program is counted, so the ratio to it is, if anything, too small.
"""

from __future__ import annotations

import resource
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orienteer.environments.layout.results import DeckResult
from orienteer.environments.layout.runner import DeckRunner, open_runner
from orienteer.environments.layout.tasks import RuleTask
from orienteer.errors import MissingPrerequisite, UsageError

#: Pairs for the backend that starts a process for each.
SAMPLE = 12
#: Goals, runs per processor second.
GOALS = {"strmrun": 200.0, "py": 1000.0}


@dataclass(frozen=True)
class _Way:
    name: str
    backend: str
    isolate: str
    sample: int | None = None


_WAYS = (
    _Way("process per run", "klayout", "run", SAMPLE),
    _Way("strmrun, fork per deck", "strmrun", "deck"),
    _Way("strmrun, fork per run", "strmrun", "run"),
    _Way("py", "py", "deck"),
)


def measure(
    tasks: Sequence[RuleTask],
    home: Path,
    *,
    sample: int = SAMPLE,
    large_mb: int = 0,
    sandbox: str = "auto",
    allow_unsafe: bool = False,
) -> dict[str, Any]:
    """Run the gold deck of every task on its labelled layouts by every backend and return the figures.

    Args:
        tasks: with a gold deck and labelled layouts each.
        home: Orienteer's folder.
        sample: pairs for the process per run, which takes seconds for each; spread evenly over all.
        large_mb: also check a generated layout of this size, MiB; 0 for none.
        sandbox: as for :func:`open_runner`.
        allow_unsafe: as for :func:`open_runner`.

    Returns:
        ``pairs``; ``rows``, one per way: name, runs, cpu_s, wall_s, runs_per_cpu_s, runs_per_wall_s, start_cpu_s (what
        the first run alone takes, imports included), peak_mb, wrong (pairs whose verdict is not the label), differing
        (pairs whose counts are not those of ``strmrun``), failed (pairs without a result), ratio (runs per processor
        second over those of the process per run), goal, why (where the way does not work here); ``large`` likewise.

    Raises:
        UsageError: no task has a gold deck and layouts.
    """
    work = [task for task in tasks if task.gold is not None and task.layouts]
    if not work:
        raise UsageError("no task has a gold deck and layouts", "name a folder in Rule2DRC's layout, like drc_bench")
    pairs = [(task, place) for task in work for place in range(len(task.layouts))]
    rows: list[dict[str, Any]] = []
    found: dict[str, Results] = {}
    for way in _WAYS:
        size = min(sample, len(pairs)) if way.sample is not None else len(pairs)
        chosen = [pairs[index * len(pairs) // size] for index in range(size)]

        def opened(way: _Way = way) -> DeckRunner:
            return open_runner(
                way.backend, sandbox=sandbox, allow_unsafe=allow_unsafe, home=home, cache=False,
                isolate="run" if way.isolate == "run" else "deck",
            )  # fmt: skip

        try:
            row, results = _measured(opened, chosen)
        except MissingPrerequisite as error:
            rows.append({"name": way.name, "backend": way.backend, "why": str(error)})
            continue
        rows.append({"name": way.name, "backend": way.backend, "goal": GOALS.get(way.name.split(",")[0]), **row})
        found[way.name] = results
    rows[2].pop("goal", None)  # the goal is for the default
    reference = found.get("strmrun, fork per deck") or found.get("py") or {}
    base = next((row["runs_per_cpu_s"] for row in rows if row["backend"] == "klayout" and "cpu_s" in row), None)
    for row in rows:
        if row["name"] not in found:
            continue
        results = found[row["name"]]
        row["differing"] = sum(
            key in reference and not _same(result, reference[key]) for key, result in results.items()
        )
        row["ratio"] = row["runs_per_cpu_s"] / base if base else None
    document: dict[str, Any] = {"pairs": len(pairs), "decks": len(work), "rows": rows}
    if large_mb:
        document["large"] = measure_large(large_mb, home, sandbox=sandbox, allow_unsafe=allow_unsafe)
    return document


Pair = tuple[RuleTask, int]
Results = dict[tuple[str, int], DeckResult]


def _measured(opened: Callable[[], DeckRunner], pairs: Sequence[Pair]) -> tuple[dict[str, Any], Results]:
    first, _, _, _ = _pass(opened, pairs[:1])
    cpu, wall, results, peak = _pass(opened, pairs)
    labels = {(task.id, place): task.layouts[place].labels for task, place in pairs}
    wrong = sum(
        result.ok and any(bool(result.flagged(name)) != truth for name, truth in labels[key].items())
        for key, result in results.items()
    )
    row = {
        "runs": len(pairs),
        "cpu_s": cpu,
        "wall_s": wall,
        "runs_per_cpu_s": len(pairs) / cpu,
        "runs_per_wall_s": len(pairs) / wall,
        "start_cpu_s": first,
        "peak_mb": peak,
        "wrong": wrong,
        "failed": sum(not result.ok for result in results.values()),
    }
    return row, results


def _pass(opened: Callable[[], DeckRunner], pairs: Sequence[Pair]) -> tuple[float, float, Results, float | None]:
    """Run the pairs by a fresh runner; its start and its end are in the figures."""
    before, began = _cpu_s(), time.monotonic()
    results: Results = {}
    runner = opened()
    try:
        for task in dict.fromkeys(task.id for task, _ in pairs):
            places = [place for other, place in pairs if other.id == task]
            whole = next(other for other, _ in pairs if other.id == task)
            assert whole.gold is not None
            deck = whole.gold.read_text(encoding="utf-8")
            for place, result in zip(places, runner.run(deck, [whole.layouts[p].path for p in places]), strict=True):
                results[task, place] = result
        peak = runner.peak_mb() if hasattr(runner, "peak_mb") else None
    finally:
        runner.close()
    wall = time.monotonic() - began
    cpu = _cpu_s() - before + float(getattr(runner, "servers_cpu_s", 0.0))
    if runner.name == "klayout":
        cpu += sum(result.cpu_s for result in results.values())
    return cpu, wall, results, peak


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _same(one: DeckResult, other: DeckResult) -> bool:
    return (one.status, dict(one.counts)) == (other.status, dict(other.counts))


# -- a large layout ---------------------------------------------------------------------------------------------------

_LAYERS = 8
#: Decks that read different layers and do different things, none of which finds nothing to do.
_LARGE_DECKS = tuple(
    f'source($input)\nreport("large", $output)\na = input({layer}, 0)\n{check}.output("L{layer}")\n'
    for layer, check in enumerate(
        ("a.width(0.05.um)", "a.space(0.06.um)", "a.with_area(nil, 0.02.um2)", "a.and(input(2, 0)).width(0.04.um)"), 1
    )
)


def measure_large(
    size_mb: int, home: Path, *, sandbox: str = "auto", allow_unsafe: bool = False, folder: Path | None = None
) -> dict[str, Any]:
    """Check a generated layout by several decks; size_mb, loads, peak_mb, ratio (peak over size), cpu_s, wall_s, runs.

    The goal: loaded once for all decks, and at the peak at most six times its size in memory.
    """
    import tempfile

    with tempfile.TemporaryDirectory(prefix="orienteer-large-", dir=folder) as made:
        path = Path(made) / "large.gds"
        write_large(path, size_mb)
        size = path.stat().st_size / 2**20
        before, began = _cpu_s(), time.monotonic()
        runner = open_runner(
            "strmrun", sandbox=sandbox, allow_unsafe=allow_unsafe, home=home, cache=False, timeout_s=600
        )
        try:
            results = [runner.run(deck, [path])[0] for deck in _LARGE_DECKS]
            peak = runner.peak_mb() if hasattr(runner, "peak_mb") else None
            loads = int(getattr(runner, "loads", 0))
        finally:
            runner.close()
        cpu = _cpu_s() - before + float(getattr(runner, "servers_cpu_s", 0.0))
    return {
        "size_mb": size,
        "loads": loads,
        "peak_mb": peak,
        "ratio": peak / size if peak else None,
        "goal_ratio": 6.0,
        "cpu_s": cpu,
        "wall_s": time.monotonic() - began,
        "runs": [
            {"status": str(result.status), "violations": sum(result.counts.values()), "message": result.message}
            for result in results
        ],
    }


def write_large(path: Path, size_mb: int) -> None:
    """Write a GDS of about this size, always the same: L-shaped polygons on eight layers in changing forms."""
    import numpy as np

    record = np.dtype([("head", "S20"), ("points", ">i4", (7, 2)), ("end", "S4")])
    count = (size_mb << 20) // record.itemsize
    columns = int(count**0.5) + 1
    real = {1e-3: bytes.fromhex("3e4189374bc6a7f0"), 1e-9: bytes.fromhex("3944b82fa09b5a54")}

    def say(kind: int, data: bytes = b"") -> bytes:
        return struct.pack(">HH", len(data) + 4, kind) + data

    with path.open("wb") as file:
        file.write(say(0x0002, struct.pack(">h", 600)) + say(0x0102, bytes(24)) + say(0x0206, b"LARGE\0"))
        file.write(say(0x0305, real[1e-3] + real[1e-9]) + say(0x0502, bytes(24)) + say(0x0606, b"TOP\0"))
        for start in range(0, count, 1 << 17):
            number = np.arange(start, min(start + (1 << 17), count))
            x, y = (number % columns) * 400, (number // columns) * 400
            wide, high = 100 + number * 7 % 193, 100 + number * 13 % 211
            arm = 40 + number * 3 % 37
            corners: list[tuple[Any, Any]] = [
                (0, 0),
                (0, high),
                (arm, high),
                (arm, arm),
                (wide, arm),
                (wide, 0),
                (0, 0),
            ]
            block = np.zeros(len(number), record)
            for place, (dx, dy) in enumerate(corners):
                block["points"][:, place, 0], block["points"][:, place, 1] = x + dx, y + dy
            heads = [
                say(0x0800)
                + say(0x0D02, struct.pack(">h", layer))
                + say(0x0E02, bytes(2))
                + struct.pack(">HH", 60, 0x1003)
                for layer in range(1, _LAYERS + 1)
            ]
            raw = block.view(np.uint8).reshape(len(number), record.itemsize)
            raw[:, :20] = np.array([list(head) for head in heads], np.uint8)[number % _LAYERS]
            raw[:, -4:] = np.frombuffer(say(0x1100), np.uint8)
            file.write(raw.tobytes())
        file.write(say(0x0700) + say(0x0400))
