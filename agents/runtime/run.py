"""The context that a method works in."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orienteer.agents.runtime.events import EventLog
from orienteer.agents.runtime.method import Ask, Candidate, Evaluation, Failure, Method, Outcome, Settings
from orienteer.errors import UsageError
from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.journal import Journal
from orienteer.memory.plain import plain
from orienteer.memory.rundb import RunDB

if TYPE_CHECKING:
    from orienteer.agents.runtime.models import ModelSession

#: What the current thread works on: phase, step, slot.
PLACE: ContextVar[tuple[str, int | None, int | None]] = ContextVar("orienteer_place", default=("", None, None))


@dataclass(frozen=True)
class Best:
    """The best candidate that a run has for a task."""

    candidate: Candidate
    evaluation: Evaluation


class Run:
    """One run, as its method sees it. Everything here may be used from any thread.

    Attributes:
        id: names the run; results must not depend on it.
        seed: everything random derives from it, by :meth:`rng`.
        step: which loop iteration this is, from 0.
        settings: the method's checked settings.
        target: what the goal is for (``npu``, ``triton`` ...).
        tasks: goals by name, in order.
        options: further plain options of the request.
        model: the session to ask, or None with the offline proposer.
        proposer: who proposes: the model's name or ``offline``.
        artifacts, db: the stores.
        cancel: set when the run is to stop; long work looks at it.
        folder: a folder for files that a person may want to read; made on first use.
        sandbox_choice, allow_unsafe: what the person said about sandboxes.
        workers: how many proposals or evaluations run at once.
    """

    def __init__(
        self,
        *,
        run_id: str,
        seed: int,
        settings: Settings,
        target: str,
        tasks: Sequence[str],
        options: Mapping[str, Any],
        journal: Journal,
        events: EventLog,
        method: Method,
        cancel: threading.Event,
        folder: Path,
        sandbox: str,
        allow_unsafe: bool,
        workers: int,
    ) -> None:
        self.id = run_id
        self.seed = seed
        self.step = 0
        self.settings = settings
        self.target = target
        self.tasks = list(tasks)
        self.options = dict(options)
        self.model: ModelSession | None = None
        self.cancel = cancel
        self.sandbox_choice = sandbox
        self.allow_unsafe = allow_unsafe
        self.workers = workers
        self.artifacts: ArtifactStore = journal.store
        self.db: RunDB = journal.db
        self._journal = journal
        self._events = events
        self._method = method
        self._folder = folder
        #: Facts that the method added to the provenance.
        self.facts: dict[str, Any] = {}

    @property
    def proposer(self) -> str:
        """Who proposes in this run."""
        return "offline" if self.model is None else self.model.proposer

    @property
    def folder(self) -> Path:
        """The run's own folder, made on first use."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    @property
    def home(self) -> Path:
        """Orienteer's home folder (toolchains and shared stores are in it)."""
        return self._folder.parent.parent

    def first_state(self) -> dict[str, Any] | None:
        """Return what ``start`` returned when the run began; None while it begins. A resume calls ``start`` again."""
        row = self._journal.state(-1)
        found: dict[str, Any] | None = None if row is None else json.loads(row.state_json)
        return found

    def state_before(self) -> dict[str, Any]:
        """Return the state that the current step works on: what ``plan`` was given."""
        row = self._journal.state(self.step - 1)
        if row is None:
            raise RuntimeError(f"the state before step {self.step} is not in the database")
        found: dict[str, Any] = json.loads(row.state_json)
        return found

    def rng(self, *labels: str | int) -> random.Random:
        """Return a generator derived from the seed and the labels alone.

        Equal labels give equal numbers in every process; there is no shared state that the order of threads could
        disturb. Put into the labels whatever tells this use apart: ``run.rng("mutate", ask.step, ask.slot)``.
        """
        return derive(self.seed, *labels)

    def emit(self, kind: str, **facts: Any) -> None:
        """Record an event of the method's own kind; the facts are plain data."""
        self._events.emit(self.step, kind, facts)

    def provenance(self, **facts: Any) -> None:
        """Add facts to the run's provenance (versions of tools, evidence level, sandbox in use)."""
        self.facts.update(plain(facts, "provenance", lenient=True))

    def candidate(self, candidate_id: str) -> Candidate:
        """Return one candidate of this run.

        Raises:
            UsageError: there is none of that id.
        """
        found = self._journal.candidate(candidate_id)
        if found is None:
            raise UsageError(f"run {self.id} has no candidate {candidate_id!r}", "see `agent runs show`")
        return self.build_candidate(*found)

    def candidates(self, task: str | None = None) -> list[Candidate]:
        """Return the candidates so far, in the order they were found; of one task or all."""
        rows = self._journal.candidates()
        return [self.build_candidate(row, parents) for row, parents in rows if task is None or row.task == task]

    def tried(self, task: str) -> set[str]:
        """Return SHA-256 of the contents of a task's candidates so far."""
        return self._journal.content_shas(task)

    def children(self, candidate_id: str) -> list[Candidate]:
        """Return the candidates that started from this one, in the order they were found."""
        return [self.candidate(child) for child in self._journal.children(candidate_id)]

    def evaluation(self, candidate_id: str) -> Evaluation | None:
        """Return the newest verdict on a candidate; None where there is none, or none that our machinery completed."""
        row = self._journal.newest_evaluation(candidate_id, self._method.evaluator)
        return None if row is None or row.status == "machinery" else evaluation_of(row, self._journal)

    def outcomes(self, task: str | None = None, step: int | None = None) -> list[Outcome]:
        """Return what became of the asks so far, in the order of the plans; of one task, of one step, or all.

        An ask that is not settled yet has neither evaluation nor failure.
        """
        if step is None:
            rows = self._journal.all_proposals()
            found = {row.id: (row, parents) for row, parents in self._journal.candidates()}
            verdicts = {v.candidate_id: v for v in self._journal.evaluations() if v.evaluator == self._method.evaluator}
        else:
            record = self._journal.step_record(step, self._method.evaluator)
            rows, found = record.asks, record.candidates
            verdicts = {candidate_id: row for (candidate_id, _), row in record.verdicts.items()}
        by_id = {name: self.build_candidate(*item) for name, item in found.items()}
        return [
            outcome_of(row, by_id.get(row.candidate_id), verdicts.get(row.candidate_id), self._journal)
            for row in rows
            if task is None or row.task == task
        ]

    def best(self, task: str | None = None) -> Best | None:
        """Return the best candidate of a task (or of all), honouring ``minimise``; of equals the one found first."""
        verdict = self._journal.best(self._method.evaluator, minimise=self._method.minimise, task=task)
        if verdict is None:
            return None
        return Best(self.candidate(verdict.candidate_id), evaluation_of(verdict, self._journal))

    # -- inside -----------------------------------------------------------------------------------------------------

    def build_candidate(self, row: Any, parents: tuple[str, ...]) -> Candidate:
        """Return the candidate of a database row (used by the runtime)."""
        return Candidate(
            id=row.id,
            task=row.task,
            content=self.artifacts.text(row.content_sha),
            sha=row.content_sha,
            step=row.step,
            slot=row.slot,
            parents=parents,
            notes=json.loads(row.notes_json),
        )


