"""The course of a run, read back from its record: all attempts, what they started from, what became of them.

Everything is taken from the rows of proposals, candidates and evaluations, so that a run that was interrupted, or
killed in the middle of a step, can be told like one that came to its end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from orienteer.agents.evokernel.stages import DRAFT
from orienteer.evaluators.kernel.verdict import quartiles, rejection_class

Outcome = Literal["ok", "failed", "unknown", "none", "ours", "pending"]
#: A verdict's or a proposal's status as an attempt's outcome.
_OUTCOMES: dict[str, Outcome] = {"ok": "ok", "failed": "failed", "unknown": "unknown", "machinery": "ours"}
_PROPOSALS: dict[str, Outcome] = {"failed": "none", "machinery": "ours"}
#: Attempts in words.
WORDS: dict[str, str] = {
    "ok": "feasible",
    "failed": "rejected",
    "unknown": "not decided",
    "none": "no kernel proposed",
    "ours": "broken by our machinery",
    "pending": "not judged yet",
}
#: Thresholds of ``fast_p`` (KernelBench, arXiv 2502.10517): the share of tasks with a right kernel that is more than p
#: times as fast as the reference.
FAST = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 4.0)


@dataclass(frozen=True)
class Attempt:
    """One attempt at a task."""

    #: Counted from 1 within the task, as the budget counts: faults of our machinery and what is not judged yet are not.
    number: int
    #: Its place among everything that was asked for the task, from 1.
    place: int
    step: int
    slot: int
    stage: str
    #: Its kernel; empty where none was proposed.
    candidate: str
    #: What it started from: the start point of a refinement, the attempt before a draft; may be empty.
    parent: str
    outcome: Outcome
    #: Failure kind and message.
    kind: str = ""
    message: str = ""
    #: What the search minimises (``Latency.cost``).
    cost: float | None = None
    latency: Mapping[str, Any] = field(default_factory=dict)
    evidence: str = ""
    gates: Sequence[Mapping[str, Any]] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    directive: Mapping[str, Any] = field(default_factory=dict)
    #: The artifact with the source.
    sha: str = ""
    #: How long the gates took.
    seconds: float | None = None
    #: The same kernel was proposed before.
    again: bool = False

    @property
    def counts(self) -> bool:
        """Whether it counts towards the task's budget."""
        return self.outcome not in ("ours", "pending")

    @property
    def rejection(self) -> str:
        """The class of its failure (``rejection_class``); empty for others."""
        return rejection_class(self.kind) if self.outcome == "failed" else ""

    @property
    def items(self) -> list[str]:
        """The memory items that it used, with the item of its start point."""
        point = self.directive.get("point_item")
        return list(dict.fromkeys([*self.notes.get("used", ()), *([point] if point else [])]))

    @property
    def change(self) -> str:
        """What was changed: the model's words, or the parameters that the offline proposer moved."""
        if self.notes.get("change"):
            return str(self.notes["change"])
        moves = [f"{move.get('param')} {move.get('from')} to {move.get('to')}" for move in self.notes.get("moves", ())]
        return ", ".join(moves).replace("_", " ")


