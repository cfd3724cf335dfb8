"""Reads an endpoint's body, whatever form it has: JSON or events, complete or cut, an answer or an error."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orienteer.agents.runtime.models.parsing import split_reasoning
from orienteer.agents.runtime.models.text import Scrubber, shorten

if TYPE_CHECKING:
    from orienteer.agents.runtime.models.transport import Raw

#: Other names of "the limit of tokens was reached".
LENGTH = frozenset({"length", "max_tokens", "model_length", "max_output_tokens", "max_length"})
_KNOWN = LENGTH | {"stop", "tool_calls", "function_call", "content_filter", "eos", "end_turn", "stop_sequence"}
#: No reply has more tokens than this; a larger count is a fault of the server.
_MOST_TOKENS = 50_000_000


@dataclass
class Answer:
    """An endpoint's answer in one form."""

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    #: None where the endpoint reported nothing usable.
    tokens_in: int | None = None
    tokens_out: int | None = None
    model: str = ""
    warnings: list[str] = field(default_factory=list)
    #: ``kind: message`` for a full answer without anything usable in it.
    problem: str = ""
    #: Set when there is no full answer: ``not_json``, ``cut``, ``error_body`` or ``no_choices``.
    fault: str = ""
    detail: str = ""
    #: Status code inside an error body that came with status 200.
    error_status: int | None = None


def error_text(value: Any) -> str:
    """Return the words of an error body in any of its common forms."""
    if isinstance(value, dict):
        inner = value.get("error", value)
        if isinstance(inner, dict):
            parts = [inner.get(name) for name in ("message", "detail", "msg", "code", "type", "param")]
            words = " ".join(str(part) for part in parts if isinstance(part, (str, int)) and part != "")
            return words or json.dumps(inner)[:2000]
        return str(inner)
    return str(value)


def read_answer(raw: Raw, scrub: Scrubber) -> Answer:
    """Turn the bytes of a response with status 200 into an :class:`Answer`; never raises for what a server sent."""
    answer = Answer()
    try:
        body = raw.body.decode("utf-8-sig")
    except UnicodeDecodeError:
        body = raw.body.decode("utf-8", "replace")
        answer.warnings.append("the answer is not valid UTF-8")
    media = raw.headers.get("content-type", "").split(";")[0].strip().lower()
    head = body.lstrip()[:16]
    if head.startswith(("data:", "event:", ":", "id:", "retry:")) or (media == "text/event-stream" and head[:1] != "{"):
        _read_events(body, answer, raw)
    else:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            seen = shorten(scrub.clean(body), 120) or "an empty body"
            answer.fault, answer.detail = "not_json", f"the answer ({media or 'no content type'}) is not JSON: {seen}"
            return answer
        if media not in ("application/json", "text/event-stream"):
            answer.warnings.append(f"the answer came with content type {shorten(scrub.clean(media), 60) or 'none'}")
        _read_document(document, answer)
    _finish(answer, scrub)
    return answer


def _read_document(document: Any, answer: Answer) -> None:
    if not isinstance(document, dict):
        answer.fault, answer.detail = "no_choices", f"the answer is a JSON {type(document).__name__}, not an object"
        return
    if document.get("error"):
        _read_error(document, answer)
        return
    _read_usage(document.get("usage"), answer)
    answer.model = document["model"] if isinstance(document.get("model"), str) else ""
    choice = _first(document.get("choices"))
    if choice is None:
        answer.fault, answer.detail = "no_choices", "the answer has no choices"
        return
    message = choice.get("message")
    _read_message(message if isinstance(message, dict) else choice, answer)
    reason = choice.get("finish_reason")
    answer.finish_reason = reason if isinstance(reason, str) else None
    if answer.finish_reason is None:
        answer.warnings.append("the endpoint gave no finish reason")


def _read_error(document: dict[str, Any], answer: Answer) -> None:
    answer.fault, answer.detail = "error_body", error_text(document)
    error = document["error"]
    code = error.get("code", error.get("status")) if isinstance(error, dict) else document.get("code")
    if isinstance(code, str) and code.isdigit():
        code = int(code)
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
        answer.error_status = code


def _first(choices: Any) -> dict[str, Any] | None:
    if not isinstance(choices, list):
        return None
    usable = [c for c in choices if isinstance(c, dict)]
    zero = [c for c in usable if c.get("index", 0) in (0, None)]
    found = zero or usable
    return found[0] if found else None


