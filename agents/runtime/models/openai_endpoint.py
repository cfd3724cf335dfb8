"""Any OpenAI-compatible endpoint, through the ``openai`` package: retries, dialects, limits, plain words for faults."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from orienteer.agents.runtime.models.answer import Answer, error_text, read_answer, split_text
from orienteer.agents.runtime.models.dialect import Dialect, adapt, is_context, names_parameter, room_for_reply
from orienteer.agents.runtime.models.prices import PriceTable
from orienteer.agents.runtime.models.retry import RetryPolicy, retryable
from orienteer.agents.runtime.models.text import DEFAULT_URL, Scrubber, estimate_tokens, shorten
from orienteer.agents.runtime.models.transport import Raw, Transport
from orienteer.agents.runtime.models.types import Emit, ModelFailure, ModelReply, ModelRequest
from orienteer.errors import EndpointError, Interrupted

#: Statuses of a refusal that another way of asking may avoid.
_REFUSALS = frozenset({400, 413, 415, 422, 501})
#: Reported prompt tokens below this share of the estimate look like a prompt that was cut.
_CUT_SHARE = 0.6
_CUT_FROM = 500
_NO_MODEL = re.compile(r"model[^.]{0,80}(?:not (?:exist|found|available)|does not exist|unknown|not supported)|"
                       r"model_not_found|(?:unknown|invalid|no such) model", re.IGNORECASE)  # fmt: skip
#: Not the bare word "billing": ordinary rate limits advertise the billing page.
_NO_MONEY = re.compile(
    r"insufficient_quota|exceeded your current quota|billing[ _]hard[ _]limit|"
    r"(?:insufficient|not enough) (?:funds|credit|balance)|balance is too low",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content[_ ]?(?:filter|policy|management)|responsible ?ai", re.IGNORECASE)


@dataclass(frozen=True)
class EndpointOptions:
    """Limits of one endpoint; seconds and bytes."""

    #: Wall clock for one HTTP request, first byte to last.
    timeout: float = 300.0
    #: Wall clock for one answer with all retries and waits.
    deadline: float = 900.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    stream: bool = False
    #: Largest answer that is taken.
    max_bytes: int = 8 << 20
    #: Answers in a row that may fail for good before the endpoint counts as dead.
    patience: int = 3


@dataclass
class _Call:
    """The state of one answer in the making."""

    request: ModelRequest
    key: str
    started: float
    deadline: float
    attempts: int = 0
    retries: int = 0
    #: Attempts that may have cost something and brought nothing.
    lost: int = 0
    changes: int = 0
    #: A dialect on trial: it becomes the endpoint's when it gets an answer.
    trial: Dialect | None = None
    #: What the trial changed, and the words that made it necessary.
    learned: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def left(self) -> float:
        return self.deadline - time.monotonic()


class OpenAIEndpoint:
    """A model behind an OpenAI-compatible endpoint.

    Args:
        model: the model's name as the endpoint knows it.
        base_url: the endpoint; None means :data:`DEFAULT_URL`.
        key: the API key; goes to the client and nowhere else.
        prices: the price table.
        options: limits.
        name: how the model is called in ``--model``; ``openai/MODEL`` by default.
        identity: overrides what stands for the model in request hashes (for servers on a port of the moment).
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key: str = "",
        prices: PriceTable,
        options: EndpointOptions | None = None,
        name: str = "",
        identity: str = "",
    ) -> None:
        url = base_url or DEFAULT_URL
        parts = urlsplit(url)
        self.name = name or f"openai/{model}"
        #: Host, port and path: never user and password.
        self.where = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"
        self.identity = identity or f"{self.name}@{self.where}"
        self._model = model
        self._options = options or EndpointOptions()
        self._price = prices.find(model, parts.hostname or "")
        self._scrub = Scrubber(key)
        self._transport = Transport(url, key, self._options.max_bytes)
        self._dialect = Dialect(stream=self._options.stream)
        self._lock = threading.Lock()
        self._failures = 0

    def __repr__(self) -> str:
        return f"OpenAIEndpoint({self.identity!r})"

    @property
    def dialect(self) -> Dialect:
        """How requests are written at the moment."""
        return self._dialect

    def price(self) -> tuple[float, float] | None:
        """Return the price per million tokens (in, out), or None when it is unknown."""
        return self._price

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def malformed(self, reply: ModelReply, was_json: bool) -> None:
        """Step structured output down when the endpoint evidently did not enforce what it was sent.

        A reply outside its schema shows that the schema was ignored; a reply that is not even JSON shows the same of
        JSON mode.
        """
        used = reply.sent.get("response_format")
        with self._lock:
            if used == self._dialect.format and (used == "json_schema" or (used == "json_object" and not was_json)):
                self._dialect = self._dialect.lower_format()

    def complete(self, request: ModelRequest, cancel: threading.Event, emit: Emit) -> ModelReply:
        """Answer one request; see :class:`~orienteer.agents.runtime.models.types.Model`."""
        now = time.monotonic()
        call = _Call(request, request.sha(self.identity), now, now + self._options.deadline)
        while True:
            if cancel.is_set():
                raise Interrupted("stopped before a model call")
            dialect = call.trial or self._dialect
            params, sent = dialect.payload(self._model, call.request)
            call.attempts += 1
            raw = self._transport.send(params, min(self._options.timeout, max(call.left(), 0.1)), cancel)
            reply = self._consider(raw, dialect, params, sent, call, cancel, emit)
            if reply is not None:
                self._failures = 0
                return reply

    def _consider(
        self,
        raw: Raw,
        dialect: Dialect,
        params: dict[str, Any],
        sent: dict[str, Any],
        call: _Call,
        cancel: threading.Event,
        emit: Emit,
    ) -> ModelReply | None:
        """Return the reply, or None when the request is to be sent again; raise when there is nothing to be had."""
        status, words = raw.status, ""
        if raw.fault in ("too_large", "invalid"):
            raise self._failure(call, params, raw.fault, raw.detail)
        if status is not None and 200 <= status < 300 and (not raw.fault or raw.body):
            answer = read_answer(raw, self._scrub)
            if answer.fault != "error_body":
                self._remember(call, emit)
            if not answer.fault and (not raw.fault or answer.finish_reason is not None):
                split_text(answer, call.request.schema is not None)
                return self._reply(answer, params, sent, call)
            if not raw.fault and answer.fault != "error_body":
                raise self._failure(call, params, answer.fault, answer.detail, answer)
            if answer.fault == "error_body":
                status, words = answer.error_status, answer.detail
                if status is None:
                    status = 400 if is_context(words) or names_parameter(words, params) else None
                if status is None:
                    raise self._failure(call, params, "error_body", f"the endpoint answered with an error: {words}")
        if raw.fault and (status is None or 200 <= status < 300) and not words:
            self._again(call, params, raw.fault, raw.detail, raw.headers, cancel, emit)
            return None
        if status is None:
            raise self._failure(call, params, "invalid", "the endpoint gave no status")
        words = words or self._words(raw)
        if not (status in (400, 422) and names_parameter(words, params)):
            self._refuse(status, words)
        if status in _REFUSALS and (status != 501 or names_parameter(words, params)):
            self._adapt(status, words, dialect, params, call, emit)
            return None
        if status >= 500 and is_context(words):
            raise self._too_long(call, params, words)
        if retryable(status):
            kind = "rate_limit" if status == 429 else "unavailable"
            self._again(call, params, kind, f"HTTP {status}: {words}", raw.headers, cancel, emit)
            return None
        raise self._failure(call, params, "refused", f"HTTP {status}: {words}")

    def _words(self, raw: Raw) -> str:
        text = raw.body.decode("utf-8", "replace")
        try:
            text = error_text(json.loads(text))
        except (ValueError, RecursionError):
            text = re.sub(r"<[^>]*>", " ", text)
        # Longer than what is shown: the telling word is often the last one.
        return shorten(self._scrub.clean(text), 1000) or "no message"

    def _refuse(self, status: int, words: str) -> None:
        """Raise :class:`EndpointError` for what no repetition and no other request can mend."""
        said = shorten(words)
        if status == 401:
            raise EndpointError(f"{self.where} refused the API key (401: {said})", "set OPENAI_API_KEY to a valid key")
        if status == 402 or (status < 500 and _NO_MONEY.search(words)):
            raise EndpointError(f"{self.where} has no credit left ({status}: {said})", "top up the account and resume")
        if status == 403:
            raise EndpointError(
                f"{self.where} does not allow {self._model} (403: {said})", "use a key or a model that has access"
            )
        if status in (404, 410) or (status in (400, 422) and _NO_MODEL.search(words)):
            if _NO_MODEL.search(words) or "model" in words.lower():
                raise EndpointError(
                    f"{self.where} has no model {self._model!r} ({status}: {said})",
                    "choose a model that the endpoint lists",
                )
            raise EndpointError(
                f"{self.where} has no chat completions ({status}: {said})",
                "check OPENAI_BASE_URL; it usually ends in /v1",
            )
        if status == 405 or 300 <= status < 400:
            raise EndpointError(
                f"{self.where} is no chat-completions endpoint ({status}: {said})",
                "check OPENAI_BASE_URL; it usually ends in /v1",
            )

    def _adapt(
        self, status: int, words: str, dialect: Dialect, params: dict[str, Any], call: _Call, emit: Emit
    ) -> None:
        """Get past a refusal by asking in another way, or fail this request."""
        if _FILTERED.search(words):
            raise self._failure(call, params, "content_filter", f"HTTP {status}: {words}")
        if status == 413 or is_context(words):
            room = room_for_reply(words)
            if room is not None and room < call.request.max_tokens and call.changes < 8:
                call.changes += 1
                call.request = replace(call.request, max_tokens=room)
                call.warnings.append(f"the token limit was lowered to {room} to fit the context window")
                return
            raise self._too_long(call, params, words)
        change = adapt(dialect, words, params) if call.changes < 8 else None
        if change is None:
            raise self._failure(call, params, "refused", f"HTTP {status}: {words}")
        call.changes += 1
        call.trial = change.dialect
        call.learned.append((change.what, words))

    def _remember(self, call: _Call, emit: Emit) -> None:
        """Take over the dialect that got an answer; one that led to another refusal is forgotten with its request."""
        if call.trial is None:
            return
        with self._lock:
            known, self._dialect = self._dialect == call.trial, call.trial
        for change, because in call.learned if not known else []:
            emit("model.adapted", {"model": self.name, "change": change, "because": shorten(because)})
        call.learned.clear()

    def _again(
        self,
        call: _Call,
        params: dict[str, Any],
        kind: str,
        detail: str,
        headers: dict[str, str],
        cancel: threading.Event,
        emit: Emit,
    ) -> None:
        """Wait before the next attempt, or give up."""
        wait = self._options.retry.wait(call.retries, call.key, headers)
        if call.retries >= self._options.retry.retries or wait >= call.left():
            self._give_up(call, params, kind, detail)
        call.retries += 1
        call.lost += kind in ("timeout", "reset")
        facts = {"model": self.name, "kind": kind, "detail": shorten(detail), "wait": round(wait, 3)}
        emit("model.retry", facts)
        if cancel.wait(wait):
            raise Interrupted("stopped while waiting to repeat a model call")

    def _give_up(self, call: _Call, params: dict[str, Any], kind: str, detail: str) -> None:
        seconds = time.monotonic() - call.started
        tried = f"{call.attempts} attempt(s) in {seconds:.0f} s"
        if kind == "connect":
            raise EndpointError(
                f"cannot reach {self.where} ({detail}; {tried})", "check OPENAI_BASE_URL and that the server runs"
            )
        self._failures += 1
        if self._failures >= self._options.patience:
            raise EndpointError(
                f"{self.where} failed {self._failures} answers in a row ({kind}: {detail})",
                "check the endpoint, then resume the run",
            )
        raise self._failure(call, params, kind, f"{detail} ({tried})")

    def _too_long(self, call: _Call, params: dict[str, Any], words: str) -> ModelFailure:
        size, reply = _prompt_estimate(params), call.request.max_tokens
        detail = f"the prompt of about {size} tokens with {reply} for the reply does not fit: {words}"
        return self._failure(call, params, "context", detail)

    def _failure(
        self, call: _Call, params: dict[str, Any], kind: str, detail: str, answer: Answer | None = None
    ) -> ModelFailure:
        """Return the failure with what it may have cost: nothing for a refusal, else at least the prompt."""
        billed = kind in ("cut", "timeout", "reset", "too_large", "not_json", "no_choices")
        tokens_in = (answer.tokens_in if answer else None) or (_prompt_estimate(params) if billed else 0)
        tokens_out = 0
        if answer is not None:
            tokens_out = answer.tokens_out or estimate_tokens(answer.text + answer.reasoning)
        return ModelFailure(
            kind,
            shorten(self._scrub.clean(detail), 500),
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            calls=call.attempts,
        )

    def _reply(self, answer: Answer, params: dict[str, Any], sent: dict[str, Any], call: _Call) -> ModelReply:
        warnings = call.warnings + answer.warnings
        if call.lost:
            warnings.append(f"{call.lost} attempt(s) ended without an answer and may have been billed")
        expected = _prompt_estimate(params)
        estimated = answer.tokens_in is None or answer.tokens_out is None
        tokens_in = expected if answer.tokens_in is None else answer.tokens_in
        tokens_out = answer.tokens_out
        if tokens_out is None:
            tokens_out = estimate_tokens(answer.text + answer.reasoning)
        if answer.tokens_in is not None and expected > _CUT_FROM and answer.tokens_in < _CUT_SHARE * expected:
            warnings.append(
                f"the endpoint counted {answer.tokens_in} prompt tokens where about {expected} were sent: "
                "it may have cut the prompt"
            )
        if answer.model and not _same_model(answer.model, self._model):
            warnings.append(f"asked {self._model!r}, answered by {answer.model!r}")
        return ModelReply(
            text=answer.text,
            reasoning=answer.reasoning,
            finish_reason=answer.finish_reason,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            estimated=estimated,
            model=answer.model,
            sent=sent,
            calls=call.attempts,
            latency=time.monotonic() - call.started,
            warnings=tuple(warnings),
            problem=answer.problem,
        )


def _same_model(reported: str, asked: str) -> bool:
    """Say whether a reported name is the asked one, give or take a date, a folder or a file ending."""
    short, want = reported.rsplit("/", 1)[-1].lower(), asked.rsplit("/", 1)[-1].lower()
    return short.startswith(want) or want.startswith(short.removesuffix(".gguf"))


def _prompt_estimate(params: dict[str, Any]) -> int:
    return sum(estimate_tokens(message["content"]) + 4 for message in params["messages"])
