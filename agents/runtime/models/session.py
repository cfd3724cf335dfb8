"""One run's conversation with its model: cache, budget, ledger, validation, one repair, accounting."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from orienteer.agents.runtime.models.answer import LENGTH
from orienteer.agents.runtime.models.parsing import BadJson, loads
from orienteer.agents.runtime.models.prices import cost_of
from orienteer.agents.runtime.models.schema import Mismatch, instruction, read_reply
from orienteer.agents.runtime.models.text import estimate_tokens
from orienteer.agents.runtime.models.types import (
    Emit,
    Model,
    ModelFailure,
    ModelLedger,
    ModelReply,
    ModelRequest,
    TokenBudget,
)
from orienteer.errors import BudgetReached, Interrupted

#: A reply that its limit cut off is asked for once more with this many times the tokens, up to the most.
LARGER = 4
MOST_TOKENS = 65_536
#: Characters of a malformed reply that go back to the model.
_QUOTED = 8_000


class _Until(threading.Event):
    """The run's cancel event, and set as well once the run's time is up: models need to watch one thing only.

    Args:
        cancel: the run's event.
        seconds: from now on; None for ever.
    """

    def __init__(self, cancel: threading.Event, seconds: float | None) -> None:
        super().__init__()
        self._cancel = cancel
        self._moment = None if seconds is None else time.monotonic() + seconds

    def late(self) -> bool:
        """Say whether the time is up."""
        return self._moment is not None and time.monotonic() >= self._moment

    def is_set(self) -> bool:
        """Say whether the run was stopped or its time is up."""
        return self._cancel.is_set() or self.late()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the stop or the end of the time, ``timeout`` seconds at most."""
        if self._moment is not None:
            left = max(0.0, self._moment - time.monotonic())
            timeout = left if timeout is None else min(timeout, left)
        self._cancel.wait(timeout)
        return self.is_set()


