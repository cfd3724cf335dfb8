"""What running a deck on a layout gave: counts and geometry per category, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

#: Corner points in micrometres.
Points = tuple[tuple[float, float], ...]


class RunStatus(StrEnum):
    """How a run of a deck on a layout ended."""

    #: The deck ran to its end and reported (nothing, perhaps).
    OK = "ok"
    #: The deck raised an error, or is no valid Ruby.
    ERROR = "error"
    #: The backend does not know something in the deck (the embedded interpreter only); the message names the line.
    REFUSED = "refused"
    #: The time-out of one run passed.
    TIMEOUT = "timeout"
    #: The process running the deck died.
    CRASH = "crash"
    #: A limit of memory, processes or file size was met.
    LIMIT = "limit"
    #: The deck ended well without ``report`` to ``$output``: what it found is unknown.
    NO_REPORT = "no-report"
    #: The layout cannot be read; not the deck's fault.
    BAD_LAYOUT = "bad-layout"
    #: Our own machinery failed (sandbox, KLayout itself); neither the deck nor the layout is to blame.
    MACHINERY = "machinery"


@dataclass(frozen=True)
class Violation:
    """One reported shape.

    Attributes:
        kind: ``polygon``, ``box``, ``edge``, ``edge-pair``, ``path``, ``text`` or ``value``.
        contours: its corner points in micrometres: hull first, then holes; two contours of two points for an edge pair.
        text: what a ``text`` or ``value`` says.
    """

    kind: str
    contours: tuple[Points, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class DeckResult:
    """What one run of a deck on a layout gave.

    Attributes:
        status: how it ended.
        counts: reported shapes per category, by the category's plain name (KLayout's quotes taken off); categories
            that the deck named and found nothing for are there with 0. Empty unless ``status`` is ``ok``.
        violations: the shapes per category where they were asked for, else None.
        descriptions: what the deck says of a category.
        message: why there is no result, one line.
        line: the line of the deck that the message is about, from 1.
        backend: who ran it: ``strmrun``, ``klayout`` or ``py``.
        version: KLayout's version there.
        cpu_s: processor seconds of the run, without starting the backend; 0 where it came out of the cache.
        cached: True where an earlier run of the same deck on the same layout answered.
    """

    status: RunStatus
    counts: Mapping[str, int] = field(default_factory=dict)
    violations: Mapping[str, tuple[Violation, ...]] | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    line: int | None = None
    backend: str = ""
    version: str = ""
    cpu_s: float = 0.0
    cached: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is a result."""
        return self.status is RunStatus.OK

    def flagged(self, category: str) -> bool | None:
        """Say whether the deck reports a violation of the category; None where there is no result."""
        return self.counts.get(category, 0) > 0 if self.ok else None
