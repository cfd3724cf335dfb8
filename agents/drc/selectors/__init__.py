"""Ways to choose one deck of a pool by what the decks do. Each is a pure function of what is known so far."""

from __future__ import annotations

from orienteer.agents.drc.selectors.book import Answer, Book, Chosen, Deck, Selector, Want
from orienteer.agents.drc.selectors.published import CodeMonkeys, First, GeneratedTests, Judge, SplitTester, SStar
from orienteer.agents.drc.selectors.split import Split
from orienteer.evaluators.drc.observed import Test

__all__ = ["SELECTORS", "Answer", "Book", "Chosen", "Deck", "Selector", "Test", "Want"]

#: The selectors by name, with their published defaults.
SELECTORS: dict[str, type[Selector]] = {
    "first": First,
    "tests": GeneratedTests,
    "sstar": SStar,
    "codemonkeys": CodeMonkeys,
    "judge": Judge,
    "splittester": SplitTester,
    "split": Split,
}
