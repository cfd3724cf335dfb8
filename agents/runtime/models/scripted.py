"""Replies from a file, the same whatever the order and number of threads; ``docs/models.md`` has the format."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orienteer.agents.runtime.models.answer import Answer, split_text
from orienteer.agents.runtime.models.text import estimate_tokens, storable
from orienteer.agents.runtime.models.types import Emit, ModelFailure, ModelReply, ModelRequest
from orienteer.errors import EndpointError, Interrupted, UsageError

_CURE = "docs/models.md describes the format of scripts"
_STRINGS = frozenset({"match", "sample", "reasoning", "fail", "message", "comment"})
_KEYS = _STRINGS | {"turn", "reply", "replies", "finish_reason", "delay", "tokens_in", "tokens_out"}
#: Failures that a script may play; ``endpoint`` ends the run.
_LAST_NUMBER = re.compile(r"(\d+)\D*$")


@dataclass(frozen=True)
class Entry:
    """One line of a script: when it applies, and what it answers."""

    line: int
    match: str
    sample: str | None
    turn: int | None
    replies: tuple[str, ...]
    reasoning: str
    finish_reason: str | None
    fail: str
    message: str
    delay: float
    tokens_in: int | None
    tokens_out: int | None

    def applies(self, request: ModelRequest) -> bool:
        """Say whether this entry answers ``request``; looks at nothing but the request."""
        users = [content for role, content in request.messages if role == "user"]
        if self.turn is not None and self.turn != len(users):
            return False
        if self.sample is not None and self.sample != request.sample:
            return False
        return not self.match or self.match in (users[-1] if users else "")

    def choose(self, request: ModelRequest) -> str:
        """Return one of the replies: by the last number in the sample, else by a hash of the request."""
        if len(self.replies) == 1:
            return self.replies[0]
        number = _LAST_NUMBER.search(request.sample)
        if number:
            return self.replies[int(number.group(1)) % len(self.replies)]
        digest = hashlib.sha256(request.sha("script").encode()).digest()
        return self.replies[int.from_bytes(digest[:8], "big") % len(self.replies)]


class ScriptedModel:
    """A model that answers from a JSONL file; the first entry that applies to a request answers it.

    Args:
        path: the script.

    Raises:
        UsageError: the file is missing or a line of it is not an entry.
    """

    def __init__(self, path: str | Path) -> None:
        file = Path(path)
        try:
            data = file.read_bytes()
            text = data.decode("utf-8")
        except OSError as error:
            raise UsageError(f"cannot read the script {file} ({error.strerror})", _CURE) from None
        except UnicodeDecodeError:
            raise UsageError(f"the script {file} is not UTF-8 text", _CURE) from None
        self._entries = [
            _entry(line, number, file)
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if not self._entries:
            raise UsageError(f"the script {file} has no entries", _CURE)
        self.name = f"scripted/{path}"
        # The content is part of the identity: an edited script is another model.
        self.identity = f"scripted@{hashlib.sha256(data).hexdigest()[:16]}"

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r})"

    def complete(self, request: ModelRequest, cancel: threading.Event, emit: Emit) -> ModelReply:
        """Answer one request; see :class:`~orienteer.agents.runtime.models.types.Model`."""
        if cancel.is_set():
            raise Interrupted("stopped before a model call")
        entry = next((e for e in self._entries if e.applies(request)), None)
        if entry is None:
            raise ModelFailure("script", f"no entry of the script applies (sample {request.sample!r})")
        if entry.delay and cancel.wait(entry.delay):
            raise Interrupted("stopped while a model call was in flight")
        expected = sum(estimate_tokens(content) + 4 for _, content in request.messages)
        tokens_in = expected if entry.tokens_in is None else entry.tokens_in
        if entry.fail == "endpoint":
            raise EndpointError(entry.message or "the script ends the run", "edit the script")
        if entry.fail:
            raise ModelFailure(
                entry.fail, entry.message or f"scripted on line {entry.line}", tokens_in=tokens_in, calls=1
            )
        answer = Answer(text=storable(entry.choose(request)), reasoning=entry.reasoning)
        answer.finish_reason = entry.finish_reason
        if not answer.text.strip():
            answer.problem = "empty: no content"
        split_text(answer, request.schema is not None)
        produced = estimate_tokens(answer.text + answer.reasoning)
        return ModelReply(
            text=answer.text,
            reasoning=answer.reasoning,
            finish_reason=answer.finish_reason,
            tokens_in=tokens_in,
            tokens_out=produced if entry.tokens_out is None else entry.tokens_out,
            estimated=entry.tokens_in is None or entry.tokens_out is None,
            model=self.name,
            sent={"line": entry.line, "max_tokens": request.max_tokens},
            calls=1,
            latency=entry.delay,
            problem=answer.problem,
        )

    def malformed(self, reply: ModelReply, was_json: bool) -> None:
        """Do nothing: a script has no dialect."""

    def price(self) -> tuple[float, float] | None:
        """Return a price of zero."""
        return 0.0, 0.0

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _entry(line: str, number: int, file: Path) -> Entry:
    def bad(reason: str) -> UsageError:
        return UsageError(f"{file} line {number}: {reason}", _CURE)

    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise bad(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise bad("an entry is a JSON object")
    unknown = sorted(set(value) - _KEYS)
    if unknown:
        raise bad(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}")
    for key in sorted(_STRINGS & set(value)):
        if not isinstance(value[key], str):
            raise bad(f"{key!r} is a string")
    if sum(key in value for key in ("reply", "replies", "fail")) != 1:
        raise bad("an entry has exactly one of 'reply', 'replies' and 'fail'")
    replies = value.get("replies", [value["reply"]] if "reply" in value else [])
    if not isinstance(replies, list) or ("replies" in value and not replies):
        raise bad("'replies' is a list with at least one reply")
    finish = value.get("finish_reason", "stop")
    if finish is not None and not isinstance(finish, str):
        raise bad("'finish_reason' is a string or null")
    delay = value.get("delay", 0)
    if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay <= 3600:
        raise bad("'delay' is a number of seconds from 0 to 3600")
    for key in ("turn", "tokens_in", "tokens_out"):
        whole = value.get(key, 1)
        if isinstance(whole, bool) or not isinstance(whole, int) or whole < 0:
            raise bad(f"{key!r} is a whole number")
    return Entry(
        line=number,
        match=value.get("match", ""),
        sample=value.get("sample"),
        turn=value.get("turn"),
        replies=tuple(_as_text(reply) for reply in replies),
        reasoning=storable(value.get("reasoning", "")),
        finish_reason=finish,
        fail=value.get("fail", ""),
        message=value.get("message", ""),
        delay=float(delay),
        tokens_in=value.get("tokens_in"),
        tokens_out=value.get("tokens_out"),
    )


def _as_text(reply: Any) -> str:
    """Return a reply as the model's text; anything but a string is written as JSON."""
    return reply if isinstance(reply, str) else json.dumps(reply)
