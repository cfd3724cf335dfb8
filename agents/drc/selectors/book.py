"""What a selection knows so far, and what it may ask for next.

A selector never acts. It looks at the book (decks, tests, answers in the order in which they came) and says what it
wants or whom it chose; the method gets that, writes the answer into the book and asks again. So a selection is a
function of its record: it can be replayed, resumed and checked decision by decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from orienteer.evaluators.drc.clusters import Standing
from orienteer.evaluators.drc.observed import Test


@dataclass(frozen=True)
class Deck:
    """One candidate deck.

    Attributes:
        index: its number in the pool.
        text: its source.
        runs: False where it failed on the layout that every deck is tried on.
        prior: how likely its proposer holds it to be right, among the pool.
        why: what it takes the rule to mean, in words.
    """

    index: int
    text: str
    runs: bool = True
    prior: float = 1.0
    why: str = ""

    @property
    def name(self) -> str:
        """The name that upstream gives a candidate."""
        return f"cand_{self.index:04d}"


@dataclass(frozen=True)
class Want:
    """What a selector asks for.

    Attributes:
        kind: ``suite`` (shared tests with labels), ``layouts`` (to tell decks apart), ``label`` (what is right on a
            test), ``choice`` (of decks).
        name: which question of the selector it is; the prompt's name.
        decks: the decks it is about, by index.
        most: layouts at most.
        tests: tests to show as evidence, by their position in the book (suite first).
        step: the selector's own count; part of what a sampled answer depends on.
        label: whether every layout must come with an expected answer.
        facts: more for the prompt, plain data.
    """

    kind: Literal["suite", "layouts", "label", "choice"]
    name: str
    decks: tuple[int, ...] = ()
    most: int = 1
    tests: tuple[int, ...] = ()
    step: int = 0
    label: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What came of a want.

    Attributes:
        want: the want's name and step, as asked.
        tests: the tests it brought.
        choice: a position in the want's decks; None for no or a tie.
        failure: why nothing came.
        expected: what is right on a test that a label was wanted for, per category (1: a violation).
        doubt: how likely that label is wrong, 0 to 0.5.
        facts: more that came with it (a script to refine, who answered).
    """

    want: tuple[str, int]
    tests: tuple[Test, ...] = ()
    choice: int | None = None
    failure: str = ""
    expected: Mapping[str, int] = field(default_factory=dict)
    doubt: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """The end of a selection.

    Attributes:
        deck: who won, by index.
        why: how it came about, one word or a few.
        scores: of every deck, as upstream writes them (-1: not valid).
        facts: what the record keeps of the course.
    """

    deck: int
    why: str
    scores: tuple[float, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Book:
    """Everything that a selection knows."""

    decks: tuple[Deck, ...]
    seed: int = 0
    answers: tuple[Answer, ...] = ()

    @property
    def suite(self) -> tuple[Test, ...]:
        """The shared tests."""
        return self.answers[0].tests if self.answers and self.answers[0].want[0] == "suite" else ()

    @property
    def asked_for_suite(self) -> bool:
        """Whether the shared tests were asked for, with or without success."""
        return bool(self.answers) and self.answers[0].want[0] == "suite"

    @property
    def after_suite(self) -> tuple[Answer, ...]:
        """The answers after the shared tests."""
        return self.answers[1:] if self.asked_for_suite else self.answers

    @property
    def tests(self) -> tuple[Test, ...]:
        """All tests, the shared ones first, in the order in which they came."""
        return tuple(test for answer in self.answers for test in answer.tests)

    def standings(self, extra: Sequence[Test] = ()) -> list[Standing]:
        """Return where every deck stands on the shared tests and on these further ones."""
        expected = "".join(str(test.label) for test in self.suite)
        found = []
        for deck in self.decks:
            bits = [test.bit(deck.index) for test in self.suite]
            failed = any(bit is None for bit in bits) or any(
                t.unknown[deck.index : deck.index + 1] == "1" for t in self.suite
            )
            right = sum(test.right(deck.index) for test in self.suite)
            base = -1.0 if failed or not deck.runs else (right / len(self.suite) if self.suite else 0.0)
            found.append(
                Standing(
                    deck.index,
                    deck.name,
                    "" if failed else "".join(str(bit) for bit in bits),
                    expected,
                    base,
                    tuple(test.bit(deck.index) for test in extra),
                    tuple(test.label for test in extra),
                )
            )
        return found


class Selector(Protocol):
    """A way to choose."""

    @property
    def name(self) -> str:
        """As in ``--set selector=NAME``."""
        ...

    def next(self, book: Book) -> Want | Chosen:
        """Say what is wanted next, or who is chosen. A pure function of the book."""
        ...


def suite_wanted(most: int) -> Want:
    """Return the want for the shared tests."""
    return Want("suite", "suite", most=most, label=True)


def winner(book: Book, deck: int, why: str, **facts: Any) -> Chosen:
    """Return a choice of one deck with upstream's scores: 1 for it, 0 for the others, -1 for those not valid."""
    valid = {standing.index for standing in book.standings() if standing.valid}
    scores = tuple((1.0 if d.index == deck else 0.0) if d.index in valid else -1.0 for d in book.decks)
    return Chosen(deck, why, scores, facts)


def first_running(book: Book) -> int:
    """Return the first deck that runs, or simply the first."""
    return next((deck.index for deck in book.decks if deck.runs), 0)