@dataclass(frozen=True)
class Course:
    """All attempts at one task."""

    task: str
    group: str
    attempts: Sequence[Attempt]
    #: Why the task was turned away; empty for a task that was worked on.
    rejected: str = ""
    #: Why the search ended early (``no-building-block``, ``exhausted`` ...).
    ended: str = ""
    #: The hidden cases in words.
    cases: Sequence[str] = ()
    #: The artifact with the task's source.
    source: str = ""

    @property
    def draft(self) -> Attempt | None:
        """The first feasible kernel."""
        return next((item for item in self.attempts if item.outcome == "ok"), None)

    @property
    def best(self) -> Attempt | None:
        """The feasible kernel of the least cost; of equals the first; without costs the first one."""
        timed = [item for item in self.attempts if item.outcome == "ok" and item.cost is not None]
        return min(timed, key=lambda item: item.cost or 0.0) if timed else self.draft

    @property
    def chosen(self) -> Attempt | None:
        """The kernel that stands for the task: the best, else one that could not be decided here."""
        return self.best or next((item for item in self.attempts if item.outcome == "unknown"), None)

    @property
    def status(self) -> str:
        """``proven``, ``unproven``, ``failed``, ``not tried`` or ``rejected``."""
        if self.rejected:
            return "rejected"
        if self.draft is not None:
            return "proven"
        if self.chosen is not None:
            return "unproven"
        return "failed" if self.tries else "not tried"

    @property
    def tries(self) -> int:
        """How many attempts counted towards the budget."""
        return sum(item.counts for item in self.attempts)

    @property
    def curve(self) -> list[tuple[Attempt, float]]:
        """Every feasible attempt, with the least cost so far after it."""
        found: list[tuple[Attempt, float]] = []
        for item in self.attempts:
            if item.outcome == "ok" and item.cost is not None:
                found.append((item, min(item.cost, found[-1][1]) if found else item.cost))
        return found

    @property
    def over_draft(self) -> float | None:
        """How many times as fast as the first feasible kernel the best one is."""
        curve = self.curve
        return curve[0][1] / curve[-1][1] if curve else None

    @property
    def over_reference(self) -> float | None:
        """How many times as fast as the reference the best kernel is, where that was measured."""
        facts = (self.best.latency.get("facts") or {}) if self.best is not None else {}
        return facts.get("speedup") or None

    @property
    def failure(self) -> Attempt | None:
        """The last failed attempt of a task without a kernel."""
        if self.chosen is not None:
            return None
        return next((item for item in reversed(self.attempts) if item.outcome in ("failed", "none")), None)

    def row(self, proposer: str = "") -> dict[str, Any]:
        """Return what :func:`.results.rows` and :func:`groups` want to know."""
        chosen = self.chosen or (self.attempts[-1] if self.attempts else None)
        failure = self.failure
        why = {"kind": failure.kind, "message": failure.message} if failure is not None else None
        return {
            "task": self.task,
            "group": self.group,
            "status": self.status,
            "evidence": chosen.evidence if chosen is not None and self.chosen is not None else "",
            "latency": chosen.latency if chosen is not None and chosen.latency else None,
            "gates": list(chosen.gates) if chosen is not None else [],
            "speedup_over_draft": self.over_draft,
            "speedup_over_reference": self.over_reference,
            "proposer": proposer,
            "attempts": self.tries,
            "failure": {"kind": "bad-task", "message": self.rejected} if self.rejected else why,
        }


def courses(document: Mapping[str, Any]) -> list[Course]:
    """Return the course of every task of a run, in the order of the request; tasks that were turned away come last.

    Args:
        document: a run as :func:`orienteer.agents.runtime.records.show_run` gives it.
    """
    state = document.get("state") or {}
    known: dict[str, Mapping[str, Any]] = dict(state.get("tasks") or {})
    made = {item["id"]: item for item in document["candidates"]}
    verdicts = {item["candidate_id"]: item for item in document["evaluations"]}
    attempts: dict[str, list[Attempt]] = {name: [] for name in known}
    for row in sorted(document["proposals"], key=lambda row: (row["step"], row["slot"])):
        own = attempts.setdefault(row["task"], [])
        own.append(_attempt(row, made, verdicts, own))
    found = [
        Course(
            name,
            str(known.get(name, {}).get("group", "")),
            tried,
            ended=str(known.get(name, {}).get("given_up", "")),
            cases=known.get(name, {}).get("cases") or (),
            source=str(known.get(name, {}).get("source", "")),
        )
        for name, tried in attempts.items()
    ]
    rejected = state.get("rejected") or {}
    return found + [Course(name, group_of(name), [], rejected=str(why)) for name, why in rejected.items()]


