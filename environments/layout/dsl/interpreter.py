"""Running a parsed deck on a layout."""

from __future__ import annotations

from orienteer.environments.layout.dsl import engine
from orienteer.environments.layout.dsl.compiler import compile_program
from orienteer.environments.layout.dsl.parser import parse
from orienteer.environments.layout.dsl.plan import Guard, Plan, Planner, execute
from orienteer.environments.layout.dsl.tree import DeckError, Program, Refusal
from orienteer.environments.layout.results import DeckResult, RunStatus, Violation


class Interpreter:
    """Runs decks on layouts and keeps what it has worked out: trees by text, plans by text and database unit.

    Not for two threads at once.

    Args:
        like: the version of KLayout whose checks are followed where shapes meet in a point; empty for the wheel's own.
        most: trees and plans kept.
    """

    def __init__(self, like: str = "", most: int = 2000) -> None:
        self.planner = Planner(_touching(like))
        self._most = most
        self._programs: dict[str, Program | Refusal] = {}
        self._plans: dict[tuple[str, float], Plan | Refusal | DeckError] = {}

    def program(self, deck: str) -> Program | Refusal:
        """Return the deck's tree, or why there is none."""
        found = self._programs.get(deck)
        if found is None:
            if len(self._programs) >= self._most:
                self._programs.clear()
            try:
                found = parse(deck)
            except Refusal as refusal:
                found = refusal
            self._programs[deck] = found
        return found

    def plan(self, program: Program, dbu: float) -> Plan | Refusal | DeckError:
        """Return the deck's plan for a database unit, or why there is none."""
        key = (program.text, dbu)
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= self._most:
                self._plans.clear()
            try:
                found = compile_program(program, dbu, self.planner)
            except (Refusal, DeckError) as wrong:
                found = wrong
            self._plans[key] = found
        return found

    def run(
        self, program: Program, source: engine.Source, *, geometry: bool = False, guard: Guard | None = None
    ) -> DeckResult:
        """Run a deck on a layout that is open.

        Raises:
            plan.TooLarge: a limit of ``guard`` was met.
        """
        plan = self.plan(program, source.dbu)
        if isinstance(plan, (Refusal, DeckError)):
            return failed(plan)
        try:
            if plan.title is not None:
                source.cell(plan.cell)
            known = execute(plan, source, source.known, guard)
        except DeckError as error:
            return failed(error)
        if not plan.reported:
            return DeckResult(RunStatus.NO_REPORT, message="the deck has no report to $output")
        counts: dict[str, int] = {}
        shapes: dict[str, tuple[Violation, ...]] = {}
        descriptions: dict[str, str] = {}
        for output in plan.outputs:
            made = known[output.op]
            if geometry:
                found = engine.violations(output.op, made, source)
                shapes[output.category] = shapes.get(output.category, ()) + found
                number = len(found)
            else:
                number = engine.count(output.op, made, source)
            counts[output.category] = counts.get(output.category, 0) + number
            if output.description is not None:
                descriptions[output.category] = output.description
        return DeckResult(RunStatus.OK, counts, shapes if geometry else None, descriptions)


def _touching(like: str) -> str:
    """Return which edges of no distance count for a version of KLayout."""
    numbers = [int(part) for part in like.split(".") if part.isdecimal()]
    old = bool(numbers) and numbers < [0, 28, 16]
    return "IncludeZeroDistanceWhenCollinearAndTouching" if old else "IncludeZeroDistanceWhenTouching"


def failed(why: Refusal | DeckError) -> DeckResult:
    """Return the result of a deck that cannot be run."""
    status = RunStatus.REFUSED if isinstance(why, Refusal) else RunStatus.ERROR
    return DeckResult(status, message=why.problem, line=why.line or None)


def interpret(program: Program, layout: object, *, geometry: bool = False) -> DeckResult:
    """Run a deck on a layout, flat, as KLayout does by default.

    Args:
        program: from ``parse``.
        layout: a ``klayout.db.Layout``.
        geometry: also return the shapes.

    Returns:
        counts, and shapes where asked for; ``refused`` or ``error`` with the line where there is no result.
    """
    return Interpreter().run(program, engine.Source(layout), geometry=geometry)


def supported(deck: str, dbu: float = 0.001) -> Refusal | None:
    """Return why the interpreter will not run a deck, or None where it will."""
    try:
        compile_program(parse(deck), dbu, Planner())
    except Refusal as refusal:
        return refusal
    except DeckError:
        return None
    return None
