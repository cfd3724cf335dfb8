"""``agent bench drc-variants``: which testers see that a deck is wrong.

Every gold deck is given slips (``variants``), one at a time. A tester has layouts, the task's own or drawn ones, and
kills a variant when gold and variant report differently on one of them.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orienteer.environments.layout.patterns.generating import layers_of, patterns
from orienteer.environments.layout.runner import DeckRunner
from orienteer.environments.layout.tasks import RuleTask
from orienteer.evaluators.drc.probing import distances, file_of, layouts_for, programs, random_pattern, unlike
from orienteer.evaluators.drc.variants import variants

#: Layouts of the tester that draws boxes at random.
RANDOM = 200


def kills(tasks: Sequence[RuleTask], runner: DeckRunner, *, seed: int = 0) -> dict[str, Any]:
    """Return, per kind of slip and in all, the share of variants that each tester tells from the gold deck.

    Testers: ``labelled layouts`` (the task's own, as a benchmark has them), ``gold alone`` (layouts from what the gold
    deck measures: what a tester knows that has not seen the wrong deck), ``both decks`` (from what both measure, and
    random ones: what ``agent drc split`` and a selection know), ``random`` (boxes at the gold deck's distances).

    Args:
        tasks: with their gold decks.
        runner: whose answers count.
        seed: of the random layouts.
    """
    table: dict[str, dict[str, list[int]]] = {}
    survivors: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="orienteer-variants-") as name:
        folder = Path(name)
        for task in tasks:
            if task.gold is None:
                continue
            gold = task.gold.read_text(encoding="utf-8")
            found = variants(gold)
            answers = _killed(gold, [variant.deck for variant in found], task, runner, folder, seed)
            for number, variant in enumerate(found):
                row = table.setdefault(variant.kind, {})
                for tester, killed in answers.items():
                    cell = row.setdefault(tester, [0, 0])
                    cell[0] += killed[number]
                    cell[1] += 1
                if not answers["both decks"][number]:
                    survivors.append({"task": task.id, "kind": variant.kind, "what": variant.what})
    total: dict[str, list[int]] = {}
    for row in table.values():
        for tester, (seen, of) in row.items():
            cell = total.setdefault(tester, [0, 0])
            cell[0] += seen
            cell[1] += of
    return {"kinds": table, "total": total, "survivors": survivors, "backend": runner.name, "version": runner.version}


def _killed(
    gold: str, wrong: Sequence[str], task: RuleTask, runner: DeckRunner, folder: Path, seed: int
) -> dict[str, list[bool]]:
    rng = random.Random(seed)
    (tree,) = programs([gold])
    alone = patterns([tree]) if tree is not None else []
    layers = list(layers_of([tree])) if tree is not None else []
    boxes = (
        [random_pattern(rng, layers, distances([tree])) for _ in range(RANDOM)] if tree is not None and layers else []
    )
    files = {
        "labelled layouts": [item.path for item in task.layouts],
        "gold alone": [file_of(p, folder / f"alone_{n:03d}.gds") for n, p in enumerate(alone)],
        "random": [file_of(p, folder / f"random_{n:03d}.gds") for n, p in enumerate(boxes)],
    }
    found = {name: _differ(gold, wrong, runner, layouts) for name, layouts in files.items()}
    both = []
    for deck in wrong:
        trees = [t for t in programs([gold, deck]) if t is not None]
        layouts = [file_of(p, folder / f"both_{n:03d}.gds") for n, p in enumerate(layouts_for(trees, seed=seed))]
        both.append(_differ(gold, [deck], runner, layouts)[0])
    return {**found, "both decks": both}


def _differ(gold: str, wrong: Sequence[str], runner: DeckRunner, layouts: Sequence[Path]) -> list[bool]:
    if not layouts:
        return [False] * len(wrong)
    right, *others = runner.run_many([gold, *wrong], list(layouts))
    return [any(unlike(a, b) for a, b in zip(right, other, strict=True)) for other in others]