def _attempt(
    row: Mapping[str, Any],
    made: Mapping[str, Mapping[str, Any]],
    verdicts: Mapping[str, Mapping[str, Any]],
    before: Sequence[Attempt],
) -> Attempt:
    name = row["candidate_id"] or ""
    candidate, verdict = made.get(name), verdicts.get(name)
    directive = row["directive"]
    metrics = verdict["metrics"] if verdict is not None else {}
    outcome: Outcome
    if verdict is not None:
        outcome = _OUTCOMES.get(verdict["status"], "pending")
    else:
        outcome = _PROPOSALS.get(row["status"], "pending")
    failed = verdict if verdict is not None and verdict["failure_kind"] else row
    return Attempt(
        number=1 + sum(item.counts for item in before),
        place=len(before) + 1,
        step=row["step"],
        slot=row["slot"],
        stage=str(directive.get("stage", DRAFT)),
        candidate=name,
        parent=next(iter(row["parents"]), ""),
        outcome=outcome,
        kind=failed["failure_kind"] or "",
        message=failed["failure_message"] or "",
        cost=verdict["score"] if verdict is not None else None,
        latency=metrics.get("latency") or {},
        evidence=verdict["evidence"] if verdict is not None else "",
        gates=metrics.get("gates") or (),
        # Notes belong to the first proposal of a kernel; a repetition changed nothing.
        notes=candidate["notes"] if candidate is not None else {},
        directive=directive,
        sha=candidate["content_sha"] if candidate is not None else "",
        seconds=verdict["seconds"] if verdict is not None else None,
        again=bool(name) and any(item.candidate == name for item in before),
    )


def group_of(name: str) -> str:
    """Return the level of a KernelBench problem by the name that its task was given."""
    match = re.match(r"level\d+(?=_)", name)
    return match[0] if match else ""


def groups(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the results by group and for all tasks.

    Args:
        rows: one of each task, with ``group``, ``status``, ``speedup_over_draft`` and ``speedup_over_reference``.

    Returns:
        one entry a group, the last one (``all``) for all tasks: ``tasks``, ``feasible``, ``rejected``; ``measured``,
        the feasible tasks with a measured reference; ``fast``, the share of all tasks by p, empty where no reference
        was measured; ``over_draft`` and ``over_reference`` with ``n``, ``median`` and ``quartiles``.
    """
    rows = list(rows)
    names = sorted({str(row.get("group") or "") for row in rows} - {""})
    parts = [(name, [row for row in rows if row.get("group") == name]) for name in names]
    others = [row for row in rows if not row.get("group")]
    if names and others:
        parts.append(("no level", others))
    return [_group(name, part) for name, part in [*parts, ("all", rows)]]


def _group(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    right = [row for row in rows if row["status"] == "proven"]
    measured = [row["speedup_over_reference"] for row in right if row.get("speedup_over_reference")]
    fast: dict[str, float] = {}
    if measured:
        fast = {f"{p:g}": sum(value > p for value in measured) / len(rows) for p in FAST}
        fast["0"] = len(right) / len(rows)
    return {
        "group": name,
        "tasks": len(rows),
        "feasible": len(right),
        "rejected": sum(row["status"] == "rejected" for row in rows),
        "measured": len(measured),
        "fast": fast,
        "over_draft": _spread([row["speedup_over_draft"] for row in right if row.get("speedup_over_draft")]),
        "over_reference": _spread(measured),
    }


def _spread(values: Sequence[float]) -> dict[str, Any]:
    """Return number, median, quartiles and geometric mean of speed-ups."""
    if not values:
        return {"n": 0, "median": None, "quartiles": None, "geometric_mean": None}
    first, middle, third = quartiles(values)
    mean = math.exp(sum(math.log(value) for value in values) / len(values))
    return {"n": len(values), "median": middle, "quartiles": [first, third], "geometric_mean": mean}