class ModelSession:
    """What a method talks to. Thread-safe; equal requests in flight are sent once.

    Every exchange is recorded before it leaves and when it ends. A recorded answer is never paid for again: reading,
    validation and repair are functions of the recorded text, so that a resumed run walks the same way.

    Args:
        model: who answers.
        ledger: the run's record.
        budget: the run's limits; None for no limits.
        cancel: when set, calls end within a second with ``Interrupted``.
        on_event: hears of retries, adaptions, repairs, warnings; called in the asking thread.
    """

    def __init__(
        self,
        model: Model,
        ledger: ModelLedger,
        budget: TokenBudget | None,
        cancel: threading.Event,
        on_event: Emit,
    ) -> None:
        self.name = model.name
        self.proposer = model.name
        self._model = model
        self._ledger = ledger
        self._budget = budget
        self._cancel = cancel
        self._emit = on_event
        self._lock = threading.Lock()
        self._in_flight: dict[str, threading.Lock] = {}
        self._said: set[str] = set()

    def ask(self, request: ModelRequest) -> ModelReply:
        """Return a usable answer to ``request``: validated against its schema when it has one.

        Tokens, cost and calls of the reply are those of the whole question (a larger limit, a repair); what came from
        the ledger adds nothing.

        Raises:
            ModelFailure: there is none; this proposal failed.
            BudgetReached: the budget allows no more calls.
            EndpointError: the endpoint cannot serve this run.
            Interrupted: the run was asked to stop.
        """
        parts: list[ModelReply] = []
        reply = self._exchange(request, parts)
        if _cut_off(reply, request):
            larger = min(request.max_tokens * LARGER, MOST_TOKENS)
            if larger > request.max_tokens:
                self._emit("model.larger", {"model": self.name, "from": request.max_tokens, "to": larger})
                request = replace(request, max_tokens=larger)
                try:
                    reply = self._exchange(request, parts)
                except BudgetReached:
                    if self._budget is not None and self._budget.time_left() == 0:
                        raise
                    # The budget may still hold questions of the usual size.
                    raise self._failed(
                        parts, "truncated", "the token limit cut the reply, no budget for more"
                    ) from None
            if _cut_off(reply, request):
                where = "while reasoning" if reply.reasoning and not reply.text.strip() else "in mid-answer"
                raise self._failed(
                    parts, "truncated", f"the limit of {request.max_tokens} tokens cut the reply {where}"
                )
        self._usable(reply, parts)
        if request.schema is None:
            return _merged(reply, parts, None)
        try:
            return _merged(reply, parts, read_reply(reply.text, request.schema))
        except Mismatch as error:
            wrong = error
        self._model.malformed(reply, wrong.was_json)
        self._emit("model.repair", {"model": self.name, "wrong": str(wrong)})
        repaired = _repair(request, reply.text, str(wrong))
        reply = self._exchange(repaired, parts)
        if _cut_off(reply, repaired):
            raise self._failed(parts, "truncated", "the limit of tokens cut the repaired reply")
        self._usable(reply, parts)
        try:
            return _merged(reply, parts, read_reply(reply.text, request.schema))
        except Mismatch as error:
            raise self._failed(parts, "malformed", f"{error} (after one repair; first: {wrong})") from None

    def close(self) -> None:
        """Release the model."""
        self._model.close()

    def _usable(self, reply: ModelReply, parts: list[ModelReply]) -> None:
        if reply.problem:
            kind, _, message = reply.problem.partition(": ")
            raise self._failed(parts, kind, message)

    def _failed(self, parts: list[ModelReply], kind: str, message: str) -> ModelFailure:
        return ModelFailure(
            kind,
            message,
            tokens_in=sum(p.tokens_in for p in parts),
            tokens_out=sum(p.tokens_out for p in parts),
            calls=sum(p.calls for p in parts),
        )

    def _exchange(self, request: ModelRequest, parts: list[ModelReply]) -> ModelReply:
        """Return the recorded answer to one request, or get, record and account for it."""
        sha = request.sha(self._model.identity)
        with self._alone(sha):
            known = self._ledger.lookup(sha)
            if known is not None:
                reply = replace(known, cached=True, tokens_in=0, tokens_out=0, cost=0.0, calls=0, latency=0.0)
            else:
                reply = self._send(sha, request)
        parts.append(reply)
        for warning in reply.warnings:
            self._once(warning, "model.warning", {"model": self.name, "warning": warning})
        return reply

    def _send(self, sha: str, request: ModelRequest) -> ModelReply:
        if self._cancel.is_set():
            raise Interrupted("stopped before a model call")
        price = self._model.price()
        if price is None:
            self._once("price", "model.price_unknown", {"model": self.name, "effect": "a cost limit cannot act"})
        prompt = sum(estimate_tokens(content) + 4 for _, content in request.messages)
        if request.schema is not None:
            prompt += estimate_tokens(instruction(request.schema))
        wanted = prompt + request.max_tokens
        held = self._budget.reserve(wanted, cost_of(price, prompt, request.max_tokens)) if self._budget else None
        tokens_in = tokens_out = 0
        cost: float | None = cost_of(price, 0, 0)
        try:
            until = _Until(self._cancel, self._budget.time_left() if self._budget else None)
            call = self._ledger.sent(sha, self.name, request.to_plain(), wanted)
            try:
                try:
                    reply = self._model.complete(request, until, self._emit)
                except Interrupted as stop:
                    if self._cancel.is_set() or not until.late():
                        raise
                    raise BudgetReached(
                        "the time budget was used up while a model call was in flight", "resume with a larger --time"
                    ) from stop
            except ModelFailure as error:
                tokens_in, tokens_out = error.tokens_in, error.tokens_out
                cost = cost_of(price, tokens_in, tokens_out)
                self._ledger.failed(call, error.kind, error.message, tokens_in, tokens_out, cost, calls=error.calls)
                raise
            except BaseException as error:
                # Sent and never answered: the prompt may have been billed.
                if isinstance(error, (Interrupted, BudgetReached, KeyboardInterrupt)):
                    tokens_in, cost = prompt, cost_of(price, prompt, 0)
                self._ledger.failed(call, type(error).__name__, str(error), tokens_in, 0, cost)
                raise
            tokens_in, tokens_out = reply.tokens_in, reply.tokens_out
            cost = cost_of(price, tokens_in, tokens_out)
            reply = replace(reply, cost=cost)
            self._ledger.done(call, reply)
            return reply
        finally:
            if self._budget is not None:
                self._budget.settle(held, tokens_in + tokens_out, cost)

    @contextlib.contextmanager
    def _alone(self, sha: str) -> Iterator[None]:
        """Let one thread at a time work on one request: the next one finds the answer in the ledger."""
        with self._lock:
            lock = self._in_flight.setdefault(sha, threading.Lock())
        while not lock.acquire(timeout=0.1):
            if self._cancel.is_set():
                raise Interrupted("stopped while waiting for an equal model call")
        try:
            yield
        finally:
            lock.release()

    def _once(self, key: str, kind: str, facts: dict[str, Any]) -> None:
        with self._lock:
            if key in self._said:
                return
            self._said.add(key)
        self._emit(kind, facts)


def _cut_off(reply: ModelReply, request: ModelRequest) -> bool:
    """Say whether the token limit ended the reply; JSON that is whole is whole, whatever the finish reason."""
    if reply.problem.startswith("truncated"):
        return True
    if reply.problem or reply.finish_reason not in LENGTH:
        return False
    if request.schema is None:
        return True
    try:
        loads(reply.text.strip())
    except BadJson:
        return True
    return False


def _repair(request: ModelRequest, text: str, wrong: str) -> ModelRequest:
    quoted = text if len(text) <= _QUOTED else text[:_QUOTED] + "\n[...]"
    return replace(
        request,
        messages=(
            *request.messages,
            ("assistant", quoted),
            ("user", f"Your reply could not be used: {wrong}. Send the corrected reply, complete."),
        ),
    )


def _merged(reply: ModelReply, parts: list[ModelReply], data: Any) -> ModelReply:
    """Return ``reply`` with the validated value and the sums over all exchanges that it took."""
    costs = [part.cost for part in parts]
    warnings: dict[str, None] = {}
    for part in parts:
        warnings.update(dict.fromkeys(part.warnings))
    return replace(
        reply,
        data=data,
        tokens_in=sum(p.tokens_in for p in parts),
        tokens_out=sum(p.tokens_out for p in parts),
        cost=None if any(c is None for c in costs) else sum(c for c in costs if c is not None),
        calls=sum(p.calls for p in parts),
        latency=sum(p.latency for p in parts),
        estimated=any(p.estimated for p in parts),
        cached=all(p.cached for p in parts),
        warnings=tuple(warnings),
    )
