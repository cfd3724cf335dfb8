"""A deck as a tree: what the parser makes of KLayout's deck language, for every reader of decks.

The tree is small and immutable. Each node knows its line in the deck, from 1. There are no definitions, blocks, loops
or conditions in it: a deck that has them is refused (``Refusal``), because a tree without them can be run, explained
and changed with nothing left to chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orienteer.errors import OrienteerError


class Refusal(OrienteerError):
    """The deck has something that the embedded interpreter does not know.

    Args:
        line: where in the deck, from 1.
        word: what it is, as written.
        why: one line.
    """

    def __init__(self, line: int, word: str, why: str) -> None:
        self.line = line
        self.word = _short(word)
        super().__init__(
            f"line {line}: {self.word}: {why}", "run this deck with an installed KLayout (backend strmrun or klayout)"
        )


class DeckError(OrienteerError):
    """The deck is wrong: KLayout itself would end it with an error at this line."""

    def __init__(self, line: int, what: str) -> None:
        self.line = line
        super().__init__(f"line {line}: {what}")


def _short(word: str) -> str:
    word = " ".join(word.split())
    return word if len(word) <= 60 else word[:57] + "..."


@dataclass(frozen=True, slots=True)
class Number:
    """A literal number: whole (database units, where a length is meant) or with a point (micrometres)."""

    value: int | float
    line: int


@dataclass(frozen=True, slots=True)
class Text:
    """A string: literal pieces, and expressions where ``#{...}`` stands."""

    parts: tuple[str | Node, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """``:name``."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Literal:
    """``nil``, ``true`` or ``false``."""

    value: bool | None
    line: int


@dataclass(frozen=True, slots=True)
class Global:
    """``$name``; ``$input`` and ``$output`` are the layout and the report."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Range:
    """``low .. high``; either may be missing; ``exclusive`` for three points."""

    low: Node | None
    high: Node | None
    exclusive: bool
    line: int


@dataclass(frozen=True, slots=True)
class Unary:
    """``-x`` or ``!x``."""

    operator: str
    operand: Node
    line: int


@dataclass(frozen=True, slots=True)
class Binary:
    """``left operator right``: arithmetic, comparison, or a boolean of layers."""

    operator: str
    left: Node
    right: Node
    line: int


@dataclass(frozen=True, slots=True)
class Call:
    """``receiver.name(arguments, key: value)``, or a bare name (no receiver, no arguments).

    Attributes:
        receiver: what the method is called on; None for a function, a variable or an option word.
        name: the method's name, as written.
        arguments: in order.
        options: ``key: value`` and ``:key => value`` arguments.
        brackets: whether there was an argument list: ``width`` is a variable or a word, ``width()`` is a call.
    """

    receiver: Node | None
    name: str
    arguments: tuple[Node, ...]
    options: tuple[tuple[str, Node], ...]
    brackets: bool
    line: int


Node = Number | Text | Symbol | Literal | Global | Range | Unary | Binary | Call


@dataclass(frozen=True, slots=True)
class Assign:
    """``name = value``, or ``first, second = value``; constants and ``$globals`` are names too."""

    names: tuple[str, ...]
    value: Node
    line: int


@dataclass(frozen=True, slots=True)
class Evaluate:
    """A statement without a name for its value: ``report(...)``, ``layer.output(...)``."""

    value: Node
    line: int


Statement = Assign | Evaluate


@dataclass(frozen=True)
class Program:
    """A deck that was read in full.

    Attributes:
        statements: in the deck's order.
        text: the deck as it was given; two programs are equal when their texts are.
    """

    statements: tuple[Statement, ...] = field(compare=False, repr=False)
    text: str = field(repr=False)
