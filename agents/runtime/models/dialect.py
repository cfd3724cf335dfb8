"""What one endpoint takes: found out by being refused, remembered for the run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from orienteer.agents.runtime.models.schema import instruction, is_strict
from orienteer.agents.runtime.models.text import storable
from orienteer.agents.runtime.models.types import ModelRequest

Format = Literal["json_schema", "json_object", "plain"]
_LOWER: dict[Format, Format] = {"json_schema": "json_object", "json_object": "plain", "plain": "plain"}


@dataclass(frozen=True)
class Dialect:
    """How requests to one endpoint are written. Immutable: threads share it and swap it as a whole."""

    limit_name: Literal["max_tokens", "max_completion_tokens", ""] = "max_tokens"
    #: Largest token limit that the endpoint takes; None when it never complained.
    limit_cap: int | None = None
    temperature: bool = True
    seed: bool = True
    system: bool = True
    #: The richest form of structured output that was not refused.
    format: Format = "json_schema"
    stream_options: bool = True
    stream: bool = False

    def lower_format(self) -> Dialect:
        """Return the dialect one step down: schema, JSON mode, plain."""
        return replace(self, format=_LOWER[self.format])

    def payload(self, model: str, request: ModelRequest) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments of a chat completion and the record of them (no messages, no key)."""
        params: dict[str, Any] = {"model": model}
        if self.limit_name:
            limit = request.max_tokens if self.limit_cap is None else min(request.max_tokens, self.limit_cap)
            params[self.limit_name] = limit
        if self.temperature and request.temperature is not None:
            params["temperature"] = request.temperature
        if self.seed and request.seed is not None:
            params["seed"] = request.seed
        if self.stream:
            params["stream"] = True
            if self.stream_options:
                params["stream_options"] = {"include_usage": True}
        messages = [{"role": role, "content": storable(content)} for role, content in request.messages]
        sent = dict(params)
        if request.schema is not None:
            # Stated in words as well: an endpoint may ignore the parameter without a word.
            _append(messages, instruction(request.schema))
            sent["schema_in_prompt"] = True
            if self.format == "json_schema":
                params["response_format"] = {
                    "type": "json_schema",
                    "json_schema": {
                        "name": request.schema_name,
                        "schema": request.schema,
                        "strict": is_strict(request.schema),
                    },
                }
            elif self.format == "json_object":
                params["response_format"] = {"type": "json_object"}
            sent["response_format"] = self.format
        if not self.system:
            messages = _fold(messages)
            sent["system"] = "folded into the user message"
        params["messages"] = messages
        return params, sent


def _append(messages: list[dict[str, str]], text: str) -> None:
    for message in reversed(messages):
        if message["role"] == "user":
            message["content"] = f"{message['content']}\n\n{text}"
            return
    messages.append({"role": "user", "content": text})


