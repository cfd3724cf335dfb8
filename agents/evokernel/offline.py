"""The offline kernel proposer's next step: which schedule to write, given what the memory recalls.

It drafts with the schedule of a recalled kernel of the same family, else with the one that suits the target, else with
safer ones. It refines by changing the start point's schedule: a change that the recalled experiences and practices
speak for, else a random one that was not tried yet.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orienteer.kernels.blocks.emit import Unsupported
from orienteer.kernels.blocks.graph import Graph
from orienteer.kernels.blocks.search import Draft

#: Random schedules that are looked at before a search space counts as exhausted.
_LOOKS = 64


class Search(Protocol):
    """What a target's offline proposer offers."""

    def family(self, graph: Graph) -> str:
        """Return the operator's class."""

    def first(self, graph: Graph) -> dict[str, Any]:
        """Return the schedule to begin with."""

    def fallbacks(self, graph: Graph) -> list[dict[str, Any]]:
        """Return safer schedules."""

    def space(self, graph: Graph, task_name: str, task_source: str) -> dict[str, list[Any]]:
        """Return the parameters that matter, each with its values in order."""

    def write(self, graph: Graph, task_name: str, task_source: str, schedule: Mapping[str, Any]) -> Draft:
        """Write a candidate."""


@dataclass(frozen=True)
class Recalled:
    """A memory item as the offline proposer reads it."""

    id: str
    outcome: str
    family: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """A written candidate and where it comes from."""

    draft: Draft
    #: Memory items that decided it.
    used: tuple[str, ...] = ()
    #: What changed against the start point: ``param``, ``from``, ``to``, ``step``.
    moves: tuple[Mapping[str, Any], ...] = ()


@dataclass
class Proposer:
    """Chooses and writes schedules for one operator.

    Args:
        search: the target's search space.
        graph: the traced operator.
        name, source: the task.
    """

    search: Search
    graph: Graph
    name: str
    source: str
    _space: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def space(self) -> dict[str, list[Any]]:
        """The parameters that matter here, computed once."""
        if not self._space:
            self._space = self.search.space(self.graph, self.name, self.source)
        return self._space

    def _new(self, schedule: Mapping[str, Any], tried: set[str]) -> Draft | None:
        made = self.search.write(self.graph, self.name, self.source, schedule)
        return made if hashlib.sha256(made.source.encode()).hexdigest() not in tried else None

    def draft(self, recalled: Sequence[Recalled], tried: set[str]) -> Step | None:
        """Return the next draft, or None when every schedule was tried.

        Args:
            recalled: items in the order of their value.
            tried: SHA-256 of the sources that this task has had.

        Raises:
            Unsupported: there is no building block for an operator of the graph.
        """
        family = self.search.family(self.graph)
        first = self.search.first(self.graph)
        known_bad = [item for item in recalled if item.outcome == "failure" and item.family == family]
        options: list[tuple[dict[str, Any], tuple[str, ...]]] = []
        for item in recalled:
            if item.outcome == "success" and item.family == family and item.facts.get("schedule"):
                options.append(({**first, **self._fitting(item.facts["schedule"])}, (item.id,)))
        options += [(schedule, ()) for schedule in (first, *self.search.fallbacks(self.graph))]
        put_off: list[tuple[dict[str, Any], tuple[str, ...]]] = []
        for schedule, used in options:
            warning = next((item for item in known_bad if self._same(item.facts.get("schedule"), schedule)), None)
            if warning is not None and not used:
                put_off.append((schedule, (warning.id,)))
                continue
            made = self._new(schedule, tried)
            if made is not None:
                return Step(made, used)
        for schedule, used in put_off:
            made = self._new(schedule, tried)
            if made is not None:
                return Step(made, used)
        return None

    def refine(
        self, start: Mapping[str, Any], recalled: Sequence[Recalled], tried: set[str], rng: random.Random
    ) -> Step | None:
        """Return a change of the start point's schedule that was not tried yet, or None when there is none.

        Args:
            start: the start point's schedule.
            recalled: items in the order of their value.
            tried: SHA-256 of the sources that this task has had.
            rng: the run's.
        """
        bad = [item for item in recalled if item.outcome == "failure"]
        for item in recalled:
            if item.outcome == "failure":
                continue
            schedule = self._applied(item.facts, start)
            if schedule is None:
                continue
            made = self._new(schedule, tried)
            if made is not None:
                return Step(made, (item.id,), self._moves(start, schedule))
        put_off: list[tuple[Draft, str, tuple[Mapping[str, Any], ...]]] = []
        for schedule in self._random(start, rng):
            made = self._new(schedule, tried)
            if made is None:
                continue
            moves = self._moves(start, schedule)
            warning = next((item for item in bad if _same_moves(item.facts.get("moves", ()), moves)), None)
            if warning is None:
                return Step(made, (), moves)
            put_off.append((made, warning.id, moves))
        return Step(put_off[0][0], (put_off[0][1],), put_off[0][2]) if put_off else None

    # -- schedules ---------------------------------------------------------------------------------------------------

    def _fitting(self, schedule: Mapping[str, Any]) -> dict[str, Any]:
        return {name: schedule[name] for name, values in self.space.items() if schedule.get(name) in values}

    @staticmethod
    def _same(known: Mapping[str, Any] | None, schedule: Mapping[str, Any]) -> bool:
        return known is not None and all(known.get(key) == value for key, value in schedule.items())

    def _applied(self, facts: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the start point with an item's change, or its whole schedule where it has no change; None if equal."""
        changed = dict(start)
        for move in facts.get("moves", ()):
            values = self.space.get(str(move.get("param")))
            if values is None or start.get(move["param"]) not in values:
                return None
            to = move.get("to")
            if to is None or to not in values:
                place = values.index(start[move["param"]]) + int(move.get("step", 0))
                to = values[max(0, min(len(values) - 1, place))]
            changed[move["param"]] = to
        if not facts.get("moves") and facts.get("schedule"):
            changed.update(self._fitting(facts["schedule"]))
        return changed if any(changed.get(key) != start.get(key) for key in self.space) else None

    def _moves(self, start: Mapping[str, Any], schedule: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        out = []
        for name, values in self.space.items():
            old, new = start.get(name), schedule.get(name)
            if old != new:
                step = values.index(new) - values.index(old) if old in values and new in values else 0
                out.append({"param": name, "from": old, "to": new, "step": step})
        return tuple(out)

    def _random(self, start: Mapping[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
        """Yield schedules near the start point first: one step of one parameter, any value of one, then of several."""
        near: list[dict[str, Any]] = []
        far: list[dict[str, Any]] = []
        for name, values in self.space.items():
            place = values.index(start[name]) if start.get(name) in values else None
            for position, value in enumerate(values):
                if position != place:
                    close = place is not None and abs(position - place) == 1
                    (near if close else far).append({**start, name: value})
        rng.shuffle(near)
        rng.shuffle(far)
        yield from near
        yield from far
        for _ in range(_LOOKS if len(self.space) > 1 else 0):
            changed = dict(start)
            for name in rng.sample(sorted(self.space), rng.randint(2, min(3, len(self.space)))):
                changed[name] = rng.choice(self.space[name])
            yield changed


def _same_moves(known: Sequence[Mapping[str, Any]], moves: Sequence[Mapping[str, Any]]) -> bool:
    def plain(items: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any, Any]]:
        return sorted((str(m.get("param")), str(m.get("from")), str(m.get("to"))) for m in items)

    return bool(known) and plain(known) == plain(moves)


__all__: Sequence[str] = ["Proposer", "Recalled", "Search", "Step", "Unsupported"]
