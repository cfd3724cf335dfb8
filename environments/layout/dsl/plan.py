"""What a deck comes down to: a list of operations on shape collections, each named once.

Two operations with the same name, inputs and numbers are the same object within one ``Planner``. So a derived layer
that many decks share is computed once for a layout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orienteer.environments.layout.dsl.tree import DeckError

#: Kinds of shape collections.
POLYGONS, EDGES, EDGE_PAIRS, TEXTS = "polygons", "edges", "edge pairs", "texts"


class Op:
    """One operation. ``run`` takes the layout and the input collections, and returns a new collection."""

    __slots__ = ("drawn", "inputs", "kind", "line", "name", "parts", "run")

    def __init__(
        self,
        name: str,
        kind: str,
        inputs: tuple[Op, ...],
        run: Callable[..., Any],
        line: int,
        *,
        drawn: bool = False,
        parts: Any = None,
    ) -> None:
        self.name, self.kind, self.inputs, self.run, self.line = name, kind, inputs, run, line
        #: Perhaps straight from the layout, cells and all: a report shows such shapes cell by cell.
        self.drawn = drawn
        self.parts = parts


class Planner:
    """Makes operations; the same request gives the same object.

    Args:
        touching: which edges of no distance count in checks: ``IncludeZeroDistanceWhenTouching``, which is KLayout's
            way since 0.28.16, or ``IncludeZeroDistanceWhenCollinearAndTouching``, which is that of 0.28.5.
        most: operations kept.
    """

    def __init__(self, touching: str = "IncludeZeroDistanceWhenTouching", most: int = 20_000) -> None:
        self.touching = touching
        self._ops: dict[Hashable, Op] = {}
        self._most = most

    def op(
        self,
        name: str,
        kind: str,
        inputs: tuple[Op, ...],
        constants: Hashable,
        run: Callable[..., Any],
        line: int,
        *,
        drawn: bool = False,
    ) -> Op:
        """Return the operation; ``constants`` are all that ``run`` depends on beside the inputs."""
        # Python takes 1, 1.0 and True for one key: the types keep them apart.
        key = (name, kind, inputs, constants, _types(constants))
        found = self._ops.get(key)
        if found is None:
            if len(self._ops) >= self._most:
                self._ops.clear()
            found = self._ops[key] = Op(name, kind, inputs, run, line, drawn=drawn)
        return found


def _types(value: Any) -> Any:
    return tuple(_types(item) for item in value) if isinstance(value, tuple) else type(value)


@dataclass(frozen=True)
class Output:
    """One ``output``: where it goes, and what."""

    category: str
    description: str | None
    op: Op
    line: int


@dataclass(frozen=True)
class Plan:
    """A deck for one database unit.

    Attributes:
        order: every operation that an output needs, inputs before users.
        outputs: in the deck's order.
        title: of the report; None where the deck makes no report.
        reported: whether the report goes to ``$output``.
        cell: the cell that is read, None for the top cell.
    """

    order: tuple[Op, ...]
    outputs: tuple[Output, ...]
    title: str | None
    reported: bool
    cell: str | None


def ordered(outputs: Sequence[Output]) -> tuple[Op, ...]:
    """Return the operations that the outputs need, inputs first (no recursion: chains may be long)."""
    done: dict[Op, None] = {}
    for output in outputs:
        stack: list[tuple[Op, bool]] = [(output.op, False)]
        while stack:
            op, ready = stack.pop()
            if op in done:
                continue
            if ready or not op.inputs:
                done[op] = None
            else:
                stack.append((op, True))
                stack.extend((item, False) for item in reversed(op.inputs) if item not in done)
    return tuple(done)


class TooLarge(Exception):
    """The run outgrows what may be done in this process."""


@dataclass
class Guard:
    """What one run may cost in this process. klayout.db cannot be stopped within an operation, so sizes are watched.

    Attributes:
        shapes: most shapes of one collection.
        edges: most edges of a collection that took long to make.
        seconds: wall-clock limit, looked at between operations.
    """

    shapes: int = 4000
    edges: int = 12_000
    seconds: float = 20.0


#: An operation that took less than this cannot have made much.
_QUICK_S = 0.004


def execute(plan: Plan, source: Any, known: dict[Op, Any], guard: Guard | None = None) -> Mapping[Op, Any]:
    """Run a plan's operations on a layout.

    Args:
        plan: what to do.
        source: the layout (``engine.Source``).
        known: results of earlier plans on the same layout; new ones are added.
        guard: limits; None for none.

    Raises:
        TooLarge: a limit of ``guard`` was met.
        DeckError: klayout.db refused an operation, as KLayout would.
    """
    clock = time.perf_counter
    start = before = clock()
    for op in plan.order:
        if op in known:
            continue
        try:
            made = op.run(source, *[known[item] for item in op.inputs])
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            raise DeckError(op.line, f"{op.name}: {' '.join(str(error).split())[:200]}") from None
        known[op] = made
        if guard is not None:
            after = clock()
            if after - before > _QUICK_S and not isinstance(made, list):
                if made.count() > guard.shapes or _edges(op, made) > guard.edges or after - start > guard.seconds:
                    raise TooLarge
                after = clock()
            before = after
    return known


def _edges(op: Op, made: Any) -> int:
    if op.kind != POLYGONS:
        return int(made.count())
    return sum(polygon.num_points() for polygon in made.each())
