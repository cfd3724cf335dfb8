"""Our own selection: ask about the layout that is worth most, believe answers as far as they deserve, stop when sure.

It differs from SplitTester where that one loses: layouts come from the decks themselves without a model, all that split
are kept and none ends the search by failing to; decks are told apart per category, not by "anything at all"; a label is
asked for by itself, of somebody who sees the rule and the layout but no deck, and its doubt counts; and the next layout
asked about is the one whose answer is expected to say most about which deck is right. Without anybody to ask, the
behaviour that the proposer holds most likely wins, summed over all decks that show it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from orienteer.agents.drc.selectors.book import Book, Chosen, Deck, Want, first_running, winner
from orienteer.evaluators.drc.observed import Test

#: A label is never believed more than this much.
_LEAST_DOUBT = 0.01


@dataclass(frozen=True)
class Split:
    """See the module's text.

    Attributes:
        budget: labels asked for at most.
        layouts: layouts looked at at most.
        sure: stop when the most likely behaviour is held right with this probability.
    """

    budget: int = 8
    layouts: int = 48
    sure: float = 0.97
    name: str = "split"

    def next(self, book: Book) -> Want | Chosen:
        """See :class:`Selector`."""
        alive = [deck for deck in book.decks if deck.runs]
        if len(alive) < 2:
            return winner(book, first_running(book), "fewer than two run")
        if not book.answers:
            return Want("layouts", "probe", tuple(deck.index for deck in alive), most=self.layouts)
        tests = book.answers[0].tests
        weights = posterior(alive, tests, book)
        groups = behaviours(alive, tests)
        mass = {key: sum(weights[i] for i in members) for key, members in groups.items()}
        best = max(groups, key=lambda key: (mass[key], -min(groups[key])))
        asked = [answer for answer in book.answers[1:] if answer.want[0] == "label"]
        deck = max(groups[best], key=lambda i: (weights[i], -i))
        facts = {"behaviours": len(groups), "held": mass[best], "asked": len(asked)}
        if len(groups) == 1:
            return winner(book, deck, "all behave alike", **facts)
        if mass[best] >= self.sure:
            return winner(book, deck, "sure", **facts)
        if len(asked) >= self.budget:
            return winner(book, deck, "budget", **facts)
        if asked and asked[-1].failure:
            return winner(book, deck, "nobody to ask" if len(asked) == 1 else "no answer", **facts)
        known = {answer.facts.get("test") for answer in asked}
        worth = {n: information(test, groups, mass) for n, test in enumerate(tests) if n not in known}
        if not worth or max(worth.values()) < 1e-6:
            return winner(book, deck, "nothing splits", **facts)
        # Of layouts worth the same, the smallest: it is the one that a person reads at a glance.
        position = min(worth, key=lambda n: (-round(worth[n], 9), tests[n].size, n))
        return Want("label", "label", tests=(position,), step=len(asked), facts={"test": position})


def behaviours(decks: list[Deck], tests: tuple[Test, ...]) -> dict[tuple[str, ...], list[int]]:
    """Return the decks in groups that do the same in every category on every test."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for deck in decks:
        groups.setdefault(tuple(test.answer(deck.index) for test in tests), []).append(deck.index)
    return groups


def posterior(decks: list[Deck], tests: tuple[Test, ...], book: Book) -> dict[int, float]:
    """Return how likely each deck is right: its prior, times what it does on the tests whose label is known.

    A deck that contradicts a label in any category is worth the label's doubt, one that fails to run is worth none.
    """
    weights = {deck.index: max(deck.prior, 1e-9) for deck in decks}
    for answer in book.answers[1:]:
        if answer.want[0] != "label" or not answer.expected:
            continue
        test = tests[int(answer.facts["test"])]
        doubt = min(0.5, max(_LEAST_DOUBT, answer.doubt))
        for index in weights:
            agrees = all(test.answers[c][index] == str(bit) for c, bit in answer.expected.items() if c in test.answers)
            weights[index] *= 1 - doubt if agrees else doubt
    total = sum(weights.values())
    return {index: weight / total for index, weight in weights.items()}


def information(
    test: Test, groups: Mapping[tuple[str, ...], list[int]], mass: Mapping[tuple[str, ...], float]
) -> float:
    """Return the expected information of a test's answer about which behaviour is right, in bits.

    It is the entropy of the answer, since every behaviour gives a certain one.
    """
    answers: dict[str, float] = {}
    for key, members in groups.items():
        said = test.answer(members[0])
        answers[said] = answers.get(said, 0.0) + mass[key]
    return -sum(p * math.log2(p) for p in answers.values() if p > 0)
