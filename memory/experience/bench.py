"""How long the memory takes to answer: ``measure_retrieval`` builds a large store and asks it.

Vectors are synthetic (random clusters), so that building takes no embedder; everything else is the real store.
"""

from __future__ import annotations

import random
import resource
import statistics
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orienteer.memory.experience import search
from orienteer.memory.experience.items import NewItem, Query
from orienteer.memory.experience.store import ExperienceStore
from orienteer.memory.rundb import RunDB

#: A question may take so much processor time at most, the median after warm-up (milliseconds).
GOAL_MS = 50.0
_CLUSTERS = 300
_TASKS = 200
_PART = 2_000


class Clusters:
    """Texts of the form ``cluster:number`` as points near the cluster's centre."""

    name = "clusters"

    def __init__(self, size: int = 384) -> None:
        self.size = size
        self._centres = np.random.default_rng(0).standard_normal((_CLUSTERS, size)).astype(np.float32)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return one row of length 1 per text: float32, shape (texts, size)."""
        out = np.empty((len(texts), self.size), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            noise = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(self.size)
            row[:] = self._centres[int(text.split(":")[0]) % _CLUSTERS] + 0.7 * noise
        out /= np.linalg.norm(out, axis=1, keepdims=True)
        return out


def _items(first: int, end: int) -> list[NewItem]:
    kinds = ("experience", "trace", "trace", "practice")
    return [
        NewItem(
            kind=kinds[i % 4],
            text=f"{i % _CLUSTERS}:{i}",
            outcome=("success", "failure")[i % 2],
            task=f"task-{i % _TASKS}",
            target=("npu", "triton", "cpu")[(i // _CLUSTERS) % 3],
            # A cluster is of one bottleneck: two questions in three are for what lies elsewhere than they do.
            bottleneck=("vector", "mte2", "cube")[i % 3],
        )
        for i in range(first, end)
    ]


#: What runs ask, by name: filters that leave nearly all, a third, half, one task in 200; one that contradicts the text.
QUERIES: dict[str, dict[str, Any]] = {
    "all": {},
    "target": {"target": "npu"},
    "outcome": {"outcomes": ("success",)},
    "task": {"task": "task-7"},
    "contrary": {"bottleneck": "vector"},
    "held out": {"exclude_tasks": {"task-1*"}},
    "wide recall": {"lam": 45.0},
}


def measure_retrieval(
    items: int = 100_000, queries: int = 40, folder: str | Path | None = None, index: bool = True
) -> dict[str, Any]:
    """Build a store of so many items in a temporary folder, open it anew, and ask it.

    Args:
        items: how many.
        queries: how many questions of each form of ``QUERIES``; one more goes before them to warm up.
        folder: where the temporary folder is made; None: the system's.
        index: with chromadb; without it every search is exact.

    Returns:
        ``cpu_ms`` by form of question (median and maximum, milliseconds of CPU time of the process), ``open_cpu_s`` and
        ``first_cpu_s`` (opening the store, the first answer), ``build_cpu_s``, ``disk_mib``, ``memory_mib`` (most that
        the process had), ``index`` (why it was not used, or ``chromadb``), ``exact_up_to``; ``met``: whether every
        form's median is below ``GOAL_MS``.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        home = Path(name)
        embedder = Clusters()
        begun = time.process_time()
        with RunDB(home / "runs.sqlite") as db, ExperienceStore.open(home, db, embedder=embedder, index=index) as store:
            for start in range(0, items, _PART):
                part = store.add_many(_items(start, min(items, start + _PART)))
                store.update(f"bench:{start}:0", "draft", part[::10], "npu", random.Random(start).uniform(-1, 1))
        built = time.process_time() - begun
        begun = time.process_time()
        with RunDB(home / "runs.sqlite") as db, ExperienceStore.open(home, db, embedder=embedder, index=index) as store:
            opened = time.process_time() - begun
            begun = time.process_time()
            _ask(store, 0, {})
            first = time.process_time() - begun
            times = {form: _timed(store, queries, extra) for form, extra in QUERIES.items()}
            used = store.stats()["index"]
        disk = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    return {
        "items": items,
        "cpu_ms": times,
        "open_cpu_s": opened,
        "first_cpu_s": first,
        "build_cpu_s": built,
        "disk_mib": disk / 2**20,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        "index": used,
        "exact_up_to": search.EXACT,
        "met": all(form["median"] < GOAL_MS for form in times.values()),
    }


def _timed(store: ExperienceStore, queries: int, extra: dict[str, Any]) -> dict[str, float]:
    _ask(store, 0, extra)
    spent = []
    for number in range(1, queries + 1):
        begun = time.process_time()
        _ask(store, number, extra)
        spent.append(1e3 * (time.process_time() - begun))
    return {"median": statistics.median(spent), "most": max(spent)}


def _ask(store: ExperienceStore, number: int, extra: dict[str, Any]) -> None:
    # Every text is new, as a state is; the synthetic embedder costs next to nothing.
    query = Query(**({"text": f"{7 * number}:q{number}", "stage": "draft", "signature": "npu"} | extra))
    found = store.retrieve(query, random.Random(number))
    if not found.items:
        raise RuntimeError("the bench's question was not answered")


if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(measure_retrieval(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000), indent=1))