def _words(content: Any) -> str:
    """Return the text of a content field: a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    parts: list[str] = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") in ("text", "output_text"):
            text = part.get("text")
            parts.append(
                text if isinstance(text, str) else str(text.get("value", "")) if isinstance(text, dict) else ""
            )
    return "".join(parts)


def _thoughts(message: dict[str, Any]) -> str:
    """Return the reasoning of a message, from its own fields and from parts of the content."""
    found: list[str] = []
    for name in ("reasoning_content", "reasoning", "thinking"):
        value = message.get(name)
        text = _words(value) if not isinstance(value, dict) else _words(value.get("content") or value.get("text"))
        if text and text not in found:
            found.append(text)
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and part.get("type") in ("thinking", "reasoning"):
            found.append(_words(part.get("thinking") or part.get("reasoning") or part.get("text")))
    return "".join(found)


def _read_message(message: dict[str, Any], answer: Answer) -> None:
    answer.text += _words(message.get("content", message.get("text")))
    answer.reasoning += _thoughts(message)
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        answer.problem = answer.problem or "refusal: "
        answer.problem += refusal
    elif (message.get("tool_calls") or message.get("function_call")) and not answer.problem:
        answer.problem = "tool_call: the model called a tool instead of answering"


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not 0 < value <= _MOST_TOKENS or value != int(value):
        return None
    return int(value)


def _read_usage(usage: Any, answer: Answer) -> None:
    if not isinstance(usage, dict):
        return
    answer.tokens_in = _count(usage.get("prompt_tokens", usage.get("input_tokens"))) or answer.tokens_in
    answer.tokens_out = _count(usage.get("completion_tokens", usage.get("output_tokens"))) or answer.tokens_out


def _events(body: str) -> list[tuple[str, str]]:
    """Return (event, data) of a stream of server-sent events; comments are skipped."""
    found: list[tuple[str, str]] = []
    name = ""
    data: list[str] = []
    for line in [*body.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if not line:
            if data:
                found.append((name, "\n".join(data)))
            name, data = "", []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            name = line[6:].strip()
    return found


def _read_events(body: str, answer: Answer, raw: Raw) -> None:
    broken = 0
    done = False
    for name, data in _events(body):
        if data.strip() == "[DONE]":
            done = True
            break
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            broken += 1
            continue
        if not isinstance(event, dict):
            broken += 1
            continue
        if event.get("error") or name == "error":
            _read_error(event if event.get("error") else {"error": event}, answer)
            return
        _read_usage(event.get("usage"), answer)
        if isinstance(event.get("model"), str) and not answer.model:
            answer.model = event["model"]
        choice = _first(event.get("choices"))
        if choice is None or choice.get("index", 0) not in (0, None):
            continue
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = choice.get("message")
        if isinstance(delta, dict):
            _read_message(delta, answer)
        if isinstance(choice.get("finish_reason"), str):
            answer.finish_reason = choice["finish_reason"]
    if answer.finish_reason is None:
        # Neither a clean end nor [DONE] proves that the reply is whole: only the finish reason does.
        answer.fault = "cut"
        answer.detail = f"the stream ended {'with [DONE] but ' if done else ''}without a finish reason"
        if raw.detail:
            answer.detail += f" ({raw.detail})"
    elif broken:
        answer.fault, answer.detail = "cut", f"{broken} event(s) of the stream were unreadable"


def _finish(answer: Answer, scrub: Scrubber) -> None:
    """Clean every text and name what is wrong with a full answer."""
    for name in ("text", "reasoning", "model", "problem", "detail"):
        setattr(answer, name, scrub.clean(getattr(answer, name)))
    answer.model = shorten(answer.model, 200)
    if answer.finish_reason is not None:
        answer.finish_reason = shorten(scrub.clean(answer.finish_reason), 60)
    if answer.fault:
        answer.detail = shorten(answer.detail)
        return
    answer.problem = shorten(answer.problem)
    if answer.finish_reason is not None and answer.finish_reason not in _KNOWN:
        answer.warnings.append(f"unknown finish reason {answer.finish_reason!r}")
    if answer.finish_reason == "content_filter":
        answer.problem = "content_filter: the endpoint's content filter stopped the reply"
    if answer.text.strip() and answer.problem.startswith("tool_call"):
        answer.problem = ""
        answer.warnings.append("the reply also holds tool calls; they were not run")
    if not answer.text.strip() and not answer.problem:
        if answer.finish_reason in LENGTH:
            where = "while reasoning, before any answer" if answer.reasoning else "before any answer"
            answer.problem = f"truncated: the token limit cut the reply off {where}"
        else:
            answer.problem = "empty: the reply has reasoning but no answer" if answer.reasoning else "empty: no content"


def split_text(answer: Answer, as_json: bool) -> None:
    """Move think blocks from the text of ``answer`` to its reasoning.

    A text that is one JSON value as a whole is left alone when JSON was asked for: there the structure decides.
    """
    if not answer.text or answer.problem:
        return
    if as_json:
        try:
            json.loads(answer.text)
            return
        except (ValueError, RecursionError):
            pass
    split = split_reasoning(answer.text)
    answer.text = split.content
    answer.reasoning = "\n".join(part for part in (answer.reasoning, split.reasoning) if part)
    if split.unclosed:
        cut = "truncated" if answer.finish_reason in LENGTH else "empty"
        answer.problem = f"{cut}: the reply ends inside a reasoning block, before any answer"
    elif not answer.text.strip():
        answer.problem = "empty: the reply has reasoning but no answer"
