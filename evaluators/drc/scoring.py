"""Scores of a deck on labelled layouts: as Rule2DRC counts them, and what its all-or-nothing success hides.

Source: arXiv 2605.15669 and its ``eval.py``. A deck succeeds when every category has F1 = 1 over all layouts and no
other name is reported. Two facts of that definition are kept and said aloud: a category that no layout violates has
F1 = 0 by it, so its task cannot be won; and a layout on which the deck fails counts as "no violation".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orienteer.environments.layout.results import DeckResult
from orienteer.environments.layout.tasks import RuleTask


@dataclass(frozen=True)
class Confusion:
    """Layouts by true and reported answer for one category."""

    tp: int = 0
    fp: int = 0
    fn: int = 0
    tn: int = 0

    @property
    def precision(self) -> float:
        """Share of the reported violations that are true; 0 where nothing was reported."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else 0.0

    @property
    def recall(self) -> float:
        """Share of the true violations that are reported; 0 where there are none."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 where both are."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    @property
    def right(self) -> bool:
        """Whether no layout got a wrong answer (unlike F1 = 1 also where no layout violates the rule)."""
        return not self.fp and not self.fn


@dataclass(frozen=True)
class DeckScore:
    """What a deck is worth on a task's labelled layouts.

    Attributes:
        success: as upstream: F1 = 1 in every category, no unknown category.
        right: every layout that has a label is answered rightly in every category, and every run ended well.
        cases: layouts; case_accuracy: share of them that are right in every category (a failed run is not).
        ran: share of the layouts on which the deck ran well (upstream's ``compile_rate``).
        categories: confusion per category.
        unknown: categories that the deck reported and the task does not know.
        unwinnable: categories that no layout violates: with one of them upstream's success is out of reach.
        wrong: names of the layouts with a wrong answer or none.
        failures: message of the failed runs with how often it came up.
    """

    success: bool
    right: bool
    cases: int
    case_accuracy: float
    ran: float
    categories: Mapping[str, Confusion]
    unknown: tuple[str, ...] = ()
    unwinnable: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    failures: Mapping[str, int] | None = None

    def document(self) -> dict[str, Any]:
        """Return the score as plain data."""
        return {
            "success": self.success,
            "right": self.right,
            "cases": self.cases,
            "case_accuracy": self.case_accuracy,
            "ran": self.ran,
            "categories": {
                name: {"tp": c.tp, "fp": c.fp, "fn": c.fn, "tn": c.tn, "f1": c.f1}
                for name, c in self.categories.items()
            },
            "unknown": list(self.unknown),
            "unwinnable": list(self.unwinnable),
            "wrong": list(self.wrong),
            "failures": dict(self.failures or {}),
        }


def score(task: RuleTask, results: Sequence[DeckResult]) -> DeckScore:
    """Score the runs of one deck on a task's labelled layouts.

    Args:
        task: with its layouts.
        results: one per layout, in their order.
    """
    if len(results) != len(task.layouts):
        raise ValueError("one result per labelled layout is needed")
    cells = {category: [0, 0, 0, 0] for category in task.categories}
    unknown: set[str] = set()
    wrong: list[str] = []
    failures: dict[str, int] = {}
    for layout, result in zip(task.layouts, results, strict=True):
        good = result.ok
        if not result.ok:
            text = f"{result.status}: {result.message}" if result.message else str(result.status)
            failures[text] = failures.get(text, 0) + 1
        unknown.update(name for name, count in result.counts.items() if count and name not in cells)
        for category, cell in cells.items():
            true, said = layout.labels[category], bool(result.flagged(category))
            cell[(0 if said else 2) if true else (1 if said else 3)] += 1
            good = good and true == said
        if not good:
            wrong.append(layout.path.name)
    categories = {name: Confusion(*cell) for name, cell in cells.items()}
    cases = len(results)
    ran = sum(result.ok for result in results)
    return DeckScore(
        success=bool(cases) and not unknown and all(c.f1 == 1.0 for c in categories.values()),
        right=bool(cases) and not unknown and not wrong,
        cases=cases,
        case_accuracy=(cases - len(wrong)) / cases if cases else 0.0,
        ran=ran / cases if cases else 0.0,
        categories=categories,
        unknown=tuple(sorted(unknown)),
        unwinnable=tuple(name for name, c in categories.items() if not c.tp and not c.fn),
        wrong=tuple(wrong),
        failures=failures,
    )


#: Candidates per pool and how many of the first candidates are cut into pools, as published (three pools each).
POOLS = {10: 30, 15: 45, 20: 60}


def pools(candidates: int, size: int) -> list[range]:
    """Cut the first candidates into pools of one size; what does not fill a pool is left out.

    >>> pools(30, 10)
    [range(0, 10), range(10, 20), range(20, 30)]
    """
    return [range(start, start + size) for start in range(0, candidates - size + 1, size)]


def best_of(scores: Sequence[float]) -> int:
    """Return the position of the highest score, of equals the first."""
    return max(range(len(scores)), key=lambda i: (scores[i], -i))


def over_pools(success: Sequence[Sequence[bool]]) -> tuple[float, float]:
    """Return mean and standard deviation over the pools of the share of problems won.

    Args:
        success: per pool, per problem whether the chosen candidate is right. The deviation is that of the pools
            themselves (divided by their number), as upstream.
    """
    shares = [sum(pool) / len(pool) for pool in success if pool]
    if not shares:
        return 0.0, 0.0
    mean = sum(shares) / len(shares)
    return mean, math.sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
