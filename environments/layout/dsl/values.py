"""What expressions of a deck come to while it is planned: numbers, option words, layers still to be computed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from orienteer.environments.layout.dsl.plan import Op
from orienteer.environments.layout.dsl.tree import DeckError, Refusal

#: Largest coordinate or distance in database units; klayout.db counts in 32 bits and wraps silently beyond.
MOST_UNITS = 1_000_000_000
#: Longest string a deck may build.
MOST_TEXT = 10_000


@dataclass(frozen=True, slots=True)
class Enum:
    """A named constant of klayout.db: ``Enum("Metrics", "Square")``; resolved when an operation is made."""

    owner: str
    name: str

    def value(self) -> Any:
        """Return klayout.db's own constant."""
        from klayout import db

        found: Any = db
        for part in (*self.owner.split("."), self.name):
            found = getattr(found, part)
        return found


@dataclass(frozen=True, slots=True)
class Word:
    """An option word: what it is for, and what it says."""

    kind: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Span:
    """A Ruby range."""

    low: Any
    high: Any
    exclusive: bool


@dataclass(frozen=True, slots=True)
class Name:
    """A Ruby symbol."""

    name: str


@dataclass(slots=True, eq=False)
class Layer:
    """A variable's shape collection. Methods that change a layer in place put another operation here."""

    kind: str
    op: Op


@dataclass(frozen=True, slots=True)
class Input:
    """``$input`` or ``$output``."""

    name: str


@dataclass(frozen=True, slots=True)
class SourceValue:
    """What ``source`` and ``layout`` return: the layout, from a cell down, perhaps within a box."""

    cell: str | None = None
    #: Left, bottom, right, top in micrometres.
    box: tuple[float, float, float, float] | None = None
    #: ``touching``, ``overlapping`` or ``clip``.
    mode: str = ""


@dataclass(frozen=True, slots=True)
class Nothing:
    """The value of a call whose result the interpreter does not carry (``output``, ``info``)."""

    of: str


@dataclass(slots=True)
class Arguments:
    """One call's arguments."""

    name: str
    values: list[Any]
    options: dict[str, Any]
    line: int
    #: The database unit in micrometres.
    dbu: float = field(default=0.001)

    def error(self, what: str) -> DeckError:
        """The error that KLayout would end the deck with."""
        return DeckError(self.line, f"{self.name}: {what}")

    def refuse(self, why: str) -> Refusal:
        """What this interpreter does not know."""
        return Refusal(self.line, self.name, why)

    def count(self, least: int, most: int) -> None:
        """Check the number of arguments, and that there are no options."""
        if self.options:
            raise self.refuse("options are not known here")
        if not least <= len(self.values) <= most:
            raise self.error(f"{len(self.values)} arguments, {least} to {most} expected")

    def number(self, value: Any) -> int | float:
        """Return a plain number."""
        if not is_number(value):
            raise self.error(f"{describe(value)} is not a number")
        if abs(value) > 1e18 or value != value:
            raise self.refuse("too large a number")
        return value

    def length(self, value: Any) -> int:
        """Return a length in database units: whole numbers are units already, others are micrometres."""
        value = self.number(value)
        units = value if isinstance(value, int) else math.floor(0.5 + value / self.dbu)
        if abs(units) > MOST_UNITS:
            raise self.refuse("too large a length")
        return units

    def distance(self, value: Any) -> int:
        """Return a length that must not be negative."""
        units = self.length(value)
        if units < 0:
            raise self.error("a negative length")
        return units

    def area(self, value: Any) -> int:
        """Return an area in square database units."""
        value = self.number(value)
        return value if isinstance(value, int) else math.floor(0.5 + value / (self.dbu * self.dbu))

    def prepared(self, value: Any) -> Any:
        """Return a float as database units, anything else as it is."""
        return self.length(value) if isinstance(value, float) else value


def is_number(value: Any) -> bool:
    """Say whether a value is a whole number or one with a point (``true`` is none)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def describe(value: Any) -> str:
    """Name a value in a message."""
    if isinstance(value, Layer):
        return f"a layer of {value.kind}"
    if isinstance(value, Word):
        return f"the word for {value.kind}"
    if value is None:
        return "nil"
    return str(value)[:40] if isinstance(value, (int, float, str)) else type(value).__name__.lower()
