"""Takes a reply apart: reasoning, code fences, JSON. The rule everywhere: what is cut off yields nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orienteer.agents.runtime.models.types import ModelFailure

_NAMES = r"(?:think|thinking|thought|reasoning)"
_OPEN = rf"(?:<{_NAMES}>|\[THINK\])"
_CLOSE = rf"(?:</{_NAMES}>|\[/THINK\])"
_BLOCK = re.compile(rf"{_OPEN}(.*?){_CLOSE}", re.IGNORECASE | re.DOTALL)
_OPEN_RE = re.compile(_OPEN, re.IGNORECASE)
_CLOSE_RE = re.compile(_CLOSE, re.IGNORECASE)
_CHANNEL = "<|channel|>"
_FINAL = re.compile(r"<\|channel\|>\s*final\s*<\|message\|>")
_CONTROL = re.compile(r"<\|(?:start|end|return|message|channel)\|>")


@dataclass(frozen=True)
class Split:
    """A reply without its reasoning."""

    content: str
    reasoning: str
    #: The reply ended inside a reasoning block: there is no content.
    unclosed: bool = False


def split_reasoning(text: str) -> Split:
    """Separate think blocks from the answer.

    Closed blocks are cut out; a closing tag without an opening one makes everything before it reasoning (chat templates
    often hold the opening tag); an unclosed block means that the model never came to its answer, so there is none.
    Tags count everywhere, also inside code fences: losing a reply that talks about such tags is better than running
    code that was only thought.
    """
    if _CHANNEL in text:
        return _split_channels(text)
    thoughts: list[str] = []

    def keep(match: re.Match[str]) -> str:
        thoughts.append(match.group(1).strip())
        return ""

    rest = _BLOCK.sub(keep, text)
    closings = list(_CLOSE_RE.finditer(rest))
    if closings:
        thoughts.append(_CLOSE_RE.sub("", rest[: closings[-1].start()]).strip())
        rest = rest[closings[-1].end() :]
    if _OPEN_RE.search(rest):
        thoughts.append(_OPEN_RE.sub("", rest).strip())
        return Split("", "\n".join(t for t in thoughts if t), unclosed=True)
    return Split(rest.strip() if thoughts else rest, "\n".join(t for t in thoughts if t))


def _split_channels(text: str) -> Split:
    """The same for replies whose server did not take the channel markup of the model's template apart."""
    finals = list(_FINAL.finditer(text))
    if not finals:
        return Split("", _CONTROL.sub(" ", text).strip(), unclosed=True)
    reasoning = _CONTROL.sub(" ", text[: finals[-1].start()]).strip()
    content = text[finals[-1].end() :]
    if _CHANNEL in content:
        return Split("", _CONTROL.sub(" ", text).strip(), unclosed=True)
    return Split(_CONTROL.sub("", content).strip(), reasoning)


@dataclass(frozen=True)
class Fence:
    """A fenced code block."""

    language: str
    body: str
    closed: bool


_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)$")


def fences(text: str) -> list[Fence]:
    """Return the fenced blocks of ``text`` in order (CommonMark's rules); a block that never ends is not closed."""
    found: list[Fence] = []
    mark = language = ""
    body: list[str] = []
    for line in text.splitlines():
        match = _FENCE.match(line)
        if not mark:
            if match and not ("`" in match.group(2) and match.group(1)[0] == "`"):
                mark, language, body = match.group(1), match.group(2).strip().split(" ")[0].lower(), []
        elif match and match.group(1)[0] == mark[0] and len(match.group(1)) >= len(mark) and not match.group(2).strip():
            found.append(Fence(language, "\n".join(body) + "\n", True))
            mark = ""
        else:
            body.append(line)
    if mark:
        found.append(Fence(language, "\n".join(body) + "\n", False))
    return found


def code_from(text: str, languages: tuple[str, ...] = ("python", "py")) -> str:
    """Return the one piece of code in ``text``, which is bare code or has one fenced block.

    With several blocks those marked with one of ``languages`` count; if that still is not exactly one, the reply is
    ambiguous. A block that was cut off is never returned.

    Raises:
        ModelFailure: ``truncated``, ``ambiguous`` or ``empty``.
    """
    blocks = fences(text)
    if not blocks:
        if not text.strip():
            raise ModelFailure("empty", "the reply holds no code")
        return text
    if not blocks[-1].closed:
        raise ModelFailure("truncated", "the last code block has no end")
    wanted = blocks if len(blocks) == 1 else [b for b in blocks if b.language in languages]
    if len({b.body for b in wanted}) != 1:
        raise ModelFailure("ambiguous", f"the reply holds {len(blocks)} code blocks, one was asked for")
    if not wanted[0].body.strip():
        raise ModelFailure("empty", "the code block is empty")
    return wanted[0].body


class BadJson(ValueError):
    """Not JSON, or JSON that leaves a doubt."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result and result[key] != value:
            raise BadJson(f"the key {key!r} occurs twice with different values")
        result[key] = value
    return result


def _constant(name: str) -> Any:
    raise BadJson(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadJson(f"the number {text[:40]} is too large")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)
_TRAILING = re.compile(r'("(?:\\.|[^"\\])*")|,(\s*[}\]])', re.DOTALL)


def _drop_trailing_commas(text: str) -> str:
    return _TRAILING.sub(lambda m: m.group(1) if m.group(1) is not None else m.group(2), text)


def loads(text: str) -> Any:
    """Parse a whole text as JSON; a trailing comma before a closing bracket is forgiven, NaN and doubts are not.

    Raises:
        BadJson: with the reason.
    """
    try:
        return _DECODER.decode(text)
    except BadJson:
        raise
    except RecursionError:
        raise BadJson("nested too deeply") from None
    except ValueError as error:
        first = error
    try:
        return _DECODER.decode(_drop_trailing_commas(text))
    except (ValueError, RecursionError):
        raise BadJson(str(first)) from None


#: Starts tried when JSON is looked for inside prose; a reply with more is not a reply.
_MAX_STARTS = 50


def json_values(text: str) -> Iterator[Any]:
    """Yield the JSON values that ``text`` may mean, the most literal reading first.

    The whole text; else the closed fenced blocks; else objects and arrays that stand in prose. A value that is cut off
    is not among them.
    """
    try:
        yield loads(text.strip())
        return
    except BadJson:
        pass
    blocks = fences(text)
    found = False
    for block in blocks:
        if block.closed:
            try:
                yield loads(block.body.strip())
                found = True
            except BadJson:
                continue
    if found or any(not b.closed for b in blocks):
        return
    relaxed = _drop_trailing_commas(text)
    position = tries = 0
    while tries < _MAX_STARTS:
        match = re.compile(r"[{\[]").search(relaxed, position)
        if match is None:
            return
        tries += 1
        try:
            value, position = _DECODER.raw_decode(relaxed, match.start())
            yield value
        except (ValueError, RecursionError):
            position = match.end()
