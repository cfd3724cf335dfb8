"""``agent bench rule2drc``: every selector on the same candidates, scored as Rule2DRC scores."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orienteer.agents.drc.selectors import SELECTORS
from orienteer.agents.runtime.config import RunConfig, RunReport
from orienteer.agents.runtime.engine import start_run
from orienteer.errors import OrienteerError, UsageError
from orienteer.evaluators.drc.scoring import over_pools

#: Pools of one size that the candidates are cut into, as published.
POOLS = 3
#: The row in which the reference deck answers in the engineer's place.
ENGINEER = "split, reference deck answers"


def compare(
    problems: Sequence[str],
    selectors: Sequence[str],
    *,
    candidates: int,
    pools: int,
    budget: int,
    model: str | None,
    backend: str,
    sandbox: str,
    allow_unsafe: bool,
    seed: int,
    workers: int | None,
    home: Path | None = None,
) -> dict[str, Any]:
    """Run every selector on the same pools of candidates and return one table.

    The candidates of a pool are proposed once; what a model answered in one run is not paid for in the next.

    Args:
        problems: folders or spec files.
        selectors: names, in order.
        candidates: decks of one pool.
        pools: how many pools; offline there is one, since the readings of a sentence are no samples.
        budget: as ``--budget`` of the run, for all selectors alike.
        model: as ``--model``.
        backend, sandbox, allow_unsafe, seed, workers: as of a run.
        home: where the runs are kept; a folder that is removed if None.

    Raises:
        UsageError: a selector or a problem is unknown.
        OrienteerError: a run ended before its end.
    """
    for name in selectors:
        if name not in SELECTORS:
            raise UsageError(f"there is no selector {name!r}", f"there are: {', '.join(SELECTORS)}")
    if home is None:
        with tempfile.TemporaryDirectory(prefix="orienteer-bench-") as folder:
            return compare(
                problems, selectors, candidates=candidates, pools=pools, budget=budget, model=model, backend=backend,
                sandbox=sandbox, allow_unsafe=allow_unsafe, seed=seed, workers=workers, home=Path(folder),
            )  # fmt: skip

    def run(selector: str, answers: str, pool: int) -> RunReport:
        settings = {
            "selector": selector, "candidates": candidates, "sample": pool * candidates, "budget": budget,
            "backend": backend, "answers": answers,
        }  # fmt: skip
        report = start_run(
            RunConfig(
                "drc",
                tuple(problems),
                settings=settings,
                seed=seed,
                model=model,
                workers=workers,
                sandbox=sandbox,
                allow_unsafe=allow_unsafe,
                reuse_replies=True,
                home=home,
                handle_signals=False,
            )
        )
        if report.status != "done":
            raise OrienteerError(f"the run {report.id} ended as {report.status}: {report.reason}")
        return report

    offline = model in (None, "offline")
    number = 1 if offline else pools
    rows = []
    asked_for = [(name, "auto") for name in selectors] + [("split", "gold")]
    first: list[list[bool]] = []
    oracle: list[list[bool]] = []
    for name, answers in asked_for:
        reports = [run(name, answers, pool) for pool in range(number)]
        tasks = [[item for item in report.result["tasks"] if "success" in item] for report in reports]
        if not first:
            first = [[item["first"] for item in pool] for pool in tasks]
            oracle = [[item["oracle"] for item in pool] for pool in tasks]
        label = ENGINEER if answers == "gold" else name
        rows.append(_row(label, [[item["success"] for item in pool] for pool in tasks], tasks, reports))
    problems_in_all = len(reports[0].result["tasks"])
    head = [_row("first proposal", first), _row(f"best of {candidates} (oracle)", oracle)]
    provenance = reports[0].provenance
    return {
        "problems": problems_in_all,
        "scored": len(first[0]) if first else 0,
        "candidates": candidates,
        "pools": number,
        "proposer": provenance.get("proposer", "offline"),
        "backend": f"{provenance.get('deck_backend')} {provenance.get('klayout')}",
        "rows": head + rows,
    }


def _row(
    name: str,
    success: Sequence[Sequence[bool]],
    tasks: Sequence[Sequence[dict[str, Any]]] = (),
    reports: Sequence[RunReport] = (),
) -> dict[str, Any]:
    mean, spread = over_pools(success)
    row: dict[str, Any] = {
        "selector": name,
        "success": mean,
        "std": spread,
        "won": [sum(pool) for pool in success],
        "of": len(success[0]) if success else 0,
    }
    items = [item for pool in tasks for item in pool]
    if items:
        row["case_accuracy"] = sum(item["case_accuracy"] for item in items) / len(items)
        row["ran"] = sum(item["truth"]["ran"] if item["truth"] else 0.0 for item in items) / len(items)
        row["labels"] = sum(item["asked"] for item in items) / len(items)
        row["layouts"] = sum(len(item["layouts"]) for item in items) / len(items)
    if reports:
        row["tokens"] = sum(report.counts.get("tokens", 0) or 0 for report in reports)
    return row
