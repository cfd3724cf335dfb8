"""The list of runs: made, claimed by a process, kept alive, ended, removed."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from orienteer.memory.rundb import RunDB
from orienteer.memory.schema import candidates, evaluations, events, memory_stores, model_calls, runs

_R = runs.c


class Catalogue:
    """Reads and writes rows of ``runs``.

    Args:
        db: the open run database.
    """

    def __init__(self, db: RunDB) -> None:
        self.db = db

    def create(self, **values: Any) -> None:
        """Add a run; the keys are columns of ``runs``."""
        with self.db.write() as conn:
            conn.execute(insert(runs), values | {"created": time.time(), "heartbeat": time.time()})

    def get(self, run_id: str) -> Any | None:
        """Return a run's row, or None."""
        with self.db.read() as conn:
            return conn.execute(select(runs).where(_R.id == run_id)).first()

    def all(self) -> list[Any]:
        """Return all runs, newest first."""
        with self.db.read() as conn:
            return list(conn.execute(select(runs).order_by(_R.created.desc(), _R.id.desc())))

    def starting_with(self, prefix: str, limit: int = 5) -> list[str]:
        """Return ids that begin with the given text."""
        query = select(_R.id).where(_R.id.startswith(prefix, autoescape=True)).order_by(_R.id).limit(limit)
        with self.db.read() as conn:
            return list(conn.execute(query).scalars())

    def update(self, run_id: str, *, owner: str | None = None, **values: Any) -> None:
        """Change columns of a run; with ``owner`` only if that is its owner still."""
        query = update(runs).where(_R.id == run_id)
        with self.db.write() as conn:
            conn.execute((query if owner is None else query.where(_R.owner_json == owner)).values(**values))

    def claim(self, run_id: str, seen_owner: str, owner: str) -> bool:
        """Make ``owner`` the run's process if the owner is still the one that was seen; exactly one claimer wins."""
        query = (
            update(runs)
            .where(_R.id == run_id, _R.owner_json == seen_owner)
            .values(owner_json=owner, status="running", reason="", heartbeat=time.time(), ended=None,
                    stop_requested=False)
        )  # fmt: skip
        with self.db.write() as conn:
            return bool(conn.execute(query).rowcount == 1)

    def beat(self, run_id: str, owner: str, active_s: float) -> bool:
        """Say that the owner lives; return whether somebody asked the run to stop.

        Raises:
            LookupError: another process has claimed the run, or it was removed.
        """
        with self.db.write() as conn:
            done = conn.execute(
                update(runs)
                .where(_R.id == run_id, _R.owner_json == owner)
                .values(heartbeat=time.time(), active_s=active_s)
            )
            if done.rowcount != 1:
                raise LookupError(run_id)
            return bool(conn.execute(select(_R.stop_requested).where(_R.id == run_id)).scalar_one())

    def remove(self, run_id: str) -> None:
        """Remove a run with everything that belongs to it, its private memory too.

        Artifacts and items of the shared memory stay: other runs may share them.
        """
        with self.db.write() as conn:
            conn.execute(delete(memory_stores).where(memory_stores.c.name == f"run:{run_id}"))
            conn.execute(delete(runs).where(_R.id == run_id))

    def counts(self, run_id: str) -> dict[str, Any]:
        """Return how much a run did: candidates, evaluations by status, model calls and tokens."""
        with self.db.read() as conn:
            found = conn.execute(select(func.count()).where(candidates.c.run_id == run_id)).scalar_one()
            verdicts = conn.execute(
                select(evaluations.c.status, func.count())
                .where(evaluations.c.run_id == run_id)
                .group_by(evaluations.c.status)
                .order_by(evaluations.c.status)
            ).all()
            calls = conn.execute(
                select(
                    func.count(),
                    func.coalesce(func.sum(model_calls.c.tokens_in), 0),
                    func.coalesce(func.sum(model_calls.c.tokens_out), 0),
                    func.sum(model_calls.c.cost),
                ).where(model_calls.c.run_id == run_id, model_calls.c.cached.is_(False))
            ).one()
        return {
            "candidates": int(found),
            "evaluations": {status: int(count) for status, count in verdicts},
            "model_calls": int(calls[0]),
            "tokens_in": int(calls[1]),
            "tokens_out": int(calls[2]),
            "cost": None if calls[3] is None else float(calls[3]),
        }

    def events(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Any]:
        """Return events of a run in order, from the one after id ``after`` on."""
        query = select(events).where(events.c.run_id == run_id, events.c.id > after).order_by(events.c.id).limit(limit)
        with self.db.read() as conn:
            return list(conn.execute(query))
