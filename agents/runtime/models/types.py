"""What goes to a model, what comes back, and whom the session tells about it.

All of it is plain data: a request has a hash that is the same in every process, a reply survives JSON.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol, TypeVar

#: Called with the kind of an event and its facts (plain data).
Emit = Callable[[str, dict[str, Any]], None]

R = TypeVar("R")


@dataclass(frozen=True)
class ModelRequest:
    """One question to a model, free of what any endpoint's dialect needs."""

    #: (role, content) pairs; roles are ``system``, ``user`` and ``assistant``.
    messages: tuple[tuple[str, str], ...]
    #: JSON schema that the reply must match; None asks for plain text.
    schema: dict[str, Any] | None = None
    #: A short identifier of the schema; some endpoints demand one.
    schema_name: str = "reply"
    #: Upper limit of the reply in tokens, reasoning included.
    max_tokens: int = 4096
    temperature: float | None = None
    seed: int | None = None
    #: Tells repeated draws of one prompt apart in the cache key; it is not sent.
    sample: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Return the request as plain data, ready for JSON."""
        return {
            "messages": [[role, content] for role, content in self.messages],
            "schema": self.schema,
            "schema_name": self.schema_name,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "sample": self.sample,
        }

    def sha(self, model: str) -> str:
        """Return the SHA-256 (hex) of the request to ``model``; equal in every process.

        Args:
            model: the model's identity, which is its name together with the endpoint that serves it.
        """
        document = {"model": model, "request": self.to_plain(), "version": 1}
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class ModelReply:
    """One answer, with everything that accounting and provenance need."""

    #: The answer without reasoning; storable text (no NUL, no lone surrogates).
    text: str
    #: The JSON value that matched the request's schema; None for plain text.
    data: Any = None
    #: What the model thought aloud; kept for the record, never evaluated.
    reasoning: str = ""
    #: As the endpoint said it (``stop``, ``length``, ``content_filter`` ...); None when it said nothing.
    finish_reason: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    #: True when the endpoint did not report usable token counts and they were estimated.
    estimated: bool = False
    #: In the currency of the price table; None when the price is unknown.
    cost: float | None = None
    #: The model's name as the endpoint reported it.
    model: str = ""
    #: The parameters that were really sent, without messages and key.
    sent: dict[str, Any] = field(default_factory=dict)
    #: HTTP requests that it took, retries included.
    calls: int = 0
    #: Seconds from the first byte out to the last byte in, waiting between retries included.
    latency: float = 0.0
    #: True when nothing was sent because the ledger knew the answer; tokens, cost and calls are then zero.
    cached: bool = False
    warnings: tuple[str, ...] = ()
    #: ``kind: message`` when the endpoint answered in full but with nothing usable (a refusal, a tool call ...).
    problem: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Return the reply as plain data, ready for JSON."""
        plain = asdict(self)
        plain["warnings"] = list(self.warnings)
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ModelReply:
        """Build a reply from what :meth:`to_plain` returned; unknown keys are left out."""
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in plain.items() if name in known}
        values["warnings"] = tuple(values.get("warnings", ()))
        return cls(**values)


class ModelFailure(Exception):
    """This one question got no usable answer; the run goes on.

    Args:
        kind: stable and short: ``malformed``, ``truncated``, ``refusal``, ``content_filter``, ``context``, ``empty``,
            ``tool_call``, ``cut``, ``timeout``, ``rate_limit``, ``unavailable``, ``not_json``, ``too_large`` ...
        message: for a person and for the next prompt.
        tokens_in: prompt tokens that were, or may have been, paid for.
        tokens_out: completion tokens that were, or may have been, paid for.
        calls: HTTP requests that were made.
    """

    def __init__(self, kind: str, message: str, *, tokens_in: int = 0, tokens_out: int = 0, calls: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out
        self.calls = calls

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Model(Protocol):
    """Something that answers requests: an endpoint, a script, a model in this process."""

    #: As in ``--model``: ``openai/NAME``, ``local/NAME``, ``scripted/FILE``.
    name: str
    #: Name plus what else decides its answers (endpoint, script content); part of every request hash.
    identity: str

    def complete(self, request: ModelRequest, cancel: threading.Event, emit: Emit) -> ModelReply:
        """Answer one request; ``data`` and ``cost`` are left to the session. Called in parallel.

        Raises:
            ModelFailure: this request has no answer.
            EndpointError: no request will get one.
            Interrupted: ``cancel`` was set; raised within a second.
        """
        ...

    def malformed(self, reply: ModelReply, was_json: bool) -> None:
        """Hear that a reply did not match the schema that its request asked for."""
        ...

    def price(self) -> tuple[float, float] | None:
        """Return the price per million tokens (in, out), or None when it is unknown."""
        ...

    def close(self) -> None:
        """Release connections and threads."""
        ...


class ModelLedger(Protocol):
    """The run's record of model calls; the session never pays twice for what is in it."""

    def lookup(self, request_sha: str) -> ModelReply | None:
        """Return the recorded answer to this request."""
        ...

    def sent(self, request_sha: str, model: str, request: dict[str, Any], tokens_reserved: int) -> str:
        """Record, before anything leaves, that a call is about to be made; return the call's id."""
        ...

    def done(self, call_id: str, reply: ModelReply) -> None:
        """Record the answer. An answer may be unusable (``problem``, malformed text): it was paid for all the same."""
        ...

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
        """Record that the call brought no answer, and what it may have cost; ``calls`` are HTTP requests."""
        ...


class TokenBudget(Protocol):
    """The run's limits on tokens, money and time, work in flight included."""

    def reserve(self, tokens: int, cost: float | None) -> Any:
        """Set tokens and money aside and return the reservation.

        Raises:
            BudgetReached: the limits allow no such call.
        """
        ...

    def time_left(self) -> float | None:
        """Return the seconds that a call may take at most; None when there is no limit."""
        ...

    def settle(self, reservation: Any, tokens: int, cost: float | None) -> None:
        """Replace the reservation by what was really used."""
        ...
