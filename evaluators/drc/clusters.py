"""Candidates by what they do: the arithmetic of SplitTester (arXiv 2605.15669, ``score_generated_tests_ours.py``).

A candidate's behaviour is a string over the tests made so far: one bit a test (1: it reports a violation in any
category), from the shared tests first, then from the tests made to split. Everything here is pure, so that every
decision of a selection can be checked against a trace by hand.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

#: One answer of a deck on a test: no violation, a violation, no result.
Bit = int | None


@dataclass(frozen=True)
class Standing:
    """One candidate and what it did.

    Attributes:
        index: its number among the candidates.
        name: as upstream names it; the seed of the sampling depends on it.
        pattern: its bits on the shared tests, ``0`` and ``1``; empty or short where a run failed.
        expected: what was expected there.
        base: its score on the shared tests: share of tests right in every category, -1 where it is not valid.
        extra: its bits on the tests made to split.
        labels: what was expected there; None where nothing was.
    """

    index: int
    name: str
    pattern: str
    expected: str
    base: float
    extra: tuple[Bit, ...] = ()
    labels: tuple[Bit, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the candidate takes part: it ran on all shared tests and named no category that is not wanted."""
        return self.base >= 0 and len(self.pattern) == len(self.expected) and set(self.pattern) <= {"0", "1"}

    @property
    def right(self) -> int:
        """Tests on which it did what was expected."""
        base = sum(a == b for a, b in zip(self.pattern, self.expected, strict=False))
        return base + sum(a is not None and a == b for a, b in zip(self.extra, self.labels, strict=True))

    @property
    def tests(self) -> int:
        """Tests that count: the shared ones and all that were made since (a failed run counts as wrong)."""
        return len(self.expected) + len(self.extra)

    @property
    def score(self) -> float:
        """Share of the tests on which it did what was expected; 0 without tests."""
        return self.right / self.tests if self.tests else 0.0


def clusters(standings: Sequence[Standing]) -> list[list[Standing]]:
    """Return the valid candidates in groups of equal behaviour, in the order of their first members."""
    groups: dict[tuple[str, tuple[Bit, ...]], list[Standing]] = {}
    for standing in standings:
        if standing.valid:
            groups.setdefault((standing.pattern, standing.extra), []).append(standing)
    return list(groups.values())


def target(standings: Sequence[Standing]) -> list[Standing]:
    """Return the group to split next: of those with two members or more the one with the highest score times size.

    Of equals the larger one, then the one with the smallest index; empty where every candidate stands alone.
    """
    open_ones = [group for group in clusters(standings) if len(group) > 1]
    if not open_ones:
        return []
    return max(open_ones, key=lambda g: (g[0].score * len(g), len(g), -min(member.index for member in g)))


def representatives(group: Sequence[Standing], step: int, seed: int, most: int = 3) -> list[Standing]:
    """Return the members whose decks are shown to the tester: all, or a sample that seed, step and names decide."""
    members = sorted(group, key=lambda member: member.index)
    if len(members) <= most:
        return members
    rng = random.Random(seed + _digest("rand_reps", step, [member.name for member in members]))
    return sorted(rng.sample(members, most), key=lambda member: member.index)


def splits(group: Sequence[Standing], bits: Sequence[Bit]) -> bool:
    """Say whether a new test's answers, in the order of the group, tell its members apart."""
    return len(group) > 1 and len(set(bits)) > 1


def ranking(standings: Sequence[Standing]) -> list[Standing]:
    """Return the valid candidates, best first: by score, of equals the lowest index."""
    return sorted((s for s in standings if s.valid), key=lambda s: (-s.score, s.index))


def _digest(*parts: object) -> int:
    text = "".join(f"{part}\n" for part in parts)
    return int(hashlib.md5(text.encode("utf-8", "ignore"), usedforsecurity=False).hexdigest()[:8], 16)