def outcome_of(row: Any, candidate: Candidate | None, verdict: Any | None, journal: Journal) -> Outcome:
    """Return what became of an ask: its row of ``proposals``, the candidate and the row of ``evaluations``, if any."""
    ask = ask_of(row)
    if row.status in ("failed", "machinery"):
        return Outcome(ask, None, None, Failure(row.failure_kind, row.failure_message))
    if candidate is None or verdict is None:
        return Outcome(ask, candidate, None)
    if verdict.status == "machinery":
        return Outcome(ask, candidate, None, Failure("machinery", verdict.failure_message))
    return Outcome(ask, candidate, evaluation_of(verdict, journal))


def derive(seed: int, *labels: str | int) -> random.Random:
    """Return a generator that is a function of seed and labels; ``1`` and ``"1"`` are different labels."""
    text = json.dumps([seed, *labels], separators=(",", ":"))
    return random.Random(int.from_bytes(hashlib.sha256(text.encode("ascii")).digest(), "big"))


def ask_of(row: Any) -> Ask:
    """Return the ask of a row of ``proposals``."""
    return ask_from(json.loads(row.ask_json), row.step, row.slot)


def ask_from(kept: Mapping[str, Any], step: int, slot: int) -> Ask:
    """Return the ask that was kept as plain data."""
    return Ask(kept["task"], kept["directive"], tuple(kept["parents"]), step, slot)


def evaluation_of(row: Any, journal: Journal) -> Evaluation:
    """Return the evaluation of a row of ``evaluations`` (not one of status ``machinery``)."""
    failure = None if row.failure_kind is None else Failure(row.failure_kind, row.failure_message or "")
    return Evaluation(
        status=row.status,
        score=row.score,
        evidence=row.evidence,
        failure=failure,
        metrics=json.loads(row.metrics_json),
        log=journal.store.text(row.log_sha) if row.log_sha else "",
    )
