"""Rows of ``model_calls``: written before a request leaves, settled when its answer is there."""

from __future__ import annotations

import secrets
import time
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update

from orienteer.memory.rundb import RunDB
from orienteer.memory.schema import model_calls

_M = model_calls.c
_FIND = (
    select(model_calls)
    .where(_M.run_id == bindparam("r"), _M.request_sha == bindparam("q"), _M.status == "done")
    .order_by(_M.created)
    .limit(1)
)
_FIND_ANYWHERE = (
    select(model_calls)
    .where(_M.request_sha == bindparam("q"), _M.status == "done", _M.cached.is_(False))
    .order_by(_M.created)
    .limit(1)
)


class Calls:
    """The model calls of one run.

    Args:
        db: the open run database.
        run_id: the run.
    """

    def __init__(self, db: RunDB, run_id: str) -> None:
        self.db = db
        self.run_id = run_id

    def find(self, request_sha: str, *, anywhere: bool = False) -> Any | None:
        """Return the first answered call for a request, of this run or (``anywhere``) of any."""
        with self.db.read() as conn:
            row = conn.execute(_FIND, {"r": self.run_id, "q": request_sha}).first()
            if row is None and anywhere:
                row = conn.execute(_FIND_ANYWHERE, {"q": request_sha}).first()
            return row

    def add(self, **values: Any) -> str:
        """Write a call down and return its id; the keys are columns of ``model_calls``."""
        call_id = secrets.token_hex(8)
        with self.db.write(durable=True) as conn:
            row = {"id": call_id, "run_id": self.run_id, "created": time.time(), "status": "sent"} | values
            conn.execute(insert(model_calls), row)
        return call_id

    def settle(self, call_id: str, **values: Any) -> None:
        """Change a call; the keys are columns of ``model_calls``."""
        with self.db.write(durable=True) as conn:
            conn.execute(update(model_calls).where(_M.id == call_id).values(ended=time.time(), **values))

    def lose_sent(self) -> int:
        """Mark calls whose process died before the answer was recorded; return how many there were.

        Their reservation counts as spent: nobody knows what the endpoint did with the request.
        """
        with self.db.write(durable=True) as conn:
            done = conn.execute(
                update(model_calls)
                .where(_M.run_id == self.run_id, _M.status == "sent")
                .values(status="lost", ended=time.time(), failure_kind="lost", http_calls=1)
            )
            return int(done.rowcount)

    def spent(self) -> tuple[int, float, bool]:
        """Return tokens and money spent so far, and whether the price of some call is unknown."""
        with self.db.read() as conn:
            used = conn.execute(
                select(
                    func.coalesce(func.sum(_M.tokens_in + _M.tokens_out), 0), func.coalesce(func.sum(_M.cost), 0.0)
                ).where(_M.run_id == self.run_id, _M.cached.is_(False), _M.status.in_(("done", "failed")))
            ).one()
            lost = conn.execute(
                select(func.coalesce(func.sum(_M.tokens_reserved), 0), func.coalesce(func.sum(_M.cost), 0.0)).where(
                    _M.run_id == self.run_id, _M.status.in_(("sent", "lost"))
                )
            ).one()
            unpriced = conn.execute(
                select(func.count()).where(
                    _M.run_id == self.run_id, _M.cost.is_(None), _M.cached.is_(False), _M.status == "done"
                )
            ).scalar_one()
        return int(used[0]) + int(lost[0]), float(used[1]) + float(lost[1]), bool(unpriced)


def all_calls(db: RunDB, run_id: str) -> list[Any]:
    """Return all model calls of a run in the order they were made."""
    with db.read() as conn:
        return list(conn.execute(select(model_calls).where(_M.run_id == run_id).order_by(_M.created, _M.id)))
