"""The model ledger of a run: answers that were paid for are found again, requests under way are never forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orienteer.agents.runtime.budget import Budget
from orienteer.memory.calls import Calls
from orienteer.memory.journal import Journal
from orienteer.memory.plain import clean, dumps, plain

if TYPE_CHECKING:
    from orienteer.agents.runtime.models import ModelReply


class RunLedger:
    """``ModelLedger`` on the run database.

    Args:
        journal: the run's record.
        budget: asked for the money that a call in flight may cost.
        place: returns ``(phase, step, slot)`` of the work that the calling thread does.
        anywhere: look for answers in other runs too.
    """

    def __init__(
        self,
        journal: Journal,
        budget: Budget,
        place: Callable[[], tuple[str, int | None, int | None]],
        *,
        anywhere: bool = False,
    ) -> None:
        self._journal = journal
        self._calls = Calls(journal.db, journal.run_id)
        self._budget = budget
        self._place = place
        self._anywhere = anywhere

    def lookup(self, request_sha: str) -> ModelReply | None:
        """Return the recorded answer to a request, marked as cached, or None."""
        row = self._calls.find(request_sha, anywhere=self._anywhere)
        if row is None or row.reply_artifact is None:
            return None
        from orienteer.agents.runtime.models import ModelReply

        reply = replace(ModelReply.from_plain(json.loads(self._journal.store.text(row.reply_artifact))), cached=True)
        if row.run_id != self._journal.run_id:
            self._calls.add(
                **self._where(), status="done", cached=True, model=row.model, reported_model=row.reported_model,
                request_sha=request_sha, request_artifact=row.request_artifact, reply_artifact=row.reply_artifact,
                sent_json=row.sent_json, finish_reason=row.finish_reason, estimated=row.estimated,
            )  # fmt: skip
        return reply

    def sent(self, request_sha: str, model: str, request: dict[str, Any], tokens_reserved: int) -> str:
        """Write a call down before it leaves; return its id."""
        artifact = self._journal.keep(dumps(plain(request, "request", lenient=True)), "application/json")
        return self._calls.add(
            **self._where(), model=clean(model, 500), request_sha=request_sha, request_artifact=artifact,
            tokens_reserved=tokens_reserved, cost=self._budget.reserved_cost(),
        )  # fmt: skip

    def done(self, call_id: str, reply: ModelReply) -> None:
        """Write the answer down: text, tokens, money, what was really sent."""
        fields = plain(reply.to_plain(), "reply", lenient=True)
        artifact = self._journal.keep(dumps(fields), "application/json")
        self._calls.settle(
            call_id, status="done", reply_artifact=artifact, reported_model=clean(reply.model, 500),
            tokens_in=reply.tokens_in, tokens_out=reply.tokens_out, estimated=reply.estimated, cost=reply.cost,
            http_calls=reply.calls, sent_json=dumps(fields["sent"]), latency=reply.latency,
            finish_reason=None if reply.finish_reason is None else clean(str(reply.finish_reason), 200),
        )  # fmt: skip

    def failed(
        self,
        call_id: str,
        kind: str,
        message: str,
        tokens_in: int = 0,
        tokens_out: int = 0,
        cost: float | None = None,
        calls: int = 1,
    ) -> None:
        """Write down that a call brought no usable answer, and what it used all the same."""
        self._calls.settle(
            call_id, status="failed", failure_kind=clean(kind, 200), failure_message=clean(message),
            tokens_in=tokens_in, tokens_out=tokens_out, cost=cost, http_calls=calls,
        )  # fmt: skip

    def _where(self) -> dict[str, Any]:
        phase, step, slot = self._place()
        return {"phase": phase, "step": step, "slot": slot}
