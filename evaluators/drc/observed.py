"""What a pool of decks says of layouts, and the fewest layouts that tell the decks apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from orienteer.environments.layout.results import DeckResult
from orienteer.evaluators.drc.clusters import Bit


@dataclass(frozen=True)
class Test:
    """One layout with what every deck reports on it.

    Attributes:
        layout: hash of the layout file.
        answers: per category one character a deck, in pool order: ``0``, ``1``, or ``N`` where the run failed.
        expected: what is held to be right per category (1: a violation); empty where nobody said.
        any_expected: what is held to be right of the layout as a whole; None where nobody said.
        unknown: one character a deck: ``1`` where it reported a category that is not wanted.
        about: what the layout shows.
        size: shapes in it.
    """

    __test__: ClassVar[bool] = False  # its name is no test's name

    layout: str
    answers: Mapping[str, str]
    expected: Mapping[str, int] = field(default_factory=dict)
    any_expected: Bit = None
    unknown: str = ""
    about: str = ""
    size: int = 0

    def bit(self, deck: int) -> Bit:
        """Return whether a deck reports anything (upstream's coarse answer); None where its run failed."""
        bits = [text[deck] for text in self.answers.values()]
        if not bits or "N" in bits:
            return None
        return int("1" in bits or self.unknown[deck : deck + 1] == "1")

    def answer(self, deck: int) -> str:
        """Return a deck's answers in all categories, one character each."""
        return "".join(text[deck] for text in self.answers.values())

    @property
    def label(self) -> Bit:
        """What is held to be right of the layout as a whole."""
        if self.any_expected is not None or not self.expected:
            return self.any_expected
        return int(any(self.expected.values()))

    def right(self, deck: int) -> bool:
        """Say whether a deck does what is expected in every category."""
        return all(self.answers[name][deck] == str(value) for name, value in self.expected.items())

    def document(self) -> dict[str, Any]:
        """Return the test as plain data."""
        return {
            "layout": self.layout,
            "answers": dict(self.answers),
            "expected": dict(self.expected),
            "any_expected": self.any_expected,
            "unknown": self.unknown,
            "about": self.about,
            "size": self.size,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Test:
        """Rebuild a test from plain data."""
        return cls(**document)


def observed(results: Sequence[DeckResult], categories: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return what decks say of one layout: per category one character a deck, and who reported something unwanted.

    Args:
        results: one a deck, in pool order.
        categories: the wanted ones.
    """
    answers = {
        category: "".join("N" if not r.ok else "1" if r.flagged(category) else "0" for r in results)
        for category in categories
    }
    unknown = "".join(
        "1" if any(count and name not in answers for name, count in result.counts.items()) else "0"
        for result in results
    )
    return answers, unknown


def telling(tests: Sequence[Test], decks: Sequence[int], most: int) -> list[Test]:
    """Return the tests that tell the decks apart, those that do it best first, at most so many.

    First a greedy choice: always the test that parts the most pairs of decks that nothing has parted yet, of equals the
    smallest layout. Then one test, the smallest, for every further way in which the decks part.
    """
    smallest: dict[tuple[str, ...], Test] = {}
    for test in tests:
        said = tuple(test.answer(deck) for deck in decks)
        if len(set(said)) > 1 and (said not in smallest or test.size < smallest[said].size):
            smallest[said] = test
    left = list(smallest.items())
    together = [list(range(len(decks)))]
    chosen: list[Test] = []
    while left and len(chosen) < most:
        best = max(left, key=lambda item: (_parted(item[0], together), -item[1].size))
        if not _parted(best[0], together):
            break
        chosen.append(best[1])
        left.remove(best)
        together = [
            part
            for group in together
            for part in ([i for i in group if best[0][i] == said] for said in dict.fromkeys(best[0][i] for i in group))
        ]
    return (chosen + [test for _, test in sorted(left, key=lambda item: item[1].size)])[:most]


def _parted(said: tuple[str, ...], together: Sequence[Sequence[int]]) -> int:
    """Return how many pairs of one group a test parts."""
    total = 0
    for group in together:
        sizes: dict[str, int] = {}
        for i in group:
            sizes[said[i]] = sizes.get(said[i], 0) + 1
        total += (len(group) ** 2 - sum(size**2 for size in sizes.values())) // 2
    return total
