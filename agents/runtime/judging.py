"""Evaluations of one step: which are needed, which the budget admits, how each is performed and written down."""

from __future__ import annotations

import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any

from orienteer.agents.runtime.budget import Budget
from orienteer.agents.runtime.events import EventLog
from orienteer.agents.runtime.method import Candidate, Evaluation, MachineryError, Method, Outcome
from orienteer.agents.runtime.run import Run, outcome_of
from orienteer.errors import BudgetReached, Interrupted, OrienteerError
from orienteer.memory.journal import Journal, NewEvaluation
from orienteer.memory.plain import canonical, digest, dumps, plain


@dataclass
class _Entry:
    """A candidate of the step, at the first slot that proposed it."""

    candidate: Candidate
    settings: dict[str, Any]
    settings_sha: str
    needed: bool = False
    #: True where an earlier attempt failed by machinery.
    again: bool = False


class Judge:
    """Performs the evaluations of a run, one step at a time.

    Args:
        run, method, journal, budget, events: the run's parts.
        reuse: take verdicts of other runs on the same content under the same settings.
    """

    def __init__(
        self, run: Run, method: Method, journal: Journal, budget: Budget, events: EventLog, *, reuse: bool = False
    ) -> None:
        self._run = run
        self._method = method
        self._journal = journal
        self._budget = budget
        self._events = events
        self._reuse = reuse
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._performed = journal.performed()
        self._entries: dict[int, _Entry] | None = None
        self._asks: list[Any] = []
        #: Attempts and machinery failures of this step, to give up early when nothing works.
        self._tried = 0
        self._spoiled = 0
        #: The budget error when not all needed evaluations were admitted.
        self.reached: BudgetReached | None = None

    def performed(self) -> int:
        """Return how many evaluations the run has really performed."""
        return self._performed

    @staticmethod
    def is_machinery(exc: BaseException) -> bool:
        """Say whether trying again makes sense."""
        return isinstance(exc, MachineryError)

    def open(self, step: int) -> None:
        """Forget the last step."""
        with self._lock:
            self._entries = None
            self._asks = []
            self._tried = self._spoiled = 0
            self.reached = None

    def judge(self, step: int, slot: int) -> None:
        """Evaluate the candidate of one slot, if there is one, it is needed and the budget admits it.

        Raises:
            BudgetReached: the time is up.
            Interrupted: the run was stopped.
            OrienteerError: something that ends the run.
        """
        entry = self._admitted(step).get(slot)
        if entry is None or not entry.needed or self.hopeless():
            return
        self._budget.check_time()
        self._perform(step, slot, entry)

    def outcomes(self, step: int) -> list[Outcome]:
        """Return the outcomes of a step in the order of the plan, as the database has them."""
        entries = {entry.candidate.id: entry for entry in self._admitted(step).values()}
        verdicts = self._journal.verdicts(step, self._method.evaluator)
        result = []
        for row in self._asks:
            entry = entries.get(row.candidate_id)
            verdict = verdicts.get((row.candidate_id, entry.settings_sha)) if entry else None
            result.append(outcome_of(row, entry.candidate if entry else None, verdict, self._journal))
        return result

    # -- inside -----------------------------------------------------------------------------------------------------

    def _admitted(self, step: int) -> dict[int, _Entry]:
        """Return the step's candidates by first slot, with ``needed`` set where an evaluation is to be performed.

        All proposals are settled when this is first called, so the answer depends on the database alone: it is the
        same whichever thread asks first, and the same again after a resume.
        """
        with self._lock:
            if self._entries is not None:
                return self._entries
            entries: dict[int, _Entry] = {}
            seen: set[str] = set()
            record = self._journal.step_record(step, self._method.evaluator)
            left = self._budget.evaluations_left(self._performed)
            for row in record.asks:
                if row.status != "proposed" or row.candidate_id in seen:
                    continue
                seen.add(row.candidate_id)
                candidate = self._run.build_candidate(*record.candidates[row.candidate_id])
                settings = plain(self._method.evaluation_key(self._run, candidate), "evaluation_key")
                entry = entries[row.slot] = _Entry(candidate, settings, digest(settings))
                verdict = record.verdicts.get((candidate.id, entry.settings_sha))
                if verdict is not None and verdict.status != "machinery":
                    continue
                if self._reuse and verdict is None and self._take_elsewhere(step, row.slot, entry):
                    continue
                if left is not None:
                    if left == 0:
                        self.reached = self._budget.evaluations_reached()
                        continue
                    left -= 1
                entry.needed, entry.again = True, verdict is not None
            self._entries, self._asks = entries, record.asks
            return entries

    def _take_elsewhere(self, step: int, slot: int, entry: _Entry) -> bool:
        row = self._journal.evaluation_elsewhere(entry.candidate.sha, self._method.evaluator, entry.settings_sha)
        if row is None:
            return False
        self._events.emit(
            step,
            "evaluation.reused",
            {"slot": slot, "task": entry.candidate.task, "candidate": entry.candidate.id, "from_run": row.run_id},
        )
        self._journal.evaluated(
            step,
            NewEvaluation(
                entry.candidate.id, entry.candidate.sha, self._method.evaluator, canonical(entry.settings),
                entry.settings_sha, row.status, row.started, row.ended, row.score, row.evidence, row.failure_kind,
                row.failure_message, row.metrics_json, row.log_sha, row.sandbox, reused_from=row.id,
            ),
        )  # fmt: skip
        return True

    def hopeless(self) -> bool:
        """Say whether so much of this step failed by machinery, and nothing else came, that more is a waste."""
        with self._counting:
            return self._spoiled == self._tried and self._tried >= max(4, 2 * self._run.workers)

    def _perform(self, step: int, slot: int, entry: _Entry) -> None:
        candidate = entry.candidate
        facts = {"slot": slot, "task": candidate.task, "candidate": candidate.id}
        self._events.emit(step, "evaluation.start", facts)
        started = time.time()
        verdict: Evaluation | None = None
        message, log = "", ""
        for attempt in (1, 2):
            try:
                verdict = self._method.evaluate(self._run, candidate)
                if not isinstance(verdict, Evaluation):
                    raise TypeError(f"evaluate returned {type(verdict).__name__}, not an Evaluation")
                break
            except OrienteerError:
                raise
            except (Exception, SystemExit) as exc:
                self._alive()
                text = " ".join(str(exc).split())[:500]
                message = f"{type(exc).__name__}: {text}" if not self.is_machinery(exc) else text
                log = traceback.format_exc()
                verdict = None
                if attempt == 1 and self.is_machinery(exc):
                    continue
                break
        if verdict is None or verdict.status != "ok":
            # Signals reach candidates too: what went wrong during a stop is not the candidate's fault.
            self._alive()
        self._record(step, entry, verdict, started, message, log, facts)

    def _record(
        self,
        step: int,
        entry: _Entry,
        verdict: Evaluation | None,
        started: float,
        message: str,
        log: str,
        facts: dict[str, Any],
    ) -> None:
        ended = time.time()
        candidate = entry.candidate
        kept = log if verdict is None else verdict.log
        log_sha = self._journal.keep(kept, "text/plain") if kept else None
        if verdict is None:
            new = NewEvaluation(
                candidate.id, candidate.sha, self._method.evaluator, canonical(entry.settings), entry.settings_sha,
                "machinery", started, ended, failure_kind="machinery", failure_message=message, log_sha=log_sha,
            )  # fmt: skip
            self._events.emit(step, "evaluation.machinery", facts | {"message": message, "traceback": log_sha})
        else:
            metrics = plain(verdict.metrics, "metrics", lenient=True)
            failure = verdict.failure
            new = NewEvaluation(
                candidate.id, candidate.sha, self._method.evaluator, canonical(entry.settings), entry.settings_sha,
                verdict.status, started, ended, None if verdict.score is None else float(verdict.score),
                verdict.evidence, failure.kind if failure else None, failure.message if failure else None,
                dumps(metrics), log_sha, str(metrics.get("sandbox", "")),
            )  # fmt: skip
            self._events.emit(
                step,
                "evaluation.done",
                facts | {
                    "status": verdict.status, "score": new.score, "evidence": verdict.evidence,
                    "failure": new.failure_kind, "message": (new.failure_message or "")[:300],
                    "seconds": round(ended - started, 4),
                },
            )  # fmt: skip
        self._journal.evaluated(step, new, again=entry.again)
        with self._counting:
            self._tried += 1
            self._spoiled += verdict is None
            self._performed += verdict is not None

    def _alive(self) -> None:
        if self._run.cancel.is_set():
            raise Interrupted(f"run {self._run.id} was stopped", f"go on with: agent runs resume {self._run.id}")
