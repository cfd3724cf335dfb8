"""What one run writes down as it goes: asks, candidates, evaluations, states, events.

Every method is one transaction, so that a killed process leaves whole facts or none. Rows come back as named tuples of
plain values; what they mean to a method is the runtime's business.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select, update

from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.plain import clean, dumps
from orienteer.memory.rundb import RunDB
from orienteer.memory.schema import (
    artifacts,
    candidates,
    evaluation_settings,
    evaluations,
    events,
    lineage,
    method_states,
    proposals,
)

#: How long an event may wait for the end of its step (seconds); the heartbeat flushes too.
EVENTS_WAIT = 0.5
#: At least so many newest states of the method stay in the database (at most twice as many), and the first.
KEEP_STATES = 4

_P, _C, _E, _S = proposals.c, candidates.c, evaluations.c, method_states.c
# Built once: SQLAlchemy caches the compiled text by the statement's structure, and building it costs more than running.
_ASKS = select(proposals).where(_P.run_id == bindparam("r"), _P.step == bindparam("s")).order_by(_P.slot)
_CANDIDATE = select(candidates).where(_C.run_id == bindparam("r"), _C.id == bindparam("c"))
_CANDIDATES = select(candidates).where(_C.run_id == bindparam("r")).order_by(_C.step, _C.slot)
_SHAS_OF_TASK = select(_C.content_sha).where(_C.run_id == bindparam("r"), _C.task == bindparam("t"))
_CHILDREN = (
    select(lineage.c.child_id)
    .join(candidates, and_(_C.run_id == lineage.c.run_id, _C.id == lineage.c.child_id))
    .where(lineage.c.run_id == bindparam("r"), lineage.c.parent_id == bindparam("c"))
    .order_by(_C.step, _C.slot)
)
_OF_STEP = (
    select(candidates)
    .join(proposals, and_(_P.run_id == _C.run_id, _P.candidate_id == _C.id))
    .where(_P.run_id == bindparam("r"), _P.step == bindparam("s"))
)
_PARENTS = (
    select(lineage.c.parent_id)
    .where(lineage.c.run_id == bindparam("r"), lineage.c.child_id == bindparam("c"))
    .order_by(lineage.c.ordinal)
)
_ALL_PARENTS = (
    select(lineage.c.child_id, lineage.c.parent_id)
    .where(lineage.c.run_id == bindparam("r"))
    .order_by(lineage.c.child_id, lineage.c.ordinal)
)
_PARENTS_OF_STEP = (
    select(lineage.c.child_id, lineage.c.parent_id)
    .join(proposals, and_(_P.run_id == lineage.c.run_id, _P.candidate_id == lineage.c.child_id))
    .where(_P.run_id == bindparam("r"), _P.step == bindparam("s"))
    .distinct()
    .order_by(lineage.c.child_id, lineage.c.ordinal)
    .add_columns(lineage.c.ordinal)
)
_EVALUATIONS_OF_STEP = (
    select(evaluations)
    .join(proposals, and_(_P.run_id == _E.run_id, _P.candidate_id == _E.candidate_id))
    .where(_P.run_id == bindparam("r"), _P.step == bindparam("s"), _E.evaluator == bindparam("e"))
    .distinct()
)
_EVALUATION = select(evaluations).where(
    _E.run_id == bindparam("r"),
    _E.candidate_id == bindparam("c"),
    _E.evaluator == bindparam("e"),
    _E.settings_sha == bindparam("k"),
)
_NEWEST = (
    select(evaluations)
    .where(_E.run_id == bindparam("r"), _E.candidate_id == bindparam("c"), _E.evaluator == bindparam("e"))
    .order_by(_E.id.desc())
    .limit(1)
)
_ELSEWHERE = (
    select(evaluations)
    .where(
        _E.content_sha == bindparam("h"),
        _E.evaluator == bindparam("e"),
        _E.settings_sha == bindparam("k"),
        _E.run_id != bindparam("r"),
        _E.status.in_(("ok", "failed")),
        _E.reused_from.is_(None),
    )
    .order_by(_E.id)
    .limit(1)
)
_EVALUATIONS = select(evaluations).where(_E.run_id == bindparam("r")).order_by(_E.id)
_PROPOSALS = select(proposals).where(_P.run_id == bindparam("r")).order_by(_P.step, _P.slot)
_SETTLE = (
    update(proposals)
    .where(_P.run_id == bindparam("r"), _P.step == bindparam("s"), _P.slot == bindparam("l"))
    .values(
        status=bindparam("status"),
        candidate_id=bindparam("candidate_id"),
        failure_kind=bindparam("failure_kind"),
        failure_message=bindparam("failure_message"),
        log_sha=bindparam("log_sha"),
        updated=bindparam("updated"),
    )
)
_PERFORMED = select(func.count()).where(_E.run_id == bindparam("r"), _E.status != "machinery", _E.reused_from.is_(None))
_STATE = select(method_states).where(_S.run_id == bindparam("r"), _S.step == bindparam("s"))
_LAST_STATE = (
    select(method_states).where(_S.run_id == bindparam("r"), _S.complete.is_(True)).order_by(_S.step.desc()).limit(1)
)
_LATEST_STATE = select(method_states).where(_S.run_id == bindparam("r")).order_by(_S.step.desc()).limit(1)
_DROP_STATE = delete(method_states).where(_S.run_id == bindparam("r"), _S.step == bindparam("s"))
_DROP_OLD_STATES = delete(method_states).where(_S.run_id == bindparam("r"), _S.step >= 0, _S.step < bindparam("oldest"))
_ADD_PROPOSAL, _ADD_CANDIDATE, _ADD_PARENT = insert(proposals), insert(candidates), insert(lineage)
_ADD_EVALUATION, _ADD_STATE, _ADD_EVENT = insert(evaluations), insert(method_states), insert(events)


@dataclass(frozen=True)
class StepRecord:
    """What the database holds about one step, read in one transaction."""

    #: Rows of ``proposals`` in the order of the plan.
    asks: list[Any]
    #: Rows of ``candidates`` and their parents, by candidate id.
    candidates: dict[str, tuple[Any, tuple[str, ...]]]
    #: Rows of ``evaluations`` by candidate id and settings.
    verdicts: dict[tuple[str, str], Any]


@dataclass(frozen=True)
class NewCandidate:
    """What a finished proposal adds to the run."""

    id: str
    task: str
    content_sha: str
    media: str
    notes_json: str
    parents: tuple[str, ...]


@dataclass(frozen=True)
class NewEvaluation:
    """A verdict to write down. ``status`` is ``ok``, ``failed``, ``unknown`` or ``machinery``."""

    candidate_id: str
    content_sha: str
    evaluator: str
    settings_json: str
    settings_sha: str
    status: str
    started: float
    ended: float
    score: float | None = None
    evidence: str = ""
    failure_kind: str | None = None
    failure_message: str | None = None
    metrics_json: str = "{}"
    log_sha: str | None = None
    sandbox: str = ""
    reused_from: int | None = None


class Journal:
    """The record of one run; safe to share between threads.

    Args:
        db: the open run database.
        store: where contents and logs go.
        run_id: the run, which is in the database already.
    """

    def __init__(self, db: RunDB, store: ArtifactStore, run_id: str) -> None:
        self.db = db
        self.store = store
        self.run_id = run_id
        self._lock = threading.Lock()
        self._events: list[dict[str, Any]] = []
        self._artifacts: list[dict[str, Any]] = []
        self._known_settings: set[str] = set()

    # -- transactions, events, artifacts ----------------------------------------------------------------------------

    @contextmanager
    def write(self, *, events_too: bool = False, durable: bool = False) -> Iterator[Connection]:
        """One writing transaction; waiting artifact rows go along with it, and events when they have waited enough."""
        with self._lock:
            waiting_events: list[dict[str, Any]] = []
            if self._events and (events_too or time.time() - self._events[0]["t"] > EVENTS_WAIT):
                waiting_events, self._events = self._events, []
            waiting_artifacts, self._artifacts = self._artifacts, []
        try:
            with self.db.write(durable=durable) as conn:
                self.db.insert_new(conn, artifacts, waiting_artifacts, ("sha",))
                yield conn
                if waiting_events:
                    conn.execute(_ADD_EVENT, waiting_events)
        except BaseException:
            with self._lock:
                self._events = waiting_events + self._events
                self._artifacts = waiting_artifacts + self._artifacts
            raise

    def note(self, t: float, step: int, kind: str, facts: dict[str, Any]) -> None:
        """Remember an event; it reaches the database with the next transaction or :meth:`flush`."""
        row = {"run_id": self.run_id, "t": t, "step": step, "kind": kind, "json": dumps(facts)}
        with self._lock:
            self._events.append(row)

    def keep(self, data: bytes | str, media: str) -> str:
        """Put an artifact and remember its row; return its SHA-256."""
        sha = self.store.put(data, media)
        size = len(data) if isinstance(data, bytes) else len(data.encode("utf-8", "surrogatepass"))
        with self._lock:
            self._artifacts.append({"sha": sha, "size": size, "media": media, "created": time.time()})
        return sha

    def flush(self) -> None:
        """Write waiting events now."""
        with self._lock:
            waiting = bool(self._events or self._artifacts)
        if waiting:
            with self.write(events_too=True):
                pass

    # -- proposals and candidates -----------------------------------------------------------------------------------

    def asks(self, step: int) -> list[Any]:
        """Return the proposals of a step in the order of the plan."""
        with self.db.read() as conn:
            return list(conn.execute(_ASKS, {"r": self.run_id, "s": step}))

    def all_proposals(self) -> list[Any]:
        """Return all proposals in order of step and slot."""
        with self.db.read() as conn:
            return list(conn.execute(_PROPOSALS, {"r": self.run_id}))

    def write_asks(self, step: int, asks: Sequence[tuple[str, str]]) -> None:
        """Write down a step's plan, whole: ``(task, ask as JSON)`` per slot."""
        now = time.time()
        rows = [
            {
                "run_id": self.run_id, "step": step, "slot": slot, "task": clean(task), "ask_json": text,
                "status": "asked", "updated": now,
            }
            for slot, (task, text) in enumerate(asks)
        ]  # fmt: skip
        with self.write() as conn:
            if rows:
                conn.execute(_ADD_PROPOSAL, rows)

    def proposed(self, step: int, slot: int, new: NewCandidate) -> None:
        """Write down that a proposal succeeded, and its candidate unless the run has that one already.

        Of two slots of one step with the same content the lower one counts as the maker, whichever came first: the
        order in which threads finish must not show.
        """
        now = time.time()
        key = {"r": self.run_id, "c": new.id}
        with self.write() as conn:
            old = conn.execute(_CANDIDATE, key).first()
            if old is None:
                conn.execute(
                    _ADD_CANDIDATE,
                    {
                        "run_id": self.run_id, "id": new.id, "task": clean(new.task), "content_sha": new.content_sha,
                        "media": new.media, "step": step, "slot": slot, "notes_json": new.notes_json, "created": now,
                    },
                )  # fmt: skip
                self._add_parents(conn, new)
            elif old.step == step and old.slot > slot:
                conn.execute(
                    update(candidates)
                    .where(_C.run_id == self.run_id, _C.id == new.id)
                    .values(slot=slot, notes_json=new.notes_json, media=new.media)
                )
                conn.execute(delete(lineage).where(lineage.c.run_id == self.run_id, lineage.c.child_id == new.id))
                self._add_parents(conn, new)
            self._settle(conn, step, slot, "proposed", candidate_id=new.id)

    def _add_parents(self, conn: Connection, new: NewCandidate) -> None:
        if new.parents:
            conn.execute(
                _ADD_PARENT,
                [
                    {"run_id": self.run_id, "child_id": new.id, "ordinal": index, "parent_id": parent, "role": "parent"}
                    for index, parent in enumerate(new.parents)
                ],
            )

    def not_proposed(self, step: int, slot: int, status: str, kind: str, message: str, log_sha: str | None) -> None:
        """Write down why there is no candidate; ``status`` is ``failed`` or ``machinery``."""
        with self.write() as conn:
            self._settle(
                conn, step, slot, status, failure_kind=clean(kind, 200), failure_message=clean(message), log_sha=log_sha
            )

    def reopen_proposals(self, step: int) -> int:
        """Let the proposals that our machinery spoiled in this step be tried again; return how many."""
        with self.write() as conn:
            done = conn.execute(
                update(proposals)
                .where(_P.run_id == self.run_id, _P.step == step, _P.status == "machinery")
                .values(status="asked", failure_kind=None, failure_message=None, log_sha=None)
            )
            return int(done.rowcount)

    def _settle(self, conn: Connection, step: int, slot: int, status: str, **values: Any) -> None:
        conn.execute(
            _SETTLE,
            {
                "r": self.run_id, "s": step, "l": slot, "status": status, "updated": time.time(),
                "candidate_id": values.get("candidate_id"), "failure_kind": values.get("failure_kind"),
                "failure_message": values.get("failure_message"), "log_sha": values.get("log_sha"),
            },
        )  # fmt: skip

    def candidate(self, candidate_id: str) -> tuple[Any, tuple[str, ...]] | None:
        """Return a candidate's row and its parents, or None."""
        key = {"r": self.run_id, "c": candidate_id}
        with self.db.read() as conn:
            row = conn.execute(_CANDIDATE, key).first()
            return None if row is None else (row, tuple(conn.execute(_PARENTS, key).scalars()))

    def candidates(self) -> list[tuple[Any, tuple[str, ...]]]:
        """Return all candidates with their parents in the order they were found."""
        with self.db.read() as conn:
            rows = conn.execute(_CANDIDATES, {"r": self.run_id}).all()
            parents = _grouped(conn.execute(_ALL_PARENTS, {"r": self.run_id}))
        return [(row, tuple(parents.get(row.id, ()))) for row in rows]

    def content_shas(self, task: str) -> set[str]:
        """Return SHA-256 of the contents of a task's candidates."""
        with self.db.read() as conn:
            return set(conn.execute(_SHAS_OF_TASK, {"r": self.run_id, "t": task}).scalars())

    def children(self, candidate_id: str) -> list[str]:
        """Return the ids of the candidates that started from this one, in the order they were found."""
        with self.db.read() as conn:
            return list(conn.execute(_CHILDREN, {"r": self.run_id, "c": candidate_id}).scalars())

    def step_record(self, step: int, evaluator: str) -> StepRecord:
        """Return everything about one step: its asks, their candidates, the verdicts of one evaluator on these."""
        key = {"r": self.run_id, "s": step}
        with self.db.read() as conn:
            asks = list(conn.execute(_ASKS, key))
            rows = conn.execute(_OF_STEP, key).all()
            parents = _grouped(conn.execute(_PARENTS_OF_STEP, key)) if rows else {}
            verdicts = conn.execute(_EVALUATIONS_OF_STEP, key | {"e": evaluator}).all() if rows else []
        return StepRecord(
            asks,
            {row.id: (row, tuple(parents.get(row.id, ()))) for row in rows},
            {(row.candidate_id, row.settings_sha): row for row in verdicts},
        )

    def verdicts(self, step: int, evaluator: str) -> dict[tuple[str, str], Any]:
        """Return the verdicts of one evaluator on a step's candidates, by candidate id and settings."""
        with self.db.read() as conn:
            rows = conn.execute(_EVALUATIONS_OF_STEP, {"r": self.run_id, "s": step, "e": evaluator}).all()
        return {(row.candidate_id, row.settings_sha): row for row in rows}

    # -- evaluations ------------------------------------------------------------------------------------------------

    def evaluation(self, candidate_id: str, evaluator: str, settings_sha: str) -> Any | None:
        """Return the verdict on a candidate under these settings, or None."""
        with self.db.read() as conn:
            key = {"r": self.run_id, "c": candidate_id, "e": evaluator, "k": settings_sha}
            return conn.execute(_EVALUATION, key).first()

    def newest_evaluation(self, candidate_id: str, evaluator: str) -> Any | None:
        """Return the newest verdict of an evaluator on a candidate, or None."""
        with self.db.read() as conn:
            return conn.execute(_NEWEST, {"r": self.run_id, "c": candidate_id, "e": evaluator}).first()

    def evaluation_elsewhere(self, content_sha: str, evaluator: str, settings_sha: str) -> Any | None:
        """Return the first verdict of another run on the same content under the same settings, or None."""
        with self.db.read() as conn:
            key = {"r": self.run_id, "h": content_sha, "e": evaluator, "k": settings_sha}
            return conn.execute(_ELSEWHERE, key).first()

    def evaluations(self) -> list[Any]:
        """Return all verdicts in the order they were written."""
        with self.db.read() as conn:
            return list(conn.execute(_EVALUATIONS, {"r": self.run_id}))

    def evaluated(self, step: int, new: NewEvaluation, *, again: bool = False) -> None:
        """Write down a verdict; with ``again`` it replaces one of status ``machinery``."""
        with self.write(durable=True) as conn:
            if new.settings_sha not in self._known_settings:
                row = {"sha": new.settings_sha, "json": new.settings_json}
                self.db.insert_new(conn, evaluation_settings, [row], ("sha",))
            if again:
                conn.execute(
                    delete(evaluations).where(
                        _E.run_id == self.run_id,
                        _E.candidate_id == new.candidate_id,
                        _E.evaluator == new.evaluator,
                        _E.settings_sha == new.settings_sha,
                        _E.status == "machinery",
                    )
                )
            conn.execute(
                _ADD_EVALUATION,
                {
                    "run_id": self.run_id, "candidate_id": new.candidate_id, "content_sha": new.content_sha,
                    "evaluator": new.evaluator, "settings_sha": new.settings_sha, "step": step, "status": new.status,
                    "score": new.score, "evidence": clean(new.evidence, 2000),
                    "failure_kind": None if new.failure_kind is None else clean(new.failure_kind, 200),
                    "failure_message": None if new.failure_message is None else clean(new.failure_message),
                    "metrics_json": new.metrics_json, "log_sha": new.log_sha, "sandbox": new.sandbox,
                    "started": new.started, "ended": new.ended, "reused_from": new.reused_from,
                },
            )  # fmt: skip
        self._known_settings.add(new.settings_sha)

    def best(self, evaluator: str, *, minimise: bool, task: str | None = None) -> Any | None:
        """Return the row of the best verdict with a score, of a task or of all; of equals the one found first."""
        rank = _E.score if minimise else -_E.score
        query = (
            select(evaluations)
            .join(candidates, and_(_C.run_id == _E.run_id, _C.id == _E.candidate_id))
            .where(_E.run_id == self.run_id, _E.evaluator == evaluator, _E.score.is_not(None))
            .order_by(rank, _C.step, _C.slot)
            .limit(1)
        )
        with self.db.read() as conn:
            return conn.execute(query if task is None else query.where(_C.task == clean(task))).first()

    def performed(self, step: int | None = None) -> int:
        """Return how many evaluations this run really performed (not reused, not spoiled by our machinery)."""
        query = _PERFORMED if step is None else _PERFORMED.where(_E.step == step)
        with self.db.read() as conn:
            return int(conn.execute(query, {"r": self.run_id}).scalar_one())

    # -- states of the method ---------------------------------------------------------------------------------------

    def save_state(self, step: int, state_json: str, *, complete: bool) -> None:
        """Keep the state after a step (-1: before the first). An incomplete one holds until the step is finished."""
        key = {"r": self.run_id, "s": step}
        row = {
            "run_id": self.run_id, "step": step, "state_json": state_json, "complete": complete, "created": time.time(),
        }  # fmt: skip
        with self.write(events_too=True) as conn:
            conn.execute(_DROP_STATE, key)
            conn.execute(_ADD_STATE, row)
            if step % KEEP_STATES == 0:
                conn.execute(_DROP_OLD_STATES, {"r": self.run_id, "oldest": step - KEEP_STATES + 1})

    def state(self, step: int) -> Any | None:
        """Return the state after one step, or None."""
        with self.db.read() as conn:
            return conn.execute(_STATE, {"r": self.run_id, "s": step}).first()

    def last_state(self, *, complete: bool = True) -> Any | None:
        """Return the newest state; with ``complete`` the newest whose step was finished."""
        with self.db.read() as conn:
            return conn.execute(_LAST_STATE if complete else _LATEST_STATE, {"r": self.run_id}).first()

    def reopen_step(self, step: int) -> None:
        """Mark the state after a step as incomplete: the step is gone through once more."""
        with self.write() as conn:
            conn.execute(update(method_states).where(_S.run_id == self.run_id, _S.step == step).values(complete=False))


def _grouped(rows: Iterable[Any]) -> dict[str, list[str]]:
    parents: dict[str, list[str]] = {}
    for row in rows:
        parents.setdefault(row.child_id, []).append(row.parent_id)
    return parents