def _fold(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """Put system text in front of the first user message, for endpoints without such a role."""
    system = "\n\n".join(m["content"] for m in messages if m["role"] in ("system", "developer"))
    rest = [dict(m) for m in messages if m["role"] not in ("system", "developer")]
    if not system:
        return rest
    for message in rest:
        if message["role"] == "user":
            message["content"] = f"{system}\n\n{message['content']}"
            return rest
    return [{"role": "user", "content": system}, *rest]


@dataclass(frozen=True)
class Change:
    """A dialect that should get past a refusal, and what was changed."""

    dialect: Dialect
    what: str


_NUMBER = r"([\d,]{1,12})"
_AT_MOST = re.compile(
    rf"(?:at most|maximum (?:value )?(?:is|of)|less than or equal to|<=|cannot exceed|up to) *{_NUMBER}"
)
_CONTEXT = re.compile(
    r"context[ _-]?(?:length|size|window)|maximum context|too many (?:input |prompt )?tokens|"
    r"(?:prompt|input|request|message)s? (?:is |are )?too (?:long|large)|reduce the length|"
    r"exceeds? the (?:model'?s? )?(?:maximum|available|limit)[^.]{0,40}(?:context|token)",
    re.IGNORECASE,
)
_WINDOW = re.compile(rf"(?:context (?:length|size|window)|maximum)[^0-9]{{0,30}}{_NUMBER}", re.IGNORECASE)
_IN_PROMPT = re.compile(rf"{_NUMBER} (?:tokens )?(?:in|from) (?:the |your )?(?:messages|input|prompt)", re.IGNORECASE)
#: A reply of fewer tokens is not worth asking for.
LEAST_REPLY = 256


def is_context(text: str) -> bool:
    """Say whether an endpoint's refusal is about the size of the prompt."""
    return bool(_CONTEXT.search(text))


def names_parameter(text: str, params: dict[str, Any]) -> bool:
    """Say whether a refusal is about something optional that we sent, rather than about the model as such."""
    low = text.lower()
    names = set(params) - {"model", "messages", "stream"}
    if params["messages"] and params["messages"][0]["role"] != "user":
        names |= {"role", f"{params['messages'][0]['role']} message"}
    if "response_format" in params:
        names |= {"json_schema", "json_object", "json mode", "structured output", "response format"}
    return any(name in low for name in names) or "max_completion_tokens" in low


def _int(text: str) -> int:
    return int(text.replace(",", "") or 0)


def room_for_reply(text: str) -> int | None:
    """Return the tokens left for a reply when a refusal names the window and the prompt's size, else None."""
    window, prompt = _WINDOW.search(text), _IN_PROMPT.search(text)
    if not window or not prompt:
        return None
    room = _int(window.group(1)) - _int(prompt.group(1))
    return room if room >= LEAST_REPLY else None


def adapt(dialect: Dialect, text: str, params: dict[str, Any]) -> Change | None:
    """Return the next thing to try after a refusal (400, 422 ...) with these words, or None.

    Every change takes something away or renames it once, so a sequence of refusals ends.

    Args:
        dialect: the one that was refused.
        text: the endpoint's words.
        params: what was sent.
    """
    low = text.lower()
    for check in (_limit, _structure, _roles, _stream, _draw):
        change = check(dialect, low, params)
        if change is not None:
            return change
    return _bare(dialect, params)


def _limit(dialect: Dialect, low: str, params: dict[str, Any]) -> Change | None:
    name = dialect.limit_name
    if not name or ("max_tokens" not in low and "max_completion_tokens" not in low and "maxtokens" not in low):
        return None
    cap = _AT_MOST.search(low)
    sent = params.get(name, 0)
    if cap and 0 < _int(cap.group(1)) < sent:
        value = _int(cap.group(1))
        return Change(replace(dialect, limit_cap=value), f"token limit lowered to {value}")
    if name == "max_tokens":
        return Change(replace(dialect, limit_name="max_completion_tokens"), "max_tokens -> max_completion_tokens")
    return Change(replace(dialect, limit_name=""), "without a token limit")


def _structure(dialect: Dialect, low: str, params: dict[str, Any]) -> Change | None:
    words = ("response_format", "json_schema", "json_object", "json mode", "structured output", "grammar", "schema")
    if "response_format" not in params or not any(word in low for word in words):
        return None
    lower = dialect.lower_format()
    return Change(lower, f"structured output {dialect.format} -> {lower.format}")


def _roles(dialect: Dialect, low: str, params: dict[str, Any]) -> Change | None:
    roles = {message["role"] for message in params["messages"]}
    if not dialect.system or not roles & {"system", "developer"}:
        return None
    if not re.search(r"\b(?:system|developer)\b|\broles? must alternate\b", low):
        return None
    return Change(replace(dialect, system=False), "system role folded into the user message")


def _stream(dialect: Dialect, low: str, params: dict[str, Any]) -> Change | None:
    if "stream_options" in params and ("stream_options" in low or "include_usage" in low):
        return Change(replace(dialect, stream_options=False), "without stream_options")
    if "stream" in params and re.search(r"\bstream(?:ing)?\b", low):
        return Change(replace(dialect, stream=False), "without streaming")
    return None


def _draw(dialect: Dialect, low: str, params: dict[str, Any]) -> Change | None:
    if "temperature" in params and "temperature" in low:
        return Change(replace(dialect, temperature=False), "without temperature")
    if "seed" in params and re.search(r"\bseed\b", low):
        return Change(replace(dialect, seed=False), "without seed")
    return None


def _bare(dialect: Dialect, params: dict[str, Any]) -> Change | None:
    """A refusal that names nothing we sent: once without everything that is optional."""
    optional = {"temperature", "seed", "response_format", "stream", "stream_options"} & set(params)
    if not optional:
        return None
    bare = replace(dialect, temperature=False, seed=False, stream=False, stream_options=False, format="plain")
    return Change(bare, "without " + ", ".join(sorted(optional)))
